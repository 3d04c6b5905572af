//! What each class of values did in a shard, and the ledger of it.

use crate::codec::Method;
use crate::decide::fields::{Field, FieldTable, Unit, Value};
use crate::decide::holdout::Holdout;
use crate::decide::ledger::{Counterfactual, Ledger};
use crate::units::Estimate;

/// The counts of a class in a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClassCounts {
    /// Values that left the fresh queue.
    pub demoted: u64,
    pub encoded: u64,
    /// Values that were to be encoded and did not shrink enough.
    pub refused: u64,
    pub raw_bytes: u64,
    pub stored_bytes: u64,
    pub decoded: u64,
    pub promoted: u64,
    pub drawn: Drawn,
}

/// What the values of a class that were drawn cost both ways, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drawn {
    pub values: u64,
    store_cost: f64,
    /// What encoding saved, and the squares of it.
    saved: f64,
    saved_squares: f64,
    /// What the codec would have saved of those that stayed raw, and what it took to find out.
    missed: f64,
    overhead: f64,
}

/// Fewer say nothing of the spread: as many as the ledger of `decide` asks for.
const DRAWN_MIN: u64 = 8;
/// Of a normal distribution 95 % lies within so many standard deviations.
const DEVIATIONS: f64 = 1.96;

impl Drawn {
    /// Books one value that was drawn.
    pub fn book(&mut self, method: Method, found: &Counterfactual, overhead: f64) {
        let saving = found.store_cost - found.codec_cost;
        self.values += 1;
        self.store_cost += found.store_cost;
        self.overhead += overhead;
        if method == Method::STORE {
            self.missed += saving;
        } else {
            self.saved += saving;
            self.saved_squares += saving * saving;
        }
    }

    fn add(&mut self, other: &Drawn) {
        self.values += other.values;
        self.store_cost += other.store_cost;
        self.saved += other.saved;
        self.saved_squares += other.saved_squares;
        self.missed += other.missed;
        self.overhead += other.overhead;
    }

    fn is_enough(&self) -> bool {
        self.values >= DRAWN_MIN
    }

    /// Returns what all values of the class would have cost raw.
    pub fn store_cost(&self) -> Option<f64> {
        self.is_enough().then(|| self.store_cost * one_in())
    }

    /// Returns what compressing earned on all of them: each was drawn with the same chance, whatever the others
    /// (Horvitz and Thompson 1952).
    pub fn saved_cost(&self) -> Option<Estimate> {
        // The drawn ones alone were encoded in vain.
        let mean = self.saved * one_in() - self.overhead;
        let deviation = (one_in() * (one_in() - 1.0) * self.saved_squares).sqrt();
        self.is_enough().then_some(Estimate {
            mean,
            low: mean - DEVIATIONS * deviation,
            high: mean + DEVIATIONS * deviation,
        })
    }

    /// Returns what compressing would have earned on those that stayed raw.
    pub fn missed_cost(&self) -> Option<f64> {
        self.is_enough().then(|| self.missed * one_in())
    }
}

fn one_in() -> f64 {
    Holdout::default().one_in as f64
}

impl ClassCounts {
    pub fn add(&mut self, other: &ClassCounts) {
        self.demoted += other.demoted;
        self.encoded += other.encoded;
        self.refused += other.refused;
        self.raw_bytes += other.raw_bytes;
        self.stored_bytes += other.stored_bytes;
        self.decoded += other.decoded;
        self.promoted += other.promoted;
        self.drawn.add(&other.drawn);
    }
}

/// The books of a shard.
#[derive(Default)]
pub(super) struct Books {
    /// By the number of the class, as far as one was counted.
    pub classes: Vec<ClassCounts>,
    pub ledger: Option<Box<Ledger>>,
}

/// Bytes of a ledger with some accounts.
const LEDGER_BYTES: usize = 4 << 10;

impl Books {
    pub fn of(&mut self, class: u16) -> &mut ClassCounts {
        let class = usize::from(class);
        if class >= self.classes.len() {
            self.classes.resize(class + 1, ClassCounts::default());
        }
        &mut self.classes[class]
    }

    pub fn memory_bytes(&self) -> usize {
        let ledger = self.ledger.as_ref().map_or(0, |_| LEDGER_BYTES);
        self.classes.capacity() * size_of::<ClassCounts>() + ledger
    }
}

/// What is told of a class of values: its counts since the store was made.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassStats {
    /// The beginning of its keys, `-` for none and `*` for all that are not told apart, and the longest value.
    pub name: String,
    /// What its values are encoded by from now on.
    pub method: Method,
    /// What would be second best.
    pub runner_up: Option<Method>,
    /// What the runner-up would cost more, as a share of the cost.
    pub margin: f64,
    /// Which dictionary of its class that is, from 1; 0 for none.
    pub generation: u32,
    /// Bytes of that dictionary and its prepared forms.
    pub dictionary_bytes: u64,
    /// Values that left the fresh queue.
    pub demoted: u64,
    /// Values that were encoded.
    pub encoded: u64,
    /// Values that were to be encoded and did not shrink enough.
    pub refused: u64,
    /// Bytes of the values that were encoded.
    pub raw_bytes: u64,
    /// Bytes that they were encoded to.
    pub stored_bytes: u64,
    /// Values that were decoded for a reader.
    pub decoded: u64,
    /// Values that are stored raw again because they were decoded often.
    pub promoted: u64,
    /// Values on which both choices were measured; the rest is reckoned from those, none while they are too few.
    pub samples: u64,
    /// What all values would have cost raw, in seconds.
    pub store_cost: Option<f64>,
    /// What compressing earned against that, in seconds; negative is a loss.
    pub saved_cost: Option<Estimate>,
    /// What it would have earned on values that stayed raw, in seconds.
    pub missed_cost: Option<f64>,
}

/// What is told of each class; rows are labelled `class`, `method` and `runner_up`.
pub const CLASS_FIELDS: FieldTable<ClassStats> = FieldTable::new(
    "breakeven_class",
    &[
        Field::gauge(
            "margin",
            Unit::Ratio,
            "What the runner-up would cost more",
            |it| Value::Real(it.margin),
        ),
        Field::gauge(
            "generation",
            Unit::None,
            "Which dictionary of its class is used",
            |it| Value::Count(it.generation.into()),
        ),
        Field::gauge(
            "dictionary",
            Unit::Bytes,
            "Memory of that dictionary",
            |it| Value::Count(it.dictionary_bytes),
        ),
        Field::counter(
            "demoted",
            Unit::None,
            "Values that left the fresh queue",
            |it| Value::Count(it.demoted),
        ),
        Field::counter("encoded", Unit::None, "Values that were encoded", |it| {
            Value::Count(it.encoded)
        }),
        Field::counter(
            "refused",
            Unit::None,
            "Values that did not shrink enough",
            |it| Value::Count(it.refused),
        ),
        Field::counter(
            "raw",
            Unit::Bytes,
            "Bytes of values before encoding",
            |it| Value::Count(it.raw_bytes),
        ),
        Field::counter(
            "stored",
            Unit::Bytes,
            "Bytes of values after encoding",
            |it| Value::Count(it.stored_bytes),
        ),
        Field::gauge("compression", Unit::Ratio, "Raw over stored bytes", |it| {
            let ratio = it.raw_bytes as f64 / it.stored_bytes as f64;
            Some(ratio).filter(|ratio| ratio.is_finite()).into()
        }),
        Field::counter("decoded", Unit::None, "Values decoded for a reader", |it| {
            Value::Count(it.decoded)
        }),
        Field::counter("promoted", Unit::None, "Values stored raw again", |it| {
            Value::Count(it.promoted)
        }),
        Field::counter(
            "samples",
            Unit::None,
            "Values on which both choices were measured",
            |it| Value::Count(it.samples),
        ),
        Field::gauge(
            "store_cost",
            Unit::Seconds,
            "Cost of storing every value raw, by samples",
            |it| it.store_cost.into(),
        ),
        Field::gauge(
            "saved_cost",
            Unit::Seconds,
            "Cost saved by compressing, by samples",
            |it| it.saved_cost.map(|cost| cost.mean).into(),
        ),
        Field::gauge(
            "saved_cost_low",
            Unit::Seconds,
            "Lower end of its 95 % interval",
            |it| it.saved_cost.map(|cost| cost.low).into(),
        ),
        Field::gauge(
            "saved_cost_high",
            Unit::Seconds,
            "Upper end of its 95 % interval",
            |it| it.saved_cost.map(|cost| cost.high).into(),
        ),
        Field::gauge(
            "missed_cost",
            Unit::Seconds,
            "Cost compressing would have saved on raw values",
            |it| it.missed_cost.into(),
        ),
    ],
);
