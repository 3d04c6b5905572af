//! Hirsch 2017, "Dynamic decision-making for efficient compression in parallel distributed file systems". It compresses
//! write calls so that they take less time, no more time, or a little more.
//!
//! This library's forms of the thesis's three strategies, on its own write path over links of the thesis's three kinds.
//! They stand against every static method (section 5.3), against the time they promise, and against the rules of the
//! thesis and of others on the same path. Neither its machine (24 threads, links up to 6000 MB/s) nor most of its files
//! are at hand. So links are slower in the proportion in which LZ4 is, and published figures stand beside ours.

mod asynchronous;
mod bench;
mod copy;
mod corpus;
mod costs;
mod fastest;
mod figures;
pub mod link;
mod money;
pub mod network;
mod pictures;
mod plan;
mod programs;
mod promises;
mod published;
mod race;
mod rivals;
mod rules;
mod threads;
pub mod worker;

use super::Experiment;
use crate::laboratory::Finding;
use crate::statistics::Interval;

pub const EXPERIMENTS: &[Experiment] = &[
    figures::STATIC,
    threads::EXPERIMENT,
    fastest::FASTEST,
    fastest::BALANCE,
    fastest::BOUND_EXPERIMENT,
    figures::MATRIX,
    rivals::EXPERIMENT,
    promises::TIME,
    promises::BYTES,
    promises::RIVALS,
    copy::COPY,
    copy::CALLS,
    programs::ADAPT,
    programs::UNPACKING,
    network::EXPERIMENT,
    asynchronous::EXPERIMENT,
];

/// Judges a figure of an experiment by its target.
fn judge(
    experiment: &Experiment,
    question: String,
    core: bool,
    found: Interval,
    note: String,
) -> Finding {
    Finding {
        question,
        core,
        found,
        verdict: experiment.target.judge(found),
        note,
    }
}
