//! `breakeven calibrate`: measures this machine's watts over its load with a meter of the user's.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use breakeven::meter::{CalibrationOptions, Clock, Machine, MachineProfile, Roots, calibrate};
use breakeven::quoted::quoted;
use breakeven::units::Seconds;

use crate::environment;
use crate::options::{CalibrateOptions as Typed, Usage};
use crate::standard;

/// Runs the command and stores the profile in the user's cache folder.
pub fn run(typed: &Typed) -> Result<ExitCode> {
    let folder = environment::cache_folder()
        .context("no folder for the profile: set HOME, XDG_CACHE_HOME or BREAKEVEN_CACHE")?;
    let stop = environment::stop_at_interrupt()?;
    let machine = Machine::read(&Roots::default());
    let options = CalibrationOptions {
        command: typed.meter.clone(),
        date: today(),
        phase: Seconds(typed.phase),
        interval: Seconds(typed.interval),
        settle: Seconds(typed.settle),
        ..CalibrationOptions::default()
    };
    if let Err(error) = options.check() {
        bail!(Usage(error.to_string()));
    }
    let profile = calibrate(&options, &machine, Clock::real(), &mut |step| {
        standard::tell(&format!(
            "phase {} of {}, {} busy threads: {:.1}",
            step.phase_index + 1,
            step.phase_count,
            step.busy_threads,
            step.watts,
        ));
        if stop.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    let path = MachineProfile::path_in(&folder);
    profile.save(&path)?;
    let mut text = String::new();
    for point in &profile.points {
        writeln!(
            text,
            "{:>3} busy threads: {:.1} W +- {:.1} W ({} samples)",
            point.busy_threads, point.watts.0, point.half_width.0, point.samples
        )?;
    }
    writeln!(text, "stored in {}", quoted(&path))?;
    standard::print(&text);
    Ok(ExitCode::SUCCESS)
}

/// Today's date, UTC, as 2026-11-21.
fn today() -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    date(since.as_secs() / 86_400)
}

/// The date of a day counted from 1970-01-01, by the proleptic Gregorian calendar.
///
/// Source: Hinnant, "chrono-compatible low-level date algorithms", civil_from_days.
fn date(days: u64) -> String {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (19_723, "2024-01-01"),
            (20_513, "2026-03-01"),
        ] {
            assert_eq!(date(days), expected);
        }
    }
}
