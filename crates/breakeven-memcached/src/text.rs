//! The text commands that touch items: fetches, stores, counts, touches, deletes.

use breakeven::objects::{
    Count, CountOutcome, Delete, DeleteOutcome, Fetch, ItemRef, KEY_BYTES_MAX, Store, StoreMode,
    StoreOutcome, TouchOutcome,
};

use crate::line::{self, Words};
use crate::session::{Context, Next, OUTPUT_BYTES_WANTED, Sender, say, say_number};
use crate::{admin, number};

pub(crate) const BAD_LINE: &str = "CLIENT_ERROR bad command line format";
pub(crate) const BAD_DATA: &str = "CLIENT_ERROR bad data chunk";
pub(crate) const BAD_END: &str = "CLIENT_ERROR invalid exptime argument";
pub(crate) const NOT_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";
pub(crate) const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
pub(crate) const NO_MEMORY: &str = "SERVER_ERROR out of memory storing object";
/// The longest value that a line can announce.
pub(crate) const VALUE_BYTES_MAX: i32 = i32::MAX - 2;
/// The longest `user password` that is read before anybody is known.
const LOGIN_BYTES_MAX: usize = 2048;

/// The request that a fetch of many keys makes for each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetching {
    with_cas: bool,
    touch: Option<Option<u32>>,
}

/// The item to store once its value has come.
#[derive(Debug)]
pub(crate) struct Storing {
    mode: StoreMode,
    key: Box<[u8]>,
    flags: u32,
    expires: Option<u32>,
    is_silent: bool,
}

/// Returns the kind of a line's fetch and where its keys begin, if it is a whole fetch.
pub(crate) fn fetch_line(context: Context<'_>, line: &[u8]) -> Option<(Fetching, usize)> {
    let mut words = line::split(line);
    let (with_cas, touches) = match words.next()? {
        b"get" | b"bget" => (false, false),
        b"gets" => (true, false),
        b"gat" => (false, true),
        b"gats" => (true, true),
        _ => return None,
    };
    let first = words.next()?;
    let at = |word: &[u8]| word.as_ptr() as usize - line.as_ptr() as usize;
    if !touches {
        return Some((
            Fetching {
                with_cas,
                touch: None,
            },
            at(first),
        ));
    }
    let expires = context
        .shared
        .clock
        .end(number::signed_32(first)?, context.now);
    let keys_at = words.next().map_or(line.len(), at);
    Some((
        Fetching {
            with_cas,
            touch: Some(expires),
        },
        keys_at,
    ))
}

/// Answers the keys of a line. Returns where in it to go on, if the output has become long before its end.
pub(crate) fn fetch(
    context: Context<'_>,
    fetching: Fetching,
    line: &[u8],
    output: &mut Vec<u8>,
) -> Option<usize> {
    let start = output.len();
    for key in line::split(line) {
        if output.len() >= OUTPUT_BYTES_WANTED {
            return Some(key.as_ptr() as usize - line.as_ptr() as usize);
        }
        if key.len() > KEY_BYTES_MAX {
            output.truncate(start);
            say(output, BAD_LINE);
            return None;
        }
        fetch_one(context, fetching, key, output);
    }
    output.extend_from_slice(b"END\r\n");
    None
}

fn fetch_one(context: Context<'_>, fetching: Fetching, key: &[u8], output: &mut Vec<u8>) {
    let Context { shared, now, .. } = context;
    let fetch = Fetch {
        touch: fetching.touch,
        ..Fetch::default()
    };
    let answer = |item: ItemRef<'_>| {
        output.extend_from_slice(b"VALUE ");
        output.extend_from_slice(key);
        output.push(b' ');
        number::push(output, item.flags);
        output.push(b' ');
        number::push(output, item.value.len());
        if fetching.with_cas {
            output.push(b' ');
            number::push(output, item.cas);
        }
        output.extend_from_slice(b"\r\n");
        output.extend_from_slice(item.value);
        output.extend_from_slice(b"\r\n");
    };
    let is_hit = shared.objects.fetch(key, &fetch, now, answer).is_some();
    count_fetch(context, is_hit, fetching.touch.is_some());
    shared.count_prefix(key, |counts| {
        counts.gets += 1;
        counts.hits += u64::from(is_hit);
    });
}

/// Counts a key that was asked for.
pub(crate) fn count_fetch(context: Context<'_>, is_hit: bool, touches: bool) {
    let counters = context.counters;
    match (touches, is_hit) {
        (false, true) => counters.get_hits.one(),
        (false, false) => counters.get_misses.one(),
        (true, true) => counters.touch_hits.one(),
        (true, false) => counters.touch_misses.one(),
    }
    match touches {
        false => counters.cmd_get.one(),
        true => counters.cmd_touch.one(),
    }
}

/// Runs a command that is neither a whole fetch nor a meta command.
pub(crate) fn run(words: &Words<'_>, context: Context<'_>, output: &mut Vec<u8>) -> Next {
    let start = output.len();
    let count = words.count();
    let mut is_silent = words.is_silent();
    let next = match (words.at(0), count) {
        (b"set", 5 | 6) => store_line(StoreMode::Set, words, context, output),
        (b"add", 5 | 6) => store_line(StoreMode::Add, words, context, output),
        (b"replace", 5 | 6) => store_line(StoreMode::Replace, words, context, output),
        (b"append", 5 | 6) => store_line(StoreMode::Append, words, context, output),
        (b"prepend", 5 | 6) => store_line(StoreMode::Prepend, words, context, output),
        (b"cas", 6 | 7) => store_line(StoreMode::Cas(0), words, context, output),
        (b"incr", 3 | 4) => answered(|| count_line(false, words, context, output)),
        (b"decr", 3 | 4) => answered(|| count_line(true, words, context, output)),
        (b"touch", 3 | 4) => answered(|| touch(words, context, output)),
        (b"delete", 2..=4) => answered(|| delete(words, context, output)),
        (b"gat" | b"gats", 2..) => {
            is_silent = false;
            answered(|| say(output, BAD_END))
        }
        _ => {
            let (next, keeps) = admin::run(words, context, output);
            is_silent &= keeps;
            next
        }
    };
    if is_silent {
        output.truncate(start);
    }
    next
}

fn answered(command: impl FnOnce()) -> Next {
    command();
    Next::Command
}

fn store_line(
    mode: StoreMode,
    words: &Words<'_>,
    context: Context<'_>,
    output: &mut Vec<u8>,
) -> Next {
    let key = words.at(1);
    let numbers = || {
        let flags = number::unsigned_32(words.at(2))?;
        let end = number::signed_32(words.at(3))?;
        let bytes = number::signed_32(words.at(4))?;
        let mode = match mode {
            StoreMode::Cas(_) => StoreMode::Cas(number::unsigned(words.at(5))?),
            other => other,
        };
        (key.len() <= KEY_BYTES_MAX && (0..=VALUE_BYTES_MAX).contains(&bytes))
            .then_some((mode, flags, end, bytes))
    };
    let Some((mode, flags, end, bytes)) = numbers() else {
        say(output, BAD_LINE);
        return Next::Command;
    };
    let Context {
        shared,
        counters,
        now,
        ..
    } = context;
    shared.count_prefix(key, |counts| counts.sets += 1);
    let bytes = bytes as usize;
    if shared.objects.is_too_large(key.len(), bytes, flags) {
        say(output, TOO_LARGE);
        counters.store_too_large.one();
        // A value that could not be replaced must not be served as if it were the new one.
        if mode == StoreMode::Set {
            shared.objects.delete(key, &Delete::default(), now);
        }
        return Next::Swallow {
            bytes: bytes as u64 + 2,
        };
    }
    let storing = Storing {
        mode,
        key: key.into(),
        flags,
        expires: shared.clock.end(end, now),
        is_silent: words.is_silent(),
    };
    Next::Value {
        sender: Sender::Text(storing),
        bytes,
    }
}

/// Stores a value that has come; `None` if its end was not where it was said to be.
pub(crate) fn store(
    context: Context<'_>,
    storing: Storing,
    value: Option<&[u8]>,
    output: &mut Vec<u8>,
) {
    let start = output.len();
    let Context {
        shared,
        counters,
        now,
        ..
    } = context;
    counters.cmd_set.one();
    let Some(value) = value else {
        say(output, BAD_DATA);
        if storing.is_silent {
            output.truncate(start);
        }
        return;
    };
    let store = Store {
        flags: storing.flags,
        expires: storing.expires,
        ..Store::new(storing.mode, &storing.key, value)
    };
    let outcome = shared.objects.store(&store, now);
    count_store(context, storing.mode, outcome);
    let joins = matches!(storing.mode, StoreMode::Append | StoreMode::Prepend);
    say(
        output,
        match outcome {
            StoreOutcome::Stored { .. } => "STORED",
            StoreOutcome::Exists => "EXISTS",
            StoreOutcome::NotFound => "NOT_FOUND",
            StoreOutcome::NotStored => "NOT_STORED",
            // The field's server has no other word for a value that has grown too long.
            StoreOutcome::TooLarge | StoreOutcome::OutOfMemory if joins => "NOT_STORED",
            StoreOutcome::TooLarge => TOO_LARGE,
            StoreOutcome::OutOfMemory => NO_MEMORY,
        },
    );
    if storing.is_silent {
        output.truncate(start);
    }
}

/// Counts the outcome of storing a value.
pub(crate) fn count_store(context: Context<'_>, mode: StoreMode, outcome: StoreOutcome) {
    let counters = context.counters;
    match (mode, outcome) {
        (_, StoreOutcome::TooLarge) => counters.store_too_large.one(),
        (_, StoreOutcome::OutOfMemory) => counters.store_no_memory.one(),
        (StoreMode::Cas(_), StoreOutcome::Stored { .. }) => counters.cas_hits.one(),
        (StoreMode::Cas(_), StoreOutcome::Exists) => counters.cas_badval.one(),
        (StoreMode::Cas(_), StoreOutcome::NotFound) => counters.cas_misses.one(),
        _ => {}
    }
}

fn count_line(is_decrement: bool, words: &Words<'_>, context: Context<'_>, output: &mut Vec<u8>) {
    let key = words.at(1);
    if key.len() > KEY_BYTES_MAX {
        return say(output, BAD_LINE);
    }
    let Some(delta) = number::unsigned(words.at(2)) else {
        return say(output, "CLIENT_ERROR invalid numeric delta argument");
    };
    let count = Count {
        is_decrement,
        ..Count::up(delta)
    };
    let outcome = context.shared.objects.count(key, &count, context.now);
    count_count(context, is_decrement, outcome);
    match outcome {
        CountOutcome::Counted { number, .. } => say_number(output, number),
        CountOutcome::NotFound | CountOutcome::Exists => say(output, "NOT_FOUND"),
        CountOutcome::NotNumeric => say(output, NOT_NUMERIC),
        CountOutcome::OutOfMemory => say(output, "SERVER_ERROR out of memory"),
    }
}

/// Counts the outcome of changing a number.
pub(crate) fn count_count(context: Context<'_>, is_decrement: bool, outcome: CountOutcome) {
    let counters = context.counters;
    match (is_decrement, outcome) {
        (false, CountOutcome::Counted { .. }) => counters.incr_hits.one(),
        (true, CountOutcome::Counted { .. }) => counters.decr_hits.one(),
        (false, CountOutcome::NotFound) => counters.incr_misses.one(),
        (true, CountOutcome::NotFound) => counters.decr_misses.one(),
        _ => {}
    }
}

fn touch(words: &Words<'_>, context: Context<'_>, output: &mut Vec<u8>) {
    let key = words.at(1);
    if key.len() > KEY_BYTES_MAX {
        return say(output, BAD_LINE);
    }
    let Some(end) = number::signed_32(words.at(2)) else {
        return say(output, BAD_END);
    };
    let expires = context.shared.clock.end(end, context.now);
    let outcome = context.shared.objects.touch(key, expires, context.now);
    count_fetch(context, outcome != TouchOutcome::NotFound, true);
    let answer = match outcome {
        TouchOutcome::Touched => "TOUCHED",
        TouchOutcome::NotFound => "NOT_FOUND",
        TouchOutcome::OutOfMemory => "SERVER_ERROR out of memory",
    };
    say(output, answer);
}

fn delete(words: &Words<'_>, context: Context<'_>, output: &mut Vec<u8>) {
    let key = words.at(1);
    let is_valid = match words.from(2) {
        [] => true,
        [one] => *one == b"0" || *one == b"noreply",
        [one, other] => *one == b"0" && *other == b"noreply",
        _ => false,
    };
    if !is_valid {
        return say(
            output,
            "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
        );
    }
    if key.len() > KEY_BYTES_MAX {
        return say(output, BAD_LINE);
    }
    context
        .shared
        .count_prefix(key, |counts| counts.deletes += 1);
    let outcome = context
        .shared
        .objects
        .delete(key, &Delete::default(), context.now);
    if outcome == DeleteOutcome::Deleted {
        context.counters.delete_hits.one();
        say(output, "DELETED");
    } else {
        context.counters.delete_misses.one();
        say(output, "NOT_FOUND");
    }
}

/// Takes the first line of a client that is not known: `set` of any key, whose value is `user password`.
pub(crate) fn login_line(line: &[u8], output: &mut Vec<u8>) -> Next {
    let words = Words::of(line);
    let bytes = match words.at(0) {
        b"set" if words.count() >= 5 => number::unsigned_32(words.at(4)),
        _ => None,
    };
    let bytes = bytes.map_or(usize::MAX, |bytes| bytes as usize);
    if bytes == usize::MAX {
        say(output, "CLIENT_ERROR unauthenticated");
        return Next::Command;
    }
    if bytes > LOGIN_BYTES_MAX {
        return Next::Close;
    }
    Next::Value {
        sender: Sender::Login,
        bytes,
    }
}

/// Whether the value of the first line is one of the logins.
pub(crate) fn login(context: Context<'_>, value: Option<&[u8]>, output: &mut Vec<u8>) -> bool {
    let Some(value) = value else {
        say(output, "CLIENT_ERROR bad command line termination");
        return false;
    };
    let words = Words::of(value);
    if words.count() < 2 {
        say(output, "CLIENT_ERROR bad authentication token format");
        return false;
    }
    let given = [words.at(0), words.at(1)].join(&b' ');
    let logins = context.shared.logins.as_deref().unwrap_or_default();
    // Every login is compared to its end, so that the time does not show how much was right.
    let is_known = logins
        .iter()
        .fold(false, |known, login| known | is_equal(login, &given));
    context.counters.auth_cmds.one();
    if is_known {
        say(output, "STORED");
    } else {
        context.counters.auth_errors.one();
        say(output, "CLIENT_ERROR authentication failure");
    }
    is_known
}

fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differs = one
        .iter()
        .zip(other)
        .fold(0, |differs, (one, other)| differs | (one ^ other));
    one.len() == other.len() && std::hint::black_box(differs) == 0
}
