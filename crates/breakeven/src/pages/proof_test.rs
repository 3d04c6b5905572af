//! Power cuts, failing calls and full hosts under a compressed database. The proof harness runs at the level of
//! SQLite's transactions, with the trimming and cleaning that follow each.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use fastrand::Rng;

use super::transfer::lock;
use super::{Connection, HEADER_BYTES, LockLevel, PLAIN_MAGIC, PageOptions, PageStore};
use crate::blocks::Cleaned;
use crate::error::Result;
use crate::storage::proof::{
    CrashFloors, Found, State, Subject, cut_power, digest, fail_calls, fill_disk,
};
use crate::storage::{SimulatedDisk, Storage, superblock};
use crate::testing::{is_full, seed};

const NAME: &str = "db";
const PAGE_BYTES: usize = 512;
/// The most pages: few, so that all are read for every image, or enough for a file that is too long when they
/// go.
const PAGES_MAX: [usize; 4] = [24, 24, 24, 120];
/// The least segments: as short as they can be, or as a small database has them.
const SEGMENT_BYTES: [u32; 3] = [8192, 8192, 16_384];
/// The header's offset of the count of changes, and that of the freelist.
const CHANGES_AT: usize = 24;
const FREELIST_AT: usize = 32;

thread_local! {
    /// No two openings of a test draw the same generations, and the next run of it draws the same ones.
    static OPENED: Cell<u64> = const { Cell::new(0) };
    /// How often the file became shorter.
    static CUTS: Cell<usize> = const { Cell::new(0) };
}

/// How a database is made.
#[derive(Clone, Copy)]
struct Shape {
    pages_max: usize,
    segment_bytes: u32,
}

impl Shape {
    const LONG: Shape = Shape {
        pages_max: PAGES_MAX[3],
        segment_bytes: SEGMENT_BYTES[0],
    };
}

fn options(segment_bytes: u32) -> PageOptions {
    let opened = OPENED.with(|opened| opened.replace(opened.get() + 1));
    PageOptions {
        block_bytes_max: PAGE_BYTES as u32,
        segment_bytes_min: segment_bytes,
        checkpoint_bytes: 20_000,
        seed: Some(opened.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        ..PageOptions::default()
    }
}

/// A database as its pages. The second page lists free ones, as SQLite's would.
#[derive(Clone)]
struct Content(Vec<u8>);

impl Content {
    fn new() -> Content {
        let mut content = Content(vec![0; 3 * PAGE_BYTES]);
        content.0[..16].copy_from_slice(PLAIN_MAGIC);
        content.0[16..20].copy_from_slice(&[2, 0, 1, 1]);
        content
    }

    fn pages(&self) -> usize {
        self.0.len() / PAGE_BYTES
    }

    fn number(&self) -> u64 {
        self.word(CHANGES_AT).into()
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(*self.0[at..].first_chunk().expect("four bytes"))
    }

    fn set_word(&mut self, at: usize, word: usize) {
        self.0[at..at + 4].copy_from_slice(&(word as u32).to_be_bytes());
    }

    /// The pages whose content means nothing, counted from 1.
    fn free(&self) -> BTreeSet<usize> {
        let count = self.word(PAGE_BYTES + 4) as usize;
        let leaves =
            (0..count.min(PAGE_BYTES / 4 - 2)).map(|at| self.word(PAGE_BYTES + 8 + 4 * at));
        leaves.map(|number| number as usize).collect()
    }

    fn state(&self) -> State {
        if self.pages() < 2 {
            return State { last: 0, digest: 0 };
        }
        let free = self.free();
        let pages = self.0.chunks(PAGE_BYTES).enumerate();
        let meant = pages.filter(|(at, _)| !free.contains(&(at + 1)));
        State {
            last: self.number(),
            digest: digest(meant.map(|(_, page)| page)),
        }
    }
}

/// The writes of one transaction.
#[derive(Clone)]
struct Change {
    pages: usize,
    written: Vec<(usize, Vec<u8>)>,
    freed: BTreeSet<usize>,
}

impl Change {
    fn random(random: &mut Rng, content: &Content, pages_max: usize) -> Change {
        // Now and then much is written, and nearly all comes or goes.
        let count = match random.u8(..10) {
            0 => random.usize(..content.pages()) / 2,
            _ => random.usize(1..6),
        };
        let pages = match random.u8(..12) {
            0 => random.usize(pages_max / 2..=pages_max),
            1 | 2 => random.usize(3..12),
            _ => content.pages(),
        };
        let written = (0..count).map(|_| {
            let mut page = vec![7; PAGE_BYTES];
            let noise = [8, 60, 300, PAGE_BYTES][random.usize(..4)];
            random.fill(&mut page[..noise]);
            (random.usize(2..pages.max(3)), page)
        });
        let written: Vec<(usize, Vec<u8>)> = written.collect();
        let kept = |number: &usize| !written.iter().any(|(at, _)| at + 1 == *number);
        let freed = match random.u8(..5) {
            0 => (4..=pages).filter(|_| random.bool()).filter(kept).collect(),
            // Unwritten pages stay free: a page in use needs content that means something.
            _ => (content.free().into_iter())
                .filter(|number| *number <= pages)
                .filter(kept)
                .collect(),
        };
        Change {
            pages,
            written,
            freed,
        }
    }

    fn apply(&self, content: &mut Content) {
        let reused: Vec<usize> = content.free().difference(&self.freed).copied().collect();
        // Bytes that no method shortens, and the same ones for every caller.
        let mut noise = Rng::with_seed(content.number());
        let size_bytes = self.pages * PAGE_BYTES;
        content.0.truncate(size_bytes);
        content.0.resize_with(size_bytes, || noise.u8(..));
        // SQLite writes every page that it takes from the freelist.
        for number in reused {
            let at = (number - 1) * PAGE_BYTES;
            if let Some(page) = content.0.get_mut(at..at + PAGE_BYTES) {
                page.fill(9);
            }
        }
        for (at, page) in &self.written {
            content.0[at * PAGE_BYTES..(at + 1) * PAGE_BYTES].copy_from_slice(page);
        }
        let number = content.number() as usize + 1;
        content.set_word(CHANGES_AT, number);
        let listed = self.freed.len();
        content.set_word(FREELIST_AT, if listed == 0 { 0 } else { 2 });
        content.set_word(FREELIST_AT + 4, if listed == 0 { 0 } else { listed + 1 });
        content.0[PAGE_BYTES..2 * PAGE_BYTES].fill(0);
        content.set_word(PAGE_BYTES + 4, listed);
        for (at, number) in self.freed.iter().enumerate() {
            content.set_word(PAGE_BYTES + 8 + 4 * at, *number);
        }
    }
}

fn whole(connection: &mut Connection) -> Result<Content> {
    let mut bytes = vec![0; connection.size_bytes()? as usize];
    connection.read(0, &mut bytes)?;
    Ok(Content(bytes))
}

struct Proved {
    connection: Connection,
    content: Content,
    pages_max: usize,
}

impl Proved {
    fn connect(storage: Arc<dyn Storage>, options: PageOptions) -> Result<Connection> {
        Connection::open(Arc::new(PageStore::new(storage, NAME, options)))
    }

    /// Cleans, and counts whether the file became shorter.
    fn clean(&mut self, clean: fn(&mut Connection) -> Result<Cleaned>) -> Result<()> {
        let before = self.connection.status()?.size_bytes;
        clean(&mut self.connection)?;
        if self.connection.status()?.size_bytes < before {
            CUTS.with(|cuts| cuts.set(cuts.get() + 1));
        }
        Ok(())
    }

    /// Writes the differing pages and makes them visible, after a sync if they are to be durable.
    fn write(&mut self, next: &Content, is_durable: bool) -> Result<()> {
        let size_bytes = next.0.len();
        let free = self.content.free();
        for (at, page) in next.0.chunks(PAGE_BYTES).enumerate() {
            let start = at * PAGE_BYTES;
            let is_same = self.content.0.get(start..start + PAGE_BYTES) == Some(page);
            if !is_same || free.contains(&(at + 1)) {
                self.connection.write(start as u64, page)?;
            }
        }
        if size_bytes < self.content.0.len() {
            self.connection.truncate(size_bytes as u64)?;
        }
        self.connection.prepare()?;
        if is_durable {
            self.connection.sync()?;
        }
        self.connection.publish()
    }
}

impl Subject for Proved {
    type Mode = Shape;
    type Transaction = Change;

    fn mode(random: &mut Rng) -> Shape {
        Shape {
            pages_max: PAGES_MAX[random.usize(..PAGES_MAX.len())],
            segment_bytes: SEGMENT_BYTES[random.usize(..SEGMENT_BYTES.len())],
        }
    }

    fn create(storage: Arc<dyn Storage>, shape: Shape) -> Result<Proved> {
        let options = || options(shape.segment_bytes);
        assert!(PageStore::create(&*storage, NAME, options())?);
        let mut connection = Proved::connect(storage, options())?;
        let content = Content::new();
        lock(&mut connection, LockLevel::Exclusive)?;
        connection.write(0, &content.0)?;
        connection.commit()?;
        connection.sync()?;
        connection.unlock(LockLevel::None)?;
        Ok(Proved {
            connection,
            content,
            pages_max: shape.pages_max,
        })
    }

    fn open(storage: Arc<dyn Storage>, shape: Shape) -> Result<Proved> {
        let mut connection = Proved::connect(storage, options(shape.segment_bytes))?;
        lock(&mut connection, LockLevel::Exclusive)?;
        connection.checkpoint()?;
        let content = whole(&mut connection)?;
        connection.unlock(LockLevel::None)?;
        Ok(Proved {
            connection,
            content,
            pages_max: shape.pages_max,
        })
    }

    fn read(storage: Arc<dyn Storage>) -> Result<Found> {
        let options = PageOptions {
            is_read_only: true,
            ..options(SEGMENT_BYTES[0])
        };
        let mut connection = Proved::connect(storage, options)?;
        lock(&mut connection, LockLevel::Shared)?;
        let opened = connection.store().opened()?.blocks.opened();
        Ok(Found {
            state: whole(&mut connection)?.state(),
            is_damaged: !opened.is_whole(),
        })
    }

    fn state(&self) -> State {
        self.content.state()
    }

    fn plan(&self, random: &mut Rng) -> Change {
        Change::random(random, &self.content, self.pages_max)
    }

    fn after(&self, change: &Change) -> State {
        let mut content = self.content.clone();
        change.apply(&mut content);
        content.state()
    }

    fn commit(&mut self, change: &Change, is_durable: bool) -> Result<()> {
        let mut next = self.content.clone();
        change.apply(&mut next);
        lock(&mut self.connection, LockLevel::Exclusive)?;
        let written = self.write(&next, is_durable);
        if written.is_ok() {
            self.content = next;
            // A fault behind a transaction does not undo it. The next transaction gets the error.
            let _ = self.connection.trim();
            let _ = self.clean(Connection::tidy);
            let mut header = [0; HEADER_BYTES];
            self.connection.read(0, &mut header)?;
            assert_eq!(header[CHANGES_AT..28], self.content.0[CHANGES_AT..28]);
        }
        self.connection.unlock(LockLevel::None)?;
        written
    }

    fn sync(&mut self) -> Result<()> {
        self.connection.sync()
    }

    fn maintain(&mut self, random: &mut Rng) -> Result<()> {
        lock(&mut self.connection, LockLevel::Exclusive)?;
        self.connection.sync()?;
        match random.u8(..3) {
            0 => {
                self.connection.unlock(LockLevel::None)?;
                self.clean(Connection::close)?;
            }
            1 => self.clean(|connection| Ok(connection.shrink()?.1))?,
            _ => self.connection.checkpoint()?,
        }
        self.connection.unlock(LockLevel::None)
    }
}

#[test]
fn no_power_cut_loses_or_tears_a_transaction_of_sqlite() {
    let images = if is_full() { 200_000 } else { 20_000 };
    let floors = CrashFloors {
        distinct_images: images,
        double_images: images / 20,
    };
    let counts = cut_power::<Proved>(seed(2201), floors).unwrap();
    let cuts = CUTS.with(Cell::get);
    println!("{cuts} times the file was cut");
    assert!(cuts > counts.runs / 8, "{cuts}");
}

#[test]
fn no_failing_call_loses_an_acknowledged_transaction_of_sqlite() {
    let seeds = if is_full() { 20 } else { 1 };
    fail_calls::<Proved>(seed(2202), seeds).unwrap();
}

#[test]
fn no_full_host_loses_an_acknowledged_transaction_of_sqlite() {
    // A new file has superblocks and two segments; transactions want a few more.
    let segment_bytes = u64::from(SEGMENT_BYTES[0]);
    let first = 2 * (superblock::SLOT_BYTES as u64 + segment_bytes);
    fill_disk::<Proved>(seed(2203), 60, first..first + 3 * segment_bytes).unwrap();
}

/// A file is cut behind the last connection of a process. A read is then refused, or it returns the right content. The
/// cut counts as damage, unless only unused room was cut.
#[test]
fn no_database_that_was_cut_lacks_a_transaction() {
    let (mut refused, mut right) = (0, 0);
    for run in 0..6 {
        let seed = seed(2204) + run;
        let (disk, mut random) = (SimulatedDisk::new(seed), Rng::with_seed(seed));
        let mut proved = Proved::create(disk.start_process(), Shape::LONG).unwrap();
        for _ in 0..12 {
            let change = proved.plan(&mut random);
            proved.commit(&change, true).unwrap();
        }
        let state = proved.state();
        proved.connection.close().unwrap();
        drop(proved);
        let whole = disk.recording().end();
        let used_bytes = whole.used_bytes(NAME);
        for size_bytes in (0..whole.size_bytes(NAME)).step_by(500) {
            let mut image = whole.clone();
            image.cut(NAME, size_bytes);
            match Proved::read(SimulatedDisk::from_image(&image, 0).start_process()) {
                Err(_) => refused += 1,
                Ok(found) => {
                    let is_told = found.is_damaged || size_bytes >= used_bytes;
                    assert!(is_told, "{size_bytes} of {used_bytes} bytes of run {run}");
                    assert_eq!(found.state, state, "{size_bytes} bytes of run {run}");
                    right += 1;
                }
            }
        }
    }
    println!("{refused} refused, {right} right");
    assert!(refused > 100 && right > 10, "{refused}, {right}");
}
