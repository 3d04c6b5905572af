//! Which method stores a block, and what that choice earned.
//!
//! What every place shares: classes (what kind of data a block is), profiles (measured cost and
//! ratio of a method on a class on this machine), the choice by price with its bands, and the
//! ledger with the one field table behind all `stats()`. Features come in, decisions go out.
//!
//! Not here: bytes, codec implementations, clocks, randomness, controllers and queues. What moves a
//! price belongs to its place and arrives as a number.
#![deny(unsafe_code)]

pub mod class;
pub mod fields;

pub use class::Class;
