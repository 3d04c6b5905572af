//! The command line of zstd, translated into our options.
//!
//! Each option of zstd 1.5.7 has one of three fates. It does the same here, or does nothing and is documented so
//! (`docs/streams-reference.md`), or is refused in a sentence that names its replacement. An argument that is not an
//! option of zstd's stays unchanged. Under the name `zstd`, `zstdmt`, `unzstd`, `zstdcat`, `zcat` or `gzcat`, as by a
//! symbolic link, the program replaces zstd.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The translation of an option of zstd's.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    /// An option of ours; the value goes with it where there is one.
    Ours(&'static str),
    /// Nothing: its effect is there anyway, or it changes no byte that anybody reads.
    Nothing,
    /// A translation that depends on the value.
    By(fn(&str) -> Result<Option<String>, String>),
    /// The format of streams, which a reader finds out by itself.
    Format,
    /// There is no such option here; the text names the reason and the alternative.
    Refused(&'static str),
}

/// The value that an option takes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    None,
    /// Digits and a unit in the same word.
    Number,
    /// The same, or the next word.
    Either,
    /// Behind `=`, or not at all.
    Optional,
    /// The rest of the word, or the next one.
    Needed,
}

use Meaning::{By, Format, Nothing, Ours, Refused};
use Value::{Either, Needed, None as Alone, Number, Optional};

const DICTIONARY: &str = "a stream that needs a dictionary is lost with it; `breakeven vault add` stores small files \
     together and deduplicated, and `breakeven serve` compresses small values by dictionaries of its own";
const BENCHMARK: &str =
    "`breakeven advise FILE` measures levels on this machine and says which pays";
const FORMAT: &str =
    "`breakeven pack --mixed -m xz:6` and `-m lz4:1` make frames of xz and lz4, gzip is only read";

/// Formats that zstd names beside its own, and that a reader knows by their first bytes.
const FORMATS_READ: [&str; 4] = ["gzip", "xz", "lzma", "lz4"];

/// Letters, which may stand together in a word.
const LETTERS: [(char, Value, Meaning); 28] = [
    ('z', Alone, Ours("--compress")),
    ('d', Alone, Ours("--decompress")),
    ('t', Alone, Ours("--test")),
    ('l', Alone, Ours("--list")),
    ('c', Alone, Ours("--stdout")),
    ('o', Needed, Ours("--output")),
    ('f', Alone, Ours("--force")),
    ('k', Alone, Ours("--keep")),
    ('v', Alone, Ours("--verbose")),
    ('q', Alone, Ours("--quiet")),
    ('r', Alone, Ours("--recursive")),
    ('T', Either, Ours("--threads")),
    ('M', Either, Ours("--window-max")),
    // Our own.
    ('m', Needed, Ours("--method")),
    ('B', Number, Ours("--job-size")),
    ('C', Alone, Nothing),
    ('n', Alone, Nothing),
    ('V', Alone, Ours("--version")),
    ('h', Alone, Ours("-h")),
    ('H', Alone, Ours("--help")),
    ('D', Needed, Refused(DICTIONARY)),
    ('s', Number, Refused(DICTIONARY)),
    ('b', Number, Refused(BENCHMARK)),
    ('e', Number, Refused(BENCHMARK)),
    ('i', Number, Refused(BENCHMARK)),
    ('S', Alone, Nothing),
    // How random the sample of a benchmark is; without a benchmark zstd takes it, too.
    ('P', Number, Nothing),
    ('p', Number, Refused(BENCHMARK)),
];

/// Words. A `--no-` stands beside its opposite.
const WORDS: [(&str, Value, Meaning); 67] = [
    ("--compress", Alone, Ours("--compress")),
    ("--decompress", Alone, Ours("--decompress")),
    ("--uncompress", Alone, Ours("--decompress")),
    ("--list", Alone, Ours("--list")),
    ("--test", Alone, Ours("--test")),
    ("--force", Alone, Ours("--force")),
    ("--keep", Alone, Ours("--keep")),
    ("--rm", Alone, Ours("--rm")),
    ("--stdout", Alone, Ours("--stdout")),
    ("--to-stdout", Alone, Ours("--stdout")),
    ("--verbose", Alone, Ours("--verbose")),
    ("--quiet", Alone, Ours("--quiet")),
    ("--version", Alone, Ours("--version")),
    ("--help", Alone, Ours("--help")),
    ("--progress", Alone, Nothing),
    ("--no-progress", Alone, Ours("--no-progress")),
    ("--filelist", Needed, Ours("--filelist")),
    ("--output-dir-flat", Needed, Ours("--output-dir-flat")),
    ("--output-dir-mirror", Needed, Ours("--output-dir-mirror")),
    ("--exclude-compressed", Alone, Ours("--exclude-compressed")),
    ("--asyncio", Alone, Nothing),
    ("--no-asyncio", Alone, Nothing),
    ("--check", Alone, Nothing),
    ("--no-check", Alone, Ours("--no-check")),
    ("--sparse", Alone, Nothing),
    ("--no-sparse", Alone, Ours("--no-sparse")),
    ("--pass-through", Alone, Ours("--pass-through")),
    ("--no-pass-through", Alone, Ours("--no-pass-through")),
    ("--ultra", Alone, Nothing),
    ("--fast", Optional, By(fast)),
    ("--max", Alone, Ours("--strategy=smallest")),
    ("--adapt", Optional, By(adapt)),
    ("--long", Optional, By(long)),
    ("--threads", Needed, Ours("--threads")),
    ("--single-thread", Alone, Ours("--threads=1")),
    ("--auto-threads", Needed, Nothing),
    ("--block-size", Needed, Ours("--job-size")),
    ("--rsyncable", Alone, Ours("--rsyncable")),
    ("--stream-size", Needed, Ours("--stream-size")),
    ("--size-hint", Needed, Nothing),
    ("--content-size", Alone, Nothing),
    ("--no-content-size", Alone, Nothing),
    ("--target-compressed-block-size", Needed, Nothing),
    ("--no-dictID", Alone, Nothing),
    ("--mmap-dict", Alone, Nothing),
    ("--no-mmap-dict", Alone, Nothing),
    ("--compress-literals", Alone, Nothing),
    ("--no-compress-literals", Alone, Nothing),
    ("--row-match-finder", Alone, Nothing),
    ("--no-row-match-finder", Alone, Nothing),
    ("--format", Needed, Format),
    ("--memory", Needed, Ours("--window-max")),
    ("--memlimit", Needed, Ours("--window-max")),
    ("--memlimit-decompress", Needed, Ours("--window-max")),
    (
        "--patch-from",
        Needed,
        Refused("`breakeven vault add` stores of a file what differs from all that is there"),
    ),
    (
        "--trace",
        Needed,
        Refused("`breakeven pack --ledger --json` prints what was done and what it took"),
    ),
    (
        "--zstd",
        Needed,
        Refused("a frame is made by a level; --long sets its window, --block-size its jobs"),
    ),
    (
        "--show-default-cparams",
        Alone,
        Refused("`breakeven explain FILE` says how a file would be packed"),
    ),
    (
        "--priority",
        Needed,
        Refused("`chrt` and `nice` start a program at another priority"),
    ),
    ("--train", Optional, Refused(DICTIONARY)),
    ("--train-cover", Optional, Refused(DICTIONARY)),
    ("--train-fastcover", Optional, Refused(DICTIONARY)),
    ("--train-legacy", Optional, Refused(DICTIONARY)),
    ("--maxdict", Needed, Refused(DICTIONARY)),
    ("--dictID", Needed, Refused(DICTIONARY)),
    (
        "--best",
        Alone,
        Refused("an option of gzip's; zstd's levels go to -19, --strategy smallest beyond"),
    ),
    ("--no-name", Alone, Refused("an option of gzip's")),
];

/// The level of stock zstd, which `-0` asks for too.
const LEVEL_USUAL: u8 = 3;
/// The densest level of stock zstd, and with `--ultra`.
const LEVEL_MAX: i32 = 19;
const ULTRA_MAX: i32 = 22;
/// The most threads that may be requested.
const THREADS_MAX: u32 = 1024;
/// The fastest level that is made.
const FAST_MAX: u32 = 7;

/// Options about how a stream is made; they say nothing to a reader.
const PACK_ALONE: [&str; 7] = [
    "--exclude-compressed",
    "--job-size",
    "--level",
    "--no-check",
    "--rsyncable",
    "--stream-size",
    "--strategy",
];

/// Returns the arguments of a program in our options. Those of other commands stay unchanged.
///
/// # Errors
///
/// An option that is refused, with its replacement.
pub fn spell(arguments: impl Iterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let mut arguments: VecDeque<OsString> = arguments.collect();
    let program = arguments.pop_front().unwrap_or_default();
    let name = Path::new(&program).file_name().and_then(OsStr::to_str);
    let name = name.unwrap_or_default();
    let command = match name {
        "zstd" | "zstdmt" => "pack",
        "unzstd" => "unpack",
        "zstdcat" | "zcat" | "gzcat" => "cat",
        _ => {
            let named = arguments.front().and_then(|it| it.to_str());
            let mut known = ["pack", "unpack", "cat"].into_iter();
            let Some(command) = known.find(|it| Some(*it) == named) else {
                arguments.push_front(program);
                return Ok(arguments.into());
            };
            arguments.pop_front();
            command
        }
    };
    let stands_in = stands_in(name);
    let mut spelling = Spelling {
        command,
        spelled: vec![program, command.into()],
        left: arguments,
        is_quiet: false,
        foreign_format: None,
    };
    if stands_in {
        spelling.spelled.push("--as-zstd".into());
    }
    while let Some(argument) = spelling.left.pop_front() {
        match argument.to_str() {
            Some("--") => {
                spelling.spelled.push(argument);
                spelling
                    .spelled
                    .append(&mut spelling.left.drain(..).collect());
            }
            Some(text) if text.starts_with("--") => spelling.word(text)?,
            Some(text) if text.starts_with('-') && text.len() > 1 => spelling.letters(text)?,
            _ => spelling.spelled.push(argument),
        }
    }
    spelling.check_format()?;
    let mut spelled = spelling.spelled;
    // Arguments behind `--` are names, even if they look like options.
    let has = |spelled: &[OsString], word: &str| {
        let mut options = spelled.iter().take_while(|it| *it != "--");
        options.any(|it| it == word)
    };
    if has(&spelled, "--version") {
        spelled.drain(1..);
        spelled.push("--version".into());
    }
    if stands_in {
        let spelled = &mut spelled;
        keep_last_output(spelled);
        if has(spelled, "--stdout") || has(spelled, "--test") || command == "cat" {
            // As in zstd: data on standard output does not last, and a test leaves nothing.
            spelled.retain(|it| it != "--rm");
        }
    }
    Ok(spelled)
}

/// Of several outputs the last counts, as with zstd.
fn keep_last_output(spelled: &mut Vec<OsString>) {
    let options = spelled.iter().take_while(|it| *it != "--").count();
    let is_output = |it: &OsString| it == "--stdout" || it.as_bytes().starts_with(b"--output=");
    let last = spelled[..options].iter().rposition(is_output);
    let mut at = 0;
    spelled.retain(|it| {
        let is_kept = at >= options || last == Some(at) || !is_output(it);
        at += 1;
        is_kept
    });
}

/// Adds the settings of zstd's variables to arguments in our options. It does so where the program packs in the place
/// of zstd and no typed option goes before. Returns their faults as well. `is_ultra` allows the levels that zstd has
/// behind `--ultra`.
pub fn with_variables(
    mut spelled: Vec<OsString>,
    is_ultra: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> (Vec<OsString>, Vec<String>) {
    let mut complaints = Vec::new();
    let place = spelled.iter().position(|it| it == "--as-zstd");
    let Some(place) = place.filter(|_| spelled[1] == "pack") else {
        return (spelled, complaints);
    };
    let options = spelled.iter().take_while(|it| *it != "--");
    let names = options.filter_map(|it| it.to_str()?.split('=').next());
    let names: Vec<&str> = names.collect();
    let says = |known: &[&str]| names.iter().any(|name| known.contains(name));
    let mut added = Vec::new();
    let mut ask = |name: &str, what: &str, read: &dyn Fn(&str) -> Option<OsString>| {
        if let Some(value) = variable(name) {
            let value = value.to_string_lossy();
            match read(&value) {
                Some(option) => added.push(option),
                None => complaints.push(format!("{name}={value} is left alone: it is no {what}")),
            }
        }
    };
    let says_how = says(&[
        "--level",
        "--method",
        "--strategy",
        "--deterministic",
        "--hint",
    ]);
    if !says_how && !says(&["--decompress", "--test", "--list"]) {
        ask("ZSTD_CLEVEL", "level", &|text| {
            let level: i32 = text.parse().ok()?;
            let max = if is_ultra { ULTRA_MAX } else { LEVEL_MAX };
            let level = match level {
                0 => i32::from(LEVEL_USUAL),
                level => level.clamp(-(FAST_MAX as i32), max),
            };
            Some(format!("--level={level}").into())
        });
    }
    let is_mt = Path::new(&spelled[0]).file_name() == Some(OsStr::new("zstdmt"));
    if !is_mt && !says(&["--threads"]) {
        ask("ZSTD_NBTHREADS", "number of threads", &|text| {
            let count: u32 = text.parse().ok()?;
            Some(format!("--threads={}", count.min(THREADS_MAX)).into())
        });
    }
    spelled.splice(place + 1..place + 1, added);
    (spelled, complaints)
}

/// Returns whether the program was called by a name of zstd's.
pub fn stands_in(program: &str) -> bool {
    let name = Path::new(program).file_name().and_then(OsStr::to_str);
    matches!(
        name,
        Some("zstd" | "zstdmt" | "unzstd" | "zstdcat" | "zcat" | "gzcat")
    )
}

/// A command line while it is translated.
struct Spelling {
    command: &'static str,
    spelled: Vec<OsString>,
    left: VecDeque<OsString>,
    /// Whether -q was there: the second one silences errors as well.
    is_quiet: bool,
    /// A format other than zstd's that was asked for.
    foreign_format: Option<String>,
}

impl Spelling {
    fn word(&mut self, text: &str) -> Result<(), String> {
        let (word, value) = match text.split_once('=') {
            Some((word, value)) => (word, Some(value)),
            None => (text, None),
        };
        let known = WORDS.iter().find(|it| it.0 == word);
        let Some(&(_, takes, meaning)) = known.filter(|it| it.1 != Alone || value.is_none()) else {
            self.spelled.push(text.into());
            return Ok(());
        };
        let value = match (value, takes) {
            (Some(value), _) => Some(value.into()),
            (None, Needed) => self.left.pop_front(),
            _ => None,
        };
        self.put(word, meaning, value.as_deref())
    }

    fn letters(&mut self, text: &str) -> Result<(), String> {
        let mut rest = &text[1..];
        while let Some(letter) = rest.chars().next() {
            if letter.is_ascii_digit() {
                let digits = rest.trim_start_matches(|it: char| it.is_ascii_digit());
                let level = &rest[..rest.len() - digits.len()];
                let meaning = match self.spelled.iter().any(|it| it == "--as-zstd") {
                    true => By(self::level_or_densest),
                    false => By(self::level),
                };
                self.put("-#", meaning, Some(level.as_ref()))?;
                rest = digits;
                continue;
            }
            let known = LETTERS.iter().find(|it| it.0 == letter);
            let Some(&(_, takes, meaning)) = known else {
                self.spelled.push(format!("-{rest}").into());
                return Ok(());
            };
            rest = &rest[letter.len_utf8()..];
            let value: Option<OsString> = match takes {
                Needed | Either if rest.is_empty() => self.left.pop_front(),
                Needed => Some(std::mem::take(&mut rest).into()),
                Number | Either => {
                    let is_digit = |it: char| it.is_ascii_digit();
                    let unit = rest.trim_start_matches(is_digit);
                    let behind = unit.trim_start_matches(['K', 'M', 'G', 'i', 'B']);
                    let number = &rest[..rest.len() - behind.len()];
                    rest = behind;
                    Some(number.into())
                }
                _ => None,
            };
            self.put(&format!("-{letter}"), meaning, value.as_deref())?;
        }
        Ok(())
    }

    fn put(&mut self, word: &str, meaning: Meaning, value: Option<&OsStr>) -> Result<(), String> {
        match meaning {
            Nothing => {}
            Format => {
                let name = value.unwrap_or_default().to_string_lossy();
                self.foreign_format = (name != "zstd").then(|| name.into_owned());
            }
            Refused(instead) => return Err(format!("{word} of zstd is not there: {instead}")),
            By(spell) => {
                let text = value.unwrap_or_default().to_str().unwrap_or_default();
                if let Some(ours) = spell(text).map_err(|why| format!("{word} {text}: {why}"))? {
                    self.put_ours(&ours, None);
                }
            }
            Ours("--compress") => {
                (self.spelled)
                    .retain(|it| it != "--decompress" && it != "--test" && it != "--list");
            }
            Ours("--quiet") if self.is_quiet => self.put_ours("--silent", None),
            Ours(ours) => {
                self.is_quiet |= ours == "--quiet";
                self.put_ours(ours, value);
            }
        }
        Ok(())
    }

    /// Refuses a format that is read only, or not at all.
    fn check_format(&self) -> Result<(), String> {
        let Some(name) = &self.foreign_format else {
            return Ok(());
        };
        let mut options = self.spelled.iter().take_while(|it| *it != "--");
        let reads = self.command != "pack"
            || options.any(|it| it == "--decompress" || it == "--test" || it == "--list");
        match reads && FORMATS_READ.contains(&name.as_str()) {
            true => Ok(()),
            false => Err(format!("--format {name}: {FORMAT}")),
        }
    }

    fn put_ours(&mut self, ours: &str, value: Option<&OsStr>) {
        let reads = self.command != "pack";
        let name = ours.split('=').next().unwrap_or_default();
        if reads && PACK_ALONE.contains(&name) {
            return;
        }
        let mut ours = match ours.strip_prefix("--long=") {
            // A file written with such a window wants as much memory to be read.
            Some(log) if reads => format!("--window-max={}", 1_u64 << log.parse().unwrap_or(27)),
            _ => ours.to_string(),
        }
        .into_bytes();
        if let Some(value) = value {
            ours.push(b'=');
            let is_size = matches!(name, "--window-max" | "--job-size" | "--stream-size");
            match value.to_str().and_then(size).filter(|_| is_size) {
                Some(bytes) => ours.extend(bytes.to_string().bytes()),
                None => ours.extend(value.as_bytes()),
            }
        }
        self.spelled.push(OsString::from_vec(ours));
    }
}

/// Reads a size as zstd does: K, M and G are powers of two, with any letters behind them.
fn size(text: &str) -> Option<u64> {
    let unit = text.trim_start_matches(|it: char| it.is_ascii_digit());
    let number: u64 = text[..text.len() - unit.len()].parse().ok()?;
    let shift = match unit {
        "" => 0,
        "K" | "KB" | "KiB" => 10,
        "M" | "MB" | "MiB" => 20,
        "G" | "GB" | "GiB" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

fn level(text: &str) -> Result<Option<String>, String> {
    let level: u8 = text
        .parse()
        .map_err(|_| "levels go from 1 to 22".to_string())?;
    // Nought means zstd's default.
    let level = if level == 0 { LEVEL_USUAL } else { level };
    Ok(Some(format!("--level={level}")))
}

/// Beyond all levels zstd takes the densest usual one.
fn level_or_densest(text: &str) -> Result<Option<String>, String> {
    match text.parse::<u32>() {
        Ok(number) if i64::from(number) > i64::from(ULTRA_MAX) => level(&LEVEL_MAX.to_string()),
        _ => level(text),
    }
}

fn fast(text: &str) -> Result<Option<String>, String> {
    let speed: u32 = match text {
        "" => 1,
        text => text
            .parse()
            .map_err(|_| "a number is expected".to_string())?,
    };
    match speed.min(FAST_MAX) {
        0 => Err("a number from 1 up is expected".to_string()),
        speed => Ok(Some(format!("--level=-{speed}"))),
    }
}

fn long(text: &str) -> Result<Option<String>, String> {
    let log: u32 = match text {
        "" => 27,
        text => text
            .parse()
            .map_err(|_| "a number is expected".to_string())?,
    };
    match log {
        10..=31 => Ok(Some(format!("--long={log}"))),
        _ => Err("windows go from 10 to 31".to_string()),
    }
}

/// The level follows the speed of the sink, within bounds of its own; typed bounds are only checked.
fn adapt(text: &str) -> Result<Option<String>, String> {
    let (mut min, mut max) = (i32::MIN, i32::MAX);
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let level = part
            .split_once('=')
            .map(|(end, level)| (end, level.parse()));
        match level {
            Some(("min", Ok(level))) => min = level,
            Some(("max", Ok(level))) => max = level,
            _ => return Err("min=LEVEL and max=LEVEL are expected".to_string()),
        }
    }
    match min <= max {
        true => Ok(Some("--strategy=fastest".to_string())),
        false => Err("its least level is above its most".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(line: &str) -> Result<String, String> {
        let words = line.split(' ').map(OsString::from);
        let spelled = spell(words)?;
        let words = spelled.iter().map(|it| it.to_str().expect("text"));
        Ok(words.collect::<Vec<_>>().join(" "))
    }

    /// Translates a line where ZSTD_CLEVEL and ZSTD_NBTHREADS have these values. Returns the text behind the command,
    /// and the number of complaints about them.
    fn asked(line: &str, level: &str, threads: &str) -> (String, usize) {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let is_ultra = words.iter().any(|word| word == "--ultra");
        let spelled = spell(words.into_iter()).expect(line);
        let variable = |name: &str| {
            let value = match name {
                "ZSTD_CLEVEL" => level,
                _ => threads,
            };
            (!value.is_empty()).then(|| value.into())
        };
        let (spelled, complaints) = with_variables(spelled, is_ultra, variable);
        let words = spelled.iter().skip(2).map(|it| it.to_str().expect("text"));
        (words.collect::<Vec<_>>().join(" "), complaints.len())
    }

    #[test]
    fn variables_of_zstd_are_asked_for_what_was_not_typed() {
        for (line, level, threads, expected) in [
            ("zstd f", "7", "2", "--as-zstd --level=7 --threads=2 f"),
            ("zstd f", "-3", "0", "--as-zstd --level=-3 --threads=0 f"),
            ("zstd f", "0", "", "--as-zstd --level=3 f"),
            ("zstd f", "+22", "", "--as-zstd --level=19 f"),
            ("zstd --ultra f", "25", "", "--as-zstd --level=22 f"),
            ("zstd f", "-99", "", "--as-zstd --level=-7 f"),
            ("zstd f", "", "9999", "--as-zstd --threads=1024 f"),
            // Typed options go before.
            ("zstd -9 f", "7", "", "--as-zstd --level=9 f"),
            ("zstd -T1 f", "", "2", "--as-zstd --threads=1 f"),
            ("zstd --max f", "7", "", "--as-zstd --strategy=smallest f"),
            ("zstd -d f", "7", "", "--as-zstd --decompress f"),
            ("zstdmt f", "7", "2", "--as-zstd --level=7 f"),
            ("zstd -- -9", "7", "", "--as-zstd --level=7 -- -9"),
            // Elsewhere nobody asks.
            ("unzstd f", "7", "2", "--as-zstd f"),
            ("breakeven pack f", "7", "2", "f"),
        ] {
            let expected = (expected.to_string(), 0);
            assert_eq!(asked(line, level, threads), expected, "{line} {level}");
        }
        for wrong in ["-", "3a", "99999999999", "3.5", " 3"] {
            let expected = ("--as-zstd f".to_string(), 2);
            assert_eq!(asked("zstd f", wrong, wrong), expected, "{wrong}");
        }
        assert_eq!(asked("zstd f", "", "-1").1, 1);
    }

    #[test]
    fn letters_and_words_of_zstd_become_ours() {
        for (line, expected) in [
            (
                "breakeven pack -19T0 f",
                "breakeven pack --level=19 --threads=0 f",
            ),
            (
                "breakeven pack -3T1f f",
                "breakeven pack --level=3 --threads=1 --force f",
            ),
            (
                "breakeven pack -f9q f",
                "breakeven pack --force --level=9 --quiet f",
            ),
            ("breakeven pack -0 --ultra f", "breakeven pack --level=3 f"),
            (
                "breakeven pack --fast --fast=99 f",
                "breakeven pack --level=-1 --level=-7 f",
            ),
            ("breakeven pack --long f", "breakeven pack --long=27 f"),
            (
                "breakeven unpack --long=31 f",
                "breakeven unpack --window-max=2147483648 f",
            ),
            (
                "breakeven unpack -M1024 --memory=1GB",
                "breakeven unpack --window-max=1024 --window-max=1073741824",
            ),
            ("breakeven pack -dz f -o -9", "breakeven pack f --output=-9"),
            ("breakeven cat -9 f", "breakeven cat f"),
            ("breakeven pack -P50 f", "breakeven pack f"),
            (
                "zstd -qqdc --format=gzip f",
                "zstd pack --as-zstd --quiet --silent --decompress --stdout f",
            ),
            ("zstd --format=xz -t f", "zstd pack --as-zstd --test f"),
            ("unzstd --format=lz4 f", "unzstd unpack --as-zstd f"),
            (
                "breakeven pack -cmstore f",
                "breakeven pack --stdout --method=store f",
            ),
            (
                "breakeven pack --link 4MB/s --level 9 f",
                "breakeven pack --link 4MB/s --level 9 f",
            ),
            ("breakeven pack -- -9 --long", "breakeven pack -- -9 --long"),
            ("breakeven advise -9", "breakeven advise -9"),
            ("breakeven pack -qV f", "breakeven --version"),
            (
                "/usr/bin/zstd -B1M --rm -c f",
                "/usr/bin/zstd pack --as-zstd --job-size=1048576 --stdout f",
            ),
            ("unzstd f", "unzstd unpack --as-zstd f"),
            ("zstdcat f", "zstdcat cat --as-zstd f"),
            (
                "zstd --filelist l --stream-size=1K",
                "zstd pack --as-zstd --filelist=l --stream-size=1024",
            ),
        ] {
            assert_eq!(spelled(line).as_deref(), Ok(expected), "{line}");
        }
    }

    #[test]
    fn options_that_are_refused_name_another() {
        for (line, named) in [
            ("breakeven pack -D dict f", "vault"),
            ("breakeven pack --patch-from=old f", "vault"),
            ("breakeven pack -b3 f", "advise"),
            ("breakeven pack --train f", "serve"),
            ("breakeven pack --format=gzip f", "--mixed"),
            ("zstd -d --format=zip f", "only read"),
            ("breakeven pack --fast=0 f", "1 up"),
            ("breakeven pack --long=32 f", "10 to 31"),
        ] {
            let refused = spelled(line).expect_err(line);
            assert!(refused.contains(named), "{line}: {refused}");
        }
    }
}
