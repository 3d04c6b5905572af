//! A store of objects that loses, repeats and delays requests, and the vault on it. Its changes are kept as a log; each
//! prefix of the log is the state after a crash.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use super::objects_end::{ObjectHead, Part, RequestError, Requests};
use super::proof_test::{PASSWORD, Rng, Subject, Subjected, pool};
use super::*;
use crate::storage::proof::State as Holds;

/// One change that was carried out.
#[derive(Clone, Debug)]
enum Change {
    Put(String, Arc<[u8]>),
    Delete(String),
}

pub(super) type Objects = BTreeMap<String, (Arc<[u8]>, i64)>;

fn apply(objects: &mut Objects, change: &Change, now: i64) -> Put {
    match change {
        Change::Put(name, bytes) => match objects.contains_key(name) {
            true => Put::Exists,
            false => {
                objects.insert(name.clone(), (Arc::clone(bytes), now));
                Put::Created
            }
        },
        Change::Delete(name) => {
            objects.remove(name);
            Put::Created
        }
    }
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It is refused: too many requests.
    Throttled,
    /// The request or its answer is cut on the way. Nothing of a put is kept, since objects appear whole or not at all.
    Torn,
    /// It is carried out, and the answer is lost.
    AnswerLost,
    /// It is carried out twice, and the second answer comes back.
    Doubled,
    /// The client gives it up, and it is carried out some requests later.
    Late,
    /// The client gives it up, and it is carried out long after the process has ended.
    Stray,
    /// Only the first half of a listing comes, without an error.
    HalfListed,
    /// Nothing of a listing comes, without an error.
    NotListed,
    /// The process dies before it.
    Dies,
    /// The process dies behind it.
    DiesBehind,
}

impl Trouble {
    pub(super) const ALL: [Trouble; 10] = [
        Trouble::Throttled,
        Trouble::Torn,
        Trouble::AnswerLost,
        Trouble::Doubled,
        Trouble::Late,
        Trouble::Stray,
        Trouble::HalfListed,
        Trouble::NotListed,
        Trouble::Dies,
        Trouble::DiesBehind,
    ];
    /// Troubles that come at random in a life; the work succeeds in the end.
    const PASSING: [Trouble; 5] = [
        Trouble::Throttled,
        Trouble::Torn,
        Trouble::AnswerLost,
        Trouble::Doubled,
        Trouble::Late,
    ];
}

#[derive(Default)]
pub(super) struct State {
    pub(super) objects: Objects,
    log: Vec<Change>,
    /// Changes on their way, each with how many requests pass before it arrives.
    late: Vec<(u64, Change)>,
    /// Changes that arrive when the process is gone.
    stray: Vec<Change>,
    pub(super) now: i64,
    random: Option<Rng>,
    /// The fate of the request with this number.
    pub(super) planned: Option<(u64, Trouble)>,
    /// Requests so far.
    pub(super) requests: u64,
    pub(super) troubles: u64,
    is_dead: bool,
    overwrites: bool,
}

/// The store, as one process sees it.
#[derive(Default)]
pub(super) struct SimulatedObjects(pub(super) Mutex<State>);

type Answer<T> = std::result::Result<T, RequestError>;

impl SimulatedObjects {
    pub(super) fn of(objects: Objects, now: i64) -> Arc<SimulatedObjects> {
        let store = SimulatedObjects::default();
        {
            let mut state = store.0.lock().unwrap();
            (state.objects, state.now) = (objects, now);
        }
        Arc::new(store)
    }

    pub(super) fn far(self: &Arc<Self>, seed: u64) -> Arc<dyn FarEnd> {
        ObjectsEnd::shared(Arc::clone(self) as Arc<dyn Requests>, Entropy::seeded(seed))
    }

    /// Returns the store as the next process finds it: an hour later, after all late requests have arrived.
    pub(super) fn next_process(&self) -> Arc<SimulatedObjects> {
        let mut state = self.0.lock().unwrap();
        for change in std::mem::take(&mut state.stray) {
            state.change(change);
        }
        SimulatedObjects::of(state.objects.clone(), state.now + 3600)
    }

    /// Lets time pass; says whether the request meets trouble, and which.
    fn arrive(&self) -> Answer<(MutexGuard<'_, State>, Option<Trouble>)> {
        let mut state = self.0.lock().unwrap();
        state.refuse_if_dead()?;
        state.now += 1;
        let mut arrived = Vec::new();
        for (left, change) in &mut state.late {
            *left = left.saturating_sub(1);
            if *left == 0 {
                arrived.push(change.clone());
            }
        }
        state.late.retain(|(left, _)| *left > 0);
        for change in arrived {
            state.change(change);
        }
        let number = state.requests;
        state.requests += 1;
        let planned = state.planned.filter(|(at, _)| *at == number);
        let drawn = state.random.as_mut().and_then(|random| {
            let draw = usize::from(random.u8(..40));
            Trouble::PASSING.get(draw).copied()
        });
        let trouble = planned.map(|(_, trouble)| trouble).or(drawn);
        state.troubles += u64::from(trouble.is_some());
        if let Some(Trouble::Dies) = trouble {
            state.is_dead = true;
            state.refuse_if_dead()?;
        }
        Ok((state, trouble))
    }

    fn changed(&self, change: Change) -> Answer<Put> {
        let (mut state, trouble) = self.arrive()?;
        let again = |reason: &str| Err(RequestError::Again(reason.to_string()));
        match trouble {
            Some(Trouble::Throttled) => again("too many requests"),
            Some(Trouble::Torn) => again("the line broke off"),
            Some(Trouble::AnswerLost) => {
                state.change(change);
                again("the answer was lost")
            }
            Some(Trouble::Doubled) => {
                state.change(change.clone());
                Ok(state.change(change))
            }
            Some(Trouble::Late) => {
                state.late.push((5, change));
                again("no answer in time")
            }
            Some(Trouble::Stray) => {
                state.stray.push(change);
                again("no answer in time")
            }
            Some(Trouble::DiesBehind) => {
                state.change(change);
                state.is_dead = true;
                state.refuse_if_dead().map(|()| Put::Created)
            }
            Some(Trouble::HalfListed | Trouble::NotListed | Trouble::Dies) | None => {
                Ok(state.change(change))
            }
        }
    }

    fn asked<T>(&self, answer: impl FnOnce(&State, Option<Trouble>) -> T) -> Answer<T> {
        let (mut state, trouble) = self.arrive()?;
        match trouble {
            Some(Trouble::HalfListed | Trouble::NotListed) | None => Ok(answer(&state, trouble)),
            Some(Trouble::DiesBehind) => {
                state.is_dead = true;
                state.refuse_if_dead().map(|()| answer(&state, None))
            }
            Some(_) => Err(RequestError::Again("the line broke off".to_string())),
        }
    }
}

impl State {
    fn refuse_if_dead(&self) -> Answer<()> {
        match self.is_dead {
            false => Ok(()),
            true => Err(RequestError::Refused(Error::invalid(
                "process",
                "it is dead",
            ))),
        }
    }

    fn change(&mut self, change: Change) -> Put {
        if self.overwrites
            && let Change::Put(name, _) = &change
        {
            self.objects.remove(name);
        }
        let put = apply(&mut self.objects, &change, self.now);
        if put == Put::Created {
            self.log.push(change);
        }
        put
    }
}

impl Requests for SimulatedObjects {
    fn put_new(&self, name: &str, bytes: &[u8]) -> Answer<Put> {
        self.changed(Change::Put(name.to_string(), bytes.into()))
    }

    fn get(&self, name: &str, part: Part) -> Answer<Option<Vec<u8>>> {
        self.asked(|state, _| {
            let bytes = &state.objects.get(name)?.0;
            Some(match part {
                Part::Whole { most_bytes } => {
                    assert!(bytes.len() as u64 <= most_bytes);
                    bytes.to_vec()
                }
                Part::Range {
                    offset,
                    length_bytes,
                } => bytes
                    .iter()
                    .skip(offset as usize)
                    .take(length_bytes)
                    .copied()
                    .collect(),
            })
        })
    }

    fn head(&self, name: &str) -> Answer<Option<ObjectHead>> {
        self.asked(|state, _| {
            state.objects.get(name).map(|(bytes, put_at)| ObjectHead {
                size_bytes: bytes.len() as u64,
                put_at: *put_at,
            })
        })
    }

    fn list(&self, folder: &str) -> Answer<Vec<Listed>> {
        self.asked(|state, trouble| {
            let named = state.objects.iter().filter_map(|(name, (bytes, _))| {
                let name = name.strip_prefix(folder)?.strip_prefix('/')?;
                Some(Listed {
                    name: name.to_string(),
                    size_bytes: Some(bytes.len() as u64),
                })
            });
            let mut listed: Vec<Listed> = named.collect();
            match trouble {
                Some(Trouble::HalfListed) => listed.truncate(listed.len() / 2),
                Some(Trouble::NotListed) => listed.clear(),
                _ => {}
            }
            listed
        })
    }

    fn delete(&self, name: &str) -> Answer<()> {
        self.changed(Change::Delete(name.to_string())).map(drop)
    }

    fn wait(&self, _: std::time::Duration) {}
}

/// The acknowledged snapshots at each length of the log.
type Marks = Vec<(usize, Holds)>;

/// Lives for some transactions. Returns the log, and the acknowledged snapshots at each length of it.
fn live(
    store: &Arc<SimulatedObjects>,
    random: &mut Rng,
    transactions: usize,
) -> (Vec<Change>, Marks) {
    let far = store.far(random.u64(..));
    let mut subject = Subjected::made(far).unwrap();
    let length = || store.0.lock().unwrap().log.len();
    let mut marks = vec![(length(), subject.state())];
    for _ in 0..transactions {
        if random.u8(..4) == 0 {
            subject.maintain(random).unwrap();
        }
        let transaction = subject.plan(random);
        subject.commit(&transaction, true).unwrap();
        marks.push((length(), subject.state()));
    }
    drop(subject);
    let log = store.0.lock().unwrap().log.clone();
    (log, marks)
}

/// A process dies at each request of a life. Its requests under way arrive while the next process writes.
#[test]
fn no_crash_and_no_late_request_loses_a_snapshot() {
    let mut random = crate::testing::seeded("objects", 24);
    let lives = if crate::testing::is_full() { 200 } else { 6 };
    let (mut images, mut writers, mut troubles) = (0, 0, 0);
    for life in 0..lives {
        let store = SimulatedObjects::of(Objects::new(), 0);
        store.0.lock().unwrap().random = Some(random.fork()).filter(|_| life % 2 == 0);
        let (log, marks) = live(&store, &mut random, 8);
        troubles += store.0.lock().unwrap().troubles;
        let mut objects = Objects::new();
        for (at, change) in log.iter().enumerate() {
            apply(&mut objects, change, 0);
            let done = at + 1;
            if done < marks[0].0 {
                continue;
            }
            images += 1;
            let allowed = around(&marks, done);
            let next = SimulatedObjects::of(objects.clone(), 10_000);
            let read =
                Subjected::of(Vault::open(next.far(1), PASSWORD, Entropy::seeded(1)).unwrap());
            assert!(
                allowed.contains(&read.unwrap().state()),
                "{done} of life {life}"
            );
            if at % 4 == 0 {
                writers += 1;
                let late = log.get(done).cloned();
                write_after(&next, late, &allowed, &mut random);
            }
        }
    }
    println!("{images} images, {writers} writers after them, {troubles} requests in trouble");
    assert!(images >= 500 && writers >= 100 && troubles >= 50);
}

/// Returns the snapshots that a vault may hold after so many changes.
fn around(marks: &Marks, done: usize) -> Vec<Holds> {
    let next = marks.partition_point(|(length, _)| *length <= done);
    let states = &marks[next.saturating_sub(1)..(next + 1).min(marks.len())];
    states.iter().map(|(_, state)| *state).collect()
}

/// The next process writes and collects, while the last request of the dead one arrives.
fn write_after(
    store: &Arc<SimulatedObjects>,
    late: Option<Change>,
    allowed: &[Holds],
    random: &mut Rng,
) {
    if let Some(late) = late {
        let requests = random.u64(1..60);
        store.0.lock().unwrap().late.push((requests, late));
    }
    let open = |seed| Vault::open(store.far(seed), PASSWORD, Entropy::seeded(seed)).unwrap();
    // A process that meets a lock or a turn that has just arrived gets an error, and tries again.
    let mut tries = (0..3).map(|_| {
        let mut vault = open(random.u64(..));
        vault.unlock()?;
        let mut subject = Subjected::of(vault)?;
        assert!(allowed.contains(&subject.state()));
        let transaction = subject.plan(random);
        subject.commit(&transaction, true)?;
        Ok::<_, Error>(subject)
    });
    let subject = tries.find_map(|tried| match tried {
        Ok(subject) => Some(subject),
        Err(Error::Invalid { .. }) => None,
        Err(error) => panic!("{error}"),
    });
    let mut subject = subject.expect("one of three tries");
    if let Err(error) = subject.maintain(random) {
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        let mut vault = open(random.u64(..));
        vault.unlock().unwrap();
        subject = Subjected::of(vault).unwrap();
        subject.maintain(random).unwrap();
    }
    let expected = subject.state();
    drop(subject);
    assert_eq!(Subjected::of(open(2)).unwrap().state(), expected);
    let verified = open(3)
        .verify(&pool(), VerifyOptions::default(), &mut |_| ())
        .unwrap();
    assert!(verified.damages.is_empty(), "{:?}", verified.damages);
}

#[test]
fn a_lease_keeps_the_turn_and_ends() {
    let store = SimulatedObjects::of(Objects::new(), 0);
    let far = store.far(1);
    drop(Subjected::made(Arc::clone(&far)).unwrap());
    let turn = far.take_turn().unwrap();
    let other = store.far(2);
    let refused = other
        .take_turn()
        .err()
        .expect("a turn that is taken")
        .to_string();
    assert!(refused.contains("another process writes"), "{refused}");
    store.0.lock().unwrap().now += objects_end::LEASE_SECONDS;
    let taken = other.take_turn().unwrap();
    // The first gives back a turn that it lost: nothing changes.
    drop(turn);
    assert!(store.far(3).take_turn().is_err());
    drop(taken);
    drop(store.far(4).take_turn().unwrap());
    let held = far.take_turn().unwrap();
    other.break_turn().unwrap();
    drop(other.take_turn().unwrap());
    drop(held);
    let left: Vec<String> = store.0.lock().unwrap().objects.keys().cloned().collect();
    let turns = left.iter().filter(|name| name.starts_with("locks/turn/"));
    assert_eq!(turns.count(), 1, "{left:?}");
}

#[test]
fn a_store_without_conditional_puts_is_refused() {
    let store = SimulatedObjects::of(Objects::new(), 0);
    store.0.lock().unwrap().overwrites = true;
    let refused = Subjected::made(store.far(1))
        .err()
        .expect("a refusal")
        .to_string();
    assert!(refused.contains("If-None-Match"), "{refused}");
    assert!(store.0.lock().unwrap().objects.is_empty());
}

#[test]
fn a_store_that_never_answers_is_an_error_and_no_damage() {
    let store = SimulatedObjects::of(Objects::new(), 0);
    let mut subject = Subjected::made(store.far(1)).unwrap();
    store.0.lock().unwrap().is_dead = true;
    let mut random = Rng::with_seed(1);
    let transaction = subject.plan(&mut random);
    assert!(subject.commit(&transaction, true).is_err());
    store.0.lock().unwrap().is_dead = false;
    let vault = Vault::open(store.far(2), PASSWORD, Entropy::seeded(2)).unwrap();
    let verified = vault
        .verify(&pool(), VerifyOptions::default(), &mut |_| ())
        .unwrap();
    assert!(verified.damages.is_empty(), "{:?}", verified.damages);
}
