//! The thesis's published data: Tables A.1 to A.3, Table 5.1, and the figures of its text.

use breakeven::codec::{Codec, Method};

use super::bench::BETAS;
use super::corpus::{File, Input};

/// Factors of one file: static configurations in the order of the table, then those of the strategies.
pub struct Table {
    pub file: File,
    /// The thesis's name of it.
    pub name: &'static str,
    pub number: &'static str,
    /// Acceleration factors 1, 5, 10 to 50.
    lz4: [f64; 11],
    /// Levels 1 to 22.
    zstd: [f64; 22],
    /// Levels 1 to 9, where there are any.
    xz: &'static [f64],
    /// Synchronous calls: S1, S2 and S3 by link.
    pub synchronous: [[f64; 3]; 3],
    /// Asynchronous calls by link; none at the fastest.
    pub asynchronous: [[f64; 3]; 2],
}

pub const TABLES: [Table; 3] = [
    Table {
        file: File::Text,
        name: "silesia.tar",
        number: "A.1",
        lz4: [
            2.10, 1.88, 1.74, 1.64, 1.58, 1.51, 1.46, 1.43, 1.41, 1.38, 1.37,
        ],
        zstd: [
            2.87, 3.00, 3.12, 3.16, 3.22, 3.29, 3.33, 3.37, 3.38, 3.40, 3.41, 3.43, 3.43, 3.44,
            3.46, 3.46, 3.53, 3.55, 3.66, 3.67, 3.68, 3.68,
        ],
        xz: &[],
        synchronous: [[3.22, 3.38, 3.41], [2.36, 2.97, 3.03], [1.60, 1.91, 2.17]],
        asynchronous: [[3.09, 3.36, 3.40], [2.29, 2.78, 2.88]],
    },
    Table {
        file: File::Matrix,
        name: "matrix.bin",
        number: "A.2",
        lz4: [
            1.007, 1.003, 1.002, 1.0, 1.001, 0.998, 0.998, 0.998, 1.0, 0.997, 0.997,
        ],
        zstd: [
            1.07, 1.08, 1.09, 1.10, 1.53, 1.53, 1.53, 1.53, 1.53, 1.53, 1.53, 1.53, 1.53, 1.53,
            1.53, 1.53, 1.50, 1.50, 1.52, 1.52, 1.52, 1.52,
        ],
        xz: &[],
        synchronous: [[1.47, 1.46, 1.46], [1.09, 1.10, 1.10], [1.03, 1.03, 1.05]],
        asynchronous: [[1.41, 1.47, 1.46], [1.09, 1.09, 1.09]],
    },
    Table {
        file: File::Redundant,
        name: "file.nc",
        number: "A.3",
        lz4: [
            6.71, 6.65, 6.58, 6.58, 6.49, 6.48, 6.48, 6.44, 6.37, 6.38, 6.33,
        ],
        zstd: [
            7.78, 7.78, 7.79, 7.79, 7.76, 7.78, 7.78, 7.78, 7.78, 7.80, 7.80, 7.91, 7.91, 8.02,
            8.12, 8.12, 8.03, 8.05, 8.06, 8.07, 8.13, 8.17,
        ],
        xz: &[8.23, 8.35, 8.40, 8.45, 8.59, 8.70, 8.70, 8.70, 8.70],
        synchronous: [[7.78, 8.12, 8.18], [7.12, 7.76, 7.77], [6.48, 7.35, 7.53]],
        asynchronous: [[7.69, 8.10, 8.17], [7.06, 7.66, 7.69]],
    },
];

impl Table {
    /// Returns the factor of a static configuration.
    pub fn factor(&self, method: Method) -> Option<f64> {
        match method.codec {
            Codec::Lz4 { acceleration: 1 } => Some(self.lz4[0]),
            Codec::Lz4 { acceleration } if acceleration.is_multiple_of(5) => {
                self.lz4.get(acceleration as usize / 5).copied()
            }
            Codec::Zstd { level } => {
                let place = usize::try_from(level).ok()?.checked_sub(1)?;
                self.zstd.get(place).copied()
            }
            Codec::Xz { level } => {
                let place = usize::from(level).checked_sub(1)?;
                self.xz.get(place).copied()
            }
            _ => None,
        }
    }
}

/// Returns the share of an asynchronous call's uncompressed time in which the application computed
/// (section 5.3); the thesis has no such calls over the fastest link.
pub fn asynchronism(file: File, beta: f64) -> Option<f64> {
    let shares = match file {
        File::Text => [0.2, 0.37],
        File::Matrix => [0.33, 0.28],
        File::Redundant => [0.12, 0.36],
        File::Noise | File::Source => return None,
    };
    let link = BETAS.iter().position(|it| *it == beta)?;
    shares.get(link).copied()
}

/// Names of the thesis's links, in the order of [`BETAS`].
pub const LINKS: [&str; 3] = [
    "Gigabit Ethernet",
    "10 Gigabit Ethernet",
    "InfiniBand FDR 4x",
];

/// Speed of each, in MB/s (section 5.3).
pub const LINK_MB_S: [f64; 3] = [117.0, 1200.0, 6000.0];

/// Seconds by 24 threads for silesia.tar and zstd's levels 1 to 22 (Table 5.1).
pub const ZSTD_SECONDS: [f64; 22] = [
    0.097, 0.115, 0.266, 0.378, 0.357, 0.495, 0.642, 0.786, 0.934, 1.109, 1.168, 1.455, 1.467,
    1.956, 2.613, 2.703, 3.601, 4.112, 5.281, 5.901, 7.653, 9.760,
];

/// The savings of storing 40 TB for three months, in euros, by factor (Table 3.1).
pub const SAVINGS: [(f64, f64); 7] = [
    (1.05, 25.0),
    (1.1, 48.0),
    (1.2, 88.0),
    (1.3, 122.0),
    (1.4, 151.0),
    (1.5, 177.0),
    (2.0, 265.0),
];

/// Returns the text's figures of synchronous S1 beside the best static configuration (section 5.3).
pub fn of_s1(input: Input, beta: f64) -> Option<&'static str> {
    let Input::Plain(file) = input else {
        return None;
    };
    let link = BETAS.iter().position(|it| *it == beta)?;
    let texts: [&str; 3] = match file {
        File::Text => [
            "slightly faster than the best",
            "good results beside 2426 MB/s of LZ4",
            "below the best by its overhead",
        ],
        File::Matrix => ["8 MB/s below 185", "alright, ratio 1.09", "slower than LZ4"],
        File::Redundant => [
            "888 MB/s of 933",
            "almost 3000 MB/s below LZ4's 7900",
            "about 13000 MB/s of 15000",
        ],
        File::Noise | File::Source => return None,
    };
    Some(texts[link])
}

#[cfg(test)]
mod tests {
    use super::super::costs::published_methods;
    use super::*;

    #[test]
    fn every_published_configuration_has_its_factor() {
        for table in &TABLES {
            let found = published_methods().into_iter();
            let found = found.filter(|method| table.factor(*method).is_some());
            assert_eq!(found.count(), 33 + table.xz.len(), "{}", table.name);
            let of = |name: &str| table.factor(name.parse().unwrap());
            assert_eq!(of("lz4:a50"), Some(table.lz4[10]));
            assert_eq!(of("zstd:22"), Some(table.zstd[21]));
            assert_eq!(of("zstd:-1"), None);
            assert_eq!(of("store"), None);
        }
    }
}
