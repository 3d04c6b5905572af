//! Figures 5.1 to 5.15 again: bars for every contender on a type of file, and the savings of compressing text read by
//! read.
//!
//! The paper has a figure for each machine. Here is one machine, so one picture stands for the three of a type of file,
//! and PPMd is among the others.

use std::path::Path;

use anyhow::Result;
use breakeven::model::{Quadruple, outcome, savings};
use breakeven_cli::draw::label::spread;
use breakeven_cli::draw::mark::{self, Anchor, Position, Rectangle};
use breakeven_cli::draw::scale::number;
use breakeven_cli::draw::{Axis, Frame, Kind, Plot, Scale, palette, standalone};

use super::contenders::PLAIN;
use super::files::FileType;
use super::measured::{self, Measured, Metric, Parts};
use super::tasks::{self, READ, WRITE};
use crate::experiment::Picture;
use crate::record::CellRecord;
use crate::statistics::Interval;

const ROW: f64 = 17.0;
const BAR: f64 = 11.0;
/// Space between the paper's programs, the later ones and ours.
const GAP: f64 = 7.0;
const LABELS: f64 = 122.0;
const PANEL: f64 = 132.0;
const BETWEEN: f64 = 18.0;
const TOP: f64 = 78.0;
const BOTTOM: f64 = 26.0;
/// How many times the plain task a panel shows at least, if anything is that long.
const PLAIN_SHOWN: f64 = 4.0;

/// Draws the bars of a type of file.
pub fn bars(records: &Path, file: FileType, figures: &str) -> Result<Vec<Picture>> {
    let cells = tasks::recorded(records)?;
    let all = measured::of_file(&cells, file);
    if all.len() < 2 {
        return Ok(Vec::new());
    }
    let caption = format!(
        "Writing and reading a {} file of 2 GiB in time, energy and energy-delay; after Figures {figures}. The dashed \
         line is the plain task, a number at the right edge a bar that goes on. Energy is watts of a model ({}) times \
         time, not measured. With a *: measured on a part and scaled.",
        file.name(),
        all[0].energy_source()
    );
    Ok(vec![Picture {
        name: format!("{}-bars", file.name()),
        caption,
        svg: standalone(&draw_bars(&all, file)),
    }])
}

/// Draws the savings of compressing text, read by read.
pub fn saved(records: &Path) -> Result<Vec<Picture>> {
    let cells = tasks::recorded(records)?;
    if measured::of_file(&cells, FileType::Text).len() < 2 {
        return Ok(Vec::new());
    }
    let caption = "Savings of compressing a text file of 2 GiB over one write and its reads; a dot is a break-even. \
                   After Figure 5.4, in time beside energy; the watts are a model's."
        .to_string();
    Ok(vec![Picture {
        name: "text-savings".to_string(),
        caption,
        svg: standalone(&draw_savings(&cells)),
    }])
}

/// Returns the colour class of each contender; ours have the hue of their codec.
fn colours(all: &[Measured<'_>]) -> Vec<String> {
    let codec = |measured: &Measured<'_>| match measured.name {
        PLAIN => "store".to_string(),
        name => name.strip_prefix("our ").unwrap_or(name).to_string(),
    };
    let names: Vec<String> = all.iter().map(codec).collect();
    palette::classes(&names.iter().map(String::as_str).collect::<Vec<&str>>())
}

/// Returns the upper end of each contender's row.
fn rows(all: &[Measured<'_>]) -> Vec<f64> {
    let group = |name: &str| match name {
        PLAIN => 0,
        name if super::claims::is_of_paper(name) => 1,
        name if name.starts_with("our ") => 3,
        _ => 2,
    };
    let mut y = TOP;
    let mut tops = Vec::with_capacity(all.len());
    for (index, measured) in all.iter().enumerate() {
        if index > 0 && group(all[index - 1].name) != group(measured.name) {
            y += GAP;
        }
        tops.push(y);
        y += ROW;
    }
    tops
}

/// One bar: parts from left to right, and the interval of their sum where it was measured.
struct Bar {
    /// Length, and how strongly the contender's colour is shown; nothing is grey.
    parts: Vec<(f64, Option<f64>)>,
    interval: Option<Interval>,
}

impl Bar {
    fn of(parts: &Parts, metric: Metric) -> Bar {
        match metric {
            Metric::Time => Bar {
                parts: vec![
                    (parts.user, Some(1.0)),
                    (parts.system, Some(0.5)),
                    (parts.wait, None),
                ],
                interval: Some(parts.seconds),
            },
            Metric::Energy => Bar {
                parts: vec![
                    (parts.active_joules, Some(1.0)),
                    (parts.passive_joules, None),
                ],
                interval: None,
            },
            Metric::EnergyDelay => {
                let seconds = parts.seconds.middle;
                Bar {
                    parts: vec![
                        (parts.active_joules * seconds, Some(1.0)),
                        (parts.passive_joules * seconds, None),
                    ],
                    interval: None,
                }
            }
        }
    }

    fn total(&self) -> f64 {
        self.parts.iter().map(|(length, _)| length).sum()
    }
}

fn draw_bars(all: &[Measured<'_>], file: FileType) -> String {
    let tops = rows(all);
    let bottom = tops.last().map_or(TOP, |top| top + ROW) + 4.0;
    let panels = Metric::ALL
        .iter()
        .flat_map(|metric| [(*metric, WRITE), (*metric, READ)]);
    let width = LABELS + 6.0 * (PANEL + BETWEEN);
    let classes = colours(all);
    let mut marks = legend();
    for ((measured, top), class) in all.iter().zip(&tops).zip(&classes) {
        let star = measured.scaled_from().map_or("", |_| " *");
        let name = format!("{}{star}", measured.name);
        let text = mark::text((LABELS - 8.0, top + BAR), Anchor::End, "series", &name);
        marks.push_str(&mark::group(&format!("class=\"{class}\""), &text));
    }
    for (index, (metric, task)) in panels.enumerate() {
        let left = LABELS + index as f64 * (PANEL + BETWEEN);
        let bars: Vec<Bar> = all
            .iter()
            .map(|one| Bar::of(&one.parts(task), metric))
            .collect();
        let frame = Frame {
            width,
            height: bottom + BOTTOM,
            left,
            right: width - left - PANEL,
            top: TOP - 4.0,
            bottom: BOTTOM,
        };
        marks.push_str(&draw_panel(&bars, &tops, &classes, frame));
        marks.push_str(&heading(metric, task, left));
    }
    let outer = Frame {
        width,
        height: bottom + BOTTOM,
        left: LABELS,
        right: BETWEEN,
        top: TOP,
        bottom: BOTTOM,
    };
    let title = format!("Writing and reading a {} file", file.name());
    let description = "A bar for each program and metric, beside the plain task.";
    plot(&format!("{}-bars", file.name()), &title, description, outer)
        .bare()
        .svg(&marks)
}

fn heading(metric: Metric, task: &str, left: f64) -> String {
    let (group, unit) = match metric {
        Metric::Time => ("Time", "s"),
        Metric::Energy => ("Energy, modelled", "J"),
        Metric::EnergyDelay => ("Energy-delay, modelled", "J s"),
    };
    let verb = if task == WRITE { "writing" } else { "reading" };
    let mut out = mark::text(
        (left, TOP - 14.0),
        Anchor::Start,
        "tick",
        &format!("{verb}, {unit}"),
    );
    if task == WRITE {
        out.push_str(&mark::text(
            (left, TOP - 34.0),
            Anchor::Start,
            "title",
            group,
        ));
    }
    out
}

/// The meaning of a colour's strengths.
fn legend() -> String {
    let items = [
        ("user time, active energy", Some(1.0)),
        ("system time", Some(0.5)),
        ("waiting, passive energy", None),
    ];
    let (mut out, mut x) = (String::new(), LABELS);
    for (name, strength) in items {
        let swatch = Rectangle {
            x,
            y: 9.0,
            width: 11.0,
            height: 11.0,
        };
        out.push_str(&part(swatch, "zstd-3", strength));
        out.push_str(&mark::text((x + 16.0, 18.0), Anchor::Start, "label", name));
        x += 40.0 + breakeven_cli::draw::label::width(name);
    }
    out
}

/// A part of a bar in the strength of its colour, or grey.
fn part(rectangle: Rectangle, class: &str, strength: Option<f64>) -> String {
    match strength {
        Some(strength) => {
            let marks = mark::rectangles(&[rectangle], class);
            mark::group(&format!("opacity=\"{strength}\""), &marks)
        }
        None => mark::rectangles(&[rectangle], "store-1"),
    }
}

fn draw_panel(bars: &[Bar], tops: &[f64], classes: &[String], frame: Frame) -> String {
    let totals: Vec<f64> = bars.iter().map(Bar::total).collect();
    let scale = Scale::new(Kind::Linear, (0.0, shown(&totals)), frame.across());
    let mut panel = plot("panel", "", "", frame);
    panel.x = Axis {
        title: String::new(),
        scale,
        ticks: scale.ticks(3),
    };
    let mut out = panel.axes();
    let (left, right) = frame.across();
    for ((bar, top), class) in bars.iter().zip(tops).zip(classes) {
        let mut from = 0.0;
        for (length, strength) in &bar.parts {
            let (start, end) = (
                scale.at(from).min(right),
                scale.at(from + length).min(right),
            );
            from += length;
            let rectangle = Rectangle {
                x: start,
                y: *top + 1.0,
                width: end - start,
                height: BAR,
            };
            out.push_str(&part(rectangle, class, *strength));
        }
        if let Some(interval) = bar.interval.filter(|interval| scale.shows(interval.high)) {
            let y = top + 1.0 + BAR / 2.0;
            let ends = [interval.low.max(0.0), interval.high].map(|value| (scale.at(value), y));
            out.push_str(&mark::rule(ends[0], ends[1], "axis"));
        }
        if !scale.shows(bar.total()) {
            let at = (right - 3.0, top + BAR - 1.0);
            out.push_str(&mark::text(
                at,
                Anchor::End,
                "label halo",
                &number(bar.total()),
            ));
        }
    }
    let plain = scale.at(totals[0]).clamp(left, right);
    let (bottom, top) = frame.up();
    out + &mark::rule((plain, top), (plain, bottom), "guide")
}

/// Returns how far a panel reaches: to where half of the contenders end, and some times the plain
/// one, but no farther than the longest.
fn shown(totals: &[f64]) -> f64 {
    let mut sorted = totals.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted[sorted.len() * 6 / 10];
    let most = sorted[sorted.len() - 1];
    let wanted = (PLAIN_SHOWN * totals[0]).max(1.25 * middle);
    1.05 * wanted.min(most)
}

fn plot(id: &str, title: &str, description: &str, frame: Frame) -> Plot {
    let axis = |range| Axis {
        title: String::new(),
        scale: Scale::new(Kind::Linear, (0.0, 1.0), range),
        ticks: Vec::new(),
    };
    Plot {
        id: id.to_string(),
        title: title.to_string(),
        description: description.to_string(),
        frame,
        x: axis(frame.across()),
        y: axis(frame.up()),
    }
}

/// Reads per write that the picture of savings shows, as Figure 5.4 does.
const READS_MAX: f64 = 30.0;
/// Losses shown, as a share of the plain task's cost up to there: gains cannot be more than that.
const LOSS_SHOWN: f64 = 0.6;
/// Room below the axis of reads for the names of the lines that leave the picture.
const NAMES: f64 = 112.0;

fn draw_savings(cells: &[CellRecord]) -> String {
    const WIDTH: f64 = 980.0;
    const HEIGHT: f64 = 470.0;
    const HALF: f64 = WIDTH / 2.0;
    let all = measured::of_file(cells, FileType::Text);
    let classes = colours(&all);
    let contenders: Vec<(&Measured<'_>, &String)> = all.iter().zip(&classes).skip(1).collect();
    let mut marks = String::new();
    for (index, (metric, title)) in [
        (Metric::Time, "seconds saved, measured"),
        (Metric::Energy, "joules saved, modelled"),
    ]
    .into_iter()
    .enumerate()
    {
        let left = index as f64 * HALF;
        let frame = Frame {
            width: WIDTH,
            height: HEIGHT,
            left: left + 56.0,
            right: WIDTH - left - HALF + 112.0,
            top: 40.0,
            bottom: NAMES,
        };
        let lines: Vec<Line<'_>> = contenders
            .iter()
            .map(|(measured, class)| Line {
                name: measured.name,
                class,
                costs: measured.costs(metric).mean(),
            })
            .collect();
        marks.push_str(&draw_lines(&lines, title, frame, left, index));
    }
    let outer = Frame {
        width: WIDTH,
        height: HEIGHT,
        left: 56.0,
        right: WIDTH - 57.0,
        top: 40.0,
        bottom: NAMES,
    };
    let description = "One line for each program; where it crosses zero is its break-even.";
    plot(
        "text-savings",
        "Savings of compressing text, read by read",
        description,
        outer,
    )
    .bare()
    .svg(&marks)
}

/// A contender's saving over reads per write.
struct Line<'a> {
    name: &'a str,
    class: &'a str,
    costs: Quadruple,
}

impl Line<'_> {
    fn at(&self, reads: f64) -> f64 {
        savings(&self.costs, reads)
    }
}

fn draw_lines(lines: &[Line<'_>], title: &str, frame: Frame, left: f64, index: usize) -> String {
    let plain = lines
        .iter()
        .map(|line| line.costs.write + READS_MAX * line.costs.read);
    // Where the plain task on a small part is scaled, it may be dear: the least is the truest.
    let plain = plain.fold(f64::INFINITY, f64::min);
    let ends = lines
        .iter()
        .flat_map(|line| [line.at(0.0), line.at(READS_MAX)]);
    let high = ends.fold(0.2 * plain, f64::max);
    let mut panel = plot(&format!("savings-{index}"), "", "", frame);
    let x = Scale::new(Kind::Linear, (0.0, READS_MAX), frame.across());
    let y = Scale::new(Kind::Linear, (-LOSS_SHOWN * plain, 1.08 * high), frame.up());
    let axis = |title: &str, scale: Scale| Axis {
        title: title.to_string(),
        scale,
        ticks: scale.ticks(6),
    };
    panel.x = axis("reads per write", x);
    panel.y = axis("", y);
    let ((from, to), (bottom, top)) = (frame.across(), frame.up());
    let mut out = panel.axes();
    out.push_str(&mark::text(
        (left + 6.0, top - 16.0),
        Anchor::Start,
        "title",
        title,
    ));
    out.push_str(&mark::rule((from, y.at(0.0)), (to, y.at(0.0)), "zero"));
    let coloured =
        |line: &Line<'_>, marks: &str| mark::group(&format!("class=\"{}\"", line.class), marks);
    for line in lines {
        let Some(points) = inside(line, &y) else {
            continue;
        };
        let points = points.map(|reads| (x.at(reads), y.at(line.at(reads))));
        out.push_str(&coloured(line, &mark::line(&points, "")));
        if let Some(reads) = outcome(&line.costs)
            .break_even()
            .filter(|reads| x.shows(*reads))
        {
            let tip = format!("{}: break-even at {} reads", line.name, number(reads));
            out.push_str(&coloured(
                line,
                &mark::dot((x.at(reads), y.at(0.0)), 4.0, "", &tip),
            ));
        }
    }
    let (named, below): (Vec<&Line<'_>>, Vec<&Line<'_>>) =
        lines.iter().partition(|line| y.shows(line.at(READS_MAX)));
    let wanted: Vec<f64> = named
        .iter()
        .map(|line| y.at(line.at(READS_MAX)) + 4.0)
        .collect();
    for (line, place) in named
        .iter()
        .zip(spread(&wanted, 13.0, top + 4.0, bottom + 4.0))
    {
        let at: Position = (to + 6.0, place);
        out.push_str(&coloured(
            line,
            &mark::text(at, Anchor::Start, "series", line.name),
        ));
    }
    out + &far_below(&below, (from, bottom + 56.0))
}

/// Returns the reads between which a line lies in the picture.
fn inside(line: &Line<'_>, y: &Scale) -> Option<[f64; 2]> {
    let slope = (line.at(READS_MAX) - line.at(0.0)) / READS_MAX;
    let (low, high) = y.domain();
    let reaches = |value: f64| (value - line.at(0.0)) / slope;
    let ends = match slope {
        slope if slope > 0.0 => [reaches(low), reaches(high)],
        slope if slope < 0.0 => [reaches(high), reaches(low)],
        _ => [0.0, READS_MAX],
    };
    let ends = [ends[0].max(0.0), ends[1].min(READS_MAX)];
    (ends[0] < ends[1] && y.shows(line.at(0.5 * (ends[0] + ends[1])))).then_some(ends)
}

/// Names the lines that leave the picture below, some to a line of text.
fn far_below(lines: &[&Line<'_>], (x, top): Position) -> String {
    const ON_A_LINE: usize = 5;
    let names: Vec<&str> = lines.iter().map(|line| line.name).collect();
    let mut out = String::new();
    for (index, part) in names.chunks(ON_A_LINE).enumerate() {
        let part = part.join(", ");
        let text = match index {
            0 => format!("leaving below: {part}"),
            _ => part,
        };
        let at = (x, top + 15.0 * index as f64);
        out.push_str(&mark::text(at, Anchor::Start, "soft", &text));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panel_shows_the_plain_one_and_most_others() {
        let check = |totals: &[f64], expected: f64| {
            assert!(
                (shown(totals) - expected).abs() < 1e-9,
                "{totals:?}: {}",
                shown(totals)
            );
        };
        check(&[1.0, 2.0, 3.0], 3.15);
        check(&[1.0, 100.0, 2.0, 3.0, 1.0], 1.05 * 4.0);
        check(&[1.0, 9.0, 10.0, 900.0, 8.0], 1.05 * 12.5);
    }

    #[test]
    fn every_contender_has_its_bars_and_its_line() {
        let contenders = [
            ("gzip -1", 4.0, 0.5),
            ("lzop -1", 1.0, 0.5),
            ("bzip2 -9", 40.0, 20.0),
        ];
        let cells = [measured::tests::cell(tasks::PAPER_BYTES, &contenders)];
        let all = measured::of_file(&cells, FileType::Text);
        let svg = draw_bars(&all, FileType::Text);
        for name in ["plain", "gzip -1", "lzop -1", "bzip2 -9"] {
            assert_eq!(svg.matches(&format!(">{name}</text>")).count(), 1, "{name}");
        }
        // Four contenders and six panels; bzip2 leaves all of them.
        assert!(svg.matches("class=\"region ").count() > 4 * 6, "{svg}");
        assert_eq!(svg.matches("label halo").count(), 6);
        let savings = draw_savings(&cells);
        // bzip2 lies below the picture all the way.
        assert_eq!(savings.matches("class=\"line ").count(), 2 * 2);
        // gzip crosses zero at 4 reads in time and in energy; the others never do.
        assert_eq!(savings.matches("break-even at 4 reads").count(), 2);
        for picture in [svg, savings] {
            assert!(!picture.contains("NaN") && !picture.contains("inf"));
        }
    }

    #[test]
    fn lines_are_cut_where_they_leave_the_picture() {
        let line = |write: f64, read: f64| Line {
            name: "a",
            class: "a",
            costs: Quadruple {
                write: 10.0,
                compress: 10.0 - write,
                read: 10.0,
                decompress: 10.0 - read,
            },
        };
        let y = Scale::new(Kind::Linear, (-6.0, 9.0), (100.0, 0.0));
        let check =
            |line: Line<'_>, expected: Option<[f64; 2]>| assert_eq!(inside(&line, &y), expected);
        check(line(-12.0, 1.0), Some([6.0, 21.0]));
        check(line(3.0, -0.5), Some([0.0, 18.0]));
        check(line(-20.0, -1.0), None);
        check(line(2.0, 0.0), Some([0.0, 30.0]));
        check(line(-50.0, 0.0), None);
    }
}
