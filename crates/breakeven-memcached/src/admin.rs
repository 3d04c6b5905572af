//! The text commands that touch the server and not an item, the lists of all keys, and the answers to lines that are no
//! commands.

use std::sync::atomic::Ordering::Relaxed;

use breakeven::objects::ItemRef;

use crate::line::Words;
use crate::session::{Context, Next, say};
use crate::shared::Stop;
use crate::text::{BAD_END, BAD_LINE};
use crate::{number, stats};

/// The text of the version: that of the memcached with the same behaviour, and our own.
pub(crate) const VERSION: &str = concat!("1.6.18-breakeven-", env!("CARGO_PKG_VERSION"));
/// The least `cache_memlimit`, in MiB, and the most, as in memcached.
const MEMORY_MIB: std::ops::RangeInclusive<u32> = 8..=1_000_000_000;

/// Runs a command. Says too whether `noreply` at its end is obeyed.
pub(crate) fn run(words: &Words<'_>, context: Context<'_>, output: &mut Vec<u8>) -> (Next, bool) {
    let count = words.count();
    match (words.at(0), count) {
        (b"flush_all", 1..=3) => (flush_all(words, context, output), true),
        (b"cache_memlimit", 2 | 3) => (answer(output, memory_limit(words, context)), true),
        (b"learning", 2 | 3) => (answer(output, learning(words, context)), true),
        (b"verbosity", 2 | 3) => (answer(output, verbosity(words, context)), true),
        (b"lru", 2..) => (answer(output, lru(words)), true),
        (b"slabs", _) => (answer(output, slabs(words)), words.at(1) == b"automove"),
        (b"stats", _) => (stats::run(words, context, output), false),
        (b"version", _) => (answer(output, Some(&format!("VERSION {VERSION}"))), false),
        (b"quit", _) => (Next::Close, false),
        (b"shutdown", _) => (shutdown(words, context, output), false),
        (b"lru_crawler", _) => (crawler(words, context, output), false),
        (b"watch", _) => (
            answer(output, Some("CLIENT_ERROR watch commands not allowed")),
            true,
        ),
        // A line from a browser or a forged request: a server of pages is not here.
        _ if words
            .from(count.saturating_sub(1))
            .iter()
            .any(|word| word.starts_with(b"HTTP/")) =>
        {
            (Next::Close, false)
        }
        _ => (answer(output, Some("ERROR")), false),
    }
}

fn answer(output: &mut Vec<u8>, line: Option<&str>) -> Next {
    if let Some(line) = line {
        say(output, line);
    }
    Next::Command
}

fn flush_all(words: &Words<'_>, context: Context<'_>, output: &mut Vec<u8>) -> Next {
    context.counters.cmd_flush.one();
    let shared = context.shared;
    if !shared.settings.allows_flush {
        return answer(output, Some("CLIENT_ERROR flush_all not allowed"));
    }
    let says_when = words.count() != if words.is_silent() { 2 } else { 1 };
    let delay = match says_when {
        true => number::signed_32(words.at(1)),
        false => Some(0),
    };
    let Some(delay) = delay else {
        return answer(output, Some(BAD_END));
    };
    let now = context.now;
    let at = if delay > 0 {
        shared.clock.end(delay, now)
    } else {
        None
    };
    shared.objects.flush_all(at.unwrap_or(now.seconds), now);
    answer(output, Some("OK"))
}

fn memory_limit(words: &Words<'_>, context: Context<'_>) -> Option<&'static str> {
    let Some(mebibytes) = number::unsigned_32(words.at(1)) else {
        return Some("ERROR");
    };
    if mebibytes < *MEMORY_MIB.start() {
        return Some("MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m");
    }
    if mebibytes > *MEMORY_MIB.end() {
        return Some("MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes");
    }
    let bytes = u64::from(mebibytes) << 20;
    Some(
        match context.shared.objects.set_memory(bytes, context.now) {
            Ok(()) => {
                context.shared.memory_bytes.store(bytes, Relaxed);
                "OK"
            }
            Err(_) => "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust",
        },
    )
}

/// Lets dictionaries and methods stay as they are, or go on learning.
fn learning(words: &Words<'_>, context: Context<'_>) -> Option<&'static str> {
    let is_on = match words.at(1) {
        b"on" => true,
        b"off" => false,
        _ => return Some(BAD_LINE),
    };
    context.shared.objects.set_learning(is_on);
    Some("OK")
}

fn verbosity(words: &Words<'_>, context: Context<'_>) -> Option<&'static str> {
    let Some(level) = number::unsigned_32(words.at(1)) else {
        return Some(BAD_LINE);
    };
    context.shared.verbosity.store(level.min(2), Relaxed);
    Some("OK")
}

/// There are no queues of the kind that this tunes. Well-formed words are accepted.
fn lru(words: &Words<'_>) -> Option<&'static str> {
    let decimal = |number: usize| str::from_utf8(words.at(number)).ok()?.parse::<f64>().ok();
    Some(match (words.at(1), words.count()) {
        (b"tune", 6..) => {
            let hot_and_warm =
                number::unsigned_32(words.at(2)).zip(number::unsigned_32(words.at(3)));
            match (hot_and_warm, decimal(4), decimal(5)) {
                (Some((hot, warm)), Some(_), Some(_)) if hot.saturating_add(warm) > 80 => {
                    "ERROR hot and warm pcts must not exceed 80"
                }
                (Some(_), Some(hot), Some(warm)) if hot <= 0.0 || warm <= 0.0 => {
                    "ERROR hot/warm age factors must be greater than 0"
                }
                (Some(_), Some(_), Some(_)) => "OK",
                _ => "ERROR",
            }
        }
        (b"mode", 3..) if [&b"flat"[..], b"segmented"].contains(&words.at(2)) => "OK",
        (b"temp_ttl", 3..) if number::signed_32(words.at(2)).is_some() => "OK",
        _ => "ERROR",
    })
}

/// There are no slab classes between which memory would have to be moved.
fn slabs(words: &Words<'_>) -> Option<&'static str> {
    let number = |at: usize| number::signed_32(words.at(at));
    Some(match (words.at(1), words.count()) {
        (b"reassign", 4) => match number(2).zip(number(3)) {
            None => BAD_LINE,
            Some((from, to)) if from == to => "SAME src and dst class are identical",
            Some(_) => "BADCLASS invalid src or dst class id",
        },
        (b"automove", 3..) => match (words.at(2), number::unsigned_32(words.at(2))) {
            (b"ratio", _) => {
                match str::from_utf8(words.at(3)).is_ok_and(|text| text.parse::<f64>().is_ok()) {
                    true => "OK",
                    false => "ERROR",
                }
            }
            (_, Some(0..=2)) => "OK",
            (_, Some(_)) => "ERROR",
            (_, None) => BAD_LINE,
        },
        _ => "ERROR",
    })
}

fn shutdown(words: &Words<'_>, context: Context<'_>, output: &mut Vec<u8>) -> Next {
    let shared = context.shared;
    if !shared.settings.allows_shutdown {
        return answer(output, Some("ERROR: shutdown not enabled"));
    }
    match words.from(1) {
        [] => shared.ask_stop(Stop::Now),
        [word] if *word == b"graceful" => shared.ask_stop(Stop::Graceful),
        _ => return answer(output, Some("CLIENT_ERROR invalid shutdown mode")),
    }
    Next::Close
}

fn crawler(words: &Words<'_>, context: Context<'_>, output: &mut Vec<u8>) -> Next {
    let argument = number::unsigned_32(words.at(2));
    let line = match (words.at(1), words.count()) {
        (b"crawl", 3) => match words.at(2) == b"all" || is_class(words.at(2)) {
            true => "OK",
            false => "BADCLASS invalid class id",
        },
        (b"metadump", 3) if !context.shared.settings.allows_dump => "ERROR metadump not allowed",
        (b"metadump", 3) if words.at(2) == b"all" || words.at(2) == b"hash" => {
            match context.shared.dump_turn() {
                Some(turn) => return Next::Dump(turn),
                None => "BUSY currently processing crawler request",
            }
        }
        (b"metadump", 3) => "BADCLASS invalid class id",
        (b"tocrawl" | b"sleep", 3) if argument.is_none() => BAD_LINE,
        (b"sleep", 3) if argument > Some(1_000_000) => {
            "CLIENT_ERROR sleep must be one second or less"
        }
        (b"tocrawl" | b"sleep", 3) | (b"enable" | b"disable", 2) => "OK",
        _ => "ERROR",
    };
    answer(output, Some(line))
}

/// Whether the words between commas are numbers of slab classes; memcached has up to 63.
fn is_class(text: &[u8]) -> bool {
    let is_one =
        |word: &[u8]| number::unsigned_32(word).is_some_and(|class| (1..64).contains(&class));
    text.split(|byte| *byte == b',').all(is_one)
}

/// Lists the keys of one shard. Returns whether it was the last.
pub(crate) fn dump_shard(context: Context<'_>, shard: usize, output: &mut Vec<u8>) -> bool {
    let shared = context.shared;
    let clock = &shared.clock;
    shared
        .objects
        .visit(shard, context.now, |key, item: ItemRef<'_>| {
            output.extend_from_slice(b"key=");
            key.iter().for_each(|byte| push_encoded(output, *byte));
            let end = item.expires.map_or(-1, |second| clock.date(second) as i64);
            let fetched = if item.is_fetched { "yes" } else { "no" };
            let rest = format!(
                " exp={end} la={} cas={} fetch={fetched} cls=1 size={}\n",
                clock.date(item.last_access),
                item.cas,
                item.stored_bytes
            );
            output.extend_from_slice(rest.as_bytes());
        });
    let is_last = shard + 1 >= shared.objects.shard_count();
    if is_last {
        output.extend_from_slice(b"END\r\n");
    }
    is_last
}

/// Adds a byte of a key as it stands in an address of the web.
fn push_encoded(output: &mut Vec<u8>, byte: u8) {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => output.push(byte),
        _ => output.extend_from_slice(format!("%{byte:02X}").as_bytes()),
    }
}
