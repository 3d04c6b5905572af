//! The identity of a content: hashed as it comes, or from a file by all workers at once.
//!
//! BLAKE3 is a tree: parts of 1 MiB are hashed each by itself, wherever they lie, and their values joined. A part of
//! zeros is skipped, so a hole costs nothing. Memory: a part for each worker, and 32 bytes for each doubling of the
//! content.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};

use crate::error::{Error, Result};
use crate::pool::{Pool, Stage};
use crate::storage::{images, is_zero};

use super::cipher::{Id, Keys};
use super::reading::moments;

/// Bytes of a part: a power of two, as BLAKE3's tree needs it, and fixed by the format.
const PART_BYTES: u64 = 1 << 20;

/// The identity of a content that has a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) id: Id,
    pub(super) of: IdentityOf,
}

/// The part of a content that makes its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdentityOf {
    /// All bytes.
    Bytes,
    /// All parts of 1 MiB but those of zeros.
    Data,
    /// The items of its list.
    Items,
}

/// Joins the values of a content's parts. Parts that are not added are zeros.
#[derive(Clone)]
struct Parts {
    keys: Arc<Keys>,
    /// The parts followed by others that have not been joined to their left: BLAKE3's stack.
    tree: Vec<ChainingValue>,
    tree_count: u64,
    last: Option<ChainingValue>,
    sparse: blake3::Hasher,
    next: u64,
    has_zeros: bool,
}

impl Parts {
    fn new(keys: &Arc<Keys>) -> Parts {
        Parts {
            keys: Arc::clone(keys),
            tree: Vec::new(),
            tree_count: 0,
            last: None,
            sparse: keys.sparse_hasher(),
            next: 0,
            has_zeros: false,
        }
    }

    fn push(&mut self, number: u64, value: ChainingValue) {
        self.has_zeros |= number > self.next;
        self.next = number + 1;
        self.sparse.update(&number.to_le_bytes()).update(&value);
        if self.has_zeros {
            return;
        }
        let Some(mut value) = self.last.replace(value) else {
            return;
        };
        self.tree_count += 1;
        for _ in 0..self.tree_count.trailing_zeros() {
            let left = self.tree.pop().expect("as many as the count has ones");
            value = self.merged(&left, &value);
        }
        self.tree.push(value);
    }

    fn merged(&self, left: &ChainingValue, right: &ChainingValue) -> ChainingValue {
        let merge = |key: &[u8; 32]| merge_subtrees_non_root(left, right, Mode::KeyedHash(key));
        self.keys.with_identity_key(merge)
    }

    /// Returns the identity of a content of so many parts, two or more, or of zeros.
    fn identity(mut self, part_count: u64, raw_bytes: u64) -> Identity {
        if self.has_zeros || self.next < part_count {
            self.sparse.update(&raw_bytes.to_le_bytes());
            let id = Keys::id_of(&self.sparse);
            let of = IdentityOf::Data;
            return Identity { id, of };
        }
        let mut right = self.last.take().expect("two parts");
        while self.tree.len() > 1 {
            let left = self.tree.pop().expect("two of them");
            right = self.merged(&left, &right);
        }
        let root =
            |key: &[u8; 32]| merge_subtrees_root(&self.tree[0], &right, Mode::KeyedHash(key));
        let id = Id::of_hash(&self.keys.with_identity_key(root));
        let of = IdentityOf::Bytes;
        Identity { id, of }
    }
}

/// Hashes a content as it comes.
#[derive(Clone)]
pub(super) struct ContentHasher {
    parts: Parts,
    /// The part that is being filled.
    hasher: blake3::Hasher,
    number: u64,
    filled_bytes: u64,
    /// Whether all of it is zeros so far; zeros are not hashed.
    is_blank: bool,
    /// Whether parts may be skipped: not in the identities of earlier vaults.
    skips_zeros: bool,
}

impl ContentHasher {
    /// `skips_zeros` is false for a list of an earlier vault, which does not say so.
    pub(super) fn new(keys: &Arc<Keys>, skips_zeros: bool) -> ContentHasher {
        ContentHasher {
            parts: Parts::new(keys),
            hasher: keys.hasher(),
            number: 0,
            filled_bytes: 0,
            is_blank: skips_zeros,
            skips_zeros,
        }
    }

    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.end_full_part();
            let left = (PART_BYTES - self.filled_bytes).min(bytes.len() as u64);
            let (now, later) = bytes.split_at(left as usize);
            if !self.is_blank || !is_zero(now) {
                self.hash_blank();
                self.hasher.update(now);
            }
            self.filled_bytes += left;
            bytes = later;
        }
    }

    /// The same for a run of zeros.
    pub(super) fn update_zeros(&mut self, mut count: u64) {
        while count > 0 {
            self.end_full_part();
            if self.is_blank && self.filled_bytes == 0 && count > PART_BYTES {
                // All of them but the last end at once.
                let ended = (count - 1) / PART_BYTES;
                self.number += ended;
                self.hasher.set_input_offset(self.number * PART_BYTES);
                count -= ended * PART_BYTES;
            }
            let left = (PART_BYTES - self.filled_bytes).min(count);
            if !self.is_blank {
                hash_zeros(&mut self.hasher, left);
            }
            self.filled_bytes += left;
            count -= left;
        }
    }

    /// Hashes the zeros that a part of data begins with.
    fn hash_blank(&mut self) {
        if std::mem::take(&mut self.is_blank) {
            hash_zeros(&mut self.hasher, self.filled_bytes);
        }
    }

    fn end_full_part(&mut self) {
        if self.filled_bytes < PART_BYTES {
            return;
        }
        if !self.is_blank {
            self.push_part();
            self.hasher = self.parts.keys.hasher();
        }
        self.number += 1;
        self.filled_bytes = 0;
        self.hasher.set_input_offset(self.number * PART_BYTES);
        self.is_blank = self.skips_zeros;
    }

    fn push_part(&mut self) {
        let value = self.hasher.finalize_non_root();
        self.parts.push(self.number, value);
    }

    /// Returns the identity of all bytes so far.
    pub(super) fn identity(mut self) -> Identity {
        if self.filled_bytes < PART_BYTES {
            self.hash_blank();
        }
        if self.number == 0 && !self.is_blank {
            let id = Keys::id_of(&self.hasher);
            let of = IdentityOf::Bytes;
            return Identity { id, of };
        }
        if !self.is_blank {
            self.push_part();
        }
        let raw_bytes = self.number * PART_BYTES + self.filled_bytes;
        self.parts.identity(self.number + 1, raw_bytes)
    }
}

fn hash_zeros(hasher: &mut blake3::Hasher, mut count: u64) {
    const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
    while count > 0 {
        let step = count.min(ZEROS.len() as u64);
        hasher.update(&ZEROS[..step as usize]);
        count -= step;
    }
}

/// Returns where the next data of a file stands, from an offset on, as [`images::next_data`] does.
pub(super) fn next_data(file: &File, offset: u64) -> u64 {
    moments::pass();
    images::next_data(file, offset)
}

struct Part {
    file: Arc<File>,
    number: u64,
    length: usize,
}

/// A part that was read.
enum ReadPart {
    Zeros,
    Hashed(u64, ChainingValue),
}

/// Hashes files.
pub(super) struct FileHasher {
    keys: Arc<Keys>,
    stage: Stage<Part, io::Result<ReadPart>, Vec<u8>>,
}

impl FileHasher {
    pub(super) fn new(pool: &Pool, keys: &Arc<Keys>) -> Result<FileHasher> {
        let own = Arc::clone(keys);
        let hash = move |buffer: &mut Vec<u8>, part: Part| {
            moments::pass();
            buffer.resize(part.length, 0);
            let offset = part.number * PART_BYTES;
            if let Err(error) = part.file.read_exact_at(buffer, offset) {
                return Ok(Err(error));
            }
            if part.length as u64 == PART_BYTES && is_zero(buffer) {
                return Ok(Ok(ReadPart::Zeros));
            }
            let mut hasher = own.hasher();
            hasher.set_input_offset(offset).update(buffer);
            Ok(Ok(ReadPart::Hashed(
                part.number,
                hasher.finalize_non_root(),
            )))
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
            let mut hasher = ContentHasher::new(&self.keys, true);
            hasher.update(&bytes);
            return Ok(read.is_ok().then(|| hasher.identity().id));
        }
        let part_count = size_bytes.div_ceil(PART_BYTES);
        let mut numbers = 0..part_count;
        let mut data_from = 0;
        let mut parts = Parts::new(&self.keys);
        let mut is_whole = true;
        loop {
            while is_whole
                && !self.stage.is_full()
                && let Some(number) = numbers.next()
            {
                let offset = number * PART_BYTES;
                let length = (size_bytes - offset).min(PART_BYTES);
                if data_from <= offset {
                    data_from = next_data(file, offset);
                }
                if length == PART_BYTES && data_from >= offset + length {
                    continue;
                }
                let part = Part {
                    file: Arc::clone(file),
                    number,
                    length: length as usize,
                };
                let submitted = self.stage.submit(part);
                submitted.map_err(|_| Error::invalid("pool", "it takes no jobs"))?;
            }
            match self.stage.next_result() {
                Some(Ok(Ok(ReadPart::Hashed(number, value)))) => parts.push(number, value),
                Some(Ok(Ok(ReadPart::Zeros))) => {}
                Some(Ok(Err(_)) | Err(_)) => is_whole = false,
                None => break,
            }
        }
        // Holes are not read. Where the file was cut meanwhile, its end is no hole.
        is_whole &= file.metadata().is_ok_and(|it| it.len() >= size_bytes);
        Ok(is_whole.then(|| parts.identity(part_count, size_bytes).id))
    }
}

#[cfg(test)]
mod tests {
    use super::super::cipher::{Entropy, MasterKey};
    use super::*;
    use crate::pool::PoolOptions;

    fn keys() -> Arc<Keys> {
        let master = MasterKey::random(&mut Entropy::seeded(1));
        Arc::new(Keys::new(master, [3; 16]))
    }

    /// The same by the text of the format.
    fn naive(keys: &Keys, bytes: &[u8]) -> Identity {
        let parts = || bytes.chunks(PART_BYTES as usize).enumerate();
        let is_zeros = |part: &[u8]| part.len() as u64 == PART_BYTES && is_zero(part);
        if !parts().any(|(_, part)| is_zeros(part)) {
            let id = keys.id(bytes);
            let of = IdentityOf::Bytes;
            return Identity { id, of };
        }
        let mut all = Vec::new();
        for (number, part) in parts().filter(|(_, part)| !is_zeros(part)) {
            all.extend((number as u64).to_le_bytes());
            let mut hasher = keys.hasher();
            hasher.set_input_offset(number as u64 * PART_BYTES);
            all.extend(hasher.update(part).finalize_non_root());
        }
        all.extend((bytes.len() as u64).to_le_bytes());
        let mut hasher = keys.sparse_hasher();
        hasher.update(&all);
        let id = Keys::id_of(&hasher);
        let of = IdentityOf::Data;
        Identity { id, of }
    }

    #[test]
    fn a_file_hashes_to_what_its_bytes_do() {
        let mut random = crate::testing::seeded("hashing", 31);
        let bytes: Vec<u8> = (0..9 << 20).map(|_| random.u8(..)).collect();
        let file = Arc::new(tempfile::tempfile().unwrap());
        file.write_all_at(&bytes, 0).unwrap();
        let keys = keys();
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
            // A file that is shorter than before.
            check(bytes.len() + 1);
            check(bytes.len());
        }
    }

    /// Parts of data, of zeros, and of both, in files with and without holes, and as they come.
    #[test]
    fn a_content_with_zeros_has_the_identity_of_the_format() {
        let mut random = crate::testing::seeded("sparse_hashing", 17);
        let keys = keys();
        let pool = Pool::new(PoolOptions { worker_count: 2 }).unwrap();
        let mut files = FileHasher::new(&pool, &keys).unwrap();
        for round in 0..24 {
            let length = match round % 3 {
                0 => random.usize(1..9) << 20,
                _ => random.usize(0..9 << 20),
            };
            let mut bytes = vec![0; length];
            for part in bytes.chunks_mut(PART_BYTES as usize) {
                match random.u8(0..4) {
                    0 => random.fill(part),
                    1 => part[random.usize(..part.len())] = 1,
                    _ => {}
                }
            }
            let expected = naive(&keys, &bytes);
            let mut whole = ContentHasher::new(&keys, true);
            let mut of_before = ContentHasher::new(&keys, false);
            let mut left = &bytes[..];
            while !left.is_empty() {
                let (now, later) = left.split_at(random.usize(1..=left.len()));
                match is_zero(now) && random.bool() {
                    true => whole.update_zeros(now.len() as u64),
                    false => whole.update(now),
                }
                match is_zero(now) {
                    true => of_before.update_zeros(now.len() as u64),
                    false => of_before.update(now),
                }
                left = later;
            }
            assert_eq!(whole.identity(), expected, "{length}");
            assert_eq!(of_before.identity().id, keys.id(&bytes), "{length}");
            let (written, holed) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
            written.write_all_at(&bytes, 0).unwrap();
            holed.set_len(length as u64).unwrap();
            for (at, block) in bytes.chunks(4096).enumerate() {
                if !is_zero(block) {
                    holed.write_all_at(block, at as u64 * 4096).unwrap();
                }
            }
            for file in [written, holed] {
                let found = files.identity(&Arc::new(file), length as u64).unwrap();
                assert_eq!(found, Some(expected.id), "{length}");
            }
        }
    }
}
