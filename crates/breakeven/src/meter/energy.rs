//! The choice of an energy source, and joules around a piece of work.
//!
//! [`EnergyMeter::choose`] takes the source with the narrowest band that this machine offers. In order: processor
//! counters, watts declared, a stored calibration, counters passed on to a guest, the family's published medians, a
//! default. [`EnergyMeter::notes`] names the sources passed over. Counters need to know the idle machine first, so
//! choosing them takes some seconds: idle, one core, all cores, idle again. From then on they also give a power model,
//! which prices work too short for them.

#![deny(unsafe_code)]

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::units::{Joules, Seconds, Source, Watts};

use super::load::with_busy_threads;
use super::machine::{IdlePower, Machine};
use super::machine_profile::MachineProfile;
use super::power::{DeclaredWatts, Energy, LoadPoint, OTHER_CORES_MAX, PowerModel, Traffic};
use super::rapl::{Rapl, RaplUnavailable};
use super::roots::{Clock, Roots};
use super::usage::Usage;
use super::watch::{Guard, MachineLoad};

/// Counters advance about every millisecond: below this span the model is the better figure.
pub const COUNTER_SPAN_MIN: Seconds = Seconds(0.5);

/// How the source of energy is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct EnergyOptions {
    /// Watts the user declares. Default: none.
    pub declared: Option<DeclaredWatts>,
    /// A stored calibration, used if it is there and of this processor. Default: none.
    pub profile_path: Option<PathBuf>,
    /// Look for the processor's counters. Default: true.
    pub counters: bool,
    /// How long each of the four phases lasts in which counters learn the machine's watts, at
    /// least [`COUNTER_SPAN_MIN`]. Default: 0.5 s.
    pub phase: Seconds,
    /// Where the kernel's trees are. Default: `/proc` and `/sys`.
    pub roots: Roots,
}

impl Default for EnergyOptions {
    fn default() -> EnergyOptions {
        EnergyOptions {
            declared: None,
            profile_path: None,
            counters: true,
            phase: COUNTER_SPAN_MIN,
            roots: Roots::default(),
        }
    }
}

/// A source of energy figures for one machine.
#[derive(Clone, Debug)]
pub struct EnergyMeter {
    model: PowerModel,
    counters: Option<Rapl>,
    roots: Roots,
    notes: Vec<String>,
}

impl EnergyMeter {
    /// Chooses the best source for `machine`. A source that cannot be used is a note, no error.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the options are out of range.
    ///
    /// # Cost
    ///
    /// Some small files; with counters, four phases by `clock`, one of them loading all cores.
    pub fn choose(
        options: &EnergyOptions,
        machine: &Machine,
        clock: Clock<'_>,
    ) -> Result<EnergyMeter> {
        if options.phase.0.is_nan() || options.phase < COUNTER_SPAN_MIN {
            return Err(Error::invalid(
                "phase of the energy counters",
                format!("{} is below {COUNTER_SPAN_MIN}", options.phase),
            ));
        }
        let mut notes = Vec::new();
        let model = best_model(options, machine, &mut notes)?;
        let mut meter = EnergyMeter {
            model,
            counters: None,
            roots: options.roots.clone(),
            notes,
        };
        if options.counters {
            meter.try_counters(options, machine, clock);
        }
        Ok(meter)
    }

    /// Returns the model of watts over load, with its source and scope. With counters it holds the
    /// watts they showed.
    pub fn model(&self) -> &PowerModel {
        &self.model
    }

    /// Tells whether work of [`COUNTER_SPAN_MIN`] and longer is measured by counters.
    pub fn has_counters(&self) -> bool {
        self.counters.is_some()
    }

    /// Returns what the idle machine draws.
    pub fn idle_power(&self) -> IdlePower {
        IdlePower {
            watts: self.model.idle_watts(),
            source: self.model.source().clone(),
            scope: self.model.scope().clone(),
        }
    }

    /// Returns one sentence for each source that was passed over, with the remedy.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Starts measuring a piece of work.
    ///
    /// # Cost
    ///
    /// Nothing with a model. With counters, reading some small files and one thread that reads
    /// them again each second.
    pub fn start(&self) -> EnergySpan<'_> {
        EnergySpan {
            meter: self,
            watch: self.counters.as_ref().and_then(|rapl| {
                let machine_load = MachineLoad::now(&self.roots);
                Some(Watch {
                    guard: Guard::start(rapl).ok()?,
                    machine_load,
                })
            }),
        }
    }

    /// Takes the counters if they are there and better than the model, and learns from them.
    fn try_counters(&mut self, options: &EnergyOptions, machine: &Machine, clock: Clock<'_>) {
        let rapl = match Rapl::open(&options.roots, machine.virtualisation.is_some()) {
            Ok(rapl) => rapl,
            Err(reason) => return self.notes.push(reason.to_string()),
        };
        if rapl.source().band() > self.model.source().band() {
            self.notes.push(format!(
                "{} is not used: {} is the better source",
                rapl.source(),
                self.model.source()
            ));
            return;
        }
        match self.learn(&rapl, options.phase, machine, clock) {
            Ok(model) => {
                let unused = self.model.source();
                if matches!(unused, Source::Declared | Source::ModelCalibrated(_)) {
                    let note = format!("{unused} watts are not used: {} measures", rapl.source());
                    self.notes.push(note);
                }
                self.model = model;
                self.counters = Some(rapl);
            }
            Err(reason) => self.notes.push(reason),
        }
    }

    /// Reads the watts of the idle machine, of one busy core and of all, and of idle again.
    fn learn(
        &mut self,
        rapl: &Rapl,
        phase: Seconds,
        machine: &Machine,
        clock: Clock<'_>,
    ) -> std::result::Result<PowerModel, String> {
        let watts = |thread_count: u32| {
            let watts = with_busy_threads(thread_count, || watts_over(rapl, phase, clock));
            let watts = watts.map_err(|error| error.to_string())?;
            watts.map_err(|reason| reason.to_string())
        };
        let before = MachineLoad::now(&self.roots);
        let idle_first = watts(0)?;
        let others = before.and_then(|before| before.other_cores_since(&self.roots, phase));
        if let Some(cores) = others.filter(|cores| *cores > OTHER_CORES_MAX) {
            self.notes.push(format!(
                "idle power was taken while others kept {cores:.1} cores busy: it is too high"
            ));
        }
        let one = watts(1)?;
        let all = if machine.threads > 1 {
            watts(machine.threads)?
        } else {
            one
        };
        let idle = Watts(idle_first.0.min(watts(0)?.0));
        let mut points = vec![LoadPoint::new(0.0, idle.0)];
        if machine.threads > 1 {
            points.push(LoadPoint::new(1.0 / f64::from(machine.threads), one.0));
        }
        points.push(LoadPoint::new(1.0, all.0));
        PowerModel::from_points(points, machine.threads, rapl.source(), rapl.scope())
            .map_err(|reason| format!("{} does not follow the load: {reason}", rapl.source()))
    }
}

/// Returns the best model that needs no counters.
fn best_model(
    options: &EnergyOptions,
    machine: &Machine,
    notes: &mut Vec<String>,
) -> Result<PowerModel> {
    if let Some(declared) = options.declared {
        return PowerModel::from_declared(declared, machine);
    }
    if let Some(path) = &options.profile_path {
        match MachineProfile::load(path, machine) {
            Ok(Some(profile)) => return profile.model(),
            Ok(None) => {}
            Err(error) => notes.push(format!("the stored calibration is not used: {error}")),
        }
    }
    match machine.processor.family_power() {
        Some(power) => Ok(PowerModel::from_family(power, machine)),
        None => {
            notes.push(format!(
                "no published watts for {}; declare them, or calibrate with a meter",
                machine.processor
            ));
            Ok(PowerModel::default_for(machine))
        }
    }
}

/// Returns the mean watts of the counters over `span`.
fn watts_over(
    rapl: &Rapl,
    span: Seconds,
    clock: Clock<'_>,
) -> std::result::Result<Watts, RaplUnavailable> {
    let mut energy = rapl.start()?;
    let start = (clock.now)();
    (clock.wait)(span);
    energy.advance(rapl)?;
    let elapsed = (clock.now)() - start;
    Ok(energy.joules() / elapsed)
}

/// A running measurement of energy.
#[derive(Debug)]
pub struct EnergySpan<'a> {
    meter: &'a EnergyMeter,
    watch: Option<Watch>,
}

#[derive(Debug)]
struct Watch {
    guard: Guard,
    machine_load: Option<MachineLoad>,
}

impl EnergySpan<'_> {
    /// Ends the measurement of work that used `usage` and caused `traffic`.
    ///
    /// Counters give the total, and their idle power gives its passive part. The model gives both parts without
    /// counters, for a short span, or where the counters failed on the way.
    pub fn stop(self, usage: &Usage, traffic: &[Traffic]) -> Energy {
        let model = &self.meter.model;
        let counted = self.watch.zip(self.meter.counters.as_ref());
        let Some((watch, rapl)) = counted else {
            return model.energy(usage, traffic);
        };
        let other_cores = watch
            .machine_load
            .and_then(|before| before.other_cores_since(&self.meter.roots, usage.wall));
        let total = watch.guard.stop(rapl);
        let energy = match total {
            Ok(total) if usage.wall >= COUNTER_SPAN_MIN => {
                let passive = Joules((model.idle_watts() * usage.wall).0.min(total.0));
                Energy {
                    passive,
                    active_processor: total - passive,
                    active_device: Joules(0.0),
                    source: rapl.source(),
                    scope: rapl.scope(),
                    device_source: None,
                    other_cores: None,
                }
                .with_traffic(traffic)
            }
            _ => model.energy(usage, traffic),
        };
        Energy {
            other_cores,
            ..energy
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::rapl::tests::zone;
    use super::super::roots::fake::{FakeTime, Tree};
    use super::super::usage::{CpuTime, Scope};
    use super::*;

    const COUNTER: &str = "sys/class/powercap/intel-rapl:0/energy_uj";
    const RANGE: &str = "262143328850";

    fn usage(wall: f64) -> Usage {
        Usage {
            scope: Scope::Process,
            wall: Seconds(wall),
            cpu: CpuTime {
                user: Seconds(wall),
                system: Seconds(0.0),
            },
            runqueue_wait: None,
            bytes: 0,
        }
    }

    fn epyc(threads: u32) -> String {
        let one = "vendor_id: AuthenticAMD\ncpu family: 25\nmodel: 17\n";
        (0..threads)
            .map(|index| format!("processor: {index}\n{one}\n"))
            .collect()
    }

    /// Chooses on `tree` while the counter shows the given watts in the phases, in order.
    fn choose(tree: &Tree, options: EnergyOptions, phases: &[f64]) -> EnergyMeter {
        let options = EnergyOptions {
            roots: tree.roots(),
            ..options
        };
        let energy_uj = Cell::new(262_143_000_000u64);
        let phase = Cell::new(0);
        let time = FakeTime::new(|span| {
            let watts = phases.get(phase.get()).expect("a phase too many");
            phase.set(phase.get() + 1);
            energy_uj.set((energy_uj.get() + (watts * span * 1e6) as u64) % 262_143_328_850);
            tree.write(COUNTER, energy_uj.get().to_string());
        });
        let clock = Clock {
            now: &|| Seconds(time.now.get()),
            wait: &|span| time.pass(span),
        };
        let machine = Machine::read(&options.roots);
        let meter = EnergyMeter::choose(&options, &machine, clock).expect("a meter");
        assert_eq!(phase.get(), phases.len(), "phases run");
        meter
    }

    fn with_counters(threads: u32) -> Tree {
        let tree = Tree::new(&[("proc/cpuinfo", &epyc(threads))]);
        zone(
            &tree,
            "intel-rapl:0",
            "package-0",
            "262143000000",
            Some(RANGE),
        );
        tree
    }

    #[test]
    fn counters_learn_the_machine_and_measure_long_work() {
        let tree = with_counters(2);
        let options = EnergyOptions {
            declared: Some("1,2".parse().expect("watts")),
            ..EnergyOptions::default()
        };
        let meter = choose(&tree, options, &[62.0, 75.0, 90.0, 60.0]);
        assert!(meter.has_counters());
        assert_eq!(meter.idle_power().watts, Watts(60.0));
        assert_eq!(meter.idle_power().source.to_string(), "measured-rapl(pkg)");
        assert_eq!(meter.model().marginal_watts_per_core(), Watts(15.0));
        assert!(
            meter.notes()[0].contains("declared watts are not used: measured-rapl(pkg) measures")
        );

        let span = meter.start();
        // The phases wrapped the counter to 143.17115 J.
        tree.write(COUNTER, "343171150");
        let energy = span.stop(&usage(2.0), &[]);
        assert_eq!(
            (energy.passive, energy.active()),
            (Joules(120.0), Joules(80.0))
        );
        assert_eq!(energy.source, meter.idle_power().source);
        // Too short for the counters: by the model, 15 W for a core over half a second less.
        let energy = meter.start().stop(&usage(0.25), &[]);
        assert_eq!(
            (energy.passive, energy.active()),
            (Joules(15.0), Joules(3.75))
        );
    }

    #[test]
    fn counters_that_vanish_leave_the_model() {
        let tree = with_counters(1);
        let meter = choose(&tree, EnergyOptions::default(), &[60.0, 75.0, 60.0]);
        let span = meter.start();
        tree.write(COUNTER, "gone");
        let energy = span.stop(&usage(2.0), &[]);
        assert_eq!(
            (energy.passive, energy.active()),
            (Joules(120.0), Joules(30.0))
        );
        // And cannot be started either.
        let energy = meter.start().stop(&usage(2.0), &[]);
        assert_eq!(energy.total(), Joules(150.0));
    }

    #[test]
    fn counters_that_ignore_the_load_are_not_used() {
        let tree = with_counters(2);
        let meter = choose(&tree, EnergyOptions::default(), &[60.0, 50.0, 40.0, 60.0]);
        assert!(!meter.has_counters());
        assert!(
            meter.notes()[0].contains("does not follow the load"),
            "{:?}",
            meter.notes()
        );
        assert_eq!(
            meter.model().source().to_string(),
            "model-specpower(amd-epyc-gen4)"
        );
    }

    fn check_source(tree: &Tree, options: EnergyOptions, source: &str, note: &str) {
        let meter = choose(tree, options, &[]);
        assert_eq!(meter.model().source().to_string(), source);
        let notes = meter.notes().join("\n");
        assert!(notes.contains(note), "expected '{note}' in: {notes}");
    }

    #[test]
    fn the_best_source_there_is_wins_and_the_rest_is_explained() {
        let family = "model-specpower(amd-epyc-gen4)";
        let none = "no processor energy counters";
        let tree = Tree::new(&[("proc/cpuinfo", &epyc(4))]);
        check_source(&tree, EnergyOptions::default(), family, none);
        let declared = EnergyOptions {
            declared: Some("50,90".parse().expect("watts")),
            ..EnergyOptions::default()
        };
        check_source(&tree, declared.clone(), "declared", none);

        let profile_path = tree.folder.path().join("profile.json");
        let calibrated = EnergyOptions {
            profile_path: Some(profile_path.clone()),
            ..EnergyOptions::default()
        };
        check_source(&tree, calibrated.clone(), family, none);
        tree.write("profile.json", "{ garbage");
        check_source(&tree, calibrated.clone(), family, "calibration is not used");
        let machine = Machine::read(&tree.roots());
        let profile = super::super::machine_profile::tests::profile(&machine);
        profile.save(&profile_path).expect("saved");
        check_source(
            &tree,
            calibrated.clone(),
            "model-calibrated(a meter, 2026-11-21)",
            none,
        );

        // A guest's counters are passed over for a calibration, and taken before a family.
        tree.write("sys/hypervisor/type", "kvm");
        zone(&tree, "intel-rapl:0", "package-0", "1", Some(RANGE));
        check_source(
            &tree,
            calibrated,
            "model-calibrated(a meter, 2026-11-21)",
            "vrapl(pkg) is not",
        );
        let meter = choose(&tree, EnergyOptions::default(), &[60.0, 70.0, 90.0, 60.0]);
        assert_eq!(meter.model().source().to_string(), "vrapl(pkg)");

        tree.write("proc/cpuinfo", "processor: 0\nvendor_id: Unheard\n");
        let blind = EnergyOptions {
            counters: false,
            ..EnergyOptions::default()
        };
        check_source(
            &tree,
            blind,
            "default",
            "no published watts for unknown processor",
        );
    }

    #[test]
    fn options_out_of_range_are_refused() {
        for phase in [0.0, 0.49, -1.0, f64::NAN] {
            let options = EnergyOptions {
                phase: Seconds(phase),
                ..EnergyOptions::default()
            };
            let machine = Machine::read(&Roots::default());
            let error = EnergyMeter::choose(&options, &machine, Clock::real());
            assert!(matches!(error, Err(Error::Invalid { .. })), "{phase}");
        }
    }
}
