//! Media known by name, each number with its source, and the text a person types for one.
//!
//! A figure that a paper, a data sheet or a review measured is `Published` and named. Common knowledge of the device is
//! `Default`, with the widest band, so that a verdict that depends on it comes out as undecided. Prices are dated
//! defaults: the caller overwrites the public fields from the price file.
//!
//! A text is a name of [`preset_names`] or a rate such as `117MB/s` or `10Gbit/s`, which makes a
//! link of that rate. This file does no I/O.

use std::str::FromStr;

use super::{Curve, Figure, GIB, Medium, MediumKind, Pattern, Point, Service};
use crate::error::{Error, Result};
use crate::units::{Estimate, Source};

const KOTHIYAL: &str = "Kothiyal 2009, Table 4.1";
const HARPER_TABLE_1: &str = "Harper 2018, Table 1";
const HARPER_TABLE_3: &str = "Harper 2018, Table 3";
const HIRSCH: &str = "Hirsch 2017, chapter 5";
const HIRSCH_STORAGE: &str = "Hirsch 2017, section 3.4.2";
const CLOUD_CARBON: &str = "Cloud Carbon Footprint, methodology";
const P3700: &str = "AnandTech 11209, Intel P3700, random read of 4 KiB at depth 1";
const PM1725A: &str = "AnandTech 15491, Samsung PM1725a";
const P4800X: &str = "AnandTech 11209 and 11930, Intel Optane P4800X";
const LTO_8: &str = "LTO-8 specification";
const S3_GUIDE: &str = "Amazon S3 user guide, performance guidelines";
const S3_CLASSES: &str = "Amazon S3 storage classes, Frankfurt, December 2021";
const LZBENCH: &str = "lzbench 2.0.1, memcpy, EPYC 9554";

/// Watts for holding a TB, from Cloud Carbon Footprint.
const HDD_WATTS_PER_TB: f64 = 0.65;
const SSD_WATTS_PER_TB: f64 = 1.2;
const MEMORY_WATTS_PER_TB: f64 = 392.0;

/// Euros for a US dollar, for prices that are quoted in dollars.
const EUR_PER_USD: f64 = 0.92;

/// The largest size at which a preset's formula is sampled: beyond it only the rate counts.
const LARGEST_BYTES: u64 = 1 << 30;

/// Depths at which a preset's formula is sampled.
const DEPTHS: [u32; 3] = [1, 4, 16];

/// A name, the other names for it, and the function that makes the medium.
type Preset = (&'static str, &'static [&'static str], fn() -> Medium);

const PRESETS: &[Preset] = &[
    ("hdd", &["disk"], hdd),
    ("sata-ssd", &["ssd"], sata_ssd),
    ("nvme", &["nvme-ssd"], nvme),
    ("optane", &[], optane),
    ("ram", &["memory"], ram),
    ("1gbe", &["gbe"], || network(&NETWORKS[0])),
    ("10gbe", &[], || network(&NETWORKS[1])),
    ("infiniband-fdr", &["fdr"], || network(&NETWORKS[2])),
    ("s3", &["s3-standard"], s3),
    ("s3-ia", &[], s3_infrequent_access),
    ("tape", &["lto-8"], tape),
    ("kothiyal-server", &[], || kothiyal(&KOTHIYAL_MACHINES[0])),
    ("kothiyal-desktop", &[], || kothiyal(&KOTHIYAL_MACHINES[1])),
    ("kothiyal-laptop", &[], || kothiyal(&KOTHIYAL_MACHINES[2])),
    ("harper-hdd", &[], || harper(&HARPER_DEVICES[0])),
    ("harper-ssd", &[], || harper(&HARPER_DEVICES[1])),
    ("harper-ram", &[], || harper(&HARPER_DEVICES[2])),
];

/// Returns the names of all presets, in the order of the documentation.
pub fn preset_names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _, _)| *name)
}

/// Returns the preset of that name or alias, in any case of letters.
pub fn preset(name: &str) -> Option<Medium> {
    let is = |other: &str| other.eq_ignore_ascii_case(name);
    let (found, _, make) = PRESETS
        .iter()
        .find(|(of, aliases, _)| is(of) || aliases.iter().any(|alias| is(alias)))?;
    let medium = make();
    assert_eq!(medium.name, *found, "a preset under another's name");
    Some(medium)
}

/// Returns the preset of the device that answers most like this one, for its unmeasured properties. The kernel's word
/// that it turns does not decide alone: virtual disks claim it. But no disk moves its arm within a millisecond.
pub(super) fn similar(
    random_read_seconds: f64,
    read_bytes_per_second: f64,
    is_rotational: Option<bool>,
) -> Medium {
    if random_read_seconds > 1e-3 && is_rotational != Some(false) {
        with_power_assumed(hdd())
    } else if read_bytes_per_second > 600e6 {
        with_power_assumed(nvme())
    } else {
        with_power_assumed(sata_ssd())
    }
}

/// Gives a preset's watts the widest band, because they are taken for another device of its kind.
pub(super) fn with_power_assumed(mut medium: Medium) -> Medium {
    let watts = [
        Some(&mut medium.idle_watts),
        Some(&mut medium.read.watts_above_idle),
        Some(&mut medium.write.watts_above_idle),
        medium.holding_watts_per_gib.as_mut(),
    ];
    for figure in watts.into_iter().flatten() {
        *figure = Figure::assumed(figure.estimate.mean);
    }
    medium
}

impl FromStr for Medium {
    type Err = Error;

    /// Reads a preset's name, or a rate for a link of that rate.
    ///
    /// # Errors
    /// `Parse`, with the names and the forms of a rate that are accepted.
    fn from_str(text: &str) -> Result<Medium> {
        let text = text.trim();
        if let Some(medium) = preset(text) {
            return Ok(medium);
        }
        if text.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
            return Ok(link(text, parse_rate(text)?));
        }
        Err(Error::parse("medium", text, accepted()))
    }
}

fn accepted() -> String {
    let names: Vec<&str> = preset_names().collect();
    format!(
        "expected {} or the rate of a link such as 117MB/s or 10Gbit/s",
        names.join(", ")
    )
}

/// Rates by their unit, in bytes per second. Letters count: `MB` is bytes, `Mbit` is bits, and `Mb`
/// is refused because people mean both by it.
const RATE_UNITS: [(&str, f64); 15] = [
    ("B/s", 1.0),
    ("kB/s", 1e3),
    ("KB/s", 1e3),
    ("MB/s", 1e6),
    ("GB/s", 1e9),
    ("KiB/s", 1024.0),
    ("MiB/s", 1_048_576.0),
    ("GiB/s", GIB),
    ("bit/s", 1.0 / 8.0),
    ("kbit/s", 1e3 / 8.0),
    ("Mbit/s", 1e6 / 8.0),
    ("Gbit/s", 1e9 / 8.0),
    ("kbps", 1e3 / 8.0),
    ("Mbps", 1e6 / 8.0),
    ("Gbps", 1e9 / 8.0),
];

/// Reads a rate such as `117MB/s` or `10 Gbit/s`, in bytes per second.
///
/// # Errors
/// `Parse` for an unknown unit or a number that is not finite and above zero.
pub fn parse_rate(text: &str) -> Result<f64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim());
    let wrong = |reason: String| Error::parse("rate", text, reason);
    let Some((_, factor)) = RATE_UNITS.iter().find(|(name, _)| *name == unit) else {
        let units: Vec<&str> = RATE_UNITS.iter().map(|(name, _)| *name).collect();
        return Err(wrong(format!("expected a unit of {}", units.join(", "))));
    };
    let number: f64 = number
        .parse()
        .map_err(|_| wrong(format!("'{number}' is not a number")))?;
    let rate = number * factor;
    // The bounds keep every later product finite; no link lies outside them.
    if !(1.0..=1e15).contains(&rate) {
        return Err(wrong("expected a rate of 1 B/s to 1e15 B/s".to_string()));
    }
    Ok(rate)
}

/// Makes a link of a declared rate: no latency of its own, as in Hirsch's simulated networks.
fn link(name: &str, bytes_per_second: f64) -> Medium {
    let rate = Figure::new(bytes_per_second, Source::Declared);
    let whole = |bytes: u64| Point {
        bytes,
        seconds: Figure {
            estimate: rate.estimate.map(|rate| bytes as f64 / rate),
            source: Source::Declared,
        },
    };
    let curve = Curve::new(None, 1, vec![whole(1), whole(LARGEST_BYTES)]);
    Medium {
        description: "a link of a declared rate, without latency".to_string(),
        source: Source::Declared,
        ..travelling(name, vec![curve], Figure::assumed(5.0))
    }
}

/// How operations in flight at once get along.
#[derive(Clone, Copy)]
enum InFlight {
    /// One after another (a disk's arm, a tape). The device sorts the waiting operations, which shortens the way to the
    /// next: by a third for 4, by more than half for 16.
    Queued,
    /// Their latencies overlap and they share the rate (a solid-state drive, a link).
    Shared,
    /// Each has a rate of its own (a store behind connections).
    Separate,
}

/// The numbers of a preset's formula.
#[derive(Clone)]
struct Times {
    /// Seconds of one operation of no bytes.
    latency_s: Figure,
    /// Bytes per second once they flow.
    bytes_per_second: Figure,
    in_flight: InFlight,
}

impl Times {
    fn new(in_flight: InFlight, latency_s: Figure, bytes_per_second: Figure) -> Times {
        Times {
            latency_s,
            bytes_per_second,
            in_flight,
        }
    }

    /// Samples the formula at the ends of its straight pieces. The quantity that decides a point, latency or rate,
    /// gives it its source.
    fn curve(&self, pattern: Option<Pattern>, depth: u32) -> Curve {
        let (latency, rate) = (self.latency_s.estimate, self.bytes_per_second.estimate);
        let mut sizes = vec![1, LARGEST_BYTES];
        if matches!(self.in_flight, InFlight::Shared) && depth > 1 {
            let kink = latency.mean * rate.mean / f64::from(depth - 1);
            sizes.push((kink as u64).clamp(2, LARGEST_BYTES - 1));
        }
        let point = |bytes: u64| {
            let decides = if bytes as f64 / rate.mean > latency.mean {
                &self.bytes_per_second
            } else {
                &self.latency_s
            };
            let estimate = Estimate {
                mean: self.seconds(bytes, depth, latency.mean, rate.mean),
                low: self.seconds(bytes, depth, latency.low, rate.high),
                high: self.seconds(bytes, depth, latency.high, rate.low),
            };
            let source = decides.source.clone();
            Point {
                bytes,
                seconds: Figure { estimate, source },
            }
        };
        Curve::new(pattern, depth, sizes.into_iter().map(point).collect())
    }

    fn seconds(&self, bytes: u64, depth: u32, latency: f64, rate: f64) -> f64 {
        let moving = bytes as f64 / rate;
        let depth = f64::from(depth);
        match self.in_flight {
            InFlight::Queued => latency * depth.powf(-0.3) + moving,
            InFlight::Shared => ((latency + moving) / depth).max(moving),
            InFlight::Separate => (latency + moving) / depth,
        }
    }

    fn curves(&self, pattern: Option<Pattern>) -> Vec<Curve> {
        let at = |&depth: &u32| self.curve(pattern, depth);
        DEPTHS.iter().map(at).collect()
    }
}

/// Makes the service of a device whose sequential stream and random accesses differ. A stream has
/// no latency of its own: the device reads ahead and gathers writes.
fn accessed(
    in_flight: InFlight,
    random_latency_s: Figure,
    bytes_per_second: &Figure,
    watts_above_idle: Figure,
) -> Service {
    let none = Figure::assumed(0.0);
    let stream = Times::new(in_flight, none, bytes_per_second.clone());
    let random = Times::new(in_flight, random_latency_s, bytes_per_second.clone());
    let mut curves = stream.curves(Some(Pattern::Sequential));
    curves.extend(random.curves(Some(Pattern::Random)));
    Service::new(curves, watts_above_idle)
}

/// Makes a medium with nothing charged and nothing held, for the presets to fill in.
fn bare(name: &str, kind: MediumKind, read: Service, write: Service) -> Medium {
    Medium {
        name: name.to_string(),
        description: String::new(),
        kind,
        source: Source::Default,
        read,
        write,
        allocation_unit_bytes: 1,
        idle_watts: Figure::assumed(0.0),
        holding_watts_per_gib: None,
        machine_idle_watts: None,
        price_eur_per_gib_month: None,
        billable_object_bytes_min: 0,
        billable_days_min: 0.0,
    }
}

/// Makes a link that costs the same both ways.
fn travelling(name: &str, curves: Vec<Curve>, watts_above_idle: Figure) -> Medium {
    let service = Service::new(curves, watts_above_idle);
    bare(name, MediumKind::Link, service.clone(), service)
}

fn watts_per_gib(watts_per_tb: f64) -> Option<Figure> {
    Some(Figure::published(watts_per_tb / 1e12 * GIB, CLOUD_CARBON))
}

fn dollars(price: f64, source: Source) -> Option<Figure> {
    Some(Figure::new(price * EUR_PER_USD, source))
}

fn hdd() -> Medium {
    // A seek of 8 ms and half a turn at 7200 a minute.
    let latency = Figure::assumed(0.008 + 60.0 / 7200.0 / 2.0);
    let rate = Figure::assumed(180e6);
    let service = accessed(InFlight::Queued, latency, &rate, Figure::assumed(2.0));
    // 100,000 EUR for a PB, 3 years, 15 % of it a year for maintenance.
    let eur_per_gb_year = 100_000.0 / 1e6 * (1.0 / 3.0 + 0.15);
    let eur_per_gib_month = eur_per_gb_year / 12.0 * GIB / 1e9;
    Medium {
        description: "a hard disk of 7200 turns a minute".to_string(),
        allocation_unit_bytes: 4096,
        idle_watts: Figure::assumed(4.5),
        holding_watts_per_gib: watts_per_gib(HDD_WATTS_PER_TB),
        price_eur_per_gib_month: Some(Figure::published(eur_per_gib_month, HIRSCH_STORAGE)),
        ..bare("hdd", MediumKind::File, service.clone(), service)
    }
}

fn sata_ssd() -> Medium {
    let service = |latency_us: f64, mb_s: f64| {
        let latency = Figure::assumed(latency_us / 1e6);
        let rate = Figure::assumed(mb_s * 1e6);
        accessed(InFlight::Shared, latency, &rate, Figure::assumed(2.0))
    };
    let (read, write) = (service(100.0, 540.0), service(50.0, 500.0));
    Medium {
        description: "a solid-state drive behind SATA at 6 Gbit/s".to_string(),
        allocation_unit_bytes: 4096,
        idle_watts: Figure::assumed(1.0),
        holding_watts_per_gib: watts_per_gib(SSD_WATTS_PER_TB),
        ..bare("sata-ssd", MediumKind::File, read, write)
    }
}

fn nvme() -> Medium {
    // 77.9 us for 4 KiB; the bytes themselves take 1.2 us of it. Writes end in the drive's memory. 23 W at most, 8 W
    // idle.
    let read_latency = Figure::published(77.9e-6 - 4096.0 / 3.3e9, P3700);
    let read_rate = Figure::published(3.3e9, PM1725A);
    let write_rate = Figure::published(3.0e9, PM1725A);
    let watts = || Figure::published(23.0 - 8.0, PM1725A);
    let write_latency = Figure::assumed(20e-6);
    Medium {
        description: "a solid-state drive of a server, NVMe on four lanes of PCIe 3".to_string(),
        source: Source::Published(PM1725A.to_string()),
        allocation_unit_bytes: 4096,
        idle_watts: Figure::published(8.0, PM1725A),
        holding_watts_per_gib: watts_per_gib(SSD_WATTS_PER_TB),
        ..bare(
            "nvme",
            MediumKind::File,
            accessed(InFlight::Shared, read_latency, &read_rate, watts()),
            accessed(InFlight::Shared, write_latency, &write_rate, watts()),
        )
    }
}

fn optane() -> Medium {
    // 8.9 us for 4 KiB at depth 1; 10 W reading, 15 W writing, 6 W idle.
    let read_latency = Figure::published(8.9e-6 - 4096.0 / 2.4e9, P4800X);
    let write_latency = Figure::published(10e-6 - 4096.0 / 2.0e9, P4800X);
    let read_rate = Figure::published(2.4e9, P4800X);
    let write_rate = Figure::published(2.0e9, P4800X);
    let watts = |active: f64| Figure::published(active - 6.0, P4800X);
    Medium {
        description: "an Optane drive, 3D XPoint behind NVMe".to_string(),
        source: Source::Published(P4800X.to_string()),
        allocation_unit_bytes: 4096,
        idle_watts: Figure::published(6.0, P4800X),
        holding_watts_per_gib: watts_per_gib(SSD_WATTS_PER_TB),
        ..bare(
            "optane",
            MediumKind::File,
            accessed(InFlight::Shared, read_latency, &read_rate, watts(10.0)),
            accessed(InFlight::Shared, write_latency, &write_rate, watts(15.0)),
        )
    }
}

fn ram() -> Medium {
    // A copy by one thread. More threads move more, up to the limit of the sockets.
    let latency = Figure::assumed(100e-9);
    let rate = Figure::published(16_332e6, LZBENCH);
    let service = accessed(InFlight::Shared, latency, &rate, Figure::assumed(3.0));
    Medium {
        description: "main memory, copied by one thread".to_string(),
        source: Source::Published(LZBENCH.to_string()),
        holding_watts_per_gib: watts_per_gib(MEMORY_WATTS_PER_TB),
        ..bare("ram", MediumKind::Memory, service.clone(), service)
    }
}

/// A network of Hirsch's: his rate, and the figures that he leaves out.
struct Network {
    name: &'static str,
    description: &'static str,
    mb_s: f64,
    latency_us: f64,
    watts: f64,
}

const NETWORKS: [Network; 3] = [
    Network {
        name: "1gbe",
        description: "gigabit Ethernet",
        mb_s: 117.0,
        latency_us: 100.0,
        watts: 2.0,
    },
    Network {
        name: "10gbe",
        description: "10 gigabit Ethernet",
        mb_s: 1200.0,
        latency_us: 50.0,
        watts: 5.0,
    },
    Network {
        name: "infiniband-fdr",
        description: "InfiniBand FDR with four links",
        mb_s: 6000.0,
        latency_us: 2.0,
        watts: 10.0,
    },
];

fn network(of: &Network) -> Medium {
    let latency = Figure::assumed(of.latency_us / 1e6);
    let rate = Figure::published(of.mb_s * 1e6, HIRSCH);
    let curves = Times::new(InFlight::Shared, latency, rate).curves(None);
    Medium {
        description: of.description.to_string(),
        source: Source::Published(HIRSCH.to_string()),
        ..travelling(of.name, curves, Figure::assumed(of.watts))
    }
}

fn s3() -> Medium {
    // 100 to 200 ms to the first byte, one connection for each 85 to 90 MB/s that is wanted.
    let latency = between(0.100, 0.200, S3_GUIDE);
    let rate = between(85e6, 90e6, S3_GUIDE);
    let curves = Times::new(InFlight::Separate, latency, rate).curves(None);
    let service = |dollars_per_thousand: f64| Service {
        price_eur_per_request: dollars(dollars_per_thousand / 1000.0, Source::Default),
        ..Service::new(curves.clone(), Figure::assumed(5.0))
    };
    Medium {
        description: "Amazon S3 Standard, from the same region".to_string(),
        source: Source::Published(S3_GUIDE.to_string()),
        price_eur_per_gib_month: dollars(0.023, Source::Default),
        ..bare(
            "s3",
            MediumKind::ObjectStore,
            service(0.0004),
            service(0.005),
        )
    }
}

fn s3_infrequent_access() -> Medium {
    let standard = s3();
    let price = standard
        .price_eur_per_gib_month
        .as_ref()
        .map(|price| Figure {
            estimate: price.estimate.map(|euros| euros * 0.55),
            source: price.source.clone(),
        });
    Medium {
        name: "s3-ia".to_string(),
        description: "Amazon S3 Standard-IA, from the same region".to_string(),
        source: Source::Published(S3_CLASSES.to_string()),
        read: Service {
            price_eur_per_request: dollars(0.001 / 1000.0, Source::Default),
            price_eur_per_gib: dollars(0.01, Source::Default),
            ..standard.read.clone()
        },
        write: Service {
            price_eur_per_request: dollars(0.01 / 1000.0, Source::Default),
            ..standard.write.clone()
        },
        price_eur_per_gib_month: price,
        billable_object_bytes_min: 128 * 1024,
        billable_days_min: 30.0,
        ..standard
    }
}

fn tape() -> Medium {
    let rate = Figure::published(360e6, LTO_8);
    let service = || {
        let locating = Figure::assumed(50.0);
        accessed(InFlight::Queued, locating, &rate, Figure::assumed(20.0))
    };
    Medium {
        description: "an LTO-8 drive with its own compression off, tape loaded".to_string(),
        source: Source::Published(LTO_8.to_string()),
        idle_watts: Figure::assumed(7.0),
        holding_watts_per_gib: Some(Figure::assumed(0.0)),
        ..bare("tape", MediumKind::Tape, service(), service())
    }
}

/// Makes a figure from the two ends a source gives.
fn between(low: f64, high: f64, place: &str) -> Figure {
    let mean = (low + high) / 2.0;
    Figure {
        estimate: Estimate { mean, low, high },
        source: Source::Published(place.to_string()),
    }
}

/// A machine of Kothiyal's Table 4.1. He prints the disks' interface rate and turns, and the idle watts of the whole
/// machine. The sustained rate of a disk and the time of its arm are not in his text.
struct KothiyalMachine {
    name: &'static str,
    description: &'static str,
    idle_watts: f64,
    turns_per_minute: f64,
    /// Printed in Mbps, but Ultra320, ATA/133 and ATA/100 are so many MB/s.
    interface_mb_s: f64,
    sustained_mb_s: f64,
    seek_ms: f64,
}

const KOTHIYAL_MACHINES: [KothiyalMachine; 3] = [
    KothiyalMachine {
        name: "kothiyal-server",
        description: "Kothiyal's server, Seagate ST373207LW, SCSI",
        idle_watts: 218.0,
        turns_per_minute: 10_000.0,
        interface_mb_s: 320.0,
        sustained_mb_s: 60.0,
        seek_ms: 4.7,
    },
    KothiyalMachine {
        name: "kothiyal-desktop",
        description: "Kothiyal's desktop, Maxtor 6E040L0, ATA",
        idle_watts: 91.0,
        turns_per_minute: 7200.0,
        interface_mb_s: 133.0,
        sustained_mb_s: 45.0,
        seek_ms: 9.0,
    },
    KothiyalMachine {
        name: "kothiyal-laptop",
        description: "Kothiyal's laptop, Toshiba MK1032GAX, ATA",
        idle_watts: 17.0,
        turns_per_minute: 5400.0,
        interface_mb_s: 100.0,
        sustained_mb_s: 35.0,
        seek_ms: 12.0,
    },
];

fn kothiyal(machine: &KothiyalMachine) -> Medium {
    let half_turn_s = 60.0 / machine.turns_per_minute / 2.0;
    let mut latency = Figure::assumed(machine.seek_ms / 1e3 + half_turn_s);
    // Half a turn passes on average, however fast the arm is.
    latency.estimate.low = latency.estimate.low.max(half_turn_s);
    let mut rate = Figure::assumed(machine.sustained_mb_s * 1e6);
    rate.estimate.high = rate.estimate.high.min(machine.interface_mb_s * 1e6);
    let service = accessed(InFlight::Queued, latency, &rate, Figure::assumed(4.0));
    Medium {
        description: machine.description.to_string(),
        allocation_unit_bytes: 4096,
        idle_watts: Figure::assumed(6.0),
        holding_watts_per_gib: watts_per_gib(HDD_WATTS_PER_TB),
        machine_idle_watts: Some(Figure {
            // The meter is good for 1.5 % of its reading (his section 4.1).
            estimate: Estimate::plus_minus(machine.idle_watts, 0.015 * machine.idle_watts),
            source: Source::Published(KOTHIYAL.to_string()),
        }),
        ..bare(machine.name, MediumKind::File, service.clone(), service)
    }
}

/// A device of Harper's: operations per second, at depth 4 and past the page cache. One figure is for 4 KiB (his Table
/// 1), the others for 4 to 128 KiB of reads that are nine times in ten sequential (his Table 3).
struct HarperDevice {
    name: &'static str,
    description: &'static str,
    kind: MediumKind,
    sequential_read_iops: f64,
    random_read_iops: f64,
    sequential_write_iops: f64,
    random_write_iops: f64,
    mixed_read_iops: [f64; 6],
    idle_watts: f64,
    watts_above_idle: f64,
    holding_watts_per_tb: f64,
}

/// Block sizes of Harper's Table 3, in KiB.
const HARPER_BLOCKS_KIB: [u64; 6] = [4, 8, 16, 32, 64, 128];

const HARPER_DEVICES: [HarperDevice; 3] = [
    HarperDevice {
        name: "harper-hdd",
        description: "Harper's hard disk, Western Digital WD10EZEX",
        kind: MediumKind::File,
        sequential_read_iops: 44_745.0,
        random_read_iops: 188.0,
        sequential_write_iops: 42_154.0,
        random_write_iops: 364.0,
        mixed_read_iops: [551.0, 550.0, 537.0, 489.0, 460.0, 390.0],
        idle_watts: 4.5,
        watts_above_idle: 2.0,
        holding_watts_per_tb: HDD_WATTS_PER_TB,
    },
    HarperDevice {
        name: "harper-ssd",
        description: "Harper's solid-state drive, SanDisk SDSSDA-120G",
        kind: MediumKind::File,
        sequential_read_iops: 66_661.0,
        random_read_iops: 12_249.0,
        sequential_write_iops: 18_406.0,
        random_write_iops: 11_056.0,
        mixed_read_iops: [9380.0, 8642.0, 7800.0, 5899.0, 4437.0, 2651.0],
        idle_watts: 1.0,
        watts_above_idle: 2.0,
        holding_watts_per_tb: SSD_WATTS_PER_TB,
    },
    HarperDevice {
        name: "harper-ram",
        description: "Harper's RAM disk, tmpfs on DDR4-2400",
        kind: MediumKind::Memory,
        sequential_read_iops: 711_135.0,
        random_read_iops: 613_215.0,
        sequential_write_iops: 679_464.0,
        random_write_iops: 554_294.0,
        mixed_read_iops: [
            697_351.0, 513_610.0, 332_678.0, 197_465.0, 108_430.0, 57_073.0,
        ],
        idle_watts: 0.0,
        watts_above_idle: 3.0,
        holding_watts_per_tb: MEMORY_WATTS_PER_TB,
    },
];

fn harper(device: &HarperDevice) -> Medium {
    // Table 1 does not say its depth; its numbers are taken at the depth of his fio file.
    let depth = 4;
    let point = |kib: u64, iops: f64, table: &str| Point {
        bytes: kib * 1024,
        seconds: Figure::published(1.0 / iops, table),
    };
    let of_table_1 = |pattern: Pattern, iops: f64| {
        let only = point(4, iops, HARPER_TABLE_1);
        Curve::new(Some(pattern), depth, vec![only])
    };
    let mixed = HARPER_BLOCKS_KIB
        .iter()
        .zip(device.mixed_read_iops)
        .map(|(&kib, iops)| point(kib, iops, HARPER_TABLE_3))
        .collect();
    let read = vec![
        Curve::new(Some(Pattern::Mix9to1), depth, mixed),
        of_table_1(Pattern::Sequential, device.sequential_read_iops),
        of_table_1(Pattern::Random, device.random_read_iops),
    ];
    let write = vec![
        of_table_1(Pattern::Sequential, device.sequential_write_iops),
        of_table_1(Pattern::Random, device.random_write_iops),
    ];
    let watts = || Figure::assumed(device.watts_above_idle);
    Medium {
        description: device.description.to_string(),
        source: Source::Published("Harper 2018, Tables 1 and 3".to_string()),
        allocation_unit_bytes: 4096,
        idle_watts: Figure::assumed(device.idle_watts),
        holding_watts_per_gib: watts_per_gib(device.holding_watts_per_tb),
        ..bare(
            device.name,
            device.kind,
            Service::new(read, watts()),
            Service::new(write, watts()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::{Direction, Operation};

    fn read(bytes: u64, pattern: Pattern, depth: u32) -> Operation {
        Operation {
            bytes,
            pattern,
            direction: Direction::Read,
            depth,
        }
    }

    fn named(name: &str) -> Medium {
        preset(name).unwrap_or_else(|| panic!("no preset {name}"))
    }

    fn close(value: f64, expected: f64, tolerance: f64) {
        let off = (value / expected - 1.0).abs();
        assert!(off <= tolerance, "{value}, expected {expected}");
    }

    #[test]
    fn every_preset_is_sound_and_found_by_every_name() {
        for (name, aliases, _) in PRESETS {
            let medium = named(name);
            medium
                .check()
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!medium.description.is_empty(), "{name}");
            for alias in *aliases {
                assert_eq!(named(alias).name, *name);
            }
            assert_eq!(named(&name.to_uppercase()).name, *name);
            let text = serde_json::to_string(&medium).expect("a medium is JSON");
            let back: Medium = serde_json::from_str(&text).expect("and reads back");
            back.check()
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!((back.name, back.source), (medium.name, medium.source));
        }
    }

    /// The lines of Table 3 as printed: block size, operations per second and MB/s of the hard
    /// disk, the solid-state drive and the RAM disk.
    const TABLE_3: &str = "4 KB 551 9380 697351 2 36 2723
        8 KB 550 8642 513610 4 67 4012
        16 KB 537 7800 332678 8 121 5197
        32 KB 489 5899 197465 15 184 6170
        64 KB 460 4437 108430 28 277 6776
        128 KB 390 2651 57073 48 331 7133";

    #[test]
    fn harper_devices_are_his_table_3() {
        let mut cells = 0;
        for line in TABLE_3.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<f64>().expect("a number");
            let bytes = number(0) as u64 * 1024;
            for (at, name) in ["harper-hdd", "harper-ssd", "harper-ram"]
                .iter()
                .enumerate()
            {
                let operation = read(bytes, Pattern::Mix9to1, 4);
                let medium = named(name);
                close(
                    1.0 / medium.seconds_for(operation).mean,
                    number(2 + at),
                    1e-12,
                );
                // His bandwidth column is in MiB/s, cut to whole numbers.
                let mib_s = medium.bytes_per_second(operation).mean / 1_048_576.0;
                assert!(
                    (mib_s - number(5 + at)).abs() < 1.2,
                    "{name} {bytes}: {mib_s}"
                );
                cells += 1;
            }
        }
        assert_eq!(cells, 18);
    }

    #[test]
    fn harper_devices_are_his_table_1() {
        let check = |name: &str, direction, pattern, iops: f64| {
            let operation = Operation {
                direction,
                ..read(4096, pattern, 4)
            };
            close(1.0 / named(name).seconds_for(operation).mean, iops, 1e-12);
        };
        use Direction::{Read, Write};
        use Pattern::{Random, Sequential};
        check("harper-hdd", Read, Sequential, 44_745.0);
        check("harper-ssd", Read, Sequential, 66_661.0);
        check("harper-ram", Read, Sequential, 711_135.0);
        check("harper-hdd", Read, Random, 188.0);
        check("harper-ssd", Read, Random, 12_249.0);
        check("harper-ram", Read, Random, 613_215.0);
        check("harper-hdd", Write, Sequential, 42_154.0);
        check("harper-ssd", Write, Sequential, 18_406.0);
        check("harper-ram", Write, Sequential, 679_464.0);
        check("harper-hdd", Write, Random, 364.0);
        check("harper-ssd", Write, Random, 11_056.0);
        check("harper-ram", Write, Random, 554_294.0);
    }

    /// "approximately 8,000 to 9,000, which translates to 110 - 125 microseconds per IO" (his chapter 4). This is the
    /// cost of his page fault; a thread alone would wait four times as long.
    #[test]
    fn harper_page_fault_is_in_his_range() {
        let fault = read(8192, Pattern::Mix9to1, 4);
        let ssd = named("harper-ssd");
        let microseconds = ssd.seconds_for(fault).mean * 1e6;
        assert!((110.0..=125.0).contains(&microseconds), "{microseconds}");
        close(
            ssd.latency_for(fault).mean,
            4.0 * ssd.seconds_for(fault).mean,
            1e-12,
        );
    }

    #[test]
    fn kothiyal_machines_are_his_table_4_1() {
        let check = |name: &str, idle_watts: f64, half_turn_ms: f64, interface_mb_s: f64| {
            let medium = named(name);
            let watts = medium.machine_idle_watts.clone().expect("he measured it");
            assert_eq!(watts.estimate.mean, idle_watts);
            assert_eq!(watts.source, Source::Published(KOTHIYAL.to_string()));
            let random = medium.seconds_for(read(512, Pattern::Random, 1));
            assert!(random.low * 1e3 >= half_turn_ms, "{name}: {random:?}");
            let stream = medium.bytes_per_second(read(1 << 20, Pattern::Sequential, 1));
            assert!(
                stream.high <= interface_mb_s * 1e6 * (1.0 + 1e-12),
                "{name}: {stream:?}"
            );
        };
        check("kothiyal-server", 218.0, 3.0, 320.0);
        check("kothiyal-desktop", 91.0, 4.16, 133.0);
        check("kothiyal-laptop", 17.0, 5.55, 100.0);
    }

    #[test]
    fn hirsch_networks_carry_his_rates() {
        let check = |name: &str, mb_s: f64| {
            let megabyte_blocks = read(1 << 20, Pattern::Sequential, 4);
            let medium = named(name);
            close(
                medium.bytes_per_second(megabyte_blocks).mean,
                mb_s * 1e6,
                1e-9,
            );
            let figure = medium.figure_for(megabyte_blocks);
            assert_eq!(figure.source, Source::Published(HIRSCH.to_string()));
        };
        check("1gbe", 117.0);
        check("10gbe", 1200.0);
        check("infiniband-fdr", 6000.0);
    }

    /// 0.048 EUR for a GB and a year without energy (Hirsch 2017, section 3.4.2).
    #[test]
    fn hirsch_storage_price_is_the_hard_disk_price() {
        let euros = named("hdd").euros_for_holding(1_000_000_000, 365.0).mean;
        close(euros, 0.0483, 0.002);
    }

    #[test]
    fn drives_answer_as_reviewed() {
        let check = |name: &str, depth: u32, microseconds: f64, tolerance: f64| {
            let seconds = named(name)
                .seconds_for(read(4096, Pattern::Random, depth))
                .mean;
            close(seconds * 1e6, microseconds, tolerance);
        };
        check("nvme", 1, 77.9, 1e-6);
        // 167,200 a second at depth 16.
        check("nvme", 16, 1e6 / 167_200.0, 0.25);
        check("optane", 1, 8.9, 1e-6);
        // 584,800 a second at depth 16: the rate decides, not the latency.
        check("optane", 16, 1e6 / 584_800.0, 0.01);
    }

    #[test]
    fn small_objects_are_billed_as_large_ones() {
        let (standard, rare) = (named("s3"), named("s3-ia"));
        let month = 365.0 / 12.0;
        let large = |medium: &Medium| medium.euros_for_holding(1 << 30, month).mean;
        close(large(&rare) / large(&standard), 0.55, 1e-9);
        let small = |medium: &Medium| medium.euros_for_holding(16 * 1024, month).mean;
        close(small(&rare) / small(&standard), 0.55 * 8.0, 1e-9);
        close(
            rare.euros_for_holding(1 << 20, 1.0).mean,
            rare.euros_for_holding(1 << 20, 30.0).mean,
            1e-12,
        );
        let put = Operation {
            direction: Direction::Write,
            ..read(1, Pattern::Sequential, 1)
        };
        close(
            standard.euros_for(put).mean,
            0.005 / 1000.0 * EUR_PER_USD,
            1e-9,
        );
    }

    #[test]
    fn the_most_similar_device_is_found() {
        let check = |random_us: f64, mb_s: f64, is_rotational, expected: &str| {
            let found = similar(random_us / 1e6, mb_s * 1e6, is_rotational);
            assert_eq!(found.name, expected);
            assert_eq!(found.read.watts_above_idle.source, Source::Default);
        };
        check(8000.0, 150.0, Some(true), "hdd");
        check(8000.0, 150.0, None, "hdd");
        check(8000.0, 150.0, Some(false), "sata-ssd");
        check(60.0, 900.0, Some(true), "nvme");
        check(60.0, 500.0, Some(true), "sata-ssd");
    }

    #[test]
    fn rates_are_read() {
        let check = |text: &str, expected: f64| {
            let rate = parse_rate(text).unwrap_or_else(|error| panic!("{error}"));
            close(rate, expected, 1e-12);
            let medium: Medium = text.parse().expect("a rate is a link");
            assert_eq!(
                (medium.kind, &medium.source),
                (MediumKind::Link, &Source::Declared)
            );
            medium.check().expect("a sound link");
            let second = medium.seconds_for(read(expected as u64, Pattern::Random, 1));
            close(second.mean, expected.floor() / expected, 1e-9);
        };
        check("117MB/s", 117e6);
        check("10Gbit/s", 1.25e9);
        check(" 10 Gbps ", 1.25e9);
        check("1.5GiB/s", 1.5 * GIB);
        check("64KiB/s", 65_536.0);
        check("56kbit/s", 7000.0);
        check("1B/s", 1.0);
    }

    #[test]
    fn what_is_no_medium_is_refused_with_what_is_accepted() {
        let check = |text: &str, expected: &str| {
            let error = text.parse::<Medium>().expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("floppy", "hdd, sata-ssd, nvme");
        check("floppy", "117MB/s");
        check("", "kothiyal-server");
        check("-3MB/s", "hdd");
        check("10Gb/s", "Gbit/s");
        check("10", "expected a unit");
        check("0MB/s", "expected a rate");
        check("1.2.3MB/s", "'1.2.3' is not a number");
        check(".MB/s", "'.' is not a number");
        check("9999999999999GB/s", "expected a rate");
        check(&"9".repeat(400), "expected a unit");
        check(&format!("{}B/s", "9".repeat(400)), "expected a rate");
    }
}
