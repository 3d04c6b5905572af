//! The best method over the device's speed and the reads per write.

use breakeven::advise::report::{ClassReport, MethodReport};
use breakeven::bisection::bisect;
use breakeven::medium::{Direction, Medium, Operation, Pattern};

use super::model::{Metric, Model};
use super::scene::{FRAME, Figure, Scene};
use crate::draw::label::width;
use crate::draw::mark::{self, Anchor, Position};
use crate::draw::{Axis, Frame, Kind, Plot, Scale, coordinate, escape};

/// Columns of the map, and steps of a column; a winner between two steps can be missed.
const COLUMNS: usize = 160;
const ROWS: usize = 60;
/// Cells in which a place for a label is sought: a label is two cells wide and two high.
const CELLS: (usize, usize) = (16, 32);

/// Devices for orientation, with the words for them.
const DEVICES: [(&str, &str); 3] = [("hdd", "HDD"), ("sata-ssd", "SATA SSD"), ("nvme", "NVMe")];

/// A stretch of a column that one method wins: shares of the height, from below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    pub from: f64,
    pub to: f64,
    /// The index of the method; `None` is storing raw.
    pub winner: Option<usize>,
}

/// Draws the map in the page's metric, for all data; the page draws it again for the chosen class.
pub fn figure(scene: &Scene<'_>) -> Figure {
    let plot = plot(scene);
    let marks = match scene.report.classes.get(scene.first_class()) {
        Some(class) => map(scene, &plot, class, scene.metric),
        None => String::new(),
    };
    let live = mark::group("data-live=\"map\"", &marks);
    Figure {
        id: "map",
        title: "Who wins where".to_string(),
        metric: Some(scene.metric),
        caption:
            "The best method for each speed of the device and each number of reads per write. \
                  The ring is the present setting; move it with the sliders."
                .to_string(),
        svg: plot.svg(&(live + &devices(&plot.x.scale))),
    }
}

fn plot(scene: &Scene<'_>) -> Plot {
    let speed = scene.report.medium.write_mb_s.mean;
    let frame = Frame { top: 46.0, ..FRAME };
    let x = Scale::new(
        Kind::Log,
        ((speed / 3.0).min(10.0), (speed * 3.0).max(30_000.0)),
        frame.across(),
    );
    let y = Scale::new(Kind::Log, (0.01, 1000.0), frame.up());
    let axis = |title: &str, scale: Scale| Axis {
        title: title.to_string(),
        scale,
        ticks: scale.ticks(6),
    };
    Plot {
        id: "map".to_string(),
        title: "Winner map".to_string(),
        description: "Regions of device speed and reads per write, each with the method that is \
                      best there."
            .to_string(),
        frame,
        x: axis("MB/s that the device writes (its reads scale along)", x),
        y: axis("reads per write", y),
    }
}

/// Names of common devices above the map.
fn devices(x: &Scale) -> String {
    let mut out = String::new();
    for (name, word) in DEVICES {
        let Ok(medium) = name.parse::<Medium>() else {
            continue;
        };
        let stream = Operation {
            bytes: 1 << 20,
            pattern: Pattern::Sequential,
            direction: Direction::Write,
            depth: 4,
        };
        let at = x.at(medium.bytes_per_second(stream).mean / 1e6);
        out.push_str(&mark::text((at, 36.0), Anchor::Middle, "tick", word));
        out.push_str(&mark::rule((at, 40.0), (at, 46.0), "axis"));
    }
    out
}

fn map(scene: &Scene<'_>, plot: &Plot, class: &ClassReport, metric: Metric) -> String {
    let methods = scene.model.methods(class);
    let columns = columns(&scene.model, &plot.x.scale, &methods, metric);
    let mut out = String::new();
    for winner in std::iter::once(None).chain((0..methods.len()).map(Some)) {
        let d = region(plot, &columns, winner);
        if d.is_empty() {
            continue;
        }
        let name = winner.map_or("store", |index| methods[index].method.as_str());
        let (name, colour) = (escape(name), scene.colour(name));
        let marks = format!("<title>{name}</title><path class=\"region {colour}\" d=\"{d}\"/>");
        out.push_str(&mark::group(&format!("data-m=\"{name}\""), &marks));
    }
    out + &names(plot, &columns, &methods) + &here(scene, plot)
}

/// The outline of the region that one method wins. Neighbouring columns with the same winners in the same order make
/// one piece, its edges drawn from column to column.
fn region(plot: &Plot, columns: &[Vec<Run>], winner: Option<usize>) -> String {
    let ((left, right), (bottom, top)) = (plot.frame.across(), plot.frame.up());
    let wide = (right - left) / COLUMNS as f64;
    let y = |share: f64| bottom - share * (bottom - top);
    let alike = |a: &Vec<Run>, b: &Vec<Run>| {
        a.iter()
            .map(|run| run.winner)
            .eq(b.iter().map(|run| run.winner))
    };
    let mut d = String::new();
    let mut first = 0;
    for piece in columns.chunk_by(alike) {
        for run in (0..piece[0].len()).filter(|run| piece[0][*run].winner == winner) {
            let edge = |value: &dyn Fn(&Run) -> f64| -> Vec<Position> {
                let middle = |index: usize| left + wide * ((first + index) as f64 + 0.5);
                let mut points: Vec<Position> = piece
                    .iter()
                    .enumerate()
                    .map(|(index, column)| (middle(index), y(value(&column[run]))))
                    .collect();
                let (start, end) = (points[0].1, points[points.len() - 1].1);
                points.insert(0, (left + wide * first as f64, start));
                points.push((left + wide * (first + piece.len()) as f64, end));
                points
            };
            let mut outline = edge(&|run| run.to);
            outline.extend(edge(&|run| run.from).into_iter().rev());
            d.push_str(&mark::path(&outline));
            d.push('Z');
        }
        first += piece.len();
    }
    d
}

/// Returns the winners, column by column from the left.
fn columns(
    model: &Model<'_>,
    x: &Scale,
    methods: &[&MethodReport],
    metric: Metric,
) -> Vec<Vec<Run>> {
    let y = Scale::new(Kind::Log, (0.01, 1000.0), (0.0, 1.0));
    let column = |index: usize| {
        let speed = x.value((index as f64 + 0.5) / COLUMNS as f64);
        let mut model = *model;
        model.at.speed = speed / model.report.medium.write_mb_s.mean;
        runs(|share| model.winner(metric, methods, y.value(share)))
    };
    (0..COLUMNS).map(column).collect()
}

/// Cuts the height from 0 to 1 where the winner changes.
fn runs(winner: impl Fn(f64) -> Option<usize>) -> Vec<Run> {
    let mut found = vec![Run {
        from: 0.0,
        to: 1.0,
        winner: winner(0.0),
    }];
    for row in 0..ROWS {
        let (low, high) = (row as f64 / ROWS as f64, (row + 1) as f64 / ROWS as f64);
        let before = winner(low);
        let after = winner(high);
        if before == after {
            continue;
        }
        let high = bisect(low..high, 8, |it| winner(it) == before).end;
        if let Some(last) = found.last_mut() {
            last.to = high;
        }
        found.push(Run {
            from: high,
            to: 1.0,
            winner: after,
        });
    }
    found
}

/// Writes each method's name into the largest square of cells that it wins, if it fits there.
fn names(plot: &Plot, columns: &[Vec<Run>], methods: &[&MethodReport]) -> String {
    let (across, up) = CELLS;
    let at = |column: usize, row: usize| {
        let place = ((column as f64 + 0.5) / across as f64 * COLUMNS as f64) as usize;
        let share = (row as f64 + 0.5) / up as f64;
        let run = columns[place].iter().rfind(|run| run.from <= share);
        run.and_then(|run| run.winner)
    };
    let mut out = String::new();
    for winner in std::iter::once(None).chain((0..methods.len()).map(Some)) {
        let mut sides = vec![vec![0usize; up + 1]; across + 1];
        let mut best = (0, 0, 0);
        for column in 0..across {
            for row in 0..up {
                if at(column, row) != winner {
                    continue;
                }
                let side = 1 + sides[column][row]
                    .min(sides[column + 1][row])
                    .min(sides[column][row + 1]);
                sides[column + 1][row + 1] = side;
                if side > best.0 {
                    best = (side, column + 1, row + 1);
                }
            }
        }
        let (side, column, row) = best;
        let name = winner.map_or("store raw", |index| methods[index].method.as_str());
        let ((left, right), (bottom, top)) = (plot.frame.across(), plot.frame.up());
        let room = (right - left) / across as f64 * side as f64;
        if side < 2 || width(name) > room {
            continue;
        }
        let half = side as f64 / 2.0;
        let x = left + (column as f64 - half) / across as f64 * (right - left);
        let y = bottom - (row as f64 - half) / up as f64 * (bottom - top) + 4.0;
        out.push_str(&mark::text((x, y), Anchor::Middle, "on-region", name));
    }
    out
}

/// A ring at the present setting.
fn here(scene: &Scene<'_>, plot: &Plot) -> String {
    let speed = scene.report.medium.write_mb_s.mean * scene.model.at.speed;
    let ((left, right), (bottom, top)) = (plot.frame.across(), plot.frame.up());
    let x = plot.x.scale.at(speed).clamp(left, right);
    let y = plot
        .y
        .scale
        .at(scene.model.at.reads.mean)
        .clamp(top, bottom);
    ["under", "over"]
        .map(|class| {
            let (x, y) = (coordinate(x), coordinate(y));
            format!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"7\"/>")
        })
        .concat()
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn runs_cut_where_the_winner_changes() {
        let found = runs(|share| (share > 0.25).then_some(usize::from(share > 0.7)));
        let winners: Vec<Option<usize>> = found.iter().map(|run| run.winner).collect();
        assert_eq!(winners, [None, Some(0), Some(1)]);
        assert!((found[1].from - 0.25).abs() < 1e-4 && (found[1].to - 0.7).abs() < 1e-4);
        assert_eq!((found[0].from, found[2].to), (0.0, 1.0));
        assert!(found.windows(2).all(|pair| pair[0].to == pair[1].from));
    }

    /// A slow device is worth dense methods and a fast one none, and the map says so.
    #[test]
    fn the_map_goes_from_dense_to_raw() {
        let report = testing::report();
        let mut scene = Scene::new(&report);
        scene.metric = Metric::Time;
        let all = report.classes.last().expect("all");
        let methods = scene.model.methods(all);
        let columns = columns(&scene.model, &plot(&scene).x.scale, &methods, Metric::Time);
        let middle = |column: &[Run]| {
            let run = column.iter().rfind(|run| run.from <= 0.5).expect("a run");
            run.winner
        };
        let slow = middle(&columns[0]).expect("a slow device is worth compressing for");
        assert!(methods[slow].ratio.mean > methods[0].ratio.mean);
        assert_eq!(middle(&columns[COLUMNS - 1]), None);
        let svg = figure(&scene).svg;
        assert!(svg.contains(">store raw</text>") && svg.contains("data-m=\"lz4:1\""));
        assert!(!svg.contains("NaN"));
    }
}
