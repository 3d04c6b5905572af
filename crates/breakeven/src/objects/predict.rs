//! The effect of compression on the small objects of a present cache, from a sample of its keys and values.
//!
//! The sample passes through the same code as values in the store: classes, dictionaries, and the chooser at the same
//! prices ([`Coding`]). One value in five is kept from all of that, and each class is measured on these values. Items
//! for each byte are sums of an item's bytes here and in memcached, by its own arithmetic of headers and chunks.
//!
//! The gain in hits from more items is a model and no measurement: popularity by Zipf, with the store holding the head.
//! If a memcached hit a share of its gets, the same requests hit that share times a ratio. The ratio is the weight of
//! the larger head over that of the present one. On the four loads of `peng2020/misses` the model comes within 0.03 of
//! the measured share.

use std::sync::Arc;

use super::books::ClassCounts;
use super::class::CLASSES;
use super::coding::{Coding, Plan, Tally};
use super::demand::Demand;
use super::evict::FRESH_PERCENT;
use super::form::{self, Form};
use super::space::Space;
use crate::codec::Method;
use crate::error::{Error, Result};
use crate::model::{Access, Coverage};
use crate::units::Seconds;

/// One value in so many is kept from learning, and measured.
const MEASURED_ONE_IN: usize = 5;
/// Values of a class that are measured.
const MEASURED_MAX: usize = 400;
/// Bytes that are offered before the learner processes them.
const OFFERED_BYTES: usize = 128 << 10;
/// The bytes of an item here beside key and stored bytes: its header, and its part of the index.
const ITEM_BYTES: f64 = 8.0 + 14.2;
const SLAB_BYTES: usize = 1 << 20;
/// The decline of popularity: the exponent of most caches' studies and of YCSB.
const POPULARITY: Access = Access::Zipf(0.99);

/// A value of a cache with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// The key.
    pub key: Box<[u8]>,
    /// The value.
    pub value: Box<[u8]>,
}

/// A cache and its use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prospect {
    /// The memory it has; dictionaries take at most 2 % of it.
    pub memory_bytes: u64,
    /// The client's cost of a miss, in microseconds.
    pub miss_microseconds: u32,
    /// The share of dropped items that was fetched: the gain of an item in the place of saved bytes.
    pub fetched_share: f64,
    /// Fetches for each stored value.
    pub reads_per_write: f64,
    /// Whether dictionaries are trained.
    pub has_dictionaries: bool,
    /// The share of gets that finds its item in memcached; `None` if unknown, or if memory is not full.
    pub hit_share: Option<f64>,
}

impl Default for Prospect {
    fn default() -> Prospect {
        Prospect {
            memory_bytes: 1 << 30,
            miss_microseconds: 1000,
            fetched_share: 0.05,
            reads_per_write: 2.0,
            has_dictionaries: true,
            hit_share: None,
        }
    }
}

/// The forecast for a class of values.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassForecast {
    /// The prefix of its keys, `-` for none and `*` for all further prefixes, and the longest value. Empty for the
    /// rest, classes of too few values.
    pub name: String,
    /// Values of the sample.
    pub values: usize,
    /// Bytes of a key, in the mean.
    pub key_bytes: f64,
    /// Bytes of a value, in the mean.
    pub value_bytes: f64,
    /// How it would be stored.
    pub method: Method,
    /// Its method, or else the one that would pay first: the next four fields belong to it. `None` where too few values
    /// are known.
    pub codec: Option<Method>,
    /// Bytes of a value by it; values that do not shrink count raw.
    pub stored_bytes: f64,
    /// Core seconds to encode a value.
    pub encode: Seconds,
    /// Core seconds to decode one.
    pub decode: Seconds,
    /// The cost of a miss from which it pays; `None` where it saves nothing.
    pub pays_from: Option<Seconds>,
    /// The number of measured values.
    pub measured: usize,
}

impl ClassForecast {
    /// Bytes of a value as the store would hold it.
    pub fn held_bytes(&self) -> f64 {
        match self.method {
            Method::STORE => self.value_bytes,
            _ => self.stored_bytes,
        }
    }
}

/// The forecast for a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// By class, those with the most bytes first.
    pub classes: Vec<ClassForecast>,
    /// Items a GiB, as the store would hold them.
    pub items_per_gib: f64,
    /// Items a GiB in the same store, none compressed.
    pub items_per_gib_raw: f64,
    /// Items a GiB in memcached.
    pub items_per_gib_memcached: f64,
    /// The share of gets that would find its item in the same memory, by a model of popularity. `None` if the prospect
    /// has no hit share.
    pub hit_share: Option<f64>,
    /// Core seconds to encode a million values as the store would, and to decode them for their fetches.
    pub core_seconds_per_million: f64,
}

/// Predicts the result for a cache with such keys and values.
///
/// # Errors
/// [`Error::Invalid`] for an empty sample; errors of compressing.
pub fn predict(sample: &[Sampled], prospect: &Prospect) -> Result<Forecast> {
    if sample.is_empty() {
        return Err(Error::invalid(
            "sample of objects",
            "it is empty".to_string(),
        ));
    }
    let dictionary_bytes = match prospect.has_dictionaries {
        true => Coding::dictionary_bytes(prospect.memory_bytes),
        false => 0,
    };
    let miss = Seconds(f64::from(prospect.miss_microseconds) / 1e6);
    let coding = Coding::new(dictionary_bytes, miss)?;
    let tally = tally(sample, prospect);
    learn(&coding, sample, &tally)?;
    let plan = coding.plan();
    let mut classes = classes(sample, &plan);
    for (number, forecast, values) in &mut classes {
        if let Some(number) = number {
            let forms = coding.forms_of(*number);
            let chosen = plan.of(*number).and_then(|plan| plan.form.clone());
            measure(forecast, values, (&forms, chosen), (prospect, &tally));
        }
    }
    let mut classes: Vec<ClassForecast> = classes.into_iter().map(|it| it.1).collect();
    let bytes = |it: &ClassForecast| it.values as f64 * it.value_bytes;
    classes.sort_by(|one, other| bytes(other).total_cmp(&bytes(one)));
    let per_gib = |bytes: f64| sample.len() as f64 * f64::from(1 << 30) / bytes;
    let raw_bytes: f64 = sample
        .iter()
        .map(|Sampled { key, value }| ITEM_BYTES + (key.len() + value.len()) as f64)
        .sum();
    let items = classes
        .iter()
        .map(|it| it.values as f64 * (ITEM_BYTES + it.key_bytes + it.held_bytes()));
    let old_bytes: f64 = items.sum();
    let chunks: usize = sample
        .iter()
        .map(|Sampled { key, value }| memcached_bytes(key.len(), value.len()))
        .sum();
    // The newest items are raw.
    let fresh_share = FRESH_PERCENT as f64 / 100.0;
    let items_per_gib = fresh_share * per_gib(raw_bytes) + (1.0 - fresh_share) * per_gib(old_bytes);
    let items_per_gib_memcached = per_gib(chunks as f64);
    let gib = prospect.memory_bytes as f64 / f64::from(1 << 30);
    let hit_share = prospect.hit_share.map(|share| {
        let items = [items_per_gib_memcached, items_per_gib].map(|items| items * gib);
        hit_share(share, items)
    });
    Ok(Forecast {
        core_seconds_per_million: core_seconds_per_million(&classes, prospect),
        classes,
        items_per_gib,
        items_per_gib_raw: per_gib(raw_bytes),
        items_per_gib_memcached,
        hit_share,
    })
}

/// Returns the share of gets that find their item among so many items, from the share found among so many before.
fn hit_share(share: f64, [before, after]: [f64; 2]) -> f64 {
    let head = |cached_buffers: f64| {
        POPULARITY.hit_ratio(&Coverage {
            cached_buffers: cached_buffers.max(1.0),
            data_set_buffers: before.max(after).max(1.0),
        })
    };
    (share.clamp(0.0, 1.0) * head(after) / head(before)).min(1.0)
}

/// A microsecond a value is a second a million.
fn core_seconds_per_million(classes: &[ClassForecast], prospect: &Prospect) -> f64 {
    let encoded = classes.iter().filter(|it| it.method != Method::STORE);
    let work = |it: &ClassForecast| it.encode.0 + prospect.reads_per_write * it.decode.0;
    let seconds: f64 = encoded.map(|it| it.values as f64 * work(it)).sum();
    let values: usize = classes.iter().map(|it| it.values).sum();
    1e6 * seconds / values.max(1) as f64
}

/// Returns the counts that a store of these items would have.
fn tally(sample: &[Sampled], prospect: &Prospect) -> Tally {
    let bytes: usize = sample
        .iter()
        .map(|Sampled { key, value }| 8 + key.len() + value.len())
        .sum();
    let many = 1_000_000.0;
    let counts = ClassCounts {
        encoded: many as u64,
        decoded: (prospect.reads_per_write * many) as u64,
        ..ClassCounts::default()
    };
    Tally {
        classes: vec![counts; CLASSES],
        items: sample.len() as u64,
        bytes: bytes as u64,
        judged: many as u64,
        judged_fetched: (prospect.fetched_share.clamp(0.0, 1.0) * many) as u64,
        ..Tally::default()
    }
}

fn is_measured(number: usize) -> bool {
    number.is_multiple_of(MEASURED_ONE_IN)
}

/// Shows the values to the learner, until it has no more work.
fn learn(coding: &Coding, sample: &[Sampled], tally: &Tally) -> Result<()> {
    // Nothing is stored here, so memory is not short.
    let space = Space::new(1 << 40, SLAB_BYTES, 0)?;
    let mut offered = 0;
    for (number, Sampled { key, value }) in sample.iter().enumerate() {
        if is_measured(number) {
            continue;
        }
        if offered + value.len() > OFFERED_BYTES {
            coding.tune(&space, tally, true)?;
            offered = 0;
        }
        offered += value.len();
        coding.offer(key, value);
    }
    while coding.tune(&space, tally, true)? {}
    Ok(())
}

/// A class with its number, if it is known, and the values to be measured.
type Found<'a> = (Option<u16>, ClassForecast, Vec<&'a [u8]>);

fn classes<'a>(sample: &'a [Sampled], plan: &Plan) -> Vec<Found<'a>> {
    let mut found: Vec<Found<'a>> = Vec::new();
    for (at, Sampled { key, value }) in sample.iter().enumerate() {
        let class = plan.prefixes.class(key, value.len());
        let class = class.filter(|class| plan.of(*class).is_some());
        let place = found.iter().position(|it| it.0 == class);
        let place = place.unwrap_or_else(|| {
            let name = class.map_or(String::new(), |class| plan.prefixes.name(class));
            found.push((class, unknown(name), Vec::new()));
            found.len() - 1
        });
        let (_, forecast, values) = &mut found[place];
        forecast.values += 1;
        let weight = 1.0 / forecast.values as f64;
        forecast.key_bytes += (key.len() as f64 - forecast.key_bytes) * weight;
        forecast.value_bytes += (value.len() as f64 - forecast.value_bytes) * weight;
        if is_measured(at) && values.len() < MEASURED_MAX {
            values.push(value);
        }
    }
    found
}

fn unknown(name: String) -> ClassForecast {
    ClassForecast {
        name,
        values: 0,
        key_bytes: 0.0,
        value_bytes: 0.0,
        method: Method::STORE,
        codec: None,
        stored_bytes: 0.0,
        encode: Seconds(0.0),
        decode: Seconds(0.0),
        pays_from: None,
        measured: 0,
    }
}

/// Measures the encoding of a class, or else the method that would pay first, on values that nothing has learned from.
fn measure(
    forecast: &mut ClassForecast,
    values: &[&[u8]],
    (forms, chosen): (&[Arc<Form>], Option<Arc<Form>>),
    (prospect, tally): (&Prospect, &Tally),
) {
    let may = |value: &&[u8]| form::may_encode(value.len());
    let encodable: Vec<&[u8]> = values.iter().copied().filter(may).collect();
    if encodable.is_empty() {
        return;
    }
    let mut demand = Demand::default();
    demand.follow(tally);
    let worth_for_a_second = demand.worth_of_byte(Seconds(1.0));
    let tried = |form: &Arc<Form>| {
        // The first pass makes tables and warms caches.
        form::time(form, encodable.iter().copied());
        let found = form::time(form, encodable.iter().copied());
        let each = |of_all: f64| of_all / found.values as f64;
        let (encode, decode) = (each(found.encode.0), each(found.decode.0));
        let stored_bytes =
            forecast.value_bytes * found.stored_bytes as f64 / found.raw_bytes as f64;
        let saved_bytes = forecast.value_bytes - stored_bytes;
        let work = encode + prospect.reads_per_write * decode;
        ClassForecast {
            codec: Some(form.method),
            measured: found.values,
            stored_bytes,
            encode: Seconds(encode),
            decode: Seconds(decode),
            pays_from: (saved_bytes > 0.0)
                .then(|| Seconds(work / (worth_for_a_second * saved_bytes))),
            ..forecast.clone()
        }
    };
    let found = match &chosen {
        Some(form) => Some(ClassForecast {
            method: form.method,
            ..tried(form)
        }),
        None => {
            let price =
                |it: &ClassForecast| it.pays_from.map_or(f64::INFINITY, |seconds| seconds.0);
            let all = forms.iter().map(tried);
            all.min_by(|one, other| price(one).total_cmp(&price(other)))
        }
    };
    if let Some(found) = found {
        *forecast = found;
    }
}

/// The bytes that memcached takes for an item: header, CAS, the ends of key and value, and a pointer of its table. The
/// item lies in the smallest chunk that is large enough; each size is 1.25 times the one before (its default).
fn memcached_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    let item_bytes = 48 + 8 + key_bytes + 1 + value_bytes + 2;
    let mut chunk_bytes = 96;
    while chunk_bytes < item_bytes && chunk_bytes < (512 << 10) {
        chunk_bytes = (chunk_bytes * 5 / 4).next_multiple_of(8);
    }
    chunk_bytes.max(item_bytes) + 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(kinds: &[&str]) -> Vec<Sampled> {
        let mut random = fastrand::Rng::with_seed(9);
        let mut sample = Vec::new();
        for number in 0..4000_u32 {
            for kind in kinds {
                let value: Vec<u8> = match *kind {
                    "noise" => (0..300).map(|_| random.u8(..)).collect(),
                    _ => format!(
                        "{{\"id\":{},\"name\":\"user {}\",\"mail\":\"user{}@example.org\",\"created\":\"2026-01-{:02}\",\"active\":{}}}",
                        random.u32(..),
                        random.u16(..),
                        random.u16(..),
                        random.u8(1..29),
                        random.bool()
                    )
                    .into_bytes(),
                };
                sample.push(Sampled {
                    key: format!("{kind}:{number}").into_bytes().into(),
                    value: value.into(),
                });
            }
        }
        sample
    }

    #[test]
    fn classes_come_to_what_they_are() {
        let found = predict(&sample(&["user", "noise"]), &Prospect::default()).unwrap();
        let class = |name: &str| found.classes.iter().find(|it| it.name == name).unwrap();
        let user = class("user/256");
        // The choice of the method depends on the machine's times.
        assert_ne!(user.method, Method::STORE, "{user:?}");
        assert!(user.stored_bytes < user.value_bytes / 2.0, "{user:?}");
        assert!(user.pays_from.unwrap().0 < 1e-3, "{user:?}");
        let noise = class("noise/1024");
        assert_eq!(
            (noise.method, noise.pays_from),
            (Method::STORE, None),
            "{noise:?}"
        );
        assert_eq!(noise.values + user.values, 8000);
        let gain = found.items_per_gib / found.items_per_gib_raw;
        assert!((1.1..1.4).contains(&gain), "{found:?}");
        assert!(found.items_per_gib_raw > found.items_per_gib_memcached);
        assert_eq!(found.hit_share, None);
        // Half of the values are encoded, and each of these is decoded twice.
        let work = 1e6 * (user.encode.0 + 2.0 * user.decode.0) / 2.0;
        let said = found.core_seconds_per_million;
        assert!((said - work).abs() < 1e-9 * work && work > 0.0, "{found:?}");
        let known = Prospect {
            hit_share: Some(0.5),
            ..Prospect::default()
        };
        let found = predict(&sample(&["user"]), &known).unwrap();
        let share = found.hit_share.unwrap();
        assert!((0.51..0.6).contains(&share), "{found:?}");
    }

    #[test]
    fn more_items_find_what_the_model_says() {
        let check = |share: f64, items: [f64; 2], expected: f64| {
            let found = hit_share(share, items);
            assert!((found - expected).abs() < 5e-4, "{found}");
        };
        check(0.7, [1e6, 1e6], 0.7);
        check(0.0, [1e6, 3e6], 0.0);
        check(0.99, [1e6, 1e9], 1.0);
        // Sums of k^-0.99 to ten and to a hundred.
        check(0.4, [10.0, 100.0], 0.716_42);
        check(0.716_42, [100.0, 10.0], 0.4);
        assert!(hit_share(0.5, [0.0, 0.0]) > 0.49);
        // The shares measured in `peng2020/misses`, with as many more items as `peng2020/items` counted.
        for (before, gain, after) in [
            (0.763, 2.87, 0.860),
            (0.761, 3.40, 0.856),
            (0.613, 1.64, 0.638),
            (0.762, 1.01, 0.767),
        ] {
            let found = hit_share(before, [1e5, 1e5 * gain]);
            assert!((found - after).abs() < 0.03, "{found} and {after}");
        }
    }

    #[test]
    fn cheap_misses_pay_for_nothing() {
        let cheap = Prospect {
            miss_microseconds: 0,
            ..Prospect::default()
        };
        let found = predict(&sample(&["user"]), &cheap).unwrap();
        assert_eq!(found.classes[0].method, Method::STORE, "{found:?}");
        assert!(found.classes[0].pays_from.unwrap().0 > 0.0);
        let gain = found.items_per_gib / found.items_per_gib_raw;
        assert!((gain - 1.0).abs() < 1e-9, "{found:?}");
        assert_eq!(found.core_seconds_per_million, 0.0, "{found:?}");
        assert!(predict(&[], &cheap).is_err());
    }

    #[test]
    fn chunks_are_those_of_memcached() {
        let check = |item_bytes: usize, expected: usize| {
            assert_eq!(memcached_bytes(1, item_bytes - 60), expected + 8);
        };
        check(96, 96);
        check(97, 120);
        check(121, 152);
        check(600, 600);
        check(601, 752);
        check(1184, 1184);
    }
}
