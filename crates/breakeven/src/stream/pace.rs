//! The level of each job of a long frame, so that workers and link keep each other busy.
//!
//! The bytes that are compressed and not yet taken by the sink are a queue, and the link has something to send for its
//! length. The chooser considers the levels at which a worker finishes the job in that time, and picks the one that
//! stores least. A late job costs without end, and among levels within [`TIE_SHARE`] the lightest is taken. So a long
//! queue becomes smaller bytes, and a short one lighter work. Where the balance lies between two levels, the jobs share
//! their time between them. With a promised time, the rest of that time replaces the queue.
//!
//! The speed of a link that was not given shows in the time that the sink takes for its bytes. Until then the link is
//! assumed to be slow. That loses some ms on a fast link; the opposite would lose a second on a slow one.
//!
//! The time of a level follows from the core time of the last jobs, and from the profile's proportions between levels.
//! So the next job follows a change of the data, over any number of levels, and a wait for the sink changes nothing.
//! Where other programs use the processors, a core second takes longer: by the time that threads waited for a core.
//! This decides from the first jobs on.
//!
//! Reads no clock, and knows nothing of the data.

use std::collections::VecDeque;

use super::books::{LinkBasis, SeenLink, Sums, least_saved};
use super::price::HIDDEN_BYTES;
use crate::codec::{Codec, Method};
use crate::decide::{
    BlockLife, Candidate, Chooser, ChooserOptions, Class, Prices, Profile, Quantities, Terms,
};
use crate::units::{BytesPerSecond, Estimate, Seconds};

/// The target that a long frame's levels follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Ends as early as possible over a link of this speed (Hirsch's S1).
    Fastest(BytesPerSecond),
    /// As small as possible within this factor of the content's uncompressed time over such a link (S2 and S3).
    Within(f64, BytesPerSecond),
}

impl Pace {
    /// Returns the link's speed.
    pub fn link(self) -> BytesPerSecond {
        match self {
            Pace::Fastest(link) | Pace::Within(_, link) => link,
        }
    }
}

/// The levels, each smaller and slower than the one before on nearly all data. Denser ones would take more memory
/// than a pipe is worth, and save some percent.
const LEVELS: [i8; 7] = [1, 3, 5, 6, 7, 9, 12];
/// The share of the bytes, and so of the link's time, that is not worth more work.
const TIE_SHARE: f64 = 0.02;
/// Speeds of a link, in bytes a second over the workers, up to which a worker keeps up with each of the levels above on
/// text. A stream begins there, before any measurement.
const LINKS: [f64; 6] = [6e7, 1.5e7, 8e6, 5e6, 3e6, 1e6];
/// The speed of a link, in bytes a second over the workers, below which searching the whole window for matches pays.
/// The search takes 1 to 1.5 ns a byte. It saves 15 to 20 % of the stored bytes, on a tar of documents and sources and
/// on headers.
const FAR_LINK: f64 = 2e7;
/// The shortest job, as the first ones are, so that the link begins soon.
const JOB_BYTES_MIN: usize = 256 << 10;
/// The longest job; the next ones see little of it. With 4 MiB a tar of documents and sources took 2 % more bytes. With
/// 32 MiB it took 4 % fewer, and three times the memory.
pub const JOB_BYTES_MAX: usize = 8 << 20;
/// The rest of a queue at the end of a job that was picked by it, for jobs that take longer than expected.
const QUEUE_SECONDS_KEPT: f64 = 0.005;
/// The assumed speed of a link before it shows: a slow one, at level 3, which suits most streams.
const LINK_UNTOLD: BytesPerSecond = BytesPerSecond(12e6);
const FIRST_UNTOLD: usize = 1;
/// Bytes that a pipe may hold (man 7 pipe: pipe-max-size).
const PIPE_BYTES: u64 = 1 << 20;
/// Bytes a second that a sink exceeds while it only holds the bytes: a link that shows less than this is slow at once.
const SLOW_LINK: f64 = 4e7;
/// Bytes that a sink may hold, and must have taken before it counts as fast. Linux lets the send buffer of a TCP
/// connection grow to so many.
const HELD_BYTES: u64 = 4 << 20;
/// Bytes after which observations of a link count half.
const HALF_LIFE_BYTES: f64 = (256 << 10) as f64;
/// The share of time that a sink must be at work before its intake shows its speed.
const BEHIND_SHARE: f64 = 0.5;
/// The factor by which the assumed speed of a link grows after each job without being behind.
const GROWN: f64 = 1.25;
/// The least expected core seconds of jobs to learn from: those of the shortest job.
const LEARNED_SECONDS_MIN: f64 = 1e-3;
/// Bytes of a job by a level without recent jobs, one at a time, since its time is a guess. On some text it was five
/// times that of others, and the link was idle for 0.5 s.
const TRIED_BYTES: usize = 1 << 20;
const KNOWN_JOBS: u32 = 32;
/// The share of the knowledge of a level that is forgotten with each look.
const FORGOTTEN: f64 = 0.05;
/// Core seconds after which the observed waits for a core count half: as many as some of the longest jobs take.
const CONTENTION_HALF_LIFE: f64 = 0.05;
/// Weight of the last job in the mean.
const LAST_WEIGHT: f64 = 0.25;
/// The index of the densest level, which only a promised time reaches. Its tables take 30 MB a worker more. It saves 1
/// to 2 % of the bytes for twice the core time.
const DENSEST: usize = LEVELS.len() - 1;

/// Picks levels and lengths of jobs, one after the other.
#[derive(Clone, Debug)]
pub struct Pacer {
    pace: Pace,
    workers: usize,
    /// The densest level that may be used.
    last: usize,
    jobs: u32,
    /// Picks among [`LEVELS`].
    chooser: Chooser,
    /// Expected core seconds and stored bytes of a byte at each of them; only the proportions count.
    work: [f64; LEVELS.len()],
    shares: [f64; LEVELS.len()],
    /// Bytes of content that shrinks, for each picked level.
    picked: [f64; LEVELS.len()],
    /// The time of jobs over the expected time, as a mean; 0 until something is known.
    scale: f64,
    /// The same of jobs of each level; a level without new jobs approaches the mean.
    scales: [f64; LEVELS.len()],
    /// The level of the last job that is done.
    latest: usize,
    /// For each level, the jobs that were begun when one of it was last seen done.
    seen_at: [Option<u32>; LEVELS.len()],
    contention: Contention,
    /// Stored bytes of a raw byte, as a mean.
    stored: f64,
    /// Jobs of content that shrinks since the last one that does not.
    usual: usize,
    /// Jobs that are not done, the latest last.
    begun: VecDeque<Begun>,
    /// Expected core seconds of the finished jobs.
    done: f64,
    /// The state at the last update of the mean.
    learned: Learned,
    /// The evidence about a link of unknown speed.
    seen: Option<Seen>,
    /// Bytes that the sink had taken when jobs became as light as possible.
    light_from: Option<u64>,
}

/// The bytes and times of a link, the latest with the most weight.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    sums: Sums,
    /// All looks in which the pipeline waited for the link; they do not fade.
    all: Sums,
    /// Total bytes and seconds at the last look.
    last: (u64, f64),
    /// When that was.
    at: f64,
    /// Whether its speed is known from an earlier stream.
    was_shown: bool,
    /// Whether the pipeline ever waited for it: until then it seems as fast as memory.
    was_behind: bool,
}

impl Seen {
    /// Adds the total bytes that the sink has taken, and the time of its writes.
    fn see(&mut self, at: &Standing) {
        let new = (at.sunk_bytes - self.last.0) as f64;
        let took = at.sinking.0 - self.last.1;
        let is_behind = took > BEHIND_SHARE * (at.now.0 - self.at);
        self.last = (at.sunk_bytes, at.sinking.0);
        self.at = at.now.0;
        if self.was_behind && !is_behind {
            if new > 0.0 {
                // This only shows that it takes more than it is given.
                let fastest = self.sums.bytes * took / new;
                self.sums.seconds = (self.sums.seconds / GROWN).max(fastest);
            }
            return;
        }
        let kept = match self.was_behind == is_behind {
            true => f64::exp2(-new / HALF_LIFE_BYTES),
            false => 0.0,
        };
        self.was_behind = is_behind;
        self.sums.fade(kept);
        self.sums.add(new, took);
        if is_behind {
            self.all.add(new, took);
        }
    }

    /// Returns the densest level before the speed shows: a slow link does not send more than a pipe can hold.
    fn densest_untold(&self) -> usize {
        match self.last.0 < PIPE_BYTES {
            true => FIRST_UNTOLD,
            false => 0,
        }
    }

    /// Returns the link's speed; `None` before it shows. A slow one shows at once, and one that takes much may only
    /// hold it.
    fn speed(&self) -> Option<BytesPerSecond> {
        let speed = self.sums.speed();
        let is_shown = self.was_shown || self.last.0 >= HELD_BYTES || speed.0 < SLOW_LINK;
        (is_shown && self.sums.bytes > 0.0).then_some(speed)
    }

    /// Returns the link with its mean time for a byte; its speed is that of the last bytes.
    fn link(&self) -> Option<SeenLink> {
        let sums = if self.all.bytes > 0.0 {
            &self.all
        } else {
            &self.sums
        };
        Some(SeenLink {
            speed: self.speed()?,
            seconds_per_byte: sums.seconds_per_byte(),
            basis: LinkBasis::Measured,
        })
    }
}

/// The length of core seconds, the latest with the most weight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Contention {
    /// Seconds on a core, and of waiting for one.
    core: f64,
    waiting: f64,
    /// Both totals at the last look.
    last: Option<[f64; 2]>,
}

impl Contention {
    /// Adds the total core seconds of the process, and the total time that its threads waited for a core.
    pub fn see(&mut self, core: Seconds, waiting: Seconds) {
        let now = [core.0, waiting.0];
        let last = self.last.replace(now).unwrap_or(now);
        let [core, waiting] = [now[0] - last[0], now[1] - last[1]];
        let kept = f64::exp2(-core / CONTENTION_HALF_LIFE);
        self.core = kept * self.core + core;
        // Threads that ended take their shares with them.
        self.waiting = kept * self.waiting + waiting.max(0.0);
    }

    /// Returns the seconds that pass for each core second: 1 where no other program uses the cores.
    pub fn stretch(&self) -> f64 {
        match self.core > 0.0 {
            true => 1.0 + self.waiting / self.core,
            false => 1.0,
        }
    }
}

/// A job that was picked.
#[derive(Clone, Copy, Debug)]
struct Begun {
    /// The content before its end.
    end: u64,
    bytes: u64,
    /// Of [`LEVELS`].
    level: usize,
    is_hopeless: bool,
}

/// Where a stream stood.
#[derive(Clone, Copy, Debug, Default)]
struct Learned {
    /// Core seconds, observed and expected.
    core: f64,
    expected: f64,
    consumed: u64,
    produced: u64,
}

/// The state of a stream when a job is picked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    /// Since the stream began.
    pub now: Seconds,
    /// Content that was handed to the workers.
    pub raw_bytes: u64,
    /// Content still to come, if that is known.
    pub left_bytes: Option<u64>,
    /// Bytes that workers have compressed so far.
    pub consumed_bytes: u64,
    /// The bytes of their output.
    pub produced_bytes: u64,
    /// Bytes of these that the sink has taken.
    pub sunk_bytes: u64,
    /// Total time of the sink's writes.
    pub sinking: Seconds,
    /// Core time that the process has used.
    pub core: Seconds,
    /// Total time for which its threads were ready and had no core.
    pub waiting: Seconds,
    /// Whether the content of the job does not shrink, at any level.
    pub is_hopeless: bool,
}

/// A job to be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    pub level: i8,
    pub bytes: usize,
}

impl Pacer {
    /// Begins at the usual level for a link of this speed.
    ///
    /// # Panics
    ///
    /// If there are no workers, or the link has no speed.
    pub fn new(pace: Pace, workers: usize) -> Pacer {
        let link = pace.link().0;
        assert!(
            workers > 0 && link > 0.0,
            "{workers} workers, {link} bytes a second"
        );
        let is_promised = matches!(pace, Pace::Within(..));
        let last = DENSEST - usize::from(!is_promised);
        let (chooser, [work, shares]) = levels(if is_promised { 0.0 } else { TIE_SHARE });
        Pacer {
            pace,
            chooser,
            work,
            shares,
            picked: [0.0; LEVELS.len()],
            workers,
            last,
            jobs: 0,
            scale: 0.0,
            scales: [0.0; LEVELS.len()],
            latest: 0,
            seen_at: [None; LEVELS.len()],
            contention: Contention::default(),
            stored: 0.0,
            usual: 0,
            begun: VecDeque::new(),
            done: 0.0,
            learned: Learned::default(),
            seen: None,
            light_from: None,
        }
    }

    /// Begins for an unknown link.
    ///
    /// # Panics
    ///
    /// If there are no workers.
    pub fn untold(workers: usize) -> Pacer {
        Pacer {
            seen: Some(Seen::default()),
            ..Pacer::new(Pace::Fastest(LINK_UNTOLD), workers)
        }
    }

    /// Begins for a link that was seen to have this speed, which may change.
    ///
    /// # Panics
    ///
    /// As [`Pacer::new`].
    pub fn following(link: BytesPerSecond, workers: usize) -> Pacer {
        let sums = Sums {
            bytes: HALF_LIFE_BYTES,
            seconds: HALF_LIFE_BYTES / link.0,
            ..Sums::default()
        };
        let seen = Seen {
            sums,
            was_shown: true,
            was_behind: true,
            ..Seen::default()
        };
        Pacer {
            seen: Some(seen),
            ..Pacer::new(Pace::Fastest(link), workers)
        }
    }

    /// Returns the evidence about a link of unknown speed, once the speed shows.
    pub fn seen(&self) -> Option<SeenLink> {
        self.seen?.link()
    }

    /// Returns the bytes that the sink has taken since jobs became as light as possible. If it was never behind on any
    /// of them, it waits for the workers.
    pub fn light_bytes(&self) -> u64 {
        let taken = self.seen.map_or(0, |seen| seen.last.0);
        self.light_from.map_or(0, |from| taken - from)
    }

    /// Returns the core seconds that the last hundredth of the link's time cost, by the expected sizes of levels. A
    /// stream that takes 1 % longer would have saved so many. `None` before anything is known, and where a time is
    /// promised.
    pub fn last_percent(&self) -> Option<Seconds> {
        let (raw, link): (f64, f64) = (self.picked.iter().sum(), self.pace.link().0);
        let stored = self
            .picked
            .iter()
            .zip(&self.shares)
            .map(|(raw, share)| raw * share);
        let ways = self.shares.iter().zip(&self.work).take(self.last + 1);
        let ways = ways
            .map(|(share, work)| [raw * share / link, raw * work * self.scale])
            .collect();
        let is_fast = matches!(self.pace, Pace::Fastest(_)) && self.scale > 0.0;
        is_fast.then(|| Seconds(least_saved(&[ways], stored.sum::<f64>() / link)))
    }

    /// Returns the number of threads that it picks for.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Returns whether the whole long window is searched for matches.
    ///
    /// In content that does not shrink by itself, such as packed documents in an archive, far matches cost nothing and
    /// are many. But the text behind it then took 1.8 times the core seconds, one worker at a time.
    pub fn matches_far(&self) -> bool {
        let is_known = self.seen.is_none_or(|seen| seen.speed().is_some());
        is_known && self.pace.link().0 / (self.workers as f64) < FAR_LINK
    }

    /// Picks the next job.
    pub fn job(&mut self, at: &Standing) -> Job {
        if let Some(seen) = &mut self.seen {
            seen.see(at);
            self.pace = Pace::Fastest(seen.speed().unwrap_or(LINK_UNTOLD));
        }
        self.contention.see(at.core, at.waiting);
        self.learn(at);
        let bytes = self.length(at);
        let level = match self.scale > 0.0 {
            // The first jobs of all workers show nothing yet.
            false => self.first(),
            true => self.densest(at, bytes as f64),
        };
        let level = match self.seen.filter(|seen| seen.speed().is_none()) {
            _ if at.is_hopeless => self.lightest(),
            Some(seen) => level.min(seen.densest_untold()),
            None => level,
        };
        let bytes = match self.scale > 0.0 && level > self.lightest() && self.is_guess(level) {
            true => bytes.min(TRIED_BYTES),
            false => bytes,
        };
        self.jobs += 1;
        self.usual = if at.is_hopeless { 0 } else { self.usual + 1 };
        if !at.is_hopeless {
            self.picked[level] += bytes as f64;
        }
        self.begun.push_back(Begun {
            end: at.raw_bytes + bytes as u64,
            bytes: bytes as u64,
            level,
            is_hopeless: at.is_hopeless,
        });
        Job {
            level: LEVELS[level],
            bytes,
        }
    }

    /// Returns the usual level for a link of this speed, with the present share of the cores.
    fn first(&self) -> usize {
        let of_worker = match self.pace {
            Pace::Fastest(link) => link.0 / self.workers as f64,
            Pace::Within(factor, link) => link.0 / factor / self.workers as f64,
        };
        let stretch = self.contention.stretch();
        let is_slower = |limit: &&f64| of_worker * stretch < **limit;
        let first = LINKS.iter().filter(is_slower).count();
        match self.seen.is_some_and(|seen| seen.speed().is_none()) {
            true => first.min(FIRST_UNTOLD),
            false => first.min(self.last),
        }
    }

    /// Returns the densest level at which a job is done before the link runs out of bytes. The time for it is the
    /// queue, with the bytes that the sink took earlier than such a link sends them. Half of the bytes that the other
    /// workers may add in this time count too, since bytes go out in order.
    fn densest(&mut self, at: &Standing, bytes: f64) -> usize {
        let ahead = match self.pace {
            Pace::Fastest(link) => {
                let queued = at.produced_bytes.saturating_sub(at.sunk_bytes) as f64;
                let hidden = at.sunk_bytes as f64 - link.0 * at.now.0;
                let others = 0.5 * (self.workers - 1) as f64 * bytes * self.stored;
                (queued + hidden.clamp(0.0, HIDDEN_BYTES) + others) / link.0 - QUEUE_SECONDS_KEPT
            }
            Pace::Within(factor, link) => factor * at.raw_bytes as f64 / link.0 - at.now.0,
        };
        let is_trying = self.begun.iter().any(|job| self.is_guess(job.level));
        let stretch = self.contention.stretch();
        let is_in_time = |level: usize| {
            let scale = self.scales[level].max(self.scale);
            let bytes = match self.is_guess(level) {
                true => bytes.min(TRIED_BYTES as f64),
                false => bytes,
            };
            self.work[level] * scale * stretch * bytes <= ahead
                && !(is_trying && self.is_guess(level))
        };
        let lightest = self.lightest();
        let may_be: [bool; LEVELS.len()] = std::array::from_fn(|level| {
            level == lightest || (lightest..=self.last).contains(&level) && is_in_time(level)
        });
        let late = |level: usize, _: &Quantities| if may_be[level] { 0.0 } else { f64::INFINITY };
        // Bytes alone count, since every candidate is done before the link needs more.
        let prices = Prices {
            per_byte_written: Estimate::exact(1.0),
            ..Prices::default()
        };
        self.chooser.pick(&job(), &prices, late).candidate
    }

    /// Returns the lightest level: 1 where workers do not keep up with the link at level 3.
    fn lightest(&self) -> usize {
        let link = self.stored / self.pace.link().0;
        let workers = self.contention.stretch() * self.scale * self.work[1] / self.workers as f64;
        usize::from(workers <= link)
    }

    /// Returns whether nothing is known of a level on such content.
    fn is_guess(&self, level: usize) -> bool {
        self.seen_at[level].is_none_or(|jobs| self.jobs - jobs > KNOWN_JOBS)
    }

    /// Adds the workers' time for the finished content. Content that does not shrink takes less at any level, and shows
    /// nothing of the rest.
    fn learn(&mut self, at: &Standing) {
        while let Some(job) = self.begun.front().filter(|it| it.end <= at.consumed_bytes) {
            self.done += self.work[job.level] * job.bytes as f64;
            self.latest = job.level;
            self.light_from = match job.level == 0 || job.is_hopeless {
                true => self.light_from.or(Some(at.sunk_bytes)),
                false => None,
            };
            self.begun.pop_front();
        }
        let part = self.begun.front().map_or(0.0, |job| {
            let to_come = (job.end - at.consumed_bytes).min(job.bytes);
            self.work[job.level] * (job.bytes - to_come) as f64
        });
        let now = Learned {
            core: at.core.0,
            expected: self.done + part,
            consumed: at.consumed_bytes,
            produced: at.produced_bytes,
        };
        let last = self.learned;
        if self.usual <= 2 * self.workers {
            self.learned = now;
            return;
        }
        let expected = now.expected - last.expected;
        if expected < LEARNED_SECONDS_MIN {
            return;
        }
        self.learned = now;
        let weight = if self.scale > 0.0 { LAST_WEIGHT } else { 1.0 };
        let scale = (now.core - last.core) / expected;
        self.scale += weight * (scale - self.scale);
        self.seen_at[self.latest] = Some(self.jobs);
        for (level, it) in self.scales.iter_mut().enumerate() {
            *it = match level == self.latest {
                true => scale.max(*it),
                false => *it + FORGOTTEN * (self.scale - *it),
            };
        }
        let stored = (now.produced - last.produced) as f64 / (now.consumed - last.consumed) as f64;
        self.stored += weight * (stored - self.stored);
    }

    /// Jobs are short at first, so that the link begins soon, and at last, so that all workers end together.
    fn length(&self, at: &Standing) -> usize {
        let doubled = self.jobs / self.workers as u32;
        let begun = JOB_BYTES_MIN << doubled.min(8);
        let last = at
            .left_bytes
            .map_or(u64::MAX, |left| left / (2 * self.workers as u64));
        let longest = begun.min(JOB_BYTES_MAX) as u64;
        last.clamp(JOB_BYTES_MIN as u64, longest) as usize
    }
}

/// Returns a job as the chooser sees it. Its class moves all levels alike, as a scale does.
fn job() -> BlockLife {
    BlockLife::new(Class::TEXT, JOB_BYTES_MAX as u64)
}

/// Returns the chooser among the levels, and the core seconds and stored bytes that it expects of a byte at each.
fn levels(tie_share: f64) -> (Chooser, [[f64; LEVELS.len()]; 2]) {
    let candidate = |level| Candidate::new(Method::of(Codec::Zstd { level }));
    let options = ChooserOptions {
        trial_share: 0.0,
        tie_share,
        ..ChooserOptions::default()
    };
    let candidates = LEVELS.map(candidate).to_vec();
    let mut chooser = Chooser::new(candidates, Profile::default(), options);
    let job = job();
    chooser.know(&job, &Terms::default());
    let mut expected = [[0.0; LEVELS.len()]; 2];
    for (level, it) in chooser.expected(job.class, job.raw_bytes).enumerate() {
        expected[0][level] = it.encode_core_seconds.mean / job.raw_bytes as f64;
        expected[1][level] = it.stored_bytes.mean / job.raw_bytes as f64;
    }
    (chooser, expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Core seconds and stored bytes of a byte at each level, measured on headers.
    const COSTS: [[f64; 2]; 7] = [
        [4.0e-9, 0.0766],
        [5.9e-9, 0.0700],
        [8.2e-9, 0.0654],
        [12.0e-9, 0.0628],
        [12.5e-9, 0.0617],
        [17.5e-9, 0.0605],
        [30.0e-9, 0.0590],
    ];

    /// Core seconds and stored bytes of a byte of packed files.
    const PACKED: [[f64; 2]; 7] = [[1.0e-9, 0.98]; 7];
    /// The cost of a byte at a place by each level, and whether it is hopeless.
    type Costs = fn(u64) -> ([[f64; 2]; 7], bool);

    /// Runs content through workers and a link in simulated time; returns the time at the end, the seconds of the
    /// cores, and the bytes.
    fn simulate(content: u64, workers: usize, pace: Pace, costs: Costs) -> [f64; 3] {
        simulate_by(Pacer::new(pace, workers), content, pace.link().0, costs)
    }

    fn simulate_by(pacer: Pacer, content: u64, link: f64, costs: Costs) -> [f64; 3] {
        simulate_beside(1.0, pacer, content, (link, costs))
    }

    /// The same on a machine where a core second takes `stretch` seconds.
    fn simulate_beside(
        stretch: f64,
        mut pacer: Pacer,
        content: u64,
        (link, costs): (f64, Costs),
    ) -> [f64; 3] {
        let workers = pacer.workers();
        let mut free = vec![0.0_f64; workers];
        let (mut raw, mut core, mut stored) = (0, 0.0, 0.0);
        let (mut link_free, mut handed_in) = (0.0_f64, 0.0_f64);
        // For each job: when its output begins and ends, its bytes and its core seconds.
        let mut jobs: Vec<(f64, f64, f64, u64, f64)> = Vec::new();
        while raw < content {
            let next = (0..workers)
                .min_by(|&a, &b| free[a].total_cmp(&free[b]))
                .unwrap();
            let now = free[next].max(handed_in);
            let (mut produced, mut consumed, mut sent, mut used) = (0.0, 0, 0.0_f64, 0.0);
            for &(from, until, made, bytes, seconds) in &jobs {
                let done = ((now - from) / (until - from)).clamp(0.0, 1.0);
                produced += done * made;
                consumed += (done * bytes as f64) as u64;
                used += done * seconds;
                sent = sent.max(from.min(now)) + done * made / link;
            }
            let queued = (sent - now).max(0.0) * link;
            let job = pacer.job(&Standing {
                now: Seconds(now),
                raw_bytes: raw,
                left_bytes: Some(content - raw),
                consumed_bytes: consumed,
                produced_bytes: produced as u64,
                sunk_bytes: (produced - queued).max(0.0) as u64,
                sinking: Seconds((produced - queued).max(0.0) / link),
                core: Seconds(used),
                waiting: Seconds((stretch - 1.0) * used),
                is_hopeless: costs(raw).1,
            });
            let bytes = (job.bytes as u64).min(content - raw);
            let level = LEVELS.iter().position(|&it| it == job.level).unwrap();
            let [seconds, made] = costs(raw).0[level].map(|it| it * bytes as f64);
            free[next] = now + stretch * seconds;
            // In order.
            let before = jobs.last().map_or(0.0, |it| it.1);
            let (from, until) = (before.max(now), before.max(free[next]) + 1e-9);
            jobs.push((from, until, made, bytes, seconds));
            link_free = (link_free.max(from) + made / link).max(until);
            // No more than some MiB wait.
            let wait = ((queued - 8e6) / link).max(0.0);
            handed_in = now + wait;
            (raw, core, stored) = (raw + bytes, core + seconds, stored + made);
        }
        [link_free, core, stored]
    }

    /// Checks a ratio of times for several numbers of workers and links, on content that takes them long.
    fn check_each(of: &str, most: f64, ratio: impl Fn(u64, usize, f64) -> f64) {
        let mut tried = 0;
        for workers in [1, 2, 8] {
            for link in [1e6, 3e6, 12e6, 4e7, 117e6] {
                let ratio = ratio(150_000_000 * workers as u64, workers, link);
                println!("{workers} workers, {link:.1e} bytes a second: {ratio:.3} of {of}");
                assert!(ratio < most, "{workers} workers, {link}: {ratio}");
                tried += 1;
            }
        }
        assert_eq!(tried, 15);
    }

    #[test]
    fn workers_and_link_end_together_within_some_percent_of_the_best_level() {
        check_each("the best level", 1.06, |content, workers, link| {
            let pace = Pace::Fastest(BytesPerSecond(link));
            let [seconds, ..] = simulate(content, workers, pace, |_| (COSTS, false));
            let of = |it: &[f64; 2]| {
                let bytes = content as f64;
                (it[0] * bytes / workers as f64).max(it[1] * bytes / link)
            };
            seconds / COSTS.iter().map(of).min_by(f64::total_cmp).unwrap()
        });
    }

    /// Other programs use the cores as well: a level that would be in time alone is late now.
    #[test]
    fn workers_and_link_end_together_on_a_busy_machine_too() {
        for stretch in [2.0, 6.0] {
            check_each("the best level", 1.1, |content, workers, link| {
                let pacer = Pacer::new(Pace::Fastest(BytesPerSecond(link)), workers);
                let costs: Costs = |_| (COSTS, false);
                let [seconds, ..] = simulate_beside(stretch, pacer, content, (link, costs));
                let of = |it: &[f64; 2]| {
                    let bytes = content as f64;
                    (stretch * it[0] * bytes / workers as f64).max(it[1] * bytes / link)
                };
                seconds / COSTS.iter().map(of).min_by(f64::total_cmp).unwrap()
            });
        }
    }

    #[test]
    fn a_link_that_was_not_told_shows_soon() {
        check_each("told", 1.2, |content, workers, link| {
            let by = |pacer| simulate_by(pacer, content, link, |_| (COSTS, false))[0];
            let told = Pacer::new(Pace::Fastest(BytesPerSecond(link)), workers);
            by(Pacer::untold(workers)) / by(told)
        });
    }

    /// An archive of packed files and of headers, some MB of one and then of the other.
    #[test]
    fn levels_follow_data_that_changes() {
        let costs: Costs = |at| match at / 40_000_000 % 2 {
            0 => (PACKED, true),
            _ => (COSTS, false),
        };
        let (content, mut tried) = (320_000_000, 0);
        for workers in [1, 2, 8] {
            for link in [3e6, 12e6, 4e7, 117e6, 5e8] {
                let pace = Pace::Fastest(BytesPerSecond(link));
                let [seconds, ..] = simulate(content, workers, pace, costs);
                // The wait between them is less than either part.
                let of = |[core, stored]: &[f64; 2]| {
                    let half = content as f64 / 2.0;
                    (core * half / workers as f64).max(stored * half / link)
                };
                let best = COSTS.iter().map(of).min_by(f64::total_cmp).unwrap();
                let ratio = seconds / (best + of(&PACKED[0]));
                println!(
                    "{workers} workers, {link:.1e} bytes a second: {ratio:.3} of the best level"
                );
                assert!(ratio < 1.06, "{workers} workers, {link}: {ratio}");
                tried += 1;
            }
        }
        assert_eq!(tried, 15);
    }

    #[test]
    fn a_promised_time_is_used_and_kept() {
        for factor in [1.0, 1.5] {
            // Uncompressed it takes 3 s.
            let pace = Pace::Within(factor, BytesPerSecond(1e8));
            let [seconds, _, stored] = simulate(300_000_000, 2, pace, |_| (COSTS, false));
            println!("{seconds} of {} s, {stored} bytes", 3.0 * factor);
            assert!(seconds < 3.0 * factor * 1.02);
            assert!(seconds > 3.0 * factor * 0.8);
        }
    }

    #[test]
    fn a_link_that_was_seen_before_is_known_at_once() {
        for (link, looks_far) in [(1.5e7, true), (1e8, false)] {
            let pacer = Pacer::following(BytesPerSecond(link), 2);
            let seen = pacer.seen().expect("it was seen").speed.0;
            assert!((seen / link - 1.0).abs() < 1e-9, "{seen}");
            assert_eq!(pacer.matches_far(), looks_far);
        }
    }

    /// A sink that is never behind takes all it gets at the speed of memory.
    #[test]
    fn bytes_by_the_lightest_jobs_are_told_apart() {
        let mut pacer = Pacer::untold(2);
        let mut at = Standing::default();
        let mut before_light = 0;
        for _ in 0..60 {
            let job = pacer.job(&at);
            let level = LEVELS.iter().position(|&it| it == job.level).unwrap();
            let [seconds, share] = COSTS[level].map(|it| it * job.bytes as f64);
            at.raw_bytes += job.bytes as u64;
            at.consumed_bytes = at.raw_bytes;
            at.produced_bytes += share as u64;
            at.sunk_bytes = at.produced_bytes;
            at.sinking.0 = at.sunk_bytes as f64 / 2e9;
            at.core.0 += seconds;
            at.now.0 += seconds / 2.0;
            if level > 0 {
                before_light = at.sunk_bytes;
                assert_eq!(pacer.light_bytes(), 0);
            }
        }
        assert!(before_light >= PIPE_BYTES, "{before_light}");
        let light = at.sunk_bytes - before_light;
        let told = pacer.light_bytes();
        assert!(told > 0 && told <= light, "{told} of {light}");
    }

    #[test]
    fn a_link_that_is_never_behind_is_held_to_be_ever_faster() {
        let mut pacer = Pacer::following(BytesPerSecond(1e8), 2);
        let mut at = Standing::default();
        let mut check = |sink_share: f64, speed: f64, expected: f64| {
            for _ in 0..4 {
                at.raw_bytes += pacer.job(&at).bytes as u64;
                at.now.0 += 0.1;
                at.sinking.0 += 0.1 * sink_share;
                at.sunk_bytes += (speed * 0.1 * sink_share) as u64;
            }
            pacer.job(&at);
            let seen = pacer.seen().expect("it was seen");
            assert!((seen.speed.0 / expected - 1.0).abs() < 0.01, "{seen:?}");
            seen.seconds_per_byte
        };
        let steady = check(1.0, 5e7, 5e7);
        assert!(steady.high - steady.low < 1e-5 * steady.mean, "{steady:?}");
        // Four steps of growth; then no more than the sink takes.
        check(0.1, 2e9, 5e7 * GROWN.powi(4));
        check(0.1, 1.5e8, 1.5e8);
        let varied = check(0.9, 3e7, 3e7);
        assert!(varied.low < 2.2e-8 && varied.high > 2.8e-8, "{varied:?}");
    }

    #[test]
    fn jobs_begin_short_and_end_short() {
        let mut pacer = Pacer::new(Pace::Fastest(BytesPerSecond(1e7)), 2);
        let mut at = Standing {
            left_bytes: Some(100 << 20),
            ..Standing::default()
        };
        let mut lengths = Vec::new();
        while at.left_bytes != Some(0) {
            let left = at.left_bytes.unwrap();
            let job = pacer.job(&at);
            let bytes = (job.bytes as u64).min(left);
            lengths.push(bytes);
            at.left_bytes = Some(left - bytes);
            at.now.0 += 0.01;
        }
        assert_eq!(lengths[..2], [JOB_BYTES_MIN as u64; 2]);
        assert!(lengths.contains(&(JOB_BYTES_MAX as u64)));
        assert!(lengths[lengths.len() - 2] <= 1 << 20, "{lengths:?}");
        let hopeless = Standing {
            is_hopeless: true,
            ..at
        };
        assert_eq!(pacer.job(&hopeless).level, LEVELS[1]);
    }
}
