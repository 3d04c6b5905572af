//! Forms, the encodings of values; and the bench of each thread, which encodes them.
//!
//! A [`Form`] is a method with its dictionary or its table of symbols. Segments hold the forms of their items, so that
//! a form lives as long as the last value that needs it. Zstandard frames are stored bare: both lengths stand before
//! the key.
//!
//! Encoded values never leave this process's memory, so a value that does not decode is a bug: it panics.

use std::cell::RefCell;
use std::sync::Arc;

use crate::codec::{Codec, Compressor, Decoder, Decompressor, Method, Symbols};
use crate::dictionaries::Generation;
use crate::meter::thread_cpu;
use crate::units::Seconds;

/// Shorter values stay raw: the possible saving is less than the record of the encoding.
pub(super) const VALUE_BYTES_MIN: usize = 12;
/// Longer values stay raw: nobody keeps them in a cache for small objects to save memory.
pub(super) const VALUE_BYTES_MAX: usize = 128 << 10;
/// The extra bytes in an encoded item's header: its form and its raw length.
pub(super) const HEADER_BYTES: usize = 3;
/// A value must save one byte in so many to be encoded.
const SAVED_ONE_IN: usize = 16;
/// Bytes that a bench keeps for values.
const BENCH_BYTES_KEPT: usize = 256 << 10;

/// The encoding of the values of a class. Forms are compared by address.
#[derive(Debug)]
pub(super) struct Form {
    pub class: u16,
    pub method: Method,
    pub generation: Option<Arc<Generation>>,
    /// The table of FSST, which has no dictionary.
    pub symbols: Option<Arc<Symbols>>,
}

impl Form {
    fn decoder(&self) -> Decoder {
        let plain = self.method.decoder();
        Decoder {
            codec: match plain.codec {
                Decoder::CODEC_ZSTD => Decoder::CODEC_ZSTD_BARE,
                other => other,
            },
            dictionary: self.generation.as_ref().map_or(0, |it| it.id),
            ..plain
        }
    }

    pub fn is(self: &Arc<Form>, other: Option<&Arc<Form>>) -> bool {
        other.is_some_and(|other| Arc::ptr_eq(self, other))
    }
}

/// The working memory of a thread.
#[derive(Default)]
pub(super) struct Bench {
    compressor: Compressor,
    decompressor: Decompressor,
    stored: Vec<u8>,
    /// Free for the holder of the bench.
    pub value: Vec<u8>,
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::default();
}

/// Passes the thread's bench to a function, which must not request it again.
pub(super) fn on_bench<R>(work: impl FnOnce(&mut Bench) -> R) -> R {
    BENCH.with_borrow_mut(work)
}

/// Returns whether values of this length may be encoded.
pub(super) fn may_encode(value_bytes: usize) -> bool {
    (VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&value_bytes)
}

impl Bench {
    /// Encodes a value; `None` if that saves too little.
    pub fn encode(&mut self, form: &Form, value: &[u8]) -> Option<&[u8]> {
        let saved = (value.len() / SAVED_ONE_IN).max(1);
        let limit = value.len().checked_sub(HEADER_BYTES + saved)?;
        if self.stored.len() < limit || self.stored.len() > BENCH_BYTES_KEPT.max(limit) {
            self.stored = vec![0; limit];
        }
        let target = &mut self.stored[..limit];
        if let Some(symbols) = &form.symbols {
            let size = symbols.encode(value, target)?;
            return Some(&self.stored[..size]);
        }
        let dictionary = form.generation.as_ref().map(|it| &it.dictionary);
        let method = form.method;
        let size = match (method.codec, dictionary) {
            (Codec::Zstd { .. }, dictionary) => self
                .compressor
                .compress_bare(method, dictionary, value, target),
            (_, Some(dictionary)) => self
                .compressor
                .compress_with(method, dictionary, value, target),
            (_, None) => self.compressor.compress(method, value, target),
        };
        // Where the system gives no memory for a codec's tables, values stay raw.
        size.ok().flatten().map(|size| &self.stored[..size])
    }

    /// Decodes a value of so many bytes to the end of `target`.
    pub fn decode(&mut self, form: &Form, stored: &[u8], raw_bytes: usize, target: &mut Vec<u8>) {
        let start = target.len();
        target.resize(start + raw_bytes, 0);
        let (decoder, room) = (form.decoder(), &mut target[start..]);
        let outcome = match (&form.symbols, &form.generation) {
            (Some(symbols), _) => symbols.decode(stored, room),
            (None, Some(generation)) => {
                let dictionary = &generation.dictionary;
                (self.decompressor).decompress_with(decoder, dictionary, stored, room)
            }
            (None, None) => self.decompressor.decompress(decoder, stored, room),
        };
        outcome.expect("what was encoded here decodes here");
    }
}

/// The time and the bytes of a method on several values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    pub values: usize,
    pub raw_bytes: usize,
    pub stored_bytes: usize,
    pub encode: Seconds,
    pub decode: Seconds,
}

/// Times the encoding of values and the decoding of those that shrink, and keeps none.
pub(super) fn time<'a>(form: &Form, values: impl Iterator<Item = &'a [u8]> + Clone) -> Measured {
    on_bench(|bench| {
        let mut measured = Measured::default();
        let mut encoded: Vec<(Vec<u8>, usize)> = Vec::new();
        let start = thread_cpu();
        for value in values {
            measured.values += 1;
            measured.raw_bytes += value.len();
            match bench.encode(form, value) {
                Some(stored) => {
                    measured.stored_bytes += stored.len() + HEADER_BYTES;
                    encoded.push((stored.to_vec(), value.len()));
                }
                None => measured.stored_bytes += value.len(),
            }
        }
        let middle = thread_cpu();
        let mut target = Vec::new();
        for (stored, raw_bytes) in &encoded {
            target.clear();
            bench.decode(form, stored, *raw_bytes, &mut target);
        }
        measured.encode = Seconds((middle.0 - start.0).max(0.0));
        measured.decode = Seconds((thread_cpu().0 - middle.0).max(0.0));
        measured
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_too_short_to_save_anything_stay_as_they_are() {
        let form = Form {
            class: 0,
            method: "lz4:1".parse().unwrap(),
            generation: None,
            symbols: None,
        };
        for length in 0..VALUE_BYTES_MIN {
            on_bench(|bench| assert!(bench.encode(&form, &vec![7; length]).is_none()));
        }
        on_bench(|bench| assert!(bench.encode(&form, &[7; 100]).is_some()));
    }
}
