//! The processor's own energy counters, through the powercap tree.
//!
//! A zone is a folder with `name`, `energy_uj` and `max_energy_range_uj`. Packages and their memory are summed over all
//! sockets. Core, uncore and platform zones are left out: a package contains the first two, and the third contains the
//! package. The counter starts again at 0 after its range. A difference is corrected for one wrap, so a long span must
//! be advanced now and then. AMD's counters appear in the same tree under Intel's name, without memory.
//!
//! The counters belong to everybody who runs on the machine, and since 2020 only root may read them. A refusal is an
//! answer with a remedy, not a failure.

#![deny(unsafe_code)]

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::quoted::quoted;
use crate::units::{Joules, Source};

use super::power::EnergyScope;
use super::roots::{Roots, read_line, read_number, read_text};

/// More zones than this are not followed.
const ZONES_MAX: usize = 4096;

/// Why the counters cannot be used, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RaplUnavailable {
    /// There is no powercap tree, or it has no package.
    Missing { folder: PathBuf },
    /// The kernel refuses to show the counter to this user.
    Locked { path: PathBuf },
    /// The counter is there but does not say what it should.
    Unreadable { path: PathBuf, reason: String },
}

impl fmt::Display for RaplUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RaplUnavailable::Missing { folder } => write!(
                f,
                "no processor energy counters under {}; guests and containers have none unless \
                 their host passes them on",
                quoted(&folder)
            ),
            RaplUnavailable::Locked { path } => write!(
                f,
                "the energy counter {} may be read by root only (CVE-2020-8694); to read it as \
                 this user until the next boot: sudo chmod a+r \
                 /sys/class/powercap/intel-rapl:*/energy_uj; for good, for the group adm, a udev \
                 rule: SUBSYSTEM==\"powercap\", ACTION==\"add\", RUN+=\"/bin/chgrp adm \
                 %S%p/energy_uj\", RUN+=\"/bin/chmod g+r %S%p/energy_uj\"",
                quoted(&path)
            ),
            RaplUnavailable::Unreadable { path, reason } => {
                write!(
                    f,
                    "the energy counter {} is unusable: {reason}",
                    quoted(&path)
                )
            }
        }
    }
}

/// One counter of the tree.
#[derive(Clone, Debug)]
struct Zone {
    path: PathBuf,
    range_uj: Option<u64>,
}

impl Zone {
    fn read(&self) -> Result<u64, RaplUnavailable> {
        let unreadable = |reason: String| RaplUnavailable::Unreadable {
            path: self.path.clone(),
            reason,
        };
        let text = read_text(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => RaplUnavailable::Locked {
                path: self.path.clone(),
            },
            _ => unreadable(error.to_string()),
        })?;
        let shown: String = text.trim().chars().take(40).collect();
        shown
            .parse()
            .map_err(|_| unreadable(format!("expected microjoules, found '{shown}'")))
    }

    /// Returns the microjoules between two readings, at most one wrap apart.
    fn difference(&self, before: u64, after: u64) -> Result<u64, RaplUnavailable> {
        if after >= before {
            return Ok(after - before);
        }
        match self.range_uj {
            Some(range) if range >= before => Ok(range - before + after),
            range => Err(RaplUnavailable::Unreadable {
                path: self.path.clone(),
                reason: format!("it fell from {before} to {after} uJ with a range of {range:?} uJ"),
            }),
        }
    }
}

/// The counters of this machine that add up to its processors' energy.
#[derive(Clone, Debug)]
pub struct Rapl {
    zones: Vec<Zone>,
    domains: &'static str,
    guest: bool,
}

impl Rapl {
    /// Finds the counters under `roots` and reads each once. In a `guest` they are passed on by
    /// the host, so attributed rather than measured, and labelled so.
    ///
    /// # Errors
    ///
    /// The reason they cannot be used, with its remedy.
    pub fn open(roots: &Roots, guest: bool) -> Result<Rapl, RaplUnavailable> {
        let folder = roots.sys.join("class/powercap");
        let mut packages = Vec::new();
        let mut memories = Vec::new();
        let mut package_names = Vec::new();
        for path in zone_folders(&folder) {
            let Some(name) = read_line(&path.join("name")) else {
                continue;
            };
            let zone = Zone {
                path: path.join("energy_uj"),
                range_uj: read_number(&path.join("max_energy_range_uj")).filter(|range| *range > 0),
            };
            // One package may be offered through two interfaces; it is counted once.
            if name.starts_with("package-") && !package_names.contains(&name) {
                package_names.push(name);
                packages.push(zone);
            } else if name == "dram" {
                memories.push(zone);
            }
        }
        if packages.is_empty() {
            return Err(RaplUnavailable::Missing { folder });
        }
        // Memory of some sockets only would make a scope of its own: then it is left out.
        let with_memory = memories.len() == packages.len();
        let mut zones = packages;
        if with_memory {
            zones.extend(memories);
        }
        let rapl = Rapl {
            zones,
            domains: if with_memory { "pkg,dram" } else { "pkg" },
            guest,
        };
        rapl.read()?;
        Ok(rapl)
    }

    /// Returns the label of energies read here.
    pub fn source(&self) -> Source {
        if self.guest {
            Source::Vrapl(self.domains.to_string())
        } else {
            Source::MeasuredRapl(self.domains.to_string())
        }
    }

    /// Returns what hardware the counters cover.
    pub fn scope(&self) -> EnergyScope {
        EnergyScope::Domains(self.domains.to_string())
    }

    /// Starts a span at the counters' present values.
    pub(super) fn start(&self) -> Result<RaplSpan, RaplUnavailable> {
        Ok(RaplSpan {
            last_uj: self.read()?,
            total_uj: 0,
        })
    }

    fn read(&self) -> Result<Vec<u64>, RaplUnavailable> {
        self.zones.iter().map(Zone::read).collect()
    }
}

/// Energy summed up since a start.
#[derive(Debug)]
pub(super) struct RaplSpan {
    last_uj: Vec<u64>,
    total_uj: u64,
}

impl RaplSpan {
    /// Adds the energy spent since the last call, which must be less than one wrap ago. At 1,000 W the smallest counter
    /// wraps after a minute.
    pub fn advance(&mut self, rapl: &Rapl) -> Result<(), RaplUnavailable> {
        let now = rapl.read()?;
        for ((zone, last), now) in rapl.zones.iter().zip(&mut self.last_uj).zip(now) {
            let difference = zone.difference(*last, now)?;
            self.total_uj = self.total_uj.saturating_add(difference);
            *last = now;
        }
        Ok(())
    }

    /// Returns the energy up to the last advance.
    pub fn joules(&self) -> Joules {
        Joules(self.total_uj as f64 / 1e6)
    }
}

/// Folders of the processor's zones, in order of their names. The memory-mapped twin of the same
/// counters (`intel-rapl-mmio`) and other powercap zones are not among them.
fn zone_folders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut zones: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("intel-rapl:"))
        })
        .take(ZONES_MAX)
        .collect();
    zones.sort();
    zones
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::roots::fake::Tree;
    use super::*;

    const RANGE: &str = "262143328850";

    /// Writes one zone of a made-up tree.
    pub fn zone(tree: &Tree, zone: &str, name: &str, energy: &str, range: Option<&str>) {
        let folder = format!("sys/class/powercap/{zone}");
        tree.write(&format!("{folder}/name"), format!("{name}\n"));
        tree.write(&format!("{folder}/energy_uj"), format!("{energy}\n"));
        if let Some(range) = range {
            tree.write(
                &format!("{folder}/max_energy_range_uj"),
                format!("{range}\n"),
            );
        }
    }

    fn two_sockets() -> Tree {
        let tree = Tree::new(&[("sys/class/powercap/intel-rapl/enabled", "1")]);
        zone(&tree, "intel-rapl:0", "package-0", "1000000", Some(RANGE));
        zone(&tree, "intel-rapl:0:0", "core", "900000", Some(RANGE));
        zone(&tree, "intel-rapl:0:1", "dram", "500000", Some(RANGE));
        zone(&tree, "intel-rapl:1", "package-1", "2000000", Some(RANGE));
        zone(&tree, "intel-rapl:1:0", "dram", "700000", Some(RANGE));
        zone(&tree, "intel-rapl:2", "psys", "9000000", Some(RANGE));
        zone(
            &tree,
            "intel-rapl-mmio:0",
            "package-0",
            "1000000",
            Some(RANGE),
        );
        zone(&tree, "dtpm:0", "package-9", "1", None);
        tree
    }

    /// Opens, changes the counters as `changes` says, and returns the joules or the refusal.
    fn check(tree: &Tree, changes: &[(&str, &str)]) -> Result<f64, RaplUnavailable> {
        let rapl = Rapl::open(&tree.roots(), false)?;
        let mut span = rapl.start()?;
        for (zone, energy) in changes {
            tree.write(&format!("sys/class/powercap/{zone}/energy_uj"), energy);
        }
        span.advance(&rapl)?;
        Ok(span.joules().0)
    }

    #[test]
    fn packages_and_memory_of_all_sockets_are_summed_once() {
        let tree = two_sockets();
        let rapl = Rapl::open(&tree.roots(), false).expect("counters");
        assert_eq!(rapl.source().to_string(), "measured-rapl(pkg,dram)");
        assert_eq!(rapl.scope().to_string(), "pkg,dram");
        let changes = [
            ("intel-rapl:0", "4000000"),
            ("intel-rapl:0:0", "3900000"),
            ("intel-rapl:0:1", "1500000"),
            ("intel-rapl:1", "2500000"),
            ("intel-rapl:1:0", "700001"),
            ("intel-rapl:2", "99000000"),
        ];
        assert_eq!(check(&tree, &changes), Ok(3.0 + 1.0 + 0.5 + 0.000001));
    }

    #[test]
    fn a_guest_says_so() {
        let rapl = Rapl::open(&two_sockets().roots(), true).expect("counters");
        assert_eq!(rapl.source().to_string(), "vrapl(pkg,dram)");
    }

    #[test]
    fn amd_has_packages_without_memory() {
        let tree = Tree::new(&[]);
        zone(&tree, "intel-rapl:0", "package-0", "5", Some("65532610987"));
        zone(&tree, "intel-rapl:0:0", "core", "4", Some("65532610987"));
        let rapl = Rapl::open(&tree.roots(), false).expect("counters");
        assert_eq!(rapl.source().to_string(), "measured-rapl(pkg)");
        assert_eq!(check(&tree, &[("intel-rapl:0", "1000005")]), Ok(1.0));
    }

    #[test]
    fn memory_of_one_socket_of_two_is_left_out() {
        let tree = Tree::new(&[]);
        zone(&tree, "intel-rapl:0", "package-0", "0", Some(RANGE));
        zone(&tree, "intel-rapl:0:0", "dram", "0", Some(RANGE));
        zone(&tree, "intel-rapl:1", "package-1", "0", Some(RANGE));
        let rapl = Rapl::open(&tree.roots(), false).expect("counters");
        assert_eq!(rapl.scope().to_string(), "pkg");
    }

    #[test]
    fn a_wrapped_counter_is_corrected_by_its_range() {
        let tree = Tree::new(&[]);
        zone(
            &tree,
            "intel-rapl:0",
            "package-0",
            "262143000000",
            Some(RANGE),
        );
        let rapl = Rapl::open(&tree.roots(), false).expect("counters");
        let mut span = rapl.start().expect("a start");
        let advance = |span: &mut RaplSpan, energy: &str| {
            tree.write("sys/class/powercap/intel-rapl:0/energy_uj", energy);
            span.advance(&rapl).expect("a reading");
            span.joules().0
        };
        assert_eq!(advance(&mut span, "671150"), 1.0);
        assert_eq!(advance(&mut span, "1671150"), 2.0);
        assert_eq!(advance(&mut span, "262143000000"), 262_143.328_85);
        assert_eq!(advance(&mut span, "671150"), 262_144.328_85);
    }

    #[test]
    fn a_wrap_without_a_sane_range_is_refused() {
        for range in [None, Some("0"), Some("no number"), Some("1000")] {
            let tree = Tree::new(&[]);
            zone(&tree, "intel-rapl:0", "package-0", "5000", range);
            assert_eq!(check(&tree, &[("intel-rapl:0", "6000")]), Ok(0.001));
            let refusal = check(&tree, &[("intel-rapl:0", "100")]).expect_err("a wrap");
            assert!(
                refusal.to_string().contains("fell from 6000 to 100 uJ"),
                "{refusal}"
            );
        }
    }

    #[test]
    fn missing_and_garbage_counters_are_refusals() {
        let tree = Tree::new(&[]);
        let refuse = |tree: &Tree| Rapl::open(&tree.roots(), false).expect_err("a refusal");
        assert!(matches!(refuse(&tree), RaplUnavailable::Missing { .. }));
        assert!(refuse(&tree).to_string().contains("class/powercap"));
        // A zone without a name, and one that is a file, are not packages.
        tree.write("sys/class/powercap/intel-rapl:0/energy_uj", "7");
        tree.write("sys/class/powercap/intel-rapl:1", "a file");
        assert!(matches!(refuse(&tree), RaplUnavailable::Missing { .. }));
        for garbage in [
            "",
            "-5",
            "1.5",
            "0x10",
            "12 34",
            "99999999999999999999",
            "\u{0}\u{0}",
        ] {
            zone(&tree, "intel-rapl:0", "package-0", garbage, Some(RANGE));
            let refusal = refuse(&tree);
            assert!(
                matches!(refusal, RaplUnavailable::Unreadable { .. }),
                "{refusal}"
            );
        }
        tree.write("sys/class/powercap/intel-rapl:0/energy_uj", [0xff; 100_000]);
        assert!(refuse(&tree).to_string().len() < 500);
        std::fs::remove_file(
            tree.folder
                .path()
                .join("sys/class/powercap/intel-rapl:0/energy_uj"),
        )
        .expect("removed");
        assert!(matches!(refuse(&tree), RaplUnavailable::Unreadable { .. }));
        // Gone in the middle of a span.
        zone(&tree, "intel-rapl:0", "package-0", "5", Some(RANGE));
        assert!(check(&tree, &[("intel-rapl:0", "gone")]).is_err());
    }

    #[test]
    fn a_locked_counter_names_its_remedy() {
        use std::os::unix::fs::PermissionsExt;

        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

        let tree = Tree::new(&[]);
        zone(&tree, "intel-rapl:0", "package-0", "5", Some(RANGE));
        let path = tree
            .folder
            .path()
            .join("sys/class/powercap/intel-rapl:0/energy_uj");
        let locked = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(&path, locked).expect("locked");
        // Root may read what is locked; a thread of its own gives that right up first.
        let roots = tree.roots();
        let refusal = std::thread::spawn(move || {
            let mut sets = capabilities(None).expect("this thread's rights");
            sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            set_capabilities(None, sets).expect("fewer rights");
            Rapl::open(&roots, false).expect_err("a refusal")
        })
        .join()
        .expect("the thread");
        assert_eq!(refusal, RaplUnavailable::Locked { path });
        let text = refusal.to_string();
        assert!(
            text.contains("chmod a+r") && text.contains("udev"),
            "{text}"
        );
    }
}
