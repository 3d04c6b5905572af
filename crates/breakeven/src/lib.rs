//! Storage compression that pays for itself.
//!
//! Breakeven measures what compressing costs on this machine for this data, decides block by
//! block, and keeps the books. The modules are floors: each stands only on those below it.
//!
//! | floor | modules |
//! |---|---|
//! | 0 | [`units`], [`statistics`], [`error`] |
//! | 1 | [`codec`], [`meter`], [`model`], [`storage`], [`arena`], [`pool`] |
//! | 2 | [`medium`], [`frame`], [`decide`] |
//! | 3 | [`cache`] |
//! | 4 | [`stream`], [`replay`] |
//! | 5 | [`advise`] |
//!
//! The other places of floor 4 are still to be built.

#[cfg(feature = "advise")]
pub mod advise;
pub mod arena;
#[cfg(feature = "cache")]
pub mod cache;
pub mod codec;
pub mod decide;
pub mod error;
#[cfg(feature = "stream")]
pub mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
#[cfg(feature = "advise")]
pub mod medium;
pub mod meter;
pub mod model;
pub mod pool;
#[cfg(feature = "replay")]
pub mod replay;
pub mod statistics;
pub mod storage;
#[cfg(feature = "stream")]
pub mod stream;
#[cfg(test)]
mod testing;
pub mod units;

pub use error::{Error, Result};
