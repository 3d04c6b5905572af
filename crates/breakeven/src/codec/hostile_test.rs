//! Untrusted blocks: golden ones, damaged ones, and the table of compressed sizes.
//!
//! `tests/golden/good` holds a stored form of `block` in each file, made by this library and by the stock tools; each
//! must decode for ever. The files of `tests/golden/bad` must fail for ever. A name is the decoder's three numbers,
//! `2.0.0`, and the kind of the file.

use crate::testing::is_full;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn block() -> Vec<u8> {
    fs::read(golden().join("block")).unwrap()
}

fn dictionary() -> Dictionary {
    let name = DictionaryHash(*b"\x15\x0b\x27\xb5\xdd\x7f\x3b\xbe\xec\xae\xf6\xde\x6d\x67\x96\xf1");
    Dictionary::verified(&fs::read(golden().join("dictionary")).unwrap(), name).unwrap()
}

/// Returns name, decoder and bytes of each file in a golden folder, in the order of the names.
fn stored_blocks(folder: &str) -> Vec<(String, Decoder, Vec<u8>)> {
    let entries = fs::read_dir(golden().join(folder)).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            let numbers = name.split('-').next().unwrap();
            let numbers: Vec<u8> =
                (numbers.split('.').map(|number| number.parse().unwrap())).collect();
            let [codec, filter, dictionary] = numbers[..] else {
                panic!("{name} does not start with three numbers");
            };
            let dictionary = dictionary.into();
            let decoder = Decoder {
                codec,
                filter,
                dictionary,
            };
            (name.to_string(), decoder, fs::read(path).unwrap())
        })
        .collect()
}

struct Judge {
    decompressor: Decompressor,
    dictionary: Dictionary,
}

impl Judge {
    fn new() -> Judge {
        Judge {
            decompressor: Decompressor::new(),
            dictionary: dictionary(),
        }
    }

    fn decode(&mut self, decoder: Decoder, stored: &[u8], target: &mut [u8]) -> Result<()> {
        match decoder.dictionary {
            0 => self.decompressor.decompress(decoder, stored, target),
            _ => (self.decompressor).decompress_with(decoder, &self.dictionary, stored, target),
        }
    }

    /// Decodes into targets that held other bytes before. If that succeeds, both must hold the same bytes: none of the
    /// earlier ones shows through.
    fn decode_twice(&mut self, decoder: Decoder, stored: &[u8], bytes: usize) -> Option<Vec<u8>> {
        let mut first = vec![0x00; bytes];
        self.decode(decoder, stored, &mut first).ok()?;
        let mut second = vec![0xFF; bytes];
        let again = self.decode(decoder, stored, &mut second);
        assert!(again.is_ok(), "{decoder:?}: decoded once, then {again:?}");
        assert!(first == second, "{decoder:?}: the target shows through");
        Some(first)
    }
}

#[test]
fn golden_blocks_decode_for_ever() {
    let (mut judge, block) = (Judge::new(), block());
    let stored_blocks = stored_blocks("good");
    assert!(stored_blocks.len() >= 35, "{} files", stored_blocks.len());
    for (name, decoder, stored) in &stored_blocks {
        let mut target = vec![0xA5; block.len()];
        let outcome = judge.decode(*decoder, stored, &mut target);
        assert!(outcome.is_ok(), "{name}: {outcome:?}");
        assert!(target == block, "{name} decodes to other bytes");
    }
    for row in Decoder::CODECS.iter().filter(|row| row.since.is_some()) {
        let kept = |(_, decoder, _): &&(_, Decoder, _)| decoder.codec == row.number;
        assert!(stored_blocks.iter().any(|file| kept(&file)), "{row:?}");
    }
}

#[test]
fn golden_faults_fail_for_ever() {
    let (mut judge, block) = (Judge::new(), block());
    let stored_blocks = stored_blocks("bad");
    assert!(stored_blocks.len() >= 49, "{} files", stored_blocks.len());
    for (name, decoder, stored) in &stored_blocks {
        let mut target = vec![0; block.len()];
        let outcome = judge.decode(*decoder, stored, &mut target);
        let error = outcome.expect_err(name);
        println!("{name}: {error}");
        assert_eq!(
            matches!(error, Error::Limit { .. }),
            name.contains("window") && name.ends_with("ib"),
            "{name}: {error}"
        );
    }
}

#[test]
fn the_memory_limit_is_the_callers() {
    let (mut judge, block) = (Judge::new(), block());
    let mut check = |name: &str, limit_bytes: usize, fits: bool| {
        let numbers = Decoder {
            codec: name.as_bytes()[5] - b'0',
            ..Decoder::STORE
        };
        let stored = fs::read(golden().join(name)).unwrap();
        judge.decompressor.memory_limit_bytes = limit_bytes;
        let mut target = vec![0; block.len()];
        let outcome = judge.decode(numbers, &stored, &mut target);
        match outcome {
            Ok(()) => assert!(fits, "{name} decoded with {limit_bytes} bytes"),
            Err(Error::Limit { needed_bytes, .. }) => {
                assert!(!fits && needed_bytes > limit_bytes as u64, "{name}")
            }
            Err(error) => panic!("{name}: {error}"),
        }
    };
    check("good/4.0.0-window-64-mib", 64 << 20, false);
    check("good/4.0.0-window-64-mib", 65 << 20, true);
    check("good/4.0.0-xz-6", 8 << 10, false);
    check("good/5.0.0-bzip2-9", 499_999, false);
    check("good/5.0.0-bzip2-9", 500_000, true);
    check("good/2.0.0-zstd-22", 0, true);
    check("good/1.0.0-lz4-1", 0, true);
}

#[test]
fn sizes_change_only_with_a_reason() {
    let block = block();
    let mut compressor = Compressor::new();
    let table = fs::read_to_string(golden().join("sizes")).unwrap();
    let mut found = String::new();
    for line in table.lines() {
        let method: Method = line.split('\t').next().unwrap().parse().unwrap();
        let mut target = vec![0; method.bound(block.len())];
        let size = compressor.compress(method, &block, &mut target).unwrap();
        found += &format!("{method}\t{}\n", size.unwrap());
    }
    assert!(found == table, "the table would be:\n{found}");
    assert!(table.lines().count() >= 40);
}

/// An LZ4 block of `literals` literals, a match of `match_bytes` bytes at `offset`, and 12 literals.
fn lz4_block(literals: usize, match_bytes: usize, offset: u16) -> Vec<u8> {
    let extend = |block: &mut Vec<u8>, length: usize| {
        block.extend(std::iter::repeat_n(255, length / 255));
        block.push((length % 255) as u8);
    };
    let match_code = match_bytes - 4;
    let mut block = vec![(literals.min(15) << 4 | match_code.min(15)) as u8];
    if literals >= 15 {
        extend(&mut block, literals - 15);
    }
    block.extend((0..literals).map(|index| b'a' + (index % 26) as u8));
    block.extend(offset.to_le_bytes());
    if match_code >= 15 {
        extend(&mut block, match_code - 15);
    }
    block.push(12 << 4);
    block.extend(b"the last one");
    block
}

#[test]
fn a_match_with_itself_shows_nothing_of_the_target() {
    let mut judge = Judge::new();
    let decoder = Decoder {
        codec: Decoder::CODEC_LZ4,
        ..Decoder::STORE
    };
    let mut tried = 0;
    for literals in (0..40).chain([100, 300]) {
        for match_bytes in (4..80).chain([300, 1000]) {
            let block_bytes = literals + match_bytes + 12;
            // The format has no offset 0; liblz4 reads it as zeros.
            let stored = lz4_block(literals, match_bytes, 0);
            if let Some(found) = judge.decode_twice(decoder, &stored, block_bytes) {
                assert!(
                    found[literals..][..match_bytes]
                        .iter()
                        .all(|byte| *byte == 0)
                );
            }
            let stored = lz4_block(literals, match_bytes, literals as u16 + 1);
            let before_start = judge.decode_twice(decoder, &stored, block_bytes);
            assert_eq!(
                before_start, None,
                "{literals} literals, {match_bytes} matched"
            );
            tried += 2;
        }
    }
    assert!(tried >= 6000, "only {tried} blocks tried");
}

/// The outcome of decoding damaged blocks.
#[derive(Default)]
struct Tally {
    tried: usize,
    decoded: usize,
    other_bytes: usize,
}

#[test]
fn every_cut_and_every_flipped_byte_is_survived() {
    let (mut judge, block) = (Judge::new(), block());
    let masks: &[u8] = match is_full() {
        true => &[0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF],
        false => &[0x01, 0x80, 0xFF],
    };
    let mut total = 0;
    for (name, decoder, stored) in stored_blocks("good") {
        let mut tally = Tally::default();
        let mut check = |damaged: &[u8]| {
            tally.tried += 1;
            if let Some(found) = judge.decode_twice(decoder, damaged, block.len()) {
                tally.decoded += 1;
                tally.other_bytes += usize::from(found != block);
            }
        };
        for length in 0..stored.len() {
            check(&stored[..length]);
        }
        let mut damaged = stored.clone();
        for index in 0..stored.len() {
            for mask in masks {
                damaged[index] ^= mask;
                check(&damaged);
                damaged[index] ^= mask;
            }
        }
        println!(
            "{name}: {} tried, {} decoded, {} to other bytes",
            tally.tried, tally.decoded, tally.other_bytes
        );
        let checked = ["check", "stock-xz", "bzip2"];
        if checked.iter().any(|part| name.contains(part)) {
            assert_eq!(tally.other_bytes, 0, "{name} has a checksum");
        }
        total += tally.tried;
    }
    println!("{total} damaged blocks tried");
    assert!(total >= 100_000, "only {total} damaged blocks tried");
}
