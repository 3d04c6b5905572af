//! The prior knowledge about a method, before any measurement here.
//!
//! Speeds and ratios come from one published table, from the rows of this library's codecs: lzbench 2.0.1 on
//! `silesia.tar`, one thread of an AMD EPYC 9554 (inikep/lzbench, README). Levels between two rows are interpolated:
//! logarithms of speed and ratio are close to linear in the level. This project measured how block length and class
//! move them (see the constants).
//!
//! After one scale test, over 43 files on another machine, the errors of ln encode, ln decode and ln(stored / raw) are
//! 0.54, 0.46 and 0.28 (root mean square over the unfiltered methods). 95 to 97 of 100 intervals hold the truth. The
//! means of the classes were set on the same files.
//!
//! Everything is a logarithm: costs vary by factors, so factors are averaged.

use crate::codec::{Codec, Filter, Method};
use crate::decide::class::Class;
use crate::decide::profile::Basis;

/// The factors of a profile: encode seconds per byte, decode seconds per byte, stored over raw.
pub(super) const FACTOR_COUNT: usize = 3;
pub(super) const ENCODE: usize = 0;
pub(super) const DECODE: usize = 1;
pub(super) const STORED: usize = 2;
pub(super) type Factors = [f64; FACTOR_COUNT];

/// Standard deviations of a factor's movement beside method and class; see `effects.rs`. The first is a judgement: a
/// single-board computer lies at two of them. The scale test's is an allowance for its one method and one block. The
/// rest was measured on 43 files, 8 methods and three lengths.
pub(super) const MACHINE_DEVIATION: Factors = [0.6, 0.6, 0.1];
pub(super) const SCALE_TEST_DEVIATION: f64 = 0.3;
/// The remainder of a pair after class and method, and of a pair at one block length.
const PAIR_DEVIATION: Factors = [0.4, 0.45, 0.11];
const LENGTH_DEVIATION: Factors = [0.4, 0.35, 0.12];
/// From block to block within a cell.
pub(super) const BLOCK_DEVIATION: Factors = [0.31, 0.28, 0.27];

/// The share of raw from which a method counts as storing raw: its possible saving was cut off.
pub(super) const RAW_SHARE: f64 = 0.98;
/// The most by which ln(stored / raw) of a method exceeds that of a relative that also codes single bytes, where the
/// relative hardly saves. Measured: at most 4.9, for `xz -6` and `bzip2 -9` beside `zstd -3`. The data were the first,
/// eighth and twentieth MiB of 29 files, where `zstd -3` saves less than a tenth.
pub(super) const REACH: f64 = 5.0;
/// The least assumed remainder of such a relative: below it, bounds would exceed the evidence.
pub(super) const REACH_FROM: f64 = -0.004;

/// A belief about one method at one block length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prior {
    /// Logarithms of the three factors.
    pub ln: Factors,
    /// Standard deviations of this method's difference from `ln`, beside the effects of the machine and the class on
    /// all methods.
    pub deviation: Factors,
    /// Standard deviations of the remainder of the pair after class and method, and of a pair at one block length.
    pub pair_deviation: Factors,
    pub length_deviation: Factors,
    /// Whether its encoding time is believed for the class itself: the class's effect on methods that skip does not
    /// apply to it.
    pub is_apart: bool,
    /// Published, or a default without a row near it.
    pub basis: Basis,
}

struct Row {
    /// The place of the row in its family: the level, for lz4 the logarithm of the acceleration.
    level: f64,
    compress_mb_s: f64,
    decompress_mb_s: f64,
    stored_per_raw: f64,
}

const fn row(level: f64, compress_mb_s: f64, decompress_mb_s: f64, stored_percent: f64) -> Row {
    Row {
        level,
        compress_mb_s,
        decompress_mb_s,
        stored_per_raw: stored_percent / 100.0,
    }
}

const STORE: &[Row] = &[row(0.0, 16332.0, 16362.0, 100.0)];
/// Accelerations 1, 3, 9 and 17.
const LZ4: &[Row] = &[
    row(0.0, 577.0, 3716.0, 47.60),
    row(1.098_612_288_668_11, 657.0, 3744.0, 50.52),
    row(2.197_224_577_336_22, 820.0, 3922.0, 56.68),
    row(2.833_213_344_056_22, 1002.0, 4166.0, 62.15),
];
/// The published level 1 is the library's level 2.
const LZ4HC: &[Row] = &[
    row(2.0, 262.0, 3221.0, 42.06),
    row(4.0, 76.3, 3421.0, 37.65),
    row(9.0, 30.9, 3527.0, 36.75),
    row(12.0, 10.5, 3616.0, 36.45),
];
const ZSTD: &[Row] = &[
    row(-5.0, 573.0, 1950.0, 48.64),
    row(-3.0, 518.0, 1822.0, 44.67),
    row(-1.0, 459.0, 1717.0, 41.04),
    row(1.0, 422.0, 1347.0, 34.64),
    row(2.0, 344.0, 1246.0, 32.79),
    row(5.0, 125.0, 1197.0, 29.74),
    row(8.0, 62.9, 1319.0, 28.32),
    row(11.0, 34.4, 1332.0, 27.49),
    row(15.0, 8.36, 1369.0, 26.97),
    row(18.0, 3.79, 1169.0, 25.16),
    row(22.0, 2.08, 1073.0, 24.69),
];
/// libdeflate 1.23.
const DEFLATE: &[Row] = &[
    row(1.0, 207.0, 860.0, 34.68),
    row(3.0, 136.0, 895.0, 33.11),
    row(6.0, 84.3, 912.0, 31.85),
    row(9.0, 28.5, 904.0, 31.48),
    row(12.0, 5.14, 919.0, 30.52),
];
const XZ: &[Row] = &[
    row(0.0, 23.6, 98.2, 29.53),
    row(3.0, 7.52, 122.0, 26.30),
    row(6.0, 2.97, 127.0, 23.21),
    row(9.0, 2.57, 123.0, 23.00),
];
const BZIP2: &[Row] = &[
    row(1.0, 14.8, 46.6, 28.54),
    row(5.0, 14.0, 40.0, 26.29),
    row(9.0, 13.1, 37.5, 25.75),
];

/// Returns the seconds of a call beside its bytes, encoding and decoding. They were measured on blocks of 256 bytes to
/// 1 MiB of 43 files, with reused codec workspaces.
fn call_seconds(codec: Codec) -> (f64, f64) {
    match codec {
        Codec::Store => (0.0, 0.0),
        Codec::Fsst => (0.1e-6, 0.1e-6),
        Codec::Lz4 { .. } | Codec::Lz4Hc { .. } => (0.3e-6, 0.4e-6),
        Codec::Zstd { level: ..0 } => (1.0e-6, 0.5e-6),
        Codec::Zstd { .. } | Codec::Deflate { .. } => (2.8e-6, 1.5e-6),
        Codec::Xz { .. } => (11e-6, 6e-6),
        Codec::Bzip2 { .. } => (40e-6, 6e-6),
    }
}

/// Returns the factor by which each halving of a block below 1 MiB changes the encoding time of a byte. Dense methods
/// search less in a shorter block; measured in the same way.
fn encode_halving(codec: Codec) -> f64 {
    match codec {
        Codec::Lz4Hc { level: 3.. } => 0.80,
        Codec::Xz { level: 4.. } => 0.89,
        Codec::Zstd { level: 15.. } => 0.90,
        Codec::Deflate { level: 5.. } => 0.92,
        _ => 1.0,
    }
}

/// Seconds a byte-shuffle adds per byte, each way; measured in the same way.
const SHUFFLE_SECONDS_PER_BYTE: f64 = 0.15e-9;

/// The part of ln(stored / raw) that remains when a whole file is cut into blocks of 2^x bytes. One curve serves all
/// codecs to within 0.05 (measured in the same way, slope of ln ratio on ln ratio).
const SHORT_BLOCK: [(f64, f64); 8] = [
    (6.0, 0.10),
    (8.0, 0.30),
    (10.0, 0.52),
    (12.0, 0.69),
    (14.0, 0.82),
    (16.0, 0.90),
    (20.0, 0.97),
    (23.0, 1.0),
];

/// The assumed bytes of similar data before a block if the method has a dictionary. It is a guess, the usual size of a
/// dictionary: its worth depends on the data it was trained on.
const DICTIONARY_REACH_BYTES: f64 = 16384.0;

/// The effect of a delta filter on xz for a class without numbers: logarithms of the factors, and the deviations
/// between methods. They are means over distances of 4 and 8 bytes and 56 blocks of at most 1 MiB from 35 files, `xz:1`
/// with the filter against `xz:1` without.
const NO_NUMBERS: Factors = [0.55, 0.0, 0.5];
const NO_NUMBERS_DEVIATION: Factors = [0.35, 0.5, 0.15];

/// Returns the logarithm of a factor on the encoding time, for data without repeats and a method that still codes every
/// byte. `None` for other methods: a method that skips where it finds nothing is fast there. Means over blocks of 64
/// KiB and 1 MiB of six files, of random bytes, bits, doubles and floats. xz searches its hash chains to their ends, in
/// a table that no cache holds. Its trees, and the sort of bzip2, hardly change.
fn encode_hard(codec: Codec, block_bytes: u64) -> Option<f64> {
    match codec {
        Codec::Xz { level: ..=3 } => Some(1.25 - 0.22 * halvings(block_bytes)),
        Codec::Xz { .. } => Some(-0.3 - 0.1 * halvings(block_bytes)),
        Codec::Bzip2 { .. } => Some(0.0),
        _ => None,
    }
}

/// The remainder after these means, once for the method, the pair and its length. With the deviations of class and
/// machine, files differ by 0.3 and more from them, under every filter.
const HARD_DEVIATION: f64 = 0.15;

/// Returns the number of halvings from 1 MiB to a block, 0 for longer ones.
fn halvings(block_bytes: u64) -> f64 {
    (20.0 - (block_bytes.max(1) as f64).log2()).max(0.0)
}

/// Returns the prior of `method` on blocks of `block_bytes` of average data, with the class's own effects on the method
/// and its filter.
pub(super) fn of_pair(class: Class, method: Method, block_bytes: u64) -> Prior {
    let mut prior = of_method(method, block_bytes);
    if let Some(ln) = encode_hard(method.codec, block_bytes).filter(|_| class.is_hard()) {
        prior.ln[ENCODE] += ln - of_class(class).ln[ENCODE];
        prior.deviation[ENCODE] = HARD_DEVIATION;
        prior.pair_deviation[ENCODE] = HARD_DEVIATION;
        prior.length_deviation[ENCODE] = HARD_DEVIATION;
        prior.is_apart = true;
    }
    if matches!(method.filter, Filter::Delta { .. }) && class.is_no_numbers() {
        for (ln, more) in prior.ln.iter_mut().zip(NO_NUMBERS) {
            *ln += more;
        }
        prior.deviation = NO_NUMBERS_DEVIATION;
    }
    prior
}

/// Returns the belief about `method` on blocks of `block_bytes` of average data.
pub(super) fn of_method(method: Method, block_bytes: u64) -> Prior {
    let (rows, level) = family(method.codec);
    let (compress_mb_s, decompress_mb_s, stored) = interpolate(rows, level);
    let (encode_call, decode_call) = call_seconds(method.codec);
    let (filter_seconds, filtered) = match method.filter {
        Filter::None => (0.0, false),
        Filter::Shuffle { .. } => (SHUFFLE_SECONDS_PER_BYTE, true),
        Filter::Delta { .. } => (0.0, true),
    };
    let bytes = block_bytes.max(1) as f64;
    let encode = encode_halving(method.codec).powf(halvings(block_bytes)) * 1e-6 / compress_mb_s;
    let encode = encode + filter_seconds + encode_call / bytes;
    let decode = 1e-6 / decompress_mb_s + filter_seconds + decode_call / bytes;
    let behind = match method.dictionary {
        false => 0.0,
        true => DICTIONARY_REACH_BYTES,
    };
    let shortness = piecewise(&SHORT_BLOCK, (bytes + behind).log2());
    let is_guess = filtered || method.dictionary;
    Prior {
        ln: [encode.ln(), decode.ln(), stored.ln() * shortness],
        deviation: match is_guess {
            false => [0.25, 0.2, 0.05],
            true => [0.5, 0.5, 0.5],
        },
        pair_deviation: PAIR_DEVIATION,
        length_deviation: LENGTH_DEVIATION,
        is_apart: false,
        basis: match is_guess {
            false => Basis::Published,
            true => Basis::Default,
        },
    }
}

fn family(codec: Codec) -> (&'static [Row], f64) {
    match codec {
        Codec::Store => (STORE, 0.0),
        Codec::Lz4 { acceleration } => (LZ4, f64::from(acceleration).ln()),
        Codec::Lz4Hc { level } => (LZ4HC, level.into()),
        Codec::Zstd { level } => (ZSTD, level.into()),
        Codec::Deflate { level } => (DEFLATE, level.into()),
        Codec::Xz { level } => (XZ, level.into()),
        Codec::Bzip2 { level } => (BZIP2, level.into()),
        // As a candidate it is measured before it can be picked.
        Codec::Fsst => (LZ4, 0.0),
    }
}

/// Returns speeds and stored share at a level, the nearest row's beyond the ends.
fn interpolate(rows: &[Row], level: f64) -> (f64, f64, f64) {
    let column = |value: fn(&Row) -> f64| {
        let above = rows.partition_point(|row| row.level < level);
        let (low, high) = (
            &rows[above.saturating_sub(1)],
            &rows[above.min(rows.len() - 1)],
        );
        line(
            (low.level, value(low).ln()),
            (high.level, value(high).ln()),
            level,
        )
        .exp()
    };
    (
        column(|row| row.compress_mb_s),
        column(|row| row.decompress_mb_s),
        column(|row| row.stored_per_raw),
    )
}

fn piecewise(points: &[(f64, f64)], x: f64) -> f64 {
    let above = points.partition_point(|point| point.0 < x);
    let (low, high) = (above.saturating_sub(1), above.min(points.len() - 1));
    line(points[low], points[high], x)
}

/// The line through two points at `x`, held level outside them.
fn line(low: (f64, f64), high: (f64, f64), x: f64) -> f64 {
    if high.0 <= low.0 {
        return low.1;
    }
    let share = ((x - low.0) / (high.0 - low.0)).clamp(0.0, 1.0);
    low.1 + share * (high.1 - low.1)
}

/// A belief about the effect of a class on all methods alike: mean and standard deviation of the logarithm of each
/// factor, relative to the published table's data.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassPrior {
    pub ln: Factors,
    pub deviation: Factors,
}

/// Returns the belief about a class.
///
/// Content classes: means over eight methods and three block lengths on the same 43 files. On them
/// class plus method leaves a deviation of 0.11 in ln(stored / raw), 0.4 in the times.
pub(super) fn of_class(class: Class) -> ClassPrior {
    match CONTENT.get(usize::from(class.number())) {
        Some(&(_, ln)) => ClassPrior {
            ln,
            deviation: [0.3, 0.3, 0.25],
        },
        None => ClassPrior {
            ln: [-0.3, -0.3, 0.0],
            deviation: [0.6, 0.65, 1.0],
        },
    }
}

/// Content classes by number, with their names and the means of [`of_class`].
const CONTENT: [(&str, Factors); 24] = [
    ("zero", [-2.2, -1.0, -4.5]),
    ("constant", [-2.2, -1.0, -4.5]),
    ("incompressible", [-1.55, -2.4, 1.6]),
    ("packed", [-0.95, -0.7, 0.8]),
    ("smooth-numbers-1", [-0.3, -0.2, -0.8]),
    ("rough-numbers-1", [-1.3, -0.8, 0.8]),
    ("smooth-numbers-2", [-0.3, -0.2, -0.8]),
    ("rough-numbers-2", [-1.3, -0.8, 0.8]),
    ("smooth-numbers-4", [-0.3, -0.2, -0.8]),
    ("rough-numbers-4", [-0.45, -0.35, 0.4]),
    ("smooth-numbers-8", [-0.2, -0.1, -0.8]),
    ("rough-numbers-8", [-0.2, -0.05, -0.05]),
    ("text", [0.0, -0.05, 0.05]),
    ("narrow-text", [-0.6, -0.7, -1.2]),
    ("dense-text", [0.1, 0.05, 0.3]),
    ("plain-text", [0.05, -0.05, -0.15]),
    ("structured-text", [-0.55, -0.5, -0.95]),
    ("repetitive-text", [-1.3, -1.2, -1.95]),
    ("binary", [-0.1, -0.05, 0.0]),
    ("narrow-binary", [-0.4, -0.35, -0.6]),
    ("dense-binary", [0.0, 0.1, 0.35]),
    ("plain-binary", [-0.05, -0.05, -0.1]),
    ("structured-binary", [-0.45, -0.4, -0.65]),
    ("repetitive-binary", [-1.25, -0.65, -2.35]),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, mb_s: [f64; 2], ratio: f64, tolerance: f64) {
        let prior = of_method(method.parse().unwrap(), 1 << 30);
        let found = [
            1e-6 / prior.ln[ENCODE].exp(),
            1e-6 / prior.ln[DECODE].exp(),
            1.0 / prior.ln[STORED].exp(),
        ];
        for (found, expected) in found.into_iter().zip([mb_s[0], mb_s[1], ratio]) {
            let error = (found / expected).ln().abs();
            assert!(error <= tolerance, "{method}: {found}, expected {expected}");
        }
    }

    #[test]
    fn rows_of_the_table_come_back() {
        check("store", [16332.0, 16362.0], 1.0, 1e-4);
        check("lz4:1", [577.0, 3716.0], 2.101, 1e-3);
        check("lz4:a9", [820.0, 3922.0], 1.764, 1e-3);
        check("zstd:-5", [573.0, 1950.0], 2.056, 1e-3);
        check("zstd:1", [422.0, 1347.0], 2.887, 1e-3);
        check("zstd:22", [2.08, 1073.0], 4.05, 1e-3);
        check("deflate:6", [84.3, 912.0], 1.0 / 0.3185, 1e-3);
        check("xz:6", [2.97, 127.0], 4.308, 1e-3);
        check("bzip2:9", [13.1, 37.5], 3.883, 1e-3);
    }

    #[test]
    fn levels_between_rows_lie_between_them() {
        // lzbench's own zstd -3 and -4, which the table leaves out, with a wider tolerance.
        check("zstd:3", [245.0, 1229.0], 3.15, 0.02);
        check("zstd:4", [175.0, 1213.0], 3.26, 0.02);
        // Beyond the last row of the family, its values.
        check("lz4:a65537", [1002.0, 4166.0], 1.609, 1e-3);
        check("zstd:-7", [573.0, 1950.0], 2.056, 1e-3);
    }

    #[test]
    fn short_blocks_compress_worse_and_cost_more() {
        let check = |method: &str, factors: &[usize]| {
            let at = |bytes| of_method(method.parse().unwrap(), bytes).ln;
            let mut shorter = at(0);
            for bits in 0..26 {
                let longer = at(1 << bits);
                assert!(longer.iter().all(|ln| ln.is_finite()));
                for &factor in factors {
                    assert!(longer[factor] <= shorter[factor], "{method} at 2^{bits}");
                }
                shorter = longer;
            }
        };
        for method in ["lz4:1", "zstd:3", "xz:0", "bzip2:9", "shuffle4+zstd:3"] {
            check(method, &[ENCODE, DECODE, STORED]);
        }
        for dense in ["lz4hc:9", "zstd:19", "deflate:6", "xz:6"] {
            check(dense, &[DECODE, STORED]);
            let at = |bytes| of_method(dense.parse().unwrap(), bytes).ln[ENCODE];
            assert!(at(4096) < at(1 << 20), "{dense} searches less in a page");
        }
    }

    #[test]
    fn what_codes_every_byte_is_not_faster_where_nothing_is_found() {
        let check = |class: &str, method: &str, block_bytes: u64, times: f64| {
            let class = Class::all_content().find(|it| it.to_string() == class);
            let class = class.expect("a class of content");
            let method = method.parse().expect("a method");
            let pair = of_pair(class, method, block_bytes).ln[ENCODE];
            let average = of_method(method, block_bytes).ln[ENCODE];
            let found = (pair + of_class(class).ln[ENCODE] - average).exp();
            assert!(
                (found / times).ln().abs() < 0.02,
                "{class}, {method}: {found}"
            );
        };
        for hard in [
            "incompressible",
            "packed",
            "rough-numbers-1",
            "rough-numbers-8",
        ] {
            check(hard, "xz:1", 1 << 20, 3.49);
            check(hard, "delta8+xz:1", 1 << 20, 3.49);
            check(hard, "xz:1", 64 << 10, 1.45);
            check(hard, "xz:6", 1 << 20, 0.74);
            check(hard, "bzip2:9", 1 << 20, 1.0);
        }
        check("packed", "zstd:9", 1 << 20, 0.387);
        check("smooth-numbers-4", "xz:1", 1 << 20, 0.741);
        check("text", "xz:1", 1 << 20, 1.0);
        check("dense-text", "xz:1", 1 << 20, 1.105);
    }

    #[test]
    fn the_table_of_classes_follows_their_numbers() {
        let names: Vec<String> = Class::all_content().map(|it| it.to_string()).collect();
        let table: Vec<&str> = CONTENT.iter().map(|row| row.0).collect();
        assert_eq!(names, table);
    }
}
