//! Sketches of chunks, and the table in which an add finds a chunk similar to a new one.
//!
//! A sketch is three numbers, each made of the least values of four functions over windows that the content picks.
//! These are the super-features of Shilane and others, "WAN optimized replication of backup datasets using
//! stream-informed delta compression", FAST 2012. Chunks that share a part r of their windows have each in common with
//! a probability of r^4. Two chunks are alike if they share two numbers. Among versions of a program's sources in tar
//! archives this finds nine in ten, and one stranger in a hundred. With one shared number it found a sixth of the
//! strangers.
//!
//! Memory: at most 90 bytes a chunk that has a sketch, up to a cap. Chunks behind the cap are not found.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::chunker::ChunkLimits;

/// The share of the mean chunk below which a chunk has no sketch: the sketch would take some hundredth of its saving.
const LEAST_SHARE: usize = 16;
/// Windows that count in a mean chunk.
const PICKED_OF_MEAN: usize = 1024;
const WINDOW_BYTES: usize = 8;
/// 2^64 over the golden ratio (Knuth, The Art of Computer Programming, 6.4).
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
const NUMBERS: usize = 3;
const FEATURES_OF_NUMBER: usize = 4;

/// The numbers that similar contents share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sketch(pub [u32; NUMBERS]);

impl Sketch {
    pub(super) const BYTES: usize = NUMBERS * size_of::<u32>();

    pub(super) fn to_bytes(self) -> [u8; Sketch::BYTES] {
        let mut bytes = [0; Sketch::BYTES];
        for (at, number) in bytes.chunks_exact_mut(size_of::<u32>()).zip(self.0) {
            at.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Sketch::BYTES]) -> Sketch {
        let (numbers, _) = bytes.as_chunks();
        Sketch(std::array::from_fn(|at| u32::from_le_bytes(numbers[at])))
    }
}

/// Makes the sketches of a vault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sketcher {
    least_bytes: usize,
    pick_bits: u32,
}

impl Sketcher {
    pub(super) fn of(limits: ChunkLimits) -> Sketcher {
        Sketcher {
            least_bytes: limits.mean_bytes / LEAST_SHARE,
            pick_bits: (limits.mean_bytes / PICKED_OF_MEAN).max(1).ilog2(),
        }
    }

    /// Returns the sketch of a chunk, unless the chunk is short or no window counts.
    pub(super) fn sketch(&self, chunk: &[u8]) -> Option<Sketch> {
        if chunk.len() < self.least_bytes {
            return None;
        }
        // Two shifts: a shift by 64 bits is not allowed.
        let shift = 63 - self.pick_bits;
        let mut features = [u64::MAX; NUMBERS * FEATURES_OF_NUMBER];
        for window in chunk.windows(WINDOW_BYTES) {
            let number = u64::from_le_bytes(window.try_into().expect("8 bytes"));
            let hash = number.wrapping_mul(GOLDEN);
            if hash >> 1 >> shift == 0 {
                for (feature, step) in features.iter_mut().zip(0..) {
                    *feature = (*feature).min(mix(hash.wrapping_add(step)));
                }
            }
        }
        let number = |at: usize| {
            let own = &features[at * FEATURES_OF_NUMBER..][..FEATURES_OF_NUMBER];
            own.iter().fold(at as u64, |all, it| mix(all ^ it)) as u32
        };
        (features[0] != u64::MAX).then(|| Sketch(std::array::from_fn(number)))
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
fn mix(mut number: u64) -> u64 {
    number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

/// The place of a chunk that can be a base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BasePlace {
    /// The frame's number in the index.
    pub frame: u32,
    /// The chunk's place among those of the frame.
    pub ordinal: u16,
}

/// Numbers of sketches are hashes already, of 32 bits.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("it hashes numbers of 32 bits");
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number).wrapping_mul(GOLDEN);
    }
}

/// Finds chunks by their sketches.
pub(super) struct SketchTable {
    places: HashMap<u32, BasePlace, BuildHasherDefault<Spread>>,
    count_max: usize,
}

impl SketchTable {
    /// Makes an empty table that takes at most so many bytes.
    pub(super) fn new(cap_bytes: u64) -> SketchTable {
        // Twice, while it grows into a table twice as long; 7 of 8 places may be taken.
        let place_bytes = 4 * (size_of::<(u32, BasePlace)>() + 1) as u64;
        SketchTable {
            places: HashMap::default(),
            count_max: usize::try_from(cap_bytes / place_bytes).unwrap_or(usize::MAX),
        }
    }

    /// Notes the place of a chunk, in place of older similar ones.
    pub(super) fn insert(&mut self, sketch: Sketch, place: BasePlace) {
        for number in sketch.0 {
            if self.places.len() < self.count_max || self.places.contains_key(&number) {
                self.places.insert(number, place);
            }
        }
    }

    /// Returns the place of a chunk similar to this sketch.
    pub(super) fn find(&self, sketch: Sketch) -> Option<BasePlace> {
        let [one, two, three] = sketch.0.map(|number| self.places.get(&number).copied());
        match one == two || one == three {
            true => one.or_else(|| two.filter(|_| two == three)),
            false => two.filter(|_| two == three),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketcher() -> Sketcher {
        Sketcher::of(ChunkLimits::default())
    }

    fn words(seed: u64, count: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = Vec::new();
        for _ in 0..count {
            bytes.extend(random.u32(..100_000).to_string().bytes());
            bytes.push(b' ');
        }
        bytes
    }

    /// Of 200 chunks with `edits` edits each, so many are found, and at most one stranger.
    #[test]
    fn what_is_like_another_is_found_and_strangers_are_not() {
        let mut random = crate::testing::seeded("alike", 9);
        let mut check = |edits: usize, least: usize, most: usize| {
            let mut table = SketchTable::new(1 << 20);
            let chunks: Vec<Vec<u8>> = (0..200).map(|_| words(random.u64(..), 6000)).collect();
            for (at, chunk) in chunks.iter().enumerate() {
                let (frame, ordinal) = (at as u32, 1);
                let place = BasePlace { frame, ordinal };
                table.insert(sketcher().sketch(chunk).unwrap(), place);
            }
            let mut count = 0;
            for (at, mut chunk) in chunks.into_iter().enumerate() {
                for _ in 0..edits {
                    let place = random.usize(..chunk.len() - 8);
                    chunk.splice(place..place + 3, words(random.u64(..), 2));
                }
                if let Some(found) = table.find(sketcher().sketch(&chunk).unwrap()) {
                    assert_eq!(found.frame as usize, at);
                    count += 1;
                }
            }
            assert!((least..=most).contains(&count), "{edits}: {count} of 200");
        };
        check(0, 200, 200);
        check(20, 180, 200);
        check(100, 90, 200);
        let mut table = SketchTable::new(1 << 20);
        table.insert(
            sketcher().sketch(&words(1, 6000)).unwrap(),
            BasePlace::default(),
        );
        let strangers = (2..300).filter(|seed| {
            let sketch = sketcher().sketch(&words(*seed, 6000)).unwrap();
            table.find(sketch).is_some()
        });
        assert!(strangers.count() <= 1);
    }

    #[test]
    fn short_chunks_and_those_of_one_byte_are_like_no_other() {
        assert_eq!(sketcher().sketch(&words(1, 100)), None);
        let alike = sketcher().sketch(&[7; 100_000]);
        assert_eq!(alike, sketcher().sketch(&[7; 5000]));
        let sketch = sketcher().sketch(&words(1, 6000)).unwrap();
        assert_eq!(Sketch::from_bytes(sketch.to_bytes()), sketch);
    }

    #[test]
    fn a_table_keeps_to_its_cap() {
        let mut table = SketchTable::new(1 << 20);
        for number in 0..200_000 {
            table.insert(Sketch([mix(number) as u32; NUMBERS]), BasePlace::default());
        }
        let place_bytes = size_of::<(u32, BasePlace)>() + 1;
        let bytes = table.places.capacity() * 8 / 7 * place_bytes;
        assert!(bytes <= 1 << 20, "{bytes}");
        assert!(table.places.len() >= 10_000, "{}", table.places.len());
    }
}
