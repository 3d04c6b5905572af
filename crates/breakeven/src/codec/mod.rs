//! Blocks in and out of compressed form, behind one interface.
//!
//! A [`Method`] tells how to store a block, and the [`Decoder`] is stored beside it. A [`Compressor`] and a
//! [`Decompressor`] hold the working memory of every codec that they have served. So the steady state allocates nothing
//! for store, lz4, zstd and deflate. Each has one dispatch, and both are in this file.
//!
//! Promises: compressing stops where the target ends. Decoding fills the target exactly or fails. No input makes either
//! panic, write outside its target or take memory beyond the stated limit. After an error or a "does not fit" the bytes
//! of the target are unspecified.
//!
//! Codecs beside store, lz4 and zstd are features of the crate. Methods of the codecs that are not built can be named,
//! but are refused when a block is to pass them.
//!
//! Not here: clocks, threads, policy. The bytes carry no check of their own: the place that stores a block stores its
//! check.
#![deny(unsafe_code)]

mod bzip2;
mod decoder;
mod deflate;
mod dictionary;
mod features;
#[cfg(feature = "objects")]
mod fsst;
#[cfg(all(test, feature = "dictionaries"))]
mod hostile_test;
mod lz4;
mod method;
mod shuffle;
mod xz;
mod zstd;

use crate::error::{Error, Result};

pub use decoder::{Decoder, DecoderRow};
pub use dictionary::{DICTIONARY_BYTES_MAX, Dictionary, DictionaryHash, TRAINED_BYTES_MIN};
pub use features::{Features, Glance};
#[cfg(feature = "objects")]
pub use fsst::{FSST, Symbols};
pub use method::{Codec, Filter, Method};
use xz::Check;

/// The longest block: 1 GiB, which every codec can count.
pub const BLOCK_BYTES_MAX: usize = 1 << 30;

/// The working memory for compressing, reused from block to block.
///
/// # Cost
///
/// Memory grows to the sum of [`Method::compressor_bytes`] over the codecs used. Levels of one codec share it, but lz4
/// and lz4hc each have their own, and zstd has one more for dictionaries. None is given back before the compressor is
/// dropped.
#[derive(Default)]
pub struct Compressor {
    lz4: lz4::Encoder,
    zstd: zstd::Encoder,
    deflate: deflate::Encoder,
    planes: Vec<u8>,
}

impl Compressor {
    /// Makes a compressor that holds no memory yet.
    pub fn new() -> Compressor {
        Compressor::default()
    }

    /// Compresses a block and returns its stored length, or `None` if it does not fit in `target`.
    ///
    /// The target's length is the caller's limit, and a codec stops at it. So a short target makes a hopeless block
    /// cheap.
    ///
    /// # Errors
    ///
    /// `Invalid` for a method out of range or one that needs a dictionary. `Unsupported` for one that is not built.
    /// `Limit` for a block above [`BLOCK_BYTES_MAX`].
    ///
    /// # Example
    ///
    /// ```
    /// use breakeven::codec::{Compressor, Decompressor, Method};
    ///
    /// let method: Method = "zstd:3".parse()?;
    /// let block = [7; 8192];
    /// let mut stored = vec![0; method.bound(block.len())];
    /// let size = Compressor::new().compress(method, &block, &mut stored)?.unwrap();
    /// let mut back = [0; 8192];
    /// Decompressor::new().decompress(method.decoder(), &stored[..size], &mut back)?;
    /// assert_eq!(back, block);
    /// # Ok::<(), breakeven::Error>(())
    /// ```
    pub fn compress(
        &mut self,
        method: Method,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        check_plain(method)?;
        check_length(source.len())?;
        let Filter::Shuffle { width } = method.filter else {
            return self.encode(method, None, source, target);
        };
        let mut planes = std::mem::take(&mut self.planes);
        let room = room(&mut planes, source.len());
        shuffle::shuffle(width.into(), source, room);
        let size = self.encode(method, None, room, target);
        self.planes = planes;
        size
    }

    /// Compresses a block with a dictionary, for lz4, lz4hc and zstd without a filter. Otherwise as
    /// [`Compressor::compress`], even for a method that does not name its dictionary.
    ///
    /// # Errors
    ///
    /// As [`Compressor::compress`], and `Unsupported` for another codec or a filter.
    pub fn compress_with(
        &mut self,
        method: Method,
        dictionary: &Dictionary,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        method.check()?;
        check_length(source.len())?;
        if method.filter != Filter::None {
            return Err(no_dictionary(method));
        }
        self.encode(method, Some(dictionary), source, target)
    }

    /// Compresses a block by a zstd method after a prefix of similar bytes, which the decoder must have as well
    /// ([`Decompressor::decompress_after`]). As [`Compressor::compress`]. Levels find matches only in the last bytes of
    /// a long prefix: those below 3 in some 128 KiB, level 3 in a MiB.
    ///
    /// # Errors
    ///
    /// As [`Compressor::compress`], and `Unsupported` for another codec or a filter.
    ///
    /// # Cost
    ///
    /// Memory of [`Method::compressor_bytes`] for prefix and block together, given back at the end.
    pub fn compress_after(
        &mut self,
        method: Method,
        prefix: &[u8],
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        method.check()?;
        check_length(prefix.len().saturating_add(source.len()))?;
        match (method.codec, method.filter) {
            (Codec::Zstd { level }, Filter::None) => {
                zstd::Encoder::compress_after(prefix, level, source, target)
            }
            _ => Err(Error::Unsupported {
                what: format!("{method} after a prefix"),
            }),
        }
    }

    /// Compresses a block as an `.xz` stream with a CRC64 of its content, for a stream without another check. Otherwise
    /// as [`Compressor::compress`], for xz alone.
    ///
    /// # Errors
    ///
    /// As [`Compressor::compress`], and `Unsupported` for another codec.
    #[cfg(feature = "stream")]
    pub(crate) fn compress_checked(
        &mut self,
        method: Method,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        check_plain(method)?;
        check_length(source.len())?;
        match method.codec {
            Codec::Xz { level } => xz::compress(level, method.filter, Check::Crc64, source, target),
            _ => Err(Error::Unsupported {
                what: format!("{method} with a check of its own"),
            }),
        }
    }

    /// Compresses a block by a zstd method without the headers of its frame, for a decoder of
    /// [`Decoder::CODEC_ZSTD_BARE`]: some 8 to 15 bytes less. `None` if it does not fit in `target`, is longer than
    /// 128 KiB or is not made of one compressed block.
    ///
    /// # Errors
    ///
    /// As [`Compressor::compress`], and `Unsupported` for another codec or a filter.
    pub fn compress_bare(
        &mut self,
        method: Method,
        dictionary: Option<&Dictionary>,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        method.check()?;
        match (method.codec, method.filter, dictionary) {
            (Codec::Zstd { level }, Filter::None, Some(dictionary)) => {
                let dictionary = dictionary.zstd_encoder(level)?;
                (self.zstd).compress_bare(Ok(dictionary), source, target)
            }
            (Codec::Zstd { level }, Filter::None, None) => {
                self.zstd.compress_bare(Err(level), source, target)
            }
            _ => Err(Error::Unsupported {
                what: format!("{method} without the headers of a frame"),
            }),
        }
    }

    /// The one dispatch of compression.
    fn encode(
        &mut self,
        method: Method,
        dictionary: Option<&Dictionary>,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        match (method.codec, dictionary) {
            (Codec::Store, None) => Ok(target.get_mut(..source.len()).map(|target| {
                target.copy_from_slice(source);
                source.len()
            })),
            (Codec::Lz4 { acceleration }, None) => {
                self.lz4.compress_fast(acceleration, source, target)
            }
            (Codec::Lz4 { acceleration }, Some(dictionary)) => {
                let dictionary = dictionary.lz4_encoder()?;
                (self.lz4).compress_fast_with(acceleration, dictionary, source, target)
            }
            (Codec::Lz4Hc { level }, None) => self.lz4.compress_dense(level, source, target),
            (Codec::Lz4Hc { level }, Some(dictionary)) => {
                let dictionary = dictionary.lz4hc_encoder(level)?;
                (self.lz4).compress_dense_with(level, dictionary, source, target)
            }
            (Codec::Zstd { level }, None) => self.zstd.compress(level, source, target),
            (Codec::Zstd { level }, Some(dictionary)) => {
                let dictionary = dictionary.zstd_encoder(level)?;
                self.zstd.compress_with(dictionary, source, target)
            }
            (Codec::Deflate { level }, None) => self.deflate.compress(level, source, target),
            (Codec::Xz { level }, None) => {
                xz::compress(level, method.filter, Check::None, source, target)
            }
            (Codec::Bzip2 { level }, None) => bzip2::compress(level, source, target),
            // Its check refuses it before this point.
            (Codec::Fsst, None) => Err(no_dictionary(method)),
            (_, Some(_)) => Err(no_dictionary(method)),
        }
    }
}

/// The working memory for decoding, reused from block to block.
pub struct Decompressor {
    /// The most memory that a block may need beside source and target, checked before it is taken. Default 80 MiB:
    /// enough for the largest preset of `xz`.
    pub memory_limit_bytes: usize,
    zstd: zstd::Reader,
    deflate: deflate::Reader,
    planes: Vec<u8>,
}

impl Default for Decompressor {
    fn default() -> Decompressor {
        Decompressor {
            memory_limit_bytes: 80 << 20,
            zstd: zstd::Reader::default(),
            deflate: deflate::Reader::default(),
            planes: Vec::new(),
        }
    }
}

impl Decompressor {
    /// Makes a decompressor that holds no memory yet.
    pub fn new() -> Decompressor {
        Decompressor::default()
    }

    /// Decodes a block into `target`, whose length is the block's.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the bytes are not a block of exactly the target's length. `Unsupported` if the decoder is not in
    /// the table, not built or names a dictionary. `Limit` if it needs more memory than
    /// [`Decompressor::memory_limit_bytes`] or the target is above [`BLOCK_BYTES_MAX`]. The target's bytes are then
    /// unspecified.
    pub fn decompress(&mut self, decoder: Decoder, source: &[u8], target: &mut [u8]) -> Result<()> {
        check_length(target.len())?;
        if decoder.dictionary != 0 {
            return Err(Error::Unsupported {
                what: format!("a block of dictionary {} without it", decoder.dictionary),
            });
        }
        match decoder.shuffle_width() {
            Some(1) => self.decode(decoder, None, source, target),
            Some(width) => self.decode_planes(decoder, width, source, target),
            None => Err(Error::Unsupported {
                what: format!("filter number {}", decoder.filter),
            }),
        }
    }

    /// Decodes a block that was compressed with a dictionary into `target`.
    ///
    /// The caller must know that it is the right dictionary. The id of a trained dictionary is checked, but with the
    /// wrong plain bytes a block may decode to other bytes.
    ///
    /// # Errors
    ///
    /// As [`Decompressor::decompress`], and `Unsupported` if the decoder names no dictionary, or a
    /// codec or filter that takes none.
    pub fn decompress_with(
        &mut self,
        decoder: Decoder,
        dictionary: &Dictionary,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<()> {
        check_length(target.len())?;
        if decoder.dictionary == 0 || decoder.filter != Decoder::FILTER_NONE {
            return Err(Error::Unsupported {
                what: format!("a dictionary for a block of {decoder:?}"),
            });
        }
        self.decode(decoder, Some(dictionary), source, target)
    }

    /// Decodes a block that was compressed after a prefix ([`Compressor::compress_after`]) into `target`. With another
    /// prefix it may decode to other bytes.
    ///
    /// # Errors
    ///
    /// As [`Decompressor::decompress`], and `Unsupported` for another decoder than zstd's without a filter.
    pub fn decompress_after(
        &mut self,
        decoder: Decoder,
        prefix: &[u8],
        source: &[u8],
        target: &mut [u8],
    ) -> Result<()> {
        check_length(prefix.len().saturating_add(target.len()))?;
        match (decoder.codec, decoder.filter, decoder.dictionary) {
            (Decoder::CODEC_ZSTD, Decoder::FILTER_NONE, 0) => {
                zstd::Reader::decompress_after(prefix, source, target)
            }
            _ => Err(Error::Unsupported {
                what: format!("a block of {decoder:?} after a prefix"),
            }),
        }
    }

    fn decode_planes(
        &mut self,
        decoder: Decoder,
        width: usize,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<()> {
        if target.len() > self.memory_limit_bytes {
            return Err(Error::Limit {
                what: "shuffled block",
                limit_bytes: self.memory_limit_bytes as u64,
                needed_bytes: target.len() as u64,
            });
        }
        let mut planes = std::mem::take(&mut self.planes);
        let room = room(&mut planes, target.len());
        let outcome = self.decode(decoder, None, source, room);
        if outcome.is_ok() {
            shuffle::unshuffle(width, room, target);
        }
        self.planes = planes;
        outcome
    }

    /// The one dispatch of decoding.
    fn decode(
        &mut self,
        decoder: Decoder,
        dictionary: Option<&Dictionary>,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<()> {
        let memory_limit_bytes = self.memory_limit_bytes;
        match (decoder.codec, dictionary) {
            (Decoder::CODEC_STORE, None) => copy(source, target),
            (Decoder::CODEC_LZ4, None) => lz4::decompress(source, target),
            (Decoder::CODEC_LZ4, Some(dictionary)) => {
                lz4::decompress_with(dictionary.bytes(), source, target)
            }
            (Decoder::CODEC_ZSTD, None) => self.zstd.decompress(source, target),
            (Decoder::CODEC_ZSTD, Some(dictionary)) => {
                let dictionary = dictionary.zstd_decoder();
                self.zstd.decompress_with(dictionary, source, target)
            }
            (Decoder::CODEC_ZSTD_BARE, dictionary) => {
                let dictionary = dictionary.map(Dictionary::zstd_decoder);
                self.zstd.decompress_bare(dictionary, source, target)
            }
            (Decoder::CODEC_DEFLATE, None) => self.deflate.decompress(source, target),
            (Decoder::CODEC_XZ, None) => xz::decompress(memory_limit_bytes, source, target),
            (Decoder::CODEC_BZIP2, None) => bzip2::decompress(memory_limit_bytes, source, target),
            (number, _) => Err(Error::Unsupported {
                what: match dictionary {
                    None => format!("codec number {number}"),
                    Some(_) => format!("codec number {number} with a dictionary"),
                },
            }),
        }
    }
}

fn copy(source: &[u8], target: &mut [u8]) -> Result<()> {
    if source.len() == target.len() {
        target.copy_from_slice(source);
        return Ok(());
    }
    let (expected, found) = (target.len(), source.len());
    Err(Error::corrupt(
        "stored block",
        0,
        format!("{expected} bytes"),
        format!("{found} bytes"),
    ))
}

fn check_plain(method: Method) -> Result<()> {
    method.check()?;
    match method.dictionary {
        false => Ok(()),
        true => {
            let reason = format!("{method} wants its dictionary");
            Err(Error::invalid("method without a dictionary", reason))
        }
    }
}

fn no_dictionary(method: Method) -> Error {
    Error::Unsupported {
        what: format!("{method} with a dictionary; lz4, lz4hc and zstd take one"),
    }
}

/// Returns the first `bytes` bytes of a scratch buffer. The buffer only grows, so it is zeroed once and not for each
/// block.
fn room(scratch: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if scratch.len() < bytes {
        scratch.resize(bytes, 0);
    }
    &mut scratch[..bytes]
}

#[cfg(not(all(feature = "xz", feature = "deflate", feature = "bzip2")))]
fn not_built(codec: &str) -> Error {
    Error::Unsupported {
        what: format!("{codec}: this build is without the feature '{codec}' of breakeven"),
    }
}

fn check_length(block_bytes: usize) -> Result<()> {
    if block_bytes <= BLOCK_BYTES_MAX {
        return Ok(());
    }
    Err(Error::Limit {
        what: "block",
        limit_bytes: BLOCK_BYTES_MAX as u64,
        needed_bytes: block_bytes as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One method of every codec and filter, and the ends of the level ranges.
    const METHODS: &[&str] = &[
        "store",
        "lz4:1",
        "lz4:a65537",
        "lz4hc:2",
        "lz4hc:9",
        "lz4hc:12",
        "zstd:-7",
        "zstd:1",
        "zstd:3",
        "zstd:19",
        "zstd:22",
        "deflate:1",
        "deflate:6",
        "deflate:12",
        "xz:0",
        "xz:6",
        "delta8+xz:6",
        "delta256+xz:0",
        "bzip2:1",
        "bzip2:9",
        "shuffle2+lz4:1",
        "shuffle4+zstd:3",
        "shuffle8+bzip2:9",
        "shuffle8+deflate:6",
        "shuffle4+lz4hc:9",
    ];

    /// The methods that are built; without a codec's feature, its methods are refused.
    fn methods() -> Vec<Method> {
        let all = METHODS.iter().map(|text| text.parse().expect("a method"));
        let mut compressor = Compressor::new();
        let mut is_built = |method: &Method| {
            let tried = compressor.compress(*method, b"a block", &mut [0; 200]);
            !matches!(tried, Err(Error::Unsupported { .. }))
        };
        let built: Vec<Method> = all.filter(|method| is_built(method)).collect();
        let is_whole = cfg!(all(feature = "xz", feature = "deflate", feature = "bzip2"));
        assert!(built.len() == METHODS.len() || !is_whole && built.len() >= 12);
        built
    }

    #[test]
    fn a_block_after_what_it_is_like_takes_what_differs_and_needs_it() {
        let mut random = fastrand::Rng::with_seed(3);
        let prefix: Vec<u8> = (0..700_000).map(|_| random.u8(..)).collect();
        let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
        for level in ["zstd:3", "zstd:5", "zstd:7", "zstd:19"] {
            let method: Method = level.parse().unwrap();
            // The whole prefix is in reach from the last byte.
            for (from, length) in [(0, 700_000), (699_000, 1000), (0, 300)] {
                let mut block = prefix[from..from + length].to_vec();
                block[length / 2] ^= 1;
                let mut room = vec![0; method.bound(length)];
                let size = compressor.compress_after(method, &prefix, &block, &mut room);
                let size = size.unwrap().unwrap();
                assert!(size < 200 + length / 100, "{level}: {size} of {length}");
                let mut back = vec![0; length];
                let mut decode = |prefix: &[u8]| {
                    let decoder = method.decoder();
                    decompressor.decompress_after(decoder, prefix, &room[..size], &mut back)?;
                    Ok::<_, Error>(back == block)
                };
                assert!(decode(&prefix).unwrap());
                assert!(!decode(&prefix[..prefix.len() - 1]).unwrap_or(false));
            }
        }
        let mut room = [0; 100];
        let other = compressor.compress_after(Method::STORE, &prefix, &prefix[..50], &mut room);
        assert!(matches!(other, Err(Error::Unsupported { .. })));
    }

    /// Blocks of different kinds and lengths, with short and odd ones among them.
    pub(crate) fn blocks() -> Vec<Vec<u8>> {
        let mut random = fastrand::Rng::with_seed(7);
        let text = "the quick brown fox jumps over the lazy dog; ".repeat(3000);
        let numbers: Vec<u8> = (0..9_000u32)
            .flat_map(|index| f64::from(index).sqrt().to_le_bytes())
            .collect();
        let noise: Vec<u8> = (0..70_000).map(|_| random.u8(..)).collect();
        let mut blocks = vec![Vec::new(), vec![0; 200_000], vec![0xFF; 4096]];
        for source in [text.as_bytes(), &numbers, &noise] {
            for length in [1, 2, 7, 8, 13, 64, 300, 4095, 8192, 65_547, source.len()] {
                blocks.push(source[..length.min(source.len())].to_vec());
            }
        }
        blocks
    }

    fn check_round_trip(compressor: &mut Compressor, method: Method, block: &[u8]) {
        let mut stored = vec![0xA5; method.bound(block.len())];
        let size = compressor.compress(method, block, &mut stored).unwrap();
        let size = size.unwrap_or_else(|| panic!("{method}: {} bytes pass the bound", block.len()));
        let stored = &stored[..size];
        let mut decompressor = Decompressor::new();
        for fill in [0x00, 0x5A] {
            let mut back = vec![fill; block.len()];
            decompressor
                .decompress(method.decoder(), stored, &mut back)
                .unwrap_or_else(|error| panic!("{method}, {} bytes: {error}", block.len()));
            assert!(back == block, "{method}: {} bytes differ", block.len());
        }
        let mut longer = vec![0; block.len() + 1];
        assert!(
            decompressor
                .decompress(method.decoder(), stored, &mut longer)
                .is_err(),
            "{method}: a target one byte too long was filled"
        );
        if let Some(shorter) = block.len().checked_sub(1) {
            assert!(
                decompressor
                    .decompress(method.decoder(), stored, &mut longer[..shorter])
                    .is_err(),
                "{method}: a target one byte too short was enough"
            );
        }
        // The exact size suffices, one byte less never does.
        let mut target = vec![0; size];
        let again = compressor.compress(method, block, &mut target).unwrap();
        if let Some(again) = again {
            assert!(again <= size);
            assert!(target[..again] == *stored, "{method}: other bytes");
        }
        if size > 0 && method.codec == Codec::Store {
            let none = compressor.compress(method, block, &mut target[..size - 1]);
            assert_eq!(none.unwrap(), None);
        }
    }

    #[test]
    fn every_method_gives_every_block_back() {
        let mut compressor = Compressor::new();
        for block in blocks() {
            for method in methods() {
                check_round_trip(&mut compressor, method, &block);
            }
        }
    }

    #[test]
    fn a_short_target_is_no_error() {
        let mut compressor = Compressor::new();
        let mut random = fastrand::Rng::with_seed(11);
        let noise: Vec<u8> = (0..100_000).map(|_| random.u8(..)).collect();
        for method in methods() {
            for limit in [0, 1, 2, 10, 100, 50_000, 99_999] {
                let outcome = compressor.compress(method, &noise, &mut vec![0; limit]);
                assert_eq!(outcome.unwrap(), None, "{method} in {limit} bytes");
            }
            // And the compressor still works.
            check_round_trip(&mut compressor, method, b"after a block that did not fit");
        }
    }

    #[test]
    fn the_bytes_do_not_depend_on_what_was_compressed_before() {
        let mut used = Compressor::new();
        for block in blocks() {
            for method in methods() {
                let bound = method.bound(block.len());
                let (mut first, mut second) = (vec![0; bound], vec![0; bound]);
                let one = used.compress(method, &block, &mut first).unwrap().unwrap();
                let mut fresh = Compressor::new();
                let two = fresh.compress(method, &block, &mut second).unwrap();
                assert_eq!(Some(one), two, "{method}, {} bytes", block.len());
                assert!(first[..one] == second[..one], "{method}");
            }
        }
    }

    #[test]
    fn workspaces_move_between_threads() {
        fn check<T: Send + 'static>(workspace: T) {
            let thread = std::thread::spawn(move || drop(workspace));
            thread.join().unwrap();
        }
        check(Compressor::new());
        check(Decompressor::new());
    }

    #[test]
    fn bare_blocks_come_back_and_are_shorter_by_their_headers() {
        let method: Method = "zstd:3".parse().unwrap();
        let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
        let dictionary =
            Dictionary::new(&b"the lazy dog jumps over the quick brown fox; ".repeat(9));
        let dictionary = dictionary.unwrap();
        let (mut tried, mut bare_bytes, mut whole_bytes) = (0, 0, 0);
        for block in blocks() {
            for length in [0, 1, 40, 300, 4096, 131_072, 131_073, usize::MAX] {
                let block = &block[..length.min(block.len())];
                for with in [None, Some(&dictionary)] {
                    let mut stored = vec![0; method.bound(block.len())];
                    let size = compressor.compress_bare(method, with, block, &mut stored);
                    let Some(size) = size.unwrap() else { continue };
                    let decoder = Decoder {
                        codec: Decoder::CODEC_ZSTD_BARE,
                        dictionary: with.map_or(0, |_| 5),
                        ..Decoder::STORE
                    };
                    let mut back = vec![7; block.len()];
                    match with {
                        None => decompressor.decompress(decoder, &stored[..size], &mut back),
                        Some(it) => {
                            decompressor.decompress_with(decoder, it, &stored[..size], &mut back)
                        }
                    }
                    .unwrap();
                    assert!(back == block && block.len() <= 131_072);
                    let short =
                        compressor.compress_bare(method, with, block, &mut stored[..size - 1]);
                    assert_eq!(short.unwrap(), None);
                    let whole = match with {
                        None => compressor.compress(method, block, &mut stored),
                        Some(it) => compressor.compress_with(method, it, block, &mut stored),
                    };
                    bare_bytes += size;
                    whole_bytes += whole.unwrap().unwrap();
                    tried += 1;
                }
            }
        }
        println!("bare: {tried} blocks, {bare_bytes} bytes, {whole_bytes} as frames");
        assert!(tried >= 30 && whole_bytes >= bare_bytes + 8 * tried);
        let lz4 = compressor.compress_bare("lz4:1".parse().unwrap(), None, &[0; 99], &mut [0; 99]);
        assert!(matches!(lz4, Err(Error::Unsupported { .. })));
    }

    #[test]
    fn unknown_decoders_are_refused() {
        let mut decompressor = Decompressor::new();
        let mut check = |codec: u8, filter: u8, dictionary: u32| {
            let decoder = Decoder {
                codec,
                filter,
                dictionary,
            };
            let outcome = decompressor.decompress(decoder, &[1, 2, 3], &mut [0; 3]);
            assert!(matches!(outcome, Err(Error::Unsupported { .. })));
        };
        check(7, 0, 0);
        check(255, 0, 0);
        check(0, 4, 0);
        check(0, 0, 1);
    }
}
