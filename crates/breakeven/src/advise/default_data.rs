//! The embedded default: Kothiyal's four file types, gathered from this machine's own files.
//!
//! They are text (headers and documentation), binary (shared libraries and programs), zero and random, at most
//! [`TYPE_BYTES_MAX`] of each. Kothiyal has 2 GB of each (2009, section 4.2). Nothing is copied: the population points
//! at the files, and makes zeros and random bytes when they are read.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::advise::population::{Content, Item, Population};
use crate::error::Result;

/// The most bytes of each of the four types.
pub const TYPE_BYTES_MAX: u64 = 64 << 20;

const TEXT_FOLDERS: [&str; 4] = [
    "/usr/include",
    "/usr/share/doc",
    "/usr/share/perl",
    "/usr/lib/python3",
];
const BINARY_FOLDERS: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
];
const TEXT_ENDINGS: [&str; 10] = [
    "h", "hpp", "c", "txt", "md", "html", "pm", "pl", "py", "pod",
];
/// The most folders that are searched, so that gathering takes only milliseconds.
const FOLDERS_MAX: usize = 2_000;

/// Gathers the four types. A machine without headers or documentation lacks the text type, as the labels show.
pub fn gather() -> Result<Population> {
    let mut folders = Vec::new();
    let mut items = Vec::new();
    collect(&TEXT_FOLDERS, "text", is_text, &mut folders, &mut items);
    collect(
        &BINARY_FOLDERS,
        "binary",
        is_binary,
        &mut folders,
        &mut items,
    );
    for (label, content) in [
        ("zero", Content::Zeros),
        (
            "random",
            Content::Random {
                seed: 0x006b_6f74_6869_7961,
            },
        ),
    ] {
        let (bytes, length) = (TYPE_BYTES_MAX, TYPE_BYTES_MAX);
        items.push(Item {
            content,
            bytes,
            length,
            label: Some(label),
        });
    }
    Population::from_items(folders, items)
}

/// Adds files below `roots` that satisfy `wanted`, up to the most bytes of a type.
fn collect(
    roots: &[&str],
    label: &'static str,
    wanted: fn(&Path) -> bool,
    folders: &mut Vec<PathBuf>,
    items: &mut Vec<Item>,
) {
    let mut left = TYPE_BYTES_MAX;
    let mut open: Vec<PathBuf> = roots.iter().rev().map(PathBuf::from).collect();
    let mut looked_into = 0;
    while let Some(path) = open.pop() {
        looked_into += 1;
        if left == 0 || looked_into > FOLDERS_MAX {
            return;
        }
        let Ok(entries) = fs::read_dir(&path) else {
            continue;
        };
        let mut entries: Vec<_> = entries.flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        let folder = u32::try_from(folders.len()).expect("few folders");
        folders.push(path);
        for entry in entries {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                open.push(entry.path());
            } else if metadata.is_file() && metadata.len() > 0 && wanted(&entry.path()) {
                let bytes = metadata.len().min(left);
                let content = Content::File {
                    folder,
                    name: entry.file_name(),
                };
                items.push(Item {
                    content,
                    bytes,
                    length: bytes,
                    label: Some(label),
                });
                left -= bytes;
                if left == 0 {
                    return;
                }
            }
        }
    }
}

fn is_text(path: &Path) -> bool {
    let ending = path
        .extension()
        .and_then(|ending| ending.to_str())
        .unwrap_or("");
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("");
    TEXT_ENDINGS.contains(&ending) || name.starts_with("README") || name == "copyright"
}

fn is_binary(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && &magic == b"\x7fELF"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_types_are_there_and_bounded() {
        let population = gather().expect("at least zeros and random bytes");
        let mut bytes = std::collections::BTreeMap::new();
        for index in 0..population.item_count() {
            let item = population.item(index as u32);
            *bytes.entry(item.label.expect("a label")).or_insert(0) += item.bytes;
        }
        println!("{bytes:?}");
        assert_eq!(
            (bytes["zero"], bytes["random"]),
            (TYPE_BYTES_MAX, TYPE_BYTES_MAX)
        );
        assert!(bytes.values().all(|bytes| *bytes <= TYPE_BYTES_MAX));
        assert!(
            bytes.contains_key("binary"),
            "a test runs on a machine with programs"
        );
    }
}
