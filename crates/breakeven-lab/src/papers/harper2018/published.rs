//! The figures of the thesis: what its text and tables print. Its pictures carry no data here.

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
}

pub const CODECS: [PublishedCodec; 3] = [
    PublishedCodec {
        name: "lz4",
        method: "lz4:1",
        whole_ratio: 2.50,
        page_ratio: Some(2.13),
    },
    PublishedCodec {
        name: "zlib",
        method: "deflate:6",
        whole_ratio: 3.76,
        page_ratio: None,
    },
    PublishedCodec {
        name: "zstd",
        method: "zstd:3",
        whole_ratio: 3.87,
        page_ratio: Some(2.97),
    },
];

/// The presets of his devices, with the names of Tables 1 and 3.
pub const DEVICES: [(&str, &str); 3] = [
    ("harper-hdd", "hard disk"),
    ("harper-ssd", "SSD"),
    ("harper-ram", "RAM disk"),
];

/// Block sizes of Table 3, in bytes.
pub const DEVICE_BLOCK_BYTES: [u64; 6] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
