//! A recorded run, and the crash images it can leave.
//!
//! The run is recorded once, and every prefix is replayed from the one before it. So a crash image costs the changes
//! that no sync has covered, and not a run of the program.

use std::sync::Arc;

use fastrand::Rng;

use crate::storage::simulated::damage::{Damage, SECTOR_BYTES};
use crate::storage::simulated::medium::{Change, Event, Medium, View};

/// The effects of a run on the disk, from the state it began in.
#[derive(Clone, Debug)]
pub struct Recording {
    pub(super) base: View,
    pub(super) events: Vec<Event>,
}

/// A write the medium reported as done and did not do as asked. No sync reveals it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// The write never happened.
    Lost,
    /// Only the sectors before a random one were written.
    Torn,
    /// The write went to another sector of the same file.
    Misdirected,
    /// One bit of it is wrong.
    BitFlipped,
}

impl Lie {
    /// All lies.
    pub const ALL: [Lie; 4] = [Lie::Lost, Lie::Torn, Lie::Misdirected, Lie::BitFlipped];
}

/// The files of a disk at rest, as a crash left them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub(super) view: View,
}

/// One crash image of a run, and where the crash was.
#[derive(Debug)]
pub struct Crash {
    /// The number of steps of the run before the crash.
    pub step: usize,
    /// The last mark set before the crash, `None` if there was none.
    pub mark: Option<u64>,
    /// The fate of the unsynced changes.
    pub damage: Damage,
    /// The contents of the medium.
    pub image: Image,
}

impl Recording {
    /// Returns how many steps were recorded, marks included.
    pub fn step_count(&self) -> usize {
        self.events.len()
    }

    /// Returns how many writes were recorded.
    pub fn write_count(&self) -> usize {
        self.events.iter().filter(|event| is_write(event)).count()
    }

    /// Hands over the crash images at every boundary between two steps, for each of `damages` that
    /// can make a difference there. Random choices follow from `seed`.
    ///
    /// # Cost
    /// For each image, a clone of the block maps and a copy of the unsynced sectors.
    pub fn for_each_crash(&self, damages: &[Damage], seed: u64, visit: impl FnMut(Crash)) {
        self.for_each_crash_from(0, damages, seed, visit);
    }

    /// Does the same for the boundaries behind the first `steps` steps alone.
    pub fn for_each_crash_from(
        &self,
        steps: usize,
        damages: &[Damage],
        seed: u64,
        mut visit: impl FnMut(Crash),
    ) {
        let mut medium = Medium::new(self.base.clone());
        let mut mark = None;
        for step in 0..=self.events.len() {
            // A mark changes nothing on the medium: the boundary behind it says more.
            if step >= steps && !matches!(self.events.get(step), Some(Event::Mark(_))) {
                for (at, damage) in damages.iter().enumerate() {
                    let mut random = Rng::with_seed(mix(seed, step as u64, at as u64));
                    if let Some(view) = damage.image(&medium, &mut random) {
                        visit(Crash {
                            step,
                            mark,
                            damage: *damage,
                            image: Image { view },
                        });
                    }
                }
            }
            match self.events.get(step) {
                Some(Event::Mark(value)) => mark = Some(*value),
                Some(event) => medium.follow(event),
                None => {}
            }
        }
    }

    /// Returns the run in which the write number `which` was not done as asked.
    ///
    /// # Panics
    /// If the run has no such write.
    pub fn with_lie(&self, which: usize, lie: Lie, seed: u64) -> Recording {
        let mut random = Rng::with_seed(mix(seed, which as u64, lie as u64));
        let writes = self.events.iter().enumerate();
        let mut writes = writes.filter(|(_, event)| is_write(event));
        let (at, _) = writes.nth(which).expect("the run has that many writes");
        let mut recording = self.clone();
        let Event::Change(Change::Write { offset, bytes, .. }) = &mut recording.events[at] else {
            unreachable!("only writes were counted");
        };
        match lie {
            Lie::Lost => *bytes = Arc::from([]),
            Lie::Torn => {
                let first = *offset / SECTOR_BYTES;
                let end = (*offset + bytes.len() as u64).div_ceil(SECTOR_BYTES);
                let cut = random.u64(first..end.max(first + 1)) * SECTOR_BYTES;
                *bytes = Arc::from(&bytes[..cut.saturating_sub(*offset) as usize]);
            }
            Lie::Misdirected => {
                let end = *offset / SECTOR_BYTES + 16;
                let other = random.u64(..end);
                let sector = if other == *offset / SECTOR_BYTES {
                    other + 1
                } else {
                    other
                };
                *offset = sector * SECTOR_BYTES + *offset % SECTOR_BYTES;
            }
            Lie::BitFlipped => {
                let mut wrong = bytes.to_vec();
                if !wrong.is_empty() {
                    let bit = random.usize(..wrong.len() * 8);
                    wrong[bit / 8] ^= 1 << (bit % 8);
                }
                *bytes = Arc::from(wrong);
            }
        }
        recording
    }

    /// Returns the contents of the medium once all is written back after the last step.
    pub fn end(&self) -> Image {
        let mut medium = Medium::new(self.base.clone());
        for event in &self.events {
            medium.follow(event);
        }
        let kept = Damage::KeepAll.image(&medium, &mut Rng::with_seed(0));
        let mut view = kept.unwrap_or(medium.durable);
        view.remove_orphans();
        Image { view }
    }
}

impl Image {
    /// Returns the full names of all files, sorted.
    pub fn names(&self) -> Vec<String> {
        let files = self.view.names.files();
        files.map(|(name, _)| name.to_string()).collect()
    }

    /// Returns the size of a file.
    ///
    /// # Panics
    /// If there is no such file, as the other methods do.
    pub fn size_bytes(&self, name: &str) -> u64 {
        let inode = self.inode(name);
        self.view.content(inode).map_or(0, |file| file.size_bytes())
    }

    /// Copies from `offset` of a file into `out`, zeros behind its end.
    pub fn read(&self, name: &str, offset: u64, out: &mut [u8]) {
        out.fill(0);
        if let Some(content) = self.view.content(self.inode(name)) {
            content.read(offset, out);
        }
    }

    /// Puts other bytes into a file: rot, or the bytes of a misdirected write.
    pub fn overwrite(&mut self, name: &str, offset: u64, bytes: &[u8]) {
        let inode = self.inode(name);
        self.view.content_mut(inode).write(offset, bytes);
    }

    /// Returns the start of the zeros at the end of a file.
    pub fn used_bytes(&self, name: &str) -> u64 {
        let mut bytes = vec![0; self.size_bytes(name) as usize];
        self.read(name, 0, &mut bytes);
        let last = bytes.iter().rposition(|byte| *byte != 0);
        last.map_or(0, |last| last as u64 + 1)
    }

    /// Cuts a file, as an interrupted copy leaves it.
    pub fn cut(&mut self, name: &str, size_bytes: u64) {
        let inode = self.inode(name);
        self.view.content_mut(inode).truncate(size_bytes);
    }

    /// Flips one bit of a file, counted from its start.
    pub fn flip_bit(&mut self, name: &str, bit: u64) {
        let mut byte = [0];
        self.read(name, bit / 8, &mut byte);
        self.overwrite(name, bit / 8, &[byte[0] ^ (1 << (bit % 8))]);
    }

    fn inode(&self, name: &str) -> u64 {
        let mut files = self.view.names.files();
        let found = files.find(|(found, _)| *found == name);
        *found.unwrap_or_else(|| panic!("no file {name}")).1
    }
}

fn is_write(event: &Event) -> bool {
    matches!(event, Event::Change(Change::Write { .. }))
}

/// Makes one seed out of three numbers (the finaliser of SplitMix64 between them).
fn mix(seed: u64, step: u64, at: u64) -> u64 {
    [step, at].into_iter().fold(seed, |state, value| {
        let mut mixed = state.wrapping_add(value.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    })
}
