//! The storage of a block: a codec with its level, and a filter before it.
//!
//! A [`Method`] is the result of a decision, and an option of a command line. Its text form reads back to the same
//! method: `store`, `lz4:1`, `lz4:a8`, `lz4hc:9`, `zstd:-5`, `deflate:6`, `xz:6`, `bzip2:9`, `shuffle4+zstd:3`,
//! `delta8+xz:6`, `zstd:3+dict`. A stored block has its [`Decoder`] beside it, not its method; a decoder knows no
//! level.
//!
//! A method with a dictionary is a method of its own, since it has its own cost and ratio. The place that stores the
//! block knows its dictionary.
//!
//! This file does not compress; the one dispatch is in the module above.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::decoder::Decoder;
use super::{bzip2, deflate, lz4, xz, zstd};
use crate::error::{Error, Result};

/// The storage of a block: bytes pass the filter, then the codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Method {
    /// The codec that makes the bytes fewer, after the filter.
    pub codec: Codec,
    /// The filter that rearranges them first.
    pub filter: Filter,
    /// Whether the codec starts with a dictionary; only lz4, lz4hc and zstd without a filter do.
    pub dictionary: bool,
}

/// A compression algorithm with its effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Codec {
    /// The raw bytes.
    Store,
    /// LZ4's fast compressor, 1 to 65,537; each step is some 3 % faster and less dense.
    Lz4 { acceleration: u32 },
    /// LZ4's dense compressor, level 2 to 12. Decodes like [`Codec::Lz4`].
    Lz4Hc { level: u8 },
    /// Zstandard, level -7 to 22 without 0.
    Zstd { level: i8 },
    /// Deflate by libdeflate, level 1 to 12.
    Deflate { level: u8 },
    /// LZMA2 in an `.xz` stream, preset 0 to 9.
    Xz { level: u8 },
    /// Burrows-Wheeler, level 1 to 9 (hundreds of kilobytes a block).
    Bzip2 { level: u8 },
    /// A fixed table of symbols, for small objects in memory alone: see [`super::Symbols`].
    Fsst,
}

/// A reversible rearrangement that makes numbers easier to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Filter {
    /// The bytes as they are.
    None,
    /// Bytes of equal rank in elements of `width` bytes (2, 4 or 8) are put side by side. The
    /// stored form is this project's own.
    Shuffle { width: u8 },
    /// Each byte minus the byte `distance` (1 to 256) before it: xz's own delta filter, inside a
    /// standard `.xz` stream, so only before [`Codec::Xz`].
    Delta { distance: u16 },
}

/// The error text for a text that is not a method.
const ACCEPTED: &str = "expected store, lz4:1, lz4:a1..a65537, lz4hc:2..12, zstd:-7..22 without 0, \
     deflate:1..12, xz:0..9 or bzip2:1..9, with shuffle2+, shuffle4+ or shuffle8+ before lz4, \
     lz4hc, zstd, deflate or bzip2, delta1..256+ before xz, or +dict after lz4, lz4hc or zstd";

impl Method {
    /// Stores the bytes raw.
    pub const STORE: Method = Method::of(Codec::Store);

    /// Makes a method of a codec without a filter.
    pub const fn of(codec: Codec) -> Method {
        Method {
            codec,
            filter: Filter::None,
            dictionary: false,
        }
    }

    /// Returns the method with a dictionary, or without one.
    pub const fn with_dictionary(self, dictionary: bool) -> Method {
        Method { dictionary, ..self }
    }

    /// Returns the most bytes this method makes of `source_bytes` bytes, at most
    /// [`super::BLOCK_BYTES_MAX`]: a target of this size always suffices.
    ///
    /// | codec | bound for n bytes |
    /// |---|---|
    /// | store | n |
    /// | lz4, lz4hc | n + n/255 + 16 |
    /// | zstd | n + n/256 + (128 KiB - n)/2048 where n < 128 KiB |
    /// | deflate | n + 5 * max(1, ceil(n/5000)) + 1 |
    /// | xz | n + 3 * (n/8192 + 1) + 128 |
    /// | bzip2 | n + n/100 + 600 |
    pub fn bound(&self, source_bytes: usize) -> usize {
        match self.codec {
            Codec::Store => source_bytes,
            Codec::Lz4 { .. } | Codec::Lz4Hc { .. } => lz4::bound(source_bytes),
            Codec::Zstd { .. } => zstd::bound(source_bytes),
            Codec::Deflate { .. } => deflate::bound(source_bytes),
            Codec::Xz { .. } => xz::bound(source_bytes),
            Codec::Bzip2 { .. } => bzip2::bound(source_bytes),
            Codec::Fsst => 2 * source_bytes,
        }
    }

    /// Returns the decoder that is stored beside a block of this method, without a dictionary.
    pub fn decoder(&self) -> Decoder {
        let codec = match self.codec {
            Codec::Store => Decoder::CODEC_STORE,
            Codec::Lz4 { .. } | Codec::Lz4Hc { .. } => Decoder::CODEC_LZ4,
            Codec::Zstd { .. } => Decoder::CODEC_ZSTD,
            Codec::Deflate { .. } => Decoder::CODEC_DEFLATE,
            Codec::Xz { .. } => Decoder::CODEC_XZ,
            Codec::Bzip2 { .. } => Decoder::CODEC_BZIP2,
            Codec::Fsst => Decoder::CODEC_FSST,
        };
        let filter = match self.filter {
            Filter::Shuffle { width: 2 } => Decoder::FILTER_SHUFFLE_2,
            Filter::Shuffle { width: 4 } => Decoder::FILTER_SHUFFLE_4,
            Filter::Shuffle { .. } => Decoder::FILTER_SHUFFLE_8,
            // The .xz stream names its own delta filter.
            Filter::None | Filter::Delta { .. } => Decoder::FILTER_NONE,
        };
        Decoder {
            codec,
            filter,
            dictionary: 0,
        }
    }

    /// Returns the most memory a [`super::Compressor`] holds for this method on blocks of
    /// `block_bytes`, beside source and target.
    ///
    /// | codec | bytes |
    /// |---|---|
    /// | store | 0 |
    /// | lz4 | 16 KiB + 32 |
    /// | lz4hc | 262,200 |
    /// | zstd | libzstd's own figure for the level and the block (`ZSTD_estimateCCtxSize`) |
    /// | deflate | 202,720 at level 1, 668,256 at 2 to 9, 9,011,712 at 10 to 12 |
    /// | xz | 1.5 w + 4 w (presets 0 to 3) or 8 w + 4 * max(64 Ki, w'/2) + 1.25 MiB, w = min(preset's window, block), w' = w rounded up to a power of 2 |
    /// | bzip2 | 400 kB + 8 * min(level * 100 kB, block rounded up to 100 kB) |
    ///
    /// A shuffle adds the block.
    pub fn compressor_bytes(&self, block_bytes: usize) -> usize {
        let codec = match self.codec {
            Codec::Store => 0,
            Codec::Lz4 { .. } => lz4::FAST_STATE_BYTES,
            Codec::Lz4Hc { .. } => lz4::DENSE_STATE_BYTES,
            Codec::Zstd { level } => zstd::compressor_bytes(level, block_bytes),
            Codec::Deflate { level } => deflate::compressor_bytes(level),
            Codec::Xz { level } => xz::compressor_bytes(level, block_bytes),
            Codec::Bzip2 { level } => bzip2::compressor_bytes(level, block_bytes),
            Codec::Fsst => 0,
        };
        codec + self.filter.scratch_bytes(block_bytes)
    }

    /// Returns the most memory that a [`super::Decompressor`] holds for a block of `block_bytes` made by this method,
    /// beside source and target.
    ///
    /// It is nothing for store and lz4, some 160 KiB for zstd, and 11,568 bytes for deflate. It is the window and 128
    /// KiB for xz, and 100 kB and 4 times the block size for bzip2. A shuffle adds the block.
    pub fn decompressor_bytes(&self, block_bytes: usize) -> usize {
        let codec = match self.codec {
            Codec::Store | Codec::Lz4 { .. } | Codec::Lz4Hc { .. } | Codec::Fsst => 0,
            Codec::Zstd { .. } => zstd::decompressor_bytes(),
            Codec::Deflate { .. } => deflate::DECOMPRESSOR_BYTES,
            Codec::Xz { level } => xz::decompressor_bytes(level, block_bytes),
            Codec::Bzip2 { level } => bzip2::decompressor_bytes(level, block_bytes),
        };
        codec + self.filter.scratch_bytes(block_bytes)
    }

    /// Checks that the levels are in range and the filter suits the codec.
    ///
    /// # Errors
    ///
    /// `Invalid`, with the accepted values. A method that was read from text always passes.
    pub fn check(&self) -> Result<()> {
        match self.fault() {
            None => Ok(()),
            Some(fault) => Err(Error::invalid("method", fault)),
        }
    }

    fn fault(&self) -> Option<String> {
        let level = |name: &str, level: i64, low: i64, high: i64| {
            let fits = (low..=high).contains(&level);
            (!fits).then(|| format!("{name} level {level} is outside {low}..{high}"))
        };
        let codec = match self.codec {
            Codec::Store => None,
            Codec::Lz4 { acceleration } => {
                let fits = (1..=lz4::ACCELERATION_MAX).contains(&acceleration);
                (!fits).then(|| format!("lz4 acceleration {acceleration} is outside 1..65537"))
            }
            Codec::Lz4Hc { level: found } => level("lz4hc", found.into(), 2, 12),
            Codec::Zstd { level: 0 } => {
                Some("zstd has no level 0; its default level is zstd:3".to_string())
            }
            Codec::Zstd { level: found } => level(
                "zstd",
                found.into(),
                zstd::LEVEL_MIN.into(),
                zstd::LEVEL_MAX.into(),
            ),
            Codec::Deflate { level: found } => level("deflate", found.into(), 1, 12),
            Codec::Xz { level: found } => level("xz", found.into(), 0, 9),
            Codec::Bzip2 { level: found } => level("bzip2", found.into(), 1, 9),
            Codec::Fsst => Some("fsst stores small objects in memory alone".to_string()),
        };
        codec.or_else(|| self.filter_fault())
    }

    fn filter_fault(&self) -> Option<String> {
        let takes_dictionary = matches!(
            self.codec,
            Codec::Lz4 { .. } | Codec::Lz4Hc { .. } | Codec::Zstd { .. }
        );
        if self.dictionary && !(takes_dictionary && self.filter == Filter::None) {
            return Some(
                "a dictionary goes only with lz4, lz4hc or zstd without a filter".to_string(),
            );
        }
        match (self.filter, self.codec) {
            (Filter::None, _) => None,
            (Filter::Shuffle { .. }, Codec::Store) => {
                Some("shuffle makes nothing smaller by itself; name a codec after it".to_string())
            }
            (Filter::Shuffle { .. }, Codec::Xz { .. }) => {
                Some("shuffle does not go before xz; use its own filter, delta8+xz:6".to_string())
            }
            (Filter::Shuffle { width }, _) => (!matches!(width, 2 | 4 | 8))
                .then(|| format!("shuffle width {width} is none of 2, 4 and 8")),
            (Filter::Delta { distance }, Codec::Xz { .. }) => (!(1..=256).contains(&distance))
                .then(|| format!("delta distance {distance} is outside 1..256")),
            (Filter::Delta { .. }, _) => {
                Some("delta is xz's own filter and goes only before xz".to_string())
            }
        }
    }
}

impl Filter {
    fn scratch_bytes(self, block_bytes: usize) -> usize {
        match self {
            Filter::Shuffle { .. } => block_bytes,
            Filter::None | Filter::Delta { .. } => 0,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.filter {
            Filter::None => {}
            Filter::Shuffle { width } => write!(f, "shuffle{width}+")?,
            Filter::Delta { distance } => write!(f, "delta{distance}+")?,
        }
        match self.codec {
            Codec::Store => f.write_str("store"),
            Codec::Lz4 { acceleration: 1 } => f.write_str("lz4:1"),
            Codec::Lz4 { acceleration } => write!(f, "lz4:a{acceleration}"),
            Codec::Lz4Hc { level } => write!(f, "lz4hc:{level}"),
            Codec::Zstd { level } => write!(f, "zstd:{level}"),
            Codec::Deflate { level } => write!(f, "deflate:{level}"),
            Codec::Xz { level } => write!(f, "xz:{level}"),
            Codec::Bzip2 { level } => write!(f, "bzip2:{level}"),
            Codec::Fsst => f.write_str("fsst"),
        }?;
        f.write_str(if self.dictionary { "+dict" } else { "" })
    }
}

impl FromStr for Method {
    type Err = Error;

    /// Reads a text form. A codec without a level gets its usual one: `lz4` is `lz4:1`, `lz4hc` is `lz4hc:9`, `zstd` is
    /// `zstd:3`. `deflate`, `xz` and `bzip2` get 6, 6 and 9.
    fn from_str(text: &str) -> Result<Method> {
        let fail = |reason: String| Error::parse("method", text, reason);
        let (plain, dictionary) = match text.strip_suffix("+dict") {
            Some(plain) => (plain, true),
            None => (text, false),
        };
        let (filter, codec) = match plain.rsplit_once('+') {
            None => (Filter::None, plain),
            Some((filter, codec)) => match parse_filter(filter) {
                Some(filter) => (filter, codec),
                None => return Err(fail(format!("no filter '{}'; {ACCEPTED}", shorten(filter)))),
            },
        };
        let codec = parse_codec(codec).map_err(fail)?;
        let method = Method {
            codec,
            filter,
            dictionary,
        };
        match method.fault() {
            None => Ok(method),
            Some(fault) => Err(fail(fault)),
        }
    }
}

impl TryFrom<String> for Method {
    type Error = Error;
    fn try_from(text: String) -> Result<Method> {
        text.parse()
    }
}

impl From<Method> for String {
    fn from(method: Method) -> String {
        method.to_string()
    }
}

fn parse_filter(text: &str) -> Option<Filter> {
    if let Some(width) = text.strip_prefix("shuffle") {
        let width = parse_number(width)?;
        return Some(Filter::Shuffle { width });
    }
    let distance = parse_number(text.strip_prefix("delta")?)?;
    Some(Filter::Delta { distance })
}

fn parse_codec(text: &str) -> std::result::Result<Codec, String> {
    let (name, level) = match text.split_once(':') {
        Some((name, level)) => (name, Some(level)),
        None => (text, None),
    };
    let unknown = || format!("'{}' is not understood; {ACCEPTED}", shorten(text));
    let level_or = |default: u8| match level {
        None => Ok(default),
        Some(level) => parse_number(level).ok_or_else(unknown),
    };
    match name {
        "store" if level.is_none() => Ok(Codec::Store),
        "lz4" => parse_acceleration(level).ok_or_else(|| {
            let level = shorten(level.unwrap_or_default());
            format!(
                "lz4 has no level '{level}'; for acceleration write lz4:a8, for density lz4hc:9"
            )
        }),
        "lz4hc" => Ok(Codec::Lz4Hc {
            level: level_or(9)?,
        }),
        "zstd" => match level {
            None => Ok(Codec::Zstd { level: 3 }),
            Some(level) => {
                let (sign, digits) = match level.strip_prefix('-') {
                    Some(digits) => (-1, digits),
                    None => (1, level),
                };
                let size: i8 = parse_number(digits).ok_or_else(unknown)?;
                Ok(Codec::Zstd { level: sign * size })
            }
        },
        "deflate" => Ok(Codec::Deflate {
            level: level_or(6)?,
        }),
        "xz" => Ok(Codec::Xz {
            level: level_or(6)?,
        }),
        "bzip2" => Ok(Codec::Bzip2 {
            level: level_or(9)?,
        }),
        "fsst" if level.is_none() => Ok(Codec::Fsst),
        _ => Err(unknown()),
    }
}

fn parse_acceleration(level: Option<&str>) -> Option<Codec> {
    let acceleration = match level {
        None | Some("1") => 1,
        Some(level) => parse_number(level.strip_prefix('a')?)?,
    };
    Some(Codec::Lz4 { acceleration })
}

/// Reads plain decimal digits: no sign, no leading zero, so that one method has one text.
fn parse_number<T: FromStr>(text: &str) -> Option<T> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let shortest = text == "0" || !text.starts_with('0');
    (plain && shortest).then(|| text.parse().ok()).flatten()
}

fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let method: Method = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(method.to_string(), expected);
        assert_eq!(expected.parse::<Method>().unwrap(), method);
        let json = serde_json::to_string(&method).unwrap();
        assert_eq!(json, format!("\"{expected}\""));
        assert_eq!(serde_json::from_str::<Method>(&json).unwrap(), method);
    }

    fn check_refused(text: &str, advice: &str) {
        let message = text.parse::<Method>().unwrap_err().to_string();
        assert!(
            message.contains(advice),
            "'{text}': '{message}' lacks '{advice}'"
        );
    }

    #[test]
    fn text_reads_back_to_the_same_method() {
        check("store", "store");
        check("lz4", "lz4:1");
        check("lz4:1", "lz4:1");
        check("lz4:a1", "lz4:1");
        check("lz4:a8", "lz4:a8");
        check("lz4:a65537", "lz4:a65537");
        check("lz4hc", "lz4hc:9");
        check("lz4hc:2", "lz4hc:2");
        check("zstd", "zstd:3");
        check("zstd:-5", "zstd:-5");
        check("zstd:22", "zstd:22");
        check("deflate", "deflate:6");
        check("xz:0", "xz:0");
        check("bzip2", "bzip2:9");
        check("shuffle4+zstd:3", "shuffle4+zstd:3");
        check("shuffle8+lz4", "shuffle8+lz4:1");
        check("delta8+xz:6", "delta8+xz:6");
        check("delta256+xz", "delta256+xz:6");
        check("zstd+dict", "zstd:3+dict");
        check("zstd:-5+dict", "zstd:-5+dict");
        check("lz4:a8+dict", "lz4:a8+dict");
        check("lz4hc:9+dict", "lz4hc:9+dict");
    }

    #[test]
    fn other_text_is_refused_with_what_would_be_accepted() {
        check_refused("", "expected store, lz4:1");
        check_refused("gzip", "expected store, lz4:1");
        check_refused("store:1", "expected store, lz4:1");
        check_refused("ZSTD:3", "expected store, lz4:1");
        check_refused(" zstd:3", "expected store, lz4:1");
        check_refused("zstd:0", "zstd:3");
        check_refused("zstd:-0", "zstd:3");
        check_refused("zstd:23", "outside -7..22");
        check_refused("zstd:-8", "outside -7..22");
        check_refused("zstd:+3", "no filter 'zstd:'");
        check_refused("zstd:03", "expected store, lz4:1");
        check_refused("zstd:300", "expected store, lz4:1");
        check_refused("lz4:9", "lz4hc:9");
        check_refused("lz4:a0", "outside 1..65537");
        check_refused("lz4hc:1", "outside 2..12");
        check_refused("deflate:0", "outside 1..12");
        check_refused("xz:10", "outside 0..9");
        check_refused("bzip2:0", "outside 1..9");
        check_refused("shuffle3+zstd:3", "none of 2, 4 and 8");
        check_refused("shuffle4+store", "name a codec");
        check_refused("shuffle4+xz:6", "delta8+xz:6");
        check_refused("delta8+zstd:3", "only before xz");
        check_refused("delta0+xz:6", "outside 1..256");
        check_refused("delta8+shuffle4+xz:6", "no filter 'delta8+shuffle4'");
        check_refused("xz:6+dict", "only with lz4");
        check_refused("store+dict", "only with lz4");
        check_refused("shuffle4+zstd:3+dict", "without a filter");
        check_refused("+dict", "expected store, lz4:1");
        check_refused("zstd:3+dict+dict", "no filter 'zstd:3'");
    }

    #[test]
    fn a_method_built_out_of_range_is_refused() {
        let method = Method::of(Codec::Zstd { level: 23 });
        assert!(method.check().is_err());
        let method = Method {
            codec: Codec::Zstd { level: 3 },
            filter: Filter::Delta { distance: 4 },
            dictionary: false,
        };
        assert!(method.check().is_err());
        assert!(Method::STORE.check().is_ok());
    }
}
