//! Times as people read them: in the zone of this machine, or of `TZ`.

use breakeven::vault::Time;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Returns a time as `2026-11-27 08:20:24`; one that no calendar has by its number.
pub fn local(time: Time) -> String {
    match Timestamp::new(time.seconds, time.nanoseconds as i32) {
        Ok(timestamp) => {
            let local = TimeZone::system().to_datetime(timestamp);
            local.strftime("%Y-%m-%d %H:%M:%S").to_string()
        }
        Err(_) => format!("@{}", time.seconds),
    }
}
