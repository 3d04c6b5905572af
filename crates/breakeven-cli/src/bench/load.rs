//! The load itself: one thread, one epoll, many connections, every reply compared.
//!
//! With a rate, requests are sent on schedule, whether earlier ones were answered or not. A latency counts from the
//! scheduled moment. A server that stands still is charged with all requests that would have come in that time. Flat
//! out, each connection has one request on its way, and latencies count from sending. A request without an answer at
//! the end counts with all the time that it waited.
//!
//! Where a miss has a price, each connection is a program that caches the results of another source. It waits this time
//! for each missing key, one after the other, then stores the values, and then goes on. That time is part of a
//! request's latency.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use breakeven::meter::thread_cpu;
use breakeven_memcached::Stream;
use breakeven_memcached::client::{Client, Reply, push_set, reply};
use hdrhistogram::Histogram;
use rustix::event::{Timespec, epoll};

use super::shape::{Kind, Schedule, Shape};
use super::values::{Values, key_of, push_key};

/// Bytes that one call reads.
const READ_BYTES: usize = 256 << 10;
/// Events taken at a time.
const EVENTS_MAX: usize = 256;
/// The thread does not sleep before a request that is due this soon: it would wake too late.
const AWAKE_NS: u64 = 100_000;
/// The time for which replies are awaited after the last request.
const PATIENCE_NS: u64 = 2_000_000_000;
/// Requests on their way above which the server is overloaded for sure, and no more are sent.
const WAITING_MAX: usize = 200_000;
/// Latencies are recorded in nanoseconds up to this, to three digits.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// How fast requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    FlatOut,
    KeysPerSecond(f64),
}

/// The results of a load.
pub struct Found {
    pub seconds: f64,
    pub keys: u64,
    pub hits: u64,
    /// Of requests, in nanoseconds.
    pub latencies: Histogram<u64>,
    /// Requests that were not answered in time; they are among the latencies.
    pub unanswered: u64,
    pub client_cpu_seconds: f64,
    /// User and system time of the server's process, as it says itself.
    pub server_cpu_seconds: Option<f64>,
}

impl Found {
    pub fn keys_per_second(&self) -> f64 {
        self.keys as f64 / self.seconds
    }

    /// Returns the share of requests that took longer.
    pub fn share_over(&self, limit_ns: u64) -> f64 {
        let within = self.latencies.count_between(0, limit_ns);
        1.0 - within as f64 / self.latencies.len().max(1) as f64
    }

    pub fn quantile_us(&self, share: f64) -> f64 {
        self.latencies.value_at_quantile(share) as f64 / 1e3
    }
}

/// The requests of a load, and its server.
pub struct Load<'a> {
    pub address: &'a str,
    pub values: &'a Values,
    pub draws: &'a [u32],
    pub shape: Shape,
    pub connections: usize,
    /// The client's cost of a miss, after which it stores the value; `None` where misses are left alone.
    pub miss_ns: Option<u64>,
    pub seed: u64,
}

/// The requests that were sent at once and are not answered to their end.
struct Waiting {
    since_ns: u64,
    /// The first of its draws, and the number of those that were seen.
    first: usize,
    seen: usize,
    ended: usize,
    /// Sets of missed keys. They make up a request that is not one of the shape's.
    sets: usize,
}

struct Connection {
    stream: Stream,
    /// A reply that has not come whole.
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    waiting: VecDeque<Waiting>,
    /// Missing keys that will be stored.
    missed: Vec<u32>,
}

/// A load that runs.
struct Running<'a> {
    load: &'a Load<'a>,
    connections: Vec<Connection>,
    epoll: OwnedFd,
    buffer: Vec<u8>,
    start: Instant,
    next_draw: usize,
    waiting: usize,
    /// When the values of missed keys come, and on which connection; the next one first.
    fetching: BinaryHeap<Reverse<(u64, usize)>>,
    found: Found,
}

impl Load<'_> {
    /// Loads the server for so many seconds.
    pub fn run(&self, pace: Pace, seconds: f64) -> Result<Found> {
        let rate = match pace {
            Pace::FlatOut => None,
            Pace::KeysPerSecond(rate) => Some(rate),
        };
        let count = self.shape.connections(rate, self.connections);
        let mut control = Client::connect(self.address)?;
        let mut running = Running::new(self, count)
            .with_context(|| format!("{count} connections to {}", self.address))?;
        let server_before = server_cpu_seconds(&mut control)?;
        let cpu_before = thread_cpu();
        running.start = Instant::now();
        let end_ns = (seconds * 1e9) as u64;
        match rate {
            None => running.flat_out(end_ns)?,
            Some(rate) => {
                running.on_schedule(Schedule::new(self.shape, rate, count, self.seed), end_ns)?
            }
        }
        running.give_up();
        let mut found = running.found;
        found.client_cpu_seconds = (thread_cpu() - cpu_before).0;
        let server_after = server_cpu_seconds(&mut control)?;
        found.server_cpu_seconds = server_before
            .zip(server_after)
            .map(|(before, after)| after - before);
        Ok(found)
    }
}

/// Returns the processor time of the server, if it reports it.
fn server_cpu_seconds(control: &mut Client) -> Result<Option<f64>> {
    let stats = control.stats("")?;
    let seconds = |name: &str| stats.get(name)?.parse::<f64>().ok();
    Ok(seconds("rusage_user")
        .zip(seconds("rusage_system"))
        .map(|(user, system)| user + system))
}

impl<'a> Running<'a> {
    fn new(load: &'a Load<'a>, count: usize) -> Result<Running<'a>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::with_capacity(count);
        for number in 0..count {
            let stream = Stream::connect(load.address)?;
            stream.set_nonblocking()?;
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN)?;
            connections.push(Connection {
                stream,
                input: Vec::new(),
                output: Vec::new(),
                sent: 0,
                waiting: VecDeque::new(),
                missed: Vec::new(),
            });
        }
        Ok(Running {
            load,
            connections,
            epoll,
            buffer: vec![0; READ_BYTES],
            start: Instant::now(),
            next_draw: 0,
            waiting: 0,
            fetching: BinaryHeap::new(),
            found: Found {
                seconds: 0.0,
                keys: 0,
                hits: 0,
                latencies: Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)?,
                unanswered: 0,
                client_cpu_seconds: 0.0,
                server_cpu_seconds: None,
            },
        })
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn flat_out(&mut self, end_ns: u64) -> Result<()> {
        for number in 0..self.connections.len() {
            self.issue(number, self.now_ns())?;
        }
        while self.is_busy() && self.now_ns() < end_ns + PATIENCE_NS {
            let sleep_ns = match self.fetching.peek() {
                None => 1_000_000,
                Some(Reverse((due_ns, _))) => due_ns.saturating_sub(self.now_ns() + AWAKE_NS),
            };
            for number in self.wait(sleep_ns.min(1_000_000))? {
                self.receive(number)?;
                self.go_on(number, end_ns)?;
            }
            self.store_fetched()?;
            self.flush_all()?;
        }
        self.found.seconds = self.now_ns() as f64 / 1e9;
        Ok(())
    }

    fn is_busy(&self) -> bool {
        self.waiting > 0 || !self.fetching.is_empty()
    }

    /// Lets a connection that was answered fetch its misses, or ask again.
    fn go_on(&mut self, number: usize, end_ns: u64) -> Result<()> {
        let connection = &self.connections[number];
        let (missed, now_ns) = (connection.missed.len() as u64, self.now_ns());
        match (connection.waiting.is_empty(), self.load.miss_ns) {
            (true, Some(miss_ns)) if missed > 0 => {
                self.fetching
                    .push(Reverse((now_ns + missed * miss_ns, number)));
            }
            (true, _) if now_ns < end_ns => self.issue(number, now_ns)?,
            _ => {}
        }
        Ok(())
    }

    /// Stores values that have arrived from their source.
    fn store_fetched(&mut self) -> Result<()> {
        while let Some(Reverse((due_ns, number))) = self.fetching.peek().copied() {
            let now_ns = self.now_ns();
            if due_ns > now_ns {
                break;
            }
            self.fetching.pop();
            self.waiting += 1;
            let connection = &mut self.connections[number];
            let mut missed = std::mem::take(&mut connection.missed);
            let mut key = Vec::new();
            for number in &missed {
                key.clear();
                push_key(&mut key, *number);
                push_set(&mut connection.output, &key, self.load.values.of(*number));
            }
            connection.waiting.push_back(Waiting {
                since_ns: now_ns,
                first: 0,
                seen: 0,
                ended: 0,
                sets: missed.len(),
            });
            missed.clear();
            connection.missed = missed;
            connection.flush()?;
        }
        Ok(())
    }

    fn on_schedule(&mut self, mut schedule: Schedule, end_ns: u64) -> Result<()> {
        let mut is_over = false;
        loop {
            let now_ns = self.now_ns();
            while !is_over && schedule.due_ns() <= now_ns {
                let due_ns = schedule.due_ns();
                is_over = due_ns >= end_ns || self.waiting > WAITING_MAX;
                if !is_over {
                    let number = schedule.take();
                    self.issue(number, due_ns)?;
                }
            }
            if is_over && self.waiting == 0 || now_ns > end_ns + PATIENCE_NS {
                break;
            }
            let sleep_ns = match is_over {
                true => 1_000_000,
                false => schedule.due_ns().saturating_sub(now_ns),
            };
            let is_blocked = self.flush_all()?;
            let sleep_ns = if is_blocked {
                0
            } else {
                sleep_ns.saturating_sub(AWAKE_NS)
            };
            for number in self.wait(sleep_ns)? {
                self.receive(number)?;
            }
        }
        self.found.seconds = (end_ns.max(1) as f64 / 1e9).min(self.now_ns() as f64 / 1e9);
        Ok(())
    }

    /// Waits for replies and returns whose they are.
    fn wait(&self, sleep_ns: u64) -> Result<Vec<usize>> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let sleep = Timespec {
            tv_sec: (sleep_ns / 1_000_000_000) as i64,
            tv_nsec: (sleep_ns % 1_000_000_000) as i64,
        };
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&sleep),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(events
            .iter()
            .map(|event| event.data.u64() as usize)
            .collect())
    }

    /// Sends the next request on a connection.
    fn issue(&mut self, number: usize, since_ns: u64) -> Result<()> {
        let load = self.load;
        if self.next_draw + load.shape.keys() > load.draws.len() {
            self.next_draw = 0;
        }
        let first = self.next_draw;
        self.next_draw += load.shape.keys();
        self.waiting += 1;
        let connection = &mut self.connections[number];
        let output = &mut connection.output;
        load.shape.push(output, load.draws, first, load.values);
        connection.waiting.push_back(Waiting {
            since_ns,
            first,
            seen: 0,
            ended: 0,
            sets: 0,
        });
        connection.flush()?;
        Ok(())
    }

    /// Sends bytes that could not be sent before. Returns whether some still cannot.
    fn flush_all(&mut self) -> Result<bool> {
        let mut is_blocked = false;
        for connection in self
            .connections
            .iter_mut()
            .filter(|it| !it.output.is_empty())
        {
            is_blocked |= !connection.flush()?;
        }
        Ok(is_blocked)
    }

    /// Reads once and takes the replies that have come.
    fn receive(&mut self, number: usize) -> Result<()> {
        let read = match self.connections[number].stream.read(&mut self.buffer) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(read) => read,
            Err(error) if is_for_later(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let now_ns = self.now_ns();
        let mut held = std::mem::take(&mut self.connections[number].input);
        let buffer = std::mem::take(&mut self.buffer);
        let is_fresh = held.is_empty();
        if !is_fresh {
            held.extend_from_slice(&buffer[..read]);
        }
        let data: &[u8] = if is_fresh { &buffer[..read] } else { &held };
        let mut taken = 0;
        while let Some((found, more)) = reply(&data[taken..])? {
            self.take(number, found, now_ns)?;
            taken += more;
        }
        match is_fresh {
            true => held.extend_from_slice(&buffer[taken..read]),
            false => drop(held.drain(..taken)),
        }
        self.connections[number].input = held;
        self.buffer = buffer;
        Ok(())
    }

    /// Takes one reply and compares it with the expected one.
    fn take(&mut self, number: usize, found: Reply<'_>, now_ns: u64) -> Result<()> {
        let load = self.load;
        let connection = &mut self.connections[number];
        let waiting = connection.waiting.front_mut();
        let waiting = waiting.context("a reply that nobody asked for")?;
        let of_one = load.shape.keys_a_request();
        let asked_end = waiting.first + (waiting.ended + 1) * of_one;
        match (load.shape.kind, found.line, found.value) {
            (_, b"STORED", None) if waiting.sets > 0 => {
                waiting.ended += 1;
                if waiting.ended == waiting.sets {
                    connection.waiting.pop_front();
                    self.waiting -= 1;
                }
                return Ok(());
            }
            (Kind::Gets { .. }, line, Some(value)) if waiting.sets == 0 => {
                let key = key_of(found.word(1))
                    .with_context(|| format!("no key: {}", line.escape_ascii()))?;
                let left = &load.draws[waiting.first + waiting.seen..asked_end];
                let at = left.iter().position(|asked| *asked == key);
                let at = at.with_context(|| {
                    format!("a key that was not asked for: {}", line.escape_ascii())
                })?;
                connection.missed.extend_from_slice(&left[..at]);
                waiting.seen += at + 1;
                ensure!(
                    value == load.values.of(key),
                    "a wrong value: {}",
                    line.escape_ascii()
                );
                self.found.hits += 1;
                return Ok(());
            }
            (Kind::Gets { .. }, b"END", None) if waiting.sets == 0 => {
                let left = &load.draws[waiting.first + waiting.seen..asked_end];
                connection.missed.extend_from_slice(left);
            }
            (Kind::Sets { .. }, b"STORED", None) => self.found.hits += 1,
            (_, other, _) => bail!("the server says: {}", other.escape_ascii()),
        }
        waiting.ended += 1;
        waiting.seen = waiting.ended * of_one;
        let fetched_ns = match load.miss_ns {
            Some(miss_ns) => connection.missed.len() as u64 * miss_ns,
            None => {
                connection.missed.clear();
                0
            }
        };
        let latency_ns = now_ns.saturating_sub(waiting.since_ns) + fetched_ns;
        let is_done = waiting.ended == load.shape.requests();
        self.found.keys += of_one as u64;
        self.found.latencies.saturating_record(latency_ns);
        if is_done {
            connection.waiting.pop_front();
            self.waiting -= 1;
        }
        Ok(())
    }

    /// Counts requests without an answer.
    fn give_up(&mut self) {
        let now_ns = self.now_ns();
        let waiting = self.connections.iter().flat_map(|it| &it.waiting);
        for waiting in waiting.filter(|it| it.sets == 0) {
            let requests = (self.load.shape.requests() - waiting.ended) as u64;
            self.found.unanswered += requests;
            let latency_ns = now_ns.saturating_sub(waiting.since_ns).min(LATENCY_NS_MAX);
            let recorded = self.found.latencies.record_n(latency_ns, requests);
            debug_assert!(recorded.is_ok(), "it is within the bounds");
        }
    }
}

impl Connection {
    /// Sends the waiting bytes. Returns whether all of them are sent.
    fn flush(&mut self) -> io::Result<bool> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.sent += sent,
                Err(error) if is_for_later(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(true)
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
