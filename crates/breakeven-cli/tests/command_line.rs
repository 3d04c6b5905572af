//! The binary as a user sees it: its output, its refusals, and the files it leaves.

mod bench;
mod btrfs;
mod compare;
mod db;
mod disk;
mod pack;
mod page;
mod replay;
mod serve;
mod surroundings;
#[cfg(feature = "vault")]
mod vault;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use breakeven::advise::report::Report;
use breakeven::advise::verdict::WORTH_WHILE;
use breakeven::codec::{Compressor, Method};
use breakeven::units::Estimate;
use tempfile::TempDir;

/// Seconds after which a command counts as hanging: a deadline, not a measurement.
const DEADLINE_SECONDS: &str = "120";

/// The binary under a deadline, with a cache folder of its own and no terminal.
fn breakeven(cache: &TempDir) -> Command {
    let mut command = Command::new("timeout");
    command.args([
        "--signal=KILL",
        DEADLINE_SECONDS,
        env!("CARGO_BIN_EXE_breakeven"),
    ]);
    command
        .env("BREAKEVEN_CACHE", cache.path())
        .stdin(Stdio::null());
    command
}

/// Runs the binary to its end.
fn run(cache: &TempDir, arguments: &[&dyn AsRef<OsStr>]) -> Output {
    let mut command = breakeven(cache);
    for argument in arguments {
        command.arg(argument);
    }
    command.output().expect("the binary starts")
}

/// Data small enough for a complete measurement.
fn data() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("noise"), noise(300_000)).expect("a file");
    let mut log = Vec::new();
    for line in 0..20_000 {
        log.extend_from_slice(format!("{line} the quick brown fox, {}\n", line % 97).as_bytes());
    }
    fs::write(folder.path().join("log.txt"), &log).expect("a file");
    folder
}

/// Bytes without structure, always the same.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// The options that make a run quick: a named medium instead of a probe, cheap methods.
const QUICK: [&str; 3] = ["--methods=lz4:1,zstd:1,zstd:9", "--time=20", "--seed=7"];

fn advise(cache: &TempDir, path: &Path, more: &[&str]) -> Output {
    let mut arguments: Vec<&dyn AsRef<OsStr>> = vec![&"advise", &path];
    if !more.iter().any(|option| option.starts_with("--medium")) {
        arguments.push(&"--medium=hdd");
    }
    arguments.extend(QUICK.iter().map(|option| option as &dyn AsRef<OsStr>));
    arguments.extend(more.iter().map(|option| option as &dyn AsRef<OsStr>));
    run(cache, &arguments)
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

#[test]
fn advice_says_first_what_to_do() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    let output = advise(&cache, data.path(), &["--all"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let first = text.lines().next().expect("a first line");
    assert!(
        first.starts_with("Compress with ") && first.contains(" +- "),
        "{first}"
    );
    assert!(first.contains("Store raw: "), "the noise is named: {first}");
    assert!(
        text.contains("file   time ") && text.contains("cache  money"),
        "{text}"
    );
}

#[test]
fn advice_is_one_screen_unless_all_is_asked_for() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    // Names may be anything: this one would turn a terminal red.
    let path = data.path().join("\u{1b}[31mred");
    fs::create_dir(&path).expect("a folder");
    fs::rename(data.path().join("log.txt"), path.join("log.txt")).expect("a file moves");
    for more in [&[][..], &["--prefer=time"], &["--prefer=space"]] {
        let output = advise(&cache, &path, more);
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(text.lines().count() <= 40, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        for row in [
            "\nfiles ",
            "\ndatabase pages ",
            "\nlink 1gbe ",
            "\nbuffer cache ",
        ] {
            assert_eq!(text.matches(row).count(), 1, "one row a place: {text}");
        }
        assert!(!text.contains('\u{1b}'), "control codes: {text:?}");
    }
    let all = stdout(&advise(&cache, &path, &["--all"]));
    assert!(all.lines().count() > 40, "{all}");
    let missing = path.join("missing");
    let output = run(&cache, &[&"advise", &missing]);
    check_refused(&output, 1, &["missing"]);
    assert!(!output.stderr.contains(&0x1b), "{}", stderr(&output));
}

#[test]
fn a_sqlite_database_is_looked_at_in_its_own_pages() {
    let (cache, folder) = (tempfile::tempdir(), tempfile::tempdir());
    let (cache, folder) = (cache.expect("a folder"), folder.expect("a folder"));
    let path = folder.path().join("app.db");
    let mut bytes = b"SQLite format 3\0\x20\x00".to_vec();
    bytes.resize(1 << 20, b'x');
    fs::write(&path, &bytes).expect("a file");
    let page_bytes = |more: &[&str]| {
        let output = advise(&cache, &path, &[&["--json"], more].concat());
        let report: Report = serde_json::from_slice(&output.stdout).expect("JSON");
        (report.terms.page_bytes, report.notes)
    };
    let (bytes, notes) = page_bytes(&[]);
    assert_eq!(bytes, 8192);
    assert!(
        notes[0].contains("app.db is a SQLite database"),
        "{notes:?}"
    );
    assert_eq!(page_bytes(&["--page-size=128KiB"]).0, 128 << 10);
}

#[test]
fn a_stream_of_fio_does_not_stand_for_random_reads() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    let path = cache.path().join("fio.json");
    let job = |rw: &str| {
        format!(
            r#"{{"fio version": "fio-3.33", "jobs": [{{"jobname": "one",
            "job options": {{"rw": "{rw}", "bs": "8k", "direct": "1"}},
            "read": {{"io_bytes": 819200, "total_ios": 100, "iops": 1000.0, "runtime": 100}},
            "write": {{"io_bytes": 0, "total_ios": 0, "iops": 0.0, "runtime": 0}}}}]}}"#
        )
    };
    let option = format!("--fio={}", path.display());
    for (rw, code) in [("read", 1), ("randread", 0)] {
        fs::write(&path, job(rw)).expect("a file");
        let arguments: [&dyn AsRef<OsStr>; 4] =
            [&"advise", &data.path(), &option, &"--methods=lz4:1"];
        let output = run(&cache, &arguments);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{rw}: {}",
            stderr(&output)
        );
        let refused = stderr(&output).contains("no job measured random reads");
        assert_eq!(refused, code == 1, "{}", stderr(&output));
    }
}

#[test]
fn nothing_to_print_to_is_known_before_the_work() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    let output = Command::new("sh")
        .args(["-c", "exec \"$0\" advise --time=100 \"$1\" >&-"])
        .arg(env!("CARGO_BIN_EXE_breakeven"))
        .arg(data.path())
        .env("BREAKEVEN_CACHE", cache.path())
        .output()
        .expect("a shell");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let text = stderr(&output);
    assert!(
        !text.contains("scratch file"),
        "nothing was measured: {text}"
    );
    assert_eq!(fs::read_dir(cache.path()).expect("a folder").count(), 0);
}

#[test]
fn json_has_the_documented_form() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    let output = advise(&cache, data.path(), &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["schema"], "breakeven.advise/1");
    for field in ["bytes", "block_bytes", "seed", "bound"] {
        assert!(value["sample"][field].is_number(), "{field}");
    }
    assert_eq!(value["sample"]["ended"], "complete");
    let report: Report = serde_json::from_value(value).expect("the library reads its own form");
    for class in &report.classes {
        for method in &class.methods {
            assert!(
                method.ratio.low <= method.ratio.mean && method.ratio.mean <= method.ratio.high
            );
            assert!(method.compress_mb_s > 0.0 && method.decompress_mb_s > 0.0);
        }
    }
    for verdict in &report.verdicts {
        let Estimate { low, high, .. } = verdict.cost_ratio;
        let says_the_band = match verdict.answer.as_str() {
            "pays" => high < WORTH_WHILE,
            "never" => low >= WORTH_WHILE,
            "pays_above" | "pays_below" => (low < WORTH_WHILE) == (high < WORTH_WHILE),
            "undecided" => low < WORTH_WHILE && high >= WORTH_WHILE,
            _ => false,
        };
        assert!(says_the_band, "{verdict:?}");
    }
    for place in ["file", "link", "cache", "pages"] {
        assert!(
            report.verdicts.iter().any(|verdict| verdict.place == place),
            "{place}"
        );
    }
}

#[test]
fn settings_are_suggested_that_the_tool_takes() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    let output = advise(&cache, data.path(), &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Report = serde_json::from_slice(&output.stdout).expect("JSON");
    for tool in ["zstd", "btrfs", "ZFS", "RocksDB", "PostgreSQL"] {
        assert!(
            report.suggestions.iter().any(|of| of.tool == tool),
            "{tool}"
        );
    }
    let zstd = &report.suggestions[0];
    assert_eq!(
        (zstd.tool.as_str(), zstd.answer.as_str()),
        ("zstd", "compress")
    );
    assert!(zstd.settings[0].contains(" FILE"), "{zstd:?}");
    assert!(
        stdout(&advise(&cache, data.path(), &[])).contains(" zstd -"),
        "the text has it as well"
    );
    if !Command::new("zstd")
        .arg("--version")
        .output()
        .is_ok_and(|of| of.status.success())
    {
        page::left_out("there is no zstd here to take its setting");
        return;
    }
    // As a user would type it, on the data that the setting is for.
    let line = zstd.settings[0].replace("FILE", "log.txt");
    let run = |line: &str| {
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", line]).current_dir(data.path()).output();
        let output = output.expect("a shell");
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        output.stdout
    };
    run(&format!("{line} -q"));
    let stored = fs::metadata(data.path().join("log.txt.zst")).expect("a file");
    let raw = fs::read(data.path().join("log.txt")).expect("a file");
    assert!(
        stored.len() < raw.len() as u64 / 2,
        "{} bytes",
        stored.len()
    );
    assert_eq!(run("zstd -dcq log.txt.zst"), raw);
}

/// The settings for each tool are for the blocks that it compresses alone, and for the space that they take there.
#[test]
fn tools_are_judged_in_their_own_units() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    let output = advise(&cache, data.path(), &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Report = serde_json::from_slice(&output.stdout).expect("JSON");
    let find = |tool: &str, subject: &str| {
        let mut all = report.suggestions.iter();
        all.find(|of| of.tool == tool && of.subject == subject)
            .expect("a suggestion")
    };
    // btrfs: extents of 128 KiB, each in whole sectors of 4 KiB, raw as well.
    let btrfs = find("btrfs", "files");
    let method: Method = btrfs.method.parse().expect("a method");
    let mut compressor = Compressor::new();
    let (mut raw, mut stored) = (0, 0);
    for entry in fs::read_dir(data.path()).expect("a folder") {
        let bytes = fs::read(entry.expect("an entry").path()).expect("a file");
        for extent in bytes.chunks(128 << 10) {
            let mut target = vec![0; extent.len() - 1];
            let size = compressor.compress(method, extent, &mut target);
            let size = size.expect("compressing").unwrap_or(extent.len());
            raw += extent.len().next_multiple_of(4096);
            stored += size.next_multiple_of(4096);
        }
    }
    let (told, truth) = (btrfs.ratio, raw as f64 / stored as f64);
    assert!((told.mean / truth - 1.0).abs() < 1e-9, "{told:?}, {truth}");
    assert_eq!(told.low, told.high, "every byte was read");
    // PostgreSQL's log: 8 KiB that a client waits for. On this disk the wait is for the operation and not for the
    // bytes.
    let log = find("PostgreSQL", "WAL").cost_ratio;
    assert!(0.95 <= log.low && log.high <= 1.05, "{log:?}");
}

#[test]
fn the_same_seed_gives_the_same_ratios() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    let ratios = || {
        let output = advise(&cache, data.path(), &["--json"]);
        let report: Report = serde_json::from_slice(&output.stdout).expect("JSON");
        let all = report.classes.last().expect("all").clone();
        all.methods
            .iter()
            .map(|method| method.ratio.mean)
            .collect::<Vec<f64>>()
    };
    assert_eq!(ratios(), ratios());
}

#[track_caller]
fn check_refused(output: &Output, code: i32, words: &[&str]) {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    for word in words {
        assert!(message.contains(word), "'{word}' is missing in: {message}");
    }
    assert!(!message.contains("panicked"), "{message}");
}

#[test]
fn bad_paths_are_named() {
    let cache = tempfile::tempdir().expect("a folder");
    check_refused(
        &advise(&cache, Path::new("/no/such/thing"), &[]),
        1,
        &["/no/such/thing"],
    );
    let folder = tempfile::tempdir().expect("a folder");
    check_refused(&advise(&cache, folder.path(), &[]), 1, &["no bytes"]);
    fs::write(folder.path().join("empty"), b"").expect("a file");
    check_refused(
        &advise(&cache, &folder.path().join("empty"), &[]),
        1,
        &["no bytes"],
    );
    let knot = folder.path().join("knot");
    symlink(&knot, &knot).expect("a link to itself");
    check_refused(&advise(&cache, &knot, &[]), 1, &["knot", "symbolic links"]);
    check_refused(
        &advise(&cache, Path::new("/dev/null"), &[]),
        1,
        &["/dev/null", "device"],
    );
    let odd = folder.path().join(OsStr::from_bytes(b"not \xff utf-8"));
    fs::write(&odd, vec![b'x'; 100_000]).expect("a file");
    assert!(
        advise(&cache, &odd, &[]).status.success(),
        "any name will do"
    );
    assert!(
        advise(&cache, folder.path(), &[]).status.success(),
        "and a folder with one in it"
    );
}

#[test]
fn bad_options_are_usage_errors() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    for (option, word) in [
        ("--reads=4..2", "backwards"),
        ("--methods=zstd:99", "zstd"),
        ("--block-size=banana", "banana"),
        ("--watts=1", "two numbers"),
        ("--no-such-option", "no-such-option"),
        ("--medium=floppy", "nvme"),
        ("--link=fast", "117MB/s"),
        ("--skew=zipf:x", "zipf:S"),
        ("--offload=abacus", "fpga-lz4"),
        ("--block-size=2MiB", "4KiB to 1MiB"),
        ("--page-size=6KiB", "128KiB"),
    ] {
        let path = data.path();
        let output = run(&cache, &[&"advise", &path, &option]);
        check_refused(&output, 2, &[word]);
    }
    let (log, noise) = (data.path().join("log.txt"), data.path().join("noise"));
    let output = run(&cache, &[&"replay", &log, &"--skew=zipf:x"]);
    check_refused(&output, 2, &["zipf:S"]);
    // Options that are wrong only together, or in their surroundings.
    let output = run(
        &cache,
        &[
            &"calibrate",
            &"--meter=true",
            &"--phase=1",
            &"--interval=0.9",
        ],
    );
    check_refused(&output, 2, &["two samples"]);
    let output = run(&cache, &[&"pack", &"--rm", &"-c", &log, &noise]);
    check_refused(&output, 2, &["--rm"]);
}

#[test]
fn bad_price_files_are_named() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    let prices = data.path().join("prices.toml");
    for text in ["", "date = 1", "[[[", "\u{0}\u{1}", "machine_threads = -1"] {
        fs::write(&prices, text).expect("a file");
        let option = format!("--prices={}", prices.display());
        check_refused(
            &advise(&cache, data.path(), &[&option]),
            1,
            &["prices.toml"],
        );
    }
}

/// Each file in whole blocks of 4 KiB, as `du` counts it. 5,000 bytes of text take two, and one once they are
/// compressed.
#[test]
fn space_is_counted_in_whole_blocks_of_the_file_system() {
    let (cache, folder) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir());
    let folder = folder.expect("a folder");
    let check = |bytes: usize, expected: f64, sentences: &[&str]| {
        let below = folder.path().join(bytes.to_string());
        fs::create_dir(&below).expect("a folder");
        for number in 0..400 {
            let line = format!("{number} the quick brown fox, {}\n", number % 97);
            let text: Vec<u8> = line.bytes().cycle().take(bytes).collect();
            fs::write(below.join(number.to_string()), text).expect("a file");
        }
        let output = advise(&cache, &below, &["--json"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let report: Report = serde_json::from_slice(&output.stdout).expect("JSON");
        let all = report.classes.last().expect("all data");
        let methods = all.methods.iter().filter(|of| of.block_bytes == 1 << 20);
        for method in methods {
            let ratio = method.allocated_ratio.expect("it was measured").mean;
            assert!(
                (ratio - expected).abs() < 1e-9,
                "{}: {ratio}",
                method.method
            );
            assert!(method.ratio.mean > 1.2 * expected, "{}", method.ratio.mean);
        }
        for sentence in sentences {
            assert!(report.headline.contains(sentence), "{}", report.headline);
        }
        report
    };
    let archive = "put the 400 small files into one archive";
    let whole =
        "Each file takes whole blocks of 4 KiB on its file system: of the bytes alone it saves 9";
    let report = check(5000, 2.0, &["saves 50.0 %", whole, archive]);
    let all = report.classes.last().expect("all data");
    assert_eq!(all.allocated_bytes, Some(400.0 * 8192.0));
    // No file takes less than a block.
    check(400, 1.0, &["Do nothing", archive]);
}

#[test]
fn nothing_is_written_where_there_is_nothing_to_advise_on() {
    let (cache, folder) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir());
    let folder = folder.expect("a folder");
    for number in 0..100 {
        fs::write(folder.path().join(number.to_string()), b"").expect("a file");
    }
    let output = run(&cache, &[&"advise", &folder.path(), &"--time=6"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("100 files, all empty"), "{text}");
    assert!(!text.contains("scratch file"), "{text}");
}

#[test]
fn nothing_is_left_behind_by_a_probe() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    let path = data.path();
    let output = run(
        &cache,
        &[
            &"advise",
            &path,
            &"--methods=lz4:1,zstd:1",
            &"--time=6",
            &"--json",
        ],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("scratch file"),
        "it is announced: {}",
        stderr(&output)
    );
    let mut names: Vec<_> = fs::read_dir(path)
        .expect("a folder")
        .map(|entry| entry.expect("one").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["log.txt", "noise"]);
    let report: Report = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report.medium.source, "measured");
}

/// One of the processors that these tests may use.
fn allowed_processor() -> String {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let mut lines = status.lines();
    let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mut numbers = list.expect("a list").trim().split([',', '-']);
    numbers.next().expect("a number").into()
}

/// By a program of util-linux, which every Linux has.
#[test]
fn advice_is_for_the_processors_that_may_be_used() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    std::fs::write(&file, noise(100_000)).expect("a file");
    let output = Command::new("taskset")
        .args(["-c", &allowed_processor()])
        .args([env!("CARGO_BIN_EXE_breakeven"), "advise"])
        .args(["--time", "0.1", "--medium", "nvme"])
        .arg(&file)
        .env("BREAKEVEN_CACHE", folder.path().join("cache"))
        .output()
        .expect("taskset starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    for word in [", 1 cores", "compressed by 1 threads"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn an_unwritable_folder_is_advised_on_with_a_named_medium() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    let closed = fs::Permissions::from_mode(0o555);
    fs::set_permissions(data.path(), closed).expect("read only");
    assert!(advise(&cache, data.path(), &[]).status.success());
    fs::set_permissions(data.path(), fs::Permissions::from_mode(0o755)).expect("writable again");
}

#[test]
fn a_cache_is_simulated_on_a_recorded_trace() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace.txt");
    // A loop over 1,000 buffers; 250 of them fit raw. A cache that compresses nothing misses nearly always.
    let keys = (0..20_000u32).map(|at| (at % 1000).to_string() + "\n");
    fs::write(&trace, keys.collect::<String>()).expect("a file");
    let option = format!("--trace={}", trace.display());
    let log = data.path().join("log.txt");
    let output = advise(&cache, &log, &[&option, "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Report = serde_json::from_slice(&output.stdout).expect("JSON");
    let found = report.cache.expect("the trace does not fit");
    assert_eq!(found.access, trace.display().to_string());
    assert_eq!(
        (found.data_bytes, found.memory_bytes),
        (1000 << 13, 250 << 13)
    );
    assert!(found.raw_hit_ratio < 0.05, "{}", found.raw_hit_ratio);
    let best = &found.best[0];
    assert!(
        best.metric == "time" && best.answer.starts_with("pays"),
        "{best:?}"
    );
    assert!(
        best.hit_ratio > 0.9 && best.cost_ratio.high < 0.5,
        "{best:?}"
    );
    let verdict = report
        .verdicts
        .iter()
        .find(|verdict| verdict.place == "cache" && verdict.metric == "time");
    assert_eq!(verdict.expect("a verdict").method, best.method);

    let text = stdout(&advise(&cache, &log, &[&option, "--all"]));
    assert!(
        text.contains("cache    1.95 MiB of memory before 7.81 MiB of data")
            && text.contains("% of it for "),
        "{text}"
    );
    // More memory leaves less to gain, and nothing where everything fits.
    let output = advise(&cache, &log, &[&option, "--memory=1GiB", "--json"]);
    let report: Report = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report.cache.is_none());

    fs::write(&trace, "# nothing\n").expect("a file");
    check_refused(
        &advise(&cache, &log, &[&option]),
        1,
        &["trace.txt", "no access"],
    );
    fs::write(&trace, "1\n2\nthree\n").expect("a file");
    check_refused(
        &advise(&cache, &log, &[&option]),
        1,
        &["trace.txt", "line 3"],
    );
    let output = run(&cache, &[&"advise", &log, &option, &"--skew=even"]);
    check_refused(&output, 2, &["--skew"]);
}

/// Returns whether a process has a handler for SIGINT, which is signal 2.
fn catches_interrupt(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.is_some_and(|caught| {
        let mask = u64::from_str_radix(caught.trim(), 16).expect("a mask in hexadecimal");
        mask & 0b10 != 0
    })
}

#[test]
fn ctrl_c_gives_what_is_known_so_far() {
    check_interrupted(&["--medium=hdd"]);
    // While the medium is measured, nothing is known of it yet.
    let report = check_interrupted(&[]);
    assert!(
        report.medium.name.ends_with(", assumed"),
        "{:?}",
        report.medium
    );
}

fn check_interrupted(more: &[&str]) -> Report {
    let cache = tempfile::tempdir().expect("a folder");
    let folder = tempfile::tempdir().expect("a folder");
    for index in 0..64 {
        let name = folder.path().join(format!("file{index}"));
        fs::write(name, noise(2 << 20)).expect("a file");
    }
    // Not under `timeout`, which would catch the signal itself; --time bounds it.
    let mut child = Command::new(env!("CARGO_BIN_EXE_breakeven"))
        .env("BREAKEVEN_CACHE", cache.path())
        .args(["advise", "--json", "--time=100"])
        .args(more)
        .arg(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // It catches the signal from its first step on, long before it can finish the data.
    while !catches_interrupt(child.id()) {
        assert_eq!(child.try_wait().expect("a state"), None, "ended before");
        std::thread::yield_now();
    }
    let identifier = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &identifier]).status();
    assert!(sent.expect("kill runs").success());
    let output = child.wait_with_output().expect("its end");
    let report: Report = serde_json::from_slice(&output.stdout).expect("JSON after Ctrl-C");
    assert_eq!(report.sample.ended, "interrupted");
    assert!(report.sample.bytes > 0);
    report
}

#[test]
fn a_closed_pipe_is_no_error() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    let mut child = breakeven(&cache)
        .args([
            "advise",
            "--medium=hdd",
            "--methods=lz4:1,zstd:1",
            "--time=10",
        ])
        .arg(data.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output).matches("Broken pipe").count(), 0);
}

#[test]
fn a_calibration_is_stored_and_used() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    // A meter that sees the load: the number of running tasks in /proc/loadavg's fourth field.
    let meter = "--meter=awk '{split($4, t, \"/\"); print 20 + 10 * t[1]}' /proc/loadavg";
    let times = ["--phase=0.2", "--interval=0.05", "--settle=0.05"];
    let output = run(
        &cache,
        &[&"calibrate", &meter, &times[0], &times[1], &times[2]],
    );
    // A busy machine may hide the load from such a meter, which is then refused with that reason.
    if !output.status.success() {
        check_refused(&output, 1, &["meter"]);
        return;
    }
    assert!(stdout(&output).contains("stored in"), "{}", stdout(&output));
    let output = advise(&cache, data.path(), &["--json"]);
    let report: Report = serde_json::from_slice(&output.stdout).expect("JSON");
    let source = &report.classes[0].methods[0].energy.source;
    assert!(source.starts_with("model-calibrated"), "{source}");
}

#[test]
fn a_bad_meter_is_named() {
    let cache = tempfile::tempdir().expect("a folder");
    for (meter, word) in [
        ("--meter=false", "false"),
        ("--meter=echo watts", "no number"),
    ] {
        let output = run(
            &cache,
            &[&"calibrate", &meter, &"--phase=0.2", &"--interval=0.05"],
        );
        check_refused(&output, 1, &[word]);
    }
    let output = run(&cache, &[&"calibrate", &"--meter="]);
    check_refused(&output, 2, &["no meter command"]);
    assert!(
        fs::read_dir(cache.path())
            .expect("a folder")
            .next()
            .is_none(),
        "nothing is stored"
    );
}

#[test]
fn a_device_changes_the_verdicts_and_is_named() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    let report = |more: &[&str]| -> Report {
        let output = advise(
            &cache,
            data.path(),
            &[&["--json", "--medium=nvme"], more].concat(),
        );
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let cost = |report: &Report| {
        let of_file = |verdict: &&breakeven::advise::report::VerdictReport| {
            verdict.place == "file" && verdict.metric == "time" && verdict.class == "all"
        };
        report
            .verdicts
            .iter()
            .find(of_file)
            .expect("a verdict")
            .cost_ratio
            .mean
    };
    let (plain, free) = (report(&[]), report(&["--offload=free"]));
    assert!(
        cost(&free) < cost(&plain),
        "{} {}",
        cost(&free),
        cost(&plain)
    );
    assert!(
        free.notes.iter().any(|note| note.contains("free")),
        "{:?}",
        free.notes
    );
}

#[test]
fn what_was_learned_is_kept_and_a_broken_file_is_ignored() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), data());
    assert!(advise(&cache, data.path(), &[]).status.success());
    let files: Vec<_> = fs::read_dir(cache.path())
        .expect("a folder")
        .map(|entry| entry.expect("one").path())
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    for bytes in [&b""[..], b"{", b"\xff\x00", b"{\"schema\": 99}"] {
        fs::write(&files[0], bytes).expect("a broken file");
        let output = advise(&cache, data.path(), &[]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stderr(&output).contains("ignored"), "{}", stderr(&output));
    }
    assert!(
        !stderr(&advise(&cache, data.path(), &[])).contains("ignored"),
        "it was replaced"
    );
}

#[test]
fn noise_is_left_alone_in_every_metric() {
    let (cache, folder) = (tempfile::tempdir(), tempfile::tempdir());
    let (cache, folder) = (cache.expect("a folder"), folder.expect("a folder"));
    fs::write(folder.path().join("noise"), noise(3 << 20)).expect("a file");
    for prefer in ["money", "time", "energy"] {
        let output = advise(&cache, folder.path(), &["--prefer", prefer]);
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(
            text.starts_with("Do nothing: compressing does not pay."),
            "{prefer}: {text}"
        );
    }
}

#[cfg(not(feature = "vault"))]
#[test]
fn a_build_without_the_vault_says_how_one_with_it_is_built() {
    let cache = tempfile::tempdir().expect("a folder");
    for arguments in [&["vault"][..], &["vault", "-r", "x", "add", "--help"]] {
        let arguments: Vec<&dyn AsRef<OsStr>> = arguments.iter().map(|it| it as _).collect();
        let output = run(&cache, &arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("--features vault"), "{message}");
    }
}
