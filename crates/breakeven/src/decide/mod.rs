//! The choice of the method that stores a block, and its earnings.
//!
//! The parts that every place shares:
//!
//! - classes (the kind of data in a block),
//! - profiles (measured cost and ratio of a method on a class on this machine),
//! - the chooser with its estimates and trials, and the decision with its bands,
//! - the ledger, with the one field table behind all `stats()`.
//!
//! Features come in, decisions go out.
//!
//! Not here: bytes, codec implementations, clocks, randomness, controllers and queues. A price moves in its own place
//! and arrives here as a number.
#![deny(unsafe_code)]

mod carried;
pub mod chooser;
pub mod class;
pub mod decision;
mod effects;
pub mod fields;
pub mod holdout;
mod known;
pub mod learned;
pub mod ledger;
pub mod price;
mod prior;
pub mod profile;
mod savings;
mod tracker;
mod trials;

pub use chooser::{Candidate, Chooser, ChooserOptions, Picked, Terms};
pub use class::Class;
pub use decision::{Decision, Offer, Pays, Reason, choose};
pub use ledger::{Counterfactual, Earnings, Fetched, Ledger, Written};
pub use price::{BlockLife, Part, Prices, Quantities};
pub use profile::{Basis, Factor, MethodEstimate, Observation, Profile, ProfileOptions, Standing};
pub use trials::{TRIAL_BLOCKS, TRIAL_SECONDS, TRIAL_SHARE, Trial};

#[cfg(test)]
fn seeded(test: &str) -> fastrand::Rng {
    crate::testing::seeded(test, 20_170_301)
}

/// Returns a number of the standard normal distribution (Box and Muller 1958).
#[cfg(test)]
fn standard_normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}
