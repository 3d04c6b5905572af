//! Peng 2020, the slides of a hand-off: compression of small objects and memcached under batched and paced load. Here
//! that is our server beside Debian's memcached.
//!
//! | file | what it is |
//! |---|---|
//! | `servers` | both servers as child processes, and `breakeven bench` in front of either |
//! | `values` | what is stored: rows of real files, split into those that are learned from and others |
//! | `items` | how many items resident memory holds |
//! | `misses` | clients that fetch elsewhere what is not there |
//! | `loads` | loads that keep a pace, and many keys |
//! | `memory` | what the processes have resident, idle and full |
//! | `codecs` | which method is best on a value, beside the LZW of `lzw` |
//! | `pictures` | both in one picture |
//! | `speed` | gets and sets, keys a second and processor time |

mod codecs;
mod items;
mod loads;
mod lzw;
mod memory;
mod misses;
mod pictures;
mod servers;
mod speed;
mod values;

use super::Experiment;

pub const EXPERIMENTS: &[Experiment] = &[
    items::EXPERIMENT,
    speed::GETS,
    speed::SETS,
    misses::EXPERIMENT,
    loads::PACED,
    loads::KEYS,
    memory::EXPERIMENT,
    codecs::EXPERIMENT,
];
