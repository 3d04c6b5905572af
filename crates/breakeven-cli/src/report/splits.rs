//! A buffer cache as its own simulation foresees it: time per access over the share of memory that
//! holds compressed buffers.

use breakeven::advise::report::{BestSplitReport, CacheReport, SplitReport};

use super::scene::{FRAME, Figure, Scene, end_names};
use crate::draw::mark::{self, Position};
use crate::draw::{Axis, Frame, Kind, Plot, Scale, escape};
use crate::text::{figures, memory_size, percent, split};

const SIZES: Frame = Frame {
    right: 112.0,
    ..FRAME
};

/// Draws the picture; none where no cache was asked about.
pub fn figure(scene: &Scene<'_>) -> Option<Figure> {
    let cache = scene.report.cache.as_ref()?;
    let most = cache
        .splits
        .iter()
        .map(|split| split.cost_ratio.high)
        .filter(|ratio| ratio.is_finite())
        .fold(1.0, f64::max);
    let x = Scale::new(Kind::Linear, (0.0, 100.0), SIZES.across());
    let y = Scale::new(Kind::Linear, (0.0, 108.0 * most.min(2.0)), SIZES.up());
    let axis = |title: &str, scale: Scale| Axis {
        title: title.to_string(),
        scale,
        ticks: scale.ticks(5),
    };
    let plot = Plot {
        id: "splits".to_string(),
        title: "Time per access over the compressed share, simulated".to_string(),
        description: "One line with its band for each method, and one for a cache that compresses \
                      nothing."
            .to_string(),
        frame: SIZES,
        x: axis("% of memory that holds compressed buffers", x),
        y: axis("% of the time of raw only", y),
    };
    Some(Figure {
        id: "splits",
        title: "A buffer cache, simulated".to_string(),
        metric: None,
        caption: caption(cache),
        svg: plot.svg(&lines(scene, &plot, cache)),
    })
}

fn caption(cache: &CacheReport) -> String {
    let best = best_in_time(cache).map_or(String::new(), |best| {
        format!(" Best: {}.", escape(&split(best)))
    });
    format!(
        "The cache's own rules on {} simulated accesses ({}), {} of memory before {} of data, {} of them \
         hit raw. Dashed lines compress, once the share is full, only what was asked for again; the band of the \
         best one is that of ratios, codecs, misses and the simulation. The model beside it hits more: it holds the hottest \
         buffers from the start, where these rules have to find them out.{best}",
        figures(cache.accesses as f64),
        escape(&cache.access),
        memory_size(cache.memory_bytes),
        memory_size(cache.data_bytes),
        percent(cache.raw_hit_ratio),
    )
}

fn lines(scene: &Scene<'_>, plot: &Plot, cache: &CacheReport) -> String {
    let (x, y) = (&plot.x.scale, &plot.y.scale);
    let (left, right) = plot.frame.across();
    let level = y.at(100.0);
    let start = (left, level);
    let raw = mark::line(&[start, (right, level)], "thin");
    let mut marks = mark::group("class=\"store-1\"", &raw);
    let best = best_in_time(cache);
    let mut ends = vec![("raw only".to_string(), "store-1", level)];
    for (method, again) in methods(cache) {
        let of = |split: &&SplitReport| split.method == method && split.again == again;
        let splits = || cache.splits.iter().filter(of);
        let through = |value: &dyn Fn(&SplitReport) -> f64| -> Vec<Position> {
            let at = |split: &SplitReport| {
                (
                    x.at(100.0 * split.compressed_share),
                    y.at(100.0 * value(split)),
                )
            };
            std::iter::once(start).chain(splits().map(at)).collect()
        };
        let line = through(&|split| split.cost_ratio.mean);
        let high = through(&|split| split.cost_ratio.high);
        let low = through(&|split| split.cost_ratio.low);
        let shape = if again { "dashed" } else { "" };
        let is_best = best.is_some_and(|best| best.method == method && best.again == again);
        let band = match is_best {
            true => mark::area(&high, &low, ""),
            false => String::new(),
        };
        let both = band + &mark::line(&line, shape);
        let colour = scene.colour(method);
        marks.push_str(&mark::group(&format!("class=\"{colour}\""), &both));
        let name = format!("{method}{}", if again { " again" } else { "" });
        ends.push((name, colour, line.last().map_or(level, |(_, y)| *y)));
    }
    mark::group(&plot.clip(), &marks) + &end_names(plot, &ends)
}

fn best_in_time(cache: &CacheReport) -> Option<&BestSplitReport> {
    cache.best.iter().find(|best| best.metric == "time")
}

/// The lines of the picture: each method, with both rules of admission.
fn methods(cache: &CacheReport) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    for split in &cache.splits {
        let line = (split.method.as_str(), split.again);
        if !found.contains(&line) {
            found.push(line);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use breakeven::units::Estimate;

    use super::super::testing;
    use super::*;

    fn cache() -> CacheReport {
        let mut splits = Vec::new();
        for method in ["lz4:1", "zstd:1"] {
            for again in [false, true] {
                splits.extend([0.25, 0.5, 0.95].map(|compressed_share| SplitReport {
                    method: method.to_string(),
                    compressed_share,
                    again,
                    hit_ratio: 0.8,
                    restored: 0.2,
                    compressed: 0.1,
                    us_per_access: 12.0,
                    cost_ratio: Estimate::plus_minus(1.0 - compressed_share / 2.0, 0.05),
                }));
            }
        }
        CacheReport {
            memory_bytes: 1 << 30,
            data_bytes: 4 << 30,
            buffer_bytes: 8192,
            access: "<b>".to_string(),
            accesses: 100_000,
            miss_us: Estimate::exact(73.0),
            raw_hit_ratio: 0.7,
            raw_us_per_access: 20.0,
            best: vec![BestSplitReport {
                metric: "time".to_string(),
                answer: "pays".to_string(),
                method: "zstd:1".to_string(),
                compressed_share: 0.95,
                again: true,
                hit_ratio: 0.8,
                restored: 0.2,
                cost_ratio: Estimate::plus_minus(0.525, 0.05),
            }],
            splits,
        }
    }

    #[test]
    fn every_method_has_its_line_and_the_best_its_band() {
        let mut report = testing::report();
        assert!(figure(&Scene::new(&report)).is_none());
        report.cache = Some(cache());
        let figure = figure(&Scene::new(&report)).expect("a cache");
        assert_eq!(figure.svg.matches("class=\"area ").count(), 1);
        assert_eq!(figure.svg.matches("class=\"line ").count(), 5);
        assert_eq!(figure.svg.matches("line dashed").count(), 2);
        assert!(figure.caption.contains("&lt;b&gt;") && !figure.svg.contains("NaN"));
    }
}
