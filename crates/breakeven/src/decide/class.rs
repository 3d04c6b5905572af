//! Classes: the kind of data in a block, found before it is compressed.
//!
//! A [`Class`] is an opaque number. Content classes come from cheap features ([`Class::content`]). Their numbers and
//! names are stable, so measurements of them are worth keeping. A place that knows its data better (page kinds, key
//! prefixes) makes its own classes ([`Class::place`]). Their meaning lasts as long as the place that numbered them.
//!
//! The cuts were set on 1,691 blocks of 4 KiB, 64 KiB and 1 MiB. They come from 43 files: text, logs, JSON, CSV,
//! markup, sources, executables, databases, integers, floats, images, video. The class then explains 88 % of the
//! variance of ln(stored / raw) under zstd:3 and 87 % under lz4:1. That is as much as the file itself explains (86 %
//! and 84 %); without the LZ4 probe it is 59 % and 46 %.
//!
//! A class is not a verdict: data that looks incompressible here may still be worth a method, which only the profile
//! shows.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::codec::{Features, Glance};

/// The kind of data in a block: an opaque number to everything but this file.
///
/// # Example
/// ```
/// use breakeven::codec::Features;
/// use breakeven::decide::Class;
///
/// let class = Class::content(&Features::of(&[0; 4096]));
/// assert_eq!(class, Class::ZERO);
/// assert_eq!(class.to_string(), "zero");
/// assert_eq!(Class::place(7).to_string(), "place-7");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct Class(u16);

/// Names of the content classes, in the order of their numbers. Append only.
const NAMES: [&str; 24] = [
    "zero",
    "constant",
    "incompressible",
    "packed",
    "smooth-numbers-1",
    "rough-numbers-1",
    "smooth-numbers-2",
    "rough-numbers-2",
    "smooth-numbers-4",
    "rough-numbers-4",
    "smooth-numbers-8",
    "rough-numbers-8",
    "text",
    "narrow-text",
    "dense-text",
    "plain-text",
    "structured-text",
    "repetitive-text",
    "binary",
    "narrow-binary",
    "dense-binary",
    "plain-binary",
    "structured-binary",
    "repetitive-binary",
];

/// Numbers from here on are a place's own.
const PLACE_FIRST: u16 = 256;

/// Bits by which a delta must lower the entropy before a block counts as numbers.
const NUMBERS_GAIN_BITS: f64 = 0.5;
/// Delta entropy below which numbers are smooth: a byte in two is predictable.
const SMOOTH_BITS: f64 = 4.0;
/// The shortest block with meaningful delta entropies.
const NUMBERS_BYTES_MIN: usize = 512;
/// Share of printable bytes from which a block is text.
const TEXT_PRINTABLE_SHARE: f64 = 0.9;
const NOISE_BITS: f64 = 7.9;
/// A short sample of uniform bytes shows fewer bits than they have.
const NOISE_SHORT_BITS: f64 = 7.3;
const NOISE_SHORT_BYTES: usize = 1024;
const NOISE_PROBE_RATIO: f64 = 1.05;
const PACKED_BITS: f64 = 7.2;
/// The number of distinct bytes in a glance from which a block counts as noise. Of 256 draws from 256 bytes 162 differ,
/// with a deviation of 5. Pages of a database of rows mostly show 60, and 126 at most.
const NOISE_DISTINCT: u32 = 145;
/// Ratios of the probe that separate dense, plain, structured and repetitive blocks.
const PROBE_CUTS: [f64; 3] = [1.5, 2.5, 5.0];
/// Entropies below which blocks without a probe are narrow: a small alphabet, or much of one byte.
const NARROW_TEXT_BITS: f64 = 3.5;
const NARROW_BINARY_BITS: f64 = 4.0;

impl Class {
    /// Every byte is 0, or the block is empty.
    pub const ZERO: Class = Class(0);
    /// Every byte is the same, but not 0.
    pub const CONSTANT: Class = Class(1);
    /// Bytes without visible order: encrypted, random, or compressed to the last bit.
    pub const INCOMPRESSIBLE: Class = Class(2);
    /// Little visible order: compressed media, packed floats.
    pub const PACKED: Class = Class(3);
    /// Never classified, because its treatment was fixed beforehand.
    pub const UNSEEN: Class = Class(255);
    /// Printable text, not probed.
    pub const TEXT: Class = Class(12);
    /// Anything else, not probed.
    pub const BINARY: Class = Class(18);

    const NUMBERS: u16 = 4;
    const NARROW_TEXT: Class = Class(13);
    const PROBED_TEXT: u16 = 14;
    const NARROW_BINARY: Class = Class(19);
    const PROBED_BINARY: u16 = 20;

    /// Returns the content class of a block from its features.
    ///
    /// Blocks with and without the LZ4 probe fall into different classes of text and binary, since the probe separates
    /// kinds that the others mix.
    ///
    /// # Cost
    /// A few comparisons.
    pub fn content(features: &Features) -> Class {
        match features.all_equal {
            Some(0) => return Class::ZERO,
            Some(_) => return Class::CONSTANT,
            None if features.block_bytes == 0 => return Class::ZERO,
            None => {}
        }
        let bits = features.entropy_bits;
        let (stride, delta_bits) = features.best_stride();
        if features.block_bytes >= NUMBERS_BYTES_MIN && delta_bits < bits - NUMBERS_GAIN_BITS {
            let rough = u16::from(delta_bits >= SMOOTH_BITS);
            return Class(Class::NUMBERS + 2 * stride.ilog2() as u16 + rough);
        }
        let is_text = features.printable_share >= TEXT_PRINTABLE_SHARE;
        let probe_below = |ratio: f64| features.probe_ratio.is_none_or(|probe| probe < ratio);
        let noise_bits = match features.block_bytes {
            ..NOISE_SHORT_BYTES => NOISE_SHORT_BITS,
            _ => NOISE_BITS,
        };
        if !is_text && bits >= noise_bits && probe_below(NOISE_PROBE_RATIO) {
            return Class::INCOMPRESSIBLE;
        }
        if !is_text && bits >= PACKED_BITS && probe_below(PROBE_CUTS[0]) {
            return Class::PACKED;
        }
        match (features.probe_ratio, is_text) {
            (None, true) if bits < NARROW_TEXT_BITS => Class::NARROW_TEXT,
            (None, true) => Class::TEXT,
            (None, false) if bits < NARROW_BINARY_BITS => Class::NARROW_BINARY,
            (None, false) => Class::BINARY,
            (Some(probe), _) => {
                let bin = PROBE_CUTS.iter().filter(|&&cut| probe >= cut).count() as u16;
                let first = match is_text {
                    true => Class::PROBED_TEXT,
                    false => Class::PROBED_BINARY,
                };
                Class(first + bin)
            }
        }
    }

    /// Returns the content class of a block at a glance: noise, text, or anything else.
    ///
    /// # Cost
    /// Two comparisons.
    pub fn glance(glance: &Glance) -> Class {
        match () {
            () if glance.distinct >= NOISE_DISTINCT => Class::INCOMPRESSIBLE,
            () if f64::from(glance.printable) >= TEXT_PRINTABLE_SHARE * Glance::BYTES as f64 => {
                Class::TEXT
            }
            () => Class::BINARY,
        }
    }

    /// Returns whether the LZ4 probe could change the class: not for numbers and runs of one byte.
    pub fn needs_probe(features: &Features) -> bool {
        let class = Class::content(features);
        class >= Class::TEXT || class == Class::INCOMPRESSIBLE || class == Class::PACKED
    }

    /// Returns class `number` of a place that classifies its own data.
    ///
    /// # Panics
    /// When `number` is above 65,279.
    pub fn place(number: u16) -> Class {
        let number = number.checked_add(PLACE_FIRST);
        Class(number.expect("a place's class is at most 65,279"))
    }

    /// Returns the content class with this number, as a file or a report names it.
    pub fn from_content_number(number: u16) -> Option<Class> {
        (usize::from(number) < NAMES.len()).then_some(Class(number))
    }

    /// Returns all content classes in the order of their numbers.
    pub fn all_content() -> impl Iterator<Item = Class> {
        (0..NAMES.len() as u16).map(Class)
    }

    /// Returns the number, stable for content classes.
    pub fn number(self) -> u16 {
        self.0
    }

    /// Returns whether the class was made from content with hardly any repeats.
    pub(super) fn is_hard(self) -> bool {
        let is_rough = (Class::NUMBERS..Class::TEXT.0).contains(&self.0) && self.0 % 2 == 1;
        is_rough || self == Class::INCOMPRESSIBLE || self == Class::PACKED
    }

    /// Returns whether the class was made from content without numbers that a delta could find.
    pub(super) fn is_no_numbers(self) -> bool {
        self.is_content() && self >= Class::TEXT
    }

    /// Returns whether the class was made from content, and so means the same everywhere.
    pub fn is_content(self) -> bool {
        usize::from(self.0) < NAMES.len()
    }

    /// Returns whether a place made the class, so that it is meaningful to that place alone.
    pub fn is_place(self) -> bool {
        self.0 >= PLACE_FIRST
    }

    /// Returns the name for people, without spaces.
    pub fn name(self) -> Cow<'static, str> {
        match NAMES.get(usize::from(self.0)) {
            Some(name) => Cow::Borrowed(name),
            None if self == Class::UNSEEN => Cow::Borrowed("unseen"),
            None => Cow::Owned(format!("place-{}", self.0 - PLACE_FIRST)),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

impl TryFrom<u16> for Class {
    type Error = String;
    fn try_from(number: u16) -> Result<Class, String> {
        match Class::from_content_number(number) {
            Some(class) => Ok(class),
            None if number >= Class::UNSEEN.0 => Ok(Class(number)),
            None => Err(format!("no class has number {number}")),
        }
    }
}

impl From<Class> for u16 {
    fn from(class: Class) -> u16 {
        class.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Compressor;

    fn check(block: &[u8], expected: &str, expected_probed: &str) {
        let features = Features::of(block);
        assert_eq!(Class::content(&features).name(), expected, "{features:?}");
        let probed = Features::with_probe(block, &mut Compressor::new()).unwrap();
        assert_eq!(
            Class::content(&probed).name(),
            expected_probed,
            "{probed:?}"
        );
        let class = Class::content(
            &Features::as_needed(block, &mut Compressor::new(), Class::needs_probe).unwrap(),
        );
        assert_eq!(class.name(), expected_probed);
    }

    fn numbers<const WIDTH: usize>(value: impl Fn(u64) -> u64) -> Vec<u8> {
        let bytes = |index| value(index).to_le_bytes();
        (0..8192)
            .flat_map(|index| bytes(index).into_iter().take(WIDTH))
            .collect()
    }

    #[test]
    fn kinds_of_data_are_told_apart() {
        let mut random = fastrand::Rng::with_seed(1);
        let noise: Vec<u8> = (0..65_536).map(|_| random.u8(..)).collect();
        let mut word = || noise[random.usize(..60_000)..][..4].to_vec();
        let letters: Vec<u8> = (0..16_384)
            .flat_map(|_| word())
            .map(|byte| b"etaoinshrdlu "[usize::from(byte) % 13])
            .collect();
        let log: String = (0..2000)
            .map(|line| format!("2024-01-05 12:{:02} GET /item/{line} 200 OK\n", line % 60))
            .collect();
        let seven_bits: Vec<u8> = noise.iter().map(|byte| byte >> 1 | 0x80).collect();
        let nibbles: Vec<u8> = noise.iter().map(|byte| byte >> 4).collect();

        check(&[], "zero", "zero");
        check(&[0; 100], "zero", "zero");
        check(&[9; 100_000], "constant", "constant");
        check(&noise, "incompressible", "incompressible");
        check(&noise[..600], "incompressible", "incompressible");
        check(
            &noise[..2048].repeat(32),
            "incompressible",
            "repetitive-binary",
        );
        check(&letters, "text", "dense-text");
        check(&letters[..100].repeat(50), "text", "repetitive-text");
        check(log.as_bytes(), "text", "structured-text");
        check(b"01".repeat(8).as_slice(), "narrow-text", "dense-text");
        check(&seven_bits, "binary", "dense-binary");
        check(&nibbles, "narrow-binary", "dense-binary");
        check(
            &[vec![0; 30_000], nibbles].concat(),
            "narrow-binary",
            "plain-binary",
        );
    }

    #[test]
    fn a_glance_tells_noise_and_text() {
        let mut random = fastrand::Rng::with_seed(2);
        let (mut told, blocks) = (0, 2000);
        for _ in 0..blocks {
            let noise: Vec<u8> = (0..4096).map(|_| random.u8(..)).collect();
            told += usize::from(Class::glance(&Glance::of(&noise)) == Class::INCOMPRESSIBLE);
        }
        println!("{told} of {blocks} told as noise");
        assert!(told >= blocks * 99 / 100, "{told}");
        let nibbles: Vec<u8> = (0..4096).map(|_| random.u8(..16)).collect();
        assert_eq!(Class::glance(&Glance::of(&nibbles)), Class::BINARY);
        let text = b"what is told at a glance ".repeat(200);
        assert_eq!(Class::glance(&Glance::of(&text)), Class::TEXT);
    }

    #[test]
    fn numbers_are_known_by_their_stride() {
        let check_numbers = |block: Vec<u8>, expected: &str| check(&block, expected, expected);
        check_numbers(numbers::<4>(|index| index * 991), "smooth-numbers-4");
        check_numbers(
            numbers::<8>(|index| (1 << 60) + index * 0x1_0003_0501),
            "smooth-numbers-8",
        );
        let mut state = 1u64;
        let samples: Vec<u8> = (0..30_000)
            .flat_map(|index| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let wave = 9000.0 * (f64::from(index) / 40.0).sin();
                (wave as i16 + (state >> 57) as i16).to_le_bytes()
            })
            .collect();
        check_numbers(samples, "rough-numbers-2");
    }

    #[test]
    fn numbers_and_names_are_stable() {
        for class in Class::all_content() {
            assert_eq!(Class::from_content_number(class.number()), Some(class));
            assert!(class.is_content());
        }
        let pinned = [
            (Class::ZERO, 0, "zero"),
            (Class::CONSTANT, 1, "constant"),
            (Class::INCOMPRESSIBLE, 2, "incompressible"),
            (Class::PACKED, 3, "packed"),
            (Class::TEXT, 12, "text"),
            (Class::BINARY, 18, "binary"),
            (Class::place(0), 256, "place-0"),
            (Class::place(65_279), 65_535, "place-65279"),
        ];
        for (class, number, name) in pinned {
            assert_eq!((class.number(), class.name().as_ref()), (number, name));
        }
        assert_eq!(Class::from_content_number(24), None);
        assert!(Class::try_from(200).is_err());
    }
}
