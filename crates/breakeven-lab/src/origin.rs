//! Where a record comes from: the code, the machine, the date.
//!
//! The code is the last commit that touched what is measured, so that committing records does not
//! make them stale; local changes add a hash of themselves. The machine is a hash of its
//! description, and the description stands once in `machines.csv`.

use std::fs;
use std::path::Path;
use std::process::Command;

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
        let machine_description = describe_machine(&read("/proc/cpuinfo"), &read("/proc/meminfo"));
        Origin {
            commit: commit(),
            machine: hash(machine_description.as_bytes()),
            machine_description,
            date: clock::date(),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the machine in one line without commas.
fn describe_machine(cpuinfo: &str, meminfo: &str) -> String {
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| {
            line.split_once(':')
                .is_some_and(|(key, _)| key.trim() == name)
        });
        line.and_then(|line| line.split_once(':'))
            .map_or("unknown", |(_, value)| value.trim())
    };
    let threads = cpuinfo
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let memory_kib: Option<u64> = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse().ok());
    // A kernel reserves a little more or less at each start; whole GiB do not change.
    let memory_gib = memory_kib.map_or(0, |kib| (kib + (1 << 19)) >> 20);
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let governor = match governor.trim() {
        "" => "no governor",
        governor => governor,
    };
    let guest = field("flags").split(' ').any(|flag| flag == "hypervisor");
    let description = format!(
        "{} family {} model {} stepping {}; {threads} threads; {memory_gib} GiB; Linux {}; {governor}; {}",
        field("model name"),
        field("cpu family"),
        field("model"),
        field("stepping"),
        read("/proc/sys/kernel/osrelease").trim(),
        if guest {
            "virtual machine"
        } else {
            "bare metal"
        },
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
        let cpuinfo = "processor\t: 0\nmodel name\t: Fast, 9000\ncpu family\t: 6\nmodel\t\t: 7\n\
                       stepping\t: 1\nflags\t\t: fpu hypervisor sse\n\nprocessor\t: 1\n";
        let found = describe_machine(cpuinfo, "MemTotal:       24684092 kB\n");
        assert!(
            found.starts_with("Fast  9000 family 6 model 7 stepping 1; 2 threads; 24 GiB; Linux "),
            "{found}"
        );
        assert!(found.ends_with("; virtual machine"), "{found}");
        assert!(!found.contains(','));
        assert!(describe_machine("", "").starts_with("unknown family unknown"));
    }

    #[test]
    fn the_hash_is_the_published_one() {
        // FNV-1a 64 of "a" is af63dc4c8601ec8c.
        let folded = 0xaf63_dc4c_u32 ^ 0x8601_ec8c;
        assert_eq!(hash(b"a"), format!("{folded:08x}"));
    }
}
