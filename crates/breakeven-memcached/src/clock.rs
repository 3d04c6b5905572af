//! The server's time: seconds since a moment before its start, and the meaning of a client's end of life.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use breakeven::objects::Now;

/// An end of life above this is a date and not a span: 30 days.
const SPAN_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;
/// The seconds that have passed at the start, so that a moment in the past is not 0, which means never.
const SECONDS_AT_START: u32 = 62;

/// Counts seconds without going back when the date is set.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    /// The date at which the count was 0.
    zero_date: u64,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let date = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        Clock {
            start: Instant::now(),
            zero_date: date.saturating_sub(u64::from(SECONDS_AT_START)),
        }
    }

    pub(crate) fn now(&self) -> Now {
        let passed = u32::try_from(self.start.elapsed().as_secs()).unwrap_or(u32::MAX);
        Now {
            seconds: passed.saturating_add(SECONDS_AT_START),
        }
    }

    /// Seconds since the start.
    pub(crate) fn uptime(&self, now: Now) -> u32 {
        now.seconds - SECONDS_AT_START
    }

    /// The date of a second.
    pub(crate) fn date(&self, seconds: u32) -> u64 {
        self.zero_date + u64::from(seconds)
    }

    /// Returns the second that a client's end of life means; `None` for never. A negative one is over at once.
    pub(crate) fn end(&self, given: i32, now: Now) -> Option<u32> {
        let given = i64::from(given);
        match given {
            0 => None,
            1..=SPAN_SECONDS_MAX => Some(now.seconds.saturating_add(given as u32)),
            // A date. One before the start, like every negative one, is the first second.
            _ => Some(u32::try_from((given - self.zero_date as i64).max(1)).unwrap_or(u32::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_life_are_spans_and_dates() {
        let clock = Clock {
            start: Instant::now(),
            zero_date: 1_700_000_000,
        };
        let now = Now { seconds: 100 };
        let check = |given: i32, expected: Option<u32>| {
            assert_eq!(clock.end(given, now), expected, "{given}")
        };
        check(0, None);
        check(1, Some(101));
        check(2_592_000, Some(2_592_100));
        check(2_592_001, Some(1));
        check(1_700_000_500, Some(500));
        check(1_600_000_000, Some(1));
        check(-1, Some(1));
    }
}
