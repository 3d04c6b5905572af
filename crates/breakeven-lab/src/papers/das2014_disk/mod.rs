//! Das and others 2014, "NVM compression - hybrid flash-aware application level compression". It is a layer with a
//! sparse address space, trim and atomic writes, below unaware programs. Here it is a disk served by NBD, against a
//! plain file served by nbdkit to the same client.
//!
//! | file | what it is |
//! |---|---|
//! | `servers` | the two servers as child processes, and fio as their client |
//! | `speed` | reads and writes through both, in turn |
//! | `paced` | the same on a slow device |
//! | `space` | clones, and what overwriting leaves |
//! | `equal` | what looking for equal blocks costs and saves |
//! | `cleaning` | what a client notices of cleaning |
//! | `peers` | what others store compressed disks by, and longer blocks of ours |
//! | `sparse` | the memory of a server of a large disk |
//! | `mounted` | a file system on an export |
//! | `mariadb` | a database on that |
//! | `trims` | writes against trims, as the paper's Figure 14 has them |

mod cleaning;
mod equal;
mod mariadb;
mod mounted;
mod paced;
mod peers;
mod servers;
mod space;
mod sparse;
mod speed;
mod trims;

use super::Experiment;

pub const EXPERIMENTS: &[Experiment] = &[
    speed::EXPERIMENT,
    paced::EXPERIMENT,
    space::EXPERIMENT,
    equal::EXPERIMENT,
    cleaning::EXPERIMENT,
    trims::EXPERIMENT,
    mariadb::EXPERIMENT,
    peers::EXPERIMENT,
    sparse::EXPERIMENT,
];
