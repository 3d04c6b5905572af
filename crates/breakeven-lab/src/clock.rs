//! The clocks: wall, processor time of this thread, and the date.
//!
//! Nothing else in the laboratory reads a clock, but the virtual link, which is one.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use breakeven::meter::thread_cpu;

/// Wall and processor seconds of a piece of work on the calling thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Duration {
    pub wall_seconds: f64,
    /// User and system time of the thread, without that of other threads meanwhile.
    pub cpu_seconds: f64,
}

/// Runs `work` and returns how long it took.
pub fn time<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let (wall, cpu) = (Instant::now(), thread_cpu());
    let outcome = work();
    let cpu_seconds = (thread_cpu() - cpu).0;
    let duration = Duration {
        wall_seconds: wall.elapsed().as_secs_f64(),
        cpu_seconds,
    };
    (duration, outcome)
}

/// Returns the date and time of the machine's clock, as `2026-01-31T23:59:59Z`.
pub fn date() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    // A clock before 1970 is not set; the date then says so by itself.
    format_date(since.map_or(0, |since| since.as_secs()))
}

fn format_date(unix_seconds: u64) -> String {
    let (days, second) = (unix_seconds / 86_400, unix_seconds % 86_400);
    // Years begin in March here, so that the leap day is the last of its year. 719,468 days lie between the first of
    // March of year 0 and 1970.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..=9 => (era * 400 + year, month + 3),
        _ => (era * 400 + year + 1, month - 9),
    };
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let check = |seconds: u64, expected: &str| assert_eq!(format_date(seconds), expected);
        check(0, "1970-01-01T00:00:00Z");
        check(951_782_399, "2000-02-28T23:59:59Z");
        check(951_782_400, "2000-02-29T00:00:00Z");
        check(951_868_800, "2000-03-01T00:00:00Z");
        check(1_767_225_599, "2025-12-31T23:59:59Z");
        check(4_107_542_400, "2100-03-01T00:00:00Z");
    }

    #[test]
    fn work_takes_time_on_both_clocks() {
        let (duration, sum) = time(|| std::hint::black_box(0..1_000_000_u64).sum::<u64>());
        assert_eq!(sum, 499_999_500_000);
        assert!(duration.wall_seconds > 0.0 && duration.cpu_seconds > 0.0);
    }
}
