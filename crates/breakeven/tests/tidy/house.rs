//! The rules for the tree as a whole. Its map is true, its words are its own, it has one profile, its dependencies are
//! explained, and none is newer than the stated Rust.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::source::{files, workspace};

/// Traces of one machine that mean nothing on another, split so that this file does not contain them.
const FOREIGN: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!(":/", "/localhost"),
    concat!(":/", "/127."),
    concat!(":/", "/10."),
    concat!(":/", "/192.168."),
];

/// The one profile, for running, testing and measuring.
const PROFILE: &[(&str, &[&str])] = &[
    (
        "[profile.dev]",
        &["opt-level = 3", "overflow-checks = true"],
    ),
    (
        "[profile.release]",
        &["opt-level = 3", "overflow-checks = true", "lto = false"],
    ),
];

/// The endings of the names of text files.
const TEXT_ENDINGS: &[&str] = &[".rs", ".md", ".toml", ".txt", ".json", ".csv"];
const MAP_LINES_MAX: usize = 300;

/// Returns the lines of `text` with a trace of one machine.
fn foreign_words(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(at, line)| {
            let words = FOREIGN.iter().filter(move |word| line.contains(**word));
            words.map(move |word| format!("{path}:{}: {word} is of one machine", at + 1))
        })
        .collect()
}

/// Returns the paths in backticks that do not exist. A path is a plain name that ends with a slash, or one with a slash
/// inside and the ending of a text.
fn gone_paths(path: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let is_path = |name: &&str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        let file = TEXT_ENDINGS.iter().any(|ending| name.ends_with(ending));
        name.chars().all(plain) && (name.ends_with('/') || (file && name.contains('/')))
    };
    let names = text.split('`').skip(1).step_by(2);
    let gone = names.filter(is_path).filter(|name| !exists(name));
    gone.map(|name| format!("{path} names `{name}`, which is not there"))
        .collect()
}

/// Returns the folders and crates that the map does not name.
fn map_faults(map: &str, expected: &[String]) -> Vec<String> {
    let named = |path: &str| map.contains(&format!("`{path}`"));
    let unnamed = expected.iter().filter(|path| !named(path));
    let mut faults: Vec<String> = unnamed
        .map(|path| format!("ARCHITECTURE.md does not name `{path}`"))
        .collect();
    let lines = map.lines().count();
    if lines > MAP_LINES_MAX {
        faults.push(format!(
            "ARCHITECTURE.md: {lines} lines, the most is {MAP_LINES_MAX}"
        ));
    }
    faults
}

/// Returns the names that the map needs: each crate, and each module of the library.
fn mapped_paths() -> Vec<String> {
    let root = workspace();
    let list = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(root.join(folder)).expect("a folder of the tree");
        let names = entries.map(|entry| entry.expect("an entry").path());
        let mut paths: Vec<String> = names
            .map(|path| {
                let name = path
                    .file_name()
                    .expect("a name")
                    .to_string_lossy()
                    .into_owned();
                let slash = if path.is_dir() { "/" } else { "" };
                format!("{folder}/{name}{slash}")
            })
            .collect();
        paths.sort();
        paths
    };
    let mut paths = list("crates");
    paths.extend(
        list("crates/breakeven/src")
            .into_iter()
            .filter(|path| !path.ends_with("lib.rs")),
    );
    paths
}

/// Returns the dependencies that no comment explains, and the manifest's own faults.
fn manifest_faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut section, mut previous) = ("", "");
    for (at, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            section = line;
        }
        let dependency = section.contains("dependencies]") && line.contains('=');
        let explained = previous.starts_with('#') || previous.contains('=');
        if dependency && !explained && !line.contains("path = ") {
            faults.push(format!("{path}:{}: a dependency without its why", at + 1));
        }
        previous = line;
    }
    if !text.contains("[lints]\nworkspace = true") {
        faults.push(format!("{path}: the workspace's lints are not taken"));
    }
    if !text.contains("rust-version.workspace = true") {
        faults.push(format!("{path}: the workspace's Rust version is not taken"));
    }
    faults
}

/// Returns the ways in which the profiles of the workspace's manifest are not the one profile.
fn profile_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, settings) in PROFILE {
        let section = text.split_once(name).map_or("", |(_, rest)| rest);
        let section = section.split("\n[").next().unwrap_or_default();
        let missing = settings
            .iter()
            .filter(|s| !section.lines().any(|line| line == **s));
        faults.extend(missing.map(|setting| format!("{name} wants {setting}")));
    }
    faults
}

/// Returns the packages that state a newer Rust than `limit`, from cargo's own account.
fn too_new(metadata: &serde_json::Value, limit: (u32, u32)) -> Vec<String> {
    let packages = metadata["packages"].as_array().expect("packages");
    let too_new = packages.iter().filter(|package| {
        let stated = package["rust_version"].as_str();
        stated.is_some_and(|stated| rust_version(stated) > limit)
    });
    too_new
        .map(|package| format!("{} wants Rust {}", package["name"], package["rust_version"]))
        .collect()
}

fn rust_version(text: &str) -> (u32, u32) {
    let mut parts = text.split('.').map(|part| part.parse().expect("a version"));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

fn cargo_metadata() -> serde_json::Value {
    let target = Command::new(env!("CARGO"))
        .arg("-vV")
        .output()
        .expect("cargo runs");
    let target = String::from_utf8(target.stdout).expect("text");
    let host = target
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .expect("a host");
    // Only this host's packages are sure to be downloaded.
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--locked",
            "--format-version=1",
            "--filter-platform",
            host,
        ])
        .current_dir(workspace())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a text of the tree")
}

#[test]
fn the_map_names_what_is_there() {
    let map = read(&workspace().join("ARCHITECTURE.md"));
    let faults = map_faults(&map, &mapped_paths());
    assert!(faults.is_empty(), "{}", faults.join("\n"));

    let expected = ["crates/a/".to_string()];
    assert_eq!(
        map_faults("the crate `crates/a/` and `b`", &expected),
        [""; 0]
    );
    assert_eq!(map_faults("crates/a/", &expected).len(), 1);
    let long = "`crates/a/`\n".repeat(MAP_LINES_MAX + 1);
    assert_eq!(map_faults(&long, &expected).len(), 1);
}

#[test]
fn documents_name_what_is_there() {
    let root = workspace();
    // The laboratory writes its pages itself, and names its own folders.
    let documents = files(|path| path.ends_with(".md") && !path.starts_with("docs/lab/"));
    assert!(documents.len() >= 6, "{} documents found", documents.len());
    for (relative, path) in documents {
        // From the workspace, or from the document.
        let folders = [&*root, path.parent().expect("a folder")];
        let exists = |name: &str| folders.iter().any(|folder| folder.join(name).exists());
        let faults = gone_paths(&relative, &read(&path), exists);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
    let check = |text: &str, gone: usize| {
        let found = gone_paths("a.md", text, |name| name == "crates/a/");
        assert_eq!(found.len(), gone, "{text}: {found:?}");
    };
    check("`crates/a/` or `a/b` or `make x/` or gone/", 0);
    check("`crates/a/` `crates/a/src/gone.rs` `gone/`", 2);
}

#[test]
fn texts_speak_of_no_machine() {
    let texts = files(|path| {
        TEXT_ENDINGS.iter().any(|ending| path.ends_with(ending))
            || !path.rsplit('/').next().unwrap().contains('.')
    });
    let mut tried = 0;
    let mut faults = Vec::new();
    for (relative, path) in texts {
        // Files without an ending may be inputs of fuzz targets.
        let Ok(text) = String::from_utf8(fs::read(&path).expect("a file of the tree")) else {
            continue;
        };
        faults.extend(foreign_words(&relative, &text));
        tried += 1;
    }
    println!("{tried} texts read");
    assert!(tried >= 20, "only {tried} texts found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    for word in FOREIGN {
        assert_eq!(
            foreign_words("a", &format!("fine\nin {word}there")).len(),
            1
        );
    }
}

#[test]
fn one_profile_for_all() {
    let text = read(&workspace().join("Cargo.toml"));
    assert_eq!(profile_faults(&text), [""; 0]);
    for setting in ["overflow-checks = true", "opt-level = 3"] {
        assert_eq!(
            profile_faults(&text.replace(setting, "")).len(),
            2,
            "{setting}"
        );
    }
    assert_eq!(
        profile_faults(&text.replace("lto = false", "lto = true")).len(),
        1
    );
}

#[test]
fn dependencies_say_why() {
    let manifests = files(|path| path.starts_with("crates/") && path.ends_with("Cargo.toml"));
    assert!(manifests.len() >= 2, "{} manifests found", manifests.len());
    for (relative, path) in manifests {
        let faults = manifest_faults(&relative, &read(&path));
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
    let rest = "rust-version.workspace = true\n[lints]\nworkspace = true\n[dependencies]\n";
    let check = |text: &str, faults: usize| {
        let found = manifest_faults("Cargo.toml", text);
        assert_eq!(found.len(), faults, "{text}: {found:?}");
    };
    check(
        &format!("{rest}# Why.\na = \"1\"\nb = \"1\"\nc = {{ path = \"../c\" }}\n"),
        0,
    );
    check(&format!("{rest}a = \"1\"\n"), 1);
    check(&format!("{rest}# Why.\na = \"1\"\n\nb = \"1\"\n"), 1);
    check("[package]\n", 2);
}

#[test]
fn nothing_wants_a_newer_rust() {
    let metadata = cargo_metadata();
    let packages = metadata["packages"].as_array().map_or(0, Vec::len);
    println!("{packages} packages read");
    assert!(packages >= 20, "only {packages} packages found");
    let own = read(&workspace().join("Cargo.toml"));
    let own = own
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "));
    let own = own.expect("a stated Rust version").trim_matches('"');
    assert_eq!(too_new(&metadata, rust_version(own)), [""; 0]);
    // Some package needs more than Rust 1.60, so the check does see the stated versions.
    assert!(!too_new(&metadata, (1, 60)).is_empty());
}
