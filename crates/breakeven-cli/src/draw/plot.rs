//! A frame with two axes, into which marks are put.

use std::fmt::Write;

use super::mark::{self, Anchor};
use super::{Scale, coordinate, escape};

/// A value that an axis names.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    pub value: f64,
    pub label: String,
}

/// The size of a picture and the margins around the plotted part, in pixels at natural size.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub width: f64,
    pub height: f64,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

impl Frame {
    /// Returns the positions of the left and the right end of the x axis.
    pub fn across(&self) -> (f64, f64) {
        (self.left, self.width - self.right)
    }

    /// Returns the positions of the lower and the upper end of the y axis.
    pub fn up(&self) -> (f64, f64) {
        (self.height - self.bottom, self.top)
    }
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The counted quantity, with its unit.
    pub title: String,
    pub scale: Scale,
    pub ticks: Vec<Tick>,
}

/// A picture without its marks.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Unique in the page: letters, digits and `-`.
    pub id: String,
    /// The text for a reader who does not see the picture.
    pub title: String,
    pub description: String,
    pub frame: Frame,
    pub x: Axis,
    pub y: Axis,
}

impl Plot {
    /// Draws the picture with `marks` inside; marks may be clipped to the plotted part with the
    /// attribute of [`Plot::clip`].
    pub fn svg(&self, marks: &str) -> String {
        let Frame { width, height, .. } = self.frame;
        let (id, title, description) = (&self.id, escape(&self.title), escape(&self.description));
        format!(
            "<svg class=\"plot\" id=\"{id}\" viewBox=\"0 0 {} {}\" role=\"img\" \
             aria-labelledby=\"{id}-title {id}-desc\"><title id=\"{id}-title\">{title}</title>\
             <desc id=\"{id}-desc\">{description}</desc>{}{}{marks}</svg>
",
            coordinate(width),
            coordinate(height),
            self.clip_path(),
            self.axes(),
        )
    }

    /// Returns the plot without ticks and titles, for a picture whose axes are among its marks.
    pub fn bare(mut self) -> Plot {
        for axis in [&mut self.x, &mut self.y] {
            axis.title.clear();
            axis.ticks.clear();
        }
        self
    }

    /// Draws the two axes alone, for a picture that has several.
    pub fn axes(&self) -> String {
        self.across() + &self.up()
    }

    /// Returns the attribute that clips a group to the plotted part.
    pub fn clip(&self) -> String {
        format!("clip-path=\"url(#{}-clip)\"", self.id)
    }

    fn clip_path(&self) -> String {
        let ((left, right), (bottom, top)) = (self.frame.across(), self.frame.up());
        format!(
            "<clipPath id=\"{}-clip\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>",
            self.id,
            coordinate(left),
            coordinate(top),
            coordinate(right - left),
            coordinate(bottom - top)
        )
    }

    fn across(&self) -> String {
        let ((left, right), (bottom, top)) = (self.frame.across(), self.frame.up());
        let mut out = String::new();
        for tick in &self.x.ticks {
            let x = self.x.scale.at(tick.value);
            let _ = write!(
                out,
                "{}{}",
                mark::rule((x, top), (x, bottom), "grid"),
                mark::text((x, bottom + 17.0), Anchor::Middle, "tick", &tick.label)
            );
        }
        out.push_str(&mark::rule((left, bottom), (right, bottom), "axis"));
        let middle = ((left + right) / 2.0, bottom + 36.0);
        mark::group("class=\"x\"", &out) + &title(middle, Anchor::Middle, &self.x.title)
    }

    /// The title lies above the axis: turned text is hard to read.
    fn up(&self) -> String {
        let ((left, right), (_, top)) = (self.frame.across(), self.frame.up());
        let mut out = String::new();
        for tick in &self.y.ticks {
            let y = self.y.scale.at(tick.value);
            let _ = write!(
                out,
                "{}{}",
                mark::rule((left, y), (right, y), "grid"),
                mark::text((left - 7.0, y + 4.0), Anchor::End, "tick", &tick.label)
            );
        }
        let above = (6.0, top - 14.0);
        mark::group("class=\"y\"", &out) + &title(above, Anchor::Start, &self.y.title)
    }
}

fn title(at: mark::Position, anchor: Anchor, text: &str) -> String {
    match text {
        "" => String::new(),
        text => mark::text(at, anchor, "title", text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Kind, standalone};

    fn plot() -> Plot {
        let frame = Frame {
            width: 200.0,
            height: 100.0,
            left: 40.0,
            right: 10.0,
            top: 20.0,
            bottom: 30.0,
        };
        let axis = |title: &str, range| {
            let scale = Scale::new(Kind::Linear, (0.0, 10.0), range);
            Axis {
                title: title.to_string(),
                scale,
                ticks: scale.ticks(5),
            }
        };
        Plot {
            id: "p".to_string(),
            title: "A <picture>".to_string(),
            description: "of \"nothing\"".to_string(),
            frame,
            x: axis("MB/s", frame.across()),
            y: axis("ratio", frame.up()),
        }
    }

    #[test]
    fn a_plot_has_axes_a_title_and_its_marks() {
        let svg = plot().svg("<circle/>");
        for (part, count) in [
            ("<circle/>", 1),
            ("A &lt;picture&gt;", 1),
            ("class=\"grid\"", 12),
            (">10</text>", 2),
            (">MB/s</text>", 1),
            ("clipPath id=\"p-clip\"", 1),
        ] {
            assert_eq!(svg.matches(part).count(), count, "{part} in {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        // The ends of the axes are the corners of the frame.
        assert!(svg.contains("x1=\"40\" y1=\"70\" x2=\"190\" y2=\"70\""));
    }

    #[test]
    fn a_file_has_its_style_and_a_name_space() {
        let file = standalone(&plot().svg(""));
        assert!(
            file.starts_with("<svg xmlns=") && file.contains("\"><style>"),
            "{file}"
        );
        assert_eq!(file.matches("<svg").count(), 1);
        assert!(!plot().svg("").contains("<style>"));
    }
}
