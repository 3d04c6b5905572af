//! The server beside memcached in one picture: how many items, and how fast, from all three records.

use std::path::Path;

use anyhow::Result;

use super::{items, speed};
use crate::chart::{self, GREY, Quantity, Row, Value, Words};
use crate::experiment::Picture;
use crate::laboratory::Finding;

const ITEMS: &str = "zstd-4";
const SPEED: &str = "other-2";

/// Draws the records of both.
pub fn beside(records: &Path) -> Result<Vec<Picture>> {
    let row = |name: String, colour: &str, what: &str, finding: &Finding| {
        let value = finding.found.middle;
        let dot = |value: f64, colour: &str, is_hollow: bool, title: String| Value {
            value,
            colour: colour.to_string(),
            is_hollow,
            title,
        };
        let memcached = dot(1.0, GREY, true, "memcached".to_string());
        let ours = dot(value, colour, false, format!("{value:.2} times {what}"));
        value.is_finite().then(|| Row {
            name,
            values: vec![memcached, ours],
        })
    };
    let held = items::recorded(records)?;
    let held = held.iter().filter_map(|finding| {
        let name = format!("items: {}", finding.question);
        row(
            name,
            ITEMS,
            "memcached's items in the same resident memory",
            finding,
        )
    });
    let fast = speed::recorded(records)?;
    let fast = fast.iter().filter_map(|(kind, finding)| {
        let cell = finding.question.strip_suffix(" keys")?;
        row(
            format!("{kind}: {cell}"),
            SPEED,
            "memcached's keys a second",
            finding,
        )
    });
    let rows: Vec<Row> = held.chain(fast).collect();
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let words = Words {
        id: "beside",
        title: "breakeven serve beside memcached",
        description: "One row for each load: items in the same resident memory, and keys a second, over memcached's.",
    };
    let x = Quantity::ratios("times memcached", &rows);
    let legend = [
        (ITEMS, "items in the same memory"),
        (SPEED, "keys a second"),
    ];
    let svg = chart::rows(&words, &x, &rows, (&legend, "memcached"));
    Ok(vec![Picture {
        name: "beside".to_string(),
        caption: "Items in the same resident memory, and keys a second, over memcached's; left of 1 memcached has more.".to_string(),
        svg,
    }])
}
