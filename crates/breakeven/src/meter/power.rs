//! Energy by arithmetic: watts over load, and the passive and active joules of a piece of work.
//!
//! A [`PowerModel`] is a line of watts over the share of hardware threads that are busy, straight between its points.
//! Passive energy is idle power times elapsed time, active energy what the work adds (Kothiyal 2009, section 5.1). The
//! active part is the core-seconds times the marginal watts of a core, and the bytes moved times a device's joules per
//! byte. The model is as wide as its source. The band is one common factor on all of its watts, so it alone never makes
//! a comparison of two energies by one model undecided.

#![deny(unsafe_code)]

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::units::{Estimate, Joules, Seconds, Source, Watts};

use super::machine::Machine;
use super::processor::FamilyPower;
use super::usage::Usage;

/// Idle watts for each thread where the family is unknown: the median over the table of families.
const DEFAULT_IDLE_W_PER_THREAD: f64 = 0.64;
/// Marginal watts of a core where the family is unknown: likewise.
const DEFAULT_MARGINAL_W_PER_CORE: f64 = 5.5;
/// More than this much of a core used by others spoils a counter's reading.
pub(super) const OTHER_CORES_MAX: f64 = 0.1;
/// No machine this library runs on draws more.
const WATTS_MAX: f64 = 1e6;

/// The hardware that an energy covers. Energies of different scope are not comparable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "scope", content = "of")]
pub enum EnergyScope {
    /// The whole machine at its supply.
    Wall,
    /// The part of a whole server that this machine's hardware threads are of all its threads.
    WallShare,
    /// Processor domains only (`pkg`, `pkg,dram`): no disks, fans or supply losses.
    Domains(String),
}

impl fmt::Display for EnergyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EnergyScope::Wall => write!(f, "wall"),
            EnergyScope::WallShare => write!(f, "wall-share"),
            EnergyScope::Domains(domains) => write!(f, "{domains}"),
        }
    }
}

/// Bytes moved through a device, with the device's energy for each.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Bytes moved.
    pub bytes: u64,
    /// Joules above idle for each byte (about 2e-9 for an SSD, 2e-8 for a disk).
    pub joules_per_byte: f64,
    /// Where that figure comes from.
    pub source: Source,
}

/// The energy of a piece of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// The energy of the idle machine over the same time.
    pub passive: Joules,
    /// The energy that processors spent on top.
    pub active_processor: Joules,
    /// The energy that devices spent on top for the bytes moved.
    pub active_device: Joules,
    /// Where the passive and the processor part come from.
    pub source: Source,
    /// The hardware that the two active parts cover.
    pub scope: EnergyScope,
    /// Where the device part comes from: the least trusted of its sources.
    pub device_source: Option<Source>,
    /// Processors that others kept busy meanwhile, where it was watched: their energy is in a
    /// counter's total too.
    pub other_cores: Option<f64>,
}

impl Energy {
    /// Returns all energy above idle.
    pub fn active(&self) -> Joules {
        self.active_processor + self.active_device
    }

    /// Returns passive and active energy together.
    pub fn total(&self) -> Joules {
        self.passive + self.active()
    }

    /// Returns the total with the interval of its sources.
    pub fn estimate(&self) -> Estimate {
        let processor = (self.passive + self.active_processor).0;
        let near = Estimate::within_factor(processor, self.source.band());
        let device_band = self.device_source.as_ref().map_or(1.0, Source::band);
        let far = Estimate::within_factor(self.active_device.0, device_band);
        Estimate {
            mean: near.mean + far.mean,
            low: near.low + far.low,
            high: near.high + far.high,
        }
    }

    /// Tells whether others used enough of the machine to make a counter's reading theirs as well.
    pub fn is_disturbed(&self) -> bool {
        self.other_cores
            .is_some_and(|cores| cores > OTHER_CORES_MAX)
    }

    /// Adds the device's part for `traffic`.
    pub(super) fn with_traffic(mut self, traffic: &[Traffic]) -> Energy {
        for part in traffic {
            self.active_device += Joules(part.bytes as f64 * part.joules_per_byte);
            let wider = |known: &Source| known.band() >= part.source.band();
            if !self.device_source.as_ref().is_some_and(wider) {
                self.device_source = Some(part.source.clone());
            }
        }
        self
    }
}

/// Watts of the whole machine that its user declares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeclaredWatts {
    /// Watts when nothing runs.
    pub idle: Watts,
    /// Watts when all cores are busy.
    pub busy: Watts,
}

impl FromStr for DeclaredWatts {
    type Err = Error;

    /// Reads `idle,busy`, both in watts.
    fn from_str(text: &str) -> Result<DeclaredWatts> {
        let refuse = |reason: &str| Error::parse("watts", text, reason);
        let (idle, busy) = text
            .split_once(',')
            .ok_or_else(|| refuse("expected two numbers, idle,busy"))?;
        let number = |text: &str| {
            let value = text.trim().parse::<f64>();
            value.map_err(|_| refuse("expected two numbers, idle,busy"))
        };
        let declared = DeclaredWatts {
            idle: Watts(number(idle)?),
            busy: Watts(number(busy)?),
        };
        check_points(&declared.points()).map_err(|reason| refuse(&reason))?;
        Ok(declared)
    }
}

impl DeclaredWatts {
    fn points(self) -> [LoadPoint; 2] {
        [
            LoadPoint::new(0.0, self.idle.0),
            LoadPoint::new(1.0, self.busy.0),
        ]
    }
}

/// One point of the line of watts over load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadPoint {
    /// Share of the hardware threads that are busy, 0 to 1.
    pub load: f64,
    /// Watts of the machine at that load.
    pub watts: Watts,
}

impl LoadPoint {
    /// Makes a point from a load (0 to 1) and its watts.
    pub fn new(load: f64, watts: f64) -> LoadPoint {
        LoadPoint {
            load,
            watts: Watts(watts),
        }
    }
}

/// Watts of a machine over its load, with their source and scope.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerModel {
    points: Vec<LoadPoint>,
    threads: u32,
    source: Source,
    scope: EnergyScope,
}

impl PowerModel {
    /// Makes a model of a machine with `threads` hardware threads from points of rising load, the
    /// first at 0 and the last at 1.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if loads or watts are not finite numbers in order.
    pub fn from_points(
        points: Vec<LoadPoint>,
        threads: u32,
        source: Source,
        scope: EnergyScope,
    ) -> Result<PowerModel> {
        check_points(&points).map_err(|reason| Error::invalid("watts over load", reason))?;
        assert!(threads >= 1, "a machine without hardware threads");
        Ok(PowerModel {
            points,
            threads,
            source,
            scope,
        })
    }

    /// Makes a model from the watts the user declares, straight between idle and all cores busy.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a value is negative or busy is below idle.
    pub fn from_declared(declared: DeclaredWatts, machine: &Machine) -> Result<PowerModel> {
        let points = cores_first(declared.idle.0, declared.busy.0, machine);
        let (source, scope) = (Source::Declared, EnergyScope::Wall);
        PowerModel::from_points(points, machine.threads, source, scope)
    }

    /// Makes a model from the medians of the processor's family, for as many cores and threads as
    /// the machine has.
    ///
    /// In a guest whose processors are single threads of shared cores this is an upper figure, because the neighbour on
    /// the core pays for part of it.
    pub fn from_family(power: &FamilyPower, machine: &Machine) -> PowerModel {
        let (idle, busy) =
            idle_and_busy(power.idle_w_per_thread, power.marginal_w_per_core, machine);
        PowerModel {
            points: cores_first(idle, busy, machine),
            threads: machine.threads,
            source: Source::ModelSpecpower(power.family.to_string()),
            scope: EnergyScope::WallShare,
        }
    }

    /// Makes the model for a machine with nothing known but its number of cores.
    pub fn default_for(machine: &Machine) -> PowerModel {
        let (idle, busy) = idle_and_busy(
            DEFAULT_IDLE_W_PER_THREAD,
            DEFAULT_MARGINAL_W_PER_CORE,
            machine,
        );
        PowerModel {
            points: cores_first(idle, busy, machine),
            threads: machine.threads,
            source: Source::Default,
            scope: EnergyScope::WallShare,
        }
    }

    /// Returns where the watts come from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns what hardware the watts cover.
    pub fn scope(&self) -> &EnergyScope {
        &self.scope
    }

    /// Returns the machine's watts at `load`, the share of hardware threads that are busy (outside
    /// 0 to 1 it is the nearer end).
    pub fn watts_at(&self, load: f64) -> Watts {
        let after = self.points.partition_point(|point| point.load <= load);
        if after == 0 {
            return self.points[0].watts;
        }
        let low = self.points[after - 1];
        match self.points.get(after) {
            None => low.watts,
            Some(high) => {
                let along = (load - low.load) / (high.load - low.load);
                low.watts + (high.watts - low.watts) * along
            }
        }
    }

    /// Returns the machine's watts when nothing runs.
    pub fn idle_watts(&self) -> Watts {
        self.points[0].watts
    }

    /// Returns the watts that the first busy core adds to an idle machine.
    pub fn marginal_watts_per_core(&self) -> Watts {
        self.watts_at(1.0 / f64::from(self.threads)) - self.idle_watts()
    }

    /// Returns the active energy of `core_time` on one core: time times marginal watts.
    pub fn core_energy(&self, core_time: Seconds) -> Joules {
        self.marginal_watts_per_core() * core_time
    }

    /// Returns the energy of a piece of work from its elapsed and processor time, as though it
    /// alone ran, and of the `traffic` it caused.
    ///
    /// Processor time beyond elapsed time times cores is the second threads of busy cores. They draw as the points
    /// between say, and nothing more in a model that knows cores only.
    pub fn energy(&self, usage: &Usage, traffic: &[Traffic]) -> Energy {
        let wall = usage.wall;
        let busy = if wall.0 > 0.0 {
            usage.cpu.total() / wall
        } else {
            0.0
        };
        let watts = self.watts_at(busy / f64::from(self.threads));
        Energy {
            passive: self.idle_watts() * wall,
            active_processor: (watts - self.idle_watts()) * wall,
            active_device: Joules(0.0),
            source: self.source.clone(),
            scope: self.scope.clone(),
            device_source: None,
            other_cores: None,
        }
        .with_traffic(traffic)
    }
}

/// Watts of the machine at idle and with all cores busy.
fn idle_and_busy(idle_per_thread: f64, marginal_per_core: f64, machine: &Machine) -> (f64, f64) {
    let idle = idle_per_thread * f64::from(machine.threads);
    (idle, idle + marginal_per_core * f64::from(machine.cores))
}

/// A line that rises until each core has one busy thread, where schedulers put them first, and is
/// level from there.
fn cores_first(idle: f64, busy: f64, machine: &Machine) -> Vec<LoadPoint> {
    let all_cores = f64::from(machine.cores) / f64::from(machine.threads);
    let mut points = vec![LoadPoint::new(0.0, idle), LoadPoint::new(all_cores, busy)];
    if all_cores < 1.0 {
        points.push(LoadPoint::new(1.0, busy));
    }
    points
}

/// Says what is wrong with a line of watts over load.
pub(super) fn check_points(points: &[LoadPoint]) -> std::result::Result<(), String> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Err("no points".to_string());
    };
    if first.load != 0.0 || last.load != 1.0 {
        return Err(format!(
            "loads must go from 0 to 1, found {} to {}",
            first.load, last.load
        ));
    }
    for point in points {
        if !(0.0..=WATTS_MAX).contains(&point.watts.0) {
            return Err(format!(
                "watts must be 0 to {WATTS_MAX}, found {} at load {}",
                point.watts.0, point.load
            ));
        }
    }
    for pair in points.windows(2) {
        let (low, high) = (pair[0], pair[1]);
        // Written so that a load that is not a number is refused too.
        let rising = low.load < high.load;
        if !rising || low.watts > high.watts {
            return Err(format!(
                "load and watts must rise, found {} at load {} before {} at load {}",
                low.watts.0, low.load, high.watts.0, high.load
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::processor::SPECPOWER_MEDIANS;
    use super::super::usage::{CpuTime, Scope};
    use super::*;

    fn machine(cores: u32, threads: u32) -> Machine {
        Machine {
            cores,
            threads,
            ..Machine::default()
        }
    }

    fn usage(wall: f64, cpu: f64) -> Usage {
        Usage {
            scope: Scope::Process,
            wall: Seconds(wall),
            cpu: CpuTime {
                user: Seconds(cpu),
                system: Seconds(0.0),
            },
            runqueue_wait: None,
            bytes: 0,
        }
    }

    fn near(found: f64, expected: f64) {
        assert!(
            (found - expected).abs() < 1e-9,
            "expected {expected}, found {found}"
        );
    }

    #[test]
    fn passive_and_active_split_at_idle_power() {
        // Kothiyal's server: 218 W idle; 318 W declared when its two cores are busy.
        let declared: DeclaredWatts = "218, 318".parse().expect("watts");
        let model = PowerModel::from_declared(declared, &machine(2, 2)).expect("a model");
        near(model.marginal_watts_per_core().0, 50.0);
        let energy = model.energy(&usage(10.0, 8.0), &[]);
        near(energy.passive.0, 2180.0);
        near(energy.active().0, 400.0);
        near(energy.total().0, 2580.0);
        near(model.core_energy(Seconds(8.0)).0, 400.0);
        assert_eq!(energy.source.to_string(), "declared");
        assert_eq!(energy.scope.to_string(), "wall");
        near(energy.estimate().high, 2580.0 * 1.15);
        // No time, no energy; more processor time than there are cores draws no more than all.
        near(model.energy(&usage(0.0, 1.0), &[]).total().0, 0.0);
        near(model.energy(&usage(1.0, 9.0), &[]).active().0, 100.0);
    }

    #[test]
    fn a_family_is_scaled_to_the_machine() {
        let gen4 = SPECPOWER_MEDIANS
            .iter()
            .find(|row| row.family == "amd-epyc-gen4");
        let gen4 = gen4.expect("the family");
        let model = PowerModel::from_family(gen4, &machine(8, 16));
        near(model.idle_watts().0, 0.3768 * 16.0);
        near(model.marginal_watts_per_core().0, 2.9599);
        // Eight busy threads fill the cores, sixteen draw the same; four draw half as much.
        near(model.watts_at(0.5).0, model.watts_at(1.0).0);
        near(
            model.energy(&usage(2.0, 8.0), &[]).active().0,
            2.9599 * 4.0 * 2.0,
        );
        assert_eq!(model.source().to_string(), "model-specpower(amd-epyc-gen4)");
        assert_eq!(model.scope().to_string(), "wall-share");
    }

    #[test]
    fn an_unknown_family_is_the_median_one() {
        let median = |column: fn(&FamilyPower) -> f64| {
            let mut values: Vec<f64> = SPECPOWER_MEDIANS.iter().map(column).collect();
            values.sort_by(f64::total_cmp);
            let middle = values.len() / 2;
            (values[middle - 1] + values[middle]) / 2.0
        };
        let idle = median(|row| row.idle_w_per_thread);
        let marginal = median(|row| row.marginal_w_per_core);
        assert!(
            (idle / DEFAULT_IDLE_W_PER_THREAD - 1.0).abs() < 0.01,
            "{idle}"
        );
        assert!(
            (marginal / DEFAULT_MARGINAL_W_PER_CORE - 1.0).abs() < 0.01,
            "{marginal}"
        );
        let model = PowerModel::default_for(&machine(1, 2));
        near(model.watts_at(1.0).0, 1.28 + 5.5);
        near(model.source().band(), 3.0);
    }

    #[test]
    fn devices_add_their_own_part_with_their_own_band() {
        let model = PowerModel::default_for(&machine(1, 1));
        let traffic = [
            Traffic {
                bytes: 1_000_000_000,
                joules_per_byte: 2e-9,
                source: Source::Published("a data sheet".to_string()),
            },
            Traffic {
                bytes: 500_000_000,
                joules_per_byte: 2e-8,
                source: Source::Measured,
            },
        ];
        let energy = model.energy(&usage(1.0, 0.0), &traffic);
        near(energy.active_device.0, 12.0);
        near(energy.total().0, 12.64);
        assert_eq!(energy.device_source.as_ref().map(Source::band), Some(1.5));
        near(energy.estimate().low, 0.64 / 3.0 + 12.0 / 1.5);
        near(energy.estimate().high, 0.64 * 3.0 + 12.0 * 1.5);
    }

    #[test]
    fn points_are_joined_by_straight_lines() {
        let points = [(0.0, 100.0), (0.1, 150.0), (0.5, 200.0), (1.0, 220.0)];
        let points = points
            .map(|(load, watts)| LoadPoint::new(load, watts))
            .to_vec();
        let source = Source::ModelCalibrated("a meter, 2026-01-02".to_string());
        let model = PowerModel::from_points(points, 4, source, EnergyScope::Wall).expect("a model");
        for (load, watts) in [
            (-1.0, 100.0),
            (0.05, 125.0),
            (0.1, 150.0),
            (0.3, 175.0),
            (2.0, 220.0),
        ] {
            near(model.watts_at(load).0, watts);
        }
        near(
            model.marginal_watts_per_core().0,
            150.0 + 50.0 * 0.15 / 0.4 - 100.0,
        );
    }

    #[test]
    fn nonsense_watts_are_refused_with_a_reason() {
        for (text, reason) in [
            ("", "two numbers"),
            ("100", "two numbers"),
            ("a,b", "two numbers"),
            ("1,2,3", "two numbers"),
            ("200,100", "must rise"),
            ("-1,5", "0 to"),
            ("1,inf", "0 to"),
            ("NaN,5", "0 to"),
        ] {
            let error = text.parse::<DeclaredWatts>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let refuse = |points: &[(f64, f64)]| {
            let points: Vec<LoadPoint> = points
                .iter()
                .map(|point| LoadPoint::new(point.0, point.1))
                .collect();
            check_points(&points).expect_err("a reason")
        };
        assert_eq!(refuse(&[]), "no points");
        refuse(&[(0.0, 1.0)]);
        refuse(&[(0.0, 1.0), (f64::NAN, 2.0), (1.0, 3.0)]);
        refuse(&[(0.0, 1.0), (0.5, 2.0), (0.5, 2.0), (1.0, 3.0)]);
    }
}
