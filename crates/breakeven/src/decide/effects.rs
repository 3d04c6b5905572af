//! The additive model that predicts unmeasured factors: machine, class and method terms.
//!
//! Private to `decide`. [`Effects::fit`] takes the priors off every cell and fits the terms to the rest by backfitting.
//! It fits each term to the remainder of the others, shrunk by its prior.
//!
//! A block that does not shrink is stored raw, so a cell at raw size shows only that its method would not have stored
//! less. Such a cell is censored. If the terms expect no shrinking either, it counts as their expectation (a censored
//! value in a tobit model; Tobin 1958). If it counted as measured, it would teach that its class favours the methods
//! that shrink other data most.

use std::collections::BTreeMap;

use crate::codec::Method;
use crate::decide::class::Class;
use crate::decide::prior::{self, ENCODE, Prior, RAW_SHARE, STORED};
use crate::decide::profile::{Cell, CellKey};
use crate::decide::tracker::Normal;

/// Methods that a class moves alike: the encoding time of methods apart, or all others.
type Kin = (Class, bool);

fn kin(class: Class, prior: &Prior, factor: usize) -> Kin {
    (class, factor == ENCODE && prior.is_apart)
}

/// The fitted terms of one factor.
#[derive(Clone, Debug, Default)]
pub(super) struct Effects {
    machine: Normal,
    classes: Terms<Kin>,
    methods: Terms<Method>,
    /// Whether there were any cells to fit.
    pub has_evidence: bool,
    /// Kept from fit to fit, so that a fit without more cells than before allocates nothing.
    residuals: Vec<Residual>,
}

impl Effects {
    /// Sweeps after which the terms move by less than their own uncertainty.
    const SWEEPS: usize = 6;

    /// Fits the terms to the cells: each to the remainder of the others, shrunk by its prior.
    pub fn fit(&mut self, cells: &BTreeMap<CellKey, Cell>, machine: Normal, factor: usize) {
        self.collect(cells, factor);
        let Effects {
            classes,
            methods,
            residuals,
            ..
        } = self;
        let mut fitted = machine;
        for _ in 0..Effects::SWEEPS {
            for it in &mut *residuals {
                let terms = fitted.mean + classes.mean(it.class) + methods.mean(it.method);
                it.value = if it.is_bound {
                    it.seen.max(terms)
                } else {
                    it.seen
                };
            }
            let mut pull = Pull::of(machine);
            for it in &*residuals {
                pull.add(it, classes.mean(it.class) + methods.mean(it.method));
            }
            fitted = pull.result();
            classes.refit(
                residuals,
                |it| it.class,
                |it| fitted.mean + methods.mean(it.method),
            );
            methods.refit(
                residuals,
                |it| it.method,
                |it| fitted.mean + classes.mean(it.class),
            );
        }
        self.machine = fitted;
        self.has_evidence = !self.residuals.is_empty();
    }

    /// Takes the priors off all cells with evidence.
    fn collect(&mut self, cells: &BTreeMap<CellKey, Cell>, factor: usize) {
        let tells = |it: &(&CellKey, &Cell)| {
            let is_known = factor == STORED && it.0.1 == Method::STORE;
            it.1.trackers[factor].weight > 0.0 && !is_known
        };
        let telling = || cells.iter().filter(tells);
        let mut known = self.residuals.iter().map(|it| it.key);
        let is_as_before =
            telling().all(|it| known.next() == Some(*it.0)) && known.next().is_none();
        if !is_as_before {
            self.lay_out(telling(), factor);
        }
        self.classes.forget();
        self.methods.forget();
        for ((&(class, ..), cell), residual) in telling().zip(&mut self.residuals) {
            let tracker = &cell.trackers[factor];
            let class_prior = prior::of_class(class);
            residual.seen = tracker.mean.ln() - cell.prior.ln[factor] - class_prior.ln[factor];
            residual.is_bound = factor == STORED && tracker.mean >= RAW_SHARE;
            let of_pair = cell.prior.pair_deviation[factor].powi(2);
            let of_length = cell.prior.length_deviation[factor].powi(2);
            residual.precision = 1.0 / (of_pair + of_length + tracker.mean_variance(factor));
        }
    }

    /// Prepares places for some cells and their terms, which last as long as the cells stay the same.
    fn lay_out<'c>(
        &mut self,
        cells: impl Iterator<Item = (&'c CellKey, &'c Cell)> + Clone,
        factor: usize,
    ) {
        self.classes.rows.clear();
        self.methods.rows.clear();
        self.residuals.clear();
        for (&(class, method, _), cell) in cells.clone() {
            let class_prior = prior::of_class(class);
            let kin = kin(class, &cell.prior, factor);
            self.classes.insert(kin, class_prior.deviation[factor]);
            self.methods.insert(method, cell.prior.deviation[factor]);
        }
        for (&key, cell) in cells {
            let place = "a term for every cell";
            let kin = kin(key.0, &cell.prior, factor);
            self.residuals.push(Residual {
                key,
                class: self.classes.place(kin).expect(place),
                method: self.methods.place(key.1).expect(place),
                seen: 0.0,
                value: 0.0,
                is_bound: false,
                precision: 0.0,
            });
        }
    }

    /// Returns the sum of the terms of a class and a method; terms that were not fitted are zero within their
    /// deviations.
    pub fn predict(&self, class: Class, method: Method, prior: &Prior, factor: usize) -> Normal {
        let unknown_class = || Normal::zero(prior::of_class(class).deviation[factor]);
        let unknown_method = || Normal::zero(prior.deviation[factor]);
        let class = (self.classes.get(kin(class, prior, factor))).unwrap_or_else(unknown_class);
        let method = self.methods.get(method).unwrap_or_else(unknown_method);
        Normal {
            mean: self.machine.mean + class.mean + method.mean,
            variance: self.machine.variance + class.variance + method.variance,
        }
    }
}

/// The remainder of a cell without the priors, with the places of its terms.
#[derive(Clone, Debug)]
struct Residual {
    key: CellKey,
    class: usize,
    method: usize,
    seen: f64,
    /// The observed value, or more if that is only a lower bound and the terms expect more.
    value: f64,
    is_bound: bool,
    precision: f64,
}

/// The terms of all classes, or of all methods, in the order of their keys.
#[derive(Clone, Debug)]
struct Terms<K> {
    rows: Vec<Term<K>>,
}

#[derive(Clone, Debug)]
struct Term<K> {
    key: K,
    prior: Normal,
    now: Normal,
    pull: Pull,
}

impl<K> Default for Terms<K> {
    fn default() -> Terms<K> {
        Terms { rows: Vec::new() }
    }
}

impl<K: Ord + Copy> Terms<K> {
    fn place(&self, key: K) -> std::result::Result<usize, usize> {
        self.rows.binary_search_by(|row| row.key.cmp(&key))
    }

    fn insert(&mut self, key: K, deviation: f64) {
        if let Err(place) = self.place(key) {
            let prior = Normal::zero(deviation);
            let row = Term {
                key,
                prior,
                now: prior,
                pull: Pull::of(prior),
            };
            self.rows.insert(place, row);
        }
    }

    /// Returns to the beliefs before the fit.
    fn forget(&mut self) {
        self.rows.iter_mut().for_each(|row| row.now = row.prior);
    }

    fn get(&self, key: K) -> Option<Normal> {
        self.place(key).ok().map(|place| self.rows[place].now)
    }

    fn mean(&self, place: usize) -> f64 {
        self.rows[place].now.mean
    }

    fn refit(
        &mut self,
        residuals: &[Residual],
        own: impl Fn(&Residual) -> usize,
        others: impl Fn(&Residual) -> f64,
    ) {
        for row in &mut self.rows {
            row.pull = Pull::of(row.prior);
        }
        for residual in residuals {
            let row = &mut self.rows[own(residual)];
            row.pull.add(residual, others(residual));
        }
        for row in &mut self.rows {
            row.now = row.pull.result();
        }
    }
}

/// A prior and the weighted residuals that pull at it.
#[derive(Clone, Debug)]
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
