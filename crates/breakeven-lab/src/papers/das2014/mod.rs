//! Das and others 2014, "NVM compression - hybrid flash-aware application level compression": database pages
//! compressed at each flush and written once. Here the database is a stock SQLite with the loadable extension,
//! against the same SQLite with its rollback journal and with its write-ahead log.
//!
//! | file | what it is |
//! |---|---|
//! | `worker` | a database's work in a process of Debian's Python |
//! | `commits` | transactions of one row, each durable |
//! | `size` | what a database takes when it was made, and after it was written over |
//! | `linkbench` | the requests of a social graph, in memory and beyond it |
//! | `scans` | a scan and a join, in the cache, in memory and beyond it |
//! | `bulk` | a load whose pages one thread encodes, or two |
//! | `beyond` | reads of a database three times as long as memory |
//! | `steady` | what databases of others take, and after they were written again |
//! | `import` | import and export beside a program that compresses the file |

mod beyond;
mod bulk;
mod commits;
mod import;
mod linkbench;
mod scans;
mod size;
mod steady;
mod worker;

use super::Experiment;

pub const EXPERIMENTS: &[Experiment] = &[
    commits::EXPERIMENT,
    size::EXPERIMENT,
    linkbench::EXPERIMENT,
    scans::EXPERIMENT,
    import::EXPERIMENT,
    bulk::EXPERIMENT,
    beyond::EXPERIMENT,
    steady::EXPERIMENT,
];
