//! Every command in every surrounding: what it does anywhere else, or a sentence and its code; never a panic, a hang, a
//! file that is left, or success without the bytes.
//!
//! What a job says and makes is known from two runs of it where nothing is odd. What both say alike has to be said anywhere.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use breakeven::testing::is_full;
use tempfile::TempDir;

use super::{Place, meddle, said};
use crate::allowed_processor;

/// Small jobs, of which each makes something that the second line, for a shell, tells about.
pub(super) const JOBS: [(&str, &str); 27] = [
    ("pack -q file -o new", "$B unpack -q -c new"),
    ("pack -q -c file", READS_PRINTED),
    ("pack -q --rm file", "$B unpack -q -c file.zst"),
    ("unpack -q packed -o new", "cat new"),
    ("unpack -q -t packed", ""),
    ("cat packed", ""),
    ("repack -q --keep 9 packed", "$B unpack -q -c packed"),
    ("info packed", ""),
    ("explain packed", ""),
    ("advise --time 0.1 --medium nvme file", ""),
    ("compare report.json report.json", ""),
    ("report report.json -o new", "cat new"),
    ("man", ""),
    (
        "disk create new --size 4MiB",
        "$B disk export new back; cat back",
    ),
    ("disk import new image", "$B disk export new back; cat back"),
    ("disk export disk new", "cat new"),
    ("disk info disk", ""),
    ("disk fsck disk", ""),
    (
        "disk clone disk disk copy",
        "$B disk export disk back --volume copy; cat back",
    ),
    (
        "disk snapshot disk disk copy",
        "$B disk export disk back --volume copy; cat back",
    ),
    ("disk compact disk", "$B disk export disk back; cat back"),
    ("db create new", "$B db fsck new"),
    ("db import plain new", "$B db export new back; cat back"),
    ("db export database new", "cat new"),
    ("db info database", ""),
    ("db fsck database", ""),
    (
        "db compact database",
        "$B db export database back; cat back",
    ),
];

/// What is printed is data, and the proof reads it.
pub(super) const READS_PRINTED: &str = "$B unpack -q -c -";

/// Reports that no two runs print alike: they tell speeds, which load changes.
const MEASURING: [&str; 2] = ["advise", "explain"];

/// The same of a vault.
pub(super) const VAULT_JOBS: [(&str, &str); 9] = [
    (
        "vault -r new -p password init",
        "$B vault -r new -p password list",
    ),
    (
        "vault -r store -p password add tree",
        "$B vault -r store -p password restore latest -t back; cat $(find back -type f)",
    ),
    (
        "vault -r store -p password restore 1 -t back",
        "cat $(find back -type f)",
    ),
    ("vault -r store -p password verify", ""),
    ("vault -r store -p password list", ""),
    ("vault -r store -p password stats", ""),
    (
        "vault -r store -p password forget 1",
        "$B vault -r store -p password list",
    ),
    (
        "vault -r store -p password gc",
        "$B vault -r store -p password verify",
    ),
    (
        "vault -r store -p password repair",
        "$B vault -r store -p password verify",
    ),
];

/// What a job owes.
#[derive(Clone, Copy, PartialEq)]
enum Owes {
    /// All that it does elsewhere.
    All,
    /// The same but for what it prints, which nobody gets: who prints data may fail.
    Work,
    /// That, or a sentence.
    AllOrSentence,
    /// The same, and nobody gets the sentence.
    AllOrCode,
}

/// A surrounding: its line for the shell, in which `"$@"` is the job, and whether every run of the tests has it.
struct Surrounding(&'static str, Owes, bool);

use Owes::{All, AllOrCode, AllOrSentence, Work};

const SURROUNDINGS: [Surrounding; 61] = [
    Surrounding(r#""$@""#, All, true),
    Surrounding(r#""$@" <&-"#, All, true),
    Surrounding(r#""$@" 2>&-"#, All, true),
    Surrounding(r#""$@" 2>/dev/full"#, All, true),
    Surrounding(r#""$@" 2> >(:)"#, All, false),
    Surrounding(r#""$@" | dd bs=97 status=none"#, All, false),
    Surrounding(
        r#"set +o pipefail; "$@" | cat; exit "${PIPESTATUS[0]}""#,
        All,
        false,
    ),
    Surrounding(
        r#"python3 -c 'import os, sys; os.set_blocking(1, False); os.execv(sys.argv[1], sys.argv[1:])' "$@" | dd bs=97 status=none"#,
        All,
        true,
    ),
    Surrounding(
        r#"python3 -c 'import os, sys, signal as s; s.pthread_sigmask(s.SIG_BLOCK, s.valid_signals()); os.execv(sys.argv[1], sys.argv[1:])' "$@""#,
        All,
        false,
    ),
    Surrounding(
        r#"trap '' HUP INT QUIT TERM PIPE XFSZ CHLD USR1 ALRM; "$@""#,
        All,
        true,
    ),
    Surrounding(r#"taskset -c "$PROCESSOR" "$@""#, All, false),
    Surrounding(r#"ulimit -s 256; "$@""#, All, true),
    Surrounding(r#"umask 077; "$@""#, All, false),
    Surrounding(r#"umask 0; "$@""#, All, false),
    Surrounding(
        r#"env -i BREAKEVEN_CACHE="$BREAKEVEN_CACHE" "$@""#,
        All,
        false,
    ),
    Surrounding(r#"env -i HOME=/dev/null "$@""#, All, true),
    Surrounding(r#"env -i HOME=file "$@""#, All, false),
    Surrounding(
        r#"env -i HOME=/dev/null TMPDIR=/none LANG=xx TERM=none COLUMNS=0 RUST_BACKTRACE=full RUST_LOG=trace "$@""#,
        All,
        false,
    ),
    // Folders for what is kept between runs.
    Surrounding(r#"BREAKEVEN_CACHE= "$@""#, All, false),
    Surrounding(r#"BREAKEVEN_CACHE=/dev/null "$@""#, All, false),
    Surrounding(r#"BREAKEVEN_CACHE=/dev/null/below "$@""#, All, true),
    Surrounding(r#"BREAKEVEN_CACHE=/proc "$@""#, All, false),
    Surrounding(r#"BREAKEVEN_CACHE=/proc/self/fd "$@""#, All, false),
    Surrounding(r#"BREAKEVEN_CACHE=/sys/none "$@""#, All, false),
    Surrounding(r#"BREAKEVEN_CACHE=file "$@""#, All, false),
    Surrounding(r#"BREAKEVEN_CACHE=file/below "$@""#, All, false),
    Surrounding(r#"BREAKEVEN_CACHE=../gone/deep/deeper "$@""#, All, false),
    Surrounding(r#"BREAKEVEN_CACHE=$(printf %0300d 1) "$@""#, All, false),
    Surrounding(
        r#"BREAKEVEN_CACHE=$(printf /%.0s {1..5000}) "$@""#,
        All,
        false,
    ),
    Surrounding(
        r#"ln -s none ../link; BREAKEVEN_CACHE=../link "$@""#,
        All,
        false,
    ),
    Surrounding(
        r#"ln -s loop ../loop; BREAKEVEN_CACHE=../loop "$@""#,
        All,
        false,
    ),
    Surrounding(
        r#"mkfifo ../fifo; BREAKEVEN_CACHE=../fifo "$@""#,
        All,
        false,
    ),
    Surrounding(
        r#"mkdir -m 0 ../shut; BREAKEVEN_CACHE=../shut "$@""#,
        All,
        false,
    ),
    Surrounding(
        r#"mkdir -p ../full; for it in ../cache/*; do ln -s /dev/full "../full/${it##*/}"; done; BREAKEVEN_CACHE=../full "$@""#,
        All,
        false,
    ),
    // Clocks.
    // A vault keeps no times of snapshots before 1970, and says so.
    Surrounding(
        r#"LD_PRELOAD=$CLOCKS CLOCK=-2177452800 "$@""#,
        AllOrSentence,
        false,
    ),
    Surrounding(r#"LD_PRELOAD=$CLOCKS CLOCK=0 "$@""#, All, true),
    Surrounding(r#"LD_PRELOAD=$CLOCKS CLOCK=2147483647 "$@""#, All, false),
    Surrounding(r#"LD_PRELOAD=$CLOCKS CLOCK=4294967296 "$@""#, All, true),
    Surrounding(
        r#"LD_PRELOAD=$CLOCKS CLOCK=1700000000 CLOCK_JUMPS=1 "$@""#,
        All,
        false,
    ),
    // What is printed gets nowhere.
    Surrounding(r#""$@" >&-"#, Work, true),
    Surrounding(r#""$@" >/dev/full"#, Work, true),
    Surrounding(r#""$@" > >(:)"#, Work, true),
    Surrounding(r#""$@" <&- >&- 2>&-"#, AllOrCode, false),
    // Limits.
    Surrounding(r#"ulimit -n 5; "$@""#, AllOrSentence, true),
    Surrounding(r#"ulimit -n 8; "$@""#, AllOrSentence, true),
    Surrounding(r#"ulimit -n 16; "$@""#, AllOrSentence, false),
    Surrounding(r#"ulimit -v 60000; "$@""#, AllOrSentence, false),
    Surrounding(r#"ulimit -v 100000; "$@""#, AllOrSentence, true),
    Surrounding(r#"ulimit -v 200000; "$@""#, AllOrSentence, false),
    Surrounding(r#"ulimit -f 0; trap '' XFSZ; "$@""#, AllOrSentence, false),
    Surrounding(r#"ulimit -f 64; trap '' XFSZ; "$@""#, AllOrSentence, true),
    Surrounding(r#"ulimit -f 300; trap '' XFSZ; "$@""#, AllOrSentence, false),
    // Calls that are refused: no room, a broken medium, a quota at the end, no permission, across devices, not supported.
    Surrounding(r#"$MEDDLE write=28 -- "$@""#, AllOrSentence, true),
    Surrounding(r#"$MEDDLE sync=5 -- "$@""#, AllOrSentence, true),
    Surrounding(r#"$MEDDLE close=122 -- "$@""#, AllOrSentence, true),
    Surrounding(
        r#"$MEDDLE chmod=1 chown=1 times=1 -- "$@""#,
        AllOrSentence,
        true,
    ),
    Surrounding(r#"$MEDDLE rename=5 link=1 -- "$@""#, AllOrSentence, true),
    Surrounding(r#"$MEDDLE unlink=1 -- "$@""#, AllOrSentence, false),
    Surrounding(
        r#"$MEDDLE allocate=95 truncate=28 -- "$@""#,
        AllOrSentence,
        false,
    ),
    Surrounding(r#"$MEDDLE open=13 -- "$@""#, AllOrSentence, false),
    Surrounding(r#"$MEDDLE open=28 -- "$@""#, AllOrSentence, false),
];

/// What a job came to: its code, what it printed, what the second line says, and the names that there are.
struct Outcome {
    output: Output,
    proof: Vec<u8>,
    names: Vec<String>,
}

/// Folders of the program's own, which are kept beside what a job works on.
const OWN_FOLDERS: [&str; 2] = ["cache", "state"];

/// Where jobs run: each in a copy of one folder.
struct Stage {
    place: Place,
    clocks: PathBuf,
}

impl Stage {
    fn run(&self, surrounding: &str, (line, proof): (&str, &str)) -> Outcome {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let inside = folder.path().join("inside");
        let copied = Command::new("cp")
            .arg("-a")
            .arg(self.place.0.path())
            .arg(&inside)
            .status();
        assert!(copied.expect("cp starts").success());
        for name in OWN_FOLDERS.iter().filter(|name| inside.join(name).exists()) {
            fs::rename(inside.join(name), folder.path().join(name)).expect("a folder");
        }
        let shell = |script: &str, input: Stdio| {
            let mut command = Command::new("timeout");
            command.args([
                "--signal=KILL",
                super::DEADLINE_SECONDS,
                "bash",
                "-o",
                "pipefail",
                "-c",
                script,
            ]);
            command
                .arg("bash")
                .arg(env!("CARGO_BIN_EXE_breakeven"))
                .args(line.split_whitespace());
            command
                .env("B", env!("CARGO_BIN_EXE_breakeven"))
                .env("CLOCKS", &self.clocks)
                .env("PROCESSOR", allowed_processor());
            command
                .env("BREAKEVEN_CACHE", folder.path().join("cache"))
                .env("XDG_STATE_HOME", folder.path().join("state"));
            if let Some(meddle) = meddle() {
                command.env(
                    "MEDDLE",
                    format!("{} {}", meddle.display(), inside.display()),
                );
            }
            command.current_dir(&inside).stdin(input);
            command.output().expect("a shell")
        };
        let output = shell(surrounding, Stdio::null());
        let mut names = names_in(&inside);
        if surrounding.contains("unlink=") {
            // Nobody can remove what is half written here, which the next command that may does, nor a source that was packed.
            let is_packed = |name: &str| line.contains("--rm") && name == "file.zst";
            names.retain(|name| !name.starts_with(".breakeven-") && !is_packed(name));
        }
        let printed = folder.path().join("printed");
        fs::write(&printed, &output.stdout).expect("room");
        let input = File::open(&printed).expect("a file");
        Outcome {
            output,
            proof: shell(proof, input.into()).stdout,
            names,
        }
    }

    /// Runs a job twice where nothing is odd.
    fn observe(&self, job: (&'static str, &'static str)) -> Usual {
        let [outcome, again] = [(); 2].map(|()| self.run(r#""$@""#, job));
        let text = said(&outcome.output);
        assert_eq!(outcome.output.status.code(), Some(0), "{}: {text}", job.0);
        let is_measuring = MEASURING.iter().any(|name| job.0.starts_with(name));
        let is_data = job.1 == READS_PRINTED;
        Usual {
            line: job.0,
            proof: job.1,
            prints_the_same: !is_measuring
                && !is_data
                && printed(&outcome.output) == printed(&again.output),
            proves_the_same: outcome.proof == again.proof,
            outcome,
        }
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> = entries
        .map(|it| {
            it.expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

/// What was printed: a report without its figures, since some are of times and speeds.
fn printed(output: &Output) -> Vec<u8> {
    let mut bytes = output.stdout.clone();
    if std::str::from_utf8(&bytes).is_ok() {
        bytes.retain(|byte| !b"0123456789. ".contains(byte));
    }
    bytes
}

/// What a job does where nothing is odd, which two runs of it tell.
struct Usual {
    line: &'static str,
    proof: &'static str,
    outcome: Outcome,
    /// Whether both printed the same.
    prints_the_same: bool,
    proves_the_same: bool,
}

/// The code of a vault's command that did a part of its work.
const PARTIAL: i32 = 3;

/// Says what is wrong about an outcome, if anything is; whether the job went on, else.
fn judge(owes: Owes, usual: &Usual, before: &[String], found: &Outcome) -> Result<bool, String> {
    let (code, text) = (found.output.status.code(), said(&found.output));
    let is_done = code == usual.outcome.output.status.code();
    let is_printed =
        !usual.prints_the_same || printed(&found.output) == printed(&usual.outcome.output);
    let is_made = !usual.proves_the_same
        || (owes == Work && usual.proof == READS_PRINTED)
        || found.proof == usual.outcome.proof;
    let mut names = usual.outcome.names.clone();
    // The source is kept where its metadata could not be.
    if code == Some(PARTIAL) && usual.line == "pack -q --rm file" {
        names.push("file".into());
        names.sort();
    }
    let has_names = found.names == names;
    if text.contains("panicked") || !matches!(code, Some(0..=3)) {
        return Err(format!("it ended with {code:?}"));
    }
    let prints = !usual.outcome.output.stdout.is_empty();
    // Some of a tree, and what is missing is named.
    if code == Some(PARTIAL) && usual.line.starts_with("vault") && owes != All {
        return match text.is_empty() && owes != AllOrCode {
            true => Err("it did a part and said nothing".into()),
            false => Ok(false),
        };
    }
    match owes {
        All if !is_done => Err(format!("it ended with {code:?}")),
        All if !is_printed => Err("it printed something else".into()),
        Work if !is_done && !prints => Err(format!("it ended with {code:?}")),
        All | Work | AllOrSentence | AllOrCode if is_done || code == Some(3) => match () {
            () if !is_made => Err(format!(
                "it ended with {code:?}, and what it made is something else"
            )),
            () if !has_names => Err(format!("it ended with {code:?} and left {:?}", found.names)),
            () if !is_printed && owes == AllOrSentence => Err("it printed something else".into()),
            () => Ok(true),
        },
        AllOrSentence if text.is_empty() => Err(format!("it ended with {code:?} and said nothing")),
        _ => match found.names == before || has_names {
            true => Ok(false),
            false => Err(format!("it failed and left {:?}", found.names)),
        },
    }
}

/// Builds the library of clocks.
fn clocks(folder: &TempDir) -> PathBuf {
    let library = folder.path().join("clock.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/surroundings/clock.c");
    let built = Command::new("cc")
        .args(["-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    assert!(built.expect("cc starts").success(), "clock.c");
    library
}

/// `BREAKEVEN_CELLS=TEXT` tries only those that have this in their name, as a failure tells it.
#[test]
fn every_command_is_right_in_every_surrounding() {
    let built = tempfile::tempdir().expect("a temporary folder");
    let stage = Stage {
        place: Place::new(),
        clocks: clocks(&built),
    };
    let has_databases = stage.place.add_databases();
    let mut jobs: Vec<_> = JOBS.to_vec();
    jobs.retain(|(line, _)| has_databases || !line.starts_with("db "));
    if cfg!(feature = "vault") {
        stage.place.add_vault();
        jobs.extend(VAULT_JOBS);
    }
    let usual: Vec<Usual> = jobs.iter().map(|&job| stage.observe(job)).collect();
    let mut before = stage.place.names();
    before.retain(|name| !OWN_FOLDERS.contains(&&**name));
    let is_there = |it: &&Surrounding| meddle().is_some() || !it.0.contains("$MEDDLE");
    let surroundings: Vec<&Surrounding> = SURROUNDINGS
        .iter()
        .filter(|it| it.2 || is_full())
        .filter(is_there)
        .collect();
    let [next, tried, went_on] = [0; 3].map(AtomicUsize::new);
    let chosen = std::env::var("BREAKEVEN_CELLS").unwrap_or_default();
    let work = || {
        let mut wrong = BTreeMap::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(Surrounding(line, owes, _)) = surroundings.get(at / jobs.len()) else {
                return wrong;
            };
            let job = at % jobs.len();
            let cell = format!("{} in {line}", jobs[job].0);
            if !cell.contains(&chosen) {
                continue;
            }
            tried.fetch_add(1, Ordering::Relaxed);
            let found = stage.run(line, jobs[job]);
            match judge(*owes, &usual[job], &before, &found) {
                Ok(goes_on) => drop(went_on.fetch_add(usize::from(goes_on), Ordering::Relaxed)),
                Err(why) => {
                    let told = format!("{why}: {}", said(&found.output));
                    wrong.insert(cell, told);
                }
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let wrong: BTreeMap<String, String> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .flat_map(|it| it.join().expect("a worker"))
            .collect()
    });
    let (cells, went_on) = (tried.into_inner(), went_on.into_inner());
    println!(
        "{} jobs in {} surroundings: {cells} cells, {went_on} went on, {} wrong",
        jobs.len(),
        surroundings.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        !chosen.is_empty() || went_on * 2 > cells,
        "only {went_on} of {cells} went on"
    );
}
