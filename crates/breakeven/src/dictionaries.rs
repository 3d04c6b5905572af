//! Dictionaries by class: samples, training, generations, and the body of their records.
//!
//! A place hands in samples of its blocks ([`Dictionaries::sample`]). Now and then it asks whether training is due, and
//! it trains where it has processor time to spare. A dictionary is judged on samples that it was not trained on. The
//! smallest size within 2 % of the best is kept, and none where the best saves too little. Each is a [`Generation`] of
//! its class under a number of the store, is never changed, and lives until nothing stored names it.
//!
//! There is no clock here and no I/O. The caller bounds the work by samples, and may stop it between two sizes. A
//! durable store writes the record's body twice, and gives both copies back when it opens.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::codec::{Compressor, DICTIONARY_BYTES_MAX, Dictionary, DictionaryHash, Method};
use crate::error::{Error, Result};

/// The kind of data in a block: an opaque number of the place.
pub type Class = u64;

/// Samples shorter than this teach zstd's trainer nothing (zdict.h).
const SAMPLE_BYTES_MIN: usize = 8;
/// Training wants at least this many times the dictionary's size in samples. zstd recommends a hundred. A size with too
/// few samples loses by itself, as sizes are judged on samples that they have not seen.
const SAMPLES_TO_SIZE_MIN: usize = 10;
/// One sample in this many is held out of training and judges it.
const HELD_OUT_EVERY: usize = 5;
/// A smaller dictionary is taken if it stores at most this many times what the best one stores.
const STORED_TOLERANCE: f64 = 1.02;
/// The bytes of a record's body before the dictionary's own.
const BODY_HEAD_BYTES: usize = 32;

/// How dictionaries are made and kept.
#[derive(Clone, Debug)]
pub struct DictionaryOptions {
    /// The bytes of samples kept for each class. Default 1 MiB.
    pub sample_bytes_max: usize,
    /// The most classes that are sampled; others get no dictionary. Default 32.
    pub classes_max: usize,
    /// The most memory of all generations together, prepared forms included, at which no more is trained.
    /// Default 16 MiB.
    pub memory_bytes_max: usize,
    /// The sizes that are tried, ascending. Default 4, 16, 32 and 64 KiB.
    pub sizes: Vec<usize>,
    /// The method that judges dictionaries. Default `zstd:3`.
    pub method: Method,
    /// The least share of the stored bytes that a dictionary must save to be kept. Default 0.02.
    pub saving_min: f64,
}

impl Default for DictionaryOptions {
    fn default() -> DictionaryOptions {
        DictionaryOptions {
            sample_bytes_max: 1 << 20,
            classes_max: 32,
            memory_bytes_max: 16 << 20,
            sizes: vec![4 << 10, 16 << 10, 32 << 10, 64 << 10],
            method: "zstd:3".parse().expect("a method"),
            saving_min: 0.02,
        }
    }
}

impl DictionaryOptions {
    fn check(&self) -> Result<()> {
        let fault = |reason: String| Err(Error::invalid("dictionary options", reason));
        self.method.check()?;
        if self.sizes.is_empty() || !self.sizes.is_sorted() {
            return fault(format!("sizes {:?} are not ascending", self.sizes));
        }
        if self
            .sizes
            .last()
            .is_some_and(|size| *size > DICTIONARY_BYTES_MAX)
        {
            return fault(format!("sizes {:?} pass 1 MiB", self.sizes));
        }
        if !(0.0..1.0).contains(&self.saving_min) {
            return fault(format!("a saving of {} of all", self.saving_min));
        }
        Ok(())
    }
}

/// One dictionary of a class.
#[derive(Debug)]
pub struct Generation {
    /// The store's number of it, never 0: the decoder's field (docs/format.md).
    pub id: u32,
    /// The class it was trained for.
    pub class: Class,
    /// The number of the dictionary within its class, from 1.
    pub number: u32,
    /// The dictionary.
    pub dictionary: Dictionary,
}

impl Generation {
    /// Lays out the body of a record that holds the dictionary. A store writes it twice.
    pub fn body(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(BODY_HEAD_BYTES + self.dictionary.bytes().len());
        body.extend_from_slice(&self.id.to_le_bytes());
        body.extend_from_slice(&self.number.to_le_bytes());
        body.extend_from_slice(&self.class.to_le_bytes());
        body.extend_from_slice(&self.dictionary.hash().0);
        body.extend_from_slice(self.dictionary.bytes());
        body
    }

    /// Reads the body of a record and holds the dictionary to its name.
    ///
    /// # Errors
    /// `Corrupt` if it is too short, has a number 0, or its bytes do not have the name.
    pub fn from_body(body: &[u8]) -> Result<Generation> {
        let Some((head, bytes)) = body.split_at_checked(BODY_HEAD_BYTES) else {
            let found = format!("{} bytes", body.len());
            return Err(Error::corrupt(
                "dictionary record",
                0,
                "32 bytes and more",
                found,
            ));
        };
        let u32_at = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().expect("four"));
        let (id, number) = (u32_at(0), u32_at(4));
        if id == 0 || number == 0 {
            let found = format!("{id} and {number}");
            return Err(Error::corrupt(
                "dictionary record",
                0,
                "numbers from 1",
                found,
            ));
        }
        let name = DictionaryHash(*head[16..].first_chunk().expect("sixteen bytes"));
        if bytes.is_empty() || bytes.len() > DICTIONARY_BYTES_MAX {
            let found = format!("{} bytes", bytes.len());
            return Err(Error::corrupt(
                "dictionary record",
                32,
                "1 B to 1 MiB",
                found,
            ));
        }
        Ok(Generation {
            id,
            class: u64::from_le_bytes(*head[8..].first_chunk().expect("eight bytes")),
            number,
            dictionary: Dictionary::verified(bytes, name)?,
        })
    }
}

/// The samples and generations of one class.
#[derive(Debug, Default)]
struct ClassState {
    samples: VecDeque<Arc<[u8]>>,
    sample_bytes: usize,
    /// Bytes sampled since the last training.
    fresh_bytes: usize,
    /// How many trainings in a row brought nothing: each doubles what the next one waits for.
    failures: u32,
    current: Option<Arc<Generation>>,
    last_number: u32,
}

/// Samples and generations of all classes of a store.
///
/// # Cost
/// `sample_bytes_max` for each class that was sampled, and [`Dictionary::memory_bytes`] for each
/// generation.
#[derive(Debug)]
pub struct Dictionaries {
    options: DictionaryOptions,
    classes: BTreeMap<Class, ClassState>,
    generations: BTreeMap<u32, Arc<Generation>>,
    last_id: u32,
}

/// The work of training a class, which needs the dictionaries no more and may run elsewhere.
#[derive(Debug)]
pub struct Training {
    class: Class,
    samples: Vec<Arc<[u8]>>,
    present: Option<Arc<Generation>>,
    options: DictionaryOptions,
}

impl Dictionaries {
    /// Makes an empty collection.
    ///
    /// # Errors
    /// `Invalid` for options out of range.
    pub fn new(options: DictionaryOptions) -> Result<Dictionaries> {
        options.check()?;
        Ok(Dictionaries {
            options,
            classes: BTreeMap::new(),
            generations: BTreeMap::new(),
            last_id: 0,
        })
    }

    /// Keeps a block as a sample of its class, in place of the oldest ones where there is no room. A
    /// block that teaches nothing or would fill an eighth of the room is not kept, nor one of a class too
    /// many.
    pub fn sample(&mut self, class: Class, bytes: &[u8]) {
        let room = self.options.sample_bytes_max;
        let is_known = self.classes.contains_key(&class);
        let has_place = is_known || self.classes.len() < self.options.classes_max;
        if !has_place || !(SAMPLE_BYTES_MIN..=room / 8).contains(&bytes.len()) {
            return;
        }
        let state = self.classes.entry(class).or_default();
        state.samples.push_back(Arc::from(bytes));
        state.sample_bytes += bytes.len();
        state.fresh_bytes = state.fresh_bytes.saturating_add(bytes.len());
        while state.sample_bytes > room {
            let oldest = state.samples.pop_front().expect("a sample");
            state.sample_bytes -= oldest.len();
        }
    }

    /// Whether a class has enough new samples for its next training. The first training takes ten times the smallest
    /// size, and a later one a whole new set of samples. Each training that brought nothing doubles the number.
    pub fn train_due(&self, class: Class) -> bool {
        let Some(state) = self.classes.get(&class) else {
            return false;
        };
        let first =
            self.options.sizes[0] * SAMPLES_TO_SIZE_MIN * HELD_OUT_EVERY / (HELD_OUT_EVERY - 1);
        let wanted = match state.current {
            None => first,
            Some(_) => self.options.sample_bytes_max.max(first),
        };
        let factor = 1usize << state.failures.min(20);
        state.fresh_bytes >= wanted.saturating_mul(factor)
            && self.memory_bytes() < self.options.memory_bytes_max
    }

    /// Trains a class on at most `sample_bytes` of its newest samples. `None` if no dictionary pays, or the present one
    /// still does as well. `is_spent` is asked before each size.
    ///
    /// # Errors
    /// Those of compressing.
    pub fn train(
        &mut self,
        class: Class,
        sample_bytes: usize,
        is_spent: impl FnMut() -> bool,
    ) -> Result<Option<Arc<Generation>>> {
        match self.training(class, sample_bytes) {
            Some(training) => {
                let trained = training.run(is_spent)?;
                Ok(self.adopt(class, trained))
            }
            None => Ok(None),
        }
    }

    /// Takes the newest samples of a class for training elsewhere; [`Dictionaries::adopt`] takes what
    /// comes of it.
    pub fn training(&mut self, class: Class, sample_bytes: usize) -> Option<Training> {
        if self.memory_bytes() >= self.options.memory_bytes_max {
            return None;
        }
        let state = self.classes.get_mut(&class)?;
        state.fresh_bytes = 0;
        let mut room = sample_bytes;
        let newest = state.samples.iter().rev();
        let samples = newest.take_while(|sample| {
            let fits = sample.len() <= room;
            room = room.saturating_sub(sample.len());
            fits
        });
        Some(Training {
            class,
            samples: samples.cloned().collect(),
            present: state.current.clone(),
            options: self.options.clone(),
        })
    }

    /// Makes what training brought the newest generation of its class, under a number never given before.
    pub fn adopt(&mut self, class: Class, trained: Option<Dictionary>) -> Option<Arc<Generation>> {
        let state = self.classes.entry(class).or_default();
        let Some(dictionary) = trained else {
            state.failures += 1;
            return None;
        };
        state.failures = 0;
        // Numbers are given in order; four thousand million of them outlast any store.
        self.last_id = self.last_id.checked_add(1)?;
        state.last_number += 1;
        let generation = Arc::new(Generation {
            id: self.last_id,
            class,
            number: state.last_number,
            dictionary,
        });
        state.current = Some(Arc::clone(&generation));
        self.generations
            .insert(generation.id, Arc::clone(&generation));
        Some(generation)
    }

    /// Takes back a dictionary that a store wrote, from the first of its copies that is whole.
    ///
    /// # Errors
    /// `Corrupt` if no copy is, or another dictionary has its number.
    pub fn restore(&mut self, copies: [&[u8]; 2]) -> Result<Arc<Generation>> {
        let [first, second] = copies;
        let generation = Generation::from_body(first).or_else(|fault| {
            // The fault of the first copy says more than that of the second.
            Generation::from_body(second).map_err(|_| fault)
        })?;
        if let Some(known) = self.generations.get(&generation.id) {
            let names = [known, &generation].map(|it| it.dictionary.hash());
            if names[0] != names[1] {
                return Err(Error::corrupt("dictionary record", 0, names[0], names[1]));
            }
            return Ok(Arc::clone(known));
        }
        let generation = Arc::new(generation);
        self.take(Arc::clone(&generation));
        Ok(generation)
    }

    fn take(&mut self, generation: Arc<Generation>) {
        self.last_id = self.last_id.max(generation.id);
        let state = self.classes.entry(generation.class).or_default();
        state.last_number = state.last_number.max(generation.number);
        let newest = state.current.as_ref().map_or(0, |current| current.number);
        if generation.number > newest {
            state.current = Some(Arc::clone(&generation));
        }
        self.generations.insert(generation.id, generation);
    }

    /// Takes the generations of a store for those there are, whatever there was; samples stay. Numbers above `last_id`
    /// are given next.
    pub fn restock(&mut self, generations: impl Iterator<Item = Arc<Generation>>, last_id: u32) {
        self.generations.clear();
        for state in self.classes.values_mut() {
            (state.current, state.last_number) = (None, 0);
        }
        self.last_id = last_id;
        for generation in generations {
            self.take(generation);
        }
    }

    /// Returns the newest generation of a class.
    pub fn current(&self, class: Class) -> Option<&Arc<Generation>> {
        self.classes.get(&class)?.current.as_ref()
    }

    /// Returns a generation by the store's number.
    pub fn by_id(&self, id: u32) -> Option<&Arc<Generation>> {
        self.generations.get(&id)
    }

    /// Forgets the old generations of each class that nothing stored names. Returns their numbers, whose records may
    /// go.
    pub fn drop_unused(&mut self, mut is_used: impl FnMut(u32) -> bool) -> Vec<u32> {
        let classes = &self.classes;
        let is_current = |generation: &Generation| {
            let current = classes
                .get(&generation.class)
                .and_then(|state| state.current.as_ref());
            current.is_some_and(|current| current.id == generation.id)
        };
        let mut dropped = Vec::new();
        self.generations.retain(|id, generation| {
            let stays = is_current(generation) || is_used(*id);
            if !stays {
                dropped.push(*id);
            }
            stays
        });
        dropped
    }

    /// Returns the generations that nobody but this collection holds. A place that gives each value its generation may
    /// drop them ([`Dictionaries::drop_unused`]).
    pub fn unused(&self) -> Vec<u32> {
        let is_unused = |it: &&Arc<Generation>| Arc::strong_count(it) == 1;
        let unused = self.generations.values().filter(is_unused);
        unused.map(|generation| generation.id).collect()
    }

    /// Returns the bytes of all samples.
    pub fn sample_bytes(&self) -> usize {
        self.classes.values().map(|state| state.sample_bytes).sum()
    }

    /// Returns the memory of all generations.
    pub fn memory_bytes(&self) -> usize {
        let generations = self.generations.values();
        generations
            .map(|generation| generation.dictionary.memory_bytes())
            .sum()
    }
}

impl Training {
    /// Returns the class that is trained.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Leaves out the sizes above `size_bytes`, and of the samples so many that `sample_bytes` of them are left.
    pub fn at_most(mut self, size_bytes: usize, sample_bytes: usize) -> Training {
        self.options.sizes.retain(|size| *size <= size_bytes);
        let total: usize = self.samples.iter().map(|sample| sample.len()).sum();
        let one_in = total.div_ceil(sample_bytes.max(1)).max(1);
        let mut count = 0;
        self.samples.retain(|_| {
            count += 1;
            count % one_in == 0
        });
        self
    }

    /// Tries the sizes and returns the dictionary to keep, if any; `is_spent` is asked before each size.
    ///
    /// # Errors
    /// Those of compressing.
    ///
    /// # Cost
    /// For each size: zstd's trainer over the samples (some tens of nanoseconds a byte), and the judging method over a
    /// fifth of them. The judging method runs twice more, without a dictionary and with the present one.
    pub fn run(&self, mut is_spent: impl FnMut() -> bool) -> Result<Option<Dictionary>> {
        let mut tried = Vec::new();
        for size in self.sizes() {
            if is_spent() {
                break;
            }
            let made = self.try_size(*size)?;
            let is_last = made.is_none();
            tried.push(made);
            if is_last {
                break;
            }
        }
        self.decide(tried)
    }

    /// Returns the sizes that [`Training::run`] tries. Any thread may do one, and [`Training::decide`] takes what came
    /// of them in their order.
    pub fn sizes(&self) -> &[usize] {
        &self.options.sizes
    }

    /// Trains a dictionary of a size and judges it; `None` where the samples are not enough for it.
    ///
    /// # Errors
    /// As [`Training::run`].
    pub fn try_size(&self, size: usize) -> Result<Option<Tried>> {
        let numbered = self.samples.iter().enumerate();
        let taught = numbered.filter(|(at, _)| !is_held_out(*at));
        let taught: Vec<&[u8]> = taught.map(|(_, sample)| &**sample).collect();
        let taught_bytes: usize = taught.iter().map(|sample| sample.len()).sum();
        if taught_bytes < size * SAMPLES_TO_SIZE_MIN {
            return Ok(None);
        }
        // The trainer refuses samples that are too alike or too few; a larger size will fare no better.
        let Ok(dictionary) = Dictionary::train(&taught, size) else {
            return Ok(None);
        };
        let stored_bytes = self.judge(Some(&dictionary))?;
        Ok(Some(Tried {
            stored_bytes,
            dictionary,
        }))
    }

    /// Returns the dictionary to keep, if any, of those that were tried, up to the first size for which there was none.
    ///
    /// # Errors
    /// As [`Training::run`].
    pub fn decide(&self, tried: Vec<Option<Tried>>) -> Result<Option<Dictionary>> {
        let made: Vec<Tried> = tried.into_iter().map_while(|tried| tried).collect();
        let Some(least) = made.iter().map(|tried| tried.stored_bytes).min() else {
            return Ok(None);
        };
        let present = self
            .present
            .as_ref()
            .map(|generation| &generation.dictionary);
        let known = self.judge(None)?.min(self.judge(present)?);
        let tolerated = least as f64 * STORED_TOLERANCE;
        let kept = made
            .into_iter()
            .find(|tried| tried.stored_bytes as f64 <= tolerated);
        let pays = |stored: usize| stored as f64 <= known as f64 * (1.0 - self.options.saving_min);
        Ok(kept
            .filter(|tried| pays(tried.stored_bytes))
            .map(|tried| tried.dictionary))
    }

    /// Returns what a dictionary makes of the samples that were held out.
    fn judge(&self, dictionary: Option<&Dictionary>) -> Result<usize> {
        let numbered = self.samples.iter().enumerate();
        let held_out = numbered.filter(|(at, _)| is_held_out(*at));
        let held_out: Vec<&[u8]> = held_out.map(|(_, sample)| &**sample).collect();
        Judge::new(self.options.method, &held_out).stored_bytes(dictionary)
    }
}

/// A dictionary of one size, and its ratio on samples that it was not trained on.
#[derive(Debug)]
pub struct Tried {
    stored_bytes: usize,
    dictionary: Dictionary,
}

fn is_held_out(at: usize) -> bool {
    at % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
}

/// Compresses the samples that were held out.
struct Judge<'a> {
    method: Method,
    held_out: &'a [&'a [u8]],
    compressor: Compressor,
    target: Vec<u8>,
}

impl<'a> Judge<'a> {
    fn new(method: Method, held_out: &'a [&'a [u8]]) -> Judge<'a> {
        let longest = held_out
            .iter()
            .map(|sample| sample.len())
            .max()
            .unwrap_or(0);
        Judge {
            method,
            held_out,
            compressor: Compressor::new(),
            target: vec![0; longest],
        }
    }

    /// Returns what all samples together take; one that does not shrink is stored as it is.
    fn stored_bytes(&mut self, dictionary: Option<&Dictionary>) -> Result<usize> {
        let mut total = 0;
        for sample in self.held_out {
            let target = &mut self.target[..sample.len()];
            let size = match dictionary {
                Some(dictionary) => {
                    (self.compressor).compress_with(self.method, dictionary, sample, target)?
                }
                None => self.compressor.compress(self.method, sample, target)?,
            };
            total += size.unwrap_or(sample.len());
        }
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seeded;

    fn record(random: &mut fastrand::Rng, word: &str) -> Vec<u8> {
        let mut text = format!(
            "{{\"kind\":\"{word}\",\"id\":{},\"scores\":[",
            random.u32(..)
        );
        for _ in 0..random.usize(1..9) {
            text += &format!("{{\"{word}_score\":{}}},", random.u16(..1000));
        }
        (text + "],\"comment\":\"pays for itself\"}").into_bytes()
    }

    fn fill(dictionaries: &mut Dictionaries, class: Class, random: &mut fastrand::Rng, word: &str) {
        while !dictionaries.train_due(class) {
            dictionaries.sample(class, &record(random, word));
        }
    }

    fn new() -> Dictionaries {
        Dictionaries::new(DictionaryOptions::default()).unwrap()
    }

    #[test]
    fn a_class_is_trained_when_it_pays_and_again_when_its_data_change() {
        let mut random = seeded("classes", 22);
        let mut dictionaries = new();
        assert!(!dictionaries.train_due(3) && dictionaries.current(3).is_none());
        fill(&mut dictionaries, 3, &mut random, "alpha");
        let first = dictionaries
            .train(3, usize::MAX, || false)
            .unwrap()
            .unwrap();
        assert_eq!((first.id, first.class, first.number), (1, 3, 1));
        assert_eq!(dictionaries.current(3).unwrap().id, 1);
        // More of the same brings nothing, and the next training waits for twice as much.
        fill(&mut dictionaries, 3, &mut random, "alpha");
        assert!(
            dictionaries
                .train(3, usize::MAX, || false)
                .unwrap()
                .is_none()
        );
        fill(&mut dictionaries, 3, &mut random, "another_kind_of_word");
        let second = dictionaries
            .train(3, usize::MAX, || false)
            .unwrap()
            .unwrap();
        assert_eq!((second.id, second.number), (2, 2));
        assert_eq!(dictionaries.drop_unused(|id| id == 1), [0u32; 0]);
        assert_eq!(dictionaries.drop_unused(|_| false), [1]);
        assert!(dictionaries.by_id(1).is_none() && dictionaries.by_id(2).is_some());
    }

    #[test]
    fn noise_gets_none_and_budgets_are_kept() {
        let mut random = seeded("noise", 23);
        let mut dictionaries = new();
        while !dictionaries.train_due(1) {
            let noise: Vec<u8> = (0..300).map(|_| random.u8(..)).collect();
            dictionaries.sample(1, &noise);
        }
        assert!(
            dictionaries
                .train(1, usize::MAX, || false)
                .unwrap()
                .is_none()
        );
        assert!(!dictionaries.train_due(1));
        fill(&mut dictionaries, 2, &mut random, "beta");
        assert!(
            dictionaries
                .train(2, usize::MAX, || true)
                .unwrap()
                .is_none()
        );
        fill(&mut dictionaries, 2, &mut random, "beta");
        assert!(dictionaries.train(2, 20_000, || false).unwrap().is_none());
        let full = DictionaryOptions {
            memory_bytes_max: 0,
            ..DictionaryOptions::default()
        };
        let mut full = Dictionaries::new(full).unwrap();
        full.sample(1, &[7; 100]);
        assert!(full.training(1, usize::MAX).is_none());
        for class in 0..100 {
            dictionaries.sample(class, &[1; 100]);
        }
        assert_eq!(dictionaries.classes.len(), 32);
    }

    #[test]
    fn a_record_comes_back_from_either_copy_and_no_bit_of_it_flips_unnoticed() {
        let mut random = seeded("records", 24);
        let mut dictionaries = new();
        fill(&mut dictionaries, 9, &mut random, "gamma");
        let made = dictionaries
            .train(9, usize::MAX, || false)
            .unwrap()
            .unwrap();
        let body = made.body();
        let mut bad = body.clone();
        for (copies, expected) in [([&body, &body], true), ([&body[..5].to_vec(), &body], true)] {
            let mut other = new();
            let found = other.restore(copies.map(|copy| &copy[..]));
            assert_eq!(found.is_ok(), expected);
            assert_eq!(
                other.current(9).unwrap().dictionary.hash(),
                made.dictionary.hash()
            );
            assert_eq!(other.adopt(9, None).map(|_| ()), None);
        }
        // The record's own checksum guards the numbers; the name guards itself and the bytes.
        for bit in 16 * 8..body.len() * 8 {
            if bit > 48 * 8 && bit % 31 > 0 {
                continue;
            }
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(new().restore([&bad, &bad]).is_err(), "bit {bit}");
            bad[bit / 8] ^= 1 << (bit % 8);
        }
        for length in 0..40 {
            assert!(Generation::from_body(&body[..length]).is_err());
        }
    }
}
