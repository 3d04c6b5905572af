//! The additive model that predicts what was not measured: machine, class and method terms.
//!
//! Private to `decide`. [`Effects::fit`] takes the priors off every cell and fits the terms to the
//! rest by backfitting: each term in turn to what the others leave, shrunk by its prior.
//!
//! What does not shrink is stored raw, so a cell at raw size says only that its method would not
//! have stored less: such a cell is censored, and counts as what the terms expect where they expect
//! no shrinking either (expectation for a censored value in a tobit model; Tobin 1958). Taken as
//! measured it would teach that its class favours the methods that shrink other data most.

use std::collections::BTreeMap;

use crate::codec::Method;
use crate::decide::class::Class;
use crate::decide::prior::{self, LENGTH_DEVIATION, PAIR_DEVIATION, RAW_SHARE, STORED};
use crate::decide::profile::{Cell, CellKey};
use crate::decide::tracker::Normal;

/// The fitted terms of one factor.
#[derive(Clone, Debug, Default)]
pub(super) struct Effects {
    machine: Normal,
    classes: BTreeMap<Class, Normal>,
    methods: BTreeMap<Method, Normal>,
    /// Whether there was anything to fit to.
    pub has_evidence: bool,
}

impl Effects {
    /// Sweeps after which the terms move by less than their own uncertainty.
    const SWEEPS: usize = 6;

    /// Fits the terms to the cells: each in turn to what the others leave, shrunk by its prior.
    pub fn fit(cells: &BTreeMap<CellKey, Cell>, machine: Normal, factor: usize) -> Effects {
        let apart = PAIR_DEVIATION[factor].powi(2) + LENGTH_DEVIATION[factor].powi(2);
        let (mut classes, mut methods) = (Terms::default(), Terms::default());
        let mut residuals = Vec::new();
        for (&(class, method, _), cell) in cells {
            let tracker = &cell.trackers[factor];
            let is_known = factor == STORED && method == Method::STORE;
            if tracker.weight <= 0.0 || is_known {
                continue;
            }
            let class_prior = prior::of_class(class);
            residuals.push(Residual {
                class: classes.index_of(class, class_prior.deviation[factor]),
                method: methods.index_of(method, cell.prior.deviation[factor]),
                seen: tracker.mean.ln() - cell.prior.ln[factor] - class_prior.ln[factor],
                value: 0.0,
                is_bound: factor == STORED && tracker.mean >= RAW_SHARE,
                precision: 1.0 / (apart + tracker.mean_variance(factor)),
            });
        }
        let mut fitted = machine;
        for _ in 0..Effects::SWEEPS {
            for it in &mut residuals {
                let terms = fitted.mean + classes.now[it.class].mean + methods.now[it.method].mean;
                it.value = if it.is_bound {
                    it.seen.max(terms)
                } else {
                    it.seen
                };
            }
            let mut pull = Pull::of(machine);
            for it in &residuals {
                pull.add(it, classes.now[it.class].mean + methods.now[it.method].mean);
            }
            fitted = pull.result();
            classes.refit(
                &residuals,
                |it| it.class,
                |it| fitted.mean + methods.now[it.method].mean,
            );
            methods.refit(
                &residuals,
                |it| it.method,
                |it| fitted.mean + classes.now[it.class].mean,
            );
        }
        Effects {
            machine: fitted,
            classes: classes.by_key(),
            methods: methods.by_key(),
            has_evidence: !residuals.is_empty(),
        }
    }

    /// Returns the sum of the terms of a class and a method, those that were not fitted being
    /// zero within their deviations.
    pub fn predict(
        &self,
        class: Class,
        method: Method,
        prior: &prior::Prior,
        factor: usize,
    ) -> Normal {
        let unknown_class = || Normal::zero(prior::of_class(class).deviation[factor]);
        let unknown_method = || Normal::zero(prior.deviation[factor]);
        let class = self
            .classes
            .get(&class)
            .copied()
            .unwrap_or_else(unknown_class);
        let method = self
            .methods
            .get(&method)
            .copied()
            .unwrap_or_else(unknown_method);
        Normal {
            mean: self.machine.mean + class.mean + method.mean,
            variance: self.machine.variance + class.variance + method.variance,
        }
    }
}

/// What a cell leaves when the priors are taken off, with the places of its terms.
struct Residual {
    class: usize,
    method: usize,
    seen: f64,
    /// What was seen, or more where that is only a lower bound and the terms expect more.
    value: f64,
    is_bound: bool,
    precision: f64,
}

/// The terms of all classes, or of all methods.
struct Terms<K> {
    index: BTreeMap<K, usize>,
    priors: Vec<Normal>,
    now: Vec<Normal>,
}

impl<K> Default for Terms<K> {
    fn default() -> Terms<K> {
        Terms {
            index: BTreeMap::new(),
            priors: Vec::new(),
            now: Vec::new(),
        }
    }
}

impl<K: Ord + Copy> Terms<K> {
    fn index_of(&mut self, key: K, deviation: f64) -> usize {
        let next = self.priors.len();
        let index = *self.index.entry(key).or_insert(next);
        if index == next {
            self.priors.push(Normal::zero(deviation));
            self.now.push(Normal::zero(deviation));
        }
        index
    }

    fn refit(
        &mut self,
        residuals: &[Residual],
        own: impl Fn(&Residual) -> usize,
        others: impl Fn(&Residual) -> f64,
    ) {
        let mut pulls: Vec<Pull> = self.priors.iter().map(|&prior| Pull::of(prior)).collect();
        for residual in residuals {
            pulls[own(residual)].add(residual, others(residual));
        }
        self.now = pulls.iter().map(Pull::result).collect();
    }

    fn by_key(&self) -> BTreeMap<K, Normal> {
        let at = |(&key, &index): (&K, &usize)| (key, self.now[index]);
        self.index.iter().map(at).collect()
    }
}

/// A prior and the weighted residuals that pull at it.
struct Pull {
    precision: f64,
    weighted: f64,
}

impl Pull {
    fn of(prior: Normal) -> Pull {
        let precision = 1.0 / prior.variance;
        Pull {
            precision,
            weighted: precision * prior.mean,
        }
    }

    fn add(&mut self, residual: &Residual, others: f64) {
        self.precision += residual.precision;
        self.weighted += residual.precision * (residual.value - others);
    }

    fn result(&self) -> Normal {
        Normal {
            mean: self.weighted / self.precision,
            variance: 1.0 / self.precision,
        }
    }
}
