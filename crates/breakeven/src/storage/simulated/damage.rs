//! The possible remains, after a power cut, of the changes that no sync has covered.
//!
//! The rule of the model: a write consists of sector writes. For every sector the medium holds *some* version that the
//! file had since the last sync, independent of its neighbours. The size and every change of names are kept or lost on
//! their own. On top of that, space the file grew by may hold anything that was on the medium before. Each [`Damage`]
//! picks one shape out of these.

use fastrand::Rng;

use crate::storage::simulated::medium::{Change, InodeNumber, Medium, View};
use crate::storage::sparse::{BLOCK_BYTES, SparseBytes};

/// The smallest unit a device writes as a whole.
pub const SECTOR_BYTES: u64 = 512;

/// One shape of a power cut's remains of the unsynced changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Nothing unsynced is left.
    LoseAll,
    /// Everything unsynced is left, as if it had just reached the medium.
    KeepAll,
    /// All but the last change is left.
    LoseLast,
    /// Of all changes only the last is left: it overtook the others.
    OnlyLast,
    /// A random subset of the changes is left, each whole.
    SomeChanges,
    /// A random subset of 512-byte sector writes is left.
    SomeSectors512,
    /// A random subset of 4,096-byte sector writes is left.
    SomeSectors4096,
    /// The last write is cut after a random 512-byte sector.
    Torn512,
    /// The last write is cut after a random 4,096-byte sector.
    Torn4096,
    /// All is left, but space the file grew by ends in random bytes or old content of the medium.
    GarbageTail,
    /// All is left but for one sector, which holds the bytes before the change.
    StaleSector,
    /// All is left, but one sector of space the file grew by holds zeros.
    ZeroSector,
    /// All data is left, but no file has grown or shrunk.
    SizeLost,
    /// Files have grown, but the data written into them is lost.
    OnlySize,
    /// All data is left, and no change of names.
    NamesLost,
    /// All changes of names are left, and no data.
    OnlyNames,
}

impl Damage {
    /// All damages.
    pub const ALL: [Damage; 16] = [
        Damage::LoseAll,
        Damage::KeepAll,
        Damage::LoseLast,
        Damage::OnlyLast,
        Damage::SomeChanges,
        Damage::SomeSectors512,
        Damage::SomeSectors4096,
        Damage::Torn512,
        Damage::Torn4096,
        Damage::GarbageTail,
        Damage::StaleSector,
        Damage::ZeroSector,
        Damage::SizeLost,
        Damage::OnlySize,
        Damage::NamesLost,
        Damage::OnlyNames,
    ];

    fn sector_bytes(self) -> u64 {
        match self {
            Damage::SomeSectors4096 | Damage::Torn4096 => 4096,
            _ => SECTOR_BYTES,
        }
    }

    /// Returns whether the damage can differ from a plainer one on this medium, so that no image is
    /// built twice.
    fn applies(self, medium: &Medium) -> bool {
        let changes = || medium.pending.iter().map(|pending| &pending.change);
        let has_write = || changes().any(|change| matches!(change, Change::Write { .. }));
        let has_names = || changes().any(|change| change.content_of().is_none());
        let has_data = || changes().any(|change| change.content_of().is_some());
        match self {
            Damage::LoseAll => true,
            Damage::KeepAll => !medium.pending.is_empty(),
            Damage::LoseLast | Damage::OnlyLast | Damage::SomeChanges => medium.pending.len() > 1,
            Damage::SomeSectors512
            | Damage::SomeSectors4096
            | Damage::Torn512
            | Damage::Torn4096
            | Damage::GarbageTail
            | Damage::StaleSector
            | Damage::ZeroSector => has_write(),
            Damage::SizeLost | Damage::OnlySize => has_data(),
            Damage::NamesLost | Damage::OnlyNames => has_names() && has_data(),
        }
    }

    /// Builds the medium's contents after a power cut; `None` if the damage does not apply.
    pub(super) fn image(self, medium: &Medium, random: &mut Rng) -> Option<View> {
        if !self.applies(medium) {
            return None;
        }
        let mut view = medium.durable.clone();
        let changes: Vec<&Change> = medium.pending.iter().map(|p| &p.change).collect();
        let choice = Choice::new(self, medium, &changes, random)?;
        let some = self == Damage::SomeChanges;
        let coins: Vec<bool> = changes.iter().map(|_| some && random.bool()).collect();
        for (index, change) in changes.iter().enumerate() {
            if change.content_of().is_none() && choice.keeps_names(index, &coins) {
                view.apply(change);
            }
        }
        for inode in inodes(&changes) {
            let picked = changes.iter().enumerate();
            let (indexes, of_inode): (Vec<usize>, Vec<&Change>) = picked
                .filter(|(_, change)| change.content_of() == Some(inode))
                .map(|(index, change)| (index, *change))
                .unzip();
            let content = view.content_mut(inode);
            write_back(content, &of_inode, self.sector_bytes(), |at, piece| {
                choice.keeps(indexes[at], piece, &coins, random)
            });
        }
        choice.spoil(medium, &changes, &mut view, random);
        view.remove_orphans();
        Some(view)
    }
}

/// The part of a change that is kept or lost on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// One sector of a write, by its number in the file.
    Sector(u64),
    /// The new size.
    Size,
    /// A punch, an allocation or the cut of a truncation.
    Whole,
}

/// Applies `changes` to `content` as write-back does. After each change the sectors it touched reach the medium if
/// `keeps` says so, with all earlier changes to them.
pub(super) fn write_back(
    content: &mut SparseBytes,
    changes: &[&Change],
    sector_bytes: u64,
    mut keeps: impl FnMut(usize, Piece) -> bool,
) {
    let mut cached = content.clone();
    let mut size_bytes = content.size_bytes();
    for (at, change) in changes.iter().enumerate() {
        let size_before = cached.size_bytes();
        change.apply_to(&mut cached);
        let mut copy = SectorCopy {
            from: &cached,
            to: content,
            sector: vec![0; sector_bytes as usize],
        };
        match change {
            Change::Write { offset, bytes, .. } => {
                for sector in sectors(*offset, bytes.len() as u64, sector_bytes) {
                    if keeps(at, Piece::Sector(sector)) {
                        copy.copy(sector);
                    }
                }
            }
            Change::Truncate { .. } if keeps(at, Piece::Whole) => {
                // Blocks behind the end go whole.
                let end = copy.to.size_bytes().next_multiple_of(BLOCK_BYTES as u64);
                copy.punch(size_before.min(cached.size_bytes()), end);
            }
            Change::Punch {
                offset,
                length_bytes,
                ..
            } if keeps(at, Piece::Whole) => copy.punch(*offset, offset + length_bytes),
            Change::Allocate { .. } if keeps(at, Piece::Whole) => change.apply_to(content),
            _ => {}
        }
        if cached.size_bytes() != size_before && keeps(at, Piece::Size) {
            size_bytes = cached.size_bytes();
        }
    }
    content.truncate(size_bytes);
}

/// Copies sectors from the cached content to the medium's.
struct SectorCopy<'a> {
    from: &'a SparseBytes,
    to: &'a mut SparseBytes,
    sector: Vec<u8>,
}

impl SectorCopy<'_> {
    fn copy(&mut self, number: u64) {
        let offset = number * self.sector.len() as u64;
        self.sector.fill(0);
        self.from.read(offset, &mut self.sector);
        self.to.write(offset, &self.sector);
    }

    /// Zeros a range here too that was punched or cut in the cached content. The sectors it begins and ends in reach
    /// the medium whole, as they are cached.
    fn punch(&mut self, offset: u64, end: u64) {
        let sector_bytes = self.sector.len() as u64;
        if end > offset {
            self.to.punch(offset, end - offset);
            for edge in [offset, end] {
                // A sector in a hole is zeros already, and copying it would fill the hole.
                if edge % sector_bytes > 0 && self.to.missing_bytes(edge, 1) == 0 {
                    self.copy(edge / sector_bytes);
                }
            }
        }
    }
}

fn sectors(offset: u64, length_bytes: u64, sector_bytes: u64) -> std::ops::Range<u64> {
    offset / sector_bytes..(offset + length_bytes).div_ceil(sector_bytes)
}

fn inodes(changes: &[&Change]) -> Vec<InodeNumber> {
    let mut inodes: Vec<InodeNumber> = changes.iter().filter_map(|c| c.content_of()).collect();
    inodes.sort_unstable();
    inodes.dedup();
    inodes
}

/// A damage with its random choices made.
struct Choice {
    damage: Damage,
    last: usize,
    /// The write that goes wrong, by its place among the changes.
    struck: usize,
    /// The sector in the middle of it at which it goes wrong.
    sector: u64,
}

impl Choice {
    /// Chooses the fault of the damage; `None` if there is none.
    fn new(
        damage: Damage,
        medium: &Medium,
        changes: &[&Change],
        random: &mut Rng,
    ) -> Option<Choice> {
        let last = changes.len().saturating_sub(1);
        let none = Choice {
            damage,
            last,
            struck: usize::MAX,
            sector: 0,
        };
        let mut writes = changes
            .iter()
            .enumerate()
            .filter_map(|(at, change)| match change {
                Change::Write {
                    inode,
                    offset,
                    bytes,
                } => Some((
                    at,
                    *inode,
                    sectors(*offset, bytes.len() as u64, damage.sector_bytes()),
                )),
                _ => None,
            });
        // A torn write loses a part of the last one; one sector may go wrong in any.
        let sectors: Vec<(usize, u64)> = match damage {
            Damage::Torn512 | Damage::Torn4096 => writes
                .next_back()
                .map(|(at, _, sectors)| sectors.map(|sector| (at, sector)).collect())
                .unwrap_or_default(),
            Damage::StaleSector => writes
                .flat_map(|(at, _, sectors)| sectors.map(move |sector| (at, sector)))
                .collect(),
            Damage::ZeroSector | Damage::GarbageTail => writes
                .flat_map(|(at, inode, sectors)| sectors.map(move |sector| (at, inode, sector)))
                .filter(|(_, inode, sector)| is_new(medium, *inode, *sector))
                .map(|(at, _, sector)| (at, sector))
                .collect(),
            _ => return Some(none),
        };
        let (struck, sector) = random.choice(sectors)?;
        Some(Choice {
            struck,
            sector,
            ..none
        })
    }

    fn keeps_names(&self, index: usize, coins: &[bool]) -> bool {
        match self.damage {
            Damage::LoseAll | Damage::NamesLost => false,
            Damage::LoseLast => index != self.last,
            Damage::OnlyLast => index == self.last,
            Damage::SomeChanges => coins[index],
            _ => true,
        }
    }

    fn keeps(&self, index: usize, piece: Piece, coins: &[bool], random: &mut Rng) -> bool {
        let is_struck = index == self.struck;
        match self.damage {
            Damage::LoseAll | Damage::OnlyNames => false,
            Damage::LoseLast => index != self.last,
            Damage::OnlyLast => index == self.last,
            Damage::SomeChanges => coins[index],
            Damage::SomeSectors512 | Damage::SomeSectors4096 => random.bool(),
            Damage::Torn512 | Damage::Torn4096 => match piece {
                Piece::Sector(sector) => !is_struck || sector < self.sector,
                // The size may have reached the medium before the data.
                Piece::Size => !is_struck || random.bool(),
                Piece::Whole => true,
            },
            Damage::SizeLost => piece != Piece::Size,
            Damage::OnlySize => piece == Piece::Size,
            Damage::KeepAll
            | Damage::GarbageTail
            | Damage::StaleSector
            | Damage::ZeroSector
            | Damage::NamesLost => true,
        }
    }

    /// Puts wrong bytes where the damage has them.
    fn spoil(&self, medium: &Medium, changes: &[&Change], view: &mut View, random: &mut Rng) {
        let Some(Change::Write {
            inode,
            offset,
            bytes,
        }) = changes.get(self.struck)
        else {
            return;
        };
        let at = self.sector * SECTOR_BYTES;
        let mut sector = [0; SECTOR_BYTES as usize];
        match self.damage {
            Damage::StaleSector => {
                if let Some(content) = medium.durable.content(*inode) {
                    content.read(at, &mut sector);
                }
                overwrite(view, *inode, at, &sector);
            }
            Damage::ZeroSector => overwrite(view, *inode, at, &sector),
            Damage::GarbageTail => {
                let end = sectors(*offset, bytes.len() as u64, SECTOR_BYTES).end;
                for number in (self.sector..end).filter(|number| is_new(medium, *inode, *number)) {
                    let at = number * SECTOR_BYTES;
                    garbage(medium, at, &mut sector, random);
                    overwrite(view, *inode, at, &sector);
                }
            }
            _ => {}
        }
    }
}

/// Returns whether a 512-byte sector is space that the file did not have at the last sync.
fn is_new(medium: &Medium, inode: InodeNumber, sector: u64) -> bool {
    let durable = medium.durable.content(inode);
    durable.is_none_or(|content| content.missing_bytes(sector * SECTOR_BYTES, 1) > 0)
}

/// Overwrites a sector without changing the size of the file.
fn overwrite(view: &mut View, inode: InodeNumber, at: u64, sector: &[u8]) {
    let content = view.content_mut(inode);
    let left = content.size_bytes().saturating_sub(at);
    content.write(at, &sector[..left.min(SECTOR_BYTES) as usize]);
}

/// Fills `sector` with random bytes, or with a sector that some file holds or held, there or elsewhere. Unwritten space
/// shows the former contents of the medium.
fn garbage(medium: &Medium, at: u64, sector: &mut [u8], random: &mut Rng) {
    let held = medium.durable.files.iter().map(|(_, content)| content);
    let contents: Vec<&SparseBytes> = held.chain(&medium.ghosts).collect();
    if !contents.is_empty() && random.u8(..3) > 0 {
        let content = contents[random.usize(..contents.len())];
        let count = content.size_bytes() / SECTOR_BYTES;
        let from = match random.bool() {
            true => at,
            false => random.u64(..count.max(1)) * SECTOR_BYTES,
        };
        if content.read(from, sector) == sector.len() {
            return;
        }
    }
    random.fill(sector);
}
