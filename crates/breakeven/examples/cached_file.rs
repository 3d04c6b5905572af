//! A file behind the cache: `cargo run -p breakeven --example cached_file -- FILE MIB`.

use std::fs::File;
use std::os::unix::fs::FileExt;

use breakeven::cache::{BlockGuard, Cache, CacheOptions};
use breakeven::{Error, Result};

const PAGE_BYTES: u64 = 8192;

struct CachedFile {
    file: File,
    bytes: u64,
    cache: Cache<u64>,
}

impl CachedFile {
    fn open(path: &str, options: CacheOptions) -> Result<CachedFile> {
        let file = File::open(path).map_err(|error| Error::io("open", path, error))?;
        let metadata = file
            .metadata()
            .map_err(|error| Error::io("look at", path, error))?;
        Ok(CachedFile {
            file,
            bytes: metadata.len(),
            cache: Cache::new(options)?,
        })
    }

    fn page(&self, number: u64) -> Result<BlockGuard> {
        let start = number * PAGE_BYTES;
        let length = PAGE_BYTES.min(self.bytes.saturating_sub(start)) as usize;
        self.cache.get_or_load(number, length, |frame| {
            let read = self.file.read_exact_at(frame, start);
            read.map_err(|error| Error::io("read", "the file", error))
        })
    }
}

/// Reads pages by two threads, the first ones most, and returns the sum of their first bytes.
fn read_some(file: &CachedFile) -> Result<u64> {
    let pages = file.bytes.div_ceil(PAGE_BYTES).max(1);
    let read = |seed| -> Result<u64> {
        let mut random = fastrand::Rng::with_seed(seed);
        let some_pages = (0..200_000).map(|_| (pages as f64 * random.f64().powi(4)) as u64);
        let first_bytes = some_pages
            .map(|number| Ok(u64::from(file.page(number)?.first().copied().unwrap_or(0))));
        first_bytes.sum()
    };
    let sums = std::thread::scope(|scope| {
        let threads = [1, 2].map(|seed| scope.spawn(move || read(seed)));
        threads.map(|thread| thread.join().expect("a reader"))
    });
    let [first, second] = sums;
    Ok(first? + second?)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or("Cargo.lock".to_string());
    let mib = arguments.next().and_then(|it| it.parse().ok());
    let options = CacheOptions {
        budget_bytes: mib.unwrap_or(16) << 20,
        ..CacheOptions::default()
    };
    let file = CachedFile::open(&path, options)?;
    println!("sum of first bytes {}", read_some(&file)?);
    let stats = file.cache.stats();
    println!("{:?}", stats.shards);
    println!(
        "memory holds {:.2} times its size",
        stats.memory.expansion()
    );
    println!("page 0: {}", file.cache.explain(&0));
    Ok(())
}

#[cfg(test)]
mod tests {
    use breakeven::cache::{Arm, Policy};

    use super::*;

    /// Four times the budget: pages are compressed, restored, dropped and loaded again.
    #[test]
    fn a_file_larger_than_the_budget_is_read_right() {
        let mut random = fastrand::Rng::with_seed(23);
        let words: Vec<u64> = (0..500).map(|_| random.u64(..)).collect();
        let content: Vec<u8> = (0..8 << 17)
            .flat_map(|_| words[random.usize(..500)].to_le_bytes())
            .collect();
        let file = tempfile::NamedTempFile::new().expect("a folder for it");
        std::fs::write(file.path(), &content).expect("room for it");
        let options = CacheOptions {
            budget_bytes: 2 << 20,
            policy: Policy::Static(Arm {
                compressed_share: 0.8,
                method: 0,
                admits_once: true,
            }),
            ..CacheOptions::default()
        };
        let path = file.path().to_str().expect("a plain name");
        let file = CachedFile::open(path, options).expect("a cache");
        for (number, page) in content.chunks(PAGE_BYTES as usize).enumerate() {
            let found = file.page(number as u64).expect("a page");
            assert!(*found == *page, "page {number}");
        }
        assert!(read_some(&file).expect("pages") > 0);
        for (number, page) in content.chunks(PAGE_BYTES as usize).enumerate() {
            let found = file.page(number as u64).expect("a page");
            assert!(*found == *page, "page {number}, later");
        }
        let stats = file.cache.stats();
        println!("{:?}, {:.2}", stats.shards, stats.memory.expansion());
        assert!(content.len() as u64 > 3 * stats.memory.budget_bytes);
        assert!(stats.memory.in_use_bytes() <= stats.memory.budget_bytes);
        let shards = stats.shards;
        assert!(shards.compressed > 1000 && shards.packed_hits > 10_000 && shards.misses > 1024);
    }
}
