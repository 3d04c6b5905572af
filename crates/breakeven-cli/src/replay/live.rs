//! The view on a terminal during a replay; elsewhere a line reports the end of each policy.
//!
//! [`lines`] is pure: what was seen so far, as lines no longer than the terminal is wide. They are
//! drawn a few times a second over those of before.

use std::io::{self, IsTerminal};

use breakeven::replay::Replayed;
use breakeven_cli::report::replay::PolicyReport;
use breakeven_cli::text::{figures, percent};
use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::standard;

/// Drawings a second.
const HERTZ: u8 = 8;
/// Rows of a terminal below which one line must do.
const ROWS_MIN: u16 = 8;
/// The width of a terminal that does not report its own.
const COLUMNS: u16 = 80;

/// The view of a replay.
pub struct View {
    /// None where nobody watches.
    bar: Option<ProgressBar>,
    term: Term,
    policy: String,
    accesses: u64,
    /// The policy's number, and the count of policies.
    number: usize,
    count: usize,
    /// How many have ended.
    ended: usize,
}

/// The view of a policy during its replay.
pub struct Sight<'a> {
    pub replayed: &'a Replayed,
    /// The split in force, in words.
    pub in_force: &'a str,
    /// Since the policy began.
    pub seconds: f64,
    /// Raw-only's time for an access so far.
    pub raw_us: Option<f64>,
}

impl View {
    /// Makes the view of so many policies.
    pub fn new(count: usize) -> View {
        let bar = io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr_with_hz(HERTZ);
            let style = ProgressStyle::with_template("{msg}").expect("a sound template");
            ProgressBar::with_draw_target(None, target).with_style(style)
        });
        View {
            bar,
            term: Term::stderr(),
            policy: String::new(),
            accesses: 0,
            number: 0,
            count,
            ended: 0,
        }
    }

    /// Turns to a policy, by its place among those that are replayed together.
    pub fn turn_to(&mut self, place: usize, policy: &str, accesses: u64) {
        self.policy = policy.to_string();
        self.accesses = accesses;
        self.number = self.ended + place + 1;
    }

    /// Shows how far it came.
    pub fn show(&mut self, sight: &Sight<'_>) {
        let Some(bar) = &self.bar else { return };
        let (rows, columns) = self.term.size_checked().unwrap_or((ROWS_MIN, COLUMNS));
        let mut lines = lines(self, sight, usize::from(columns));
        if rows < ROWS_MIN {
            lines.truncate(1);
        }
        bar.set_message(lines.join("\n"));
        bar.tick();
    }

    /// Reports the end of a policy, where no view is drawn.
    pub fn done(&mut self, of: &PolicyReport, seconds: f64) {
        self.ended += 1;
        if self.bar.is_none() {
            standard::tell(&ended(self, of, seconds));
        }
    }

    /// Leaves the terminal as it was.
    pub fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn ended(view: &View, of: &PolicyReport, seconds: f64) -> String {
    format!(
        "replayed {} of {}, {}: {} accesses in {} s, {} us each",
        view.ended,
        view.count,
        of.policy,
        of.accesses,
        figures(seconds),
        figures(of.us_per_access)
    )
}

/// Puts a sight into lines of less than `width` letters.
fn lines(view: &View, sight: &Sight<'_>, width: usize) -> Vec<String> {
    // A letter in the last column makes some terminals begin a new line.
    let width = width.saturating_sub(1);
    let lines = [
        heading(view, sight, width),
        time_line(sight),
        hit_line(sight),
        memory_line(sight, width),
    ];
    lines.into_iter().map(|line| fit(line, width)).collect()
}

fn heading(view: &View, sight: &Sight<'_>, width: usize) -> String {
    let done = sight.replayed.stats.accesses();
    let share = done as f64 / view.accesses.max(1) as f64;
    let rate = done as f64 / sight.seconds.max(1e-9);
    let left = (view.accesses.saturating_sub(done)) as f64 / rate.max(1e-9);
    let before = format!("{} ({} of {})  ", view.policy, view.number, view.count);
    let after = format!(
        "  {:>3.0} %  {} a second  {} left",
        100.0 * share,
        figures(rate),
        clock(left)
    );
    let taken = before.chars().count() + after.chars().count();
    // Where there is no room for the bar, figures come first.
    match width.saturating_sub(taken) {
        room @ 8.. => before + &bar(room.min(40), &[(share, FULL)]) + &after,
        _ => before + after.trim_start(),
    }
}

fn time_line(sight: &Sight<'_>) -> String {
    let stats = &sight.replayed.stats;
    let us = 1e6 * sight.replayed.seconds.total() / stats.accesses().max(1) as f64;
    let mut out = format!("time    {} us an access", figures(us));
    if let Some(raw) = sight.raw_us.filter(|raw| *raw > 0.0) {
        out += &format!(
            "   raw-only {}   saves {:.1} %",
            figures(raw),
            100.0 * (1.0 - us / raw)
        );
    }
    out
}

fn hit_line(sight: &Sight<'_>) -> String {
    let stats = &sight.replayed.stats;
    let share = |count: u64| percent(count as f64 / stats.accesses().max(1) as f64);
    format!(
        "hits    {}   raw {}   compressed {}   missed {}",
        share(stats.raw_hits + stats.packed_hits),
        share(stats.raw_hits),
        share(stats.packed_hits),
        share(stats.misses)
    )
}

fn memory_line(sight: &Sight<'_>, width: usize) -> String {
    let memory = &sight.replayed.memory;
    let share = |bytes: u64| bytes as f64 / memory.budget_bytes.max(1) as f64;
    let (raw, packed) = (share(memory.raw_bytes), share(memory.packed_bytes));
    let text = format!(
        "  raw {:.0} %  compressed {:.0} %   in force: {}",
        100.0 * raw,
        100.0 * packed,
        sight.in_force
    );
    let room = width.saturating_sub(8 + text.chars().count());
    let bar = match room {
        8.. => bar(room.min(24), &[(raw, FULL), (packed, HALF)]),
        _ => String::new(),
    };
    format!("memory  {bar}{text}")
}

const FULL: char = '\u{2588}';
const HALF: char = '\u{2592}';
const EMPTY: char = '\u{2591}';

/// A bar of the given width, its parts from left to right.
fn bar(width: usize, parts: &[(f64, char)]) -> String {
    let mut out = String::new();
    let (mut drawn, mut sum) = (0, 0.0);
    for (share, letter) in parts {
        sum += share;
        let end = ((sum * width as f64).round() as usize).min(width);
        out.extend(std::iter::repeat_n(*letter, end.saturating_sub(drawn)));
        drawn = drawn.max(end);
    }
    out.extend(std::iter::repeat_n(EMPTY, width - drawn));
    out
}

/// Minutes and seconds, hours where there are some.
fn clock(seconds: f64) -> String {
    let whole = seconds.min(1e9).ceil() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// Cuts a line that is too long.
fn fit(line: String, width: usize) -> String {
    match line.chars().count() > width {
        true => {
            let kept: String = line.chars().take(width.saturating_sub(1)).collect();
            kept + if width > 0 { "\u{2026}" } else { "" }
        }
        false => line,
    }
}

#[cfg(test)]
mod tests {
    use breakeven::cache::{Arm, ShardMemory, ShardStats};
    use breakeven::replay::{CostDistribution, ReplaySeconds};
    use breakeven::units::Seconds;

    use super::*;

    fn replayed() -> Replayed {
        Replayed {
            stats: ShardStats {
                raw_hits: 500,
                packed_hits: 100,
                misses: 400,
                ..ShardStats::default()
            },
            seconds: ReplaySeconds {
                miss: 400.0 * 73e-6,
                decode: 0.0008,
                ..ReplaySeconds::default()
            },
            distribution: CostDistribution::default(),
            memory: ShardMemory {
                budget_bytes: 1000,
                slab_bytes: 950,
                raw_bytes: 500,
                packed_bytes: 250,
                ..ShardMemory::default()
            },
            arm: Arm::RAW_ONLY,
            gain: None,
            core: Seconds(0.1),
        }
    }

    fn view() -> View {
        View {
            bar: None,
            term: Term::stderr(),
            policy: "adaptive".to_string(),
            accesses: 4000,
            number: 2,
            count: 18,
            ended: 2,
        }
    }

    fn seen(width: usize) -> Vec<String> {
        let replayed = replayed();
        let sight = Sight {
            replayed: &replayed,
            in_force: "80 % zstd:1, seen again",
            seconds: 0.5,
            raw_us: Some(40.0),
        };
        lines(&view(), &sight, width)
    }

    #[test]
    fn all_that_counts_is_seen() {
        let check = |line: &str, expected: &str| assert_eq!(line, expected);
        let seen = seen(100);
        let bar = |full: usize, half: usize, empty: usize| {
            "\u{2588}".repeat(full) + &"\u{2592}".repeat(half) + &"\u{2591}".repeat(empty)
        };
        check(
            &seen[0],
            &format!(
                "adaptive (2 of 18)  {}   25 %  2,000 a second  0:02 left",
                bar(10, 0, 30)
            ),
        );
        check(
            &seen[1],
            "time    30.0 us an access   raw-only 40.0   saves 25.0 %",
        );
        check(
            &seen[2],
            "hits    60.0 %   raw 50.0 %   compressed 10.0 %   missed 40.0 %",
        );
        check(
            &seen[3],
            &format!(
                "memory  {}  raw 50 %  compressed 25 %   in force: 80 % zstd:1, seen again",
                bar(12, 6, 6)
            ),
        );
    }

    #[test]
    fn no_line_is_as_long_as_the_terminal_is_wide() {
        for width in 0..200 {
            let seen = seen(width);
            assert_eq!(seen.len(), 4);
            for line in seen {
                assert!(line.chars().count() < width.max(1), "{width}: {line}");
                assert!(!line.contains('\n'));
            }
        }
    }

    #[test]
    fn nothing_seen_yet_is_no_trouble() {
        let nothing = Replayed {
            stats: ShardStats::default(),
            seconds: ReplaySeconds::default(),
            memory: ShardMemory::default(),
            ..replayed()
        };
        let sight = Sight {
            replayed: &nothing,
            in_force: "raw only",
            seconds: 0.0,
            raw_us: None,
        };
        let seen = lines(&view(), &sight, 80).join("\n");
        assert!(!seen.contains("NaN") && seen.contains("0 us"), "{seen}");
    }

    #[test]
    fn times_are_told_as_clocks_do() {
        let check = |seconds, expected| assert_eq!(clock(seconds), expected);
        check(0.0, "0:00");
        check(59.2, "1:00");
        check(3725.0, "1:02:05");
        check(f64::INFINITY, "277777:46:40");
    }

    #[test]
    fn without_a_terminal_each_policy_has_a_line() {
        let of = PolicyReport {
            policy: "adaptive".to_string(),
            accesses: 4000,
            us_per_access: 29.95,
            ..PolicyReport::default()
        };
        assert_eq!(
            ended(&view(), &of, 1.25),
            "replayed 2 of 18, adaptive: 4000 accesses in 1.25 s, 29.9 us each"
        );
    }
}
