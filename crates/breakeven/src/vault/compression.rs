//! The method of each frame: one for all, or what costs least at the prices of a preset.

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

/// Finds methods and learns what became of them.
pub(super) struct Picker {
    fixed: Option<Method>,
    chooser: Chooser,
    prices: Prices,
    compressor: Compressor,
}

/// The method of one frame.
#[derive(Clone, Copy)]
pub(super) struct Pick {
    pub(super) method: Method,
    chosen: Option<(Picked, Class)>,
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
        let chooser = Chooser::new(
            candidates.collect(),
            Profile::default(),
            ChooserOptions::default(),
        );
        Picker {
            fixed,
            chooser,
            prices,
            compressor: Compressor::new(),
        }
    }

    pub(super) fn pick(&mut self, frame: &[u8]) -> Result<Pick> {
        if let Some(method) = self.fixed {
            return Ok(Pick {
                method,
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
        let method = self.chooser.candidates()[picked.candidate].method;
        Ok(Pick {
            method,
            chosen: Some((picked, class)),
        })
    }

    pub(super) fn learn(
        &mut self,
        pick: &Pick,
        raw_bytes: usize,
        stored_bytes: usize,
        encode: Seconds,
    ) {
        let Some((picked, class)) = &pick.chosen else {
            return;
        };
        let observation = Observation {
            class: *class,
            method: pick.method,
            raw_bytes: raw_bytes as u64,
            stored_bytes: stored_bytes as u64,
            encode: Some(encode),
            decode: None,
        };
        self.chooser.observe(picked, &observation);
    }
}

/// A frame is restored once, if ever: its decoding is worth next to nothing beside its bytes.
fn life(class: Class, raw_bytes: u64) -> BlockLife {
    BlockLife {
        reads_per_write: Estimate::exact(1.0),
        ..BlockLife::new(class, raw_bytes)
    }
}
