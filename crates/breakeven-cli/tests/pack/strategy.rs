//! The choice of methods, and its ledger.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use super::{folder, form, message, ok};
use crate::{breakeven, run, stdout};

/// Packs the folder's file with some options and returns its stored bytes with the messages.
fn packed(folder: &TempDir, options: &[&str]) -> (u64, Output) {
    let (file, target) = (folder.path().join("file"), folder.path().join("file.zst"));
    let mut command = breakeven(folder);
    let output = command.args(["pack", "-f"]).args(options).arg(&file);
    let output = output.output().expect("it starts");
    ok(&output);
    check_decodes(folder, &target, &file);
    (
        fs::metadata(&target).expect("the packed file").len(),
        output,
    )
}

#[track_caller]
fn check_decodes(folder: &TempDir, packed: &Path, file: &Path) {
    let output = run(folder, &[&"cat", &packed]);
    ok(&output);
    assert!(output.stdout == fs::read(file).expect("the file"));
}

#[test]
fn the_link_decides_what_is_fastest() {
    let (folder, _) = folder();
    let (slow, output) = packed(&folder, &["--link", "100kB/s"]);
    assert!(
        !message(&output).contains("--strategy"),
        "{}",
        message(&output)
    );
    let (fast, _) = packed(&folder, &["--link", "100GB/s"]);
    assert!(
        slow < fast,
        "{slow} bytes for a slow link, {fast} for a fast one"
    );
    let (same, _) = packed(&folder, &["--strategy", "fastest", "--link", "100kB/s"]);
    assert!(same < fast, "the default is fastest: {same}");
    packed(&folder, &["--link", "auto", "--mixed"]);
}

/// A pipe may take some MiB at once and send them later, so data into one is compressed at any speed of reading.
#[test]
fn into_a_pipe_text_is_compressed_from_the_start() {
    let (folder, _) = folder();
    let mut random = fastrand::Rng::with_seed(5);
    let words: Vec<String> = (0..2000)
        .map(|_| format!("{:x} ", random.u32(..)))
        .collect();
    let mut content = String::new();
    while content.len() < 6 << 20 {
        content += random.choice(&words).expect("words");
    }
    let (file, packed) = (folder.path().join("words"), folder.path().join("words.zst"));
    fs::write(&file, &content).expect("a file");
    let output = run(&folder, &[&"pack", &"-c", &file]);
    ok(&output);
    let share = output.stdout.len() as f64 / content.len() as f64;
    assert!(share < 0.4, "{share} is stored");
    fs::write(&packed, &output.stdout).expect("the stream");
    check_decodes(&folder, &packed, &file);
    // It goes on as a row if the link proves to be fast: data that does not shrink has passed 4 MiB by then.
    let noise: Vec<u8> = (0..24 << 20).map(|_| random.u8(..)).collect();
    fs::write(&file, &noise).expect("a file");
    let output = run(&folder, &[&"pack", &"-c", &"--ledger", &file]);
    ok(&output);
    fs::write(&packed, &output.stdout).expect("the stream");
    check_decodes(&folder, &packed, &file);
    assert!(message(&output).contains("earned against"));
}

#[test]
fn what_denser_strategies_would_add_is_said_where_it_is_read() {
    let (folder, _) = folder();
    let (_, output) = packed(&folder, &["-v", "-T1", "--link", "300MB/s"]);
    let text = message(&output);
    for strategy in ["--strategy free would ", "--strategy within:1.5 would "] {
        assert!(text.contains(strategy), "{text}");
    }
    for quiet in [
        &["-q"][..],
        &["-v", "--strategy", "smallest"],
        &["-v", "-m", "zstd:1"],
    ] {
        let (_, output) = packed(&folder, quiet);
        let text = message(&output);
        assert!(!text.contains("--strategy"), "{quiet:?}: {text}");
    }
}

/// A price file in which a petabyte of disks costs this much.
fn prices(folder: &TempDir, eur_per_pb: u64) -> String {
    let text = include_str!("../../src/prices.toml");
    let ours = format!("investment_eur_per_pb = {eur_per_pb}");
    let text = text.replace("investment_eur_per_pb = 100000", &ours);
    assert!(text.contains(&ours));
    let text = text.replace("power_watts_per_pb = 3000", "power_watts_per_pb = 0");
    let path = folder.path().join(format!("prices-{eur_per_pb}.toml"));
    fs::write(&path, text).expect("a file");
    path.to_str().expect("a name").to_string()
}

#[test]
fn money_weighs_the_days_kept_against_the_cores() {
    let (folder, _) = folder();
    // Text on which a denser level gains more.
    let line = |i: u64| format!("{} costs {}\n", i % 7919, i * i % 104_729);
    let data = (0..200_000).map(line).collect::<String>().into_bytes();
    fs::write(folder.path().join("file"), &data).expect("a file");
    let (free, dear) = (prices(&folder, 0), prices(&folder, 1_000_000_000_000));
    let with = |prices: &str, more: &[&str]| {
        let options = [&["--strategy", "money", "--prices", prices], more].concat();
        packed(&folder, &options).0
    };
    let (at_no_price, at_a_high_price) = (with(&free, &[]), with(&dear, &["--days", "1000"]));
    assert!(
        at_a_high_price < at_no_price,
        "{at_a_high_price} bytes where they are dear, {at_no_price} where they are free"
    );
    assert!(at_a_high_price < data.len() as u64 / 2);
    let file = folder.path().join("file");
    let missing = run(
        &folder,
        &[
            &"pack",
            &"-f",
            &"--strategy",
            &"money",
            &"--prices",
            &"none.toml",
            &file,
        ],
    );
    assert_eq!(missing.status.code(), Some(1), "{}", message(&missing));
    assert!(
        message(&missing).contains("none.toml"),
        "{}",
        message(&missing)
    );
}

#[test]
fn energy_weighs_the_time_of_a_link_against_the_cores() {
    let (folder, _) = folder();
    let line = |i: u64| format!("{} costs {}\n", i % 7919, i * i % 104_729);
    let data = (0..200_000).map(line).collect::<String>().into_bytes();
    fs::write(folder.path().join("file"), &data).expect("a file");
    let with = |more: &[&str]| packed(&folder, &[&["--strategy", "energy"], more].concat());
    let ledger = |more: &[&str]| {
        let (stored, output) = with(&[more, &["--ledger", "--json"]].concat());
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(found["accounts"][0]["cost_unit"], "joules", "{found}");
        let joules =
            ["packed_joules", "raw_joules"].map(|it| found["energy"][it].as_f64().expect("joules"));
        let medium = found["energy"]["medium"]
            .as_str()
            .expect("a name")
            .to_string();
        (stored, joules, medium)
    };
    let (slow, [packed_joules, raw_joules], medium) = ledger(&["--link", "100kB/s"]);
    assert!(
        packed_joules < 0.7 * raw_joules,
        "{packed_joules} of {raw_joules} J"
    );
    assert_eq!(medium, "a link of 0.100 MB/s");
    // Reads are of stored bytes: they are cheaper too.
    let (_, often, _) = ledger(&["--link", "100kB/s", "--reads", "9"]);
    assert!(often[1] > 4.0 * raw_joules && often[0] > 4.0 * packed_joules);
    let (fast, _, _) = ledger(&["--link", "100GB/s"]);
    assert!(
        slow < fast,
        "{slow} bytes over a slow link, {fast} over a fast one"
    );
    let (_, _, medium) = ledger(&[]);
    assert_eq!(medium, "nvme, assumed");
    let text = stdout(&with(&["--ledger"]).1);
    assert!(
        text.contains("J to write it and read it 1.00 times"),
        "{text}"
    );
    // In a row of frames as well, with each block booked.
    let text = stdout(&with(&["--ledger", "--mixed", "--link", "1MB/s"]).1);
    assert!(
        text.contains(" J on blocks") || text.contains("too few blocks"),
        "{text}"
    );
    assert!(text.contains("a link of 1.00 MB/s"), "{text}");
}

#[test]
fn the_ledger_counts_what_was_written() {
    let (folder, data) = folder();
    for options in [
        &["--link", "5MB/s"][..],
        &["-m", "zstd:1"],
        &["--strategy", "smallest"],
    ] {
        let all = [options, &["--ledger", "--json"]].concat();
        let (stored, output) = packed(&folder, &all);
        let found: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        form::check(&found, "breakeven.ledger/1");
        assert_eq!(found["raw_bytes"], data.len());
        assert_eq!(found["stored_bytes"], stored);
        let accounts = found["accounts"].as_array().expect("accounts");
        let sum = |field: &str| -> f64 {
            accounts
                .iter()
                .map(|it| it[field].as_f64().expect("a number"))
                .sum()
        };
        assert_eq!(sum("raw_bytes"), data.len() as f64, "{found:#}");
        // A long frame is one.
        let blocks = match options[0] {
            "-m" => data.len().div_ceil(1 << 20),
            _ => 1,
        };
        assert_eq!(sum("blocks") as usize, blocks);
        let core = found["core_seconds"].as_f64().expect("a number");
        assert!((sum("encode_seconds") - core).abs() <= 1e-9 * core);
        assert!(core > 0.0 && found["joules"]["cores"].as_f64().is_some_and(|it| it > 0.0));
        assert!(
            found["joules"]["source"]
                .as_str()
                .is_some_and(|it| !it.is_empty())
        );
        if options[0] == "--link" {
            assert_eq!(found["link"]["source"], "given");
            let raw = found["seconds_raw"].as_f64().expect("a number");
            assert!(
                (raw / (data.len() as f64 / 5e6) - 1.0).abs() < 1e-6,
                "{raw}"
            );
        }
        let (_, output) = packed(&folder, &[options, &["--ledger"]].concat());
        let text = stdout(&output);
        for word in [
            "bytes  ",
            "seconds  ",
            "joules  ",
            "money  ",
            "EUR net",
            "zstd:",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
    // Standard output is the stream's, if it goes there.
    let file = folder.path().join("file");
    let output = run(&folder, &[&"pack", &"-c", &"--ledger", &file]);
    ok(&output);
    assert!(message(&output).contains("earned against storing raw"));
    assert_eq!(output.stdout[..4], [0x28, 0xB5, 0x2F, 0xFD]);
    let output = run(&folder, &[&"pack", &"-c", &"--json", &file]);
    assert_eq!(output.status.code(), Some(2), "--json is of the ledger");
}

#[test]
fn hints_on_ranges_are_followed() {
    let (folder, _) = folder();
    let (dense, _) = packed(&folder, &["--link", "100kB/s"]);
    let (raw, _) = packed(&folder, &["--link", "100kB/s", "--hint", "none"]);
    // The last block is one repeated byte, in a frame of its own.
    assert!(raw > 3 << 20, "{raw} bytes are stored raw");
    let first = [
        "--link",
        "100kB/s",
        "--hint",
        "0+1MiB:none",
        "--hint",
        "1MiB+1MiB:keep=30d",
    ];
    let (half, _) = packed(&folder, &first);
    assert!(
        half > dense + 500_000 && half < raw,
        "{dense}, {half}, {raw}"
    );
    // The last of two equal options counts, except for hints, which add up.
    let twice = ["-f", "-T2", "-T1", "-qq", "--link", "9GB/s"];
    let (same, _) = packed(&folder, &[&twice[..], &first].concat());
    assert!(same > dense + 500_000 && same < raw, "{same}");
    let file = folder.path().join("file");
    for hint in ["cold", "5:none", "keep=-1"] {
        let output = run(&folder, &[&"pack", &"-f", &"--hint", &hint, &file]);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{hint}: {}",
            message(&output)
        );
    }
}

#[test]
fn deterministic_streams_are_the_same_bytes_every_time() {
    let (folder, data) = folder();
    let target = folder.path().join("file.zst");
    for options in [
        &[][..],
        &["--strategy", "smallest"],
        &["--strategy", "money", "--mixed"],
    ] {
        let mut streams = Vec::new();
        for more in [&["-T1"][..], &["-T3"], &["-T1"]] {
            let all = [&["--deterministic"], options, more].concat();
            let (stored, _) = packed(&folder, &all);
            assert!(stored < data.len() as u64 / 2, "{options:?}: {stored}");
            streams.push(fs::read(&target).expect("the packed file"));
            // The measurements of another run have no effect.
            packed(&folder, &["--link", "1MB/s", "--strategy", "smallest"]);
        }
        assert!(
            streams.windows(2).all(|pair| pair[0] == pair[1]),
            "{options:?}"
        );
    }
    let file = folder.path().join("file");
    for more in [
        ["--strategy", "free"],
        ["--strategy", "energy"],
        ["-m", "zstd:1"],
    ] {
        let mut command = breakeven(&folder);
        let output = command
            .args(["pack", "-f", "--deterministic"])
            .args(more)
            .arg(&file);
        assert_eq!(
            output.output().expect("it starts").status.code(),
            Some(2),
            "{more:?}"
        );
    }
}

#[test]
fn who_has_no_home_is_told_unless_quiet_is_asked_for() {
    let (folder, data) = folder();
    let file = folder.path().join("file");
    fs::write(&file, data.repeat(3)).expect("a file");
    for (quiet, told) in [("-q", 0), ("-v", 1)] {
        let mut command = breakeven(&folder);
        command
            .args(["pack", "-f", "--link", "9GB/s", quiet])
            .arg(&file);
        // Nobody can make a folder there.
        let output = command.env("BREAKEVEN_CACHE", "/proc/none").output();
        let output = output.expect("it starts");
        ok(&output);
        let text = message(&output);
        assert_eq!(text.matches("is not kept").count(), told, "{text}");
        assert_eq!(text.is_empty(), told == 0, "{text}");
    }
}
