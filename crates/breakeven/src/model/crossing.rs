//! The sign change of a function: bisection for functions without a closed form.

use std::ops::RangeInclusive;

use crate::bisection::bisect;

/// Returns the point of `range` where `function` changes its sign, to the last bit. `None` when its two ends have the
/// same sign. 0 counts as negative, so that a tie is not a gain.
///
/// If there are several changes it returns one of them; for the first, narrow the range.
///
/// # Panics
/// When an end of the range is not finite.
///
/// # Cost
/// At most about 1,100 evaluations, and around 55 for ends of similar size.
pub fn crossing(range: RangeInclusive<f64>, function: impl Fn(f64) -> f64) -> Option<f64> {
    let (low, high) = range.into_inner();
    assert!(
        low.is_finite() && high.is_finite(),
        "a range from {low} to {high}"
    );
    let low_is_positive = function(low) > 0.0;
    if low_is_positive == (function(high) > 0.0) {
        return None;
    }
    let is_before = |at: f64| (function(at) > 0.0) == low_is_positive;
    Some(bisect(low..high, usize::MAX, is_before).end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::assert_close;

    #[test]
    fn it_finds_the_change_to_the_last_bit() {
        let check = |range: RangeInclusive<f64>, function: fn(f64) -> f64, expected: f64| {
            let found = crossing(range, function).expect("the ends differ in sign");
            assert_close("crossing", found, expected, 1e-15);
        };
        check(0.0..=10.0, |x| x * x - 2.0, std::f64::consts::SQRT_2);
        check(0.0..=10.0, |x| 2.0 - x * x, std::f64::consts::SQRT_2);
        check(0.0..=1.0, |x| x - 1e-9, 1e-9);
        check(-5.0..=1e9, |x| x.powi(3) - 27.0, 3.0);
    }

    #[test]
    fn no_change_no_crossing() {
        assert_eq!(crossing(0.0..=1.0, |x| x + 1.0), None);
        assert_eq!(crossing(0.0..=1.0, |_| 0.0), None);
        assert_eq!(crossing(0.0..=1.0, |x| -x), None);
    }
}
