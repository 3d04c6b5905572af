//! `breakeven compare` as CI sees it: the changes that count, the messages, and the refusals.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{check_refused, noise, run, stderr, stdout};

const EXAMPLE: &str = include_str!("../../src/report/example.json");

/// A folder with the example in it twice; the test changes the second one.
struct Pair {
    folder: TempDir,
    value: Value,
}

impl Pair {
    fn new() -> Pair {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("before.json"), EXAMPLE).expect("a file");
        let value = serde_json::from_str(EXAMPLE).expect("the example is JSON");
        Pair { folder, value }
    }

    fn before(&self) -> PathBuf {
        self.folder.path().join("before.json")
    }

    fn after(&self) -> PathBuf {
        self.folder.path().join("after.json")
    }

    fn compare(&self, more: &str) -> Output {
        fs::write(self.after(), self.value.to_string()).expect("a file");
        let arguments = [self.before(), self.after()];
        match more {
            "" => run(&self.folder, &[&"compare", &arguments[0], &arguments[1]]),
            more => run(
                &self.folder,
                &[&"compare", &arguments[0], &arguments[1], &more],
            ),
        }
    }

    /// The first verdict of this place, metric and class.
    fn verdict(&mut self, place: &str, metric: &str, class: &str) -> &mut Value {
        let verdicts = self.value["verdicts"].as_array_mut().expect("verdicts");
        verdicts
            .iter_mut()
            .find(|of| of["place"] == place && of["metric"] == metric && of["class"] == class)
            .expect("a verdict")
    }

    #[track_caller]
    fn check(&self, code: i32, words: &[&str]) {
        let output = self.compare("");
        let text = stdout(&output);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{text}{}",
            stderr(&output)
        );
        for word in words {
            assert!(text.contains(word), "'{word}' is missing in: {text}");
        }
    }
}

#[test]
fn a_report_is_like_itself() {
    let pair = Pair::new();
    pair.check(0, &["No verdict changed ("]);
    let output = pair.compare("--json");
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["schema"], "breakeven.compare/1");
    assert_eq!(value["changed"], false);
    assert!(value["verdicts_compared"].as_u64() > Some(10));
    for list in [
        "verdicts",
        "within_error",
        "unlike",
        "medium",
        "methods",
        "new",
        "gone",
    ] {
        assert_eq!(value[list], json!([]), "{list}");
    }
}

#[test]
fn a_changed_verdict_is_named_and_fails() {
    let mut pair = Pair::new();
    let verdict = pair.verdict("file", "money", "all");
    let method = verdict["method"].as_str().expect("a method").to_string();
    verdict["method"] = json!("xz:9");
    // No figure says that its cost differs.
    pair.check(
        0,
        &[
            "No verdict changed (",
            "within their errors",
            &format!("money on all: {method} -> xz:9"),
        ],
    );
    let output = pair.compare("--json");
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["within_error"][0]["after"]["method"], "xz:9");
    pair.verdict("file", "money", "all")["cost_ratio"] =
        json!({"mean": 0.9, "low": 0.88, "high": 0.92});
    pair.check(
        1,
        &[
            "1 of ",
            &format!("file money on all: {method} -> xz:9"),
            "ratio",
            "core-s/GB",
        ],
    );
    let output = pair.compare("--json");
    assert_eq!(output.status.code(), Some(1));
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let change = &value["verdicts"][0];
    assert_eq!(change["after"]["method"], "xz:9");
    assert!(change["before"]["ratio"]["mean"].is_number());

    let mut pair = Pair::new();
    let verdict = pair.verdict("file", "money", "all");
    assert_ne!(verdict["answer"], "undecided");
    verdict["answer"] = json!("undecided");
    verdict["cost_ratio"] = json!({"mean": 0.97, "low": 0.95, "high": 1.05});
    pair.check(1, &["file money on all: ", "-> undecided"]);
}

#[test]
fn what_moves_within_its_error_is_not_told() {
    let mut pair = Pair::new();
    let all = pair.value["classes"].as_array().expect("classes").len() - 1;
    let methods = pair.value["classes"][all]["methods"]
        .as_array_mut()
        .expect("methods");
    let ratio = |method: &Value, end: &str| method["ratio"][end].as_f64().expect("a number");
    let wide = methods
        .iter_mut()
        .find(|method| ratio(method, "high") > 1.001 * ratio(method, "mean"))
        .expect("a ratio with an error");
    let (mean, high) = (ratio(wide, "mean"), ratio(wide, "high"));
    wide["ratio"]["mean"] = json!((mean + high) / 2.0);
    pair.check(0, &["No verdict changed"]);
    assert!(!stdout(&pair.compare("")).contains("moved"));
    let all = &mut pair.value["classes"][all]["methods"][0]["ratio"];
    *all = json!({"mean": 99.0, "low": 98.0, "high": 100.0});
    pair.check(
        0,
        &[
            "methods moved beyond their error",
            "on all",
            "99.0 (98.0 to 100)",
        ],
    );
}

#[test]
fn unlike_things_are_said_and_not_refused() {
    let mut pair = Pair::new();
    pair.value["machine"]["cores"] = json!(1024);
    pair.value["terms"]["reads_per_write"] = json!({"mean": 7.5, "low": 7, "high": 8});
    pair.value["medium"]["name"] = json!("\u{1b}[31mtape");
    pair.value["sample"]["seed"] = json!(12345);
    let classes = pair.value["classes"].as_array_mut().expect("classes");
    classes.remove(0);
    pair.check(
        0,
        &[
            "machine cores: ",
            "-> 1024",
            "-> 7 to 8",
            "-> 12345",
            "gone:\n  class ",
        ],
    );
    let output = pair.compare("");
    assert!(!output.stdout.contains(&0x1b), "no control codes");
    assert!(!stdout(&output).contains("new:"));
}

#[test]
fn what_cannot_be_compared_is_refused_with_its_own_code() {
    let pair = Pair::new();
    let _ = pair.compare("");
    let (before, after) = (pair.before(), pair.after());
    check_refused(&run(&pair.folder, &[&"compare", &before]), 2, &["AFTER"]);
    let missing = pair.folder.path().join("no-such.json");
    let folder = pair.folder.path().to_path_buf();
    for (path, word) in [(&missing, "no-such.json"), (&folder, "irectory")] {
        let arguments: [&dyn AsRef<std::ffi::OsStr>; 3] = [&"compare", &before, path];
        check_refused(&run(&pair.folder, &arguments), 2, &[word]);
    }
    let whole = EXAMPLE.as_bytes();
    let deep = "[".repeat(1 << 20);
    let other = EXAMPLE.replace("breakeven.advise/1", "breakeven.advise/2");
    let no_verdict = {
        let mut value = pair.value.clone();
        value["verdicts"] = json!([]);
        value.to_string()
    };
    let noise = noise(10_000);
    let mut refused: Vec<&[u8]> = vec![
        b"",
        b"{}",
        b"null",
        b"\xff\xfe",
        deep.as_bytes(),
        other.as_bytes(),
        no_verdict.as_bytes(),
        &noise,
    ];
    let end = whole.len() - 2;
    refused.extend((0..40).map(|part| &whole[..end * part / 39]));
    for bytes in refused {
        fs::write(&after, bytes).expect("a file");
        let arguments: [&dyn AsRef<std::ffi::OsStr>; 3] = [&"compare", &before, &after];
        check_refused(&run(&pair.folder, &arguments), 2, &["after.json"]);
    }
    // Longer than any report: refused before it is held in memory.
    let file = fs::File::create(&after).expect("a file");
    file.set_len(1 << 40).expect("a sparse file");
    let output = run(&pair.folder, &[&"compare", &before, &after]);
    check_refused(&output, 2, &["longer than"]);
}

/// Replaces one random part of a value.
fn damage(value: &mut Value, random: &mut dyn FnMut(usize) -> usize) {
    let count = match value {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    };
    if count > 0 && random(8) > 0 {
        let index = random(count);
        let inner = match value {
            Value::Array(items) => items.get_mut(index),
            Value::Object(fields) => fields.values_mut().nth(index),
            _ => None,
        };
        return damage(inner.expect("counted"), random);
    }
    let replacements = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(0),
        json!(u64::MAX),
        json!(1e308),
        json!(-1e-308),
        json!(""),
        json!("\u{1b}[2J\n\0"),
        json!("a".repeat(100_000)),
        json!([]),
        json!({}),
        json!([[[[]]]]),
    ];
    *value = replacements[random(replacements.len())].clone();
}

#[test]
fn no_json_makes_it_panic() {
    let mut pair = Pair::new();
    let mut draws = noise(100_000).into_iter();
    let mut random = move |below: usize| {
        let bytes = [(); 3].map(|()| usize::from(draws.next().expect("enough draws")));
        ((bytes[0] << 16) + (bytes[1] << 8) + bytes[2]) % below
    };
    let whole = pair.value.clone();
    let mut codes = [0; 3];
    for _ in 0..200 {
        pair.value = whole.clone();
        for _ in 0..1 + random(3) {
            damage(&mut pair.value, &mut random);
        }
        let output = pair.compare(["", "--json"][random(2)]);
        let message = stderr(&output);
        let code = output.status.code().expect("no signal");
        assert!((0..3).contains(&code), "{code}: {message}");
        assert!(!message.contains("panicked"), "{message}");
        codes[code as usize] += 1;
    }
    assert!(codes[0] >= 10 && codes[2] >= 10, "both happen: {codes:?}");
}
