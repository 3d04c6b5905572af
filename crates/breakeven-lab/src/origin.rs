//! Where a record comes from: the code, the machine, the date.
//!
//! The code is the last commit that touched the measured code, so that committing records does not make them stale.
//! Local changes add a hash of themselves. The machine is a hash of its description, and the description stands once in
//! `machines.csv`.

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use breakeven::meter::{Machine, Roots};

use crate::clock;

/// The origin of all rows of one run.
#[derive(Clone, Debug)]
pub struct Origin {
    pub commit: String,
    pub machine: String,
    /// The text whose hash `machine` is.
    pub machine_description: String,
    /// When the run began.
    pub date: String,
}

impl Origin {
    /// Reads the origin of a run that begins now.
    pub fn read() -> Origin {
        let machine_description = describe(&Machine::read(&Roots::default()));
        Origin {
            commit: commit(),
            machine: hash(machine_description.as_bytes()),
            machine_description,
            date: clock::date(),
        }
    }
}

/// Returns the facts that set a machine's speed, in one line without commas.
fn describe(machine: &Machine) -> String {
    let or = |text: &Option<String>, absent: &str| text.clone().unwrap_or(absent.to_string());
    // A kernel reserves a little more or less at each start; whole GiB do not change.
    let memory_gib = machine
        .memory_bytes
        .map_or(0, |bytes| (bytes + (1 << 29)) >> 30);
    let description = format!(
        "{}; {} cores; {} threads; {memory_gib} GiB; Linux {}; governor {}; {}",
        machine.processor,
        machine.cores,
        machine.threads,
        or(&machine.kernel, "unknown"),
        or(&machine.governor, "none"),
        or(&machine.virtualisation, "bare metal")
    );
    description.replace(',', " ")
}

/// Returns the commit of the code, `unknown` outside a repository.
fn commit() -> String {
    const CODE: &[&str] = &[
        "crates",
        "Cargo.toml",
        "Cargo.lock",
        ":(exclude)crates/breakeven-lab/records",
    ];
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
            .args(arguments)
            .arg("--")
            .args(CODE)
            .output();
        output
            .ok()
            .filter(|output| output.status.success())
            .map(|output| output.stdout)
    };
    let commit = git(&["log", "-1", "--format=%h", "--abbrev=12"]);
    let commit = commit.and_then(|text| String::from_utf8(text).ok());
    match (commit, git(&["diff", "HEAD"])) {
        (Some(commit), Some(changes)) if changes.is_empty() => commit.trim().to_string(),
        (Some(commit), Some(changes)) => format!("{}+{}", commit.trim(), hash(&changes)),
        _ => "unknown".to_string(),
    }
}

/// Refuses to record by programs that were built before their code changed last: the record would name other code.
///
/// # Errors
/// The first program that is older than one of its sources, and that source.
pub fn check_built() -> Result<()> {
    let laboratory = std::env::current_exe().context("find this program")?;
    for program in [laboratory.clone(), laboratory.with_file_name("breakeven")] {
        // Cargo lists a program's sources beside it.
        let Ok(sources) = std::fs::read_to_string(program.with_extension("d")) else {
            continue;
        };
        let Ok(built) = changed(&program) else {
            continue;
        };
        let sources = sources.split_once(": ").map_or("", |(_, sources)| sources);
        for source in sources.split_ascii_whitespace().map(Path::new) {
            ensure!(
                changed(source).is_ok_and(|changed| changed <= built),
                "{} is older than {}: cargo build --workspace",
                program.display(),
                source.display()
            );
        }
    }
    Ok(())
}

fn changed(path: &Path) -> std::io::Result<SystemTime> {
    path.metadata()?.modified()
}

/// Returns eight hexadecimal digits of a text: the FNV-1a hash of 64 bits, folded.
pub fn hash(text: &[u8]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in text {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_in_one_field() {
        let mut machine = Machine {
            memory_bytes: Some(24_684_092 << 10),
            threads: 2,
            cores: 1,
            ..Machine::default()
        };
        machine.processor.name = "Fast, 9000".to_string();
        let found = describe(&machine);
        assert!(found.starts_with("Fast  9000 ("), "{found}");
        let end = "1 cores; 2 threads; 24 GiB; Linux unknown; governor none; bare metal";
        assert!(found.ends_with(end), "{found}");
    }

    #[test]
    fn the_hash_is_the_published_one() {
        // FNV-1a 64 of "a" is af63dc4c8601ec8c.
        let folded = 0xaf63_dc4c_u32 ^ 0x8601_ec8c;
        assert_eq!(hash(b"a"), format!("{folded:08x}"));
    }
}
