//! Scales: from values to positions, with round ticks.

use super::Tick;

/// How values are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Linear,
    Log,
}

/// A map from values to positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    kind: Kind,
    /// The least and the largest value shown.
    low: f64,
    high: f64,
    /// Where these two are drawn.
    from: f64,
    to: f64,
}

/// With more ticks on one axis a reader cannot tell them apart.
const TICKS_MAX: usize = 40;

impl Scale {
    /// Makes a scale from `domain` (values) to `range` (positions). A domain that cannot be shown
    /// (empty, backwards, not finite, not above 0 on a log scale) becomes one that can.
    pub fn new(kind: Kind, domain: (f64, f64), range: (f64, f64)) -> Scale {
        let (mut low, mut high) = domain;
        if !low.is_finite() {
            low = 0.0;
        }
        if !high.is_finite() {
            high = low + 1.0;
        }
        if kind == Kind::Log {
            low = low.clamp(1e-12, 1e15);
            high = high.min(1e18).max(low * 1.001);
        } else if high <= low {
            high = low + low.abs().max(1.0);
        }
        let (from, to) = range;
        Scale {
            kind,
            low,
            high,
            from,
            to,
        }
    }

    /// Returns the least and the largest value shown.
    pub fn domain(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Returns the positions of these two.
    pub fn range(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// Returns the position of a value, at most ten times the range away from it.
    pub fn at(&self, value: f64) -> f64 {
        let share = match self.kind {
            Kind::Linear => (value - self.low) / (self.high - self.low),
            Kind::Log => (value.max(1e-300) / self.low).ln() / (self.high / self.low).ln(),
        };
        let share = if share.is_nan() { 0.0 } else { share };
        self.from + share.clamp(-10.0, 11.0) * (self.to - self.from)
    }

    /// Returns the value at a share of the distance from the low to the high end.
    pub fn value(&self, share: f64) -> f64 {
        match self.kind {
            Kind::Linear => self.low + share * (self.high - self.low),
            Kind::Log => self.low * (self.high / self.low).powf(share),
        }
    }

    /// Returns whether a value lies within the domain.
    pub fn shows(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Returns round ticks within the domain, about `count` of them.
    pub fn ticks(&self, count: usize) -> Vec<Tick> {
        let values = match self.kind {
            Kind::Linear => self.linear_ticks(count),
            Kind::Log => self.log_ticks(count),
        };
        let tick = |value| Tick {
            value,
            label: number(value),
        };
        values.into_iter().map(tick).collect()
    }

    fn linear_ticks(&self, count: usize) -> Vec<f64> {
        let step = round_step((self.high - self.low) / count.max(1) as f64);
        let first = (self.low / step - 1e-9).ceil();
        (0..TICKS_MAX)
            .map(|index| (first + index as f64) * step)
            .take_while(|value| *value <= self.high + 1e-9 * step)
            .collect()
    }

    /// Powers of ten, thinned out where there are too many; 1, 2 and 5 where there are too few.
    fn log_ticks(&self, count: usize) -> Vec<f64> {
        let (low, high) = (self.low.log10(), self.high.log10());
        let (first, last) = ((low - 1e-9).ceil() as i32, (high + 1e-9).floor() as i32);
        let decades = (last - first + 1).max(0) as usize;
        let inside =
            |value: &f64| (self.low * (1.0 - 1e-9)..=self.high * (1.0 + 1e-9)).contains(value);
        let of = |digits: &[f64]| -> Vec<f64> {
            (first - 1..=last)
                .flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)))
                .filter(inside)
                .take(TICKS_MAX)
                .collect()
        };
        if decades > count {
            let step = decades.div_ceil(count.max(1));
            return of(&[1.0]).into_iter().step_by(step).collect();
        }
        match [of(&[1.0]), of(&[1.0, 3.0]), of(&[1.0, 2.0, 5.0])] {
            [tens, _, _] if tens.len() >= 4 => tens,
            [_, threes, _] if threes.len() >= 4 => threes,
            [_, _, fives] if fives.len() >= 3 => fives,
            // Less than a decade: linear ticks are as round and more of them.
            _ => self.linear_ticks(count),
        }
    }
}

/// Returns the round number (1, 2 or 5 times a power of ten) next to `step` from above.
pub fn round_step(step: f64) -> f64 {
    let step = step.max(1e-300);
    let power = 10f64.powf(step.log10().floor());
    let digit = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|digit| digit * power >= step * (1.0 - 1e-9));
    digit.unwrap_or(10.0) * power
}

/// Returns a number as an axis shows it: up to three significant figures, thousands set apart.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".to_string();
    }
    if size >= 999_950.0 {
        return format!("{}M", number(value / 1e6));
    }
    if size >= 1000.0 {
        let whole = value.round() as i64;
        return format!("{},{:03}", whole / 1000, whole.abs() % 1000);
    }
    if size < 1e-4 {
        return format!("{value:.0e}");
    }
    let decimals = (2 - size.log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(kind: Kind, low: f64, high: f64, count: usize) -> Vec<String> {
        let scale = Scale::new(kind, (low, high), (0.0, 100.0));
        let ticks = scale.ticks(count);
        ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_round() {
        let check = |kind, low, high, expected: &[&str]| {
            assert_eq!(ticks(kind, low, high, 6), expected, "{low} to {high}");
        };
        check(Kind::Linear, 0.0, 10.0, &["0", "2", "4", "6", "8", "10"]);
        check(Kind::Linear, -0.3, 0.5, &["-0.2", "0", "0.2", "0.4"]);
        check(
            Kind::Log,
            1.0,
            10_000.0,
            &["1", "10", "100", "1,000", "10,000"],
        );
        check(Kind::Log, 1.0, 30.0, &["1", "3", "10", "30"]);
        check(
            Kind::Log,
            2.0,
            5.0,
            &["2", "2.5", "3", "3.5", "4", "4.5", "5"],
        );
        let many = ticks(Kind::Log, 1e-9, 1e9, 6);
        assert!((4..=7).contains(&many.len()), "{many:?}");
    }

    #[test]
    fn values_map_to_positions_and_back() {
        let linear = Scale::new(Kind::Linear, (0.0, 50.0), (100.0, 0.0));
        assert_eq!((linear.at(0.0), linear.at(25.0)), (100.0, 50.0));
        let log = Scale::new(Kind::Log, (1.0, 100.0), (0.0, 200.0));
        assert!((log.at(10.0) - 100.0).abs() < 1e-9);
        assert!((log.value(0.5) - 10.0).abs() < 1e-9);
        assert!(log.shows(100.0) && !log.shows(0.5));
    }

    #[test]
    fn no_domain_breaks_a_scale() {
        let odd = [
            0.0,
            -1.0,
            1.0,
            1e300,
            f64::NAN,
            f64::INFINITY,
            -f64::INFINITY,
        ];
        for low in odd {
            for high in odd {
                for kind in [Kind::Linear, Kind::Log] {
                    let scale = Scale::new(kind, (low, high), (0.0, 100.0));
                    for value in odd {
                        assert!(scale.at(value).is_finite(), "{kind:?} {low} {high} {value}");
                    }
                    assert!(scale.ticks(5).len() <= TICKS_MAX);
                }
            }
        }
    }

    #[test]
    fn numbers_are_short() {
        let check = |value: f64, expected: &str| assert_eq!(number(value), expected);
        check(0.0, "0");
        check(1.0, "1");
        check(0.25, "0.25");
        check(1234.4, "1,234");
        check(-1234.0, "-1,234");
        check(12.345, "12.3");
        check(2e6, "2M");
        check(1e-5, "1e-5");
    }
}
