//! A bound on the memory of processes, the system's cache of their files included: a control group of their own.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// Where the system has groups that bound memory, and the file of a group that says how much: its two ways.
const WAYS: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
];

/// A group; dropping it removes it, when its processes have ended.
pub struct MemoryGroup {
    folder: PathBuf,
}

impl MemoryGroup {
    /// Returns whether this process may make one.
    pub fn is_possible() -> bool {
        MemoryGroup::new(1 << 30).is_ok()
    }

    /// Makes a group whose processes have so many bytes together.
    ///
    /// # Errors
    /// If the system does not do that.
    pub fn new(bytes: u64) -> Result<MemoryGroup> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("breakeven-lab-{}-{count}", std::process::id());
        let is_there = |(root, _): &&(&str, &str)| Path::new(root).join("cgroup.procs").exists();
        let (root, limit) = WAYS.iter().find(is_there).context("no control groups")?;
        let group = MemoryGroup {
            folder: Path::new(root).join(name),
        };
        std::fs::create_dir(&group.folder).context("make a control group")?;
        let limit = group.folder.join(limit);
        std::fs::write(&limit, bytes.to_string())
            .with_context(|| format!("write {}", limit.display()))?;
        Ok(group)
    }

    /// Returns the file that a process puts its number into to be bound.
    pub fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // One that stays has no processes and bounds nothing.
        let _ = std::fs::remove_dir(&self.folder);
    }
}
