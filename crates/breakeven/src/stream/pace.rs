//! The level of each job of a long frame, so that workers and link keep each other busy.
//!
//! What was compressed and not yet taken by the sink is a queue: for so long the link has something to send. A job
//! goes by the densest level at which a worker is through with it in that time. A long queue thus becomes
//! smaller bytes and a short one lighter work, and where the balance lies between two levels the jobs
//! share their time between them. With a promised time, what is left of it stands for the queue.
//!
//! What a level takes follows from how long the last jobs took, by what levels take beside each other. So a
//! change of the data or of the machine's load is followed at the next job, over any number of levels.
//!
//! No clock is read here, and nothing is known of the data.

use std::collections::VecDeque;

use crate::units::{BytesPerSecond, Seconds};

/// What a long frame's levels follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Over as soon as can be over a link of this speed (Hirsch's S1).
    Fastest(BytesPerSecond),
    /// As small as can be in this factor of the time that the content takes uncompressed over such a link
    /// (S2 and S3).
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
/// Core seconds of a byte at each of them, of which the proportions count: with zstd 1.5.4 on 80 MB of headers in jobs
/// of 4 MiB, for 6.13, 5.60, 5.23, 5.03, 4.93, 4.84 and 4.72 MB.
const COSTS: [f64; 7] = [4.0e-9, 5.9e-9, 8.2e-9, 12.0e-9, 12.5e-9, 17.5e-9, 30.0e-9];
/// Bytes a second of a link, over the workers, up to which a worker keeps up with each of the levels above on
/// text: where a stream begins, before anything was measured.
const LINKS: [f64; 6] = [4e7, 1.5e7, 8e6, 5e6, 3e6, 1e6];
/// Bytes a second of a link, over the workers, below which looking for matches in all of the window pays: it takes
/// 1 to 1.5 ns a byte and saves 15 to 20 % of the stored bytes, on a tar of documents and sources and on
/// headers.
const FAR_LINK: f64 = 2e7;
/// The shortest job: the first ones, so that the link begins soon.
const JOB_BYTES_MIN: usize = 256 << 10;
/// The longest: more takes memory, and 1 % fewer bytes.
pub const JOB_BYTES_MAX: usize = 4 << 20;
/// What is left of a queue when a job that was picked by it is done, for jobs that take longer than foreseen.
const QUEUE_SECONDS_KEPT: f64 = 0.005;
/// Weight of the last job in the mean.
const LAST_WEIGHT: f64 = 0.25;
/// The densest level's index, and bytes a second of a link, over the workers, below which it may be used: its
/// tables take 30 MB a worker more, and save 1 to 2 %.
const DENSEST: usize = LEVELS.len() - 1;
const DENSEST_LINK: f64 = 3e6;

/// Picks levels and lengths of jobs, one after the other.
#[derive(Clone, Debug)]
pub struct Pacer {
    pace: Pace,
    workers: usize,
    /// Of [`LEVELS`], at which it begins.
    first: usize,
    /// The densest that may be used.
    last: usize,
    jobs: u32,
    /// What jobs took over what [`COSTS`] says, as a mean; 0 until something is known.
    scale: f64,
    /// Bytes made of a byte, as a mean.
    stored: f64,
    /// Jobs of content that shrinks since the last one that does not.
    usual: usize,
    /// As many jobs as there are workers, the latest last.
    before: VecDeque<Before>,
}

/// A job that was picked.
#[derive(Clone, Copy, Debug)]
struct Before {
    at: Standing,
    /// Core seconds by [`COSTS`].
    expected: f64,
}

/// Where a stream stands when a job is to be picked.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Since the stream began.
    pub now: Seconds,
    /// Content that was handed to the workers.
    pub raw_bytes: u64,
    /// Content that is to come, if that is known.
    pub left_bytes: Option<u64>,
    /// Bytes that workers have compressed so far.
    pub consumed_bytes: u64,
    /// What they made of them.
    pub produced_bytes: u64,
    /// Bytes of these that the sink has not taken.
    pub queued_bytes: u64,
    /// For how long in all nothing could be handed to the workers because the sink was behind.
    pub stalled: Seconds,
    /// Whether the content of the job does not shrink, whatever the level.
    pub is_hopeless: bool,
}

/// A job to be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    pub level: i8,
    pub bytes: usize,
}

impl Pacer {
    /// Begins at the level that a link of such a speed usually comes to.
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
        let of_worker = match pace {
            Pace::Fastest(_) => link / workers as f64,
            Pace::Within(factor, _) => link / factor / workers as f64,
        };
        let first = LINKS.iter().filter(|&&limit| of_worker < limit).count();
        let is_promised = matches!(pace, Pace::Within(..));
        let last = match is_promised || of_worker < DENSEST_LINK {
            true => DENSEST,
            false => DENSEST - 1,
        };
        Pacer {
            pace,
            workers,
            first: first.min(last),
            last,
            jobs: 0,
            scale: 0.0,
            stored: 0.0,
            usual: 0,
            before: VecDeque::new(),
        }
    }

    /// Returns whether matches are to be looked for in all of a long window.
    ///
    /// In content that does not shrink by itself they cost nothing and are many, as of packed documents in an archive; but the
    /// text behind it then took 1.8 times the core seconds, one worker at a time.
    pub fn matches_far(&self) -> bool {
        self.pace.link().0 / (self.workers as f64) < FAR_LINK
    }

    /// Picks the next job.
    pub fn job(&mut self, at: &Standing) -> Job {
        self.learn(at);
        let bytes = self.length(at);
        let level = match self.scale > 0.0 {
            // The first jobs of all workers say nothing yet.
            false => self.first,
            true => self.densest(at, bytes as f64),
        };
        let level = if at.is_hopeless { 0 } else { level };
        self.jobs += 1;
        self.usual = if at.is_hopeless { 0 } else { self.usual + 1 };
        if self.before.len() == self.workers {
            self.before.pop_front();
        }
        self.before.push_back(Before {
            at: *at,
            expected: COSTS[level] * bytes as f64,
        });
        Job {
            level: LEVELS[level],
            bytes,
        }
    }

    /// Returns the densest level at which a job is done before the link has nothing to send: the queue, and half of what
    /// the other workers may add to it meanwhile, since bytes go out in order.
    fn densest(&self, at: &Standing, bytes: f64) -> usize {
        let ahead = match self.pace {
            Pace::Fastest(link) => {
                let others = 0.5 * (self.workers - 1) as f64 * bytes * self.stored;
                (at.queued_bytes as f64 + others) / link.0 - QUEUE_SECONDS_KEPT
            }
            Pace::Within(factor, link) => factor * at.raw_bytes as f64 / link.0 - at.now.0,
        };
        let each = ahead / (self.scale * bytes);
        let fits = COSTS[..=self.last].iter().filter(|&&cost| cost <= each);
        fits.count().saturating_sub(1)
    }

    /// Takes in how long the workers were at as many jobs as there are workers, which they do side by side. What does not
    /// shrink takes less by any level, and says nothing of the rest.
    fn learn(&mut self, at: &Standing) {
        let first = self.before.front();
        let Some(first) = first.filter(|_| self.usual > 2 * self.workers) else {
            return;
        };
        let then = first.at;
        let expected: f64 = self.before.iter().map(|it| it.expected).sum();
        let worked = (at.now.0 - then.now.0) - (at.stalled.0 - then.stalled.0);
        let scale = worked.max(0.0) * self.workers as f64 / expected;
        let weight = if self.scale > 0.0 { LAST_WEIGHT } else { 1.0 };
        self.scale += weight * (scale - self.scale);
        let consumed = at.consumed_bytes - then.consumed_bytes;
        if consumed > 0 {
            let stored = (at.produced_bytes - then.produced_bytes) as f64 / consumed as f64;
            self.stored += weight * (stored - self.stored);
        }
    }

    /// Short jobs first, so that the link begins soon, and last, so that all workers end together.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Core seconds and stored bytes of a byte at each level: the headers of [`super::COSTS`].
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
    /// What a byte at a place costs by each level, and whether it is hopeless.
    type Costs = fn(u64) -> ([[f64; 2]; 7], bool);

    /// Runs content through workers and a link in simulated time; returns when all is through, the seconds
    /// of the cores, and the bytes.
    fn simulate(content: u64, workers: usize, pace: Pace, costs: Costs) -> [f64; 3] {
        let mut pacer = Pacer::new(pace, workers);
        let link = pace.link().0;
        let mut free = vec![0.0_f64; workers];
        let (mut raw, mut core, mut stored) = (0, 0.0, 0.0);
        let (mut link_free, mut handed_in, mut stalled) = (0.0_f64, 0.0_f64, 0.0);
        // When each job is done, and its bytes.
        let mut done: Vec<(f64, f64, u64)> = Vec::new();
        while raw < content {
            let next = (0..workers)
                .min_by(|&a, &b| free[a].total_cmp(&free[b]))
                .unwrap();
            let now = free[next].max(handed_in);
            let (mut produced, mut consumed, mut sent) = (0.0, 0, 0.0_f64);
            for it in done.iter().filter(|it| it.0 <= now) {
                produced += it.1;
                consumed += it.2;
                sent = sent.max(it.0) + it.1 / link;
            }
            let queued = (sent - now).max(0.0) * link;
            let job = pacer.job(&Standing {
                now: Seconds(now),
                raw_bytes: raw,
                left_bytes: Some(content - raw),
                consumed_bytes: consumed,
                produced_bytes: produced as u64,
                queued_bytes: queued as u64,
                stalled: Seconds(stalled),
                is_hopeless: costs(raw).1,
            });
            let bytes = (job.bytes as u64).min(content - raw);
            let level = LEVELS.iter().position(|&it| it == job.level).unwrap();
            let [seconds, made] = costs(raw).0[level].map(|it| it * bytes as f64);
            free[next] = now + seconds;
            // In order.
            let at = done
                .last()
                .map_or(0.0, |it: &(f64, f64, u64)| it.0)
                .max(now + seconds);
            done.push((at, made, bytes));
            link_free = link_free.max(at) + made / link;
            // No more than some MiB wait.
            let wait = ((queued - 8e6) / link).max(0.0);
            handed_in = now + wait;
            stalled += wait;
            (raw, core, stored) = (raw + bytes, core + seconds, stored + made);
        }
        [link_free, core, stored]
    }

    #[test]
    fn workers_and_link_end_together_within_some_percent_of_the_best_level() {
        let mut tried = 0;
        for workers in [1, 2, 8] {
            for link in [1e6, 3e6, 12e6, 4e7, 117e6] {
                let content = 150_000_000 * workers as u64;
                let pace = Pace::Fastest(BytesPerSecond(link));
                let [seconds, ..] = simulate(content, workers, pace, |_| (COSTS, false));
                let of = |it: &[f64; 2]| {
                    let bytes = content as f64;
                    (it[0] * bytes / workers as f64).max(it[1] * bytes / link)
                };
                let best = COSTS.iter().map(of).min_by(f64::total_cmp).unwrap();
                let ratio = seconds / best;
                println!(
                    "{workers} workers, {link:.1e} bytes a second: {ratio:.3} of the best level"
                );
                assert!(ratio < 1.06, "{workers} workers, {link}: {ratio}");
                tried += 1;
            }
        }
        assert_eq!(tried, 15);
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
                // What waits between them is less than either part.
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
    fn jobs_begin_short_and_end_short() {
        let mut pacer = Pacer::new(Pace::Fastest(BytesPerSecond(1e7)), 2);
        let mut at = Standing {
            now: Seconds(0.0),
            raw_bytes: 0,
            left_bytes: Some(100 << 20),
            queued_bytes: 0,
            stalled: Seconds(0.0),
            consumed_bytes: 0,
            produced_bytes: 0,
            is_hopeless: false,
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
        assert_eq!(pacer.job(&hopeless).level, LEVELS[0]);
    }
}
