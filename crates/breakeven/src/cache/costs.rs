//! The costs of a cache: measured while it works, and priced.
//!
//! [`Costs`] gets the caller's time for each miss, with processor time and waiting apart, and the codecs' times and
//! ratios on each class. It answers in the one unit of its [`AccessPrices`]: seconds, joules or euros. Codec costs come
//! from a [`Profile`], so that a method without runs here has a guess. They are kept in a table between refreshes,
//! because a simulation asks for them at every access.
//!
//! It reads no clock: seconds come in from the [`Bench`](super::bench::Bench).
#![deny(unsafe_code)]

use crate::codec::Method;
use crate::decide::{Class, Observation, Profile};
use crate::error::{Error, Result};
use crate::units::Seconds;

/// Classes kept apart; a caller's further ones share the last.
pub(super) const CLASS_COUNT: usize = 8;
/// Observations of a codec after which the table is recomputed.
const REFRESH: u64 = 32;
/// Blocks of a class whose compressed size by a method is remembered.
const SIZES: usize = 32;
/// The share by which a new miss moves the mean: some 64 misses are remembered.
const MISS_WEIGHT: f64 = 1.0 / 64.0;

/// The prices of a second. Hits, misses and codecs are compared in this one unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AccessPrices {
    /// A second of one core at work: 1 for time, the extra watts of a busy core for energy, its rent for money. Default
    /// 1.
    pub per_core_second: f64,
    /// A second of waiting for a miss while the core is free for others. It is 1 for time, the watts of waiting for
    /// energy, and the worth of the service's time for money. Default 1.
    pub per_waiting_second: f64,
}

impl Default for AccessPrices {
    fn default() -> AccessPrices {
        AccessPrices {
            per_core_second: 1.0,
            per_waiting_second: 1.0,
        }
    }
}

impl AccessPrices {
    /// Checks that both are prices.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a price that is below 0 or not finite.
    pub(super) fn check(&self) -> Result<()> {
        for price in [self.per_core_second, self.per_waiting_second] {
            if !(price.is_finite() && price >= 0.0) {
                let reason = format!("{price}, expected a finite number from 0 on");
                return Err(Error::invalid("price of a second", reason));
            }
        }
        Ok(())
    }
}

/// The time of one miss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MissTime {
    /// Core time of the loader.
    pub core: Seconds,
    /// The rest of its elapsed time.
    pub waiting: Seconds,
}

/// The costs and ratio of one method for a byte of one class, in the unit of the prices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PerByte {
    pub encode: f64,
    pub decode: f64,
    pub packed: f64,
}

/// Measured costs of one shard.
pub(super) struct Costs {
    prices: AccessPrices,
    methods: Vec<Method>,
    profile: Profile,
    block_bytes: u64,
    /// `table[class * methods + method]`.
    table: Vec<PerByte>,
    /// The last sizes of each cell of the table.
    sizes: Vec<Sizes>,
    /// Observations so far.
    observed: u64,
    miss: Option<f64>,
}

/// The ratios of a method on the last blocks of a class: shares of their bytes in units of 1/255, rounded up.
#[derive(Clone, Copy, Default)]
struct Sizes {
    shares: [u8; SIZES],
    /// Counts up to twice the room, and then starts again at the room.
    seen: usize,
}

impl Costs {
    pub fn new(prices: AccessPrices, methods: &[Method], block_bytes: u64) -> Costs {
        let mut costs = Costs {
            prices,
            methods: methods.to_vec(),
            profile: Profile::default(),
            block_bytes,
            table: vec![PerByte::default(); CLASS_COUNT * methods.len()],
            sizes: vec![Sizes::default(); CLASS_COUNT * methods.len()],
            observed: 0,
            miss: None,
        };
        costs.refresh();
        costs
    }

    /// Makes costs that are given by class and method, and not measured.
    pub fn told(prices: AccessPrices, methods: &[Method], table: Vec<PerByte>) -> Costs {
        assert_eq!(table.len(), CLASS_COUNT * methods.len(), "a row a class");
        Costs {
            table,
            ..Costs::new(prices, methods, 8192)
        }
    }

    /// Adds a loader's time, and returns its price.
    pub fn missed(&mut self, time: &MissTime) -> f64 {
        let MissTime { core, waiting } = time;
        let cost =
            core.0 * self.prices.per_core_second + waiting.0 * self.prices.per_waiting_second;
        let mean = self.miss.get_or_insert(cost);
        *mean += (cost - *mean) * MISS_WEIGHT;
        cost
    }

    /// Returns the price of a miss, 0 before the first.
    pub fn miss(&self) -> f64 {
        self.miss.unwrap_or(0.0)
    }

    /// Returns the price of core time.
    pub fn core(&self, time: Seconds) -> f64 {
        time.0 * self.prices.per_core_second
    }

    /// Adds the result of a codec.
    pub fn observe(
        &mut self,
        (class, method): (u8, u8),
        raw_bytes: u64,
        packed_bytes: u64,
        encode: Option<Seconds>,
        decode: Option<Seconds>,
    ) {
        if raw_bytes == 0 {
            return;
        }
        self.profile.observe(&Observation {
            class: Class::place(u16::from(class)),
            method: self.methods[usize::from(method)],
            raw_bytes,
            stored_bytes: packed_bytes,
            encode,
            decode,
        });
        self.block_bytes = raw_bytes;
        let cell = self.cell(class, method);
        let sizes = &mut self.sizes[cell];
        let share = (packed_bytes as f64 / raw_bytes as f64 * 255.0).ceil();
        sizes.shares[sizes.seen % SIZES] = share as u8;
        sizes.seen += 1;
        if sizes.seen == 2 * SIZES {
            sizes.seen = SIZES;
        }
        self.observed += 1;
        // The first observations say most, and a recomputation takes as long as a block or two.
        let is_early = self.observed < REFRESH && self.observed.is_power_of_two();
        if is_early || self.observed.is_multiple_of(REFRESH) {
            self.refresh();
        }
    }

    pub fn per_byte(&self, class: u8, method: u8) -> &PerByte {
        &self.table[self.cell(class, method)]
    }

    /// Guesses the bytes that a method leaves of a byte of a block. The guess is another block of the class, drawn by
    /// hash. So guesses contain blocks that do not shrink as often as the class does (hot deck imputation, Little and
    /// Rubin 2002, section 4.3.2).
    pub fn packed_guess(&self, class: u8, method: u8, hash: u64) -> f64 {
        let cell = self.cell(class, method);
        let sizes = &self.sizes[cell];
        match sizes.seen.min(SIZES) {
            0 => self.table[cell].packed,
            seen => f64::from(sizes.shares[(hash >> 32) as usize % seen]) / 255.0,
        }
    }

    fn cell(&self, class: u8, method: u8) -> usize {
        let class = usize::from(class).min(CLASS_COUNT - 1);
        class * self.methods.len() + usize::from(method)
    }

    fn refresh(&mut self) {
        let price = self.prices.per_core_second;
        for class in 0..CLASS_COUNT {
            for (number, &method) in self.methods.iter().enumerate() {
                let found =
                    self.profile
                        .estimate(Class::place(class as u16), method, self.block_bytes);
                self.table[class * self.methods.len() + number] = PerByte {
                    encode: found.encode_seconds_per_byte.value.mean * price,
                    decode: found.decode_seconds_per_byte.value.mean * price,
                    packed: found.stored_per_raw.value.mean,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn methods() -> Vec<Method> {
        ["lz4:1", "zstd:1"]
            .map(|name| name.parse().expect("a method"))
            .to_vec()
    }

    #[test]
    fn misses_are_priced_by_their_parts() {
        let prices = AccessPrices {
            per_core_second: 10.0,
            per_waiting_second: 2.0,
        };
        let mut costs = Costs::new(prices, &methods(), 8192);
        assert_eq!(costs.miss(), 0.0);
        let time = MissTime {
            core: Seconds(1e-6),
            waiting: Seconds(70e-6),
        };
        let cost = costs.missed(&time);
        assert!((cost - 150e-6).abs() < 1e-12);
        assert_eq!(costs.miss(), cost);
        for _ in 0..1000 {
            costs.missed(&MissTime::default());
        }
        assert!(costs.miss() < 1e-9, "old misses are forgotten");
    }

    #[test]
    fn codec_costs_follow_what_was_measured() {
        let mut costs = Costs::new(AccessPrices::default(), &methods(), 8192);
        let guess = *costs.per_byte(0, 0);
        assert!(guess.encode > 0.0 && guess.decode > 0.0 && guess.packed <= 1.0);
        for _ in 0..100 {
            let (encode, decode) = (Some(Seconds(16e-6)), Some(Seconds(3e-6)));
            costs.observe((0, 0), 8192, 4096, encode, decode);
        }
        let found = costs.per_byte(0, 0);
        assert!(
            (found.encode * 8192.0 / 16e-6 - 1.0).abs() < 0.05,
            "{found:?}"
        );
        assert!(
            (found.decode * 8192.0 / 3e-6 - 1.0).abs() < 0.05,
            "{found:?}"
        );
        assert!((found.packed - 0.5).abs() < 0.02, "{found:?}");
        assert_eq!(costs.per_byte(200, 0), costs.per_byte(7, 0));
    }

    #[test]
    fn sizes_are_guessed_as_they_spread() {
        let mut costs = Costs::new(AccessPrices::default(), &methods(), 8192);
        let prior = costs.packed_guess(0, 0, 7 << 32);
        assert_eq!(prior, costs.per_byte(0, 0).packed);
        // Every fourth block does not shrink.
        for block in 0..100 {
            let packed = if block % 4 == 0 { 8192 } else { 2048 };
            costs.observe((0, 0), 8192, packed, None, None);
        }
        let guesses = (0..320u64).map(|hash| costs.packed_guess(0, 0, hash << 32));
        let whole = guesses.filter(|guess| *guess == 1.0).count();
        assert_eq!(whole, 80);
        assert!((costs.packed_guess(0, 0, 1 << 32) - 0.25).abs() < 0.005);
    }
}
