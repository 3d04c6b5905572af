//! The sampler: draws clusters, sorts them into groups, measures methods on them in two phases.
//!
//! A glance at many clusters comes first: one method stores a window of each. So the sample spreads over files before
//! it goes deep into one. Later measurements on few clusters use the glances at many. Cheap methods are measured on
//! every cluster drawn. Slow ones are measured on a subsample, each about as often as the square root of its cost
//! allows, and never for more than half of the time. Drawing stops when every important interval is narrow, when
//! nothing is left, or when the time is up. The state is always complete: a caller that stops early has an answer, with
//! wider intervals.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::advise::estimate::{
    CLUSTERS_PROVED, Count, Line, Pair, effective_count, ratio_estimate, regression_estimate,
};
use crate::advise::glance::{self, GLANCE_BYTES, GLANCE_TIME, GLANCES, Glance, cut, share};
use crate::advise::measure::{Bench, Cell, ExtentRun, FilePart, Sums};
use crate::advise::order::Order;
use crate::advise::population::{Piece, Population};
use crate::advise::sample_options::{EXTENT_RUN_BYTES, cells};
use crate::advise::time_budget::TimeBudget;
use crate::codec::Features;
use crate::decide::{Class, Profile};
use crate::error::Result;
use crate::meter::{Clock, thread_cpu};
use crate::units::Estimate;

pub use crate::advise::sample_options::{
    BLOCK_BYTES, CACHE_BLOCK_BYTES, EXTENT_BLOCK_BYTES, PAGE_BYTES, SampleOptions, is_page_size,
};

/// Bytes taken from a cluster for each small block size, contiguous.
const WINDOW_BYTES: usize = 64 << 10;
/// How often a cluster of each class is measured once more at the end, to show the difference of another run.
const REPEATS: usize = 8;
/// These repeats take at most this part of the time for drawing, one in so many.
const REPEAT_TIME: u32 = 10;
/// The share of the repeated times that the band of seconds holds. On a loaded machine, with half of them, 10 of 45
/// pairs of advice on a folder of many kinds differed. With three quarters, and with all, none did. All of them made
/// bands of a factor of 2 to 4.
const REPEAT_SHARE: f64 = 0.75;
/// With at most this many clusters, small blocks are cut from all of each.
const WHOLE_CLUSTERS_MAX: u64 = 64;

/// The common property of a group's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The data came with this label.
    Label(&'static str),
    /// The blocks look like this class.
    Class(Class),
}

impl Group {
    /// Returns the name for people.
    pub fn name(&self) -> String {
        match self {
            Group::Label(label) => (*label).to_string(),
            Group::Class(class) => class.name().to_string(),
        }
    }
}

/// The measurements on one cluster, in one group: one entry a cell.
#[derive(Clone, Debug)]
struct Observation {
    group: usize,
    raw_bytes: u64,
    cells: Vec<Option<Sums>>,
}

/// Why drawing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All clusters were measured by every method.
    Complete,
    /// Every important ratio has the requested precision.
    Precise,
    /// Time was up.
    Time,
    /// The caller asked to stop.
    Interrupted,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ended::Complete => "complete",
            Ended::Precise => "precise",
            Ended::Time => "time",
            Ended::Interrupted => "interrupted",
        })
    }
}

/// One cluster drawn.
struct Drawn {
    cluster: u64,
    observations: Vec<Observation>,
}

/// The sample so far, and the estimates from it.
pub struct Sample {
    cells: Vec<Cell>,
    groups: Vec<Group>,
    drawn: Vec<Drawn>,
    /// The first clusters of the order, drawn or not.
    glances: Vec<Glance>,
    cluster_count: u64,
    population_bytes: u64,
    /// Whether small blocks are cut from all of a cluster and not from a window of it.
    windows_are_whole: bool,
    /// Pieces that could not be read, or changed or vanished while being read.
    pub vanished_pieces: u64,
    /// Bytes of clusters drawn that could not be read.
    pub unread_bytes: u64,
    /// The factors by which repeated work on the same bytes took longer or shorter at the end, at least 1, for each
    /// group.
    repeat_factors: Vec<f64>,
    /// Wall time spent drawing and measuring.
    pub elapsed: Duration,
    /// Why drawing ended.
    pub ended: Ended,
}

/// An estimate with the number of clusters behind it.
#[derive(Clone, Copy, Debug)]
pub struct CellEstimate {
    /// Stored bytes per raw byte.
    pub stored_per_raw: Estimate,
    /// Allocated bytes per raw byte, with page headers and allocation units.
    pub allocated_share: Estimate,
    /// Bytes allocated to compressed files, each in whole allocation units, over those allocated to them raw. For
    /// blocks smaller than files', stored bytes per raw byte.
    pub file_allocated_share: Estimate,
    /// Core-seconds per raw byte.
    pub encode_seconds_per_byte: Estimate,
    /// Core-seconds per raw byte.
    pub decode_seconds_per_byte: Estimate,
    /// Clusters it was measured on.
    pub clusters: usize,
}

impl Sample {
    /// Draws from `population` until precise, exhausted, out of time, or stopped; `progress` is called after every
    /// cluster.
    ///
    /// # Errors
    /// Only errors of a codec; unreadable files are counted and skipped.
    pub fn draw(
        population: &Population,
        options: &SampleOptions,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&Sample),
    ) -> Result<Sample> {
        Sample::draw_by(population, options, stop, progress, Clock::real())
    }

    fn draw_by(
        population: &Population,
        options: &SampleOptions,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&Sample),
        clock: Clock<'_>,
    ) -> Result<Sample> {
        let mut sampler = Sampler::new(population, options, clock);
        let order = || Order::new(population.cluster_count(), options.seed);
        for cluster in order().take(GLANCES) {
            sampler.glance_at(cluster)?;
            let time_is_up = sampler.budget.elapsed() >= options.time_limit / GLANCE_TIME;
            if time_is_up || stop.load(Ordering::Relaxed) {
                break;
            }
        }
        let mut ended = None;
        for cluster in order() {
            sampler.draw_cluster(cluster, stop)?;
            sampler.sample.elapsed = sampler.budget.elapsed();
            progress(&sampler.sample);
            ended = sampler.over(stop);
            if ended.is_some() || sampler.precise(options.precision) {
                break;
            }
        }
        // All drawn clusters have their cheap methods; the rest of the time belongs to the slow ones.
        while ended.is_none() {
            if sampler.complete() {
                ended = Some(Ended::Complete);
            } else if sampler.drawn_complete() || sampler.slow_precise(options.precision) {
                ended = Some(Ended::Precise);
            } else if !sampler.complete_one()? {
                // Everything within the time is measured.
                ended = Some(Ended::Time);
            } else {
                ended = sampler.over(stop);
                sampler.sample.elapsed = sampler.budget.elapsed();
                progress(&sampler.sample);
            }
        }
        sampler.sample.ended = ended.expect("the loop ends with a reason");
        if sampler.sample.ended != Ended::Interrupted {
            sampler.repeat()?;
        }
        Ok(sampler.sample)
    }

    /// Returns the groups seen, in the order seen.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the measured cells.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Returns the drawn and the total clusters.
    pub fn clusters(&self) -> (usize, u64) {
        (self.drawn.len(), self.cluster_count)
    }

    /// Returns the raw bytes read and measured.
    pub fn raw_bytes(&self) -> u64 {
        self.observations()
            .map(|(_, observation)| observation.raw_bytes)
            .sum()
    }

    /// Returns the raw bytes read, with glances at clusters that were not drawn.
    pub fn read_bytes(&self) -> u64 {
        let glances = self.glances.iter().skip(self.drawn.len());
        self.raw_bytes() + glances.map(|glance| glance.raw_bytes).sum::<u64>()
    }

    /// Returns the factor by which the seconds of another run on the same bytes of a group may differ, at least 1.
    pub fn repeat_factor(&self, group: Option<usize>) -> f64 {
        let of = |group: usize| self.repeat_factors.get(group).copied().unwrap_or(1.0);
        let parts =
            (0..self.groups.len()).map(|group| (self.group_raw_bytes(group) as f64, of(group)));
        group.map_or_else(|| weighed_mean(parts), of)
    }

    /// Estimates the bytes of the population in a group; all of them for `None`.
    pub fn group_bytes(&self, group: Option<usize>) -> Estimate {
        let total = self.raw_bytes() as f64 / self.drawn.len().max(1) as f64;
        let counts: Vec<Count> = self
            .drawn
            .iter()
            .map(|drawn| {
                let value = drawn
                    .observations
                    .iter()
                    .filter(|observation| group.is_none_or(|group| group == observation.group))
                    .map(|observation| observation.raw_bytes as f64)
                    .sum();
                Count { raw: total, value }
            })
            .collect();
        let share = ratio_estimate(&counts, self.cluster_count).unwrap_or_default();
        share.map(|share| share.min(1.0) * self.population_bytes as f64)
    }

    /// Estimates the bytes allocated to files of a group, raw: each in whole allocation units.
    pub fn file_allocated_bytes(&self, group: Option<usize>) -> f64 {
        let filled_up = Quotient {
            part: Quotient::FILES.whole,
            whole: Quotient::STORED.whole,
        };
        let counts = self.counts(group, 0, filled_up);
        let sum = |of: fn(&Count) -> f64| counts.iter().map(of).sum::<f64>();
        let raw = sum(|count| count.raw);
        let factor = if raw > 0.0 {
            sum(|count| count.value) / raw
        } else {
            1.0
        };
        factor * self.group_bytes(group).mean
    }

    /// Estimates a cell for one group, or for all groups together. `None` until it is measured; for all groups, until
    /// it is measured on every important group. Bytes that could not be read may be of any kind: they widen the
    /// intervals of the stored bytes.
    pub fn estimate(&self, group: Option<usize>, cell: usize) -> Option<CellEstimate> {
        let unread = self.unread_bytes as f64;
        let share = unread / (unread + self.raw_bytes() as f64).max(1.0);
        let widened = |stored: Estimate| Estimate {
            mean: stored.mean,
            low: (1.0 - share) * stored.low,
            high: ((1.0 - share) * stored.high + share).max(stored.mean),
        };
        self.sampled(group, cell).map(|estimate| CellEstimate {
            stored_per_raw: widened(estimate.stored_per_raw),
            allocated_share: widened(estimate.allocated_share),
            file_allocated_share: widened(estimate.file_allocated_share),
            ..estimate
        })
    }

    /// Estimates a cell on the bytes that can be read.
    fn sampled(&self, group: Option<usize>, cell: usize) -> Option<CellEstimate> {
        let bounds = |estimate: CellEstimate| CellEstimate {
            stored_per_raw: bounded(estimate.stored_per_raw, 1.0),
            allocated_share: bounded(estimate.allocated_share, 1.0),
            file_allocated_share: bounded(estimate.file_allocated_share, 1.0),
            encode_seconds_per_byte: bounded(estimate.encode_seconds_per_byte, f64::MAX),
            decode_seconds_per_byte: bounded(estimate.decode_seconds_per_byte, f64::MAX),
            clusters: estimate.clusters,
        };
        let estimate = match (group, self.cells[cell].slow) {
            (Some(group), true) => self.slow_estimate(group, cell),
            (None, true) => self.combined_estimate(cell),
            (group, false) => self.cheap_estimate(group, cell),
        };
        estimate.map(bounds)
    }

    /// A method measured on every cluster drawn.
    fn cheap_estimate(&self, group: Option<usize>, cell: usize) -> Option<CellEstimate> {
        let counts = |of: Quotient| self.counts(group, cell, of);
        // A window is one of many in a cluster, so the draws are unlimited.
        let file_block = self.cells[0].block_bytes;
        let whole = self.windows_are_whole || self.cells[cell].block_bytes == file_block;
        let clusters = if whole { self.cluster_count } else { u64::MAX };
        let of = |it: Quotient| ratio_estimate(&counts(it), clusters);
        let kept = |it: Quotient| match group {
            Some(_) => of(it),
            None => self.over_all(&counts(it), clusters),
        };
        Some(CellEstimate {
            stored_per_raw: kept(Quotient::STORED)?,
            allocated_share: kept(Quotient::ALLOCATED)?,
            file_allocated_share: kept(Quotient::FILES)?,
            encode_seconds_per_byte: of(Quotient::ENCODE)?,
            decode_seconds_per_byte: of(Quotient::DECODE)?,
            clusters: counts(Quotient::STORED)
                .iter()
                .filter(|count| count.raw > 0.0)
                .count(),
        })
    }

    fn over_all(&self, counts: &[Count], clusters: u64) -> Option<Estimate> {
        glance::estimate(&self.glances, counts, clusters)
    }

    /// A method measured on a subsample of a group's clusters. The group is a stratum of its own: draws from it do not
    /// depend on draws from others.
    fn slow_estimate(&self, group: usize, cell: usize) -> Option<CellEstimate> {
        let of_group = |counts: Vec<Count>| -> Vec<Count> {
            counts.into_iter().filter(|count| count.raw > 0.0).collect()
        };
        let counts = |it: Quotient| of_group(self.counts(Some(group), cell, it));
        let drawn = self.clusters_of(group);
        let scale = self.cluster_count as f64 / self.drawn.len().max(1) as f64;
        let clusters = (drawn as f64 * scale).round() as u64;
        let of = |it: Quotient| ratio_estimate(&counts(it), clusters);
        let measured = counts(Quotient::STORED).len();
        let auxiliary = self.auxiliary_cell().filter(|_| measured < drawn);
        let leaning = |it: Quotient| {
            let first_phase = self.counts(Some(group), auxiliary?, it);
            let first_phase = ratio_estimate(&first_phase, self.cluster_count)?;
            let pairs = self.pairs(Some(group), [auxiliary?, cell], it);
            regression_estimate(&pairs, first_phase, clusters)
        };
        let kept = |it: Quotient| leaning(it).or_else(|| of(it));
        Some(CellEstimate {
            stored_per_raw: kept(Quotient::STORED)?,
            allocated_share: of(Quotient::ALLOCATED)?,
            file_allocated_share: kept(Quotient::FILES)?,
            encode_seconds_per_byte: of(Quotient::ENCODE)?,
            decode_seconds_per_byte: of(Quotient::DECODE)?,
            clusters: measured,
        })
    }

    /// Adds up the groups' estimates of a slow method, each by its share of the bytes. `None` while
    /// a group of at least a hundredth of the bytes has none.
    ///
    /// Source: Cochran, section 5.3 (stratified mean and its variance).
    fn combined_estimate(&self, cell: usize) -> Option<CellEstimate> {
        let raw = self.raw_bytes() as f64;
        let mut parts = Vec::new();
        for group in 0..self.groups.len() {
            let share = self.group_raw_bytes(group) as f64 / raw;
            match self.slow_estimate(group, cell) {
                Some(estimate) => parts.push((share, estimate)),
                None if share < 0.01 => {}
                None => return None,
            }
        }
        let covered: f64 = parts.iter().map(|(share, _)| share).sum();
        let sum = |of: fn(&CellEstimate) -> Estimate| {
            let weighed = || {
                parts
                    .iter()
                    .map(|(share, part)| (share / covered, of(part)))
            };
            let mean: f64 = weighed().map(|(share, part)| share * part.mean).sum();
            let half = |(share, part): (f64, Estimate)| share * (part.high - part.mean);
            let squares: f64 = weighed().map(half).map(|half| half * half).sum();
            Estimate::plus_minus(mean, squares.sqrt())
        };
        if parts.is_empty() {
            return None;
        }
        Some(CellEstimate {
            stored_per_raw: self.combined_stored(cell, Quotient::STORED)?,
            allocated_share: self.combined_stored(cell, Quotient::ALLOCATED)?,
            file_allocated_share: self.combined_stored(cell, Quotient::FILES)?,
            encode_seconds_per_byte: sum(|part| part.encode_seconds_per_byte),
            decode_seconds_per_byte: sum(|part| part.decode_seconds_per_byte),
            clusters: parts.iter().map(|(_, part)| part.clusters).sum(),
        })
    }

    /// The stored bytes of a slow method over all groups: measured ones, and the rest by each group's line. Its errors
    /// are those of the lines, and that of the drawn clusters, which includes their random shares of each group.
    ///
    /// Source: Cochran, sections 12.2 and 12.6 (double sampling for stratification and regression).
    fn combined_stored(&self, cell: usize, of: Quotient) -> Option<Estimate> {
        let auxiliary = self.auxiliary_cell()?;
        let raw = self.raw_bytes() as f64;
        let scale = self.cluster_count as f64 / self.drawn.len().max(1) as f64;
        let pooled = Line::fit(&self.pairs(None, [auxiliary, cell], of))?;
        let mut lines = Vec::with_capacity(self.groups.len());
        let mut squares = 0.0;
        for group in 0..self.groups.len() {
            let pairs = self.pairs(Some(group), [auxiliary, cell], of);
            let line = Line::fit(&pairs);
            lines.push(line.unwrap_or(pooled));
            let drawn = self.clusters_of(group);
            if pairs.len() == drawn {
                continue;
            }
            let level = self.counts(Some(group), auxiliary, of);
            let level = ratio_estimate(&level, self.cluster_count)?.mean;
            let clusters = (drawn as f64 * scale).round() as u64;
            // Stored bytes lie between zero and the raw bytes.
            let known = line.map_or(1.0, |line| line.half_width(&pairs, level, clusters));
            let share = self.group_raw_bytes(group) as f64 / raw;
            squares += (share * known.min(1.0)).powi(2);
        }
        let counts: Vec<Count> = self
            .drawn
            .iter()
            .map(|drawn| {
                let mut count = Count::default();
                for observation in &drawn.observations {
                    let cheap = observation.cells[auxiliary].unwrap_or_default();
                    let bytes = (of.whole)(&cheap);
                    count.raw += bytes;
                    count.value += match observation.cells[cell] {
                        Some(sums) => (of.part)(&sums),
                        None => lines[observation.group].predict(bytes, (of.part)(&cheap)),
                    };
                }
                count
            })
            .collect();
        let first_phase = self.over_all(&counts, self.cluster_count)?;
        let half_width = (first_phase.high - first_phase.mean).hypot(squares.sqrt());
        Some(Estimate::plus_minus(first_phase.mean, half_width))
    }

    fn group_raw_bytes(&self, group: usize) -> u64 {
        let of_group = |(_, observation): &(u64, &Observation)| observation.group == group;
        self.observations()
            .filter(of_group)
            .map(|(_, observation)| observation.raw_bytes)
            .sum()
    }

    /// Returns the mean bytes of a group's blocks that are cut to at most `block_bytes`: shorter where files are
    /// shorter. `None` for no such block.
    pub fn mean_block_bytes(&self, group: usize, block_bytes: usize) -> Option<u64> {
        let cell = self
            .cells
            .iter()
            .position(|cell| !cell.slow && cell.block_bytes == block_bytes)?;
        let mut all = Sums::default();
        for (_, observation) in self.observations().filter(|(_, of)| of.group == group) {
            all.add(&observation.cells[cell].unwrap_or_default());
        }
        all.raw_bytes.checked_div(all.blocks)
    }

    /// Returns whether enough of a group was drawn for a verdict: all of it, or clusters for which intervals are
    /// proved.
    pub fn is_enough(&self, group: Option<usize>) -> bool {
        let bytes = self.drawn.iter().map(|drawn| {
            let of_group = in_group(&drawn.observations, group);
            of_group.map(|found| found.raw_bytes as f64).sum()
        });
        self.drawn.len() as u64 == self.cluster_count || effective_count(bytes) >= CLUSTERS_PROVED
    }

    /// Drawn clusters with bytes of a group.
    fn clusters_of(&self, group: usize) -> usize {
        let holds = |drawn: &&Drawn| in_group(&drawn.observations, Some(group)).next().is_some();
        self.drawn.iter().filter(holds).count()
    }

    /// Adds the measurements to a profile: one observation for each cluster, class and cell.
    pub fn teach(&self, profile: &mut Profile) {
        for (_, observation) in self.observations() {
            let Group::Class(class) = self.groups[observation.group] else {
                continue;
            };
            for (cell, sums) in self.cells.iter().zip(&observation.cells) {
                let Some(sums) = sums.filter(|sums| sums.blocks > 0) else {
                    continue;
                };
                profile.observe(&sums.of_one_block(class, cell.method));
            }
        }
    }

    /// Returns the cell whose method every cluster has, and the auxiliary of slow methods: the last cheap one at the
    /// files' block size.
    fn auxiliary_cell(&self) -> Option<usize> {
        self.cells
            .iter()
            .position(|cell| cell.slow)
            .and_then(|first_slow| first_slow.checked_sub(1))
    }

    fn observations(&self) -> impl Iterator<Item = (u64, &Observation)> {
        self.drawn.iter().flat_map(|drawn| {
            drawn
                .observations
                .iter()
                .map(|observation| (drawn.cluster, observation))
        })
    }

    /// One count for each drawn cluster: over its bytes of the group on which the cell was measured.
    fn counts(&self, group: Option<usize>, cell: usize, of: Quotient) -> Vec<Count> {
        let mut counts = Vec::with_capacity(self.drawn.len());
        for drawn in &self.drawn {
            let mut count = Count::default();
            for observation in in_group(&drawn.observations, group) {
                if let Some(sums) = &observation.cells[cell] {
                    // Small blocks are measured on a window, which is weighted as the bytes it stands for. Blocks that
                    // were cut from everything stand for themselves.
                    let weight = if self.windows_are_whole {
                        1.0
                    } else {
                        observation.raw_bytes as f64 / sums.raw_bytes.max(1) as f64
                    };
                    count.raw += weight * (of.whole)(sums);
                    count.value += weight * (of.part)(sums);
                }
            }
            counts.push(count);
        }
        counts
    }

    fn pairs(
        &self,
        group: Option<usize>,
        [auxiliary, cell]: [usize; 2],
        of: Quotient,
    ) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for drawn in &self.drawn {
            let mut pair = Pair {
                raw: 0.0,
                auxiliary: 0.0,
                value: 0.0,
            };
            for observation in in_group(&drawn.observations, group) {
                let both = observation.cells[auxiliary].zip(observation.cells[cell]);
                if let Some((cheap, slow)) = both {
                    pair.raw += (of.whole)(&slow);
                    pair.auxiliary += (of.part)(&cheap);
                    pair.value += (of.part)(&slow);
                }
            }
            if pair.raw > 0.0 {
                pairs.push(pair);
            }
        }
        pairs
    }
}

/// An estimated quantity of blocks: a part of a whole, summed over all.
#[derive(Clone, Copy)]
struct Quotient {
    part: fn(&Sums) -> f64,
    whole: fn(&Sums) -> f64,
}

impl Quotient {
    const STORED: Quotient = Quotient::per_raw(|sums| sums.stored_bytes as f64);
    const ALLOCATED: Quotient = Quotient {
        part: |sums| sums.allocated_bytes as f64,
        whole: |sums| sums.raw_allocated_bytes as f64,
    };
    const ENCODE: Quotient = Quotient::per_raw(|sums| sums.encode_seconds);
    const DECODE: Quotient = Quotient::per_raw(|sums| sums.decode_seconds);
    const FILES: Quotient = Quotient {
        part: |sums| sums.file_bytes as f64,
        whole: |sums| sums.raw_file_bytes as f64,
    };

    const fn per_raw(part: fn(&Sums) -> f64) -> Quotient {
        Quotient {
            part,
            whole: |sums| sums.raw_bytes as f64,
        }
    }
}

/// Bounds the interval of a sample too small to have one. The bound is the possible range (a block is never stored in
/// more than its own bytes), or else a factor of ten, which stands for "not known".
fn bounded(estimate: Estimate, most: f64) -> Estimate {
    let Estimate { mean, low, high } = estimate;
    Estimate {
        mean,
        low: low.max(mean / UNKNOWN_FACTOR),
        high: high.min(UNKNOWN_FACTOR * mean).min(most).max(mean),
    }
}

const UNKNOWN_FACTOR: f64 = 10.0;

/// Adds one more time of the same work to a mean of some times; returns the factor by which it differs.
fn join(kept: &mut Sums, again: &Sums, times: usize) -> f64 {
    let seconds = |of: &Sums| of.encode_seconds + of.decode_seconds;
    let (before, now) = (seconds(kept), seconds(again));
    let weight = 1.0 / (times + 1) as f64;
    kept.encode_seconds += weight * (again.encode_seconds - kept.encode_seconds);
    kept.decode_seconds += weight * (again.decode_seconds - kept.decode_seconds);
    // If a clock did not advance, nothing is known.
    (now / before).max(before / now).min(UNKNOWN_FACTOR)
}

/// Returns the factor that [`REPEAT_SHARE`] of them do not exceed, 1 for none.
fn most_of(mut factors: Vec<f64>) -> f64 {
    factors.sort_by(f64::total_cmp);
    let at = (factors.len() as f64 * REPEAT_SHARE) as usize;
    factors.get(at).copied().unwrap_or(1.0)
}

fn weighed_mean(parts: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (weight, sum) = parts.fold((0.0, 0.0), |(weight, sum), (of, value)| {
        (weight + of, sum + of * value)
    });
    sum / weight
}

fn in_group(
    observations: &[Observation],
    group: Option<usize>,
) -> impl Iterator<Item = &Observation> {
    observations
        .iter()
        .filter(move |observation| group.is_none_or(|g| g == observation.group))
}

/// The work of drawing: buffers, the bench, and the times spent.
struct Sampler<'a> {
    population: &'a Population,
    sample: Sample,
    bench: Bench,
    block_bytes: usize,
    buffer: Vec<u8>,
    pieces: Vec<Piece>,
    budget: TimeBudget<'a>,
    /// Seconds spent and clusters measured, for each cell.
    spent: Vec<(f64, u64)>,
    /// Clusters of each group measured by each slow cell.
    measured: BTreeMap<(usize, usize), u64>,
    /// Bytes of a cluster from which small blocks are cut, and their place in it, 0 to 1. All small cells share one
    /// place, so that they can be compared.
    window_bytes: usize,
    window_place: f64,
    /// Whether database pages are as long as the bytes that btrfs compresses at once.
    has_long_pages: bool,
    seed: u64,
}

impl<'a> Sampler<'a> {
    fn new(population: &'a Population, options: &SampleOptions, clock: Clock<'a>) -> Sampler<'a> {
        let cells = cells(options);
        let of_extents = options.small_block_bytes.iter();
        let of_extents = of_extents.filter(|&&bytes| bytes == EXTENT_BLOCK_BYTES);
        let spent = vec![(0.0, 0); cells.len()];
        let few = population.cluster_count() <= WHOLE_CLUSTERS_MAX;
        let sample = Sample {
            cells,
            groups: Vec::new(),
            drawn: Vec::new(),
            glances: Vec::new(),
            cluster_count: population.cluster_count(),
            population_bytes: population.bytes(),
            windows_are_whole: few,
            vanished_pieces: 0,
            unread_bytes: 0,
            repeat_factors: Vec::new(),
            elapsed: Duration::ZERO,
            ended: Ended::Complete,
        };
        Sampler {
            population,
            sample,
            bench: Bench::new(options.allocation_unit_bytes),
            block_bytes: options.block_bytes,
            buffer: Vec::new(),
            pieces: Vec::new(),
            budget: TimeBudget::new(clock, options.time_limit),
            spent,
            measured: BTreeMap::new(),
            window_bytes: if few { usize::MAX } else { WINDOW_BYTES },
            window_place: 0.0,
            has_long_pages: of_extents.count() > 1,
            seed: options.seed,
        }
    }

    fn over(&self, stop: &AtomicBool) -> Option<Ended> {
        if stop.load(Ordering::Relaxed) {
            Some(Ended::Interrupted)
        } else if self.budget.elapsed() >= self.budget.draw_until() {
            Some(Ended::Time)
        } else {
            None
        }
    }

    /// Returns whether a cell can finish in time, if it takes as long as before. On a busy machine a slow method takes
    /// seconds for a cluster.
    fn has_time_for(&self, cell: usize) -> bool {
        let (seconds, count) = self.spent[cell];
        let expected = Duration::from_secs_f64(seconds / count.max(1) as f64);
        self.budget.elapsed() + expected < self.budget.draw_until()
    }

    /// Returns whether everything was measured by every method.
    fn complete(&self) -> bool {
        self.sample.drawn.len() as u64 == self.sample.cluster_count && self.drawn_complete()
    }

    /// Returns whether all drawn clusters were measured by every method.
    fn drawn_complete(&self) -> bool {
        self.sample.observations().all(|(_, observation)| {
            let cells = observation.cells.iter().zip(&self.sample.cells);
            let mut cells = cells.filter(|(_, cell)| cell.block_bytes >= self.block_bytes);
            cells.all(|(sums, _)| sums.is_some())
        })
    }

    /// Returns whether the cheap methods' ratios are precise enough; it is called only now and then.
    fn precise(&self, precision: f64) -> bool {
        let drawn = self.sample.drawn.len();
        drawn >= 128
            && drawn.is_multiple_of(32)
            && self.narrow(precision, |cell| {
                !cell.slow && cell.block_bytes == self.block_bytes
            })
    }

    fn slow_precise(&self, precision: f64) -> bool {
        // Slow methods are seldom best and dear to measure, so their ratios may have twice the error.
        self.narrow(2.0 * precision, |cell| cell.slow)
    }

    fn narrow(&self, precision: f64, which: impl Fn(&Cell) -> bool) -> bool {
        let bytes = self.sample.population_bytes as f64;
        let groups = (0..self.sample.groups.len())
            .filter(|group| self.sample.group_bytes(Some(*group)).mean > 0.05 * bytes)
            .map(Some)
            .chain([None]);
        for group in groups {
            for (index, cell) in self.sample.cells.iter().enumerate() {
                if !which(cell) {
                    continue;
                }
                let Some(estimate) = self.sample.sampled(group, index) else {
                    return false;
                };
                let stored = estimate.stored_per_raw;
                if stored.high - stored.mean > precision * stored.mean {
                    return false;
                }
            }
        }
        true
    }

    /// Reads one cluster and measures the cheap methods on it. Then come slow ones, while their share of the time lasts
    /// and nobody wants an answer.
    fn draw_cluster(&mut self, cluster: u64, stop: &AtomicBool) -> Result<()> {
        let blocks = self.read_cluster(cluster);
        let wanted: u64 = self.pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
        self.sample.unread_bytes += wanted - self.buffer.len() as u64;
        let (begun, worked) = (self.budget.elapsed(), thread_cpu());
        let mut observations = self.sort_into_groups(&blocks);
        for index in 0..self.sample.cells.len() {
            if !self.sample.cells[index].slow {
                self.measure_cell(index, &blocks, &mut observations)?;
            }
        }
        if self.sample.drawn.len() < self.sample.glances.len() {
            let whole = share(&self.measure_glance(&blocks)?);
            self.sample.glances[self.sample.drawn.len()].whole_stored_per_raw = Some(whole);
        }
        self.budget.cheap_seconds += (self.budget.elapsed() - begun).as_secs_f64();
        self.budget.core_seconds += (thread_cpu() - worked).0;
        while let Some(index) = self.next_slow_cell(&observations) {
            let (begun, worked) = (self.budget.elapsed(), thread_cpu());
            if !self.has_time_for(index) || stop.load(Ordering::Relaxed) {
                break;
            }
            self.measure_cell(index, &blocks, &mut observations)?;
            self.budget.slow_seconds += (self.budget.elapsed() - begun).as_secs_f64();
            self.budget.core_seconds += (thread_cpu() - worked).0;
        }
        let observations = observations
            .into_iter()
            .map(|(_, observation)| observation)
            .collect();
        self.sample.drawn.push(Drawn {
            cluster,
            observations,
        });
        Ok(())
    }

    /// Measures one more slow cell on a cluster already drawn. It is the cell with the least evidence, so that the
    /// largest error shrinks. False when none is left.
    fn complete_one(&mut self) -> Result<bool> {
        let slow = (0..self.spent.len()).filter(|&cell| {
            let is_slow = self.sample.cells[cell].slow;
            is_slow && self.has_time_for(cell)
        });
        let mut cells: Vec<(f64, usize)> = slow.map(|cell| (self.width(cell), cell)).collect();
        cells.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut pairs = Vec::with_capacity(cells.len() * self.sample.groups.len());
        for (_, cell) in cells {
            let mut groups: Vec<usize> = (0..self.sample.groups.len()).collect();
            groups.sort_by(|a, b| self.satiety(cell, *a).total_cmp(&self.satiety(cell, *b)));
            pairs.extend(groups.into_iter().map(|group| (cell, group)));
        }
        let missing = |cell: usize, group: usize, drawn: &Drawn| {
            in_group(&drawn.observations, Some(group)).any(|found| found.cells[cell].is_none())
        };
        let Some((index, position)) = pairs.into_iter().find_map(|(cell, group)| {
            let drawn = &self.sample.drawn;
            let position = drawn.iter().position(|drawn| missing(cell, group, drawn))?;
            Some((cell, position))
        }) else {
            return Ok(false);
        };
        let cluster = self.sample.drawn[position].cluster;
        let blocks = self.read_cluster(cluster);
        let mut observations = self.sort_into_groups(&blocks);
        self.measure_cell(index, &blocks, &mut observations)?;
        for (_, found) in observations {
            for kept in &mut self.sample.drawn[position].observations {
                if kept.group == found.group {
                    kept.cells[index] = found.cells[index];
                }
            }
        }
        // A cluster that could not be measured again (the file is gone) must not be requested for ever.
        for kept in &mut self.sample.drawn[position].observations {
            kept.cells[index].get_or_insert_with(Sums::default);
        }
        Ok(true)
    }

    /// Measures each group again, one cluster of each after another, by the cheap methods in the files' blocks. The
    /// time of a group of a few blocks depends on the moment, so all its times are kept.
    fn repeat(&mut self) -> Result<()> {
        let mut factors = vec![Vec::new(); self.sample.groups.len()];
        let until = self.budget.draw_until() + self.budget.limit / REPEAT_TIME;
        'rounds: for round in 0..REPEATS {
            for (group, factors) in factors.iter_mut().enumerate() {
                if self.budget.elapsed() >= until {
                    break 'rounds;
                }
                self.repeat_group(group, round, factors)?;
            }
        }
        let told: Vec<f64> = factors
            .iter()
            .filter(|of| !of.is_empty())
            .cloned()
            .map(most_of)
            .collect();
        // A cell without a repeat differs as the worst of the others did, or by an unknown factor.
        let untold = told
            .iter()
            .copied()
            .reduce(f64::max)
            .unwrap_or(UNKNOWN_FACTOR);
        let of_group = |of: Vec<f64>| if of.is_empty() { untold } else { most_of(of) };
        self.sample.repeat_factors = factors.into_iter().map(of_group).collect();
        Ok(())
    }

    fn repeat_group(&mut self, group: usize, round: usize, factors: &mut Vec<f64>) -> Result<()> {
        let drawn = self.sample.drawn.iter().enumerate();
        let holds = |drawn: &Drawn| in_group(&drawn.observations, Some(group)).next().is_some();
        let positions = drawn.filter(|(_, drawn)| holds(drawn));
        let positions: Vec<usize> = positions.map(|(at, _)| at).take(REPEATS).collect();
        // A changed file may have added a group without draws.
        if positions.is_empty() {
            return Ok(());
        }
        let position = positions[round % positions.len()];
        let blocks = self.read_cluster(self.sample.drawn[position].cluster);
        let mut observations = self.sort_into_groups(&blocks);
        observations.retain(|(_, found)| found.group == group);
        for index in 0..self.sample.cells.len() {
            let cell = self.sample.cells[index];
            if cell.slow || cell.block_bytes != self.block_bytes {
                continue;
            }
            self.measure_cell(index, &blocks, &mut observations)?;
            let again = observations
                .first()
                .and_then(|(_, found)| found.cells[index]);
            let mut kept = self.sample.drawn[position].observations.iter_mut();
            let kept = kept.find(|kept| kept.group == group);
            let kept = kept.and_then(|kept| kept.cells[index].as_mut());
            // A file that was replaced says nothing.
            let same = again
                .zip(kept)
                .filter(|(again, kept)| again.raw_bytes == kept.raw_bytes);
            if let Some((again, kept)) = same {
                factors.push(join(kept, &again, 1 + round / positions.len()));
            }
        }
        Ok(())
    }

    /// The half-width of a cell's ratio on all data, as a share of it. A cell without a ratio counts as wider the fewer
    /// its measurements.
    fn width(&self, cell: usize) -> f64 {
        match self.sample.sampled(None, cell) {
            Some(CellEstimate { stored_per_raw, .. }) => {
                (stored_per_raw.high - stored_per_raw.mean) / stored_per_raw.mean
            }
            None => f64::MAX / (1 + self.spent[cell].1) as f64,
        }
    }

    /// Returns how little a slow cell deserves another measurement on a group. Counts in proportion to the group's
    /// share of the bytes, over the square root of the cost, are optimal (Cochran, section 5.5).
    fn satiety(&self, cell: usize, group: usize) -> f64 {
        let (seconds, count) = self.spent[cell];
        let measured = self.measured.get(&(cell, group)).copied().unwrap_or(0);
        let share =
            self.sample.group_raw_bytes(group) as f64 / self.sample.raw_bytes().max(1) as f64;
        measured as f64 * (seconds / count.max(1) as f64).sqrt() / share.max(0.01)
    }

    /// Returns the slow cell to measure on the present cluster, if one is due.
    fn next_slow_cell(&self, observations: &[(Vec<usize>, Observation)]) -> Option<usize> {
        let (_, largest) = observations
            .iter()
            .max_by_key(|(_, found)| found.raw_bytes)?;
        let next = (0..self.spent.len())
            .filter(|cell| self.sample.cells[*cell].slow && largest.cells[*cell].is_none())
            .min_by(|a, b| {
                self.satiety(*a, largest.group)
                    .total_cmp(&self.satiety(*b, largest.group))
            })?;
        // The first answer comes first: no slow method runs before a few clusters.
        let begun = self.sample.drawn.len() >= 4 || self.sample.cluster_count < 4;
        (begun && self.budget.allows_slow()).then_some(next)
    }

    fn measure_cell(
        &mut self,
        index: usize,
        blocks: &[Block],
        observations: &mut [(Vec<usize>, Observation)],
    ) -> Result<()> {
        let cell = self.sample.cells[index];
        let begun = self.budget.elapsed();
        // Pages of the same length lie alone.
        let is_extent = cell.block_bytes == EXTENT_BLOCK_BYTES && !self.has_long_pages;
        let window_min = match is_extent {
            true => EXTENT_RUN_BYTES,
            false => cell.block_bytes,
        };
        for (members, observation) in observations {
            let (mut slices, mut runs): (Vec<&[u8]>, Vec<ExtentRun>) = (Vec::new(), Vec::new());
            let mut parts = Vec::with_capacity(members.len());
            // Members are sorted by their kind, so small blocks begin at any of them. Extents are cut from all.
            let window_bytes = self.window_bytes.max(window_min);
            let mut left = if is_extent { usize::MAX } else { window_bytes };
            let (before, from) =
                members.split_at((self.window_place * members.len() as f64) as usize);
            for member in from.iter().chain(before) {
                let block = blocks[*member].bytes(&self.buffer);
                let before = slices.len();
                if cell.block_bytes >= self.block_bytes {
                    slices.extend(block.chunks(cell.block_bytes));
                    parts.push(FilePart {
                        blocks: slices.len() - before,
                        ends_file: blocks[*member].ends_file,
                    });
                } else if left > 0 {
                    let window = window(block, window_bytes, self.window_place);
                    left = left.saturating_sub(window.len());
                    slices.extend(window.chunks(cell.block_bytes));
                }
                let of_run = slices[before..].chunks(EXTENT_RUN_BYTES / EXTENT_BLOCK_BYTES);
                runs.extend(of_run.map(|of_run| ExtentRun {
                    extents: of_run.len(),
                    is_file: blocks[*member].is_file,
                }));
            }
            if cell.slow {
                *self.measured.entry((index, observation.group)).or_default() += 1;
            }
            observation.cells[index] = if slices.is_empty() {
                None
            } else {
                let mut sums = self.bench.measure(cell.method, &slices)?;
                if !parts.is_empty() {
                    self.bench.count_files(&mut sums, &slices, &parts);
                }
                if is_extent {
                    self.bench.count_runs(&mut sums, &slices, &runs);
                }
                Some(sums)
            };
        }
        let now = self.budget.elapsed();
        let (seconds, count) = &mut self.spent[index];
        *seconds += (now - begun).as_secs_f64();
        *count += 1;
        Ok(())
    }

    /// Reads a window of a cluster and stores it by one method.
    fn glance_at(&mut self, cluster: u64) -> Result<()> {
        self.population.pieces(cluster, &mut self.pieces);
        let cluster_bytes: u64 = self.pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
        let place = glance::place(self.seed, self.sample.glances.len());
        cut(&mut self.pieces, place, GLANCE_BYTES as u64);
        let vanished = self.sample.vanished_pieces;
        let blocks = self.read_pieces();
        // Counted once, when the cluster is drawn.
        self.sample.vanished_pieces = vanished;
        let sums = self.measure_glance(&blocks)?;
        let cluster_bytes = if sums.raw_bytes > 0 { cluster_bytes } else { 0 };
        self.sample.glances.push(Glance {
            cluster_bytes: cluster_bytes as f64,
            raw_bytes: sums.raw_bytes,
            stored_per_raw: share(&sums),
            whole_stored_per_raw: None,
        });
        Ok(())
    }

    /// Stores blocks by the last cheap method in the blocks of a glance. Returns nothing without such a method or any
    /// byte.
    fn measure_glance(&mut self, blocks: &[Block]) -> Result<Sums> {
        let cells = self.sample.cells.iter();
        let mut of_files = cells.filter(|cell| !cell.slow && cell.block_bytes == self.block_bytes);
        let Some(cell) = of_files.next_back() else {
            return Ok(Sums::default());
        };
        let glanced = |block: &Block| {
            let bytes = block.start..block.start + block.length;
            self.buffer[bytes].chunks(GLANCE_BYTES.min(self.block_bytes))
        };
        let slices: Vec<&[u8]> = blocks.iter().flat_map(glanced).collect();
        if slices.is_empty() {
            return Ok(Sums::default());
        }
        self.bench.measure(cell.method, &slices)
    }

    /// Reads the pieces of a cluster into the buffer, and skips unreadable ones.
    fn read_cluster(&mut self, cluster: u64) -> Vec<Block> {
        self.population.pieces(cluster, &mut self.pieces);
        self.window_place = fastrand::Rng::with_seed(self.seed ^ (cluster << 1)).f64();
        self.read_pieces()
    }

    fn read_pieces(&mut self) -> Vec<Block> {
        self.buffer.clear();
        let mut blocks = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            let start = self.buffer.len();
            self.buffer.resize(start + piece.bytes as usize, 0);
            let item = self.population.item(piece.item);
            let target = &mut self.buffer[start..];
            let read = self.population.read(piece, target);
            if read < target.len() {
                self.sample.vanished_pieces += 1;
            }
            self.buffer.truncate(start + read);
            if read > 0 {
                blocks.push(Block {
                    start,
                    length: read,
                    ends_file: piece.offset + u64::from(piece.bytes) >= item.bytes,
                    is_file: read as u64 >= item.length,
                    label: item.label,
                });
            }
        }
        blocks
    }

    /// Sorts blocks into groups: the members of each, and an observation without measurements.
    fn sort_into_groups(&mut self, blocks: &[Block]) -> Vec<(Vec<usize>, Observation)> {
        let mut sorted: Vec<(Vec<usize>, Observation)> = Vec::new();
        for (member, block) in blocks.iter().enumerate() {
            let group = match block.label {
                Some(label) => Group::Label(label),
                None => Group::Class(Class::content(&Features::of(block.bytes(&self.buffer)))),
            };
            let known = self.sample.groups.iter().position(|known| *known == group);
            let group = known.unwrap_or_else(|| {
                self.sample.groups.push(group);
                self.sample.groups.len() - 1
            });
            let raw_bytes = block.length as u64;
            match sorted
                .iter_mut()
                .find(|(_, observation)| observation.group == group)
            {
                Some((members, observation)) => {
                    members.push(member);
                    observation.raw_bytes += raw_bytes;
                }
                None => {
                    let cells = vec![None; self.sample.cells.len()];
                    sorted.push((
                        vec![member],
                        Observation {
                            group,
                            raw_bytes,
                            cells,
                        },
                    ));
                }
            }
        }
        sorted
    }
}

/// One block in the buffer: a piece that was read.
struct Block {
    start: usize,
    length: usize,
    ends_file: bool,
    /// Whether it is all of a file.
    is_file: bool,
    label: Option<&'static str>,
}

impl Block {
    fn bytes<'b>(&self, buffer: &'b [u8]) -> &'b [u8] {
        &buffer[self.start..self.start + self.length]
    }
}

/// A stretch of at most `bytes`, aligned to 16 KiB, or a whole run, at a `place` from 0 to 1 of the block.
fn window(block: &[u8], bytes: usize, place: f64) -> &[u8] {
    if block.len() <= bytes {
        return block;
    }
    let step = match bytes {
        EXTENT_RUN_BYTES => bytes,
        _ => 16 << 10,
    };
    let steps = (block.len() - bytes) / step + 1;
    let start = ((place * steps as f64) as usize).min(steps - 1) * step;
    &block[start..start + bytes]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::population::{Content, Item};
    use crate::codec::{Compressor, Method};
    use crate::units::Seconds;

    fn options(precision: f64) -> SampleOptions {
        let method = |text: &str| text.parse().expect("a method");
        SampleOptions {
            precision,
            // No test depends on the load of the machine.
            time_limit: Duration::from_secs(100_000),
            block_bytes: 64 << 10,
            cheap: vec![method("lz4:1"), method("zstd:1")],
            slow: vec![method("zstd:9"), method("xz:1")],
            ..SampleOptions::default()
        }
    }

    /// Files of text-like, number-like and random bytes, 7.5 MiB in all.
    fn mixed_folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut random = fastrand::Rng::with_seed(5);
        for index in 0..12 {
            let bytes: Vec<u8> = match index % 3 {
                0 => (0..640 << 10)
                    .map(|_| b"etaoin shrdlu\n"[random.usize(..14)])
                    .collect(),
                1 => (0..80u64 << 10)
                    .flat_map(|n| (n * n / 1000 + random.u64(..8)).to_le_bytes())
                    .collect(),
                _ => (0..640 << 10).map(|_| random.u8(..)).collect(),
            };
            std::fs::write(folder.path().join(format!("file{index}")), bytes).expect("a file");
        }
        folder
    }

    fn draw(folder: &tempfile::TempDir, options: &SampleOptions) -> Sample {
        let paths = [folder.path().to_path_buf()];
        let population = Population::walk(&paths, Duration::from_secs(30), 1).expect("a walk");
        let stop = AtomicBool::new(false);
        Sample::draw(&population, options, &stop, &mut |_| {}).expect("a sample")
    }

    /// Stored bytes over raw bytes of every block of every file.
    fn truth(folder: &tempfile::TempDir, method: Method, block_bytes: usize) -> f64 {
        let mut compressor = Compressor::new();
        let (mut raw, mut stored) = (0, 0);
        let mut target = vec![0; block_bytes];
        for entry in std::fs::read_dir(folder.path()).expect("a folder") {
            let bytes = std::fs::read(entry.expect("an entry").path()).expect("a file");
            for block in bytes.chunks(block_bytes) {
                let limit = &mut target[..block.len() - 1];
                let size = compressor
                    .compress(method, block, limit)
                    .expect("compressing");
                raw += block.len();
                stored += size.unwrap_or(block.len());
            }
        }
        stored as f64 / raw as f64
    }

    #[test]
    fn a_census_is_exact_for_every_method_and_block() {
        let folder = mixed_folder();
        // The last page of a file is seldom full, and some files are shorter than one.
        let page = &b"the last page "[..];
        for (name, bytes) in [("odd", 5_001), ("short", 700)] {
            let bytes: Vec<u8> = page.iter().copied().cycle().take(bytes).collect();
            std::fs::write(folder.path().join(name), bytes).expect("a file");
        }
        let sample = draw(&folder, &options(0.0));
        assert_eq!(sample.clusters().0 as u64, sample.clusters().1);
        for (index, cell) in sample.cells().iter().enumerate() {
            let estimate = sample
                .estimate(None, index)
                .expect("an estimate")
                .stored_per_raw;
            let expected = truth(&folder, cell.method, cell.block_bytes);
            assert!(
                (estimate.mean - expected).abs() < 1e-9,
                "{cell:?}: {estimate:?}, {expected}"
            );
            assert_eq!(estimate.low, estimate.high, "{cell:?}");
        }
        assert!(sample.repeat_factor(None) >= 1.0);
        let bytes: f64 = (0..sample.groups().len())
            .map(|group| sample.group_bytes(Some(group)).mean)
            .sum();
        let written = ((7680 << 10) + 5_701) as f64;
        assert!((bytes / written - 1.0).abs() < 1e-9, "{bytes}");
    }

    /// A repeat is taken into the mean of the earlier times, and shows by how much a time differs.
    #[test]
    fn a_repeat_widens_by_what_it_differs() {
        let took = |seconds: f64| Sums {
            encode_seconds: 0.75 * seconds,
            decode_seconds: 0.25 * seconds,
            ..Sums::default()
        };
        let mut kept = took(1.0);
        let factors = [2.0, 1.5, 0.75, 0.0].map(took);
        let factors = [1, 2, 3, 4].map(|times| join(&mut kept, &factors[times - 1], times));
        let expected = [2.0, 1.0, 2.0, UNKNOWN_FACTOR];
        assert_eq!(factors, expected);
        assert!(
            (kept.encode_seconds - 0.75 * 1.05).abs() < 1e-12,
            "{kept:?}"
        );
        assert!(
            (kept.decode_seconds - 0.25 * 1.05).abs() < 1e-12,
            "{kept:?}"
        );
        assert_eq!(most_of(vec![1.1, 9.0, 1.3, 1.2]), 9.0);
        assert_eq!(most_of(vec![1.1, 9.0, 1.3, 1.2, 1.0]), 1.3);
        assert_eq!(most_of(Vec::new()), 1.0);
        let mut still = took(0.0);
        assert_eq!(join(&mut still, &took(0.0), 1), UNKNOWN_FACTOR);
    }

    #[test]
    fn each_class_is_measured_again() {
        let sample = draw(&mixed_folder(), &options(0.0));
        let groups = 0..sample.groups().len();
        let factors: Vec<f64> = groups.map(|of| sample.repeat_factor(Some(of))).collect();
        assert!(
            factors.len() > 1 && factors.iter().all(|of| *of >= 1.0),
            "{factors:?}"
        );
        let [least, most] =
            [f64::min, f64::max].map(|of| factors.iter().copied().fold(factors[0], of));
        let all = sample.repeat_factor(None);
        assert!(least <= all && all <= most, "{all} of {factors:?}");
    }

    #[test]
    fn what_cannot_be_read_widens_the_interval() {
        let folder = mixed_folder();
        let paths = [folder.path().to_path_buf()];
        let population = Population::walk(&paths, Duration::from_secs(30), 1).expect("a walk");
        // Half of the lost bytes are files of random bytes, and nothing shows that.
        for index in [1, 2, 4, 5, 7, 8] {
            std::fs::remove_file(folder.path().join(format!("file{index}"))).expect("removed");
        }
        let stop = AtomicBool::new(false);
        let sample =
            Sample::draw(&population, &options(0.0), &stop, &mut |_| {}).expect("a sample");
        assert_eq!(sample.unread_bytes, 6 * (640 << 10));
        for cell in 0..sample.cells().len() {
            let Some(estimate) = sample.estimate(None, cell) else {
                continue;
            };
            let Estimate { mean, low, high } = estimate.stored_per_raw;
            assert!(
                low <= 0.51 * mean && high >= 0.5 * mean + 0.49,
                "{estimate:?}"
            );
        }
    }

    /// Files of one kind each, large beside small: the evidence of four mebibytes on all of them.
    #[test]
    fn a_sample_is_spread_over_files_before_it_is_deep_in_one() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut random = fastrand::Rng::with_seed(3);
        let letters = b"etaoin shrdlu,.\n0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH";
        let mut write = |name: String, kind: usize, bytes: usize| {
            let few = [2, 8, 60, 256][kind % 4];
            let bytes: Vec<u8> = (0..bytes)
                .map(|_| match few {
                    256 => random.u8(..),
                    few => letters[random.usize(..few.min(letters.len()))],
                })
                .collect();
            std::fs::write(folder.path().join(name), bytes).expect("a file");
        };
        for kind in 0..16 {
            write(format!("large{kind}"), kind, 1 << 20);
        }
        for kind in 0..100 {
            write(format!("small{kind}.{}", kind % 4), kind, 80 << 10);
        }
        let method: Method = "lz4:1".parse().expect("a method");
        let options = |seed| SampleOptions {
            seed,
            precision: 0.0,
            cheap: vec![method],
            slow: Vec::new(),
            small_block_bytes: Vec::new(),
            time_limit: Duration::from_secs(100_000),
            ..SampleOptions::default()
        };
        let paths = [folder.path().to_path_buf()];
        let expected = truth(&folder, method, 1 << 20);
        let errors = (1..=20).map(|seed| {
            let population = Population::walk(&paths, Duration::from_secs(30), seed);
            let stop = AtomicBool::new(false);
            let population = population.expect("a walk");
            let sample = Sample::draw(&population, &options(seed), &stop, &mut |sample| {
                stop.store(sample.read_bytes() > 3 << 20, Ordering::Relaxed);
            });
            let sample = sample.expect("a sample");
            assert!(sample.read_bytes() < 5 << 20, "{}", sample.read_bytes());
            let estimate = sample.estimate(None, 0).expect("an estimate");
            (estimate.stored_per_raw.mean / expected - 1.0).abs()
        });
        let mut errors: Vec<f64> = errors.collect();
        errors.sort_by(f64::total_cmp);
        println!("median error of 20 seeds: {}", errors[10]);
        assert!(errors[10] < 0.1, "{errors:?}");
    }

    #[test]
    fn blocks_are_as_long_as_files_allow() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (index, bytes) in [3000, 5000, 7000].into_iter().enumerate() {
            std::fs::write(folder.path().join(index.to_string()), vec![b'a'; bytes])
                .expect("a file");
        }
        let sample = draw(&folder, &options(0.0));
        assert_eq!(sample.groups().len(), 1);
        assert_eq!(sample.mean_block_bytes(0, 64 << 10), Some(5000));
        assert_eq!(sample.mean_block_bytes(0, 32 << 10), None);
        assert_eq!(sample.mean_block_bytes(0, 4 << 10), Some(3000));
    }

    /// The clock advances with every reading, as on a machine where everything takes long.
    #[test]
    fn a_sample_keeps_to_its_time_however_many_kinds_there_are() {
        let label = |kind: u64| -> &'static str { format!("kind {kind}").leak() };
        let items = (0..40).map(|kind| Item {
            content: Content::Random { seed: kind },
            bytes: 1 << 20,
            length: 1 << 20,
            label: Some(label(kind)),
        });
        let population = Population::from_items(Vec::new(), items.collect()).expect("items");
        let now = std::cell::Cell::new(0.0);
        let look = || {
            now.set(now.get() + 0.1);
            Seconds(now.get())
        };
        let clock = Clock {
            now: &look,
            wait: &|_| {},
        };
        let options = SampleOptions {
            time_limit: Duration::from_secs(20),
            slow: Vec::new(),
            small_block_bytes: Vec::new(),
            ..options(0.0)
        };
        let stop = AtomicBool::new(false);
        let sample = Sample::draw_by(&population, &options, &stop, &mut |_| {}, clock);
        let sample = sample.expect("a sample");
        assert_eq!(sample.ended, Ended::Time);
        assert!(sample.groups().len() > 5, "{}", sample.groups().len());
        // Half of it is kept for the verdicts of a busy machine, and a tenth may go into measuring again.
        assert!(now.get() < 0.7 * 20.0, "{} s", now.get());
        // The steadiness of the machine is unknown for kinds without a repeat.
        let factors = 0..sample.groups().len();
        assert!(
            factors
                .map(|of| sample.repeat_factor(Some(of)))
                .all(|of| of >= 1.0)
        );
    }

    #[test]
    fn a_stopped_sample_has_an_answer() {
        let folder = mixed_folder();
        let paths = [folder.path().to_path_buf()];
        let population = Population::walk(&paths, Duration::from_secs(30), 1).expect("a walk");
        let stop = AtomicBool::new(true);
        let sample =
            Sample::draw(&population, &options(0.0), &stop, &mut |_| {}).expect("a sample");
        assert_eq!((sample.clusters().0, sample.repeat_factor(None)), (1, 1.0));
        let slow = sample.cells().iter().position(|cell| cell.slow);
        let slow = sample.estimate(None, slow.expect("a slow method"));
        assert!(slow.is_none(), "nobody waits for slow methods: {slow:?}");
        let estimate = sample
            .estimate(None, 0)
            .expect("an estimate")
            .stored_per_raw;
        assert!(
            estimate.mean > 0.0 && estimate.low < estimate.mean,
            "{estimate:?}"
        );
    }

    #[test]
    fn files_that_vanish_or_shrink_are_counted() {
        let folder = mixed_folder();
        let paths = [folder.path().to_path_buf()];
        let population = Population::walk(&paths, Duration::from_secs(30), 1).expect("a walk");
        std::fs::remove_file(folder.path().join("file0")).expect("removed");
        std::fs::write(folder.path().join("file1"), b"short").expect("shortened");
        let stop = AtomicBool::new(false);
        let sample =
            Sample::draw(&population, &options(0.0), &stop, &mut |_| {}).expect("a sample");
        assert!(sample.vanished_pieces > 1);
        assert!(sample.estimate(None, 0).is_some());
    }
}
