//! Peng 2020, the deduplication of big files that repeat: trees of files put into `breakeven vault`, beside restic and borg.
//!
//! | file | what it is |
//! |---|---|
//! | `trees` | what is stored |
//! | `stores` | the programs, started anew for each step |
//! | `deck` | the deck's own comparison: whole files and fixed chunks as models, clones, and a vault |
//! | `keeping` | again, clones, verifying, collecting, many small files, a hundred GB |
//! | `mount` | reading through a mounted snapshot, in order, at random, and by ten hosts at once |
//! | `race` | adding, adding again and restoring by each in turn, and what lies in the stores |

mod deck;
mod keeping;
mod mount;
mod nightly_disk;
mod race;
mod stores;
mod trees;

use super::Experiment;

pub const EXPERIMENTS: &[Experiment] = &[
    race::DEFAULTS,
    race::BEST,
    deck::EXPERIMENT,
    keeping::EXPERIMENT,
    mount::EXPERIMENT,
];
