//! The ratio over the block size.
//!
//! Source: the kind of picture is Harper 2018, Figure 7.

use breakeven::advise::report::{ClassReport, MethodReport};

use super::scene::{FRAME, Figure, Scene, of_method, ratio_scale};
use crate::draw::label::spread;
use crate::draw::mark::{self, Anchor, Position};
use crate::draw::{Axis, Frame, Kind, Plot, Scale, Tick};
use crate::text::{binary_size, figures};

const SIZES: Frame = Frame {
    right: 76.0,
    ..FRAME
};

/// Draws the picture.
pub fn figure(scene: &Scene<'_>) -> Figure {
    let empty = plot(scene, None);
    let marks = scene.for_each_class(|class| {
        let plot = plot(scene, Some(class));
        plot.axes() + &lines(scene, &plot, class)
    });
    Figure {
        id: "blocks",
        title: "Ratio by block size".to_string(),
        metric: None,
        caption:
            "Larger blocks give a method more to find. Pages and buffers are small, files and \
                  links are not; methods with one dot were measured on files' blocks only."
                .to_string(),
        svg: empty.svg(&marks),
    }
}

fn plot(scene: &Scene<'_>, class: Option<&ClassReport>) -> Plot {
    let mut sizes: Vec<u64> = scene
        .report
        .classes
        .iter()
        .flat_map(|class| &class.methods)
        .map(|method| method.block_bytes)
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    let low = sizes.first().copied().unwrap_or(4096).max(1) as f64;
    let high = sizes.last().copied().unwrap_or(1 << 20) as f64;
    let x = Scale::new(Kind::Log, (low / 1.3, high * 1.3), SIZES.across());
    let ratios = class
        .into_iter()
        .flat_map(|class| &class.methods)
        .map(|method| method.ratio.mean);
    let y = ratio_scale(ratios, SIZES.up());
    let tick = |bytes: &u64| Tick {
        value: *bytes as f64,
        label: binary_size(*bytes),
    };
    let words = |text: &str| class.map_or(String::new(), |_| text.to_string());
    Plot {
        id: "blocks".to_string(),
        title: "Ratio over block size".to_string(),
        description: "One line for each method that was measured at several block sizes."
            .to_string(),
        frame: SIZES,
        x: Axis {
            title: words("block size"),
            scale: x,
            ticks: class.map_or(Vec::new(), |_| sizes.iter().map(tick).collect()),
        },
        y: Axis {
            title: words("ratio, raw over stored"),
            scale: y,
            ticks: class.map_or(Vec::new(), |_| y.ticks(6)),
        },
    }
}

fn lines(scene: &Scene<'_>, plot: &Plot, class: &ClassReport) -> String {
    let mut names: Vec<&str> = Vec::new();
    for method in &class.methods {
        if !names.contains(&method.method.as_str()) && method.method != "store" {
            names.push(&method.method);
        }
    }
    let at = |method: &MethodReport| -> Position {
        (
            plot.x.scale.at(method.block_bytes as f64),
            plot.y.scale.at(method.ratio.mean),
        )
    };
    let (mut out, mut ends) = (String::new(), Vec::new());
    for name in names {
        let mut methods: Vec<&MethodReport> = class
            .methods
            .iter()
            .filter(|of| of.method == name)
            .collect();
        methods.sort_by_key(|method| method.block_bytes);
        let Some(last) = methods.last() else {
            continue;
        };
        let points: Vec<Position> = methods.iter().map(|method| at(method)).collect();
        let mut marks = mark::line(&points, "");
        for method in &methods {
            let title = format!(
                "{name} at {}: ratio {}",
                binary_size(method.block_bytes),
                figures(method.ratio.mean)
            );
            marks.push_str(&mark::dot(at(method), 4.5, "", &title));
        }
        let colour = format!("class=\"{}\" {}", scene.colour(name), of_method(last));
        out.push_str(&mark::group(&colour, &marks));
        ends.push((name, colour, at(last)));
    }
    let ((_, right), (bottom, top)) = (plot.frame.across(), plot.frame.up());
    let wanted: Vec<f64> = ends.iter().map(|(_, _, (_, y))| y + 4.0).collect();
    let placed = spread(&wanted, 14.0, top + 4.0, bottom + 4.0);
    for ((name, colour, _), y) in ends.iter().zip(placed) {
        let text = mark::text((right + 6.0, y), Anchor::Start, "series", name);
        out.push_str(&mark::group(colour, &text));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn every_measured_size_has_its_dot() {
        let report = testing::report();
        let svg = figure(&Scene::new(&report)).svg;
        let cells: usize = report.classes.iter().map(|class| class.methods.len()).sum();
        assert_eq!(svg.matches("<circle").count(), cells);
        for size in ["4 KiB", "8 KiB", "16 KiB", "1 MiB"] {
            assert!(svg.contains(&format!(">{size}</text>")), "{size}");
        }
    }
}
