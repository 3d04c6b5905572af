//! A buffer cache: microseconds per access and hit ratio over the share of memory that holds
//! compressed buffers.
//!
//! Figures that do not depend on the sliders (hit ratios, work per buffer) are computed here once, for the pictures and
//! for the page's script. The script only weights them with the time of a miss.
//!
//! Source: Harper 2018, Figures 10 and 12, with the honest restoration of
//! [`breakeven::model::buffers`].

use breakeven::advise::report::{MethodReport, Report};
use breakeven::model::{Access, BufferCache, BufferCodec, Overheads, Placement, Rates};
use breakeven::units::Seconds;
use serde::Serialize;

use super::scene::{FRAME, Figure, Scene, end_names};
use crate::draw::mark::{self, Position};
use crate::draw::{Axis, Frame, Kind, Plot, Scale};
use crate::text::{self, figures, percent, size};

/// Bytes of a buffer.
const BUFFER_BYTES: u64 = 8192;
/// Steps into which the share of memory is cut.
const STEPS: usize = 100;

/// The script's input for drawing the times again.
#[derive(Clone, Debug, Serialize)]
pub struct Buffers {
    /// Hit ratio of the cache that compresses nothing.
    pub raw_hit_ratio: f64,
    /// Microseconds of a miss at the device's present speed.
    pub miss_us: f64,
    pub methods: Vec<BufferCurve>,
}

/// One method over the compressed share, in steps of a hundredth.
#[derive(Clone, Debug, Serialize)]
pub struct BufferCurve {
    pub method: String,
    pub colour: String,
    /// Compressing a victim in bulk.
    pub compress_us: f64,
    /// Restoring a buffer that was hit: its decompression on one thread and a victim's compression.
    pub restore_us: f64,
    pub hit_ratio: Vec<f64>,
    /// Share of accesses that restore a buffer where the hottest ones are kept raw.
    pub restored: Vec<f64>,
    /// The same where hits fall on any buffer.
    pub restored_blind: Vec<f64>,
}

/// Computes the curves; `None` where the advice had no cache because all data fits into memory.
pub fn buffers(scene: &Scene<'_>) -> Option<Buffers> {
    let report = scene.report;
    let all = report.classes.last()?;
    let terms = &report.terms;
    let access = text::access(&terms.access)?;
    let miss_us = report.medium.random_read_us.mean;
    let smaller = terms.memory_bytes >= 1 && terms.data_bytes > terms.memory_bytes;
    let possible = smaller && miss_us > 0.0 && miss_us.is_finite();
    if !possible {
        return None;
    }
    let methods: Vec<&MethodReport> = all
        .methods
        .iter()
        .filter(|method| method.block_bytes == BUFFER_BYTES && method.ratio.mean.is_finite())
        .filter(|method| method.ratio.mean > 0.0)
        .collect();
    let first = cache(report, methods.first()?, access);
    Some(Buffers {
        raw_hit_ratio: first.raw_hit_ratio(),
        miss_us,
        methods: methods
            .iter()
            .map(|method| curve(scene, method, access))
            .collect(),
    })
}

fn curve(scene: &Scene<'_>, method: &MethodReport, access: Access) -> BufferCurve {
    let hottest_raw = cache(scene.report, method, access);
    let blind = BufferCache {
        placement: Placement::Blind,
        ..hottest_raw
    };
    let over = |value: &dyn Fn(f64) -> f64| -> Vec<f64> {
        (0..=STEPS)
            .map(|step| value(step as f64 / STEPS as f64))
            .collect()
    };
    BufferCurve {
        method: method.method.clone(),
        colour: scene.colour(&method.method).to_string(),
        compress_us: hottest_raw.codec.compress_bulk.0 * 1e6,
        restore_us: hottest_raw.restoration().0 * 1e6,
        hit_ratio: over(&|share| hottest_raw.hit_ratio(share)),
        restored: over(&|share| hottest_raw.restored(share)),
        restored_blind: over(&|share| blind.restored(share)),
    }
}

fn cache(report: &Report, method: &MethodReport, access: Access) -> BufferCache {
    let terms = &report.terms;
    let threads = f64::from(terms.threads.max(1));
    let seconds = |work: &breakeven::advise::report::WorkReport, threads: f64| {
        let per_gigabyte = work.core_s_per_gb.mean / threads + work.device_s_per_gb;
        Seconds(per_gigabyte * BUFFER_BYTES as f64 / 1e9)
    };
    BufferCache {
        memory_bytes: terms.memory_bytes as f64,
        data_set_bytes: terms.data_bytes as f64,
        buffer_bytes: BUFFER_BYTES as f64,
        access,
        disk_read: Seconds(report.medium.random_read_us.mean * 1e-6),
        codec: BufferCodec {
            ratio: method.ratio.mean,
            compress_bulk: seconds(&method.compress_work, threads),
            decompress_bulk: seconds(&method.decompress_work, threads),
            compress_latency: seconds(&method.compress_work, 1.0),
            decompress_latency: seconds(&method.decompress_work, 1.0),
        },
        rates: Rates::default(),
        overheads: Overheads::default(),
        placement: Placement::HottestRaw,
    }
}

impl Buffers {
    /// Microseconds per access of the raw cache.
    fn raw_us(&self) -> f64 {
        self.miss_us * (1.0 - self.raw_hit_ratio)
    }
}

impl BufferCurve {
    /// Microseconds per access at a step, with misses of `miss_us`:
    /// restoration x restored + (miss + a victim compressed in vain) x misses.
    fn cost_us(&self, step: usize, restored: &[f64], miss_us: f64) -> f64 {
        self.restore_us * restored[step]
            + (miss_us + self.compress_us) * (1.0 - self.hit_ratio[step])
    }
}

const SIZES: Frame = Frame {
    right: 70.0,
    ..FRAME
};

fn share_axis() -> Axis {
    let scale = Scale::new(Kind::Linear, (0.0, 100.0), SIZES.across());
    Axis {
        title: "% of memory that holds compressed buffers".to_string(),
        scale,
        ticks: scale.ticks(5),
    }
}

/// Draws the times per access.
pub fn times(scene: &Scene<'_>, buffers: &Buffers) -> Figure {
    let plot = times_plot(buffers);
    let axes = plot.axes();
    let marks = axes + &time_lines(&plot, buffers);
    let live = mark::group("data-live=\"buffers\"", &marks);
    let empty = plot.bare();
    let terms = &scene.report.terms;
    Figure {
        id: "buffers",
        title: "A buffer cache by the model: time per access".to_string(),
        metric: None,
        caption: format!(
            "{} of memory before {} of data, all classes, accesses {}. Lines keep the hottest \
             buffers raw; the shade reaches up to a cache that places hits blindly. After Harper \
             2018, Figure 12.",
            size(terms.memory_bytes as f64),
            size(terms.data_bytes as f64),
            crate::draw::escape(&terms.access),
        ),
        svg: empty.svg(&live),
    }
}

fn times_plot(buffers: &Buffers) -> Plot {
    let most = buffers
        .methods
        .iter()
        .flat_map(|curve| {
            (0..=STEPS).map(|step| curve.cost_us(step, &curve.restored_blind, buffers.miss_us))
        })
        .fold(buffers.raw_us(), f64::max);
    let y = Scale::new(
        Kind::Linear,
        (0.0, 1.08 * most.min(2.0 * buffers.raw_us())),
        SIZES.up(),
    );
    Plot {
        id: "buffers".to_string(),
        title: "Microseconds per access over the compressed share".to_string(),
        description: "One line for each method, and one for a cache that compresses nothing."
            .to_string(),
        frame: SIZES,
        x: share_axis(),
        y: Axis {
            title: "microseconds per access".to_string(),
            scale: y,
            ticks: y.ticks(6),
        },
    }
}

fn time_lines(plot: &Plot, buffers: &Buffers) -> String {
    let (x, y) = (&plot.x.scale, &plot.y.scale);
    let points = |values: &dyn Fn(usize) -> f64| -> Vec<Position> {
        (0..=STEPS)
            .map(|step| (x.at(step as f64), y.at(values(step))))
            .collect()
    };
    let raw = points(&|_| buffers.raw_us());
    let mut out = mark::group("class=\"store-1\"", &mark::line(&raw, ""));
    let mut ends = vec![("raw".to_string(), "store-1", raw[STEPS].1)];
    for curve in &buffers.methods {
        let line = points(&|step| curve.cost_us(step, &curve.restored, buffers.miss_us));
        let blind = points(&|step| curve.cost_us(step, &curve.restored_blind, buffers.miss_us));
        let both = mark::area(&blind, &line, "") + &mark::line(&line, "");
        out.push_str(&group(curve, &both));
        ends.push((curve.method.clone(), &curve.colour, line[STEPS].1));
    }
    mark::group(&plot.clip(), &out) + &end_names(plot, &ends)
}

fn group(curve: &BufferCurve, marks: &str) -> String {
    let method = crate::draw::escape(&curve.method);
    mark::group(
        &format!("class=\"{}\" data-m=\"{method}\"", curve.colour),
        marks,
    )
}

/// Draws the hit ratios.
pub fn hit_ratios(buffers: &Buffers) -> Figure {
    // Lines may start above zero, since the picture is about the gain.
    let low = (10.0 * (10.0 * buffers.raw_hit_ratio - 1.0).floor()).max(0.0);
    let scale = Scale::new(Kind::Linear, (low, 100.0), SIZES.up());
    let plot = Plot {
        id: "hits".to_string(),
        title: "Hit ratio over the compressed share".to_string(),
        description: "One line for each method, and one for a cache that compresses nothing."
            .to_string(),
        frame: SIZES,
        x: share_axis(),
        y: Axis {
            title: "% of accesses that hit".to_string(),
            scale,
            ticks: scale.ticks(5),
        },
    };
    let points = |values: &dyn Fn(usize) -> f64| -> Vec<Position> {
        (0..=STEPS)
            .map(|step| (plot.x.scale.at(step as f64), scale.at(100.0 * values(step))))
            .collect()
    };
    let raw = points(&|_| buffers.raw_hit_ratio);
    let mut out = mark::group("class=\"store-1\"", &mark::line(&raw, ""));
    let mut ends = vec![("raw".to_string(), "store-1", raw[STEPS].1)];
    for curve in &buffers.methods {
        let line = points(&|step| curve.hit_ratio[step]);
        out.push_str(&group(curve, &mark::line(&line, "")));
        ends.push((curve.method.clone(), &curve.colour, line[STEPS].1));
    }
    let best = buffers
        .methods
        .iter()
        .max_by(|a, b| a.hit_ratio[STEPS].total_cmp(&b.hit_ratio[STEPS]));
    let caption = best.map_or(String::new(), |best| {
        format!(
            "Compressed buffers are smaller, so more of them stay: {} of the accesses hit without, \
             {} with all memory given to {} (ratio {}). After Harper 2018, Figure 10.",
            percent(buffers.raw_hit_ratio),
            percent(best.hit_ratio[STEPS]),
            crate::draw::escape(&best.method),
            figures(best.hit_ratio[STEPS] / buffers.raw_hit_ratio.max(1e-9)),
        )
    });
    let marks = mark::group(&plot.clip(), &out) + &end_names(&plot, &ends);
    Figure {
        id: "hits",
        title: "A buffer cache by the model: hit ratio".to_string(),
        metric: None,
        caption: caption.replace("(ratio", "(a factor of"),
        svg: plot.svg(&marks),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn the_cost_is_that_of_the_model() {
        let report = testing::report();
        let scene = Scene::new(&report);
        let buffers = buffers(&scene).expect("a cache");
        let all = report.classes.last().expect("all");
        let access = text::access(&report.terms.access).expect("a spread");
        for curve in &buffers.methods {
            let method = all
                .methods
                .iter()
                .find(|of| of.method == curve.method && of.block_bytes == BUFFER_BYTES);
            let model = cache(&report, method.expect("a method"), access);
            for step in [0, 1, 37, 100] {
                let found = curve.cost_us(step, &curve.restored, buffers.miss_us);
                let expected = model.cost(step as f64 / 100.0).0 * 1e6;
                assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
            }
        }
    }
}
