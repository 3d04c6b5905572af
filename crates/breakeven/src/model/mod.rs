//! The papers' formulas as pure arithmetic: no I/O, no clock, no allocation, no failure.
//!
//! Every function is total over its stated domain and asserts on values outside it, such as a NaN or a negative count.
//! Such a value is a bug of the caller, not a fact about the world. Values from outside must be checked before they get
//! here. Prices, times and counts are inputs, and their sources are the caller's business. `docs/model.md` lists every
//! formula with its symbols, units and source.
//!
//! - [`break_even`]: reads per write at which compressing pays, with bands (Kothiyal 2009).
//! - [`energy_delay`]: energy times time, task by task and over the whole work.
//! - [`cost`]: the cost of a block over its life; `serial` against `overlapped`; allocation units.
//! - [`buffers`]: a cache with a compressed share of memory (Harper 2018), over an [`access`]
//!   pattern.
//! - [`transfer`]: effective speed and write calls over a link (Hirsch 2017).
//! - [`prices`]: the fields of a price list; [`money`]: euros saved and days to redemption
//!   (Hirsch 2017).
//! - [`offload`]: published devices per direction, and the limit of free compression
//!   (Harper 2018).
//! - [`crossing`]: bisection, for break-evens without a closed form.

#![deny(unsafe_code)]

pub mod access;
pub mod break_even;
pub mod buffers;
pub mod cost;
pub mod crossing;
pub mod energy_delay;
pub mod money;
pub mod offload;
pub mod prices;
pub mod transfer;

pub use access::{Access, Coverage};
pub use break_even::{
    Answer, Line, Outcome, Quadruple, QuadrupleEstimate, SavingsEstimate, SharedFactor, Verdict,
    outcome, savings, verdict, verdict_with_factor,
};
pub use buffers::{BufferCache, BufferCodec, Overheads, PayingShares, Placement, Rate, Rates};
pub use cost::{Allocation, Block, Comparison, Life, Overlap, Place, cost};
pub use crossing::crossing;
pub use energy_delay::{EnergyDelay, EnergyDelayEstimate, RunningTotals, WorkOutcome};
pub use money::Keeping;
pub use offload::{Direction, FREE_COMPRESSION, Offload, Throughput};
pub use prices::{CostParts, HIRSCH_2017, MachinePrices, Prices, StoragePrices};
pub use transfer::{CodecSpeeds, ComputePrices, OneBlock, Strategy, WriteCall};

#[cfg(test)]
fn seeded(test: &str) -> fastrand::Rng {
    crate::testing::seeded(test, 20_090_501)
}

/// Asserts that two numbers agree to the relative tolerance, and names the compared quantity.
#[cfg(test)]
#[track_caller]
fn assert_close(what: &str, found: f64, expected: f64, tolerance: f64) {
    let scale = found.abs().max(expected.abs());
    assert!(
        (found - expected).abs() <= tolerance * scale,
        "{what}: found {found}, expected {expected}"
    );
}
