//! The target of decoded bytes: a new file with holes for its zeros, a named place, or nowhere.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use anyhow::Result;
use breakeven::storage::is_zero;

use super::place::Target;

/// The least run of zeros that becomes a hole, as long as that of `zstd`.
const HOLE_BYTES: usize = 32 << 10;

/// Takes the content of a stream.
pub enum Sink {
    /// A new file; zeros are left out of it.
    Sparse { file: Arc<File>, position: u64 },
    /// Standard output, a device or a pipe.
    Direct(Arc<File>),
    /// Nowhere: the content is only tested.
    None,
}

impl Sink {
    /// Begins to write to a target, a new file with holes or without, or to nowhere.
    pub fn new(target: Option<&Target>, leaves_holes: bool) -> Result<Sink> {
        Ok(match target {
            None => Sink::None,
            Some(target) if target.is_renamed() && leaves_holes => Sink::Sparse {
                file: target.file(),
                position: 0,
            },
            Some(target) => Sink::Direct(target.file()),
        })
    }

    /// Takes all of `bytes`.
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Sink::Sparse { file, position } => {
                write_sparse(file, *position, bytes)?;
                *position += bytes.len() as u64;
                Ok(())
            }
            Sink::Direct(file) => file.write_all(bytes),
            Sink::None => Ok(()),
        }
    }

    /// Gives a new file its length: it may end in a hole.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Sink::Sparse { file, position } => file.set_len(position),
            Sink::Direct(_) | Sink::None => Ok(()),
        }
    }
}

/// Writes the bytes that are not zeros at their places in a file that is still empty there.
fn write_sparse(file: &File, position: u64, bytes: &[u8]) -> io::Result<()> {
    let put = |from: usize, to: usize| file.write_all_at(&bytes[from..to], position + from as u64);
    let (mut from, mut at) = (0, 0);
    while at < bytes.len() {
        let within = (position + at as u64) % HOLE_BYTES as u64;
        let end = bytes.len().min(at + HOLE_BYTES - within as usize);
        if is_zero(&bytes[at..end]) {
            put(from, at)?;
            from = end;
        }
        at = end;
    }
    put(from, at)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn zeros_are_left_out_and_read_back() {
        // Knuth's generator (The Art of Computer Programming, volume 2, 3.3.4).
        let mut state = 29_u64;
        let mut below = |limit: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % limit
        };
        for round in 0..40 {
            let mut data = vec![0; below(9 * HOLE_BYTES)];
            for _ in 0..round % 5 {
                let from = below(data.len() + 1);
                let length = below(HOLE_BYTES).min(data.len() - from);
                data[from..from + length].fill_with(|| below(256) as u8);
            }
            let piece_bytes = 1 + below(100_000);
            let mut file = tempfile::tempfile().expect("a file");
            let mut sink = Sink::Sparse {
                file: Arc::new(file.try_clone().expect("a descriptor")),
                position: 0,
            };
            for piece in data.chunks(piece_bytes) {
                sink.write_all(piece).expect("room");
            }
            sink.finish().expect("a length");
            let mut back = Vec::new();
            file.read_to_end(&mut back).expect("the file");
            assert!(back == data, "round {round}: {} bytes", data.len());
        }
    }
}
