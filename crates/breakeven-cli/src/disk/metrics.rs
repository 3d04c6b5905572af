//! The server's counters, as a text file for Prometheus' collector of such files.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use breakeven::disk::Disk;
use breakeven::storage::beside::{self, SmallFileOptions};

/// The protocol's numbers of requests, in its order.
const KINDS: [&str; 8] = [
    "read",
    "write",
    "disconnect",
    "flush",
    "trim",
    "cache",
    "write_zeroes",
    "block_status",
];

/// Clients that were not let in: one that asks again and again does not fill the log.
#[derive(Default)]
struct Rejections {
    count: u64,
    told_count: u64,
    last_reason: String,
}

/// Counters of all connections.
#[derive(Default)]
pub struct Metrics {
    requests: [AtomicU64; KINDS.len()],
    bytes: [AtomicU64; KINDS.len()],
    refused: AtomicU64,
    rejections: Mutex<Rejections>,
    /// Connections that are open.
    pub connections: AtomicU64,
}

impl Metrics {
    pub fn count(&self, kind: u16, length: u32, is_refused: bool) {
        if is_refused {
            self.refused.fetch_add(1, Ordering::Relaxed);
        } else if let Some(requests) = self.requests.get(usize::from(kind)) {
            requests.fetch_add(1, Ordering::Relaxed);
            self.bytes[usize::from(kind)].fetch_add(length.into(), Ordering::Relaxed);
        }
    }

    /// Counts a client that was not let in.
    pub fn reject(&self, reason: String) {
        let mut rejections = self.lock_rejections();
        rejections.count += 1;
        rejections.last_reason = reason;
    }

    fn lock_rejections(&self) -> MutexGuard<'_, Rejections> {
        self.rejections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of refused clients since the last call, with the reason for the last one, if any.
    pub fn tell_rejections(&self) -> Option<String> {
        let mut rejections = self.lock_rejections();
        let count = rejections.count - rejections.told_count;
        rejections.told_count = rejections.count;
        let clients = if count == 1 {
            "client was"
        } else {
            "clients were"
        };
        let sentence = format!("{count} {clients} not let in: {}", rejections.last_reason);
        (count > 0).then_some(sentence)
    }

    fn text(&self, disk: &Disk, stored_bytes: u64, left_bytes: u64) -> String {
        let mut text = String::new();
        let mut lines = |name: &str, kind: &str, values: &[(&str, u64)]| {
            let _ = writeln!(text, "# TYPE breakeven_disk_{name} {kind}");
            for (label, value) in values {
                let _ = writeln!(text, "breakeven_disk_{name}{label} {value}");
            }
        };
        for (name, counters) in [
            ("requests_total", &self.requests),
            ("bytes_total", &self.bytes),
        ] {
            let labels = KINDS.map(|kind| format!("{{request=\"{kind}\"}}"));
            let values = labels.iter().zip(counters);
            let values: Vec<(&str, u64)> = values
                .map(|(label, counter)| (label.as_str(), counter.load(Ordering::Relaxed)))
                .collect();
            lines(name, "counter", &values);
        }
        let duplicates = disk.duplicate_stats();
        let refused = self.refused.load(Ordering::Relaxed);
        lines("refused_total", "counter", &[("", refused)]);
        let rejections = self.lock_rejections().count;
        lines("clients_refused_total", "counter", &[("", rejections)]);
        lines(
            "blocks_looked_for_total",
            "counter",
            &[("", duplicates.looked)],
        );
        lines("blocks_found_total", "counter", &[("", duplicates.found)]);
        lines(
            "blocks_found_bytes_total",
            "counter",
            &[("", duplicates.saved_bytes)],
        );
        let connections = self.connections.load(Ordering::Relaxed);
        lines("connections", "gauge", &[("", connections)]);
        let stats = disk.stats();
        // Unknown while a write has the store.
        if let (Some(live), Some(free)) = (stats.live_bytes, stats.free_bytes) {
            lines("live_bytes", "gauge", &[("", live)]);
            lines("free_bytes", "gauge", &[("", free)]);
        }
        lines("stored_bytes", "gauge", &[("", stored_bytes)]);
        lines("host_left_bytes", "gauge", &[("", left_bytes)]);
        text
    }

    /// Replaces the file, so that no reader sees half of it. A file that is not regular is written to.
    pub fn write(
        &self,
        path: &Path,
        disk: &Disk,
        (stored_bytes, left_bytes): (u64, u64),
    ) -> Result<()> {
        let text = self.text(disk, stored_bytes, left_bytes);
        // The next are written before anybody asks for these after a power cut, and nobody here waits for a reader.
        let options = SmallFileOptions {
            is_synced: false,
            waits_for_reader: false,
            ..SmallFileOptions::default()
        };
        Ok(beside::write(path, text.as_bytes(), options)?)
    }
}
