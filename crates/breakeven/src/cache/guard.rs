//! A found block: its bytes, for as long as the guard lives.
#![deny(unsafe_code)]

use std::fmt;
use std::hint::black_box;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::arena::Loan;

/// The bytes of a block. They stay unchanged, even after the end of the block or the cache. To see a later block under
/// the key, ask again.
///
/// A block that was found raw is lent in place, and its slab cannot be reused until then. A block that was found
/// compressed, or that the cache does not keep, is the guard's own memory. Either counts against
/// [`CacheOptions::pinned_bytes_max`](super::CacheOptions).
pub struct BlockGuard {
    held: Held,
}

enum Held {
    Lent(Loan),
    Own(Arc<OwnBlock>),
}

impl BlockGuard {
    #[inline]
    pub(super) fn lent(loan: Loan) -> BlockGuard {
        BlockGuard {
            held: Held::Lent(loan),
        }
    }

    pub(super) fn own(block: Arc<OwnBlock>) -> BlockGuard {
        BlockGuard {
            held: Held::Own(block),
        }
    }

    /// Rebuilds the same guard from parts that the compiler does not see. Otherwise the compiler would copy the guard
    /// as a whole, and keep others in memory for that.
    #[inline(always)]
    pub(super) fn anew(self) -> BlockGuard {
        match self.held {
            Held::Lent(loan) => BlockGuard::lent(loan.anew()),
            Held::Own(block) => BlockGuard::own(black_box(block)),
        }
    }

    /// Returns whether the bytes lie in the cache, and not in memory of the guard's own.
    pub fn is_lent(&self) -> bool {
        matches!(self.held, Held::Lent(_))
    }
}

impl Deref for BlockGuard {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.held {
            Held::Lent(loan) => loan,
            Held::Own(block) => &block.bytes,
        }
    }
}

impl AsRef<[u8]> for BlockGuard {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for BlockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.is_lent() { "lent" } else { "own" };
        write!(f, "BlockGuard({} bytes, {place})", self.len())
    }
}

/// The overhead of a block outside the slabs, entries of tables included.
pub(super) const OWN_BYTES: u64 = 256;

/// A block outside the slabs, charged to its shard until it is gone.
pub(super) struct OwnBlock {
    pub bytes: Vec<u8>,
    charged: Arc<AtomicU64>,
}

impl OwnBlock {
    /// Makes a block of this memory, which is already charged.
    pub fn charged(bytes: Vec<u8>, charged: &Arc<AtomicU64>) -> OwnBlock {
        OwnBlock {
            bytes,
            charged: Arc::clone(charged),
        }
    }
}

impl Drop for OwnBlock {
    fn drop(&mut self) {
        let bytes = self.bytes.len() as u64 + OWN_BYTES;
        self.charged.fetch_sub(bytes, Ordering::Relaxed);
    }
}
