//! The choice between a row of short frames, each with a method of its own, and one long frame.
//!
//! A row is decoded in parallel, it can be sought to any byte, and its methods follow the link. A long frame finds
//! repeats over megabytes, and is smaller by a fifth or a half on text. A file is stored long, unless the options ask
//! for a property that a long frame lacks. A stream into a pipe is stored long, too, until the link proves to be fast.

use anyhow::Result;
use breakeven::codec::{Codec, Compressor, Features, Method};
use breakeven::decide::{
    BlockLife, Candidate, Chooser, ChooserOptions, Class, Counterfactual, Decision, Ledger, Offer,
    Prices, Profile, Quantities, Terms, Written, choose,
};
use breakeven::frame::{LongOptions, WINDOW_LOG_MAX};
use breakeven::meter::{Reading, Scope};
use breakeven::stream::{Goal, Pace, Summary};
use breakeven::units::{BytesPerSecond, Estimate, Seconds};

use super::choice::Setting;
use super::place::Source;
use crate::options::{PackOptions, Strategy};
use crate::terms::DAY_SECONDS;

/// The aim of a long frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    /// A typed level.
    Level(i8),
    /// As cheap as possible in the time that `zstd` takes by default.
    Usual,
    /// The same for a file of mostly zeros.
    Zeros,
    /// As cheap as can be.
    Money,
    /// As few joules as possible.
    Energy,
    /// As small as can be.
    Smallest,
    /// As fast as the link allows, or in a promised time.
    Paced(Pace),
    /// As fast as a link of unknown speed allows.
    Untold,
}

/// Bytes a second that a worker makes of level 1. A faster link needs lighter methods, or none, and only a row has
/// these.
pub const FAST_LINK: f64 = 1e8;

/// Returns whether a link is slow enough for a long frame.
pub fn is_slow(link: BytesPerSecond, workers: u32) -> bool {
    link.0 < FAST_LINK * f64::from(workers)
}

impl Aim {
    /// Returns the aim of a long frame over a link, given or seen; `None` where the stream is a row. `goes_to_file`
    /// means that it is kept in a regular file.
    pub fn of(
        typed: &PackOptions,
        link: Option<BytesPerSecond>,
        goes_to_file: bool,
        workers: u32,
    ) -> Option<Aim> {
        if let Some(level) = typed.level {
            return Some(Aim::Level(level));
        }
        let is_row = typed.method.is_some() || typed.deterministic || !typed.hint.is_empty();
        if is_row {
            return None;
        }
        // One frame, into a pipe as well.
        if typed.files.habits.as_zstd && typed.strategy.is_none() && link.is_none() {
            return Some(Aim::Usual);
        }
        Aim::of_strategy(typed.strategy, link, (typed.mixed, goes_to_file), workers)
    }

    /// Returns the aim for a source, which may be mostly zeros.
    pub fn for_source(self, source: &mut Source) -> Result<Aim> {
        Ok(match self {
            Aim::Usual if source.is_mostly_zeros()? => Aim::Zeros,
            aim => aim,
        })
    }

    /// Returns the aim for a strategy and a link, if they are given.
    pub fn of_strategy(
        strategy: Option<Strategy>,
        link: Option<BytesPerSecond>,
        (is_mixed, goes_to_file): (bool, bool),
        workers: u32,
    ) -> Option<Aim> {
        match strategy {
            // A user who gives the link wants its time to be short.
            None if goes_to_file && link.is_none() => Some(Aim::Usual),
            _ if is_mixed => None,
            None | Some(Strategy::Fastest) if link.is_none() => Some(Aim::Untold),
            Some(Strategy::Money) => Some(Aim::Money),
            Some(Strategy::Energy) => Some(Aim::Energy),
            Some(Strategy::Smallest) => Some(Aim::Smallest),
            other => {
                let link = link.filter(|&link| is_slow(link, workers))?;
                Some(Aim::Paced(pace(other, link)))
            }
        }
    }
}

/// Returns the pace of a link's strategy at its speed.
pub fn pace(strategy: Option<Strategy>, link: BytesPerSecond) -> Pace {
    match strategy {
        Some(Strategy::Within(factor)) => Pace::Within(factor, link),
        _ => Pace::Fastest(link),
    }
}

/// The levels that money picks from: those whose cost the profile knows.
const LEVELS: [i8; 6] = [1, 3, 5, 9, 12, 19];
/// The level of stock `zstd`, which stands for the time that it takes.
pub const LEVEL_USUAL: i8 = 3;
/// The work of looking for matches in the whole window, as a share of the work of level 3. It is 0.15 on a tar of
/// documents and sources, 0.6 on headers, measured with zstd 1.5.4.
const FAR_SHARE: f64 = 0.6;
/// Bytes of a job of level 3: four of its windows.
const JOB_BYTES: u64 = 8 << 20;

/// Returns the options for the frame of a content, by its first bytes and its length, if that is known.
pub fn long_options(
    aim: Aim,
    setting: &Setting<'_>,
    workers: u32,
    (head, content_bytes): (&[u8], Option<u64>),
) -> Result<LongOptions> {
    let workers = workers.max(1);
    let usual = LongOptions {
        workers,
        content_bytes,
        ..LongOptions::default()
    };
    let far = LongOptions {
        window_log: Some(WINDOW_LOG_MAX),
        matches_far: true,
        ..usual
    };
    let limit = usual_limit(workers, content_bytes);
    Ok(match aim {
        Aim::Level(level) => LongOptions { level, ..usual },
        // Far matches would take time in proportion to the content that is searched.
        Aim::Zeros => LongOptions {
            passes_zeros: true,
            ..usual
        },
        Aim::Smallest => LongOptions { level: 22, ..far },
        Aim::Paced(_) | Aim::Untold => unreachable!("its levels follow the link"),
        Aim::Usual if limit < 1.0 => usual,
        Aim::Usual => LongOptions {
            level: cheapest(setting, head, Some(limit))?.level,
            ..far
        },
        Aim::Money => LongOptions {
            level: cheapest(setting, head, None)?.level,
            ..far
        },
        Aim::Energy => LongOptions {
            level: of_fewest_joules(setting, head)?.level,
            ..far
        },
    })
}

/// Returns the options for the frame of a content where others need more memory than there is.
pub fn thrifty_options(aim: Aim, content_bytes: Option<u64>) -> LongOptions {
    LongOptions {
        level: match aim {
            Aim::Level(level) => level,
            _ => LEVEL_USUAL,
        },
        workers: 0,
        content_bytes,
        ..LongOptions::default()
    }
}

/// A level that money may pick, with the estimates for blocks of a class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    pub level: i8,
    /// Core seconds of a raw byte.
    pub core: f64,
    /// Bytes stored of it.
    pub stored: f64,
    /// Euros for both, over the days kept, or joules for both and the reads.
    pub cost: f64,
    /// Whether its work is within the limit.
    pub is_allowed: bool,
}

/// The level that money picks for a content.
pub struct Cheapest {
    pub level: i8,
    /// The levels that it was picked from.
    pub levels: Vec<Level>,
    pub decision: Decision,
}

/// Picks the level that costs least for content whose class its head shows. A limit allows only some levels: none
/// lighter than level 3, and none whose work exceeds the limit, a share of level 3's work.
pub fn cheapest(setting: &Setting<'_>, head: &[u8], limit: Option<f64>) -> Result<Cheapest> {
    let life = BlockLife {
        reads_per_write: Estimate::exact(0.0),
        held_seconds: Estimate::exact(setting.days * DAY_SECONDS),
        ..life_of(head)?
    };
    pick(setting, life, setting.terms()?.prices(), limit)
}

/// Picks the level that takes the fewest joules to write and to read, for content whose class its head shows.
pub fn of_fewest_joules(setting: &Setting<'_>, head: &[u8]) -> Result<Cheapest> {
    let Goal::Energy { prices, reads } = setting.goal(Strategy::Energy)? else {
        unreachable!("a strategy is its goal");
    };
    let life = BlockLife {
        reads_per_write: Estimate::exact(reads),
        ..life_of(head)?
    };
    pick(setting, life, prices, None)
}

fn life_of(head: &[u8]) -> Result<BlockLife> {
    let class = class_of(head, &mut Compressor::new())?;
    Ok(BlockLife::new(class, head.len().max(1) as u64))
}

fn pick(
    setting: &Setting<'_>,
    life: BlockLife,
    prices: Prices,
    limit: Option<f64>,
) -> Result<Cheapest> {
    let method = |level| Candidate::new(Method::of(Codec::Zstd { level }));
    let options = ChooserOptions {
        trial_share: 0.0,
        ..ChooserOptions::default()
    };
    let candidates = LEVELS.map(method).to_vec();
    let mut chooser = Chooser::new(candidates, setting.profile(), options);
    chooser.know(&life, &Terms::default());
    let known: Vec<Quantities> = chooser
        .expected(life.class, life.raw_bytes)
        .copied()
        .collect();
    let work = |at: usize| known[at].encode_core_seconds.mean;
    let usual = LEVELS.iter().position(|&level| level == LEVEL_USUAL);
    let usual = usual.expect("there is level 3");
    let is_allowed = |at: usize| match limit {
        None => true,
        Some(limit) => at == usual || at > usual && work(at) / work(usual) <= limit,
    };
    let late = |at: usize| if is_allowed(at) { 0.0 } else { f64::INFINITY };
    let picked = chooser.pick(&life, &prices, |at, _| late(at)).candidate;
    let raw = life.raw_bytes as f64;
    let level = |at: usize| Level {
        level: LEVELS[at],
        core: work(at) / raw,
        stored: known[at].stored_bytes.mean / raw,
        cost: known[at].cost(&life, &prices) / raw,
        is_allowed: is_allowed(at),
    };
    let place_cost = |at: usize, _: &Quantities| Estimate::exact(late(at));
    Ok(Cheapest {
        level: LEVELS[picked],
        levels: (0..LEVELS.len()).map(level).collect(),
        decision: chooser.decided(picked, &life, &prices, place_cost),
    })
}

/// Returns the limit of work, as a multiple of level 3's, that fits into the time of stock `zstd`. With too few
/// threads, or too little content for them, the limit is below the work of looking for far matches.
pub fn usual_limit(workers: u32, content_bytes: Option<u64>) -> f64 {
    let jobs = content_bytes.map_or(u64::MAX, |bytes| bytes.div_ceil(JOB_BYTES));
    (u64::from(workers)).min(jobs) as f64 - FAR_SHARE
}

/// Returns the class of a piece of a content.
pub fn class_of(piece: &[u8], compressor: &mut Compressor) -> Result<Class> {
    let features = Features::as_needed(piece, compressor, Class::needs_probe)?;
    Ok(Class::content(&features))
}

/// One of this many pieces is classified.
const PIECES_SKIPPED: u32 = 16;

/// The booking of a long frame: one method for all of it, under the class that most of its pieces have. It books the
/// process's time, since libzstd's workers do not report theirs.
pub struct Booking {
    compressor: Compressor,
    /// The number of pieces seen of each class.
    classes: Vec<(Class, u32)>,
    pieces: u32,
    begun: Reading,
}

impl Booking {
    /// Opens the books of a frame that is about to be made.
    pub fn open() -> Booking {
        Booking {
            compressor: Compressor::new(),
            classes: Vec::new(),
            pieces: 0,
            begun: Reading::now(Scope::Process),
        }
    }

    /// Looks at a piece of the content, if it is its turn.
    pub fn see(&mut self, piece: &[u8]) -> Result<()> {
        if self.pieces.is_multiple_of(PIECES_SKIPPED) {
            let class = class_of(piece, &mut self.compressor)?;
            match self.classes.iter_mut().find(|it| it.0 == class) {
                Some(of_class) => of_class.1 += 1,
                None => self.classes.push((class, 1)),
            }
        }
        self.pieces += 1;
        Ok(())
    }

    fn class(&self) -> Class {
        let most = self.classes.iter().max_by_key(|it| it.1);
        most.map_or(Class::UNSEEN, |it| it.0)
    }

    /// Closes the books, in the unit of a goal: under the level of most of the frame.
    pub fn close(
        &self,
        (level, summary): (i8, &Summary),
        (goal, link): (Goal, Option<BytesPerSecond>),
        profile: &Profile,
    ) -> Ledger {
        let method = Method::of(Codec::Zstd { level });
        let class = self.class();
        let used = self
            .begun
            .until(&Reading::now(Scope::Process), summary.raw_bytes);
        let mut life = BlockLife::new(class, summary.raw_bytes);
        life.reads_per_write = Estimate::exact(0.0);
        let prices = match goal {
            Goal::Money {
                prices,
                held,
                reads,
            } => {
                life.held_seconds = Estimate::exact(held.0);
                life.reads_per_write = Estimate::exact(reads);
                prices
            }
            Goal::Energy { prices, reads } => {
                life.reads_per_write = Estimate::exact(reads);
                prices
            }
            // Bytes, or the seconds that a link takes for them.
            _ => Prices {
                per_byte_written: Estimate::exact(link.map_or(1.0, |link| 1.0 / link.0)),
                ..Prices::default()
            },
        };
        let block_bytes = summary.raw_bytes.clamp(1, 1 << 20);
        let estimate = profile.estimate(class, method, block_bytes);
        let written = Written {
            stored_bytes: summary.stored_bytes,
            encode: Seconds(used.cpu.total().0),
            energy: breakeven::units::Joules(0.0),
        };
        let mut found = Quantities::of(&estimate, &life);
        let mut decision = choose(&life, &prices, 1.0, [Offer::new(method, found)]);
        decision.method = method;
        decision.quantities = found;
        found.stored_bytes = Estimate::exact(written.stored_bytes as f64);
        found.encode_core_seconds = Estimate::exact(written.encode.0);
        let mut ledger = Ledger::default();
        ledger.wrote(&decision, &written);
        let real = Counterfactual {
            store_cost: decision.store_cost.mean,
            codec_cost: found.cost(&life, &prices),
        };
        ledger.counterfactual(&decision, &real);
        ledger
    }
}
