//! The report page in a real browser: its script draws the picture that was already there, and moves it.
//!
//! Needs Chromium and reports where it is missing. Screenshots stay in the target folder, under `tmp/report-page/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::Deserialize;
use tempfile::TempDir;

/// Added to a copy of the page before everything else.
const BEFORE: &str = include_str!("before.js");

/// Added before the page's own script: keeps the pictures drawn without it.
const DRAWN: &str = include_str!("drawn.js");

/// Added after the page's own script: uses the script as a person would, and records the results.
const AFTER: &str = include_str!("after.js");

#[derive(Deserialize)]
struct Seen {
    first: State,
    start: State,
    steps: std::collections::BTreeMap<String, State>,
    boxes: Vec<(String, f64, f64)>,
    wide: bool,
    faults: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct State {
    texts: Vec<String>,
    marks: std::collections::BTreeMap<String, Vec<Mark>>,
    /// `None` for the page before its script ran.
    tables: Option<Tables>,
}

/// The rows of the tables, and whether the fixed rows are named.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Tables {
    file: Vec<String>,
    others: Vec<String>,
    classes: Vec<String>,
    told: bool,
}

#[derive(Debug, Deserialize)]
struct Mark {
    tag: String,
    attributes: Vec<String>,
    text: String,
}

/// Reports a missing program whose tests are skipped, which is an error where everything must be installed.
pub fn left_out(what: &str) {
    println!("{what}");
    assert!(std::env::var_os("CI").is_none(), "{what}");
}

/// The browser, if one is installed.
pub fn chromium() -> Option<&'static str> {
    let runs = |name: &&str| {
        let found = Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        found.is_ok_and(|status| status.success())
    };
    ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(runs)
}

/// Runs the browser on a page under a deadline, with a profile of its own, and checks its console.
pub fn browse(browser: &str, page: &Path, arguments: &[String]) -> Output {
    let profile = tempfile::tempdir().expect("a folder");
    let output = Command::new("timeout")
        .args(["--signal=KILL", "120", browser])
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--enable-logging=stderr",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(arguments)
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output()
        .expect("the browser starts");
    let log = String::from_utf8_lossy(&output.stderr);
    let console: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    assert!(output.status.success(), "{log}");
    assert!(console.is_empty(), "the console says: {console:?}");
    output
}

const EXAMPLE: &str = include_str!("../../src/report/example.json");

/// The example with other terms and an offload device: terms that the sliders can set, and terms that they cannot.
fn other_example() -> String {
    let mut report: serde_json::Value = serde_json::from_str(EXAMPLE).expect("JSON");
    report["terms"]["reads_per_write"] = serde_json::json!({"mean": 12, "low": 12, "high": 12});
    report["terms"]["days_kept"] = 7.into();
    report["terms"]["threads"] = 1.into();
    for (field, value) in [
        ("eur_per_kwh", 0.5),
        ("core_eur_per_hour", 0.2),
        ("storage_eur_per_tb_year", 300.0),
        ("billable_days_min", 30.0),
        ("write_eur_per_gb", 1e-4),
        ("read_eur_per_gb", 2e-4),
    ] {
        report["terms"]["prices"][field] = value.into();
    }
    report["medium"]["write_mb_s"] = serde_json::json!({"mean": 180, "low": 150, "high": 200});
    for class in report["classes"].as_array_mut().expect("classes") {
        for method in class["methods"].as_array_mut().expect("methods") {
            method["compress_work"]["device_s_per_gb"] = 0.2.into();
            method["decompress_work"]["device_j_per_gb"] = 3.0.into();
        }
    }
    report.to_string()
}

/// The page of a report, made by the binary.
fn page(folder: &TempDir, json: &str) -> PathBuf {
    let report = folder.path().join("report.json");
    fs::write(&report, json).expect("a file");
    let page = folder.path().join("page.html");
    let status = Command::new(env!("CARGO_BIN_EXE_breakeven"))
        .arg("report")
        .arg(report)
        .arg("--output")
        .arg(&page)
        .status();
    assert!(status.expect("the binary starts").success());
    page
}

/// Whether two attributes or texts are the same but for the last digit of their numbers.
fn alike(one: &str, other: &str) -> bool {
    let numeric = |letter: char| letter.is_ascii_digit() || ".-".contains(letter);
    let parts = |text: &str| -> (String, Vec<f64>) {
        let (mut words, mut numbers, mut number) = (String::new(), Vec::new(), String::new());
        for letter in text.chars().chain(['\n']) {
            if numeric(letter) {
                number.push(letter);
                continue;
            }
            match number.parse::<f64>() {
                Ok(value) => {
                    numbers.push(value);
                    words.push('#');
                }
                Err(_) => words.push_str(&number),
            }
            number.clear();
            words.push(letter);
        }
        (words, numbers)
    };
    let ((words, numbers), (other_words, other_numbers)) = (parts(one), parts(other));
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 0.11 + 1e-3 * a.abs().min(b.abs());
    words == other_words
        && numbers.len() == other_numbers.len()
        && numbers.iter().zip(&other_numbers).all(close)
}

/// The script, at the start, must draw and state the same as the page without it.
fn check_same(what: &str, one: &State, other: &State) {
    assert_eq!(one.texts, other.texts, "{what}");
    assert!(!one.marks.is_empty(), "{what}: nothing is drawn");
    for (name, marks) in &one.marks {
        let others = &other.marks[name];
        assert_eq!(marks.len(), others.len(), "{what}: marks of {name}");
        for (mark, other) in marks.iter().zip(others) {
            assert!(
                mark.tag == other.tag && alike(&mark.text, &other.text),
                "{what}, {name}: {mark:?} and {other:?}"
            );
            for (attribute, other) in mark.attributes.iter().zip(&other.attributes) {
                assert!(
                    alike(attribute, other),
                    "{what}, {name}: {attribute} and {other}"
                );
            }
        }
    }
}

fn check_moved(what: &str, before: &State, after: &State, pictures: &[&str]) {
    for name in pictures {
        let [one, other] = [before, after].map(|state| format!("{:?}", state.marks[*name]));
        assert!(one != other, "{what} does not move {name}");
    }
    assert_ne!(before.texts, after.texts, "{what} does not move the words");
    let all = format!("{after:?}");
    for word in ["NaN", "undefined", "Infinity", "null"] {
        assert!(!all.contains(word), "{what}: {word}");
    }
}

/// The tables follow the sliders as the pictures do, and name the fixed rows.
fn check_tables(seen: &Seen) {
    let of = |state: &State| state.tables.clone().expect("tables");
    let (start, step) = (of(&seen.start), |name: &str| of(&seen.steps[name]));
    assert!(start.file.len() == 4 && start.classes.len() >= 2 && !start.told);
    for name in ["reads", "speed", "core", "storage", "class"] {
        let moved = step(name);
        assert!(moved.file != start.file && moved.told, "{name}: {moved:?}");
        assert_eq!(moved.others, start.others, "{name}");
    }
    assert_ne!(step("core").classes, start.classes);
    for name in ["reset", "reset again"] {
        assert_eq!(step(name), start, "{name}");
    }
}

#[test]
fn the_page_works_in_a_browser() {
    let Some(browser) = chromium() else {
        left_out("not tried: Chromium is not installed (Debian: apt-get install chromium)");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    for json in [EXAMPLE, &other_example()] {
        check_page(browser, &page(&folder, json));
    }
}

fn check_page(browser: &str, page: &Path) {
    let html = fs::read_to_string(page).expect("the page");
    let own = "<script>\n\"use strict\"";
    let script = |text: &str, then: &str| format!("<script>\n{text}</script>{then}");
    let tried = html
        .replacen("<style>", &script(BEFORE, "<style>"), 1)
        .replacen(own, &script(DRAWN, own), 1)
        .replacen("</body>", &script(AFTER, "</body>"), 1);
    let copy = page.with_file_name("tried.html");
    fs::write(&copy, tried).expect("a copy");
    let arguments = ["--dump-dom", "--window-size=1280,900"].map(String::from);
    let output = browse(browser, &copy, &arguments);
    let dom = String::from_utf8(output.stdout).expect("text");
    let (_, seen) = dom
        .split_once("id=\"seen\">")
        .expect("the script came to its end");
    let (seen, _) = seen.split_once("</script>").expect("its end");
    let seen: Seen = serde_json::from_str(seen).expect("what was seen");
    assert!(seen.faults.is_empty(), "{:?}", seen.faults);
    assert!(!seen.wide, "the page is wider than its window");
    assert_eq!(seen.boxes.len(), 8);
    for (id, width, height) in &seen.boxes {
        assert!(
            *width > 300.0 && *height > 200.0,
            "{id} is {width} by {height}"
        );
    }
    check_same("the script at its start", &seen.first, &seen.start);
    check_tables(&seen);
    let step = |name: &str| &seen.steps[name];
    check_moved(
        "reads",
        &seen.start,
        step("reads"),
        &["map", "savings", "redemption"],
    );
    check_moved(
        "speed",
        step("reads"),
        step("speed"),
        &["map", "savings", "buffers"],
    );
    check_same("reset", &seen.start, step("reset"));
    check_moved("core", step("reset"), step("core"), &["redemption"]);
    check_moved("storage", step("core"), step("storage"), &["redemption"]);
    check_same("reset again", &seen.start, step("reset again"));
    check_moved(
        "metric",
        step("reset again"),
        step("metric"),
        &["map", "savings"],
    );
    check_moved(
        "class",
        step("metric"),
        step("class"),
        &["map", "savings", "redemption"],
    );
}

/// Pictures of the page for people to look at, none of them empty.
#[test]
fn the_page_is_photographed() {
    let Some(browser) = chromium() else {
        left_out("not tried: Chromium is not installed (Debian: apt-get install chromium)");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    photograph(browser, &page(&folder, EXAMPLE), "report-page");
}

/// Takes pictures of a page into a folder below the target's: on a light and a dark screen, a narrow
/// one, and on paper.
pub fn photograph(browser: &str, page: &Path, folder: &str) {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    fs::create_dir_all(&kept).expect("a folder");
    let dark = "--blink-settings=preferredColorScheme=0";
    for (name, size, more) in [
        ("light", "1280,3800", None),
        ("dark", "1280,3800", Some(dark)),
        ("narrow", "420,7200", None),
    ] {
        let picture = kept.join(format!("{name}.png"));
        let mut arguments = vec![
            format!("--window-size={size}"),
            format!("--screenshot={}", picture.display()),
        ];
        arguments.extend(more.map(String::from));
        browse(browser, page, &arguments);
        check_kept(&picture, 100_000);
    }
    let paper = kept.join("print.pdf");
    let arguments = [
        "--no-pdf-header-footer".to_string(),
        format!("--print-to-pdf={}", paper.display()),
    ];
    browse(browser, page, &arguments);
    check_kept(&paper, 50_000);
    println!("kept in {}", kept.display());
}

/// An empty page of this size is a few kilobytes.
fn check_kept(path: &Path, bytes_min: u64) {
    let size = fs::metadata(path).expect("a picture").len();
    assert!(size >= bytes_min, "{} has {size} bytes", path.display());
}

#[test]
fn advise_writes_its_page() {
    let (cache, data) = (tempfile::tempdir().expect("a folder"), super::data());
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    fs::write(&page, "an older page").expect("a file");
    let output = super::advise(
        &cache,
        data.path(),
        &[&format!("--report={}", page.display())],
    );
    assert!(output.status.success(), "{}", super::stderr(&output));
    let html = fs::read_to_string(&page).expect("the page");
    let headline = super::stdout(&output);
    let headline = headline.lines().next().expect("a first line");
    assert!(html.contains(headline), "{headline}");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    let nowhere = folder.path().join("no/page.html");
    let option = format!("--report={}", nowhere.display());
    let output = super::advise(&cache, data.path(), &[&option]);
    super::check_refused(&output, 1, &["no folder"]);
    assert!(output.stdout.is_empty(), "it is refused before measuring");
}

#[test]
fn saved_reports_that_are_none_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (json, page) = (folder.path().join("a.json"), folder.path().join("a.html"));
    let check = |text: &str, word: &str| {
        fs::write(&json, text).expect("a file");
        let output = Command::new(env!("CARGO_BIN_EXE_breakeven"))
            .arg("report")
            .arg(&json)
            .arg("--output")
            .arg(&page)
            .output()
            .expect("the binary starts");
        let message = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(
            message.contains("a.json") && message.contains(word),
            "{message}"
        );
        assert!(!page.exists() && !message.contains("panicked"), "{message}");
    };
    check("", "EOF");
    check("{\"schema\":", "EOF");
    check("[1,2]", "expected");
    check(
        &EXAMPLE.replace("breakeven.advise/1", "breakeven.advise/9"),
        "breakeven.advise/9",
    );
    let left: Vec<_> = fs::read_dir(folder.path()).expect("a folder").collect();
    assert_eq!(left.len(), 1, "only the report is left: {left:?}");
}
