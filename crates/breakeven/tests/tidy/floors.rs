//! The floors of the library: the modules that each module may use.
//!
//! Arrows are read from `crate::x`, `crate::{x, y}` and from `super` chains that reach the crate's root, in all code of
//! a file with its tests. A test that needs a higher floor belongs to that floor's tests. Paths made by macros are not
//! seen.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, Token};

/// The floors, bottom up. A module may use every module of the floors below its own.
const FLOORS: &[&[&str]] = &[
    &[
        "units",
        "bisection",
        "statistics",
        "quoted",
        "error",
        "testing",
    ],
    &["codec", "meter", "model", "storage", "arena", "pool"],
    &["medium", "frame", "decide", "dictionaries"],
    &["cache", "blocks"],
    &["stream", "pages", "disk", "objects", "vault", "replay"],
    &["advise"],
    // Promises of every floor, tested with any bytes.
    &["fuzz"],
];

/// The allowed arrows within a floor: from, to, reason.
const SIDEWAYS: &[(&str, &str, &str)] = &[
    ("error", "quoted", "an error names files, in one line"),
    (
        "statistics",
        "bisection",
        "the points of a distribution are found by halving",
    ),
    (
        "meter",
        "storage",
        "a machine's profile is a file that appears whole",
    ),
];

/// Modules that see less than the floors below them: the module, and all that it may use.
const NARROW: &[(&str, &[&str])] = &[
    // Pure arithmetic: no I/O, no clock, no allocation, cannot fail. Its tests have a seed.
    ("model", &["units", "bisection", "testing"]),
    // Numbers with their units use no other module.
    ("units", &[]),
];

const LIBRARY: &str = "crates/breakeven/src/";

/// Returns the faults in the arrows of the library's `sources`.
pub fn findings(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        let Some(path) = module_path(&source.path) else {
            continue;
        };
        let from = path[0];
        for (to, line) in arrows(path.len(), &source.tokens()) {
            if let Some(fault) = fault(from, &to) {
                findings.push(format!("{}:{line}: {fault}", source.path));
            }
            graph.entry(from.to_string()).or_default().insert(to);
        }
        findings.extend(policy_faults(source, from));
    }
    findings.extend(circle(&graph).map(|circle| format!("modules in a circle: {circle}")));
    findings
}

/// Returns the places where policy takes bytes: blocks must come to it as features.
fn policy_faults(source: &Source, module: &str) -> Vec<String> {
    let tokens = source.tokens();
    let is_test = |at: usize| {
        tokens[at].text == "cfg" && tokens.get(at + 2).is_some_and(|it| it.text == "test")
    };
    let end = (0..tokens.len())
        .find(|at| is_test(*at))
        .unwrap_or(tokens.len());
    let works_on_bytes = |it: &&Token| ["Compressor", "Decompressor", "Encoder"].contains(&it.text);
    let found = tokens[..end]
        .iter()
        .filter(works_on_bytes)
        .filter(|_| module == "decide");
    found
        .map(|it| {
            format!(
                "{}:{}: policy never sees bytes: {}",
                source.path, it.line, it.text
            )
        })
        .collect()
}

/// Returns the module path of a file of the library, `None` for its root and for other files.
fn module_path(path: &str) -> Option<Vec<&str>> {
    let inside = path.strip_prefix(LIBRARY)?.strip_suffix(".rs")?;
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    (inside != "lib").then(|| inside.split('/').collect())
}

fn fault(from: &str, to: &str) -> Option<String> {
    let floor = |module: &str| FLOORS.iter().position(|floor| floor.contains(&module));
    let Some(from_floor) = floor(from) else {
        return Some(format!(
            "module {from} has no floor in tests/tidy/floors.rs"
        ));
    };
    let Some(to_floor) = floor(to) else {
        return Some(format!(
            "{from} uses {to}, which has no floor: name the module"
        ));
    };
    let narrow = NARROW.iter().find(|(module, _)| *module == from);
    let allowed_sideways = SIDEWAYS.iter().any(|(a, b, _)| (*a, *b) == (from, to));
    if from == to {
        None
    } else if to_floor > from_floor {
        Some(format!(
            "{from} (floor {from_floor}) uses {to} (floor {to_floor}): upward"
        ))
    } else if to_floor == from_floor && !allowed_sideways {
        Some(format!(
            "{from} and {to} are of one floor and may not use each other"
        ))
    } else if narrow.is_some_and(|(_, may)| !may.contains(&to)) {
        Some(format!("{from} may not use {to}, by its narrow list"))
    } else {
        None
    }
}

/// Returns the top modules that the code of a file `depth` modules below the root names.
fn arrows(depth: usize, tokens: &[Token]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut blocks: Vec<bool> = Vec::new();
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let mut at = 0;
    while at < tokens.len() {
        match text(at) {
            "{" => blocks.push(at >= 2 && text(at - 2) == "mod"),
            "}" => drop(blocks.pop()),
            "crate" if text(at + 1) == "::" => top_names(tokens, at + 2, &mut found),
            "super" => {
                let inline = blocks.iter().filter(|is_module| **is_module).count();
                let mut chain = 1;
                while text(at + 1) == "::" && text(at + 2) == "super" {
                    (chain, at) = (chain + 1, at + 2);
                }
                if chain >= depth + inline && text(at + 1) == "::" {
                    top_names(tokens, at + 2, &mut found);
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Adds the first segments of the path or the group of paths that starts at `at`.
fn top_names(tokens: &[Token], at: usize, found: &mut Vec<(String, usize)>) {
    let mut add = |token: &Token| {
        // The two names that the root re-exports live in `error`.
        let name = match token.text {
            "Error" | "Result" => "error",
            other => other,
        };
        found.push((name.to_string(), token.line));
    };
    let Some(first) = tokens.get(at) else { return };
    if first.text != "{" {
        return add(first);
    }
    let (mut depth, mut expect_name) = (0, false);
    for token in &tokens[at..] {
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," => {}
            _ if depth == 1 && expect_name => add(token),
            _ => {}
        }
        expect_name = depth == 1 && matches!(token.text, "{" | ",");
        if depth == 0 {
            return;
        }
    }
}

/// Returns one circle of the graph in words, if there is any.
fn circle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<String> {
    let mut left = graph.clone();
    // A module without arrows to the rest, or from the rest, is in no circle.
    loop {
        let before = left.len();
        let still: BTreeSet<String> = left.keys().cloned().collect();
        left.retain(|from, to| to.iter().any(|to| to != from && still.contains(to)));
        let used: BTreeSet<(String, String)> = pairs(&left);
        left.retain(|to, _| used.iter().any(|(from, used)| used == to && from != to));
        if left.is_empty() {
            return None;
        }
        if left.len() == before {
            let names: Vec<String> = left.into_keys().collect();
            return Some(names.join(", "));
        }
    }
}

fn pairs(graph: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<(String, String)> {
    let pairs = graph.iter();
    pairs
        .flat_map(|(from, to)| to.iter().map(|to| (from.clone(), to.clone())))
        .collect()
}

fn check(path: &str, text: &str, expected: &[&str]) {
    let found = findings(&[Source::new(&format!("{LIBRARY}{path}"), text)]);
    assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{text}: {found}");
    }
}

#[test]
fn arrows_down_are_accepted() {
    check("codec/zstd.rs", "use crate::error::{Error, Result};", &[]);
    check(
        "codec/zstd.rs",
        "use super::method::Method; use super::super::units::Seconds;",
        &[],
    );
    check(
        "decide/mod.rs",
        "use crate::{codec::Method, units::{Joules, Seconds}, Error};",
        &[],
    );
    check(
        "pages/mod.rs",
        "use crate::cache::Cache; fn f() { crate::storage::open(); }",
        &[],
    );
    check("lib.rs", "pub use crate::advise::advise;", &[]);
    check(
        "arena.rs",
        "mod tests { use super::*; mod deep { use super::super::Arena; } }",
        &[],
    );
    check(
        "model/money.rs",
        "use crate::units::Euros; // not crate::storage::open\n",
        &[],
    );
    check(
        "codec/mod.rs",
        "pub(crate) struct A; const TEXT: &str = \"crate::advise::x\";",
        &[],
    );
}

#[test]
fn policy_never_sees_bytes() {
    let check = |path: &str, expected: &[&str]| {
        check(path, "\nuse crate::codec::Compressor;", expected);
        check(
            path,
            "#[cfg(test)]\nmod tests { use crate::codec::Compressor; }",
            &[],
        );
    };
    check(
        "decide/class.rs",
        &["decide/class.rs:2: policy never sees bytes"],
    );
    check("advise/measure.rs", &[]);
}

#[test]
fn arrows_up_and_sideways_are_refused() {
    check(
        "codec/mod.rs",
        "\nuse crate::decide::Class;",
        &["codec/mod.rs:2: codec (floor 1) uses"],
    );
    check("arena.rs", "use super::advise::Sampler;", &["upward"]);
    check(
        "codec/zstd.rs",
        "use super::super::{units::Seconds, cache::Cache};",
        &["upward"],
    );
    check(
        "arena.rs",
        "mod tests { use super::super::vault::Vault; }",
        &["upward"],
    );
    check(
        "medium/mod.rs",
        "fn f() { crate::decide::choose::best(); }",
        &["of one floor"],
    );
    check(
        "stream/mod.rs",
        "use crate::{error::Result, pages::Page};",
        &["of one floor"],
    );
    check(
        "codec/mod.rs",
        "use crate::{error::{Error}, storage::{Storage}};",
        &["of one floor"],
    );
    check("units.rs", "use crate::error::Error;", &["of one floor"]);
}

#[test]
fn narrow_and_unknown_modules_are_refused() {
    check("model/money.rs", "use crate::error::Error;", &["narrow"]);
    check("model/money.rs", "use crate::Result;", &["narrow"]);
    check(
        "util.rs",
        "use crate::units::Seconds;",
        &["util has no floor"],
    );
    check("codec/mod.rs", "use crate::*;", &["name the module"]);
    check("codec/mod.rs", "use crate::helpers::a;", &["has no floor"]);
}

#[test]
fn circles_are_refused() {
    let graph = |arrows: &[(&str, &str)]| {
        let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in arrows {
            graph
                .entry(from.to_string())
                .or_default()
                .insert(to.to_string());
        }
        graph
    };
    assert_eq!(
        circle(&graph(&[("a", "b"), ("b", "c"), ("a", "c"), ("a", "a")])),
        None
    );
    let found = circle(&graph(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]));
    assert_eq!(found.as_deref(), Some("b, c"));
}

#[test]
fn each_sideways_arrow_has_a_reason_and_one_floor() {
    for (from, to, why) in SIDEWAYS {
        assert!(why.len() > 20, "{from} to {to} wants a reason");
        let same = FLOORS.iter().any(|f| f.contains(from) && f.contains(to));
        assert!(same, "{from} and {to} are not of one floor");
    }
}
