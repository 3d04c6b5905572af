//! The figures of the thesis again, and ours, drawn from the records.

use std::path::Path;

use anyhow::Result;
use breakeven_cli::draw::Tick;

use super::bench::BETAS;
use super::costs;
use super::fastest::{self, S1};
use super::figures::{self, Call};
use super::promises;
use super::published::LINKS;
use super::race::{self, DRAINED_SECONDS};
use super::rivals::{self, RIVALS};
use crate::chart::{self, GREY, Look, Panel, Quantity, Row, Series, Value, Words};
use crate::experiment::Picture;

const OURS: &str = "zstd-4";
const COLOURS_OF_RIVALS: [&str; 5] = ["other-2", "deflate-2", "bzip2-2", "lz4-3", "xz-2"];

fn picture(name: &str, caption: &str, svg: String) -> Picture {
    Picture {
        name: name.to_string(),
        caption: caption.to_string(),
        svg,
    }
}

/// Returns a domain around some values and 1, a little wider.
fn around(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values.fold((1.0_f64, 1.0_f64), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    (0.97 * low, 1.03 * high)
}

/// Draws S1 against the best static method in each cell.
pub fn fastest(records: &Path) -> Result<Vec<Picture>> {
    let cells = fastest::recorded(records)?;
    let judged = fastest::judged(&cells);
    if judged.is_empty() {
        return Ok(Vec::new());
    }
    let row = |it: &fastest::Judged<'_>| {
        let bound = it.over_best.middle / it.over_bound.middle;
        let value = |value: f64, colour: &str, is_hollow: bool, what: &str| Value {
            value,
            colour: colour.to_string(),
            is_hollow,
            title: format!("{what}: {value:.3} of {}", it.best),
        };
        Row {
            name: it.cell.cell.clone(),
            values: vec![
                value(bound, GREY, true, "the fluid bound"),
                value(it.over_best.middle, OURS, false, "S1"),
            ],
        }
    };
    let rows: Vec<Row> = judged.iter().map(row).collect();
    let values = rows.iter().flat_map(|row| &row.values);
    let (low, high) = around(values.map(|value| value.value));
    let words = Words {
        id: "fastest",
        title: "S1 against the best static method",
        description: "One row for each cell: the time of S1, and of the fluid bound, over that of the best method for all blocks.",
    };
    let x = Quantity::linear("time over that of the best static method", low, high);
    let legend: [(&str, &str); 1] = [(OURS, "S1")];
    let svg = chart::rows(&words, &x, &rows, (&legend, "fluid lower bound"));
    let caption = "Time of S1 over that of the best static method in hindsight, in each cell; left of 1 no static \
        method would have been as fast. Hollow: the bound of all schedules.";
    Ok(vec![picture("over-static", caption, svg)])
}

/// Draws how much longer the rules of others take.
pub fn rivals(records: &Path) -> Result<Vec<Picture>> {
    let cells = rivals::recorded(records)?;
    if cells.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = Vec::new();
    for cell in &cells {
        let ours = race::median(cell, S1, DRAINED_SECONDS);
        let value = |(rival, colour): (&&str, &&str)| {
            let value = race::median(cell, rival, DRAINED_SECONDS) / ours;
            Value {
                value,
                colour: colour.to_string(),
                is_hollow: false,
                title: format!("{rival}: {value:.2} times as long"),
            }
        };
        let mut values = vec![Value {
            value: 1.0,
            colour: GREY.to_string(),
            is_hollow: true,
            title: "S1".to_string(),
        }];
        values.extend(RIVALS.iter().zip(&COLOURS_OF_RIVALS).map(value));
        rows.push(Row {
            name: cell.cell.clone(),
            values,
        });
    }
    let values = rows.iter().flat_map(|row| &row.values);
    let (low, high) = around(values.map(|value| value.value));
    let words = Words {
        id: "rivals",
        title: "Other people's rules against ours",
        description: "One row for each cell, a dot for each rule: its time over that of S1 in the same runs.",
    };
    let legend: Vec<(&str, &str)> = COLOURS_OF_RIVALS.into_iter().zip(RIVALS).collect();
    let x = Quantity::log("time over that of S1", low, high);
    let svg = chart::rows(&words, &x, &rows, (&legend, "S1"));
    let caption = "Time of other people's rules over that of S1 on the same pipeline and link; right of 1 they are slower.";
    Ok(vec![picture("rules", caption, svg)])
}

/// Draws Figures 5.10 to 5.18.
pub fn static_speeds(records: &Path) -> Result<Vec<Picture>> {
    let (_, costs) = costs::recorded(records)?;
    let fastest = fastest::recorded(records)?;
    let promises = promises::recorded(records)?;
    let calls = figures::nine_calls(&costs, &fastest, &promises);
    if calls.is_empty() {
        return Ok(Vec::new());
    }
    let panels: Vec<Panel> = calls.iter().map(panel).collect();
    let words = Words {
        id: "calls",
        title: "Synchronous calls by static methods and strategies",
        description: "Nine panels, three files over three links: speed over the link's for each method, from fast to dense, and for S1, S2 \
            and S3.",
    };
    let svg = chart::panels(&words, &panels, 3, 330.0);
    let caption = "Figures 5.10 to 5.18 again: speed of a synchronous call over the link's, for each method from the fastest encoder to \
        the slowest (by arithmetic on recorded costs) and for S1, S2 and S3 (measured).";
    Ok(vec![picture("fig-5-10-to-5-18", caption, svg)])
}

fn panel(call: &Call) -> Panel {
    let last = (call.statics.len().max(2) - 1) as f64;
    let statics: Vec<(f64, f64)> = (call.statics.iter().enumerate())
        .map(|(index, (_, speed))| (index as f64, *speed))
        .collect();
    let mut series = vec![Series {
        name: "static".to_string(),
        colour: GREY.to_string(),
        look: Look::Thin,
        points: statics,
        has_dots: true,
    }];
    let strategies = [(S1, OURS), ("S2", "lz4-3"), ("S3", "xz-2")];
    for ((name, colour), speed) in strategies.into_iter().zip(call.strategies) {
        series.extend(speed.map(|speed| Series {
            name: name.to_string(),
            colour: colour.to_string(),
            look: Look::Solid,
            points: vec![(0.0, speed), (last, speed)],
            has_dots: false,
        }));
    }
    let values = series.iter().flat_map(|series| &series.points);
    let (low, high) = around(values.map(|(_, speed)| *speed));
    let shown = ["store", "lz4:1", "zstd:1", "zstd:9", "xz:6"];
    let mut ticks: Vec<Tick> = Vec::new();
    for (index, (method, _)) in call.statics.iter().enumerate() {
        let (value, label) = (index as f64, method.to_string());
        // Their names would be written over each other.
        let is_free = ticks.last().is_none_or(|it| value - it.value > last / 6.0);
        if is_free && shown.contains(&label.as_str()) {
            ticks.push(Tick { value, label });
        }
    }
    let link = BETAS.iter().position(|beta| *beta == call.beta);
    let link = link.map_or("", |index| LINKS[index]);
    Panel {
        title: format!("{}, beta {} ({link})", call.file.name(), call.beta),
        x: Quantity {
            ticks,
            ..Quantity::linear("method, from fast to dense", 0.0, last)
        },
        y: Quantity::log("speed over the link's", low, high),
        series,
        notes: Vec::new(),
    }
}
