//! The buffer cache: raw and compressed blocks in one budget, split by the worth of each byte.
//!
//! A [`Shard`] holds blocks of bytes under keys. Part of its memory may hold them compressed: more blocks fit and fewer
//! are loaded, but a compressed block must be restored. Whether that pays depends on the cost of a miss here, on the
//! data and on the accesses. All of that is measured while the cache works, and the split, the method and the rule of
//! admission follow it ([`Policy::Adaptive`]). Compressing nothing is one of the choices. A [`Cache`] is shards for
//! many threads.
//!
//! Promises: memory in use never exceeds the budget except for lent slabs. A block's bytes are those that were put in
//! under its key, or the block is absent. A damaged compressed form is found and counts as absent. A changed block is
//! written before it is dropped. Not here: threads of its own, files.
//!
//! Source: Harper 2018, which computes the trade-off in a model (`model`), and asks for this cache at its end.
#![deny(unsafe_code)]

mod anew;
mod bench;
mod compressed;
mod costs;
mod entry;
mod evict;
mod expansion;
mod explain;
mod ghost;
mod guard;
mod handout;
mod lanes;
mod log;
mod predict;
mod replica;
mod shadow;
mod shard;
mod shared;
mod sync;
mod turn;
mod write_back;

/// The default hasher of keys: fast, with a random seed. If others choose the keys, and gain by slowing the cache down,
/// use the standard library's [`RandomState`](std::hash::RandomState).
pub use foldhash::quality::RandomState as KeyHasher;

pub use compressed::CompressedBlock;
pub use costs::AccessPrices;
pub use explain::{CacheLedger, Explanation, Holding};
pub use guard::BlockGuard;
pub use replica::Arm;
pub use shard::{BlockSpec, Policy, ShardMemory, ShardStats};
pub use shared::{Cache, CacheOptions, CacheStats};
pub use write_back::WriteGuard;

// For the doors and the laboratory: the cache of one thread, records of costs, and predictions.
#[doc(hidden)]
pub use bench::{Bench, Record, RecordedMethod};
#[doc(hidden)]
pub use costs::MissTime;
#[doc(hidden)]
pub use predict::{Accesses, BlockKind, Predicted, Prospect, predict};
#[doc(hidden)]
pub use replica::Events;
#[doc(hidden)]
pub use shard::{Handle, Lookup, Reservation, Restored, Shard, ShardOptions};

#[cfg(test)]
mod explore_test;
#[cfg(test)]
mod faults_test;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod shared_test;
#[cfg(test)]
mod write_back_test;
