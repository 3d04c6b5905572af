//! The deterministic choice: a profile that does not learn, and prices that do not move.
//!
//! Each block's method follows from its bytes, its hints and the fixed inputs, by the one rule of `decide`. It reads no
//! clock and no neighbouring block. So a stream is the same bytes every time, for any number of workers and any speed
//! of the link.

use std::sync::{Mutex, PoisonError};

use crate::codec::{Features, Method};
use crate::decide::{BlockLife, Candidate, Chooser, ChooserOptions, Class, Prices, Profile};
use crate::error::{Error, Result};
use crate::frame::Encoder;
use crate::units::{BytesPerSecond, Estimate, Seconds};

use super::hint::Outlook;
use super::price::{Goal, held_seconds_per_byte_second};

/// The link of a goal without prices of its own, unless the caller gives one: Gigabit Ethernet (Hirsch 2017, chapter
/// 5).
const LINK_USUAL: BytesPerSecond = BytesPerSecond(117e6);
/// The workers of such a goal. The pool may have more or fewer, which must not change the bytes.
const WORKERS_USUAL: usize = 4;

/// The inputs that pick a stream's methods when nothing may change.
#[derive(Clone, Debug)]
pub struct Frozen {
    /// The methods to pick from. Among several at the same cost, the fastest to decode is taken.
    pub arms: Vec<Method>,
    /// The profile of the methods. It is the same after saving and loading (`decide::learned`).
    pub profile: Profile,
    /// The price of a worker's second and of a byte.
    pub prices: Prices,
    /// The time for which blocks are held, unless a hint gives it.
    pub held: Seconds,
    /// Their number of reads, unless a hint gives it.
    pub reads: f64,
}

impl Frozen {
    /// Makes the choice for a goal from the library's own figures: the shipped profile, and the fastest end for 4
    /// workers before `link`. The default link is Gigabit Ethernet (117 MB/s).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for [`Goal::Within`], because only a clock can keep a promised time. The same for
    /// [`Goal::Energy`], whose prices are those of one machine.
    ///
    /// # Panics
    ///
    /// If the link has no speed.
    pub fn for_goal(goal: Goal, arms: Vec<Method>, link: Option<BytesPerSecond>) -> Result<Frozen> {
        let link = link.unwrap_or(LINK_USUAL);
        let mut frozen = Frozen::balanced(arms, Profile::default(), WORKERS_USUAL, link);
        match goal {
            Goal::Fastest => {}
            Goal::Smallest => {
                frozen.prices = Prices {
                    per_byte_written: Estimate::exact(1.0),
                    ..Prices::default()
                };
            }
            Goal::Money {
                prices,
                held,
                reads,
            } => {
                frozen.prices = prices;
                frozen.held = held;
                frozen.reads = reads;
            }
            Goal::Energy { .. } => {
                let reason =
                    "joules are those of a machine; it goes with fastest, smallest and money";
                return Err(Error::invalid("a deterministic stream", reason));
            }
            Goal::Within(_) => {
                let reason =
                    "it keeps no promise of time, and goes with fastest, smallest and money";
                return Err(Error::invalid("a deterministic stream", reason));
            }
        }
        Ok(frozen)
    }

    /// Makes the choice that spends as much of `workers` workers' time as a link of this speed allows. A worker's
    /// second costs `1 / workers` and a second of the link 1, half of each (lambda 1/2 of `docs/model.md`). The workers
    /// of the pool may be more or fewer.
    ///
    /// # Panics
    ///
    /// If there are no workers, or the link has no speed.
    pub fn balanced(
        arms: Vec<Method>,
        profile: Profile,
        workers: usize,
        link: BytesPerSecond,
    ) -> Frozen {
        assert!(workers > 0 && link.0 > 0.0, "{workers} workers, {link:?}");
        let byte = Estimate::exact(0.5 / link.0);
        Frozen {
            arms,
            profile,
            prices: Prices {
                per_core_second: Estimate::exact(0.5 / workers as f64),
                per_byte_written: byte,
                per_byte_read: byte,
                per_byte_second_held: Estimate::exact(held_seconds_per_byte_second()),
                ..Prices::default()
            },
            held: Seconds(0.0),
            reads: 0.0,
        }
    }

    /// Returns the picker of this choice.
    pub(super) fn fixed(&self) -> Fixed {
        let candidates = self.arms.iter().copied().map(Candidate::new).collect();
        let options = ChooserOptions {
            trial_share: 0.0,
            ..ChooserOptions::default()
        };
        Fixed {
            prices: self.prices,
            held: self.held,
            reads: self.reads,
            chooser: Mutex::new(Chooser::new(candidates, self.profile.clone(), options)),
        }
    }
}

/// The deterministic choice at work, for several workers at once.
pub(super) struct Fixed {
    prices: Prices,
    held: Seconds,
    reads: f64,
    /// Learns nothing: it keeps only its earlier results.
    chooser: Mutex<Chooser>,
}

impl Fixed {
    /// Picks the method of a block.
    ///
    /// # Cost
    ///
    /// The block's features, and the cost of [`Chooser::pick`].
    pub fn pick(&self, encoder: &mut Encoder, block: &[u8], outlook: &Outlook) -> Result<Method> {
        let class = Class::content(&Features::as_needed(
            block,
            encoder.compressor(),
            Class::needs_probe,
        )?);
        let usual = BlockLife {
            reads_per_write: Estimate::exact(self.reads),
            held_seconds: Estimate::exact(self.held.0),
            ..BlockLife::new(class, block.len() as u64)
        };
        let life = outlook.life(usual);
        let mut chooser = self.chooser.lock().unwrap_or_else(PoisonError::into_inner);
        let picked = chooser.pick(&life, &self.prices, |_, _| 0.0);
        Ok(chooser.candidates()[picked.candidate].method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Observation;
    use crate::pool::{Pool, PoolOptions};
    use crate::stream::{Advice, Choice, Container, Hint, Writer, WriterOptions};

    const BLOCK: usize = 16 << 10;
    const ARMS: [&str; 7] = [
        "store", "lz4:a8", "lz4:1", "zstd:-1", "zstd:3", "zstd:9", "xz:1",
    ];

    fn arms() -> Vec<Method> {
        ARMS.map(|it| it.parse().unwrap()).to_vec()
    }

    /// A profile with observations of every class.
    fn profile(random: &mut fastrand::Rng) -> Profile {
        let mut profile = Profile::default();
        for class in Class::all_content() {
            for (rank, method) in arms().into_iter().enumerate().skip(1) {
                let encode = Seconds(1e-5 * 3_f64.powi(rank as i32) * (0.5 + random.f64()));
                profile.observe(&Observation {
                    class,
                    method,
                    raw_bytes: BLOCK as u64,
                    stored_bytes: random.u64(1_000..BLOCK as u64),
                    encode: Some(encode),
                    decode: None,
                });
            }
        }
        profile
    }

    /// Runs of blocks of text, numbers, noise and zeros, of odd lengths.
    fn data(random: &mut fastrand::Rng) -> Vec<u8> {
        let mut data = Vec::new();
        for run in 0..24 {
            let end = data.len() + random.usize(1..4 * BLOCK);
            while data.len() < end {
                match run % 4 {
                    0 => data.extend(format!("{:x} costs ", random.u16(..300)).bytes()),
                    1 => data.extend((random.f64() * 1e3).to_le_bytes()),
                    2 => data.extend(random.u64(..).to_le_bytes()),
                    _ => data.extend([0; 64]),
                }
            }
        }
        data
    }

    fn options(frozen: Frozen) -> WriterOptions {
        WriterOptions {
            container: Container::Mixed,
            choice: Choice::Frozen(Box::new(frozen)),
            block_bytes: BLOCK,
            ..WriterOptions::default()
        }
    }

    fn write(data: &[u8], frozen: &Frozen, workers: usize, is_asynchronous: bool) -> Vec<u8> {
        let pool = Pool::new(PoolOptions {
            worker_count: workers,
        });
        let pool = pool.unwrap();
        let mut writer = Writer::new(Vec::new(), &pool, options(frozen.clone())).unwrap();
        let third = data.len() as u64 / 3;
        for (start, advice) in [
            (0, Advice::Keep { days: 1.0 }),
            (
                third,
                Advice::Hot {
                    reads_per_write: 9.0,
                },
            ),
            (2 * third, Advice::NoCompression),
        ] {
            let hint = Hint::new(start..start + third / 2, advice);
            writer.advise(&hint).unwrap();
        }
        match is_asynchronous {
            true => drop(writer.write_async(data.to_vec(), 0).unwrap().wait()),
            false => writer.write_at(data, 0).unwrap(),
        }
        writer.finish().unwrap().0
    }

    #[test]
    fn the_same_bytes_whatever_the_workers() {
        let (mut tried, mut unlike) = (0, 0);
        for seed in 1..=5 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (data, profile) = (data(&mut random), profile(&mut random));
            let mut streams = Vec::new();
            for link in [1e6, 1e8, 1e10] {
                let frozen = Frozen::balanced(arms(), profile.clone(), 2, BytesPerSecond(link));
                let first = write(&data, &frozen, 1, false);
                for workers in [1, 2, 5] {
                    for is_asynchronous in [false, true] {
                        let again = write(&data, &frozen, workers, is_asynchronous);
                        assert!(
                            again == first,
                            "seed {seed}, {workers} workers, link {link}"
                        );
                        tried += 1;
                    }
                }
                streams.push(first);
            }
            // The choice has an effect: a slower link is worth more work.
            unlike += usize::from(streams[0].len() < streams[2].len());
        }
        println!("{tried} streams; of {unlike} seeds the slow link's is smaller");
        assert!(tried == 90 && unlike == 5, "{tried}, {unlike}");
    }

    #[test]
    fn ties_go_to_the_plainer_method() {
        let frozen = Frozen {
            prices: Prices::default(),
            ..Frozen::balanced(arms(), Profile::default(), 1, BytesPerSecond(1.0))
        };
        let mut encoder = Encoder::new();
        let block = data(&mut fastrand::Rng::with_seed(2));
        let picked = frozen
            .fixed()
            .pick(&mut encoder, &block, &Outlook::default());
        assert_eq!(picked.unwrap(), Method::STORE);
    }
}
