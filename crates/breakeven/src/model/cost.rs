//! The cost of a block over its life: the one formula for every place.
//!
//! ```text
//! cost(m) = encode(m) + write(s_m) + reads * (read(s_m) + decode(m)) + hold(h_m, time)
//! ```
//!
//! in one metric at a time: seconds, joules or euros. `s_m` are the bytes that a method leaves to move, and `h_m` the
//! occupied bytes after the place has rounded them to its units. Two stages in a row add up in energy and money. In
//! time they may run side by side ([`Overlap`]), and every verdict must state its assumption.
//!
//! The saving against another method is linear in the reads and linear in the time kept, so each break-even is a
//! [`Line`] from [`super::break_even`]. Energy-delay is not linear and has its own file, [`super::energy_delay`].
//!
//! Source: this project's; it contains Kothiyal 2009, section 4.4 (reads), and Hirsch 2017,
//! section 3.4 (time kept). `serial` against `overlapped` is Hirsch 2017, section 3.2, Figure 3.4.

use serde::{Deserialize, Serialize};

use super::break_even::{Line, Quadruple};
use crate::units::Seconds;

/// The timing of two stages in a row, codec and medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// One after the other: the sum. Only this is right for energy and money.
    Serial,
    /// Side by side in a filled pipeline: the slower one.
    Overlapped,
}

impl Overlap {
    /// Returns the cost of both stages together.
    ///
    /// # Panics
    /// When a stage is negative or NaN.
    pub fn total(self, stages: [f64; 2]) -> f64 {
        let [first, second] = stages;
        assert!(
            first >= 0.0 && second >= 0.0,
            "a stage costs less than nothing: {stages:?}"
        );
        match self {
            Overlap::Serial => first + second,
            Overlap::Overlapped => first.max(second),
        }
    }
}

/// The units in which a place occupies bytes: a file system's blocks, an object store's least
/// billed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// Bytes are occupied in multiples of this; 1 where every byte counts. At least 1.
    pub unit_bytes: u64,
    /// An object occupies at least this; 0 without such a rule.
    pub minimum_bytes: u64,
}

impl Default for Allocation {
    /// Every byte counts.
    fn default() -> Allocation {
        Allocation {
            unit_bytes: 1,
            minimum_bytes: 0,
        }
    }
}

impl Allocation {
    /// Returns the bytes that `stored_bytes` occupy.
    ///
    /// Round each block and then take the mean: the rounded mean is a different, smaller number. A page of 16 KiB that
    /// shrinks to 4.1 KiB occupies 8 KiB in units of 4 KiB.
    ///
    /// # Panics
    /// When the unit is 0, or the result does not fit 64 bits.
    pub fn held_bytes(&self, stored_bytes: u64) -> u64 {
        assert!(self.unit_bytes >= 1, "an allocation unit of 0 bytes");
        let held = stored_bytes.max(self.minimum_bytes);
        held.div_ceil(self.unit_bytes) * self.unit_bytes
    }
}

/// The cost of one method for one block, in one metric: the codec's cost, and the bytes left to move and to hold. Means
/// over many blocks are as good as one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Cost of encoding once, in the metric; 0 for `store`.
    pub encode: f64,
    /// Cost of decoding at each read, in the metric; 0 for `store`.
    pub decode: f64,
    /// Bytes written once and moved at each read.
    pub stored_bytes: f64,
    /// Bytes occupied while kept: see [`Allocation::held_bytes`].
    pub held_bytes: f64,
}

/// The costs of a place for moving and holding bytes, in one metric.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Place {
    /// Cost of one write of any size (a request, a seek).
    pub write_operation: f64,
    /// Cost of each byte written.
    pub write_byte: f64,
    /// Cost of one read of any size.
    pub read_operation: f64,
    /// Cost of each byte read.
    pub read_byte: f64,
    /// Cost of occupying one byte for one second; 0 in time.
    pub hold_byte_second: f64,
}

/// The reads of a block, and its time in the place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Life {
    /// Reads per write.
    pub reads: f64,
    /// Time the block stays in the place.
    pub kept: Seconds,
}

/// Returns the cost of a block over its life, in the metric of its parts.
///
/// # Panics
/// When the life or a part of the cost is negative or NaN.
///
/// # Example
/// ```
/// use breakeven::model::{Block, Life, Overlap, Place, cost};
/// use breakeven::units::Seconds;
/// let seconds = Place { write_byte: 1e-8, read_byte: 1e-8, ..Place::default() };
/// let block = Block { encode: 0.002, decode: 0.001, stored_bytes: 4e5, held_bytes: 4e5 };
/// let life = Life { reads: 2.0, kept: Seconds(0.0) };
/// let spent = cost(&block, &seconds, &life, Overlap::Overlapped);
/// assert!((spent - (0.004 + 2.0 * 0.004)).abs() < 1e-12);
/// ```
pub fn cost(block: &Block, place: &Place, life: &Life, overlap: Overlap) -> f64 {
    assert!(
        life.reads >= 0.0 && life.kept.0 >= 0.0,
        "a life below nothing: {life:?}"
    );
    let [write, read] = tasks(block, place, overlap);
    write + life.reads * read + hold_per_second(block, place) * life.kept.0
}

/// Two ways to store one block at one place: the saving of the second against the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The method in use now, usually `store`.
    pub plain: Block,
    /// The method in question.
    pub compressed: Block,
    /// The place, in the same metric.
    pub place: Place,
    /// The timing of codec and medium.
    pub overlap: Overlap,
}

impl Comparison {
    /// Returns the four tasks of the read-write model, without the cost of holding.
    pub fn quadruple(&self) -> Quadruple {
        let [write, read] = tasks(&self.plain, &self.place, self.overlap);
        let [compress, decompress] = tasks(&self.compressed, &self.place, self.overlap);
        Quadruple {
            write,
            compress,
            read,
            decompress,
        }
    }

    /// Returns the saving over a life; negative is a loss.
    pub fn savings(&self, life: &Life) -> f64 {
        self.over_reads(life.kept).at(life.reads)
    }

    /// Returns the saving as a line over reads per write, for a block kept this long.
    ///
    /// # Panics
    /// When the time kept is negative or NaN.
    pub fn over_reads(&self, kept: Seconds) -> Line {
        assert!(kept.0 >= 0.0, "kept for less than nothing: {kept}");
        let line = self.quadruple().line();
        Line {
            at_zero: line.at_zero + self.hold_saving_per_second() * kept.0,
            per_unit: line.per_unit,
        }
    }

    /// Returns the saving as a line over the seconds a block is kept, for this many reads. At its break-even,
    /// compressing has redeemed itself.
    ///
    /// # Panics
    /// When the reads are negative or NaN.
    pub fn over_seconds_kept(&self, reads: f64) -> Line {
        Line {
            at_zero: self.quadruple().line().at(reads),
            per_unit: self.hold_saving_per_second(),
        }
    }

    fn hold_saving_per_second(&self) -> f64 {
        hold_per_second(&self.plain, &self.place) - hold_per_second(&self.compressed, &self.place)
    }
}

/// Returns the cost of the one write and of one read.
fn tasks(block: &Block, place: &Place, overlap: Overlap) -> [f64; 2] {
    let write = place.write_operation + place.write_byte * block.stored_bytes;
    let read = place.read_operation + place.read_byte * block.stored_bytes;
    [
        overlap.total([block.encode, write]),
        overlap.total([read, block.decode]),
    ]
}

fn hold_per_second(block: &Block, place: &Place) -> f64 {
    let cost = place.hold_byte_second * block.held_bytes;
    assert!(cost >= 0.0, "holding costs less than nothing: {block:?}");
    cost
}

#[cfg(test)]
mod tests {
    use super::super::break_even::{Outcome, outcome};
    use super::*;
    use crate::model::{assert_close, seeded};

    #[test]
    fn pages_are_held_in_units_of_the_place() {
        let check = |allocation: Allocation, stored: u64, expected: u64| {
            assert_eq!(
                allocation.held_bytes(stored),
                expected,
                "{allocation:?} {stored}"
            );
        };
        let blocks = Allocation {
            unit_bytes: 4096,
            minimum_bytes: 0,
        };
        check(blocks, 0, 0);
        check(blocks, 1, 4096);
        check(blocks, 4096, 4096);
        check(blocks, 4198, 8192);
        let cold = Allocation {
            unit_bytes: 1,
            minimum_bytes: 128 << 10,
        };
        check(cold, 40_000, 131_072);
        check(cold, 200_000, 200_000);
        check(Allocation::default(), 4198, 4198);
    }

    #[test]
    fn a_small_page_in_one_unit_saves_no_space() {
        let blocks = Allocation {
            unit_bytes: 4096,
            minimum_bytes: 0,
        };
        let held = |stored: u64| blocks.held_bytes(stored) as f64;
        let comparison = Comparison {
            plain: Block {
                encode: 0.0,
                decode: 0.0,
                stored_bytes: 4096.0,
                held_bytes: held(4096),
            },
            compressed: Block {
                encode: 1e-6,
                decode: 1e-6,
                stored_bytes: 1400.0,
                held_bytes: held(1400),
            },
            place: Place {
                hold_byte_second: 1.0,
                ..Place::default()
            },
            overlap: Overlap::Serial,
        };
        assert_eq!(comparison.over_seconds_kept(0.0).outcome(), Outcome::Never);
    }

    #[test]
    #[should_panic(expected = "less than nothing")]
    fn a_negative_stage_is_refused() {
        Overlap::Serial.total([1.0, -1.0]);
    }

    /// Makes a random comparison whose compressed block is smaller and costs more to compute.
    fn random_comparison(random: &mut fastrand::Rng) -> Comparison {
        let raw_bytes = 4096.0 + random.f64() * 1e6;
        let stored_bytes = raw_bytes / (0.9 + random.f64() * 4.0);
        Comparison {
            plain: Block {
                encode: 0.0,
                decode: 0.0,
                stored_bytes: raw_bytes,
                held_bytes: raw_bytes,
            },
            compressed: Block {
                encode: random.f64() * 2.0,
                decode: random.f64(),
                stored_bytes,
                held_bytes: stored_bytes,
            },
            place: Place {
                write_operation: random.f64() * 0.1,
                write_byte: random.f64() * 1e-6,
                read_operation: random.f64() * 0.1,
                read_byte: random.f64() * 1e-6,
                hold_byte_second: random.f64() * 1e-9,
            },
            overlap: if random.bool() {
                Overlap::Serial
            } else {
                Overlap::Overlapped
            },
        }
    }

    #[test]
    fn savings_are_the_difference_of_two_costs() {
        let mut random = seeded("savings_are_the_difference");
        for _ in 0..10_000 {
            let comparison = random_comparison(&mut random);
            let life = Life {
                reads: (random.f64() * 10.0).floor(),
                kept: Seconds(random.f64() * 1e4),
            };
            let of = |block: &Block| cost(block, &comparison.place, &life, comparison.overlap);
            let (plain, compressed) = (of(&comparison.plain), of(&comparison.compressed));
            let saving = comparison.savings(&life);
            assert!((saving - (plain - compressed)).abs() <= 1e-12 * (plain + compressed));
            let same = comparison.over_seconds_kept(life.reads).at(life.kept.0);
            assert!((saving - same).abs() <= 1e-12 * (plain + compressed));
        }
    }

    #[test]
    fn at_each_break_even_the_two_costs_are_equal() {
        let mut random = seeded("at_each_break_even");
        let mut tried = [0, 0];
        for _ in 0..10_000 {
            let comparison = random_comparison(&mut random);
            let reads = random.f64() * 5.0;
            let kept = Seconds(random.f64() * 1e3);
            let check = |life: Life| {
                let of = |block: &Block| cost(block, &comparison.place, &life, comparison.overlap);
                let (plain, compressed) = (of(&comparison.plain), of(&comparison.compressed));
                assert_close("costs", plain, compressed, 1e-9);
            };
            if let Some(reads) = comparison.over_reads(kept).outcome().break_even() {
                check(Life { reads, kept });
                tried[0] += 1;
            }
            if let Some(kept) = comparison.over_seconds_kept(reads).outcome().break_even() {
                check(Life {
                    reads,
                    kept: Seconds(kept),
                });
                tried[1] += 1;
            }
        }
        println!("tried {tried:?} break-evens in [reads, seconds kept]");
        assert!(tried.iter().all(|&count| count > 1000), "{tried:?}");
    }

    #[test]
    fn serial_is_never_below_overlapped_and_at_most_twice_it() {
        let mut random = seeded("serial_is_never_below");
        for _ in 0..10_000 {
            let stages = [random.f64(), random.f64()];
            let (sum, slower) = (
                Overlap::Serial.total(stages),
                Overlap::Overlapped.total(stages),
            );
            assert!(sum >= slower && sum <= 2.0 * slower, "{stages:?}");
        }
    }

    #[test]
    fn without_a_codec_or_with_a_free_one_the_outcome_is_plain() {
        let mut random = seeded("without_a_codec");
        for _ in 0..1000 {
            let mut comparison = random_comparison(&mut random);
            comparison.compressed.encode = 0.0;
            comparison.compressed.decode = 0.0;
            let shrinks = comparison.compressed.stored_bytes < comparison.plain.stored_bytes;
            let expected = if shrinks {
                Outcome::Always
            } else {
                Outcome::Never
            };
            assert_eq!(outcome(&comparison.quadruple()), expected);
        }
    }
}
