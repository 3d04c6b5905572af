//! A description of the machine, for reports.
//!
//! The fields are those of Kothiyal 2009, Table 4.1, as far as a running kernel knows them: processor, speed, count,
//! frequency scaling, c-states, caches, memory, and idle power with its source. Governor, kernel and virtualisation
//! have joined them since. Disks are described by their medium. An unreadable field is absent, never guessed. Nothing
//! here needs a privilege.

#![deny(unsafe_code)]

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::units::{Source, Watts};

use super::power::EnergyScope;
use super::processor::Processor;
use super::roots::{Roots, read_line, read_number, read_text};

/// More entries than this in a numbered folder are not followed.
const ENTRIES_MAX: usize = 4096;

/// One level of the first processor's caches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// The level, 1 being nearest to the core.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// The power of the idle machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdlePower {
    /// Watts.
    pub watts: Watts,
    /// Where the number comes from.
    pub source: Source,
    /// The hardware that it covers.
    pub scope: EnergyScope,
}

/// The machine that numbers were taken on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor.
    pub processor: Processor,
    /// Nominal or highest frequency in MHz.
    pub speed_mhz: Option<f64>,
    /// Processor packages.
    pub sockets: u32,
    /// Cores, over all sockets.
    pub cores: u32,
    /// Hardware threads that are online, over all cores; at least 1.
    pub threads: u32,
    /// Caches of the first processor, nearest first.
    pub caches: Vec<Cache>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// The driver that scales frequency and voltage, if there is one.
    pub dvfs_driver: Option<String>,
    /// The policy by which it does so (`performance`, `schedutil`).
    pub governor: Option<String>,
    /// Names of the idle states, shallowest first; empty if the kernel manages none.
    pub c_states: Vec<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// The machine's hypervisor or container, absent on bare metal.
    pub virtualisation: Option<String>,
    /// Idle power, once an energy meter has been chosen.
    pub idle_power: Option<IdlePower>,
}

impl Machine {
    /// Reads the description under `roots`.
    ///
    /// # Cost
    ///
    /// Some dozens of small files, a few milliseconds on a large machine.
    pub fn read(roots: &Roots) -> Machine {
        let cpuinfo = read_text(&roots.proc.join("cpuinfo")).unwrap_or_default();
        let cpu0 = roots.sys.join("devices/system/cpu/cpu0");
        let topology = Topology::read(roots, &cpuinfo);
        Machine {
            processor: Processor::from_cpuinfo(&cpuinfo),
            speed_mhz: speed_mhz(&cpu0, &cpuinfo),
            sockets: topology.sockets,
            cores: topology.cores,
            threads: topology.threads,
            caches: caches(&cpu0.join("cache")),
            memory_bytes: memory_bytes(roots),
            dvfs_driver: read_line(&cpu0.join("cpufreq/scaling_driver")),
            governor: read_line(&cpu0.join("cpufreq/scaling_governor")),
            c_states: c_states(&cpu0.join("cpuidle")),
            kernel: read_line(&roots.proc.join("sys/kernel/osrelease")),
            virtualisation: virtualisation(roots, &cpuinfo),
            idle_power: None,
        }
    }

    /// Reads the description of this machine as far as this process may use it. Its affinity and its quota limit the
    /// threads, as they limit those of a pool. Where nothing names the processor, the virtualisation is not known
    /// either.
    pub fn of_this_process() -> Machine {
        let mut machine = Machine::read(&Roots::default());
        let usable = std::thread::available_parallelism();
        let usable = usable.map_or(machine.threads, |count| count.get() as u32);
        let is_known = machine.processor != Processor::default();
        machine.threads = if is_known {
            machine.threads.min(usable)
        } else {
            usable
        };
        machine.cores = if is_known {
            machine.cores.min(machine.threads)
        } else {
            usable
        };
        if !is_known && machine.virtualisation.is_none() {
            machine.virtualisation = Some("virtualisation unknown".to_string());
        }
        machine
    }

    /// Returns the hardware threads of a core, at least 1.
    pub fn threads_per_core(&self) -> u32 {
        (self.threads / self.cores.max(1)).max(1)
    }
}

/// How many of each kind of processing unit there are.
struct Topology {
    sockets: u32,
    cores: u32,
    threads: u32,
}

impl Topology {
    fn read(roots: &Roots, cpuinfo: &str) -> Topology {
        let threads = field_values(cpuinfo, "processor").count().max(1) as u32;
        let cpus = roots.sys.join("devices/system/cpu");
        let mut sockets = BTreeSet::new();
        let mut cores = BTreeSet::new();
        for index in 0..ENTRIES_MAX {
            let topology = cpus.join(format!("cpu{index}/topology"));
            let read = |name: &str| read_line(&topology.join(name));
            if let (Some(socket), Some(core)) = (read("physical_package_id"), read("core_id")) {
                sockets.insert(socket.clone());
                cores.insert((socket, core));
            } else if index >= threads as usize {
                break;
            }
        }
        // An offline processor has no topology, so the count of cores is of those online.
        let cores = (cores.len() as u32).min(threads);
        Topology {
            sockets: (sockets.len() as u32).max(1),
            cores: if cores == 0 { threads } else { cores },
            threads,
        }
    }
}

fn field_values<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// The highest frequency by design where the driver tells it, else what runs just now.
fn speed_mhz(cpu0: &Path, cpuinfo: &str) -> Option<f64> {
    if let Some(khz) = read_number(&cpu0.join("cpufreq/cpuinfo_max_freq")) {
        return Some(khz as f64 / 1e3);
    }
    let speed: f64 = field_values(cpuinfo, "cpu MHz").next()?.parse().ok()?;
    (speed.is_finite() && speed > 0.0).then_some(speed)
}

fn caches(folder: &Path) -> Vec<Cache> {
    let mut caches: Vec<Cache> = (0..ENTRIES_MAX)
        .map_while(|index| {
            let entry = folder.join(format!("index{index}"));
            let kind = read_line(&entry.join("type"))?;
            let level = read_number(&entry.join("level"))?.try_into().ok()?;
            let size_bytes = size_in_bytes(&read_line(&entry.join("size"))?)?;
            Some(Cache {
                level,
                kind,
                size_bytes,
            })
        })
        .collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

/// Reads a size as the kernel prints it: `48K`, `32M`, or plain bytes.
fn size_in_bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn memory_bytes(roots: &Roots) -> Option<u64> {
    let text = read_text(&roots.proc.join("meminfo")).ok()?;
    let value = field_values(&text, "MemTotal").next()?;
    let kib: u64 = value.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn c_states(folder: &Path) -> Vec<String> {
    (0..ENTRIES_MAX)
        .map_while(|index| read_line(&folder.join(format!("state{index}/name"))))
        .collect()
}

/// The hypervisor flag decides; the firmware's vendor and product only give it a name.
fn virtualisation(roots: &Roots, cpuinfo: &str) -> Option<String> {
    let kind = read_line(&roots.sys.join("hypervisor/type"));
    let flagged = ["flags", "Features"].iter().any(|name| {
        let mut lists = field_values(cpuinfo, name);
        lists
            .next()
            .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
    });
    if !flagged && kind.is_none() {
        return None;
    }
    let firmware = roots.sys.join("class/dmi/id");
    let names: Vec<String> = ["sys_vendor", "product_name"]
        .iter()
        .filter_map(|name| read_line(&firmware.join(name)))
        .collect();
    Some(match (kind, names.is_empty()) {
        (Some(kind), _) => kind,
        (None, false) => names.join(" "),
        (None, true) => "virtual machine".to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::roots::fake::Tree;
    use super::*;

    const XEON: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n\
        model name\t: Xeon\ncpu MHz\t\t: 2100.5\nflags\t\t: fpu vme\n\n\
        processor\t: 1\nvendor_id\t: GenuineIntel\n\nprocessor\t: 2\n\nprocessor\t: 3\n";

    #[test]
    fn a_server_is_described_in_full() {
        let cpu = "sys/devices/system/cpu";
        let tree = Tree::new(&[
            ("proc/cpuinfo", XEON),
            (
                "proc/meminfo",
                "MemTotal:       24576000 kB\nMemFree: 1 kB\n",
            ),
            ("proc/sys/kernel/osrelease", "6.18.1\n"),
        ]);
        for (index, socket) in [(0, "0"), (1, "1"), (2, "0"), (3, "1")] {
            let topology = format!("{cpu}/cpu{index}/topology");
            tree.write(&format!("{topology}/physical_package_id"), socket);
            tree.write(&format!("{topology}/core_id"), "0\n");
        }
        for (index, level, kind, size) in [
            (0, "1", "Data", "48K"),
            (1, "1", "Instruction", "32K"),
            (2, "2", "Unified", "2048K"),
            (3, "3", "Unified", "105M"),
        ] {
            let entry = format!("{cpu}/cpu0/cache/index{index}");
            tree.write(&format!("{entry}/level"), level);
            tree.write(&format!("{entry}/type"), kind);
            tree.write(&format!("{entry}/size"), size);
        }
        tree.write(&format!("{cpu}/cpu0/cpufreq/cpuinfo_max_freq"), "3800000\n");
        tree.write(
            &format!("{cpu}/cpu0/cpufreq/scaling_driver"),
            "intel_pstate\n",
        );
        tree.write(
            &format!("{cpu}/cpu0/cpufreq/scaling_governor"),
            "powersave\n",
        );
        tree.write(&format!("{cpu}/cpu0/cpuidle/state0/name"), "POLL\n");
        tree.write(&format!("{cpu}/cpu0/cpuidle/state1/name"), "C1\n");

        let machine = Machine::read(&tree.roots());
        assert_eq!((machine.sockets, machine.cores, machine.threads), (2, 2, 4));
        assert_eq!(machine.threads_per_core(), 2);
        assert_eq!(machine.speed_mhz, Some(3800.0));
        assert_eq!(machine.memory_bytes, Some(24_576_000 * 1024));
        let sizes: Vec<u64> = machine
            .caches
            .iter()
            .map(|cache| cache.size_bytes)
            .collect();
        assert_eq!(sizes, [48 << 10, 32 << 10, 2 << 20, 105 << 20]);
        assert_eq!(machine.dvfs_driver.as_deref(), Some("intel_pstate"));
        assert_eq!(machine.governor.as_deref(), Some("powersave"));
        assert_eq!(machine.c_states, ["POLL", "C1"]);
        assert_eq!(machine.kernel.as_deref(), Some("6.18.1"));
        assert_eq!(machine.virtualisation, None);
        let json = serde_json::to_string(&machine).expect("JSON");
        let back: Machine = serde_json::from_str(&json).expect("the same machine");
        assert_eq!(back, machine);
    }

    #[test]
    fn a_guest_is_called_one() {
        let tree = Tree::new(&[("proc/cpuinfo", "processor: 0\nflags: fpu hypervisor sse\n")]);
        let read = || Machine::read(&tree.roots()).virtualisation;
        assert_eq!(read().as_deref(), Some("virtual machine"));
        tree.write("sys/class/dmi/id/sys_vendor", "QEMU\n");
        tree.write("sys/class/dmi/id/product_name", "Standard PC\n");
        assert_eq!(read().as_deref(), Some("QEMU Standard PC"));
        tree.write("sys/hypervisor/type", "xen\n");
        assert_eq!(read().as_deref(), Some("xen"));
    }

    #[test]
    fn an_empty_or_broken_tree_still_has_one_thread() {
        let tree = Tree::new(&[]);
        let machine = Machine::read(&tree.roots());
        assert_eq!((machine.sockets, machine.cores, machine.threads), (1, 1, 1));
        tree.write("proc/cpuinfo", [0xff; 300]);
        tree.write("proc/meminfo", "MemTotal: 99999999999999999999 kB\n");
        tree.write("sys/devices/system/cpu/cpu0/cache/index0/type", "Data");
        tree.write("sys/devices/system/cpu/cpu0/cache/index0/level", "one");
        let broken = Machine::read(&tree.roots());
        assert_eq!(broken, machine);
        assert_eq!(size_in_bytes("18446744073709551615K"), None);
    }

    #[test]
    fn this_machine_can_be_described() {
        let machine = Machine::read(&Roots::default());
        assert!(machine.threads >= 1 && machine.cores <= machine.threads);
        assert!(machine.memory_bytes.is_some_and(|bytes| bytes > 0));
    }
}
