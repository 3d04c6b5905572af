//! The goal of a stream: over soon, in a promised time, small, or cheap.

use crate::decide::{BlockLife, Class, Prices};
use crate::units::{Estimate, Seconds};

/// The goal of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Over as soon as can be (Hirsch's S1).
    Fastest,
    /// As small as can be in at most this factor of its time uncompressed, at least 1. Use 1 for no loss of time (S2),
    /// more to give time for space (S3).
    Within(f64),
    /// As small as can be.
    Smallest,
    /// As cheap as can be at fixed prices, held for some time and read so often.
    Money {
        prices: Prices,
        held: Seconds,
        reads: f64,
    },
    /// With as few joules as can be, at fixed prices in joules, read so often (Kothiyal 2009). Bytes that are held cost
    /// nothing: what is saved of a medium saves energy only where a device can stay off.
    Energy { prices: Prices, reads: f64 },
}

impl Goal {
    /// Returns the unit of the booked costs of blocks under this goal. For the fastest end it is the block's share of
    /// the time in which workers and link end together; for space it is bytes.
    pub fn unit(&self) -> &'static str {
        match self {
            Goal::Fastest => "seconds",
            Goal::Within(_) | Goal::Smallest => "bytes",
            Goal::Money { .. } => "price",
            Goal::Energy { .. } => "joules",
        }
    }

    /// Returns the life of a block without hints.
    pub(super) fn usual_life(&self, class: Class, raw_bytes: u64) -> BlockLife {
        let mut life = BlockLife::new(class, raw_bytes);
        life.reads_per_write = Estimate::exact(0.0);
        if let Goal::Money { held, reads, .. } = self {
            life.held_seconds = Estimate::exact(held.0);
            life.reads_per_write = Estimate::exact(*reads);
        }
        if let Goal::Energy { reads, .. } = self {
            life.reads_per_write = Estimate::exact(*reads);
        }
        life
    }
}
