//! The fuzz target behind a store's checksums; [`crate::fuzz`] lists it.

use super::layout::{
    Checkpoint, Commit, FramePrefix, Listed, Operation, Payload, decode_head, encode_head,
};
use super::table::Chunk;
use crate::storage::fuzz::read_again;

/// Reads any bytes as a body of the kind in the first byte. A body that can be read is written again and read to the
/// same.
pub(crate) fn fuzz_blocks(data: &[u8]) {
    let Some((&kind, body)) = data.split_first() else {
        return;
    };
    match kind {
        0 => read_again(body, FramePrefix::decode, |it| it.encode().to_vec()),
        1 => read_again(body, Operation::decode_all, |all| {
            let mut out = Vec::new();
            all.iter().for_each(|it| it.encode(&mut out));
            out
        }),
        2 => read_again(
            body,
            |body| Commit::decode(body).map(|it| it.0),
            |it| {
                let coordinator = vec![0; it.coordinator_bytes as usize];
                [&it.encode()[..], &coordinator].concat()
            },
        ),
        3 => read_again(body, Payload::decode, Payload::encode),
        4 => read_again(body, Listed::decode_all, |all| {
            let mut out = Vec::new();
            all.iter().for_each(|it| it.encode(&mut out));
            out
        }),
        5 => read_again(body, Checkpoint::decode, Checkpoint::encode),
        6 => read_again(body, decode_head, |it| encode_head(*it).to_vec()),
        level => {
            let level = u32::from(level - 7);
            read_again(body, |body| Chunk::decode(level, body), Chunk::encode);
        }
    }
}
