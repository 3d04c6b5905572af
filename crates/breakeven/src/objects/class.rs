//! Classes of values: the prefix of a key and the length of a value suggest the content.
//!
//! The prefix of a key ends before its first digit or separator. The first [`PREFIXES_MAX`] prefixes are kept apart;
//! all others are one. Clients choose keys, so the number is bounded, and only sizes depend on it.

use std::collections::BTreeMap;

/// Prefixes that are kept apart.
pub(super) const PREFIXES_MAX: usize = 24;
/// The longest values of each band but the last.
const BAND_BYTES: [usize; 5] = [64, 256, 1 << 10, 4 << 10, 16 << 10];
const BANDS: usize = BAND_BYTES.len() + 1;
/// Classes there are.
pub(super) const CLASSES: usize = (PREFIXES_MAX + 1) * BANDS;
/// The longest prefix; a longer one is cut there.
const PREFIX_BYTES_MAX: usize = 32;

/// The separate prefixes, by their numbers. The last number stands for all others.
#[derive(Clone, Debug, Default)]
pub(super) struct Prefixes {
    numbers: BTreeMap<Box<[u8]>, u16>,
}

/// Returns the prefix of a key.
pub(super) fn prefix(key: &[u8]) -> &[u8] {
    let ends = |byte: &u8| byte.is_ascii_digit() || b":/._|-#, ".contains(byte);
    let most = key.len().min(PREFIX_BYTES_MAX);
    let end = key[..most].iter().position(ends).unwrap_or(most);
    &key[..end]
}

fn band(value_bytes: usize) -> usize {
    BAND_BYTES.partition_point(|most| *most < value_bytes)
}

impl Prefixes {
    /// Returns the class of a value; `None` if its prefix is new and there is room to keep it apart.
    pub fn class(&self, key: &[u8], value_bytes: usize) -> Option<u16> {
        let number = match self.numbers.get(prefix(key)) {
            Some(number) => usize::from(*number),
            None if self.numbers.len() < PREFIXES_MAX => return None,
            None => PREFIXES_MAX,
        };
        Some((number * BANDS + band(value_bytes)) as u16)
    }

    /// As [`Prefixes::class`], with a number for a new prefix.
    pub fn class_or_new(&mut self, key: &[u8], value_bytes: usize) -> u16 {
        if let Some(class) = self.class(key, value_bytes) {
            return class;
        }
        let number = self.numbers.len() as u16;
        self.numbers.insert(prefix(key).into(), number);
        self.class(key, value_bytes).expect("it was just numbered")
    }

    /// Returns the name of a class for people: its prefix, and the longest of its values.
    pub fn name(&self, class: u16) -> String {
        let number = usize::from(class) / BANDS;
        let found = self.numbers.iter().find(|it| usize::from(*it.1) == number);
        let prefix = match found {
            Some((prefix, _)) if prefix.is_empty() => "-".to_string(),
            // Keys are any bytes; a name is one word.
            Some((prefix, _)) => prefix.escape_ascii().to_string().replace('=', "\\x3d"),
            None => "*".to_string(),
        };
        match BAND_BYTES.get(usize::from(class) % BANDS) {
            Some(most) => format!("{prefix}/{most}"),
            None => format!("{prefix}/more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_prefix_that_people_see() {
        let check = |key: &str, expected: &str| {
            assert_eq!(prefix(key.as_bytes()), expected.as_bytes(), "{key}");
        };
        check("user:17", "user");
        check("user17", "user");
        check("17", "");
        check("session/abc", "session");
        check("plain", "plain");
        check(&"x".repeat(250), &"x".repeat(32));
    }

    #[test]
    fn classes_are_bounded_whatever_the_keys_are() {
        let mut prefixes = Prefixes::default();
        assert_eq!(prefixes.class(b"user:1", 100), None);
        let first = prefixes.class_or_new(b"user:1", 100);
        assert_eq!(prefixes.class(b"user:2", 256), Some(first));
        assert_ne!(prefixes.class(b"user:2", 257), Some(first));
        assert_eq!(prefixes.name(first), "user/256");
        for number in 0..10_000_u32 {
            let key: String = format!("{number}")
                .bytes()
                .map(|digit| char::from(digit + 49))
                .collect();
            for bytes in [1, 100, 1000, 4000, 16_000, 1 << 20] {
                assert!(usize::from(prefixes.class_or_new(key.as_bytes(), bytes)) < CLASSES);
            }
        }
        assert_eq!(prefixes.numbers.len(), PREFIXES_MAX);
        assert_eq!(prefixes.name(CLASSES as u16 - 1), "*/more");
    }
}
