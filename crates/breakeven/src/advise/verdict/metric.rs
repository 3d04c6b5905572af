//! The metric of a verdict, and its weights for a task's costs.

use std::fmt;
use std::iter;

/// The unit of judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Seconds until the work is done.
    Time,
    /// Joules of the machine and the device.
    Energy,
    /// Total energy times total time (Kothiyal 2009, section 4.3).
    EnergyDelay,
    /// Rent, energy, charges and space.
    Money,
}

impl Metric {
    /// All of them, in the order of the report.
    pub const ALL: [Metric; 4] = [
        Metric::Time,
        Metric::Energy,
        Metric::EnergyDelay,
        Metric::Money,
    ];

    /// Returns the name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Time => "time",
            Metric::Energy => "energy",
            Metric::EnergyDelay => "energy-delay",
            Metric::Money => "money",
        }
    }

    /// The quantity that represents it where there is room for one; for energy-delay the stricter one.
    pub(super) fn leading(self) -> Quantity {
        match self {
            Metric::Time => Quantity::Time,
            Metric::Energy | Metric::EnergyDelay => Quantity::Energy,
            Metric::Money => Quantity::Money,
        }
    }

    /// The quantities whose totals are multiplied.
    pub(super) fn factors(self) -> impl Iterator<Item = Quantity> {
        let second = (self == Metric::EnergyDelay).then_some(Quantity::Time);
        iter::once(self.leading()).chain(second)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A quantity that adds up over tasks, so that it has weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Time,
    Energy,
    Money,
}

/// The weights that a quantity gives to the parts of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weights {
    /// Cost of one second in which the medium works.
    pub medium_second: f64,
    /// Cost of one core-second.
    pub core_second: f64,
    /// Cost of one second in which a device beside the processor works.
    pub device_second: f64,
    /// Cost of one joule of such a device.
    pub joule: f64,
    /// Cost of each byte written, beside its time: charges, and holding it.
    pub byte_written: f64,
    /// Cost of each byte read, beside its time.
    pub byte_read: f64,
}

/// The weights of a place; energy-delay is made of those of time and energy.
#[derive(Clone, Copy, Debug)]
pub struct Metrics {
    /// Seconds count alone.
    pub time: Weights,
    /// Joules count alone.
    pub energy: Weights,
    /// Euros of seconds, joules and bytes.
    pub money: Weights,
}

impl Metrics {
    pub(super) fn weights(&self, quantity: Quantity) -> &Weights {
        match quantity {
            Quantity::Time => &self.time,
            Quantity::Energy => &self.energy,
            Quantity::Money => &self.money,
        }
    }
}
