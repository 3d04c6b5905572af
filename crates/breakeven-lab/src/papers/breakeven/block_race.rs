//! The races of the block interface against direct calls: same blocks, same targets, taking turns.
//!
//! The library called directly decodes the compressors' output. That, and the decoders' output, is compared with the
//! blocks. Targets are overwritten before each turn, so that nobody passes by another's leavings.

use anyhow::{Result, ensure};
use breakeven::codec::{Compressor, Decompressor, Method};

use super::direct::{DirectCompressor, DirectDecompressor, Way};
use crate::interleave::Race;

pub const INTERFACE: &str = "interface";
pub const USUAL: &str = "direct-usual";
pub const BEST: &str = "direct-best";
pub const CONTENDERS: [&str; 3] = [INTERFACE, USUAL, BEST];

/// The content of a target before a contender's turn.
const UNWRITTEN: u8 = 0xA5;

/// The working memory of the contender whose turn it is.
enum Active<Interface, Direct> {
    Interface(Interface),
    Direct(Direct),
}

/// Returns the way a contender calls its library, `None` for the interface.
fn way(contender: usize) -> Option<Way> {
    [None, Some(Way::Usual), Some(Way::Best)][contender]
}

/// The race of the compressors.
pub struct Compressing<'a> {
    method: Method,
    blocks: &'a [&'a [u8]],
    targets: Vec<Vec<u8>>,
    sizes: Vec<usize>,
    active: Active<Compressor, DirectCompressor>,
    decompressor: DirectDecompressor,
    decoded: Vec<u8>,
}

impl<'a> Compressing<'a> {
    pub fn new(method: Method, blocks: &'a [&'a [u8]]) -> Result<Compressing<'a>> {
        let target = |block: &&[u8]| vec![UNWRITTEN; method.bound(block.len())];
        Ok(Compressing {
            method,
            blocks,
            targets: blocks.iter().map(target).collect(),
            sizes: vec![0; blocks.len()],
            active: Active::Interface(Compressor::new()),
            decompressor: DirectDecompressor::new(method)?,
            decoded: Vec::new(),
        })
    }

    /// Returns the output of the last pass.
    pub fn into_stored(self) -> Vec<Vec<u8>> {
        let mut stored = self.targets;
        for (target, size) in stored.iter_mut().zip(self.sizes) {
            target.truncate(size);
            target.shrink_to_fit();
        }
        stored
    }
}

impl Race for Compressing<'_> {
    fn prepare(&mut self, contender: usize) -> Result<()> {
        self.active = match way(contender) {
            None => Active::Interface(Compressor::new()),
            Some(way) => Active::Direct(DirectCompressor::new(self.method, way)?),
        };
        self.targets
            .iter_mut()
            .for_each(|target| target.fill(UNWRITTEN));
        self.sizes.fill(0);
        Ok(())
    }

    fn pass(&mut self, _: usize) -> Result<()> {
        let work = self
            .blocks
            .iter()
            .zip(&mut self.targets)
            .zip(&mut self.sizes);
        match &mut self.active {
            Active::Interface(compressor) => {
                for ((block, target), size) in work {
                    // A target of the bound's size always suffices; 0 bytes decode to no block.
                    let stored = compressor.compress(self.method, block, target)?;
                    *size = stored.unwrap_or(0);
                }
            }
            Active::Direct(compressor) => {
                for ((block, target), size) in work {
                    *size = compressor.compress(block, target)?;
                }
            }
        }
        Ok(())
    }

    fn verify(&mut self, contender: usize) -> Result<()> {
        let stored = self.targets.iter().zip(&self.sizes);
        for (block, (target, size)) in self.blocks.iter().zip(stored) {
            self.decoded.clear();
            self.decoded.resize(block.len(), UNWRITTEN);
            let found = self
                .decompressor
                .decompress(&target[..*size], &mut self.decoded)?;
            ensure!(
                found == block.len() && self.decoded == *block,
                "{}: {} made a block that does not decode to what it was",
                self.method,
                CONTENDERS[contender]
            );
        }
        Ok(())
    }
}

/// The race of the decoders.
pub struct Decompressing<'a> {
    method: Method,
    blocks: &'a [&'a [u8]],
    stored: &'a [Vec<u8>],
    targets: Vec<Vec<u8>>,
    active: Active<Decompressor, DirectDecompressor>,
}

impl<'a> Decompressing<'a> {
    pub fn new(method: Method, blocks: &'a [&'a [u8]], stored: &'a [Vec<u8>]) -> Result<Self> {
        ensure!(
            blocks.len() == stored.len(),
            "as many stored blocks as blocks"
        );
        Ok(Decompressing {
            method,
            blocks,
            stored,
            targets: blocks
                .iter()
                .map(|block| vec![UNWRITTEN; block.len()])
                .collect(),
            active: Active::Interface(Decompressor::new()),
        })
    }
}

impl Race for Decompressing<'_> {
    fn prepare(&mut self, contender: usize) -> Result<()> {
        self.active = match way(contender) {
            None => Active::Interface(Decompressor::new()),
            Some(_) => Active::Direct(DirectDecompressor::new(self.method)?),
        };
        self.targets
            .iter_mut()
            .for_each(|target| target.fill(UNWRITTEN));
        Ok(())
    }

    fn pass(&mut self, _: usize) -> Result<()> {
        let work = self.stored.iter().zip(&mut self.targets);
        match &mut self.active {
            Active::Interface(decompressor) => {
                let decoder = self.method.decoder();
                for (stored, target) in work {
                    decompressor.decompress(decoder, stored, target)?;
                }
            }
            Active::Direct(decompressor) => {
                for (stored, target) in work {
                    decompressor.decompress(stored, target)?;
                }
            }
        }
        Ok(())
    }

    fn verify(&mut self, contender: usize) -> Result<()> {
        let same = self.targets.iter().zip(self.blocks);
        ensure!(
            same.into_iter().all(|(target, block)| target == block),
            "{}: {} decoded something else than the block",
            self.method,
            CONTENDERS[contender]
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Kind, SEED};

    #[test]
    fn wrong_answers_are_found() {
        let bytes = Kind::Mixed.generate(32 << 10, SEED);
        let blocks: Vec<&[u8]> = bytes.chunks(8192).collect();
        for method in ["lz4:1", "zstd:1", "deflate:6"] {
            let method: Method = method.parse().unwrap();
            let mut compressing = Compressing::new(method, &blocks).unwrap();
            for contender in 0..CONTENDERS.len() {
                compressing.prepare(contender).unwrap();
                assert!(
                    compressing.verify(contender).is_err(),
                    "nothing was compressed"
                );
                compressing.pass(contender).unwrap();
                compressing.verify(contender).unwrap();
                compressing.sizes[2] -= 1;
                assert!(
                    compressing.verify(contender).is_err(),
                    "{method}: a byte is missing"
                );
            }
            compressing.prepare(0).unwrap();
            compressing.pass(0).unwrap();
            let stored = compressing.into_stored();
            let mut decompressing = Decompressing::new(method, &blocks, &stored).unwrap();
            for contender in 0..CONTENDERS.len() {
                decompressing.prepare(contender).unwrap();
                assert!(
                    decompressing.verify(contender).is_err(),
                    "nothing was decoded"
                );
                decompressing.pass(contender).unwrap();
                decompressing.verify(contender).unwrap();
                decompressing.targets[3][17] ^= 1;
                assert!(
                    decompressing.verify(contender).is_err(),
                    "{method}: a bit is wrong"
                );
            }
        }
    }
}
