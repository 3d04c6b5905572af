//! Peng 2020, the slides of a hand-off: compression of small objects and memcached under batched and paced load. Here
//! that is our server beside Debian's memcached.
//!
//! | file | what it is |
//! |---|---|
//! | `servers` | both servers as child processes, and `breakeven bench` in front of either |
//! | `values` | what is stored: rows of real files, split into those that are learned from and others |
//! | `items` | how many items resident memory holds |
//! | `pictures` | both in one picture |
//! | `speed` | gets and sets, keys a second and processor time |

mod items;
mod pictures;
mod servers;
mod speed;
mod values;

use super::Experiment;

pub const EXPERIMENTS: &[Experiment] = &[items::EXPERIMENT, speed::GETS, speed::SETS];
