//! Safety steps that a test can switch off, to prove that the tests would notice.
//!
//! Outside of tests every switch is a constant `false` and costs nothing.

/// A mistake that some log, in this project or another, once made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(all(test, feature = "pages")), allow(dead_code))]
pub(crate) enum SeededBug {
    /// The checksum does not cover the place of the record.
    ChecksumWithoutAddress,
    /// Neither header nor checksum distinguishes the uses of a region.
    GenerationIgnored,
    /// A record with a wrong checksum is taken all the same: a garbage tail is replayed.
    ChecksumIgnored,
    /// Every superblock is written to the same slot.
    SuperblockInPlace,
    /// A superblock is written and not synced.
    SuperblockNotSynced,
    /// A superblock is written to one slot alone, and the other one leads to the state before.
    SuperblockOnce,
    /// The superblock that was read is built on without a sync.
    RewriteWithoutSync,
    /// The superblock that was read is synced without being written again.
    RewriteWithoutWrite,
    /// A writer of several goes on from the superblock it knows, and not from the newest.
    NotReloaded,
    /// A commit of the reference log is acknowledged without a sync.
    CommitNotSynced,
    /// The reference log renames a snapshot without syncing the folder.
    FolderNotSynced,
    /// The reference log gives space back before its replacement is durable.
    FreedTooEarly,
    /// The reference log continues behind a gap in the same generation.
    GenerationKept,
    /// The reference log takes records without a commit that covers them.
    CommitNotAwaited,
    /// The reference log goes on behind a gap, as if nothing were missing.
    HoleSkipped,
    /// A block store names a dictionary before a checkpoint holds it.
    DictionaryNotAwaited,
    /// A block store drops a superseded dictionary that frames still need.
    DictionaryDropped,
    /// A block store does not count a dictionary among the live contents of a segment.
    DictionaryNotHeld,
    /// The reference log works on after a failed write or sync, and syncs again.
    FailureIgnored,
    /// A block store uses room again that readers in other processes need.
    ReadersIgnored,
    /// A reader of a block store does not check again after it has announced its state.
    NotLookedAgain,
    /// A commit's coordinator is not asked for.
    CoordinatorIgnored,
    /// A part of a transaction over several databases is written with no journal beside it.
    PartUntold,
}

#[cfg(test)]
thread_local! {
    static SEEDED: std::cell::Cell<Option<SeededBug>> = const { std::cell::Cell::new(None) };
}

/// Returns whether a test has switched the safety step off.
#[cfg(test)]
pub(crate) fn is_seeded(bug: SeededBug) -> bool {
    SEEDED.get() == Some(bug)
}

/// Returns whether a test has switched the safety step off: never, outside of tests.
#[cfg(not(test))]
pub(crate) const fn is_seeded(_: SeededBug) -> bool {
    false
}

/// Runs `work` with a safety step switched off on this thread.
#[cfg(test)]
pub(crate) fn with_seeded<T>(bug: SeededBug, work: impl FnOnce() -> T) -> T {
    SEEDED.set(Some(bug));
    let result = work();
    SEEDED.set(None);
    result
}
