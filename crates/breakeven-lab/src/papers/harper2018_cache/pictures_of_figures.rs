//! Figures 10, 12 and 13 by measurement and by the model, on one picture each.

use std::path::Path;

use anyhow::Result;
use breakeven::model::{BufferCache, Overheads, Placement};
use breakeven_cli::draw::palette;

use super::figures::{self, ALL, FREE, HITS, METHODS, RAW, Setting};
use super::overheads::{self, Left};
use crate::chart::{self, GREY, Look, Panel, Quantity, Series, Words};
use crate::experiment::Picture;
use crate::record::CellRecord;

/// Draws the records.
pub fn draw(records: &Path) -> Result<Vec<Picture>> {
    let cells = figures::recorded(records)?;
    let cells: Vec<(Setting, CellRecord)> = cells
        .into_iter()
        .filter_map(|cell| Some((Setting::of(&cell)?, cell)))
        .collect();
    if cells.is_empty() {
        return Ok(Vec::new());
    }
    let left = overheads::recorded(records)?.unwrap_or_default();
    let drawing = |name: &str,
                   title: &str,
                   caption: &str,
                   panel: &dyn Fn(&Setting, &CellRecord) -> Panel| {
        let panels: Vec<Panel> = cells
            .iter()
            .map(|(setting, cell)| panel(setting, cell))
            .collect();
        let words = Words {
            id: name,
            title,
            description: "Two panels in a row, for settings of Figure 12; dots are measured, lines are computed.",
        };
        Picture {
            name: name.to_string(),
            caption: caption.to_string(),
            svg: chart::panels(&words, &panels, 2, 460.0),
        }
    };
    Ok(vec![
        drawing(
            "fig-10",
            "Hit ratio by compressed share of memory",
            "Figure 10 by measurement: hit ratio over the compressed share of memory. Dots are a real cache, dashed lines his model with the ratio that \
             the pages have.",
            &hits,
        ),
        drawing(
            "fig-12",
            "Microseconds per access by compressed share of memory",
            "Figure 12 by measurement: the time of an access with all processor time of the cache. Dots are a real \
             cache. Thin lines are his model with the codec's times of the same runs. Dashed ones add all costs that \
             he sets to zero, with the losses of others.",
            &|setting, cell| times(setting, cell, &left),
        ),
        drawing(
            "fig-13",
            "Microseconds of page faults per access by compressed share of memory",
            "Figure 13 by measurement: the rest if both codec operations cost nothing, which is page faults alone. \
             Dots are a real cache, dashed lines his model.",
            &free,
        ),
    ])
}

fn colour(method: &str) -> String {
    let classes = palette::classes(&METHODS);
    let at = METHODS.iter().position(|of| *of == method);
    at.map_or(GREY.to_string(), |at| classes[at].clone())
}

/// Dots of measurements, joined by nothing.
fn dots(cell: &CellRecord, method: &str, column: usize, scale: f64) -> Vec<Series> {
    let point = |share: &u32| {
        (
            f64::from(*share),
            scale * figures::middle(cell, method, &format!("{share} %"), column),
        )
    };
    let points = figures::recorded_shares(cell);
    let one = |(index, share): (usize, &u32)| Series {
        // The last one carries the name.
        name: if index + 1 == points.len() {
            method.to_string()
        } else {
            String::new()
        },
        colour: colour(method),
        look: Look::Solid,
        points: vec![point(share)],
        has_dots: true,
    };
    points.iter().enumerate().map(one).collect()
}

fn line(look: Look, colour: &str, value: impl Fn(f64) -> f64) -> Series {
    let point = |step: u32| (f64::from(step), value(f64::from(step) / 100.0));
    Series {
        name: String::new(),
        colour: colour.to_string(),
        look,
        points: (1..=100).map(point).collect(),
        has_dots: false,
    }
}

fn level(name: &str, value: f64) -> Series {
    Series {
        name: name.to_string(),
        colour: GREY.to_string(),
        look: Look::Solid,
        points: vec![(0.0, value), (100.0, value)],
        has_dots: false,
    }
}

fn panel(setting: &Setting, y: &str, series: Vec<Series>) -> Panel {
    let values = series
        .iter()
        .flat_map(|series| &series.points)
        .map(|point| point.1);
    let high = values.fold(0.0, f64::max);
    Panel {
        title: setting.name(),
        x: Quantity::linear("% of memory compressed", 0.0, 100.0),
        y: Quantity::linear(y, 0.0, 1.1 * high),
        series,
        notes: Vec::new(),
    }
}

fn bare(setting: &Setting, cell: &CellRecord, method: &str) -> BufferCache {
    setting.model(cell, method, Overheads::default(), Placement::Blind)
}

fn hits(setting: &Setting, cell: &CellRecord) -> Panel {
    let mut series = vec![level(
        "raw",
        100.0 * figures::middle(cell, METHODS[0], RAW, HITS),
    )];
    for method in METHODS {
        let model = bare(setting, cell, method);
        series.push(line(Look::Dashed, &colour(method), |share| {
            100.0 * model.hit_ratio(share)
        }));
        series.extend(dots(cell, method, HITS, 100.0));
    }
    panel(setting, "% of accesses that hit", series)
}

fn times(setting: &Setting, cell: &CellRecord, left: &Left) -> Panel {
    let mut series = vec![level("raw", figures::middle(cell, METHODS[0], RAW, ALL))];
    for method in METHODS {
        let model = bare(setting, cell, method);
        series.push(line(Look::Thin, &colour(method), |share| {
            1e6 * model.cost(share).0
        }));
        let model = setting.model(cell, method, left.all(method), Placement::Blind);
        series.push(line(Look::Dashed, &colour(method), |share| {
            1e6 * model.cost(share).0
        }));
        series.extend(dots(cell, method, ALL, 1.0));
    }
    panel(setting, "microseconds per access", series)
}

fn free(setting: &Setting, cell: &CellRecord) -> Panel {
    let mut series = vec![level("raw", figures::middle(cell, METHODS[0], RAW, FREE))];
    for method in METHODS {
        let mut model = bare(setting, cell, method);
        model.codec = model.codec.free();
        series.push(line(Look::Dashed, &colour(method), |share| {
            1e6 * model.cost(share).0
        }));
        series.extend(dots(cell, method, FREE, 1.0));
    }
    panel(setting, "microseconds per access", series)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn measurement_and_model_are_on_one_picture() {
        let folder = tempfile::tempdir().unwrap();
        assert!(draw(folder.path()).unwrap().is_empty());
        let record = Record::new(folder.path(), figures::RECORD, figures::COLUMNS);
        for setting in figures::SETTINGS {
            record.append(&figures::tests::cell(&setting, 1.0)).unwrap();
        }
        let pictures = draw(folder.path()).unwrap();
        let names: Vec<&str> = pictures.iter().map(|of| of.name.as_str()).collect();
        assert_eq!(names, ["fig-10", "fig-12", "fig-13"]);
        for Picture { name, svg, .. } in &pictures {
            // Two methods of two shares in four panels.
            assert_eq!(svg.matches("<circle").count(), 16, "{name}");
            assert!(
                svg.contains("class=\"line dashed\"") && !svg.contains("NaN"),
                "{name}"
            );
        }
    }
}
