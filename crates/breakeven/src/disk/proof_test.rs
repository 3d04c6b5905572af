//! Power cuts, failing calls and full hosts under a disk: the proof harness, at the level of device requests.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use fastrand::Rng;

use super::small::{BLOCK_BYTES, SIZE_BYTES, options, whole_blocks_of};
use super::{Disk, DiskOptions};
use crate::blocks::Durability;
use crate::error::Result;
use crate::storage::proof::{
    CrashFloors, Found, State, Subject, cut_power, digest, fail_calls, fill_disk,
};
use crate::storage::{Storage, superblock};
use crate::testing::{is_full, seed};

const NAME: &str = "disk";
/// A volume of longer blocks, as long as the disk's first segments.
const LONG: &str = "long";
const LONG_BLOCK_BYTES: usize = 8192;

/// The content of a disk's volumes.
pub(super) type Content = BTreeMap<String, Vec<u8>>;

/// A request, or an operator's act.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Write {
        volume: String,
        offset: usize,
        bytes: Vec<u8>,
    },
    Zero {
        volume: String,
        offset: usize,
        count: usize,
    },
    Trim {
        volume: String,
        offset: usize,
        count: usize,
    },
    Clone {
        from: String,
        to: String,
    },
    Remove {
        volume: String,
    },
    /// Only of volumes that are no snapshot. Bytes behind the new end are discarded.
    Resize {
        volume: String,
        size_bytes: usize,
    },
}

impl Request {
    /// Plans a request that changes something.
    pub(super) fn random(random: &mut Rng, content: &Content) -> Request {
        let names: Vec<&String> = content.keys().collect();
        let volume = names[random.usize(..names.len())].clone();
        let size_bytes = content[&volume].len();
        let (mut offset, mut count) = (random.usize(..size_bytes), random.usize(1..2500));
        if random.bool() {
            (offset, count) = (offset & !511, (count + 511) & !511);
        }
        let count = count.min(size_bytes - offset);
        match random.u8(..21) {
            20 => Request::Resize {
                volume,
                size_bytes: random.usize(SIZE_BYTES / 2..=SIZE_BYTES),
            },
            0 if !content.contains_key("other") && volume != LONG => Request::Clone {
                from: volume,
                to: "other".into(),
            },
            1 if content.contains_key("other") => Request::Remove {
                volume: "other".into(),
            },
            // Zeros over zeros may be no transaction at all.
            2..4 if content[&volume][offset..offset + count]
                .iter()
                .any(|byte| *byte != 0) =>
            {
                Request::Zero {
                    volume,
                    offset,
                    count,
                }
            }
            4..6 => Request::Trim {
                volume,
                offset,
                count,
            },
            _ => {
                let mut bytes = vec![0; count];
                for part in bytes.chunks_mut(BLOCK_BYTES) {
                    match random.u8(..6) {
                        0 => {}
                        // Few values, so that many blocks are alike.
                        1 | 2 => part.fill(random.u8(1..4)),
                        _ => random.fill(part),
                    }
                }
                // A value that was never written before, and other bytes than there are.
                let end = bytes.len().min(8);
                bytes[..end].copy_from_slice(&random.u64(..).to_le_bytes()[..end]);
                bytes[0] = content[&volume][offset] ^ random.u8(1..);
                Request::Write {
                    volume,
                    offset,
                    bytes,
                }
            }
        }
    }

    pub(super) fn apply(&self, content: &mut Content) {
        match self {
            Request::Write {
                volume,
                offset,
                bytes,
            } => {
                let target = content.get_mut(volume).expect("a volume");
                target[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            Request::Zero {
                volume,
                offset,
                count,
            } => {
                let target = content.get_mut(volume).expect("a volume");
                target[*offset..offset + count].fill(0);
            }
            Request::Trim {
                volume,
                offset,
                count,
            } => {
                let target = content.get_mut(volume).expect("a volume");
                let block_bytes = if volume == LONG {
                    LONG_BLOCK_BYTES
                } else {
                    BLOCK_BYTES
                };
                let range = trimmed(block_bytes, *offset..offset + count, target.len());
                target[range].fill(0);
            }
            Request::Clone { from, to } => {
                let bytes = content[from].clone();
                content.insert(to.clone(), bytes);
            }
            Request::Remove { volume } => drop(content.remove(volume)),
            Request::Resize { volume, size_bytes } => {
                let bytes = content.get_mut(volume).expect("a volume");
                bytes.resize(*size_bytes, 0);
            }
        }
    }

    pub(super) fn run(&self, disk: &Disk, durability: Durability) -> Result<()> {
        match self {
            Request::Write {
                volume,
                offset,
                bytes,
            } => {
                // With any order of calls from the threads.
                let (volume, offset) = (disk.volume(volume)?, *offset as u64);
                match offset % 2 {
                    0 => volume.write(offset, bytes, durability),
                    _ => {
                        let mut lent = bytes.clone();
                        let written = volume.write_lent(offset, &mut lent, durability);
                        assert!(lent == *bytes, "other bytes are given back");
                        written
                    }
                }
            }
            Request::Zero {
                volume,
                offset,
                count,
            } => disk
                .volume(volume)?
                .zero(*offset as u64, *count as u64, durability),
            Request::Trim {
                volume,
                offset,
                count,
            } => disk
                .volume(volume)?
                .trim(*offset as u64, *count as u64, durability),
            Request::Clone { from, to } => disk.clone_volume(from, to, false),
            Request::Remove { volume } => disk.remove_volume(volume),
            Request::Resize { volume, size_bytes } => {
                disk.resize_volume(volume, *size_bytes as u64, true)
            }
        }
    }
}

/// Reads all that a disk shows.
pub(super) fn shown(disk: &Disk) -> Result<Content> {
    let volumes = disk.volumes()?.into_iter().map(|status| {
        let mut bytes = vec![0xEE; status.size_bytes as usize];
        disk.volume(&status.name)?.read(0, &mut bytes)?;
        Ok((status.name, bytes))
    });
    volumes.collect()
}

/// The blocks that a trim of a range drops from a volume. A last block that is not whole counts as whole.
fn trimmed(block_bytes: usize, asked: Range<usize>, size_bytes: usize) -> Range<usize> {
    let whole = whole_blocks_of(block_bytes, asked.start, asked.len());
    let reaches_end = asked.end == size_bytes && (asked.start..size_bytes).contains(&whole.end);
    let end = if reaches_end { size_bytes } else { whole.end };
    whole.start.min(size_bytes)..end.min(size_bytes)
}

/// A disk that rests has new transactions, so that states have no numbers.
fn state(content: &Content) -> State {
    let parts = content.iter();
    let digest = digest(parts.flat_map(|(name, bytes)| [name.as_bytes(), bytes]));
    State { last: 0, digest }
}

/// How a disk is made.
#[derive(Clone, Copy)]
struct Shape {
    segment_bytes: u32,
    has_long: bool,
}

struct Proved {
    disk: Disk,
    content: Content,
}

impl Proved {
    fn number(&self) -> u64 {
        self.disk.inner.blocks.snapshot().commit()
    }
}

impl Subject for Proved {
    type Mode = Shape;
    type Transaction = (Request, bool);

    fn mode(random: &mut Rng) -> Shape {
        Shape {
            segment_bytes: [8192, 8192, 16_384][random.usize(..3)],
            has_long: random.u8(..4) == 0,
        }
    }

    fn create(storage: Arc<dyn Storage>, shape: Shape) -> Result<Proved> {
        let mut made = options();
        made.blocks.segment_bytes_min = shape.segment_bytes;
        let mut disk = Disk::create(&*storage, NAME, made)?;
        disk.create_volume("one", SIZE_BYTES as u64)?;
        if shape.has_long {
            drop(disk);
            let longer = DiskOptions {
                block_bytes: LONG_BLOCK_BYTES as u32,
                ..options()
            };
            let long = Disk::open(&*storage, NAME, longer)?;
            long.create_volume(LONG, 2 * LONG_BLOCK_BYTES as u64)?;
            drop(long);
            disk = Disk::open(&*storage, NAME, options())?;
            disk.checkpoint()?;
        }
        let content = shown(&disk)?;
        Ok(Proved { disk, content })
    }

    fn open(storage: Arc<dyn Storage>, _: Shape) -> Result<Proved> {
        let disk = Disk::open(&*storage, NAME, options())?;
        disk.checkpoint()?;
        let content = shown(&disk)?;
        Ok(Proved { disk, content })
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

    fn plan(&self, random: &mut Rng) -> (Request, bool) {
        (Request::random(random, &self.content), random.bool())
    }

    fn after(&self, (request, _): &(Request, bool)) -> State {
        let mut content = self.content.clone();
        request.apply(&mut content);
        state(&content)
    }

    fn commit(&mut self, (request, by_flush): &(Request, bool), is_durable: bool) -> Result<()> {
        let durability = match is_durable && !by_flush {
            true => Durability::Durable,
            false => Durability::Lazy,
        };
        let (before, shown_before) = (self.number(), self.state());
        request.run(&self.disk, durability)?;
        request.apply(&mut self.content);
        let transactions = self.number() - before;
        let least = u64::from(self.state() != shown_before);
        assert!((least..=1).contains(&transactions), "{request:?}");
        match is_durable && *by_flush {
            true => self.disk.flush(),
            false => Ok(()),
        }
    }

    fn sync(&mut self) -> Result<()> {
        self.disk.flush()
    }

    fn maintain(&mut self, random: &mut Rng) -> Result<()> {
        if random.bool() {
            self.disk.rest().finish(&|| true)?;
        }
        self.disk.checkpoint()
    }
}

#[test]
fn no_power_cut_loses_or_tears_a_request() {
    let images = if is_full() { 200_000 } else { 20_000 };
    let floors = CrashFloors {
        distinct_images: images,
        double_images: images / 20,
    };
    cut_power::<Proved>(seed(2501), floors).unwrap();
}

#[test]
fn no_failing_call_loses_an_acknowledged_request() {
    let seeds = if is_full() { 20 } else { 1 };
    fail_calls::<Proved>(seed(2502), seeds).unwrap();
}

#[test]
fn no_full_host_loses_an_acknowledged_request() {
    // A new disk has superblocks and two segments; requests want a few more.
    let first = 2 * superblock::SLOT_BYTES as u64 + 2 * 8192;
    fill_disk::<Proved>(seed(2503), 60, first..first + 3 * 8192).unwrap();
}
