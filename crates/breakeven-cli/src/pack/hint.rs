//! The saving of another choice, tried on some pieces of the file that was just packed.
//!
//! A profile knows kinds of data but not this file, and a hint has to be right. So both choices pack pieces from all
//! over the file, in a tenth of the time that packing took. The hint gives their saving with the spread from piece to
//! piece. There is no hint where that time was too short to try anything.

use std::os::unix::fs::FileExt;
use std::time::Instant;

use anyhow::Result;
use breakeven::codec::{Codec, Compressor, Method};
use breakeven::meter::thread_cpu;
use breakeven::statistics::student_t_975;
use breakeven::units::{Estimate, Seconds};

use super::place::Source;

/// Bytes of a piece: long enough for a level to show its strength, some 50 ms by the densest.
const PIECE_BYTES: usize = 128 << 10;
/// The fewest pieces that show a spread, and the most.
const PIECES: [usize; 2] = [3, 16];
/// The share of the time of packing that trying may take.
const TIME_SHARE: f64 = 0.1;
/// Packing that was quicker is not worth a hint.
const SECONDS_MIN: f64 = 1.0;
/// The level that stands for `smallest`: the densest for one piece, whose window is shorter than that of any level.
const DENSEST: i8 = 19;
/// The level of a file unless another is requested.
const USUAL: i8 = 3;

/// Another choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hint {
    /// How it is asked for.
    pub choice: &'static str,
    /// Bytes it saves, as a share of those that were stored.
    pub saved: Estimate,
    /// Core seconds it takes for all of the file.
    pub core: Seconds,
}

/// The method that packed a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Packed {
    /// One long frame by a level.
    Level(i8),
    /// A row of frames for a fast link, stored in so many bytes of a raw byte.
    Row(f64),
}

/// Tries the choice that would save most more on a file; `None` for a file that was cut since.
pub fn hint(source: &Source, packed: Packed, took: Seconds) -> Option<Hint> {
    let length = source.metadata.as_ref().map_or(0, std::fs::Metadata::len);
    if took.0 < SECONDS_MIN || length < (PIECES[0] * PIECE_BYTES) as u64 {
        return None;
    }
    let (base, choice, level) = match packed {
        Packed::Level(level) if level < DENSEST => (Some(level), "--strategy smallest", DENSEST),
        Packed::Level(_) => return None,
        Packed::Row(_) => (None, "a file without --strategy", USUAL),
    };
    let begun = Instant::now();
    let mut tried = Tried::default();
    for index in 0..PIECES[1] {
        let is_late = begun.elapsed().as_secs_f64() > TIME_SHARE * took.0;
        if is_late && index >= PIECES[0] {
            break;
        }
        // The fractions halve the gaps, so that pieces are spread evenly whenever the time is up.
        let share = van_der_corput(index as u32 + 1);
        let at = (share * (length - PIECE_BYTES as u64) as f64) as u64;
        tried.piece(source, at, (base, level)).ok()?;
    }
    let saved = match packed {
        Packed::Level(_) => tried.saved(),
        Packed::Row(stored) => tried.saved_of(stored),
    };
    let core = Seconds(tried.core.0 / tried.raw_bytes * length as f64);
    (saved.low > 0.0).then_some(Hint {
        choice,
        saved,
        core,
    })
}

/// Returns the fractions 1/2, 1/4, 3/4, 1/8, ...
fn van_der_corput(index: u32) -> f64 {
    f64::from(index.reverse_bits()) / (f64::from(u32::MAX) + 1.0)
}

#[derive(Default)]
struct Tried {
    compressor: Compressor,
    raw_bytes: f64,
    /// The bytes of each piece by its own method, and by the other choice.
    stored: Vec<[f64; 2]>,
    core: Seconds,
}

impl Tried {
    fn piece(&mut self, source: &Source, at: u64, levels: (Option<i8>, i8)) -> Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        source.file.read_exact_at(&mut piece, at)?;
        let mut target = vec![0; PIECE_BYTES];
        let mut stored = |level: i8| -> Result<f64> {
            let method = Method::of(Codec::Zstd { level });
            let made = self.compressor.compress(method, &piece, &mut target)?;
            Ok(made.unwrap_or(piece.len()) as f64)
        };
        let base = levels.0.map_or(Ok(piece.len() as f64), &mut stored)?;
        let begun = thread_cpu();
        let other = stored(levels.1)?;
        self.core += thread_cpu() - begun;
        self.raw_bytes += PIECE_BYTES as f64;
        self.stored.push([base, other]);
        Ok(())
    }

    /// Returns the share that the other choice saves, with its interval: each piece is left out once.
    fn saved(&self) -> Estimate {
        let [base, other] = self.sums();
        let count = self.stored.len() as f64;
        let mean = 1.0 - other / base;
        let without = |it: &[f64; 2]| 1.0 - (other - it[1]) / (base - it[0]);
        let squares = self.stored.iter().map(|it| (without(it) - mean).powi(2));
        let deviation = (squares.sum::<f64>() * (count - 1.0) / count).sqrt();
        let half = student_t_975(self.stored.len() - 1) * deviation;
        Estimate {
            mean,
            low: mean - half,
            high: (mean + half).min(1.0),
        }
    }

    /// Returns the share saved against a known share of stored bytes, which is no estimate.
    fn saved_of(&self, stored: f64) -> Estimate {
        // The base is the raw bytes.
        self.saved().map(|saved| 1.0 - (1.0 - saved) / stored)
    }

    fn sums(&self) -> [f64; 2] {
        let add = |sum: [f64; 2], it: &[f64; 2]| [sum[0] + it[0], sum[1] + it[1]];
        self.stored.iter().fold([0.0; 2], add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> (tempfile::TempDir, Source) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(bytes).unwrap();
        (folder, Source::open(&path).unwrap())
    }

    /// Numbers without any repeats that a codec finds.
    fn random(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) ^ (state >> 50)
        }
    }

    #[test]
    fn what_is_told_is_what_the_other_choice_saves() {
        let mut next = random(3);
        let words: Vec<String> = (0..3000).map(|_| format!("{:x} ", next())).collect();
        let mut text = Vec::new();
        while text.len() < 4 << 20 {
            text.extend(words[next() as usize % words.len()].bytes());
        }
        let (_folder, source) = file(&text);
        let of_level = |level| {
            let method = Method::of(Codec::Zstd { level });
            let mut target = vec![0; text.len()];
            let made = Compressor::new().compress(method, &text, &mut target);
            made.unwrap().unwrap() as f64
        };
        let expected = 1.0 - of_level(19) / of_level(3);
        let took = Seconds(20.0);
        let found = hint(&source, Packed::Level(3), took).expect("a hint");
        println!("{found:?}, all of it {expected}");
        assert_eq!(found.choice, "--strategy smallest");
        assert!((found.saved.mean - expected).abs() < 0.08 && found.core.0 > 0.0);
        let stored = 0.9;
        let found = hint(&source, Packed::Row(stored), took).expect("a hint");
        let expected = 1.0 - of_level(3) / text.len() as f64 / stored;
        println!("{found:?}, all of it {expected}");
        assert!((found.saved.mean - expected).abs() < 0.08);
        assert_eq!(hint(&source, Packed::Level(19), took), None);
        assert_eq!(hint(&source, Packed::Level(3), Seconds(0.9)), None);
    }

    #[test]
    fn nothing_is_promised_of_noise() {
        let mut next = random(5);
        let noise: Vec<u8> = (0..2 << 20).map(|_| next() as u8).collect();
        let (_folder, source) = file(&noise);
        let found = hint(&source, Packed::Level(3), Seconds(20.0));
        assert_eq!(found, None);
    }

    #[test]
    fn pieces_are_spread() {
        let found = [1, 2, 3, 4].map(van_der_corput);
        assert_eq!(found, [0.5, 0.25, 0.75, 0.125]);
    }
}
