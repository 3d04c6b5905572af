//! Kothiyal 2009, "Energy and Performance Evaluation of Lossless File Data Compression on Computer
//! Systems": whole files compressed by programs on a disk, in time, energy and energy-delay.
//!
//! One record, made by `tasks`, serves all experiments on single files; `archive` has its own.

mod archive;
mod break_even;
mod claims;
mod contenders;
mod energy;
mod files;
mod measured;
mod pictures;
mod published;
mod task;
mod tasks;
pub mod worker;

use super::Experiment;

pub const EXPERIMENTS: &[Experiment] = &[
    break_even::EXPERIMENT,
    claims::LZOP_ON_TEXT,
    claims::SLOW_PROGRAMS,
    claims::RANDOM_FILES,
    claims::ZERO_FILES,
    claims::RATIOS,
    energy::EXPERIMENT,
    archive::EXPERIMENT,
];
