//! Policies side by side as bars: the parts of an access's time, the pools in which accesses find their page, and the
//! contents of the memory.

use std::fmt::Write;

use super::super::scene::{FRAME, Figure};
use super::facts::{PolicyReport, RAW_ONLY, ReplayReport};
use crate::draw::mark::{self, Anchor, Rectangle};
use crate::draw::{Axis, Frame, Kind, Plot, Scale};
use crate::text::figures;

/// Policies that get bars.
const BARS_MAX: usize = 8;
/// Room for the legend above the bars.
const LEGEND: f64 = 22.0;

const SIZES: Frame = Frame {
    left: 118.0,
    right: 56.0,
    top: 32.0 + LEGEND,
    ..FRAME
};

/// A picture of bars: its words, and the parts of a bar with their colours.
struct Bars {
    id: &'static str,
    title: &'static str,
    caption: String,
    axis: &'static str,
    parts: Vec<(&'static str, &'static str)>,
    value: fn(&PolicyReport) -> Vec<f64>,
    /// The end of the axis, where it is known.
    most: Option<f64>,
}

/// Draws the parts of an access's time.
pub fn times(report: &ReplayReport) -> Figure {
    let read = if report.is_read { "read" } else { "charged" };
    draw(
        report,
        &Bars {
            id: "parts",
            title: "What the time goes into",
            caption: format!(
                "A miss was {read}, {} us on the mean. Compressing and restoring were timed as they ran; \
                 finding out is what the adaptive cache spends on its simulations and trials.",
                figures(report.miss_us)
            ),
            axis: "microseconds per access",
            parts: vec![
                ("store-1", "misses"),
                ("xz-2", "restoring"),
                ("deflate-2", "compressing"),
                ("other-2", "finding out"),
            ],
            value: |of| {
                let seconds = [
                    of.miss_seconds,
                    of.decode_seconds,
                    of.encode_seconds,
                    of.overhead_seconds,
                ];
                seconds.map(|seconds| of.per_access(seconds)).to_vec()
            },
            most: None,
        },
    )
}

/// Draws the pools in which accesses find their page.
pub fn pools(report: &ReplayReport) -> Figure {
    draw(
        report,
        &Bars {
            id: "pools",
            title: "Where accesses find their page",
            caption: "Raw pages are handed out as they lie, compressed ones must be restored, missed ones \
                      must be loaded."
                .to_string(),
            axis: "% of accesses",
            parts: vec![
                ("bzip2-1", "raw"),
                ("xz-2", "compressed"),
                ("store-1", "missed"),
            ],
            value: |of| {
                let counts = [of.raw_hits, of.packed_hits, of.misses];
                counts.map(|count| 100.0 * of.share(count)).to_vec()
            },
            most: Some(100.0),
        },
    )
}

/// Draws the contents of the memory at the end.
pub fn memory(report: &ReplayReport) -> Figure {
    let budget = report.memory_bytes as f64 / MEBIBYTE;
    draw(
        report,
        &Bars {
            id: "memory",
            title: "What the memory holds",
            caption: "At the end of the trace. Beside blocks it holds entries, ghosts, the simulations, and \
                      the unfilled parts of slabs; all of it counts against the budget, the dashed line."
                .to_string(),
            axis: "MiB",
            parts: vec![
                ("bzip2-1", "raw pages"),
                ("xz-2", "compressed pages"),
                ("store-1", "all else"),
            ],
            value: |of| {
                let blocks = of.raw_bytes + of.packed_bytes;
                let rest = of.in_use_bytes.saturating_sub(blocks);
                let bytes = [of.raw_bytes, of.packed_bytes, rest];
                bytes.map(|bytes| bytes as f64 / MEBIBYTE).to_vec()
            },
            most: Some(1.04 * budget),
        },
    )
}

const MEBIBYTE: f64 = 1_048_576.0;

/// The requested policies, then the best of the further splits.
fn shown(report: &ReplayReport) -> Vec<&PolicyReport> {
    let best = report.best_fixed().filter(|best| {
        let asked = report.policies.iter().any(|of| of.policy == best.policy);
        !asked && best.policy != RAW_ONLY
    });
    let asked = report.policies.iter().take(BARS_MAX - 1);
    asked.chain(best).collect()
}

fn draw(report: &ReplayReport, bars: &Bars) -> Figure {
    let shown = shown(report);
    let sum = |of: &&PolicyReport| (bars.value)(of).iter().sum::<f64>();
    let most = shown.iter().map(sum).fold(1e-9, f64::max);
    let x = Scale::new(
        Kind::Linear,
        (0.0, bars.most.unwrap_or(1.05 * most)),
        SIZES.across(),
    );
    let y = Scale::new(Kind::Linear, (shown.len().max(1) as f64, 0.0), SIZES.up());
    let plot = Plot {
        id: bars.id.to_string(),
        title: bars.title.to_string(),
        description: "One bar for each policy.".to_string(),
        frame: SIZES,
        x: Axis {
            title: bars.axis.to_string(),
            scale: x,
            ticks: x.ticks(5),
        },
        y: Axis {
            title: String::new(),
            scale: y,
            ticks: Vec::new(),
        },
    };
    let (bottom, top) = plot.frame.up();
    let step = (bottom - top) / shown.len().max(1) as f64;
    let height = (0.62 * step).min(44.0);
    let mut marks = String::new();
    for (row, of) in shown.iter().enumerate() {
        let middle = top + (row as f64 + 0.5) * step;
        let _ = write!(marks, "{}", bar(bars, of, &x, middle, height));
    }
    if bars.id == "memory" {
        let at = x.at(report.memory_bytes as f64 / MEBIBYTE);
        marks.push_str(&mark::rule((at, top), (at, bottom), "guide"));
    }
    let (legend, _) = mark::legend(&bars.parts, (plot.frame.left, 20.0), 420.0);
    Figure {
        id: bars.id,
        title: bars.title.to_string(),
        metric: None,
        caption: bars.caption.clone(),
        svg: plot.svg(&(marks + &legend)),
    }
}

fn bar(bars: &Bars, of: &PolicyReport, x: &Scale, middle: f64, height: f64) -> String {
    let values = (bars.value)(of);
    let name = of.policy.trim_start_matches("split:");
    let left = (SIZES.left - 10.0, middle + 4.0);
    let mut out = mark::text(left, Anchor::End, "label", name);
    let mut begun = 0.0;
    for ((colour, part), value) in bars.parts.iter().zip(&values) {
        let (from, to) = (x.at(begun), x.at(begun + value));
        begun += value;
        // The edge of an empty part would still be seen.
        if to - from < 0.3 {
            continue;
        }
        let rectangle = Rectangle {
            x: from,
            y: middle - height / 2.0,
            width: to - from,
            height,
        };
        let title = format!("<title>{part}: {}</title>", figures(*value));
        let shape = mark::rectangles(&[rectangle], colour);
        let shape = shape.replace("/>", &format!(">{title}</path>"));
        out.push_str(&shape);
        let text = figures(*value);
        if to - from > 9.0 * text.len() as f64 {
            let at = ((from + to) / 2.0, middle + 4.0);
            out.push_str(&mark::text(at, Anchor::Middle, "on-region", &text));
        }
    }
    if bars.most.is_none() {
        let at = (x.at(begun) + 7.0, middle + 4.0);
        out.push_str(&mark::text(at, Anchor::Start, "label", &figures(begun)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn bars_are_those_of_the_policies_and_the_best_split() {
        let report = testing::report();
        let names: Vec<&str> = shown(&report).iter().map(|of| of.policy.as_str()).collect();
        assert_eq!(names, ["raw-only", "adaptive", "split:80:zstd"]);
        // Nothing was spent on finding out, and raw-only compresses nothing.
        for (figure, swatches, parts) in [
            (times(&report), 4, 3 * 3),
            (pools(&report), 3, 2 + 3 + 3),
            (memory(&report), 3, 2 + 3 + 3),
        ] {
            let drawn = figure.svg.matches("<path class=\"region ").count();
            assert_eq!(drawn, swatches + parts, "{}", figure.id);
            assert!(!figure.svg.contains("NaN"));
        }
    }

    #[test]
    fn a_bar_is_as_long_as_the_time_it_stands_for() {
        let report = testing::report();
        let raw = report.find("raw-only").expect("raw-only");
        assert!(
            times(&report)
                .svg
                .contains(&format!(">{}</text>", figures(raw.us_per_access)))
        );
    }
}
