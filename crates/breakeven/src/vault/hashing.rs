//! The identity of a whole file, hashed by all workers at once.
//!
//! BLAKE3 is a tree: parts of 1 MiB are hashed each by itself, wherever they lie, and their values joined. Each worker
//! reads its part of the file itself. Memory: a part for each worker, and 32 bytes for each MiB of the file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};

use crate::error::{Error, Result};
use crate::pool::{Pool, Stage};

use super::cipher::{Id, Keys};
use super::reading::moments;

/// Bytes that one job hashes: a power of two, as BLAKE3's tree wants it.
const PART_BYTES: u64 = 1 << 20;

struct Part {
    file: Arc<File>,
    offset: u64,
    length: usize,
}

/// Hashes files.
pub(super) struct FileHasher {
    keys: Arc<Keys>,
    stage: Stage<Part, Option<ChainingValue>, Vec<u8>>,
}

impl FileHasher {
    pub(super) fn new(pool: &Pool, keys: &Arc<Keys>) -> Result<FileHasher> {
        let own = Arc::clone(keys);
        let hash = move |buffer: &mut Vec<u8>, part: Part| {
            moments::pass();
            buffer.resize(part.length, 0);
            let read = part.file.read_exact_at(buffer, part.offset);
            let mut hasher = own.hasher();
            hasher.set_input_offset(part.offset).update(buffer);
            Ok(read.is_ok().then(|| hasher.finalize_non_root()))
        };
        Ok(FileHasher {
            keys: Arc::clone(keys),
            stage: pool.stage(4 * pool.worker_count().max(1), Vec::new, hash)?,
        })
    }

    /// Returns the identity of the first `size_bytes` of a file; nothing where they cannot be read.
    ///
    /// # Errors
    /// Those of the pool.
    pub(super) fn identity(&mut self, file: &Arc<File>, size_bytes: u64) -> Result<Option<Id>> {
        if size_bytes <= PART_BYTES {
            let mut bytes = vec![0; size_bytes as usize];
            let read = file.read_exact_at(&mut bytes, 0);
            return Ok(read.is_ok().then(|| self.keys.id(&bytes)));
        }
        let mut offsets = (0..size_bytes).step_by(PART_BYTES as usize).peekable();
        let mut values = Vec::new();
        let mut is_whole = true;
        loop {
            while is_whole
                && !self.stage.is_full()
                && let Some(offset) = offsets.next()
            {
                let part = Part {
                    file: Arc::clone(file),
                    offset,
                    length: (size_bytes - offset).min(PART_BYTES) as usize,
                };
                let submitted = self.stage.submit(part);
                submitted.map_err(|_| Error::invalid("pool", "it takes no jobs"))?;
            }
            match self.stage.next_result() {
                Some(Ok(Some(value))) => values.push(value),
                Some(Ok(None) | Err(_)) => is_whole = false,
                None => break,
            }
        }
        Ok(is_whole.then(|| self.keys.join(&values)))
    }
}

impl Keys {
    /// Returns the identity of a content from the values of its parts, of which there are two or more.
    fn join(&self, parts: &[ChainingValue]) -> Id {
        self.with_identity_key(|key| {
            let (left, right) = parts.split_at(left_count(parts.len()));
            let mode = Mode::KeyedHash(key);
            let hash = merge_subtrees_root(&joined(left, mode), &joined(right, mode), mode);
            Id::of_hash(&hash)
        })
    }
}

/// Returns how many of some parts stand left in BLAKE3's tree: the greatest power of two that leaves one right.
fn left_count(count: usize) -> usize {
    count.next_power_of_two() / 2
}

fn joined(parts: &[ChainingValue], mode: Mode<'_>) -> ChainingValue {
    match parts {
        [one] => *one,
        _ => {
            let (left, right) = parts.split_at(left_count(parts.len()));
            merge_subtrees_non_root(&joined(left, mode), &joined(right, mode), mode)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cipher::{Entropy, MasterKey};
    use super::*;
    use crate::pool::PoolOptions;

    #[test]
    fn a_file_hashes_to_what_its_bytes_do() {
        let mut random = crate::testing::seeded("hashing", 31);
        let bytes: Vec<u8> = (0..9 << 20).map(|_| random.u8(..)).collect();
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.write_all_at(&bytes, 0).unwrap();
        let master = MasterKey::random(&mut Entropy::seeded(1));
        let keys = Arc::new(Keys::new(master, [3; 16]));
        for worker_count in [0, 2] {
            let pool = Pool::new(PoolOptions { worker_count }).unwrap();
            let mut hasher = FileHasher::new(&pool, &keys).unwrap();
            let mut check = |length: usize| {
                let found = hasher.identity(&file, length as u64).unwrap();
                let expected = bytes.get(..length).map(|bytes| keys.id(bytes));
                assert_eq!(found, expected, "{length}");
            };
            for length in [0, 1, 300_000, 1 << 20] {
                check(length);
            }
            for parts in 1..9 {
                check((parts << 20) + 1);
                check((parts << 20) + random.usize(1..1 << 20));
                check((parts + 1) << 20);
            }
            // A file that is shorter than it was.
            check(bytes.len() + 1);
            check(bytes.len());
        }
    }
}
