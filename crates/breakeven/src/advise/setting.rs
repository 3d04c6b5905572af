//! The setting of an advice: machine, medium, link and prices, and the places made of them.

use crate::advise::report::{PricesReport, TermsReport};
use crate::advise::sample::CACHE_BLOCK_BYTES;
use crate::advise::verdict::{Cache, Link, Metrics, Place, PlaceTimes, Weights, Work};
use crate::advise::{AdviseOptions, Preference};
use crate::cache::{AccessPrices, Accesses};
use crate::codec::{Codec, Method};
use crate::decide::Profile;
use crate::medium::{Direction, Figure, Medium, Operation, Pattern};
use crate::meter::{Machine, PowerModel};
use crate::model::{self, Offload, Prices};
use crate::units::{Estimate, Joules, Seconds, Source};

const SECONDS_PER_DAY: f64 = 86_400.0;
const DAYS_PER_YEAR: f64 = 365.0;
/// The operation by which a sequential stream is judged.
const STREAM_BYTES: u64 = 1 << 20;
/// Operations in flight while a stream is written or read ahead.
const STREAM_DEPTH: u32 = 4;

/// The surroundings of the data.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The machine.
    pub machine: Machine,
    /// Its power at work and at rest.
    pub power: PowerModel,
    /// Better sources of watts that could not be used, and the remedy.
    pub power_notes: Vec<String>,
    /// Where the data lies.
    pub medium: Medium,
    /// The link that the data travels over.
    pub link: Medium,
    /// The profile of this machine's codecs; advice adds to it.
    pub profile: Profile,
    /// Prices of energy, cores and bytes.
    pub prices: Prices,
    /// When the prices were looked up, for the reader.
    pub prices_date: String,
    /// Hardware threads of the machine that `prices` describes.
    pub priced_machine_threads: f64,
    /// A device that compresses or decompresses in place of the cores.
    pub offload: Option<Offload>,
}

impl Setting {
    /// Returns the rate at which the medium reads a stream.
    pub fn read_bytes_per_second(&self) -> Estimate {
        self.medium.bytes_per_second(stream(Direction::Read))
    }

    /// Returns the rate at which the medium writes a stream.
    pub fn write_bytes_per_second(&self) -> Estimate {
        self.medium.bytes_per_second(stream(Direction::Write))
    }

    /// Returns the seconds until one missed buffer of a cache is read.
    pub fn miss(&self) -> Estimate {
        self.medium
            .latency_for(random(CACHE_BLOCK_BYTES as u64, Direction::Read))
    }

    /// Returns the seconds to find and read this many bytes.
    pub(super) fn random_read_seconds(&self, bytes: u64) -> f64 {
        let latency = self.medium.latency_for(random(bytes, Direction::Read));
        latency.mean
    }

    /// Returns the cost of seconds for a buffer cache before the medium, in seconds, joules or euros. `None` for space,
    /// because an access has no cost in it.
    pub fn access_prices(&self, preference: Preference) -> Option<AccessPrices> {
        // The cache compresses and restores on the thread that waits.
        let metrics = self.metrics(&AdviseOptions::default(), 1, CACHE_BLOCK_BYTES as u64);
        let weights = match preference {
            Preference::Time => metrics.time,
            Preference::Energy => metrics.energy,
            Preference::Money => metrics.money,
            Preference::Space => return None,
        };
        Some(AccessPrices {
            per_core_second: weights.core_second,
            per_waiting_second: weights.medium_second,
        })
    }

    /// The user's question, and the cost of seconds, joules and bytes here.
    pub(super) fn terms(&self, options: &AdviseOptions, data_bytes: u64) -> TermsReport {
        TermsReport {
            reads_per_write: options.reads_per_write,
            days_kept: options.days_kept,
            prefer: options.preference.name().to_string(),
            threads: options.threads,
            page_bytes: options.page_bytes as u64,
            memory_bytes: memory_bytes(options, data_bytes),
            data_bytes,
            access: access_text(options),
            link_name: self.link.name.clone(),
            link_mb_s: self.link_bytes_per_second() / 1e6,
            idle_watts: self.power.idle_watts().0,
            core_watts: self.power.marginal_watts_per_core().0,
            medium_watts: self.medium.read.watts_above_idle.estimate.mean,
            prices: self.prices_report(),
        }
    }

    fn prices_report(&self) -> PricesReport {
        let gigabyte = 1e9 / STREAM_BYTES as f64;
        let charge = |direction| self.medium.euros_for(stream(direction)).mean * gigabyte;
        let (storage_eur_per_tb_year, storage_watts_per_tb) =
            match &self.medium.price_eur_per_gib_month {
                Some(_) => (self.holding_eur(DAYS_PER_YEAR) * 1e12, 0.0),
                None => {
                    let storage = &self.prices.storage;
                    let year = Seconds(DAYS_PER_YEAR * SECONDS_PER_DAY);
                    let parts = self.prices.storage_cost(1e12, year);
                    let watts = storage.power_watts_per_pb / 1e3 * (1.0 + storage.cooling_share);
                    ((parts.investment + parts.maintenance).0, watts)
                }
            };
        PricesReport {
            date: self.prices_date.clone(),
            eur_per_kwh: self.prices.eur_per_kwh,
            cooling_share: self.prices.machine.cooling_share,
            core_eur_per_hour: self.eur_per_core_second() * 3600.0,
            storage_eur_per_tb_year,
            storage_watts_per_tb,
            billable_days_min: match &self.medium.price_eur_per_gib_month {
                Some(_) => self.medium.billable_days_min,
                None => 0.0,
            },
            write_eur_per_gb: charge(Direction::Write),
            read_eur_per_gb: charge(Direction::Read),
        }
    }

    fn link_bytes_per_second(&self) -> f64 {
        self.link.bytes_per_second(stream(Direction::Write)).mean
    }

    /// A file at rest, written and read as a stream.
    pub(super) fn file(&self, options: &AdviseOptions) -> Place<'static> {
        let seconds = |rate: Estimate| rate.map(|rate| 1.0 / rate);
        let times = PlaceTimes {
            write_fixed: Estimate::exact(0.0),
            write_byte: seconds(self.write_bytes_per_second()),
            read_fixed: Estimate::exact(0.0),
            read_byte: seconds(self.read_bytes_per_second()),
        };
        Place {
            name: "file",
            times,
            metrics: self.metrics(options, options.threads, STREAM_BYTES),
            reads_per_write: options.reads_per_write,
        }
    }

    /// Database pages, each written and read alone while somebody waits.
    pub(super) fn pages(&self, options: &AdviseOptions, page_bytes: usize) -> Place<'static> {
        let line = |direction: Direction| {
            let figure = |bytes: u64| self.medium.figure_for(random(bytes, direction));
            page_line(&figure(PAGE_BYTES_SMALL), &figure(PAGE_BYTES_LARGE))
        };
        let per_byte = |fixed: Estimate| fixed.map(|seconds| seconds / page_bytes as f64);
        let ((write_fixed, write_byte), (read_fixed, read_byte)) =
            (line(Direction::Write), line(Direction::Read));
        // One page is one thread's work.
        let metrics = self.metrics(options, 1, page_bytes as u64);
        Place {
            name: "pages",
            times: PlaceTimes {
                write_fixed: per_byte(write_fixed),
                write_byte,
                read_fixed: per_byte(read_fixed),
                read_byte,
            },
            metrics,
            reads_per_write: options.reads_per_write,
        }
    }

    /// The link for data of some bytes: all threads compress at one end and decompress at the other.
    pub(super) fn link(&self, options: &AdviseOptions, data_bytes: u64) -> Link {
        let rate = self.link_bytes_per_second();
        let watts = self.link.write.watts_above_idle.estimate.mean;
        let charge = self.link.euros_for(stream(Direction::Write)).mean / STREAM_BYTES as f64;
        let eur = self.eur_per_joule();
        let core_watts = self.power.marginal_watts_per_core().0;
        Link {
            bytes_per_second: rate,
            threads: f64::from(options.threads),
            processors: f64::from(self.machine.threads.max(options.threads)),
            block_share: (STREAM_BYTES as f64 / data_bytes as f64).min(1.0),
            metrics: Metrics {
                time: Weights {
                    medium_second: 1.0,
                    ..Weights::default()
                },
                energy: Weights {
                    medium_second: self.power.idle_watts().0 + watts,
                    core_second: core_watts,
                    joule: 1.0,
                    ..Weights::default()
                },
                money: Weights {
                    medium_second: watts * eur,
                    core_second: self.eur_per_core_second() + core_watts * eur,
                    joule: eur,
                    byte_written: charge,
                    ..Weights::default()
                },
            },
        }
    }

    /// A buffer cache before the medium.
    pub(super) fn cache<'o>(&self, options: &'o AdviseOptions, data_bytes: u64) -> Cache<'o> {
        let buffer_bytes = CACHE_BLOCK_BYTES as u64;
        Cache {
            memory_bytes: memory_bytes(options, data_bytes),
            data_bytes,
            buffer_bytes,
            accesses: match &options.trace {
                Some(trace) => Accesses::Trace(&trace.keys),
                None => Accesses::MadeUp(options.access, data_bytes.div_ceil(buffer_bytes)),
            },
            miss: self.miss(),
            // The cache compresses and restores on the thread that waits.
            metrics: self.metrics(options, 1, buffer_bytes),
        }
    }

    /// The cost of seconds and bytes in each metric, for blocks of `block_bytes`.
    ///
    /// Time: the medium's second and the compressing threads' share of one. Energy: while anything runs the machine
    /// idles (Kothiyal's passive part), and the device and the cores draw more above that. Money: the cores' rent and
    /// all energy above idle, charges, and holding.
    fn metrics(&self, options: &AdviseOptions, threads: u32, block_bytes: u64) -> Metrics {
        let threads = f64::from(threads);
        let idle = self.power.idle_watts().0;
        let core = self.power.marginal_watts_per_core().0;
        let device = self.medium.read.watts_above_idle.estimate.mean;
        let eur = self.eur_per_joule();
        let charge = |direction: Direction| {
            let operation = Operation {
                bytes: block_bytes,
                ..stream(direction)
            };
            self.medium.euros_for(operation).mean / block_bytes as f64
        };
        Metrics {
            time: Weights {
                medium_second: 1.0,
                core_second: 1.0 / threads,
                device_second: 1.0,
                ..Weights::default()
            },
            energy: Weights {
                medium_second: idle + device,
                core_second: core + idle / threads,
                device_second: idle,
                joule: 1.0,
                // Saved capacity saves energy only if devices are really switched off, so it is not counted.
                ..Weights::default()
            },
            money: Weights {
                medium_second: device * eur,
                core_second: self.eur_per_core_second() + core * eur,
                joule: eur,
                byte_written: charge(Direction::Write) + self.holding_eur(options.days_kept),
                byte_read: charge(Direction::Read),
                ..Weights::default()
            },
        }
    }

    /// The work of compressing a raw byte here, from the cores' time for it.
    pub(super) fn encode_work(&self, method: Method, block_bytes: u64, cores: Estimate) -> Work {
        let direction = self.offload.and_then(|offload| offload.compress);
        self.work(method, direction, block_bytes, cores)
    }

    /// The work of decompressing a raw byte here, from the cores' time for it.
    pub(super) fn decode_work(&self, method: Method, block_bytes: u64, cores: Estimate) -> Work {
        let direction = self.offload.and_then(|offload| offload.decompress);
        self.work(method, direction, block_bytes, cores)
    }

    fn work(
        &self,
        method: Method,
        direction: Option<model::Direction>,
        block_bytes: u64,
        cores: Estimate,
    ) -> Work {
        let (Some(offload), Some(direction)) = (self.offload, direction) else {
            return Work::of_cores(cores);
        };
        let takes = offload.formats.is_empty() || offload.formats.contains(&format(method));
        let software = Seconds(cores.mean * block_bytes as f64);
        match direction.time(block_bytes, software) {
            Some(time) if takes => {
                let host = direction.host_seconds_per_byte;
                let joules = direction.energy(block_bytes, software).unwrap_or_default();
                Work {
                    core_seconds: Estimate::exact(host),
                    device_seconds: time.0 / block_bytes as f64 - host,
                    device_joules: joules.0 / block_bytes as f64,
                }
            }
            _ => Work::of_cores(cores),
        }
    }

    /// Rent of one hardware thread for a second, without its energy.
    fn eur_per_core_second(&self) -> f64 {
        let threads = self.priced_machine_threads;
        self.prices.thread_rent(threads, Seconds(1.0)).0
    }

    fn eur_per_joule(&self) -> f64 {
        self.prices.cooled_energy_cost(Joules(1.0)).0
    }

    /// Euros for holding one byte for some days: the medium's own price where it has one.
    fn holding_eur(&self, days: f64) -> f64 {
        const GIB: u64 = 1 << 30;
        match &self.medium.price_eur_per_gib_month {
            Some(_) => self.medium.euros_for_holding(GIB, days).mean / GIB as f64,
            None => {
                self.prices
                    .storage_cost(1.0, Seconds(days * SECONDS_PER_DAY))
                    .total()
                    .0
            }
        }
    }
}

/// The memory of the buffer cache.
fn memory_bytes(options: &AdviseOptions, data_bytes: u64) -> u64 {
    options.memory_bytes.unwrap_or(data_bytes / 4).max(1)
}

/// Returns the report's name for the accesses of the buffer cache.
pub(super) fn access_text(options: &AdviseOptions) -> String {
    match &options.trace {
        Some(trace) => trace.name.clone(),
        None => options.access.to_string(),
    }
}

fn stream(direction: Direction) -> Operation {
    Operation {
        bytes: STREAM_BYTES,
        pattern: Pattern::Sequential,
        direction,
        depth: STREAM_DEPTH,
    }
}

/// The two operations that define a page's line.
const PAGE_BYTES_SMALL: u64 = 4 << 10;
const PAGE_BYTES_LARGE: u64 = 16 << 10;

/// Returns the fixed time of an operation on a page, and its time for each byte.
///
/// A figure that was not measured may be wrong by one factor for both lengths. Two measured figures have independent
/// errors. A difference of a few microseconds may then be chance, and all of the time may be fixed.
fn page_line(small: &Figure, large: &Figure) -> (Estimate, Estimate) {
    let is_measured = small.source == Source::Measured && large.source == Source::Measured;
    let (small, large) = (small.estimate, large.estimate);
    let step = (PAGE_BYTES_LARGE - PAGE_BYTES_SMALL) as f64;
    let grown = large.mean - small.mean;
    let slope = |grown: f64| (grown / step).clamp(0.0, large.mean / PAGE_BYTES_LARGE as f64);
    let fixed = |slope: f64| (small.mean - slope * PAGE_BYTES_SMALL as f64).max(0.0);
    let mean = slope(grown);
    // The relative band of a page read is that of the larger operation.
    let common = large.map(|seconds| mean * seconds / large.mean);
    if !is_measured {
        return (Estimate::exact(fixed(mean)), common);
    }
    let fewer = (large.mean - large.low).hypot(small.high - small.mean);
    let more = (large.high - large.mean).hypot(small.mean - small.low);
    let [low, high] = [grown - fewer, grown + more].map(slope);
    let fixed = Estimate {
        mean: fixed(mean),
        low: fixed(high),
        high: fixed(low),
    };
    let byte = Estimate {
        mean,
        low: common.low.min(low),
        high: common.high.max(high),
    };
    (fixed, byte)
}

fn random(bytes: u64, direction: Direction) -> Operation {
    Operation {
        bytes,
        pattern: Pattern::Random,
        direction,
        depth: 1,
    }
}

/// The name of a method's format, as devices name it.
fn format(method: Method) -> &'static str {
    match method.codec {
        Codec::Store => "store",
        Codec::Lz4 { .. } | Codec::Lz4Hc { .. } => "lz4",
        Codec::Zstd { .. } => "zstd",
        Codec::Deflate { .. } => "deflate",
        Codec::Xz { .. } => "xz",
        Codec::Bzip2 { .. } => "bzip2",
        Codec::Fsst => "fsst",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two measured figures that may be equal: all of the time may be fixed, or most of it may grow.
    #[test]
    fn a_pages_line_is_as_uncertain_as_its_two_points() {
        let measured = |low: f64, mean: f64, high: f64| Figure {
            estimate: Estimate { mean, low, high },
            source: Source::Measured,
        };
        let (fixed, byte) = page_line(&measured(27.0, 43.0, 69.0), &measured(27.0, 43.0, 69.0));
        assert_eq!((fixed.mean, fixed.high), (43.0, 43.0));
        assert_eq!((byte.mean, byte.low), (0.0, 0.0));
        assert!(byte.high * 16384.0 > 0.5 * 43.0, "{byte:?}");
        assert!(fixed.low + byte.high * 4096.0 >= 43.0 - 1e-9, "{fixed:?}");
        // Two figures far apart leave little to chance.
        let (fixed, byte) = page_line(&measured(40.0, 41.0, 42.0), &measured(76.0, 77.0, 78.0));
        assert!((byte.mean * 12288.0 - 36.0).abs() < 1e-9, "{byte:?}");
        assert!(byte.low > 0.9 * byte.mean && byte.high < 1.1 * byte.mean);
        assert!(fixed.low > 28.0 && fixed.high < 30.0, "{fixed:?}");
        // An unmeasured figure is wrong by one factor for both.
        let published = |mean| Figure::published(mean, "a table");
        let (fixed, byte) = page_line(&published(41.0), &published(77.0));
        assert_eq!((fixed.low, fixed.high), (29.0, 29.0));
        assert!(byte.low > 0.5 * byte.mean && byte.high < 2.0 * byte.mean);
    }
}
