//! FSST: a fixed table of up to 255 symbols of 1 to 8 bytes, each written as one byte (Boncz, Neumann and Leis 2020).
//!
//! [`Symbols::train`] finds the table with the crate of FSST's Rust maintainers. Encoding and decoding are here. That
//! crate's encoder takes 165 KB for each table, this one 5, and each class of values has a table. Code 255 stands
//! before a byte without a symbol.
//!
//! This form is only for values in this process's memory: no medium has these codes, and no text names the method.

use super::Codec;
use super::method::Method;
use crate::error::{Error, Result};

/// Stands before a literal byte.
const ESCAPE: u8 = 255;
const SYMBOL_BYTES_MAX: usize = 8;

/// The method of values that are encoded by a table of symbols.
pub const FSST: Method = Method::of(Codec::Fsst);

#[derive(Clone, Copy, Debug)]
struct Symbol {
    /// Its bytes, the lowest first, followed by zeros.
    bytes: u64,
    length: u8,
}

impl Symbol {
    fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * u32::from(self.length))
    }
}

/// A table of symbols.
#[derive(Debug)]
pub struct Symbols {
    /// By code.
    symbols: Vec<Symbol>,
    /// Codes by the first byte of their symbols, longer ones first.
    order: Vec<u8>,
    /// The start of each first byte's codes in the order.
    starts: [u8; 257],
}

impl Symbols {
    /// Finds the symbols of samples; `None` where there are none.
    pub fn train(samples: &[&[u8]]) -> Option<Symbols> {
        let trained = fsst::Compressor::train(&samples.to_vec());
        let lengths = trained.symbol_lengths().iter();
        let symbols = trained.symbol_table().iter().zip(lengths);
        let symbols: Vec<Symbol> = symbols
            .take(trained.n_symbols().min(ESCAPE.into()))
            .map(|(symbol, length)| Symbol {
                bytes: symbol.to_u64(),
                length: *length,
            })
            .collect();
        (!symbols.is_empty()).then(|| Symbols::of(symbols))
    }

    fn of(symbols: Vec<Symbol>) -> Symbols {
        let first = |code: u8| symbols[usize::from(code)].bytes as u8;
        let length = |code: u8| symbols[usize::from(code)].length;
        assert!(symbols.len() <= ESCAPE.into(), "{} symbols", symbols.len());
        let fits = |symbol: &Symbol| (1..=SYMBOL_BYTES_MAX).contains(&symbol.length.into());
        assert!(symbols.iter().all(fits), "symbols of 1 to 8 bytes");
        let mut order: Vec<u8> = (0..symbols.len() as u8).collect();
        order.sort_by_key(|code| (first(*code), std::cmp::Reverse(length(*code))));
        let mut starts = [0; 257];
        for (byte, start) in starts.iter_mut().enumerate() {
            let before = |code: &u8| usize::from(first(*code)) < byte;
            *start = order.partition_point(before) as u8;
        }
        Symbols {
            symbols,
            order,
            starts,
        }
    }

    /// Returns the memory it takes.
    pub fn memory_bytes(&self) -> usize {
        self.symbols.len() * size_of::<Symbol>() + self.order.len() + size_of::<Symbols>()
    }

    /// Encodes a value and returns the stored length, or `None` if it does not fit in `target`.
    pub fn encode(&self, source: &[u8], target: &mut [u8]) -> Option<usize> {
        let (mut at, mut size) = (0, 0);
        while let Some(first) = source.get(at) {
            let left = &source[at..];
            let word = match left.first_chunk() {
                Some(bytes) => u64::from_le_bytes(*bytes),
                None => {
                    let mut bytes = [0; SYMBOL_BYTES_MAX];
                    bytes[..left.len()].copy_from_slice(left);
                    u64::from_le_bytes(bytes)
                }
            };
            let [from, to] = [0, 1].map(|more| self.starts[usize::from(*first) + more].into());
            let codes: &[u8] = &self.order[from..to];
            let found = codes.iter().find_map(|code| {
                let symbol = self.symbols[usize::from(*code)];
                let is_it = (word ^ symbol.bytes) & symbol.mask() == 0;
                (is_it && usize::from(symbol.length) <= left.len())
                    .then_some((*code, usize::from(symbol.length)))
            });
            match found {
                Some((code, length)) => {
                    *target.get_mut(size)? = code;
                    (at, size) = (at + length, size + 1);
                }
                None => {
                    let room = target.get_mut(size..size + 2)?;
                    room.copy_from_slice(&[ESCAPE, *first]);
                    (at, size) = (at + 1, size + 2);
                }
            }
        }
        Some(size)
    }

    /// Decodes a value into `target`, whose length is the value's.
    ///
    /// # Errors
    /// `Corrupt` if the codes are not a value of that length.
    pub fn decode(&self, source: &[u8], target: &mut [u8]) -> Result<()> {
        let wanted = target.len();
        let wrong = |found: usize| {
            let expected = format!("codes of {wanted} bytes");
            Error::corrupt("value", 0, expected, format!("others, behind {found}"))
        };
        let mut at = 0;
        let mut codes = source.iter();
        while let Some(code) = codes.next() {
            if *code == ESCAPE {
                let (Some(byte), true) = (codes.next(), at < wanted) else {
                    return Err(wrong(at));
                };
                target[at] = *byte;
                at += 1;
                continue;
            }
            let Some(symbol) = self.symbols.get(usize::from(*code)) else {
                return Err(wrong(at));
            };
            let (bytes, length) = (symbol.bytes.to_le_bytes(), usize::from(symbol.length));
            // All eight where there is room, which is one instruction; the next symbol overwrites the rest.
            if let Some(room) = target.get_mut(at..at + SYMBOL_BYTES_MAX) {
                room.copy_from_slice(&bytes);
            } else if let Some(room) = target.get_mut(at..at + length) {
                room.copy_from_slice(&bytes[..length]);
            } else {
                return Err(wrong(at));
            }
            at += length;
        }
        match at == wanted {
            true => Ok(()),
            false => Err(wrong(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize, seed: u64) -> Vec<Vec<u8>> {
        let mut random = crate::testing::seeded("symbols", seed);
        let words = [
            "furiously ",
            "regular ",
            "deposits ",
            "sleep ",
            "quickly ",
            "among ",
        ];
        (0..count)
            .map(|_| {
                let words = (0..random.usize(1..6)).map(|_| words[random.usize(..words.len())]);
                words.collect::<String>().into_bytes()
            })
            .collect()
    }

    fn trained() -> Symbols {
        let rows = rows(2000, 1);
        let samples: Vec<&[u8]> = rows.iter().map(|row| &row[..]).collect();
        Symbols::train(&samples).unwrap()
    }

    #[test]
    fn values_come_back_and_those_alike_are_short() {
        let symbols = trained();
        assert!(
            symbols.memory_bytes() < 6 << 10,
            "{}",
            symbols.memory_bytes()
        );
        let check = |value: &[u8], most: usize| {
            let mut stored = vec![0; 2 * value.len()];
            let size = symbols.encode(value, &mut stored).unwrap();
            assert!(size <= most, "{size} of {}", value.escape_ascii());
            let mut back = vec![1; value.len()];
            symbols.decode(&stored[..size], &mut back).unwrap();
            assert_eq!(back, value);
            // A target one byte short is too short, and so is a length one less or one more.
            assert_eq!(
                symbols
                    .encode(value, &mut stored[..size.saturating_sub(1)])
                    .is_none(),
                size > 0
            );
            assert!(
                symbols
                    .decode(&stored[..size], &mut vec![0; value.len() + 1])
                    .is_err()
            );
            if let Some(less) = value.len().checked_sub(1) {
                assert!(symbols.decode(&stored[..size], &mut vec![0; less]).is_err());
            }
        };
        for row in rows(500, 2) {
            check(&row, row.len() / 2);
        }
        check(b"", 0);
        let mut random = crate::testing::seeded("symbols", 3);
        for length in 1..100 {
            let noise: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            check(&noise, 2 * length);
        }
    }

    #[test]
    fn no_codes_panic() {
        let symbols = trained();
        let mut random = crate::testing::seeded("symbols", 4);
        for _ in 0..20_000 {
            let codes: Vec<u8> = (0..random.usize(..20)).map(|_| random.u8(..)).collect();
            let _ = symbols.decode(&codes, &mut vec![0; random.usize(..80)]);
        }
        assert!(symbols.decode(&[ESCAPE], &mut [0; 1]).is_err());
    }
}
