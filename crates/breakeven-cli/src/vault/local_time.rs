//! Times as people read them: in the zone of this machine, or of `TZ`.

use breakeven::vault::Time;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Returns how far local time is ahead of UTC, in seconds.
pub fn utc_offset(seconds: i64) -> i64 {
    let timestamp = Timestamp::from_second(seconds);
    timestamp.map_or(0, |it| TimeZone::system().to_offset(it).seconds().into())
}

/// Returns a time as `2026-11-27 08:20:24`; a time outside of every calendar by its number.
pub fn local(time: Time) -> String {
    match Timestamp::new(time.seconds, time.nanoseconds as i32) {
        Ok(timestamp) => {
            let local = TimeZone::system().to_datetime(timestamp);
            local.strftime("%Y-%m-%d %H:%M:%S").to_string()
        }
        Err(_) => format!("@{}", time.seconds),
    }
}

/// Parses a duration as `1y5m7d2h`: hours, days, weeks, months of 31 days and years of 366. It is never shorter than by
/// the calendar.
pub fn parse_duration(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is no duration as 1y5m7d2h, of y, m, w, d and h");
    let mut seconds: i64 = 0;
    let mut left = text;
    while !left.is_empty() {
        let end = left.find(|digit: char| !digit.is_ascii_digit());
        let (number, rest) = left.split_at(end.ok_or_else(wrong)?);
        let hours = match rest.chars().next() {
            Some('y') => 366 * 24,
            Some('m') => 31 * 24,
            Some('w') => 7 * 24,
            Some('d') => 24,
            Some('h') => 1,
            _ => return Err(wrong()),
        };
        let number: i64 = number.parse().map_err(|_| wrong())?;
        let part = number.checked_mul(hours * 3600);
        let sum = part.and_then(|part| seconds.checked_add(part));
        seconds = sum.ok_or_else(wrong)?;
        left = &rest[1..];
    }
    match seconds {
        0 => Err(wrong()),
        seconds => Ok(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_the_calendar_or_longer() {
        assert_eq!(parse_duration("36h"), Ok(36 * 3600));
        assert_eq!(
            parse_duration("1y2m3w4d5h"),
            Ok((366 + 62 + 21 + 4) * 86_400 + 5 * 3600)
        );
        let wrong = [
            "",
            "0d",
            "d",
            "5",
            "5x",
            "-5d",
            "5 d",
            "5d5",
            "99999999999999999y",
            "1\u{e9}",
        ];
        for text in wrong {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
