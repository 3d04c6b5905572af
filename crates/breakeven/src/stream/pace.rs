//! The level of each job of a long frame, so that workers and link keep each other busy.
//!
//! What was compressed and not yet taken by the sink is a queue. Where it is longer than a job takes, the link is
//! what is waited for, and the next job may be denser; where it is shorter, the link is about to stand idle, and
//! the next job is lighter. Between two levels that is a change from job to job, which is right: time is shared
//! between them. With a promised time the signal is what is left of it.
//!
//! No clock is read here, and nothing is known of the data.

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

/// The levels, each smaller and slower than the one before on nearly all data: with zstd 1.5.4 on 80 MB of
/// headers in jobs of 4 MiB, 0.32, 0.47, 0.66, 0.96, 1.0 and 1.4 core seconds for 6.13, 5.60, 5.23, 5.03, 4.93 and 4.84
/// MB. Denser ones would take more memory than a pipe is worth, and save some percent.
const LEVELS: [i8; 7] = [1, 3, 5, 6, 7, 9, 12];
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
/// The least queue that is aimed at, for jobs that take no time.
const QUEUE_SECONDS_MIN: f64 = 0.01;
/// Weight of the last job in the mean.
const LAST_WEIGHT: f64 = 0.25;

/// Picks levels and lengths of jobs, one after the other.
#[derive(Clone, Debug)]
pub struct Pacer {
    pace: Pace,
    workers: usize,
    /// Of [`LEVELS`].
    level: usize,
    jobs: u32,
    /// Jobs since the level changed: what a change does is seen when the workers are done with the jobs before.
    since: usize,
    /// How long a worker is at a job of the longest kind, as a mean.
    job_seconds: f64,
    last: Option<(Seconds, usize)>,
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
    /// Bytes that were compressed and that the sink has not taken.
    pub queued_bytes: u64,
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
        Pacer {
            pace,
            workers,
            level: LINKS.iter().filter(|&&limit| of_worker < limit).count(),
            jobs: 0,
            since: 0,
            job_seconds: 0.0,
            last: None,
        }
    }

    /// Returns whether matches are to be looked for in all of a long window.
    pub fn matches_far(&self) -> bool {
        self.pace.link().0 / (self.workers as f64) < FAR_LINK
    }

    /// Picks the next job.
    pub fn job(&mut self, at: &Standing) -> Job {
        if let Some((then, bytes)) = self.last {
            // Workers are at work side by side, so a job takes as long as they hand in that many.
            let seconds = (at.now.0 - then.0) * self.workers as f64;
            let of_longest = seconds * JOB_BYTES_MAX as f64 / bytes as f64;
            let weight = if self.job_seconds > 0.0 {
                LAST_WEIGHT
            } else {
                1.0
            };
            self.job_seconds += weight * (of_longest - self.job_seconds);
        }
        let bytes = self.length(at);
        let share = bytes as f64 / JOB_BYTES_MAX as f64;
        let takes = (self.job_seconds * share).max(QUEUE_SECONDS_MIN);
        // The first jobs of all workers say nothing yet.
        self.since += 1;
        if self.jobs > self.workers as u32 && 2 * self.since > self.workers {
            let level = self.level;
            let ahead = match self.pace {
                Pace::Fastest(link) => at.queued_bytes as f64 / link.0,
                Pace::Within(factor, link) => factor * at.raw_bytes as f64 / link.0 - at.now.0,
            };
            if ahead > 2.0 * takes {
                self.level = (self.level + 1).min(LEVELS.len() - 1);
            } else if ahead < takes {
                self.level = self.level.saturating_sub(1);
            }
            if self.level != level {
                self.since = 0;
            }
        }
        self.jobs += 1;
        self.last = Some((at.now, bytes));
        let level = if at.is_hopeless { 0 } else { self.level };
        Job {
            level: LEVELS[level],
            bytes,
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

    /// Core seconds and stored bytes of a byte at each level: the headers of [`LEVELS`].
    const COSTS: [[f64; 2]; 7] = [
        [4.0e-9, 0.0766],
        [5.9e-9, 0.0700],
        [8.2e-9, 0.0654],
        [12.0e-9, 0.0628],
        [12.5e-9, 0.0617],
        [17.5e-9, 0.0605],
        [30.0e-9, 0.0590],
    ];

    /// Runs content through workers and a link in simulated time; returns when all is through, the seconds
    /// of the cores, and the bytes.
    fn simulate(content: u64, workers: usize, pace: Pace, costs: &[[f64; 2]]) -> [f64; 3] {
        let mut pacer = Pacer::new(pace, workers);
        let link = pace.link().0;
        let mut free = vec![0.0_f64; workers];
        let (mut raw, mut core, mut stored) = (0, 0.0, 0.0);
        let (mut link_free, mut handed_in) = (0.0_f64, 0.0_f64);
        // When each job is done, and its bytes.
        let mut done: Vec<(f64, f64)> = Vec::new();
        while raw < content {
            let next = (0..workers)
                .min_by(|&a, &b| free[a].total_cmp(&free[b]))
                .unwrap();
            let now = free[next].max(handed_in);
            let produced: f64 = done.iter().filter(|it| it.0 <= now).map(|it| it.1).sum();
            let taken = stored - ((link_free - now) * link).max(0.0);
            let job = pacer.job(&Standing {
                now: Seconds(now),
                raw_bytes: raw,
                left_bytes: Some(content - raw),
                queued_bytes: (produced - taken).max(0.0) as u64,
                is_hopeless: false,
            });
            let bytes = (job.bytes as u64).min(content - raw);
            let level = LEVELS.iter().position(|&it| it == job.level).unwrap();
            let seconds = costs[level][0] * bytes as f64;
            let made = costs[level][1] * bytes as f64;
            free[next] = now + seconds;
            // In order.
            let at = done
                .last()
                .map_or(0.0, |it: &(f64, f64)| it.0)
                .max(now + seconds);
            done.push((at, made));
            link_free = link_free.max(at) + made / link;
            // No more than some MiB wait.
            handed_in = now.max(link_free - 8e6 / link);
            (raw, core, stored) = (raw + bytes, core + seconds, stored + made);
        }
        [link_free, core, stored]
    }

    #[test]
    fn workers_and_link_end_together_within_some_percent_of_the_best_level() {
        let mut tried = 0;
        for workers in [1, 2, 8] {
            for link in [1e6, 3e6, 12e6, 4e7, 117e6] {
                let content = 300_000_000;
                let pace = Pace::Fastest(BytesPerSecond(link));
                let [seconds, ..] = simulate(content, workers, pace, &COSTS);
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

    #[test]
    fn a_promised_time_is_used_and_kept() {
        for factor in [1.0, 1.5] {
            // Uncompressed it takes 3 s.
            let pace = Pace::Within(factor, BytesPerSecond(1e8));
            let [seconds, _, stored] = simulate(300_000_000, 2, pace, &COSTS);
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
