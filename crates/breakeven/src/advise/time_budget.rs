//! The time that advice may take, and the part of it kept for the verdicts.

use std::time::Duration;

use crate::meter::Clock;
use crate::units::Seconds;

/// Seconds of a core that the verdicts take, most of them for the simulated cache: an estimate, not a measurement.
const VERDICT_SECONDS: f64 = 1.0;

/// The available time, and its use.
pub struct TimeBudget<'a> {
    clock: Clock<'a>,
    begun: Seconds,
    pub limit: Duration,
    /// Wall time of cheap and of slow methods.
    pub cheap_seconds: f64,
    pub slow_seconds: f64,
    /// Seconds of a core in both together.
    pub core_seconds: f64,
}

impl<'a> TimeBudget<'a> {
    /// Begins now.
    pub fn new(clock: Clock<'a>, limit: Duration) -> TimeBudget<'a> {
        TimeBudget {
            begun: (clock.now)(),
            clock,
            limit,
            cheap_seconds: 0.0,
            slow_seconds: 0.0,
            core_seconds: 0.0,
        }
    }

    /// Time since the sampler began.
    pub fn elapsed(&self) -> Duration {
        Duration::from_secs_f64(((self.clock.now)() - self.begun).0.max(0.0))
    }

    /// The end of drawing. On a busy machine the verdicts wait for a core as long as measuring did.
    pub fn draw_until(&self) -> Duration {
        let measured = self.cheap_seconds + self.slow_seconds;
        let waited = (measured / self.core_seconds.max(1e-9) - 1.0).max(0.0);
        let reserved = Duration::from_secs_f64((waited * VERDICT_SECONDS).min(1e6));
        self.limit - reserved.min(self.limit / 2)
    }

    /// Returns whether slow methods may take more time: as much as the cheap ones, or a head start.
    pub fn allows_slow(&self) -> bool {
        self.slow_seconds <= self.cheap_seconds.max(0.05 * self.limit.as_secs_f64())
    }
}
