//! Where bytes wait or travel, with the prices of it.
//!
//! A [`Medium`] answers what one operation costs: seconds, joules and euros for `B` bytes read or written. The
//! operations are in sequence, at random or in Harper's mix of nine to one, with a number of them in flight. It is a
//! table of measured points between which it interpolates; each number keeps its interval and its [`Source`]. The
//! points come from a named preset ([`presets`]), from a probe of a real folder ([`probe`]) or from fio's JSON
//! ([`fio`]).
//!
//! **Seconds are the medium's own time**: the reciprocal of the operations completed in a second. With `d` operations
//! in flight one operation takes `d` times as long to come back (Little's law). [`Medium::latency_for`] returns that
//! time. Harper's page fault of 110 microseconds is the first kind of number, measured at depth 4. A thread that waits
//! for one page pays the second kind.
//!
//! This file does no I/O and reads no clock. A price of `None` means "no charge is known here",
//! and counts as zero.

#![deny(unsafe_code)]

pub mod fio;
pub mod folder;
pub mod presets;
pub mod probe;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::units::{Estimate, Seconds, Source};

/// Bytes in a GiB, the unit of prices.
const GIB: f64 = (1u64 << 30) as f64;

/// Days in the month that monthly prices mean: a twelfth of 365.
const DAYS_PER_MONTH: f64 = 365.0 / 12.0;

/// Files hold at most this many points per curve, and media this many curves. It is far above any measurement, so that
/// a foreign file cannot make the arithmetic long.
const CURVE_COUNT_MAX: usize = 256;
const POINT_COUNT_MAX: usize = 256;

/// A number with its interval and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The value and its interval, in the unit that the field's name says.
    pub estimate: Estimate,
    /// Where it comes from.
    pub source: Source,
}

impl Figure {
    /// Makes a figure whose interval is the band of its source.
    pub fn new(mean: f64, source: Source) -> Figure {
        Figure {
            estimate: Estimate::within_factor(mean, source.band()),
            source,
        }
    }

    /// Makes a figure read in a publication; `place` names it, with table or section.
    pub fn published(mean: f64, place: &str) -> Figure {
        Figure::new(mean, Source::Published(place.to_string()))
    }

    /// Makes a figure for want of anything better, with the widest band.
    pub fn assumed(mean: f64) -> Figure {
        Figure::new(mean, Source::Default)
    }
}

/// The kind of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MediumKind {
    /// A file system on a disk or a solid-state drive.
    File,
    /// A network link: bytes travel and do not stay.
    Link,
    /// Main memory.
    Memory,
    /// A store of whole objects behind requests.
    ObjectStore,
    /// A tape drive.
    Tape,
}

/// The order in which operations touch a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Each operation begins where the last one ended.
    Sequential,
    /// Each operation begins anywhere.
    Random,
    /// Nine operations in sequence, then one anywhere: fio's `randread:9`. Harper 2018, chapter 4, has it after
    /// PostgreSQL's estimate that 90 % of page faults are sequential.
    Mix9to1,
}

/// The direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the medium.
    Read,
    /// To the medium.
    Write,
}

/// One operation on a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Bytes moved by it.
    pub bytes: u64,
    /// Where it lies relative to the one before.
    pub pattern: Pattern,
    /// The direction of the bytes.
    pub direction: Direction,
    /// Operations of this kind in flight at once, at least 1.
    pub depth: u32,
}

/// One measured size of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Bytes of one operation.
    pub bytes: u64,
    /// Seconds of the medium per operation.
    pub seconds: Figure,
}

/// Seconds per operation over its size, for one pattern at one depth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The pattern measured; `None` where the order makes no difference.
    pub pattern: Option<Pattern>,
    /// Operations in flight.
    pub depth: u32,
    /// At least one point, sizes rising, seconds never falling.
    pub points: Vec<Point>,
}

impl Curve {
    /// Makes a curve of measured points in any order.
    ///
    /// Noise can make a larger operation look cheaper than a smaller one. Such neighbours are pooled into their mean
    /// with the union of their intervals (isotonic regression), so that seconds never fall as bytes grow. Points that
    /// rise anyway are kept exactly.
    ///
    /// # Panics
    /// If there is no point, if two have one size, or if a value is not finite and above zero.
    pub fn new(pattern: Option<Pattern>, depth: u32, mut points: Vec<Point>) -> Curve {
        points.sort_by_key(|point| point.bytes);
        let mut pools: Vec<(Figure, usize)> = Vec::with_capacity(points.len());
        for point in &points {
            let mut pool = (point.seconds.clone(), 1);
            while let Some(last) = pools.pop_if(|last| last.0.estimate.mean > pool.0.estimate.mean)
            {
                pool = pooled(last, pool);
            }
            pools.push(pool);
        }
        let seconds = pools
            .into_iter()
            .flat_map(|(figure, count)| std::iter::repeat_n(figure, count));
        for (point, seconds) in points.iter_mut().zip(seconds) {
            point.seconds = seconds;
        }
        let curve = Curve {
            pattern,
            depth,
            points,
        };
        if let Err(error) = curve.check() {
            panic!("{error}");
        }
        curve
    }

    /// Checks what [`Curve`] promises, for curves that were read and not made.
    fn check(&self) -> Result<()> {
        let wrong = |reason: String| Err(Error::invalid("medium curve", reason));
        if self.points.is_empty() || self.points.len() > POINT_COUNT_MAX {
            let count = self.points.len();
            return wrong(format!("{count} points, expected 1 to {POINT_COUNT_MAX}"));
        }
        if self.depth == 0 {
            return wrong("depth 0, expected at least 1".to_string());
        }
        for point in &self.points {
            check_figure("seconds", &point.seconds, true)?;
        }
        for pair in self.points.windows(2) {
            let (a, b) = (&pair[0], &pair[1]);
            if a.bytes >= b.bytes {
                return wrong(format!("size {} after size {}", b.bytes, a.bytes));
            }
            if a.seconds.estimate.mean > b.seconds.estimate.mean {
                return wrong(format!("{} bytes cost less than {}", b.bytes, a.bytes));
            }
        }
        Ok(())
    }

    /// Returns the seconds of one operation: exact at the points, linear in bytes between them,
    /// the first point's below the smallest size. Above the largest, each further byte costs
    /// `stream_seconds_per_byte`, the rate of the medium's sequential stream, but never more than
    /// a byte of the largest measured operation.
    fn seconds_at(&self, bytes: u64, stream_seconds_per_byte: f64) -> Figure {
        let above = self.points.partition_point(|point| point.bytes < bytes);
        let Some(upper) = self.points.get(above) else {
            return self.beyond_last(bytes, stream_seconds_per_byte);
        };
        if above == 0 || upper.bytes == bytes {
            return upper.seconds.clone();
        }
        let lower = &self.points[above - 1];
        let share = (bytes - lower.bytes) as f64 / (upper.bytes - lower.bytes) as f64;
        let mut figure = combine(&lower.seconds, &upper.seconds, |a, b| a + (b - a) * share);
        let (a, b) = (lower.seconds.estimate.mean, upper.seconds.estimate.mean);
        let decides = if a * (1.0 - share) > b * share {
            lower
        } else {
            upper
        };
        figure.source = decides.seconds.source.clone();
        figure
    }

    fn beyond_last(&self, bytes: u64, stream_seconds_per_byte: f64) -> Figure {
        let last = &self.points[self.points.len() - 1];
        let own_seconds_per_byte = last.seconds.estimate.mean / last.bytes.max(1) as f64;
        let slope = own_seconds_per_byte.min(stream_seconds_per_byte);
        let mean = last.seconds.estimate.mean + (bytes - last.bytes) as f64 * slope;
        let growth = mean / last.seconds.estimate.mean;
        Figure {
            estimate: scaled(last.seconds.estimate, growth),
            source: last.seconds.source.clone(),
        }
    }

    fn seconds_per_byte_of_last(&self) -> f64 {
        let last = &self.points[self.points.len() - 1];
        last.seconds.estimate.mean / last.bytes.max(1) as f64
    }
}

/// The cost of the service of a medium in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Times, one curve per pattern and depth.
    pub curves: Vec<Curve>,
    /// Watts that the device draws above its idle power while it works.
    pub watts_above_idle: Figure,
    /// Euros per operation.
    pub price_eur_per_request: Option<Figure>,
    /// Euros per GiB moved.
    pub price_eur_per_gib: Option<Figure>,
}

impl Service {
    /// Makes a service without prices.
    pub fn new(curves: Vec<Curve>, watts_above_idle: Figure) -> Service {
        Service {
            curves,
            watts_above_idle,
            price_eur_per_request: None,
            price_eur_per_gib: None,
        }
    }

    fn seconds_for(&self, bytes: u64, pattern: Pattern, depth: u32) -> Figure {
        match self.measured(bytes, pattern, depth) {
            Some(figure) => figure,
            None => self.substituted(bytes, pattern, depth),
        }
    }

    /// Interpolates over the depths measured for `pattern`. It is linear between the logarithms, because operations
    /// completed per second grow with a power of the depth until the device is full. Outside, the interval spans both
    /// limits: no gain from depth, and a full one.
    fn measured(&self, bytes: u64, pattern: Pattern, depth: u32) -> Option<Figure> {
        let curves = || {
            let fits = move |curve: &&Curve| curve.pattern.is_none_or(|of| of == pattern);
            self.curves.iter().filter(fits)
        };
        let below = curves()
            .filter(|curve| curve.depth <= depth)
            .max_by_key(|curve| curve.depth);
        let above = curves()
            .filter(|curve| curve.depth >= depth)
            .min_by_key(|curve| curve.depth);
        let stream = self.stream_seconds_per_byte();
        match (below, above) {
            (Some(a), Some(b)) if a.depth == b.depth => Some(a.seconds_at(bytes, stream)),
            (Some(a), Some(b)) => {
                let step = f64::from(b.depth).ln() - f64::from(a.depth).ln();
                let share = (f64::from(depth).ln() - f64::from(a.depth).ln()) / step;
                let (a, b) = (a.seconds_at(bytes, stream), b.seconds_at(bytes, stream));
                Some(combine(&a, &b, |a, b| a.powf(1.0 - share) * b.powf(share)))
            }
            (None, Some(only)) | (Some(only), None) => {
                let mut figure = only.seconds_at(bytes, stream);
                let gain = f64::from(only.depth) / f64::from(depth);
                figure.estimate.low *= gain.min(1.0);
                figure.estimate.high *= gain.max(1.0);
                Some(figure)
            }
            (None, None) => None,
        }
    }

    /// Answers for a pattern that was not measured from those that were, with bounds that hold for any device. A mix is
    /// a tenth random operations and nine tenths sequential ones, so a random operation costs at most ten mixed ones.
    /// For the sum of the parts the upper bound is 5. Harper's mix of Table 3 costs 1.0 (memory), 3.3 (hard disk) and
    /// 4.9 times (SSD) the sum of his Table 1.
    fn substituted(&self, bytes: u64, pattern: Pattern, depth: u32) -> Figure {
        let of = |pattern| self.measured(bytes, pattern, depth);
        let sequential = of(Pattern::Sequential);
        let random = of(Pattern::Random);
        let (base, below, above) = match (pattern, of(Pattern::Mix9to1), sequential, random) {
            (Pattern::Random, Some(mix), _, _) => (mix, 1.0, 10.0),
            (Pattern::Sequential, Some(mix), _, _) => (mix, 10.0, 10.0 / 9.0),
            (Pattern::Mix9to1, _, Some(sequential), Some(random)) => {
                let sum = combine(&sequential, &random, |a, b| 0.9 * a + 0.1 * b);
                (sum, 1.0, 5.0)
            }
            (_, _, Some(other), _) | (_, _, None, Some(other)) => (other, 10.0, 10.0),
            (_, _, None, None) => panic!("a medium without a curve was not checked"),
        };
        Figure {
            estimate: Estimate {
                mean: base.estimate.mean,
                low: base.estimate.low / below,
                high: base.estimate.high * above,
            },
            source: Source::Default,
        }
    }

    /// Returns the best rate of a stream that was measured, in seconds per byte; infinite if none.
    fn stream_seconds_per_byte(&self) -> f64 {
        self.curves
            .iter()
            .filter(|curve| curve.pattern.is_none_or(|of| of == Pattern::Sequential))
            .map(Curve::seconds_per_byte_of_last)
            .fold(f64::INFINITY, f64::min)
    }

    fn check(&self, direction: &str) -> Result<()> {
        if self.curves.is_empty() || self.curves.len() > CURVE_COUNT_MAX {
            let count = self.curves.len();
            let reason = format!("{count} {direction} curves, expected 1 to {CURVE_COUNT_MAX}");
            return Err(Error::invalid("medium", reason));
        }
        for curve in &self.curves {
            curve.check()?;
        }
        check_figure("watts_above_idle", &self.watts_above_idle, false)?;
        check_price("price_eur_per_request", &self.price_eur_per_request)?;
        check_price("price_eur_per_gib", &self.price_eur_per_gib)
    }
}

/// A place where bytes wait or travel, with its prices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Medium {
    /// The name a person types, or the folder that was probed.
    pub name: String,
    /// One sentence: the device and the known facts about it.
    pub description: String,
    /// The kind of place.
    pub kind: MediumKind,
    /// Where most of its times come from; each number keeps its own.
    pub source: Source,
    /// The cost of reading.
    pub read: Service,
    /// The cost of writing.
    pub write: Service,
    /// Stored bytes come in multiples of this, at least 1.
    pub allocation_unit_bytes: u64,
    /// Watts of the device when it does nothing.
    pub idle_watts: Figure,
    /// Watts that a GiB takes by being held; `None` where nothing stays.
    pub holding_watts_per_gib: Option<Figure>,
    /// Watts of the whole machine when idle, where the source measured that: Kothiyal's passive
    /// power.
    pub machine_idle_watts: Option<Figure>,
    /// Euros for holding a GiB for a month, without the energy, which is counted apart.
    pub price_eur_per_gib_month: Option<Figure>,
    /// An object smaller than this is billed as if it were this large.
    pub billable_object_bytes_min: u64,
    /// An object held for fewer days is billed for this many.
    pub billable_days_min: f64,
}

impl Medium {
    /// Checks what the arithmetic needs, for a medium that was read from a file.
    ///
    /// # Errors
    /// `Invalid`, naming the field, the value and the expected range.
    pub fn check(&self) -> Result<()> {
        self.read.check("read")?;
        self.write.check("write")?;
        if self.allocation_unit_bytes == 0 {
            return Err(Error::invalid("medium", "allocation_unit_bytes is 0"));
        }
        if !(self.billable_days_min >= 0.0 && self.billable_days_min.is_finite()) {
            let reason = format!("billable_days_min is {}", self.billable_days_min);
            return Err(Error::invalid("medium", reason));
        }
        check_figure("idle_watts", &self.idle_watts, false)?;
        check_price("holding_watts_per_gib", &self.holding_watts_per_gib)?;
        check_price("machine_idle_watts", &self.machine_idle_watts)?;
        check_price("price_eur_per_gib_month", &self.price_eur_per_gib_month)
    }

    /// Returns the service of a direction.
    pub fn service(&self, direction: Direction) -> &Service {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    /// Returns the seconds of the medium's own time that one operation takes, with their source:
    /// that of the point which contributes the more to them.
    ///
    /// # Panics
    /// If the depth is 0.
    pub fn figure_for(&self, operation: Operation) -> Figure {
        assert!(operation.depth > 0, "an operation with none in flight");
        let service = self.service(operation.direction);
        service.seconds_for(operation.bytes, operation.pattern, operation.depth)
    }

    /// Returns the seconds of the medium's own time that one operation takes.
    ///
    /// # Panics
    /// If the depth is 0.
    pub fn seconds_for(&self, operation: Operation) -> Estimate {
        self.figure_for(operation).estimate
    }

    /// Returns the seconds until one operation is complete while `depth` are in flight: the depth
    /// times [`Medium::seconds_for`] (Little's law).
    ///
    /// # Panics
    /// If the depth is 0.
    pub fn latency_for(&self, operation: Operation) -> Estimate {
        scaled(self.seconds_for(operation), f64::from(operation.depth))
    }

    /// Returns the bytes per second of a run of such operations.
    ///
    /// # Panics
    /// If the depth is 0.
    pub fn bytes_per_second(&self, operation: Operation) -> Estimate {
        let bytes = operation.bytes as f64;
        self.seconds_for(operation).map(|seconds| bytes / seconds)
    }

    /// Returns the joules above idle that the device spends on one operation: its active watts for its seconds. The
    /// watts are one common factor of all operations of a direction. A caller who compares two of them divides it out
    /// ([`Service::watts_above_idle`]).
    ///
    /// # Panics
    /// If the depth is 0.
    pub fn joules_for(&self, operation: Operation) -> Estimate {
        let watts = self.service(operation.direction).watts_above_idle.estimate;
        product(watts, self.seconds_for(operation))
    }

    /// Returns the joules above idle per byte moved by such operations.
    ///
    /// # Panics
    /// If the depth is 0.
    pub fn joules_per_byte(&self, operation: Operation) -> Estimate {
        scaled(
            self.joules_for(operation),
            1.0 / operation.bytes.max(1) as f64,
        )
    }

    /// Returns the euros charged for one operation: the request and the bytes moved, without time
    /// and energy.
    pub fn euros_for(&self, operation: Operation) -> Estimate {
        let service = self.service(operation.direction);
        let request = charge(&service.price_eur_per_request, 1.0);
        let moved = charge(&service.price_eur_per_gib, operation.bytes as f64 / GIB);
        sum(request, moved)
    }

    /// Returns the bytes that `stored_bytes` of one object take: rounded up to the allocation unit.
    pub fn allocated_bytes(&self, stored_bytes: u64) -> u64 {
        let units = stored_bytes.div_ceil(self.allocation_unit_bytes);
        units.saturating_mul(self.allocation_unit_bytes)
    }

    /// Returns the euros for holding one object of `stored_bytes` for `days`, minimum size and
    /// minimum time counted; zero where nothing is charged.
    pub fn euros_for_holding(&self, stored_bytes: u64, days: f64) -> Estimate {
        let bytes = self
            .allocated_bytes(stored_bytes)
            .max(self.billable_object_bytes_min);
        let months = days.max(self.billable_days_min) / DAYS_PER_MONTH;
        charge(&self.price_eur_per_gib_month, bytes as f64 / GIB * months)
    }

    /// Returns the joules for holding one object of `stored_bytes` for a time; zero where nothing
    /// stays. They are saved only if devices are really not bought or not powered.
    pub fn joules_for_holding(&self, stored_bytes: u64, time: Seconds) -> Estimate {
        let bytes = self.allocated_bytes(stored_bytes) as f64;
        charge(&self.holding_watts_per_gib, bytes / GIB * time.0)
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.name, self.description, self.source)
    }
}

/// Checks a figure that was read: ordered, finite, and above zero or at least zero.
fn check_figure(what: &'static str, figure: &Figure, positive: bool) -> Result<()> {
    let Estimate { mean, low, high } = figure.estimate;
    let ordered = low <= mean && mean <= high && high.is_finite();
    let in_range = if positive { low > 0.0 } else { low >= 0.0 };
    if ordered && in_range {
        return Ok(());
    }
    let expected = if positive { "above 0" } else { "at least 0" };
    let reason = format!("{mean} in [{low}, {high}], expected an ordered interval {expected}");
    Err(Error::invalid(what, reason))
}

fn check_price(what: &'static str, price: &Option<Figure>) -> Result<()> {
    match price {
        Some(figure) => check_figure(what, figure, false),
        None => Ok(()),
    }
}

/// Pools two neighbours into their mean, weighted by the points that each stands for.
fn pooled(a: (Figure, usize), b: (Figure, usize)) -> (Figure, usize) {
    let (x, y) = (a.0.estimate, b.0.estimate);
    let (m, n) = (a.1 as f64, b.1 as f64);
    let estimate = Estimate {
        mean: (x.mean * m + y.mean * n) / (m + n),
        low: x.low.min(y.low),
        high: x.high.max(y.high),
    };
    let source = less_trusted(&a.0.source, &b.0.source);
    (Figure { estimate, source }, a.1 + b.1)
}

/// Applies a function that rises in both arguments to values and interval ends.
fn combine(a: &Figure, b: &Figure, function: impl Fn(f64, f64) -> f64) -> Figure {
    let (x, y) = (a.estimate, b.estimate);
    Figure {
        estimate: Estimate {
            mean: function(x.mean, y.mean),
            low: function(x.low, y.low),
            high: function(x.high, y.high),
        },
        source: less_trusted(&a.source, &b.source),
    }
}

fn less_trusted(a: &Source, b: &Source) -> Source {
    if b.band() > a.band() { b } else { a }.clone()
}

/// Scales a value and its interval by a factor of at least 0.
fn scaled(estimate: Estimate, factor: f64) -> Estimate {
    estimate.map(|value| value * factor)
}

/// Multiplies two estimates that are not negative, with the widest interval that follows.
fn product(a: Estimate, b: Estimate) -> Estimate {
    Estimate {
        mean: a.mean * b.mean,
        low: a.low * b.low,
        high: a.high * b.high,
    }
}

fn sum(a: Estimate, b: Estimate) -> Estimate {
    Estimate {
        mean: a.mean + b.mean,
        low: a.low + b.low,
        high: a.high + b.high,
    }
}

fn charge(price: &Option<Figure>, amount: f64) -> Estimate {
    match price {
        Some(figure) => scaled(figure.estimate, amount),
        None => Estimate::exact(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn points(of: &[(u64, f64)]) -> Vec<Point> {
        of.iter()
            .map(|&(bytes, seconds)| Point {
                bytes,
                seconds: Figure::new(seconds, Source::Declared),
            })
            .collect()
    }

    fn medium(curves: Vec<Curve>) -> Medium {
        let service = Service::new(curves, Figure::new(2.0, Source::Declared));
        Medium {
            name: "test".to_string(),
            description: "made up".to_string(),
            kind: MediumKind::File,
            source: Source::Declared,
            read: service.clone(),
            write: service,
            allocation_unit_bytes: 4096,
            idle_watts: Figure::assumed(1.0),
            holding_watts_per_gib: Some(Figure::new(0.5, Source::Measured)),
            machine_idle_watts: None,
            price_eur_per_gib_month: None,
            billable_object_bytes_min: 0,
            billable_days_min: 0.0,
        }
    }

    fn read(bytes: u64, pattern: Pattern, depth: u32) -> Operation {
        Operation {
            bytes,
            pattern,
            direction: Direction::Read,
            depth,
        }
    }

    fn close(value: f64, expected: f64) {
        assert!(
            (value / expected - 1.0).abs() < 1e-12,
            "{value}, expected {expected}"
        );
    }

    #[test]
    fn seconds_are_exact_at_points_and_linear_between() {
        let sizes = [(4096, 1.0), (8192, 1.5), (16384, 4.0)];
        let medium = medium(vec![Curve::new(None, 1, points(&sizes))]);
        let check = |bytes: u64, expected: f64| {
            let seconds = medium.seconds_for(read(bytes, Pattern::Random, 1));
            close(seconds.mean, expected);
            assert!(seconds.low <= seconds.mean && seconds.mean <= seconds.high);
        };
        for (bytes, seconds) in sizes {
            check(bytes, seconds);
        }
        check(6144, 1.25);
        check(12288, 2.75);
        // Nothing is cheaper than the smallest that was measured.
        check(1, 1.0);
        // Beyond the largest, bytes cost what they cost there.
        check(32768, 8.0);
    }

    #[test]
    fn random_accesses_beyond_the_largest_cost_the_streams_rate() {
        let stream = Curve::new(Some(Pattern::Sequential), 1, points(&[(1000, 0.001)]));
        let random = Curve::new(Some(Pattern::Random), 1, points(&[(1000, 0.011)]));
        let medium = medium(vec![stream, random]);
        close(
            medium.seconds_for(read(3000, Pattern::Random, 1)).mean,
            0.013,
        );
    }

    #[test]
    fn noise_is_pooled_and_order_kept() {
        let check = |given: &[(u64, f64)], expected: &[f64]| {
            let curve = Curve::new(None, 1, points(given));
            let means: Vec<f64> = curve
                .points
                .iter()
                .map(|point| point.seconds.estimate.mean)
                .collect();
            assert_eq!(means, expected);
        };
        check(&[(4, 1.0), (8, 2.0), (16, 3.0)], &[1.0, 2.0, 3.0]);
        check(&[(16, 3.0), (4, 1.0), (8, 2.0)], &[1.0, 2.0, 3.0]);
        check(&[(4, 1.0), (8, 3.0), (16, 2.0)], &[1.0, 2.5, 2.5]);
        check(
            &[(4, 3.0), (8, 2.0), (16, 1.0), (32, 4.0)],
            &[2.0, 2.0, 2.0, 4.0],
        );
        check(
            &[(4, 2.0), (8, 5.0), (16, 3.0), (32, 1.0)],
            &[2.0, 3.0, 3.0, 3.0],
        );
    }

    #[test]
    fn any_measured_curve_is_monotone_and_bounded() {
        let seed = testing::seed(5);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut tried = 0;
        for _ in 0..200 {
            let curves = [Pattern::Sequential, Pattern::Random]
                .into_iter()
                .flat_map(|pattern| [1, 4].map(|depth| (pattern, depth)));
            let curves = curves.map(|(pattern, depth)| {
                let given: Vec<(u64, f64)> = (2..8)
                    .map(|power| (1024 << power, 1e-5 + random.f64() * 1e-3))
                    .collect();
                Curve::new(Some(pattern), depth, points(&given))
            });
            let medium = medium(curves.collect());
            medium.check().expect("a sound medium");
            for pattern in [Pattern::Sequential, Pattern::Random, Pattern::Mix9to1] {
                for depth in [1, 2, 3, 4, 9] {
                    let mut last = 0.0;
                    for step in 0..40 {
                        let bytes = step * 8000 + 1;
                        let seconds = medium.seconds_for(read(bytes, pattern, depth));
                        let text = format!("seed {seed}: {pattern:?} {depth} {bytes} {seconds:?}");
                        assert!(seconds.mean >= last, "{text} after {last}");
                        assert!(0.0 < seconds.low && seconds.low <= seconds.mean, "{text}");
                        assert!(seconds.mean <= seconds.high, "{text}");
                        last = seconds.mean;
                        tried += 1;
                    }
                }
            }
        }
        println!("seed {seed}: tried {tried} operations");
        assert!(tried >= 100_000);
    }

    #[test]
    fn depth_is_interpolated_inside_and_bounded_outside() {
        let at = |depth: u32, seconds: f64| Curve::new(None, depth, points(&[(4096, seconds)]));
        let medium = medium(vec![at(1, 8.0), at(4, 2.0)]);
        let seconds = |depth: u32| medium.seconds_for(read(4096, Pattern::Random, depth));
        close(seconds(1).mean, 8.0);
        close(seconds(2).mean, 4.0);
        close(seconds(4).mean, 2.0);
        // Deeper than measured: no gain at worst, a full one at best.
        let band = Source::Declared.band();
        close(seconds(16).mean, 2.0);
        close(seconds(16).low, 2.0 / band / 4.0);
        close(seconds(16).high, 2.0 * band);
        close(medium.latency_for(read(4096, Pattern::Random, 4)).mean, 8.0);
    }

    #[test]
    fn a_depth_below_the_measured_may_cost_as_much_as_it_gained() {
        let only = Curve::new(None, 4, points(&[(4096, 2.0)]));
        let alone = medium(vec![only]).seconds_for(read(4096, Pattern::Random, 1));
        close(alone.mean, 2.0);
        close(alone.high, 2.0 * Source::Declared.band() * 4.0);
    }

    #[test]
    fn patterns_not_measured_are_bounded_by_those_that_were() {
        let of = |pattern, seconds| Curve::new(Some(pattern), 1, points(&[(4096, seconds)]));
        let check = |curves: Vec<Curve>, pattern, mean: f64, low: f64, high: f64| {
            let figure = medium(curves).figure_for(read(4096, pattern, 1));
            let band = Source::Declared.band();
            close(figure.estimate.mean, mean);
            close(figure.estimate.low, low / band);
            close(figure.estimate.high, high * band);
            assert_eq!(figure.source, Source::Default);
        };
        use Pattern::{Mix9to1, Random, Sequential};
        check(vec![of(Mix9to1, 1.0)], Random, 1.0, 1.0, 10.0);
        check(vec![of(Mix9to1, 0.9)], Sequential, 0.9, 0.09, 1.0);
        check(
            vec![of(Sequential, 1.0), of(Random, 11.0)],
            Mix9to1,
            2.0,
            2.0,
            10.0,
        );
        check(vec![of(Sequential, 1.0)], Random, 1.0, 0.1, 10.0);
    }

    #[test]
    fn energy_and_bytes_follow_from_seconds() {
        let medium = medium(vec![Curve::new(
            None,
            1,
            points(&[(4096, 0.5), (8192, 1.0)]),
        )]);
        let operation = read(8192, Pattern::Random, 1);
        close(medium.joules_for(operation).mean, 2.0);
        close(medium.joules_per_byte(operation).mean, 2.0 / 8192.0);
        close(medium.bytes_per_second(operation).mean, 8192.0);
        close(medium.joules_for_holding(1 << 30, Seconds(10.0)).mean, 5.0);
        let check = |stored: u64, allocated: u64| {
            assert_eq!(medium.allocated_bytes(stored), allocated);
        };
        check(0, 0);
        check(1, 4096);
        check(4096, 4096);
        check(4097, 8192);
        check(u64::MAX, u64::MAX);
    }

    #[test]
    fn a_medium_that_was_read_is_checked() {
        let good = medium(vec![Curve::new(
            None,
            1,
            points(&[(4096, 0.5), (8192, 1.0)]),
        )]);
        let check = |spoil: fn(&mut Medium), expected: &str| {
            let mut bad = good.clone();
            spoil(&mut bad);
            let error = bad.check().expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        };
        good.check().expect("a sound medium");
        check(|m| m.read.curves.clear(), "0 read curves");
        check(|m| m.write.curves[0].points.clear(), "0 points");
        check(|m| m.read.curves[0].depth = 0, "depth 0");
        check(
            |m| m.read.curves[0].points[1].bytes = 1,
            "size 1 after size 4096",
        );
        check(
            |m| m.read.curves[0].points.swap(0, 1),
            "size 4096 after size 8192",
        );
        check(
            |m| m.read.curves[0].points[0].seconds.estimate.low = 0.0,
            "expected an ordered interval above 0",
        );
        check(
            |m| m.read.curves[0].points[0].seconds = Figure::assumed(7.0),
            "8192 bytes cost less",
        );
        check(|m| m.allocation_unit_bytes = 0, "allocation_unit_bytes");
        check(|m| m.billable_days_min = f64::NAN, "billable_days_min");
        check(|m| m.idle_watts.estimate.high = f64::INFINITY, "idle_watts");
        let many = vec![good.read.curves[0].clone(); 300];
        assert!(medium(many).check().is_err());
    }
}
