//! Compression by a device beside the processor, and its limit: free compression.
//!
//! A device has one entry for each direction, since most work in one direction only or at different speeds. Each takes
//! only blocks of certain sizes. The figures are published ones. An unpublished figure is left out and counts as zero,
//! so a time computed here is a lower bound. None of these devices was measured by this project.
//!
//! Source: Harper 2018, chapter 4, "The Silver Bullet" (FPGA, ASIC); the vendors' figures as
//! named in each profile.

use crate::units::{BytesPerSecond, Joules, Seconds, Watts};

/// A device that compresses, decompresses, or both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offload {
    /// Name for options and reports.
    pub name: &'static str,
    /// Formats it produces or reads.
    pub formats: &'static [&'static str],
    /// Compressing; `None` where it cannot.
    pub compress: Option<Direction>,
    /// Decompressing; `None` if it cannot, or without a published figure.
    pub decompress: Option<Direction>,
    /// Where the figures come from.
    pub source: &'static str,
}

/// One direction of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Direction {
    /// How fast it goes.
    pub throughput: Throughput,
    /// Time to hand over a block and to learn of its end.
    pub submit: Seconds,
    /// Smallest block it takes, in bytes.
    pub block_bytes_min: u64,
    /// Largest block it takes, in bytes.
    pub block_bytes_max: u64,
    /// Time of a host core for each byte.
    pub host_seconds_per_byte: f64,
    /// Power of the device at work; `None` without a published figure.
    pub power: Option<Watts>,
}

/// The form of a device's speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Throughput {
    /// Raw bytes per second.
    Absolute(BytesPerSecond),
    /// A multiple of the time of the host's own code.
    TimesSoftware(f64),
    /// No time at all: the limit.
    Free,
}

impl Direction {
    /// Returns the time for one block of `block_bytes` raw bytes. `software` is the time of the host's own code for it.
    /// `None` if the device does not take blocks of this size.
    ///
    /// # Panics
    /// When the software's time is negative or NaN.
    pub fn time(&self, block_bytes: u64, software: Seconds) -> Option<Seconds> {
        assert!(software.0 >= 0.0, "software takes {software}");
        let range = self.block_bytes_min..=self.block_bytes_max;
        range.contains(&block_bytes).then(|| {
            let bytes = block_bytes as f64;
            let work = match self.throughput {
                Throughput::Absolute(rate) => rate.time_for(bytes),
                Throughput::TimesSoftware(factor) => software / factor,
                Throughput::Free => Seconds(0.0),
            };
            self.submit + work + Seconds(bytes * self.host_seconds_per_byte)
        })
    }

    /// Returns the device's own energy for one block; `None` if its power is unknown or it does not take blocks of this
    /// size.
    pub fn energy(&self, block_bytes: u64, software: Seconds) -> Option<Joules> {
        Some(self.power? * self.time(block_bytes, software)?)
    }
}

/// The limit that every report shows beside a device: compressing is free, and only the ratio and the decompression in
/// software remain.
pub const FREE_COMPRESSION: Offload = Offload {
    name: "free",
    formats: &[],
    compress: Some(Direction {
        throughput: Throughput::Free,
        ..ANY_BLOCK
    }),
    decompress: None,
    source: "the limit of Harper 2018, chapter 4, The Silver Bullet",
};

/// The published devices.
pub const PROFILES: [Offload; 4] = [
    Offload {
        name: "fpga-lz4",
        formats: &["lz4"],
        compress: Some(Direction {
            throughput: Throughput::Absolute(BytesPerSecond(4e9 / 8.0)),
            power: Some(Watts(0.075)),
            ..ANY_BLOCK
        }),
        decompress: None,
        source: "Lee 2017 in Harper 2018, chapter 4: 4 Gbit/s, 75 mW, 8 cores",
    },
    Offload {
        name: "asic-zlib",
        formats: &["deflate"],
        compress: Some(Direction {
            throughput: Throughput::Absolute(BytesPerSecond(80e9 / 8.0)),
            ..ANY_BLOCK
        }),
        decompress: None,
        source: "AHA in Harper 2018, chapter 4: approaching 80 Gbit/s",
    },
    Offload {
        name: "qat-zstd",
        formats: &["zstd"],
        compress: Some(Direction {
            throughput: Throughput::TimesSoftware(3.2),
            block_bytes_min: 8 << 10,
            block_bytes_max: 512 << 10,
            ..ANY_BLOCK
        }),
        decompress: None,
        source: "Intel 2023, Xeon 8470N, generation 4 with the zstd plugin: up to 3.2 times software; \
                 input window of the Linux 7.1 driver",
    },
    Offload {
        name: "nvcomp-engine",
        formats: &["snappy", "lz4", "deflate"],
        compress: None,
        decompress: Some(Direction {
            throughput: Throughput::Absolute(BytesPerSecond(600e9)),
            block_bytes_max: 4 << 20,
            ..ANY_BLOCK
        }),
        source: "NVIDIA nvCOMP, Blackwell decompression engine: up to 600 GB/s, buffers to 4 MiB",
    },
];

/// A direction with a known rate and nothing else.
const ANY_BLOCK: Direction = Direction {
    throughput: Throughput::Free,
    submit: Seconds(0.0),
    block_bytes_min: 1,
    block_bytes_max: u64::MAX,
    host_seconds_per_byte: 0.0,
    power: None,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> &'static Offload {
        let found = PROFILES.iter().find(|profile| profile.name == name);
        found.unwrap_or_else(|| panic!("no profile {name}"))
    }

    /// Chapter 4: 62,500 blocks a second, "simplified to 16 microseconds"; 800 ns for the ASIC. The
    /// thesis divides by 8,000 bytes; an 8 KiB page takes 16.4 and 0.82.
    #[test]
    fn harper_s_devices() {
        let check = |name: &str, printed_us: f64, page_us: f64| {
            let device = named(name).compress.expect("it compresses");
            let time = |bytes| device.time(bytes, Seconds(0.0)).expect("any block").0 * 1e6;
            assert!((time(8000) - printed_us).abs() < 1e-9, "{}", time(8000));
            assert!((time(8192) - page_us).abs() < 0.001, "{}", time(8192));
        };
        check("fpga-lz4", 16.0, 16.384);
        check("asic-zlib", 0.8, 0.819);
        let fpga = named("fpga-lz4").compress.expect("it compresses");
        let joules = fpga.energy(8000, Seconds(0.0)).expect("its power is known");
        assert!((joules.0 - 1.2e-6).abs() < 1e-12, "{joules}");
    }

    #[test]
    fn devices_refuse_blocks_and_directions_they_do_not_have() {
        let qat = named("qat-zstd").compress.expect("it compresses");
        assert_eq!(qat.time(4096, Seconds(32e-6)), None);
        let time = qat.time(8192, Seconds(32e-6)).expect("in its window");
        assert!((time.0 - 10e-6).abs() < 1e-12, "{time}");
        assert_eq!(qat.energy(8192, Seconds(32e-6)), None);
        let engine = named("nvcomp-engine");
        assert_eq!(engine.compress, None);
        let decompress = engine.decompress.expect("it decompresses");
        assert_eq!(decompress.time(8 << 20, Seconds(1.0)), None);
    }

    #[test]
    fn the_limit_is_below_every_device() {
        let free = FREE_COMPRESSION.compress.expect("it compresses");
        let software = Seconds(20e-6);
        for profile in &PROFILES {
            for direction in [profile.compress, profile.decompress].into_iter().flatten() {
                assert!(direction.block_bytes_min <= direction.block_bytes_max);
                let block_bytes = direction.block_bytes_min.max(8192);
                let time = direction.time(block_bytes, software);
                assert!(time > free.time(block_bytes, software), "{}", profile.name);
            }
        }
    }
}
