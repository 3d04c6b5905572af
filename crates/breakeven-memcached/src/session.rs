//! One client's conversation: bytes in, bytes out, with no socket in it, so that any split of any bytes can be tried.
//!
//! Commands are taken as memcached takes them: a line, then, for a command that stores, a block of the given length and
//! a line's end. A line that cannot be right leaves the block to be read as commands, where memcached does so. The
//! memory of a session is bounded. A line has a longest length, a value the longest item. No command is begun while
//! more than [`OUTPUT_BYTES_WANTED`] wait to be sent. A fetch of many keys and a list of all keys go on later.

use std::sync::atomic::Ordering::Relaxed;

use breakeven::objects::Now;

use crate::counters::Counters;
use crate::line::{self, Words};
use crate::meta;
use crate::shared::{DumpTurn, Peer, Shared, tell};
use crate::text::{self, Fetching};
use crate::{admin, number};

/// Bytes of replies after which they are sent before more is done. One reply may be longer by a value.
pub(crate) const OUTPUT_BYTES_WANTED: usize = 256 << 10;
/// A line without an end may be this long, as in memcached.
const LINE_BYTES_MAX: usize = 2048;
/// A line that fetches may be this long, which is four thousand of the longest keys; memcached has no limit.
const FETCH_LINE_BYTES_MAX: usize = 1 << 20;
/// Spaces that may stand before a long fetch.
const LEADING_SPACES_MAX: usize = 100;

/// The inputs of a command beside its session.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) counters: &'a Counters,
    pub(crate) peer: &'a Peer,
    pub(crate) now: Now,
}

/// Why a session stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It needs more input.
    Wait,
    /// It has more to do with the same input, or with none.
    Yield,
    /// It is over once its replies are sent.
    Close,
}

/// A value that is on its way, and its use.
#[derive(Debug)]
pub(crate) enum Sender {
    Text(text::Storing),
    Meta(meta::Storing),
    Login,
}

#[derive(Debug)]
enum State {
    Command,
    Value { sender: Sender, bytes: usize },
    Swallow { bytes: u64 },
    Keys(Fetching),
    Dump { shard: usize, _turn: DumpTurn },
    Closed,
}

/// The work that a command leaves.
pub(crate) enum Next {
    Command,
    Value {
        sender: Sender,
        bytes: usize,
    },
    /// Bytes that belong to a refused command.
    Swallow {
        bytes: u64,
    },
    Dump(DumpTurn),
    Close,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Session {
    state: State,
    is_known: bool,
}

impl Session {
    pub(crate) fn new(needs_login: bool) -> Session {
        Session {
            state: State::Command,
            is_known: !needs_login,
        }
    }

    /// Does the requests of the input, and returns how much of it was taken.
    pub(crate) fn advance(
        &mut self,
        context: Context<'_>,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> (usize, Turn) {
        let mut taken = 0;
        let mut requests = 0;
        loop {
            if output.len() >= OUTPUT_BYTES_WANTED {
                return (taken, Turn::Yield);
            }
            if requests >= context.shared.settings.requests_per_turn {
                let turn = match self.could_go_on(&input[taken..]) {
                    true => {
                        context.counters.conn_yields.one();
                        Turn::Yield
                    }
                    false => Turn::Wait,
                };
                return (taken, turn);
            }
            let Some(more) = self.step(context, &input[taken..], output) else {
                return (taken, Turn::Wait);
            };
            taken += more;
            if matches!(self.state, State::Closed) {
                return (taken, Turn::Close);
            }
            requests += usize::from(matches!(self.state, State::Command));
        }
    }

    /// The bytes of input that are wanted before anything can be done; at least 1.
    pub(crate) fn wanted_bytes(&self) -> usize {
        match &self.state {
            State::Value { bytes, .. } => bytes + 2,
            _ => 1,
        }
    }

    fn could_go_on(&self, input: &[u8]) -> bool {
        match &self.state {
            State::Command => memchr::memchr(b'\n', input).is_some(),
            State::Value { bytes, .. } => input.len() >= bytes + 2,
            State::Swallow { .. } => !input.is_empty(),
            State::Keys(_) | State::Dump { .. } | State::Closed => true,
        }
    }

    /// Does one thing and returns the bytes that it took; `None` if it needs more of them.
    fn step(&mut self, context: Context<'_>, input: &[u8], output: &mut Vec<u8>) -> Option<usize> {
        match &mut self.state {
            State::Command => self.command(context, input, output),
            State::Value { bytes, .. } => {
                let bytes = *bytes;
                let block = input.get(..bytes + 2)?;
                let State::Value { sender, .. } =
                    std::mem::replace(&mut self.state, State::Command)
                else {
                    unreachable!("the state was just seen");
                };
                context.peer.is_sending_value.store(false, Relaxed);
                self.value(context, sender, block, output);
                Some(bytes + 2)
            }
            State::Swallow { bytes } => {
                let some = usize::try_from(*bytes)
                    .unwrap_or(usize::MAX)
                    .min(input.len());
                *bytes -= some as u64;
                let is_done = *bytes == 0;
                if is_done {
                    self.state = State::Command;
                }
                (is_done || some > 0).then_some(some)
            }
            State::Keys(fetching) => {
                let fetching = *fetching;
                Some(self.keys(context, fetching, input, 0, output))
            }
            State::Dump { shard, .. } => {
                let is_last = admin::dump_shard(context, *shard, output);
                *shard += 1;
                if is_last {
                    self.state = State::Command;
                }
                Some(0)
            }
            State::Closed => None,
        }
    }

    fn command(
        &mut self,
        context: Context<'_>,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> Option<usize> {
        let Some((line, taken)) = line::take(input) else {
            if self.is_endless(input) {
                self.state = State::Closed;
                return Some(0);
            }
            return None;
        };
        context
            .peer
            .last_command
            .store(context.now.seconds, Relaxed);
        if context.shared.verbosity.load(Relaxed) > 1 {
            tell(format_args!("< {}", line.escape_ascii()));
        }
        if !self.is_known {
            let next = text::login_line(line, output);
            self.go_on(context, next);
            return Some(taken);
        }
        if let Some((fetching, keys_at)) = text::fetch_line(context, line) {
            return Some(self.keys(context, fetching, input, keys_at, output));
        }
        let words = Words::of(line);
        let next = match words.at(0) {
            b"" => {
                output.extend_from_slice(b"ERROR\r\n");
                Next::Command
            }
            [b'm', name] => meta::run(*name, &words, context, output),
            _ => text::run(&words, context, output),
        };
        self.go_on(context, next);
        Some(taken)
    }

    fn go_on(&mut self, context: Context<'_>, next: Next) {
        self.state = match next {
            Next::Command => State::Command,
            Next::Value { sender, bytes } => {
                context.peer.is_sending_value.store(true, Relaxed);
                State::Value { sender, bytes }
            }
            Next::Swallow { bytes } => State::Swallow { bytes },
            Next::Dump(turn) => State::Dump {
                shard: 0,
                _turn: turn,
            },
            Next::Close => State::Closed,
        };
    }

    fn value(&mut self, context: Context<'_>, sender: Sender, block: &[u8], output: &mut Vec<u8>) {
        let value = block.strip_suffix(b"\r\n");
        match sender {
            Sender::Text(storing) => text::store(context, storing, value, output),
            Sender::Meta(storing) => meta::store(context, storing, value, output),
            Sender::Login => self.is_known = text::login(context, value, output),
        }
    }

    /// Answers keys from a place in the input on, up to the line's end or until the output is long. Returns the
    /// bytes taken.
    fn keys(
        &mut self,
        context: Context<'_>,
        fetching: Fetching,
        input: &[u8],
        keys_at: usize,
        output: &mut Vec<u8>,
    ) -> usize {
        let (line, taken) = line::take(&input[keys_at..]).expect("a line is taken whole");
        match text::fetch(context, fetching, line, output) {
            None => {
                self.state = State::Command;
                keys_at + taken
            }
            Some(rest) => {
                self.state = State::Keys(fetching);
                keys_at + rest
            }
        }
    }

    /// Whether a line is too long without an end.
    fn is_endless(&self, input: &[u8]) -> bool {
        if input.len() <= LINE_BYTES_MAX {
            return false;
        }
        let spaces = input.iter().take_while(|byte| **byte == b' ').count();
        let line = &input[spaces..];
        let is_fetch = line.starts_with(b"get ") || line.starts_with(b"gets ");
        !self.is_known
            || spaces > LEADING_SPACES_MAX
            || !is_fetch
            || input.len() > FETCH_LINE_BYTES_MAX
    }
}

/// Adds a line to the output.
pub(crate) fn say(output: &mut Vec<u8>, line: &str) {
    output.extend_from_slice(line.as_bytes());
    output.extend_from_slice(b"\r\n");
}

/// Adds a number and a line's end to the output.
pub(crate) fn say_number(output: &mut Vec<u8>, value: u64) {
    number::push(output, value);
    output.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{peer, shared};

    fn feed(pieces: &[&[u8]]) -> (Vec<u8>, usize) {
        let shared = shared(16 << 20, 1 << 20);
        crate::fuzz::feed(&shared, &mut pieces.iter().copied())
    }

    const PIPELINE: &[u8] = b"set a 5 0 3\r\nabc\r\nget a b a\r\ngat 0 a\nincr a 1\r\nset n 0 0 2 noreply\r\n41\r\n\
        incr n 1\r\nappend n 0 0 1\r\n7\r\nget n\r\ndelete n\r\ntouch n 5\r\nset x 0 0 3\r\nabcdef\r\nfoo\r\n\
        ms m 2 T0 F3 k Oq\r\nhi\r\nmg m v f s k\r\nmg m q\r\nmd m q\r\nmg m\r\nma z N0 J7 v\r\nmn\r\n\
        set big 0 0 99999999\r\nversion\r\n\r\n";

    #[test]
    fn a_pipeline_is_answered_alike_however_it_is_split() {
        let expected = feed(&[PIPELINE]).0;
        assert!(
            expected.starts_with(b"STORED\r\nVALUE a 5 3\r\nabc\r\n"),
            "{}",
            expected.escape_ascii()
        );
        let mut tried = 0;
        for at in 0..=PIPELINE.len() {
            let (one, other) = PIPELINE.split_at(at);
            let replies = feed(&[one, other]).0;
            assert_eq!(
                replies.escape_ascii().to_string(),
                expected.escape_ascii().to_string(),
                "split at {at}"
            );
            tried += 1;
        }
        let bytes: Vec<&[u8]> = PIPELINE.chunks(1).collect();
        assert_eq!(feed(&bytes).0, expected);
        println!("splits: {tried} tried");
        assert!(tried >= 250, "{tried}");
    }

    #[test]
    fn a_long_fetch_goes_on_where_its_replies_were_sent() {
        let value = vec![b'v'; 100_000];
        let mut input = format!("set k 0 0 {}\r\n", value.len()).into_bytes();
        input.extend_from_slice(&value);
        input.extend_from_slice(b"\r\nget");
        (0..100).for_each(|_| input.extend_from_slice(b" k"));
        input.extend_from_slice(b"\r\nmn\r\n");
        let (replies, held_max) = feed(&[&input]);
        assert_eq!(
            replies
                .windows(6)
                .filter(|window| window == b"VALUE ")
                .count(),
            100
        );
        assert!(replies.ends_with(b"END\r\nMN\r\n"));
        assert!(
            held_max < OUTPUT_BYTES_WANTED + 2 * value.len(),
            "{held_max}"
        );
    }

    #[test]
    fn an_endless_line_ends_the_conversation() {
        let shared = shared(16 << 20, 1 << 20);
        let check = |line: &[u8], is_closed: bool| {
            let peer = peer();
            let context = Context {
                shared: &shared,
                counters: &shared.workers[0],
                peer: &peer,
                now: shared.now(),
            };
            let turn = Session::new(false)
                .advance(context, line, &mut Vec::new())
                .1;
            assert_eq!(turn == Turn::Close, is_closed, "{} bytes", line.len());
        };
        check(&[b'x'; 2048], false);
        check(&[b'x'; 2049], true);
        let mut fetch = b"get ".to_vec();
        fetch.resize(1 << 20, b'x');
        check(&fetch, false);
        fetch.push(b'x');
        check(&fetch, true);
    }
}
