//! Profiles: the measured cost and ratio of a method on a class on this machine.
//!
//! A [`Profile`] takes [`Observation`]s and answers with [`MethodEstimate`]s. For each class, method and power of two
//! of the block length it keeps three factors: seconds per byte to encode, to decode, and stored over raw. Each is a
//! weighted mean and variance of its logarithm, since costs and ratios vary by factors; old observations fade.
//!
//! An unmeasured factor is predicted:
//!
//! ```text
//! ln x(class, method, length) = prior(method, length) + prior(class)
//!                             + machine + class + method + pair + length
//! ```
//!
//! The priors are shipped (`prior.rs`). The other terms are normal with mean zero and fitted to the cells by
//! backfitting. Each shrinks to zero where little was measured. So an unknown method on a known class, and the reverse,
//! start from their relatives here. On blocks of 43 files class plus method predict ln(stored / raw) of a pair to a
//! deviation of 0.11.
//!
//! A shift of a cell's residuals (Page 1954, Hinkley 1971) cuts the weight of the class's earlier evidence. So a
//! profile follows its data and its machine.
//!
//! It reads no clock and measures nothing; `learned.rs` keeps it between runs.

use std::collections::BTreeMap;

use crate::codec::{Codec, Filter, Method};
use crate::decide::carried::Carried;
use crate::decide::class::Class;
use crate::decide::effects::Effects;
use crate::decide::prior::{
    self, BLOCK_DEVIATION, DECODE, ENCODE, FACTOR_COUNT, MACHINE_DEVIATION, Prior, REACH,
    REACH_FROM, SCALE_TEST_DEVIATION, STORED,
};
use crate::decide::tracker::{Normal, Tracker};
use crate::error::{Error, Result};
use crate::units::{Estimate, Seconds, Source};

/// The evidence behind an estimate, from the most to the least trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// Mostly measured here on this class by this method at this length.
    Measured,
    /// Inferred from other classes, methods or lengths measured here.
    Pooled,
    /// The published table.
    Published,
    /// A mere guess, for a method outside the table.
    Default,
}

impl Basis {
    /// Returns the source to print beside the number.
    pub fn source(self) -> Source {
        match self {
            Basis::Measured => Source::Measured,
            Basis::Pooled => Source::ModelCalibrated("pooled from this machine".to_string()),
            Basis::Published => Source::Published("lzbench 2.0.1, EPYC 9554, silesia".to_string()),
            Basis::Default => Source::Default,
        }
    }
}

/// One number of an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factor {
    /// The mean over blocks with its 95 % interval, which is the certainty of the mean.
    pub value: Estimate,
    /// Standard deviation of the logarithm from block to block: the possible distance of one block.
    pub spread: f64,
    /// Effective number of observations of this very class, method and length.
    pub weight: f64,
    /// Its evidence.
    pub basis: Basis,
}

impl Factor {
    /// Makes an exact factor, for a value measured on the very block.
    pub fn exact(value: f64) -> Factor {
        Factor {
            value: Estimate::exact(value),
            spread: 0.0,
            weight: 1.0,
            basis: Basis::Measured,
        }
    }
}

/// The estimate of a method on a class at a block length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MethodEstimate {
    /// Core seconds to encode one raw byte.
    pub encode_seconds_per_byte: Factor,
    /// Core seconds to decode one raw byte.
    pub decode_seconds_per_byte: Factor,
    /// Stored over raw bytes of the set, at most 1: a block that does not shrink is stored raw.
    pub stored_per_raw: Factor,
}

impl MethodEstimate {
    /// Returns the ratio, raw over stored bytes.
    pub fn ratio(&self) -> Estimate {
        self.stored_per_raw.value.map(|stored| 1.0 / stored)
    }
}

/// The part of an estimate that stays until a decoding is observed. A caller that repeats the estimate keeps it
/// ([`Profile::estimate_again`]).
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    class: Class,
    method: Method,
    block_bytes: u64,
    prior: Prior,
    decode_seconds_per_byte: Factor,
}

/// One block that was encoded, and decoded if `decode` is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// The block's class.
    pub class: Class,
    /// The method it was encoded by.
    pub method: Method,
    /// Its length before.
    pub raw_bytes: u64,
    /// Its stored length; more than `raw_bytes` counts as `raw_bytes`.
    pub stored_bytes: u64,
    /// Core time of encoding, if it was taken.
    pub encode: Option<Seconds>,
    /// Core time of decoding, if it was taken.
    pub decode: Option<Seconds>,
}

impl Observation {
    /// Returns the three factors that were taken and are plausible.
    fn factors(&self) -> [Option<f64>; FACTOR_COUNT] {
        let raw = self.raw_bytes as f64;
        let per_byte = |time: Option<Seconds>| {
            let per_byte = time?.0 / raw;
            (per_byte >= 0.0 && raw > 0.0).then(|| per_byte.clamp(1e-13, 1e-2))
        };
        let stored = self.stored_bytes as f64 / raw;
        let stored = (raw > 0.0).then(|| stored.clamp(STORED_PER_RAW_MIN, 1.0));
        [per_byte(self.encode), per_byte(self.decode), stored]
    }
}

/// How a profile forgets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProfileOptions {
    /// Observations of a cell after which an older one counts half. Default 32; infinity for a
    /// survey, which forgets nothing.
    pub half_life_observations: f64,
    /// Cumulated shift of a cell, in its own standard deviations beyond half of one per
    /// observation, that counts as a drift. Default 8: under a shift of two deviations found
    /// after some 6 observations, without one every 20,000 or so. Infinity for never.
    pub drift_threshold: f64,
}

impl Default for ProfileOptions {
    fn default() -> ProfileOptions {
        ProfileOptions {
            half_life_observations: 32.0,
            drift_threshold: 8.0,
        }
    }
}

/// The measurements of methods on classes on this machine.
///
/// # Cost
/// Some 250 bytes a cell, at most [`Profile::CELLS_MAX`] cells. An observation takes some 2
/// microseconds, an estimate one.
///
/// # Example
/// ```
/// use breakeven::decide::{Basis, Class, Observation, Profile};
/// use breakeven::units::Seconds;
///
/// let method = "zstd:3".parse()?;
/// let mut profile = Profile::default();
/// let guess = profile.estimate(Class::TEXT, method, 1 << 20);
/// assert_eq!(guess.stored_per_raw.basis, Basis::Published);
/// for _ in 0..8 {
///     profile.observe(&Observation {
///         class: Class::TEXT,
///         method,
///         raw_bytes: 1 << 20,
///         stored_bytes: 300_000,
///         encode: Some(Seconds(0.003)),
///         decode: None,
///     });
/// }
/// let estimate = profile.estimate(Class::TEXT, method, 1 << 20);
/// assert_eq!(estimate.stored_per_raw.basis, Basis::Measured);
/// assert!((estimate.ratio().mean - 3.5).abs() < 0.1);
/// # Ok::<(), breakeven::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Profile {
    options: ProfileOptions,
    /// The machine's speed by scale tests, before any other measurement.
    scale: [Normal; FACTOR_COUNT],
    cells: BTreeMap<CellKey, Cell>,
    effects: [Effects; FACTOR_COUNT],
    /// The error of carried cells on this machine.
    carried: [Carried; FACTOR_COUNT],
    /// Observations since the last fit of the effects.
    pending: usize,
}

/// Class, method and the power of two of the block length.
pub(super) type CellKey = (Class, Method, u8);

/// The observations under one key, with the prior belief about it, which is computed once because every fit needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub prior: Prior,
    pub trackers: [Tracker; FACTOR_COUNT],
    /// Known only from an earlier run.
    is_carried: bool,
}

impl Cell {
    pub fn new(key: &CellKey) -> Cell {
        Cell {
            prior: prior::of_pair(key.0, key.1, 1 << key.2),
            trackers: Default::default(),
            is_carried: false,
        }
    }

    pub fn weight(&self) -> f64 {
        self.trackers.iter().map(|tracker| tracker.weight).sum()
    }
}

/// Shorter and longer blocks share the cells of 2^6 and of 2^24.
pub(super) const LENGTH_BITS_MIN: u8 = 6;
pub(super) const LENGTH_BITS_MAX: u8 = 24;

/// Blocks shorter by at most these powers of two leave a method about as much to find.
const NEAR_LENGTH_BITS: u8 = 2;

const STORED_PER_RAW_MIN: f64 = 1e-7;

impl Default for Profile {
    fn default() -> Profile {
        Profile::new(ProfileOptions::default())
    }
}

impl Profile {
    /// The most cells kept; when full, the one with the least weight makes room.
    pub const CELLS_MAX: usize = 4096;

    /// Makes a profile that knows only the shipped priors.
    ///
    /// # Panics
    /// When an option is not above zero.
    pub fn new(options: ProfileOptions) -> Profile {
        assert!(options.half_life_observations > 0.0);
        assert!(options.drift_threshold > 0.0);
        let scale = MACHINE_DEVIATION.map(Normal::zero);
        let mut profile = Profile {
            options,
            scale,
            cells: BTreeMap::new(),
            effects: Default::default(),
            carried: Default::default(),
            pending: 0,
        };
        profile.fit();
        profile
    }

    /// Corrects the shipped speeds to this machine by one short test. The test times one method both ways on some 256
    /// KiB of ordinary data (2 ms with `zstd:1`), repeats that, and takes the least time.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a time is missing, not positive, or off the published one by more
    /// than a factor of 1000.
    pub fn scale(&mut self, test: &Observation) -> Result<()> {
        let prior = prior::of_method(test.method, test.raw_bytes);
        let class = prior::of_class(test.class);
        let factors = test.factors();
        let mut scale = self.scale;
        for factor in [ENCODE, DECODE] {
            let found = factors[factor]
                .map(|value| value.ln() - prior.ln[factor] - class.ln[factor])
                .filter(|found| found.abs() < f64::ln(1000.0))
                .ok_or_else(|| {
                    let reason = format!("{:?} and {:?} are no times", test.encode, test.decode);
                    Error::invalid("scale test", reason)
                })?;
            scale[factor] = scale[factor].observe(found, SCALE_TEST_DEVIATION.powi(2));
        }
        self.scale = scale;
        self.fit();
        Ok(())
    }

    /// Adds the cost of one block and returns whether it revealed a drift: the class's evidence on the drifting factor
    /// then counts little. Missing or negative times, and blocks of no bytes, teach nothing.
    pub fn observe(&mut self, observation: &Observation) -> bool {
        let key = (
            observation.class,
            observation.method,
            length_bits(observation.raw_bytes),
        );
        self.make_room(&key);
        self.compare_carried(&key, observation);
        let options = self.options;
        let cell = self.cells.entry(key).or_insert_with_key(Cell::new);
        let mut drifting = [false; FACTOR_COUNT];
        for (factor, value) in observation.factors().into_iter().enumerate() {
            if let Some(value) = value {
                drifting[factor] = cell.trackers[factor].observe(value, factor, &options);
            }
        }
        for factor in (0..FACTOR_COUNT).filter(|&factor| drifting[factor]) {
            for (key, cell) in &mut self.cells {
                if key.0 == observation.class {
                    cell.trackers[factor].fade();
                }
            }
        }
        // The fit costs as much as there are cells. At this rare rate it adds a constant to each observation. At first,
        // when every observation counts much, it runs each time.
        self.pending += 1;
        if self.pending * 8 >= self.cells.len() {
            self.fit();
        }
        drifting.contains(&true)
    }

    /// Compares the first observation of a carried cell with the carried value, and moves the other carried cells by
    /// the evidence about the machine.
    fn compare_carried(&mut self, key: &CellKey, observation: &Observation) {
        let Some(cell) = self.cells.get_mut(key).filter(|cell| cell.is_carried) else {
            return;
        };
        cell.is_carried = false;
        let trackers = cell.trackers;
        let factors = observation.factors();
        for factor in [ENCODE, DECODE] {
            let (Some(value), tracker) = (factors[factor], &trackers[factor]) else {
                continue;
            };
            if tracker.weight > 0.0 {
                let carried = &mut self.carried[factor];
                let unmoved_ln = tracker.mean_ln - carried.shift();
                let further = carried.observe(value.ln() - unmoved_ln);
                let cells = self.cells.values_mut().filter(|cell| cell.is_carried);
                cells.for_each(|cell| cell.trackers[factor].move_by(further));
            }
        }
    }

    /// Adds the observations of another profile of the same machine.
    ///
    /// Evidence adds up to the most that [`ProfileOptions::half_life_observations`] lets a cell hold. The order of
    /// merging matters only where that limit or [`Profile::CELLS_MAX`] is reached.
    pub fn merge(&mut self, other: &Profile) {
        let weight_max = self.options.weight_max();
        for (key, theirs) in &other.cells {
            self.make_room(key);
            let ours = self.cells.entry(*key).or_insert_with_key(Cell::new);
            for (ours, theirs) in ours.trackers.iter_mut().zip(&theirs.trackers) {
                *ours = ours.merged(theirs, weight_max);
            }
        }
        self.fit();
    }

    /// Estimates a method on a class for blocks of `block_bytes`. Every method on every class has an estimate, and its
    /// basis states its worth.
    pub fn estimate(&self, class: Class, method: Method, block_bytes: u64) -> MethodEstimate {
        self.estimate_again(&self.standing(class, method, block_bytes))
    }

    /// Returns the part of an estimate that stays until a decoding is observed.
    pub fn standing(&self, class: Class, method: Method, block_bytes: u64) -> Standing {
        let prior = prior::of_pair(class, method, block_bytes);
        Standing {
            class,
            method,
            block_bytes,
            prior,
            decode_seconds_per_byte: self.estimate_factor(
                class,
                method,
                block_bytes,
                &prior,
                DECODE,
            ),
        }
    }

    /// Estimates as [`Profile::estimate`] does, in about half its instructions.
    pub fn estimate_again(&self, standing: &Standing) -> MethodEstimate {
        let Standing {
            class,
            method,
            block_bytes,
            ..
        } = *standing;
        let factor =
            |factor| self.estimate_factor(class, method, block_bytes, &standing.prior, factor);
        MethodEstimate {
            encode_seconds_per_byte: factor(ENCODE),
            decode_seconds_per_byte: standing.decode_seconds_per_byte,
            stored_per_raw: match method {
                Method::STORE => Factor::exact(1.0),
                _ => factor(STORED),
            },
        }
    }

    fn estimate_factor(
        &self,
        class: Class,
        method: Method,
        block_bytes: u64,
        prior: &Prior,
        factor: usize,
    ) -> Factor {
        let own_bits = length_bits(block_bytes);
        let effects = &self.effects[factor];
        let mut belief = effects.predict(class, method, prior, factor);
        belief.mean += prior.ln[factor] + prior::of_class(class).ln[factor];
        belief.variance += prior.pair_deviation[factor].powi(2);
        let mut own = None;
        let mut has_relatives = effects.has_evidence;
        let length_variance = prior.length_deviation[factor].powi(2);
        for (key, cell) in self
            .cells
            .range((class, method, 0)..=(class, method, u8::MAX))
        {
            let tracker = &cell.trackers[factor];
            if tracker.weight <= 0.0 {
                continue;
            }
            if key.2 == own_bits {
                own = Some(tracker);
                continue;
            }
            let there = cell.prior.ln[factor];
            let moved = tracker.mean.ln() - there + prior.ln[factor];
            let variance = tracker.mean_variance(factor) + length_variance;
            belief = belief.observe(moved, variance);
            has_relatives = true;
        }
        belief.variance += length_variance;
        if let Some(least) = self.least_ln(class, method, own_bits, factor) {
            belief.mean = belief.mean.max(least);
            if own.is_none() {
                // If all is about to be stored raw, the differences between pairs shrink as well.
                belief.variance = belief.variance.min(least * least);
            }
        }
        let mut basis = match has_relatives {
            true => Basis::Pooled,
            false => prior.basis,
        };
        if let Some(tracker) = own {
            let variance = tracker.mean_variance(factor);
            if variance < belief.variance {
                basis = Basis::Measured;
            }
            belief = belief.observe(tracker.mean.ln(), variance);
        }
        Factor {
            value: belief.interval(match factor {
                STORED => 1.0,
                _ => f64::INFINITY,
            }),
            spread: own.map_or(BLOCK_DEVIATION[factor], |it| {
                it.block_variance(factor).sqrt()
            }),
            weight: own.map_or(0.0, |tracker| tracker.weight),
            basis,
        }
    }

    /// Returns the least ln(stored / raw) that may be predicted for a method, from the ratios of its relatives on the
    /// class at about the same length. `None` if these are no evidence.
    ///
    /// The additive terms assume a saving that others have on other data. If hardly anything is left to save, all
    /// methods save hardly anything.
    fn least_ln(&self, class: Class, method: Method, bits: u8, factor: usize) -> Option<f64> {
        if factor != STORED || method.filter != Filter::None || method.dictionary {
            return None;
        }
        // A method that only finds repeats is no evidence for those that also code single bytes.
        let codes_bytes = |codec: Codec| {
            matches!(
                codec,
                Codec::Zstd { level: 1.. }
                    | Codec::Deflate { .. }
                    | Codec::Xz { .. }
                    | Codec::Bzip2 { .. }
            )
        };
        self.cells
            .range((class, Method::STORE, 0)..)
            .take_while(|(key, _)| key.0 == class)
            .filter(|(key, _)| key.2 + NEAR_LENGTH_BITS >= bits && key.1 != method)
            .filter(|(key, _)| key.1.filter == Filter::None && !key.1.dictionary)
            .filter(|(key, _)| codes_bytes(key.1.codec))
            .map(|(_, cell)| &cell.trackers[STORED])
            .filter(|tracker| tracker.weight > 0.0)
            .map(|tracker| tracker.mean.max(STORED_PER_RAW_MIN).ln())
            .min_by(f64::total_cmp)
            .map(|best| REACH * best.min(REACH_FROM))
    }

    fn make_room(&mut self, key: &CellKey) {
        if self.cells.len() < Profile::CELLS_MAX || self.cells.contains_key(key) {
            return;
        }
        let lightest = self
            .cells
            .iter()
            .min_by(|a, b| a.1.weight().total_cmp(&b.1.weight()))
            .map(|(key, _)| *key);
        self.cells
            .remove(&lightest.expect("a full profile has cells"));
    }

    fn fit(&mut self) {
        for factor in 0..FACTOR_COUNT {
            self.effects[factor].fit(&self.cells, self.scale[factor], factor);
        }
        self.pending = 0;
    }

    pub(super) fn options(&self) -> ProfileOptions {
        self.options
    }

    pub(super) fn cells(&self) -> &BTreeMap<CellKey, Cell> {
        &self.cells
    }

    /// Makes a profile of cells from an earlier run.
    pub(super) fn from_cells(options: ProfileOptions, cells: BTreeMap<CellKey, Cell>) -> Profile {
        let mut profile = Profile::new(options);
        profile.cells = cells;
        profile
            .cells
            .values_mut()
            .for_each(|cell| cell.is_carried = true);
        profile.fit();
        profile
    }
}

impl ProfileOptions {
    pub(super) fn kept_per_observation(&self) -> f64 {
        f64::exp2(-1.0 / self.half_life_observations)
    }

    /// The weight that a cell approaches under endless observations.
    fn weight_max(&self) -> f64 {
        1.0 / (1.0 - self.kept_per_observation())
    }
}

pub(super) fn length_bits(block_bytes: u64) -> u8 {
    // The power of two at or above the length, without its overflow.
    let bits = (u64::BITS - block_bytes.saturating_sub(1).leading_zeros()) as u8;
    bits.clamp(LENGTH_BITS_MIN, LENGTH_BITS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{seeded, standard_normal};

    const MIB: u64 = 1 << 20;

    fn method(name: &str) -> Method {
        name.parse().unwrap()
    }

    fn survey() -> Profile {
        Profile::new(ProfileOptions {
            half_life_observations: f64::INFINITY,
            drift_threshold: f64::INFINITY,
        })
    }

    /// A block of `raw_bytes` that left a share and took some ns a byte each way.
    fn block(class: Class, name: &str, raw_bytes: u64, share: f64, ns: f64) -> Observation {
        Observation {
            class,
            method: method(name),
            raw_bytes,
            stored_bytes: (raw_bytes as f64 * share) as u64,
            encode: Some(Seconds(raw_bytes as f64 * ns * 1e-9)),
            decode: Some(Seconds(raw_bytes as f64 * ns * 1e-10)),
        }
    }

    fn ratio(profile: &Profile, class: Class, name: &str) -> f64 {
        profile.estimate(class, method(name), MIB).ratio().mean
    }

    #[test]
    fn a_new_profile_says_what_was_published() {
        let profile = Profile::default();
        let zstd = profile.estimate(Class::TEXT, method("zstd:1"), MIB);
        assert_eq!(zstd.encode_seconds_per_byte.basis, Basis::Published);
        assert_eq!(zstd.encode_seconds_per_byte.weight, 0.0);
        let interval = zstd.encode_seconds_per_byte.value;
        assert!(interval.low * 2.0 < interval.mean && interval.mean * 2.0 < interval.high);
        assert!((2.0..3.5).contains(&ratio(&profile, Class::TEXT, "zstd:1")));
        let filtered = profile.estimate(Class::TEXT, method("shuffle4+zstd:1"), MIB);
        assert_eq!(filtered.stored_per_raw.basis, Basis::Default);
        for name in ["lz4:1", "zstd:3", "xz:6"] {
            assert!(
                ratio(&profile, Class::INCOMPRESSIBLE, name) < 1.05,
                "{name}"
            );
            assert!(ratio(&profile, Class::ZERO, name) > 50.0, "{name}");
        }
        let store = profile
            .estimate(Class::TEXT, Method::STORE, MIB)
            .stored_per_raw;
        assert_eq!((store.value, store.spread), (Estimate::exact(1.0), 0.0));
    }

    #[test]
    fn what_is_kept_between_estimates_changes_none() {
        let mut random = seeded("standings of a profile");
        let mut profile = survey();
        let classes = [Class::TEXT, Class::BINARY];
        let names = ["zstd:1", "zstd:9", "lz4:1", "xz:6"];
        let pairs = || {
            classes
                .into_iter()
                .flat_map(|it| names.map(|name| (it, name)))
        };
        let standings: Vec<Standing> = pairs()
            .map(|(class, name)| profile.standing(class, method(name), MIB))
            .collect();
        let mut compared = 0;
        for round in 0..60 {
            // One more pair at a time, eight in all: while the pairs stay few, each is fitted at once.
            let reach = (round / 4 + 1).min(8);
            let (class, name) = pairs().nth(random.usize(..reach)).unwrap();
            let share = 0.2 + 0.5 * random.f64();
            let seen = block(class, name, MIB, share, 1.0 + random.f64());
            profile.observe(&Observation {
                decode: None,
                ..seen
            });
            // Fitted to the same cells for the first time.
            let mut fresh = survey();
            fresh.merge(&profile);
            for ((class, name), standing) in pairs().zip(&standings) {
                let expected = fresh.estimate(class, method(name), MIB);
                assert_eq!(profile.estimate(class, method(name), MIB), expected);
                assert_eq!(profile.estimate_again(standing), expected, "{class} {name}");
                compared += 1;
            }
        }
        assert_eq!(compared, 480);
    }

    #[test]
    fn means_are_sums_over_sums_and_intervals_hold_them() {
        let mut random = seeded("coverage of a profile's intervals");
        let (trials, mut covered) = (400, 0);
        for _ in 0..trials {
            let mut profile = survey();
            let truth = 0.1 + 0.5 * random.f64();
            let spread = 0.3 * random.f64();
            for _ in 0..2 + random.usize(..60) {
                let ln = spread * standard_normal(&mut random) - spread * spread / 2.0;
                let share = (truth * ln.exp()).min(1.0);
                profile.observe(&block(Class::TEXT, "zstd:3", MIB, share, 4.0));
            }
            let stored = profile
                .estimate(Class::TEXT, method("zstd:3"), MIB)
                .stored_per_raw;
            covered += u32::from((stored.value.low..=stored.value.high).contains(&truth));
        }
        println!("{covered} of {trials} intervals of 95 % hold the truth");
        // 95 % less four standard deviations of 1.1 %; the usual variance makes them wider.
        assert!(covered >= 362);
        let mut profile = survey();
        for share in [0.1, 0.9].repeat(300) {
            profile.observe(&block(Class::TEXT, "zstd:3", MIB, share, 4.0));
        }
        let found = ratio(&profile, Class::TEXT, "zstd:3");
        assert!(
            (found - 2.0).abs() < 0.01,
            "{found}, expected 2 / (0.1 + 0.9)"
        );
    }

    /// A made-up machine: the published table, twice as fast, with class and method terms.
    fn world(random: &mut fastrand::Rng) -> impl Fn(Class, &str, u64) -> Observation + use<> {
        let mut deviate = |scale: f64| scale * standard_normal(random);
        let classes: BTreeMap<Class, [f64; 2]> = (0..8)
            .map(|number| (Class::place(number), [deviate(0.6), deviate(0.5)]))
            .collect();
        let methods: BTreeMap<&str, f64> = METHODS.map(|name| (name, deviate(0.2))).into();
        move |class, name, raw_bytes| {
            let prior = prior::of_method(method(name), raw_bytes);
            let [stored, time] = classes[&class];
            let share = (prior.ln[STORED] + stored).exp().min(1.0);
            let encode = (prior.ln[ENCODE] + time + methods[name]).exp() / 2.0;
            block(class, name, raw_bytes, share, encode * 1e9)
        }
    }

    const METHODS: [&str; 6] = ["lz4:1", "zstd:-5", "zstd:1", "zstd:3", "zstd:9", "xz:6"];

    #[test]
    fn what_was_not_measured_is_predicted_from_its_relatives() {
        let mut random = seeded("pooling");
        let (mut errors, mut errors_before, mut predictions) = ([0.0; 2], [0.0; 2], 0);
        for _ in 0..20 {
            let world = world(&mut random);
            let (fresh, mut profile) = (survey(), survey());
            let pairs = (0..8).flat_map(|class| METHODS.map(|name| (Class::place(class), name)));
            let (known, unknown): (Vec<_>, Vec<_>) = pairs.partition(|_| random.f64() < 0.4);
            for &(class, name) in &known {
                for _ in 0..5 {
                    profile.observe(&world(class, name, MIB));
                }
            }
            let is_known = |class| known.iter().any(|pair| pair.0 == class);
            for (class, name) in unknown.into_iter().filter(|pair| is_known(pair.0)) {
                let truth = world(class, name, MIB).factors();
                for (profile, errors) in [(&profile, &mut errors), (&fresh, &mut errors_before)] {
                    let found = profile.estimate(class, method(name), MIB);
                    let found = [found.encode_seconds_per_byte, found.stored_per_raw];
                    for (index, factor) in [ENCODE, STORED].into_iter().enumerate() {
                        let truth = truth[factor].unwrap();
                        errors[index] += (found[index].value.mean / truth).ln().abs();
                    }
                }
                let found = profile.estimate(class, method(name), MIB);
                assert_eq!(found.stored_per_raw.basis, Basis::Pooled);
                predictions += 1;
            }
        }
        let mean = |sums: [f64; 2]| sums.map(|sum| sum / f64::from(predictions));
        let (errors, errors_before) = (mean(errors), mean(errors_before));
        println!(
            "{predictions} predictions, mean error of ln encode and ln stored: {errors:.3?}, \
             before learning {errors_before:.3?}"
        );
        assert!(predictions >= 300);
        assert!(errors[0] < errors_before[0] / 2.0 && errors[1] < errors_before[1] / 2.0);
    }

    #[test]
    fn nothing_is_saved_where_every_relative_stores_raw() {
        let content = Class::all_content().take(4).skip(2);
        for class in content.chain([Class::place(1)]) {
            let mut profile = survey();
            for _ in 0..20 {
                for name in ["lz4:1", "zstd:1", "zstd:3"] {
                    for raw_bytes in [4096, 8192, 16_384, MIB] {
                        profile.observe(&block(class, name, raw_bytes, 0.999, 1.0));
                        // Beside data on which the same methods save much.
                        profile.observe(&block(Class::TEXT, name, raw_bytes, 0.4, 4.0));
                    }
                }
            }
            for name in ["lz4hc:9", "deflate:6", "zstd:19", "bzip2:9", "xz:6"] {
                let found = profile.estimate(class, method(name), MIB);
                assert_ne!(found.stored_per_raw.basis, Basis::Measured);
                let ratio = found.ratio();
                assert!(
                    ratio.mean < 1.03 && ratio.high < 1.07,
                    "{class} {name} {ratio:?}"
                );
                assert!(self::ratio(&profile, Class::TEXT, name) > 2.0);
            }
            // A measured method is believed, even against its relatives.
            for _ in 0..40 {
                profile.observe(&block(class, "xz:6", MIB, 0.5, 300.0));
            }
            let found = ratio(&profile, class, "xz:6");
            assert!(found > 1.7, "{class} {found}");
        }
    }

    #[test]
    fn other_lengths_inform_but_do_not_decide() {
        let mut profile = survey();
        let class = Class::place(1);
        for _ in 0..20 {
            profile.observe(&block(class, "zstd:3", MIB, 0.2, 4.0));
        }
        let near = profile
            .estimate(class, method("zstd:3"), MIB)
            .stored_per_raw;
        let far = profile
            .estimate(class, method("zstd:3"), 4096)
            .stored_per_raw;
        assert_eq!((near.basis, far.basis), (Basis::Measured, Basis::Pooled));
        assert!(far.value.mean > 1.2 * near.value.mean, "{far:?}");
        assert!(far.value.high / far.value.low > 1.2 * near.value.high / near.value.low);
        for _ in 0..3 {
            profile.observe(&block(class, "zstd:3", 4096, 0.9, 4.0));
        }
        let here = profile
            .estimate(class, method("zstd:3"), 4096)
            .stored_per_raw;
        assert_eq!(here.basis, Basis::Measured);
        assert!((here.value.mean - 0.9).abs() < 0.3, "{here:?}");
    }

    #[test]
    fn a_scale_test_moves_every_speed_and_no_ratio() {
        let mut profile = Profile::default();
        let before = profile.estimate(Class::BINARY, method("xz:6"), MIB);
        let prior = prior::of_method(method("zstd:1"), MIB);
        let ns = prior.ln[ENCODE].exp() * 1e9;
        // A machine on which everything takes three times as long.
        let mut test = block(Class::TEXT, "zstd:1", MIB, 0.35, 3.0 * ns);
        test.decode = Some(Seconds(3.0 * prior.ln[DECODE].exp() * MIB as f64));
        profile.scale(&test).unwrap();
        let after = profile.estimate(Class::BINARY, method("xz:6"), MIB);
        let moved =
            after.encode_seconds_per_byte.value.mean / before.encode_seconds_per_byte.value.mean;
        assert!((2.2..=3.0).contains(&moved), "{moved}");
        assert_eq!(after.stored_per_raw, before.stored_per_raw);
        assert_eq!(after.encode_seconds_per_byte.basis, Basis::Published);
        for wrong in [
            None,
            Some(Seconds(-1.0)),
            Some(Seconds(f64::NAN)),
            Some(Seconds(1e9)),
        ] {
            assert!(
                profile
                    .scale(&Observation {
                        encode: wrong,
                        ..test
                    })
                    .is_err()
            );
        }
    }

    #[test]
    fn a_shift_is_found_soon_and_noise_is_none() {
        let mut random = seeded("drift");
        let other = Class::place(9);
        let (mut alarms, mut delays, mut runs) = (0, 0, 0);
        for _ in 0..20 {
            let mut profile = Profile::default();
            for _ in 0..20 {
                profile.observe(&block(other, "zstd:3", MIB, 0.3, 4.0));
            }
            let mut seen = |shift: f64, profile: &mut Profile| {
                let ns = 4.0 * (0.2 * standard_normal(&mut random) + shift).exp();
                profile.observe(&Observation {
                    decode: None,
                    ..block(Class::TEXT, "zstd:3", MIB, 0.3, ns)
                })
            };
            alarms += (0..500).filter(|_| seen(0.0, &mut profile)).count();
            let delay = (1..100).find(|_| seen(0.6, &mut profile));
            delays += delay.expect("three deviations are found");
            runs += 1;
            let weight = |class| profile.estimate(class, method("zstd:3"), MIB);
            let drifted = weight(Class::TEXT);
            assert!(drifted.encode_seconds_per_byte.weight <= 3.0);
            assert!(drifted.stored_per_raw.weight > 20.0, "ratios did not drift");
            assert!(weight(other).encode_seconds_per_byte.weight > 10.0);
        }
        println!(
            "{alarms} alarms in {} quiet blocks, found after {delays} / {runs}",
            runs * 500
        );
        assert!(alarms <= 5 && delays <= 12 * runs);
    }

    #[test]
    fn merging_halves_gives_the_whole() {
        let mut random = seeded("merge");
        let (mut whole, mut halves) = (survey(), [survey(), survey()]);
        for index in 0..1000 {
            let class = Class::place(random.u16(..4));
            let name = METHODS[random.usize(..METHODS.len())];
            let raw_bytes = 1 << random.u32(10..20);
            let seen = block(
                class,
                name,
                raw_bytes,
                0.1 + 0.8 * random.f64(),
                1.0 + random.f64(),
            );
            whole.observe(&seen);
            halves[index % 2].observe(&seen);
        }
        let [mut merged, second] = halves;
        merged.merge(&second);
        whole.fit();
        for class in (0..4).map(Class::place) {
            for name in METHODS {
                let [a, b] = [&whole, &merged].map(|it| it.estimate(class, method(name), 65_536));
                let (a, b) = (a.encode_seconds_per_byte, b.encode_seconds_per_byte);
                assert!(
                    (a.value.mean / b.value.mean - 1.0).abs() < 1e-9,
                    "{a:?} {b:?}"
                );
                assert!((a.weight - b.weight).abs() < 1e-9);
                assert!((a.spread / b.spread - 1.0).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn cells_are_bounded_and_the_lightest_gives_way() {
        let mut profile = Profile::default();
        for _ in 0..3 {
            profile.observe(&block(Class::TEXT, "zstd:3", MIB, 0.25, 4.0));
        }
        for number in 0..2 * Profile::CELLS_MAX as u16 {
            profile.observe(&block(Class::place(number), "lz4:1", MIB, 0.5, 1.0));
        }
        assert_eq!(profile.cells.len(), Profile::CELLS_MAX);
        let kept = profile.estimate(Class::TEXT, method("zstd:3"), MIB);
        assert_eq!(kept.stored_per_raw.basis, Basis::Measured);
    }

    #[test]
    fn senseless_observations_teach_nothing_wrong() {
        let mut profile = Profile::default();
        let sound = block(Class::TEXT, "zstd:3", MIB, 0.25, 4.0);
        let zero = Some(Seconds(0.0));
        for odd in [
            Observation {
                raw_bytes: 0,
                ..sound
            },
            Observation {
                stored_bytes: 0,
                encode: zero,
                decode: zero,
                ..sound
            },
            Observation {
                stored_bytes: u64::MAX,
                encode: None,
                ..sound
            },
            Observation {
                encode: Some(Seconds(f64::NAN)),
                decode: Some(Seconds(-1.0)),
                ..sound
            },
            Observation {
                encode: Some(Seconds(f64::INFINITY)),
                raw_bytes: u64::MAX,
                ..sound
            },
        ] {
            profile.observe(&odd);
            for bytes in [0, 1, MIB, u64::MAX] {
                let found = profile.estimate(Class::TEXT, method("zstd:3"), bytes);
                for factor in [
                    found.encode_seconds_per_byte,
                    found.decode_seconds_per_byte,
                    found.stored_per_raw,
                ] {
                    let Estimate { mean, low, high } = factor.value;
                    assert!(0.0 < low && low <= mean && mean <= high && high.is_finite());
                    assert!(factor.spread.is_finite());
                }
                assert!(found.stored_per_raw.value.high <= 1.0);
            }
        }
    }
}
