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
use crate::page::left_out;

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

/// Ends a server as its user would; one that inherited signals that are blocked, as memcached is.
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

/// Programs that do the same as a job: where they go on, so do we.
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

/// Where a peer goes on and we do not, and why.
const EXCUSED: [(&str, &str); 21] = [
    // Of 18 MB of program, where zstd has 1.
    ("ulimit -v 60000", ""),
    // A vault is a folder of many files, with a lock of its own.
    ("ulimit -n 5", ""),
    (ADD, "nr_inodes"),
    (ADD, "umask 777"),
    (ADD, "Some(Name)"),
    // Its records lie twice, apart from each other.
    (ADD, "+ 16))k"),
    // A file gets its name when it is whole, and here none can be given.
    ("pack -q", "Some(Name)"),
    ("pack -q", "chattr +a"),
    ("pack -q", "rename=5"),
    (ADD, "rename=5"),
    // A file that ends in a hole gets its length so.
    ("unpack -q", "truncate=28"),
    // They do not ask whether a medium has the bytes.
    ("", "Some(Sync)"),
    ("", "sync="),
    // They print nothing, and need no standard output.
    ("vault", ">&-"),
    ("vault", ">/dev/full"),
    ("vault", "os.dup2(os.open"),
    ("vault", "os.openpty"),
    // An archive is one file; a vault has locks, which it takes and removes.
    ("vault", "ulimit -n 8"),
    (ADD, "open="),
    (ADD, "unlink=1"),
    // The paths of a snapshot are absolute.
    (ADD, "around/$long"),
];

fn is_excused(name: &str) -> bool {
    let holds = |(one, other): &(&str, &str)| name.contains(one) && name.contains(other);
    EXCUSED.iter().any(holds)
}

/// The extension, which is built beside the program.
fn extension() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_breakeven")).with_file_name("deps/libbreakeven_sqlite.so")
}

const ADD: &str = "vault -r store -p password add tree";
const RESTORE: &str = "vault -r store -p password restore 1 -t back";
const VERIFY: &str = "vault -r store -p password verify";

/// What a job owes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Owes {
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
pub(super) struct Surrounding(pub(super) &'static str, pub(super) Owes, pub(super) bool);

use Owes::{All, AllOrCode, AllOrSentence, Work};

const SURROUNDINGS: [Surrounding; 74] = [
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
    Surrounding(r#"ulimit -s 256; "$@""#, All, true),
    Surrounding(r#"nice -n 19 ionice -c 3 "$@""#, All, false),
    Surrounding(r#"ulimit -l 0 -i 0 -q 0 -c 0; "$@""#, All, false),
    Surrounding(r#"(exec -a "" "$@")"#, All, false),
    Surrounding(r#"TZ=/none LC_ALL=xx_XX.KOI8-R "$@""#, All, false),
    // Streams that are of another kind.
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
    // A terminal that has hung up.
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
    Surrounding(r#"$MEDDLE chmod=1 -- "$@""#, AllOrSentence, false),
    Surrounding(r#"$MEDDLE chown=1 -- "$@""#, AllOrSentence, false),
    Surrounding(r#"$MEDDLE times=1 -- "$@""#, AllOrSentence, false),
    Surrounding(r#"$MEDDLE sync=22 -- "$@""#, AllOrSentence, false),
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

/// Where a job's files lie: lines for the shell, run in the folder around `inside`.
#[derive(Clone, Copy)]
pub(super) struct Ground {
    /// Makes `inside`, of the files that are in `$PLACE`.
    pub(super) prepare: &'static str,
    /// What is done to it before the job begins, and undone after it has ended.
    pub(super) spoil: &'static str,
    pub(super) mend: &'static str,
    /// What the file system refuses that shows it.
    pub(super) refused: Option<Refused>,
}

/// What a server behind a mount may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Close,
    Sync,
    Mode,
    Owner,
    Times,
    Name,
}

#[cfg(feature = "mount")]
impl Refused {
    /// Returns what it says: a quota at the end, a broken medium, no permission, across devices.
    pub(super) fn error(self) -> rustix::io::Errno {
        use rustix::io::Errno;
        match self {
            Refused::Close => Errno::DQUOT,
            Refused::Sync => Errno::IO,
            Refused::Mode | Refused::Owner | Refused::Times => Errno::PERM,
            Refused::Name => Errno::XDEV,
        }
    }
}

/// A folder like any other.
pub(super) const PLAIN: Ground = Ground {
    prepare: r#"mkdir inside; cp -a "$PLACE/." inside"#,
    spoil: "",
    mend: "",
    refused: None,
};

/// A job that is tried, and where.
#[derive(Clone, Copy)]
pub(super) struct Cell<'a> {
    ground: Ground,
    line: &'a str,
    owes: Owes,
}

impl Cell<'_> {
    /// Whether no name goes away here.
    fn keeps_names(&self) -> bool {
        self.line.contains("unlink=") || self.ground.spoil.contains("chattr +a")
    }
}

/// What a job came to: its code, what it printed, what the second line says, and the names that there are.
struct Outcome {
    output: Output,
    proof: Vec<u8>,
    names: Vec<String>,
}

/// Folders of the program's own, which are kept beside what a job works on.
const OWN_FOLDERS: [&str; 2] = ["cache", "state"];

/// Where jobs run: each in a copy of one folder.
pub(super) struct Stage {
    pub(super) place: Place,
    clocks: PathBuf,
    _built: TempDir,
}

impl Stage {
    /// Makes a stage with something of each kind; returns it with the jobs for which it has all.
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
                // What other programs need to do the same.
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
        let shown = cell.ground.refused.map(|refused| {
            let below = folder.path().join("below");
            fs::rename(&inside, &below).expect("a folder");
            fs::create_dir(&inside).expect("a folder");
            super::refusing::mount(&below, &inside, refused).expect("a mount")
        });
        around(cell.ground.spoil);
        let mut shell = self.shell(folder.path(), cell.line, line);
        let output = shell.current_dir(&inside).output().expect("a shell");
        around(cell.ground.mend);
        #[cfg(feature = "mount")]
        if let Some(shown) = shown {
            // What is there is looked at where nothing is refused.
            around("umount -l inside; rmdir inside; mv below inside");
            shown.join().expect("it served to its end");
        }
        let mut names = names_in(&inside);
        if cell.keeps_names() {
            // Nobody can remove what is half written here, which the next command that may does, nor a source that was packed.
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

    /// Runs a job twice where nothing is odd.
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
        // What mkfs makes in a file system of its own.
        .filter(|name| name != "lost+found")
        .collect();
    names.sort();
    names
}

/// What was printed: a report without its figures and their units, since some are of times, speeds and room.
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

/// What a shell tells of a command that SIGPIPE ended.
const READER_GONE: i32 = 141;

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
    let prints = !usual.outcome.output.stdout.is_empty();
    // Data that nobody reads any more ends a job in silence.
    if owes == Work && prints && code == Some(READER_GONE) && text.is_empty() && has_names {
        return Ok(false);
    }
    if text.contains("panicked") || !matches!(code, Some(0..=3)) {
        return Err(format!("it ended with {code:?}"));
    }
    // Where the source cannot be removed, what was made of it is whole all the same.
    let keeps_both = usual.line == "pack -q --rm file" && {
        let made = found.names.iter().filter(|name| *name != "file");
        made.eq(&usual.outcome.names)
    };
    // Some of a tree, and what is missing is named.
    if code == Some(PARTIAL) && usual.line.starts_with("vault") && owes != All {
        return match text.is_empty() && owes != AllOrCode {
            true => Err("it did a part and said nothing".into()),
            // All of the bytes, and what the file system refused beside them is named.
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

/// Whether a stock program that does the same goes on where a job does not: what it makes is right as well.
fn peer_goes_on(stage: &Stage, usual: &Usual, cell: Cell<'_>) -> Option<&'static str> {
    let peers = PEERS.iter().filter(|(job, _)| *job == usual.line);
    let goes_on = |line: &str| {
        let found = stage.run(cell, (line, usual.proof));
        let is_right = !usual.proves_the_same || found.proof == usual.outcome.proof;
        found.output.status.success() && (is_right || !line.contains("zstd"))
    };
    peers.map(|(_, line)| *line).find(|line| goes_on(line))
}

/// Tries every job in every cell. `BREAKEVEN_MATRIX=TEXT` tries only those that have this in their name, as a failure tells it.
pub(super) fn try_all(stage: &Stage, jobs: &[(&'static str, &'static str)], cells: &[Cell<'_>]) {
    let usual: Vec<Usual> = jobs.iter().map(|&job| stage.observe(job)).collect();
    let mut before = stage.place.names();
    before.retain(|name| !OWN_FOLDERS.contains(&&**name));
    let [next, tried, went_on] = [0; 3].map(AtomicUsize::new);
    let chosen = std::env::var("BREAKEVEN_MATRIX").unwrap_or_default();
    let work = || {
        let mut wrong = BTreeMap::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(cell) = cells.get(at / jobs.len()) else {
                return wrong;
            };
            let usual = &usual[at % jobs.len()];
            let name = format!(
                "{} in {} {} {} {:?}",
                usual.line, cell.line, cell.ground.prepare, cell.ground.spoil, cell.ground.refused
            );
            if !name.contains(&chosen) {
                continue;
            }
            tried.fetch_add(1, Ordering::Relaxed);
            let mut found = stage.run(*cell, (usual.line, usual.proof));
            // A server that was killed, or may not remove them, leaves its sockets; the next one takes their names.
            let is_killed = !found.output.status.success() || cell.line.contains("SIG_BLOCK");
            if cell.keeps_names() || is_killed {
                found
                    .names
                    .retain(|name| !matches!(&**name, "s" | "disk.control"));
            }
            let judged = match judge(cell.owes, usual, &before, &found) {
                Ok(false) if is_full() && !is_excused(&name) => {
                    match peer_goes_on(stage, usual, *cell) {
                        Some(peer) => Err(format!("{peer} goes on")),
                        None => Ok(false),
                    }
                }
                judged => judged,
            };
            match judged {
                Ok(goes_on) => drop(went_on.fetch_add(usize::from(goes_on), Ordering::Relaxed)),
                Err(why) => drop(wrong.insert(name, format!("{why}: {}", said(&found.output)))),
            }
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let wrong: BTreeMap<String, String> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let running = running.into_iter();
        running
            .flat_map(|it| it.join().expect("a worker"))
            .collect()
    });
    let (tried, went_on) = (tried.into_inner(), went_on.into_inner());
    println!(
        "{} jobs in {} surroundings: {tried} cells, {went_on} went on, {} wrong",
        jobs.len(),
        cells.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        !chosen.is_empty() || went_on * 2 > tried,
        "only {went_on} of {tried} went on"
    );
}

/// Surroundings as cells: those of every run, or all.
pub(super) fn cells<'a>(of: &'a [Surrounding], ground: Ground) -> Vec<Cell<'a>> {
    let is_there = |it: &&Surrounding| meddle().is_some() || !it.0.contains("$MEDDLE");
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
