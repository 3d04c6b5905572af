//! Marks: lines, areas, dots, rectangles and text at given positions.

use std::fmt::Write;

use super::{coordinate, escape};

/// A position in a picture, x to the right and y down.
pub type Position = (f64, f64);

/// A rectangle in a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rectangle {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// The side of its position on which a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    /// Returns the word of SVG for it.
    pub fn name(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

/// Returns the path through `points`, as the `d` of a path.
pub fn path(points: &[Position]) -> String {
    let mut out = String::with_capacity(12 * points.len());
    for (index, (x, y)) in points.iter().enumerate() {
        let command = if index == 0 { 'M' } else { 'L' };
        let _ = write!(out, "{command}{} {}", coordinate(*x), coordinate(*y));
    }
    out
}

/// A line through `points`. `class` names its colour and shape.
pub fn line(points: &[Position], class: &str) -> String {
    format!(
        "<path class=\"line {}\" d=\"{}\"/>",
        escape(class),
        path(points)
    )
}

/// The area between two lines that run side by side.
pub fn area(upper: &[Position], lower: &[Position], class: &str) -> String {
    let around: Vec<Position> = upper.iter().chain(lower.iter().rev()).copied().collect();
    format!(
        "<path class=\"area {}\" d=\"{}Z\"/>",
        escape(class),
        path(&around)
    )
}

/// A dot whose `title` shows when it is pointed at.
pub fn dot((x, y): Position, radius: f64, class: &str, title: &str) -> String {
    let title = match title {
        "" => String::new(),
        title => format!("<title>{}</title>", escape(title)),
    };
    format!(
        "<circle class=\"dot {}\" cx=\"{}\" cy=\"{}\" r=\"{}\">{title}</circle>",
        escape(class),
        coordinate(x),
        coordinate(y),
        coordinate(radius)
    )
}

/// Text at a position, its baseline there.
pub fn text((x, y): Position, anchor: Anchor, class: &str, text: &str) -> String {
    format!(
        "<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>",
        escape(class),
        coordinate(x),
        coordinate(y),
        anchor.name(),
        escape(text)
    )
}

/// Many rectangles of one colour as one path.
pub fn rectangles(rectangles: &[Rectangle], class: &str) -> String {
    let mut d = String::with_capacity(24 * rectangles.len());
    for part in rectangles {
        let _ = write!(
            d,
            "M{} {}h{}v{}h{}z",
            coordinate(part.x),
            coordinate(part.y),
            coordinate(part.width),
            coordinate(part.height),
            coordinate(-part.width)
        );
    }
    format!("<path class=\"region {}\" d=\"{d}\"/>", escape(class))
}

/// A straight line across a picture.
pub fn rule((x1, y1): Position, (x2, y2): Position, class: &str) -> String {
    format!(
        "<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
        escape(class),
        coordinate(x1),
        coordinate(y1),
        coordinate(x2),
        coordinate(y2)
    )
}

/// A group of marks; `attributes` are written unescaped.
pub fn group(attributes: &str, marks: &str) -> String {
    format!("<g {attributes}>{marks}</g>")
}

/// A legend: swatches with their names, from left to right in lines of at most `width`, the first
/// line at `y`. `items` are colour classes and names. Returns it with its height.
pub fn legend(items: &[(&str, &str)], (left, top): Position, width: f64) -> (String, f64) {
    const LINE: f64 = 18.0;
    let (mut out, mut x, mut y) = (String::new(), left, top);
    for (class, name) in items {
        let wide = 26.0 + super::label::width(name);
        if x > left && x + wide > left + width {
            (x, y) = (left, y + LINE);
        }
        let swatch = Rectangle {
            x,
            y: y - 9.0,
            width: 11.0,
            height: 11.0,
        };
        out.push_str(&rectangles(&[swatch], class));
        out.push_str(&text((x + 16.0, y), Anchor::Start, "label", name));
        x += wide;
    }
    let lines = if items.is_empty() {
        0.0
    } else {
        y - top + LINE
    };
    (group("class=\"legend\"", &out), lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_elements() {
        let check = |found: String, expected: &str| assert_eq!(found, expected);
        check(
            line(&[(0.0, 1.0), (2.5, 3.0)], "a"),
            r#"<path class="line a" d="M0 1L2.5 3"/>"#,
        );
        check(
            area(&[(0.0, 1.0), (2.0, 1.0)], &[(0.0, 3.0), (2.0, 4.0)], "a"),
            r#"<path class="area a" d="M0 1L2 1L2 4L0 3Z"/>"#,
        );
        check(
            dot((1.0, 2.0), 3.0, "a", "<b>"),
            r#"<circle class="dot a" cx="1" cy="2" r="3"><title>&lt;b&gt;</title></circle>"#,
        );
        check(
            text((1.0, 2.0), Anchor::End, "label", "\"x\""),
            r#"<text class="label" x="1" y="2" text-anchor="end">&quot;x&quot;</text>"#,
        );
        let part = Rectangle {
            x: 1.0,
            y: 2.0,
            width: 3.0,
            height: 4.0,
        };
        check(
            rectangles(&[part], "a"),
            r#"<path class="region a" d="M1 2h3v4h-3z"/>"#,
        );
    }

    #[test]
    fn a_legend_breaks_its_lines() {
        let items = [("a", "first"), ("b", "second"), ("c", "third")];
        let (wide, height) = legend(&items, (0.0, 10.0), 500.0);
        assert_eq!((wide.matches("<text").count(), height), (3, 18.0));
        let (_, height) = legend(&items, (0.0, 10.0), 60.0);
        assert_eq!(height, 54.0);
    }
}
