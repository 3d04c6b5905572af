//! The figures of the cache, drawn from the records.

use std::path::Path;

use anyhow::Result;

use super::policies::{self, ADAPTIVE, BEST, COST, LATE, LEAST, METHOD, RACE, RAW, SHARE, middle};
use crate::chart::{self, GREY, Look, Note, Panel, Quantity, Row, Series, Value, Words};
use crate::experiment::Picture;
use crate::record::CellRecord;

/// Classes of the palette, the same in every picture of the cache.
pub const ADAPTIVE_COLOUR: &str = "zstd-3";
pub const SPLIT_COLOUR: &str = "lz4-2";

/// Draws the costs of policies in every cell, and over the compressed share in the core ones.
pub fn policies(records: &Path) -> Result<Vec<Picture>> {
    let cells = policies::recorded(records)?;
    if cells.is_empty() {
        return Ok(Vec::new());
    }
    let gains = Picture {
        name: "gains".to_string(),
        caption: "Cost of an access over its cost in the cache that compresses nothing, from an empty cache on: \
            adaptive, the best fixed split in hindsight, and (hollow) the lower bound of all caches. Medians of the \
            runs."
            .to_string(),
        svg: gains(&cells),
    };
    let panels: Vec<Panel> = cells.iter().filter_map(sweep).collect();
    if panels.is_empty() {
        return Ok(vec![gains]);
    }
    let words = Words {
        id: "sweep",
        title: "Cost by compressed share of memory",
        description: "A panel for each cell: a line over the compressed share, a level line for raw-only, and a dot where the adaptive cache came to.",
    };
    let sweep = Picture {
        name: "sweep".to_string(),
        caption: "Harper's Figure 12 by measurement: the cost of an access over the share of memory that is \
            compressed. It is that of the first run's second half, with the sweep's best method and admission. \
            Raw-only is the level line and the adaptive cache the dot."
            .to_string(),
        svg: chart::panels(&words, &panels, 3, 345.0),
    };
    Ok(vec![gains, sweep])
}

fn gains(cells: &[CellRecord]) -> String {
    let row = |cell: &CellRecord| {
        let raw = middle(cell, RAW, COST);
        let value = |contender: &str, name: &str, colour: &str, is_hollow| {
            let value = middle(cell, contender, COST) / raw;
            Value {
                value,
                colour: colour.to_string(),
                is_hollow,
                title: format!("{}, {name}: {value:.3}", cell.cell),
            }
        };
        Row {
            name: cell.cell.clone(),
            values: vec![
                value(LEAST, "bound", GREY, true),
                value(BEST, "best split", SPLIT_COLOUR, false),
                value(ADAPTIVE, "adaptive", ADAPTIVE_COLOUR, false),
            ],
        }
    };
    let rows: Vec<Row> = cells.iter().map(row).collect();
    let values = rows.iter().flat_map(|row| &row.values);
    let ends = values.fold((0.5_f64, 1.1_f64), |(low, high), value| {
        (low.min(value.value), high.max(value.value))
    });
    let x = Quantity::log(
        "cost of an access over raw-only's",
        0.9 * ends.0,
        1.1 * ends.1,
    );
    let words = Words {
        id: "gains",
        title: "Cost of an access over that of the cache that compresses nothing",
        description: "One row for each cell, with a dot for the adaptive cache, one for the best fixed split, and a hollow one for the bound.",
    };
    let legend = [(ADAPTIVE_COLOUR, "adaptive"), (SPLIT_COLOUR, "best split")];
    chart::rows(&words, &x, &rows, (&legend, "bound"))
}

/// Draws the sweep of a core cell.
fn sweep(cell: &CellRecord) -> Option<Panel> {
    if !policies::is_core(cell) {
        return None;
    }
    let points = policies::family(cell);
    if cell.column(RACE, ADAPTIVE, LATE).is_empty() {
        return None;
    }
    let (raw, adaptive) = (
        cell.median(RACE, RAW, LATE),
        cell.median(RACE, ADAPTIVE, LATE),
    );
    let share = 100.0 * cell.median(RACE, ADAPTIVE, SHARE);
    let method = points.first().map_or(0.0, |row| row.values[METHOD]);
    let mut line = vec![(0.0, raw)];
    line.extend(
        points
            .iter()
            .map(|row| (100.0 * row.values[SHARE], row.values[LATE])),
    );
    let high = line.iter().map(|point| point.1).fold(adaptive, f64::max);
    let level = Series {
        name: "raw".to_string(),
        colour: GREY.to_string(),
        look: Look::Dashed,
        points: vec![(0.0, raw), (100.0, raw)],
        has_dots: false,
    };
    let swept = Series {
        name: if method > 0.0 { "zstd" } else { "lz4" }.to_string(),
        colour: SPLIT_COLOUR.to_string(),
        look: Look::Solid,
        points: line,
        has_dots: true,
    };
    Some(Panel {
        title: cell.cell.clone(),
        x: Quantity::linear("% of memory compressed", 0.0, 100.0),
        y: Quantity::linear("microseconds per access", 0.0, 1.1 * high),
        series: vec![level, swept],
        notes: vec![Note {
            at: (share, adaptive),
            colour: ADAPTIVE_COLOUR.to_string(),
            text: "adaptive".to_string(),
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn figures_are_drawn_from_the_records() {
        let folder = tempfile::tempdir().unwrap();
        assert!(policies(folder.path()).unwrap().is_empty());
        let name = super::super::cases::cases(false)[0].name();
        let cell = policies::tests::cell(
            &name,
            "data=real energy=none",
            [20.0, 11.0, 10.0, 9.5, 19.0, 9.6],
        );
        let record = Record::new(folder.path(), policies::RECORD, policies::COLUMNS);
        record.append(&cell).unwrap();
        let pictures = policies(folder.path()).unwrap();
        let names: Vec<&str> = pictures.iter().map(|of| of.name.as_str()).collect();
        assert_eq!(names, ["gains", "sweep"]);
        for picture in &pictures {
            let svg = &picture.svg;
            assert!(
                svg.contains("adaptive") && !svg.contains("NaN"),
                "{}",
                picture.name
            );
            assert!(svg.matches("<circle").count() >= 3, "{}", picture.name);
        }
        assert!(pictures[1].svg.contains("class=\"line"), "no sweep");
    }
}
