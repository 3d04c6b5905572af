//! The caller's knowledge of its bytes: hints on ranges of a stream, and their sum for a block.
//!
//! A hint is a record of 32 bytes: a range, a type and a payload of 14 bytes, as in Lustre's `llapi_ladvise` (Hirsch
//! 2017, section 3.3). A type that this version does not know is ignored. So a program may give hints to an older
//! library.
//!
//! No hint names a method. "No compression" leaves one candidate. The others are numbers. Some belong to the block's
//! life: how often it is read, how long it is held. One is the application's own share of the workers. The one rule of
//! `decide` prices them, and the controller gets them as an [`Outlook`].

use std::ops::Range;

use crate::decide::BlockLife;
use crate::error::{Error, Result};
use crate::units::{Estimate, Seconds};

/// Bytes of a hint's payload.
pub const PAYLOAD_BYTES: usize = 14;

/// A hint on a range of bytes of a stream.
///
/// # Example
///
/// ```
/// use breakeven::stream::{Advice, Hint};
///
/// let hint = Hint::new(0..1 << 20, Advice::Hot { reads_per_write: 20.0 });
/// assert_eq!(hint.advice()?, Some(Advice::Hot { reads_per_write: 20.0 }));
/// let of_a_later_version = Hint { number: 60_000, ..hint };
/// assert_eq!(of_a_later_version.advice()?, None);
/// # Ok::<(), breakeven::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The bytes it is about, counted from the start of the stream.
    pub range: Range<u64>,
    /// Its type.
    pub number: u16,
    /// The payload as the type defines it, numbers in this machine's byte order; the rest is zeros.
    pub payload: [u8; PAYLOAD_BYTES],
}

/// The content of a hint.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Advice {
    /// Type 1, no payload: compressing is in vain, because the bytes are already compressed or random.
    NoCompression,
    /// Type 2, no payload: kept and read, and never written again. Such bytes are held for a year and read 3 times, as
    /// data on common servers is.
    WriteOnce,
    /// Type 3, payload: 8 bytes, an f64: read often, so many times for each write.
    Hot {
        /// Reads for each write.
        reads_per_write: f64,
    },
    /// Type 4, payload: 8 bytes, an f64: kept for so many days.
    Keep {
        /// Days from the write on.
        days: f64,
    },
    /// Type 5, payload: 8 bytes, an f64 from 0 to 1. While the bytes are written the application computes on all
    /// processors, for this share of the time that writing them uncompressed takes.
    Asynchronism {
        /// Share of the time uncompressed, 0 to 1.
        share: f64,
    },
}

/// The time for which bytes are held that are written once.
const WRITE_ONCE_HELD: Seconds = Seconds(365.0 * SECONDS_PER_DAY);
/// Their reads: 2 to 4 (Kothiyal 2009, section 5.6).
const WRITE_ONCE_READS: f64 = 3.0;
/// The most reads and days of a hint: larger numbers are mistakes.
const READS_MAX: f64 = 1e9;
const DAYS_MAX: f64 = 1e6;
const SECONDS_PER_DAY: f64 = 86_400.0;

impl Hint {
    /// Makes the record of an advice.
    pub fn new(range: Range<u64>, advice: Advice) -> Hint {
        let (number, value) = match advice {
            Advice::NoCompression => (1, None),
            Advice::WriteOnce => (2, None),
            Advice::Hot { reads_per_write } => (3, Some(reads_per_write)),
            Advice::Keep { days } => (4, Some(days)),
            Advice::Asynchronism { share } => (5, Some(share)),
        };
        let mut payload = [0; PAYLOAD_BYTES];
        if let Some(value) = value {
            payload[..8].copy_from_slice(&value.to_ne_bytes());
        }
        Hint {
            range,
            number,
            payload,
        }
    }

    /// Returns the advice; `None` for a type that this version does not know.
    ///
    /// # Errors
    ///
    /// `Invalid` for a value that is not a number or below 0, more than 10^9 reads, more than 10^6 days, or a share
    /// above 1.
    pub fn advice(&self) -> Result<Option<Advice>> {
        let value = f64::from_ne_bytes(*self.payload.first_chunk().expect("8 of 14 bytes"));
        let amount = |most: f64| {
            if (0.0..=most).contains(&value) {
                return Ok(value);
            }
            let reason = format!("type {}: {value} is not from 0 to {most}", self.number);
            Err(Error::invalid("payload of a hint", reason))
        };
        Ok(Some(match self.number {
            1 => Advice::NoCompression,
            2 => Advice::WriteOnce,
            3 => Advice::Hot {
                reads_per_write: amount(READS_MAX)?,
            },
            4 => Advice::Keep {
                days: amount(DAYS_MAX)?,
            },
            5 => Advice::Asynchronism {
                share: amount(1.0)?,
            },
            _ => return Ok(None),
        }))
    }
}

/// The sum of the hints for a block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outlook {
    /// It is stored raw.
    pub is_stored: bool,
    /// It is written once, then kept and read.
    pub is_written_once: bool,
    /// Reads for each write, where a hint gives them.
    pub reads_per_write: Option<f64>,
    /// The time for which it is held, where a hint gives it.
    pub held: Option<Seconds>,
    /// The share of the block's uncompressed time in which the application has the processors, 0 to 1.
    pub asynchronism: f64,
}

impl Outlook {
    /// Returns the life of a block that would be `usual` without hints.
    pub fn life(&self, usual: BlockLife) -> BlockLife {
        let mut life = usual;
        if self.is_written_once {
            life.held_seconds = Estimate::exact(WRITE_ONCE_HELD.0);
            life.reads_per_write = Estimate::exact(WRITE_ONCE_READS);
        }
        if let Some(held) = self.held {
            life.held_seconds = Estimate::exact(held.0);
        }
        if let Some(reads) = self.reads_per_write {
            life.reads_per_write = Estimate::exact(reads);
        }
        life
    }

    fn take(&mut self, advice: Advice) {
        match advice {
            Advice::NoCompression => self.is_stored = true,
            Advice::WriteOnce => self.is_written_once = true,
            Advice::Hot { reads_per_write } => self.reads_per_write = Some(reads_per_write),
            Advice::Keep { days } => self.held = Some(Seconds(days * SECONDS_PER_DAY)),
            Advice::Asynchronism { share } => self.asynchronism = share,
        }
    }
}

/// The hints of a stream.
#[derive(Default)]
pub struct Hints {
    /// In the order in which they were given: of one type, the last one counts.
    given: Vec<(Range<u64>, Advice)>,
}

impl Hints {
    /// Adds a hint; a range without bytes has no effect.
    pub fn take(&mut self, range: Range<u64>, advice: Advice) {
        if !range.is_empty() {
            self.given.push((range, advice));
        }
    }

    /// Returns the outlook for the byte at a place, and the end of its validity.
    pub fn at(&self, place: u64) -> (Outlook, u64) {
        let (mut outlook, mut end) = (Outlook::default(), u64::MAX);
        for (range, advice) in &self.given {
            if range.contains(&place) {
                outlook.take(*advice);
                end = end.min(range.end);
            } else if place < range.start {
                end = end.min(range.start);
            }
        }
        (outlook, end)
    }

    /// Forgets hints that end before a place.
    pub fn forget_before(&mut self, place: u64) {
        self.given.retain(|(range, _)| range.end > place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Advice; 5] = [
        Advice::NoCompression,
        Advice::WriteOnce,
        Advice::Hot {
            reads_per_write: 12.5,
        },
        Advice::Keep { days: 90.0 },
        Advice::Asynchronism { share: 0.33 },
    ];

    #[test]
    fn a_record_says_what_was_put_in() {
        for advice in ALL {
            let hint = Hint::new(3..9, advice);
            assert_eq!(hint.advice().unwrap(), Some(advice));
        }
    }

    #[test]
    fn unknown_types_say_nothing_and_wrong_payloads_are_refused() {
        for number in [0, 6, 7, 60_000] {
            let hint = Hint {
                range: 0..1,
                number,
                payload: [0xFF; PAYLOAD_BYTES],
            };
            assert_eq!(hint.advice().unwrap(), None, "type {number}");
        }
        for (number, value) in [
            (3, -1.0),
            (4, f64::NAN),
            (3, f64::INFINITY),
            (5, 1.01),
            (5, -0.1),
        ] {
            let mut hint = Hint::new(0..1, Advice::Asynchronism { share: value });
            hint.number = number;
            let refused = hint.advice();
            assert!(matches!(refused, Err(Error::Invalid { .. })), "{value}");
        }
    }

    #[test]
    fn the_last_of_a_type_counts_where_it_is_about() {
        let mut hints = Hints::default();
        assert_eq!(hints.at(5), (Outlook::default(), u64::MAX));
        hints.take(10..30, Advice::Keep { days: 1.0 });
        hints.take(20..40, Advice::Keep { days: 2.0 });
        hints.take(25..25, Advice::NoCompression);
        hints.take(30..35, Advice::NoCompression);
        let kept = |days: f64, is_stored: bool| Outlook {
            is_stored,
            held: Some(Seconds(days * 86_400.0)),
            ..Outlook::default()
        };
        for (place, expected, end) in [
            (0, Outlook::default(), 10),
            (10, kept(1.0, false), 20),
            (29, kept(2.0, false), 30),
            (30, kept(2.0, true), 35),
            (39, kept(2.0, false), 40),
            (40, Outlook::default(), u64::MAX),
        ] {
            assert_eq!(hints.at(place), (expected, end), "at {place}");
        }
        hints.forget_before(35);
        assert_eq!(hints.given.len(), 1);
    }

    #[test]
    fn a_life_is_what_is_told_of_it() {
        use crate::decide::Class;
        let usual = BlockLife {
            reads_per_write: Estimate::exact(0.0),
            ..BlockLife::new(Class::TEXT, 1 << 20)
        };
        let check = |advices: &[Advice], reads: f64, days: f64| {
            let mut outlook = Outlook::default();
            advices.iter().for_each(|it| outlook.take(*it));
            let life = outlook.life(usual);
            assert_eq!(life.reads_per_write, Estimate::exact(reads), "{advices:?}");
            let held = days * SECONDS_PER_DAY;
            assert_eq!(life.held_seconds, Estimate::exact(held), "{advices:?}");
        };
        check(&[], 0.0, 0.0);
        check(&[ALL[0], ALL[4]], 0.0, 0.0);
        check(&[ALL[1]], 3.0, 365.0);
        check(&[ALL[2]], 12.5, 0.0);
        // A number that a hint states counts more than an implied one, in either order.
        check(&[ALL[3], ALL[1]], 3.0, 90.0);
        check(&[ALL[1], ALL[2], ALL[3]], 12.5, 90.0);
    }
}
