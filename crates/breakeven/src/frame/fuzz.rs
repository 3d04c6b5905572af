//! The fuzz target of frames: any bytes walked, decoded whole and in pieces, and read as a seek table.

use super::{Decoder, DecoderLimits, Kind, SeekTable, Walk, Walked, Workspace};
use crate::error::{Error, Result};

/// The most decoded bytes that are requested.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Returns the length of a frame by its headers; `None` where only decoding finds it, or the bytes end before.
fn walk(frame: &[u8]) -> Result<Option<u64>> {
    let (mut walk, mut walked) = Walk::begin();
    loop {
        match walked {
            Walked::Whole(bytes) => return Ok(Some(bytes)),
            Walked::Open => return Ok(None),
            Walked::Read { at, bytes } => {
                let from = usize::try_from(at).ok().filter(|&at| at <= frame.len());
                let Some(piece) = from.and_then(|at| frame[at..].get(..bytes)) else {
                    return Ok(None);
                };
                walked = walk.step(piece)?;
            }
        }
    }
}

/// Decodes a frame in pieces of a given length; returns its length and content, `None` if it is truncated or too long.
fn decode_in_pieces(
    kind: Kind,
    bytes: &[u8],
    piece: usize,
    limits: DecoderLimits,
) -> Result<Option<(usize, Vec<u8>)>> {
    let mut workspace = Workspace::new();
    let mut decoder = Decoder::begin(kind, limits, &mut workspace)?;
    let (mut at, mut content, mut target) = (0, Vec::new(), vec![0; piece]);
    loop {
        let source = &bytes[at..bytes.len().min(at + piece)];
        let step = decoder.decode(&mut workspace, source, &mut target)?;
        assert!(step.read <= source.len() && step.written <= piece);
        at += step.read;
        content.extend_from_slice(&target[..step.written]);
        if step.ended {
            return Ok(Some((at, content)));
        }
        let is_stuck = step.read == 0 && step.written == 0 && at + piece >= bytes.len();
        if is_stuck || content.len() > OUTPUT_BYTES_MAX {
            return Ok(None);
        }
    }
}

/// Reads any bytes as a frame. The first byte gives the sizes of the pieces. A frame that decodes in pieces must decode
/// as a whole, to the same bytes, and must end where its headers say.
pub(crate) fn fuzz_frame(data: &[u8]) {
    check_table(data);
    let Some((&piece, bytes)) = data.split_first() else {
        return;
    };
    let walked = walk(bytes);
    if let Err(Error::Corrupt { offset, .. }) = &walked {
        assert!(*offset <= bytes.len() as u64, "a place behind the end");
    }
    let Some(kind) = Kind::of(bytes) else {
        assert!(walked.is_err() || bytes.len() < super::MAGIC_BYTES);
        return;
    };
    if kind == Kind::Skippable {
        return;
    }
    let limits = DecoderLimits {
        window_bytes_max: 1 << 20,
    };
    let piece = usize::from(piece) + 1;
    let Ok(Some((length, content))) = decode_in_pieces(kind, bytes, piece, limits) else {
        return;
    };
    match walked {
        Ok(Some(walked)) => assert_eq!(walked, length as u64, "the headers tell another end"),
        Ok(None) => assert!(matches!(kind, Kind::Xz | Kind::Gzip) || length < super::MAGIC_BYTES),
        // A frame that names a dictionary and uses none.
        Err(Error::Unsupported { .. }) => return,
        Err(error) => panic!("decoded, but its headers are refused: {error}"),
    }
    for fill in [0x00, 0xFF] {
        let mut target = vec![fill; content.len()];
        let whole = Workspace::new().decode_whole(limits, &bytes[..length], &mut target);
        whole.expect("what decodes in pieces decodes as a whole");
        assert!(target == content, "other bytes as a whole");
    }
    if content.len() < OUTPUT_BYTES_MAX {
        let mut longer = vec![0; content.len() + 1];
        let outcome = Workspace::new().decode_whole(limits, &bytes[..length], &mut longer);
        assert!(outcome.is_err(), "a target that was not filled");
    }
}

/// Reads any bytes as a seek table; one with checks must be written the same again.
fn check_table(frame: &[u8]) {
    if let Ok(table) = SeekTable::from_frame(frame)
        && table.has_checks
    {
        assert!(
            table.to_frame() == frame,
            "a table that is written otherwise"
        );
    }
}
