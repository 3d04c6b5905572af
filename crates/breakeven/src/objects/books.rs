//! The counts of each class of values in a shard, and its ledger.

use crate::codec::Method;
use crate::decide::Decision;
use crate::decide::fields::{Field, FieldTable, Unit, Value};
use crate::decide::holdout::Sampled;
use crate::decide::ledger::{Costs, Ledger, Written};
use crate::units::Estimate;

/// The counts of a class in a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClassCounts {
    /// Values that left the fresh queue.
    pub demoted: u64,
    pub encoded: u64,
    /// Values whose encoding did not save enough.
    pub refused: u64,
    pub raw_bytes: u64,
    pub stored_bytes: u64,
    pub decoded: u64,
    pub promoted: u64,
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
    }
}

/// The books of a shard.
#[derive(Default)]
pub(super) struct Books {
    /// By the number of the class, up to the last counted one.
    pub classes: Vec<ClassCounts>,
    /// The savings of compression for each class that has any, by number. The hash of an item decides its shard.
    pub costs: Vec<(u16, Costs<1>)>,
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

    /// Enters a written value, and the cost of both choices if it was drawn.
    pub fn wrote(
        &mut self,
        class: u16,
        decision: &Decision,
        written: &Written,
        sampled: Option<&Sampled>,
    ) {
        let found = self.costs.binary_search_by_key(&class, |it| it.0);
        let at = found.unwrap_or_else(|at| {
            self.costs.insert(at, (class, Costs::default()));
            at
        });
        let costs = &mut self.costs[at].1;
        let ledger = self.ledger.get_or_insert_with(Box::<Ledger>::default);
        costs.wrote(decision);
        ledger.wrote(decision, written);
        if let Some(sampled) = sampled {
            costs.counterfactual(decision, &sampled.counterfactual);
            costs.overhead(sampled.overhead_cost);
            ledger.counterfactual(decision, &sampled.counterfactual);
            ledger.overhead(sampled.overhead_cost);
        }
    }

    pub fn memory_bytes(&self) -> usize {
        let ledger = self.ledger.as_ref().map_or(0, |_| LEDGER_BYTES);
        let costs = self.costs.capacity() * size_of::<(u16, Costs<1>)>();
        self.classes.capacity() * size_of::<ClassCounts>() + costs + ledger
    }
}

/// The report on a class of values: its counts since the store began.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassStats {
    /// The prefix of its keys, `-` for none and `*` for all further prefixes, and the longest value.
    pub name: String,
    /// The encoding of its values from now on.
    pub method: Method,
    /// The second best method.
    pub runner_up: Option<Method>,
    /// The extra cost of the runner-up, as a share of the cost.
    pub margin: f64,
    /// The number of that dictionary in its class, from 1; 0 for none.
    pub generation: u32,
    /// Bytes of that dictionary and its prepared forms.
    pub dictionary_bytes: u64,
    /// Values that left the fresh queue.
    pub demoted: u64,
    /// Values that were encoded.
    pub encoded: u64,
    /// Values whose encoding did not save enough.
    pub refused: u64,
    /// Bytes of the values that were encoded.
    pub raw_bytes: u64,
    /// Bytes of their encoded forms.
    pub stored_bytes: u64,
    /// Values that were decoded for a reader.
    pub decoded: u64,
    /// Values that are stored raw again because they were decoded often.
    pub promoted: u64,
    /// Values on which both choices were measured. Costs are scaled up from these, and are `None` while there are too
    /// few.
    pub samples: u64,
    /// The expected cost of all values raw, in seconds.
    pub store_cost: f64,
    /// The earnings of compression against that, in seconds; negative is a loss.
    pub saved_cost: Option<Estimate>,
    /// The possible earnings on values that stayed raw, in seconds.
    pub missed_cost: Option<Estimate>,
}

/// The fields of each class; rows are labelled `class`, `method` and `runner_up`.
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
            "Expected cost of storing every value raw",
            |it| Value::Real(it.store_cost),
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
            |it| it.missed_cost.map(|missed| missed.mean).into(),
        ),
    ],
);
