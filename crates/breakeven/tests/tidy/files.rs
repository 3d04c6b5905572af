//! The rules for each Rust file: its header, its length, the length of its functions, its words.
//!
//! Functions are measured from the line of `fn` to their closing brace, comments and tests included. So a test that
//! outgrows a page is refused like any other function.

use crate::source::{Source, Token};

const FILE_LINES_MAX: usize = 1500;
const FUNCTION_LINES_MAX: usize = 70;
/// The shortest header that can describe a file.
const HEADER_BYTES_MIN: usize = 35;

/// Returns the faults of one Rust file.
pub fn findings(source: &Source) -> Vec<String> {
    let tokens = source.tokens();
    let mut findings = Vec::new();
    let mut add = |line: usize, what: String| {
        findings.push(format!("{}:{line}: {what}", source.path));
    };
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        add(
            lines,
            format!("{lines} lines, the most is {FILE_LINES_MAX}"),
        );
    }
    if source.header().len() < HEADER_BYTES_MIN {
        add(1, "no `//!` header that says what the file is".to_string());
    }
    for (line, text) in source.text.lines().enumerate() {
        if !text.is_ascii() {
            add(line + 1, "not ASCII; write \\u{...}".to_string());
        }
    }
    for (name, line, length) in functions(&tokens) {
        if length > FUNCTION_LINES_MAX {
            add(
                line,
                format!("fn {name}: {length} lines, the most is {FUNCTION_LINES_MAX}"),
            );
        }
    }
    for (line, what) in words(source, &tokens) {
        add(line, what);
    }
    for (line, name) in misnamed_tests(&tokens) {
        let what = format!("mod {name}: a file that is only tests is `{name}_test`, or `testing`");
        add(line, what);
    }
    if let Some((line, what)) = unsafety(source, &tokens) {
        add(line, what);
    }
    findings
}

/// Returns name, first line and lines of each function with a body.
fn functions<'a>(tokens: &[Token<'a>]) -> Vec<(&'a str, usize, usize)> {
    let mut found = Vec::new();
    for (at, pair) in tokens.windows(2).enumerate() {
        // `fn(` is a type.
        if pair[0].text == "fn" && pair[1].text != "(" {
            let end = body_end(&tokens[at..]);
            let lines = end.map(|end| end.line + 1 - pair[0].line);
            found.extend(lines.map(|lines| (pair[1].text, pair[0].line, lines)));
        }
    }
    found
}

/// Returns the closing brace of the function that `tokens` starts with, if it has a body.
fn body_end<'a>(tokens: &[Token<'a>]) -> Option<Token<'a>> {
    let (mut brackets, mut braces) = (0, 0);
    for token in tokens {
        match token.text {
            "(" | "[" => brackets += 1,
            ")" | "]" => brackets -= 1,
            ";" if brackets == 0 && braces == 0 => return None,
            "{" => braces += 1,
            "}" => {
                braces -= 1;
                if braces == 0 && brackets == 0 {
                    return Some(*token);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the uses of words that are refused everywhere, and of words that are refused in tests.
fn words(source: &Source, tokens: &[Token]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_tests = source.path.contains("/tests/") || source.path.ends_with("_test.rs");
    // The laboratory's files are its own.
    let is_product = !in_tests && !source.path.starts_with("crates/breakeven-lab/");
    let is_example = source.path.contains("/examples/");
    let mut prints_names = is_product;
    for (at, token) in tokens.iter().enumerate() {
        let next = |ahead: usize| tokens.get(at + ahead).map_or("", |token| token.text);
        match token.text {
            "todo" | "unimplemented" | "dbg" if next(1) == "!" => {
                found.push((token.line, format!("{}! is not finished code", token.text)));
            }
            "ignore" if at > 0 && tokens[at - 1].text == "[" => {
                found.push((token.line, "an ignored test proves nothing".to_string()));
            }
            "cfg" if next(2) == "test" => in_tests = true,
            "tests" if at > 0 && tokens[at - 1].text == "mod" => prints_names = false,
            "display" if prints_names && at > 0 && tokens[at - 1].text == "." => {
                let what = "a name that was not quoted may hold line feeds and commands";
                found.push((token.line, what.to_string()));
            }
            "spawn"
                if is_product
                    && !in_tests
                    && !is_example
                    && panics_without_threads(&tokens[..at]) =>
            {
                let what =
                    "it panics where the system starts no thread; `thread::Builder` does not";
                found.push((token.line, what.to_string()));
            }
            "sleep" if in_tests && next(1) == "(" => {
                found.push((
                    token.line,
                    "a test that sleeps is slow or flaky".to_string(),
                ));
            }
            _ => {}
        }
    }
    found
}

/// Says whether `spawn` behind these tokens is the function of a scope or of `std::thread`.
fn panics_without_threads(before: &[Token]) -> bool {
    let texts: Vec<&str> = before
        .iter()
        .rev()
        .take(2)
        .map(|token| token.text)
        .collect();
    matches!(texts[..], [".", "scope"] | ["::", "thread"])
}

/// Returns line and name of each module file that is only built for tests without saying so in its name.
fn misnamed_tests<'a>(tokens: &[Token<'a>]) -> Vec<(usize, &'a str)> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let is_for_tests = |at: &usize| {
        let first = at + if text(at + 2) == "all" { 4 } else { 2 };
        text(*at) == "cfg" && text(first) == "test"
    };
    let ends = |text: &str| matches!(text, ";" | "{");
    let items = (0..tokens.len()).filter(is_for_tests).filter_map(|at| {
        let end = at + tokens[at..].iter().position(|it| ends(it.text))?;
        (text(end) == ";" && text(end - 2) == "mod").then(|| tokens[end - 1])
    });
    items
        .filter(|name| !name.text.ends_with("_test") && name.text != "testing")
        .map(|name| (name.line, name.text))
        .collect()
}

/// Returns the first unsafe code in a file whose header does not announce it, or that has fewer safety comments than
/// unsafe blocks. Clippy matches each comment to its block.
fn unsafety(source: &Source, tokens: &[Token]) -> Option<(usize, String)> {
    let first = tokens.iter().find(|token| token.text == "unsafe")?;
    if !source.header().contains("unsafe") {
        return Some((
            first.line,
            "unsafe in a file whose header does not say so".to_string(),
        ));
    }
    let blocks = tokens
        .windows(2)
        .filter(|pair| pair[0].text == "unsafe" && matches!(pair[1].text, "{" | "impl"))
        .count();
    let comments = source.text.matches("SAFETY:").count();
    (comments < blocks).then(|| {
        let what = format!("{blocks} unsafe blocks, {comments} `// SAFETY:` comments");
        (first.line, what)
    })
}

const HEADER: &str = "//! A made-up file that the lints are tried on.\n";

/// Checks a snippet below a good header, so that it starts in line 2.
fn check(text: &str, expected: &[&str]) {
    let source = Source::new("crates/a/src/a.rs", &format!("{HEADER}{text}"));
    check_source(&source, expected);
}

fn check_source(source: &Source, expected: &[&str]) {
    let found = findings(source);
    assert_eq!(found.len(), expected.len(), "{}: {found:?}", source.text);
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{}: {found}", source.text);
    }
}

#[test]
fn headers_and_letters() {
    check("", &[]);
    check_source(
        &Source::new("a.rs", "fn main() {}\n"),
        &["a.rs:1: no `//!` header"],
    );
    check_source(
        &Source::new("a.rs", "//! Does many things.\n"),
        &["a.rs:1: no `//!` header"],
    );
    check("// \u{b5}s\n", &["a.rs:2: not ASCII"]);
}

#[test]
fn long_files_are_refused() {
    check(&"\n".repeat(FILE_LINES_MAX - 1), &[]);
    check(&"\n".repeat(FILE_LINES_MAX), &["1501 lines"]);
}

#[test]
fn long_functions_are_refused() {
    let body = |lines: usize| format!("fn f() -> [u8; 1] {{{}}}\n", "\n".repeat(lines - 1));
    check(&body(FUNCTION_LINES_MAX), &[]);
    check(&body(FUNCTION_LINES_MAX + 1), &["a.rs:2: fn f: 71 lines"]);
    // Braces in literals and comments end nothing, a declaration or a type has no length.
    let hidden = format!("fn g() {{ \"}}\"; /* }} */ '}}'; {}}}\n", "\n".repeat(70));
    check(&hidden, &["fn g: 71 lines"]);
    check(&format!("trait T {{ fn f(); {} }}", "\n".repeat(80)), &[]);
    check(
        &format!("static F: [fn(); 1] = {{ {} [f] }};", "\n".repeat(80)),
        &[],
    );
    check(
        &format!("impl T {{ {} fn f() {{}} }}", "\n".repeat(80)),
        &[],
    );
}

#[test]
fn unfinished_code_and_lame_tests_are_refused() {
    check("fn f() { todo!() }", &["todo!"]);
    check(
        "fn f() { dbg!(1); unimplemented!() }",
        &["dbg!", "unimplemented!"],
    );
    check("// todo!\nfn todo() {}", &[]);
    check(
        "#[test]\n#[ignore = \"slow\"]\nfn f() {}",
        &["a.rs:3: an ignored test"],
    );
    check("fn wait() { sleep(TICK) }\n#[cfg(test)]\nmod tests {}", &[]);
    check(
        "#[cfg(test)]\nmod tests { fn f() { thread::sleep(TICK) } }",
        &["a.rs:3: a test that"],
    );
    check_source(
        &Source::new("a_test.rs", &format!("{HEADER}fn wait() {{ sleep(TICK) }}")),
        &["a_test.rs:2: a test that"],
    );
}

#[test]
fn threads_that_the_system_refuses_are_no_panic() {
    check(
        "fn f() { std::thread::spawn(work) }",
        &["a.rs:2: it panics"],
    );
    check("fn f() { scope.spawn(work) }", &["a.rs:2: it panics"]);
    check("fn f() { Builder::new().spawn(work) }", &[]);
    check("fn f() { Command::new(NAME).spawn() }", &[]);
    check(
        "fn f() {}\n#[cfg(test)]\nmod tests { fn f() { scope.spawn(work) } }",
        &[],
    );
}

#[test]
fn names_are_quoted() {
    check("fn f() { g(path.display()) }", &["a name that was not"]);
    check("fn f() {}\nmod tests { fn f() { g(path.display()) } }", &[]);
}

#[test]
fn files_that_are_only_tests_are_named_so() {
    check("#[cfg(test)]\nmod proof;", &["a.rs:3: mod proof: a file"]);
    check(
        "#[cfg(all(test, feature = \"a\"))]\n#[doc(hidden)]\npub(crate) mod watched;",
        &["a.rs:4: mod watched"],
    );
    check(
        "#[cfg(test)]\nmod proof_test;\n#[cfg(test)]\npub mod testing;",
        &[],
    );
    // Not a file of its own, not for tests alone, not a module.
    check("#[cfg(test)]\nmod tests { mod a; }\nmod b;", &[]);
    check(
        "#[cfg(any(test, feature = \"proof\"))]\npub mod proof;",
        &[],
    );
    check("#[cfg(test)]\nuse a::b;\nmod c;", &[]);
}

#[test]
fn unannounced_unsafe_is_refused() {
    let announced = |text: &str, expected: &[&str]| {
        let header = "//! Slabs of mapped memory; unsafe, because maps are.\n";
        check_source(&Source::new("a.rs", &format!("{header}{text}")), expected);
    };
    check(
        "// SAFETY: none.\nfn f() { unsafe { g() } }",
        &["a.rs:3: unsafe in a file"],
    );
    check("#![deny(unsafe_code)] // no unsafe here", &[]);
    announced("// SAFETY: none.\nfn f() { unsafe { g() } }", &[]);
    announced("fn f() { unsafe { g() } }", &["1 unsafe blocks, 0"]);
    announced(
        "// SAFETY: none.\nunsafe impl Send for A {}\nunsafe impl Sync for A {}",
        &["2 unsafe"],
    );
}
