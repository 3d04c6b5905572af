//! Every command in every surrounding. It must work as elsewhere, or give a sentence and its code. It must never panic,
//! hang, leave a file behind, or succeed without the bytes.
//!
//! Two runs of a job in normal surroundings give its usual output and files. The words common to both must appear
//! everywhere.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use breakeven::testing::is_full;
use tempfile::TempDir;

use super::{Place, meddle, said};
use crate::allowed_processor;
use crate::page::left_out;

/// Small jobs. Each makes something, and the second line, for a shell, checks it.
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

/// The output is data, and the proof reads it.
pub(super) const READS_PRINTED: &str = "$B unpack -q -c -";

/// Reports that differ from run to run: they contain speeds, which load changes.
const MEASURING: [&str; 2] = ["advise", "explain"];

/// The same of a vault.
pub(super) const VAULT_JOBS: [(&str, &str); 9] = [
    (
        "vault -r new -p password init",
        "$B vault -r new -p password list",
    ),
    (
        ADD,
        "$B vault -r store -p password restore latest -t back; cat $(find back -type f)",
    ),
    (RESTORE, "cat $(find back -type f)"),
    (VERIFY, ""),
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

/// Begins a job that is a script, in which `$0` is the program and `$1` the extension.
const SCRIPT: &str = "script: ";
/// Begins a line of another program.
const OTHER: &str = "other: ";

/// Ends a server as its user would; also one that inherited blocked signals, like memcached.
macro_rules! end_server {
    () => {
        r#"kill $server; case $(grep SigBlk /proc/$server/status) in ''|*0000) wait $server || code=1; trap - EXIT;; esac; exit $code"#
    };
}

/// A served disk and cache, and the extension in the stock shell.
const SERVED_JOBS: [(&str, &str); 4] = [
    (
        concat!(
            r#"script: exec 3< <(exec "$0" disk serve disk --reserve 1 --socket s); server=$!; trap 'kill -KILL $server' EXIT; read -r -u 3 _ || exit 1; "#,
            r#"nbdcopy 'nbd+unix:///?socket=s' back; code=$?; "#,
            end_server!()
        ),
        "cat back",
    ),
    (
        concat!(
            r#"script: exec 3< <(exec "$0" serve -s s 2>&1 >/dev/null); server=$!; trap 'kill -KILL $server' EXIT; read -r -u 3 line; trap '' PIPE; echo "$line" >&2; "#,
            r#"python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect("s"); "#,
            r#"s.sendall(b"set k 0 0 5\r\nhello\r\nget k\r\nquit\r\n"); all = b"".join(iter(lambda: s.recv(99), b"")); print(all); exit(b"hello" not in all)' </dev/null; code=$?; "#,
            end_server!()
        ),
        "",
    ),
    (
        r#"script: set -o pipefail; sqlite3 -bail :memory: ".load $1" '.open file:new?vfs=breakeven' 'CREATE TABLE t(a); INSERT INTO t VALUES(2014); SELECT a FROM t, pragma_database_list WHERE file > ""' | grep . || exit 1"#,
        "$B db export new back; cat back",
    ),
    (
        concat!(
            r#"script: set -o pipefail; sqlite3 -bail :memory: ".load $1" '.open file:database?vfs=breakeven' "#,
            r#"'BEGIN; UPDATE t SET b = b || a WHERE a % 7 = 0; DELETE FROM t WHERE a > 800; COMMIT; SELECT count(*) FROM t' | grep . || exit 1"#
        ),
        "$B db export database back; sqlite3 back 'SELECT * FROM t'",
    ),
];

/// Programs that do the same as a job: if they continue, so do we.
const PEERS: [(&str, &str); 12] = [
    ("pack -q file -o new", "other: zstd -q file -o new"),
    ("pack -q file -o new", "other: gzip -k file"),
    ("pack -q -c file", "other: zstd -q -c file"),
    ("pack -q --rm file", "other: zstd -q --rm file"),
    ("unpack -q packed -o new", "other: zstd -d -q packed -o new"),
    ("unpack -q -t packed", "other: zstd -t -q packed"),
    ("cat packed", "other: zstd -d -q -c packed"),
    (ADD, "other: tar -cf new tree"),
    (ADD, "other: restic -q -r restic backup tree"),
    (RESTORE, "other: tar -xf tar --one-top-level=back"),
    (RESTORE, "other: restic -q -r restic restore latest -t back"),
    (VERIFY, "other: restic -q -r restic check --read-data"),
];

/// Cells in which a peer continues and we do not, by parts of their names, and the reason.
struct Excuse {
    job: &'static str,
    surrounding: &'static str,
    why: &'static str,
}

const fn excuse(why: &'static str, job: &'static str, surrounding: &'static str) -> Excuse {
    Excuse {
        job,
        surrounding,
        why,
    }
}

const OF_18_MB: &str = "the program is of 18 MB, where zstd is of 1";
const IS_A_FOLDER: &str =
    "a vault is a folder of many files with a lock of its own, an archive is one file";
const NEEDS_NAMES: &str =
    "an object of a vault gets its name when it is whole, and here none can be given";
const LIES_TWICE: &str = "the records of a vault lie twice, apart from each other";
const ENDS_IN_A_HOLE: &str = "a file that ends in a hole gets its length so";
const ASKS_THE_MEDIUM: &str = "they do not ask whether a medium has the bytes";
const PRINTS_NOTHING: &str = "they print nothing, and need no standard output";
const HAS_THREADS: &str = "gzip and tar have no threads; zstd and restic have, and refuse as well";
const IS_ABSOLUTE: &str = "the paths of a snapshot are absolute";

const EXCUSED: [Excuse; 26] = [
    excuse(OF_18_MB, "", "ulimit -v 60000"),
    excuse(IS_A_FOLDER, "", "ulimit -n 5"),
    excuse(IS_A_FOLDER, ADD, "nr_inodes"),
    excuse(IS_ABSOLUTE, RESTORE, "nr_inodes"),
    excuse(ASKS_THE_MEDIUM, "pack -q", "btrfs qgroup limit"),
    excuse(IS_A_FOLDER, ADD, "umask 777"),
    excuse(IS_A_FOLDER, "vault", "ulimit -n 8"),
    excuse(IS_A_FOLDER, ADD, "open="),
    excuse(IS_A_FOLDER, ADD, "unlink=1"),
    excuse(NEEDS_NAMES, ADD, "Some(Name("),
    excuse(NEEDS_NAMES, ADD, "rename="),
    excuse(LIES_TWICE, ADD, "+ 16))k"),
    excuse(ENDS_IN_A_HOLE, "unpack -q", "truncate=28"),
    excuse(ASKS_THE_MEDIUM, "", "Some(Sync)"),
    excuse(ASKS_THE_MEDIUM, "", "sync="),
    excuse(PRINTS_NOTHING, "vault", ">&-"),
    excuse(PRINTS_NOTHING, "vault", ">/dev/full"),
    excuse(PRINTS_NOTHING, "vault", "os.dup2(os.open"),
    excuse(PRINTS_NOTHING, "vault", "os.openpty"),
    excuse(HAS_THREADS, "pack -q", "ulimit -u 1"),
    excuse(HAS_THREADS, "vault", "ulimit -u 1"),
    excuse(HAS_THREADS, "pack -q", "pids 1"),
    excuse(HAS_THREADS, "pack -q", "pids 2"),
    excuse(HAS_THREADS, "vault", "pids 1"),
    excuse(HAS_THREADS, "vault", "pids 2"),
    excuse(IS_ABSOLUTE, ADD, "around/$long"),
];

/// Returns why a cell of this name is excused.
fn excused(name: &str) -> Option<&'static str> {
    let mut excuses = EXCUSED.iter();
    let found = excuses.find(|it| name.contains(it.job) && name.contains(it.surrounding));
    found.map(|it| it.why)
}

/// The extension, which is built beside the program.
fn extension() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_breakeven")).with_file_name("deps/libbreakeven_sqlite.so")
}

const ADD: &str = "vault -r store -p password add tree";
const RESTORE: &str = "vault -r store -p password restore 1 -t back";
const VERIFY: &str = "vault -r store -p password verify";

/// The duty of a job.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Owes {
    /// All that it does elsewhere.
    All,
    /// The same except for its output, which nobody gets: a job that prints data may fail.
    Work,
    /// That, or a sentence.
    AllOrSentence,
    /// The same, and nobody gets the sentence.
    AllOrCode,
}

/// A surrounding: its line for the shell, in which `"$@"` is the job, and whether every run of the tests has it.
pub(super) struct Surrounding(pub(super) &'static str, pub(super) Owes, pub(super) bool);

use Owes::{All, AllOrCode, AllOrSentence, Work};

const SURROUNDINGS: [Surrounding; 79] = [
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
        r#"python3 -c 'import os, sys; os.set_blocking(1, False); os.execvp(sys.argv[1], sys.argv[1:])' "$@" | dd bs=97 status=none"#,
        All,
        true,
    ),
    Surrounding(
        r#"python3 -c 'import os, sys, signal as s; s.pthread_sigmask(s.SIG_BLOCK, s.valid_signals()); os.execvp(sys.argv[1], sys.argv[1:])' "$@""#,
        All,
        false,
    ),
    Surrounding(
        r#"trap '' HUP INT QUIT TERM PIPE XFSZ CHLD USR1 ALRM; "$@""#,
        All,
        true,
    ),
    Surrounding(r#"taskset -c "$PROCESSOR" "$@""#, All, false),
    Surrounding(r#"ulimit -s 64; "$@""#, All, true),
    Surrounding(r#"nice -n 19 ionice -c 3 "$@""#, All, false),
    Surrounding(r#"ulimit -l 0 -i 0 -q 0 -c 0; "$@""#, All, false),
    Surrounding(r#"(exec -a "" "$@")"#, All, false),
    Surrounding(r#"TZ=/none LC_ALL=xx_XX.KOI8-R "$@""#, All, false),
    // Streams of another kind.
    Surrounding(r#""$@" <."#, All, false),
    Surrounding(
        r#"python3 -c 'import os, sys, socket; s = socket.socketpair(); os.dup2(s[0].fileno(), 0); os.execvp(sys.argv[1], sys.argv[1:])' "$@""#,
        All,
        true,
    ),
    Surrounding(
        r#"python3 -c 'import os, sys; os.dup2(os.open(".", 0), 1); os.execvp(sys.argv[1], sys.argv[1:])' "$@""#,
        Work,
        false,
    ),
    // A terminal after a hang-up.
    Surrounding(
        r#"trap '' HUP; python3 -c 'import os, sys; pair = os.openpty(); os.close(pair[0]); [os.dup2(pair[1], it) for it in range(3)]; os.execvp(sys.argv[1], sys.argv[1:])' "$@""#,
        AllOrCode,
        true,
    ),
    // A folder whose path is longer than a system call takes; SQLite opens nothing there.
    Surrounding(
        r#"long=$(printf %0200d 1); (cd ..; for _ in {1..25}; do mkdir around; mv inside around/$long; mv around inside; done); "$@"; code=$?; (cd ..; for _ in {1..25}; do mv inside/$long next; rmdir inside; mv next inside; done); exit $code"#,
        AllOrSentence,
        false,
    ),
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
    // Folders for files kept between runs.
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
    // Clocks. A vault keeps no times of snapshots before 1970, and reports it.
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
    // The output gets nowhere.
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
    // Refused calls: no room, a broken medium, an exhausted quota, no permission, across devices, not supported.
    Surrounding(r#"$MEDDLE write=28 -- "$@""#, AllOrSentence, true),
    Surrounding(
        r#"$MEDDLE write=122 allocate=122 -- "$@""#,
        AllOrSentence,
        false,
    ),
    Surrounding(r#"$MEDDLE sync=5 -- "$@""#, AllOrSentence, true),
    Surrounding(r#"$MEDDLE close=122 -- "$@""#, AllOrSentence, true),
    Surrounding(
        r#"$MEDDLE chmod=1 chown=1 times=1 -- "$@""#,
        AllOrSentence,
        true,
    ),
    Surrounding(r#"$MEDDLE chmod=1 -- "$@""#, AllOrSentence, false),
    Surrounding(r#"$MEDDLE chown=1 -- "$@""#, AllOrSentence, false),
    Surrounding(r#"$MEDDLE times=1 -- "$@""#, AllOrSentence, false),
    Surrounding(r#"$MEDDLE sync=22 -- "$@""#, AllOrSentence, false),
    Surrounding(r#"$MEDDLE rename=5 link=1 -- "$@""#, AllOrSentence, true),
    Surrounding(r#"$MEDDLE rename=1 link=1 -- "$@""#, AllOrSentence, false),
    Surrounding(r#"$MEDDLE rename=38 link=38 -- "$@""#, AllOrSentence, false),
    Surrounding(r#"$MEDDLE rename=95 link=95 -- "$@""#, AllOrSentence, false),
    Surrounding(r#"$MEDDLE unlink=1 -- "$@""#, AllOrSentence, false),
    Surrounding(r#"$MEDDLE rename=22 unlink=1 -- "$@""#, AllOrSentence, true),
    Surrounding(
        r#"$MEDDLE allocate=95 truncate=28 -- "$@""#,
        AllOrSentence,
        false,
    ),
    Surrounding(r#"$MEDDLE open=13 -- "$@""#, AllOrSentence, false),
    Surrounding(r#"$MEDDLE open=28 -- "$@""#, AllOrSentence, false),
];

/// The place of a job's files: lines for the shell, run in the folder around `inside`.
#[derive(Clone, Copy)]
pub(super) struct Ground {
    /// Makes `inside`, from the files in `$PLACE`.
    pub(super) prepare: &'static str,
    /// The preparation before the job begins; it is undone at the job's end.
    pub(super) spoil: &'static str,
    pub(super) mend: &'static str,
    /// The flaw of the file system that shows it.
    pub(super) flaw: Option<Flaw>,
}

/// A refusal of a server behind a mount, or another difference from a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    Close,
    Sync,
    Mode,
    Owner,
    Times,
    /// No file can be renamed, with this number of the system.
    Name(i32),
    /// All calls are answered late.
    Late,
}

#[cfg(feature = "mount")]
impl Flaw {
    /// Returns its error: an exhausted quota, a broken medium, no permission.
    pub(super) fn error(self) -> rustix::io::Errno {
        use rustix::io::Errno;
        match self {
            Flaw::Close => Errno::DQUOT,
            Flaw::Sync | Flaw::Late => Errno::IO,
            Flaw::Mode | Flaw::Owner | Flaw::Times => Errno::PERM,
            Flaw::Name(number) => Errno::from_raw_os_error(number),
        }
    }
}

/// Runs a program in a control group with a limit.
const LIMIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/surroundings/limit.sh");

/// Returns whether control groups can be made here.
fn may_limit() -> bool {
    static TRIED: OnceLock<bool> = OnceLock::new();
    let try_it = || {
        let limits = [["memory", "1000000000"], ["cpu", "1000"], ["pids", "1000"]];
        let works = |limit: &[&str; 2]| {
            let mut tried = Command::new("bash");
            let tried = tried.arg(LIMIT).args(limit).arg("true").output();
            tried.is_ok_and(|output| output.status.success())
        };
        let all = limits.iter().all(works);
        if !all {
            println!("no control group can be made here: none limited a command");
        }
        all
    };
    *TRIED.get_or_init(try_it)
}

/// A folder like any other.
pub(super) const PLAIN: Ground = Ground {
    prepare: r#"mkdir inside; cp -a "$PLACE/." inside"#,
    spoil: "",
    mend: "",
    flaw: None,
};

/// A tried job, and its place.
#[derive(Clone, Copy)]
pub(super) struct Cell<'a> {
    ground: Ground,
    line: &'a str,
    owes: Owes,
}

impl Cell<'_> {
    /// Returns the name of a job here, as a failure prints it.
    fn name(&self, job: &str) -> String {
        let (line, ground) = (self.line, self.ground);
        format!(
            "{job} in {line} {} {} {:?}",
            ground.prepare, ground.spoil, ground.flaw
        )
    }

    /// Whether names cannot be removed here.
    fn keeps_names(&self) -> bool {
        self.line.contains("unlink=") || self.ground.spoil.contains("chattr +a")
    }
}

/// The outcome of a job: its code, its output, the output of the second line, and the names of the files.
struct Outcome {
    output: Output,
    proof: Vec<u8>,
    names: Vec<String>,
}

/// Folders of the program's own, which are kept beside the job's files.
const OWN_FOLDERS: [&str; 2] = ["cache", "state"];

/// The place of the jobs: each runs in a copy of one folder.
pub(super) struct Stage {
    pub(super) place: Place,
    clocks: PathBuf,
    _built: TempDir,
}

impl Stage {
    /// Makes a stage with something of each kind; returns it with the jobs that it suffices for.
    pub(super) fn new() -> (Stage, Vec<(&'static str, &'static str)>) {
        let built = tempfile::tempdir().expect("a temporary folder");
        let stage = Stage {
            place: Place::new(),
            clocks: clocks(&built),
            _built: built,
        };
        let has_databases = stage.place.add_databases();
        let mut jobs: Vec<_> = JOBS.to_vec();
        if is_full() {
            jobs.extend(SERVED_JOBS);
        }
        jobs.retain(|(line, _)| has_databases || !line.starts_with("db "));
        let has_extension = has_databases && extension().exists();
        if !has_extension {
            left_out("the extension is not built: no job of it was tried");
        }
        jobs.retain(|(line, _)| has_extension || !line.contains("sqlite3"));
        let has_client = Command::new("nbdcopy").arg("--version").output().is_ok();
        if !has_client {
            left_out("nbdcopy is not installed: no disk was served");
        }
        jobs.retain(|(line, _)| has_client || !line.contains("nbdcopy"));
        if cfg!(feature = "vault") {
            stage.place.add_vault();
            jobs.extend(VAULT_JOBS);
            if is_full() {
                // Files that other programs need for the same work.
                let folder = stage.place.0.path();
                let lines = "tar -cf tar tree; restic -q -r restic init && restic -q -r restic backup tree || :";
                let made = stage.shell(folder, lines, "").current_dir(folder).status();
                assert!(made.expect("a shell").success());
            }
        }
        (stage, jobs)
    }

    /// A shell in a folder, in which `"$@"` is a job.
    fn shell(&self, folder: &Path, script: &str, line: &str) -> Command {
        let program = env!("CARGO_BIN_EXE_breakeven");
        let mut command = Command::new("timeout");
        command
            .args(["--signal=KILL", super::DEADLINE_SECONDS, "bash"])
            .args(["-o", "pipefail", "-c", script, "bash"]);
        match line.strip_prefix(SCRIPT) {
            Some(script) => command
                .args(["bash", "-c", script, program])
                .arg(extension()),
            None if line.starts_with(OTHER) => command.args(line.split_whitespace().skip(1)),
            None => command.arg(program).args(line.split_whitespace()),
        };
        command
            .env("B", program)
            .env("PLACE", self.place.0.path())
            .env("CLOCKS", &self.clocks)
            .env("PROCESSOR", allowed_processor())
            .env("LIMIT", LIMIT)
            .env("RESTIC_PASSWORD", "a password")
            .env("BREAKEVEN_CACHE", folder.join("cache"))
            .env("XDG_STATE_HOME", folder.join("state"))
            .env("XDG_CACHE_HOME", folder.join("cache"))
            .stdin(Stdio::null());
        if let Some(meddle) = meddle() {
            let watched = folder.join("inside");
            command.env(
                "MEDDLE",
                format!("{} {}", meddle.display(), watched.display()),
            );
        }
        command
    }

    fn run(&self, cell: Cell<'_>, (line, proof): (&str, &str)) -> Outcome {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let around = |script: &str| {
            let mut shell = self.shell(folder.path(), script, line);
            let status = shell.current_dir(folder.path()).status();
            assert!(status.expect("a shell").success(), "{script}");
        };
        let inside = folder.path().join("inside");
        around(cell.ground.prepare);
        let own = "for it in cache state; do [ ! -e inside/$it ] || mv inside/$it .; done";
        around(own);
        #[cfg(feature = "mount")]
        let shown = cell.ground.flaw.map(|flaw| {
            let below = folder.path().join("below");
            fs::rename(&inside, &below).expect("a folder");
            fs::create_dir(&inside).expect("a folder");
            super::flawed::mount(&below, &inside, flaw).expect("a mount")
        });
        around(cell.ground.spoil);
        let mut shell = self.shell(folder.path(), cell.line, line);
        let output = shell.current_dir(&inside).output().expect("a shell");
        around(cell.ground.mend);
        #[cfg(feature = "mount")]
        if let Some(shown) = shown {
            // The files there are checked in normal surroundings.
            around("umount -l inside; rmdir inside; mv below inside");
            shown.join().expect("it served to its end");
        }
        let mut names = names_in(&inside);
        if cell.keeps_names() {
            // Here nobody can remove a half-written file, which the next able command does, nor a packed source.
            let is_packed = |name: &str| line.contains("--rm") && name == "file.zst";
            names.retain(|name| !name.starts_with(".breakeven-") && !is_packed(name));
        }
        let printed = folder.path().join("printed");
        fs::write(&printed, &output.stdout).expect("room");
        let mut shell = self.shell(folder.path(), proof, line);
        shell.stdin(File::open(&printed).expect("a file"));
        let proof = shell.current_dir(&inside).output().expect("a shell").stdout;
        around("! mountpoint -q inside || umount -l inside");
        Outcome {
            output,
            proof,
            names,
        }
    }

    /// Runs a job in a cell, for its verdict.
    fn find(&self, cell: Cell<'_>, usual: &Usual) -> Outcome {
        let mut found = self.run(cell, (usual.line, usual.proof));
        // A server that was killed, or may not remove them, leaves its sockets; the next one takes over their names.
        let is_killed = !found.output.status.success() || cell.line.contains("SIG_BLOCK");
        if cell.keeps_names() || is_killed {
            let is_socket = |name: &str| matches!(name, "s" | "disk.control");
            found.names.retain(|name| !is_socket(name));
        }
        found
    }

    /// Runs a job twice in normal surroundings.
    fn observe(&self, job: (&'static str, &'static str)) -> Usual {
        let cell = Cell {
            ground: PLAIN,
            line: r#""$@""#,
            owes: All,
        };
        let [outcome, again] = [(); 2].map(|()| self.run(cell, job));
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
        // A folder that mkfs makes in a new file system.
        .filter(|name| name != "lost+found")
        .collect();
    names.sort();
    names
}

/// The output: a report without its figures and their units, since some are times, speeds and room.
fn printed(output: &Output) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(&output.stdout) else {
        return output.stdout.clone();
    };
    let mut text = text.to_string();
    for unit in ["KiB", "MiB", "GiB"] {
        text = text.replace(unit, "");
    }
    text.retain(|it| !"0123456789., ".contains(it));
    text.into_bytes()
}

/// The usual result of a job in normal surroundings, from two runs of it.
struct Usual {
    line: &'static str,
    proof: &'static str,
    outcome: Outcome,
    /// Whether both printed the same.
    prints_the_same: bool,
    proves_the_same: bool,
}

/// The code of a vault's command that did only a part of its work.
const PARTIAL: i32 = 3;

/// A shell's code for a command that SIGPIPE ended.
const READER_GONE: i32 = 141;

/// The code of a shell that may not fork.
const FORK_REFUSED: i32 = 254;

/// Returns the fault in an outcome, if there is one; otherwise whether the job continued.
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
    let prints = !usual.outcome.output.stdout.is_empty();
    // If nobody reads the data any more, the job ends in silence.
    if owes == Work && prints && code == Some(READER_GONE) && text.is_empty() && has_names {
        return Ok(false);
    }
    if usual.line.starts_with(SCRIPT) && code == Some(FORK_REFUSED) {
        return Ok(false);
    }
    if text.contains("panicked") || !matches!(code, Some(0..=3)) {
        return Err(format!("it ended with {code:?}"));
    }
    // If the source cannot be removed, its result is whole all the same.
    let keeps_both = usual.line == "pack -q --rm file" && {
        let made = found.names.iter().filter(|name| *name != "file");
        made.eq(&usual.outcome.names)
    };
    // A part of a tree; the missing files are named.
    if code == Some(PARTIAL) && usual.line.starts_with("vault") && owes != All {
        return match text.is_empty() && owes != AllOrCode {
            true => Err("it did a part and said nothing".into()),
            // All of the bytes; the parts that the file system refused beside them are named.
            false => Ok(usual.proves_the_same && is_made),
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
        _ => match found.names == before || has_names || keeps_both {
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

/// Returns whether a stock program for the same task continues where a job does not, with a correct result.
fn peer_goes_on(stage: &Stage, usual: &Usual, cell: Cell<'_>) -> Option<&'static str> {
    let peers = PEERS.iter().filter(|(job, _)| *job == usual.line);
    let goes_on = |line: &str| {
        let found = stage.run(cell, (line, usual.proof));
        let is_right = !usual.proves_the_same || found.proof == usual.outcome.proof;
        found.output.status.success() && (is_right || !line.contains("zstd"))
    };
    peers.map(|(_, line)| *line).find(|line| goes_on(line))
}

/// Tries every job in every cell. `BREAKEVEN_MATRIX=TEXT` tries only those with this text in their name, as a failure
/// prints it.
pub(super) fn try_all(stage: &Stage, jobs: &[(&'static str, &'static str)], cells: &[Cell<'_>]) {
    let usual: Vec<Usual> = jobs.iter().map(|&job| stage.observe(job)).collect();
    let mut before = stage.place.names();
    before.retain(|name| !OWN_FOLDERS.contains(&&**name));
    let next = AtomicUsize::new(0);
    let chosen = std::env::var("BREAKEVEN_MATRIX").unwrap_or_default();
    let work = || {
        let mut tally = Tally::default();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(cell) = cells.get(at / jobs.len()) else {
                return tally;
            };
            let usual = &usual[at % jobs.len()];
            let name = cell.name(usual.line);
            if !name.contains(&chosen) {
                continue;
            }
            let found = stage.find(*cell, usual);
            match judge(cell.owes, usual, &before, &found) {
                Ok(true) => tally.went_on += 1,
                Ok(false) => tally.refuse(stage, usual, *cell),
                Err(why) => tally.wrong(name, &format!("{why}: {}", said(&found.output))),
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let tally = std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let tallies = running.into_iter().map(|it| it.join().expect("a worker"));
        tallies.fold(Tally::default(), Tally::add)
    });
    println!(
        "{} jobs in {} surroundings: {tally}",
        jobs.len(),
        cells.len()
    );
    assert!(tally.wrong.is_empty(), "{:#?}", tally.wrong);
    let (went_on, tried) = (tally.went_on, tally.tried());
    assert!(
        !chosen.is_empty() || went_on * 2 > tried,
        "only {went_on} of {tried} went on"
    );
}

/// The totals of cells.
#[derive(Default)]
struct Tally {
    went_on: usize,
    refused: usize,
    /// By the reason: cells where a peer continues.
    excused: BTreeMap<&'static str, usize>,
    wrong: BTreeMap<String, String>,
}

impl Tally {
    /// Counts a refused job, for which a peer is tried.
    fn refuse(&mut self, stage: &Stage, usual: &Usual, cell: Cell<'_>) {
        let asked = is_full().then(|| peer_goes_on(stage, usual, cell));
        let peer = asked.flatten();
        let name = cell.name(usual.line);
        match (peer, excused(&name)) {
            (None, _) => self.refused += 1,
            (Some(_), Some(why)) => *self.excused.entry(why).or_default() += 1,
            (Some(peer), None) => self.wrong(name, &format!("{peer} goes on")),
        }
    }

    fn wrong(&mut self, name: String, why: &str) {
        println!("wrong: {name}: {why}");
        self.wrong.insert(name, why.to_string());
    }

    fn tried(&self) -> usize {
        let excused: usize = self.excused.values().sum();
        self.went_on + self.refused + excused + self.wrong.len()
    }

    fn add(mut self, other: Tally) -> Tally {
        self.went_on += other.went_on;
        self.refused += other.refused;
        for (why, count) in other.excused {
            *self.excused.entry(why).or_default() += count;
        }
        self.wrong.extend(other.wrong);
        self
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tried, wrong) = (self.tried(), self.wrong.len());
        let Tally {
            went_on, refused, ..
        } = self;
        write!(
            f,
            "{tried} cells, {went_on} went on, {refused} refused, {wrong} wrong"
        )?;
        for (why, count) in &self.excused {
            write!(f, "; {count} refused where a peer goes on, since {why}")?;
        }
        Ok(())
    }
}

/// Surroundings as cells: those of every run, or all.
pub(super) fn cells<'a>(of: &'a [Surrounding], ground: Ground) -> Vec<Cell<'a>> {
    let is_there = |it: &&Surrounding| {
        (meddle().is_some() || !it.0.contains("$MEDDLE"))
            && (!it.0.contains("$LIMIT") || may_limit())
    };
    let tried = of.iter().filter(|it| it.2 || is_full()).filter(is_there);
    let cells = tried.map(|Surrounding(line, owes, _)| Cell {
        ground,
        line,
        owes: *owes,
    });
    cells.collect()
}

#[test]
fn every_command_is_right_in_every_surrounding() {
    let (stage, jobs) = Stage::new();
    try_all(&stage, &jobs, &cells(&SURROUNDINGS, PLAIN));
}

/// SQLite's message for a full disk.
const DISK_IS_FULL: &str = "database or disk is full";

#[test]
fn a_quota_is_a_full_disk() {
    if meddle().is_none() {
        return;
    }
    let (stage, jobs) = Stage::new();
    let refusing = |job: &(&'static str, &'static str), line| {
        let cell = Cell {
            ground: PLAIN,
            line,
            owes: AllOrSentence,
        };
        stage.run(cell, *job)
    };
    let mut refused = 0;
    // Some of them are enough to see that the two agree.
    let step = if is_full() { 1 } else { 5 };
    for job in jobs.iter().step_by(step) {
        let full = refusing(job, r#"$MEDDLE write=28 allocate=28 -- "$@""#);
        let quota = refusing(job, r#"$MEDDLE write=122 allocate=122 -- "$@""#);
        let told = said(&quota.output);
        assert_eq!(
            quota.output.status.code(),
            full.output.status.code(),
            "{}: {told}, {}",
            job.0,
            said(&full.output)
        );
        assert_eq!(quota.names, full.names, "{}: {told}", job.0);
        let is_told = |outcome: &Outcome| said(&outcome.output).contains(DISK_IS_FULL);
        assert_eq!(is_told(&quota), is_told(&full), "{}: {told}", job.0);
        refused += usize::from(!quota.output.status.success());
    }
    println!("{refused} jobs met a full disk and a quota");
    assert!(refused > 0);
}
