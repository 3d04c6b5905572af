//! A link that is not there: bytes leave it when a link of its speed would have sent them.
//!
//! The thesis's virtual network waits for as long as each piece would take, and deviates at high speeds (section 5.3).
//! This one keeps the time at which a real link would be through with all its bytes, and sleeps until little is left.
//! Bytes that come while the link is busy wait their turn, and bytes that come late leave a gap. A sleeper that wakes
//! late loses nothing as long as the link still has something to send. Nothing spins, since the workers need the
//! processor.

use std::io::{self, IoSlice, Write};
use std::time::{Duration, Instant};

use breakeven::units::BytesPerSecond;

/// The link's own buffer: 1.2 MB at 0.6 GB/s, where a socket's buffer grows to 4 MB. Enough to bridge the time for
/// which the scheduler lets another thread have the core.
const BUFFER: Duration = Duration::from_millis(2);

/// A sink that takes bytes at a speed.
#[derive(Debug)]
pub struct Link {
    speed: BytesPerSecond,
    /// For how long it has something to send when it is full.
    buffer: Duration,
    /// The time at which the link is through with its bytes.
    free_at: Option<Instant>,
    late: Duration,
}

impl Link {
    pub fn new(speed: BytesPerSecond) -> Link {
        Link {
            speed,
            buffer: BUFFER,
            free_at: None,
            late: Duration::ZERO,
        }
    }

    /// Lets the link hold so many bytes beside those that it sends.
    pub fn holding(self, bytes: u64) -> Link {
        let buffer = Duration::from_secs_f64(bytes as f64 / self.speed.0);
        Link { buffer, ..self }
    }

    /// Returns for how long the link stood still because its sleeper woke too late.
    pub fn late_seconds(&self) -> f64 {
        self.late.as_secs_f64()
    }

    /// Takes bytes at a time and returns when there is room again.
    fn take(&mut self, bytes: usize, now: Instant) -> Instant {
        let begins = self.free_at.map_or(now, |free| free.max(now));
        let ends = begins + Duration::from_secs_f64(bytes as f64 / self.speed.0);
        self.free_at = Some(ends);
        ends.checked_sub(self.buffer).unwrap_or(now)
    }

    fn sleep_until(&mut self, time: Instant) {
        let left = time.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left);
        let free = self.free_at.unwrap_or(time);
        self.late += Instant::now().saturating_duration_since(free.max(time));
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let count = slices.iter().map(|slice| slice.len()).sum();
        let room_at = self.take(count, Instant::now());
        self.sleep_until(room_at);
        Ok(count)
    }

    /// Waits until the link has sent everything.
    fn flush(&mut self) -> io::Result<()> {
        if let Some(free) = self.free_at {
            let left = free.saturating_duration_since(Instant::now());
            std::thread::sleep(left);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_link_queues_and_an_idle_one_waits() {
        let mut link = Link::new(BytesPerSecond(1e6));
        let begun = Instant::now();
        let after = |seconds: f64| begun + Duration::from_secs_f64(seconds);
        assert_eq!(link.take(100_000, begun), after(0.1) - BUFFER);
        // Given while it is busy: after the first.
        assert_eq!(link.take(100_000, after(0.05)), after(0.2) - BUFFER);
        // Given when it was idle for a while: the gap is lost.
        assert_eq!(link.take(100_000, after(1.0)), after(1.1) - BUFFER);
        assert_eq!(link.free_at, Some(after(1.1)));
        assert_eq!(link.late_seconds(), 0.0);
        let mut deep = Link::new(BytesPerSecond(1e6)).holding(300_000);
        assert_eq!(
            deep.take(200_000, begun),
            begun - Duration::from_millis(100)
        );
    }
}
