//! Numbers with their units, their bands and their sources.
//!
//! A unit newtype keeps seconds from being added to joules. An [`Estimate`] keeps a measured value with its interval. A
//! [`Source`] says where a number comes from and how far it can be trusted. All arithmetic is plain `f64`: quantities
//! here are costs and rates, never file offsets.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

use serde::{Deserialize, Deserializer, Serialize};

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident, $symbol:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);

        impl Add for $name {
            type Output = $name;
            fn add(self, other: $name) -> $name {
                $name(self.0 + other.0)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                self.0 += other.0;
            }
        }

        impl Sub for $name {
            type Output = $name;
            fn sub(self, other: $name) -> $name {
                $name(self.0 - other.0)
            }
        }

        impl Mul<f64> for $name {
            type Output = $name;
            fn mul(self, factor: f64) -> $name {
                $name(self.0 * factor)
            }
        }

        impl Div<f64> for $name {
            type Output = $name;
            fn div(self, divisor: f64) -> $name {
                $name(self.0 / divisor)
            }
        }

        impl Div for $name {
            type Output = f64;
            fn div(self, other: $name) -> f64 {
                self.0 / other.0
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = $name>>(values: I) -> $name {
                $name(values.map(|value| value.0).sum())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)?;
                f.write_str(concat!(" ", $symbol))
            }
        }
    };
}

unit!(
    /// A span of time in seconds.
    Seconds,
    "s"
);
unit!(
    /// An amount of energy in joules.
    Joules,
    "J"
);
unit!(
    /// A power in watts.
    Watts,
    "W"
);
unit!(
    /// An amount of money in euros.
    Euros,
    "EUR"
);
unit!(
    /// A rate in bytes per second.
    BytesPerSecond,
    "B/s"
);

impl Mul<Seconds> for Watts {
    type Output = Joules;
    fn mul(self, time: Seconds) -> Joules {
        Joules(self.0 * time.0)
    }
}

impl Div<Seconds> for Joules {
    type Output = Watts;
    fn div(self, time: Seconds) -> Watts {
        Watts(self.0 / time.0)
    }
}

impl BytesPerSecond {
    /// Returns the time that `bytes` take at this rate.
    pub fn time_for(self, bytes: f64) -> Seconds {
        Seconds(bytes / self.0)
    }

    /// Returns the rate in MB/s, where MB is 10^6 bytes.
    pub fn mb_per_second(self) -> f64 {
        self.0 / 1e6
    }

    /// Makes a rate from MB/s, where MB is 10^6 bytes.
    pub fn from_mb_per_second(rate: f64) -> BytesPerSecond {
        BytesPerSecond(rate * 1e6)
    }
}

/// A value with the interval it lies in: a 95 % confidence interval where it was sampled, the
/// source's band where it was modelled.
///
/// JSON has no infinity: an end without a bound is written `null` and read back as infinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The most likely value.
    pub mean: f64,
    /// The lower end of the interval, at most `mean`.
    #[serde(deserialize_with = "or_below_all")]
    pub low: f64,
    /// The upper end of the interval, at least `mean`.
    #[serde(deserialize_with = "or_above_all")]
    pub high: f64,
}

fn or_below_all<'de, D: Deserializer<'de>>(source: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(source)?.unwrap_or(f64::NEG_INFINITY))
}

/// Reads a number; `null` means no bound.
pub(crate) fn or_above_all<'de, D: Deserializer<'de>>(source: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(source)?.unwrap_or(f64::INFINITY))
}

impl Estimate {
    /// Makes an estimate that is known exactly.
    pub fn exact(value: f64) -> Estimate {
        Estimate {
            mean: value,
            low: value,
            high: value,
        }
    }

    /// Makes an estimate whose interval is the mean divided and multiplied by `factor` (at least 1).
    pub fn within_factor(mean: f64, factor: f64) -> Estimate {
        assert!(factor >= 1.0, "a band factor below 1: {factor}");
        let (a, b) = (mean / factor, mean * factor);
        Estimate {
            mean,
            low: a.min(b),
            high: a.max(b),
        }
    }

    /// Makes an estimate whose interval is the mean plus and minus `half_width` (at least 0).
    pub fn plus_minus(mean: f64, half_width: f64) -> Estimate {
        Estimate {
            mean,
            low: mean - half_width,
            high: mean + half_width,
        }
    }

    /// Applies a monotone function to the mean and both ends, and puts the ends in order.
    pub fn map(self, function: impl Fn(f64) -> f64) -> Estimate {
        let (a, b) = (function(self.low), function(self.high));
        Estimate {
            mean: function(self.mean),
            low: a.min(b),
            high: a.max(b),
        }
    }
}

/// Where a number comes from, from the most to the least trusted. Each source has a band, the factor by which the true
/// value may differ. The bands are judgements, stated so that a verdict that flips inside one is printed as undecided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "label", content = "of")]
pub enum Source {
    /// A clock or a counter of this process, repeated until its interval was small.
    Measured,
    /// A meter on the machine's supply or its management controller: the whole machine.
    MeasuredWall,
    /// The processor's own energy counters; the text names the domains (`pkg`, `pkg,dram`).
    MeasuredRapl(String),
    /// Counters passed through to a virtual machine, so attributed and not measured there.
    Vrapl(String),
    /// Watts from a calibration; the text names what was used and when.
    ModelCalibrated(String),
    /// Watts per hardware thread, medians of SPECpower_ssj2008 results of the named family.
    ModelSpecpower(String),
    /// A value the user declared on the command line or in a file.
    Declared,
    /// A published figure; the text names where.
    Published(String),
    /// A default for want of anything better.
    Default,
}

impl Source {
    /// Returns the factor by which the true value may differ from one with this source.
    pub fn band(&self) -> f64 {
        match self {
            Source::Measured => 1.0,
            Source::MeasuredWall => 1.05,
            Source::MeasuredRapl(_) => 1.15,
            Source::Declared | Source::ModelCalibrated(_) => 1.15,
            Source::Vrapl(_) | Source::Published(_) => 1.5,
            Source::ModelSpecpower(_) => 2.0,
            Source::Default => 3.0,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Measured => write!(f, "measured"),
            Source::MeasuredWall => write!(f, "measured-wall"),
            Source::MeasuredRapl(domains) => write!(f, "measured-rapl({domains})"),
            Source::Vrapl(domains) => write!(f, "vrapl({domains})"),
            Source::ModelCalibrated(how) => write!(f, "model-calibrated({how})"),
            Source::ModelSpecpower(family) => write!(f, "model-specpower({family})"),
            Source::Declared => write!(f, "declared"),
            Source::Published(place) => write!(f, "published({place})"),
            Source::Default => write!(f, "default"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watts_times_seconds_are_joules() {
        assert_eq!(Watts(20.0) * Seconds(3.0), Joules(60.0));
        assert_eq!(Joules(60.0) / Seconds(3.0), Watts(20.0));
        assert_eq!(
            BytesPerSecond::from_mb_per_second(1.0).time_for(2e6),
            Seconds(2.0)
        );
    }

    #[test]
    fn an_interval_without_bounds_survives_json() {
        let open = Estimate::plus_minus(2.0, f64::INFINITY);
        let text = serde_json::to_string(&open).expect("JSON");
        assert_eq!(text, r#"{"mean":2.0,"low":null,"high":null}"#);
        let back: Estimate = serde_json::from_str(&text).expect("an estimate");
        assert_eq!(back, open);
        serde_json::from_str::<Estimate>(r#"{"mean":2.0,"low":1.0}"#).expect_err("no end");
    }

    #[test]
    fn intervals_stay_in_order() {
        let estimate = Estimate::within_factor(-2.0, 2.0);
        assert_eq!((estimate.low, estimate.high), (-4.0, -1.0));
        let inverse = Estimate::plus_minus(4.0, 2.0).map(|value| 1.0 / value);
        assert!(inverse.low < inverse.mean && inverse.mean < inverse.high);
    }
}
