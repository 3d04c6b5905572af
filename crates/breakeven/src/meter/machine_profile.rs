//! The stored result of a calibration: watts over load of one machine, as a small JSON file.
//!
//! The file is the user's to read and edit. It is used only if it parses whole, its points make a rising line, and it
//! was taken on a processor of the same identity and number of threads. Anything else is refused with the reason, and
//! the caller falls back to the next source. It is written beside its place and renamed, so that a reader sees the old
//! file or the new one.

#![deny(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::quoted::quoted;
use crate::storage::beside::{self, SmallFileOptions};
use crate::units::{Source, Watts};

use super::machine::Machine;
use super::power::{EnergyScope, LoadPoint, PowerModel, check_points};
use super::processor::Processor;

/// The name and version of the file's fields.
const SCHEMA: &str = "breakeven-machine-profile-1";

/// A longer file is not one of ours.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// One measured point of a calibration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CalibrationPoint {
    /// Threads that were kept busy.
    pub busy_threads: u32,
    /// Mean watts the meter showed, after rising order was restored.
    pub watts: Watts,
    /// Half the width of the 95 % interval of that mean, in watts.
    pub half_width: Watts,
    /// Samples behind it.
    pub samples: u32,
}

/// Watts over load of one machine, measured by a meter at its supply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineProfile {
    /// Name and version of these fields.
    pub schema: String,
    /// The processor it was taken on.
    pub processor: Processor,
    /// Its hardware threads.
    pub threads: u32,
    /// The day it was taken, as the caller gave it.
    pub date: String,
    /// The command that showed the watts.
    pub meter: String,
    /// From no busy thread to all of them.
    pub points: Vec<CalibrationPoint>,
}

impl MachineProfile {
    /// Makes a profile of `machine` from measured points.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the points do not make a rising line from no thread to all.
    pub fn new(
        machine: &Machine,
        date: &str,
        meter: &str,
        points: Vec<CalibrationPoint>,
    ) -> Result<MachineProfile> {
        let profile = MachineProfile {
            schema: SCHEMA.to_string(),
            processor: machine.processor.clone(),
            threads: machine.threads,
            date: date.to_string(),
            meter: meter.to_string(),
            points,
        };
        check_points(&profile.load_points())
            .map_err(|reason| Error::invalid("calibration", reason))?;
        Ok(profile)
    }

    /// Returns the profile's place in a cache folder.
    pub fn path_in(cache_folder: &Path) -> PathBuf {
        cache_folder.join("machine-profile.json")
    }

    /// Loads the profile of `machine`, or nothing if there is no file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be read, [`Error::Parse`] if it is corrupt, and
    /// [`Error::Unsupported`] if it is of another version or another machine.
    pub fn load(path: &Path, machine: &Machine) -> Result<Option<MachineProfile>> {
        let mut text = Vec::new();
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| Error::io("open", path, error))?,
        };
        file.take(FILE_BYTES_MAX + 1)
            .read_to_end(&mut text)
            .map_err(|error| Error::io("read", path, error))?;
        let name = quoted(&path).to_string();
        let corrupt = |reason: String| Error::parse("machine profile", &name, reason);
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(corrupt(format!("longer than {FILE_BYTES_MAX} bytes")));
        }
        let profile: MachineProfile =
            serde_json::from_slice(&text).map_err(|error| corrupt(error.to_string()))?;
        profile.check(machine, &name)?;
        check_points(&profile.load_points()).map_err(corrupt)?;
        Ok(Some(profile))
    }

    /// Stores the profile, replacing an older one whole, and creates its folder if needed.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the folder or file cannot be written; nothing is left behind then.
    pub fn save(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| Error::io("create", folder, error))?;
        }
        let mut text = serde_json::to_string_pretty(self).expect("plain data makes JSON");
        text.push('\n');
        beside::write(path, text.as_bytes(), SmallFileOptions::default())
    }

    /// Returns the power model that these points make.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the points were changed and no longer make a rising line.
    pub fn model(&self) -> Result<PowerModel> {
        let source = Source::ModelCalibrated(format!("{}, {}", self.meter, self.date));
        PowerModel::from_points(self.load_points(), self.threads, source, EnergyScope::Wall)
    }

    /// Refuses another version's fields and another machine's watts.
    fn check(&self, machine: &Machine, name: &str) -> Result<()> {
        let unsupported = |found: String, expected: String| {
            Err(Error::Unsupported {
                what: format!("machine profile {name} of {found}; this is {expected}"),
            })
        };
        if self.schema != SCHEMA {
            return unsupported(format!("schema '{}'", self.schema), SCHEMA.to_string());
        }
        if self.processor != machine.processor || self.threads != machine.threads {
            let describe =
                |processor: &Processor, threads| format!("{processor}, {threads} threads");
            return unsupported(
                describe(&self.processor, self.threads),
                describe(&machine.processor, machine.threads),
            );
        }
        Ok(())
    }

    fn load_points(&self) -> Vec<LoadPoint> {
        let threads = f64::from(self.threads);
        let load = |point: &CalibrationPoint| f64::from(point.busy_threads) / threads;
        let points = self.points.iter();
        points
            .map(|point| LoadPoint::new(load(point), point.watts.0))
            .collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A profile of `machine` from 50 to 90 W.
    pub fn profile(machine: &Machine) -> MachineProfile {
        let point = |busy_threads, watts| CalibrationPoint {
            busy_threads,
            watts: Watts(watts),
            half_width: Watts(0.5),
            samples: 30,
        };
        let points = vec![point(0, 50.0), point(machine.threads, 90.0)];
        MachineProfile::new(machine, "2026-11-21", "a meter", points).expect("a profile")
    }

    fn machine() -> Machine {
        Machine {
            threads: 4,
            cores: 4,
            processor: Processor {
                vendor: "AuthenticAMD".to_string(),
                family: 25,
                model: 17,
                stepping: 1,
                name: "An EPYC".to_string(),
            },
            ..Machine::default()
        }
    }

    fn refuse(text: &[u8], reason: &str) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = MachineProfile::path_in(folder.path());
        fs::write(&path, text).expect("written");
        let error = MachineProfile::load(&path, &machine())
            .expect_err("a refusal")
            .to_string();
        assert!(error.contains(reason), "expected '{reason}' in: {error}");
        assert!(error.contains("machine-profile.json"), "{error}");
    }

    #[test]
    fn a_profile_survives_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = MachineProfile::path_in(&folder.path().join("new/cache"));
        assert_eq!(
            MachineProfile::load(&path, &machine()).expect("no file"),
            None
        );
        let written = profile(&machine());
        written.save(&path).expect("saved");
        written.save(&path).expect("saved again");
        let read = MachineProfile::load(&path, &machine()).expect("a file");
        assert_eq!(read.as_ref(), Some(&written));
        let model = written.model().expect("a model");
        assert_eq!(model.watts_at(0.25), Watts(60.0));
        assert_eq!(
            model.source().to_string(),
            "model-calibrated(a meter, 2026-11-21)"
        );
        let names = fs::read_dir(path.parent().expect("a parent"))
            .expect("listed")
            .count();
        assert_eq!(names, 1, "only the profile is left");
    }

    #[test]
    fn corrupt_and_foreign_profiles_are_refused_with_a_reason() {
        let good = serde_json::to_string(&profile(&machine())).expect("JSON");
        refuse(b"", "EOF");
        refuse(&[0xff, 0xfe, 0], "expected value");
        refuse(&vec![b' '; 100_000], "longer than 65536 bytes");
        refuse(good.replace("90.0", "40.0").as_bytes(), "must rise");
        refuse(good.replace("90.0", "-90.0").as_bytes(), "must be 0 to");
        refuse(good.replace("90.0", "1e999").as_bytes(), "out of range");
        refuse(
            good.replace("\"busy_threads\":4", "\"busy_threads\":3")
                .as_bytes(),
            "from 0 to 1",
        );
        refuse(
            good.replace("\"threads\":4", "\"threads\":0").as_bytes(),
            "not supported",
        );
        refuse(good.replace("profile-1", "profile-9").as_bytes(), "schema");
        refuse(
            good.replace("\"model\":17", "\"model\":1").as_bytes(),
            "family 25 model 1 ",
        );
        refuse(
            good.replace("\"threads\":4", "\"threads\":8").as_bytes(),
            "8 threads",
        );
        for cut in 0..good.len() {
            refuse(&good.as_bytes()[..cut], "");
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_is_an_error_that_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("taken");
        fs::create_dir(&path).expect("a folder in the way");
        let error = profile(&machine())
            .save(&path)
            .expect_err("an error")
            .to_string();
        assert!(
            error.starts_with("write ") && error.contains("taken"),
            "{error}"
        );
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1);
    }
}
