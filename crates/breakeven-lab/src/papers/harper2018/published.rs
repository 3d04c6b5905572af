//! The figures of the thesis, printed in its text and tables. Its pictures carry no data here.

use breakeven::model::BufferCodec;
use breakeven::units::Seconds;

use super::bench::Way;
use super::costs::Count;

/// The page fault of Table 4, in microseconds: "the time to beat".
pub const FAULT_US: f64 = 110.0;

/// Microseconds of an 8 KiB page (Table 4 and the text above it): elapsed on one thread, elapsed
/// on eight in bulk, and processor time on eight.
pub struct PageTimes {
    compress_one: f64,
    compress_all: f64,
    compress_all_cpu: f64,
    /// lz4's is not printed.
    decompress_one: Option<f64>,
    decompress_all: f64,
}

/// A codec of the thesis.
pub struct PublishedCodec {
    pub name: &'static str,
    /// The method of ours that is the same codec at the same level: his program asks for lz4's
    /// default, zlib 6 and zstd 3.
    pub method: &'static str,
    /// Ratio of whole files, over all data (Figure 6, text).
    pub whole_ratio: f64,
    /// Ratio of 8 KiB pages, over all data (Figure 7, text); zlib's is not printed.
    pub page_ratio: Option<f64>,
    /// zlib's are not printed.
    pub page_times: Option<PageTimes>,
}

impl PublishedCodec {
    /// Returns elapsed and processor microseconds of a page on one thread or, in `bulk`, on eight.
    pub fn page_times(&self, way: Way, bulk: bool) -> (Option<f64>, Option<f64>) {
        let Some(times) = &self.page_times else {
            return (None, None);
        };
        match (way, bulk) {
            (Way::Compress, false) => (Some(times.compress_one), Some(times.compress_one)),
            (Way::Compress, true) => (Some(times.compress_all), Some(times.compress_all_cpu)),
            (Way::Decompress, false) => (times.decompress_one, times.decompress_one),
            (Way::Decompress, true) => (Some(times.decompress_all), None),
        }
    }

    /// Returns the microseconds of restoring a page: compressing one, decompressing another.
    pub fn restoring(&self, count: Count) -> Option<f64> {
        let decompress = self.page_times(Way::Decompress, count == Count::Thesis).0;
        Some(self.page_times(Way::Compress, true).0? + decompress?)
    }

    /// Returns the codec of the model at the rates of Table 4. A rate that is not printed is NaN, and counts in no
    /// figure of the thesis.
    pub fn buffer_codec(&self) -> BufferCodec {
        let seconds = |way, bulk| {
            let us = self.page_times(way, bulk).0;
            Seconds(us.map_or(f64::NAN, |us| us * 1e-6))
        };
        BufferCodec {
            ratio: self.page_ratio.unwrap_or(f64::NAN),
            compress_bulk: seconds(Way::Compress, true),
            decompress_bulk: seconds(Way::Decompress, true),
            compress_latency: seconds(Way::Compress, false),
            decompress_latency: seconds(Way::Decompress, false),
        }
    }
}

/// Returns the codec that a method of ours stands for.
///
/// # Panics
///
/// If there is none.
pub fn codec(method: &str) -> &'static PublishedCodec {
    let found = CODECS.iter().find(|codec| codec.method == method);
    found.expect("a method of the thesis")
}

pub static CODECS: [PublishedCodec; 3] = [
    PublishedCodec {
        name: "lz4",
        method: "lz4:1",
        whole_ratio: 2.50,
        page_ratio: Some(2.13),
        page_times: Some(PageTimes {
            compress_one: 11.0,
            compress_all: 2.0,
            compress_all_cpu: 17.0,
            decompress_one: None,
            decompress_all: 1.0,
        }),
    },
    PublishedCodec {
        name: "zlib",
        method: "deflate:6",
        whole_ratio: 3.76,
        page_ratio: None,
        page_times: None,
    },
    PublishedCodec {
        name: "zstd",
        method: "zstd:3",
        whole_ratio: 3.87,
        page_ratio: Some(2.97),
        page_times: Some(PageTimes {
            compress_one: 39.0,
            compress_all: 8.0,
            compress_all_cpu: 66.0,
            decompress_one: Some(12.0),
            decompress_all: 3.0,
        }),
    },
];

/// The methods of the codecs.
pub const METHODS: [&str; 3] = ["lz4:1", "deflate:6", "zstd:3"];

/// The presets of his devices, with the names of Tables 1 and 3.
pub const DEVICES: [(&str, &str); 3] = [
    ("harper-hdd", "hard disk"),
    ("harper-ssd", "SSD"),
    ("harper-ram", "RAM disk"),
];

/// Block sizes of Table 3, in bytes.
pub const DEVICE_BLOCK_BYTES: [u64; 6] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_are_named_by_their_methods() {
        let methods: Vec<&str> = CODECS.iter().map(|codec| codec.method).collect();
        assert_eq!(methods, METHODS);
        assert_eq!(codec("zstd:3").name, "zstd");
    }

    /// Chapter 4, Objective 2: restoring takes 3 or 11 us.
    #[test]
    fn restoring_is_the_sum_of_both_ways() {
        let check = |method: &str, count: Count, expected: Option<f64>| {
            assert_eq!(codec(method).restoring(count), expected, "{method}");
        };
        check("lz4:1", Count::Thesis, Some(3.0));
        check("zstd:3", Count::Thesis, Some(11.0));
        check("zstd:3", Count::Waiting, Some(20.0));
        check("lz4:1", Count::Waiting, None);
        check("deflate:6", Count::Thesis, None);
    }
}
