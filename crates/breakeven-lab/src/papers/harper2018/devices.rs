//! Tables 1 and 3, Figures 4 and 5: the cost of reading, by the size of a block.
//!
//! The library's probe measures in the place of fio. It reads with direct I/O, blocks of 4 to 128 KiB in sequence, at
//! random and nine to one, four in flight as in his Appendix C. A run is one probe with a scratch file of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use breakeven::medium::folder::Folder;
use breakeven::medium::presets;
use breakeven::medium::probe::{ProbeOptions, ProbeReport, probe};
use breakeven::medium::{Direction, Operation, Pattern};

use super::{Claim, pictures, published};
use crate::experiment::Experiment;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "harper2018/devices",
    claim: "A page of 8 KiB is read at nearly twice the bandwidth of one of 4 KiB, and sequential reads are faster than random ones.",
    source: "Harper 2018, Tables 1 and 3: bandwidth times 2.00, 1.84 and 1.47 on hard disk, SSD and RAM disk; sequential over random reads 238, 5.4 and 1.16",
    figure: "bandwidth at 8 KiB over bandwidth at 4 KiB, reads nine to one, four in flight,",
    target: TWICE,
    parameters: &[
        (
            "devices",
            "the disk below the folder of records, and /dev/shm as a RAM disk where it is one; his three are published figures",
        ),
        (
            "operations",
            "reads and writes of 4 to 128 KiB by direct I/O, sequential, random and nine to one, one and four in flight",
        ),
        (
            "runs",
            "12 probes (quick: 2) of 6 s (RAM disk 3 s), each on a new file of 256 MiB of random bytes. A probe's figure is the median of its slices",
        ),
    ],
    analysis: "The devices cannot be compared in absolute terms. His are a desktop's of 2018. Ours is the \
        laboratory's, here a virtual disk. Its host may answer from its memory, which has no arm and hides its flash. \
        His files filled 70 % of the device; ours is small. The targets are the least of his three devices, the RAM \
        disk's, on both claims.",
    run,
    table,
    pictures: pictures::devices,
};

/// The least of the published devices, the RAM disk: 513,610 operations of 8 KiB over 697,351 of
/// 4 KiB, twice.
const TWICE: Target = Target::at_least(1.47);
/// The least again: 711,135 sequential over 613,215 random reads.
const SEQUENTIAL: Target = Target::at_least(1.16);
pub const COLUMNS: &[&str] = &["seconds", "operations", "slices", "file_bytes"];
const SECONDS: usize = 0;
pub const DISK: &str = "disk";
const RAM_DISK: &str = "ram disk";
/// Where Linux keeps shared memory as files.
const SHARED_MEMORY: &str = "/dev/shm";
/// Above the most that all slices of writes of a probe could take, so that none of them is left out.
const WRITTEN_BYTES_MAX: u64 = 2 << 30;
/// How often a probe is done again with twice the time.
const DOUBLINGS: u32 = 6;
/// In flight in his configuration of fio.
const DEPTH: u32 = 4;

fn run(laboratory: &Laboratory) -> Result<Vec<Finding>> {
    fs::create_dir_all(&laboratory.records)
        .with_context(|| format!("create {}", laboratory.records.display()))?;
    let mut places = vec![(DISK, laboratory.records.clone(), 6.0)];
    let shared_memory = Path::new(SHARED_MEMORY);
    if Folder::look_up(shared_memory).is_ok_and(|folder| folder.file_system == "tmpfs") {
        places.push((RAM_DISK, shared_memory.to_path_buf(), 3.0));
    }
    let cells = places.into_iter().map(|(name, folder, seconds)| {
        let plan = match laboratory.quick {
            true => Plan {
                runs: 2,
                seconds: 0.5,
                file_bytes: 16 << 20,
            },
            false => Plan {
                runs: 12,
                seconds,
                file_bytes: 256 << 20,
            },
        };
        cell(name, folder, plan)
    });
    let cells = cells.collect();
    let measured = laboratory.measure(EXPERIMENT.key, COLUMNS, cells)?;
    Ok(measured.iter().flat_map(judge).collect())
}

/// How often and how long a place is probed.
struct Plan {
    runs: usize,
    seconds: f64,
    file_bytes: u64,
}

fn cell<'a>(name: &str, folder: PathBuf, plan: Plan) -> Cell<'a> {
    let contender = name.to_string();
    Cell {
        name: name.to_string(),
        parameters: format!(
            "folder={} seconds={} file_bytes={} runs={}",
            name.replace(' ', "-"),
            plan.seconds,
            plan.file_bytes,
            plan.runs
        ),
        measure: Box::new(move || measure(&contender, &folder, &plan)),
    }
}

fn measure(contender: &str, folder: &Path, plan: &Plan) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for run in 1..=plan.runs {
        let report = probe_all(folder, plan, run as u64)?;
        rows.extend(report.cells.iter().map(|cell| Row {
            task: task(cell.direction, cell.pattern, cell.bytes, cell.depth),
            run,
            runs: plan.runs,
            contender: contender.to_string(),
            values: vec![
                cell.seconds.mean,
                cell.operation_count as f64,
                f64::from(cell.slice_count),
                report.span_bytes as f64,
            ],
        }));
    }
    Ok(rows)
}

/// Probes a folder; where the time did not suffice for every combination, again with twice as much.
fn probe_all(folder: &Path, plan: &Plan, seed: u64) -> Result<ProbeReport> {
    let mut time_max = Duration::from_secs_f64(plan.seconds);
    for _ in 0..DOUBLINGS {
        let options = ProbeOptions {
            time_max,
            scratch_bytes: plan.file_bytes,
            written_bytes_max: WRITTEN_BYTES_MAX,
            seed,
            ..ProbeOptions::default()
        };
        let report = probe(folder, &options, &AtomicBool::new(false), &mut |_| {})?;
        if report.cells.len() == ProbeReport::CELL_COUNT {
            return Ok(report);
        }
        time_max *= 2;
    }
    bail!("{} is too slow to be probed", folder.display())
}

fn task(direction: Direction, pattern: Pattern, bytes: u64, depth: u32) -> String {
    let direction = match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    };
    let pattern = match pattern {
        Pattern::Sequential => "sequential",
        Pattern::Random => "random",
        Pattern::Mix9to1 => "nine-to-one",
    };
    format!("{direction} {pattern} {bytes} depth {depth}")
}

/// Returns the seconds of each run that one operation takes of the device.
fn seconds(cell: &CellRecord, pattern: Pattern, bytes: u64) -> Vec<f64> {
    let task = task(Direction::Read, pattern, bytes, DEPTH);
    cell.column(&task, &cell.cell, SECONDS)
}

fn judge(cell: &CellRecord) -> Vec<Finding> {
    let mut findings = Vec::new();
    // The thesis compares SSDs and hard disks with the RAM disk, which is no storage itself.
    let core = cell.cell == DISK;
    let mix = |bytes| seconds(cell, Pattern::Mix9to1, bytes);
    let pairs = mix(4 << 10).into_iter().zip(mix(8 << 10));
    let gains: Vec<f64> = pairs.map(|(small, large)| 2.0 * small / large).collect();
    if !gains.is_empty() {
        let claim = Claim {
            question: format!("{}: bandwidth of 8 KiB over 4 KiB", cell.cell),
            core,
            target: TWICE,
            note: "published 2.00, 1.84, 1.47 (hard disk, SSD, RAM disk)",
        };
        findings.push(claim.judge(Interval::of_pairs(&gains), None));
    }
    let random = seconds(cell, Pattern::Random, 4 << 10).into_iter();
    let pairs = random.zip(seconds(cell, Pattern::Sequential, 4 << 10));
    let gains: Vec<f64> = pairs
        .map(|(random, sequential)| random / sequential)
        .collect();
    if !gains.is_empty() {
        let claim = Claim {
            question: format!("{}: sequential over random reads of 4 KiB", cell.cell),
            core,
            target: SEQUENTIAL,
            note: "published 238, 5.44, 1.16 (hard disk, SSD, RAM disk)",
        };
        findings.push(claim.judge(Interval::of_pairs(&gains), None));
    }
    findings
}

/// Operations per second of one device by pattern and size: a line of a figure.
pub struct Line {
    pub device: String,
    pub is_ours: bool,
    /// Bytes and operations per second.
    pub points: Vec<(u64, Interval)>,
}

/// Returns Table 3: our devices and his, reads nine to one, four in flight.
pub fn lines(cells: &[CellRecord]) -> Vec<Line> {
    let ours = cells.iter().map(|cell| Line {
        device: cell.cell.clone(),
        is_ours: true,
        points: published::DEVICE_BLOCK_BYTES
            .into_iter()
            .filter_map(|bytes| Some((bytes, rate(&seconds(cell, Pattern::Mix9to1, bytes))?)))
            .collect(),
    });
    let his = published::DEVICES.iter().map(|(preset, device)| Line {
        device: format!("his {device}"),
        is_ours: false,
        points: published::DEVICE_BLOCK_BYTES
            .into_iter()
            .map(|bytes| {
                (
                    bytes,
                    published_rate(preset, Pattern::Mix9to1, bytes, Direction::Read),
                )
            })
            .collect(),
    });
    ours.chain(his).collect()
}

/// Returns operations per second with their interval.
fn rate(seconds: &[f64]) -> Option<Interval> {
    let rates: Vec<f64> = seconds.iter().map(|seconds| 1.0 / seconds).collect();
    (!rates.is_empty()).then(|| Interval::of_pairs(&rates))
}

fn published_rate(preset: &str, pattern: Pattern, bytes: u64, direction: Direction) -> Interval {
    let medium = presets::preset(preset).expect("a preset of the library");
    let operation = Operation {
        bytes,
        pattern,
        direction,
        depth: DEPTH,
    };
    Interval::exact(1.0 / medium.seconds_for(operation).mean)
}

/// Reads the last record.
pub fn recorded(records: &Path) -> Result<(String, Vec<CellRecord>)> {
    let latest = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    Ok((tables::origin(records, &latest), latest))
}

fn table(records: &Path) -> Result<tables::Shown> {
    let (origin, cells) = recorded(records)?;
    if cells.is_empty() {
        return Ok(tables::Shown::unjudged(origin));
    }
    let findings: Vec<Finding> = cells.iter().flat_map(judge).collect();
    let mut text = tables::judged(origin, findings);
    text.push_str("\n");
    text.push_str(
        "Table 3, reads nine to one, four in flight: operations per second and MiB/s.\n\n",
    );
    text.push_str(&rates(&lines(&cells)));
    text.push_str("\nTable 1, operations of 4 KiB per second, four in flight:\n\n");
    text.push_str(&patterns(&cells));
    Ok(text)
}

fn rates(lines: &[Line]) -> String {
    let mut text = "| block |".to_string();
    for line in lines {
        text.push_str(&format!(" {} |", line.device));
    }
    text.push_str(&format!("\n|---:|{}\n", "---:|".repeat(lines.len())));
    for bytes in published::DEVICE_BLOCK_BYTES {
        text.push_str(&format!("| {} |", tables::binary_size(bytes as usize)));
        for line in lines {
            let point = line.points.iter().find(|(size, _)| *size == bytes);
            text.push_str(&point.map_or(" |".to_string(), |(_, rate)| {
                let mib = rate.middle * bytes as f64 / f64::from(1 << 20);
                format!(" {:.0} ({mib:.0}) |", rate.middle)
            }));
        }
        text.push('\n');
    }
    text
}

fn patterns(cells: &[CellRecord]) -> String {
    let mut text = "| access |".to_string();
    let names = cells.iter().map(|cell| cell.cell.clone());
    let his = published::DEVICES
        .iter()
        .map(|(_, device)| format!("his {device}"));
    let names: Vec<String> = names.chain(his).collect();
    text.push_str(&format!(" {} |\n|---|", names.join(" | ")));
    text.push_str(&"---:|".repeat(names.len()));
    text.push('\n');
    for (pattern, title) in [
        (Pattern::Sequential, "sequential"),
        (Pattern::Random, "random"),
    ] {
        for (direction, what) in [(Direction::Read, "read"), (Direction::Write, "write")] {
            text.push_str(&format!("| {title} {what} |"));
            for cell in cells {
                let task = task(direction, pattern, 4 << 10, DEPTH);
                let rate = rate(&cell.column(&task, &cell.cell, SECONDS));
                text.push_str(&rate.map_or(" |".into(), |rate| format!(" {:.0} |", rate.middle)));
            }
            for (preset, _) in published::DEVICES {
                let rate = published_rate(preset, pattern, 4 << 10, direction);
                text.push_str(&format!(" {:.0} |", rate.middle));
            }
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::statistics::Verdict;

    /// A cell of 10 probes: sequential reads are `sequential` times as fast as random ones, and
    /// larger blocks take `growth` times as long for each doubling.
    pub fn cell(name: &str, sequential: f64, growth: f64) -> CellRecord {
        let mut rows = Vec::new();
        for run in 1..=10 {
            for (power, bytes) in published::DEVICE_BLOCK_BYTES.into_iter().enumerate() {
                let speeds = [
                    (Pattern::Sequential, sequential),
                    (Pattern::Random, 1.0),
                    (Pattern::Mix9to1, 1.0),
                ];
                for (pattern, speed) in speeds {
                    let wavers = 1.0 + 1e-3 * (run % 2) as f64;
                    let seconds = 1e-4 * growth.powi(power as i32) * wavers / speed;
                    rows.push(Row {
                        task: task(Direction::Read, pattern, bytes, DEPTH),
                        run,
                        runs: 10,
                        contender: name.to_string(),
                        values: vec![seconds, 100.0, 8.0, 1e6],
                    });
                }
            }
        }
        CellRecord::made_up(name, "", rows)
    }

    #[test]
    fn both_claims_are_judged() {
        let check = |name: &str, sequential: f64, growth: f64, expected: [Verdict; 2]| {
            let found = judge(&cell(name, sequential, growth));
            let verdicts: Vec<Verdict> = found.iter().map(|finding| finding.verdict).collect();
            assert_eq!(verdicts, expected, "{found:?}");
            assert!(found.iter().all(|finding| finding.core == (name == DISK)));
        };
        check(DISK, 5.0, 1.1, [Verdict::Holds, Verdict::Holds]);
        check(DISK, 1.0, 1.1, [Verdict::Holds, Verdict::Differs]);
        check(RAM_DISK, 5.0, 1.9, [Verdict::Differs, Verdict::Holds]);
    }

    #[test]
    fn the_targets_are_the_least_of_the_published_devices() {
        let least = |ratio: &dyn Fn(&str) -> f64| {
            let ratios = published::DEVICES.iter().map(|(preset, _)| ratio(preset));
            ratios.fold(f64::INFINITY, f64::min)
        };
        let read = |preset: &str, pattern, bytes| {
            published_rate(preset, pattern, bytes, Direction::Read).middle
        };
        let mix = |preset: &str, bytes| read(preset, Pattern::Mix9to1, bytes);
        let twice = least(&|preset| 2.0 * mix(preset, 8 << 10) / mix(preset, 4 << 10));
        assert!((twice - TWICE.low).abs() < 0.005, "{twice}");
        let sequential = least(&|preset| {
            read(preset, Pattern::Sequential, 4 << 10) / read(preset, Pattern::Random, 4 << 10)
        });
        assert!((sequential - SEQUENTIAL.low).abs() < 0.005, "{sequential}");
    }

    #[test]
    fn published_devices_stand_beside_ours() {
        let lines = lines(&[cell(DISK, 1.0, 1.5)]);
        let names: Vec<&str> = lines.iter().map(|line| line.device.as_str()).collect();
        assert_eq!(names, ["disk", "his hard disk", "his SSD", "his RAM disk"]);
        assert!(lines.iter().all(|line| line.points.len() == 6));
        let table = rates(&lines);
        assert!(
            table.contains("| 8 KiB | 6663 (52) | 550 (4) | 8642 (68) |"),
            "{table}"
        );
    }

    #[test]
    fn a_place_is_probed_as_often_as_planned() {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan {
            runs: 2,
            seconds: 0.3,
            file_bytes: 1 << 20,
        };
        let rows = measure(DISK, folder.path(), &plan).unwrap();
        assert!(rows.iter().all(|row| row.values[SECONDS] > 0.0));
        assert_eq!(rows.len(), 2 * ProbeReport::CELL_COUNT);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
