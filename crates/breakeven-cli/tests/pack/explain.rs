//! `explain`, for files to be packed and for streams.

use std::ffi::OsStr;
use std::fs;

use serde_json::Value;

use super::{folder, form, message, ok};
use crate::{run, stdout};

fn blocks(found: &Value) -> &Vec<Value> {
    found["blocks"].as_array().expect("blocks")
}

/// The report on a file is that of the stream that `pack` makes of it.
#[test]
fn a_long_frame_is_told_as_it_is_packed() {
    let (folder, data) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("made.zst"));
    for options in [
        &[][..],
        &["--strategy", "money"],
        &["--strategy", "smallest"],
    ] {
        let explain = |more: &'static str| {
            let mut words: Vec<&dyn AsRef<OsStr>> = vec![&"explain"];
            options.iter().for_each(|it| words.push(it));
            words.extend([&more as &dyn AsRef<OsStr>, &file]);
            let output = run(&folder, &words);
            ok(&output);
            stdout(&output)
        };
        let found: Value = serde_json::from_str(&explain("--json")).expect("JSON");
        let mut words: Vec<&dyn AsRef<OsStr>> = vec![&"pack", &"-f", &"-o", &packed];
        options.iter().for_each(|it| words.push(it));
        words.push(&file);
        ok(&run(&folder, &words));
        let stored = fs::metadata(&packed).expect("a stream").len();
        assert_eq!(found["stored_bytes"], stored, "{options:?}: {found:#}");
        assert_eq!(found["raw_bytes"], data.len());
        form::check(&found, "breakeven.explain-long/1");
        assert!(explain("--all").contains("one long frame"), "{options:?}");
    }
    let output = run(
        &folder,
        &[&"explain", &"--json", &"--link", &"2MB/s", &file],
    );
    ok(&output);
    let found: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(found["link_mb_s"], 2.0);
    let levels = found["levels"].as_array().expect("levels").iter();
    let raw: u64 = levels
        .map(|it| it["raw_bytes"].as_u64().expect("bytes"))
        .sum();
    assert_eq!(raw, data.len() as u64);
}

#[test]
fn decisions_on_a_file_are_shown_block_by_block() {
    let (folder, data) = folder();
    let file = folder.path().join("file");
    for strategy in ["fastest", "free", "within:2", "smallest", "money"] {
        let output = run(
            &folder,
            &[
                &"explain",
                &"--json",
                &"--mixed",
                &"--link",
                &"2MB/s",
                &"--strategy",
                &strategy,
                &file,
            ],
        );
        ok(&output);
        let found: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        form::check(&found, "breakeven.explain-file/1");
        let block_bytes = if strategy == "smallest" {
            16 << 20
        } else {
            1 << 20
        };
        let count = data.len().div_ceil(block_bytes);
        assert_eq!(blocks(&found).len(), count, "{strategy}");
        let sum = |field: &str| -> u64 {
            let values = blocks(&found).iter().map(|it| it[field].as_u64());
            values.map(|it| it.expect("a number")).sum()
        };
        assert_eq!(sum("raw_bytes"), data.len() as u64);
        assert_eq!(
            Some(sum("stored_bytes") as f64),
            found["stored_bytes"].as_f64()
        );
        assert!(
            sum("stored_bytes") < data.len() as u64 / 2,
            "{strategy}: {found:#}"
        );
        for block in blocks(&found) {
            assert!(
                block["expected_core_seconds"]
                    .as_f64()
                    .is_some_and(|it| it > 0.0)
            );
            assert!(block["price"].as_f64().is_some_and(|it| it >= 0.0));
        }
    }
    assert_eq!(fs::read(&file).expect("the file").len(), data.len());
    let output = run(&folder, &[&"explain", &"--link", &"auto", &file]);
    assert_eq!(output.status.code(), Some(2), "{}", message(&output));
}

#[test]
fn rows_are_limited_unless_all_are_wanted() {
    let (folder, _) = folder();
    let file = folder.path().join("long");
    fs::write(&file, vec![7; 30 << 20]).expect("a file");
    let row = [&"explain" as &dyn AsRef<OsStr>, &"--link", &"10GB/s"];
    let output = run(&folder, &[&row[..], &[&file]].concat());
    ok(&output);
    assert!(stdout(&output).contains("and 10 more; --all shows them"));
    let all = run(&folder, &[&row[..], &[&"--all", &file]].concat());
    ok(&all);
    let rows = |text: String| {
        text.lines()
            .filter(|line| line.contains(" constant "))
            .count()
    };
    assert_eq!((rows(stdout(&output)), rows(stdout(&all))), (20, 30));
}

#[test]
fn a_stream_is_decoded_and_its_blocks_tried_by_every_method() {
    let (folder, data) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    ok(&run(
        &folder,
        &[&"pack", &"--mixed", &"-m", &"lz4:1", &file],
    ));
    let output = run(
        &folder,
        &[
            &"explain", &"--json", &"--mixed", &"--time", &"100", &packed,
        ],
    );
    ok(&output);
    let found: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    form::check(&found, "breakeven.explain-stream/1");
    assert_eq!(found["raw_bytes"], data.len());
    assert_eq!(found["tried_all"], true);
    let kinds: Vec<_> = blocks(&found)
        .iter()
        .map(|it| it["kind"].as_str())
        .collect();
    assert!(kinds.contains(&Some("lz4")), "{kinds:?}");
    let classes = found["classes"].as_array().expect("classes");
    assert!(classes.len() >= 2, "{classes:?}");
    for class in classes {
        let methods = class["methods"].as_array().expect("methods");
        assert!(methods.len() >= 15, "{}: {}", class["class"], methods.len());
        for method in methods {
            let bytes = |field: &str| method[field].as_u64().expect("a number");
            assert!(
                bytes("stored_bytes") <= bytes("raw_bytes") + 64 * 3,
                "{method}"
            );
        }
    }
    let output = run(&folder, &[&"explain", &packed]);
    ok(&output);
    let text = stdout(&output);
    assert!(
        text.contains("EUR/TB") && text.contains("zstd:19"),
        "{text}"
    );
    // A damaged stream is an error with its place.
    let mut bad = fs::read(&packed).expect("the packed file");
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    fs::write(&packed, &bad).expect("a file");
    let output = run(&folder, &[&"explain", &packed]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        message(&output).contains("file.zst"),
        "{}",
        message(&output)
    );
}
