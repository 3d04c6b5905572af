//! The method of each frame: one for all, or what costs least at the prices of a preset.

use std::collections::BTreeMap;

use crate::codec::{Compressor, Features, Method};
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

/// A list of prices: what a byte held costs beside a second of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Bytes count little: as fast as the disk takes it.
    Fast,
    /// What tools for this choose by default, zstd at a middle level, is about worth its time.
    Default,
    /// Bytes count for years: the densest method that still gains.
    Best,
}

impl Preset {
    /// Returns the core seconds that a GB held for the life of a block is worth. From the levels at which zstd's
    /// published speeds and ratios on Silesia (decide/prior.rs) trade one for the other: between lz4 and
    /// zstd:1 a GB saved costs some 10 s, about zstd:3 to zstd:5 some 100 s, from zstd:9 to zstd:19
    /// some thousands.
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

/// So many frames of each class, and then one in so many of all, are encoded by both of the densest methods where bytes
/// count most. How well one does differs so much from frame to frame that a frame of each told the wrong one: `game data`
/// of peng2020-dedup/best took 1.09 of borg's bytes.
const PAIRED_FRAMES: u64 = 4;
const PAIRED_SHARE: u64 = 16;

/// Finds methods and learns what became of them.
pub(super) struct Picker {
    fixed: Option<Method>,
    chooser: Chooser,
    /// The two densest candidates, where a frame is worth trying both.
    densest: Option<[usize; 2]>,
    /// How many frames of each class might have been encoded by both.
    seen: BTreeMap<Class, u64>,
    prices: Prices,
    compressor: Compressor,
}

/// The method of one frame.
#[derive(Clone, Copy)]
pub(super) struct Pick {
    method: Method,
    /// Another candidate, which is taken where it makes less of the frame.
    rival: Option<(usize, Method)>,
    chosen: Option<(Picked, Class)>,
}

impl Pick {
    /// Returns what the frame is to be encoded by.
    pub(super) fn methods(&self) -> impl Iterator<Item = Method> + use<> {
        std::iter::once(self.method).chain(self.rival.map(|(_, method)| method))
    }
}

/// What a method made of a frame.
pub(super) struct Outcome {
    pub(super) method: Method,
    pub(super) stored_bytes: usize,
    pub(super) encode: Seconds,
}

impl Picker {
    /// Makes a picker for the packs of a vault.
    pub(super) fn of(vault: &Vault, compression: Compression) -> Picker {
        let request_share = vault.far.put_costs_bytes() as f64 / vault.options.pack_bytes as f64;
        Picker::new(compression, request_share)
    }

    /// Makes a picker for a place where putting a pack costs such a share of what holding it does.
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
        let last = candidates.len() - 1;
        let densest = (preset == Preset::Best).then_some([last - 1, last]);
        let mut options = ChooserOptions::default();
        if densest.is_some() {
            // Two are tried on one frame instead.
            options.trial_share = 0.0;
        }
        Picker {
            fixed,
            chooser: Chooser::new(candidates, Profile::default(), options),
            densest,
            seen: BTreeMap::new(),
            prices,
            compressor: Compressor::new(),
        }
    }

    pub(super) fn pick(&mut self, frame: &[u8]) -> Result<Pick> {
        if let Some(method) = self.fixed {
            return Ok(Pick {
                method,
                rival: None,
                chosen: None,
            });
        }
        let class = Class::content(&Features::as_needed(
            frame,
            &mut self.compressor,
            Class::needs_probe,
        )?);
        let life = life(class, frame.len() as u64);
        let picked = self.chooser.pick(&life, &self.prices, |_, _| 0.0);
        let rival = self.rival_of(picked.candidate, class);
        let method = |candidate: usize| self.chooser.candidates()[candidate].method;
        Ok(Pick {
            method: method(picked.candidate),
            rival: rival.map(|rival| (rival, method(rival))),
            chosen: Some((picked, class)),
        })
    }

    /// Returns the other one of the densest candidates, if it is to be tried beside this one.
    fn rival_of(&mut self, candidate: usize, class: Class) -> Option<usize> {
        let densest = self.densest.filter(|it| it.contains(&candidate))?;
        let seen = self.seen.entry(class).or_default();
        *seen += 1;
        let is_tried = *seen <= PAIRED_FRAMES || seen.is_multiple_of(PAIRED_SHARE);
        densest.into_iter().find(|it| is_tried && *it != candidate)
    }

    /// Learns what the methods of a pick made of a frame.
    pub(super) fn learn(&mut self, pick: &Pick, raw_bytes: usize, outcomes: &[Outcome]) {
        let Some((picked, class)) = &pick.chosen else {
            return;
        };
        for outcome in outcomes {
            let observation = Observation {
                class: *class,
                method: outcome.method,
                raw_bytes: raw_bytes as u64,
                stored_bytes: outcome.stored_bytes as u64,
                encode: Some(outcome.encode),
                decode: None,
            };
            match pick.rival {
                Some((rival, method)) if method == outcome.method => {
                    self.chooser.learn(rival, &observation)
                }
                _ => self.chooser.observe(picked, &observation),
            };
        }
    }
}

/// A frame is restored once, if ever: its decoding is worth next to nothing beside its bytes.
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
                encode: Seconds(0.01),
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
            assert_eq!(tried[..4], [2; 4]);
            assert_eq!(tried.iter().filter(|it| **it == 2).count(), 6, "{tried:?}");
            assert_eq!(picker.pick(&frame).unwrap().method.to_string(), better);
        }
        let mut picker = Picker::new(Compression::Chosen(Preset::Default), 0.0);
        assert_eq!(picker.pick(&frame).unwrap().methods().count(), 1);
    }
}
