//! The state that all threads of the server share.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use breakeven::objects::{Now, Objects};
use breakeven::quoted::printable;
use rustix::event::{EventfdFlags, eventfd};

use crate::clock::Clock;
use crate::counters::{Counters, Sums};
use crate::settings::Settings;

/// Prefixes that are counted at most: clients choose them.
const PREFIXES_MAX: usize = 1 << 14;

/// The activity of a connection, as `stats conns` shows it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) address: String,
    pub(crate) listen_address: String,
    /// The second of its last command.
    pub(crate) last_command: AtomicU32,
    pub(crate) is_sending_value: AtomicBool,
    pub(crate) is_listener: bool,
}

/// The counts of commands on the keys of a prefix.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PrefixCounts {
    pub(crate) gets: u64,
    pub(crate) hits: u64,
    pub(crate) sets: u64,
    pub(crate) deletes: u64,
}

/// How the server is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Stop {
    No,
    Now,
    Graceful,
}

pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) objects: Objects,
    pub(crate) clock: Clock,
    pub(crate) workers: Vec<Arc<Counters>>,
    /// The counts at the last `stats reset`.
    base: Mutex<Sums>,
    pub(crate) peers: Mutex<BTreeMap<u64, Arc<Peer>>>,
    pub(crate) connections: AtomicUsize,
    pub(crate) connections_total: AtomicU64,
    pub(crate) connections_rejected: AtomicU64,
    /// How often no connection could be accepted for want of descriptors, and for how long.
    pub(crate) accepts_disabled: AtomicU64,
    pub(crate) accepts_disabled_microseconds: AtomicU64,
    pub(crate) verbosity: AtomicU32,
    counts_prefixes: AtomicBool,
    pub(crate) prefixes: Mutex<BTreeMap<Vec<u8>, PrefixCounts>>,
    /// The `user:password` lines, as `user password`; any one of them lets a client in.
    pub(crate) logins: Option<Vec<Vec<u8>>>,
    pub(crate) memory_bytes: AtomicU64,
    is_dumping: Arc<AtomicBool>,
    stop: AtomicU32,
    /// Readable once the server is to stop.
    pub(crate) wake: OwnedFd,
}

/// Writes a line for the user of the server. Where nobody can read it any more the server goes on.
pub(crate) fn tell(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", printable(&line.to_string()));
}

/// The right to list all keys, which one client has at a time: the list waits in memory until it is sent.
#[derive(Debug)]
pub(crate) struct DumpTurn(Arc<AtomicBool>);

impl Drop for DumpTurn {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// Held by a thread without which the server is none: however it ends, all of it ends.
pub(crate) struct Needed(pub(crate) Arc<Shared>);

impl Drop for Needed {
    fn drop(&mut self) {
        if self.0.stop() == Stop::No {
            self.0.ask_stop(Stop::Graceful);
        }
    }
}

impl Shared {
    pub(crate) fn new(
        settings: Settings,
        objects: Objects,
        logins: Option<Vec<Vec<u8>>>,
    ) -> io::Result<Shared> {
        Ok(Shared {
            clock: Clock::new(),
            workers: (0..settings.threads).map(|_| Arc::default()).collect(),
            base: Mutex::default(),
            peers: Mutex::default(),
            connections: AtomicUsize::new(0),
            connections_total: AtomicU64::new(0),
            connections_rejected: AtomicU64::new(0),
            accepts_disabled: AtomicU64::new(0),
            accepts_disabled_microseconds: AtomicU64::new(0),
            verbosity: AtomicU32::new(settings.verbosity),
            counts_prefixes: AtomicBool::new(settings.counts_prefixes),
            prefixes: Mutex::default(),
            logins,
            memory_bytes: AtomicU64::new(settings.memory_bytes),
            is_dumping: Arc::default(),
            stop: AtomicU32::new(Stop::No as u32),
            wake: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            settings,
            objects,
        })
    }

    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }

    /// Returns the counts since the start or the last reset.
    pub(crate) fn sums(&self) -> Sums {
        self.sums_of_all().since(&lock(&self.base))
    }

    pub(crate) fn reset(&self) {
        *lock(&self.base) = self.sums_of_all();
        self.connections_total.store(0, Relaxed);
        self.connections_rejected.store(0, Relaxed);
        lock(&self.prefixes).clear();
        self.objects.reset_stats();
    }

    fn sums_of_all(&self) -> Sums {
        let mut sums = Sums::default();
        self.workers.iter().for_each(|worker| sums.add(worker));
        sums
    }

    pub(crate) fn set_counts_prefixes(&self, counts: bool) {
        self.counts_prefixes.store(counts, Relaxed);
    }

    pub(crate) fn counts_prefixes(&self) -> bool {
        self.counts_prefixes.load(Relaxed)
    }

    /// Counts something under the prefix of a key, if prefixes are counted.
    pub(crate) fn count_prefix(&self, key: &[u8], count: impl FnOnce(&mut PrefixCounts)) {
        if !self.counts_prefixes() {
            return;
        }
        let Some(end) = memchr::memchr(self.settings.prefix_end, key) else {
            return;
        };
        let mut prefixes = lock(&self.prefixes);
        if let Some(counts) = prefixes.get_mut(&key[..end]) {
            count(counts);
        } else if prefixes.len() < PREFIXES_MAX {
            count(prefixes.entry(key[..end].to_vec()).or_default());
        }
    }

    /// Returns the right to list all keys, unless a client has it.
    pub(crate) fn dump_turn(&self) -> Option<DumpTurn> {
        let is_free = !self.is_dumping.swap(true, Relaxed);
        is_free.then(|| DumpTurn(Arc::clone(&self.is_dumping)))
    }

    pub(crate) fn ask_stop(&self, stop: Stop) {
        self.stop.store(stop as u32, Relaxed);
        // A full counter has woken the acceptor already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub(crate) fn stop(&self) -> Stop {
        match self.stop.load(Relaxed) {
            0 => Stop::No,
            1 => Stop::Now,
            _ => Stop::Graceful,
        }
    }
}

/// Locks. A panic leaves only counts and lists behind, which are whole at any moment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
