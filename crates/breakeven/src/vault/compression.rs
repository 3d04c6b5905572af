//! The method of each frame: one for all, or the cheapest at the prices of a preset.
//!
//! Ratios are learned as frames are encoded. Times come from the published table (`decide/prior.rs`), as the prices of
//! the presets do, and never from the moment. Measured times depend on the machine's other load: the stored bytes of
//! one tree varied by up to a tenth from run to run. A tree that is cut alike takes the same bytes on each machine with
//! as many workers.

use std::collections::BTreeMap;

use crate::codec::{Codec, Compressor, Features, Filter, Method};
use crate::decide::{
    BlockLife, Candidate, Chooser, ChooserOptions, Class, Observation, Picked, Prices, Profile,
};
use crate::error::Result;
use crate::units::{Estimate, Seconds};

use super::Vault;

/// How methods are found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Compression {
    /// One for all frames; a frame that it does not make smaller is stored as it is.
    Fixed(Method),
    /// By the chooser, at the prices of a preset.
    Chosen(Preset),
}

/// A list of prices: the cost of a byte held, beside a second of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Bytes count little: as fast as the disk takes it.
    Fast,
    /// The usual default of such tools, zstd at a middle level, is about worth its time.
    Default,
    /// Bytes count for years: the densest method that still gains.
    Best,
}

impl Preset {
    /// Returns the core seconds that a GB held for the life of a block is worth. The figures are the prices at which
    /// zstd's published speeds and ratios on Silesia (decide/prior.rs) break even. A GB saved costs some 10 s between
    /// lz4 and zstd:1, some 100 s from about zstd:3 to zstd:5, and some thousands from zstd:9 to zstd:19.
    fn seconds_per_gb(self) -> f64 {
        match self {
            Preset::Fast => 6.0,
            Preset::Default => 60.0,
            Preset::Best => 30_000.0,
        }
    }

    /// From the lightest to the densest.
    fn methods(self) -> &'static [&'static str] {
        match self {
            Preset::Fast => &["store", "lz4:1", "zstd:-5", "zstd:1"],
            Preset::Default => &["store", "lz4:1", "zstd:1", "zstd:3", "zstd:5", "zstd:7"],
            Preset::Best => &[
                "store", "lz4:1", "zstd:3", "zstd:9", "zstd:15", "zstd:19", "xz:6",
            ],
        }
    }
}

impl Preset {
    /// Returns the method of deltas where the picked method does not search all of a preceding frame for matches.
    fn delta(self) -> &'static str {
        match self {
            Preset::Fast | Preset::Default => "zstd:3",
            Preset::Best => "zstd:19",
        }
    }
}

fn is_zstd(method: &Method) -> bool {
    matches!(
        (method.codec, method.filter),
        (Codec::Zstd { .. }, Filter::None)
    )
}

/// How often several candidates encode one frame: the first frames of each class, and then one in so many. Methods are
/// compared on the same frames. Results differ so much from frame to frame that a comparison on separate frames chose
/// the wrong method.
#[derive(Clone, Copy)]
struct Pairing {
    frames: u64,
    share: u64,
}

impl Preset {
    /// For the best preset: the densest two, one pair in 16 frames. Without, `game data` of peng2020-dedup/best took
    /// 1.09 of borg's bytes.
    ///
    /// By default: all candidates, one in 64 frames. Together they take some three times as long as the densest, so
    /// this is 3 % of the time.
    fn pairing(self) -> Pairing {
        match self {
            Preset::Best => Pairing {
                frames: 4,
                share: 16,
            },
            Preset::Fast | Preset::Default => Pairing {
                frames: 2,
                share: 64,
            },
        }
    }

    /// Says from which candidate on they are compared.
    fn first_compared(self, candidates: usize) -> usize {
        match self {
            Preset::Best => candidates - 2,
            // All but storing, whose result is known.
            Preset::Fast | Preset::Default => 1,
        }
    }
}

/// Finds methods and learns from their results.
pub(super) struct Picker {
    fixed: Option<Method>,
    chooser: Chooser,
    /// Candidates from this one on are compared on the same frames.
    first_compared: usize,
    pairing: Pairing,
    /// How many frames of each class might have been encoded by several.
    seen: BTreeMap<Class, u64>,
    prices: Prices,
    /// The assumed costs of methods: nothing is learned here.
    published: Profile,
    /// The picker of the default preset, where bytes count most: no frame may take more than its method makes of it.
    lighter: Option<Box<Picker>>,
    /// The method of deltas where the picked one takes no prefix.
    delta: Method,
    delta_outcomes: DeltaOutcomes,
    /// About the length of a frame of bases.
    frame_bytes: usize,
    compressor: Compressor,
}

/// The method of one frame.
pub(super) struct Pick {
    method: Method,
    /// Other candidates. One is taken if it makes less of the frame.
    rivals: Vec<(usize, Method)>,
    chosen: Option<(Picked, Class)>,
    lighter: Option<Box<Pick>>,
}

impl Pick {
    /// Returns the methods to encode the frame by, each once.
    pub(super) fn methods(&self) -> impl Iterator<Item = Method> + use<> {
        let mut methods = vec![self.method];
        methods.extend(self.rivals.iter().map(|(_, method)| *method));
        if let Some(lighter) = &self.lighter {
            let others = lighter.methods().filter(|it| !methods.contains(it));
            methods.extend(others.collect::<Vec<_>>());
        }
        methods.into_iter()
    }
}

/// How a frame of deltas is encoded.
pub(super) struct DeltaPick {
    pub(super) method: Method,
    /// Bytes that it would take as any other frame.
    pub(super) most_bytes: usize,
}

/// The bytes that frames of deltas took so far, beside the bytes that they would have taken otherwise.
#[derive(Default)]
struct DeltaOutcomes {
    plain_bytes: f64,
    stored_bytes: f64,
}

/// The result of a method on a frame.
pub(super) struct Outcome {
    pub(super) method: Method,
    pub(super) stored_bytes: usize,
}

impl Picker {
    /// Makes a picker for the packs of a vault.
    pub(super) fn of(vault: &Vault, compression: Compression) -> Picker {
        let request_share = vault.far.put_costs_bytes() as f64 / vault.options.pack_bytes as f64;
        let mut picker = Picker::new(compression, request_share);
        picker.frame_bytes = vault.options.frame_bytes;
        picker
    }

    /// Makes a picker for a place where putting a pack costs this share of the price to hold it.
    fn new(compression: Compression, request_share: f64) -> Picker {
        let (fixed, preset) = match compression {
            Compression::Fixed(method) => (Some(method), Preset::Default),
            Compression::Chosen(preset) => (None, preset),
        };
        let candidates = preset.methods().iter().map(|text| {
            let method = text.parse().expect("a method of the table above");
            Candidate::new(method)
        });
        // A byte less is so much less of a pack, and of its put.
        let per_byte = preset.seconds_per_gb() / 1e9 * (1.0 + request_share);
        let prices = Prices {
            per_core_second: Estimate::exact(1.0),
            per_byte_written: Estimate::exact(per_byte),
            ..Prices::default()
        };
        let candidates: Vec<Candidate> = candidates.collect();
        // Several are tried on one frame instead.
        let options = ChooserOptions {
            trial_share: 0.0,
            ..ChooserOptions::default()
        };
        Picker {
            fixed,
            first_compared: preset.first_compared(candidates.len()),
            pairing: preset.pairing(),
            chooser: Chooser::new(candidates, Profile::default(), options),
            seen: BTreeMap::new(),
            prices,
            published: Profile::default(),
            lighter: (preset == Preset::Best).then(|| {
                let default = Compression::Chosen(Preset::Default);
                Box::new(Picker::new(default, request_share))
            }),
            delta: preset.delta().parse().expect("a method"),
            delta_outcomes: DeltaOutcomes::default(),
            frame_bytes: 0,
            compressor: Compressor::new(),
        }
    }

    /// Returns the method of a frame of deltas that would otherwise get this pick.
    fn delta_method(&self, pick: &Pick) -> Method {
        match (pick.method.codec, pick.method.filter) {
            (Codec::Zstd { level }, Filter::None) if level >= 3 => pick.method,
            _ => self.fixed.filter(is_zstd).unwrap_or(self.delta),
        }
    }

    /// Returns how a frame of deltas that moves is encoded: its saving is known to pay.
    pub(super) fn move_delta(&self, pick: &Pick, raw_bytes: usize) -> DeltaPick {
        DeltaPick {
            method: self.delta_method(pick),
            most_bytes: raw_bytes,
        }
    }

    /// Returns how a frame of deltas is encoded, if that pays. The gain is the bytes that deltas are expected to save:
    /// the share that earlier ones saved, at first all. The cost is decoding `read_bytes` of a frame of bases now, as
    /// much again at a restore, and encoding the deltas.
    pub(super) fn pick_delta(
        &self,
        pick: &Pick,
        raw_bytes: usize,
        read_bytes: usize,
    ) -> Option<DeltaPick> {
        let method = self.delta_method(pick);
        let Some((picked, class)) = &pick.chosen else {
            let is_fixed = method == pick.method;
            return is_fixed.then(|| self.move_delta(pick, raw_bytes));
        };
        let mut expected = self.chooser.expected(*class, raw_bytes as u64);
        let plain_bytes = expected.nth(picked.candidate)?.stored_bytes.mean;
        let DeltaOutcomes {
            plain_bytes: plain_before,
            stored_bytes: stored_before,
        } = self.delta_outcomes;
        let left_share = match plain_before > 0.0 {
            true => stored_before / plain_before,
            false => 0.0,
        };
        let estimate = self.published.estimate(*class, method, raw_bytes as u64);
        let decode = estimate.decode_seconds_per_byte.value.mean;
        let encode = estimate.encode_seconds_per_byte.value.mean;
        let decoded_bytes = (read_bytes + self.frame_bytes) as f64;
        let seconds = decode * decoded_bytes + encode * raw_bytes as f64;
        let saved = plain_bytes * (1.0 - left_share) * self.prices.per_byte_written.mean;
        (saved > seconds).then_some(DeltaPick {
            method,
            most_bytes: plain_bytes as usize,
        })
    }

    /// Learns the result of a frame of deltas that was expected to take so many bytes otherwise.
    pub(super) fn learn_delta(&mut self, plain_bytes: usize, stored_bytes: usize) {
        self.delta_outcomes.plain_bytes += plain_bytes as f64;
        self.delta_outcomes.stored_bytes += stored_bytes as f64;
    }

    pub(super) fn pick(&mut self, frame: &[u8]) -> Result<Pick> {
        if let Some(method) = self.fixed {
            return Ok(Pick {
                method,
                rivals: Vec::new(),
                chosen: None,
                lighter: None,
            });
        }
        let lighter = match &mut self.lighter {
            Some(lighter) => Some(Box::new(lighter.pick(frame)?)),
            None => None,
        };
        let class = Class::content(&Features::as_needed(
            frame,
            &mut self.compressor,
            Class::needs_probe,
        )?);
        let life = life(class, frame.len() as u64);
        let picked = self.chooser.pick(&life, &self.prices, |_, _| 0.0);
        let rivals = self.rivals_of(picked.candidate, class);
        let method = |candidate: usize| self.chooser.candidates()[candidate].method;
        Ok(Pick {
            method: method(picked.candidate),
            rivals: rivals.map(|rival| (rival, method(rival))).collect(),
            chosen: Some((picked, class)),
            lighter,
        })
    }

    /// Returns the candidates that are to be tried beside this one.
    fn rivals_of(&mut self, candidate: usize, class: Class) -> impl Iterator<Item = usize> + use<> {
        let compared = self.first_compared..self.chooser.candidates().len();
        let mut is_tried = compared.contains(&candidate);
        if is_tried {
            let seen = self.seen.entry(class).or_default();
            *seen += 1;
            is_tried = *seen <= self.pairing.frames || seen.is_multiple_of(self.pairing.share);
        }
        compared.filter(move |it| is_tried && *it != candidate)
    }

    /// Learns the results of a pick's methods on a frame.
    pub(super) fn learn(&mut self, pick: &Pick, raw_bytes: usize, outcomes: &[Outcome]) {
        let Some((picked, class)) = &pick.chosen else {
            return;
        };
        for outcome in outcomes {
            let estimate = self
                .published
                .estimate(*class, outcome.method, raw_bytes as u64);
            let seconds = estimate.encode_seconds_per_byte.value.mean * raw_bytes as f64;
            let observation = Observation {
                class: *class,
                method: outcome.method,
                raw_bytes: raw_bytes as u64,
                stored_bytes: outcome.stored_bytes as u64,
                encode: Some(Seconds(seconds)),
                decode: None,
            };
            let mut rivals = pick.rivals.iter();
            if let Some((rival, _)) = rivals.find(|(_, method)| *method == outcome.method) {
                self.chooser.learn(*rival, &observation);
            } else if pick.method == outcome.method {
                self.chooser.observe(picked, &observation);
            }
        }
        if let (Some(lighter), Some(pick)) = (&mut self.lighter, &pick.lighter) {
            let is_own = |outcome: &&Outcome| outcome.method == pick.method;
            let outcome = outcomes.iter().find(is_own);
            lighter.learn(
                pick,
                raw_bytes,
                std::slice::from_ref(outcome.expect("it was tried")),
            );
        }
    }
}

/// A frame is restored once, if ever: its decoding costs next to nothing beside its bytes.
fn life(class: Class, raw_bytes: u64) -> BlockLife {
    BlockLife {
        reads_per_write: Estimate::exact(1.0),
        ..BlockLife::new(class, raw_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_densest_are_compared_on_one_frame_and_the_better_is_learned() {
        let frame = b"a row of words, a number, a name; ".repeat(4096);
        let learn = |picker: &mut Picker, pick: &Pick, worse: &str| {
            let outcomes = pick.methods().map(|method| Outcome {
                method,
                stored_bytes: if method.to_string() == worse {
                    9000
                } else {
                    6000
                },
            });
            let outcomes: Vec<Outcome> = outcomes.collect();
            picker.learn(pick, frame.len(), &outcomes);
            outcomes.len()
        };
        for (worse, better) in [("zstd:19", "xz:6"), ("xz:6", "zstd:19")] {
            let mut picker = Picker::new(Compression::Chosen(Preset::Best), 0.0);
            let tried: Vec<usize> = (0..32)
                .map(|_| {
                    let pick = picker.pick(&frame).unwrap();
                    learn(&mut picker, &pick, worse)
                })
                .collect();
            // Beside the default's pick, and at first all that is compared there.
            assert!(tried[..2].iter().all(|it| *it >= 6), "{tried:?}");
            assert_eq!(tried[2..5], [3, 3, 2]);
            assert_eq!(
                tried[5..].iter().filter(|it| **it == 3).count(),
                2,
                "{tried:?}"
            );
            assert_eq!(picker.pick(&frame).unwrap().method.to_string(), better);
        }
        // By default all but storing are compared, and storing has nothing to be compared with.
        let mut picker = Picker::new(Compression::Chosen(Preset::Default), 0.0);
        let tried: Vec<usize> = (0..64)
            .map(|_| {
                let pick = picker.pick(&frame).unwrap();
                learn(&mut picker, &pick, "none")
            })
            .collect();
        assert_eq!(tried[..3], [5, 5, 1]);
        assert_eq!((tried[62], tried[63]), (1, 5));
    }
}
