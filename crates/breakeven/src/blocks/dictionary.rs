//! The dictionaries of a store: those that frames are decoded with, and the training of new ones.
//!
//! A dictionary enters with a checkpoint, in two records. They are read again before the superblock points to them, so
//! no frame ever names a dictionary that is not durable. It goes with a checkpoint too: a newer one of its class is
//! there, and no segment holds anything written while it was in use. If both copies are lost, the frames that need it
//! are in error, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::checkpoint::Writer;
use super::coding::Moment;
use super::file::StoreFile;
use super::layout::KIND_DICTIONARY;
use super::place::{Place, Segments};
use super::state::{LiveChanges, State};
use super::{Blocks, Inner, Snapshot};
use crate::dictionaries::{Class, Generation};
use crate::error::{Error, Result};
use crate::pool::{Pool, PoolOptions};
use crate::storage::record::{HEADER_BYTES, Label};
use crate::storage::seeded::{SeededBug, is_seeded};

/// The most dictionaries of a store, those included that old frames alone need.
pub(super) const DICTIONARIES_MAX: usize = 64;
/// No dictionary is trained while there are this many. The rest is for those superseded meanwhile.
pub(super) const TRAINED_MAX: usize = DICTIONARIES_MAX / 2;
/// Bytes of a record beside the dictionary's own, header and padding included.
const RECORD_EXTRA_BYTES: usize = HEADER_BYTES + 48;
/// The blocks by which a store is sampled before it is rewritten.
const SAMPLES: u64 = 1024;

/// A dictionary that the store keeps.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    /// `None` if neither copy could be read.
    pub(super) generation: Option<Arc<Generation>>,
    pub(super) places: [Place; 2],
    /// The highest generation of a segment into which a frame that needs it was written.
    pub(super) last_use: u64,
    /// Whether the next checkpoint writes the copies again.
    pub(super) is_moved: bool,
}

impl Kept {
    /// A dictionary without a place yet.
    fn new(generation: &Arc<Generation>) -> Kept {
        Kept {
            generation: Some(Arc::clone(generation)),
            places: [Place::NONE; 2],
            last_use: 0,
            is_moved: true,
        }
    }
}

/// The dictionaries of one state, by their number. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptDictionaries(Arc<BTreeMap<u32, Kept>>);

impl KeptDictionaries {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Kept)> {
        self.0.iter().map(|(id, kept)| (*id, kept))
    }

    /// Returns the dictionary that a frame names.
    pub(super) fn generation(&self, id: u32) -> Result<&Arc<Generation>> {
        let found = match self.0.get(&id) {
            Some(kept) => kept.generation.as_ref().ok_or("both copies broken"),
            None => Err("none"),
        };
        found.map_err(|found| {
            let expected = format!("dictionary {id}");
            Error::corrupt("block store", id.into(), expected, found)
        })
    }

    pub(super) fn get(&self, id: u32) -> Option<&Kept> {
        self.0.get(&id)
    }

    /// Says whether there is this one, or none is needed.
    pub(super) fn has(&self, id: u32) -> bool {
        id == 0 || self.0.contains_key(&id)
    }

    /// Returns the newest dictionary of a class.
    pub(super) fn current(&self, class: Class) -> Option<&Arc<Generation>> {
        let known = self.0.values().filter_map(|kept| kept.generation.as_ref());
        let own = known.filter(|generation| generation.class == class);
        own.max_by_key(|generation| generation.number)
    }

    /// Says whether a newer dictionary of the same class took its place.
    pub(super) fn is_superseded(&self, id: u32) -> bool {
        let generation = self.0.get(&id).and_then(|kept| kept.generation.as_ref());
        let current = generation.and_then(|own| self.current(own.class));
        current.is_some_and(|current| current.id != id)
    }

    pub(super) fn insert(&mut self, id: u32, kept: Kept) {
        Arc::make_mut(&mut self.0).insert(id, kept);
    }

    /// Notes that a frame that needs a dictionary lies in a segment of this generation.
    pub(super) fn note_use(&mut self, id: u32, generation: u64) {
        let is_new = |kept: &&Kept| kept.last_use < generation;
        if self.0.get(&id).filter(is_new).is_some() {
            let kept = Arc::make_mut(&mut self.0).get_mut(&id);
            kept.expect("found above").last_use = generation;
        }
    }

    /// Has the copies written again if one of them lies at `place`.
    pub(super) fn move_from(&mut self, id: u32, place: Place) {
        let lies_there = |kept: &&Kept| kept.places.contains(&place) && !kept.is_moved;
        if self.0.get(&id).filter(lies_there).is_some() {
            let kept = Arc::make_mut(&mut self.0).get_mut(&id);
            kept.expect("found above").is_moved = true;
        }
    }

    /// Returns a bound on the bytes of the records that the next checkpoint writes.
    pub(super) fn moved_bytes(&self) -> usize {
        let moved = self.0.values().filter(|kept| kept.is_moved);
        let generations = moved.filter_map(|kept| kept.generation.as_ref());
        generations
            .map(|generation| 2 * record_bytes(generation))
            .sum()
    }

    /// Forgets superseded dictionaries that nothing live needs, and returns them.
    fn drop_unused(&mut self, segments: &Segments, live: &[u64]) -> Vec<Kept> {
        let held = || segments.iter().zip(live).filter(|(_, live)| **live > 0);
        let is_needed = |kept: &Kept| {
            let is_held = held().any(|(segment, _)| segment.generation <= kept.last_use);
            is_held && !is_seeded(SeededBug::DictionaryDropped)
        };
        let unused = self
            .iter()
            .filter(|(id, kept)| self.is_superseded(*id) && !is_needed(kept));
        let unused: Vec<u32> = unused.map(|(id, _)| id).collect();
        if unused.is_empty() {
            return Vec::new();
        }
        let kept = Arc::make_mut(&mut self.0);
        unused.iter().filter_map(|id| kept.remove(id)).collect()
    }
}

/// The caller's own thread.
fn inline_pool() -> Result<Pool> {
    Pool::new(PoolOptions { worker_count: 0 })
}

fn record_bytes(generation: &Generation) -> usize {
    generation.dictionary.bytes().len() + 32 + RECORD_EXTRA_BYTES
}

impl Writer {
    /// Writes the dictionaries that are new or move, twice, and reads them again. Drops those that nothing needs.
    pub(super) fn write_dictionaries(
        &mut self,
        file: &StoreFile,
        new: &mut State,
        live: &mut LiveChanges,
    ) -> Result<()> {
        for generation in &self.pending {
            new.dictionaries
                .insert(generation.id, Kept::new(generation));
        }
        let log = &mut self.log;
        let gone = new.dictionaries.drop_unused(&log.segments, &log.live);
        let mut died: Vec<Place> = gone.iter().flat_map(|kept| kept.places).collect();
        let moved = new.dictionaries.iter().filter(|(_, kept)| kept.is_moved);
        let moved: Vec<(u32, Kept)> = moved.map(|(id, kept)| (id, kept.clone())).collect();
        let mut written: BTreeMap<u32, Vec<Place>> = BTreeMap::new();
        // One copy of each before the second of any, and each in a write of its own.
        for _ in 0..2 {
            for (id, kept) in &moved {
                let Some(generation) = &kept.generation else {
                    continue;
                };
                let label = Label {
                    kind: KIND_DICTIONARY,
                    ..Label::default()
                };
                let placed = log.append(label, &[&generation.body()])?;
                let place = Place::new(placed.address, placed.record_bytes);
                written.entry(*id).or_default().push(place);
            }
            log.flush()?;
        }
        new.segments = log.segments.clone();
        let mut born = Vec::new();
        for (id, mut kept) in moved {
            kept.is_moved = false;
            if let Some([first, second]) = written.get(&id).map(|places| &places[..]) {
                died.extend(kept.places);
                born.extend([*first, *second]);
                kept.places = [*first, *second];
                for place in kept.places {
                    file.check_dictionary(place, id, &new.segments)?;
                }
            }
            new.dictionaries.insert(id, kept);
        }
        if is_seeded(SeededBug::DictionaryNotHeld) {
            born.clear();
            died.clear();
        }
        for (places, sign) in [(died, -1), (born, 1)] {
            for place in places.into_iter().filter(|place| !place.is_none()) {
                if let Some(segment) = new.segments.find(place.address()) {
                    *live.entry(segment).or_default() += sign * place.record_bytes() as i64;
                }
            }
        }
        Ok(())
    }
}

impl Inner {
    /// The mistake of [`SeededBug::DictionaryNotAwaited`].
    fn show_pending(&self, writer: &Writer) -> Result<()> {
        let mut state = State::clone(&self.shared.state());
        for generation in &writer.pending {
            state
                .dictionaries
                .insert(generation.id, Kept::new(generation));
        }
        self.shared.publish(state);
        Ok(())
    }
}

impl Blocks {
    /// Trains a dictionary for each class of blocks that has samples enough, and writes those that pay with a
    /// checkpoint. Returns how many. Blocks that are written or moved from then on are encoded with them where that
    /// pays.
    ///
    /// # Errors
    /// As [`Blocks::checkpoint`].
    ///
    /// # Cost
    /// That of [`crate::dictionaries::Training::run`] on samples of 32 times the longest dictionary for each class, and
    /// of a checkpoint if any is kept.
    pub fn train(&self) -> Result<usize> {
        self.train_for(0, Moment::Written, &inline_pool()?)
    }

    /// Trains on blocks like those about to be written, for dictionaries that pay where `stored_bytes` of such blocks
    /// get stored. The workers of a pool train the classes side by side. Returns how many came of it.
    ///
    /// # Errors
    /// As [`Blocks::train`].
    ///
    /// # Cost
    /// A copy of every block that is kept as a sample, and that of [`Blocks::train`].
    pub fn learn<'a>(
        &self,
        blocks: impl Iterator<Item = &'a [u8]>,
        stored_bytes: u64,
        pool: &Pool,
    ) -> Result<usize> {
        for block in blocks {
            self.inner.coding.learn_of(block);
        }
        self.train_for(stored_bytes, Moment::Written, pool)
    }

    fn train_for(&self, coming_bytes: u64, moment: Moment, pool: &Pool) -> Result<usize> {
        let mut live_bytes = None;
        // The writer knows the numbers of all dictionaries there are, and gives others.
        self.with_writer(|inner, writer| {
            let has_room = writer.log.room_bytes() > 8 * u64::from(inner.options.segment_bytes_min);
            let is_wanted = inner.shared.state().dictionaries.len() < TRAINED_MAX && has_room;
            live_bytes = is_wanted.then(|| writer.log.live.iter().sum::<u64>());
            Ok(())
        })?;
        let Some(live_bytes) = live_bytes else {
            return Ok(0);
        };
        // Others write meanwhile.
        let trained = (self.inner.coding).train(live_bytes + coming_bytes, moment, pool)?;
        let mut count = trained.len();
        if count == 0 {
            return Ok(0);
        }
        self.with_writer(|inner, writer| {
            let state = inner.shared.state();
            writer.pending = trained;
            let entered = match () {
                () if is_seeded(SeededBug::DictionaryNotAwaited) => inner.show_pending(writer),
                () => inner.checkpoint(writer),
            };
            writer.pending.clear();
            if entered.is_err() {
                inner.coding.restock(&state.dictionaries);
                // Without room it goes on without a dictionary.
                if writer.log.lacks_room {
                    count = 0;
                    return Ok(());
                }
            }
            entered
        })?;
        Ok(count)
    }

    /// Learns from blocks all over the store, before all of it is written again.
    pub(super) fn learn_from_itself(&self) -> Result<usize> {
        let snapshot = self.snapshot();
        for sampled in sample(&snapshot)? {
            self.learn_from(&snapshot, &sampled)?;
        }
        drop(snapshot);
        self.train_for(0, Moment::Moved, &inline_pool()?)
    }

    fn learn_from(&self, snapshot: &Snapshot, sampled: &SampledVolume) -> Result<()> {
        let volume = sampled.volume;
        let mut block = vec![0; snapshot.block_bytes(volume)? as usize];
        for index in &sampled.indexes {
            // An unreadable block is no worse where it is.
            if snapshot.read(volume, *index, &mut block).is_ok() {
                self.inner.coding.learn_of(&block);
            }
        }
        Ok(())
    }
}

/// Blocks of a volume that are to be learned from.
struct SampledVolume {
    volume: u32,
    indexes: Vec<u64>,
}

/// Picks between half of [`SAMPLES`] and all of them from the mapped blocks, or all blocks where there are fewer. Holes
/// may be most of the volumes: the distance between two picks is halved until enough are found.
fn sample(snapshot: &Snapshot) -> Result<Vec<SampledVolume>> {
    let volumes: Vec<u32> = snapshot.volumes().collect();
    let mut total_blocks = 0;
    for volume in &volumes {
        total_blocks += snapshot.size_blocks(*volume)?;
    }
    let mut step = total_blocks.div_ceil(SAMPLES).max(1);
    loop {
        let pick = |volume: &u32| mapped_each(snapshot, *volume, step);
        let sampled: Vec<SampledVolume> = volumes.iter().map(pick).collect::<Result<_>>()?;
        let found: usize = sampled.iter().map(|it| it.indexes.len()).sum();
        if found as u64 >= SAMPLES / 2 || step == 1 {
            return Ok(sampled);
        }
        step /= 2;
    }
}

/// Picks the first mapped block, and then each time the first one that is at least `step` behind the last.
fn mapped_each(snapshot: &Snapshot, volume: u32, step: u64) -> Result<SampledVolume> {
    let mut indexes = Vec::new();
    let mut from = 0;
    while let Some(index) = snapshot.first_mapped(volume, from)? {
        indexes.push(index);
        from = index + step;
    }
    Ok(SampledVolume { volume, indexes })
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::super::model_test::{self as model, options};
    use super::super::{BlocksOptions, Durability};
    use super::*;
    use crate::storage::SimulatedDisk;
    use crate::storage::simulated::Image;
    use crate::testing::seeded;

    const NAME: &str = "store";
    const BLOCKS: u64 = 60;

    fn chosen() -> BlocksOptions {
        options(0)
    }

    fn learn(blocks: &Blocks, random: &mut Rng, language: usize) -> usize {
        let samples: Vec<Vec<u8>> = (0..200).map(|_| model::words(random, language)).collect();
        let samples = samples.iter().map(Vec::as_slice);
        let inline = Pool::new(PoolOptions { worker_count: 0 }).unwrap();
        blocks.learn(samples, 1 << 20, &inline).unwrap()
    }

    fn write_all(blocks: &Blocks, random: &mut Rng, language: usize) -> u64 {
        let mut transaction = blocks.begin().unwrap();
        let volume = transaction
            .create_volume(model::BLOCK_BYTES as u32)
            .unwrap();
        for index in 0..BLOCKS {
            let block = model::words(random, language);
            transaction.write(volume, index, &block).unwrap();
        }
        transaction.commit(Durability::Durable).unwrap();
        let snapshot = blocks.snapshot();
        let stored = (0..BLOCKS).map(|index| {
            let location = snapshot.locate(volume, index).unwrap();
            u64::from(location.expect("a block").stored_bytes())
        });
        stored.sum()
    }

    /// Counts the blocks that can be read.
    fn readable(blocks: &Blocks) -> usize {
        let snapshot = blocks.snapshot();
        let mut block = vec![0; model::BLOCK_BYTES];
        let volumes: Vec<u32> = snapshot.volumes().collect();
        let of = |volume: u32| (0..BLOCKS).map(move |index| (volume, index));
        let all = volumes.into_iter().flat_map(of);
        all.filter(|(volume, index)| snapshot.read(*volume, *index, &mut block).is_ok())
            .count()
    }

    #[test]
    fn a_dictionary_shortens_what_it_knows_and_goes_when_another_knows_more() {
        let mut random = seeded("blocks dictionaries", 51);
        let disk = SimulatedDisk::new(1);
        let blocks = Blocks::create(&*disk.start_process(), NAME, chosen()).unwrap();
        let plain = write_all(&blocks, &mut random, 0);
        assert_eq!(learn(&blocks, &mut random, 0), 1);
        let known = write_all(&blocks, &mut random, 0);
        println!("{plain} bytes became {known}");
        assert!(known < plain * 3 / 4, "{known} of {plain}");
        let first = blocks.inner.shared.state().dictionaries.clone();
        // Samples of the old language are still among those that are trained on.
        let mut tries = 0;
        while learn(&blocks, &mut random, 1) == 0 {
            tries += 1;
            assert!(tries < 4, "{:?}", blocks.stats());
        }
        assert_eq!(blocks.stats().dictionaries, 2);
        model::verify(&blocks);
        // Blocks that need the old one are moved, and it goes.
        blocks.rewrite().unwrap();
        blocks.checkpoint().unwrap();
        model::verify(&blocks);
        assert_eq!(readable(&blocks), 2 * BLOCKS as usize);
        let left = blocks.inner.shared.state().dictionaries.clone();
        let (id, _) = first.iter().next().expect("the first");
        assert!(left.get(id).is_none() && left.len() == 1, "{left:?}");
        drop(blocks);
        let again = Blocks::open(&*disk.start_process(), NAME, chosen()).unwrap();
        assert_eq!(readable(&again), 2 * BLOCKS as usize);
        assert_eq!(again.stats().dictionaries, left.len() as u64);
        model::verify(&again);
    }

    #[test]
    fn blocks_between_holes_are_sampled_however_large_these_are() {
        let mut random = seeded("blocks samples", 54);
        let disk = SimulatedDisk::new(4);
        let blocks = Blocks::create(&*disk.start_process(), NAME, chosen()).unwrap();
        let mut transaction = blocks.begin().unwrap();
        let volume = transaction
            .create_volume(model::BLOCK_BYTES as u32)
            .unwrap();
        transaction.resize(volume, 1 << 32).unwrap();
        for index in 0..2 * SAMPLES {
            let block = model::words(&mut random, 0);
            transaction.write(volume, 1000 + index, &block).unwrap();
        }
        transaction.commit(Durability::Durable).unwrap();
        let sampled = sample(&blocks.snapshot()).unwrap();
        let [SampledVolume { indexes, .. }] = &sampled[..] else {
            panic!("{} volumes", sampled.len());
        };
        assert!((SAMPLES / 2..=SAMPLES).contains(&(indexes.len() as u64)));
        assert!(
            indexes
                .windows(2)
                .all(|pair| pair[1] == pair[0] + 2 || pair[1] == pair[0] + 4)
        );
        assert_eq!(blocks.learn_from_itself().unwrap(), 1);
    }

    fn opened(image: &Image) -> Blocks {
        let disk = SimulatedDisk::from_image(image, 0);
        Blocks::open_read_only(&*disk.start_process(), NAME, chosen()).unwrap()
    }

    #[test]
    fn one_copy_is_enough_and_without_both_only_what_needs_them_is_lost() {
        let mut random = seeded("blocks dictionary copies", 52);
        let disk = SimulatedDisk::new(2);
        let blocks = Blocks::create(&*disk.start_process(), NAME, chosen()).unwrap();
        write_all(&blocks, &mut random, 0);
        assert_eq!(learn(&blocks, &mut random, 0), 1);
        write_all(&blocks, &mut random, 0);
        blocks.checkpoint().unwrap();
        let state = blocks.inner.shared.state();
        let (_, kept) = state.dictionaries.iter().next().expect("one");
        let whole = disk.recording().end();
        for (flipped, faults, least) in [
            (&[0][..], 1, 2 * BLOCKS),
            (&[1], 1, 2 * BLOCKS),
            (&[0, 1], 3, BLOCKS),
        ] {
            let mut image = whole.clone();
            for copy in flipped {
                image.flip_bit(NAME, kept.places[*copy].address() * 8 + 1000);
            }
            let blocks = opened(&image);
            let found = readable(&blocks) as u64;
            let verified = blocks.verify(|_, _| true).unwrap();
            println!(
                "{flipped:?}: {found} readable, {} faults",
                verified.fault_count
            );
            assert!((least..=2 * BLOCKS).contains(&found) && verified.fault_count >= faults);
            assert_eq!(found < 2 * BLOCKS, flipped.len() == 2);
            // The next write makes the first copy whole again.
            if flipped == [0] {
                let disk = SimulatedDisk::from_image(&image, 0);
                let blocks = Blocks::open(&*disk.start_process(), NAME, chosen()).unwrap();
                blocks.checkpoint().unwrap();
                model::verify(&blocks);
            }
        }
    }

    /// Records of a long file may be longer than the segments with which the file began.
    #[test]
    fn a_long_record_is_written_between_short_segments() {
        let mut random = seeded("blocks long records", 54);
        let disk = SimulatedDisk::new(5);
        let options = BlocksOptions {
            segment_bytes_min: 8192,
            method: Some("store".parse().unwrap()),
            ..chosen()
        };
        let blocks = Blocks::create(&*disk.start_process(), NAME, options).unwrap();
        for language in 0..60 {
            write_all(&blocks, &mut random, language % 4);
        }
        // Now the short segments are free.
        blocks.rewrite().unwrap();
        let mut longest = 0;
        let written = blocks.with_writer(|_, writer| {
            for _ in 0..100 {
                for body_bytes in [3_000, 10_000] {
                    let body = vec![0; body_bytes];
                    writer.log.append(Label::default(), &[&body])?;
                    longest = longest.max(writer.log.current().bytes);
                }
            }
            Ok(())
        });
        written.unwrap();
        assert!(longest >= 2 * 8192, "{longest}");
    }

    #[test]
    fn another_process_reads_what_a_new_dictionary_made() {
        let mut random = seeded("blocks dictionaries of others", 53);
        let disk = SimulatedDisk::new(3);
        let guarded = BlocksOptions {
            is_guarded: true,
            ..chosen()
        };
        let first = Blocks::create(&*disk.start_process(), NAME, guarded).unwrap();
        let second = Blocks::open(&*disk.start_process(), NAME, guarded).unwrap();
        for language in 0..3 {
            let (writer, reader) = match language % 2 {
                0 => (&first, &second),
                _ => (&second, &first),
            };
            drop(writer.newest().unwrap());
            let trained = (0..4).map(|_| learn(writer, &mut random, language));
            assert!(trained.sum::<usize>() > 0);
            write_all(writer, &mut random, language);
            drop(reader.newest().unwrap());
            assert_eq!(readable(reader) as u64, (language as u64 + 1) * BLOCKS);
            model::verify(reader);
        }
    }
}
