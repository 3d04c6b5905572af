//! The place where blocks are compressed and restored: codecs, their memory, and their times.
//!
//! A [`Bench`] belongs to a thread and serves all shards. A shard holds no codec, so no lock of it is held during the
//! work. The thread's processor clock times one call in seven, and later fewer. Reading that clock is a system call,
//! and learning from it takes as long as restoring a block.
//!
//! A bench made by [`Bench::recorded`] compresses nothing and takes its times from a [`Record`]. It keeps the number of
//! bytes in the record, and restores the rest as zeros. So a policy can be run on a trace without contents, in
//! simulated time, with the shard's own code.
#![deny(unsafe_code)]

use std::time::Instant;

use crate::cache::costs::MissTime;
use crate::codec::{Compressor, Decompressor, Method};
use crate::error::{Error, Result};
use crate::meter::thread_cpu;
use crate::units::Seconds;

/// One call in so many is timed by the processor clock; and one call of codecs in so many.
const TIMED_EVERY: u32 = 7;
const TIMED_EVERY_LATER: u32 = 29;
const CALLS_EARLY: u32 = 1024;
/// Bytes of the check before a compressed block.
pub(super) const CHECK_BYTES: usize = 4;

/// The time and result of one method, for a run in simulated time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordedMethod {
    /// The method.
    pub method: Method,
    /// Core seconds to encode one raw byte.
    pub encode_seconds_per_byte: f64,
    /// Core seconds to decode one raw byte.
    pub decode_seconds_per_byte: f64,
    /// The ratio, raw over stored bytes, of each class of the caller's; a further class has the last. At most 1 for
    /// data that does not shrink.
    pub ratios: [f64; 2],
}

/// Costs for a run in simulated time.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The methods.
    pub methods: Vec<RecordedMethod>,
    /// The time of each miss.
    pub miss: MissTime,
    /// The shadow's time for each access that it samples.
    pub shadow_sample: Seconds,
}

enum Engine {
    Real {
        compressor: Box<Compressor>,
        decompressor: Box<Decompressor>,
        calls: u32,
    },
    Recorded(Record),
}

/// A method that ran here.
struct Used {
    method: Method,
    /// The most bytes of a block that it compressed, and restored.
    compressed_bytes: usize,
    restored_bytes: usize,
    /// A block was tried by it, whether it fitted or not.
    is_tried: bool,
}

/// Codecs, their memory and a clock.
pub struct Bench {
    engine: Engine,
    declared_miss: Option<MissTime>,
    /// A block being compressed, or bytes that are not kept.
    scratch: Vec<u8>,
    /// The block restored last.
    restored: Vec<u8>,
    /// Memory for the compressed form that is being restored.
    packed: Vec<u8>,
    /// Methods that ran here; none of a record's.
    used: Vec<Used>,
    /// The most that codecs hold for them, and the largest restored block. The allocator keeps that much when a guard
    /// gives its own memory back.
    codec_bytes: usize,
    /// One compression in so many fails; 0 for none.
    #[cfg(test)]
    pub(super) fails_every: u32,
    #[cfg(test)]
    compressions: u32,
}

/// The result of one method on one block.
pub(super) struct Trial {
    pub packed_bytes: Option<usize>,
    pub encode: Option<Seconds>,
    pub decode: Option<Seconds>,
}

/// The start of a loader, or its declared time.
pub(super) enum Begun {
    Declared(MissTime),
    Timed {
        wall: Instant,
        core: Option<Seconds>,
    },
}

impl Default for Bench {
    fn default() -> Bench {
        Bench::new()
    }
}

impl Bench {
    /// Makes a bench that holds no memory yet.
    pub fn new() -> Bench {
        Bench::of(Engine::Real {
            compressor: Box::default(),
            decompressor: Box::default(),
            calls: 0,
        })
    }

    /// Makes a bench that only keeps account of the work's cost.
    pub fn recorded(record: Record) -> Bench {
        let miss = record.miss;
        let mut bench = Bench::of(Engine::Recorded(record));
        bench.set_miss(miss);
        bench
    }

    fn of(engine: Engine) -> Bench {
        Bench {
            engine,
            declared_miss: None,
            scratch: Vec::new(),
            restored: Vec::new(),
            packed: Vec::new(),
            used: Vec::new(),
            codec_bytes: 0,
            #[cfg(test)]
            fails_every: 0,
            #[cfg(test)]
            compressions: 0,
        }
    }

    /// Declares the time of each further miss, in place of its loader's.
    pub fn set_miss(&mut self, miss: MissTime) {
        self.declared_miss = Some(miss);
    }

    /// Returns the bytes it holds for itself on blocks of `block_bytes` under these methods. A thread adds them to the
    /// memory of the caches that it serves.
    pub fn bytes(methods: &[Method], block_bytes: usize) -> usize {
        let codecs = methods.iter().map(|method| {
            method.compressor_bytes(block_bytes) + method.decompressor_bytes(block_bytes)
        });
        codecs.sum::<usize>() + 3 * block_bytes
    }

    /// Returns the bytes held for it now, those of its codecs by their formulas.
    pub(super) fn heap_bytes(&self) -> usize {
        let buffers = self.scratch.capacity() + self.restored.capacity() + self.packed.capacity();
        self.codec_bytes + buffers
    }

    /// Returns the record of a method on this bench.
    fn used(&mut self, method: Method) -> &mut Used {
        let at = self.used.iter().position(|it| it.method == method);
        let at = at.unwrap_or_else(|| {
            self.used.push(Used {
                method,
                compressed_bytes: 0,
                restored_bytes: 0,
                is_tried: false,
            });
            self.used.len() - 1
        });
        &mut self.used[at]
    }

    /// Notes that a method compresses or restores blocks of so many bytes.
    fn note_use(&mut self, method: Method, compressed_bytes: usize, restored_bytes: usize) {
        if let Engine::Recorded(_) = self.engine {
            return;
        }
        let used = self.used(method);
        if compressed_bytes > used.compressed_bytes || restored_bytes > used.restored_bytes {
            used.compressed_bytes = compressed_bytes.max(used.compressed_bytes);
            used.restored_bytes = restored_bytes.max(used.restored_bytes);
            let codecs: usize = self.used.iter().map(Used::codec_bytes).sum();
            let largest = self.used.iter().map(|it| it.restored_bytes).max();
            self.codec_bytes = codecs + largest.unwrap_or(0);
        }
    }

    /// Returns the scratch at this length.
    pub(super) fn scratch(&mut self, bytes: usize) -> &mut [u8] {
        if self.scratch.len() < bytes {
            self.scratch.resize(bytes, 0);
        }
        &mut self.scratch[..bytes]
    }

    /// Returns the scratch at the length that a caller requested.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if there is no memory for this length.
    pub(super) fn scratch_for(&mut self, bytes: usize) -> Result<&mut [u8]> {
        let more = bytes.saturating_sub(self.scratch.len());
        if self.scratch.try_reserve_exact(more).is_err() {
            let reason = format!("{bytes} bytes, for which there is no memory");
            return Err(Error::invalid("block", reason));
        }
        Ok(self.scratch(bytes))
    }

    /// Compresses a block to at most `packed_bytes_max` bytes behind its check, in the scratch. Returns the length, if
    /// it fits, and the time, if it was taken.
    ///
    /// # Errors
    ///
    /// As [`Compressor::compress`].
    pub(super) fn compress(
        &mut self,
        method: Method,
        class: u8,
        block: &[u8],
        packed_bytes_max: usize,
    ) -> Result<(Option<usize>, Option<Seconds>)> {
        let begun = self.begin_codec();
        self.compress_begun(begun, (method, class), block, packed_bytes_max)
    }

    fn compress_begun(
        &mut self,
        begun: Option<Seconds>,
        (method, class): (Method, u8),
        block: &[u8],
        packed_bytes_max: usize,
    ) -> Result<(Option<usize>, Option<Seconds>)> {
        #[cfg(test)]
        self.fail_compression()?;
        self.note_use(method, block.len(), 0);
        let limit = CHECK_BYTES + packed_bytes_max.min(block.len());
        let mut scratch = std::mem::take(&mut self.scratch);
        if scratch.len() < limit {
            scratch.resize(limit, 0);
        }
        let (check, target) = scratch[..limit].split_at_mut(CHECK_BYTES);
        let (size, time) = match &mut self.engine {
            Engine::Real { compressor, .. } => {
                let size = compressor.compress(method, block, target);
                (size, begun.map(|begun| thread_cpu() - begun))
            }
            Engine::Recorded(record) => {
                let found = record.of(method);
                let size = (block.len() as f64 / found.ratio(class)).ceil() as usize;
                let size = (size <= target.len()).then(|| {
                    target[..size].copy_from_slice(&block[..size]);
                    size
                });
                let time = found.encode_seconds_per_byte * block.len() as f64;
                (Ok(size), Some(Seconds(time)))
            }
        };
        if let Ok(Some(size)) = size {
            check.copy_from_slice(&crc32c::crc32c(&target[..size]).to_le_bytes());
        }
        self.scratch = scratch;
        Ok((size?.map(|size| size + CHECK_BYTES), time))
    }

    #[cfg(test)]
    fn fail_compression(&mut self) -> Result<()> {
        self.compressions += 1;
        match self.fails_every > 0 && self.compressions.is_multiple_of(self.fails_every) {
            true => Err(Error::invalid("compressor", "told to fail")),
            false => Ok(()),
        }
    }

    /// Restores a block from its compressed form behind its check; returns the time, if it was
    /// taken.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the check fails, else as [`Decompressor::decompress`].
    pub(super) fn decompress(
        &mut self,
        method: Method,
        packed: &[u8],
        target: &mut [u8],
    ) -> Result<Option<Seconds>> {
        let begun = self.begin_codec();
        self.decompress_begun(begun, method, packed, target)
    }

    fn decompress_begun(
        &mut self,
        begun: Option<Seconds>,
        method: Method,
        packed: &[u8],
        target: &mut [u8],
    ) -> Result<Option<Seconds>> {
        let (check, packed) = packed.split_at_checked(CHECK_BYTES).unwrap_or((&[], &[]));
        let found = crc32c::crc32c(packed).to_le_bytes();
        if check != found {
            return Err(Error::corrupt(
                "cached block",
                0,
                format!("check {check:02x?}"),
                format!("{found:02x?}"),
            ));
        }
        let recorded = self.decode(method, packed, target)?;
        Ok(recorded.or_else(|| begun.map(|begun| thread_cpu() - begun)))
    }

    /// Restores a block from a compressed form without a check; returns the recorded time, if there is one.
    ///
    /// # Errors
    ///
    /// As [`Decompressor::decompress`].
    pub(super) fn decode(
        &mut self,
        method: Method,
        packed: &[u8],
        target: &mut [u8],
    ) -> Result<Option<Seconds>> {
        self.note_use(method, 0, target.len());
        match &mut self.engine {
            Engine::Real { decompressor, .. } => {
                decompressor.decompress(method.decoder(), packed, target)?;
                Ok(None)
            }
            Engine::Recorded(record) => {
                let known = packed.len().min(target.len());
                target[..known].copy_from_slice(&packed[..known]);
                target[known..].fill(0);
                let time = record.of(method).decode_seconds_per_byte * target.len() as f64;
                Ok(Some(Seconds(time)))
            }
        }
    }

    /// Takes out the memory for a restored block, at this length.
    pub(super) fn take_restored(&mut self, bytes: usize) -> Vec<u8> {
        let mut restored = std::mem::take(&mut self.restored);
        restored.resize(bytes, 0);
        restored
    }

    /// Takes a restored block in.
    pub(super) fn put_restored(&mut self, block: Vec<u8>) {
        self.restored = block;
    }

    /// Copies a compressed form, into memory that comes back by [`Bench::put_packed`].
    pub(super) fn copy_packed(&mut self, packed: &[u8]) -> Vec<u8> {
        let mut copy = std::mem::take(&mut self.packed);
        copy.clear();
        copy.extend_from_slice(packed);
        copy
    }

    /// Takes the memory of a compressed form back.
    pub(super) fn put_packed(&mut self, packed: Vec<u8>) {
        self.packed = packed;
    }

    /// Returns the block that was restored last.
    pub(super) fn restored(&self) -> &[u8] {
        &self.restored
    }

    /// Compresses a block and restores it again, to learn the cost of both. Returns the length with its check, if it
    /// fits, and both times. The times are taken each time, because trials are rare and important. A method that was
    /// never tried here runs once before that. Its first run mostly measures the system, which maps its tables and its
    /// code.
    ///
    /// # Errors
    ///
    /// As [`Compressor::compress`] and [`Decompressor::decompress`].
    pub(super) fn try_method(
        &mut self,
        method: Method,
        class: u8,
        block: &[u8],
        packed_bytes_max: usize,
    ) -> Result<Trial> {
        if let Engine::Real { .. } = self.engine
            && !std::mem::replace(&mut self.used(method).is_tried, true)
        {
            self.run_trial(method, class, block, packed_bytes_max)?;
        }
        self.run_trial(method, class, block, packed_bytes_max)
    }

    fn run_trial(
        &mut self,
        method: Method,
        class: u8,
        block: &[u8],
        packed_bytes_max: usize,
    ) -> Result<Trial> {
        let begun = self.clock();
        let of = (method, class);
        let (packed_bytes, encode) = self.compress_begun(begun, of, block, packed_bytes_max)?;
        let Some(size) = packed_bytes else {
            return Ok(Trial {
                packed_bytes,
                encode,
                decode: None,
            });
        };
        let packed = std::mem::take(&mut self.scratch);
        let mut restored = self.take_restored(block.len());
        let begun = self.clock();
        let decode = self.decompress_begun(begun, method, &packed[..size], &mut restored);
        self.put_restored(restored);
        self.scratch = packed;
        Ok(Trial {
            packed_bytes,
            encode,
            decode: decode?,
        })
    }

    /// Begins to time a loader.
    pub(super) fn begin_load(&mut self) -> Begun {
        match self.declared_miss {
            Some(declared) => Begun::Declared(declared),
            None => Begun::Timed {
                wall: Instant::now(),
                core: self.is_turn(TIMED_EVERY).then(thread_cpu),
            },
        }
    }

    /// Runs the shadow on one access and returns its time, if it was taken.
    pub(super) fn time_shadow(&mut self, work: impl FnOnce()) -> Option<Seconds> {
        match &mut self.engine {
            Engine::Recorded(record) => {
                work();
                Some(record.shadow_sample)
            }
            Engine::Real { .. } => {
                let begun = self.is_turn(TIMED_EVERY).then(Instant::now);
                work();
                begun.map(|begun| Seconds(begun.elapsed().as_secs_f64()))
            }
        }
    }

    /// Reads the processor clock, if work is real.
    fn clock(&self) -> Option<Seconds> {
        matches!(self.engine, Engine::Real { .. }).then(thread_cpu)
    }

    /// Reads the processor clock before a codec runs, one call in so many.
    fn begin_codec(&mut self) -> Option<Seconds> {
        let every = match self.engine {
            Engine::Real { calls, .. } if calls > CALLS_EARLY => TIMED_EVERY_LATER,
            _ => TIMED_EVERY,
        };
        self.is_turn(every).then(thread_cpu)
    }

    /// Returns whether this call, one in so many, is timed.
    fn is_turn(&mut self, every: u32) -> bool {
        let Engine::Real { calls, .. } = &mut self.engine else {
            return false;
        };
        // At its end it goes on as a late call, not as an early one.
        *calls = calls.checked_add(1).unwrap_or(CALLS_EARLY);
        *calls % every == 1
    }
}

impl Begun {
    /// Returns the loader's time, or the declared one. Where its processor time was not taken, all of the time counts
    /// as waiting.
    pub(super) fn end(&self) -> MissTime {
        let (wall, core) = match self {
            Begun::Declared(declared) => return *declared,
            Begun::Timed { wall, core } => (wall, core),
        };
        let elapsed = wall.elapsed().as_secs_f64();
        let core = core.map_or(0.0, |begun| (thread_cpu() - begun).0);
        let core = core.clamp(0.0, elapsed);
        MissTime {
            core: Seconds(core),
            waiting: Seconds(elapsed - core),
        }
    }
}

impl Used {
    /// Returns the bytes that the codecs hold for it, by their formulas.
    fn codec_bytes(&self) -> usize {
        let compressor = match self.compressed_bytes {
            0 => 0,
            bytes => self.method.compressor_bytes(bytes),
        };
        let decompressor = match self.restored_bytes {
            0 => 0,
            bytes => self.method.decompressor_bytes(bytes),
        };
        compressor + decompressor
    }
}

impl Record {
    fn of(&self, method: Method) -> &RecordedMethod {
        let found = self.methods.iter().find(|it| it.method == method);
        found.unwrap_or_else(|| panic!("no record of {method}"))
    }
}

impl RecordedMethod {
    fn ratio(&self, class: u8) -> f64 {
        let last = self.ratios.len() - 1;
        self.ratios[usize::from(class).min(last)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_and_damage_is_found() {
        let mut bench = Bench::new();
        let method = "lz4:1".parse().expect("a method");
        let block: Vec<u8> = (0..8192u32).map(|byte| (byte / 7) as u8).collect();
        let (size, time) = bench.compress(method, 0, &block, 4096).expect("lz4");
        let size = size.expect("it shrinks");
        assert!(time.is_some(), "the first call is timed");
        let mut packed = bench.scratch(size).to_vec();
        let mut back = vec![1; 8192];
        bench.decompress(method, &packed, &mut back).expect("sound");
        assert_eq!(back, block);
        for at in [0, CHECK_BYTES, size - 1] {
            packed[at] ^= 4;
            let found = bench.decompress(method, &packed, &mut back);
            assert!(matches!(found, Err(Error::Corrupt { .. })), "byte {at}");
            packed[at] ^= 4;
        }
        assert!(bench.decompress(method, &packed[..2], &mut back).is_err());
        let noise: Vec<u8> = (0..8192u32)
            .map(|x| (x.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        let (size, _) = bench.compress(method, 0, &noise, 1000).expect("lz4");
        assert_eq!(size, None, "1000 bytes are too few");
    }

    #[test]
    fn a_record_keeps_account_and_no_content() {
        let method = "zstd:1".parse().expect("a method");
        let mut bench = Bench::recorded(Record {
            methods: vec![RecordedMethod {
                method,
                encode_seconds_per_byte: 0.001,
                decode_seconds_per_byte: 0.0005,
                ratios: [4.0, 1.0],
            }],
            miss: MissTime::default(),
            shadow_sample: Seconds(0.0),
        });
        let block = [9; 1000];
        let (size, time) = bench.compress(method, 0, &block, 900).expect("recorded");
        assert_eq!((size, time), (Some(250 + CHECK_BYTES), Some(Seconds(1.0))));
        let packed = bench.scratch(254).to_vec();
        let mut back = [1; 1000];
        let time = bench
            .decompress(method, &packed, &mut back)
            .expect("recorded");
        assert_eq!((time, back[249], back[250]), (Some(Seconds(0.5)), 9, 0));
        assert_eq!(
            bench.compress(method, 1, &block, 900).expect("recorded").0,
            None
        );
    }
}
