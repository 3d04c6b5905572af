//! Programs that race as child processes: which are there, and the usage of a run.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use breakeven::meter::{Meter, Scope};

use crate::laboratory::Finding;
use crate::peers;
use crate::record::CellRecord;
use crate::statistics::{Interval, Verdict};

/// The kernel's ticks, its unit of processor time (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// Stock zstd, and the option that prints its version.
pub const ZSTD: (&str, &str) = ("zstd", "--version");

/// Returns the program of this project that stands beside the laboratory.
pub fn own_program() -> Result<PathBuf> {
    let laboratory = std::env::current_exe().context("find this program")?;
    let program = laboratory.with_file_name("breakeven");
    ensure!(
        program.is_file(),
        "{} is not there: cargo build -p breakeven-cli",
        program.display()
    );
    Ok(program)
}

/// Returns the versions of programs, as one word of a cell's parameters: `peers=..`, or `missing=..` with those that
/// are not there, this project's own among them. Each comes with the option that prints its version.
pub fn peers(programs: &[(&str, &str)]) -> String {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for (program, word) in programs {
        match peers::version(program, word) {
            Some(version) => {
                eprintln!("{program}: {version}");
                found.push(version.replace(' ', "-"));
            }
            None => missing.push(*program),
        }
    }
    if own_program().is_err() {
        missing.push("breakeven");
    }
    match missing.is_empty() {
        true => format!("peers={}", found.join("+")).replace(',', ""),
        false => format!("missing={}", missing.join("+")),
    }
}

/// Returns the finding of a cell that was not measured, because a program was not there.
pub fn missing(cell: &CellRecord) -> Option<Finding> {
    let missing = cell.parameter("missing")?;
    Some(Finding {
        question: cell.cell.clone(),
        core: true,
        found: Interval::exact(f64::NAN),
        verdict: Verdict::CannotTell,
        note: format!("not measured without {}", missing.replace('+', " and ")),
    })
}

/// The resources that a run of a program used.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub wall_seconds: f64,
    pub cpu_seconds: f64,
    pub resident_bytes: f64,
}

/// Runs a program to its end, which must be a good one.
pub fn run(command: &mut Command) -> Result<Used> {
    let (begun, meter) = (Instant::now(), Meter::start(Scope::Children));
    let mut child = command
        .spawn()
        .with_context(|| format!("start {command:?}"))?;
    let mut resident_bytes = 0.0_f64;
    let status = loop {
        resident_bytes = resident_bytes.max(resident(&child));
        match child.try_wait()? {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let wall_seconds = begun.elapsed().as_secs_f64();
    ensure!(status.success(), "{command:?}: {status}");
    Ok(Used {
        wall_seconds,
        cpu_seconds: meter.stop(0).cpu.total().0,
        resident_bytes,
    })
}

/// Returns the processor time that a process has used.
///
/// # Errors
/// If the system does not say.
pub fn cpu_seconds(child: &Child) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
    let (_, fields) = stat.rsplit_once(')').context("a name in brackets")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let [user, system] = fields.get(11..13).context("two times")? else {
        bail!("not two times");
    };
    Ok((user.parse::<f64>()? + system.parse::<f64>()?) / TICKS_PER_SECOND)
}

/// Returns the most memory that a process had resident so far, in bytes.
pub fn resident(child: &Child) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    let status = status.unwrap_or_default();
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let kib = line.and_then(|it| it.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    1024.0 * kib.unwrap_or(0.0)
}
