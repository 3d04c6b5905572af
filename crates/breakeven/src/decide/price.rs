//! Quantities times prices: the cost of a block over its life, with its band.
//!
//! [`BlockLife`] describes the life of a block in its place, [`Quantities`] a method's demands for it, [`Prices`] the
//! cost of each demand there. The formula is [`crate::model::cost()`]; this file passes estimates to it. A price, a
//! number of reads or a time held is unknown, but the same for every method. So a comparison varies it for both sides
//! at once. The estimates of two methods are taken as independent of each other.
//!
//! Not here: the choice of the best method (`decision.rs`), and the movement of prices. The stream's price of its link
//! arrives as [`Prices`].

use std::fmt;

use crate::decide::class::Class;
use crate::decide::profile::{Factor, MethodEstimate};
use crate::error::{Error, Result};
use crate::model::{self, Allocation, Block, Life, Overlap, Place};
use crate::units::{Estimate, Seconds};

/// The cost of each quantity, all in one unit: seconds, joules or euros.
///
/// Linear prices can follow energy-delay: time priced at the running energy, energy at the running time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// One second of one core: 1 for the time of a waiting thread, the extra watts of a busy core for energy, its rent
    /// for money.
    pub per_core_second: Estimate,
    /// One byte written to the medium.
    pub per_byte_written: Estimate,
    /// One byte read from the medium.
    pub per_byte_read: Estimate,
    /// One write request.
    pub per_write_operation: Estimate,
    /// One read request.
    pub per_read_operation: Estimate,
    /// One byte held for one second.
    pub per_byte_second_held: Estimate,
}

impl Default for Prices {
    fn default() -> Prices {
        let free = Estimate::exact(0.0);
        Prices {
            per_core_second: free,
            per_byte_written: free,
            per_byte_read: free,
            per_write_operation: free,
            per_read_operation: free,
            per_byte_second_held: free,
        }
    }
}

impl Prices {
    /// Checks that every price is a finite number of at least 0 with its interval in order.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the name of the first price that is wrong.
    pub fn check(&self) -> Result<()> {
        let named = [
            ("price per core second", self.per_core_second),
            ("price per byte written", self.per_byte_written),
            ("price per byte read", self.per_byte_read),
            ("price per write operation", self.per_write_operation),
            ("price per read operation", self.per_read_operation),
            ("price per byte second held", self.per_byte_second_held),
        ];
        for (what, price) in named {
            check_amount(what, price)?;
        }
        Ok(())
    }
}

/// One block and its expected life in its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockLife {
    /// The kind of data; carried into the decision, not used to choose.
    pub class: Class,
    /// Its length before compression.
    pub raw_bytes: u64,
    /// Reads for each write. Default 2 to 4, as on common servers (Kothiyal 2009, section 5.6).
    pub reads_per_write: Estimate,
    /// The time for which it is held, in seconds. Default 0: holding costs nothing.
    pub held_seconds: Estimate,
    /// The units in which the place occupies bytes. Default: every byte counts.
    pub allocation: Allocation,
    /// Whether whole units are written and read as well: padded frames, direct I/O. Default false.
    pub moves_whole_units: bool,
    /// Header and trailer the place adds to every stored block, raw ones too. Default 0.
    pub overhead_bytes: u64,
}

impl BlockLife {
    /// Makes the life of a block of `raw_bytes` with the defaults of the fields.
    pub fn new(class: Class, raw_bytes: u64) -> BlockLife {
        BlockLife {
            class,
            raw_bytes,
            reads_per_write: Estimate {
                mean: 3.0,
                low: 2.0,
                high: 4.0,
            },
            held_seconds: Estimate::exact(0.0),
            allocation: Allocation::default(),
            moves_whole_units: false,
            overhead_bytes: 0,
        }
    }

    /// Checks that every amount is finite, at least 0 and in order, and the unit at least 1.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the name of the first field that is wrong.
    pub fn check(&self) -> Result<()> {
        check_amount("reads per write", self.reads_per_write)?;
        check_amount("seconds held", self.held_seconds)?;
        if self.allocation.unit_bytes == 0 {
            return Err(Error::invalid(
                "allocation unit",
                "it must be at least 1 byte",
            ));
        }
        Ok(())
    }
}

fn check_amount(what: &'static str, amount: Estimate) -> Result<()> {
    let Estimate { mean, low, high } = amount;
    if low >= 0.0 && low <= mean && mean <= high && high.is_finite() {
        return Ok(());
    }
    let reason = format!("expected 0 <= low <= mean <= high, found {low}, {mean}, {high}");
    Err(Error::invalid(what, reason))
}

/// The demands of one method for storing one block, before prices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantities {
    /// Core seconds to encode it once.
    pub encode_core_seconds: Estimate,
    /// Core seconds to decode it once.
    pub decode_core_seconds: Estimate,
    /// Bytes written once and read at each read, with the place's overhead.
    pub stored_bytes: Estimate,
    /// Bytes occupied while held: rounded up to the place's units, block by block.
    pub held_bytes: Estimate,
}

impl Quantities {
    /// Returns the demands of an estimated method on a block, run by the host's cores.
    pub fn of(estimate: &MethodEstimate, life: &BlockLife) -> Quantities {
        let raw = life.raw_bytes as f64;
        let scaled = |estimate: Estimate| estimate.map(|value| value * raw);
        let Factor { value, spread, .. } = estimate.stored_per_raw;
        let (stored_bytes, held_bytes) = stored_and_held(value.map(|it| it * raw), spread, life);
        Quantities {
            encode_core_seconds: scaled(estimate.encode_seconds_per_byte.value),
            decode_core_seconds: scaled(estimate.decode_seconds_per_byte.value),
            stored_bytes,
            held_bytes,
        }
    }

    /// Returns the quantities of a block that is stored raw and never copied by a codec.
    pub fn of_store(life: &BlockLife) -> Quantities {
        let none = Estimate::exact(0.0);
        let raw = Estimate::exact(life.raw_bytes as f64);
        let (stored_bytes, held_bytes) = stored_and_held(raw, 0.0, life);
        Quantities {
            encode_core_seconds: none,
            decode_core_seconds: none,
            stored_bytes,
            held_bytes,
        }
    }

    /// Returns the cost of these quantities at the means of the prices, in the prices' unit.
    ///
    /// # Cost
    /// About twenty multiplications: a controller may call it for every arm of every block.
    pub fn cost(&self, life: &BlockLife, prices: &Prices) -> f64 {
        let own = self.inputs().map(|input| input.mean);
        let shared = shared_inputs(life, prices).map(|input| input.mean);
        Point::new(self, &own, &shared).cost()
    }

    /// Returns these quantities for a given number of bytes from the codec.
    pub fn storing(self, stored_bytes: u64, life: &BlockLife) -> Quantities {
        let held = stored_bytes + life.overhead_bytes;
        let held_bytes = Estimate::exact(life.allocation.held_bytes(held) as f64);
        let stored_bytes = match life.moves_whole_units {
            true => held_bytes,
            false => Estimate::exact(held as f64),
        };
        Quantities {
            stored_bytes,
            held_bytes,
            ..self
        }
    }

    /// Returns the quantities of another form of the method, with these shares of work and bytes.
    pub fn shared(&self, work: f64, stored: f64) -> Quantities {
        let by = |it: Estimate, share: f64| it.map(|value| value * share);
        Quantities {
            encode_core_seconds: by(self.encode_core_seconds, work),
            stored_bytes: by(self.stored_bytes, stored),
            held_bytes: by(self.held_bytes, stored),
            ..*self
        }
    }

    fn inputs(&self) -> [Estimate; OWN_COUNT] {
        [
            self.encode_core_seconds,
            self.decode_core_seconds,
            // Stored and held bytes vary together: from both low to both high.
            Estimate::plus_minus(0.0, 1.0),
        ]
    }
}

/// A part of the cost of a block's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Encoding once.
    Encode,
    /// Writing once.
    Write,
    /// Reading, over all reads.
    Read,
    /// Decoding, over all reads.
    Decode,
    /// Holding.
    Hold,
    /// The costs that only the place knows: waits, lateness, an eviction.
    Place,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Encode => "encoding",
            Part::Write => "writing",
            Part::Read => "reading",
            Part::Decode => "decoding",
            Part::Hold => "holding",
            Part::Place => "its place",
        })
    }
}

const OWN_COUNT: usize = 3;
const SHARED_COUNT: usize = 8;
const PART_COUNT: usize = 5;

fn shared_inputs(life: &BlockLife, prices: &Prices) -> [Estimate; SHARED_COUNT] {
    [
        life.reads_per_write,
        life.held_seconds,
        prices.per_core_second,
        prices.per_byte_written,
        prices.per_byte_read,
        prices.per_write_operation,
        prices.per_read_operation,
        prices.per_byte_second_held,
    ]
}

/// All inputs of one block's cost at one point of their bands.
struct Point {
    block: Block,
    place: Place,
    life: Life,
}

impl Point {
    fn new(quantities: &Quantities, own: &[f64], shared: &[f64]) -> Point {
        let &[encode, decode, bytes] = own else {
            unreachable!("{OWN_COUNT} quantities");
        };
        let &[
            reads,
            held,
            core,
            written,
            read,
            write_request,
            read_request,
            hold,
        ] = shared
        else {
            unreachable!("{SHARED_COUNT} shared inputs");
        };
        Point {
            block: Block {
                encode: encode * core,
                decode: decode * core,
                stored_bytes: within(quantities.stored_bytes, bytes),
                held_bytes: within(quantities.held_bytes, bytes),
            },
            place: Place {
                write_operation: write_request,
                write_byte: written,
                read_operation: read_request,
                read_byte: read,
                hold_byte_second: hold,
            },
            life: Life {
                reads,
                kept: Seconds(held),
            },
        }
    }

    /// Codec and medium add up, which alone is right for energy and money. A place whose stages overlap charges the
    /// remaining waits.
    fn cost(&self) -> f64 {
        model::cost(&self.block, &self.place, &self.life, Overlap::Serial)
    }

    fn parts(&self) -> [(Part, f64); PART_COUNT] {
        let Point { block, place, life } = self;
        let read = place.read_operation + place.read_byte * block.stored_bytes;
        let write = place.write_operation + place.write_byte * block.stored_bytes;
        [
            (Part::Encode, block.encode),
            (Part::Write, write),
            (Part::Read, life.reads * read),
            (Part::Decode, life.reads * block.decode),
            (
                Part::Hold,
                place.hold_byte_second * life.kept.0 * block.held_bytes,
            ),
        ]
    }
}

/// Returns the value at a place between low (-1), mean (0) and high (1).
fn within(estimate: Estimate, place: f64) -> f64 {
    let end = if place < 0.0 {
        estimate.low
    } else {
        estimate.high
    };
    estimate.mean + place.abs() * (end - estimate.mean)
}

/// Cost of `a` less cost of `b`, with their common inputs varied for both at once.
pub(super) fn difference(
    a: &Quantities,
    b: &Quantities,
    life: &BlockLife,
    prices: &Prices,
) -> Estimate {
    let mut inputs = [Estimate::default(); 2 * OWN_COUNT + SHARED_COUNT];
    inputs[..OWN_COUNT].copy_from_slice(&a.inputs());
    inputs[OWN_COUNT..2 * OWN_COUNT].copy_from_slice(&b.inputs());
    inputs[2 * OWN_COUNT..].copy_from_slice(&shared_inputs(life, prices));
    in_quadrature(inputs, |at| {
        let (own, shared) = at.split_at(2 * OWN_COUNT);
        let (own_a, own_b) = own.split_at(OWN_COUNT);
        Point::new(a, own_a, shared).cost() - Point::new(b, own_b, shared).cost()
    })
}

pub(super) fn cost_band(quantities: &Quantities, life: &BlockLife, prices: &Prices) -> Estimate {
    let mut inputs = [Estimate::default(); OWN_COUNT + SHARED_COUNT];
    inputs[..OWN_COUNT].copy_from_slice(&quantities.inputs());
    inputs[OWN_COUNT..].copy_from_slice(&shared_inputs(life, prices));
    in_quadrature(inputs, |at| {
        let (own, shared) = at.split_at(OWN_COUNT);
        Point::new(quantities, own, shared).cost()
    })
}

/// Returns a sum whose parts are independent of each other.
pub(super) fn sum(a: Estimate, b: Estimate) -> Estimate {
    let mean = a.mean + b.mean;
    let width = |a: f64, b: f64| a.hypot(b);
    Estimate {
        mean,
        low: mean - width(a.mean - a.low, b.mean - b.low),
        high: mean + width(a.high - a.mean, b.high - b.mean),
    }
}

/// Returns the parts of the cost at the means of all inputs.
pub(super) fn parts(
    quantities: &Quantities,
    life: &BlockLife,
    prices: &Prices,
) -> [(Part, f64); PART_COUNT] {
    let own = quantities.inputs().map(|input| input.mean);
    let shared = shared_inputs(life, prices).map(|input| input.mean);
    Point::new(quantities, &own, &shared).parts()
}

/// Propagates independent bands through `function`. Each input is moved to both ends on its own. The deviations are
/// added in quadrature, upward and downward ones apart.
fn in_quadrature<const COUNT: usize>(
    inputs: [Estimate; COUNT],
    function: impl Fn(&[f64; COUNT]) -> f64,
) -> Estimate {
    let mut at = inputs.map(|input| input.mean);
    let mean = function(&at);
    let (mut below, mut above) = (0.0, 0.0);
    for (index, input) in inputs.iter().enumerate() {
        if input.low == input.high {
            continue;
        }
        at[index] = input.low;
        let one = function(&at) - mean;
        at[index] = input.high;
        let other = function(&at) - mean;
        at[index] = input.mean;
        below += one.min(other).min(0.0).powi(2);
        above += one.max(other).max(0.0).powi(2);
    }
    Estimate {
        mean,
        low: mean - f64::sqrt(below),
        high: mean + f64::sqrt(above),
    }
}

/// Returns stored and held bytes of a block from the mean of its encoded length and its spread. A block that does not
/// shrink is stored raw.
fn stored_and_held(encoded: Estimate, spread: f64, life: &BlockLife) -> (Estimate, Estimate) {
    let raw = life.raw_bytes as f64;
    let encoded = encoded.map(|bytes| bytes.min(raw));
    let held = encoded.map(|bytes| expected_held_bytes(bytes, spread, life));
    match life.moves_whole_units {
        true => (held, held),
        false => (
            encoded.map(|bytes| bytes + life.overhead_bytes as f64),
            held,
        ),
    }
}

/// Units beyond which rounding up adds half a unit on average, for any distribution.
const UNITS_COUNTED_MAX: f64 = 64.0;

/// Returns the mean of the bytes that a place occupies for a block. Its encoded length is lognormal with the given mean
/// and spread (standard deviation of its logarithm).
///
/// Rounding the mean up would make a step out of a slope: with a mean of 4000 bytes, many blocks need a second unit of
/// 4096. The sum over k of P(length > k units) is the mean number of units.
fn expected_held_bytes(encoded: f64, spread: f64, life: &BlockLife) -> f64 {
    let overhead = life.overhead_bytes as f64;
    let unit = life.allocation.unit_bytes as f64;
    let minimum = life.allocation.minimum_bytes as f64;
    if unit == 1.0 {
        return (encoded + overhead).max(minimum);
    }
    let rounded = |bytes: f64| (bytes.max(minimum) / unit).ceil() * unit;
    let raw = life.raw_bytes as f64;
    let most = rounded(raw + overhead);
    if spread <= 0.0 || encoded <= 0.0 || encoded >= raw {
        return rounded(encoded + overhead);
    }
    if most / unit > UNITS_COUNTED_MAX {
        return (encoded + overhead).max(minimum).min(most - unit / 2.0) + unit / 2.0;
    }
    let median_ln = encoded.ln() - spread * spread / 2.0;
    let units = (0..(most / unit) as u32).map(|index| {
        let room = f64::from(index) * unit - overhead;
        match f64::from(index) * unit < minimum || room <= 0.0 {
            true => 1.0,
            false => normal_upper_tail((room.ln() - median_ln) / spread),
        }
    });
    units.sum::<f64>() * unit
}

/// Returns P(Z > z) for a standard normal Z, to within 1e-7 (Abramowitz and Stegun, 26.2.17).
fn normal_upper_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let series = t
        * (0.319_381_530
            + t * (-0.356_563_782
                + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let tail = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * series;
    if z >= 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{seeded, standard_normal};

    #[test]
    fn the_normal_tail_is_that_of_the_tables() {
        for (z, expected) in [
            (0.0, 0.5),
            (1.0, 0.158_655),
            (1.959_964, 0.025),
            (-3.0, 0.998_650),
        ] {
            let found = normal_upper_tail(z);
            assert!(
                (found - expected).abs() < 1e-6,
                "{found}, expected {expected}"
            );
        }
    }

    /// Compares the mean of held bytes with that of drawn blocks, each rounded on its own.
    fn check_held(random: &mut fastrand::Rng, encoded: f64, spread: f64, life: &BlockLife) {
        let draws = 20_000;
        let raw = life.raw_bytes as f64;
        let mut sum = 0.0;
        for _ in 0..draws {
            let ln = encoded.ln() - spread * spread / 2.0 + spread * standard_normal(random);
            let stored = ln.exp().min(raw) as u64 + life.overhead_bytes;
            sum += life.allocation.held_bytes(stored) as f64;
        }
        let drawn = sum / f64::from(draws);
        let found = expected_held_bytes(encoded, spread, life);
        let tolerance = 0.02 * drawn;
        assert!(
            (found - drawn).abs() < tolerance,
            "mean {encoded}, spread {spread}, {life:?}: {found}, drawn {drawn}"
        );
    }

    #[test]
    fn held_bytes_are_the_mean_over_blocks() {
        let mut random = seeded("held bytes");
        for (raw_bytes, unit_bytes, minimum_bytes, overhead_bytes) in [
            (16_384, 4096, 0, 32),
            (16_384, 512, 0, 0),
            (65_536, 4096, 20_000, 0),
            (1 << 20, 4096, 0, 16),
            (8192, 1, 0, 24),
        ] {
            let life = BlockLife {
                allocation: Allocation {
                    unit_bytes,
                    minimum_bytes,
                },
                overhead_bytes,
                ..BlockLife::new(Class::TEXT, raw_bytes)
            };
            for share in [0.05, 0.24, 0.4, 0.5] {
                for spread in [0.02, 0.1, 0.3] {
                    check_held(&mut random, share * raw_bytes as f64, spread, &life);
                }
            }
        }
    }

    #[test]
    fn bands_of_differences_hold_what_is_drawn_from_them() {
        let mut random = seeded("bands of differences");
        let (mut inside, mut drawn) = (0, 0);
        for _ in 0..200 {
            let mut near = |mean: f64| {
                let mean = mean * (0.5 + random.f64());
                Estimate::plus_minus(mean, mean * 0.4 * random.f64())
            };
            let mut quantities = || Quantities {
                encode_core_seconds: near(4e-3),
                decode_core_seconds: near(1e-3),
                stored_bytes: near(4e5),
                held_bytes: near(4e5),
            };
            let (a, b) = (quantities(), quantities());
            let prices = Prices {
                per_core_second: near(1.0),
                per_byte_written: near(1e-8),
                per_byte_read: near(1e-8),
                per_byte_second_held: near(1e-14),
                ..Prices::default()
            };
            let life = BlockLife {
                held_seconds: near(1e6),
                ..BlockLife::new(Class::TEXT, 1 << 20)
            };
            let band = difference(&a, &b, &life, &prices);
            for _ in 0..50 {
                let mut draw = |it: Estimate| {
                    let value = it.mean + (it.high - it.mean) / 1.96 * standard_normal(&mut random);
                    value.max(0.0)
                };
                let shared = shared_inputs(&life, &prices).map(&mut draw);
                let own = [a, b].map(|it| {
                    let mut own = it.inputs().map(|_| 0.0);
                    own[0] = draw(it.encode_core_seconds);
                    own[1] = draw(it.decode_core_seconds);
                    own[2] = draw(Estimate::plus_minus(5.0, 1.0)) - 5.0;
                    own
                });
                let cost_of = |it: &Quantities, own: &[f64]| Point::new(it, own, &shared).cost();
                let found = cost_of(&a, &own[0]) - cost_of(&b, &own[1]);
                inside += u32::from((band.low..=band.high).contains(&found));
                drawn += 1;
            }
        }
        println!("{inside} of {drawn} draws inside the band");
        // 95 % less the curvature that quadrature ignores.
        assert!(drawn == 10_000 && inside >= 9_250);
    }
}
