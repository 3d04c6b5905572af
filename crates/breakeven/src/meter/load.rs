//! A known load: threads that keep a processor busy while something is measured.
//!
//! The work resembles a match finder's: hash, look up and store in a table the size of a first-level cache. So the
//! watts are those of compressing rather than of an empty loop.

#![deny(unsafe_code)]

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

const TABLE_ENTRIES: usize = 1 << 13;

/// Runs `body` while `thread_count` threads are busy; they have ended when it returns.
///
/// # Errors
/// `Io` if the system starts fewer threads: a load that is not there would be measured.
pub(super) fn with_busy_threads<T>(thread_count: u32, body: impl FnOnce() -> T) -> Result<T> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Raised even if the body panics, or the scope would wait for ever.
        let _guard = RaiseOnDrop(&stop);
        for _ in 0..thread_count {
            let busy = std::thread::Builder::new().spawn_scoped(scope, || keep_busy(&stop));
            busy.map_err(|error| Error::io("start", "a busy thread", error))?;
        }
        Ok(body())
    })
}

struct RaiseOnDrop<'a>(&'a AtomicBool);

impl Drop for RaiseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn keep_busy(stop: &AtomicBool) {
    let mut table = vec![0u32; TABLE_ENTRIES];
    let mut state = 1u32;
    while !stop.load(Ordering::Relaxed) {
        for position in 0..TABLE_ENTRIES as u32 {
            let hash = (state ^ position).wrapping_mul(2_654_435_761) >> 19;
            let found = std::mem::replace(&mut table[hash as usize], state);
            state = state.rotate_left(5) ^ found.wrapping_add(position);
        }
        state = black_box(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_threads_use_processor_time_and_end() {
        use super::super::usage::{Meter, Scope};

        let meter = Meter::start(Scope::Process);
        let answer = with_busy_threads(2, || {
            // It ends by the threads' own time, not by a clock.
            let start = super::super::roots::clock_seconds(rustix::time::ClockId::ProcessCPUTime);
            while super::super::roots::clock_seconds(rustix::time::ClockId::ProcessCPUTime).0
                < start.0 + 0.02
            {
                std::thread::yield_now();
            }
            7
        });
        assert_eq!(answer.expect("threads"), 7);
        assert!(meter.stop(0).cpu.total().0 >= 0.02);
    }

    #[test]
    fn a_panic_in_the_body_releases_them() {
        let result = std::panic::catch_unwind(|| with_busy_threads(1, || panic!("on purpose")));
        assert!(result.is_err());
    }
}
