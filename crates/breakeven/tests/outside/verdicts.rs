//! Frames at the edges of their formats, each with the verdict of the format and of its own program.
//!
//! They are assembled from the documents (RFC 8878, LZ4 frame format 1.6.3, .xz format 1.2.0), so that frames that our
//! own encoders never write are read as well. They have every kind of block, empty ones, linked ones, checks right and
//! wrong, reserved bits, foreign filters, padding. If the program judges otherwise on purpose, the case gives the
//! reason.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use breakeven::Error;
use breakeven::frame::{Decoder, DecoderLimits, Kind, Workspace};
use breakeven::pool::{Pool, PoolOptions};
use breakeven::stream::{Reader, ReaderOptions};
use liblzma::stream::{Action, Check, Filters, LzmaOptions, Stream};
use xxhash_rust::xxh32::xxh32;
use xxhash_rust::xxh64::xxh64;

use crate::stock::installed;

/// One input and its expected fate.
struct Case {
    name: String,
    bytes: Vec<u8>,
    /// The decoded bytes; `None` if it must be refused.
    content: Option<Vec<u8>>,
    /// The reason of its own program for another verdict, if it has one.
    otherwise: Option<&'static str>,
}

fn good(name: &str, bytes: Vec<u8>, content: &[u8]) -> Case {
    Case {
        name: name.to_string(),
        bytes,
        content: Some(content.to_vec()),
        otherwise: None,
    }
}

fn bad(name: &str, bytes: Vec<u8>) -> Case {
    Case {
        name: name.to_string(),
        bytes,
        content: None,
        otherwise: None,
    }
}

fn but(case: Case, reason: &'static str) -> Case {
    Case {
        otherwise: Some(reason),
        ..case
    }
}

/// Reads a stream to its end.
pub fn read(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let pool = Pool::new(PoolOptions { worker_count: 0 })?;
    let mut reader = Reader::new(bytes, &pool, ReaderOptions::default())?;
    let mut content = Vec::new();
    match reader.read_to_end(&mut content) {
        Ok(_) => Ok(content),
        Err(error) => Err(error.downcast().expect("an error of ours")),
    }
}

/// Decodes one frame byte by byte, to its end; also an error if it has no end, or more bytes follow.
fn decode_in_pieces(kind: Kind, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut workspace = Workspace::new();
    let mut decoder = Decoder::begin(kind, DecoderLimits::default(), &mut workspace)?;
    let (mut at, mut content, mut byte) = (0, Vec::new(), [0; 1]);
    loop {
        let source = &bytes[at..bytes.len().min(at + 1)];
        let step = decoder.decode(&mut workspace, source, &mut byte)?;
        at += step.read;
        content.extend_from_slice(&byte[..step.written]);
        let is_at_end = at == bytes.len();
        match (step.ended, step.read + step.written) {
            (true, _) if is_at_end => return Ok(content),
            (true, _) => return Err(Error::corrupt("frame", at as u64, "its end", "more")),
            (false, 0) if is_at_end => {
                return Err(Error::corrupt("frame", at as u64, "the rest", "the end"));
            }
            _ => {}
        }
    }
}

/// A stock program's verdict on a file: its content, or nothing if it refuses it.
pub fn stock_verdict(program: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    fs::write(&path, bytes).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(program);
        // From standard input, because some programs judge a file by its name.
        command
            .args(arguments)
            .stdin(fs::File::open(&path).unwrap())
            .stderr(Stdio::null());
        command.output().unwrap()
    };
    let is_accepted = |code: Option<i32>| match program {
        // A warning is no refusal.
        "xz" => code == Some(0) || code == Some(2),
        _ => code == Some(0),
    };
    let (decoded, tested) = (run(&["-d", "-c"]), run(&["-t"]));
    let accepted = is_accepted(decoded.status.code());
    assert_eq!(accepted, is_accepted(tested.status.code()), "{program} -t");
    accepted.then_some(decoded.stdout)
}

/// Tries all cases of a format, and its own program on each of them, if it is there.
fn check_all(program: &str, cases: &[Case], least: usize) {
    let has_program = installed(program);
    let mut compared = 0;
    for case in cases {
        let name = &case.name;
        let found = read(&case.bytes);
        match (&case.content, &found) {
            (Some(content), Ok(found)) => assert!(content == found, "{name}: other bytes"),
            (None, Err(_)) => {}
            (Some(_), Err(error)) => panic!("{name} is refused: {error}"),
            (None, Ok(found)) => panic!("{name} decodes to {} bytes", found.len()),
        }
        if let (Err(Error::Corrupt { offset, .. }), false) = (&found, case.bytes.is_empty()) {
            assert!(*offset <= case.bytes.len() as u64, "{name}: byte {offset}");
        }
        if !has_program {
            continue;
        }
        let stock = stock_verdict(program, &case.bytes);
        match case.otherwise {
            None => {
                let verdict = |it: &Option<Vec<u8>>| it.as_ref().map(Vec::len);
                let (stock_bytes, ours) = (verdict(&stock), verdict(&case.content));
                assert_eq!(stock_bytes, ours, "{name}: bytes by {program} and ours");
                assert!(stock == case.content, "{name}: {program} finds other bytes");
            }
            Some(reason) => {
                let (stock, ours) = (stock.is_some(), case.content.is_some());
                assert_ne!(stock, ours, "{name}: {program} agrees, but: {reason}");
                println!("{name}: {program} judges otherwise: {reason}");
            }
        }
        compared += 1;
    }
    println!(
        "{program}: {} cases, {compared} compared with it",
        cases.len()
    );
    assert!(cases.len() >= least, "only {} cases", cases.len());
}

/// Tries single frames in pieces of a byte: the same verdict and the same bytes as in one piece.
fn check_in_pieces(kind: Kind, cases: &[Case]) {
    let mut tried = 0;
    for case in cases {
        if Kind::of(&case.bytes) != Some(kind) {
            continue;
        }
        let pieces = decode_in_pieces(kind, &case.bytes);
        if let (Ok(content), Some(expected)) = (&pieces, &case.content) {
            assert!(content == expected, "{}: other bytes in pieces", case.name);
            let mut target = vec![0xA5; content.len()];
            let whole =
                Workspace::new().decode_whole(DecoderLimits::default(), &case.bytes, &mut target);
            assert!(
                whole.is_ok(),
                "{}: refused as a whole: {whole:?}",
                case.name
            );
            assert!(target == *content, "{}: other bytes as a whole", case.name);
            tried += 1;
        }
        if case.content.is_none() && case.otherwise.is_none() {
            // In pieces libzstd ignores the type of an empty block.
            let is_harmless = pieces.as_ref().map_or(true, Vec::is_empty);
            assert!(is_harmless, "{} is accepted in pieces", case.name);
        }
    }
    println!("{tried} frames of {} in pieces and as a whole", kind.name());
    assert!(tried >= 10, "only {tried} frames");
}

const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
const RAW: u32 = 0;
const RUN: u32 = 1;
const COMPRESSED: u32 = 2;
const SINGLE: u8 = 1 << 5;
const CHECKED: u8 = 1 << 2;

/// A block of a Zstandard frame; `size` is the content's for a run, else the bytes' own.
fn block(kind: u32, size: usize, bytes: &[u8], is_last: bool) -> Vec<u8> {
    let header = (size as u32) << 3 | kind << 1 | u32::from(is_last);
    [&header.to_le_bytes()[..3], bytes].concat()
}

/// A Zstandard frame: descriptor, the fields of the header behind it, blocks.
fn zstd(descriptor: u8, fields: &[u8], blocks: &[Vec<u8>]) -> Vec<u8> {
    [&MAGIC[..], &[descriptor], fields, &blocks.concat()].concat()
}

fn raw(bytes: &[u8]) -> Vec<Vec<u8>> {
    vec![block(RAW, bytes.len(), bytes, true)]
}

fn with_check(frame: Vec<u8>, content: &[u8]) -> Vec<u8> {
    let check = (xxh64(content, 0) as u32).to_le_bytes();
    [&frame[..], &check].concat()
}

fn skippable(nibble: u8, stated: u32, bytes: &[u8]) -> Vec<u8> {
    let header = [
        &[0x50 | nibble, 0x2A, 0x4D, 0x18][..],
        &stated.to_le_bytes(),
    ]
    .concat();
    [&header[..], bytes].concat()
}

fn zstd_blocks() -> Vec<Case> {
    let text = b"hello";
    let five = [5];
    let literals = |kind: u8, size: u8, bytes: &[u8]| {
        // Literals of less than 32 bytes, then the number of sequences: none.
        let body = [&[size << 3 | kind][..], bytes, &[0]].concat();
        let all = [
            block(COMPRESSED, body.len(), &body, false),
            raw(b"!").concat(),
        ];
        // A compressed block may not be longer than the window, so a content of some bytes has none.
        zstd(0, &[0x38], &all)
    };
    vec![
        good("no content", zstd(SINGLE, &[0], &raw(&[])), &[]),
        good(
            "no content, a run",
            zstd(SINGLE, &[0], &[block(RUN, 0, b"x", true)]),
            &[],
        ),
        good("raw", zstd(SINGLE, &five, &raw(text)), text),
        good(
            "a run",
            zstd(SINGLE, &five, &[block(RUN, 5, b"x", true)]),
            b"xxxxx",
        ),
        good(
            "an empty block first",
            zstd(
                SINGLE,
                &five,
                &[block(RAW, 0, &[], false), raw(text).concat()],
            ),
            text,
        ),
        good(
            "an empty block last",
            zstd(
                SINGLE,
                &five,
                &[block(RAW, 5, text, false), raw(&[]).concat()],
            ),
            text,
        ),
        good("raw literals alone", literals(0, 5, text), b"hello!"),
        good(
            "literals of one byte repeated",
            literals(1, 5, b"x"),
            b"xxxxx!",
        ),
        bad(
            "literals by a tree that was never sent",
            literals(3, 5, text),
        ),
        bad(
            "block type 3",
            zstd(SINGLE, &five, &[block(3, 5, text, true)]),
        ),
        bad(
            "a block longer than what follows",
            zstd(SINGLE, &[9], &[block(RAW, 9, text, true)]),
        ),
    ]
}

fn zstd_block_lengths() -> Vec<Case> {
    let (text, five) = (b"hello", [5]);
    let long = vec![b'x'; 128 << 10];
    let window_1_mib = 0x50;
    vec![
        good(
            "a block of 128 KiB",
            zstd(0, &[window_1_mib], &raw(&long)),
            &long,
        ),
        bad(
            "a block longer than 128 KiB",
            zstd(0, &[window_1_mib], &raw(&[&long[..], b"x"].concat())),
        ),
        bad(
            "a run longer than 128 KiB",
            zstd(
                0,
                &[window_1_mib],
                &[block(RUN, (128 << 10) + 1, b"x", true)],
            ),
        ),
        bad(
            "a block longer than the window",
            zstd(0, &[0], &raw(&long[..1025])),
        ),
        bad(
            "a content size too large, and an empty last block",
            zstd(
                2 << 6,
                &[0x38, 9, 0, 0, 0],
                &[block(RAW, 5, text, false), raw(&[]).concat()],
            ),
        ),
        bad(
            "no last block",
            zstd(SINGLE, &five, &[block(RAW, 5, text, false)]),
        ),
        bad(
            "a compressed block of no bytes",
            zstd(SINGLE, &[0], &[block(COMPRESSED, 0, &[], true)]),
        ),
    ]
}

fn zstd_sizes() -> Vec<Case> {
    let text = b"hello";
    let eight = |size: u64| size.to_le_bytes();
    let checked = || with_check(zstd(SINGLE | CHECKED, &[5], &raw(text)), text);
    let mut wrong_check = checked();
    *wrong_check.last_mut().unwrap() ^= 1;
    let medium = vec![b'm'; 300];
    let size_of_300 = (300_u16 - 256).to_le_bytes();
    let mut wide = [&[0x38][..], &eight(5)].concat();
    let mut cases = vec![
        good(
            "a content size of 1 byte",
            zstd(SINGLE, &[5], &raw(text)),
            text,
        ),
        good(
            "one of 2 bytes",
            zstd(SINGLE | 1 << 6, &size_of_300, &raw(&medium)),
            &medium,
        ),
        good(
            "one of 4 bytes",
            zstd(SINGLE | 2 << 6, &[5, 0, 0, 0], &raw(text)),
            text,
        ),
        good(
            "one of 8 bytes",
            zstd(SINGLE | 3 << 6, &eight(5), &raw(text)),
            text,
        ),
        good(
            "one of 8 bytes and a window",
            zstd(3 << 6, &wide, &raw(text)),
            text,
        ),
        good("no content size", zstd(0, &[0x38], &raw(text)), text),
        bad("a content size too small", zstd(SINGLE, &[4], &raw(text))),
        bad("a content size too large", zstd(SINGLE, &[6], &raw(text))),
        bad(
            "a content size of 0 for 5 bytes",
            zstd(SINGLE, &[0], &raw(text)),
        ),
        good("a check", checked(), text),
        good(
            "a check of no content",
            with_check(zstd(SINGLE | CHECKED, &[0], &raw(&[])), &[]),
            &[],
        ),
        bad("a wrong check", wrong_check),
        bad(
            "a check that is cut",
            checked()[..checked().len() - 1].to_vec(),
        ),
    ];
    // A stated content of many TiB that does not exist.
    wide[1..].copy_from_slice(&eight(1 << 45));
    cases.push(bad(
        "a content size of 32 TiB",
        zstd(3 << 6, &wide, &raw(text)),
    ));
    cases
}

fn zstd_flags() -> Vec<Case> {
    let text = b"hello";
    vec![
        bad("the reserved bit", zstd(SINGLE | 1 << 3, &[5], &raw(text))),
        good(
            "the unused bit",
            zstd(SINGLE | 1 << 4, &[5], &raw(text)),
            text,
        ),
        good("dictionary 0", zstd(SINGLE | 1, &[0, 5], &raw(text)), text),
        bad("dictionary 7", zstd(SINGLE | 1, &[7, 5], &raw(text))),
        bad(
            "dictionary 7 in 2 bytes",
            zstd(SINGLE | 2, &[7, 0, 5], &raw(text)),
        ),
        bad(
            "dictionary 7 in 4 bytes",
            zstd(SINGLE | 3, &[7, 0, 0, 0, 5], &raw(text)),
        ),
        good("a window of 128 MiB", zstd(0, &[17 << 3], &raw(text)), text),
        bad("a window of 144 MiB", zstd(0, &[17 << 3 | 1], &raw(text))),
        bad("a window of 3.75 TiB", zstd(0, &[0xFF], &raw(text))),
        bad(
            "a format before 0.8",
            [&[0x27, 0xB5, 0x2F, 0xFD, 0][..], text].concat(),
        ),
        bad("nothing", Vec::new()),
        bad("a magic number alone", MAGIC.to_vec()),
    ]
}

/// The reason why zeros behind a frame are no fault.
const PADDED: &str = "tapes and bsdtar fill blocks up with zeros, and gzip passes them over";

fn zstd_rows() -> Vec<Case> {
    let text = b"hello";
    let frame = zstd(SINGLE, &[5], &raw(text));
    let row = |parts: &[&[u8]]| parts.concat();
    let mut cases = vec![
        good("two frames", row(&[&frame, &frame]), b"hellohello"),
        good(
            "a skippable frame between",
            row(&[&frame, &skippable(0, 3, b"abc"), &frame]),
            b"hellohello",
        ),
        good(
            "an empty skippable frame last",
            row(&[&frame, &skippable(7, 0, b"")]),
            text,
        ),
        good("a skippable frame alone", skippable(3, 4, b"skip"), &[]),
        bad(
            "a skippable frame that is cut",
            row(&[&frame, &skippable(0, 9, b"abc")]),
        ),
        bad(
            "a skippable frame of 4 GiB that is cut",
            skippable(0, u32::MAX, b"abc"),
        ),
        but(
            good("zeros behind the frame", row(&[&frame, &[0; 4]]), text),
            PADDED,
        ),
        but(
            good(
                "a zero between frames",
                row(&[&frame, &[0], &frame]),
                b"hellohello",
            ),
            PADDED,
        ),
        bad(
            "zeros and half a frame behind the frame",
            row(&[&frame, &[0; 9], &frame[..7]]),
        ),
        bad("zeros before the frame", row(&[&[0; 4], &frame])),
        bad("text behind the frame", row(&[&frame, b"some text"])),
        bad("half a frame behind the frame", row(&[&frame, &frame[..7]])),
        bad("text before the frame", row(&[b"some text", &frame])),
    ];
    for nibble in 0..16 {
        let name = format!("skippable frame {nibble:X} first");
        cases.push(good(
            &name,
            row(&[&skippable(nibble, 1, b"x"), &frame]),
            text,
        ));
    }
    cases
}

#[test]
fn zstandard_frames_are_judged_as_by_zstd() {
    let cases: Vec<Case> = (zstd_blocks().into_iter())
        .chain(zstd_block_lengths())
        .chain(zstd_sizes())
        .chain(zstd_flags())
        .chain(zstd_rows())
        .collect();
    check_all("zstd", &cases, 65);
    check_in_pieces(Kind::Zstd, &cases);
}

/// The header of an LZ4 frame.
#[derive(Clone, Copy)]
struct Lz4 {
    /// Version 1 by default, and the flags: 0x20 independent blocks, 0x10 block checks, 0x08 content size, 0x04 content
    /// check, 0x02 reserved, 0x01 dictionary.
    flags: u8,
    /// The code of the longest block in the high four bits.
    most: u8,
    content_bytes: u64,
    dictionary: u32,
}

const LZ4: Lz4 = Lz4 {
    flags: 0x60,
    most: 0x40,
    content_bytes: 0,
    dictionary: 0,
};

impl Lz4 {
    /// Makes a frame of blocks with their lengths before them and all checks right.
    fn frame(self, blocks: &[(u32, &[u8])], content: &[u8]) -> Vec<u8> {
        let mut header = vec![self.flags, self.most];
        if self.flags & 0x08 != 0 {
            header.extend(self.content_bytes.to_le_bytes());
        }
        if self.flags & 0x01 != 0 {
            header.extend(self.dictionary.to_le_bytes());
        }
        header.push((xxh32(&header, 0) >> 8) as u8);
        let mut frame = [&[0x04, 0x22, 0x4D, 0x18][..], &header].concat();
        for (length, bytes) in blocks {
            frame.extend(length.to_le_bytes());
            frame.extend(*bytes);
            if self.flags & 0x10 != 0 {
                frame.extend(xxh32(bytes, 0).to_le_bytes());
            }
        }
        frame.extend([0; 4]);
        if self.flags & 0x04 != 0 {
            frame.extend(xxh32(content, 0).to_le_bytes());
        }
        frame
    }

    fn flagged(self, flags: u8) -> Lz4 {
        Lz4 {
            flags: self.flags | flags,
            ..self
        }
    }
}

/// The length field of an uncompressed block.
fn stored(bytes: &[u8]) -> (u32, &[u8]) {
    (bytes.len() as u32 | 1 << 31, bytes)
}

fn compressed(bytes: &[u8]) -> (u32, &[u8]) {
    (bytes.len() as u32, bytes)
}

/// Twelve times the same byte: one literal, a match of 6 with it, five literals at the end.
const RUN_OF_12: &[u8] = &[0x12, b'a', 1, 0, 0x50, b'a', b'a', b'a', b'a', b'a'];
/// A match of 8 with the bytes 16 before, then five literals.
const LINKED: &[u8] = &[0x04, 16, 0, 0x50, b'v', b'w', b'x', b'y', b'z'];

fn lz4_blocks() -> Vec<Case> {
    let a = &[b'a'; 12][..];
    let text = b"0123456789abcdef";
    let linked = Lz4 { flags: 0x40, ..LZ4 };
    let both = b"0123456789abcdef01234567vwxyz";
    let long = vec![b'x'; 64 << 10];
    let longer = vec![b'x'; (64 << 10) + 1];
    let cut = LZ4.frame(&[compressed(RUN_OF_12)], a);
    let checked = LZ4.flagged(0x10).frame(&[stored(text)], text);
    let mut wrong = checked.clone();
    wrong[7 + 4 + 16] ^= 1;
    let two = [stored(text), compressed(RUN_OF_12)];
    vec![
        good("no block", LZ4.frame(&[], &[]), &[]),
        good("a stored block", LZ4.frame(&[stored(text)], text), text),
        good(
            "a compressed block",
            LZ4.frame(&[compressed(RUN_OF_12)], a),
            a,
        ),
        good("both", LZ4.frame(&two, &[]), &[&text[..], a].concat()),
        good(
            "linked blocks",
            linked.frame(&[stored(text), compressed(LINKED)], &[]),
            both,
        ),
        bad(
            "a link where blocks are independent",
            LZ4.frame(&[stored(text), compressed(LINKED)], &[]),
        ),
        bad(
            "a link to before the start",
            linked.frame(&[compressed(LINKED)], &[]),
        ),
        bad(
            "an offset of 0, which only the check finds",
            (LZ4.flagged(0x04)).frame(&[compressed(&[0x12, b'a', 0, 0, 0x50, 0, 0, 0, 0, 0])], a),
        ),
        bad(
            "literals that are not there",
            LZ4.frame(&[compressed(&[0xF0, 200, b'a'])], &[]),
        ),
        bad(
            "a match that is not there",
            LZ4.frame(&[compressed(&[0x10])], &[]),
        ),
        good(
            "a stored block of 64 KiB",
            LZ4.frame(&[stored(&long)], &[]),
            &long,
        ),
        bad("one of a byte more", LZ4.frame(&[stored(&longer)], &[])),
        bad("a length of 2 GiB", LZ4.frame(&[(0x7FFF_FFFF, text)], &[])),
        good("a block check", checked, text),
        bad("a wrong block check", wrong),
        bad("a block that is cut", cut[..15].to_vec()),
        bad("no end mark", cut[..cut.len() - 4].to_vec()),
        bad("half an end mark", cut[..cut.len() - 2].to_vec()),
    ]
}

fn lz4_headers() -> Vec<Case> {
    let text = b"0123456789abcdef";
    let blocks = &[stored(text)][..];
    let sized = |content_bytes| {
        let sized = Lz4 {
            content_bytes,
            ..LZ4.flagged(0x08)
        };
        sized.frame(blocks, text)
    };
    let checked = LZ4.flagged(0x04).frame(blocks, text);
    let mut wrong_check = checked.clone();
    *wrong_check.last_mut().unwrap() ^= 1;
    let mut wrong_header = sized(16);
    wrong_header[14] ^= 1;
    let version = |bits: u8| {
        Lz4 {
            flags: 0x20 | bits << 6,
            ..LZ4
        }
        .frame(blocks, text)
    };
    let most = |most: u8| Lz4 { most, ..LZ4 }.frame(blocks, text);
    let mut cases = vec![
        good("a content size", sized(16), text),
        bad("a content size too small", sized(15)),
        bad("a content size too large", sized(17)),
        good("a content check", checked.clone(), text),
        bad("a wrong content check", wrong_check),
        bad(
            "a content check that is cut",
            checked[..checked.len() - 1].to_vec(),
        ),
        bad("a wrong header check", wrong_header),
        bad("the reserved flag", LZ4.flagged(0x02).frame(blocks, text)),
        bad("version 0", version(0)),
        bad("version 2", version(2)),
        bad("version 3", version(3)),
        bad("a reserved bit beside the block size", most(0x41)),
        bad("the reserved bit above the block size", most(0xC0)),
    ];
    for code in 0..16_u8 {
        let name = format!("block size code {code}");
        cases.push(match code {
            4..=7 => good(&name, most(code << 4), text),
            _ => bad(&name, most(code << 4)),
        });
    }
    cases
}

fn lz4_rows() -> Vec<Case> {
    let text = b"0123456789abcdef";
    let blocks = &[stored(text)][..];
    let dictionary = Lz4 {
        dictionary: 7,
        ..LZ4.flagged(0x01)
    }
    .frame(blocks, text);
    let frame = LZ4.frame(blocks, text);
    let legacy = [&[0x02, 0x21, 0x4C, 0x18, 10, 0, 0, 0][..], RUN_OF_12].concat();
    vec![
        but(
            bad("a dictionary that is named and not used", dictionary),
            "it asks for no dictionary before a match wants it; here the header is believed",
        ),
        but(
            bad("the legacy frame", legacy),
            "documented as refused, like by zstd",
        ),
        good(
            "two frames",
            [&frame[..], &frame].concat(),
            &[&text[..], text].concat(),
        ),
        good(
            "a skippable frame between",
            [&frame[..], &skippable(1, 2, b"ab"), &frame].concat(),
            &[&text[..], text].concat(),
        ),
        bad("half a header", frame[..6].to_vec()),
        bad("a magic number alone", frame[..4].to_vec()),
    ]
}

#[test]
fn lz4_frames_are_judged_as_by_lz4() {
    let cases: Vec<Case> = (lz4_blocks().into_iter())
        .chain(lz4_headers())
        .chain(lz4_rows())
        .collect();
    check_all("lz4", &cases, 50);
    check_in_pieces(Kind::Lz4, &cases);
}

/// Text with some structure, so that filters have an effect.
fn numbers() -> Vec<u8> {
    (0..6000_u32)
        .flat_map(|i| (i * i / 7).to_le_bytes())
        .collect()
}

/// An .xz stream of blocks of `block_bytes`, by filters and with a check.
fn xz(filters: &Filters, check: Check, content: &[u8], block_bytes: usize) -> Vec<u8> {
    let mut stream = Stream::new_stream_encoder(filters, check).unwrap();
    let mut found = Vec::with_capacity(2 * content.len() + 4096);
    for block in content.chunks(block_bytes) {
        stream.process_vec(block, &mut found, Action::Run).unwrap();
        stream
            .process_vec(&[], &mut found, Action::FullFlush)
            .unwrap();
    }
    stream.process_vec(&[], &mut found, Action::Finish).unwrap();
    found
}

fn lzma2() -> LzmaOptions {
    LzmaOptions::new_preset(1).unwrap()
}

fn plain() -> Filters {
    let mut filters = Filters::new();
    filters.lzma2(&lzma2());
    filters
}

fn xz_good() -> Vec<Case> {
    let content = numbers();
    let mut cases = Vec::new();
    let checks = [
        ("no check", Check::None),
        ("CRC32", Check::Crc32),
        ("CRC64", Check::Crc64),
        ("SHA-256", Check::Sha256),
    ];
    for (name, check) in checks {
        for block_bytes in [usize::MAX, 5000, 1] {
            let content = &content[..content.len().min(block_bytes.saturating_mul(40))];
            let name = format!("{name}, blocks of {block_bytes}");
            cases.push(good(
                &name,
                xz(&plain(), check, content, block_bytes),
                content,
            ));
        }
    }
    cases.push(good("no block", xz(&plain(), Check::Crc32, &[], 1), &[]));
    type Add = fn(&mut Filters) -> &mut Filters;
    let added: [(&str, Add); 8] = [
        ("delta of 4", |it| it.delta_properties(&[3]).unwrap()),
        ("delta of 256", |it| it.delta_properties(&[255]).unwrap()),
        ("x86", Filters::x86),
        ("PowerPC", Filters::powerpc),
        ("IA-64", Filters::ia64),
        ("ARM", Filters::arm),
        ("ARM Thumb", Filters::arm_thumb),
        ("SPARC", Filters::sparc),
    ];
    for (name, add) in added {
        let mut filters = Filters::new();
        add(&mut filters).lzma2(&lzma2());
        let name = format!("filter {name}");
        cases.push(good(
            &name,
            xz(&filters, Check::Crc64, &content, 9000),
            &content,
        ));
    }
    let mut filters = Filters::new();
    filters
        .x86()
        .delta_properties(&[7])
        .unwrap()
        .lzma2(&lzma2());
    cases.push(good(
        "two filters",
        xz(&filters, Check::Crc64, &content, 9000),
        &content,
    ));
    let stream = xz(&plain(), Check::Crc32, b"hello", 9);
    let padded = |zeros: usize| [&stream[..], &vec![0; zeros]].concat();
    cases.push(good("padding of 4", padded(4), b"hello"));
    cases.push(good("padding of 4,000", padded(4000), b"hello"));
    let between = [&padded(8)[..], &stream].concat();
    cases.push(good("padding between", between, b"hellohello"));
    cases.push(good(
        "two streams",
        [&stream[..], &stream].concat(),
        b"hellohello",
    ));
    cases
}

/// Changes the stream flags of an .xz stream, in header and footer, with correct checks.
fn with_flags(stream: &[u8], flags: [u8; 2]) -> Vec<u8> {
    let mut stream = stream.to_vec();
    let end = stream.len();
    stream[6..8].copy_from_slice(&flags);
    let check = libdeflater::crc32(&stream[6..8]).to_le_bytes();
    stream[8..12].copy_from_slice(&check);
    stream[end - 4..end - 2].copy_from_slice(&flags);
    let check = libdeflater::crc32(&stream[end - 8..end - 2]).to_le_bytes();
    stream[end - 12..end - 8].copy_from_slice(&check);
    stream
}

fn xz_bad() -> Vec<Case> {
    let stream = xz(&plain(), Check::Crc32, b"hello", 9);
    let padded = |zeros: usize| [&stream[..], &vec![0; zeros]].concat();
    let changed = |at: usize| {
        let mut changed = stream.clone();
        changed[at] ^= 1;
        changed
    };
    let end = stream.len();
    // Header of 12 bytes, of the block 12; 9 of LZMA2, 3 of padding, 4 of check; index 8, footer 12.
    let mut cases = vec![
        bad("padding of 3", padded(3)),
        bad("padding of 5", padded(5)),
        bad("padding first", [&[0; 4][..], &stream].concat()),
        bad("padding of 6 between", [&padded(6)[..], &stream].concat()),
        bad("text behind", [&stream[..], b"text"].concat()),
        bad(
            "half a stream behind",
            [&stream[..], &stream[..20]].concat(),
        ),
        bad(
            "a reserved flag in the first byte",
            with_flags(&stream, [1, 1]),
        ),
        bad(
            "a reserved flag in the second byte",
            with_flags(&stream, [0, 0x11]),
        ),
        bad("a footer that states another check", {
            let other = with_flags(&stream, [0, 4]);
            [&stream[..12], &stream[12..end - 12], &other[end - 12..]].concat()
        }),
        bad("the magic number wrong", changed(3)),
        bad("the header's check wrong", changed(9)),
        bad("the block header's check wrong", changed(23)),
        bad("the content's check wrong", changed(end - 12 - 8 - 1)),
        bad("the index wrong", changed(end - 12 - 7)),
        bad("the index's check wrong", changed(end - 12 - 1)),
        bad("the footer's check wrong", changed(end - 12)),
        bad("the footer's magic wrong", changed(end - 1)),
        bad(
            "an .lzma file",
            vec![
                0x5D, 0, 0, 0x80, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0,
            ],
        ),
    ];
    // Check 2 has no meaning yet; its length is known, so it can be skipped.
    let unknown = with_flags(&stream, [0, 2]);
    cases.push(good("a check that is not known", unknown, b"hello"));
    for cut in 1..end {
        cases.push(bad(&format!("cut at {cut}"), stream[..cut].to_vec()));
    }
    cases
}

#[test]
fn xz_streams_are_judged_as_by_xz() {
    let cases: Vec<Case> = xz_good().into_iter().chain(xz_bad()).collect();
    check_all("xz", &cases, 100);
    check_in_pieces(Kind::Xz, &cases);
}
