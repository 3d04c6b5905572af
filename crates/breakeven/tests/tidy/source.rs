//! Rust sources as the lints see them: the tree's files, with comments and literals blanked, and
//! cut into tokens.
//!
//! It knows just enough of the language: nested comments, raw strings, characters against lifetimes. It does not parse,
//! and it sees macro bodies as if they were code.

use std::fs;
use std::path::{Path, PathBuf};

/// One file of the tree.
pub struct Source {
    /// Relative to the workspace, with `/`.
    pub path: String,
    pub text: String,
    /// The text of the same length and lines, in which comments, strings and characters are spaces.
    pub code: String,
}

/// A word, a `::` or one other character of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    pub text: &'a str,
    /// Counted from 1.
    pub line: usize,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Source {
        let (path, text) = (path.to_string(), text.to_string());
        let code = blank_opaque(&text);
        Source { path, text, code }
    }

    /// Returns the leading `//!` lines as one text.
    pub fn header(&self) -> String {
        let lines = self.text.lines();
        let header: Vec<&str> = lines
            .map_while(|line| line.strip_prefix("//!"))
            .map(str::trim)
            .collect();
        header.join(" ")
    }

    pub fn tokens(&self) -> Vec<Token<'_>> {
        let bytes = self.code.as_bytes();
        let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
        while at < bytes.len() {
            let length = match bytes[at] {
                byte if is_word(byte) => bytes[at..].iter().take_while(|b| is_word(**b)).count(),
                b':' if bytes.get(at + 1) == Some(&b':') => 2,
                _ => 1,
            };
            if bytes[at] == b'\n' {
                line += 1;
            } else if bytes[at].is_ascii() && !bytes[at].is_ascii_whitespace() {
                let text = &self.code[at..at + length];
                tokens.push(Token { text, line });
            }
            at += length;
        }
        tokens
    }
}

/// Returns the workspace's folder.
pub fn workspace() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    folder.canonicalize().expect("the workspace's folder")
}

/// Returns every file below the workspace whose relative path `wanted` accepts, sorted. Build results, and hidden
/// folders other than `.ci`, are left out.
pub fn files(wanted: impl Fn(&str) -> bool) -> Vec<(String, PathBuf)> {
    let root = workspace();
    let (mut found, mut folders) = (Vec::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the tree") {
            let path = entry.expect("an entry of the tree").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let relative = path.strip_prefix(&root).expect("below the workspace");
            let relative = relative.to_string_lossy().into_owned();
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                let hidden = name.starts_with('.') && name != ".ci";
                if !hidden && name != "target" {
                    folders.push(path);
                }
            } else if wanted(&relative) {
                found.push((relative, path));
            }
        }
    }
    found.sort();
    found
}

/// Returns every Rust file of the tree.
pub fn rust_sources() -> Vec<Source> {
    let files = files(|path| path.ends_with(".rs"));
    files
        .iter()
        .map(|(relative, path)| {
            let text = fs::read_to_string(path).expect("a source in UTF-8");
            Source::new(relative, &text)
        })
        .collect()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

fn blank_opaque(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut code, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let inside_word = at > 0 && is_word(bytes[at - 1]);
        let length = opaque_length(&bytes[at..], inside_word);
        if length == 0 {
            code.push(bytes[at]);
        }
        for byte in &bytes[at..at + length] {
            code.push(if *byte == b'\n' { b'\n' } else { b' ' });
        }
        at += length.max(1);
    }
    String::from_utf8(code).expect("whole characters were blanked")
}

/// Returns the length of the comment or literal that `bytes` starts with, 0 if it starts with code.
fn opaque_length(bytes: &[u8], inside_word: bool) -> usize {
    match bytes {
        [b'/', b'/', ..] => bytes
            .iter()
            .position(|b| *b == b'\n')
            .unwrap_or(bytes.len()),
        [b'/', b'*', ..] => block_comment_length(bytes),
        [b'"', ..] => quoted_length(bytes, b'"'),
        [b'\'', b'\\', ..] => quoted_length(bytes, b'\''),
        [b'\'', first, ..] => {
            // One character between quotes is a literal; anything else is a lifetime.
            let width = match first {
                0..=0x7f => 1,
                0x80..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xff => 4,
            };
            let closed = bytes.get(1 + width) == Some(&b'\'');
            if closed { 2 + width } else { 0 }
        }
        [b'r' | b'b' | b'c', ..] if !inside_word => raw_string_length(bytes),
        _ => 0,
    }
}

fn block_comment_length(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted_length(bytes: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn raw_string_length(bytes: &[u8]) -> usize {
    let prefix = usize::from(bytes[0] != b'r');
    if bytes.get(prefix) != Some(&b'r') {
        return 0;
    }
    let hashes = bytes[prefix + 1..]
        .iter()
        .take_while(|b| **b == b'#')
        .count();
    let open = prefix + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return 0;
    }
    let mut close = vec![b'#'; hashes + 1];
    close[0] = b'"';
    let body = &bytes[open + 1..];
    let end = body.windows(close.len()).position(|w| w == close);
    end.map_or(bytes.len(), |end| open + 1 + end + close.len())
}

#[test]
fn comments_and_literals_are_blanked() {
    let check = |text: &str, expected: &[&str]| {
        let source = Source::new("a.rs", text);
        assert_eq!(source.code.len(), text.len(), "{text}");
        assert_eq!(source.code.lines().count(), text.lines().count(), "{text}");
        let tokens: Vec<&str> = source.tokens().iter().map(|token| token.text).collect();
        assert_eq!(tokens, expected, "{text}");
    };
    check("a /* { /* } */ { */ b // {\nc", &["a", "b", "c"]);
    check("\"{ \\\" }\" a", &["a"]);
    check(
        "x(r#\"\"{\"#, br\"{\", b\"{\", c\"{\")",
        &["x", "(", ",", ",", "b", ",", "c", ")"],
    );
    check("'{' '\\'' '\\u{7b}' '\u{e9}' a", &["a"]);
    check(
        "fn f<'a>(x: &'a str)",
        &[
            "fn", "f", "<", "'", "a", ">", "(", "x", ":", "&", "'", "a", "str", ")",
        ],
    );
    check(
        "crate::a r#type \"open",
        &["crate", "::", "a", "r", "#", "type"],
    );
    check("\"two\nlines\" b", &["b"]);
}

#[test]
fn tokens_know_their_lines() {
    let source = Source::new("a.rs", "//! Header.\n//!  More.\n\na::b\n");
    assert_eq!(source.header(), "Header. More.");
    let lines: Vec<usize> = source.tokens().iter().map(|token| token.line).collect();
    assert_eq!(lines, [4, 4, 4]);
}
