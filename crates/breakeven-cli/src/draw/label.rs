//! Labels that do not cover each other.

use super::mark::Position;

/// Height of a line of labels.
pub const HEIGHT: f64 = 15.0;
/// Estimated width of a letter: that of a wide common font, so that a guess is rather too wide.
const LETTER: f64 = 7.1;

/// Estimates the width of a label.
pub fn width(text: &str) -> f64 {
    LETTER * text.chars().count() as f64
}

/// Moves positions apart and keeps their order. Each is then at least `gap` from the next, within `low` and `high`
/// where they fit. Returns them in the order given.
pub fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut placed = vec![0.0; wanted.len()];
    let mut least = low;
    for index in &order {
        placed[*index] = wanted[*index].max(least);
        least = placed[*index] + gap;
    }
    let mut most = high;
    for index in order.iter().rev() {
        placed[*index] = placed[*index].min(most);
        most = placed[*index] - gap;
    }
    placed
}

/// How often each label looks for its place again.
const ROUNDS: usize = 4;

/// A point that wants a label.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Where the point is.
    pub at: Position,
    /// The text of the label.
    pub text: String,
}

/// A box in a picture.
#[derive(Clone, Copy, Debug)]
struct Area {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Area {
    fn overlap(&self, other: &Area) -> f64 {
        let wide = self.right.min(other.right) - self.left.max(other.left);
        let high = self.bottom.min(other.bottom) - self.top.max(other.top);
        wide.max(0.0) * high.max(0.0)
    }

    fn around((x, y): Position, half: f64) -> Area {
        Area {
            left: x - half,
            top: y - half,
            right: x + half,
            bottom: y + half,
        }
    }
}

/// Finds a place for the label of each point, inside the box from `(left, top)` to `(right, bottom)`. It lies beside
/// the point, where it covers the least of other points and labels. Returns the start of each label's baseline.
pub fn place(wishes: &[Wish], (left, top): Position, (right, bottom): Position) -> Vec<Position> {
    let bounds = Area {
        left,
        top,
        right,
        bottom,
    };
    let dots: Vec<Area> = wishes
        .iter()
        .map(|wish| Area::around(wish.at, 5.0))
        .collect();
    let choices: Vec<Vec<Area>> = wishes.iter().map(candidates).collect();
    let mut chosen = vec![0; wishes.len()];
    // The first round goes by the labels placed already; the others see all of the last one.
    for round in 0..ROUNDS {
        for index in 0..wishes.len() {
            let others: Vec<Area> = (0..wishes.len())
                .filter(|other| *other < index || (round > 0 && *other != index))
                .map(|other| choices[other][chosen[other]])
                .collect();
            let cost = |area: &Area| -> f64 {
                let size = (area.right - area.left) * (area.bottom - area.top);
                let outside = size - area.overlap(&bounds);
                let dots: f64 = dots.iter().map(|dot| dot.overlap(area)).sum();
                let labels: f64 = others.iter().map(|label| label.overlap(area)).sum();
                10.0 * outside + dots + 4.0 * labels
            };
            let costs = choices[index].iter().enumerate();
            // The order of the candidates decides between those that cover little.
            let costs = costs.map(|(order, area)| cost(area) + 4.0 * order as f64);
            let best = costs.enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b));
            chosen[index] = best.map_or(0, |(order, _)| order);
        }
    }
    let start = |(choices, chosen): (&Vec<Area>, &usize)| {
        let area = choices[*chosen];
        (area.left + 1.0, area.bottom - 4.0)
    };
    choices.iter().zip(&chosen).map(start).collect()
}

/// Places around a point, the preferred first.
fn candidates(wish: &Wish) -> Vec<Area> {
    let (x, y) = wish.at;
    let wide = width(&wish.text) + 2.0;
    let mut found = Vec::new();
    for away in [8.0, 16.0, 26.0] {
        let corners = [
            (x + away, y - HEIGHT / 2.0),
            (x - wide / 2.0, y - HEIGHT - away + 2.0),
            (x - wide / 2.0, y + away - 2.0),
            (x - wide - away, y - HEIGHT / 2.0),
            (x + away * 0.7, y - HEIGHT - away * 0.5),
            (x + away * 0.7, y + away * 0.5),
            (x - wide - away * 0.7, y - HEIGHT - away * 0.5),
            (x - wide - away * 0.7, y + away * 0.5),
        ];
        found.extend(corners.map(|(left, top)| Area {
            left,
            top,
            right: left + wide,
            bottom: top + HEIGHT,
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_moved_apart_in_their_order() {
        let check = |wanted: &[f64], expected: &[f64]| {
            assert_eq!(spread(wanted, 10.0, 0.0, 100.0), expected, "{wanted:?}");
        };
        check(&[50.0, 20.0], &[50.0, 20.0]);
        check(&[20.0, 21.0, 60.0], &[20.0, 30.0, 60.0]);
        check(&[99.0, 98.0], &[100.0, 90.0]);
        check(&[-5.0, 200.0], &[0.0, 100.0]);
    }

    #[test]
    fn labels_of_close_points_do_not_cover_each_other() {
        let wishes: Vec<Wish> = (0..6)
            .map(|index| Wish {
                at: (
                    100.0 + 4.0 * f64::from(index),
                    100.0 + 3.0 * f64::from(index),
                ),
                text: format!("method:{index}"),
            })
            .collect();
        let placed = place(&wishes, (0.0, 0.0), (300.0, 200.0));
        for (index, (x, y)) in placed.iter().enumerate() {
            let wide = width(&wishes[index].text);
            assert!(*x >= 0.0 && x + wide <= 301.0 && *y <= 200.0, "{placed:?}");
            for (a, b) in &placed[..index] {
                let apart = (x - a).abs() >= wide || (y - b).abs() >= HEIGHT - 1.0;
                assert!(apart, "{placed:?}");
            }
        }
    }
}
