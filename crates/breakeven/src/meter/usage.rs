//! Wall and processor time around a piece of work.
//!
//! A [`Reading`] is the clocks at one moment, a [`Usage`] the difference of two, a [`Meter`] the pair of them around a
//! piece of work. Processor totals come from the kernel's nanosecond clocks. Their split into user and system comes
//! from `getrusage`, which splits by ticks and so is only good over tens of milliseconds.

#![deny(unsafe_code)]

use std::ops::{Add, Sub};
use std::path::Path;

use rustix::time::ClockId;
use serde::{Deserialize, Serialize};

use crate::units::{BytesPerSecond, Seconds};

use super::roots::{clock_seconds, monotonic, read_line};
use super::rusage;

/// Whose processor time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The calling thread alone; [`Meter::stop`] must be called on the thread that started it.
    Thread,
    /// All threads of this process.
    Process,
    /// Processes this one started and has waited for: external tools.
    Children,
}

/// Processor time by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// Time in the program itself.
    pub user: Seconds,
    /// Time in the kernel on its behalf.
    pub system: Seconds,
}

impl CpuTime {
    /// Returns user and system time together.
    pub fn total(self) -> Seconds {
        self.user + self.system
    }
}

impl Add for CpuTime {
    type Output = CpuTime;
    fn add(self, other: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user + other.user,
            system: self.system + other.system,
        }
    }
}

impl Sub for CpuTime {
    type Output = CpuTime;
    fn sub(self, other: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user - other.user,
            system: self.system - other.system,
        }
    }
}

/// The clocks of one scope at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    scope: Scope,
    wall: Seconds,
    /// The scope's total by its nanosecond clock; children have none.
    cpu: Option<Seconds>,
    split: CpuTime,
    runqueue_wait: Option<Seconds>,
}

impl Reading {
    /// Reads the clocks of `scope` now.
    ///
    /// # Cost
    ///
    /// Two system calls and one fast clock; for a thread also one small file under `/proc`
    /// (some microseconds). Around less than a millisecond of work use [`thread_cpu`] instead.
    pub fn now(scope: Scope) -> Reading {
        Reading {
            scope,
            wall: monotonic(),
            cpu: match scope {
                Scope::Thread => Some(clock_seconds(ClockId::ThreadCPUTime)),
                Scope::Process => Some(clock_seconds(ClockId::ProcessCPUTime)),
                Scope::Children => None,
            },
            split: rusage::cpu_time(scope),
            runqueue_wait: match scope {
                Scope::Thread => runqueue_wait(Path::new("/proc/thread-self/schedstat")),
                Scope::Process | Scope::Children => None,
            },
        }
    }

    /// Returns what was used between this reading and a `later` one, while `bytes` were moved.
    ///
    /// # Panics
    ///
    /// If the two readings have different scopes.
    pub fn until(&self, later: &Reading, bytes: u64) -> Usage {
        assert_eq!(self.scope, later.scope, "readings of different scopes");
        let split = later.split - self.split;
        let cpu = match (self.cpu, later.cpu) {
            (Some(before), Some(after)) => later_minus(after, before),
            _ => split.total(),
        };
        // The clock's total is the truth; getrusage says only how it divides.
        let system_share = if split.total().0 > 0.0 {
            (split.system / split.total()).clamp(0.0, 1.0)
        } else {
            0.0
        };
        let system = cpu * system_share;
        Usage {
            scope: self.scope,
            wall: later_minus(later.wall, self.wall),
            cpu: CpuTime {
                user: cpu - system,
                system,
            },
            runqueue_wait: match (self.runqueue_wait, later.runqueue_wait) {
                (Some(before), Some(after)) => Some(later_minus(after, before)),
                _ => None,
            },
            bytes,
        }
    }
}

/// The time and bytes that a piece of work used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Whose processor time this is.
    pub scope: Scope,
    /// Elapsed time.
    pub wall: Seconds,
    /// Processor time of the scope, by kind.
    pub cpu: CpuTime,
    /// Time the thread was ready to run and had no processor. It is known for threads only, and only where the kernel
    /// keeps scheduler statistics.
    pub runqueue_wait: Option<Seconds>,
    /// Bytes moved, as the caller counts them.
    pub bytes: u64,
}

impl Usage {
    /// Returns the time spent waiting: elapsed less user less system, mostly for I/O
    /// (Kothiyal 2009, section 4.3). A scope that kept several processors busy has none.
    pub fn wait(&self) -> Seconds {
        later_minus(self.wall, self.cpu.total())
    }

    /// Returns the share of the wanted processor time that the scope was granted. It is processor time over processor
    /// time and runqueue wait, or over elapsed time where that wait is unknown. 1 when nothing was asked for.
    pub fn core_share(&self) -> f64 {
        let cpu = self.cpu.total();
        let wished = match self.runqueue_wait {
            Some(wait) => cpu + wait,
            None => self.wall,
        };
        if wished.0 > 0.0 {
            (cpu / wished).min(1.0)
        } else {
            1.0
        }
    }

    /// Returns the bytes moved per second of elapsed time, or nothing if no time passed.
    pub fn rate(&self) -> Option<BytesPerSecond> {
        (self.wall.0 > 0.0).then(|| BytesPerSecond(self.bytes as f64 / self.wall.0))
    }
}

impl Add for Usage {
    type Output = Usage;
    /// Joins two spans that followed one another in one scope.
    fn add(self, other: Usage) -> Usage {
        assert_eq!(self.scope, other.scope, "usages of different scopes");
        Usage {
            scope: self.scope,
            wall: self.wall + other.wall,
            cpu: self.cpu + other.cpu,
            runqueue_wait: match (self.runqueue_wait, other.runqueue_wait) {
                (Some(one), Some(two)) => Some(one + two),
                _ => None,
            },
            bytes: self.bytes + other.bytes,
        }
    }
}

/// A running measurement.
///
/// # Example
///
/// ```
/// use breakeven::meter::{Meter, Scope};
///
/// let meter = Meter::start(Scope::Thread);
/// let sum: u64 = std::hint::black_box(0..100_000u64).sum();
/// let usage = meter.stop(800_000);
/// assert!(sum > 0 && usage.wall.0 > 0.0 && usage.wait().0 >= 0.0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    start: Reading,
}

impl Meter {
    /// Starts measuring `scope`.
    pub fn start(scope: Scope) -> Meter {
        Meter {
            start: Reading::now(scope),
        }
    }

    /// Ends the measurement of work that moved `bytes`.
    pub fn stop(self, bytes: u64) -> Usage {
        self.start.until(&Reading::now(self.start.scope), bytes)
    }
}

/// Returns the processor time of the calling thread so far.
///
/// # Cost
///
/// One system call: 0.4 us on a 2.6 GHz guest.
pub fn thread_cpu() -> Seconds {
    clock_seconds(ClockId::ThreadCPUTime)
}

/// Returns the processor time of all threads of this process so far.
///
/// # Cost
///
/// As [`thread_cpu`].
pub fn process_cpu() -> Seconds {
    clock_seconds(ClockId::ProcessCPUTime)
}

/// Returns the sum, over the present threads of this process, of the time in which each was ready to run and had no
/// processor. It is nothing where the kernel keeps no scheduler statistics.
///
/// # Cost
///
/// A small file under `/proc` for each thread, of some microseconds.
pub fn process_waiting() -> Seconds {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let of_thread = threads.filter_map(|it| runqueue_wait(&it.ok()?.path().join("schedstat")));
    of_thread.fold(Seconds(0.0), |all, wait| all + wait)
}

/// Reads the second field of a `schedstat` file: nanoseconds spent waiting on a run queue.
fn runqueue_wait(path: &Path) -> Option<Seconds> {
    let line = read_line(path)?;
    let nanoseconds: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Seconds(nanoseconds as f64 / 1e9))
}

/// Subtracts a duration that can only be smaller, up to the clocks' disagreement.
fn later_minus(later: Seconds, earlier: Seconds) -> Seconds {
    Seconds((later.0 - earlier.0).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::super::roots::fake::Tree;
    use super::*;

    fn reading(wall: f64, cpu: Option<f64>, split: (f64, f64), wait: Option<f64>) -> Reading {
        Reading {
            scope: Scope::Thread,
            wall: Seconds(wall),
            cpu: cpu.map(Seconds),
            split: CpuTime {
                user: Seconds(split.0),
                system: Seconds(split.1),
            },
            runqueue_wait: wait.map(Seconds),
        }
    }

    fn check(later: Reading, expected: (f64, f64, f64, f64)) -> Usage {
        let start = reading(10.0, Some(1.0), (0.5, 0.5), Some(0.25));
        let usage = start.until(&later, 77);
        let found = (
            usage.cpu.user.0,
            usage.cpu.system.0,
            usage.wait().0,
            usage.core_share(),
        );
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(
            near(found.0, expected.0)
                && near(found.1, expected.1)
                && near(found.2, expected.2)
                && near(found.3, expected.3),
            "expected {expected:?}, found {found:?}"
        );
        usage
    }

    #[test]
    fn user_system_and_wait_add_up_to_wall() {
        // 4 s elapsed, 2 s on the processor, a quarter of it in the kernel, 2 s ready but not run.
        let later = reading(14.0, Some(3.0), (2.0, 1.0), Some(2.25));
        let usage = check(later, (1.5, 0.5, 2.0, 0.5));
        assert_eq!(
            (usage.bytes, usage.rate()),
            (77, Some(BytesPerSecond(19.25)))
        );
        // Without scheduler statistics the share is of elapsed time.
        check(
            reading(14.0, Some(3.0), (2.0, 1.0), None),
            (1.5, 0.5, 2.0, 0.5),
        );
        // Several threads: more processor time than elapsed leaves no wait.
        check(
            reading(11.0, Some(5.0), (4.5, 0.5), None),
            (4.0, 0.0, 0.0, 1.0),
        );
        // No tick fell into the span: all of it counts as user time.
        check(
            reading(11.0, Some(1.5), (0.5, 0.5), None),
            (0.5, 0.0, 0.5, 0.5),
        );
        // Without a clock, as for children, getrusage is the total too.
        check(
            reading(14.0, None, (1.5, 0.75), None),
            (1.0, 0.25, 2.75, 0.3125),
        );
    }

    #[test]
    fn readings_taken_for_real_do_not_contradict_each_other() {
        for scope in [Scope::Thread, Scope::Process, Scope::Children] {
            let meter = Meter::start(scope);
            let mut state = 1u64;
            for _ in 0..200_000 {
                state = std::hint::black_box(state.wrapping_mul(6364136223846793005));
            }
            let usage = meter.stop(1);
            assert!(usage.wall.0 > 0.0);
            assert!(usage.cpu.user.0 >= 0.0 && usage.cpu.system.0 >= 0.0);
            assert_eq!(usage.cpu.total().0 > 0.0, scope != Scope::Children);
            assert!(usage.wait() <= usage.wall);
        }
    }

    #[test]
    fn time_of_a_finished_child_is_counted() {
        let meter = Meter::start(Scope::Children);
        // A shell loop long enough for the kernel's microsecond accounting.
        let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        let status = std::process::Command::new("sh")
            .args(["-c", script])
            .status();
        assert!(status.expect("a shell").success());
        let usage = meter.stop(0);
        assert!(usage.cpu.total().0 > 0.0, "{usage:?}");
        assert_eq!(usage.runqueue_wait, None);
    }

    #[test]
    fn schedstat_is_read_or_passed_over() {
        let tree = Tree::new(&[
            ("good", "449255 111576 2\n"),
            ("short", "449255\n"),
            ("words", "a b c\n"),
            ("empty", ""),
        ]);
        let read = |name: &str| runqueue_wait(&tree.folder.path().join(name));
        assert_eq!(read("good"), Some(Seconds(0.000111576)));
        for name in ["short", "words", "empty", "missing"] {
            assert_eq!(read(name), None, "{name}");
        }
    }

    #[test]
    fn spans_that_follow_each_other_join() {
        let start = reading(10.0, Some(1.0), (0.5, 0.5), Some(0.0));
        let middle = reading(11.0, Some(1.5), (0.75, 0.75), Some(0.5));
        let end = reading(14.0, Some(3.5), (2.0, 1.5), None);
        let joined = start.until(&middle, 1) + middle.until(&end, 2);
        assert_eq!((joined.wall, joined.bytes), (Seconds(4.0), 3));
        assert_eq!(joined.runqueue_wait, None);
    }
}
