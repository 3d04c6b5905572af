//! What the server did, as a text file for Prometheus' collector of such files.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// Counters of all connections.
#[derive(Default)]
pub struct Metrics {
    requests: [AtomicU64; KINDS.len()],
    bytes: [AtomicU64; KINDS.len()],
    refused: AtomicU64,
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

    /// Replaces the file, so that no reader sees half of it; what is no regular file is written to.
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
