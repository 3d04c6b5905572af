//! `breakeven explain` of a file that is packed into one long frame: its level, and the reason.
//!
//! The frame is really made, by the writer of `pack` and into nothing. So the report is of the bytes that `pack`
//! stores. They are the same, or, where levels follow a link, as many as in another run. A simulated link is busy for
//! as long as a real one, so the report takes as long as packing.

use breakeven::quoted::quoted;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use breakeven::codec::Compressor;
use breakeven::decide::Class;
use breakeven::frame::LongOptions;
use breakeven::meter::{Reading, Scope};
use breakeven::stream::{LongWriter, Pacer, Summary};
use breakeven::units::{BytesPerSecond, Seconds};
use breakeven_cli::text::{binary_size, figures, percent, size};
use serde_json::{Value, json};

use super::READ_BYTES;
use super::choice::Setting;
use super::explain::Shown;
use super::form::{self, Aim, Cheapest, Level};
use super::place::{Head, Source};

/// The name and version of the JSON form. Fields are only added under the same one.
const SCHEMA: &str = "breakeven.explain-long/1";

/// A frame that was made, and its method.
struct Made {
    options: LongOptions,
    /// Levels with the content that went by each.
    levels: Vec<(i8, u64)>,
    summary: Summary,
    core: Seconds,
}

/// The facts before a frame is made.
struct Asked {
    aim: Aim,
    name: String,
    class: Class,
    /// Where money picks the level.
    cheapest: Option<Cheapest>,
    days: f64,
    workers: u32,
}

/// Packs a file into nothing, and tells how.
pub fn explain(
    setting: &Setting<'_>,
    source: &mut Source,
    aim: Aim,
    workers: u32,
) -> Result<Shown> {
    let aim = aim.for_source(source)?;
    let announced = source.bytes_ahead();
    let Head {
        piece: mut head,
        count,
        content_bytes: length,
    } = source.head()?;
    head.truncate(count);
    let limit = match aim {
        Aim::Usual => Some(form::usual_limit(workers, length)),
        _ => None,
    };
    let asked = Asked {
        aim,
        name: source.data_name(),
        class: form::class_of(&head, &mut Compressor::new())?,
        cheapest: match aim {
            Aim::Usual | Aim::Money => Some(form::cheapest(setting, &head, limit)?),
            Aim::Energy => Some(form::of_fewest_joules(setting, &head)?),
            _ => None,
        },
        days: setting.days,
        workers,
    };
    let made = make(setting, source, (aim, workers), head, length)?;
    source.check_read(announced, made.summary.raw_bytes)?;
    Ok(asked.shown(&made))
}

fn make(
    setting: &Setting<'_>,
    source: &mut Source,
    (aim, workers): (Aim, u32),
    mut piece: Vec<u8>,
    length: Option<u64>,
) -> Result<Made> {
    let begun = Reading::now(Scope::Process);
    let mut writer = match aim {
        Aim::Paced(pace) => {
            let pacer = Pacer::new(pace, workers as usize);
            LongWriter::paced(Slow::new(Some(pace.link())), pacer, length)?
        }
        _ => {
            let options = form::long_options(aim, setting, workers, (&piece, length))?;
            LongWriter::new(Slow::new(None), options)?
        }
    };
    let mut count = piece.len();
    piece.resize(READ_BYTES, 0);
    while count > 0 {
        writer.write_all(&piece[..count])?;
        count = source.read(&mut piece)?;
    }
    let (options, levels) = (*writer.options(), writer.levels());
    let (_, summary) = writer.finish()?;
    let used = begun.until(&Reading::now(Scope::Process), summary.raw_bytes);
    Ok(Made {
        options,
        levels,
        core: Seconds(used.cpu.total().0),
        summary,
    })
}

impl Asked {
    fn shown(&self, made: &Made) -> Shown {
        let (raw, stored) = (
            made.summary.raw_bytes as f64,
            made.summary.stored_bytes as f64,
        );
        let link = match self.aim {
            Aim::Paced(pace) => Some(pace.link()),
            _ => None,
        };
        let mut summary = format!(
            "{}: one long frame, {} to {}, ratio {}, in {} s{} with {} workers, {} core seconds\n",
            quoted(&self.name),
            size(raw),
            size(stored),
            figures(raw / stored.max(1.0)),
            figures(made.summary.drained_after.0),
            link.map_or(String::new(), |it| format!(
                " over {} MB/s (uncompressed {} s)",
                figures(it.mb_per_second()),
                figures(it.time_for(raw).0)
            )),
            self.workers,
            figures(made.core.0),
        );
        let _ = writeln!(summary, "{}", by_what(made));
        let _ = writeln!(summary, "{}", self.why());
        let header = match &self.cheapest {
            None => String::new(),
            Some(it) => format!(
                "{}\n{:>6} {:>14} {:>12} {:>16}\n",
                it.decision,
                "level",
                "ratio",
                "core MB/s",
                match self.aim {
                    Aim::Energy => "J/GB, all told",
                    _ => "EUR/TB, all told",
                }
            ),
        };
        Shown {
            summary,
            header,
            rows: self.levels().iter().map(|it| self.row(it)).collect(),
            tail: String::new(),
            json: self.json(made, link),
        }
    }

    /// The levels that money picks from.
    fn levels(&self) -> &[Level] {
        self.cheapest.as_ref().map_or(&[], |it| &it.levels)
    }

    /// Names the reason for the level.
    fn why(&self) -> String {
        let of_class = format!(
            "by this machine's profile of blocks\nof 1 MiB of class {}, as the content begins:",
            self.class
        );
        let days = figures(self.days);
        match self.aim {
            Aim::Usual => format!(
                "to a file: what costs least over {days} days in the time of zstd's default level on one thread,\n{of_class}"
            ),
            Aim::Money => format!("money: what costs least over {days} days, {of_class}"),
            Aim::Energy => format!("energy: what takes the fewest joules, {of_class}"),
            Aim::Smallest => "smallest: the densest level, in the longest window".to_string(),
            Aim::Paced(_) | Aim::Untold => {
                "the level follows the link's queue, so another run stores other bytes, about as many"
                    .to_string()
            }
            Aim::Level(_) => "the level that was named".to_string(),
            Aim::Zeros => {
                "to a file that is mostly zeros: zstd's default level, and long runs of zeros without compressing them".to_string()
            }
        }
    }

    fn row(&self, it: &Level) -> String {
        let bytes = match self.aim {
            Aim::Energy => 1e9,
            _ => 1e12,
        };
        let beyond = match it.is_allowed {
            true => "",
            false if it.level < form::LEVEL_USUAL => "  leaves time over",
            false => "  takes longer",
        };
        format!(
            "{:>6} {:>14} {:>12} {:>16}{beyond}\n",
            it.level,
            figures(1.0 / it.stored),
            figures(1e-6 / it.core),
            figures(bytes * it.cost)
        )
    }

    fn json(&self, made: &Made, link: Option<BytesPerSecond>) -> Value {
        let candidate = |it: &Level| {
            json!({
                "level": it.level,
                "ratio": 1.0 / it.stored,
                "core_mb_s": 1e-6 / it.core,
                (match self.aim {
                    Aim::Energy => "joules_per_tb",
                    _ => "euros_per_tb",
                }): 1e12 * it.cost,
                "is_allowed": it.is_allowed,
            })
        };
        let level = |&(level, bytes): &(i8, u64)| json!({"level": level, "raw_bytes": bytes});
        let raw = made.summary.raw_bytes as f64;
        json!({
            "schema": SCHEMA,
            "file": self.name,
            "class": self.class.to_string(),
            "link_mb_s": link.map(BytesPerSecond::mb_per_second),
            "workers": self.workers,
            "raw_bytes": made.summary.raw_bytes,
            "stored_bytes": made.summary.stored_bytes,
            "seconds": made.summary.drained_after.0,
            "seconds_raw": link.map(|it| it.time_for(raw).0),
            "core_seconds": made.core.0,
            "window_bytes": made.options.window_log.map(|log| 1_u64 << log),
            "matches_far": made.options.matches_far,
            "levels": made.levels.iter().map(level).collect::<Vec<_>>(),
            "candidates": self.levels().iter().map(candidate).collect::<Vec<_>>(),
            "reason": self.cheapest.as_ref().map(|it| it.decision.reason.to_string()),
        })
    }
}

/// Names the levels, most of the content first, and the window.
fn by_what(made: &Made) -> String {
    let mut levels = made.levels.clone();
    levels.sort_by_key(|it| std::cmp::Reverse(it.1));
    let all = made.summary.raw_bytes.max(1) as f64;
    let named = levels.iter().map(|&(level, bytes)| match levels.len() {
        1 => format!("level {level}"),
        _ => format!("level {level} {}", percent(bytes as f64 / all)),
    });
    let mut text = named.collect::<Vec<_>>().join(", ");
    if let Some(log) = made.options.window_log {
        let _ = write!(text, ", a window of {}", binary_size(1 << log));
    }
    if made.options.matches_far {
        text += ", and matches looked for in all of it";
    }
    text
}

/// The target of the writes: nothing, or a simulated link.
struct Slow {
    link: Option<BytesPerSecond>,
    /// When it has sent its bytes.
    free_at: Instant,
}

impl Slow {
    /// The bytes that it holds beside those on their way, as a time.
    const HELD: Duration = Duration::from_millis(2);

    fn new(link: Option<BytesPerSecond>) -> Slow {
        Slow {
            link,
            free_at: Instant::now(),
        }
    }
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(link) = self.link {
            let takes = Duration::from_secs_f64(link.time_for(bytes.len() as f64).0);
            self.free_at = self.free_at.max(Instant::now()) + takes;
            let left = self.free_at.saturating_duration_since(Instant::now());
            std::thread::sleep(left.saturating_sub(Slow::HELD));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        std::thread::sleep(self.free_at.saturating_duration_since(Instant::now()));
        Ok(())
    }
}
