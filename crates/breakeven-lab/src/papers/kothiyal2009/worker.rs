//! This program as a contender: copy, compress or decompress standard input.
//!
//! Blocks of 1 MiB, each after two little-endian numbers of 32 bits: its raw and its stored bytes. A block whose two
//! lengths are equal is stored as it is. There is no checksum: the laboratory compares the bytes.

use std::io::{Read, Write};

use anyhow::{Context, Result, ensure};
use breakeven::codec::{Compressor, Decoder, Decompressor, Method};
use clap::Subcommand;

const BLOCK_BYTES: usize = 1 << 20;
const HEADER_BYTES: usize = 8;

/// The work of a child process of the laboratory.
#[derive(Subcommand)]
pub enum Order {
    /// Copy standard input to standard output
    Copy,
    /// Compress standard input
    Compress {
        /// How, such as zstd:3
        method: Method,
    },
    /// Decompress the output of compress by any method
    Decompress {
        /// How it was compressed
        method: Method,
    },
}

/// Does the work from standard input to standard output.
pub fn run(order: Order) -> Result<()> {
    // Files, without the line buffer of a terminal between.
    let (mut input, mut output) = standard_streams()?;
    match order {
        Order::Copy => copy(&mut input, &mut output),
        Order::Compress { method } => compress(method, &mut input, &mut output),
        Order::Decompress { method } => decompress(method.decoder(), &mut input, &mut output),
    }
}

fn standard_streams() -> Result<(std::fs::File, std::fs::File)> {
    use std::os::fd::AsFd;
    let input = std::io::stdin().as_fd().try_clone_to_owned()?;
    let output = std::io::stdout().as_fd().try_clone_to_owned()?;
    Ok((input.into(), output.into()))
}

fn copy(input: &mut impl Read, output: &mut impl Write) -> Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let length = read_block(input, &mut block)?;
        if length == 0 {
            return Ok(());
        }
        output.write_all(&block[..length]).context("write")?;
    }
}

fn compress(method: Method, input: &mut impl Read, output: &mut impl Write) -> Result<()> {
    let mut compressor = Compressor::new();
    let mut block = vec![0; BLOCK_BYTES];
    let mut framed = vec![0; HEADER_BYTES + BLOCK_BYTES];
    loop {
        let length = read_block(input, &mut block)?;
        if length == 0 {
            return Ok(());
        }
        let raw = &block[..length];
        // A block that does not shrink is stored as it is.
        let target = &mut framed[HEADER_BYTES..HEADER_BYTES + length - 1];
        let size = match compressor.compress(method, raw, target)? {
            Some(size) => size,
            None => {
                framed[HEADER_BYTES..HEADER_BYTES + length].copy_from_slice(raw);
                length
            }
        };
        framed[..4].copy_from_slice(&(length as u32).to_le_bytes());
        framed[4..8].copy_from_slice(&(size as u32).to_le_bytes());
        let frame = &framed[..HEADER_BYTES + size];
        output.write_all(frame).context("write")?;
    }
}

fn decompress(decoder: Decoder, input: &mut impl Read, output: &mut impl Write) -> Result<()> {
    let mut input = std::io::BufReader::with_capacity(BLOCK_BYTES, input);
    let mut decompressor = Decompressor::new();
    let mut stored = vec![0; BLOCK_BYTES];
    let mut raw = vec![0; BLOCK_BYTES];
    let mut header = [0; HEADER_BYTES];
    loop {
        match read_block(&mut input, &mut header)? {
            0 => return Ok(()),
            length => ensure!(length == HEADER_BYTES, "the input ends in a header"),
        }
        let number = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four"));
        let (raw_bytes, stored_bytes) = (number(0) as usize, number(4) as usize);
        ensure!(
            raw_bytes <= BLOCK_BYTES && stored_bytes <= raw_bytes,
            "a block of {stored_bytes} bytes that are to become {raw_bytes}"
        );
        let stored = &mut stored[..stored_bytes];
        input.read_exact(stored).context("read a block")?;
        let block = if stored_bytes == raw_bytes {
            stored
        } else {
            let raw = &mut raw[..raw_bytes];
            decompressor.decompress(decoder, stored, raw)?;
            raw
        };
        output.write_all(block).context("write")?;
    }
}

/// Fills `block` as far as the input reaches and returns how far that is.
fn read_block(input: &mut impl Read, block: &mut [u8]) -> Result<usize> {
    let mut length = 0;
    while length < block.len() {
        match input.read(&mut block[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("read"),
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Kind, SEED};

    #[test]
    fn what_is_compressed_comes_back() {
        for (kind, length) in [
            (Kind::Text, 2 * BLOCK_BYTES + 17),
            (Kind::Noise, BLOCK_BYTES + 1),
            (Kind::Zero, 1),
            (Kind::Zero, 0),
        ] {
            let bytes = kind.generate(length, SEED);
            for method in ["lz4:1", "zstd:3", "deflate:6"] {
                let method: Method = method.parse().unwrap();
                let (mut stored, mut back) = (Vec::new(), Vec::new());
                compress(method, &mut &bytes[..], &mut stored).unwrap();
                decompress(method.decoder(), &mut &stored[..], &mut back).unwrap();
                assert!(back == bytes, "{method} {kind} {length}");
                assert!(stored.len() <= length + 8 * length.div_ceil(BLOCK_BYTES));
            }
            let mut copied = Vec::new();
            copy(&mut &bytes[..], &mut copied).unwrap();
            assert!(copied == bytes);
        }
    }

    #[test]
    fn damaged_input_is_refused() {
        let bytes = Kind::Text.generate(5000, SEED);
        let method: Method = "zstd:1".parse().unwrap();
        let mut stored = Vec::new();
        compress(method, &mut &bytes[..], &mut stored).unwrap();
        let check = |stored: &[u8]| {
            let mut back = Vec::new();
            assert!(decompress(method.decoder(), &mut &stored[..], &mut back).is_err());
        };
        check(&stored[..5]);
        check(&stored[..stored.len() - 1]);
        check(&[[0xff; 8].as_slice(), &stored[8..]].concat());
    }
}
