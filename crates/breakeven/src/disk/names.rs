//! The names of a disk's volumes, as notes of the store: which volume is which, and who may write it.

use crate::error::{Error, Result};

/// The key of the note that says that the store is a disk's; no volume has this number.
pub(super) const KEY_DISK: u32 = u32::MAX;
/// What that note says: the format, and its version.
pub(super) const MARK: &[u8] = b"disk\x01";
/// The most bytes of a name. All names of a disk, with 9 bytes more for each, are at most 2 MiB.
pub const NAME_BYTES_MAX: usize = 128;

const READ_ONLY: u8 = 1;

/// What the note of a volume says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Title {
    pub(super) name: String,
    pub(super) is_read_only: bool,
}

impl Title {
    /// Returns the title, if others can use the name: it stands in addresses and on command lines.
    pub(super) fn new(name: &str, is_read_only: bool) -> Result<Title> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(is_plain) {
            let reason = format!(
                "'{}': expected 1 to {NAME_BYTES_MAX} letters, digits or any of - _ . : @",
                name.escape_default()
            );
            return Err(Error::invalid("name of a volume", reason));
        }
        Ok(Title {
            name: name.to_string(),
            is_read_only,
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![if self.is_read_only { READ_ONLY } else { 0 }];
        bytes.extend_from_slice(self.name.as_bytes());
        bytes
    }

    /// Returns whether an encoded title has this name.
    pub(super) fn is_of(bytes: &[u8], name: &str) -> bool {
        bytes
            .split_first()
            .is_some_and(|(_, found)| found == name.as_bytes())
    }

    pub(super) fn decode(volume: u32, bytes: &[u8]) -> Result<Title> {
        let title = bytes.split_first().and_then(|(flags, name)| {
            let name = std::str::from_utf8(name).ok()?;
            let title = Title::new(name, *flags == READ_ONLY).ok()?;
            (*flags <= READ_ONLY).then_some(title)
        });
        title.ok_or_else(|| {
            let found = format!("{} other bytes", bytes.len());
            Error::corrupt("disk", volume.into(), "the name of a volume", found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_read_as_they_are_written_or_refused() {
        for (name, is_read_only) in [("disk", false), ("before-upgrade@2.1", true)] {
            let title = Title::new(name, is_read_only).unwrap();
            assert_eq!(Title::decode(0, &title.encode()).unwrap(), title);
        }
        let long = "n".repeat(NAME_BYTES_MAX + 1);
        for name in ["", "a b", "a/b", "a\n", "\u{e4}", &long] {
            assert!(Title::new(name, false).is_err(), "{name}");
        }
        for bytes in [&b""[..], b"\0", b"\x02disk", b"\0\xff", b"\0a/b"] {
            assert!(Title::decode(0, bytes).is_err(), "{bytes:?}");
        }
    }
}
