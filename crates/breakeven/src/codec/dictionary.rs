//! Dictionaries: bytes that both sides know, so that short blocks need not repeat them.
//!
//! A [`Dictionary`] is named by the hash of its content and never changes. It keeps the prepared forms of its bytes,
//! one for each level in use. Any number of threads may share it. Its bytes may come from any medium: they are checked
//! before the first use.
//!
//! zstd takes trained dictionaries, with entropy tables and an id, and plain bytes. lz4 takes both as plain bytes and
//! searches the last 64 KiB.

use std::fmt;
use std::sync::{Arc, OnceLock};

use zstd_safe::{CDict, DDict};

use super::{lz4, zstd};
use crate::error::{Error, Result};

/// The longest dictionary: 1 MiB.
pub const DICTIONARY_BYTES_MAX: usize = 1 << 20;
/// The shortest dictionary the trainer makes.
pub const TRAINED_BYTES_MIN: usize = 256;

const LEVELS: usize = (zstd::LEVEL_MAX - zstd::LEVEL_MIN) as usize + 1;

/// The name of a dictionary: the first 128 bits of the BLAKE3 hash of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DictionaryHash(pub [u8; 16]);

#[cfg(feature = "dictionaries")]
impl DictionaryHash {
    /// Names a dictionary of these bytes.
    pub fn of(bytes: &[u8]) -> DictionaryHash {
        let hash = blake3::hash(bytes);
        let mut short = [0; 16];
        short.copy_from_slice(&hash.as_bytes()[..16]);
        DictionaryHash(short)
    }
}

impl fmt::Display for DictionaryHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A dictionary with the forms in which the codecs use it.
///
/// # Cost
///
/// The bytes once, and a second time with 27 KiB for zstd's decoder. Each level that compresses with it adds a form: 50
/// KiB to 1.6 MiB for zstd, 16 KiB for lz4 and 256 KiB for lz4hc. [`Dictionary::memory_bytes`] returns the sum. Making
/// a form takes 0.03 to 4 milliseconds, once.
pub struct Dictionary {
    #[cfg(feature = "dictionaries")]
    hash: DictionaryHash,
    bytes: Arc<[u8]>,
    decoder: DDict<'static>,
    zstd: [OnceLock<CDict<'static>>; LEVELS],
    lz4: OnceLock<lz4::FastDictionary>,
    /// LZ4's level 2 searches other tables than the higher levels.
    lz4hc_middle: OnceLock<lz4::DenseDictionary>,
    lz4hc: OnceLock<lz4::DenseDictionary>,
}

impl Dictionary {
    /// Makes a dictionary from bytes: a trained one or a plain sample of the data.
    ///
    /// # Errors
    ///
    /// `Invalid` for no bytes or more than [`DICTIONARY_BYTES_MAX`], `Corrupt` for bytes that only start like a trained
    /// dictionary.
    pub fn new(bytes: &[u8]) -> Result<Dictionary> {
        if !(1..=DICTIONARY_BYTES_MAX).contains(&bytes.len()) {
            let length = bytes.len();
            let reason = format!("{length} bytes, where 1 to {DICTIONARY_BYTES_MAX} are accepted");
            return Err(Error::invalid("dictionary", reason));
        }
        let decoder = DDict::try_create(bytes).ok_or_else(malformed)?;
        Ok(Dictionary {
            #[cfg(feature = "dictionaries")]
            hash: DictionaryHash::of(bytes),
            bytes: bytes.into(),
            decoder,
            zstd: [const { OnceLock::new() }; LEVELS],
            lz4: OnceLock::new(),
            lz4hc_middle: OnceLock::new(),
            lz4hc: OnceLock::new(),
        })
    }

    /// Makes a dictionary of stored bytes whose name is known.
    ///
    /// # Errors
    ///
    /// As [`Dictionary::new`]; `Corrupt` if the bytes do not have this name.
    #[cfg(feature = "dictionaries")]
    pub fn verified(bytes: &[u8], name: DictionaryHash) -> Result<Dictionary> {
        let found = DictionaryHash::of(bytes);
        if found != name {
            return Err(Error::corrupt("dictionary", 0, name, found));
        }
        Dictionary::new(bytes)
    }

    /// Trains a dictionary of at most `size_bytes_max` bytes on samples of the data.
    ///
    /// zstd's trainer needs samples of a hundred times the dictionary's size, each one a block as it will be
    /// compressed. The same samples give the same dictionary.
    ///
    /// # Errors
    ///
    /// `Invalid` if the size is outside [`TRAINED_BYTES_MIN`] to [`DICTIONARY_BYTES_MAX`] or the
    /// samples are too few or too alike.
    pub fn train(samples: &[&[u8]], size_bytes_max: usize) -> Result<Dictionary> {
        if !(TRAINED_BYTES_MIN..=DICTIONARY_BYTES_MAX).contains(&size_bytes_max) {
            let reason = format!(
                "{size_bytes_max} bytes, where {TRAINED_BYTES_MIN} to {DICTIONARY_BYTES_MAX} \
                 are accepted"
            );
            return Err(Error::invalid("dictionary size", reason));
        }
        let sizes: Vec<usize> = samples.iter().map(|sample| sample.len()).collect();
        let mut bytes = vec![0; size_bytes_max];
        let size = zstd_safe::train_from_buffer(&mut bytes[..], &samples.concat(), &sizes)
            .map_err(|code| {
                let name = zstd_safe::get_error_name(code);
                let reason = format!("{} samples train none: {name}", samples.len());
                Error::invalid("dictionary", reason)
            })?;
        Dictionary::new(&bytes[..size])
    }

    /// Returns the name of the dictionary.
    #[cfg(feature = "dictionaries")]
    pub fn hash(&self) -> DictionaryHash {
        self.hash
    }

    /// Returns the bytes for storing.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the present memory: the bytes and every form made so far.
    pub fn memory_bytes(&self) -> usize {
        let zstd: usize = (self.zstd.iter())
            .filter_map(|form| form.get().map(CDict::sizeof))
            .sum();
        let fast = usize::from(self.lz4.get().is_some()) * lz4::FAST_STATE_BYTES;
        let dense = [&self.lz4hc_middle, &self.lz4hc];
        let dense = dense.iter().filter(|form| form.get().is_some()).count();
        self.bytes.len()
            + self.decoder.sizeof()
            + zstd
            + fast
            + dense * lz4::DENSE_STATE_BYTES
            + size_of::<Dictionary>()
    }

    pub(super) fn zstd_decoder(&self) -> &DDict<'static> {
        &self.decoder
    }

    pub(super) fn zstd_encoder(&self, level: i8) -> Result<&CDict<'static>> {
        let slot = &self.zstd[(level - zstd::LEVEL_MIN) as usize];
        made_once(slot, || {
            CDict::try_create(&self.bytes, level.into()).ok_or_else(malformed)
        })
    }

    pub(super) fn lz4_encoder(&self) -> Result<&lz4::FastDictionary> {
        made_once(&self.lz4, || lz4::FastDictionary::new(self.bytes.clone()))
    }

    pub(super) fn lz4hc_encoder(&self, level: u8) -> Result<&lz4::DenseDictionary> {
        let slot = match level {
            ..=2 => &self.lz4hc_middle,
            _ => &self.lz4hc,
        };
        made_once(slot, || {
            lz4::DenseDictionary::new(level, self.bytes.clone())
        })
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Dictionary");
        #[cfg(feature = "dictionaries")]
        shown.field("hash", &format_args!("{}", self.hash));
        shown.field("bytes", &self.bytes.len()).finish()
    }
}

/// Returns the form in the slot, made at the first call. Two threads may both make it; one wins.
fn made_once<T>(slot: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    match slot.get() {
        Some(form) => Ok(form),
        None => {
            let form = make()?;
            Ok(slot.get_or_init(|| form))
        }
    }
}

fn malformed() -> Error {
    Error::corrupt(
        "dictionary",
        0,
        "plain bytes or zstd's entropy tables",
        "malformed tables",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Compressor, Decoder, Decompressor, Method};

    const METHODS: &[&str] = &[
        "lz4:1", "lz4:a8", "lz4hc:2", "lz4hc:3", "lz4hc:9", "lz4hc:12", "zstd:-5", "zstd:1",
        "zstd:3", "zstd:19",
    ];

    /// Records of some hundred bytes that share their shape, as small objects do.
    fn records(count: usize, seed: u64) -> Vec<Vec<u8>> {
        let mut random = fastrand::Rng::with_seed(seed);
        let names = ["alpha", "beta", "gamma", "delta", "epsilon"];
        let mut record = || {
            let name = names[random.usize(..names.len())];
            let mut text = format!(
                "{{\"id\":{},\"name\":\"{name}\",\"tags\":[\"storage\",\"compression\"],\"scores\":[",
                random.u32(..)
            );
            for _ in 0..random.usize(1..30) {
                text += &format!("{},", random.u16(..1000));
            }
            (text + "],\"active\":true,\"comment\":\"pays for itself\"}").into_bytes()
        };
        (0..count).map(|_| record()).collect()
    }

    fn trained() -> Dictionary {
        let samples = records(3000, 1);
        let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
        Dictionary::train(&samples, 4096).unwrap()
    }

    fn check(dictionary: &Dictionary, block: &[u8]) -> usize {
        let mut compressor = Compressor::new();
        let mut decompressor = Decompressor::new();
        let mut total = 0;
        for method in METHODS {
            let method: Method = method.parse().unwrap();
            let mut stored = vec![0; method.bound(block.len())];
            let size = compressor
                .compress_with(method, dictionary, block, &mut stored)
                .unwrap()
                .unwrap();
            total += size;
            let decoder = Decoder {
                dictionary: 7,
                ..method.decoder()
            };
            for fill in [0x00, 0x77] {
                let mut back = vec![fill; block.len()];
                decompressor
                    .decompress_with(decoder, dictionary, &stored[..size], &mut back)
                    .unwrap();
                assert!(back == block, "{method}: {} bytes differ", block.len());
            }
            let mut target = vec![0; size.saturating_sub(1).min(block.len() / 4)];
            let limited = compressor.compress_with(method, dictionary, block, &mut target);
            if let Some(limited) = limited.unwrap() {
                assert!(limited <= target.len());
            }
        }
        total
    }

    #[test]
    fn blocks_of_any_length_come_back() {
        let mut random = fastrand::Rng::with_seed(2);
        let noise: Vec<u8> = (0..100_000).map(|_| random.u8(..)).collect();
        let text = records(400, 3).concat();
        for dictionary in [
            trained(),
            Dictionary::new(&records(20, 4).concat()).unwrap(),
            Dictionary::new(&text[..70_000]).unwrap(),
            Dictionary::new(b"x").unwrap(),
            Dictionary::new(&noise[..9000]).unwrap(),
        ] {
            for source in [&text, &noise] {
                for length in [0, 1, 3, 12, 13, 100, 333, 4095, 4097, 8192, 66_000] {
                    check(&dictionary, &source[..length]);
                }
            }
        }
    }

    #[test]
    fn training_pays_on_small_records() {
        let dictionary = trained();
        let plain = Dictionary::new(b"nothing in common").unwrap();
        let (mut with, mut without) = (0, 0);
        for record in records(50, 9) {
            with += check(&dictionary, &record);
            without += check(&plain, &record);
        }
        assert!(
            with * 3 < without * 2,
            "{with} bytes with, {without} without"
        );
    }

    #[cfg(feature = "dictionaries")]
    #[test]
    fn the_same_samples_train_the_same_dictionary() {
        let dictionary = trained();
        assert_eq!(dictionary.hash(), trained().hash());
        assert!(dictionary.bytes().len() <= 4096);
        let same = Dictionary::verified(dictionary.bytes(), dictionary.hash()).unwrap();
        assert_eq!(same.hash().to_string().len(), 32);
        assert!(Dictionary::verified(b"other bytes", dictionary.hash()).is_err());
    }

    #[test]
    fn bad_dictionaries_are_refused() {
        assert!(Dictionary::new(&[]).is_err());
        assert!(Dictionary::new(&vec![1; DICTIONARY_BYTES_MAX + 1]).is_err());
        assert!(Dictionary::train(&[], 4096).is_err());
        assert!(Dictionary::train(&[&[1, 2, 3]], 4096).is_err());
        assert!(Dictionary::train(&[&[0; 100][..]; 100], 10).is_err());
        let trained = trained();
        let mut tables_cut = trained.bytes().to_vec();
        tables_cut.truncate(20);
        assert!(Dictionary::new(&tables_cut).is_err());
    }

    #[test]
    fn a_dictionary_is_never_guessed() {
        let (dictionary, other) = (trained(), Dictionary::new(&records(9, 8).concat()).unwrap());
        let block = records(1, 10).concat();
        let method: Method = "zstd:3".parse().unwrap();
        let mut stored = vec![0; method.bound(block.len())];
        let size = Compressor::new()
            .compress_with(method, &dictionary, &block, &mut stored)
            .unwrap()
            .unwrap();
        let stored = &stored[..size];
        let mut back = vec![0; block.len()];
        let mut decompressor = Decompressor::new();
        let decoder = Decoder {
            dictionary: 1,
            ..method.decoder()
        };
        assert!(decompressor.decompress(decoder, stored, &mut back).is_err());
        let unnamed = decompressor.decompress(method.decoder(), stored, &mut back);
        assert!(unnamed.is_err());
        let unnamed =
            decompressor.decompress_with(method.decoder(), &dictionary, stored, &mut back);
        assert!(unnamed.is_err());
        let wrong = decompressor.decompress_with(decoder, &other, stored, &mut back);
        assert!(wrong.is_err(), "the frame names the dictionary's id");
        let refused = Compressor::new().compress_with(
            "shuffle4+zstd:3".parse().unwrap(),
            &dictionary,
            &block,
            &mut back,
        );
        assert!(refused.is_err());
        let refused = Compressor::new().compress_with(
            "xz:1".parse().unwrap(),
            &dictionary,
            &block,
            &mut back,
        );
        assert!(refused.is_err());
    }

    #[test]
    fn threads_share_one_dictionary() {
        let dictionary = trained();
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let dictionary = &dictionary;
                scope.spawn(move || {
                    for record in records(20, 100 + seed) {
                        check(dictionary, &record);
                    }
                });
            }
        });
        assert!(dictionary.memory_bytes() > dictionary.bytes().len());
    }
}
