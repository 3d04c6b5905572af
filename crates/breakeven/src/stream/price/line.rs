//! A line through observed pairs: a constant and a slope, by least squares with fading weights.
//!
//! It separates the worker's own time for every block from the effect of other programs on the codec's time.

/// Pairs after which an older one counts half. With 64, a busy neighbour on the cores counted for too long after its
/// end, and the next blocks took 4.6 % more time.
const HALF_LIFE: f64 = 32.0;
/// Spread of x, as a share of its mean, from which constant and slope can be separated.
const SPREAD_MIN: f64 = 0.1;

/// Pairs of x and y, both of one sign.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pairs {
    weight: f64,
    x: f64,
    y: f64,
    x_squared: f64,
    x_y: f64,
}

/// y = constant + slope x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    pub constant: f64,
    pub slope: f64,
}

impl Line {
    /// Returns y.
    pub fn at(&self, x: f64) -> f64 {
        self.constant + self.slope * x
    }
}

impl Pairs {
    pub fn add(&mut self, x: f64, y: f64) {
        let kept = f64::exp2(-1.0 / HALF_LIFE);
        let add = |sum: &mut f64, value: f64| *sum = *sum * kept + value;
        add(&mut self.weight, 1.0);
        add(&mut self.x, x);
        add(&mut self.y, y);
        add(&mut self.x_squared, x * x);
        add(&mut self.x_y, x * y);
    }

    /// Returns the line with a slope of at least `slope_min` and no constant below zero. If the pairs do not show such
    /// a line, all is put on the slope. `None` without pairs.
    pub fn line(&self, slope_min: f64) -> Option<Line> {
        if self.y <= 0.0 || self.x <= 0.0 {
            return None;
        }
        let (x, y) = (self.x / self.weight, self.y / self.weight);
        let variance = self.x_squared / self.weight - x * x;
        let covariance = self.x_y / self.weight - x * y;
        let slope = covariance / variance;
        let constant = y - slope * x;
        let is_told_apart = variance > (SPREAD_MIN * x).powi(2);
        Some(
            match is_told_apart && slope > slope_min && constant >= 0.0 {
                true => Line { constant, slope },
                false => Line {
                    constant: 0.0,
                    slope: y / x,
                },
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_and_slope_are_told_apart_where_lengths_differ() {
        let check = |lengths: &[f64], line: Line, slope_min: f64, expected: Line| {
            let mut pairs = Pairs::default();
            assert!(pairs.line(slope_min).is_none());
            for round in 0..200 {
                let x = lengths[round % lengths.len()];
                pairs.add(x, line.at(x));
            }
            let found = pairs.line(slope_min).expect("enough pairs");
            // The last pair weighs a little more than the one before it.
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-2 * b.abs() + 1e-9;
            let is_it =
                near(found.constant, expected.constant) && near(found.slope, expected.slope);
            assert!(is_it, "{found:?}, {expected:?}");
        };
        let line = |constant, slope| Line { constant, slope };
        let bytes = [1e5, 3e5, 1e6];
        check(&bytes, line(1e-3, 1e-8), 0.0, line(1e-3, 1e-8));
        // Equal pairs show only the sum.
        check(&[1e6], line(1e-3, 1e-8), 0.0, line(0.0, 1.1e-8));
        // A constant below zero is not one.
        check(&[1.0, 3.0], line(-0.5, 1.0), 0.0, line(0.0, 0.75));
        // A worker does not take less than its codec, either: this one's constant belongs to the slope.
        check(&[1.0, 3.0], line(2.0, 0.5), 1.0, line(0.0, 1.5));
        check(&[1.0, 3.0], line(2.0, 1.5), 1.0, line(2.0, 1.5));
    }
}
