//! The fuzz target of the parts behind a vault's seals; [`crate::fuzz`] lists it.
//!
//! Only a holder of the key gets there. Every user of a shared vault has it.

use crate::codec::Decompressor;
use crate::storage::fuzz::read_again;

use super::bytes::Reader;
use super::folder::{read_folder, read_stamps, write_folder, write_stamps};
use super::images;
use super::pack::{CompressedFrame, Contents, read_head};
use super::record::Record;

/// The bases of frames of deltas, one behind another.
const BASES: &[u8] = b"what both sides know need not be said again; one of sixteen bytes";

/// Reads any bytes as a part; the first byte names its kind. A part that was read is written again and read to the
/// same.
pub(crate) fn fuzz_vault(data: &[u8]) {
    let Some((&kind, body)) = data.split_first() else {
        return;
    };
    match kind {
        0 => read_again(body, |body| read_folder(body).ok(), |it| write_folder(it)),
        1 => read_again(body, |body| Record::read(body).ok(), Record::write),
        2 => read_again(
            body,
            |body| Contents::read(&mut Reader::new("index", body)).ok(),
            |it| {
                let mut out = Vec::new();
                it.write(&mut out);
                out
            },
        ),
        3 => {
            let read = CompressedFrame::read(body.to_vec());
            let decode = |it: CompressedFrame| it.decode(BASES, &mut Decompressor::new());
            let Ok(frame) = read.and_then(decode) else {
                return;
            };
            let chunks = (0..).map_while(|ordinal| frame.chunk(ordinal));
            assert!(chunks.count() <= usize::from(u16::MAX));
        }
        4 => drop(read_head(body)),
        5 => drop(images::chunk_bytes(
            body,
            Some(body.len() as u64 * 1000),
            1 << 20,
        )),
        _ => {
            // A folder, and from there the stamps beside it.
            let at = usize::from(kind).min(body.len());
            let (folder, stamps) = body.split_at(at);
            let Ok(entries) = read_folder(folder) else {
                return;
            };
            let read = |content: &[u8]| read_stamps(&entries, content).ok();
            read_again(stamps, read, |it| write_stamps(&entries, it));
        }
    }
}
