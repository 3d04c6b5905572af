//! The names of a disk's volumes, as notes of the store: each volume's name, and whether it may be written.

use crate::error::{Error, Result};

/// The key of the note that says that the store is a disk's; no volume has this number.
pub(super) const KEY_DISK: u32 = u32::MAX;
/// The beginning of that note: the format, and its version.
pub(super) const MARK: &[u8] = b"disk\x01";
/// The most bytes of a name. All names of a disk, with 9 bytes more for each, are at most 2 MiB.
pub const NAME_BYTES_MAX: usize = 128;

/// Nobody may write it.
const READ_ONLY: u8 = 1;
/// Two things follow: the count of bytes in the last block that are not the volume's, and then the name.
const UNUSED: u8 = 2;

/// The content of a volume's note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Title {
    pub(super) name: String,
    pub(super) is_read_only: bool,
    /// The bytes of the last block behind the volume's end.
    pub(super) unused_bytes: u32,
}

impl Title {
    /// Returns the title, if others can use the name in addresses and on command lines.
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
            unused_bytes: 0,
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![if self.is_read_only { READ_ONLY } else { 0 }];
        if self.unused_bytes > 0 {
            bytes[0] |= UNUSED;
            bytes.extend_from_slice(&self.unused_bytes.to_le_bytes());
        }
        bytes.extend_from_slice(self.name.as_bytes());
        bytes
    }

    /// Returns flags, unused bytes and name.
    fn fields(bytes: &[u8]) -> Option<(u8, u32, &[u8])> {
        let (flags, rest) = bytes.split_first()?;
        if flags & UNUSED == 0 {
            return Some((*flags, 0, rest));
        }
        let (unused, name) = rest.split_first_chunk()?;
        Some((*flags, u32::from_le_bytes(*unused), name))
    }

    /// Returns whether an encoded title has this name.
    pub(super) fn is_of(bytes: &[u8], name: &str) -> bool {
        Title::fields(bytes).is_some_and(|(.., found)| found == name.as_bytes())
    }

    /// Reads the title of a volume whose blocks have this length.
    pub(super) fn decode(volume: u32, block_bytes: u32, bytes: &[u8]) -> Result<Title> {
        let title = Title::fields(bytes).and_then(|(flags, unused_bytes, name)| {
            let name = std::str::from_utf8(name).ok()?;
            let mut title = Title::new(name, flags & READ_ONLY != 0).ok()?;
            title.unused_bytes = unused_bytes;
            let is_sound = flags <= READ_ONLY | UNUSED
                && unused_bytes < block_bytes
                && (flags & UNUSED != 0) == (unused_bytes > 0);
            is_sound.then_some(title)
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
        for (name, is_read_only, unused_bytes) in
            [("disk", false, 0), ("before-upgrade@2.1", true, 4095)]
        {
            let mut title = Title::new(name, is_read_only).unwrap();
            title.unused_bytes = unused_bytes;
            assert_eq!(Title::decode(0, 4096, &title.encode()).unwrap(), title);
            assert!(Title::is_of(&title.encode(), name));
        }
        let long = "n".repeat(NAME_BYTES_MAX + 1);
        for name in ["", "a b", "a/b", "a\n", "\u{e4}", &long] {
            assert!(Title::new(name, false).is_err(), "{name}");
        }
        let others = [
            &b""[..],
            b"\0",
            b"\x04disk",
            b"\0\xff",
            b"\0a/b",
            b"\x02disk",
            b"\x02\0\0\0\0disk",
            b"\x02\0\x10\0\0disk",
        ];
        for bytes in others {
            assert!(Title::decode(0, 4096, bytes).is_err(), "{bytes:?}");
        }
    }
}
