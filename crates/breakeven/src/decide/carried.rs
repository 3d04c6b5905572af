//! Whether times from an earlier run still hold.
//!
//! Private to `decide`. The processor has the same name, but its clock, its load or the machine around it may differ,
//! and a profile may have been copied. Each carried cell that is observed again for the first time gives one residual,
//! ln(observed / carried). Either all is unchanged, and the residuals come from other data, or everything takes some
//! factor of its earlier time. Bayes' rule weighs both, and the expected shift moves the carried factors without an
//! observation. Residuals that other data explains hardly move them. A threefold slower machine moves them by nearly
//! all of its factor after a few cells.

/// The deviation of one cell's residual on the same machine: the error of ln encode of times learned on other files
/// (`learned.rs`).
const CELL_DEVIATION: f64 = 0.42;
/// The prior belief about the shift: mostly the same machine, more or less loaded.
const SAME: Belief = Belief {
    share: 0.9,
    deviation: 0.15,
};
/// Otherwise another machine, by a factor of e in either direction.
const OTHER: Belief = Belief {
    share: 0.1,
    deviation: 1.0,
};

/// The probability that the shift is normal around zero with this deviation.
struct Belief {
    share: f64,
    deviation: f64,
}

/// The residuals of one factor so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Carried {
    count: f64,
    sum: f64,
}

impl Carried {
    /// Adds a cell's residual against the carried value, unmoved. Returns the further shift of the others.
    pub fn observe(&mut self, residual: f64) -> f64 {
        let before = self.shift();
        self.count += 1.0;
        self.sum += residual;
        self.shift() - before
    }

    /// Returns the expected shift of the logarithm.
    pub fn shift(&self) -> f64 {
        if self.count == 0.0 {
            return 0.0;
        }
        let mean = self.sum / self.count;
        let noise = CELL_DEVIATION.powi(2) / self.count;
        let (mut weights, mut shifts) = (0.0, 0.0);
        for belief in [SAME, OTHER] {
            let own = belief.deviation.powi(2);
            let variance = own + noise;
            let likelihood = (-mean * mean / (2.0 * variance)).exp() / variance.sqrt();
            weights += belief.share * likelihood;
            shifts += belief.share * likelihood * mean * own / variance;
        }
        // Residuals beyond all belief leave no likelihood to either.
        if weights > 0.0 {
            shifts / weights
        } else {
            mean
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threefold_shift_is_followed_and_other_data_is_not() {
        let shift = |residuals: &[f64]| {
            let mut carried = Carried::default();
            let moved: f64 = residuals.iter().map(|&it| carried.observe(it)).sum();
            assert!((moved - carried.shift()).abs() < 1e-12);
            moved
        };
        let three = 3.0_f64.ln();
        for sign in [1.0, -1.0] {
            let moved = shift(&[sign * three; 4]) * sign;
            assert!(moved > 0.8 * three, "{moved} of {three}");
            assert!(shift(&[0.3 * sign]).abs() < 0.1);
            assert!(shift(&[100.0 * sign; 3]).abs() > 90.0);
        }
        // Data that takes longer in some cells and less in others is not another machine.
        assert!(shift(&[0.4, -0.4, 0.3, -0.2, 0.1]).abs() < 0.05);
        assert_eq!(Carried::default().shift(), 0.0);
    }
}
