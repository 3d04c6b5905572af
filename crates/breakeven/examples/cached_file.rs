//! A file behind the cache: `cargo run -p breakeven --example cached_file -- FILE`.

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
        self.cache.get_or_load(number, length, 0, |frame| {
            let read = self.file.read_exact_at(frame, start);
            read.map_err(|error| Error::io("read", "the file", error))
        })
    }
}

fn main() -> Result<()> {
    let path = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "Cargo.lock".to_string());
    let options = CacheOptions {
        budget_bytes: 16 << 20,
        ..CacheOptions::default()
    };
    let file = CachedFile::open(&path, options)?;
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
    let stats = file.cache.stats();
    println!("sum of first bytes {}", first? + second?);
    println!("{:?}", stats.shards);
    println!(
        "memory holds {:.2} times its size",
        stats.memory.expansion()
    );
    println!("page 0: {}", file.cache.explain(&0));
    Ok(())
}
