//! The meta commands: `mg ms md ma mn me`. Flags are letters, each once, answered in the order of the question.

use breakeven::objects::{
    Count, CountOutcome, Delete, DeleteOutcome, Fetch, ItemRef, KEY_BYTES_MAX, Now, Store,
    StoreMode, StoreOutcome, Win,
};

use crate::line::Words;
use crate::session::{Context, Next, Sender, say};
use crate::text::{self, BAD_DATA, BAD_LINE, NO_MEMORY, NOT_NUMERIC, TOO_LARGE, VALUE_BYTES_MAX};
use crate::{base64, number};

/// Words that a meta command may have.
const WORDS_MAX: usize = 19;
/// Bytes of an opaque flag with its letter.
const OPAQUE_BYTES_MAX: usize = 32;
/// The flags of all commands.
const LETTERS: &[u8] = b"bcCDEFIJMNOPRTLfhklqstuv";
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const LONG_OPAQUE: &str = "CLIENT_ERROR opaque token too long";

/// The requests of a command's flags.
#[derive(Debug, Default)]
struct Flags {
    is_base64: bool,
    is_silent: bool,
    returns_value: bool,
    leaves_access: bool,
    invalidates: bool,
    vivify: Option<Option<u32>>,
    touch: Option<Option<u32>>,
    recache: Option<u32>,
    client_flags: u32,
    cas: Option<u64>,
    cas_new: Option<u64>,
    mode: Option<u8>,
    initial: u64,
    delta: Option<u64>,
}

/// The item to store once its value has come.
#[derive(Debug)]
pub(crate) struct Storing {
    mode: StoreMode,
    key: Box<[u8]>,
    flags: Flags,
    /// The flags that are answered, as they came.
    words: Vec<Box<[u8]>>,
}

/// Runs a meta command by its second letter.
pub(crate) fn run(name: u8, words: &Words<'_>, context: Context<'_>, output: &mut Vec<u8>) -> Next {
    if name == b'n' {
        say(output, "MN");
        return Next::Command;
    }
    if !b"gsdae".contains(&name) || (words.count() < 2 && name != b'e') {
        say(output, "ERROR");
        return Next::Command;
    }
    if words.count() < 2 || words.at(1).len() > KEY_BYTES_MAX {
        say(output, BAD_LINE);
        return Next::Command;
    }
    if name == b'e' {
        inspect(words, context, output);
        return Next::Command;
    }
    if name == b's' {
        return set_line(words, context, output);
    }
    if words.count() > WORDS_MAX {
        say(
            output,
            match name {
                b'g' => "CLIENT_ERROR options flags are too long",
                _ => "CLIENT_ERROR options flags too long",
            },
        );
        return Next::Command;
    }
    let start = output.len();
    let result = match name {
        b'g' => get(words, context, output),
        b'd' => delete(words, context, output),
        _ => count(words, context, output),
    };
    if let Err(error) = result {
        output.truncate(start);
        say(output, error);
    }
    Next::Command
}

/// Reads flags. Unreadable flags are errors, and the last one counts.
fn flags(words: &[&[u8]], context: Context<'_>) -> Result<Flags, &'static str> {
    let mut flags = Flags::default();
    let mut seen = 0_u128;
    let mut error = None;
    for word in words {
        let letter = word[0];
        if letter >= 127 || seen & 1 << letter != 0 {
            return Err("CLIENT_ERROR duplicate flag");
        }
        seen |= 1 << letter;
        if !LETTERS.contains(&letter) {
            return Err("CLIENT_ERROR invalid flag");
        }
        if let Err(reason) = flag(&mut flags, letter, &word[1..], context) {
            error = reason.or(error).or(Some(BAD_LINE));
        }
    }
    error.map_or(Ok(flags), Err)
}

/// Reads one flag. An error without words leaves those of the one before.
fn flag(
    flags: &mut Flags,
    letter: u8,
    text: &[u8],
    context: Context<'_>,
) -> Result<(), Option<&'static str>> {
    let end = || number::signed_32(text).map(|given| context.shared.clock.end(given, context.now));
    let bad = || Err(Some(BAD_TOKEN));
    match letter {
        b'b' => on(&mut flags.is_base64),
        b'N' => end().map_or_else(bad, |end| set(&mut flags.vivify, end)),
        b'T' => end().map_or_else(bad, |end| set(&mut flags.touch, end)),
        b'R' => end().map_or_else(bad, |end| {
            flags.recache = end;
            Ok(())
        }),
        b'C' => number::unsigned(text).map_or_else(bad, |cas| set(&mut flags.cas, cas)),
        b'E' => number::unsigned(text).map_or_else(bad, |cas| set(&mut flags.cas_new, cas)),
        b'F' => number::unsigned_32(text).map_or(Err(None), |given| {
            flags.client_flags = given;
            Ok(())
        }),
        b'M' if text.len() == 1 => set(&mut flags.mode, text[0]),
        b'M' => Err(Some("CLIENT_ERROR incorrect length for M token")),
        b'J' => number::unsigned(text).map_or(
            Err(Some("CLIENT_ERROR invalid numeric initial value")),
            |given| {
                flags.initial = given;
                Ok(())
            },
        ),
        b'D' => match number::unsigned(text) {
            Some(delta) => set(&mut flags.delta, delta),
            None => Err(Some("CLIENT_ERROR invalid numeric delta value")),
        },
        b'v' => on(&mut flags.returns_value),
        b'u' => on(&mut flags.leaves_access),
        b'q' => on(&mut flags.is_silent),
        b'I' => on(&mut flags.invalidates),
        // The others ask for words in the answer, or nothing.
        _ => Ok(()),
    }
}

fn set<T>(place: &mut Option<T>, value: T) -> Result<(), Option<&'static str>> {
    *place = Some(value);
    Ok(())
}

fn on(place: &mut bool) -> Result<(), Option<&'static str>> {
    *place = true;
    Ok(())
}

/// Returns the key that a word means.
fn key<'a>(word: &'a [u8], flags: &Flags) -> Result<std::borrow::Cow<'a, [u8]>, &'static str> {
    match flags.is_base64 {
        false => Ok(word.into()),
        true => base64::decode(word)
            .map(Into::into)
            .ok_or("CLIENT_ERROR error decoding key"),
    }
}

fn get(words: &Words<'_>, context: Context<'_>, output: &mut Vec<u8>) -> Result<(), &'static str> {
    let flags = flags(words.from(2), context)?;
    let key = key(words.at(1), &flags)?;
    let now = context.now;
    let fetch = Fetch {
        touch: flags.touch,
        vivify: flags.vivify,
        recache_below_seconds: flags
            .recache
            .and_then(|second| second.checked_sub(now.seconds)),
        without_value: !flags.returns_value,
        may_win: true,
        leaves_access: flags.leaves_access,
    };
    let start = output.len();
    let answered = context.shared.objects.fetch(&key, &fetch, now, |item| {
        answer_item(words.from(2), &key, &flags, item, now, output)
    });
    match answered {
        Some(result) => {
            text::count_fetch(context, true, flags.touch.is_some());
            result
        }
        None => {
            text::count_fetch(context, false, flags.touch.is_some());
            output.extend_from_slice(b"EN");
            answer_plain(words.from(2), &key, &flags, output)?;
            output.extend_from_slice(b"\r\n");
            if flags.is_silent {
                output.truncate(start);
            }
            Ok(())
        }
    }
}

fn answer_item(
    words: &[&[u8]],
    key: &[u8],
    flags: &Flags,
    item: ItemRef<'_>,
    now: Now,
    output: &mut Vec<u8>,
) -> Result<(), &'static str> {
    match flags.returns_value {
        true => {
            output.extend_from_slice(b"VA ");
            number::push(output, item.value_bytes);
        }
        false => output.extend_from_slice(b"HD"),
    }
    for word in words {
        match word[0] {
            b's' => answer_number(output, b's', item.value_bytes as u64),
            b't' => answer_seconds_left(output, item.expires, now),
            b'c' => answer_number(output, b'c', item.cas),
            b'f' => answer_number(output, b'f', item.flags.into()),
            b'l' => answer_number(
                output,
                b'l',
                now.seconds.saturating_sub(item.last_access).into(),
            ),
            b'h' => answer_number(output, b'h', item.is_fetched.into()),
            _ => answer_word(word, key, flags, output)?,
        }
    }
    if item.win == Win::Taken {
        output.extend_from_slice(b" Z");
    }
    if item.is_stale {
        output.extend_from_slice(b" X");
    }
    if item.win == Win::Won {
        output.extend_from_slice(b" W");
    }
    output.extend_from_slice(b"\r\n");
    if flags.returns_value {
        output.extend_from_slice(item.value);
        output.extend_from_slice(b"\r\n");
    }
    Ok(())
}

fn answer_number(output: &mut Vec<u8>, letter: u8, value: u64) {
    output.extend_from_slice(&[b' ', letter]);
    number::push(output, value);
}

fn answer_seconds_left(output: &mut Vec<u8>, expires: Option<u32>, now: Now) {
    match expires {
        None => output.extend_from_slice(b" t-1"),
        // An end in the past wraps, as the field's server has it.
        Some(second) => answer_number(output, b't', second.wrapping_sub(now.seconds).into()),
    }
}

/// Answers the flags that need no item.
fn answer_plain(
    words: &[&[u8]],
    key: &[u8],
    flags: &Flags,
    output: &mut Vec<u8>,
) -> Result<(), &'static str> {
    words
        .iter()
        .try_for_each(|word| answer_word(word, key, flags, output))
}

fn answer_word(
    word: &[u8],
    key: &[u8],
    flags: &Flags,
    output: &mut Vec<u8>,
) -> Result<(), &'static str> {
    match word[0] {
        b'O' if word.len() > OPAQUE_BYTES_MAX => return Err(LONG_OPAQUE),
        b'O' => {
            output.push(b' ');
            output.extend_from_slice(word);
        }
        b'k' if flags.is_base64 => {
            output.extend_from_slice(b" k");
            base64::encode(key, output);
            output.extend_from_slice(b" b");
        }
        b'k' => {
            output.extend_from_slice(b" k");
            output.extend_from_slice(key);
        }
        _ => {}
    }
    Ok(())
}

fn set_line(words: &Words<'_>, context: Context<'_>, output: &mut Vec<u8>) -> Next {
    let bytes = match number::signed_32(words.at(2)) {
        _ if words.count() > WORDS_MAX => Err("CLIENT_ERROR options flags too long"),
        Some(bytes) if (0..=VALUE_BYTES_MAX).contains(&bytes) => Ok(bytes as usize),
        _ => Err(BAD_LINE),
    };
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(error) => {
            say(output, error);
            return Next::Command;
        }
    };
    match storing(words, context, bytes) {
        Ok(storing) => Next::Value {
            sender: Sender::Meta(storing),
            bytes,
        },
        Err(error) => {
            say(output, error);
            Next::Swallow {
                bytes: bytes as u64 + 2,
            }
        }
    }
}

fn storing(words: &Words<'_>, context: Context<'_>, bytes: usize) -> Result<Storing, &'static str> {
    let flags = flags(words.from(3), context)?;
    let key = key(words.at(1), &flags)?;
    let mode = match flags.mode {
        None | Some(b'S') => StoreMode::Set,
        Some(b'E') => StoreMode::Add,
        Some(b'A') => StoreMode::Append,
        Some(b'P') => StoreMode::Prepend,
        Some(b'R') => StoreMode::Replace,
        Some(_) => return Err("CLIENT_ERROR invalid mode for ms M token"),
    };
    let mode = match (mode, flags.cas) {
        (StoreMode::Set | StoreMode::Replace, Some(cas)) => StoreMode::Cas(cas),
        (mode, _) => mode,
    };
    if words
        .from(3)
        .iter()
        .any(|word| word[0] == b'O' && word.len() > OPAQUE_BYTES_MAX)
    {
        return Err(LONG_OPAQUE);
    }
    let shared = context.shared;
    if shared
        .objects
        .is_too_large(key.len(), bytes, flags.client_flags)
    {
        context.counters.store_too_large.one();
        shared.objects.delete(&key, &Delete::default(), context.now);
        return Err(TOO_LARGE);
    }
    let answered = words
        .from(3)
        .iter()
        .filter(|word| b"Okc".contains(&word[0]));
    let words = answered.map(|word| Box::from(*word)).collect();
    Ok(Storing {
        mode,
        key: key.as_ref().into(),
        flags,
        words,
    })
}

/// Stores a value that has come; `None` if its end was not where it was said to be.
pub(crate) fn store(
    context: Context<'_>,
    storing: Storing,
    value: Option<&[u8]>,
    output: &mut Vec<u8>,
) {
    let Storing {
        mode,
        key,
        flags,
        words,
    } = storing;
    context.counters.cmd_set.one();
    let Some(value) = value else {
        return say(output, BAD_DATA);
    };
    let joins = matches!(mode, StoreMode::Append | StoreMode::Prepend);
    let store = Store {
        flags: flags.client_flags,
        expires: flags.touch.flatten(),
        cas_new: flags.cas_new,
        // A CAS of 0 is none, and never the older one.
        invalidates: flags.invalidates && flags.cas != Some(0),
        cas: flags.cas.filter(|cas| joins && *cas != 0),
        ..Store::new(mode, &key, value)
    };
    let outcome = context.shared.objects.store(&store, context.now);
    text::count_store(context, mode, outcome);
    let mut cas = 0;
    let status = match outcome {
        StoreOutcome::Stored { .. } if flags.is_silent => return,
        StoreOutcome::Stored { cas: new } => {
            cas = new;
            "HD"
        }
        StoreOutcome::Exists => "EX",
        StoreOutcome::NotFound => "NF",
        StoreOutcome::NotStored => "NS",
        StoreOutcome::TooLarge | StoreOutcome::OutOfMemory if joins => "NS",
        StoreOutcome::TooLarge => return say(output, TOO_LARGE),
        StoreOutcome::OutOfMemory => {
            // As in the field's server, a missing item is better than the one to be replaced, in every mode.
            let objects = &context.shared.objects;
            objects.delete(&key, &Delete::default(), context.now);
            return say(output, NO_MEMORY);
        }
    };
    output.extend_from_slice(status.as_bytes());
    for word in &words {
        match word[0] {
            b'c' => answer_number(output, b'c', cas),
            _ => {
                answer_word(word, &key, &flags, output).expect("opaque flags were measured before")
            }
        }
    }
    output.extend_from_slice(b"\r\n");
}

fn delete(
    words: &Words<'_>,
    context: Context<'_>,
    output: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let flags =
        flags(words.from(2), context).map_err(|_| "CLIENT_ERROR invalid or duplicate flag")?;
    let key = key(words.at(1), &flags).map_err(|_| "CLIENT_ERROR invalid or duplicate flag")?;
    let start = output.len();
    output.extend_from_slice(b"..");
    answer_plain(words.from(2), &key, &flags, output)?;
    let delete = Delete {
        cas: flags.cas,
        marks_stale: flags.invalidates,
        touch: flags.touch,
        cas_new: flags.cas_new,
    };
    let outcome = context.shared.objects.delete(&key, &delete, context.now);
    let status = match outcome {
        DeleteOutcome::Deleted => b"HD",
        DeleteOutcome::NotFound => b"NF",
        DeleteOutcome::Exists => b"EX",
    };
    match outcome {
        DeleteOutcome::Deleted if flags.invalidates => {}
        DeleteOutcome::Deleted => context.counters.delete_hits.one(),
        _ => context.counters.delete_misses.one(),
    }
    output[start..start + 2].copy_from_slice(status);
    output.extend_from_slice(b"\r\n");
    if flags.is_silent && outcome == DeleteOutcome::Deleted {
        output.truncate(start);
    }
    Ok(())
}

fn count(
    words: &Words<'_>,
    context: Context<'_>,
    output: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let flags =
        flags(words.from(2), context).map_err(|_| "CLIENT_ERROR invalid or duplicate flag")?;
    let key = key(words.at(1), &flags).map_err(|_| "CLIENT_ERROR invalid or duplicate flag")?;
    let is_decrement = match flags.mode {
        None | Some(b'I' | b'+') => false,
        Some(b'D' | b'-') => true,
        Some(_) => return Err("CLIENT_ERROR invalid mode for ma M token"),
    };
    let count = Count {
        is_decrement,
        initial: flags
            .vivify
            .map(|end| (flags.initial, flags.touch.unwrap_or(end))),
        cas: flags.cas.filter(|cas| *cas != 0),
        cas_new: flags.cas_new,
        touch: flags.touch,
        ..Count::up(flags.delta.unwrap_or(1))
    };
    let outcome = context.shared.objects.count(&key, &count, context.now);
    if !is_made_by(&outcome) {
        text::count_count(context, is_decrement, outcome);
    }
    let start = output.len();
    match outcome {
        CountOutcome::Counted {
            number,
            cas,
            expires,
            is_vivified,
        } => {
            let digits = number.to_string();
            match flags.returns_value {
                true => output.extend_from_slice(format!("VA {}", digits.len()).as_bytes()),
                false => output.extend_from_slice(b"HD"),
            }
            for word in words.from(2) {
                match word[0] {
                    b'c' => answer_number(output, b'c', cas),
                    b't' => answer_seconds_left(output, expires, context.now),
                    _ => answer_word(word, &key, &flags, output)?,
                }
            }
            if flags.returns_value {
                output.extend_from_slice(b"\r\n");
                output.extend_from_slice(digits.as_bytes());
            }
            output.extend_from_slice(b"\r\n");
            if flags.is_silent && !is_vivified {
                output.truncate(start);
            }
        }
        CountOutcome::NotFound | CountOutcome::Exists => {
            let exists = outcome == CountOutcome::Exists;
            output.extend_from_slice(if exists { b"EX" } else { b"NF" });
            answer_plain(words.from(2), &key, &flags, output)?;
            output.extend_from_slice(b"\r\n");
        }
        CountOutcome::NotNumeric => return Err(NOT_NUMERIC),
        CountOutcome::OutOfMemory => return Err("SERVER_ERROR out of memory"),
    }
    Ok(())
}

/// Returns whether counting made the item.
fn is_made_by(outcome: &CountOutcome) -> bool {
    let CountOutcome::Counted { is_vivified, .. } = outcome else {
        return false;
    };
    *is_vivified
}

fn inspect(words: &Words<'_>, context: Context<'_>, output: &mut Vec<u8>) {
    context.counters.cmd_meta.one();
    let word = words.at(1);
    let is_base64 = words.at(2) == b"b";
    let decoded = match is_base64 {
        false => Some(word.to_vec()),
        true => base64::decode(word),
    };
    let Some(key) = decoded else {
        return say(output, BAD_LINE);
    };
    let now = context.now;
    let fetch = Fetch {
        without_value: true,
        leaves_access: true,
        ..Fetch::default()
    };
    let shown = context.shared.objects.fetch(&key, &fetch, now, |item| {
        let end = item
            .expires
            .map_or(-1, |second| i64::from(now.seconds) - i64::from(second));
        let idle = now.seconds.saturating_sub(item.last_access);
        let fetched = if item.is_fetched { "yes" } else { "no" };
        format!(
            "exp={end} la={idle} cas={} fetch={fetched} cls=1 size={}",
            item.cas, item.stored_bytes
        )
    });
    match shown {
        None => say(output, "EN"),
        Some(shown) => {
            output.extend_from_slice(b"ME ");
            match is_base64 {
                true => base64::encode(&key, output),
                false => output.extend_from_slice(&key),
            }
            output.push(b' ');
            say(output, &shown);
        }
    }
}
