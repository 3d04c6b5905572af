//! Power cuts under a served disk: the proof harness of every store, at the level of the protocol. A transaction is a
//! request that a client sends as bytes and the server answers.

use std::sync::Arc;

use breakeven::disk::Disk;
use breakeven::disk::small::{SIZE_BYTES, options, whole_blocks};
use breakeven::error::{Error, Result};
use breakeven::storage::Storage;
use breakeven::storage::proof::{
    CrashFloors, Found, State, Subject, cut_power, digest, fail_calls, fill_disk,
};
use breakeven::testing::{is_full, seed};
use fastrand::Rng;

use super::handshake::Session;
use super::metrics::Metrics;
use super::request::transmit;

const NAME: &str = "disk";

// The numbers are those of the protocol's published specification, written down once more.
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const FUA: u16 = 1;

/// A client's request.
struct Request {
    kind: u16,
    offset: usize,
    length: usize,
    /// The bytes that a write writes.
    bytes: Vec<u8>,
    /// Whether it is made durable by a flush behind it, where it is to be durable.
    by_flush: bool,
}

impl Request {
    /// Plans a request that changes something.
    fn random(random: &mut Rng, content: &[u8]) -> Request {
        let (mut offset, mut length) = (random.usize(..SIZE_BYTES), random.usize(1..2500));
        if random.bool() {
            (offset, length) = (offset & !511, (length + 511) & !511);
        }
        let length = length.min(SIZE_BYTES - offset);
        let is_zeros = |range: std::ops::Range<usize>| content[range].iter().all(|it| *it == 0);
        let kind = match random.u8(..20) {
            // A request without effect may be no transaction at all.
            0..3 if !is_zeros(offset..offset + length) => WRITE_ZEROES,
            3..6 if !is_zeros(whole_blocks(offset, length)) => TRIM,
            _ => WRITE,
        };
        let mut bytes = Vec::new();
        if kind == WRITE {
            bytes.resize(length, random.u8(..4));
            if random.bool() {
                random.fill(&mut bytes);
            }
            // A value that was never written before, and other bytes than there are.
            let end = length.min(8);
            bytes[..end].copy_from_slice(&random.u64(..).to_le_bytes()[..end]);
            bytes[0] = content[offset] ^ random.u8(1..);
        }
        let by_flush = random.bool();
        Request {
            kind,
            offset,
            length,
            bytes,
            by_flush,
        }
    }

    fn apply(&self, content: &mut [u8]) {
        match self.kind {
            WRITE => content[self.offset..][..self.length].copy_from_slice(&self.bytes),
            TRIM => content[whole_blocks(self.offset, self.length)].fill(0),
            _ => content[self.offset..][..self.length].fill(0),
        }
    }

    /// Returns the bytes that a client sends.
    fn sent(&self, flags: u16) -> Vec<u8> {
        let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend([flags.to_be_bytes(), self.kind.to_be_bytes()].concat());
        bytes.extend(7u64.to_be_bytes());
        bytes.extend((self.offset as u64).to_be_bytes());
        bytes.extend((self.length as u32).to_be_bytes());
        bytes.extend(&self.bytes);
        bytes
    }
}

struct Served {
    disk: Disk,
    content: Vec<u8>,
}

fn shown(disk: &Disk) -> Result<Vec<u8>> {
    let mut bytes = vec![0xEE; SIZE_BYTES];
    disk.volume(NAME)?.read(0, &mut bytes)?;
    Ok(bytes)
}

/// A state is the disk's content, whatever its number. Where a write finds no room, a cleaning before it has a number
/// too.
fn state(content: &[u8]) -> State {
    let digest = digest([content]);
    State { last: 0, digest }
}

impl Served {
    /// Serves a client that sends these bytes. A refused request is an error.
    fn serve(&self, bytes: &[u8]) -> Result<()> {
        let session = Session {
            disk: self.disk.clone(),
            volume: self.disk.volume(NAME)?,
            is_read_only: false,
            is_structured: false,
            contexts: Vec::new(),
        };
        let (mut reader, mut said) = (bytes, Vec::new());
        // The client leaves behind its request, which is no matter here.
        let _ = transmit(&mut reader, &mut said, &session, &Metrics::default(), 1);
        let (head, error) = said.split_at(4);
        assert_eq!(head, SIMPLE_MAGIC.to_be_bytes());
        match error[..4] {
            [0, 0, 0, 0] => Ok(()),
            _ => Err(Error::invalid(
                "request",
                format!("refused: {:?}", &error[..4]),
            )),
        }
    }
}

impl Subject for Served {
    type Mode = ();
    type Transaction = Request;

    fn mode(_: &mut Rng) {}

    fn create(storage: Arc<dyn Storage>, (): ()) -> Result<Served> {
        let disk = Disk::create(&*storage, NAME, options())?;
        disk.create_volume(NAME, SIZE_BYTES as u64)?;
        let content = shown(&disk)?;
        Ok(Served { disk, content })
    }

    fn open(storage: Arc<dyn Storage>, (): ()) -> Result<Served> {
        let disk = Disk::open(&*storage, NAME, options())?;
        disk.checkpoint()?;
        let content = shown(&disk)?;
        Ok(Served { disk, content })
    }

    fn read(storage: Arc<dyn Storage>) -> Result<Found> {
        let disk = Disk::open_read_only(&*storage, NAME, options())?;
        Ok(Found {
            state: state(&shown(&disk)?),
            is_damaged: !disk.opened().is_whole(),
        })
    }

    fn state(&self) -> State {
        state(&self.content)
    }

    fn plan(&self, random: &mut Rng) -> Request {
        Request::random(random, &self.content)
    }

    fn after(&self, request: &Request) -> State {
        let mut content = self.content.clone();
        request.apply(&mut content);
        state(&content)
    }

    fn commit(&mut self, request: &Request, is_durable: bool) -> Result<()> {
        let flags = if is_durable && !request.by_flush {
            FUA
        } else {
            0
        };
        self.serve(&request.sent(flags))?;
        request.apply(&mut self.content);
        match is_durable && request.by_flush {
            true => self.sync(),
            false => Ok(()),
        }
    }

    fn sync(&mut self) -> Result<()> {
        let flush = Request {
            kind: FLUSH,
            offset: 0,
            length: 0,
            bytes: Vec::new(),
            by_flush: false,
        };
        self.serve(&flush.sent(0))
    }

    fn maintain(&mut self, _: &mut Rng) -> Result<()> {
        self.disk.checkpoint()
    }
}

#[test]
fn no_power_cut_loses_or_tears_what_a_client_was_promised() {
    let images = if is_full() { 200_000 } else { 20_000 };
    let floors = CrashFloors {
        distinct_images: images,
        double_images: images / 20,
    };
    cut_power::<Served>(seed(2571), floors).expect("no promise is broken");
}

#[test]
fn no_failing_call_loses_what_a_client_was_promised() {
    let seeds = if is_full() { 20 } else { 1 };
    fail_calls::<Served>(seed(2572), seeds).expect("no promise is broken");
}

#[test]
fn no_full_host_loses_what_a_client_was_promised() {
    // A new disk has superblocks and two segments; requests want a few more.
    let first = 2 * 4096 + 2 * 8192;
    fill_disk::<Served>(seed(2573), 60, first..first + 3 * 8192).expect("no promise is broken");
}
