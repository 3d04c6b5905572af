//! `breakeven replay`: its table, its JSON, and its refusals.

mod page;

use std::fs;

use super::*;

/// A folder with 256 compressible pages of 4 KiB, and a trace that loops over 200 of them.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut pages = Vec::new();
    for line in 0..40_000 {
        pages.extend(format!("page of lines, line {line}, {}\n", line * 7919 % 1009).bytes());
    }
    pages.truncate(256 * 4096);
    assert_eq!(pages.len(), 256 * 4096);
    fs::write(folder.path().join("pages"), pages).expect("a file");
    // A remark, so that the length is not a multiple of any record's.
    let remark = "# a loop\n".to_string();
    let keys = (0..8000u32).map(|at| (at % 200).to_string() + "\n");
    fs::write(
        folder.path().join("loop.txt"),
        remark + &keys.collect::<String>(),
    )
    .expect("a file");
    folder
}

#[test]
fn policies_stand_side_by_side() {
    let (cache, folder) = (tempfile::tempdir().expect("a folder"), folder());
    let (pages, trace) = (folder.path().join("pages"), folder.path().join("loop.txt"));
    let policies = "--policy=raw-only,split:80:zstd,adaptive,split:80:zstd:3";
    let common: [&dyn AsRef<OsStr>; 9] = [
        &"replay",
        &pages,
        &"--trace",
        &trace,
        &"--page=4KiB",
        &"--memory=512KiB",
        &"--miss=10ms",
        &policies,
        &"--json",
    ];
    let output = run(&cache, &common);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&report["accesses"], &report["keys"]),
        (&8000.into(), &200.into())
    );
    let rows = &report["policies"];
    let of = |row: usize, field: &str| rows[row][field].as_f64().expect(field);
    let tail = |row: usize, field: &str| rows[row]["tail_us"][field].as_f64().expect(field);
    let names = ["raw-only", "split:80:zstd", "adaptive", "split:80:zstd:3"];
    for (row, name) in names.iter().enumerate() {
        assert_eq!(rows[row]["policy"], *name);
        assert_eq!(of(row, "accesses"), 8000.0);
        let found = of(row, "raw_hits") + of(row, "packed_hits") + of(row, "misses");
        assert_eq!(found, 8000.0);
        assert!(of(row, "in_use_bytes") <= of(row, "budget_bytes"));
        assert!(tail(row, "p50") <= tail(row, "p99") && tail(row, "p99") <= tail(row, "p999"));
        let parts = rows[row]["parts"].as_array().expect("parts");
        let sum = |field: &str| -> f64 { parts.iter().filter_map(|it| it[field].as_f64()).sum() };
        assert_eq!(sum("accesses"), 8000.0);
        assert!((sum("us") / 8000.0 / of(row, "us_per_access") - 1.0).abs() < 1e-6);
    }
    // The dearest access is a miss, to within the width of a bucket.
    let dearest = tail(0, "p999");
    assert!((dearest / 10_000.0 - 1.0).abs() < 0.02, "{dearest}");
    // A loop over more pages than fit raw, and fewer than fit compressed. 128 raw pages take all the memory. A cache of
    // them hits at best 127 of the other 199 (Belady 1966); compressed, each is missed once.
    let misses_min = 8000.0 * 72.0 / 199.0;
    assert!(of(0, "misses") > misses_min, "{rows}");
    assert!(of(1, "misses") < 400.0, "{rows}");
    assert!(of(1, "us_per_access") < 0.5 * of(0, "us_per_access"));
    assert_eq!(
        (&rows[1]["method"], &rows[3]["method"]),
        (&"zstd:1".into(), &"zstd:3".into())
    );
    assert!(of(3, "packed_hits") > 1000.0);
    let saved = &rows[1]["saved_share"];
    assert!(saved["low"].as_f64().expect("low") > 0.5, "{saved}");
    assert!(
        rows[0]["saved_share"].is_null() && report["splits"].as_array().is_some_and(Vec::is_empty)
    );

    let output = run(&cache, &common[..8]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.contains("8000 accesses") && text.contains("80 % zstd:1"),
        "{text}"
    );
}

#[test]
fn accesses_are_made_up_without_a_trace() {
    let (cache, folder) = (tempfile::tempdir().expect("a folder"), folder());
    let pages = folder.path().join("pages");
    let output = run(
        &cache,
        &[
            &"replay",
            &pages,
            &"--skew=even",
            &"--accesses=2000",
            &"--policy=raw-only",
        ],
    );
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.contains("2000 accesses (made up, even, seed 1) to 128 keys over 128 pages of 8 KiB"),
        "{text}"
    );
    assert!(
        text.starts_with("Raw only: "),
        "the answer comes first: {text}"
    );
}

#[test]
fn accesses_are_those_of_a_seed_and_the_first_of_a_trace() {
    let (cache, folder) = (tempfile::tempdir().expect("a folder"), folder());
    let pages = folder.path().join("pages");
    let misses = |arguments: &[&str]| {
        let mut all: Vec<&dyn AsRef<OsStr>> = vec![&"replay", &pages, &"--json"];
        all.extend([
            &"--policy=raw-only" as &dyn AsRef<OsStr>,
            &"--memory=256KiB",
        ]);
        all.extend(arguments.iter().map(|it| it as &dyn AsRef<OsStr>));
        let output = run(&cache, &all);
        assert!(output.status.success(), "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let of = |name: &str| report["policies"][0][name].as_u64().expect("a count");
        (of("accesses"), of("misses"))
    };
    let made_up = |seed: &str| misses(&["--accesses=3000", seed]);
    assert_eq!(made_up("--seed=5"), made_up("--seed=5"));
    assert_ne!(made_up("--seed=5"), made_up("--seed=6"));
    let trace = folder.path().join("trace");
    let keys: String = (0..1000).map(|key| format!("{}\n", key % 100)).collect();
    fs::write(&trace, keys).expect("a trace");
    let option = format!("--trace={}", trace.display());
    assert_eq!(misses(&[&option]).0, 1000);
    assert_eq!(misses(&[&option, "--accesses=250"]).0, 250);
    assert_eq!(misses(&[&option, "--accesses=5000"]).0, 1000);
}

#[test]
fn misses_are_read_where_the_file_lies() {
    let (cache, folder) = (tempfile::tempdir().expect("a folder"), folder());
    let pages = folder.path().join("pages");
    let output = run(
        &cache,
        &[
            &"replay",
            &pages,
            &"--device",
            &"--accesses=2000",
            &"--memory=256KiB",
            &"--json",
        ],
    );
    if !output.status.success() {
        // A temporary folder may lie on a file system without direct I/O.
        let error = String::from_utf8(output.stderr).expect("text");
        assert!(error.contains("direct I/O"), "{error}");
        println!("not tried: {error}");
        return;
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["is_read"], true);
    let rows = &report["policies"];
    for row in 0..2 {
        let of = |field: &str| rows[row][field].as_f64().expect(field);
        assert!(of("misses") > 100.0 && of("miss_seconds") > 0.0, "{rows}");
    }
}

/// If waiting draws hardly any power and cores cost much, compressing pays in time and not in money.
#[test]
fn what_is_preferred_decides_and_is_told() {
    let (cache, folder) = (tempfile::tempdir().expect("a folder"), folder());
    let (pages, trace) = (folder.path().join("pages"), folder.path().join("keys"));
    // A loop over more than fits raw, and less than fits compressed.
    let keys = (0..40_000u32).flat_map(|at| (at % 1500).to_le_bytes());
    fs::write(&trace, keys.collect::<Vec<u8>>()).expect("a file");
    let prices = folder.path().join("prices.toml");
    let dear = include_str!("../../src/prices.toml")
        .replace("investment_eur = 7000", "investment_eur = 7000000");
    fs::write(&prices, dear).expect("a file");
    let common: [&dyn AsRef<OsStr>; 9] = [
        &"replay",
        &pages,
        &"--trace",
        &trace,
        &"--format=u32",
        &"--page=4KiB",
        &"--memory=4MiB",
        &"--miss=1ms",
        &"--watts=40,100",
    ];
    let priced: [&dyn AsRef<OsStr>; 3] = [&"--prefer=money", &"--prices", &prices];
    let found = |more: &[&dyn AsRef<OsStr>]| -> serde_json::Value {
        let output = run(&cache, &[&common[..], more, &[&"--json"]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let (time, energy, money) = (found(&[]), found(&[&"--prefer=energy"]), found(&priced));
    let headline = |of: &serde_json::Value| of["headline"].as_str().expect("text").to_string();
    assert!(headline(&time).starts_with("Compress: ") && headline(&time).contains(" us an access"));
    assert!(
        headline(&energy).starts_with("Compress: ") && headline(&energy).contains(" of the energy")
    );
    let told = headline(&money);
    assert!(
        told.starts_with("Compress nothing") && told.contains(" EUR for 10^9"),
        "{told}"
    );
    assert_eq!(money["policies"][1]["compressed"], 0);
    assert!(time["prices"].is_null());
    for (of, prefer) in [(&time, "time"), (&energy, "energy"), (&money, "money")] {
        assert_eq!(of["prefer"], prefer);
        let price = |field: &str| of["prices"][field].as_f64().unwrap_or(1.0);
        for row in of["policies"].as_array().expect("policies") {
            let number = |field: &str| row[field].as_f64().expect(field);
            let cores = ["encode_seconds", "decode_seconds", "overhead_seconds"].map(number);
            let cost = cores.iter().sum::<f64>() * price("per_core_second")
                + number("miss_seconds") * price("per_waiting_second");
            let cost = cost / number("accesses");
            assert!(
                (number("cost_per_access") / cost - 1.0).abs() < 1e-6,
                "{row}"
            );
            let misses = 1e-3 * number("misses");
            assert!(
                (number("miss_seconds") / misses - 1.0).abs() < 1e-6,
                "{row}"
            );
        }
    }
    let output = run(&cache, &[&common[..], &priced].concat());
    let text = stdout(&output);
    assert!(
        text.contains("EUR/10^9") && text.contains("a core at work costs"),
        "{text}"
    );
}

#[test]
fn a_trace_may_come_through_a_pipe() {
    let (cache, folder) = (tempfile::tempdir().expect("a folder"), folder());
    let pages = folder.path().join("pages");
    let lines = (0..600).map(|at| format!("{at},{},4096,read\n", at % 20));
    let trace = "time,key,size,op\n".to_string() + &lines.collect::<String>();
    let piped = folder.path().join("trace.csv");
    fs::write(&piped, trace).expect("a file");
    let output = breakeven(&cache)
        .arg("replay")
        .arg(&pages)
        .args(["--trace=-", "--format=csv", "--memory=512KiB"])
        .stdin(fs::File::open(&piped).expect("the trace"))
        .output()
        .expect("the program runs");
    let text = stdout(&output);
    assert!(
        text.contains("600 accesses (standard input) to 20 keys over 128 pages"),
        "{text}{}",
        stderr(&output)
    );
}

/// A trace may have more keys than there are pages in the files: each key is a page of its own with the content of one
/// of them.
#[test]
fn memory_is_for_a_quarter_of_what_is_asked_for() {
    let (cache, folder) = (tempfile::tempdir().expect("a folder"), folder());
    let (pages, trace) = (folder.path().join("pages"), folder.path().join("keys"));
    let keys = (0..2000u32).flat_map(|at| (at % 1000).to_le_bytes());
    fs::write(&trace, keys.collect::<Vec<u8>>()).expect("a file");
    let output = run(
        &cache,
        &[
            &"replay",
            &pages,
            &"--trace",
            &trace,
            &"--format=u32",
            &"--page=4096",
            &"--policy=raw-only",
            &"--json",
        ],
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let expected = [1000u64, 256, 1000 * 4096 / 4];
    let found = ["keys", "pages", "memory_bytes"].map(|field| report[field].as_u64());
    assert_eq!(found, expected.map(Some));
}

#[test]
fn a_memory_without_room_for_a_page_is_told() {
    let (cache, folder) = (tempfile::tempdir().expect("a folder"), folder());
    let pages = folder.path().join("pages");
    let common: [&dyn AsRef<OsStr>; 4] = [&"replay", &pages, &"--page=3000", &"--accesses=500"];
    let output = run(&cache, &[&common[..], &[&"--memory=8KiB"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        text.starts_with("Too little memory: 8.00 KiB hold no page of 3000 bytes"),
        "{text}"
    );
    let output = run(&cache, &[&common[..], &[&"--memory=512KiB"]].concat());
    let text = stdout(&output);
    assert!(!text.contains("Too little memory"), "{text}");
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let (cache, folder) = (tempfile::tempdir().expect("a folder"), folder());
    let (pages, trace) = (folder.path().join("pages"), folder.path().join("loop.txt"));
    for wrong in [
        "--policy=lru",
        "--policy=split:99",
        "--policy=split:50:store",
        "--miss=7",
        "--page=0",
        "--format=x",
        "--prefer=space",
    ] {
        let output = run(&cache, &[&"replay", &pages, &wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
    let both = run(&cache, &[&"replay", &pages, &"--device", &"--miss=1ms"]);
    assert_eq!(both.status.code(), Some(2));
    let gone = folder.path().join("gone");
    let no_page = "--page=2MiB";
    let endless = "/dev/zero";
    let refused: [&[&dyn AsRef<OsStr>]; 6] = [
        &[&"replay", &endless],
        &[&"replay", &gone],
        &[&"replay", &gone, &"--device"],
        &[&"replay", &pages, &"--trace", &gone],
        &[&"replay", &pages, &no_page],
        &[&"replay", &pages, &"--format=u64", &"--trace", &trace],
    ];
    for arguments in refused {
        let output = run(&cache, arguments);
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.starts_with("breakeven: "), "{error}");
    }
}

/// Every request has an answer or a reason, and no crash.
#[test]
fn absurd_sizes_and_keys_are_no_trouble() {
    let (cache, folder) = (tempfile::tempdir().expect("a folder"), folder());
    let pages = folder.path().join("pages");
    for option in [
        "--memory=1",
        "--memory=10000",
        "--memory=8000000TiB",
        "--page=1",
        "--page=1MiB",
        "--miss=0s",
        "--miss=1000000000s",
        "--accesses=1",
        "--skew=zipf:100",
        "--policy=split:95:zstd:again,split:0",
    ] {
        let accesses = if option.contains("accesses") {
            "--json"
        } else {
            "--accesses=3000"
        };
        let output = run(&cache, &[&"replay", &pages, &option, &accesses]);
        assert!(output.status.success(), "{option}: {}", stderr(&output));
        let text = stdout(&output);
        assert!(
            !text.contains("NaN") && !text.contains("inf"),
            "{option}: {text}"
        );
    }
    let keys = folder.path().join("keys");
    fs::write(&keys, [0xff; 8 * 100]).expect("a file");
    let report = format!("--report={}", folder.path().join("few.html").display());
    let output = run(
        &cache,
        &[
            &"replay",
            &pages,
            &"--format=u64",
            &"--trace",
            &keys,
            &report,
        ],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("100 accesses"),
        "{}",
        stdout(&output)
    );
}
