//! The other side of the conversation: replies found in bytes, and a connection that waits for them.
//!
//! [`reply`] takes one reply from the beginning of the received bytes, over any transport. [`Client`] is a blocking
//! connection on top. Both read any memcached's answers, in the text and the meta protocol.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use crate::stream::Stream;

/// The longest line of a reply: one with the longest key and all that the meta protocol adds, many times over.
const LINE_BYTES_MAX: usize = 1 << 16;
/// The longest value that is believed.
const VALUE_BYTES_MAX: usize = 1 << 30;
/// Bytes that one call reads.
const READ_BYTES: usize = 64 << 10;

/// A reply: its line without the end, and the value behind it, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The line.
    pub line: &'a [u8],
    /// The value of a line that begins with `VALUE` or `VA`.
    pub value: Option<&'a [u8]>,
}

impl<'a> Reply<'a> {
    /// Returns a word of the line; an empty one behind the last.
    pub fn word(&self, number: usize) -> &'a [u8] {
        let mut words = self.line.split(|byte| *byte == b' ');
        words.nth(number).unwrap_or_default()
    }
}

/// Takes the reply at the beginning of the input, with the bytes that it takes; `None` if it has not come whole.
///
/// # Errors
/// `InvalidData` if it can be no reply.
pub fn reply(input: &[u8]) -> io::Result<Option<(Reply<'_>, usize)>> {
    let Some(end) = memchr::memchr(b'\n', input) else {
        return match input.len() > LINE_BYTES_MAX {
            true => Err(no_reply("a line without an end", input)),
            false => Ok(None),
        };
    };
    // Lists of keys have lines that end otherwise.
    let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
    let mut found = Reply { line, value: None };
    let length = if line.starts_with(b"VALUE ") {
        found.word(3)
    } else if line.starts_with(b"VA ") {
        found.word(1)
    } else {
        return Ok(Some((found, end + 1)));
    };
    let bytes = number(length).filter(|bytes| *bytes <= VALUE_BYTES_MAX as u64);
    let bytes = bytes.ok_or_else(|| no_reply("no length", line))? as usize;
    let Some(block) = input.get(end + 1..end + 1 + bytes + 2) else {
        return Ok(None);
    };
    let value = block.strip_suffix(b"\r\n");
    found.value = Some(value.ok_or_else(|| no_reply("a value of another length", line))?);
    Ok(Some((found, end + 1 + bytes + 2)))
}

/// Reads a number of digits alone.
pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

fn no_reply(what: &str, bytes: &[u8]) -> io::Error {
    let shown = bytes[..bytes.len().min(80)].escape_ascii();
    io::Error::new(io::ErrorKind::InvalidData, format!("{what}: {shown}"))
}

/// A connection that waits for its replies.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    /// The received bytes; up to `start` they were taken.
    input: Vec<u8>,
    start: usize,
}

impl Client {
    /// Connects; [`Stream::connect`] describes the address.
    ///
    /// # Errors
    /// If nobody listens there.
    pub fn connect(address: &str) -> io::Result<Client> {
        Ok(Client {
            stream: Stream::connect(address)?,
            input: Vec::new(),
            start: 0,
        })
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sent = self.stream.write_all(bytes);
        // The error of a pipe closed by its reader is here a server that went away.
        sent.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => io::ErrorKind::ConnectionReset.into(),
            _ => error,
        })
    }

    /// Waits for the next reply and hands it to a function.
    ///
    /// # Errors
    /// Those of the socket; `UnexpectedEof` if the server closes it; `InvalidData` if it is no reply.
    pub fn reply<R>(&mut self, look: impl FnOnce(Reply<'_>) -> R) -> io::Result<R> {
        loop {
            if let Some((found, taken)) = reply(&self.input[self.start..])? {
                let result = look(found);
                self.start += taken;
                return Ok(result);
            }
            self.input.drain(..self.start);
            self.start = 0;
            let held = self.input.len();
            self.input.resize(held + READ_BYTES, 0);
            let read = self.stream.read(&mut self.input[held..]);
            self.input
                .truncate(held + read.as_ref().copied().unwrap_or(0));
            if read? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Waits for a reply of one line and returns it.
    ///
    /// # Errors
    /// As [`Client::reply`].
    pub fn line(&mut self) -> io::Result<String> {
        self.reply(|found| String::from_utf8_lossy(found.line).into_owned())
    }

    /// Stores values with one request each, sent together, and waits until all are stored.
    ///
    /// # Errors
    /// As [`Client::reply`]; `Other` with the server's words if a value was not stored.
    pub fn store<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        items: impl Iterator<Item = (K, V)>,
    ) -> io::Result<usize> {
        let mut request = Vec::new();
        let mut count = 0;
        for (key, value) in items {
            push_set(&mut request, key.as_ref(), value.as_ref());
            count += 1;
        }
        self.send(&request)?;
        for _ in 0..count {
            let stored = self.reply(|found| match found.line {
                b"STORED" => Ok(()),
                other => Err(io::Error::other(format!(
                    "not stored: {}",
                    other.escape_ascii()
                ))),
            })?;
            stored?;
        }
        Ok(count)
    }

    /// Asks for `stats` with an argument, or with none where it is empty.
    ///
    /// # Errors
    /// As [`Client::reply`].
    pub fn stats(&mut self, argument: &str) -> io::Result<BTreeMap<String, String>> {
        self.send(format!("stats {argument}").trim_end().as_bytes())?;
        self.send(b"\r\n")?;
        let mut stats = BTreeMap::new();
        loop {
            let line = self.line()?;
            let mut words = line.splitn(3, ' ');
            match (words.next(), words.next(), words.next()) {
                (Some("STAT"), Some(name), value) => {
                    stats.insert(name.to_string(), value.unwrap_or_default().to_string());
                }
                (Some("END"), None, None) => return Ok(stats),
                _ => return Err(no_reply("no statistics", line.as_bytes())),
            }
        }
    }
}

/// Adds a `set` of a value that never ends to a request.
pub fn push_set(request: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    request.extend_from_slice(b"set ");
    request.extend_from_slice(key);
    request.extend_from_slice(b" 0 0 ");
    crate::number::push(request, value.len());
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(value);
    request.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_taken_once_they_are_whole() {
        let check = |input: &str, expected: Option<(&str, Option<&str>)>| {
            let expected = expected.map(|(line, value)| Reply {
                line: line.as_bytes(),
                value: value.map(str::as_bytes),
            });
            let found = reply(input.as_bytes()).unwrap();
            assert_eq!(found.map(|it| it.0), expected, "{input:?}");
            if let Some((_, taken)) = found {
                assert_eq!(taken, input.trim_end_matches('+').len());
                for end in 0..taken {
                    assert_eq!(
                        reply(&input.as_bytes()[..end]).unwrap(),
                        None,
                        "{end} of {input:?}"
                    );
                }
            }
        };
        check("END\r\n++", Some(("END", None)));
        check("key=a\n++", Some(("key=a", None)));
        check(
            "VALUE k 0 5\r\na\r\nbc\r\n++",
            Some(("VALUE k 0 5", Some("a\r\nbc"))),
        );
        check("VALUE k 0 0 17\r\n\r\n", Some(("VALUE k 0 0 17", Some(""))));
        check("VA 2 kx\r\nhi\r\n", Some(("VA 2 kx", Some("hi"))));
        check("VALUEX 1\r\n", Some(("VALUEX 1", None)));
        for wrong in [
            "VALUE k 0 x\r\n",
            "VALUE k 0 99999999999\r\n",
            "VA 1\r\nabc\r\n",
        ] {
            assert!(reply(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        assert!(reply(&[b'x'; LINE_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn numbers_are_digits_alone() {
        let check =
            |text: &str, expected: Option<u64>| assert_eq!(number(text.as_bytes()), expected);
        check("120", Some(120));
        check("", None);
        check("-1", None);
        check("18446744073709551616", None);
    }
}
