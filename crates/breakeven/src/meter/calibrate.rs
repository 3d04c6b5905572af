//! Calibration: watts over load by a meter at the machine's supply.
//!
//! The meter is any command that prints watts: a plug's, a management controller's, a laboratory's. The machine idles,
//! runs threads on about a tenth, a half and all of its hardware threads, and idles again. The command runs at
//! intervals. The means of the phases, in rising order, are the machine's profile. Meters average over about a second,
//! so phases are long. Time and date are handed in; nothing is stored here.

#![deny(unsafe_code)]

use std::ops::ControlFlow;

use crate::error::{Error, Result};
use crate::units::{Seconds, Watts};

use super::load::with_busy_threads;
use super::machine::Machine;
use super::machine_profile::{CalibrationPoint, MachineProfile};
use super::meter_command::read_watts;
use super::roots::Clock;

/// Shares of the hardware threads that are loaded, the points of a Teads profile.
const LOADS: [f64; 3] = [0.1, 0.5, 1.0];

/// How a machine is calibrated.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrationOptions {
    /// The command that prints the watts of this machine, run through the shell.
    pub command: String,
    /// The day, as it will stand in the profile: `2026-11-21`.
    pub date: String,
    /// How long each of the five phases is sampled. Default: 30 s.
    pub phase: Seconds,
    /// How long a new load settles before it is sampled. Default: 5 s.
    pub settle: Seconds,
    /// Time between two samples. Default: 1 s.
    pub interval: Seconds,
    /// The longest the command may take, in real time. Default: 10 s.
    pub deadline: Seconds,
}

impl Default for CalibrationOptions {
    /// Long enough for a meter that averages over a second; the command and the date are the
    /// caller's.
    fn default() -> CalibrationOptions {
        CalibrationOptions {
            command: String::new(),
            date: String::new(),
            phase: Seconds(30.0),
            settle: Seconds(5.0),
            interval: Seconds(1.0),
            deadline: Seconds(10.0),
        }
    }
}

impl CalibrationOptions {
    /// Checks that a calibration can be made so.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] naming the first option that is out of range.
    pub fn check(&self) -> Result<()> {
        let invalid = |reason: String| Err(Error::invalid("calibration", reason));
        if self.command.trim().is_empty() {
            return invalid("no meter command".to_string());
        }
        if self.date.is_empty() || self.date.chars().any(char::is_control) {
            return invalid(format!("'{}' is not a date", self.date.escape_debug()));
        }
        for (name, span, low) in [
            ("phase", self.phase, 0.001),
            ("settle", self.settle, 0.0),
            ("interval", self.interval, 0.001),
            ("deadline", self.deadline, 0.001),
        ] {
            if !(low..=86_400.0).contains(&span.0) {
                return invalid(format!("{name} of {span} is not between {low} s and a day"));
            }
        }
        if self.phase.0 < 2.0 * self.interval.0 {
            return invalid(format!(
                "a phase of {} has no room for two samples {} apart",
                self.phase, self.interval
            ));
        }
        Ok(())
    }
}

/// The progress of a calibration, reported after each sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CalibrationStep {
    /// The phase, from 0.
    pub phase_index: usize,
    /// How many phases there are.
    pub phase_count: usize,
    /// Threads kept busy in this phase.
    pub busy_threads: u32,
    /// Samples taken in this phase.
    pub samples: u32,
    /// The watts of the last sample.
    pub watts: Watts,
}

/// Measures the watts of `machine` over its load.
///
/// `progress` is called after each sample and may end the calibration.
///
/// # Errors
///
/// [`Error::Invalid`] for options out of range, a command that fails or hangs, and a meter that does not follow the
/// load. [`Error::Parse`] if the command prints no watts. [`Error::Interrupted`] if `progress` asks for it.
///
/// # Cost
///
/// Four or five phases of settle and phase, nearly three minutes by default, most of it with busy
/// processors.
pub fn calibrate(
    options: &CalibrationOptions,
    machine: &Machine,
    clock: Clock<'_>,
    progress: &mut dyn FnMut(CalibrationStep) -> ControlFlow<()>,
) -> Result<MachineProfile> {
    options.check()?;
    // A meter that does not work is reported at once, not after the first load has settled.
    read_watts(&options.command, options.deadline)?;
    let phases = phases_for(machine.threads);
    let mut measured: Vec<Phase> = Vec::with_capacity(phases.len());
    for (phase_index, busy_threads) in phases.iter().copied().enumerate() {
        let mut tell = |samples, watts| {
            progress(CalibrationStep {
                phase_index,
                phase_count: phases.len(),
                busy_threads,
                samples,
                watts,
            })
        };
        let samples = with_busy_threads(busy_threads, || sample(options, clock, &mut tell))??;
        // The second idle phase joins the first: what drifted shows in its interval.
        match measured
            .iter_mut()
            .find(|phase| phase.busy_threads == busy_threads)
        {
            Some(phase) => phase.samples.extend(samples),
            None => measured.push(Phase {
                busy_threads,
                samples,
            }),
        }
    }
    let points = fit(&measured);
    let (idle, busy) = (points[0], points[points.len() - 1]);
    if busy.watts.0 - idle.watts.0 <= busy.half_width.0 + idle.half_width.0 {
        return Err(Error::invalid(
            "calibration",
            format!(
                "the meter does not follow the load: {:.1} +- {:.1} W idle, {:.1} +- {:.1} W busy",
                idle.watts.0, idle.half_width.0, busy.watts.0, busy.half_width.0
            ),
        ));
    }
    MachineProfile::new(machine, &options.date, &options.command, points)
}

/// Samples of one number of busy threads.
struct Phase {
    busy_threads: u32,
    samples: Vec<f64>,
}

/// The busy threads of each phase: none, the loads in rising order, none again.
fn phases_for(threads: u32) -> Vec<u32> {
    let mut phases = vec![0];
    for load in LOADS {
        let busy = ((load * f64::from(threads)).round() as u32).max(1);
        if !phases.contains(&busy) {
            phases.push(busy);
        }
    }
    phases.push(0);
    phases
}

/// Lets the load settle, then runs the meter at intervals until the phase is over.
fn sample(
    options: &CalibrationOptions,
    clock: Clock<'_>,
    tell: &mut dyn FnMut(u32, Watts) -> ControlFlow<()>,
) -> Result<Vec<f64>> {
    (clock.wait)(options.settle);
    let end = (clock.now)() + options.phase;
    let mut samples = Vec::new();
    // A slow command takes fewer samples, never less than two.
    while (clock.now)() < end || samples.len() < 2 {
        let watts = read_watts(&options.command, options.deadline)?;
        samples.push(watts.0);
        if tell(samples.len() as u32, watts).is_break() {
            return Err(Error::Interrupted);
        }
        (clock.wait)(options.interval);
    }
    Ok(samples)
}

/// Turns samples into points in rising order of watts.
///
/// Neighbours that fall are noise around one value, and share their mean (isotonic regression by
/// pooling, weighted by samples).
fn fit(phases: &[Phase]) -> Vec<CalibrationPoint> {
    let mut pools: Vec<(f64, f64, usize)> = Vec::new();
    for phase in phases {
        pools.push((mean(&phase.samples), phase.samples.len() as f64, 1));
        while let [.., (low, low_weight, low_count), (high, weight, count)] = pools[..] {
            if low <= high {
                break;
            }
            let joined = (low * low_weight + high * weight) / (low_weight + weight);
            pools.truncate(pools.len() - 2);
            pools.push((joined, low_weight + weight, low_count + count));
        }
    }
    let watts = pools
        .iter()
        .flat_map(|(watts, _, count)| std::iter::repeat_n(*watts, *count));
    phases
        .iter()
        .zip(watts)
        .map(|(phase, watts)| CalibrationPoint {
            busy_threads: phase.busy_threads,
            watts: Watts(watts),
            half_width: Watts(half_width(&phase.samples)),
            samples: phase.samples.len() as u32,
        })
        .collect()
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// Half the width of the mean's 95 % interval, by the normal law. At the thirty samples of a default phase Student's is
/// 4 % wider.
fn half_width(samples: &[f64]) -> f64 {
    let (mean, count) = (mean(samples), samples.len() as f64);
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    1.96 * (squares / (count - 1.0) / count).sqrt()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::Path;

    use super::super::roots::fake::FakeTime;
    use super::*;

    fn machine(threads: u32) -> Machine {
        Machine {
            threads,
            cores: threads,
            ..Machine::default()
        }
    }

    fn options(command: String) -> CalibrationOptions {
        CalibrationOptions {
            command,
            date: "2026-11-21".to_string(),
            phase: Seconds(4.0),
            deadline: Seconds(60.0),
            ..CalibrationOptions::default()
        }
    }

    /// Calibrates by a fake time. `show` gets each step, and writes the next output of the meter.
    fn run(
        options: &CalibrationOptions,
        threads: u32,
        mut show: impl FnMut(CalibrationStep) -> ControlFlow<()>,
    ) -> Result<MachineProfile> {
        let time = FakeTime::new(|_| {});
        let clock = Clock {
            now: &|| Seconds(time.now.get()),
            wait: &|span| time.pass(span),
        };
        calibrate(options, &machine(threads), clock, &mut show)
    }

    /// A meter that shows one line of a file after the other, for ever the last.
    fn meter_showing(folder: &Path, lines: &str) -> String {
        std::fs::write(folder.join("lines"), lines).expect("written");
        let folder = folder.display();
        format!(
            "cd '{folder}'; head -n 1 lines; if [ $(wc -l < lines) -gt 1 ]; \
             then tail -n +2 lines > rest; mv rest lines; fi"
        )
    }

    #[test]
    fn a_fake_meter_makes_a_profile() {
        let folder = tempfile::tempdir().expect("a folder");
        // One to see whether it works, then four samples a phase: idle, 1 of 8 threads, 4, 8, idle.
        let lines = ["50 W\n", "62 W\n", "80 W\n", "100 W\n", "52 W\n"].map(|line| line.repeat(4));
        let lines = format!("1 W\n{}", lines.concat());
        let options = options(meter_showing(folder.path(), &lines));
        let steps = RefCell::new(Vec::new());
        let profile = run(&options, 8, |step| {
            steps
                .borrow_mut()
                .push((step.phase_index, step.busy_threads, step.samples));
            ControlFlow::Continue(())
        })
        .expect("a profile");
        let points: Vec<(u32, f64, u32)> = profile
            .points
            .iter()
            .map(|point| (point.busy_threads, point.watts.0, point.samples))
            .collect();
        assert_eq!(
            points,
            [(0, 51.0, 8), (1, 62.0, 4), (4, 80.0, 4), (8, 100.0, 4)]
        );
        assert_eq!(steps.borrow().len(), 20);
        assert_eq!(steps.borrow()[19], (4, 0, 4));
        let model = profile.model().expect("a model");
        assert_eq!(model.watts_at(0.75), Watts(90.0));
        assert!(model.source().to_string().ends_with(", 2026-11-21)"));
    }

    #[test]
    fn a_meter_that_does_not_follow_the_load_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = run(&options(meter_showing(folder.path(), "80\n")), 2, |_| {
            ControlFlow::Continue(())
        });
        let text = error.expect_err("a refusal").to_string();
        assert!(text.contains("does not follow the load: 80.0"), "{text}");
    }

    #[test]
    fn malformed_failing_and_hanging_meters_are_refused() {
        for (command, deadline, reason) in [
            ("echo no sensor", 60.0, "no number"),
            ("echo 5; exit 2", 60.0, "exit status: 2"),
            ("sleep 1000", 0.05, "no answer within"),
        ] {
            let options = CalibrationOptions {
                deadline: Seconds(deadline),
                ..options(command.to_string())
            };
            let error = run(&options, 1, |_| ControlFlow::Continue(())).expect_err(command);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn the_caller_may_end_it() {
        let error = run(&options("echo 5".to_string()), 1, |step| {
            assert_eq!(
                (step.phase_index, step.samples, step.watts),
                (0, 1, Watts(5.0))
            );
            ControlFlow::Break(())
        });
        assert!(matches!(error, Err(Error::Interrupted)), "{error:?}");
    }

    #[test]
    fn phases_cover_the_machine_without_repeating() {
        assert_eq!(phases_for(1), [0, 1, 0]);
        assert_eq!(phases_for(2), [0, 1, 2, 0]);
        assert_eq!(phases_for(8), [0, 1, 4, 8, 0]);
        assert_eq!(phases_for(256), [0, 26, 128, 256, 0]);
    }

    #[test]
    fn noise_is_pooled_into_a_rising_line() {
        let fitted = |values: &[&[f64]]| -> Vec<f64> {
            let phase = |(index, samples): (usize, &&[f64])| Phase {
                busy_threads: index as u32,
                samples: samples.to_vec(),
            };
            let phases: Vec<Phase> = values.iter().enumerate().map(phase).collect();
            fit(&phases).iter().map(|point| point.watts.0).collect()
        };
        assert_eq!(fitted(&[&[1.0, 3.0], &[4.0, 4.0]]), [2.0, 4.0]);
        assert_eq!(
            fitted(&[&[1.0; 2], &[9.0; 2], &[6.0; 4], &[8.0; 2]]),
            [1.0, 7.0, 7.0, 8.0]
        );
        assert_eq!(fitted(&[&[9.0; 2], &[6.0; 2], &[3.0; 2]]), [6.0; 3]);
        assert!((half_width(&[1.0, 3.0, 1.0, 3.0]) - 1.96 / 3f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn options_out_of_range_are_refused() {
        let good = options("echo 5".to_string());
        let refuse = |options: CalibrationOptions, reason: &str| {
            let error = options.check().expect_err(reason).to_string();
            assert!(error.contains(reason), "expected '{reason}' in: {error}");
        };
        refuse(CalibrationOptions::default(), "no meter command");
        refuse(
            CalibrationOptions {
                date: String::new(),
                ..good.clone()
            },
            "not a date",
        );
        refuse(
            CalibrationOptions {
                phase: Seconds(f64::NAN),
                ..good.clone()
            },
            "phase of NaN",
        );
        refuse(
            CalibrationOptions {
                settle: Seconds(-1.0),
                ..good.clone()
            },
            "settle",
        );
        refuse(
            CalibrationOptions {
                interval: Seconds(3.0),
                ..good
            },
            "no room for two samples",
        );
    }
}
