//! Fuzz targets as plain functions: any bytes in, a panic only where a promise is broken.
//!
//! On the stable compiler, `cargo test` replays the kept inputs of `tests/corpus/NAME/` through the target of that
//! name, and then seeded mutations of them. `fuzz/` hands the same functions to libFuzzer. An input that once broke a
//! target is kept in its folder. Not part of the library unless the feature `fuzzing` asks for it.

use crate::blocks::fuzz::fuzz_blocks;
use crate::codec::{Compressor, Decoder, Decompressor, Dictionary, Method};
use crate::frame::fuzz::fuzz_frame;
use crate::replay::fuzz::fuzz_trace;
use crate::storage::fuzz::{fuzz_record, fuzz_superblock};
use crate::stream::fuzz::{fuzz_stream, fuzz_stream_round_trip};
#[cfg(feature = "vault")]
use crate::vault::fuzz::fuzz_vault;

/// A fuzz target and the name of its folder.
#[derive(Clone, Copy)]
pub struct Target {
    /// The name of the folder with its kept inputs, and of the libFuzzer binary's argument.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "blocks",
        run: fuzz_blocks,
    },
    Target {
        name: "decode",
        run: fuzz_decode,
    },
    Target {
        name: "frame",
        run: fuzz_frame,
    },
    Target {
        name: "method",
        run: fuzz_method,
    },
    Target {
        name: "record",
        run: fuzz_record,
    },
    Target {
        name: "round_trip",
        run: fuzz_round_trip,
    },
    Target {
        name: "stream",
        run: fuzz_stream,
    },
    Target {
        name: "stream_round_trip",
        run: fuzz_stream_round_trip,
    },
    Target {
        name: "superblock",
        run: fuzz_superblock,
    },
    Target {
        name: "trace",
        run: fuzz_trace,
    },
    #[cfg(feature = "vault")]
    Target {
        name: "vault",
        run: fuzz_vault,
    },
];

const DICTIONARY: &[u8] =
    b"what both sides know need not be said again; break-even, verdict, method";

/// Decodes any bytes with any decoder: codec, filter, dictionary flag, two bytes of target length, then the stored
/// bytes. A block that decodes must fill the target, and leave nothing of its former bytes.
pub fn fuzz_decode(data: &[u8]) {
    let Some((&[codec, filter, flags, low, high], stored)) = data.split_first_chunk() else {
        return;
    };
    let decoder = Decoder {
        codec,
        filter,
        dictionary: u32::from(flags & 1),
    };
    let block_bytes = usize::from(u16::from_le_bytes([low, high]));
    let mut decompressor = Decompressor::new();
    decompressor.memory_limit_bytes = 4 << 20;
    let mut decode = |fill: u8| {
        let mut target = vec![fill; block_bytes];
        let outcome = match decoder.dictionary {
            0 => decompressor.decompress(decoder, stored, &mut target),
            _ => {
                let dictionary = Dictionary::new(DICTIONARY).expect("plain bytes");
                decompressor.decompress_with(decoder, &dictionary, stored, &mut target)
            }
        };
        outcome.ok().map(|()| target)
    };
    assert_eq!(decode(0x00), decode(0xFF), "the target shows through");
}

/// Reads any text as a method. A method that parses must print, read back to itself, and be in range.
pub fn fuzz_method(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(method) = text.parse::<Method>() else {
        return;
    };
    method.check().expect("a method that was read is in range");
    let printed = method.to_string();
    assert_eq!(printed.parse::<Method>().ok(), Some(method));
    assert!(method.bound(data.len()) >= data.len());
}

/// Compresses any bytes by a method into a target of any length, and decodes what fitted. The first
/// byte picks the method, the next two the target's length.
pub fn fuzz_round_trip(data: &[u8]) {
    const METHODS: &[&str] = &[
        "store",
        "lz4:1",
        "lz4:a32",
        "lz4hc:2",
        "lz4hc:5",
        "lz4hc:12",
        "zstd:-5",
        "zstd:1",
        "zstd:3",
        "zstd:13",
        "deflate:1",
        "deflate:6",
        "deflate:10",
        "xz:0",
        "delta2+xz:4",
        "bzip2:1",
        "shuffle2+lz4:1",
        "shuffle4+zstd:3",
        "shuffle8+deflate:2",
    ];
    let Some((&[choice, low, high], block)) = data.split_first_chunk() else {
        return;
    };
    let method: Method = METHODS[usize::from(choice & 0x7F) % METHODS.len()]
        .parse()
        .expect("a method of the list");
    let limit = usize::from(u16::from_le_bytes([low, high]));
    let dictionary = Dictionary::new(DICTIONARY).expect("plain bytes");
    let decoder = Decoder {
        dictionary: u32::from(choice >> 7),
        ..method.decoder()
    };
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
    for target_bytes in [limit, method.bound(block.len())] {
        let mut stored = vec![0xA5; target_bytes];
        let outcome = match decoder.dictionary {
            0 => compressor.compress(method, block, &mut stored),
            _ => compressor.compress_with(method, &dictionary, block, &mut stored),
        };
        // Some codecs take no dictionary.
        let Ok(size) = outcome else { return };
        let Some(size) = size else {
            assert!(target_bytes < method.bound(block.len()), "{method}: bound");
            continue;
        };
        let mut back = vec![0x5A; block.len()];
        let outcome = match decoder.dictionary {
            0 => decompressor.decompress(decoder, &stored[..size], &mut back),
            _ => decompressor.decompress_with(decoder, &dictionary, &stored[..size], &mut back),
        };
        outcome.expect("what was compressed decodes");
        assert!(back == block, "{method}: other bytes come back");
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{is_full, seed};
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Returns the kept inputs of a target, in the order of their names.
    fn kept(target: &Target) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
        let entries = fs::read_dir(folder.join(target.name)).unwrap();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| fs::read(path).unwrap()).collect()
    }

    /// Changes an input in one of the ways that find most. It flips, cuts or inserts bytes, copies a part to another
    /// place, or takes a piece of another input.
    fn mutate(random: &mut fastrand::Rng, input: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..random.usize(1..5) {
            let length = input.len();
            let at = random.usize(..=length);
            match random.u8(..6) {
                0 if at < length => input[at] ^= 1 << random.u8(..8),
                1 if at < length => input[at] = random.u8(..),
                2 => input.truncate(at),
                3 => input.insert(at, random.u8(..)),
                4 if at < length => {
                    let piece = input[at..(at + random.usize(1..40)).min(length)].to_vec();
                    let to = random.usize(..=length);
                    input.splice(to..to, piece);
                }
                5 if !other.is_empty() => {
                    let from = random.usize(..other.len());
                    let end = (from + random.usize(1..40)).min(other.len());
                    input.splice(at..at, other[from..end].iter().copied());
                }
                _ => {}
            }
        }
    }

    /// An input that is shown if its target panics, to be kept.
    struct Shown<'a>(&'a str, &'a [u8]);

    impl Drop for Shown<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let hex: String = self.1.iter().map(|byte| format!("{byte:02x}")).collect();
                println!("{} broke its promise with: {hex}", self.0);
            }
        }
    }

    #[test]
    fn kept_and_mutated_inputs_break_no_promise() {
        let rounds = if is_full() { 200_000 } else { 4_000 };
        for target in TARGETS {
            let seed = seed(20_240_229);
            let kept = kept(target);
            assert!(kept.len() >= 5, "{}: {} inputs", target.name, kept.len());
            for input in &kept {
                let _shown = Shown(target.name, input);
                (target.run)(input);
            }
            let mut random = fastrand::Rng::with_seed(seed);
            let mut tried = 0;
            for _ in 0..rounds {
                let mut input = kept[random.usize(..kept.len())].clone();
                let other = &kept[random.usize(..kept.len())];
                mutate(&mut random, &mut input, other);
                let _shown = Shown(target.name, &input);
                (target.run)(&input);
                tried += 1;
            }
            let name = target.name;
            println!(
                "{name}: {} kept and {tried} mutated inputs, seed {seed}",
                kept.len()
            );
        }
    }
}
