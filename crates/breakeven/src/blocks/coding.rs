//! The encoding of each block. The chooser picks it at this place's prices, when the block is written and again when
//! the cleaner moves it.
//!
//! The caller sets the worth of a byte of the file ([`BlocksOptions::seconds_per_gb`]) and the kind of each block
//! ([`BlocksOptions::kind`]). A writer waits for the encoding, less the part that its sync hides. Moved blocks stay, so
//! bytes count more there.
//!
//! A caller that is about to write or move very much shows samples first. A dictionary trained on those of a kind adds
//! further methods of the codecs that can use one, once a checkpoint holds it. Nothing is trained behind commits: it
//! took seven times the processor time of writing pages over, to save a twelfth of the file.
//!
//! No clock is read: a method's time is the published one ([`crate::decide`]). Its result is measured here. Every
//! method is run in memory on the first blocks of a kind and on a small share of the others, and its output is thrown
//! away. So the same blocks are stored in the same way, however busy the machine is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::BlocksOptions;
use super::dictionary::KeptDictionaries;
use super::file::Workspace;
use crate::codec::{Decoder, Glance, Method};
use crate::decide::holdout::Holdout;
use crate::decide::{
    BlockLife, Candidate, Chooser, ChooserOptions, Class, Observation, Prices, Profile, Quantities,
};
use crate::dictionaries::{Dictionaries, DictionaryOptions, Generation, Training};
use crate::error::Result;
use crate::model::Allocation;
use crate::pool::Pool;
use crate::storage::record::{ALIGNMENT_BYTES, HEADER_BYTES};
use crate::units::Estimate;

const ZSTD: Decoder = Decoder {
    codec: Decoder::CODEC_ZSTD,
    ..Decoder::STORE
};

/// The methods to choose from when a block is moved. A written block uses the first of them.
const METHODS: [&str; 12] = [
    "store",
    "lz4:1",
    "zstd:1",
    "zstd:1+dict",
    "zstd:3",
    "zstd:3+dict",
    "zstd:6",
    "zstd:6+dict",
    "zstd:9",
    "zstd:9+dict",
    "zstd:15",
    "zstd:15+dict",
];
const WRITTEN_METHODS: usize = 6;
/// The worth of a byte that is moved over that of a written one. It outlived the others around it, and each later
/// cleaning moves it again.
const CLEAN_WORTH: f64 = 2.0;
/// Encoding that a transaction may take unnoticed: a tenth of a sync of 100 microseconds, which is a fast one.
const HIDDEN_SECONDS: f64 = 10e-6;
/// A dictionary is at most this part of the segment by which the file grows, or a half, a quarter or an eighth of that.
const DICTIONARY_PART: usize = 2;
const DICTIONARY_BYTES_MAX: usize = 32 << 10;
/// Samples of each class, in longest dictionaries. zstd's trainer asks for a hundred, and takes longer by as much.
const SAMPLED_DICTIONARIES: usize = 32;
/// Classes with dictionaries.
const CLASSES_MAX: usize = 8;
/// The share of the stored bytes that a dictionary must save.
const SAVING_MIN: f64 = 0.08;
/// The seconds of training for each byte of samples, the four sizes and their judging together: `proj.db`, on one core.
const TRAINING_SECONDS_PER_BYTE: f64 = 150e-9;
/// The number of blocks of each kind that are measured first.
const FIRST_BLOCKS: u64 = 4;

/// A block's properties for the choice of its encoding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// The kind of its data: blocks of one class are stored alike.
    pub class: Class,
    /// The reads of a block after each write of it.
    pub reads_per_write: f64,
}

impl Kind {
    /// Returns the kind of a block that is read three times, the middle of servers' workloads (Kothiyal 2009, section
    /// 5.6).
    pub fn of(class: Class) -> Kind {
        Kind {
            class,
            reads_per_write: 3.0,
        }
    }

    /// Returns the kind of a block by a glance at its bytes.
    pub fn at_a_glance(block: &[u8]) -> Kind {
        Kind::of(Class::glance(&Glance::of(block)))
    }
}

/// The occasion of an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Written,
    Moved,
}

/// A block that is to be encoded.
pub(super) struct Subject<'a> {
    pub(super) block: &'a [u8],
    pub(super) moment: Moment,
    /// The dictionaries to encode with.
    pub(super) dictionaries: &'a KeptDictionaries,
    /// The block's hash, to draw by.
    pub(super) hash: u64,
    /// The greatest length that an encoding may have, in bytes.
    pub(super) limit: usize,
}

/// The encoding of a store's blocks.
pub(super) struct Coding {
    kind: fn(&[u8]) -> Kind,
    /// The one method of each moment, if there is one.
    fixed: [Option<Method>; 2],
    ways: Mutex<[Way; 2]>,
    trainer: Mutex<Trainer>,
}

/// The source of dictionaries.
struct Trainer {
    /// `None` where no method may use one.
    dictionaries: Option<Dictionaries>,
    /// The share of their class's stored bytes that dictionaries may take.
    share: f64,
    /// The worth of a byte at each moment, in seconds of a core.
    per_byte: [f64; 2],
    size_min: usize,
    /// Raw bytes of each class among the samples that were offered.
    seen: BTreeMap<Class, u64>,
}

/// One of the two moments.
struct Way {
    chooser: Chooser,
    /// By candidate.
    needs_dictionary: Vec<bool>,
    prices: Prices,
    /// The number of measured blocks of each class, by the dictionary at that time.
    measured: BTreeMap<(Class, u32), u64>,
}

/// Bytes of zeros passed over at a time: a few of the processor's widest words.
const STRIDE_BYTES: usize = 8 * ALIGNMENT_BYTES;

/// Returns a block without the zeros at its end, in units of a record. The ends of files have many, and so have pages
/// that are not full. They are not stored, and are quicker filled in than decoded. Nothing is left of a block of zeros.
///
/// # Panics
/// If the length is no multiple of 16.
pub fn without_tail(block: &[u8]) -> &[u8] {
    let (_, strides) = block.as_rchunks::<STRIDE_BYTES>();
    let is_used = |stride: &[u8; STRIDE_BYTES]| stride.iter().fold(0, |all, byte| all | byte) != 0;
    let zeros = strides.iter().rev().take_while(|stride| !is_used(stride));
    let block = &block[..block.len() - zeros.count() * STRIDE_BYTES];
    let (units, rest) = block.as_chunks::<ALIGNMENT_BYTES>();
    assert!(rest.is_empty(), "{} bytes are no block", block.len());
    let used = units.iter().rposition(|unit| *unit != [0; ALIGNMENT_BYTES]);
    &block[..used.map_or(0, |last| (last + 1) * ALIGNMENT_BYTES)]
}

/// The decision about a block.
struct Pick {
    method: Method,
    /// The expected core time.
    encode: f64,
}

/// The chosen encoding of a block. It is chosen in the order of the blocks, so that the same ones are stored in the
/// same way. Any thread may carry it out.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    method: Method,
    dictionary: Option<Arc<Generation>>,
}

impl Default for Chosen {
    /// As it is.
    fn default() -> Chosen {
        Chosen::new(Method::STORE, None)
    }
}

impl Chosen {
    fn new(method: Method, dictionary: Option<&Arc<Generation>>) -> Chosen {
        Chosen {
            method,
            dictionary: dictionary.filter(|_| method.dictionary).cloned(),
        }
    }

    /// Encodes the block into the workspace, as [`Coding::encode`] does.
    pub(super) fn encode(
        &self,
        workspace: &mut Workspace,
        block: &[u8],
        limit: usize,
    ) -> Result<Option<(Decoder, usize)>> {
        match self.method {
            Method::STORE => Ok(None),
            method => encode(method, self.dictionary.as_ref(), workspace, block, limit),
        }
    }
}

/// The rest of a transaction's encoding time that its sync still hides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hidden(f64);

impl Default for Hidden {
    fn default() -> Hidden {
        Hidden(HIDDEN_SECONDS)
    }
}

impl Hidden {
    /// With nobody waiting there is nothing to hide.
    pub(super) const NONE: Hidden = Hidden(0.0);
}

impl Coding {
    /// Makes one for a store that has room for records of such a length.
    pub(super) fn new(options: &BlocksOptions, record_bytes: u64) -> Coding {
        let per_byte = options.seconds_per_gb.max(0.0) / 1e9;
        let rested_per_byte = per_byte.max(options.rest_seconds_per_gb / 1e9);
        let way = |names: &[&str], per_byte_written| {
            let candidate = |name: &&str| Candidate::new(name.parse().expect("a method"));
            let candidates: Vec<Candidate> = names.iter().map(candidate).collect();
            let options = ChooserOptions {
                // A drawn block is measured with every method, so nothing has to be tried.
                trial_share: 0.0,
                ..ChooserOptions::default()
            };
            Way {
                needs_dictionary: candidates.iter().map(|it| it.method.dictionary).collect(),
                chooser: Chooser::new(candidates, Profile::default(), options),
                prices: Prices {
                    per_core_second: Estimate::exact(1.0),
                    per_byte_written: Estimate::exact(per_byte_written),
                    ..Prices::default()
                },
                measured: BTreeMap::new(),
            }
        };
        let sizes = dictionary_sizes(record_bytes as usize);
        let uses_any = [options.method, options.clean_method].iter().any(|fixed| {
            let uses_one = |method: Method| method.dictionary;
            fixed.is_none_or(uses_one)
        });
        let trainer = Trainer {
            share: options.dictionary_share,
            per_byte: [per_byte, rested_per_byte],
            size_min: sizes[0],
            seen: BTreeMap::new(),
            dictionaries: (uses_any && options.dictionary_share > 0.0)
                .then(|| Dictionaries::new(training(sizes)).expect("sizes in order")),
        };
        let written = way(&METHODS[..WRITTEN_METHODS], per_byte);
        let moved = way(&METHODS, rested_per_byte * CLEAN_WORTH);
        Coding {
            kind: options.kind,
            fixed: [options.method, options.clean_method],
            ways: Mutex::new([written, moved]),
            trainer: Mutex::new(trainer),
        }
    }

    fn trainer(&self) -> MutexGuard<'_, Trainer> {
        self.trainer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ways(&self) -> MutexGuard<'_, [Way; 2]> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes a block into the workspace as is best at its moment. Returns the method and the length, or `None` if it
    /// is to stay as it is.
    pub(super) fn encode(
        &self,
        subject: &Subject<'_>,
        hidden: &mut Hidden,
        workspace: &mut Workspace,
    ) -> Result<Option<(Decoder, usize)>> {
        let chosen = self.choose(subject, hidden, workspace)?;
        chosen.encode(workspace, subject.block, subject.limit)
    }

    /// Encodes the block as densely as it can be, for a file that finds no room to grow.
    pub(super) fn encode_densely(
        &self,
        subject: &Subject<'_>,
        workspace: &mut Workspace,
    ) -> Result<Option<(Decoder, usize)>> {
        if subject.block.is_empty() {
            return Chosen::default().encode(workspace, subject.block, subject.limit);
        }
        let kind = (self.kind)(subject.block);
        let dictionary = subject.dictionaries.current(kind.class.number().into());
        let densest = self.fixed[Moment::Moved as usize].unwrap_or_else(|| {
            let mut densest: Method = METHODS[METHODS.len() - 1].parse().expect("a method");
            densest.dictionary = dictionary.is_some();
            densest
        });
        Chosen::new(densest, dictionary).encode(workspace, subject.block, subject.limit)
    }

    /// Chooses the best encoding of a block at its moment.
    pub(super) fn choose(
        &self,
        subject: &Subject<'_>,
        hidden: &mut Hidden,
        workspace: &mut Workspace,
    ) -> Result<Chosen> {
        let at = subject.moment as usize;
        if subject.block.is_empty() {
            return Ok(Chosen::default());
        }
        let fixed = self.fixed[at];
        if let Some(method) = fixed.filter(|method| !method.dictionary) {
            return Ok(Chosen::new(method, None));
        }
        let kind = (self.kind)(subject.block);
        let dictionary = subject.dictionaries.current(kind.class.number().into());
        if let Some(method) = fixed {
            return Ok(Chosen::new(method, dictionary));
        }
        let life = life(&kind, subject.block.len());
        let mut ways = self.ways();
        if ways[at].draws(&life, dictionary, subject.hash) {
            // Others may choose meanwhile.
            drop(ways);
            self.measure(at, &life, dictionary, subject.block, workspace)?;
            ways = self.ways();
        }
        let pick = ways[at].pick(&life, dictionary.is_some(), *hidden);
        drop(ways);
        hidden.0 = (hidden.0 - pick.encode).max(0.0);
        Ok(Chosen::new(pick.method, dictionary))
    }

    /// Runs every method on a block, and learns the length that each leaves.
    fn measure(
        &self,
        at: usize,
        life: &BlockLife,
        dictionary: Option<&Arc<Generation>>,
        block: &[u8],
        workspace: &mut Workspace,
    ) -> Result<()> {
        let candidates = self.ways()[at].chooser.candidates().to_vec();
        let limit = block.len().saturating_sub(ALIGNMENT_BYTES);
        for (candidate, of) in candidates.iter().enumerate() {
            let stored = match of.method {
                Method::STORE => None,
                method if method.dictionary && dictionary.is_none() => continue,
                method => encode(method, dictionary, workspace, block, limit)?,
            };
            let observation = Observation {
                class: life.class,
                method: of.method,
                raw_bytes: life.raw_bytes,
                stored_bytes: stored.map_or(life.raw_bytes, |(_, length)| length as u64),
                encode: None,
                decode: None,
            };
            self.ways()[at].chooser.learn(candidate, &observation);
        }
        Ok(())
    }

    /// Takes a block as a sample, before any like it is written.
    pub(super) fn learn_of(&self, block: &[u8]) {
        let block = without_tail(block);
        let class = (self.kind)(block).class;
        let mut trainer = self.trainer();
        *trainer.seen.entry(class).or_default() += block.len() as u64;
        if let Some(dictionaries) = &mut trainer.dictionaries {
            dictionaries.sample(class.number().into(), block);
        }
    }

    /// Trains the classes that have samples enough, each within its share of `live_bytes`. Training takes no longer
    /// than the least saving is worth. Returns the dictionaries that pay.
    pub(super) fn train(
        &self,
        live_bytes: u64,
        moment: Moment,
        pool: &Pool,
    ) -> Result<Vec<Arc<Generation>>> {
        let mut jobs = Vec::new();
        {
            let mut trainer = self.trainer();
            for (class, size_max, sample_bytes) in trainer.due(live_bytes, moment) {
                let dictionaries = trainer.dictionaries.as_mut();
                let job =
                    dictionaries.and_then(|it| it.training(class.number().into(), usize::MAX));
                jobs.extend(job.map(|job| Arc::new(job.at_most(size_max, sample_bytes))));
            }
        }
        // Others encode meanwhile.
        let sized = |job: &Arc<Training>| -> Vec<_> {
            let sizes = job.sizes().iter();
            sizes.map(|size| (Arc::clone(job), *size)).collect()
        };
        let run = |_: &mut (), (job, size): (Arc<Training>, usize)| job.try_size(size);
        let sizes: Vec<(Arc<Training>, usize)> = jobs.iter().flat_map(sized).collect();
        let mut tried = Vec::with_capacity(sizes.len());
        let mut stage = pool.stage(sizes.len().max(1), || (), run)?;
        stage.run(sizes, |made| {
            tried.push(made?);
            Ok(())
        })?;
        let mut trained = Vec::new();
        for job in jobs {
            let own = tried.drain(..job.sizes().len()).collect();
            let dictionary = job.decide(own)?;
            if let Some(dictionaries) = &mut self.trainer().dictionaries {
                trained.extend(dictionaries.adopt(job.class(), dictionary));
            }
        }
        Ok(trained)
    }

    /// Replaces the known dictionaries by those of a state.
    pub(super) fn restock(&self, kept: &KeptDictionaries) {
        if let Some(dictionaries) = &mut self.trainer().dictionaries {
            let generations = kept.iter().filter_map(|(_, kept)| kept.generation.as_ref());
            let last_id = kept.iter().map(|(id, _)| id).max().unwrap_or(0);
            dictionaries.restock(generations.cloned(), last_id);
        }
    }
}

/// Returns the sizes of dictionaries for a store with such segments.
fn dictionary_sizes(segment_bytes: usize) -> Vec<usize> {
    let most = (segment_bytes / DICTIONARY_PART).clamp(4096, DICTIONARY_BYTES_MAX);
    vec![most / 8, most / 4, most / 2, most]
}

fn training(sizes: Vec<usize>) -> DictionaryOptions {
    DictionaryOptions {
        sample_bytes_max: SAMPLED_DICTIONARIES * sizes[3],
        classes_max: CLASSES_MAX,
        sizes,
        saving_min: SAVING_MIN,
        // As blocks that stay are written.
        method: "zstd:9".parse().expect("a method"),
        ..DictionaryOptions::default()
    }
}

impl Trainer {
    /// Returns the classes to train, the longest dictionary of each, and the bytes of samples that pay.
    fn due(&self, live_bytes: u64, moment: Moment) -> Vec<(Class, usize, usize)> {
        let Some(dictionaries) = &self.dictionaries else {
            return Vec::new();
        };
        let total: u64 = self.seen.values().sum();
        let bounds = |seen: u64| {
            let own_bytes = live_bytes as f64 * seen as f64 / total.max(1) as f64;
            let worth = SAVING_MIN * own_bytes * self.per_byte[moment as usize];
            // Each is there twice.
            let size_max = (own_bytes * self.share / 2.0) as usize;
            (size_max, (worth / TRAINING_SECONDS_PER_BYTE) as usize)
        };
        let classes = self.seen.iter().map(|(class, seen)| {
            let (size_max, sample_bytes) = bounds(*seen);
            (*class, size_max, sample_bytes)
        });
        let due = classes.filter(|(class, size_max, _)| {
            *size_max >= self.size_min && dictionaries.train_due(class.number().into())
        });
        due.collect()
    }
}

impl Way {
    /// Says whether every method is run on a block.
    fn draws(&mut self, life: &BlockLife, with: Option<&Arc<Generation>>, hash: u64) -> bool {
        // The ratio of a class with a new dictionary is not known yet.
        let key = (life.class, with.map_or(0, |generation| generation.id));
        let measured = self.measured.entry(key).or_default();
        let is_drawn = *measured < FIRST_BLOCKS || Holdout::default().draws(hash);
        *measured += u64::from(is_drawn);
        is_drawn
    }

    fn pick(&mut self, life: &BlockLife, has_dictionary: bool, hidden: Hidden) -> Pick {
        let needs_dictionary = &self.needs_dictionary;
        let place_cost = |at: usize, it: &Quantities| match needs_dictionary[at] && !has_dictionary
        {
            true => f64::INFINITY,
            // Hidden time costs nothing.
            false => -it.encode_core_seconds.mean.min(hidden.0),
        };
        let picked = self.chooser.pick(life, &self.prices, place_cost);
        let mut expected = self.chooser.expected(life.class, life.raw_bytes);
        let asks = expected.nth(picked.candidate);
        Pick {
            method: self.chooser.candidates()[picked.candidate].method,
            encode: asks.map_or(0.0, |it| it.encode_core_seconds.mean),
        }
    }
}

fn life(kind: &Kind, raw_bytes: usize) -> BlockLife {
    BlockLife {
        reads_per_write: Estimate::exact(kind.reads_per_write),
        allocation: Allocation {
            unit_bytes: ALIGNMENT_BYTES as u64,
            minimum_bytes: 0,
        },
        moves_whole_units: true,
        overhead_bytes: HEADER_BYTES as u64 + super::layout::FRAME_PREFIX_BYTES as u64,
        ..BlockLife::new(kind.class, raw_bytes as u64)
    }
}

/// Encodes a block into the workspace. Returns the method and the length, or `None` if it is above `limit`. zstd is
/// written bare: the record has the content of its frame's headers. A method that uses a dictionary does without where
/// there is none.
fn encode(
    method: Method,
    dictionary: Option<&Arc<Generation>>,
    workspace: &mut Workspace,
    block: &[u8],
    limit: usize,
) -> Result<Option<(Decoder, usize)>> {
    let Workspace {
        compressor, bytes, ..
    } = workspace;
    bytes.resize(limit, 0);
    let dictionary = dictionary.filter(|_| method.dictionary);
    let method = Method {
        dictionary: false,
        ..method
    };
    let decoder = Decoder {
        dictionary: dictionary.map_or(0, |generation| generation.id),
        ..method.decoder()
    };
    let dictionary = dictionary.map(|generation| &generation.dictionary);
    // A repeated byte makes a kind of block that cannot be bare.
    let is_bare = method.decoder() == ZSTD && block[1..] != block[..block.len() - 1];
    let (length, decoder) = match (is_bare, dictionary) {
        (true, _) => {
            let length = compressor.compress_bare(method, dictionary, block, bytes)?;
            let codec = Decoder::CODEC_ZSTD_BARE;
            (length, Decoder { codec, ..decoder })
        }
        (false, Some(dictionary)) => {
            let length = compressor.compress_with(method, dictionary, block, bytes)?;
            (length, decoder)
        }
        (false, None) => (compressor.compress(method, block, bytes)?, decoder),
    };
    Ok(length.map(|length| (decoder, length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seeded;

    const BLOCK_BYTES: usize = 4096;

    fn often_read(block: &[u8]) -> Kind {
        Kind {
            reads_per_write: 10_000.0,
            ..Kind::at_a_glance(block)
        }
    }

    /// The results of `coding` for many blocks, in the order in which they come.
    fn encode_all(coding: &Coding, moment: Moment, blocks: &[Vec<u8>]) -> Vec<(u8, usize)> {
        let mut workspace = Workspace::default();
        let mut outcomes = Vec::new();
        for (hash, block) in (0..).zip(blocks) {
            let subject = Subject {
                block,
                moment,
                dictionaries: &KeptDictionaries::default(),
                hash,
                limit: BLOCK_BYTES - ALIGNMENT_BYTES,
            };
            let encoded = coding.encode(&subject, &mut Hidden::NONE.clone(), &mut workspace);
            let (decoder, length) = encoded.unwrap().unwrap_or((Decoder::STORE, BLOCK_BYTES));
            outcomes.push((decoder.codec, length));
        }
        outcomes
    }

    fn check(options: &BlocksOptions, moment: Moment, blocks: &[Vec<u8>], expected: u8) -> usize {
        let outcomes = encode_all(&Coding::new(options, 64 << 10), moment, blocks);
        // Of the first ones less is known.
        let late = &outcomes[FIRST_BLOCKS as usize..];
        assert!(late.iter().all(|(codec, _)| *codec == expected), "{late:?}");
        assert_eq!(
            outcomes,
            encode_all(&Coding::new(options, 64 << 10), moment, blocks)
        );
        late.iter().map(|(_, length)| length).sum()
    }

    #[test]
    fn blocks_are_encoded_as_they_pay_and_always_alike() {
        let mut random = seeded("blocks coding", 41);
        let mut block = |of: &[u8]| -> Vec<u8> {
            let bytes = (0..BLOCK_BYTES).map(|_| of[random.usize(..of.len())]);
            bytes.collect()
        };
        let every: Vec<u8> = (0..=255).collect();
        let words: Vec<Vec<u8>> = (0..40).map(|_| block(b"etaoin shrdlu ")).collect();
        let noise: Vec<Vec<u8>> = (0..40).map(|_| block(&every)).collect();
        let dear = BlocksOptions {
            seconds_per_gb: 240.0,
            ..BlocksOptions::default()
        };
        let [stored, zstd] = [Decoder::STORE.codec, Decoder::CODEC_ZSTD_BARE];
        let written = check(&dear, Moment::Written, &words, zstd);
        let moved = check(&dear, Moment::Moved, &words, zstd);
        println!("{written} bytes when written, {moved} when moved");
        assert!(moved <= written);
        check(&dear, Moment::Written, &noise, stored);
        check(&dear, Moment::Moved, &noise, stored);
        let worthless = BlocksOptions {
            seconds_per_gb: 0.0,
            ..dear
        };
        check(&worthless, Moment::Written, &words, stored);
        // A block that is decoded again and again is not worth its decoding.
        let kind: fn(&[u8]) -> Kind = often_read;
        check(
            &BlocksOptions { kind, ..dear },
            Moment::Written,
            &words,
            stored,
        );
        let lz4 = Some("lz4:1".parse().unwrap());
        let fixed = BlocksOptions {
            method: lz4,
            ..worthless
        };
        check(&fixed, Moment::Written, &words, Decoder::CODEC_LZ4);
    }

    #[test]
    fn zeros_at_the_end_are_left_out_in_whole_units() {
        let check = |used: usize, expected: usize| {
            let mut block = vec![0; BLOCK_BYTES];
            block[..used].fill(7);
            assert_eq!(without_tail(&block).len(), expected, "{used}");
        };
        check(0, 0);
        check(1, 16);
        check(16, 16);
        check(17, 32);
        check(STRIDE_BYTES, STRIDE_BYTES);
        check(BLOCK_BYTES - STRIDE_BYTES, BLOCK_BYTES - STRIDE_BYTES);
        check(BLOCK_BYTES - 15, BLOCK_BYTES);
        check(BLOCK_BYTES, BLOCK_BYTES);
    }

    #[test]
    fn what_the_sync_hides_is_spent_once() {
        let mut hidden = Hidden::default();
        let coding = Coding::new(&BlocksOptions::default(), 64 << 10);
        let mut workspace = Workspace::default();
        let block = b"what is written ".repeat(256);
        for hash in 0..8 {
            let before = hidden.0;
            let subject = Subject {
                block: &block,
                moment: Moment::Written,
                dictionaries: &KeptDictionaries::default(),
                hash,
                limit: BLOCK_BYTES - ALIGNMENT_BYTES,
            };
            coding
                .encode(&subject, &mut hidden, &mut workspace)
                .unwrap();
            assert!(hidden.0 <= before);
        }
        assert_eq!(hidden.0, 0.0);
    }
}
