//! Pictures as SVG text: pure functions from numbers to strings.
//!
//! A [`Plot`] is a frame with two axes. Its contents are [`mark`]s at positions that the axes' [`Scale`]s give, and
//! labels that [`label`] keeps apart. Colours are the classes of [`palette`], defined in [`STYLE`] for a light and a
//! dark page. So a method looks the same everywhere. A picture inside a page takes the page's style; [`standalone`]
//! makes a file of it.
//!
//! Promises: text is escaped, no number in a picture is NaN or infinite, and the same input gives
//! the same bytes. Does not measure text: widths are estimated from the number of letters.

#![deny(unsafe_code)]

pub mod label;
pub mod mark;
pub mod palette;
pub mod plot;
pub mod scale;

pub use plot::{Axis, Frame, Plot, Tick};
pub use scale::{Kind, Scale};

/// The look of every picture: type, axes, and the colours of the methods.
pub const STYLE: &str = include_str!("style.css");

/// Returns a picture of [`Plot::svg`] as a file that stands alone, with its style inside.
pub fn standalone(picture: &str) -> String {
    let style = format!("><style>{STYLE}svg{{background:var(--halo)}}</style>");
    picture.replacen('>', &style, 1).replacen(
        "<svg ",
        "<svg xmlns=\"http://www.w3.org/2000/svg\" ",
        1,
    )
}

/// Makes text harmless inside an element or a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML has no way to write these.
            letter if letter.is_control() && !"\n\t".contains(letter) => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

/// A coordinate with one decimal, as short as possible; far out for a value that is not a number.
pub fn coordinate(value: f64) -> String {
    let value = if value.is_nan() { 0.0 } else { value };
    let text = format!("{:.1}", value.clamp(-99_999.0, 99_999.0));
    let text = text.strip_suffix(".0").unwrap_or(&text);
    match text {
        "-0" => "0".to_string(),
        text => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_harmless() {
        let check = |text: &str, expected: &str| assert_eq!(escape(text), expected);
        check("</text><script>", "&lt;/text&gt;&lt;script&gt;");
        check("a \"b\" 'c' & d", "a &quot;b&quot; &#39;c&#39; &amp; d");
        check("bell\u{7}", "bell\u{fffd}");
    }

    #[test]
    fn coordinates_are_short_and_finite() {
        let check = |value: f64, expected: &str| assert_eq!(coordinate(value), expected);
        check(12.0, "12");
        check(12.34, "12.3");
        check(-0.01, "0");
        check(f64::NAN, "0");
        check(f64::INFINITY, "99999");
    }

    #[test]
    fn every_class_of_the_palette_has_its_colours() {
        for family in palette::FAMILIES {
            for step in 1..=family.steps {
                let class = format!(".{}-{step}{{", family.name);
                assert_eq!(
                    STYLE.matches(&class).count(),
                    2,
                    "{class} for light and dark"
                );
            }
        }
    }
}
