//! Bisection: the one loop by which the library finds where something turns that has no closed form.

use std::ops::Range;

/// Narrows `range` to a turn of `is_before`, from true to false, by so many halvings.
///
/// `is_before` must hold at the start of the range and fail at its end; it is called at neither.
///
/// It ends sooner where no number is left between the two. Several turns leave one of them.
///
/// # Cost
/// One call for each halving: at most about 1,100, around 55 where the ends are of like size.
pub fn bisect(
    range: Range<f64>,
    halvings: usize,
    mut is_before: impl FnMut(f64) -> bool,
) -> Range<f64> {
    let Range { mut start, mut end } = range;
    for _ in 0..halvings {
        let middle = start + (end - start) / 2.0;
        if middle <= start || middle >= end {
            break;
        }
        match is_before(middle) {
            true => start = middle,
            false => end = middle,
        }
    }
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_halving_keeps_the_half_with_the_turn() {
        let check = |range: Range<f64>, halvings: usize, turn: f64, expected: Range<f64>| {
            let mut asked = 0;
            let found = bisect(range, halvings, |x| {
                asked += 1;
                x < turn
            });
            assert_eq!(found, expected);
            assert!(asked <= halvings);
        };
        check(0.0..16.0, 0, 3.0, 0.0..16.0);
        check(0.0..16.0, 3, 3.0, 2.0..4.0);
        check(0.0..16.0, 4, 3.0, 2.0..3.0);
        check(-8.0..8.0, 4, -7.5, -8.0..-7.0);
        // A condition that holds everywhere, or nowhere, leaves the last or the first bit.
        check(0.0..16.0, 4, 99.0, 15.0..16.0);
        check(0.0..16.0, 4, -99.0, 0.0..1.0);
    }

    #[test]
    fn it_ends_where_no_number_is_left_between() {
        let found = bisect(1.0..2.0, usize::MAX, |x| x * x < 2.0);
        assert_eq!(found.end, found.start.next_up());
        assert!((found.end - std::f64::consts::SQRT_2).abs() < 1e-15);
    }
}
