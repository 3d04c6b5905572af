//! The watch while energy counters run. It advances the counters, which wrap, and follows the load of other programs,
//! which a counter cannot tell from ours.

#![deny(unsafe_code)]

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::ClockId;

use crate::units::{Joules, Seconds};

use super::rapl::{Rapl, RaplSpan, RaplUnavailable};
use super::roots::{Roots, clock_seconds, read_text};
use super::rusage;
use super::usage::Scope;

/// How often a running span reads the counters, so that none wraps unseen.
const GUARD_INTERVAL: Duration = Duration::from_secs(1);

/// A counter span with a thread that advances it each second, or it would miss a wrap.
#[derive(Debug)]
pub(super) struct Guard {
    shared: Arc<Guarded>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Guarded {
    state: Mutex<GuardState>,
    ended: Condvar,
}

#[derive(Debug)]
struct GuardState {
    span: RaplSpan,
    failure: Option<RaplUnavailable>,
    stop: bool,
}

impl GuardState {
    fn advance(&mut self, rapl: &Rapl) {
        if let Err(reason) = self.span.advance(rapl) {
            self.failure.get_or_insert(reason);
        }
    }
}

impl Guarded {
    fn lock(&self) -> MutexGuard<'_, GuardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Advances the span each `interval` until it is stopped.
    fn watch(&self, rapl: &Rapl, interval: Duration) {
        let mut state = self.lock();
        while !state.stop {
            let (woken, timeout) = self
                .ended
                .wait_timeout(state, interval)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if timeout.timed_out() {
                state.advance(rapl);
            }
        }
    }
}

impl Guard {
    /// Starts at the counters' present values.
    pub fn start(rapl: &Rapl) -> std::result::Result<Guard, RaplUnavailable> {
        let shared = Arc::new(Guarded {
            state: Mutex::new(GuardState {
                span: rapl.start()?,
                failure: None,
                stop: false,
            }),
            ended: Condvar::new(),
        });
        let (watched, counters) = (Arc::clone(&shared), rapl.clone());
        // Without the thread only a span longer than a wrap is wrong, and that shows as too little.
        let thread = std::thread::Builder::new()
            .name("energy-guard".to_string())
            .spawn(move || watched.watch(&counters, GUARD_INTERVAL))
            .ok();
        Ok(Guard { shared, thread })
    }

    /// Ends the span and returns its energy.
    pub fn stop(mut self, rapl: &Rapl) -> std::result::Result<Joules, RaplUnavailable> {
        let mut state = self.shared.lock();
        state.advance(rapl);
        let total = match state.failure.take() {
            Some(reason) => Err(reason),
            None => Ok(state.span.joules()),
        };
        drop(state);
        self.end_thread();
        total
    }

    fn end_thread(&mut self) {
        self.shared.lock().stop = true;
        self.shared.ended.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end_thread();
    }
}

/// Processor time of the whole machine and of this process at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineLoad {
    all: Seconds,
    own: Seconds,
}

impl MachineLoad {
    /// Reads both now, or nothing if the machine does not tell.
    pub fn now(roots: &Roots) -> Option<MachineLoad> {
        let text = read_text(&roots.proc.join("stat")).ok()?;
        let ticks = busy_ticks(&text)?;
        let children = rusage::cpu_time(Scope::Children).total();
        Some(MachineLoad {
            all: Seconds(ticks as f64 / rustix::param::clock_ticks_per_second() as f64),
            own: clock_seconds(ClockId::ProcessCPUTime) + children,
        })
    }

    /// Returns how many cores others kept busy since this moment, `span` ago, or nothing if the
    /// machine does not tell.
    pub fn other_cores_since(&self, roots: &Roots, span: Seconds) -> Option<f64> {
        Some(self.other_cores(&MachineLoad::now(roots)?, span))
    }

    /// Returns how many cores others kept busy from here to `after`, `span` apart.
    fn other_cores(&self, after: &MachineLoad, span: Seconds) -> f64 {
        let others = (after.all - self.all) - (after.own - self.own);
        if span.0 > 0.0 {
            (others / span).max(0.0)
        } else {
            0.0
        }
    }
}

/// Sums the busy columns of the first line of `/proc/stat`: user, nice, system, irq and softirq.
fn busy_ticks(stat: &str) -> Option<u64> {
    let mut columns = stat.lines().next()?.split_ascii_whitespace();
    if columns.next()? != "cpu" {
        return None;
    }
    let ticks: Vec<u64> = columns.map_while(|column| column.parse().ok()).collect();
    [0, 1, 2, 5, 6]
        .iter()
        .try_fold(0u64, |sum, column| sum.checked_add(*ticks.get(*column)?))
}

#[cfg(test)]
mod tests {
    use super::super::rapl::tests::zone;
    use super::super::roots::fake::Tree;
    use super::*;

    #[test]
    fn load_of_others_is_told_from_our_own() {
        let stat = "cpu  100 20 30 9999 50 4 6 70 8 0\ncpu0 1 1 1 1 1 1 1\n";
        assert_eq!(busy_ticks(stat), Some(160));
        for text in ["", "cpu", "cpu0 1 2 3 4 5 6 7", "cpu 1 2 x 4 5 6 7"] {
            assert_eq!(busy_ticks(text), None, "{text}");
        }
        let load = |all, own| MachineLoad {
            all: Seconds(all),
            own: Seconds(own),
        };
        let cores = load(100.0, 10.0).other_cores(&load(106.0, 12.0), Seconds(2.0));
        assert_eq!(cores, 2.0);
        assert_eq!(
            load(1.0, 1.0).other_cores(&load(1.0, 2.0), Seconds(1.0)),
            0.0
        );
        assert!(MachineLoad::now(&Roots::default()).is_some());
    }

    #[test]
    fn the_guard_sees_every_wrap_of_a_long_span() {
        let tree = Tree::new(&[]);
        zone(&tree, "intel-rapl:0", "package-0", "500", Some("1000"));
        let rapl = Rapl::open(&tree.roots(), false).expect("counters");
        let guarded = Guarded {
            state: Mutex::new(GuardState {
                span: rapl.start().expect("a start"),
                failure: None,
                stop: false,
            }),
            ended: Condvar::new(),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| guarded.watch(&rapl, Duration::from_millis(1)));
            // Ten wraps, each only after the thread has seen the last value.
            for step in 1..=10u64 {
                let expected = step as f64 * 900.0 / 1e6;
                let energy = (500 + 900 * step) % 1000;
                tree.write(
                    "sys/class/powercap/intel-rapl:0/energy_uj",
                    energy.to_string(),
                );
                while guarded.lock().span.joules().0 < expected - 1e-9 {
                    assert_eq!(guarded.lock().failure, None);
                    std::thread::yield_now();
                }
            }
            guarded.lock().stop = true;
            guarded.ended.notify_all();
        });
        assert_eq!(guarded.lock().span.joules(), Joules(0.009));
    }
}
