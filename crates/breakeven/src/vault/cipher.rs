//! Randomness, the keys of a vault and its seal.
//!
//! Everything depends on a random master key; a key record wraps it with a key that Argon2id derives from a password.
//! Promises: a changed byte, a changed `config` and an object under another's name do not open. Keys are wiped when
//! they are dropped.
//!
//! Not here: the places and contents of objects.

use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use crate::error::{Error, Result};

use super::bytes::{Reader, fail};

/// Bytes that a seal adds to its content.
pub(super) const TAG_BYTES: usize = 16;
const SEALED_MAGIC: &[u8; 4] = b"BEVS";
const SEALED_HEAD_BYTES: usize = 32;
const KEY_MAGIC: &[u8; 4] = b"BEVK";
const KEY_RECORD_BYTES: usize = 140;
const KEY_CHECKED_BYTES: usize = 108;
const KEY_HEAD_BYTES: usize = 36;
const KEY_VERSION: u32 = 1;
/// The most memory and work that a key record may ask of a reader.
const MEMORY_KIB_MAX: u32 = 4 << 20;
const PASSES_MAX: u32 = 64;
const LANES_MAX: u32 = 64;

/// The identity of a content: keyed BLAKE3, cut to 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub [u8; 16]);

impl Id {
    /// No content has this one: it stands for an empty folder or file.
    pub const NONE: Id = Id([0; 16]);

    pub(super) fn of_hash(hash: &blake3::Hash) -> Id {
        Id(hash.as_bytes()[..16].try_into().expect("16 bytes of 32"))
    }

    /// Returns the identity under which the list of a content lies while it lacks a chunk: its complement.
    pub(super) fn with_gaps(self) -> Id {
        Id(self.0.map(|byte| !byte))
    }

    /// Returns the 32 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads 32 hexadecimal digits in lower case.
    pub fn from_hex(text: &str) -> Option<Id> {
        let digits = text.as_bytes();
        let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 32 || !digits.iter().all(is_hex) {
            return None;
        }
        let mut id = Id::NONE;
        for (byte, pair) in id.0.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).ok()?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        Some(id)
    }
}

/// A source of random bytes: BLAKE3's extended output from a random key.
pub struct Entropy {
    reader: blake3::OutputReader,
}

impl Entropy {
    /// Takes a key from the system.
    ///
    /// # Errors
    /// [`Error::Io`] if the system has none to give.
    pub fn system() -> Result<Entropy> {
        let mut key = Zeroizing::new([0; 32]);
        let flags = rustix::rand::GetRandomFlags::empty();
        let count = rustix::rand::getrandom(&mut *key, flags)
            .map_err(|error| Error::io("get random bytes", "the system", error.into()))?;
        // The system gives up to 256 bytes whole.
        assert_eq!(count, key.len());
        Ok(Entropy::of(&key))
    }

    /// Makes a source that gives the same bytes each time, for tests.
    pub fn seeded(seed: u64) -> Entropy {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        Entropy::of(&key)
    }

    fn of(key: &[u8; 32]) -> Entropy {
        let reader = blake3::Hasher::new_keyed(key).finalize_xof();
        Entropy { reader }
    }

    /// Returns the next bytes.
    pub fn take<const COUNT: usize>(&mut self) -> [u8; COUNT] {
        let mut bytes = [0; COUNT];
        self.reader.fill(&mut bytes);
        bytes
    }
}

/// How hard a password is to guess. Kept in each key record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordCost {
    /// Memory of Argon2id. Default 64 MiB, with 3 passes and 4 lanes: the second choice of RFC 9106, section 4.
    pub memory_kib: u32,
    /// Passes over it. Default 3.
    pub passes: u32,
    /// Lanes. Default 4.
    pub lanes: u32,
}

impl Default for PasswordCost {
    fn default() -> PasswordCost {
        PasswordCost {
            memory_kib: 64 << 10,
            passes: 3,
            lanes: 4,
        }
    }
}

impl PasswordCost {
    fn wrapping(self, password: &[u8], salt: &[u8; 16]) -> Result<XChaCha20Poly1305> {
        if self.memory_kib > MEMORY_KIB_MAX || self.passes > PASSES_MAX || self.lanes > LANES_MAX {
            return Err(fail(
                "key record",
                8,
                "a cost within its limits",
                format!("{self:?}"),
            ));
        }
        let params = Params::new(self.memory_kib, self.passes, self.lanes, Some(32));
        let params = params.map_err(|error| fail("key record", 8, "a cost of Argon2id", error))?;
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let mut key = Zeroizing::new([0; 32]);
        // Threads that end afterwards make the lanes side by side.
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.min(self.lanes as usize));
        let pool = pool
            .build()
            .map_err(|error| Error::invalid("threads", error))?;
        pool.install(|| argon.hash_password_into(password, salt, &mut *key))
            .map_err(|error| Error::invalid("password", error))?;
        Ok(XChaCha20Poly1305::new((&*key).into()))
    }
}

/// The key from which all others come.
#[derive(Clone)]
pub(super) struct MasterKey(Zeroizing<[u8; 32]>);

impl MasterKey {
    pub(super) fn random(entropy: &mut Entropy) -> MasterKey {
        MasterKey(Zeroizing::new(entropy.take()))
    }

    fn check_key(&self) -> Zeroizing<[u8; 32]> {
        self.derive("breakeven vault 1 records")
    }

    fn derive(&self, context: &str) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(blake3::derive_key(context, &*self.0))
    }

    /// Returns the key record that opens the vault of this `config` by a password.
    pub(super) fn wrap(
        &self,
        config: &[u8],
        password: &[u8],
        cost: PasswordCost,
        entropy: &mut Entropy,
    ) -> Result<Vec<u8>> {
        let (salt, nonce): ([u8; 16], [u8; 24]) = (entropy.take(), entropy.take());
        let mut record = Vec::with_capacity(KEY_RECORD_BYTES);
        record.extend_from_slice(KEY_MAGIC);
        for number in [KEY_VERSION, cost.memory_kib, cost.passes, cost.lanes] {
            record.extend_from_slice(&number.to_le_bytes());
        }
        record.extend_from_slice(&salt);
        assert_eq!(record.len(), KEY_HEAD_BYTES);
        let data = [&record[..], blake3::hash(config).as_bytes()].concat();
        let mut sealed = self.0.to_vec();
        seal_in_place(&cost.wrapping(password, &salt)?, &nonce, &data, &mut sealed);
        record.extend_from_slice(&nonce);
        record.extend_from_slice(&sealed);
        let check = blake3::keyed_hash(&self.check_key(), &record);
        record.extend_from_slice(check.as_bytes());
        assert_eq!(record.len(), KEY_RECORD_BYTES);
        Ok(record)
    }

    /// Opens a key record; nothing if it belongs to another password.
    pub(super) fn unwrap(
        config: &[u8],
        record: &[u8],
        password: &[u8],
    ) -> Result<Option<MasterKey>> {
        let mut reader = Reader::new("key record", record);
        if record.len() != KEY_RECORD_BYTES || reader.array::<4>()? != *KEY_MAGIC {
            return Err(fail("key record", 0, "BEVK and 140 bytes", record.len()));
        }
        let version = reader.u32()?;
        if version != KEY_VERSION {
            return Err(Error::Unsupported {
                what: format!("a key record of version {version}"),
            });
        }
        let cost = PasswordCost {
            memory_kib: reader.u32()?,
            passes: reader.u32()?,
            lanes: reader.u32()?,
        };
        let salt = reader.array::<16>()?;
        let nonce = reader.array::<24>()?;
        let mut key = Zeroizing::new(reader.take(48)?.to_vec());
        let data = [&record[..KEY_HEAD_BYTES], blake3::hash(config).as_bytes()].concat();
        let nonce = XNonce::from(nonce);
        let opened = cost
            .wrapping(password, &salt)?
            .decrypt_in_place(&nonce, &data, &mut *key);
        if opened.is_err() {
            return Ok(None);
        }
        let key = key[..].try_into().expect("32 bytes under the seal");
        let key = MasterKey(Zeroizing::new(key));
        key.check_record(record)?;
        Ok(Some(key))
    }

    /// Checks that a key record, for any password, is as it was written.
    pub(super) fn check_record(&self, record: &[u8]) -> Result<()> {
        let (checked, check) = record.split_at(KEY_CHECKED_BYTES.min(record.len()));
        let expected = blake3::keyed_hash(&self.check_key(), checked);
        // Hashes of BLAKE3 compare in constant time.
        match <[u8; 32]>::try_from(check) {
            Ok(check) if expected == check => Ok(()),
            _ => Err(fail(
                "key record",
                KEY_CHECKED_BYTES as u64,
                "its check",
                "another",
            )),
        }
    }
}

/// The keys of an open vault.
pub(super) struct Keys {
    pub(super) master: MasterKey,
    pub(super) vault: [u8; 16],
    identity: Zeroizing<[u8; 32]>,
    sparse: Zeroizing<[u8; 32]>,
    items: Zeroizing<[u8; 32]>,
    seal: XChaCha20Poly1305,
}

impl Keys {
    pub(super) fn new(master: MasterKey, vault: [u8; 16]) -> Keys {
        let seal = master.derive("breakeven vault 1 seal");
        Keys {
            identity: master.derive("breakeven vault 1 identity"),
            sparse: master.derive("breakeven vault 1 sparse"),
            items: master.derive("breakeven vault 2 items"),
            seal: XChaCha20Poly1305::new((&*seal).into()),
            master,
            vault,
        }
    }

    /// Returns the key of the cut table.
    pub(super) fn cut_key(&self) -> Zeroizing<[u8; 32]> {
        self.master.derive("breakeven vault 1 cuts")
    }

    /// Returns the identity of a content.
    pub(super) fn id(&self, content: &[u8]) -> Id {
        let mut hasher = self.hasher();
        hasher.update(content);
        Keys::id_of(&hasher)
    }

    /// Returns a hasher of a content that comes in parts.
    pub(super) fn hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&self.identity)
    }

    /// Returns the hasher of an identity that skips zeros.
    pub(super) fn sparse_hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&self.sparse)
    }

    /// Returns the hasher of an identity of items.
    pub(super) fn items_hasher(&self) -> blake3::Hasher {
        blake3::Hasher::new_keyed(&self.items)
    }

    pub(super) fn id_of(hasher: &blake3::Hasher) -> Id {
        Id::of_hash(&hasher.finalize())
    }

    /// Lends the key that identities are made with.
    pub(super) fn with_identity_key<T>(&self, work: impl FnOnce(&[u8; 32]) -> T) -> T {
        work(&self.identity)
    }

    /// Seals the bytes of a part of a pack; the tag goes behind them.
    pub(super) fn seal_part(&self, head: &[u8; 24], offset: u64, bytes: &mut Vec<u8>) {
        seal_in_place(
            &self.seal,
            &part_nonce(head, offset),
            &self.part_data(head),
            bytes,
        );
    }

    /// Opens a part of a pack in place.
    pub(super) fn open_part(
        &self,
        head: &[u8; 24],
        offset: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let nonce = XNonce::from(part_nonce(head, offset));
        let opened = self
            .seal
            .decrypt_in_place(&nonce, &self.part_data(head), bytes);
        opened.map_err(|_| fail("pack", offset, "a part under its seal", "other bytes"))
    }

    fn part_data(&self, head: &[u8; 24]) -> [u8; 24] {
        let mut data = [0; 24];
        data[..8].copy_from_slice(&head[..8]);
        data[8..].copy_from_slice(&self.vault);
        data
    }

    /// Returns a sealed object.
    pub(super) fn seal(
        &self,
        kind: u8,
        name: &str,
        content: &[u8],
        entropy: &mut Entropy,
    ) -> Vec<u8> {
        let mut object = SEALED_MAGIC.to_vec();
        object.extend_from_slice(&[kind, 0, 0, 0]);
        let data = [&object, &self.vault[..], name.as_bytes()].concat();
        let nonce: [u8; 24] = entropy.take();
        let mut sealed = content.to_vec();
        seal_in_place(&self.seal, &nonce, &data, &mut sealed);
        object.extend_from_slice(&nonce);
        object.extend_from_slice(&sealed);
        object
    }

    /// Opens a sealed object of a kind under its name.
    pub(super) fn open(&self, kind: u8, name: &str, object: &[u8]) -> Result<Vec<u8>> {
        let expected = [&SEALED_MAGIC[..], &[kind, 0, 0, 0]].concat();
        if object.len() < SEALED_HEAD_BYTES + TAG_BYTES || object[..8] != expected {
            let found = format!("{} bytes of another kind", object.len());
            return Err(fail(
                "sealed object",
                0,
                format_args!("{name} under its seal"),
                found,
            ));
        }
        let data = [&expected, &self.vault[..], name.as_bytes()].concat();
        let nonce: [u8; 24] = object[8..SEALED_HEAD_BYTES].try_into().expect("24 bytes");
        let mut content = object[SEALED_HEAD_BYTES..].to_vec();
        let opened = self
            .seal
            .decrypt_in_place(&XNonce::from(nonce), &data, &mut content);
        opened.map_err(|_| {
            let expected = format_args!("{name} under its seal").to_string();
            fail("sealed object", 0, expected, "other bytes")
        })?;
        Ok(content)
    }
}

fn seal_in_place(cipher: &XChaCha20Poly1305, nonce: &[u8; 24], data: &[u8], bytes: &mut Vec<u8>) {
    let sealed = cipher.encrypt_in_place(&XNonce::from(*nonce), data, bytes);
    // The cipher's limit is 256 GiB, far above any part of a vault.
    sealed.expect("a part below the cipher's limit");
}

/// The salt is random for each pack and the offset is different for each part of it.
fn part_nonce(head: &[u8; 24], offset: u64) -> [u8; 24] {
    let mut nonce = [0; 24];
    nonce[..16].copy_from_slice(&head[8..]);
    nonce[16..].copy_from_slice(&offset.to_le_bytes());
    nonce
}
