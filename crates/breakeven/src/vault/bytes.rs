//! Numbers and texts in the bytes of a vault: varints, and a reader that bounds every length.

use std::fmt;

use crate::error::{Error, Result};

use super::cipher::Id;

/// Reports bytes of a vault that differ from the written ones.
pub(super) fn fail(
    what: &'static str,
    offset: u64,
    expected: impl fmt::Display,
    found: impl fmt::Display,
) -> Error {
    Error::corrupt(what, offset, expected, found)
}

/// Appends a number as LEB128.
pub(super) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Appends a signed number: small ones of either sign are short.
pub(super) fn put_signed(bytes: &mut Vec<u8>, number: i64) {
    put_number(bytes, (number << 1 ^ number >> 63) as u64);
}

/// Appends bytes behind their length.
pub(super) fn put_bytes(bytes: &mut Vec<u8>, content: &[u8]) {
    put_number(bytes, content.len() as u64);
    bytes.extend_from_slice(content);
}

/// Reads stored fields; every length is bounded by the bytes that are there.
pub(super) struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(what: &'static str, bytes: &'a [u8]) -> Reader<'a> {
        Reader { what, bytes, at: 0 }
    }

    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// Reports a fault at the present place.
    pub(super) fn wrong(&self, expected: impl fmt::Display, found: impl fmt::Display) -> Error {
        fail(self.what, self.at as u64, expected, found)
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        if count > self.left() {
            return Err(self.wrong(format_args!("{count} bytes"), self.left()));
        }
        let taken = &self.bytes[self.at..][..count];
        self.at += count;
        Ok(taken)
    }

    pub(super) fn array<const COUNT: usize>(&mut self) -> Result<[u8; COUNT]> {
        let taken = self.take(COUNT)?;
        Ok(taken.try_into().expect("as many as were taken"))
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn id(&mut self) -> Result<Id> {
        Ok(Id(self.array()?))
    }

    pub(super) fn number(&mut self) -> Result<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7F);
            if part << shift >> shift != part {
                break;
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(self.wrong("a number of 64 bits", "a longer one"))
    }

    /// Reads a number that may be at most `most`.
    pub(super) fn number_to(&mut self, most: u64) -> Result<u64> {
        let number = self.number()?;
        match number <= most {
            true => Ok(number),
            false => Err(self.wrong(format_args!("at most {most}"), number)),
        }
    }

    /// Reads the count of the items that follow; each takes at least `least_bytes`.
    pub(super) fn count(&mut self, least_bytes: usize) -> Result<usize> {
        let most = self.left() / least_bytes;
        Ok(self.number_to(most as u64)? as usize)
    }

    pub(super) fn signed(&mut self) -> Result<i64> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.count(1)?;
        self.take(length)
    }

    pub(super) fn text(&mut self) -> Result<String> {
        let bytes = self.bytes()?;
        let text = std::str::from_utf8(bytes);
        let text = text.map_err(|error| self.wrong("text in UTF-8", error))?;
        Ok(text.to_string())
    }

    /// Checks that nothing is left.
    pub(super) fn end(self) -> Result<()> {
        match self.is_empty() {
            true => Ok(()),
            false => Err(self.wrong("the end", format_args!("{} bytes more", self.left()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, 127, 128, 300, u64::MAX / 2, u64::MAX] {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            put_signed(&mut bytes, number as i64);
            let mut reader = Reader::new("test", &bytes);
            assert_eq!(reader.number().unwrap(), number);
            assert_eq!(reader.signed().unwrap(), number as i64);
            reader.end().unwrap();
        }
    }

    #[test]
    fn lengths_are_bounded_by_what_is_there() {
        let check = |bytes: &[u8]| {
            assert!(Reader::new("test", bytes).bytes().is_err(), "{bytes:?}");
        };
        check(&[]);
        check(&[2, 0]);
        check(&[0xFF; 9]);
        check(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]);
        check(&[0x80; 11]);
    }
}
