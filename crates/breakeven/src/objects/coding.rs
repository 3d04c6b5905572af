//! The encoding of each class of values: learned from samples off the request path, and given to the shards as a plan.
//!
//! Shards offer values that leave their fresh queues. [`Coding::tune`], on a thread of the caller, keeps some of them
//! by class. Four in five train dictionaries. The fifth is held out, and every method is timed on held-out values. A
//! chooser then decides at the prices of this place. A held byte is worth the misses that it avoids. A value costs its
//! encoding, and the decodings of its expected fetches. A class keeps its method unless another wins by [`GAIN_MIN`].
//!
//! A dictionary is trained again when held-out values take more bytes with it by [`DECAY`]. Everything kept here is
//! bounded by a share of the memory and charged to it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::books::ClassCounts;
use super::class::{self, CLASSES, Prefixes};
use super::demand::Demand;
use super::form::{self, Form};
use super::space::Space;
use crate::arena;
use crate::codec::{FSST, Method, Symbols};
use crate::decide::{
    BlockLife, Candidate, Chooser, ChooserOptions, Class, Decision, Observation, Picked, Prices,
    Profile,
};
use crate::dictionaries::{Dictionaries, DictionaryOptions};
use crate::error::Result;
use crate::units::{Estimate, Seconds};

/// The methods to choose from.
const METHODS: [&str; 5] = ["store", "lz4:1", "lz4:1+dict", "zstd:3", "zstd:3+dict"];
/// The index of FSST among them; no text names it.
const FSST_AT: usize = 3;
/// Bytes of samples for a table of symbols: FSST's authors take 16 KB.
const SYMBOL_SAMPLE_BYTES: usize = 16 << 10;
/// The share of the cost that a challenger must save.
const GAIN_MIN: f64 = 0.05;
/// A dictionary's stored share may grow to so many times its first value.
const DECAY: f64 = 1.1;
/// One offered value in so many is held out of training.
const HELD_OUT_EVERY: u64 = 5;
/// Held-out values of a class, and the number of new ones for another measurement.
const HELD_OUT_MAX: usize = 32;
const HELD_OUT_FRESH: u64 = 8;
/// Bytes of held-out values that are always allowed.
const HELD_OUT_BYTES_MIN: usize = 64 << 10;
/// Bytes of values that wait for the learner.
const INBOX_BYTES: usize = 256 << 10;
/// The part of the memory, one in so many, that dictionaries, their forms and samples may take.
const MEMORY_SHARE: u64 = 50;
/// Less memory is not worth a dictionary.
const DICTIONARY_BYTES_MIN: u64 = 256 << 10;
/// The bytes of a dictionary of 15 KiB and its prepared forms.
const GENERATION_BYTES: usize = 300 << 10;
/// The learner skips longer values.
const OFFERED_BYTES_MAX: usize = 64 << 10;
/// A dictionary must save so much of the stored bytes.
const SAVING_MIN: f64 = 0.03;
/// The cost of an impossible method: more than anything.
const NEVER: f64 = 1e6;
/// Decodings after which a value is stored raw again.
const PROMOTE_AFTER: std::ops::RangeInclusive<f64> = 16.0..=65_536.0;
/// The same where it only means that fresh values are encoded sooner. Gets of 20 keys by a skew had 0.71 (0.64 to 0.79)
/// of memcached's keys without that rule and 0.89 (0.84 to 0.94) with it: `peng2020/gets`, 20 runs each. The least
/// number itself is unproved.
const PROMOTE_SOONER_AFTER_MIN: f64 = 4.0;

/// The decision about a class.
#[derive(Clone, Debug)]
pub(super) struct ClassPlan {
    /// The form of its values; `None` if they stay raw.
    pub form: Option<Arc<Form>>,
    /// The best codec while they stay raw.
    pub alternative: Option<Arc<Form>>,
    decision: Decision,
    life: BlockLife,
    pub prices: Prices,
    /// One decoding in so many stores the value raw again: first where others are dropped for it, then where fresh ones
    /// are only encoded sooner.
    pub promote_one_in: u32,
    pub promote_one_in_sooner: u32,
}

impl ClassPlan {
    /// Returns the life of a value of this length.
    pub fn life_of(&self, value_bytes: usize) -> BlockLife {
        BlockLife {
            raw_bytes: value_bytes as u64,
            ..self.life
        }
    }

    /// Returns the decision for a value of this length: costs and bytes in proportion.
    pub fn decision_for(&self, value_bytes: usize) -> Decision {
        let share = value_bytes as f64 / self.decision.raw_bytes.max(1) as f64;
        let by = |it: Estimate| it.map(|value| value * share);
        Decision {
            raw_bytes: value_bytes as u64,
            quantities: self.decision.quantities.shared(share, share),
            cost: by(self.decision.cost),
            store_cost: by(self.decision.store_cost),
            saving: by(self.decision.saving),
            ..self.decision
        }
    }

    pub fn decision(&self) -> &Decision {
        &self.decision
    }
}

/// The decisions about all classes.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub version: u64,
    pub prefixes: Prefixes,
    classes: Vec<Option<ClassPlan>>,
}

impl Plan {
    /// Whether there is a decision, and it is to encode nothing.
    pub fn is_raw(&self) -> bool {
        self.version > 0 && self.classes().all(|(_, plan)| plan.form.is_none())
    }

    pub fn of(&self, class: u16) -> Option<&ClassPlan> {
        self.classes.get(usize::from(class))?.as_ref()
    }

    pub fn classes(&self) -> impl Iterator<Item = (u16, &ClassPlan)> {
        let numbered = (0_u16..).zip(&self.classes);
        numbered.filter_map(|(number, plan)| Some((number, plan.as_ref()?)))
    }
}

/// The counts of all shards that prices follow from.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub classes: Vec<ClassCounts>,
    pub items: u64,
    pub bytes: u64,
    /// Items that reached the end of their queue, and those of them that had been fetched.
    pub judged: u64,
    pub judged_fetched: u64,
    pub stored: u64,
    pub fetches: u64,
}

/// See the module.
pub(super) struct Coding {
    plan: RwLock<Arc<Plan>>,
    version: AtomicU64,
    is_learning: AtomicBool,
    inbox: Mutex<Inbox>,
    tuner: Mutex<Tuner>,
    held_bytes: AtomicU64,
}

/// A value with the prefix of its key.
struct Offered {
    prefix: Box<[u8]>,
    value: Box<[u8]>,
}

#[derive(Default)]
struct Inbox {
    values: Vec<Offered>,
    bytes: usize,
}

/// The knowledge about a class.
#[derive(Default)]
struct Learned {
    /// Values that no dictionary was trained on, the newest last.
    held_out: VecDeque<Box<[u8]>>,
    fresh: u64,
    offered: u64,
    value_bytes: f64,
    /// By candidate; the first stands for storing, which has no form.
    forms: Vec<Option<Arc<Form>>>,
    chosen: usize,
    /// The bytes that the dictionary leaves of a byte: at first, and last.
    stored_at_first: Option<f64>,
    stored_last: f64,
    table: Table,
}

/// The samples for the next table of symbols of a class, and the bytes that the present one leaves of a byte.
#[derive(Default)]
struct Table {
    samples: Vec<Box<[u8]>>,
    sample_bytes: usize,
    stored_at_first: Option<f64>,
    /// Whether the present one does.
    is_good: bool,
}

struct Tuner {
    dictionaries: Option<Dictionaries>,
    chooser: Chooser,
    miss: Seconds,
    demand: Demand,
    /// The worth of a byte at the last decision.
    worth: f64,
    prefixes: Prefixes,
    classes: Vec<Option<Box<Learned>>>,
    charged: usize,
    sample_bytes_max: usize,
    /// Bytes of held-out values, and the most of all classes together.
    held_out_bytes: usize,
    held_out_bytes_max: usize,
    /// Bytes of samples for tables of symbols, and the most of them with the tables.
    symbol_sample_bytes: usize,
    symbol_bytes_max: usize,
}

impl Coding {
    /// Makes the learner; `dictionary_bytes` is the memory for dictionaries, 0 for none.
    pub fn new(dictionary_bytes: u64, miss: Seconds) -> Result<Coding> {
        let options = dictionary_options(dictionary_bytes);
        let sample_bytes_max = options.sample_bytes_max;
        let has_room = dictionary_bytes >= DICTIONARY_BYTES_MIN;
        let dictionaries = has_room.then(|| Dictionaries::new(options)).transpose()?;
        let candidate = |name: &str| Candidate::new(name.parse().expect("a method"));
        let options = ChooserOptions {
            // Held-out values measure every method, so trials are not needed.
            trial_share: 0.0,
            ..ChooserOptions::default()
        };
        let mut candidates = METHODS.map(candidate).to_vec();
        candidates.insert(FSST_AT, Candidate::new(FSST));
        Ok(Coding {
            plan: RwLock::default(),
            version: AtomicU64::new(0),
            is_learning: AtomicBool::new(true),
            inbox: Mutex::default(),
            tuner: Mutex::new(Tuner {
                dictionaries,
                chooser: Chooser::new(candidates, Profile::default(), options),
                miss,
                demand: Demand::default(),
                worth: 0.0,
                prefixes: Prefixes::default(),
                classes: (0..CLASSES).map(|_| None).collect(),
                charged: 0,
                sample_bytes_max,
                held_out_bytes: 0,
                held_out_bytes_max: (dictionary_bytes as usize / 8).max(HELD_OUT_BYTES_MIN),
                symbol_sample_bytes: 0,
                symbol_bytes_max: dictionary_bytes as usize / 8,
            }),
            held_bytes: AtomicU64::new(0),
        })
    }

    /// The share of a memory that dictionaries may take.
    pub fn dictionary_bytes(memory_bytes: u64) -> u64 {
        memory_bytes / MEMORY_SHARE
    }

    pub fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns all possible forms for values of a class, with its present dictionary.
    pub fn forms_of(&self, class: u16) -> Vec<Arc<Form>> {
        let tuner = lock(&self.tuner);
        let learned = tuner
            .classes
            .get(usize::from(class))
            .and_then(Option::as_ref);
        learned.map_or(Vec::new(), |it| {
            it.forms.iter().flatten().cloned().collect()
        })
    }

    /// Bytes of dictionaries, their forms and samples.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Relaxed)
    }

    pub fn set_learning(&self, is_learning: bool) {
        self.is_learning.store(is_learning, Relaxed);
        if !is_learning {
            *lock(&self.inbox) = Inbox::default();
        }
    }

    /// Offers a value to the learner, if no other thread holds it and few values wait.
    pub fn offer(&self, key: &[u8], value: &[u8]) {
        if !self.is_learning.load(Relaxed) || value.len() > OFFERED_BYTES_MAX {
            return;
        }
        let Ok(mut inbox) = self.inbox.try_lock() else {
            return;
        };
        if inbox.bytes + value.len() <= INBOX_BYTES {
            inbox.bytes += value.len();
            inbox.values.push(Offered {
                prefix: class::prefix(key).into(),
                value: value.into(),
            });
        }
    }

    /// Processes the offered values, trains one class or measures one, and publishes any change to the shards. Returns
    /// whether more is due.
    pub fn tune(&self, space: &Space, tally: &Tally, evicts: bool) -> Result<bool> {
        let mut tuner = lock(&self.tuner);
        let inbox = std::mem::take(&mut *lock(&self.inbox));
        for Offered { prefix, value } in inbox.values {
            tuner.take(&prefix, value);
        }
        // Where nothing may be dropped, a dictionary only gets room that is there.
        let has_room = space.slabs_left() * space.slab_bytes() as i64 > GENERATION_BYTES as i64;
        let trained = match tuner.to_train().filter(|_| has_room || evicts) {
            Some(class) => {
                let trained = tuner.train(class);
                // Training briefly takes some 6 MiB, which no option of the memory counts.
                arena::give_back_heap();
                Some(trained?)
            }
            None => None,
        };
        let found = tuner.find_symbols();
        let measured = tuner.to_measure();
        if let Some(class) = measured {
            tuner.measure(class);
        }
        tuner.demand.follow(tally);
        let worth = tuner.demand.worth_of_byte(tuner.miss);
        let has_changed = (worth - tuner.worth).abs() > GAIN_MIN * tuner.worth;
        if measured.is_some() || has_changed {
            tuner.worth = worth;
            self.publish(&mut tuner, measured);
        }
        self.charge(&mut tuner, space);
        Ok(trained.is_some() || found || measured.is_some())
    }

    /// Decides on all classes with a measurement, and publishes the plan.
    fn publish(&self, tuner: &mut Tuner, measured: Option<u16>) {
        let mut plan = Plan::clone(&self.plan());
        let mut known: Vec<u16> = plan.classes().map(|(class, _)| class).collect();
        known.extend(measured.filter(|class| plan.of(*class).is_none()));
        if known.is_empty() {
            return;
        }
        plan.version += 1;
        plan.prefixes = tuner.prefixes.clone();
        plan.classes.resize_with(CLASSES, || None);
        for class in known {
            plan.classes[usize::from(class)] = Some(tuner.decide(class));
        }
        let version = plan.version;
        *self.plan.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(plan);
        self.version.store(version, Relaxed);
    }

    fn charge(&self, tuner: &mut Tuner, space: &Space) {
        if let Some(dictionaries) = &mut tuner.dictionaries {
            let unused = dictionaries.unused();
            dictionaries.drop_unused(|id| !unused.contains(&id));
        }
        let bytes = tuner.held_bytes();
        space.charge(tuner.charged, bytes);
        tuner.charged = bytes;
        self.held_bytes.store(bytes as u64, Relaxed);
    }
}

/// The split of `bytes` over a number of classes, and over purposes.
fn dictionary_options(bytes: u64) -> DictionaryOptions {
    let classes_max = (bytes >> 19).clamp(2, 24) as usize;
    let samples = bytes as usize / 4 / classes_max;
    let sizes = [4 << 10, 15 << 10, 31 << 10, 63 << 10];
    DictionaryOptions {
        sample_bytes_max: samples.clamp(64 << 10, 1 << 20),
        classes_max,
        // The last trained one passes the limit.
        memory_bytes_max: (bytes as usize / 2).saturating_sub(GENERATION_BYTES).max(1),
        sizes: sizes[..if bytes >= 8 << 20 { 4 } else { 2 }].to_vec(),
        saving_min: SAVING_MIN,
        ..DictionaryOptions::default()
    }
}

impl Tuner {
    fn take(&mut self, prefix: &[u8], value: Box<[u8]>) {
        let class = self.prefixes.class_or_new(prefix, value.len());
        let learned = self.classes[usize::from(class)].get_or_insert_default();
        if learned.forms.is_empty() {
            learned.forms = plain_forms(class, &self.chooser);
        }
        learned.offered += 1;
        let weight = 1.0 / learned.offered.min(64) as f64;
        learned.value_bytes += (value.len() as f64 - learned.value_bytes) * weight;
        if learned.offered.is_multiple_of(HELD_OUT_EVERY) {
            learned.fresh += 1;
            self.held_out_bytes += value.len();
            learned.held_out.push_back(value);
            // While there are too many of them, the growing class gives way.
            while learned.held_out.len() > HELD_OUT_MAX
                || learned.held_out.len() > 1 && self.held_out_bytes > self.held_out_bytes_max
            {
                let oldest = learned.held_out.pop_front();
                self.held_out_bytes -= oldest.map_or(0, |value| value.len());
            }
        } else if let Some(dictionaries) = &mut self.dictionaries {
            dictionaries.sample(class.into(), &value);
            self.gather(class, value);
        }
    }

    /// Keeps a value for the next table of symbols of its class, while there is room.
    fn gather(&mut self, class: u16, value: Box<[u8]>) {
        let is_wanted =
            |it: &Learned| !it.table.is_good && it.table.sample_bytes < SYMBOL_SAMPLE_BYTES;
        let learned = self.classes[usize::from(class)].as_deref();
        if !learned.is_some_and(is_wanted) || value.len() >= SYMBOL_SAMPLE_BYTES {
            return;
        }
        if !self.has_room_for_symbols(value.len()) {
            self.give_samples_back();
        }
        if self.has_room_for_symbols(value.len()) {
            self.symbol_sample_bytes += value.len();
            let learned = self.classes[usize::from(class)]
                .as_mut()
                .expect("a class that is known");
            learned.table.sample_bytes += value.len();
            learned.table.samples.push(value);
        }
    }

    fn has_room_for_symbols(&self, bytes: usize) -> bool {
        self.symbol_bytes() + bytes <= self.symbol_bytes_max
    }

    /// Gives back the samples of the class with the fewest. If many classes grow alike, none would otherwise reach a
    /// table.
    fn give_samples_back(&mut self) {
        let gathering = self
            .known()
            .map(|(class, it)| (it.table.sample_bytes, class));
        let gathering = gathering.filter(|(bytes, _)| (1..SYMBOL_SAMPLE_BYTES).contains(bytes));
        let gathering: Vec<(usize, u16)> = gathering.collect();
        // A single class makes room for no other.
        let Some((bytes, class)) = gathering.iter().min().filter(|_| gathering.len() > 1) else {
            return;
        };
        if let Some(Some(learned)) = self.classes.get_mut(usize::from(*class)) {
            (learned.table.samples, learned.table.sample_bytes) = (Vec::new(), 0);
            self.symbol_sample_bytes -= bytes;
        }
    }

    /// Finds the symbols of one class with enough samples; returns whether there was one.
    fn find_symbols(&mut self) -> bool {
        let has_enough = |it: &Learned| it.table.sample_bytes >= SYMBOL_SAMPLE_BYTES;
        let Some((class, _)) = self.known().find(|(_, it)| has_enough(it)) else {
            return false;
        };
        let learned = self.classes[usize::from(class)]
            .as_mut()
            .expect("a class that is known");
        let samples = std::mem::take(&mut learned.table.samples);
        self.symbol_sample_bytes -= std::mem::take(&mut learned.table.sample_bytes);
        let samples: Vec<&[u8]> = samples.iter().map(|sample| &**sample).collect();
        (learned.table.is_good, learned.table.stored_at_first) = (true, None);
        if let Some(symbols) = Symbols::train(&samples) {
            learned.forms[FSST_AT] = Some(Arc::new(Form {
                class,
                method: FSST,
                generation: None,
                symbols: Some(Arc::new(symbols)),
            }));
            learned.fresh = learned.fresh.max(HELD_OUT_FRESH);
        }
        true
    }

    /// Returns the class with the most values that wait for training.
    fn to_train(&self) -> Option<u16> {
        let dictionaries = self.dictionaries.as_ref()?;
        let is_due = |class: u16, learned: &Learned| {
            let is_decayed = match learned.stored_at_first {
                Some(first) => learned.stored_last > first * DECAY,
                None => true,
            };
            is_decayed && dictionaries.train_due(class.into())
        };
        let due = self.known().filter(|(class, it)| is_due(*class, it));
        due.max_by_key(|(_, it)| it.offered).map(|(class, _)| class)
    }

    fn known(&self) -> impl Iterator<Item = (u16, &Learned)> {
        let numbered = (0_u16..).zip(&self.classes);
        numbered.filter_map(|(class, it)| Some((class, it.as_deref()?)))
    }

    fn to_measure(&self) -> Option<u16> {
        let due = self.known().filter(|(_, it)| it.fresh >= HELD_OUT_FRESH);
        due.max_by_key(|(_, it)| it.fresh).map(|(class, _)| class)
    }

    fn train(&mut self, class: u16) -> Result<()> {
        let dictionaries = self
            .dictionaries
            .as_mut()
            .expect("a class is to be trained");
        let number = class.into();
        let trained = dictionaries.train(number, self.sample_bytes_max, || false)?;
        let Some(generation) = trained else {
            return Ok(());
        };
        let learned = self.classes[usize::from(class)]
            .as_mut()
            .expect("a class that is known");
        for (form, candidate) in learned.forms.iter_mut().zip(self.chooser.candidates()) {
            if candidate.method.dictionary {
                *form = Some(Arc::new(Form {
                    class,
                    method: candidate.method,
                    generation: Some(Arc::clone(&generation)),
                    symbols: None,
                }));
            }
        }
        learned.stored_at_first = None;
        learned.fresh = learned.fresh.max(HELD_OUT_FRESH);
        Ok(())
    }

    /// Runs every method over the held-out values.
    fn measure(&mut self, class: u16) {
        let learned = self.classes[usize::from(class)]
            .as_mut()
            .expect("a class that is known");
        learned.fresh = 0;
        for at in 0..learned.forms.len() {
            let Some(form) = &learned.forms[at] else {
                continue;
            };
            let values = || learned.held_out.iter().map(|value| &**value);
            // The first pass makes tables and warms caches.
            form::time(form, values());
            let found = form::time(form, values());
            if found.values == 0 {
                continue;
            }
            let each = |bytes: usize| (bytes / found.values) as u64;
            let observation = Observation {
                class: Class::place(class),
                method: form.method,
                raw_bytes: each(found.raw_bytes),
                stored_bytes: each(found.stored_bytes),
                encode: Some(Seconds(found.encode.0 / found.values as f64)),
                decode: Some(Seconds(found.decode.0 / found.values as f64)),
            };
            let picked = Picked {
                candidate: at,
                trial: None,
            };
            self.chooser.observe(&picked, &observation);
            let stored = found.stored_bytes as f64 / found.raw_bytes.max(1) as f64;
            if form.generation.is_some() && at + 1 == learned.forms.len() {
                learned.stored_last = stored;
                learned.stored_at_first.get_or_insert(stored);
            }
            if at == FSST_AT {
                let first = *learned.table.stored_at_first.get_or_insert(stored);
                learned.table.is_good &= stored <= first * DECAY;
            }
        }
        self.chooser.refresh();
    }

    /// Decides the encoding of a class, at the worth of memory and the cost of fetches.
    fn decide(&mut self, class: u16) -> ClassPlan {
        let learned = self.classes[usize::from(class)]
            .as_mut()
            .expect("a class that is known");
        let counts = (self.demand.counts())
            .get(usize::from(class))
            .copied()
            .unwrap_or_default();
        // The count starts as if one value had been encoded and decoded once.
        let reads = (counts.decoded as f64 + 1.0) / (counts.encoded as f64 + 1.0);
        let life = BlockLife {
            reads_per_write: Estimate::exact(reads),
            held_seconds: Estimate::exact(1.0),
            ..BlockLife::new(Class::place(class), learned.value_bytes.max(1.0) as u64)
        };
        let worth = self.demand.worth_of_byte(self.miss);
        let prices = Prices {
            per_core_second: Estimate::exact(1.0),
            // For the time that it is held: from one end of the queue to the other.
            per_byte_second_held: Estimate::exact(worth),
            ..Prices::default()
        };
        let forms = learned.forms.clone();
        let cost = move |at: usize| match at == 0 || forms[at].is_some() {
            true => Estimate::exact(0.0),
            false => Estimate::exact(NEVER),
        };
        let best = self.chooser.pick(&life, &prices, |at, _| cost(at).mean);
        let best = self
            .chooser
            .decided(best.candidate, &life, &prices, |at, _| cost(at));
        let kept = self
            .chooser
            .decided(learned.chosen, &life, &prices, |at, _| cost(at));
        let candidates = self.chooser.candidates();
        let place = |method: Method| candidates.iter().position(|it| it.method == method);
        let decision = match best.cost.mean < kept.cost.mean * (1.0 - GAIN_MIN) {
            true => best,
            false => kept,
        };
        learned.chosen = place(decision.method).unwrap_or(0);
        let alternative = decision.best_codec.and_then(|(method, _)| place(method));
        let form = learned.forms[learned.chosen].clone();
        let saved_bytes = decision.raw_bytes as f64 - decision.quantities.held_bytes.mean;
        let decode = decision.quantities.decode_core_seconds.mean.max(1e-9);
        let (low, high) = (PROMOTE_AFTER.start(), PROMOTE_AFTER.end());
        let promote_one_in = (worth * saved_bytes / decode).clamp(*low, *high);
        // For each byte of room, a fresh value is encoded, and decoded as often as others are.
        let sooner = decision.quantities.encode_core_seconds.mean / decode + reads;
        ClassPlan {
            form,
            alternative: alternative.and_then(|at| learned.forms[at].clone()),
            decision,
            life,
            prices,
            promote_one_in: promote_one_in as u32,
            promote_one_in_sooner: sooner.clamp(PROMOTE_SOONER_AFTER_MIN, promote_one_in) as u32,
        }
    }

    /// Bytes of the tables of symbols and of the samples for further tables.
    fn symbol_bytes(&self) -> usize {
        let tables = self
            .known()
            .filter_map(|(_, it)| it.forms[FSST_AT].as_ref());
        let tables = tables.filter_map(|form| form.symbols.as_ref());
        self.symbol_sample_bytes + tables.map(|it| it.memory_bytes()).sum::<usize>()
    }

    fn held_bytes(&self) -> usize {
        let known = self.known().count() * size_of::<Learned>();
        let known = known + self.held_out_bytes + self.symbol_bytes();
        let dictionaries = self.dictionaries.as_ref();
        known + dictionaries.map_or(0, |it| it.memory_bytes() + it.sample_bytes())
    }
}

fn plain_forms(class: u16, chooser: &Chooser) -> Vec<Option<Arc<Form>>> {
    let form = |candidate: &Candidate| {
        let method = candidate.method;
        let is_plain = method != Method::STORE && method != FSST && !method.dictionary;
        is_plain.then(|| {
            Arc::new(Form {
                class,
                method,
                generation: None,
                symbols: None,
            })
        })
    };
    chooser.candidates().iter().map(form).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_that_grow_alike_come_to_a_table_of_symbols_each() {
        let mut random = crate::testing::seeded("coding", 20_200_312);
        let coding = Coding::new(512 << 10, Seconds(1e-3)).unwrap();
        let space = Space::new(1 << 40, 1 << 20, 0).unwrap();
        let words = [
            "furiously ",
            "regular ",
            "deposits ",
            "sleep ",
            "quickly ",
            "among ",
        ];
        // Enough samples for tables of all eight would take twice the allowed bytes.
        for round in 0..2000 {
            for kind in 'a'..='h' {
                let words = (0..12).map(|_| words[random.usize(..words.len())]);
                let value: String = words.collect();
                coding.offer(format!("{kind}:{round}").as_bytes(), value.as_bytes());
            }
            if round % 100 == 0 {
                while coding.tune(&space, &Tally::default(), true).unwrap() {}
            }
            let tuner = lock(&coding.tuner);
            assert!(tuner.symbol_bytes() <= tuner.symbol_bytes_max);
        }
        let has_table = |class: u16| coding.forms_of(class).iter().any(|it| it.method == FSST);
        let classes: Vec<u16> = coding.plan().classes().map(|it| it.0).collect();
        assert_eq!(classes.len(), 8);
        assert!(classes.into_iter().all(has_table));
    }
}
