//! Suggested settings: the verdicts in the words of the user's tools.
//!
//! Each tool offers some methods and not others, in blocks of its own. So its suggestion is a verdict of its own, over
//! the measured methods that it offers, on its own task. A tool offers a method only if it runs the same codec: zlib's
//! deflate is not that of libdeflate. An unmeasured codec (LZO, pglz, zle) is never suggested. The text is for people
//! to read and try: nothing here is run.

use crate::advise::report::SuggestionReport;
use crate::advise::sample::{CACHE_BLOCK_BYTES, CellEstimate, EXTENT_BLOCK_BYTES, Sample};
use crate::advise::verdict::{MethodCosts, Metric, Place, WORTH_WHILE};
use crate::advise::{AdviseOptions, Setting, binary_size, method_costs};
use crate::codec::{Codec, Filter, Method};
use crate::units::Estimate;

/// A setting of a tool.
struct Tool {
    name: &'static str,
    /// The part of the tool's data that it is about.
    subject: &'static str,
    /// The version from which the tool understands the text.
    since: &'static str,
    task: Task,
    /// The tool's settings for a method (store: to leave it off); `None` if it lacks the method.
    settings: fn(Method, &AdviseOptions) -> Option<Vec<String>>,
    note: &'static str,
}

/// The task of a tool on the data, as a place of the verdicts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Whole files, written and read as streams.
    Files,
    /// Files cut into extents, each compressed alone into whole sectors.
    Extents,
    /// Database pages, each in whole units of the file system.
    Pages,
    /// Blocks merged from file to file: each write is read once, by the next merge. The merge waits, so time counts.
    Merges,
    /// Blocks packed without gaps, each looked up alone.
    Lookups,
    /// Values of some KiB in database pages.
    Values,
    /// A log that a client waits for, and that is read only after an accident.
    Log,
}

const TOOLS: [Tool; 8] = [
    Tool {
        name: "zstd",
        subject: "files",
        since: "zstd 1.3.4",
        task: Task::Files,
        settings: zstd_settings,
        note: "compresses a file as one stream, so at least as densely as the blocks measured here",
    },
    Tool {
        name: "btrfs",
        subject: "files",
        since: "Linux 5.1",
        task: Task::Extents,
        settings: btrfs_settings,
        note: "an extent takes whole sectors, and behind one that saves none the rest of its 512 KiB stays raw, and files of at most 2 KiB lie in the metadata, which is counted; holds for what is written from then \
               on; plain compress and the property store less densely, for they give up files that begin badly",
    },
    Tool {
        name: "ZFS",
        subject: "files",
        since: "OpenZFS 2.0",
        task: Task::Files,
        settings: |method, options| zfs_settings(method, options.sample.block_bytes),
        note: "holds for what is written from then on",
    },
    Tool {
        name: "ZFS",
        subject: "database pages",
        since: "OpenZFS 2.0",
        task: Task::Pages,
        settings: |method, options| zfs_settings(method, options.page_bytes),
        note: "a record takes whole sectors, which is counted",
    },
    Tool {
        name: "RocksDB",
        subject: "upper levels",
        since: "RocksDB 7",
        task: Task::Merges,
        settings: |method, _| rocksdb_settings(method, "compression"),
        note: "judged by the time of a merge",
    },
    Tool {
        name: "RocksDB",
        subject: "bottommost level",
        since: "RocksDB 7",
        task: Task::Lookups,
        settings: rocksdb_bottom_settings,
        note: "most of the bytes",
    },
    Tool {
        name: "PostgreSQL",
        subject: "TOAST",
        since: "PostgreSQL 14, built with lz4",
        task: Task::Values,
        settings: |method, _| toast_settings(method),
        note: "values above some 2 kB that are written from then on; its own pglz was not measured",
    },
    Tool {
        name: "PostgreSQL",
        subject: "WAL",
        since: "PostgreSQL 15, built with lz4 and zstd",
        task: Task::Log,
        settings: |method, _| wal_settings(method),
        note: "images of whole pages after a checkpoint; judged by the time of a write of 8 KiB that goes to the \
               medium at once, taking the pages to be like this data; a flush of the device's own cache \
               is not in it",
    },
];

/// Returns the settings for each tool, in the preferred metric. Tools without a measured method are skipped.
pub fn suggestions(
    sample: &Sample,
    options: &AdviseOptions,
    setting: &Setting,
) -> Vec<SuggestionReport> {
    let asked = Asked {
        sample,
        options,
        setting,
    };
    TOOLS
        .iter()
        .filter_map(|tool| asked.suggest(tool))
        .collect()
}

/// The facts and the wish.
struct Asked<'a> {
    sample: &'a Sample,
    options: &'a AdviseOptions,
    setting: &'a Setting,
}

impl Asked<'_> {
    fn suggest(&self, tool: &Tool) -> Option<SuggestionReport> {
        let mut costs = self.costs(tool.task);
        costs.retain(|costs| {
            costs.method != Method::STORE && (tool.settings)(costs.method, self.options).is_some()
        });
        let choice = match self.metric(tool.task) {
            Some(metric) => cheapest(&self.place(tool.task), metric, &costs)?,
            None => densest(&costs)?,
        };
        let told = match choice.answer {
            "compress" => (tool.settings)(choice.candidate, self.options),
            "leave_off" => (tool.settings)(Method::STORE, self.options),
            _ => None,
        };
        let measured = costs.iter().find(|of| of.method == choice.candidate)?;
        let block = binary_size(self.block_bytes(tool.task) as u64);
        let mut note = format!("measured in blocks of {block}; {}", tool.note);
        if tool.task == Task::Lookups && choice.answer == "compress" {
            note.extend(self.dictionary(choice.candidate, measured));
        }
        Some(SuggestionReport {
            tool: tool.name.to_string(),
            subject: tool.subject.to_string(),
            since: tool.since.to_string(),
            metric: self
                .metric(tool.task)
                .map_or("space", Metric::name)
                .to_string(),
            answer: choice.answer.to_string(),
            method: choice.candidate.to_string(),
            ratio: measured.stored.map(|stored| 1.0 / stored),
            cost_ratio: choice.cost_ratio,
            settings: told.unwrap_or_default(),
            note,
        })
    }

    /// The metric of the tool's verdict; `None` for space.
    fn metric(&self, task: Task) -> Option<Metric> {
        match task {
            Task::Merges | Task::Log => Some(Metric::Time),
            _ => self.options.preference.metric(),
        }
    }

    fn place(&self, task: Task) -> Place<'static> {
        let read = |reads: f64| AdviseOptions {
            reads_per_write: Estimate::exact(reads),
            ..self.options.clone()
        };
        let (setting, options) = (self.setting, self.options);
        match task {
            Task::Files | Task::Extents => setting.file(options),
            Task::Pages | Task::Lookups => setting.pages(options, options.page_bytes),
            Task::Values => setting.pages(options, CACHE_BLOCK_BYTES),
            Task::Merges => setting.file(&read(1.0)),
            // A committing thread compresses alone, and waits for each write.
            Task::Log => setting.pages(&read(0.0), CACHE_BLOCK_BYTES),
        }
    }

    fn costs(&self, task: Task) -> Vec<MethodCosts> {
        let block_bytes = self.block_bytes(task);
        let stored: fn(&CellEstimate) -> Estimate = match task {
            Task::Files => |estimate| estimate.file_allocated_share,
            Task::Pages | Task::Extents => |estimate| estimate.allocated_share,
            _ => |estimate| estimate.stored_per_raw,
        };
        method_costs(self.sample, None, self.setting, block_bytes, stored).measured
    }

    /// The length of the blocks that a tool compresses alone.
    fn block_bytes(&self, task: Task) -> usize {
        let file = self.options.sample.block_bytes;
        match task {
            Task::Files => file,
            Task::Extents => EXTENT_BLOCK_BYTES.min(file),
            Task::Pages | Task::Merges | Task::Lookups => self.options.page_bytes,
            Task::Values | Task::Log => CACHE_BLOCK_BYTES,
        }
    }

    /// A dictionary may give small blocks a part of their lost ratio back.
    fn dictionary(&self, method: Method, in_pages: &MethodCosts) -> Option<String> {
        let block_bytes = self.block_bytes(Task::Files);
        let stored = |estimate: &CellEstimate| estimate.stored_per_raw;
        let files = method_costs(self.sample, None, self.setting, block_bytes, stored).measured;
        let in_files = files.iter().find(|of| of.method == method)?;
        let (small, large) = (1.0 / in_pages.stored.mean, 1.0 / in_files.stored.mean);
        let worth_a_try = matches!(method.codec, Codec::Zstd { .. }) && large > 1.15 * small;
        worth_a_try.then(|| {
            format!(
                "; small blocks cost ratio ({small:.2} here, {large:.2} in large ones): \
                 max_dict_bytes=16384;zstd_max_train_bytes=1638400 beside the level may get part \
                 of it back, which was not measured"
            )
        })
    }
}

/// The best method for a tool, and its advice.
struct Choice {
    candidate: Method,
    /// `compress`, `leave_off` or `undecided`.
    answer: &'static str,
    cost_ratio: Estimate,
}

fn cheapest(place: &Place<'_>, metric: Metric, costs: &[MethodCosts]) -> Option<Choice> {
    let verdict = place.verdict(metric, "all", costs)?;
    let candidate = verdict.candidate.parse().ok()?;
    let answer = match verdict.answer.as_str() {
        "undecided" => "undecided",
        _ if verdict.method == verdict.candidate => "compress",
        _ => "leave_off",
    };
    Some(Choice {
        candidate,
        answer,
        cost_ratio: verdict.cost_ratio,
    })
}

/// For users who want the least space at any cost. A block that does not shrink is stored raw, so a trial never takes
/// more space.
fn densest(costs: &[MethodCosts]) -> Option<Choice> {
    let best = costs
        .iter()
        .min_by(|a, b| a.stored.mean.total_cmp(&b.stored.mean))?;
    Some(Choice {
        candidate: best.method,
        answer: match best.stored.mean < WORTH_WHILE {
            true => "compress",
            false => "leave_off",
        },
        cost_ratio: best.stored,
    })
}

/// The codec of a method without a filter: no tool has our filters.
fn plain(method: Method) -> Option<Codec> {
    (method.filter == Filter::None).then_some(method.codec)
}

/// zstd(1): levels 1 to 19, 20 to 22 behind `--ultra`, negative ones as `--fast=N`.
fn zstd_settings(method: Method, _: &AdviseOptions) -> Option<Vec<String>> {
    let line = match plain(method)? {
        Codec::Store => return Some(Vec::new()),
        Codec::Zstd { level } if level >= 20 => format!("zstd --ultra -{level} -T0 FILE"),
        Codec::Zstd { level } if level < 0 => format!("zstd --fast={} -T0 FILE", -level),
        Codec::Zstd { level } => format!("zstd -{level} -T0 FILE"),
        _ => return None,
    };
    Some(vec![line])
}

/// btrfs(5), COMPRESSION: zstd levels 1 to 15. With `compress` and with the property, the kernel guesses from a few
/// bytes of each extent whether to try it. It gives a file up after its first extent that does not shrink.
/// `compress-force` tries every extent, as the measurement did.
fn btrfs_settings(method: Method, _: &AdviseOptions) -> Option<Vec<String>> {
    match plain(method)? {
        Codec::Store => Some(vec![
            "mount -o remount,compress=no MOUNTPOINT".to_string(),
            "btrfs property set PATH compression none".to_string(),
        ]),
        Codec::Zstd { level } if (1..=15).contains(&level) => Some(vec![format!(
            "mount -o remount,compress-force=zstd:{level} MOUNTPOINT"
        )]),
        _ => None,
    }
}

/// zfsprops(7): lz4, zstd-1 to zstd-19, zstd-fast-1 to zstd-fast-10; records of a power of two.
fn zfs_settings(method: Method, block_bytes: usize) -> Option<Vec<String>> {
    let compression = match plain(method)? {
        Codec::Store => return Some(vec!["zfs set compression=off POOL/DATASET".to_string()]),
        Codec::Lz4 { acceleration: 1 } => "lz4".to_string(),
        Codec::Zstd { level } if level < 0 => format!("zstd-fast-{}", -level),
        Codec::Zstd { level } if level <= 19 => format!("zstd-{level}"),
        _ => return None,
    };
    let record_kib = 1 << (block_bytes >> 10).max(1).ilog2();
    let record = match record_kib {
        1024 => "1M".to_string(),
        kib => format!("{kib}K"),
    };
    Some(vec![format!(
        "zfs set compression={compression} recordsize={record} POOL/DATASET"
    )])
}

/// RocksDB's options as text; `which` is `compression` or `bottommost_compression`.
fn rocksdb_settings(method: Method, which: &str) -> Option<Vec<String>> {
    let (name, level) = match plain(method)? {
        Codec::Store => ("kNoCompression", None),
        Codec::Lz4 { acceleration: 1 } => ("kLZ4Compression", None),
        Codec::Lz4Hc { level } => ("kLZ4HCCompression", Some(i32::from(level))),
        Codec::Zstd { level } => ("kZSTD", Some(i32::from(level))),
        _ => return None,
    };
    let options = level.map(|level| format!("{which}_opts={{enabled=true;level={level}}}"));
    Some(
        [Some(format!("{which}={name}")), options]
            .into_iter()
            .flatten()
            .collect(),
    )
}

fn rocksdb_bottom_settings(method: Method, options: &AdviseOptions) -> Option<Vec<String>> {
    let mut settings = rocksdb_settings(method, "bottommost_compression")?;
    if method != Method::STORE {
        let page = options.page_bytes;
        settings.push(format!("block_based_table_factory={{block_size={page}}}"));
    }
    Some(settings)
}

/// PostgreSQL, sections 20.11.1 and ALTER TABLE: lz4 is `LZ4_compress_default`.
fn toast_settings(method: Method) -> Option<Vec<String>> {
    let lines = match plain(method)? {
        Codec::Store => ["ALTER TABLE t ALTER COLUMN c SET STORAGE EXTERNAL;"].as_slice(),
        Codec::Lz4 { acceleration: 1 } => &[
            "default_toast_compression = 'lz4'",
            "ALTER TABLE t ALTER COLUMN c SET COMPRESSION lz4;",
        ],
        _ => return None,
    };
    Some(lines.iter().map(|line| line.to_string()).collect())
}

/// PostgreSQL, section 20.5.1: zstd at its default level.
fn wal_settings(method: Method) -> Option<Vec<String>> {
    let value = match plain(method)? {
        Codec::Store => "off",
        Codec::Lz4 { acceleration: 1 } => "lz4",
        Codec::Zstd { level: 3 } => "zstd",
        _ => return None,
    };
    Some(vec![format!("wal_compression = {value}")])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::verdict::Work;

    #[track_caller]
    fn check(tool: &str, subject: &str, method: &str, expected: Option<&[&str]>) {
        let tool = TOOLS
            .iter()
            .find(|of| (of.name, of.subject) == (tool, subject))
            .expect("a tool");
        let told = (tool.settings)(method.parse().expect("a method"), &AdviseOptions::default());
        let told: Option<Vec<&str>> = told
            .as_ref()
            .map(|lines| lines.iter().map(String::as_str).collect());
        assert_eq!(told.as_deref(), expected, "{method}");
    }

    #[test]
    fn methods_are_told_in_the_words_of_the_tool() {
        let zstd = |method, line| check("zstd", "files", method, Some(&[line]));
        zstd("zstd:9", "zstd -9 -T0 FILE");
        zstd("zstd:-5", "zstd --fast=5 -T0 FILE");
        zstd("zstd:22", "zstd --ultra -22 -T0 FILE");
        check("zstd", "files", "store", Some(&[]));
        let btrfs = |method, lines: &[&str]| check("btrfs", "files", method, Some(lines));
        btrfs(
            "zstd:15",
            &["mount -o remount,compress-force=zstd:15 MOUNTPOINT"],
        );
        btrfs(
            "store",
            &[
                "mount -o remount,compress=no MOUNTPOINT",
                "btrfs property set PATH compression none",
            ],
        );
        let zfs = |subject, method, line| check("ZFS", subject, method, Some(&[line]));
        zfs(
            "files",
            "lz4:1",
            "zfs set compression=lz4 recordsize=1M POOL/DATASET",
        );
        zfs(
            "files",
            "zstd:-5",
            "zfs set compression=zstd-fast-5 recordsize=1M POOL/DATASET",
        );
        let pages = "zfs set compression=zstd-3 recordsize=16K POOL/DATASET";
        zfs("database pages", "zstd:3", pages);
        zfs("files", "store", "zfs set compression=off POOL/DATASET");
        let upper = |method, lines: &[&str]| check("RocksDB", "upper levels", method, Some(lines));
        upper("lz4:1", &["compression=kLZ4Compression"]);
        upper("store", &["compression=kNoCompression"]);
        check(
            "RocksDB",
            "bottommost level",
            "zstd:9",
            Some(&[
                "bottommost_compression=kZSTD",
                "bottommost_compression_opts={enabled=true;level=9}",
                "block_based_table_factory={block_size=16384}",
            ]),
        );
        check(
            "PostgreSQL",
            "WAL",
            "zstd:3",
            Some(&["wal_compression = zstd"]),
        );
        check(
            "PostgreSQL",
            "WAL",
            "store",
            Some(&["wal_compression = off"]),
        );
    }

    #[test]
    fn what_a_tool_does_not_have_is_not_told() {
        for (tool, subject, method) in [
            ("zstd", "files", "lz4:1"),
            ("zstd", "files", "shuffle4+zstd:3"),
            ("btrfs", "files", "zstd:16"),
            ("btrfs", "files", "zstd:-1"),
            ("btrfs", "files", "deflate:6"),
            ("ZFS", "files", "zstd:20"),
            ("ZFS", "files", "lz4:a8"),
            ("ZFS", "database pages", "lz4hc:9"),
            ("RocksDB", "upper levels", "xz:6"),
            ("RocksDB", "bottommost level", "lz4:a2"),
            ("PostgreSQL", "TOAST", "zstd:3"),
            ("PostgreSQL", "WAL", "zstd:9"),
        ] {
            check(tool, subject, method, None);
        }
    }

    #[test]
    fn the_densest_is_taken_for_space_alone() {
        let costs = |method: &str, stored: f64, half_width: f64| MethodCosts {
            method: method.parse().expect("a method"),
            stored: Estimate::plus_minus(stored, half_width),
            encode: Work::of_cores(Estimate::exact(1e-8)),
            decode: Work::of_cores(Estimate::exact(1e-9)),
        };
        let check = |stored: f64, half_width: f64, expected: &str| {
            let choice = densest(&[
                costs("lz4:1", 1.2, 0.0),
                costs("zstd:3", stored, half_width),
            ])
            .expect("a choice");
            assert_eq!(
                (choice.candidate.to_string().as_str(), choice.answer),
                ("zstd:3", expected)
            );
        };
        check(0.5, 0.1, "compress");
        check(0.95, 0.1, "compress");
        check(0.999, 0.1, "leave_off");
    }
}
