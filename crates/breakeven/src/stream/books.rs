//! The books of a stream with picked methods: its blocks, their cost beside storing every block raw, and the possible
//! gain from more time.
//!
//! The cost of a block by its method is measured on every block, so the ledger's sample is all of them. The cost of
//! storing it raw follows from its length and the link.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bisection::bisect;
use crate::codec::Method;
use crate::decide::{Class, Counterfactual, Ledger, Profile, Written};
use crate::statistics::student_t_975;
use crate::units::{BytesPerSecond, Estimate, Joules, Seconds};

use super::pick::Picker;
use super::price::{Controller, Entry, Taken};

/// The record of a writer's blocks. It can be read at any time, even after the end of the stream.
#[derive(Clone)]
pub struct Books(pub(super) Arc<Picker>);

/// A link as its writes show it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeenLink {
    /// Bytes it takes in a second.
    pub speed: BytesPerSecond,
    /// Seconds that a byte takes, with the 95 % interval of the writes that showed it. The interval has no bounds where
    /// the writes were too few, and is exact where the speed was given.
    pub seconds_per_byte: Estimate,
    /// How that is known.
    pub basis: LinkBasis,
}

impl SeenLink {
    /// Returns a link whose speed was given.
    pub fn given(speed: BytesPerSecond) -> SeenLink {
        SeenLink {
            speed,
            seconds_per_byte: Estimate::exact(1.0 / speed.0),
            basis: LinkBasis::Given,
        }
    }
}

/// Bytes and seconds of writes; older ones may fade.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) weight: f64,
    pub(super) bytes: f64,
    pub(super) seconds: f64,
    /// By squared weights: how many, bytes by bytes, bytes by seconds, seconds by seconds.
    pub(super) squares: [f64; 4],
}

impl Sums {
    pub(super) fn add(&mut self, bytes: f64, seconds: f64) {
        self.weight += 1.0;
        self.bytes += bytes;
        self.seconds += seconds;
        let new = [1.0, bytes * bytes, bytes * seconds, seconds * seconds];
        for (sum, new) in self.squares.iter_mut().zip(new) {
            *sum += new;
        }
    }

    pub(super) fn fade(&mut self, kept: f64) {
        self.weight *= kept;
        self.bytes *= kept;
        self.seconds *= kept;
        self.squares = self.squares.map(|sum| sum * kept * kept);
    }

    pub(super) fn speed(&self) -> BytesPerSecond {
        BytesPerSecond(self.bytes / self.seconds.max(1e-9))
    }

    /// Returns the time of a byte: seconds over bytes, with the interval of a ratio of sums, from each write's distance
    /// from it (Cochran 1977, section 6.4). The interval is too wide for a sink that takes its bytes in gulps.
    pub(super) fn seconds_per_byte(&self) -> Estimate {
        let mean = 1.0 / self.speed().0;
        let [ones, bytes, both, seconds] = self.squares;
        let count = self.weight * self.weight / ones;
        let degrees = (count.round() as usize).saturating_sub(1);
        if degrees == 0 {
            return Estimate::plus_minus(mean, f64::INFINITY);
        }
        let squares = (seconds - 2.0 * mean * both + mean * mean * bytes).max(0.0);
        let error = (squares * count / (count - 1.0)).sqrt() / self.bytes;
        let around = Estimate::plus_minus(mean, student_t_975(degrees) * error);
        Estimate {
            low: around.low.max(0.0),
            ..around
        }
    }
}

/// The evidence for the speed of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkBasis {
    /// It was given.
    Given,
    /// Measured from writes behind which more frames waited.
    Measured,
    /// No frame ever waited. This is the time of the writes, and a buffer in between may have hidden the link's own.
    /// The link may be slower.
    NeverWaited,
}

/// The result of the same blocks in more time, from the evidence about their classes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prospect {
    /// Bytes of all frames.
    pub stored_bytes: f64,
    /// Until workers and link are done.
    pub seconds: Seconds,
    /// Core time of encoding.
    pub core: Seconds,
}

impl Books {
    /// Returns the ledger of the blocks so far; its costs are in the goal's unit ([`super::Goal::unit`]). Blocks that a
    /// hint kept out of every choice are of class [`Class::UNSEEN`].
    pub fn ledger(&self) -> Ledger {
        self.0.ledger()
    }

    /// Returns the evidence about the link; `None` before enough was written.
    pub fn link(&self) -> Option<SeenLink> {
        self.0.link()
    }

    /// Returns the profile of the methods so far.
    pub fn profile(&self) -> Option<Profile> {
        self.0.profile()
    }

    /// Returns the fewest bytes within a factor of the time that the blocks take uncompressed, by the methods that were
    /// used on each class. Other methods may do better. `None` before the speed of the link is known.
    pub fn within(&self, factor: f64) -> Option<Prospect> {
        self.0.within(factor)
    }

    /// Returns the core seconds that the last hundredth of the time cost. A stream that takes 1 % longer would have
    /// saved so many, by the methods that were used. `None` where the goal is not an early end, and before the speed of
    /// the link is known.
    pub fn last_percent(&self) -> Option<Seconds> {
        self.0.last_percent()
    }
}

/// Books a block and its cost.
pub(super) fn book(ledger: &mut Ledger, entry: &Entry, taken: &Taken) {
    let it = &taken.observation;
    let written = Written {
        stored_bytes: it.stored_bytes,
        encode: it.encode.unwrap_or(taken.wall),
        // The caller prices it with the machine's watts.
        energy: Joules(0.0),
    };
    ledger.wrote(&entry.decision, &written);
    if entry.decision.method != Method::STORE {
        let found = Counterfactual {
            store_cost: entry.decision.store_cost.mean,
            codec_cost: entry.real_cost(taken),
        };
        ledger.counterfactual(&entry.decision, &found);
    }
}

/// One class's blocks by each method that was used on it.
struct Group {
    /// The bounded quantity, its link time, and the quantity to minimise: work over the workers, seconds of the link,
    /// and bytes.
    arms: Vec<[f64; 3]>,
}

/// Observations of a method on a class from which it counts as seen.
const SEEN_MIN: f64 = 0.9;
/// Halvings of the range of the price's logarithm.
const HALVINGS: usize = 60;

/// The alternatives for the blocks of a ledger.
struct Booked {
    groups: Vec<Group>,
    /// Blocks that a method was seen on.
    blocks: f64,
    /// The bytes that a hint kept out of every choice, and their time on the link.
    passed_bytes: f64,
    passed_seconds: f64,
    /// The time of all blocks uncompressed.
    raw_seconds: f64,
}

impl Booked {
    fn of(ledger: &Ledger, controller: &Controller) -> Booked {
        let plant = controller.plant();
        let write =
            |bytes: f64, blocks: f64| plant.write_overhead.0 * blocks + bytes / plant.link.0;
        let mut classes: BTreeMap<Class, [f64; 3]> = BTreeMap::new();
        for (key, account) in ledger.accounts() {
            if let Some((class, _)) = key {
                let sums = classes.entry(class).or_default();
                sums[0] += account.blocks as f64;
                sums[1] += account.raw_bytes as f64;
                sums[2] += account.stored_bytes as f64;
            }
        }
        // Bytes that a hint keeps out of every choice stay uncompressed, in any amount of time.
        let [passed, passed_raw, passed_bytes] = classes.remove(&Class::UNSEEN).unwrap_or_default();
        let mut booked = Booked {
            groups: Vec::new(),
            blocks: 0.0,
            passed_bytes,
            passed_seconds: write(passed_bytes, passed),
            raw_seconds: write(passed_raw, passed),
        };
        let wall = controller.wall();
        for (class, [blocks, raw, _]) in classes {
            booked.raw_seconds += write(raw, blocks);
            let block_bytes = (raw / blocks).round() as u64;
            let arms = controller.arms().iter().map(|&arm| {
                let it = controller.profile().estimate(class, arm, block_bytes);
                let core = raw * it.encode_seconds_per_byte.value.mean;
                let work = blocks * wall.at(core / blocks);
                let stored = raw * it.stored_per_raw.value.mean;
                let seen = it.stored_per_raw.weight >= SEEN_MIN;
                seen.then(|| [work / plant.workers as f64, write(stored, blocks), stored])
            });
            let arms: Vec<[f64; 3]> = arms.flatten().collect();
            if !arms.is_empty() {
                booked.blocks += blocks;
                booked.groups.push(Group { arms });
            }
        }
        booked
    }
}

/// Returns the fewest bytes of the blocks in a ledger within `factor` of their time uncompressed. This is the fluid
/// optimum (`oracle.rs`), over means instead of blocks.
pub(super) fn within(ledger: &Ledger, controller: &Controller, factor: f64) -> Prospect {
    let (booked, wall) = (Booked::of(ledger, controller), controller.wall());
    let workers = controller.plant().workers as f64;
    let [work, link, stored_bytes] = fewest(&booked.groups, factor * booked.raw_seconds);
    Prospect {
        stored_bytes: stored_bytes + booked.passed_bytes,
        seconds: Seconds(work.max(link + booked.passed_seconds)),
        core: Seconds((work * workers - booked.blocks * wall.constant) / wall.slope),
    }
}

/// Returns the cost of the last hundredth of the time of the blocks in a ledger, whose goal was an early end.
pub(super) fn last_percent(ledger: &Ledger, controller: &Controller) -> Seconds {
    let (plant, total) = (controller.plant(), ledger.total());
    let link =
        plant.write_overhead.0 * total.blocks as f64 + total.stored_bytes as f64 / plant.link.0;
    let work = total.encode.0 / plant.workers as f64;
    let booked = Booked::of(ledger, controller);
    let seconds = link.max(work) - booked.passed_seconds;
    let arms = booked.groups.iter().map(|group| {
        let ways = group.arms.iter();
        ways.map(|&[work, write, _]| [write, work]).collect()
    });
    Seconds(
        least_saved(&arms.collect::<Vec<_>>(), seconds) * plant.workers as f64
            / controller.wall().slope,
    )
}

/// Returns how much less work is enough for groups in a time that is 1 % longer. Each alternative of a group takes a
/// time and work.
pub(super) fn least_saved(groups: &[Vec<[f64; 2]>], seconds: f64) -> f64 {
    let ways = |it: &Vec<[f64; 2]>| Group {
        arms: it.iter().map(|&[time, work]| [time, 0.0, work]).collect(),
    };
    let groups: Vec<Group> = groups.iter().map(ways).collect();
    let work = |seconds: f64| fewest(&groups, seconds)[2];
    (work(seconds) - work(1.01 * seconds)).max(0.0)
}

/// Returns the sums with the least third within a budget of the first.
fn fewest(groups: &[Group], budget: f64) -> [f64; 3] {
    let at = |log: f64| {
        let price = f64::exp2(log);
        let cost = |arm: &[f64; 3]| arm[2] + price * arm[0];
        let mut sums = [0.0; 3];
        for group in groups {
            let best = (group.arms.iter()).min_by(|a, b| cost(a).total_cmp(&cost(b)));
            for (sum, value) in sums.iter_mut().zip(best.expect("an arm")) {
                *sum += value;
            }
        }
        sums
    };
    // Bytes a second, over all magnitudes that mean anything.
    let turn = bisect(-20.0..80.0, HALVINGS, |log| at(log)[0] > budget);
    // At that price two choices tie, and a mix of them uses up the budget.
    let (dense, light) = (at(turn.start), at(turn.end));
    let share = match dense[0] > light[0] {
        true => ((budget - light[0]) / (dense[0] - light[0])).clamp(0.0, 1.0),
        false => 0.0,
    };
    std::array::from_fn(|i| light[i] + share * (dense[i] - light[i]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Pool, PoolOptions};
    use crate::stream::{Advice, Choice, Goal, Hint, Priced, Summary, Writer, WriterOptions};

    #[test]
    fn a_budget_is_used_up_for_the_fewest_bytes() {
        let groups = [Group {
            arms: vec![[0.0, 10.0, 10.0], [2.0, 4.0, 4.0], [10.0, 2.0, 2.0]],
        }];
        let check = |budget: f64, expected: [f64; 3]| {
            let found = fewest(&groups, budget);
            let is_near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
            assert!(
                found.iter().zip(&expected).all(is_near),
                "{budget}: {found:?}"
            );
        };
        check(0.0, [0.0, 10.0, 10.0]);
        check(1.0, [1.0, 7.0, 7.0]);
        check(2.0, [2.0, 4.0, 4.0]);
        check(6.0, [6.0, 3.0, 3.0]);
        check(10.0, [10.0, 2.0, 2.0]);
        check(1e9, [10.0, 2.0, 2.0]);
    }

    #[test]
    fn writes_that_differ_widen_what_a_byte_takes() {
        let seen = |writes: &[[f64; 2]]| {
            let mut sums = Sums::default();
            writes.iter().for_each(|it| sums.add(it[0], it[1]));
            sums.seconds_per_byte()
        };
        let steady = seen(&[[1e6, 0.1], [2e6, 0.2], [5e5, 0.05]]);
        assert!(steady.high - steady.low < 1e-12, "{steady:?}");
        assert!((steady.mean * 1e7 - 1.0).abs() < 1e-9, "{steady:?}");
        // Calculated: each write is 0.05 s from the time of its bytes, and t of one degree is 12.706.
        let varied = seen(&[[1e6, 0.1], [1e6, 0.2]]);
        let half = 12.706 * (0.005f64 * 2.0).sqrt() / 2e6;
        assert!((varied.mean * 1e6 - 0.15).abs() < 1e-9, "{varied:?}");
        assert!(((varied.high - varied.mean) / half - 1.0).abs() < 1e-4);
        assert_eq!(varied.low, 0.0);
        // More such writes narrow the interval.
        let longer = seen(&[[1e6, 0.1], [1e6, 0.2]].repeat(50));
        assert!(longer.low > 1.39e-7 && longer.high < 1.61e-7, "{longer:?}");
        assert_eq!(seen(&[[1e6, 0.1]]).high, f64::INFINITY);
        let given = SeenLink::given(BytesPerSecond(1e7));
        assert_eq!(given.seconds_per_byte, Estimate::exact(1e-7));
    }

    #[test]
    fn the_last_percent_is_what_a_little_more_time_would_save() {
        let ways = vec![[10.0, 0.0], [4.0, 2.0], [2.0, 10.0]];
        let check = |seconds: f64, expected: f64| {
            let found = least_saved(std::slice::from_ref(&ways), seconds);
            assert!((found - expected).abs() < 1e-9, "{seconds}: {found}");
        };
        // Of 1 % of 4 s, a sixth of a second costs a third of one.
        check(4.0, 2.0 / 6.0 * 0.04);
        check(2.0, 8.0 / 2.0 * 0.02);
        // There is no lighter method and no sooner end.
        check(10.0, 0.0);
        check(1.0, 0.0);
    }

    const ARMS: [&str; 3] = ["store", "zstd:1", "zstd:5"];

    /// Writes text and noise over a link that is only declared to have 1 MB/s.
    fn written(goal: Goal, hint: Option<Hint>) -> (Books, Summary) {
        let mut random = fastrand::Rng::with_seed(17);
        let mut data = b"what is saved must be more than what is spent; ".repeat(40_000);
        data.extend((0..3 << 20).map(|_| random.u8(..)));
        let pool = Pool::new(PoolOptions { worker_count: 2 }).expect("a pool");
        let priced = Priced {
            goal,
            arms: ARMS.map(|name| name.parse().expect("a method")).to_vec(),
            link: Some(BytesPerSecond(1e6)),
            profile: Profile::default(),
        };
        let options = WriterOptions {
            choice: Choice::Priced(Box::new(priced)),
            block_bytes: 64 << 10,
            ..WriterOptions::default()
        };
        let mut writer = Writer::new(Vec::new(), &pool, options).expect("a writer");
        let books = writer.books().expect("methods are picked");
        if let Some(hint) = hint {
            writer.advise(&hint).expect("a hint");
        }
        writer.write_all(&data).expect("room");
        let (_, summary) = writer.finish().expect("an end");
        assert_eq!(summary.raw_bytes, data.len() as u64);
        (books, summary)
    }

    #[test]
    fn the_books_say_what_was_written() {
        for goal in [Goal::Fastest, Goal::Within(1.0), Goal::Smallest] {
            let (books, summary) = written(goal, None);
            let ledger = books.ledger();
            let total = ledger.total();
            assert_eq!(total.blocks, summary.blocks);
            assert_eq!(total.raw_bytes, summary.raw_bytes);
            // The table and the first frame belong to no class.
            let frames = summary.stored_bytes - total.stored_bytes;
            assert!(frames < 100 + 12 * summary.blocks, "{frames} bytes beside");
            let raw = total.raw_bytes as f64;
            let expected = match goal {
                Goal::Fastest => raw / 1e6,
                _ => raw,
            };
            let share = ledger.stats().store_cost / expected;
            assert!((share - 1.0).abs() < 1e-9, "{goal:?}: {share}");
            let link = books.link().expect("it was given");
            assert_eq!((link.basis, link.speed.0), (LinkBasis::Given, 1e6));
            if goal != Goal::Fastest {
                let zstd =
                    |key: &Option<(Class, Method)>| key.is_some_and(|it| it.1 != Method::STORE);
                let zstd = ledger.accounts().filter(|it| zstd(&it.0));
                let saved = zstd.map(|it| it.1.raw_bytes.saturating_sub(it.1.stored_bytes));
                let saved = saved.sum::<u64>() as f64;
                let earned = ledger.earnings().expect("every block is a sample");
                let found = earned.saved_cost.mean;
                assert!((found / saved - 1.0).abs() < 0.01, "{found} of {saved}");
            }
            assert_eq!(books.last_percent().is_some(), goal == Goal::Fastest);
            // More time never costs bytes.
            let [free, half] = [1.0, 1.5].map(|factor| books.within(factor).expect("a link"));
            assert!(half.stored_bytes <= free.stored_bytes * (1.0 + 1e-9));
            assert!(free.seconds.0 <= raw / 1e6 * 1.001, "{free:?}");
        }
        let pool = Pool::new(PoolOptions { worker_count: 2 }).expect("a pool");
        let fixed = Writer::new(Vec::new(), &pool, WriterOptions::default()).expect("a writer");
        assert!(fixed.books().is_none());
    }

    #[test]
    fn what_a_hint_keeps_out_of_every_choice_no_time_makes_smaller() {
        let hint = Hint::new(0..u64::MAX, Advice::NoCompression);
        let (books, summary) = written(Goal::Fastest, Some(hint));
        let ledger = books.ledger();
        let accounts: Vec<_> = ledger.accounts().map(|it| it.0).collect();
        assert_eq!(accounts, [Some((Class::UNSEEN, Method::STORE))]);
        let total = ledger.total();
        assert_eq!(total.blocks, summary.blocks);
        assert_eq!(total.raw_bytes, summary.raw_bytes);
        assert!(total.stored_bytes > total.raw_bytes);
        let expected = total.raw_bytes as f64 / 1e6;
        assert!((ledger.stats().store_cost / expected - 1.0).abs() < 1e-9);
        let free = books.within(1.0).expect("a link");
        let beside = summary.stored_bytes as f64 - free.stored_bytes;
        assert!((0.0..100.0 + 12.0 * summary.blocks as f64).contains(&beside));
        assert!((free.seconds.0 * 1e6 / free.stored_bytes - 1.0).abs() < 1e-9);
    }
}
