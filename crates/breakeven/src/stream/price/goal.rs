//! The goal of a stream: an early end, a promised time, few bytes, or a low cost.

use crate::decide::{BlockLife, Class, Prices};
use crate::units::{Estimate, Seconds};

/// The goal of a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Ends as early as possible (Hirsch's S1).
    Fastest,
    /// As small as possible within this factor of its uncompressed time, at least 1. Use 1 for no loss of time (S2),
    /// more to give time for space (S3).
    Within(f64),
    /// As small as can be.
    Smallest,
    /// As cheap as possible at fixed prices, held for some time and read so often.
    Money {
        prices: Prices,
        held: Seconds,
        reads: f64,
    },
    /// As few joules as possible, at fixed prices in joules, read so often (Kothiyal 2009). Held bytes cost nothing:
    /// less use of a medium saves energy only if a device can stay off.
    Energy { prices: Prices, reads: f64 },
}

impl Goal {
    /// Returns the unit of the booked costs of blocks under this goal. For the earliest end it is the block's share of
    /// the time in which workers and link end together. For space it is bytes.
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
