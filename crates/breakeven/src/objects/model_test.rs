//! Random commands against a map of the standard library with a clock of its own: never a wrong value.

use std::collections::HashMap;

use super::*;
use crate::codec::Method;

#[derive(Clone, Debug)]
struct Known {
    value: Vec<u8>,
    flags: u32,
    expires: Option<u32>,
    cas: u64,
}

/// The oracle: the items that may be there. Where items may be evicted, absence is right too.
struct Model {
    known: HashMap<Vec<u8>, Known>,
    is_exact: bool,
    now: u32,
    hits: u64,
    misses: u64,
}

impl Model {
    fn live(&mut self, key: &[u8]) -> Option<&mut Known> {
        let now = self.now;
        self.known
            .retain(|other, known| other != key || known.expires.is_none_or(|second| second > now));
        self.known.get_mut(key)
    }

    /// Brings the oracle to the store's answer for a key, if that is allowed.
    fn agree(&mut self, objects: &Objects, key: &[u8]) {
        let now = Now { seconds: self.now };
        let is_exact = self.is_exact;
        let found = objects.get(key, now, |item| {
            (item.value.to_vec(), item.flags, item.expires, item.cas)
        });
        let known = self.live(key).cloned();
        match (found, known) {
            (None, None) => self.misses += 1,
            (None, Some(_)) => {
                assert!(
                    !is_exact,
                    "an item is lost: {:?}",
                    String::from_utf8_lossy(key)
                );
                self.known.remove(key);
                self.misses += 1;
            }
            (Some(found), Some(known)) => {
                assert!(
                    found.0 == known.value,
                    "a wrong value of {:?}",
                    String::from_utf8_lossy(key)
                );
                assert_eq!(
                    (found.1, found.2, found.3),
                    (known.flags, known.expires, known.cas)
                );
                self.hits += 1;
            }
            (Some(_), None) => panic!("an item that is gone: {:?}", String::from_utf8_lossy(key)),
        }
    }
}

fn random_value(random: &mut fastrand::Rng, length_max: usize) -> Vec<u8> {
    let shift = random.u32(0..8);
    let length = random.usize(0..(length_max >> shift).max(1));
    match random.u8(0..4) {
        0 => (0..length).map(|_| random.u8(..)).collect(),
        1 => random.u64(..).to_string().into_bytes(),
        _ => {
            let text = format!(
                "{{\"id\": {}, \"name\": \"somebody\", \"tags\": [\"x\"]}}",
                random.u32(..)
            );
            text.bytes().cycle().take(length).collect()
        }
    }
}

fn random_end(random: &mut fastrand::Rng, now: u32) -> Option<u32> {
    let most = [20, 2000, 200_000][random.usize(0..3)];
    random.bool().then(|| now + random.u32(0..most))
}

fn random_mode(random: &mut fastrand::Rng, known: Option<&Known>) -> StoreMode {
    match random.u8(0..8) {
        0 => StoreMode::Add,
        1 => StoreMode::Replace,
        2 => StoreMode::Append,
        3 => StoreMode::Prepend,
        4 => StoreMode::Cas(known.map_or(1, |known| known.cas) + random.u64(0..2)),
        _ => StoreMode::Set,
    }
}

fn stored(
    objects: &Objects,
    model: &mut Model,
    random: &mut fastrand::Rng,
    key: &[u8],
    length_max: usize,
) {
    let now = Now { seconds: model.now };
    let value = random_value(random, length_max);
    let expires = random_end(random, model.now);
    let flags = if random.bool() { 0 } else { random.u32(..) };
    model.agree(objects, key);
    let known = model.live(key).cloned();
    let mode = random_mode(random, known.as_ref());
    let joined = match (mode, &known) {
        (StoreMode::Append, Some(known)) => [&known.value[..], &value].concat(),
        (StoreMode::Prepend, Some(known)) => [&value[..], &known.value].concat(),
        _ => value.clone(),
    };
    let is_joined = matches!(mode, StoreMode::Append | StoreMode::Prepend);
    let store = Store {
        flags,
        expires,
        ..Store::new(mode, key, &value)
    };
    let outcome = objects.store(&store, now);
    let holds = match (mode, &known) {
        (StoreMode::Set, _) | (StoreMode::Add, None) => true,
        (StoreMode::Add, Some(_)) => false,
        (StoreMode::Cas(cas), Some(known)) => cas == known.cas,
        (_, known) => known.is_some(),
    };
    match outcome {
        StoreOutcome::Stored { cas } => {
            assert!(holds, "{mode:?} is stored though {known:?}");
            assert!(
                known.as_ref().is_none_or(|known| cas > known.cas),
                "CAS rises"
            );
            let (flags, expires) = match (&known, is_joined) {
                (Some(known), true) => (known.flags, known.expires),
                _ => (flags, expires),
            };
            model.known.insert(
                key.to_vec(),
                Known {
                    value: joined,
                    flags,
                    expires,
                    cas,
                },
            );
        }
        StoreOutcome::TooLarge | StoreOutcome::OutOfMemory => {
            let is_long = objects.is_too_large(key.len(), joined.len(), u32::MAX);
            assert!(is_long || holds && outcome == StoreOutcome::OutOfMemory);
            if mode == StoreMode::Set {
                model.known.remove(key);
            }
        }
        // Making room may have dropped the item.
        StoreOutcome::NotStored | StoreOutcome::NotFound => {
            assert!(!holds || !model.is_exact, "{mode:?}")
        }
        StoreOutcome::Exists => assert!(!holds, "{mode:?}"),
    }
}

fn counted(objects: &Objects, model: &mut Model, random: &mut fastrand::Rng, key: &[u8]) {
    let now = Now { seconds: model.now };
    model.agree(objects, key);
    let count = match random.bool() {
        true => Count::up(random.u64(0..1000)),
        false => Count::down(random.u64(0..1000)),
    };
    let outcome = objects.count(key, &count, now);
    let Some(known) = model.live(key) else {
        assert_eq!(outcome, CountOutcome::NotFound);
        return;
    };
    let text = String::from_utf8_lossy(&known.value).into_owned();
    let is_space = |letter: char| matches!(letter, ' ' | '\t'..='\r');
    let mut words = text.trim_start_matches(is_space).split(is_space);
    let digits = words.next().unwrap_or_default();
    match (digits.parse::<u64>(), outcome) {
        (Ok(old), CountOutcome::Counted { number, cas, .. }) => {
            let expected = match count.is_decrement {
                true => old.saturating_sub(count.delta),
                false => old.wrapping_add(count.delta),
            };
            assert_eq!(number, expected);
            assert!(cas > known.cas);
            let width = known.value.len();
            known.value = format!("{number:<width$}").into_bytes();
            known.cas = cas;
        }
        (Err(_), CountOutcome::NotNumeric) | (Ok(_), CountOutcome::OutOfMemory) => {}
        // Making room for its digits dropped it.
        (_, CountOutcome::NotFound) if !model.is_exact => {}
        (old, outcome) => panic!("{old:?} {outcome:?}"),
    }
}

/// One random command.
fn step(
    objects: &Objects,
    model: &mut Model,
    random: &mut fastrand::Rng,
    key_count: u32,
    length_max: usize,
) {
    let key = format!("user:{}", random.u32(0..key_count)).into_bytes();
    let now = Now { seconds: model.now };
    match random.u32(0..200) {
        0..80 => stored(objects, model, random, &key, length_max),
        80..110 => model.agree(objects, &key),
        110..130 => counted(objects, model, random, &key),
        130..145 => {
            model.agree(objects, &key);
            let deleted = objects.delete(&key, &Delete::default(), now);
            let was_there = model.live(&key).is_some();
            assert_eq!(deleted == DeleteOutcome::Deleted, was_there);
            model.known.remove(&key);
        }
        145..160 => {
            model.agree(objects, &key);
            let expires = random_end(random, model.now);
            let touched = objects.touch(&key, expires, now);
            match (model.live(&key), touched) {
                (Some(known), TouchOutcome::Touched) => known.expires = expires,
                // Without room for another header the end stays unchanged.
                (Some(_), TouchOutcome::OutOfMemory) | (None, TouchOutcome::NotFound) => {}
                (Some(_), TouchOutcome::NotFound) => assert!(!model.is_exact),
                (None, outcome) => panic!("{outcome:?} of nothing"),
            }
        }
        160..199 if random.u8(0..8) == 0 => model.now += random.u32(0..20),
        160..199 => drop(objects.maintain(random.usize(0..40), now)),
        _ if random.u8(0..64) == 0 => {
            objects.flush_all(model.now, now);
            model.known.clear();
        }
        _ => {}
    }
}

fn check(
    options: ObjectsOptions,
    hash_bits: u32,
    key_count: u32,
    length_max: usize,
    is_exact: bool,
) -> ObjectsStats {
    let mut random = crate::testing::seeded("objects model", 20_200_304 + u64::from(hash_bits));
    let objects = Objects::with_hash_bits(options, hash_bits).expect("sane options");
    let mut model = Model {
        known: HashMap::new(),
        is_exact,
        now: 1,
        hits: 0,
        misses: 0,
    };
    let steps = if crate::testing::is_full() {
        400_000
    } else {
        40_000
    };
    for number in 0..steps {
        step(&objects, &mut model, &mut random, key_count, length_max);
        let stats = objects.stats();
        assert!(stats.held_bytes <= options.memory_bytes, "{stats:?}");
        if number % 100 == 0 {
            while tune(&objects, model.now) {}
        }
        if number % 1000 == 0 {
            audit(&objects, Now { seconds: model.now });
        }
    }
    let keys: Vec<Vec<u8>> = model.known.keys().cloned().collect();
    keys.iter().for_each(|key| model.agree(&objects, key));
    let stats = objects.stats();
    println!(
        "objects model: {steps} commands, {} hits, {} misses, {stats:?}",
        model.hits, model.misses
    );
    assert!(model.hits > steps / 10 && model.misses > steps / 50);
    stats
}

/// The counts agree with the items.
fn audit(objects: &Objects, now: Now) {
    let stats = objects.stats();
    let mut found = (0, 0);
    for shard in 0..objects.shard_count() {
        let mut shard = objects.lock(shard, now);
        let all = 0;
        shard.visit(all, |_, item| {
            found = (found.0 + 1, found.1 + item.stored_bytes as u64)
        });
    }
    assert_eq!(found, (stats.items, stats.bytes), "{stats:?}");
}

fn small() -> ObjectsOptions {
    ObjectsOptions {
        memory_bytes: 2 << 20,
        item_bytes_max: 300 << 10,
        shards_log2: 2,
        dictionary_bytes_max: Some(512 << 10),
        ..ObjectsOptions::default()
    }
}

#[test]
fn nothing_is_lost_while_there_is_room() {
    let options = ObjectsOptions {
        memory_bytes: 64 << 20,
        ..ObjectsOptions::default()
    };
    check(options, 64, 3000, 2000, true);
}

#[test]
fn evicted_or_right() {
    let options = small();
    check(options, 64, 2000, 20_000, false);
    let objects = Objects::new(options).expect("sane options");
    for number in 0..100_000_u32 {
        let key = number.to_string();
        let outcome = objects.store(
            &Store::new(StoreMode::Set, key.as_bytes(), &[7; 300]),
            Now { seconds: 1 },
        );
        assert!(
            matches!(outcome, StoreOutcome::Stored { .. }),
            "{number}: {outcome:?}"
        );
    }
    assert!(objects.stats().evictions > 80_000);
}

/// Runs one step of learning.
fn tune(objects: &Objects, seconds: u32) -> bool {
    objects.tune(Now { seconds }).expect("codecs work")
}

#[test]
fn encoded_or_right() {
    let tiny = ObjectsOptions {
        memory_bytes: 1 << 20,
        dictionary_bytes_max: Some(256 << 10),
        ..small()
    };
    let stats = check(tiny, 64, 3000, 8000, false);
    assert!(stats.encoded > 400 && stats.decoded > 200, "{stats:?}");
}

#[test]
fn keys_of_one_hash_are_not_mixed_up() {
    check(small(), 6, 1000, 4000, false);
}

#[test]
fn values_longer_than_a_slab_are_chained() {
    check(small(), 64, 200, 400_000, false);
}

#[test]
fn without_eviction_nothing_goes_and_dead_bytes_are_used_again() {
    let options = ObjectsOptions {
        evict: false,
        ..small()
    };
    check(options, 64, 4000, 1500, true);
}

#[test]
fn what_is_overwritten_takes_no_more_than_what_is_live_while_there_is_room() {
    let options = ObjectsOptions {
        memory_bytes: 256 << 20,
        ..ObjectsOptions::default()
    };
    let objects = Objects::new(options).expect("sane options");
    let mut random = fastrand::Rng::with_seed(5);
    let now = Now { seconds: 1 };
    let mut lengths = vec![0_usize; 40_000];
    let mut stored_bytes = 0;
    let value = |number: usize, length: usize| vec![(number + length) as u8; length];
    for round in 0..400_000 {
        let number = if round < lengths.len() {
            round
        } else {
            random.usize(..lengths.len())
        };
        lengths[number] = random.usize(100..900);
        let (key, value) = (number.to_string(), value(number, lengths[number]));
        let outcome = objects.store(&Store::new(StoreMode::Set, key.as_bytes(), &value), now);
        assert!(
            matches!(outcome, StoreOutcome::Stored { .. }),
            "{outcome:?}"
        );
        stored_bytes += value.len();
    }
    audit(&objects, now);
    for (number, length) in lengths.iter().enumerate() {
        let found = objects.get(number.to_string().as_bytes(), now, |item| {
            item.value.to_vec()
        });
        assert_eq!(found, Some(value(number, *length)), "{number}");
    }
    let stats = objects.stats();
    let segments_bytes = 4 * objects.shard_count() as u64 * stats.slab_bytes;
    println!(
        "overwritten: {stored_bytes} bytes, {} live, {} held",
        stats.bytes, stats.held_bytes
    );
    assert!(stored_bytes as u64 > 7 * stats.bytes);
    assert!(
        stats.held_bytes < 2 * stats.bytes + segments_bytes + (2 << 20),
        "{stats:?}"
    );
    assert!(stats.evictions == 0 && stats.encoded == 0, "{stats:?}");
}

/// One value overwritten without end fills segments whose last item dies: nothing of them stays.
#[test]
fn segments_that_are_freed_where_they_wait_leave_nothing() {
    let options = ObjectsOptions {
        shards_log2: 0,
        ..ObjectsOptions::default()
    };
    let objects = Objects::new(options).expect("sane options");
    let now = Now { seconds: 1 };
    let value = vec![7; objects.space.slab_bytes() / 2 + 1];
    let mut log_bytes = 0;
    for round in 0..20_000 {
        let outcome = objects.store(&Store::new(StoreMode::Set, b"key", &value), now);
        assert!(matches!(outcome, StoreOutcome::Stored { .. }));
        if round == 1000 {
            log_bytes = objects.lock(0, now).log.memory_bytes();
        }
    }
    assert_eq!(objects.lock(0, now).log.memory_bytes(), log_bytes);
    audit(&objects, now);
}

/// All of a full shard is fresh at its first fill: moving frees nothing for a long time, and still there is room.
#[test]
fn a_shard_of_many_segments_has_room_at_its_first_fill() {
    let options = ObjectsOptions {
        shards_log2: 0,
        memory_bytes: 16 << 20,
        encode: true,
        ..ObjectsOptions::default()
    };
    let objects = Objects::new(options).expect("sane options");
    let now = Now { seconds: 1 };
    let mut random = crate::testing::seeded("objects first fill", 23);
    let mut value = vec![0; 3000];
    for number in 0..10_000_u32 {
        random.fill(&mut value);
        let key = number.to_le_bytes();
        let store = Store::new(StoreMode::Set, &key, &value);
        let outcome = objects.store(&store, now);
        assert!(
            matches!(outcome, StoreOutcome::Stored { .. }),
            "{number}: {outcome:?}"
        );
    }
    let stats = objects.stats();
    assert!(stats.evictions > 1000, "{stats:?}");
    audit(&objects, now);
}

#[test]
fn no_two_items_have_the_same_cas() {
    let options = ObjectsOptions {
        cas_after: 1_000_000,
        ..ObjectsOptions::default()
    };
    let objects = Objects::new(options).expect("sane options");
    assert!(objects.shard_count() > 1);
    let now = Now { seconds: 1 };
    let mut given = std::collections::HashSet::new();
    for number in 0..20_000_u32 {
        let key = (number % 5000).to_string();
        let store = Store::new(StoreMode::Set, key.as_bytes(), b"value");
        let StoreOutcome::Stored { cas } = objects.store(&store, now) else {
            panic!("there is room");
        };
        assert!(cas > 1_000_000, "a process before may have given {cas}");
        assert!(given.insert(cas), "{cas} twice");
    }
    audit(&objects, now);
}

#[test]
fn memory_a_key_stays_low_over_a_growth() {
    let options = ObjectsOptions {
        memory_bytes: 512 << 20,
        ..ObjectsOptions::default()
    };
    let objects = Objects::new(options).expect("sane options");
    let (mut sum, mut samples, mut most) = (0.0, 0.0, 0.0_f64);
    for count in 1..=1_000_000_u32 {
        let key = format!("key{count:07}");
        objects.store(
            &Store::new(StoreMode::Set, key.as_bytes(), &[1; 22]),
            Now { seconds: 1 },
        );
        if count >= 100_000 && count % 10_000 == 0 {
            let stats = objects.stats();
            assert_eq!(stats.items, u64::from(count));
            let beside = stats.bytes - stats.bytes_logical + objects.space.heap_bytes();
            let each = beside as f64 / f64::from(count);
            (sum, samples, most) = (sum + each, samples + 1.0, most.max(each));
        }
    }
    println!(
        "objects: mean {:.2} bytes a key beside key and value, at most {most:.2}",
        sum / samples
    );
    assert!(sum / samples <= 24.0 && most <= 36.0);
}

#[test]
fn ends_are_exact_to_the_second_and_free_whole_segments() {
    let objects = Objects::new(small()).expect("sane options");
    for number in 0..4000_u32 {
        let expires = Some(10 + number % 3);
        let key = number.to_string();
        let store = Store {
            expires,
            ..Store::new(StoreMode::Set, key.as_bytes(), &[7; 200])
        };
        objects.store(&store, Now { seconds: 1 });
    }
    for seconds in 9..13 {
        let now = Now { seconds };
        for number in 0..4000_u32 {
            let found = objects
                .get(number.to_string().as_bytes(), now, |_| ())
                .is_some();
            assert_eq!(found, 10 + number % 3 > seconds);
        }
        if seconds == 9 {
            assert!(objects.stats().slabs > 40);
        }
    }
    assert_eq!(objects.stats().items, 0);
    while objects.maintain(1000, Now { seconds: 14 }) {}
    assert!(objects.stats().slabs <= 4 * objects.shard_count() as u64);
}

/// A value of one of several kinds that share no words.
fn record(random: &mut fastrand::Rng, kind: usize) -> Vec<u8> {
    let words = ["article", "delivery", "temperature"];
    let others = ["warehouse", "customer", "sensor"];
    let (word, other) = (words[kind], others[kind]);
    let (number, price) = (random.u32(..), random.u16(..));
    let text = format!(
        "{{\"{word}_number\":{number},\"{other}\":\"{other}-{price}\",\"{word}_price\":{price}.99,\"is_{other}_known\":{},\
         \"{other}_comment\":\"the {word} of this {other} was seen by nobody\",\"state\":\"{kind}{kind}\"}}",
        random.bool()
    );
    text.into_bytes()
}

/// The value stored under a number.
fn record_of(number: u32, kind: usize) -> Vec<u8> {
    record(&mut fastrand::Rng::with_seed(number.into()), kind)
}

fn fill(objects: &Objects, numbers: std::ops::Range<u32>, kind: usize) {
    let now = Now { seconds: 1 };
    for number in numbers {
        let (key, value) = (format!("item:{number}"), record_of(number, kind));
        let store = Store::new(StoreMode::Set, key.as_bytes(), &value);
        let outcome = objects.store(&store, now);
        assert!(
            matches!(outcome, StoreOutcome::Stored { .. }),
            "{outcome:?}"
        );
        if number % 500 == 0 {
            objects.maintain(100, now);
            while tune(objects, 1) {}
        }
    }
}

/// Returns the number of present items; all of them must be right.
fn found(objects: &Objects, numbers: std::ops::Range<u32>, kind: usize) -> u64 {
    let now = Now { seconds: 1 };
    let is_there = |number: &u32| {
        let key = format!("item:{number}");
        let check = |item: ItemRef<'_>| assert!(item.value == record_of(*number, kind), "{number}");
        objects.get(key.as_bytes(), now, check).is_some()
    };
    numbers.filter(is_there).count() as u64
}

fn with_dictionaries() -> ObjectsOptions {
    ObjectsOptions {
        memory_bytes: 8 << 20,
        shards_log2: 2,
        dictionary_bytes_max: Some(2 << 20),
        ..ObjectsOptions::default()
    }
}

#[test]
fn values_that_age_are_encoded_and_more_of_them_are_held() {
    let held = |options: ObjectsOptions| {
        let objects = Objects::new(options).expect("sane options");
        fill(&objects, 0..150_000, 0);
        let before = objects.stats().items;
        let there = found(&objects, 0..150_000, 0);
        // Fetched values may be stored raw again, and others go for that.
        let after = objects.stats().items;
        assert!(
            (after..=before).contains(&there),
            "{after} <= {there} <= {before}"
        );
        (there, objects)
    };
    // Memory is so dear that a codec's stored bytes decide, and not the speed of the machine.
    let dear = ObjectsOptions {
        miss_microseconds: 1_000_000,
        ..with_dictionaries()
    };
    let raw = ObjectsOptions {
        encode: false,
        ..dear
    };
    let plain = ObjectsOptions {
        dictionary_bytes_max: Some(0),
        ..dear
    };
    let ((raw, _), (plain, _), (dense, objects)) = (held(raw), held(plain), held(dear));
    let stats = objects.stats();
    println!("items held: {raw} raw, {plain} without dictionaries, {dense} with them; {stats:?}");
    assert!(plain >= raw && dense > 2 * raw);
    assert!(stats.encoded_items > stats.items / 2 && stats.bytes < stats.bytes_logical);
    assert!(stats.held_bytes <= 8 << 20 && stats.dictionary_bytes <= 2 << 20);
    let classes = objects.classes();
    println!("{classes:?}");
    assert!(classes[0].generation == 1 && classes[0].method.dictionary);
    assert!(classes[0].raw_bytes > 2 * classes[0].stored_bytes);
    let ledger = objects.ledger().stats();
    assert!(
        ledger.samples > 100 && ledger.earnings.is_some(),
        "{ledger:?}"
    );
    // The classes' own ledgers add up to the store's.
    let sum = |of: fn(&ClassStats) -> f64| classes.iter().map(of).sum::<f64>();
    assert_eq!(sum(|it| it.samples as f64), ledger.samples as f64);
    let (store, saved) = (
        sum(|it| it.store_cost),
        sum(|it| it.saved_cost.map_or(0.0, |cost| cost.mean)),
    );
    let earned = ledger.earnings.expect("samples").saved_cost.mean;
    println!(
        "{saved} of {store} s saved, by the whole ledger {earned} of {}",
        ledger.store_cost
    );
    assert!((store / ledger.store_cost - 1.0).abs() < 1e-9);
    assert!((saved - earned).abs() < 0.05 * store);
    let cost = classes[0].saved_cost.expect("samples");
    assert!(cost.low < cost.mean && cost.mean < cost.high, "{cost:?}");
}

#[test]
fn dictionaries_follow_the_values_and_live_as_long_as_their_last_one() {
    let objects = Objects::new(with_dictionaries()).expect("sane options");
    fill(&objects, 0..60_000, 0);
    fill(&objects, 60_000..90_000, 1);
    let generation = objects.classes()[0].generation;
    assert!(generation >= 2, "{:?}", objects.classes());
    // Values of both are there and right.
    let (old, new) = (
        found(&objects, 0..60_000, 0),
        found(&objects, 60_000..90_000, 1),
    );
    println!("generation {generation}: {old} old values, {new} new ones");
    assert!(old > 1000 && new > 1000);
    let bytes = objects.stats().dictionary_bytes;
    objects.flush_all(1, Now { seconds: 1 });
    while objects.maintain(100, Now { seconds: 1 }) {}
    tune(&objects, 1);
    let after = objects.stats().dictionary_bytes;
    assert!(after + (100 << 10) < bytes, "{bytes} bytes, then {after}");
    objects.set_learning(false);
    fill(&objects, 0..60_000, 2);
    assert_eq!(objects.classes()[0].generation, generation);
    assert!(found(&objects, 0..60_000, 2) > 10_000);
}

#[test]
fn what_does_not_shrink_stays_raw_and_costs_nothing() {
    let mut random = crate::testing::seeded("objects noise", 20_200_311);
    let held = |encode: bool, random: &mut fastrand::Rng| {
        let options = ObjectsOptions {
            encode,
            ..with_dictionaries()
        };
        let objects = Objects::new(options).expect("sane options");
        for number in 0..60_000_u32 {
            let value: Vec<u8> = (0..300).map(|_| random.u8(..)).collect();
            let key = format!("noise:{number}");
            objects.store(
                &Store::new(StoreMode::Set, key.as_bytes(), &value),
                Now { seconds: 1 },
            );
            if number % 500 == 0 {
                while tune(&objects, 1) {}
            }
        }
        assert_eq!(objects.stats().encoded, 0);
        objects.stats().items
    };
    let (with, without) = (held(true, &mut random), held(false, &mut random));
    println!("noise: {with} items held, {without} where nothing is encoded");
    assert!(with * 10 >= without * 9);
}

#[test]
fn what_nobody_asks_for_is_encoded_no_more_until_somebody_does() {
    let options = ObjectsOptions {
        memory_bytes: 4 << 20,
        miss_microseconds: 200,
        ..with_dictionaries()
    };
    let objects = Objects::new(options).expect("sane options");
    let is_encoding = || objects.classes()[0].method != Method::STORE;
    // A memory is filled densely, with or without earlier fetches.
    fill(&objects, 0..30_000, 0);
    assert!(is_encoding(), "{:?}", objects.classes());
    fill(&objects, 30_000..700_000, 0);
    assert!(!is_encoding(), "{:?}", objects.classes());
    let before = objects.stats().moved;
    fill(&objects, 700_000..720_000, 0);
    let moved = objects.stats().moved - before;
    let mut there = 0;
    for start in (720_000..800_000).step_by(500) {
        fill(&objects, start..start + 500, 0);
        there += found(&objects, start - 6000..start - 5000, 0);
    }
    println!("of 20,000 unread items {moved} moved; then {there} were found");
    assert!((1..10_000).contains(&moved) && there > 50_000);
    assert!(is_encoding(), "{:?}", objects.classes());
}

#[test]
fn what_is_fetched_often_is_stored_raw_again() {
    let objects = Objects::new(with_dictionaries()).expect("sane options");
    fill(&objects, 0..100_000, 0);
    let there: Vec<u32> = (0..100_000)
        .filter(|number| found(&objects, *number..number + 1, 0) == 1)
        .collect();
    let before = objects.stats();
    // Some of the oldest are raw: nothing was known of their class when they moved on.
    let middle = there.len() / 2;
    for number in &there[middle..middle + 20] {
        let key = format!("item:{number}");
        for _ in 0..100_000 {
            assert!(
                objects
                    .get(key.as_bytes(), Now { seconds: 1 }, |_| ())
                    .is_some()
            );
        }
    }
    let stats = objects.stats();
    let (decoded, promoted) = (
        stats.decoded - before.decoded,
        stats.promoted - before.promoted,
    );
    println!("20 items fetched 2,000,000 times: {decoded} decoded, {promoted} promoted");
    assert!((5..=20).contains(&promoted) && decoded < 1_000_000);
    assert_eq!(found(&objects, 0..100_000, 0) as usize, there.len());
}
