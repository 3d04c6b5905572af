//! The far end of a vault in a store of objects that answers requests: Amazon's S3 and stores with its protocol.
//!
//! A door makes the requests ([`Requests`]), each once. A failed request is made again here, after waits that double. A
//! put whose answer was lost may have been carried out. Where a name is taken, the object there is read. Equal bytes
//! are its own, since no two objects of a vault are alike.
//!
//! **The turn** is a lease, since such a store keeps no locks. The newest `locks/turn/<number>` names its holder, or
//! says that it was given back. It lasts for [`LEASE_SECONDS`] since it was put, by the store's own clock. Its holder
//! puts the next number in good time. A process that wants to take over puts that number first, or gives up. The lease
//! keeps apart two writers that behave. The fence of its epoch ensures that a writer which does not behave cannot
//! commit.
//!
//! **A mark** of a process that adds, or that deletes packs, is a lease as well. Marks have names drawn at random, so
//! that no process waits for another to put one. After its put, each process looks at the others.
//!
//! Assumed, and nothing else:
//!
//! - a put under a taken name is refused; the code tries this before it writes anything.
//! - an object that was put is read and listed from then on.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Error, Result};

use super::cipher::Entropy;
use super::far_end::{AddMark, FarEnd, Listed, Put, Turn, not_there};
use super::folder_end::{check_range, within};
use super::{epoch_of, object};

/// How long a writer without a sign of life has the turn.
pub const LEASE_SECONDS: i64 = 300;
/// A lease is renewed three times before it ends.
const RENEWED_EVERY: Duration = Duration::from_secs(LEASE_SECONDS as u64 / 4);
/// How often a request is made, and the first wait between two. With doubling up to the longest, all waits take some 33
/// s.
const TRIES: u32 = 10;
const WAIT_FIRST: Duration = Duration::from_millis(100);
const WAIT_LONGEST: Duration = Duration::from_secs(10);
/// At Amazon's prices, $0.005 for a thousand puts and $0.023 for a GB and month: 18 KB for a year. Some of its classes
/// count shorter objects as 128 KiB. Only the last packs of an add are so short.
const PUT_COSTS_BYTES: u64 = 18_000;
const TURNS: &str = "locks/turn";
/// Marks of processes that add, and of processes that delete packs.
const ADDING: &str = "locks/adding";
const ALONE: &str = "locks/alone";
const WRITES: &str = "another process writes to it";
const HELD: u8 = 1;
const GIVEN_BACK: u8 = 0;
/// The longest object of a turn.
const TURN_BYTES_MAX: u64 = 64;

/// Why a request failed.
#[derive(Debug)]
pub enum RequestError {
    /// A repeated request may succeed: no answer, too many requests, an error of the server's.
    Again(String),
    /// It was refused for good.
    Refused(Error),
}

/// The requests that a store of objects answers, each made once. Every one may take time and fail. Names are as a vault
/// gives them.
pub trait Requests: Send + Sync {
    /// Puts an object unless one has that name, in one step.
    ///
    /// # Errors
    /// See [`RequestError`]; the object may be there or come yet.
    fn put_new(&self, name: &str, bytes: &[u8]) -> std::result::Result<Put, RequestError>;

    /// Reads `length_bytes` from an offset, or all of an object of at most `most_bytes`; nothing if it does not exist.
    ///
    /// # Errors
    /// See [`RequestError`]; an answer that ends early is one.
    fn get(&self, name: &str, part: Part) -> std::result::Result<Option<Vec<u8>>, RequestError>;

    /// Returns the size of an object and the second of its put, nothing if it does not exist.
    ///
    /// # Errors
    /// See [`RequestError`].
    fn head(&self, name: &str) -> std::result::Result<Option<ObjectHead>, RequestError>;

    /// Lists all objects whose names begin with a folder's and `/`, with their names below it.
    ///
    /// # Errors
    /// See [`RequestError`]; a listing that breaks off is one.
    fn list(&self, folder: &str) -> std::result::Result<Vec<Listed>, RequestError>;

    /// Deletes an object, if it is there.
    ///
    /// # Errors
    /// See [`RequestError`].
    fn delete(&self, name: &str) -> std::result::Result<(), RequestError>;

    /// WaitLimits.
    fn wait(&self, time: Duration);
}

/// The part of an object that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it; a longer one is an error.
    Whole {
        /// The most bytes.
        most_bytes: u64,
    },
    /// A range, which may end early where the object does.
    Range {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        length_bytes: usize,
    },
}

/// The facts about an object that need no read of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectHead {
    /// Its size.
    pub size_bytes: u64,
    /// The second since 1970 it was put at, by the store's clock.
    pub put_at: i64,
}

/// A store of objects.
pub struct ObjectsEnd {
    inner: Arc<Inner>,
}

struct Inner {
    requests: Arc<dyn Requests>,
    failure: Mutex<Option<String>>,
    entropy: Mutex<Entropy>,
}

impl ObjectsEnd {
    /// Makes the far end of those requests.
    pub fn shared(requests: Arc<dyn Requests>, entropy: Entropy) -> Arc<dyn FarEnd> {
        Arc::new(ObjectsEnd {
            inner: Arc::new(Inner {
                requests,
                failure: Mutex::new(None),
                entropy: Mutex::new(entropy),
            }),
        })
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    /// Makes a request until it succeeds, is refused, or was made often enough.
    fn ask<T>(
        &self,
        name: &str,
        mut request: impl FnMut(&dyn Requests) -> std::result::Result<T, RequestError>,
    ) -> Result<T> {
        let mut wait = WAIT_FIRST;
        for _ in 1..TRIES {
            match request(&*self.requests) {
                Ok(answer) => return Ok(answer),
                Err(RequestError::Refused(error)) => return Err(error),
                Err(RequestError::Again(_)) => self.requests.wait(wait),
            }
            wait = (2 * wait).min(WAIT_LONGEST);
        }
        request(&*self.requests).map_err(|error| match error {
            RequestError::Refused(error) => error,
            RequestError::Again(reason) => {
                let reason = format!("{reason}, {TRIES} times");
                Error::io("ask for", name, std::io::Error::other(reason))
            }
        })
    }

    /// Runs a change, unless an earlier one failed.
    fn change<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(cause) = &*guard(&self.failure) {
            return Err(Error::Poisoned {
                what: "vault".to_string(),
                cause: cause.clone(),
            });
        }
        let result = work();
        if let Err(error) = &result {
            *guard(&self.failure) = Some(error.to_string());
        }
        result
    }

    fn try_put(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        let put = self.ask(name, |requests| requests.put_new(name, bytes))?;
        if put == Put::Created {
            return Ok(put);
        }
        // A request may also have been doubled on its way.
        let most_bytes = bytes.len() as u64;
        let head = self.ask(name, |requests| requests.head(name))?;
        if head.is_none_or(|head| head.size_bytes != most_bytes) {
            return Ok(Put::Exists);
        }
        let part = Part::Whole { most_bytes };
        let found = self.ask(name, |requests| requests.get(name, part))?;
        Ok(match found.as_deref() == Some(bytes) {
            true => Put::Created,
            false => Put::Exists,
        })
    }

    fn get(&self, name: &str, part: Part) -> Result<Vec<u8>> {
        let found = self.ask(name, |requests| requests.get(name, part))?;
        found.ok_or_else(|| not_there(name))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.ask(name, |requests| requests.delete(name))
    }

    /// Returns the numbers of all turns there are, in rising order.
    fn turns(&self) -> Result<Vec<u64>> {
        let listed = self.ask(TURNS, |requests| requests.list(TURNS))?;
        let mut turns: Vec<u64> = listed.iter().filter_map(|it| epoch_of(&it.name)).collect();
        turns.sort_unstable();
        Ok(turns)
    }

    /// Puts the turn of a number: held, or given back.
    fn put_turn(&self, number: u64, state: u8) -> Result<Put> {
        let mut content = guard(&self.entropy).take::<17>();
        content[0] = state;
        self.try_put(&object(TURNS, number), &content)
    }

    fn delete_turns(&self, numbers: &[u64]) -> Result<()> {
        numbers
            .iter()
            .try_for_each(|number| self.delete(&object(TURNS, *number)))
    }

    /// Puts a mark of its own; returns its name without the number, and the store's time.
    fn put_mark(&self, folder: &str) -> Result<(String, i64)> {
        let id = u64::from_le_bytes(guard(&self.entropy).take());
        let prefix = format!("{folder}/{id:016x}");
        let name = mark_name(&prefix, 1);
        self.put_mark_at(&prefix, 1)?;
        let head = self.ask(&name, |requests| requests.head(&name))?;
        Ok((prefix, head.ok_or_else(|| not_there(&name))?.put_at))
    }

    fn put_mark_at(&self, prefix: &str, number: u64) -> Result<Put> {
        let content = guard(&self.entropy).take::<17>();
        self.try_put(&mark_name(prefix, number), &content)
    }

    /// Returns how many seconds another's mark in a folder has left, nothing if there is none. `own` is no other.
    /// Expired marks are deleted.
    fn other_mark(&self, folder: &str, own: &str, now: i64) -> Result<Option<i64>> {
        let mut left = None;
        for it in self.ask(folder, |requests| requests.list(folder))? {
            let name = within(folder, &it.name);
            if name.starts_with(own) {
                continue;
            }
            let Some(head) = self.ask(&name, |requests| requests.head(&name))? else {
                continue;
            };
            match head.put_at + LEASE_SECONDS - now {
                it @ 1.. => left = left.max(Some(it)),
                _ => self.delete(&name)?,
            }
        }
        Ok(left)
    }

    /// Puts a mark, unless another process has one in a `refusing` folder. Returns its name without the number, and the
    /// store's time.
    fn mark(&self, folder: &str, refusing: &[&str]) -> Result<(String, i64)> {
        let (own, now) = self.put_mark(folder)?;
        let mut left = None;
        for folder in refusing {
            left = left.max(self.other_mark(folder, &own, now)?);
        }
        let Some(left) = left else {
            return Ok((own, now));
        };
        self.delete(&mark_name(&own, 1))?;
        let reason = format!("{WRITES}; if that is dead, wait {left} s or unlock the vault");
        Err(Error::invalid("vault", reason))
    }

    /// Tries whether the store refuses to put over an existing object; returns its time.
    fn probe(&self) -> Result<i64> {
        let name = format!("locks/probe-{:016x}", {
            u64::from_le_bytes(guard(&self.entropy).take())
        });
        let first = self.try_put(&name, b"first")?;
        let second = self.ask(&name, |requests| requests.put_new(&name, b"second"));
        let head = self.ask(&name, |requests| requests.head(&name));
        self.delete(&name)?;
        if first != Put::Created || second? != Put::Exists {
            return Err(Error::Unsupported {
                what: "a store that puts over what is there: it needs If-None-Match".to_string(),
            });
        }
        Ok(head?.ok_or_else(|| not_there(&name))?.put_at)
    }

    /// Returns the seconds that the lease of a turn has left, nothing if it was given back or is over.
    fn lease_left(&self, number: u64, now: i64) -> Result<Option<i64>> {
        let name = object(TURNS, number);
        let most_bytes = TURN_BYTES_MAX;
        let part = Part::Whole { most_bytes };
        let content = self.ask(&name, |requests| requests.get(&name, part))?;
        let head = self.ask(&name, |requests| requests.head(&name))?;
        let found = content.zip(head);
        let held = found.filter(|(content, _)| content.first() == Some(&HELD));
        let left = held.map(|(_, head)| head.put_at + LEASE_SECONDS - now);
        Ok(left.filter(|left| *left > 0))
    }

    fn take_turn(&self) -> Result<u64> {
        let now = self.probe()?;
        let turns = self.turns()?;
        if let Some(newest) = turns.last()
            && let Some(left) = self.lease_left(*newest, now)?
        {
            let reason = format!("{WRITES}; if that is dead, wait {left} s or unlock the vault");
            return Err(Error::invalid("vault", reason));
        }
        let number = turns.last().map_or(1, |newest| newest + 1);
        if self.put_turn(number, HELD)? == Put::Exists {
            let reason = "another process has just begun to write to it";
            return Err(Error::invalid("vault", reason));
        }
        self.delete_turns(&turns)?;
        Ok(number)
    }
}

impl FarEnd for ObjectsEnd {
    fn put_costs_bytes(&self) -> u64 {
        PUT_COSTS_BYTES
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        self.inner.change(|| self.inner.try_put(name, bytes))
    }

    fn read(&self, name: &str, most_bytes: u64) -> Result<Vec<u8>> {
        self.inner.get(name, Part::Whole { most_bytes })
    }

    fn read_range(&self, name: &str, offset: u64, length_bytes: usize) -> Result<Vec<u8>> {
        let part = Part::Range {
            offset,
            length_bytes,
        };
        let bytes = self.inner.get(name, part)?;
        check_range(name, offset, length_bytes, offset + bytes.len() as u64)?;
        Ok(bytes)
    }

    fn size_bytes(&self, name: &str) -> Result<Option<u64>> {
        let head = self.inner.ask(name, |requests| requests.head(name))?;
        Ok(head.map(|head| head.size_bytes))
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let mut listed = self.inner.ask(folder, |requests| requests.list(folder))?;
        listed.sort();
        Ok(listed)
    }

    fn delete(&self, folder: &str, names: &[String]) -> Result<()> {
        self.inner.change(|| {
            names
                .iter()
                .try_for_each(|name| self.inner.delete(&within(folder, name)))
        })
    }

    fn take_turn(&self) -> Result<Turn> {
        let number = self.inner.change(|| Ok(self.inner.take_turn()))??;
        Lease::keep(Arc::clone(&self.inner), Leased::Turn, number).map(Turn::new)
    }

    fn share(&self) -> Result<Box<dyn AddMark>> {
        let marked = self
            .inner
            .change(|| Ok(self.inner.mark(ADDING, &[ALONE])))??;
        let (prefix, now) = marked;
        let leased = Leased::Mark(prefix.clone());
        Ok(Box::new(Adding {
            lease: Lease::keep(Arc::clone(&self.inner), leased, 1)?,
            prefix,
            now,
        }))
    }

    fn exclude(&self) -> Result<Turn> {
        let refusing = [ADDING, ALONE];
        let marked = self
            .inner
            .change(|| Ok(self.inner.mark(ALONE, &refusing)))??;
        let leased = Leased::Mark(marked.0);
        Lease::keep(Arc::clone(&self.inner), leased, 1).map(Turn::new)
    }

    fn break_turn(&self) -> Result<()> {
        self.inner.change(|| {
            let turns = self.inner.turns()?;
            if let Some(newest) = turns.last() {
                // The first put of that number ends another's hold of the turn.
                self.inner.put_turn(newest + 1, GIVEN_BACK)?;
                self.inner.delete_turns(&turns)?;
            }
            for folder in [ADDING, ALONE] {
                for it in self.inner.ask(folder, |requests| requests.list(folder))? {
                    self.inner.delete(&within(folder, &it.name))?;
                }
            }
            Ok(())
        })
    }
}

fn mark_name(prefix: &str, number: u64) -> String {
    format!("{prefix}-{number:016x}")
}

/// The mark of a process that adds.
struct Adding {
    lease: Lease,
    prefix: String,
    /// When it was put, by the store's clock.
    now: i64,
}

impl AddMark for Adding {
    fn has_others(&self) -> Result<bool> {
        let inner = &self.lease.kept.inner;
        Ok(inner.other_mark(ADDING, &self.prefix, self.now)?.is_some())
    }
}

/// The kind of a lease.
enum Leased {
    Turn,
    /// A mark, by its name without the number.
    Mark(String),
}

/// A turn or a mark; a thread renews it until it is dropped.
struct Lease {
    kept: Arc<Kept>,
    thread: Option<JoinHandle<()>>,
}

struct Kept {
    inner: Arc<Inner>,
    leased: Leased,
    /// Its present number, nothing if it was lost.
    number: Mutex<Option<u64>>,
    ends: Mutex<bool>,
    ended: Condvar,
}

impl Lease {
    fn keep(inner: Arc<Inner>, leased: Leased, number: u64) -> Result<Lease> {
        let kept = Arc::new(Kept {
            inner,
            leased,
            number: Mutex::new(Some(number)),
            ends: Mutex::new(false),
            ended: Condvar::new(),
        });
        let renewed = Arc::clone(&kept);
        let thread = std::thread::Builder::new()
            .name("lease".to_string())
            .spawn(move || renewed.renew_until_ended())
            .map_err(|error| Error::io("start", "the thread of the lease", error))?;
        Ok(Lease {
            kept,
            thread: Some(thread),
        })
    }
}

impl Kept {
    fn renew_until_ended(&self) {
        let mut ends = guard(&self.ends);
        while !*ends {
            let waited = self.ended.wait_timeout(ends, RENEWED_EVERY);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            ends = woken;
            if timeout.timed_out() && !*ends {
                drop(ends);
                self.renew();
                ends = guard(&self.ends);
            }
        }
    }

    fn renew(&self) {
        match &self.leased {
            Leased::Turn => self.put_next(HELD),
            Leased::Mark(prefix) => {
                let mut number = guard(&self.number);
                let old = number.expect("a mark is not lost");
                if self.inner.put_mark_at(prefix, old + 1).is_ok() {
                    *number = Some(old + 1);
                    let _ = self.inner.delete(&mark_name(prefix, old));
                }
            }
        }
    }

    fn give_back(&self) {
        match &self.leased {
            Leased::Turn => self.put_next(GIVEN_BACK),
            Leased::Mark(prefix) => {
                if let Some(number) = *guard(&self.number) {
                    let _ = self.inner.delete(&mark_name(prefix, number));
                }
            }
        }
    }

    /// Puts the next number in place of the one it has. A put that fails is tried again at the next renewal. A number
    /// that another has put ends the turn, which its commit will find out.
    fn put_next(&self, state: u8) {
        let mut number = guard(&self.number);
        let Some(old) = *number else {
            return;
        };
        let put = self.inner.turns().and_then(|turns| match turns.last() {
            Some(newest) if *newest == old => self.inner.put_turn(old + 1, state),
            _ => Ok(Put::Exists),
        });
        match put {
            Ok(Put::Created) => {
                *number = Some(old + 1);
                let _ = self.inner.delete_turns(&[old]);
            }
            Ok(Put::Exists) => *number = None,
            Err(_) => {}
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        *guard(&self.kept.ends) = true;
        self.kept.ended.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.kept.give_back();
    }
}
