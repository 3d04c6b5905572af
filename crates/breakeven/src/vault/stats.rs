//! The bytes that a vault holds, and the part that its snapshots need.

use crate::error::Result;

use super::cipher::Id;
use super::collect::Marks;
use super::index::Index;
use super::pack::PackKind;
use super::repair::is_damage;
use super::{Progress, Vault, object};

/// The sizes and counts of a vault now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VaultStats {
    /// Chunks in the index.
    pub chunks: u64,
    /// Memory that the index takes.
    pub index_bytes: u64,
    /// Bytes of the chunks of files that snapshots need, each counted once, uncompressed.
    pub needed_raw_bytes: u64,
    /// Bytes that these take in packs, each by its share of its frame.
    pub needed_stored_bytes: u64,
    /// Bytes in packs that no snapshot needs.
    pub unneeded_bytes: u64,
    /// Packs without a use that wait to be deleted.
    pub waiting_packs: u64,
}

impl Vault {
    /// Returns the vault's sizes and counts now. The readable part of a damaged snapshot counts.
    ///
    /// # Errors
    /// [`crate::Error::Limit`] if the index takes more than `index_bytes_max`; those of the storage.
    pub fn stats(
        &self,
        index_bytes_max: u64,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<VaultStats> {
        let index = self.index(index_bytes_max)?;
        let mut needed = Marks::new(&index);
        let mut mark = |id: Id| needed.mark(&id);
        let phase = "following snapshots";
        self.follow_all(
            &index,
            phase,
            progress,
            &mut mark,
            &mut |epoch, ended| match ended {
                Err(error) if is_damage(&error) => {
                    self.damages.note(&object("snapshots", epoch), &error);
                    Ok(())
                }
                ended => ended,
            },
        )?;
        self.mark_bases(&mut needed)?;
        let mut stats = VaultStats {
            chunks: index.chunk_count() as u64,
            index_bytes: index.memory_bytes(),
            waiting_packs: self.state.doomed.len() as u64,
            ..VaultStats::default()
        };
        self.count_packs(&index, &needed, &mut stats)?;
        Ok(stats)
    }

    fn count_packs(&self, index: &Index, live: &Marks<'_>, stats: &mut VaultStats) -> Result<()> {
        let mut number = 0u32;
        self.each_readable_pack(|pack, contents| {
            for frame in &contents.frames {
                let (mut raw, mut needed) = (0u64, 0u64);
                for chunk in &frame.chunks {
                    // A chunk that lies in two packs is needed in the pack that the index names.
                    let place = index.find(&chunk.id);
                    let is_here = place.is_some_and(|place| place.frame == number);
                    let length_bytes = u64::from(chunk.length_bytes);
                    raw += length_bytes;
                    if is_here && live.has(&chunk.id) {
                        needed += length_bytes;
                    }
                }
                number += 1;
                let sealed = u64::from(frame.sealed_bytes);
                let share = needed as f64 / raw.max(1) as f64;
                let needed_stored = (sealed as f64 * share) as u64;
                stats.unneeded_bytes += sealed - needed_stored;
                if pack.kind == PackKind::Data {
                    stats.needed_raw_bytes += needed;
                    stats.needed_stored_bytes += needed_stored;
                }
            }
            Ok(())
        })
    }
}
