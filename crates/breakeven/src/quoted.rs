//! Names as they are printed: one line and no more, whatever bytes a name has.
//!
//! Escapes are those of the quoting style `escape` of GNU `ls` and `tar`: `\n`, `\t` and so on, and `\\` for a
//! backslash. Bytes of terminal commands and of invalid UTF-8 are octal: `\033`, `\377`. So no two names look alike,
//! and none forges a line of ours or reaches a terminal. Data for other programs, such as JSON, has names as they are.
#![deny(unsafe_code)]

use std::ffi::OsStr;
use std::fmt::{self, Write};

/// A name that prints as the module says.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(&'a [u8]);

/// Quotes a path or another name of the system's.
pub fn quoted(name: &(impl AsRef<OsStr> + ?Sized)) -> Quoted<'_> {
    Quoted(name.as_ref().as_encoded_bytes())
}

/// Quotes a name that was stored.
pub fn quoted_bytes(name: &[u8]) -> Quoted<'_> {
    Quoted(name)
}

/// Returns a composed text as one line: as [`quoted`], but for backslashes, which names in it have doubled.
pub fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        let _ = write_character(&mut line, character);
    }
    line
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => f.write_str("\\\\")?,
                    character => write_character(f, character)?,
                }
            }
            write_bytes(f, chunk.invalid())?;
        }
        Ok(())
    }
}

fn write_character(out: &mut impl Write, character: char) -> fmt::Result {
    match character {
        '\n' => out.write_str("\\n"),
        '\t' => out.write_str("\\t"),
        '\r' => out.write_str("\\r"),
        character if is_command(character) => {
            write_bytes(out, character.encode_utf8(&mut [0; 4]).as_bytes())
        }
        character => out.write_char(character),
    }
}

/// Whether a terminal does something else than to show it: what controls it, ends a line, or turns the direction of
/// writing.
fn is_command(character: char) -> bool {
    let turns = matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || turns || matches!(character, '\u{2028}' | '\u{2029}')
}

fn write_bytes(out: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    bytes
        .iter()
        .try_for_each(|byte| write!(out, "\\{byte:03o}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_line_and_no_two_look_alike() {
        let check = |name: &[u8], expected: &str| {
            assert_eq!(quoted_bytes(name).to_string(), expected);
        };
        check(b"plain name", "plain name");
        check("gr\u{fc}n \u{6f22}".as_bytes(), "gr\u{fc}n \u{6f22}");
        check(b"a\nb\tc\rd", "a\\nb\\tc\\rd");
        check(b"\x1b]0;title\x07", "\\033]0;title\\007");
        check(b"a\\nb", "a\\\\nb");
        check(b"\xff\xfe.txt", "\\377\\376.txt");
        check("\u{85}\u{202e}".as_bytes(), "\\302\\205\\342\\200\\256");
        assert_eq!(quoted("a\nb").to_string(), "a\\nb");
        assert_eq!(printable("a\\nb\u{1b}\n"), "a\\nb\\033\\n");
    }
}
