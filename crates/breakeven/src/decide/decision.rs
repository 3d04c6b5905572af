//! The choice by price: the method that stores a block, and its certainty.
//!
//! [`choose`] prices each [`Offer`] over the block's life and returns one [`Decision`]. It has the method of least
//! cost, the runner-up, both margins with their bands, and the reason. `store` is always offered, so "do nothing" is
//! always a possible answer. The decision is also its only event: the ledger joins it with the later measurements.
//!
//! Two rules hold for every place. Equal costs go to cheaper decoding, then cheaper encoding (`plainer`). A band that
//! holds zero leaves the decision *undecided*. A place may treat costs as equal if their difference does not matter. It
//! then names the rule that breaks such a tie: fewer core seconds (`ChooserOptions::tie_share`), or fewer bytes
//! (`Terms::unnoticed_cost`).

use std::cmp::Ordering;
use std::fmt;

use crate::codec::Method;
use crate::decide::class::Class;
use crate::decide::price::{self, BlockLife, Part, Prices, Quantities};
use crate::units::Estimate;

/// The reason for the method over the runner-up: where it costs less and where it costs more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reason {
    /// The part in which it saves most, if it saves in any.
    pub saves_in: Option<Part>,
    /// The part in which it pays most, if it pays in any.
    pub pays_in: Option<Part>,
}

impl Reason {
    fn of(best: &Offer, other: &Offer, life: &BlockLife, prices: &Prices) -> Reason {
        let parts = |it: &Offer| price::parts(&it.quantities, life, prices);
        let saved = (parts(other).into_iter())
            .zip(parts(best))
            .map(|(other, best)| (best.0, other.1 - best.1))
            .chain([(Part::Place, other.place_cost.mean - best.place_cost.mean)]);
        let most = saved.clone().max_by(|a, b| a.1.total_cmp(&b.1));
        let least = saved.min_by(|a, b| a.1.total_cmp(&b.1));
        Reason {
            saves_in: most.filter(|it| it.1 > 0.0).map(|it| it.0),
            pays_in: least.filter(|it| it.1 < 0.0).map(|it| it.0),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.saves_in, self.pays_in) {
            (Some(saves), Some(pays)) => {
                write!(
                    f,
                    "what it saves in {saves} exceeds what it costs in {pays}"
                )
            }
            (Some(saves), None) => write!(f, "it saves in {saves} and costs nothing more"),
            (None, _) => f.write_str("nothing else costs less"),
        }
    }
}

/// Whether the best codec costs less than storing the block raw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pays {
    /// It costs less over the whole band.
    Yes,
    /// It costs as much or more over the whole band.
    No,
    /// The sign changes inside the band.
    Undecided,
}

impl Pays {
    fn by(saving: Estimate) -> Pays {
        match saving {
            Estimate { low, .. } if low > 0.0 => Pays::Yes,
            Estimate { high, .. } if high <= 0.0 => Pays::No,
            _ => Pays::Undecided,
        }
    }
}

/// The one event of a decision: the choice and the estimates behind it. The ledger joins it with the later
/// measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// The block's class.
    pub class: Class,
    /// The block's length before compression.
    pub raw_bytes: u64,
    /// The method of least cost.
    pub method: Method,
    /// Its form in the place's numbers: 0 is the plain one.
    pub form: u16,
    /// Its expected quantities.
    pub quantities: Quantities,
    /// Its expected cost, in the prices' unit.
    pub cost: Estimate,
    /// The expected cost of storing the block raw.
    pub store_cost: Estimate,
    /// The best method other than `store`, and the mean of its cost. `None` without such candidates.
    pub best_codec: Option<(Method, f64)>,
    /// Cost of `store` less cost of `best_codec`: negative where compressing loses. Zero without
    /// one.
    pub saving: Estimate,
    /// Whether compressing pays.
    pub pays: Pays,
    /// The second best method. `None` where `store` was the only candidate.
    pub runner_up: Option<Method>,
    /// Cost of the runner-up less cost of the method; its mean is never negative where the method of
    /// least cost was chosen.
    pub margin: Estimate,
    /// Whether the best two cross inside their bands: another method may well be as good.
    pub undecided: bool,
    /// Why not the runner-up.
    pub reason: Reason,
}

impl Decision {
    /// Returns the decision with another cost of storing raw, where the place knows it better than its prices do.
    pub fn against(mut self, store_cost: f64) -> Decision {
        let gain = store_cost - self.store_cost.mean;
        self.store_cost = self.store_cost.map(|it| it + gain);
        if self.best_codec.is_some() {
            self.saving = self.saving.map(|it| it + gain);
            self.pays = Pays::by(self.saving);
        }
        self
    }

    /// Returns the method whose cost a counterfactual sample measures: `store` where the choice
    /// compresses, the best codec where it does not.
    pub fn alternative(&self) -> Option<Method> {
        match self.method {
            Method::STORE => self.best_codec.map(|(method, _)| method),
            _ => Some(Method::STORE),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", self.method, self.class)?;
        if let Some(runner_up) = self.runner_up {
            let how = if self.undecided {
                "undecided"
            } else {
                "decided"
            };
            write!(f, ", {how} against {runner_up}: {}", self.reason)?;
        }
        Ok(())
    }
}

/// A method that could store the block, with its quantities there and its unpriced costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// The method.
    pub method: Method,
    /// Its form in the place's numbers. Default 0, the plain one.
    pub form: u16,
    /// Its quantities.
    pub quantities: Quantities,
    /// The place's own part of its cost: waits, lateness, an eviction. Default 0.
    pub place_cost: Estimate,
}

impl Offer {
    /// Makes an offer with the defaults of the fields.
    pub fn new(method: Method, quantities: Quantities) -> Offer {
        Offer {
            method,
            form: 0,
            quantities,
            place_cost: Estimate::exact(0.0),
        }
    }
}

/// Settles a tie of two methods: cheaper decoding, then cheaper encoding.
pub(super) fn plainer(a: &Quantities, b: &Quantities) -> Ordering {
    let decode = |it: &Quantities| it.decode_core_seconds.mean;
    let encode = |it: &Quantities| it.encode_core_seconds.mean;
    (decode(a).total_cmp(&decode(b))).then(encode(a).total_cmp(&encode(b)))
}

/// Chooses the offer of least cost for a block; `store` joins them if it is missing.
///
/// A codec is chosen if it costs less than this share of storing raw. The share is 1 where every gain counts, and less
/// where a gain has to be worthwhile. Costs that are equal to the last bit are settled by cheaper decoding, then
/// cheaper encoding, then the order of methods. So the answer never depends on the order of the offers.
///
/// # Panics
/// When the prices or the life fail their `check()`, or an estimate is not a number.
///
/// # Cost
/// Some 2 microseconds for the bands, and 0.1 an offer. Nothing is allocated.
///
/// # Example
/// ```
/// use breakeven::codec::Method;
/// use breakeven::decide::{choose, BlockLife, Class, Offer, Prices, Profile, Quantities};
/// use breakeven::units::Estimate;
///
/// let (profile, life) = (Profile::default(), BlockLife::new(Class::TEXT, 1 << 20));
/// let offers = ["lz4:1", "zstd:3", "xz:6"]
///     .map(|name| name.parse::<Method>().unwrap())
///     .map(|method| (method, profile.estimate(life.class, method, life.raw_bytes)))
///     .map(|(method, estimate)| Offer::new(method, Quantities::of(&estimate, &life)));
/// // A thread waits for its core, then for a link of 100 MB/s each way.
/// let prices = Prices {
///     per_core_second: Estimate::exact(1.0),
///     per_byte_written: Estimate::exact(1e-8),
///     per_byte_read: Estimate::exact(1e-8),
///     ..Prices::default()
/// };
/// let decision = choose(&life, &prices, 1.0, offers);
/// assert_eq!(decision.method.to_string(), "zstd:3");
/// ```
pub fn choose(
    life: &BlockLife,
    prices: &Prices,
    worth_while: f64,
    offers: impl IntoIterator<Item = Offer>,
) -> Decision {
    let found = Best::of(life, prices, offers);
    let is_worth_it = |it: &Costed| it.order(&found.store) == Ordering::Less;
    let is_clear = |it: &Costed| it.cost <= worth_while * found.store.cost || worth_while >= 1.0;
    let chosen = found.codec.filter(|it| is_worth_it(it) && is_clear(it));
    found.decision(chosen.unwrap_or(found.store), life, prices)
}

/// Returns the decision for one of the offers, best or not.
pub(super) fn decided(
    life: &BlockLife,
    prices: &Prices,
    chosen: Offer,
    others: impl IntoIterator<Item = Offer>,
) -> Decision {
    let found = Best::of(life, prices, others.into_iter().chain([chosen]));
    found.decision(Costed::new(chosen, life, prices), life, prices)
}

/// The best `store`, the best other method, and the best method apart from both.
struct Best {
    store: Costed,
    codec: Option<Costed>,
    second_codec: Option<Costed>,
}

impl Best {
    fn of(life: &BlockLife, prices: &Prices, offers: impl IntoIterator<Item = Offer>) -> Best {
        life.check().expect("a block's life within its bounds");
        prices.check().expect("prices within their bounds");
        let mut store: Option<Costed> = None;
        let (mut codec, mut second_codec): (Option<Costed>, Option<Costed>) = (None, None);
        for offer in offers {
            let new = Costed::new(offer, life, prices);
            let before =
                |old: Option<Costed>| old.is_none_or(|it| new.order(&it) == Ordering::Less);
            let is_same =
                |old: Option<Costed>| old.is_some_and(|it| it.offer.method == offer.method);
            if offer.method == Method::STORE {
                store = if before(store) { Some(new) } else { store };
            } else if before(codec) {
                second_codec = if is_same(codec) { second_codec } else { codec };
                codec = Some(new);
            } else if !is_same(codec) && before(second_codec) {
                second_codec = Some(new);
            }
        }
        let raw = || Offer::new(Method::STORE, Quantities::of_store(life));
        Best {
            store: store.unwrap_or_else(|| Costed::new(raw(), life, prices)),
            codec,
            second_codec,
        }
    }

    fn decision(&self, chosen: Costed, life: &BlockLife, prices: &Prices) -> Decision {
        let Best {
            store,
            codec,
            second_codec,
        } = *self;
        let others = [Some(store), codec, second_codec].into_iter().flatten();
        let others = others.filter(|it| it.offer.method != chosen.offer.method);
        let runner_up = others.min_by(Costed::order);
        let best_codec = match chosen.offer.method {
            Method::STORE => codec,
            _ => Some(chosen),
        };
        let less = |other: Costed, one: Costed| other.less(&one, life, prices);
        let margin = runner_up.map_or(Estimate::exact(0.0), |it| less(it, chosen));
        let saving = best_codec.map_or(Estimate::exact(0.0), |it| less(store, it));
        let reason = |it: Costed| Reason::of(&chosen.offer, &it.offer, life, prices);
        Decision {
            class: life.class,
            raw_bytes: life.raw_bytes,
            method: chosen.offer.method,
            form: chosen.offer.form,
            quantities: chosen.offer.quantities,
            cost: chosen.band(life, prices),
            store_cost: store.band(life, prices),
            best_codec: best_codec.map(|it| (it.offer.method, it.cost)),
            saving,
            pays: best_codec.map_or(Pays::No, |_| Pays::by(saving)),
            runner_up: runner_up.map(|it| it.offer.method),
            margin,
            undecided: runner_up.is_some() && margin.low <= 0.0,
            reason: runner_up.map_or(Reason::default(), reason),
        }
    }
}

/// An offer with the mean of its cost.
#[derive(Clone, Copy)]
struct Costed {
    offer: Offer,
    cost: f64,
}

impl Costed {
    fn new(offer: Offer, life: &BlockLife, prices: &Prices) -> Costed {
        Costed {
            offer,
            cost: offer.quantities.cost(life, prices) + offer.place_cost.mean,
        }
    }

    fn order(&self, other: &Costed) -> Ordering {
        let (a, b) = (&self.offer, &other.offer);
        // The order of names comes last, so that no answer depends on the order of offers.
        (self.cost.total_cmp(&other.cost))
            .then_with(|| plainer(&a.quantities, &b.quantities))
            .then_with(|| (a.method, a.form).cmp(&(b.method, b.form)))
    }

    fn band(&self, life: &BlockLife, prices: &Prices) -> Estimate {
        let base = price::cost_band(&self.offer.quantities, life, prices);
        price::sum(base, self.offer.place_cost)
    }

    /// Cost of this one less cost of the other, with its band.
    fn less(&self, other: &Costed, life: &BlockLife, prices: &Prices) -> Estimate {
        let base = price::difference(
            &self.offer.quantities,
            &other.offer.quantities,
            life,
            prices,
        );
        let negative = |it: Estimate| Estimate {
            mean: -it.mean,
            low: -it.high,
            high: -it.low,
        };
        price::sum(
            price::sum(base, self.offer.place_cost),
            negative(other.offer.place_cost),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::profile::{Basis, Factor, MethodEstimate};
    use crate::decide::seeded;
    use crate::model::Allocation;

    /// A method with its estimate.
    #[derive(Clone, Copy)]
    struct Candidate {
        method: Method,
        estimate: MethodEstimate,
    }

    impl Candidate {
        fn offer(&self, life: &BlockLife) -> Offer {
            Offer::new(self.method, Quantities::of(&self.estimate, life))
        }
    }

    fn factor(value: Estimate) -> Factor {
        Factor {
            value,
            spread: 0.0,
            weight: 1.0,
            basis: Basis::Measured,
        }
    }

    /// A method with given times in ns a byte and a stored share, each within a factor of `band`.
    fn candidate(name: &str, encode_ns: f64, decode_ns: f64, stored: f64, band: f64) -> Candidate {
        let within = |value: f64| factor(Estimate::within_factor(value, band));
        Candidate {
            method: name.parse().unwrap(),
            estimate: MethodEstimate {
                encode_seconds_per_byte: within(encode_ns * 1e-9),
                decode_seconds_per_byte: within(decode_ns * 1e-9),
                stored_per_raw: within(stored),
            },
        }
    }

    fn choose(life: &BlockLife, candidates: &[Candidate], prices: &Prices) -> Decision {
        super::choose(
            life,
            prices,
            1.0,
            candidates.iter().map(|it| it.offer(life)),
        )
    }

    /// Text as measured by lzbench: 577 and 3716, 246 and 1229, 3 and 127 MB/s.
    fn text(band: f64) -> Vec<Candidate> {
        vec![
            candidate("lz4:1", 1.73, 0.27, 0.476, band),
            candidate("zstd:3", 4.07, 0.81, 0.317, band),
            candidate("xz:6", 337.0, 7.87, 0.232, band),
        ]
    }

    fn noise() -> Vec<Candidate> {
        vec![
            candidate("lz4:1", 0.1, 0.05, 1.0, 1.0),
            candidate("zstd:3", 0.5, 0.1, 1.0, 1.0),
        ]
    }

    /// The time of a waiting thread in front of a medium of `mb_s` each way.
    fn time(mb_s: f64) -> Prices {
        Prices {
            per_core_second: Estimate::exact(1.0),
            per_byte_written: Estimate::exact(1e-6 / mb_s),
            per_byte_read: Estimate::exact(1e-6 / mb_s),
            ..Prices::default()
        }
    }

    /// Joules: a busy core's watts, and joules per gigabyte moved.
    fn energy(core_watts: Estimate, joules_per_gb: f64) -> Prices {
        Prices {
            per_core_second: core_watts,
            per_byte_written: Estimate::exact(joules_per_gb * 1e-9),
            per_byte_read: Estimate::exact(joules_per_gb * 1e-9),
            ..Prices::default()
        }
    }

    fn life(raw_bytes: u64, reads: f64) -> BlockLife {
        BlockLife {
            reads_per_write: Estimate::exact(reads),
            ..BlockLife::new(Class::TEXT, raw_bytes)
        }
    }

    #[track_caller]
    fn check(
        (life, candidates, prices): (BlockLife, &[Candidate], Prices),
        expected: &str,
        pays: Pays,
        undecided: bool,
    ) -> Decision {
        let decision = choose(&life, candidates, &prices);
        assert_eq!(decision.method.to_string(), expected, "{decision:#?}");
        assert_eq!(decision.pays, pays, "{decision:#?}");
        assert_eq!(decision.undecided, undecided, "{decision:#?}");
        decision
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_slower_the_medium_the_denser_the_method() {
        let text = &text(1.05)[..];
        let at = |mb_s| (life(MIB, 3.0), text, time(mb_s));
        check(at(0.2), "xz:6", Pays::Yes, false);
        check(at(100.0), "zstd:3", Pays::Yes, false);
        check(at(700.0), "lz4:1", Pays::Yes, false);
        check(at(10_000.0), "store", Pays::No, false);
        // If a method and storing raw cost the same, neither answer is honest. Here 1.73 + 3 * 0.27 ns of codec stand
        // against (1 - 0.476) * 4 transfers of x ns.
        check(at(825.0), "lz4:1", Pays::Undecided, true);
    }

    #[test]
    fn reads_per_write_flip_the_method() {
        let methods = &[
            candidate("lz4:1", 1.7, 0.3, 0.5, 1.05),
            candidate("zstd:19", 300.0, 0.9, 0.25, 1.05),
        ][..];
        let at = |reads| (life(MIB, reads), methods, time(100.0));
        check(at(0.0), "lz4:1", Pays::Yes, false);
        check(at(1000.0), "zstd:19", Pays::Yes, false);
        let unknown = BlockLife {
            reads_per_write: Estimate {
                mean: 170.0,
                low: 10.0,
                high: 1000.0,
            },
            ..life(MIB, 0.0)
        };
        // At 10 reads zstd:19 loses to both, at 1000 it beats both.
        let case = (unknown, methods, time(100.0));
        check(case, "zstd:19", Pays::Undecided, true);
    }

    #[test]
    fn doing_nothing_is_an_answer() {
        let noise = &noise()[..];
        check((life(MIB, 3.0), noise, time(1.0)), "store", Pays::No, false);
        let decision = check((life(MIB, 3.0), &[], time(1.0)), "store", Pays::No, false);
        assert_eq!((decision.runner_up, decision.alternative()), (None, None));
        // An empty block costs nothing either way.
        let empty = (life(0, 3.0), noise, time(1.0));
        check(empty, "store", Pays::No, true);
    }

    #[test]
    fn uncertain_watts_of_a_core_leave_it_undecided() {
        // At 10 W a core and 30 J/GB moved, lz4 spends 25 J/GB and saves 63.
        let text = &text(1.02)[..2];
        let watts = Estimate::exact(10.0);
        let certain = energy(watts, 30.0);
        check((life(MIB, 3.0), text, certain), "lz4:1", Pays::Yes, false);
        // Only the core's watts uncertain: at 30 W lz4 costs 76 J/GB and saves 63.
        let uncertain = energy(Estimate::within_factor(10.0, 3.0), 30.0);
        check(
            (life(MIB, 3.0), text, uncertain),
            "lz4:1",
            Pays::Undecided,
            true,
        );
    }

    #[test]
    fn two_methods_of_one_price_are_compared_at_the_same_price() {
        // lz4 is cheaper in core time and dearer in bytes. Priced apart, bands of this width would overlap; priced
        // alike, both ends agree.
        let methods = &[
            candidate("lz4:1", 2.0, 0.3, 0.5, 1.0),
            candidate("zstd:3", 2.5, 0.8, 0.25, 1.0),
        ][..];
        let prices = Prices {
            per_core_second: Estimate::within_factor(1.0, 4.0),
            ..time(20.0)
        };
        check(
            (life(MIB, 2.0), methods, prices),
            "zstd:3",
            Pays::Yes,
            false,
        );
    }

    #[test]
    fn bytes_are_held_in_units() {
        let held = |stored: f64, spread: f64| {
            let mut method = candidate("zstd:3", 4.0, 0.8, stored, 1.0);
            method.estimate.stored_per_raw.spread = spread;
            let life = BlockLife {
                held_seconds: Estimate::exact(1e6),
                allocation: Allocation {
                    unit_bytes: 4096,
                    minimum_bytes: 0,
                },
                overhead_bytes: 32,
                ..life(16_384, 0.0)
            };
            let prices = Prices {
                per_core_second: Estimate::exact(1.0),
                per_byte_second_held: Estimate::exact(1e-13),
                ..Prices::default()
            };
            choose(&life, &[method], &prices)
        };
        // The header pushes a raw page into a fifth unit, and one that hardly shrinks too.
        let decision = held(0.999, 0.0);
        assert!((decision.store_cost.mean / 20_480e-7 - 1.0).abs() < 1e-12);
        assert_eq!(decision.method, Method::STORE);
        let decision = held(0.2, 0.0);
        assert_eq!(decision.quantities.held_bytes.mean, 4096.0);
        assert_eq!(decision.quantities.stored_bytes.mean, 0.2 * 16_384.0 + 32.0);
        // Half of the blocks need a second unit where the median fits one exactly.
        let median = (4096.0 - 32.0) / 16_384.0;
        let decision = held(median * f64::exp(0.02f64.powi(2) / 2.0), 0.02);
        let units = decision.quantities.held_bytes.mean / 4096.0;
        assert!((units - 1.5).abs() < 1e-3, "{units}");
    }

    #[test]
    fn ties_are_settled_by_decoding() {
        // Times and prices are powers of two, so that equal costs are equal to the last bit.
        let method = |name: &str, encode: f64, decode: f64| {
            let mut it = candidate(name, 0.0, 0.0, 0.5, 1.0);
            it.estimate.encode_seconds_per_byte = Factor::exact(encode * f64::exp2(-30.0));
            it.estimate.decode_seconds_per_byte = Factor::exact(decode * f64::exp2(-30.0));
            it
        };
        let prices = Prices {
            per_core_second: Estimate::exact(1.0),
            per_byte_read: Estimate::exact(f64::exp2(-20.0)),
            ..Prices::default()
        };
        let check = |first: Candidate, second: Candidate| {
            for order in [[first, second], [second, first]] {
                let decision = choose(&life(MIB, 2.0), &order, &prices);
                assert_eq!(decision.method, first.method);
                assert_eq!(decision.margin.mean, 0.0);
                assert!(decision.undecided);
            }
        };
        check(method("zstd:3", 2.0, 0.5), method("lz4:1", 1.0, 1.0));
        check(method("lz4:1", 2.0, 0.5), method("zstd:3", 2.0, 0.5));
    }

    #[test]
    fn the_reason_names_the_parts() {
        let decision = choose(&life(MIB, 3.0), &text(1.02), &time(100.0));
        assert_eq!(
            decision.to_string(),
            "zstd:3 for text, decided against lz4:1: what it saves in reading exceeds what it \
             costs in encoding"
        );
    }

    fn random_estimate(random: &mut fastrand::Rng, mean: f64) -> Estimate {
        let value = mean * f64::exp(4.0 * random.f64() - 2.0);
        Estimate::within_factor(value, 1.0 + random.f64())
    }

    fn random_case(random: &mut fastrand::Rng) -> (BlockLife, Vec<Candidate>, Prices) {
        const NAMES: [&str; 6] = ["lz4:1", "zstd:1", "zstd:9", "deflate:6", "xz:6", "bzip2:9"];
        let mut candidates = Vec::new();
        for name in &NAMES[..random.usize(..=NAMES.len())] {
            let mut it = candidate(name, 1.0, 1.0, 1.0, 1.0);
            it.estimate.encode_seconds_per_byte = factor(random_estimate(random, 3e-9));
            it.estimate.decode_seconds_per_byte = factor(random_estimate(random, 1e-9));
            it.estimate.stored_per_raw = factor(random_estimate(random, 0.4));
            candidates.push(it);
        }
        random.shuffle(&mut candidates);
        let life = BlockLife {
            reads_per_write: random_estimate(random, 3.0),
            held_seconds: random_estimate(random, 1e6),
            overhead_bytes: random.u64(..100),
            ..BlockLife::new(Class::TEXT, random.u64(1..2_000_000))
        };
        let prices = Prices {
            per_core_second: random_estimate(random, 1.0),
            per_byte_written: random_estimate(random, 2e-9),
            per_byte_read: random_estimate(random, 2e-9),
            per_write_operation: random_estimate(random, 1e-4),
            per_read_operation: random_estimate(random, 1e-4),
            per_byte_second_held: random_estimate(random, 1e-15),
        };
        (life, candidates, prices)
    }

    /// The cost written out again, naively.
    fn naive_cost(candidate: Option<&Candidate>, life: &BlockLife, prices: &Prices) -> f64 {
        let raw = life.raw_bytes as f64;
        let (encode, decode, share) = candidate.map_or((0.0, 0.0, 1.0), |it| {
            let MethodEstimate {
                encode_seconds_per_byte: encode,
                decode_seconds_per_byte: decode,
                stored_per_raw: stored,
            } = it.estimate;
            let share = stored.value.mean.min(1.0);
            (encode.value.mean * raw, decode.value.mean * raw, share)
        });
        let bytes = share * raw + life.overhead_bytes as f64;
        let write = bytes * prices.per_byte_written.mean + prices.per_write_operation.mean;
        let read = bytes * prices.per_byte_read.mean + prices.per_read_operation.mean;
        let (encode, decode) = (
            encode * prices.per_core_second.mean,
            decode * prices.per_core_second.mean,
        );
        let hold = bytes * life.held_seconds.mean * prices.per_byte_second_held.mean;
        encode + write + life.reads_per_write.mean * (read + decode) + hold
    }

    #[test]
    fn the_choice_is_the_least_of_all_and_ignores_their_order() {
        let mut random = seeded("choice against brute force");
        let (mut stores, mut undecided) = (0, 0);
        let cases = 20_000;
        for _ in 0..cases {
            let (life, mut candidates, prices) = random_case(&mut random);
            let decision = choose(&life, &candidates, &prices);
            let naive = |method: Method| {
                let candidate = candidates.iter().find(|it| it.method == method);
                naive_cost(candidate, &life, &prices)
            };
            let mut costs: Vec<f64> = candidates.iter().map(|it| naive(it.method)).collect();
            costs.push(naive(Method::STORE));
            costs.sort_by(f64::total_cmp);
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (a.abs() + b.abs());
            assert!(close(naive(decision.method), costs[0]), "{decision:?}");
            assert!(close(decision.cost.mean, costs[0]), "{decision:?}");
            assert!(close(decision.store_cost.mean, naive(Method::STORE)));
            if let Some(runner_up) = decision.runner_up {
                assert!(close(naive(runner_up), costs[1]), "{decision:?}");
                assert!(decision.margin.mean >= 0.0);
            }
            assert!(decision.margin.low <= decision.margin.mean);
            random.shuffle(&mut candidates);
            assert_eq!(choose(&life, &candidates, &prices), decision);
            stores += u32::from(decision.method == Method::STORE);
            undecided += u32::from(decision.undecided);
        }
        println!("{cases} choices: {stores} store, {undecided} undecided");
        assert!(stores > 1000 && stores < 19_000 && undecided > 1000 && undecided < 19_000);
    }
}
