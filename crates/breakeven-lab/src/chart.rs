//! Charts of papers: panels of lines side by side, and rows of dots.
//!
//! Ours is solid; published or computed lines are dashed or hollow. Colours are those of the methods everywhere.

use breakeven_cli::draw::label::{self, spread};
use breakeven_cli::draw::mark::{self, Anchor, Position};
use breakeven_cli::draw::{self, Axis, Frame, Kind, Plot, Scale, Tick};

/// The quantity of an axis.
#[derive(Clone, Debug)]
pub struct Quantity {
    pub title: String,
    pub kind: Kind,
    pub domain: (f64, f64),
    /// Named values; round ones where there are none.
    pub ticks: Vec<Tick>,
}

impl Quantity {
    pub fn linear(title: &str, low: f64, high: f64) -> Quantity {
        Quantity {
            title: title.to_string(),
            kind: Kind::Linear,
            domain: (low, high),
            ticks: Vec::new(),
        }
    }

    pub fn log(title: &str, low: f64, high: f64) -> Quantity {
        Quantity {
            kind: Kind::Log,
            ..Quantity::linear(title, low, high)
        }
    }

    /// Returns ratios as far as rows have them, and 1.
    pub fn ratios(title: &str, rows: &[Row]) -> Quantity {
        let values = rows.iter().flat_map(|row| &row.values).map(|it| it.value);
        let (low, high) = values.fold((1.0_f64, 1.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        Quantity::log(title, 0.9 * low, 1.1 * high)
    }

    /// Returns sizes of blocks in KiB, one tick for each.
    pub fn blocks(bytes: &[u64]) -> Quantity {
        let tick = |bytes: &u64| Tick {
            value: *bytes as f64,
            label: (bytes >> 10).to_string(),
        };
        let (low, high) = (bytes[0] as f64, bytes[bytes.len() - 1] as f64);
        Quantity {
            ticks: bytes.iter().map(tick).collect(),
            ..Quantity::log("KiB of a block", low, high)
        }
    }

    fn axis(&self, range: (f64, f64), count: usize) -> Axis {
        let scale = Scale::new(self.kind, self.domain, range);
        Axis {
            // The panel writes the titles of its axes itself.
            title: String::new(),
            scale,
            ticks: match self.ticks.is_empty() {
                true => scale.ticks(count),
                false => self.ticks.clone(),
            },
        }
    }
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Solid,
    Thin,
    Dashed,
}

/// A line with its name at the right end.
#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    /// A class of the palette.
    pub colour: String,
    pub look: Look,
    pub points: Vec<(f64, f64)>,
    /// Whether each point has a dot.
    pub has_dots: bool,
}

/// A hollow dot with a word beside it, or none.
#[derive(Clone, Debug)]
pub struct Note {
    pub at: (f64, f64),
    pub colour: String,
    pub text: String,
}

/// One plot among several.
#[derive(Clone, Debug)]
pub struct Panel {
    pub title: String,
    pub x: Quantity,
    pub y: Quantity,
    pub series: Vec<Series>,
    pub notes: Vec<Note>,
}

/// The words of a picture, for people who do not see it.
pub struct Words<'a> {
    pub id: &'a str,
    pub title: &'a str,
    pub description: &'a str,
}

/// Class of published figures, and of methods that compress nothing.
pub const GREY: &str = "store-1";

const PANEL_HEIGHT: f64 = 300.0;
const LEFT: f64 = 58.0;
const TOP: f64 = 46.0;
const BOTTOM: f64 = 48.0;

/// Draws panels in rows of `columns`, each `width` wide.
pub fn panels(words: &Words<'_>, panels: &[Panel], columns: usize, width: f64) -> String {
    let rows = panels.len().div_ceil(columns);
    let (whole, high) = (width * columns as f64, PANEL_HEIGHT * rows as f64);
    let mut marks = String::new();
    let mut first = None;
    for (index, panel) in panels.iter().enumerate() {
        let (row, column) = (index / columns, index % columns);
        let (x, y) = (column as f64 * width, row as f64 * PANEL_HEIGHT);
        let frame = Frame {
            width: whole,
            height: high,
            left: x + LEFT,
            right: whole - x - width + panel.room_for_names(),
            top: y + TOP,
            bottom: high - y - PANEL_HEIGHT + BOTTOM,
        };
        let plot = Plot {
            id: format!("{}-{index}", words.id),
            title: words.title.to_string(),
            description: words.description.to_string(),
            frame,
            x: panel.x.axis(frame.across(), 5),
            y: panel.y.axis(frame.up(), 5),
        };
        if index > 0 {
            marks.push_str(&plot.axes());
        }
        marks.push_str(&panel.marks(&plot));
        first.get_or_insert(plot);
    }
    first.map_or(String::new(), |plot| draw::standalone(&plot.svg(&marks)))
}

impl Panel {
    /// Returns the pixels that the names right of the lines take.
    fn room_for_names(&self) -> f64 {
        let names = self.series.iter().map(|series| label::width(&series.name));
        names.fold(12.0, f64::max) + 14.0
    }

    fn marks(&self, plot: &Plot) -> String {
        let ((left, right), (bottom, top)) = (plot.frame.across(), plot.frame.up());
        let mut out = mark::text(
            (left - LEFT + 8.0, top - 26.0),
            Anchor::Start,
            "label title",
            &self.title,
        );
        let under = (left - LEFT + 8.0, top - 10.0);
        out.push_str(&mark::text(under, Anchor::Start, "soft", &self.y.title));
        let below = ((left + right) / 2.0, bottom + 36.0);
        out.push_str(&mark::text(below, Anchor::Middle, "soft", &self.x.title));
        let at = |(x, y): &(f64, f64)| -> Position { (plot.x.scale.at(*x), plot.y.scale.at(*y)) };
        for series in &self.series {
            let points: Vec<Position> = series.points.iter().map(at).collect();
            out.push_str(&series.marks(&points));
        }
        out.push_str(&self.names(plot));
        for note in &self.notes {
            let (x, y) = at(&note.at);
            // Names of lines stand right of the frame, and other panels beyond.
            let has_room = x + 9.0 + label::width(&note.text) <= right;
            let (place, anchor) = match has_room {
                true => ((x + 9.0, y + 4.0), Anchor::Start),
                false => ((right, y - 10.0), Anchor::End),
            };
            let marks = mark::dot((x, y), 4.0, "hollow", &note.text)
                + &mark::text(place, anchor, "series halo", &note.text);
            out.push_str(&coloured(&note.colour, &marks));
        }
        out
    }

    /// Writes names at the right ends, apart from each other.
    fn names(&self, plot: &Plot) -> String {
        let ((_, right), (bottom, top)) = (plot.frame.across(), plot.frame.up());
        let named = self.series.iter().filter(|series| !series.name.is_empty());
        let named: Vec<(&Series, f64)> = named
            .filter_map(|series| Some((series, plot.y.scale.at(series.points.last()?.1))))
            .collect();
        let wanted: Vec<f64> = named.iter().map(|(_, y)| y + 4.0).collect();
        let placed = spread(&wanted, 14.0, top + 4.0, bottom + 4.0);
        let text = |((series, _), y): (&(&Series, f64), f64)| {
            let name = mark::text((right + 7.0, y), Anchor::Start, "series", &series.name);
            coloured(&series.colour, &name)
        };
        named.iter().zip(placed).map(text).collect()
    }
}

impl Series {
    fn marks(&self, points: &[Position]) -> String {
        let class = match self.look {
            Look::Solid => "",
            Look::Thin => "thin",
            Look::Dashed => "dashed",
        };
        let mut marks = mark::line(points, class);
        if self.has_dots {
            let (class, radius) = match self.look {
                Look::Dashed => ("hollow", 3.0),
                _ => ("", 3.5),
            };
            for (point, (_, value)) in points.iter().zip(&self.points) {
                let title = format!("{} {}", self.name, draw::scale::number(*value));
                marks.push_str(&mark::dot(*point, radius, class, &title));
            }
        }
        coloured(&self.colour, &marks)
    }
}

fn coloured(colour: &str, marks: &str) -> String {
    mark::group(&format!("class=\"{}\"", draw::escape(colour)), marks)
}

/// A value in a row.
#[derive(Clone, Debug)]
pub struct Value {
    pub value: f64,
    pub colour: String,
    /// Published and reckoned values are hollow.
    pub is_hollow: bool,
    pub title: String,
}

/// A row of dots with its name.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub values: Vec<Value>,
}

const ROW_HEIGHT: f64 = 25.0;

/// Draws rows of dots over one axis, with a legend of colours (class and name) and of hollow dots.
pub fn rows(
    words: &Words<'_>,
    x: &Quantity,
    rows: &[Row],
    (solid, hollow): (&[(&str, &str)], &str),
) -> String {
    const WIDTH: f64 = 720.0;
    let widest = rows.iter().map(|row| label::width(&row.name));
    let left = widest.fold(40.0, f64::max) + 18.0;
    let (mut marks, more) = key(solid, hollow, (left, 26.0), WIDTH);
    let top = TOP + more;
    let height = top + BOTTOM + ROW_HEIGHT * rows.len() as f64;
    let frame = Frame {
        width: WIDTH,
        height,
        left,
        right: 30.0,
        top,
        bottom: BOTTOM,
    };
    let y = Scale::new(
        Kind::Linear,
        (0.0, rows.len() as f64),
        (top, height - BOTTOM),
    );
    let plot = Plot {
        id: words.id.to_string(),
        title: words.title.to_string(),
        description: words.description.to_string(),
        frame,
        x: Axis {
            title: x.title.clone(),
            ..x.axis(frame.across(), 7)
        },
        y: Axis {
            title: String::new(),
            scale: y,
            ticks: Vec::new(),
        },
    };
    for (index, row) in rows.iter().enumerate() {
        let middle = y.at(index as f64 + 0.5);
        marks.push_str(&mark::rule((left, middle), (WIDTH - 30.0, middle), "grid"));
        let at = (left - 10.0, middle + 4.0);
        marks.push_str(&mark::text(at, Anchor::End, "label", &row.name));
        for value in &row.values {
            let (radius, class) = match value.is_hollow {
                true => (5.0, "hollow"),
                false => (6.0, ""),
            };
            let at = (plot.x.scale.at(value.value), middle);
            let dot = mark::dot(at, radius, class, &value.title);
            marks.push_str(&coloured(&value.colour, &dot));
        }
    }
    draw::standalone(&plot.svg(&marks))
}

/// Draws the meaning of the colours and the hollow dots, in lines up to `right`; returns the height of the lines after
/// the first.
fn key(solid: &[(&str, &str)], hollow: &str, (left, top): Position, right: f64) -> (String, f64) {
    let (mut out, mut x, mut y) = (String::new(), left, top);
    for (class, name) in solid.iter().chain(&[(GREY, hollow)]) {
        if x > left && x + 16.0 + label::width(name) > right {
            (x, y) = (left, y + 18.0);
        }
        let look = if *class == GREY { "hollow" } else { "" };
        let dot = mark::dot((x + 5.0, y - 4.0), 5.0, look, "");
        out.push_str(&coloured(class, &dot));
        out.push_str(&mark::text((x + 16.0, y), Anchor::Start, "label", name));
        x += 36.0 + label::width(name);
    }
    (out, y - top)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: Words<'static> = Words {
        id: "chart",
        title: "A <chart>",
        description: "of nothing",
    };

    fn panel(name: &str) -> Panel {
        Panel {
            title: name.to_string(),
            x: Quantity::blocks(&[4096, 8192]),
            y: Quantity::linear("ratio", 0.0, 4.0),
            series: vec![Series {
                name: "a & b".to_string(),
                colour: "zstd-3".to_string(),
                look: Look::Dashed,
                points: vec![(4096.0, 1.0), (8192.0, 3.0)],
                has_dots: true,
            }],
            notes: vec![Note {
                at: (4096.0, 2.0),
                colour: "lz4-2".to_string(),
                text: "21 %".to_string(),
            }],
        }
    }

    #[test]
    fn panels_stand_side_by_side() {
        let svg = panels(&WORDS, &[panel("left"), panel("right")], 2, 300.0);
        for (part, count) in [
            ("viewBox=\"0 0 600 300\"", 1),
            (">left</text>", 1),
            (">right</text>", 1),
            (">8</text>", 2),
            (">a &amp; b</text>", 2),
            ("class=\"line dashed\"", 2),
            ("class=\"dot hollow\"", 6),
            (">21 %</text>", 2),
        ] {
            assert_eq!(svg.matches(part).count(), count, "{part} in {svg}");
        }
        let stacked = panels(&WORDS, &[panel("a"), panel("b"), panel("c")], 2, 300.0);
        assert!(stacked.contains("viewBox=\"0 0 600 600\""));
        assert_eq!(panels(&WORDS, &[], 2, 300.0), "");
    }

    #[test]
    fn rows_have_their_dots() {
        let value = |value: f64, is_hollow: bool| Value {
            value,
            colour: "lz4-2".to_string(),
            is_hollow,
            title: "<t>".to_string(),
        };
        let row = Row {
            name: "a row".to_string(),
            values: vec![value(1.0, false), value(2.0, true)],
        };
        let x = Quantity::log("us", 0.5, 100.0);
        let svg = rows(
            &WORDS,
            &x,
            &[row.clone(), row],
            (&[("lz4-2", "lz4")], "published"),
        );
        // Two rows of two, and one of each in the legend.
        assert_eq!(svg.matches("<circle").count(), 6);
        assert_eq!(svg.matches("dot hollow").count(), 3);
        assert!(svg.contains("&lt;t&gt;") && svg.contains(">a row</text>"));
    }
}
