//! Database files that state the length of their pages.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The first bytes of a SQLite database.
///
/// Source: the SQLite file format, section 1.3.
const SQLITE: &[u8; 16] = b"SQLite format 3\0";

/// Returns the bytes of a page of a SQLite database; `None` for any other file, or one that cannot be read.
pub fn sqlite_page_bytes(path: &Path) -> Option<usize> {
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut header = [0; 18];
    File::open(path).ok()?.read_exact_at(&mut header, 0).ok()?;
    let (begin, size) = header.split_at(SQLITE.len());
    let bytes = match u16::from_be_bytes(size.try_into().expect("two bytes")) {
        // The one size that does not fit.
        1 => 1 << 16,
        bytes => usize::from(bytes),
    };
    (begin == SQLITE && bytes.is_power_of_two() && bytes >= 512).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_as_long_as_the_header_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("app.db");
        let check = |begin: &[u8], size: [u8; 2], expected: Option<usize>| {
            std::fs::write(&path, [begin, &size, &[0; 82]].concat()).expect("a file");
            assert_eq!(sqlite_page_bytes(&path), expected);
        };
        check(SQLITE, [0x10, 0x00], Some(4096));
        check(SQLITE, [0x00, 0x01], Some(65_536));
        check(SQLITE, [0x02, 0x00], Some(512));
        check(SQLITE, [0x10, 0x01], None);
        check(SQLITE, [0x00, 0x00], None);
        check(b"SQLite format 2\0", [0x10, 0x00], None);
        std::fs::write(&path, b"SQLite").expect("a file");
        assert_eq!(sqlite_page_bytes(&path), None);
        assert_eq!(sqlite_page_bytes(folder.path()), None);
    }
}
