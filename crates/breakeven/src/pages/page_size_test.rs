//! A database is written again in pages of another length. The tests check its content after a power cut at any moment,
//! the readers' view, and that its blocks get that length.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use fastrand::Rng;

use super::transfer::lock;
use super::{Connection, HEADER_BYTES, Header, LockLevel, PLAIN_MAGIC, PageOptions, PageStore};
use crate::error::{Error, Result};
use crate::storage::proof::{CrashFloors, Found, State, Subject, cut_power, digest};
use crate::storage::{MemoryStorage, Storage};
use crate::testing::{is_full, seed, seeded};

const NAME: &str = "db";
/// The longest is longer than the store was made for.
const PAGE_SIZES: [usize; 4] = [512, 1024, 2048, 8192];
/// A database is a multiple of this.
const STEP_BYTES: usize = 8192;
const SIZE_BYTES_MAX: usize = 24 << 10;

thread_local! {
    /// No two openings of a test draw the same generations, and the next run of it draws the same ones.
    static OPENED: Cell<u64> = const { Cell::new(0) };
    static RESIZED: Cell<usize> = const { Cell::new(0) };
}

fn options() -> PageOptions {
    let opened = OPENED.with(|opened| opened.replace(opened.get() + 1));
    PageOptions {
        block_bytes_max: 8192,
        segment_bytes_min: 8192,
        checkpoint_bytes: 20_000,
        seed: Some(opened.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        ..PageOptions::default()
    }
}

/// A database as its header counts it.
#[derive(Clone)]
struct Content {
    bytes: Vec<u8>,
    page_bytes: usize,
    changes: u32,
}

impl Content {
    /// Writes the header into the first page.
    fn count(&mut self) {
        let pages = (self.bytes.len() / self.page_bytes) as u32;
        let header = &mut self.bytes[..HEADER_BYTES];
        header[..16].copy_from_slice(PLAIN_MAGIC);
        header[16..18].copy_from_slice(&(self.page_bytes as u16).to_be_bytes());
        header[18..20].fill(1);
        header[24..28].copy_from_slice(&self.changes.to_be_bytes());
        header[28..32].copy_from_slice(&pages.to_be_bytes());
        header[32..40].fill(0);
        header[92..96].copy_from_slice(&self.changes.to_be_bytes());
    }

    fn state(&self) -> State {
        State {
            last: self.changes.into(),
            digest: digest([&self.bytes[..]]),
        }
    }

    /// Reads the header's count.
    fn of(connection: &mut Connection) -> Result<Content> {
        let mut bytes = vec![0; connection.size_bytes()? as usize];
        connection.read(0, &mut bytes)?;
        let Some(header) = Header::parse(&bytes) else {
            return Err(Error::corrupt(
                "database",
                0,
                "a header",
                format!("{} bytes", bytes.len()),
            ));
        };
        bytes.truncate(header.size_bytes.expect("a count") as usize);
        let changes = u32::from_be_bytes(*bytes[24..].first_chunk().expect("four bytes"));
        Ok(Content {
            bytes,
            page_bytes: header.page_bytes as usize,
            changes,
        })
    }
}

/// The effect of a transaction: other pages, some of them written, and all the new ones written.
#[derive(Clone)]
struct Change {
    page_bytes: usize,
    size_bytes: usize,
    /// One page in so many stays as it is; 0 for none.
    kept: usize,
    noise: u64,
    /// How it is written: SQLite writes pieces of the old length, and spills some pages before the header.
    is_in_old_pieces: bool,
    is_header_last: bool,
}

impl Change {
    fn random(random: &mut Rng, content: &Content) -> Change {
        let is_resized = random.u8(..3) == 0;
        let page_bytes = match is_resized {
            true => PAGE_SIZES[random.usize(..PAGE_SIZES.len())],
            false => content.page_bytes,
        };
        let size_bytes = random.usize(STEP_BYTES..=SIZE_BYTES_MAX) / STEP_BYTES * STEP_BYTES;
        Change {
            page_bytes,
            size_bytes: if is_resized {
                size_bytes
            } else {
                content.bytes.len()
            },
            kept: [0, 2, 5][random.usize(..3)],
            noise: random.u64(..),
            is_in_old_pieces: random.u8(..4) > 0,
            is_header_last: random.bool(),
        }
    }

    /// Returns the content after the change, and the pieces it writes.
    fn apply(&self, content: &Content) -> (Content, Vec<Range<usize>>) {
        let mut noise = Rng::with_seed(self.noise);
        let mut bytes = content.bytes.clone();
        bytes.resize(self.size_bytes, 0);
        let piece_bytes = match self.is_in_old_pieces {
            true => content.page_bytes,
            false => self.page_bytes,
        };
        let mut starts = BTreeSet::new();
        for (number, page) in bytes.chunks_mut(self.page_bytes).enumerate() {
            let is_there = (number + 1) * self.page_bytes <= content.bytes.len();
            if number > 0 && is_there && self.kept > 0 && number % self.kept == 1 {
                continue;
            }
            let start = number * self.page_bytes;
            let covered = (start..start + self.page_bytes).step_by(piece_bytes.min(512));
            starts.extend(covered.map(|at| at - at % piece_bytes));
            // Some pages are all zeros.
            page.fill((number % 3) as u8);
            let count = noise.usize(..200);
            let count = if noise.bool() { count } else { 0 };
            noise.fill(&mut page[..count]);
        }
        let mut next = Content {
            bytes,
            page_bytes: self.page_bytes,
            changes: content.changes + 1,
        };
        next.count();
        let pieces = starts.into_iter().map(|at| at..at + piece_bytes);
        let mut pieces: Vec<_> = pieces.collect();
        if self.is_header_last {
            pieces.reverse();
        }
        (next, pieces)
    }
}

/// Writes as SQLite does, which cuts the excess off when the commit is final.
fn write(connection: &mut Connection, next: &Content, written: &[Range<usize>]) -> Result<()> {
    for piece in written {
        connection.write(piece.start as u64, &next.bytes[piece.clone()])?;
    }
    connection.prepare()
}

struct Resized {
    connection: Connection,
    content: Content,
}

impl Resized {
    fn connect(storage: Arc<dyn Storage>, options: PageOptions) -> Result<Connection> {
        Connection::open(Arc::new(PageStore::new(storage, NAME, options)))
    }

    fn first(connection: &mut Connection) -> Result<Content> {
        let mut content = Content {
            bytes: vec![7; 4096],
            page_bytes: 1024,
            changes: 0,
        };
        content.count();
        lock(connection, LockLevel::Exclusive)?;
        let pages = [0..1024, 1024..2048, 2048..3072, 3072..4096];
        write(connection, &content, &pages)?;
        connection.sync()?;
        connection.publish()?;
        connection.unlock(LockLevel::None)?;
        Ok(content)
    }

    fn run(&mut self, change: &Change, is_durable: bool) -> Result<()> {
        let (next, written) = change.apply(&self.content);
        let is_resized = next.page_bytes != self.content.page_bytes;
        RESIZED.with(|count| count.set(count.get() + usize::from(is_resized)));
        lock(&mut self.connection, LockLevel::Exclusive)?;
        let ended = write(&mut self.connection, &next, &written).and_then(|()| {
            if is_durable {
                self.connection.sync()?;
            }
            self.connection.truncate(next.bytes.len() as u64)?;
            self.connection.publish()
        });
        if ended.is_ok() {
            self.content = next;
            let _ = self.connection.trim();
            let _ = self.connection.tidy();
        }
        self.connection.unlock(LockLevel::None)?;
        ended
    }
}

impl Subject for Resized {
    type Mode = ();
    type Transaction = Change;

    fn mode(_: &mut Rng) {}

    fn create(storage: Arc<dyn Storage>, (): ()) -> Result<Resized> {
        assert!(PageStore::create(&*storage, NAME, options())?);
        let mut connection = Resized::connect(storage, options())?;
        let content = Resized::first(&mut connection)?;
        Ok(Resized {
            connection,
            content,
        })
    }

    fn open(storage: Arc<dyn Storage>, (): ()) -> Result<Resized> {
        let mut connection = Resized::connect(storage, options())?;
        lock(&mut connection, LockLevel::Exclusive)?;
        connection.checkpoint()?;
        let content = Content::of(&mut connection)?;
        connection.unlock(LockLevel::None)?;
        Ok(Resized {
            connection,
            content,
        })
    }

    fn read(storage: Arc<dyn Storage>) -> Result<Found> {
        let options = PageOptions {
            is_read_only: true,
            ..options()
        };
        let mut connection = Resized::connect(storage, options)?;
        lock(&mut connection, LockLevel::Shared)?;
        let opened = connection.store().opened()?.blocks.opened();
        Ok(Found {
            state: Content::of(&mut connection)?.state(),
            is_damaged: !opened.is_whole(),
        })
    }

    fn state(&self) -> State {
        self.content.state()
    }

    fn plan(&self, random: &mut Rng) -> Change {
        Change::random(random, &self.content)
    }

    fn after(&self, change: &Change) -> State {
        change.apply(&self.content).0.state()
    }

    fn commit(&mut self, change: &Change, is_durable: bool) -> Result<()> {
        self.run(change, is_durable)
    }

    fn sync(&mut self) -> Result<()> {
        self.connection.sync()
    }

    fn maintain(&mut self, _: &mut Rng) -> Result<()> {
        lock(&mut self.connection, LockLevel::Exclusive)?;
        self.connection.sync()?;
        self.connection.shrink()?;
        self.connection.unlock(LockLevel::None)
    }
}

#[test]
fn no_power_cut_loses_or_tears_a_change_of_the_page_size() {
    let images = if is_full() { 40_000 } else { 4_000 };
    let floors = CrashFloors {
        distinct_images: images,
        double_images: images / 20,
    };
    cut_power::<Resized>(seed(2205), floors).unwrap();
    let resized = RESIZED.with(Cell::get);
    println!("{resized} changes of the page size");
    assert!(resized > 20, "{resized}");
}

/// Blocks follow the pages, readers see the old content, a failed change leaves it, and nothing of the old volume
/// stays.
#[test]
fn pages_of_another_length_are_stored_in_blocks_of_that_length() {
    let mut random = seeded("pages of another length", 2206);
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut resized = Resized::create(Arc::clone(&storage), ()).unwrap();
    let mut readers = VecDeque::new();
    for round in 0..60 {
        let change = Change {
            page_bytes: PAGE_SIZES[round % PAGE_SIZES.len()],
            ..resized.plan(&mut random)
        };
        let before = resized.content.clone();
        let mut reader = Resized::connect(Arc::clone(&storage), options()).unwrap();
        lock(&mut reader, LockLevel::Shared).unwrap();
        // One that is taken back in the middle, one that is when it was written.
        let (next, written) = change.apply(&before);
        for part in [written.len() / 2, written.len()] {
            lock(&mut resized.connection, LockLevel::Exclusive).unwrap();
            write(&mut resized.connection, &next, &written[..part]).unwrap();
            resized.connection.unlock(LockLevel::None).unwrap();
            lock(&mut resized.connection, LockLevel::Shared).unwrap();
            let found = Content::of(&mut resized.connection).unwrap();
            assert!(found.bytes == before.bytes, "round {round}");
            resized.connection.unlock(LockLevel::None).unwrap();
        }
        resized.run(&change, true).unwrap();
        readers.push_back((reader, before));
        for (reader, before) in &mut readers {
            let found = Content::of(reader).unwrap();
            assert!(found.bytes == before.bytes, "round {round}, a reader");
        }
        // Some stay while much is written behind them.
        if readers.len() < 6 {
            continue;
        }
        let (mut reader, _) = readers.pop_front().expect("six readers");
        reader.unlock(LockLevel::None).unwrap();
        lock(&mut reader, LockLevel::Shared).unwrap();
        let found = Content::of(&mut reader).unwrap();
        assert!(found.bytes == resized.content.bytes, "round {round}");
        let space = reader.space().unwrap();
        assert_eq!(
            space.block_bytes as usize, change.page_bytes,
            "round {round}"
        );
        assert_eq!(space.logical_bytes as usize, change.size_bytes);
        let snapshot = reader.store().opened().unwrap().blocks.snapshot();
        assert_eq!(snapshot.volumes().count(), 1);
    }
}
