//! Fuzz targets: any bytes of a client, a panic only where a promise is broken.
//!
//! Both feed a session twice, in one piece and in pieces, each over a store of its own, and hold it to three promises.
//! The replies are the same, the waiting output is bounded, and a client that reads replies can read them to their end.
//! `cargo test` replays the kept inputs of `tests/corpus/NAME/` and seeded changes of them; `fuzz/` hands the same
//! functions to libFuzzer. Not part of the library unless the feature `fuzzing` asks for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use breakeven::objects::{Now, Objects, ObjectsOptions};

use crate::client;
use crate::session::{Context, OUTPUT_BYTES_WANTED, Session, Turn};
use crate::settings::Settings;
use crate::shared::{Peer, Shared};

/// A target with the name of the folder of its kept inputs.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: &[Target] = &[("text", fuzz_text), ("meta", fuzz_meta)];

/// The longest value that a fuzzed client can store.
const ITEM_BYTES_MAX: usize = 64 << 10;
/// Seconds, with which no run differs from another.
const NOW: Now = Now { seconds: 1000 };
/// The items in the store before a fuzzed client comes.
const STORED: &[u8] = b"set a 5 0 3\r\nabc\r\nset n 0 0 2\r\n41\r\nset b 0 100 4\r\n\0\r\n \r\n";

/// The first byte says how the rest is cut to pieces, which a client sends as they are.
pub fn fuzz_text(data: &[u8]) {
    let Some((cut, input)) = data.split_first() else {
        return;
    };
    converse(usize::from(*cut) + 1, input);
}

/// As [`fuzz_text`], but each line is one of the meta commands, whose letter its first byte picks. So the changes of an
/// input are flags and their values more often than unknown commands.
pub fn fuzz_meta(data: &[u8]) {
    const LETTERS: &[u8] = b"gsdaen";
    let Some((cut, lines)) = data.split_first() else {
        return;
    };
    let mut input = Vec::with_capacity(lines.len() + 64);
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let (first, rest) = line
            .split_first()
            .expect("a line that is split off has a byte");
        input.extend([b'm', LETTERS[usize::from(*first) % LETTERS.len()]]);
        input.extend_from_slice(rest);
    }
    converse(usize::from(*cut) + 1, &input);
}

/// Feeds a client's bytes whole and in pieces of a length.
fn converse(piece_bytes: usize, input: &[u8]) {
    let talk = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let shared = shared(1 << 20, ITEM_BYTES_MAX);
        feed(&shared, &mut [STORED].into_iter().chain(pieces))
    };
    let (whole, held_max) = talk(&mut [input].into_iter());
    // A command is begun below the wanted bytes: the longest reply to one is a list of a shard's keys.
    assert!(
        held_max <= OUTPUT_BYTES_WANTED + (1 << 20),
        "{held_max} bytes wait"
    );
    let mut left = &whole[..];
    while !left.is_empty() {
        let (_, taken) = client::reply(left)
            .expect("a reply")
            .expect("a reply to its end");
        left = &left[taken..];
    }
    let (pieces, _) = talk(&mut input.chunks(piece_bytes));
    // Statistics count pieces, and times are those of the machine.
    let tells_time = |replies: &[u8]| {
        let has = |word: &[u8]| memchr::memmem::find(replies, word).is_some();
        has(b"STAT ") || has(b" la=")
    };
    assert!(
        whole == pieces || tells_time(&whole),
        "in pieces of {piece_bytes}: {} and not {}",
        pieces.escape_ascii(),
        whole.escape_ascii()
    );
}

/// Makes a server's state with so much memory.
pub(crate) fn shared(memory_bytes: u64, item_bytes_max: usize) -> Shared {
    let options = ObjectsOptions {
        memory_bytes,
        item_bytes_max,
        ..ObjectsOptions::default()
    };
    let objects = Objects::new(options).expect("a store");
    Shared::new(Settings::default(), objects, None).expect("a state")
}

pub(crate) fn peer() -> Peer {
    Peer {
        address: String::new(),
        listen_address: String::new(),
        last_command: AtomicU32::new(0),
        is_sending_value: AtomicBool::new(false),
        is_listener: false,
    }
}

/// Feeds pieces as a worker would, and returns all replies and the bytes that are held at the most.
pub(crate) fn feed(shared: &Shared, pieces: &mut dyn Iterator<Item = &[u8]>) -> (Vec<u8>, usize) {
    let peer = peer();
    let counters = Arc::clone(&shared.workers[0]);
    let context = Context {
        shared,
        counters: &counters,
        peer: &peer,
        now: NOW,
    };
    let mut session = Session::new(false);
    let (mut replies, mut held, mut held_max) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        held.extend_from_slice(piece);
        loop {
            let mut output = Vec::new();
            let (taken, turn) = session.advance(context, &held, &mut output);
            held.drain(..taken);
            held_max = held_max.max(output.len());
            replies.extend_from_slice(&output);
            match turn {
                Turn::Yield => continue,
                Turn::Wait => break,
                Turn::Close => return (replies, held_max),
            }
        }
    }
    (replies, held_max)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Returns the kept inputs of a target, in the order of their names.
    fn kept(name: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/corpus")
            .join(name);
        let entries = fs::read_dir(folder).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| fs::read(path).unwrap()).collect()
    }

    /// Joins pieces of kept inputs with a few bytes between that are none.
    fn joined(random: &mut fastrand::Rng, kept: &[Vec<u8>]) -> Vec<u8> {
        let mut input = vec![random.u8(..)];
        for _ in 0..random.usize(1..5) {
            let from = &kept[random.usize(..kept.len())];
            let at = random.usize(..from.len());
            input.extend_from_slice(&from[at..(at + random.usize(..80)).min(from.len())]);
            input.extend((0..random.usize(..3)).map(|_| random.u8(..)));
        }
        input
    }

    #[test]
    fn kept_and_changed_inputs_break_no_promise() {
        let is_full = std::env::var_os("BREAKEVEN_FULL").is_some_and(|it| it == "1");
        let rounds = if is_full { 100_000 } else { 4_000 };
        for (name, run) in TARGETS {
            let kept = kept(name);
            assert!(kept.len() >= 5, "{name}: {} inputs", kept.len());
            kept.iter().for_each(|input| run(input));
            let mut random = fastrand::Rng::with_seed(20_200_305);
            let mut tried = 0;
            for _ in 0..rounds {
                let input = joined(&mut random, &kept);
                let shown = std::panic::catch_unwind(|| run(&input));
                assert!(
                    shown.is_ok(),
                    "{name} broke its promise with {}",
                    input.escape_ascii()
                );
                tried += 1;
            }
            println!("{name}: {} kept and {tried} changed inputs", kept.len());
            assert!(tried >= 4_000, "{tried}");
        }
    }
}
