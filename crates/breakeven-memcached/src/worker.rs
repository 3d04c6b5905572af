//! A worker: one thread, one epoll, many connections.
//!
//! A connection without a half-read command holds no buffer. The worker reads into one of its own and gathers replies
//! in another, sent with one call a turn. Unsent bytes wait with their connection, which is then neither read nor
//! served until they are gone. A client that does not read holds at most [`OUTPUT_BYTES_WANTED`], one value and its
//! last request.
//!
//! The bytes that wait with a worker's connections are at most its share of `-m`; equal replies count once. The same
//! holds in memcached, which keeps items for slow readers and slow senders within `-m`. Above that, the connection that
//! has moved nothing for longest is closed, and never the one whose turn it is.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use crate::counters::Counters;
use crate::session::{Context, OUTPUT_BYTES_WANTED, Session, Turn};
use crate::shared::{Peer, Shared, Stop, lock};
use crate::stream::Stream;
use crate::unread::{Replies, Unread};

/// Bytes that one call reads; a value on its way is read in larger pieces.
const READ_BYTES: usize = 16 << 10;
const VALUE_READ_BYTES_MAX: usize = 256 << 10;
/// A buffer of replies that was longer than this is given back.
const OUTPUT_BYTES_KEPT: usize = 1 << 20;
/// Events taken at a time.
const EVENTS_MAX: usize = 256;
/// The event of the worker's own eventfd; connections count from 1.
const WAKE: u64 = 0;

/// A connection that was accepted.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) number: u64,
    pub(crate) stream: Stream,
    pub(crate) peer: Arc<Peer>,
}

/// Where the acceptor leaves connections for a worker.
#[derive(Debug)]
pub(crate) struct Inbox {
    arrivals: Mutex<Vec<Arrival>>,
    wake: OwnedFd,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Inbox> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Inbox {
            arrivals: Mutex::default(),
            wake,
        })
    }

    pub(crate) fn send(&self, arrival: Arrival) {
        lock(&self.arrivals).push(arrival);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        // A full counter has woken the worker already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

struct Connection {
    stream: Stream,
    session: Session,
    peer: Arc<Peer>,
    /// Input that was not taken yet.
    input: Vec<u8>,
    /// Replies that could not be sent yet.
    unread: Option<Unread>,
    /// The turn of the worker in which it last took or gave something.
    moved_at: u64,
    /// Whether it ends once its replies are sent.
    is_ending: bool,
    /// Whether there is more to do without more input.
    has_more: bool,
    /// Whether it waits for its turn with connections that have more to do.
    is_ready: bool,
    waits_to_send: bool,
}

/// The worker's buffers that a connection's turn uses.
struct Desk<'a> {
    input: &'a mut [u8],
    output: &'a mut Vec<u8>,
    replies: &'a mut Replies,
    turn: u64,
}

enum Fate {
    Keep,
    Close,
}

pub(crate) struct Worker {
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    inbox: Arc<Inbox>,
    epoll: OwnedFd,
    connections: HashMap<u64, Connection>,
    /// Connections that have more to do.
    ready: Vec<u64>,
    input: Vec<u8>,
    output: Vec<u8>,
    replies: Replies,
    /// Bytes of input that wait with the connections.
    input_bytes: usize,
    turns: u64,
    idle_checked: u32,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, number: usize, inbox: Arc<Inbox>) -> io::Result<Worker> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &inbox.wake,
            epoll::EventData::new_u64(WAKE),
            epoll::EventFlags::IN,
        )?;
        Ok(Worker {
            counters: Arc::clone(&shared.workers[number]),
            shared,
            inbox,
            epoll,
            connections: HashMap::new(),
            ready: Vec::new(),
            input: vec![0; READ_BYTES],
            output: Vec::new(),
            replies: Replies::default(),
            input_bytes: 0,
            turns: 0,
            idle_checked: 0,
        })
    }

    /// Serves until the server stops.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while self.shared.stop() == Stop::No {
            let wait = match (self.ready.is_empty(), self.shared.settings.idle_seconds_max) {
                (false, _) => Some(Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                }),
                (true, Some(_)) => Some(Timespec {
                    tv_sec: 1,
                    tv_nsec: 0,
                }),
                (true, None) => None,
            };
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                wait.as_ref(),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let ready = std::mem::take(&mut self.ready);
            for event in &events {
                match event.data.u64() {
                    WAKE => self.take_arrivals(),
                    number => self.serve(number, true),
                }
            }
            ready
                .into_iter()
                .for_each(|number| self.serve(number, false));
            self.close_idle();
        }
        let all: Vec<u64> = self.connections.keys().copied().collect();
        all.into_iter().for_each(|number| self.close(number));
        Ok(())
    }

    fn take_arrivals(&mut self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.inbox.wake, &mut count);
        let arrivals = std::mem::take(&mut *lock(&self.inbox.arrivals));
        for Arrival {
            number,
            stream,
            peer,
        } in arrivals
        {
            let data = epoll::EventData::new_u64(number);
            let added = epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN);
            let connection = Connection {
                stream,
                session: Session::new(self.shared.logins.is_some()),
                peer,
                input: Vec::new(),
                unread: None,
                moved_at: self.turns,
                is_ending: false,
                has_more: false,
                is_ready: false,
                waits_to_send: false,
            };
            self.connections.insert(number, connection);
            if added.is_err() {
                self.close(number);
            }
        }
    }

    fn serve(&mut self, number: u64, is_event: bool) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        // One that is ready has its turn as such, even if an event gives it another before.
        connection.is_ready &= is_event;
        let context = Context {
            shared: &self.shared,
            counters: &self.counters,
            peer: &connection.peer.clone(),
            now: self.shared.now(),
        };
        self.turns += 1;
        let held = connection.input.capacity();
        let mut desk = Desk {
            input: &mut self.input,
            output: &mut self.output,
            replies: &mut self.replies,
            turn: self.turns,
        };
        let fate = connection.turn(context, is_event, &mut desk);
        self.output.clear();
        if self.output.capacity() > OUTPUT_BYTES_KEPT {
            self.output = Vec::new();
        }
        let fate = fate.and_then(|fate| {
            connection.watch(&self.epoll, number)?;
            Ok(fate)
        });
        self.input_bytes = self.input_bytes - held + connection.input.capacity();
        if !matches!(fate, Ok(Fate::Keep)) {
            self.close(number);
        } else if connection.has_more && !connection.waits_to_send && !connection.is_ready {
            connection.is_ready = true;
            self.ready.push(number);
        }
        self.close_those_who_hold(number);
        self.counters
            .reply_bytes
            .store(self.replies.bytes(), Relaxed);
        self.counters.input_bytes.store(self.input_bytes, Relaxed);
    }

    /// Closes others until the waiting bytes are within their bound.
    fn close_those_who_hold(&mut self, served: u64) {
        let settings = &self.shared.settings;
        let share = self.shared.memory_bytes.load(Relaxed) as usize / settings.threads;
        // Room for one that sends the longest value, and one that reads it.
        let bytes_max = share.max(2 * (settings.item_bytes_max + OUTPUT_BYTES_WANTED));
        while self.replies.bytes() + self.input_bytes > bytes_max {
            let holding = self.connections.iter().filter(|(number, connection)| {
                **number != served
                    && (connection.unread.is_some() || connection.input.capacity() > 0)
            });
            let idlest = holding.min_by_key(|(_, connection)| connection.moved_at);
            let Some((&number, connection)) = idlest else {
                return;
            };
            match connection.unread {
                Some(_) => self.counters.response_obj_oom.one(),
                None => self.counters.read_buf_oom.one(),
            }
            self.close(number);
        }
    }

    fn close_idle(&mut self) {
        let Some(seconds_max) = self.shared.settings.idle_seconds_max else {
            return;
        };
        let now = self.shared.now().seconds;
        if now == self.idle_checked {
            return;
        }
        self.idle_checked = now;
        let is_idle = |connection: &Connection| {
            now.saturating_sub(connection.peer.last_command.load(Relaxed)) > seconds_max
        };
        let idle = self
            .connections
            .iter()
            .filter(|(_, connection)| is_idle(connection));
        let idle: Vec<u64> = idle.map(|(number, _)| *number).collect();
        for number in idle {
            self.counters.idle_kicks.one();
            self.close(number);
        }
    }

    fn close(&mut self, number: u64) {
        // The socket leaves the epoll with its last descriptor.
        if let Some(connection) = self.connections.remove(&number) {
            self.input_bytes -= connection.input.capacity();
            if let Some(unread) = connection.unread {
                self.replies.forget(unread);
            }
            lock(&self.shared.peers).remove(&number);
            self.shared.connections.fetch_sub(1, Relaxed);
        }
    }
}

impl Connection {
    /// Sends waiting bytes, reads once, and does the requests.
    fn turn(
        &mut self,
        context: Context<'_>,
        is_event: bool,
        desk: &mut Desk<'_>,
    ) -> io::Result<Fate> {
        if !self.send_unread(context, desk)? {
            return Ok(Fate::Keep);
        }
        if self.is_ending {
            return Ok(Fate::Close);
        }
        let mut fresh: &[u8] = &[];
        // With more to do than it has room to answer, nothing more is read.
        if is_event && !self.has_more {
            match self.read(desk.input) {
                Ok(0) => return Ok(Fate::Close),
                Ok(read) => {
                    context.counters.bytes_read.add(read as u64);
                    self.moved_at = desk.turn;
                    if self.input.is_empty() {
                        fresh = &desk.input[..read];
                    }
                }
                Err(error) if is_for_later(&error) => return Ok(Fate::Keep),
                Err(error) => return Err(error),
            }
        }
        let data = if fresh.is_empty() { &self.input } else { fresh };
        let (taken, turn) = self.session.advance(context, data, desk.output);
        match fresh.is_empty() {
            true if taken == self.input.len() => self.input = Vec::new(),
            true => drop(self.input.drain(..taken)),
            false => self.input.extend_from_slice(&fresh[taken..]),
        }
        self.has_more = turn == Turn::Yield;
        self.is_ending = turn == Turn::Close;
        self.send(context, desk)?;
        Ok(match self.is_ending && self.unread.is_none() {
            true => Fate::Close,
            false => Fate::Keep,
        })
    }

    /// Reads once: into the buffer, or behind bytes that were not taken yet.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let held = self.input.len();
        if held == 0 {
            return self.stream.read(buffer);
        }
        // Announced bytes are not allocated before they come.
        let missing = self.session.wanted_bytes().saturating_sub(held);
        self.input
            .resize(held + missing.clamp(READ_BYTES, VALUE_READ_BYTES_MAX), 0);
        let read = self.stream.read(&mut self.input[held..]);
        self.input
            .truncate(held + read.as_ref().copied().unwrap_or(0));
        read
    }

    /// Sends waiting bytes. Returns whether nothing waits any more.
    fn send_unread(&mut self, context: Context<'_>, desk: &mut Desk<'_>) -> io::Result<bool> {
        let Some(unread) = &mut self.unread else {
            return Ok(true);
        };
        let sent = send(&mut self.stream, unread.rest())?;
        context.counters.bytes_written.add(sent as u64);
        unread.advance(sent);
        if sent > 0 {
            self.moved_at = desk.turn;
        }
        if !unread.rest().is_empty() {
            return Ok(false);
        }
        self.unread
            .take()
            .into_iter()
            .for_each(|it| desk.replies.forget(it));
        Ok(true)
    }

    fn send(&mut self, context: Context<'_>, desk: &mut Desk<'_>) -> io::Result<()> {
        let sent = send(&mut self.stream, desk.output)?;
        context.counters.bytes_written.add(sent as u64);
        if sent < desk.output.len() {
            self.unread = Some(desk.replies.keep(desk.output, sent));
        }
        Ok(())
    }

    /// Waits for the next event that it can go on with.
    fn watch(&mut self, epoll: &OwnedFd, number: u64) -> io::Result<()> {
        let waits_to_send = self.unread.is_some();
        if waits_to_send != self.waits_to_send {
            self.waits_to_send = waits_to_send;
            let flags = match waits_to_send {
                true => epoll::EventFlags::OUT,
                false => epoll::EventFlags::IN,
            };
            epoll::modify(
                epoll,
                &self.stream,
                epoll::EventData::new_u64(number),
                flags,
            )?;
        }
        Ok(())
    }
}

/// Sends as much as the system takes now, and returns how much that is.
fn send(stream: &mut Stream, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(more) => sent += more,
            Err(error) if is_for_later(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
