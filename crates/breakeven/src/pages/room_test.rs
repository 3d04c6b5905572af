//! Databases on full hosts: deletes within the reserve work and free space. Longer ones are refused and change nothing,
//! and smaller steps succeed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;

use super::transfer::{export, import, lock};
use super::{Connection, LockLevel, PLAIN_MAGIC, PageOptions, PageStore};
use crate::error::{Error, Result};
use crate::pool::{Pool, PoolOptions};
use crate::storage::{SimulatedDisk, Storage};
use crate::testing::seed;

const PAGE_BYTES: usize = 4096;
/// The leaves of a trunk, as many as SQLite lists.
const LEAVES_MAX: usize = PAGE_BYTES / 4 - 8;
/// Rows of a page, of noise.
const ROWS: u64 = 8;
/// The first pages: the header, and the trunks of all freelists here.
const FIRST_PAGES: u64 = 4;

/// A database of noise on a host that has room for so much.
struct FullHost {
    disk: SimulatedDisk,
    connection: Connection,
    random: Rng,
    pages: u64,
    /// The pages that the freelist names, counted from 0.
    free: BTreeSet<u64>,
    changes: u32,
    /// Pages that have fewer rows than [`ROWS`].
    rows: BTreeMap<u64, u64>,
    /// Whether pages are of letters, which can be compressed.
    is_text: bool,
}

impl FullHost {
    fn fill(seed: u64, capacity_bytes: u64) -> FullHost {
        let mut host = FullHost::create(seed, capacity_bytes);
        while host.append(16).is_ok() {}
        while host.append(1).is_ok() {}
        host
    }

    fn create(seed: u64, capacity_bytes: u64) -> FullHost {
        let disk = SimulatedDisk::new(seed);
        let storage: Arc<dyn Storage> = disk.start_process();
        let options = PageOptions {
            seed: Some(seed),
            ..PageOptions::default()
        };
        assert!(PageStore::create(&*storage, "db", options).unwrap());
        disk.set_capacity_bytes(Some(capacity_bytes));
        let connection = Connection::open(Arc::new(PageStore::new(storage, "db", options)));
        FullHost {
            disk,
            connection: connection.unwrap(),
            random: Rng::with_seed(seed),
            pages: FIRST_PAGES,
            free: BTreeSet::new(),
            changes: 0,
            rows: BTreeMap::new(),
            is_text: false,
        }
    }

    /// A database of text that was imported, on a host that has room for nothing more.
    fn import(seed: u64, pages: u64) -> FullHost {
        let mut host = FullHost::create(seed, u64::MAX);
        host.is_text = true;
        while host.pages < pages {
            host.append(16).unwrap();
        }
        let storage: Arc<dyn Storage> = host.disk.start_process();
        let options = PageOptions::default();
        let pool = Pool::new(PoolOptions { worker_count: 0 }).unwrap();
        let go_on = &mut |_, _| true;
        let store = Arc::new(PageStore::new(Arc::clone(&storage), "db", options));
        host.connection.close().unwrap();
        export(store, (&storage, "plain"), &pool, go_on).unwrap();
        storage.unlink("db").unwrap();
        let to = (&storage, options);
        import(&storage, ("plain", "db"), to, &|_| true, &pool, go_on).unwrap();
        storage.unlink("plain").unwrap();
        let store = Arc::new(PageStore::new(storage, "db", options));
        host.connection = Connection::open(store).unwrap();
        let bytes = host.disk.allocated_bytes();
        host.disk.set_capacity_bytes(Some(bytes));
        host
    }

    /// Fills it by new pages among rewritten ones, then rewrites the existing pages until even that is refused.
    fn fill_scattered(seed: u64, capacity_bytes: u64) -> FullHost {
        let mut host = FullHost::create(seed, capacity_bytes);
        while host.append(1).is_ok() {
            for _ in 0..host.random.u64(..3) {
                let again = host.scatter(1);
                if host.rewrite(&again).is_err() {
                    return host;
                }
            }
        }
        // Cleaning makes room for most of it.
        for _ in 0..host.pages {
            let again = host.scatter(1);
            if host.rewrite(&again).is_err() {
                break;
            }
        }
        host
    }

    /// Ends the session and begins another, as a program that is started anew does.
    fn reopen(&mut self) {
        let storage: Arc<dyn Storage> = self.disk.start_process();
        let store = Arc::new(PageStore::new(storage, "db", PageOptions::default()));
        self.connection.close().unwrap();
        self.connection = Connection::open(store).unwrap();
    }

    fn rewrite(&mut self, pages: &BTreeSet<u64>) -> Result<()> {
        self.transact(self.pages, pages.iter().copied(), &BTreeSet::new())
    }

    fn write_noise(&mut self, page: u64) -> Result<()> {
        let mut bytes = [0; PAGE_BYTES];
        let rows = self.rows.get(&page).copied().unwrap_or(ROWS) as usize;
        let used = &mut bytes[..rows * PAGE_BYTES / ROWS as usize];
        self.random.fill(used);
        if self.is_text {
            used.iter_mut().for_each(|byte| *byte = b'a' + *byte % 16);
        }
        self.connection.write(page * PAGE_BYTES as u64, &bytes)
    }

    /// Writes pages with as many rows as they have left.
    fn shorten(&mut self, pages: &BTreeSet<u64>, rows: &BTreeMap<u64, u64>) -> Result<()> {
        self.rows = rows.clone();
        self.transact(self.pages, pages.iter().copied(), &BTreeSet::new())
    }

    fn append(&mut self, count: u64) -> Result<()> {
        let pages = self.pages + count;
        self.transact(pages, self.pages..pages, &BTreeSet::new())
    }

    /// Runs one transaction that writes some pages and frees others, as SQLite's calls would. One that is refused
    /// leaves nothing.
    fn transact(
        &mut self,
        pages: u64,
        written: impl Iterator<Item = u64>,
        freed: &BTreeSet<u64>,
    ) -> Result<()> {
        lock(&mut self.connection, LockLevel::Exclusive).unwrap();
        let free: BTreeSet<u64> = self.free.union(freed).copied().collect();
        let write = || {
            for page in written {
                self.write_noise(page)?;
            }
            self.write_lists(&free)?;
            self.connection.prepare()?;
            self.connection.sync()?;
            self.connection.publish()
        };
        let done = write();
        if done.is_ok() {
            (self.pages, self.free) = (pages, free);
            self.connection.trim().unwrap();
            self.connection.tidy().unwrap();
        }
        self.connection.unlock(LockLevel::None).unwrap();
        if let Err(error) = &done {
            let is_full = matches!(error, Error::Limit { .. }) || error.is_out_of_space();
            assert!(is_full, "{error}");
        }
        done
    }

    /// Writes the header and the trunks of the freelist.
    fn write_lists(&mut self, free: &BTreeSet<u64>) -> Result<()> {
        self.changes += 1;
        let leaves: Vec<u32> = free.iter().map(|page| *page as u32 + 1).collect();
        let trunks = leaves.chunks(LEAVES_MAX).len() as u32;
        assert!(u64::from(trunks) < FIRST_PAGES);
        let mut page = [0; PAGE_BYTES];
        page[..16].copy_from_slice(PLAIN_MAGIC);
        page[16..18].copy_from_slice(&(PAGE_BYTES as u16).to_be_bytes());
        page[24..28].copy_from_slice(&self.changes.to_be_bytes());
        page[32..36].copy_from_slice(&(2 * trunks.min(1)).to_be_bytes());
        page[36..40].copy_from_slice(&(leaves.len() as u32 + trunks).to_be_bytes());
        self.connection.write(0, &page)?;
        for (trunk, listed) in (1..).zip(leaves.chunks(LEAVES_MAX)) {
            let next = if trunk < trunks { trunk + 2 } else { 0 };
            let words = [next, listed.len() as u32].into_iter();
            let words = words.chain(listed.iter().copied());
            let mut page: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
            page.resize(PAGE_BYTES, 0);
            self.connection
                .write(u64::from(trunk) * PAGE_BYTES as u64, &page)?;
        }
        Ok(())
    }

    /// Returns pages that are in use, from anywhere on.
    fn choose(&mut self, count: u64) -> BTreeSet<u64> {
        let used = FIRST_PAGES..self.pages;
        let used: Vec<u64> = used.filter(|page| !self.free.contains(page)).collect();
        let count = (count as usize).min(used.len());
        let from = self.random.usize(..=used.len() - count);
        used[from..from + count].iter().copied().collect()
    }

    /// Returns pages that are in use, here and there.
    fn scatter(&mut self, count: u64) -> BTreeSet<u64> {
        let mut used: Vec<u64> = self.choose(u64::MAX).into_iter().collect();
        self.random.shuffle(&mut used);
        used.into_iter().take(count as usize).collect()
    }
}

/// Rows here and there: most pages that a DELETE touches stay, with a row less. It goes on in smaller steps until half
/// is gone.
#[test]
fn a_full_host_takes_deletes_of_rows_here_and_there() {
    let (mut deletes, mut refusals) = (0, 0);
    for run in 0..8 {
        let seed = seed(2713) + run;
        let kilobytes = Rng::with_seed(seed).u64(1_500..4_000);
        let mut host = match run % 2 {
            0 => FullHost::fill(seed, kilobytes << 10),
            _ => FullHost::fill_scattered(seed, kilobytes << 10),
        };
        let is_reopened = run % 4 > 1;
        let what = format!("seed {seed}: {} pages in {kilobytes} KiB", host.pages);
        let mut rows = BTreeMap::new();
        let (mut left, mut step) = ((host.pages - FIRST_PAGES) * ROWS * 3 / 4, host.pages / 8);
        while left > 0 {
            if is_reopened {
                host.reopen();
            }
            let touched = host.scatter(step);
            let mut after = rows.clone();
            for page in &touched {
                let kept = after.entry(*page).or_insert(ROWS);
                *kept = (*kept - 1u64).max(1);
            }
            match host.shorten(&touched, &after) {
                Ok(()) => {
                    (rows, left) = (after, left.saturating_sub(step));
                    deletes += 1;
                }
                Err(_) if step > 1 => {
                    step /= 2;
                    refusals += 1;
                }
                Err(error) => panic!("{what}, {left} rows are left to delete: {error}"),
            }
        }
    }
    println!("{deletes} deletes of rows here and there, {refusals} refused");
    assert!(deletes > 100);
}

/// An imported database is as dense as it gets, and a DELETE replaces some of that. Each is in a session of its own, as
/// from a script.
#[test]
fn a_full_host_takes_deletes_of_an_imported_database() {
    for run in 0..6 {
        let seed = seed(2719) + run;
        let mut host = FullHost::import(seed, Rng::with_seed(seed).u64(600..1_800));
        let what = format!("seed {seed}: {} pages", host.pages);
        let mut rows = BTreeMap::new();
        for delete in 0..60 {
            host.reopen();
            let touched = host.scatter(2);
            for page in &touched {
                let kept = rows.entry(*page).or_insert(ROWS);
                *kept = (*kept - 1).max(1);
            }
            let done = host.shorten(&touched, &rows);
            done.unwrap_or_else(|error| panic!("{what}, delete {delete}: {error}"));
        }
    }
}

/// A DELETE frees most pages that it touches, and writes one of those that it leaves.
#[test]
fn a_full_host_takes_deletes_that_fit_the_reserve() {
    let (mut deletes, mut refusals, mut again, mut scattered_deletes) = (0, 0, 0, 0);
    for run in 0..24 {
        let seed = seed(2711) + run;
        let segments = Rng::with_seed(seed).u64(33..120);
        let mut host = FullHost::fill(seed, segments * (64 << 10));
        let (pages, full_bytes) = (host.pages, host.disk.allocated_bytes());
        let what = format!("seed {seed}: {pages} pages in {full_bytes} bytes");
        // There is no room to write half of them over.
        let most = host.choose(pages / 2);
        if pages > 100 {
            let refused = host.transact(pages, most.into_iter(), &BTreeSet::new());
            assert!(refused.is_err(), "{what}");
            refusals += 1;
        }
        // Freeing scattered pages may take more room than there is.
        let scattered = host.scatter(pages / 8);
        if host.transact(pages, 1..1, &scattered).is_ok() {
            scattered_deletes += 1;
        }
        while host.free.len() as u64 * 4 < pages * 3 {
            let freed = host.choose(pages / 8);
            let touched = host.choose(1);
            let touched = touched.difference(&freed).copied().collect::<Vec<_>>();
            let done = host.transact(pages, touched.into_iter(), &freed);
            done.unwrap_or_else(|error| {
                panic!("{what}, {} of them freed: {error}", host.free.len())
            });
            deletes += 1;
        }
        // Half of the freed pages find room.
        for _ in 0..host.free.len() / 2 {
            let done = host.append(1);
            done.unwrap_or_else(|error| panic!("{what}, {} in use: {error}", host.pages));
            again += 1;
        }
    }
    println!(
        "{deletes} deletes, {scattered_deletes} of rows here and there, {refusals} refusals, {again} pages written behind them"
    );
    assert!(deletes > 100 && refusals > 12 && again > 5_000);
}
