//! The blocks of a window weighed at the two ends of a price, and the balance between the ends.
//!
//! Prices are linear in one number, so the costs of an arm at both ends give its cost at any price between.

use std::ops::Range;

use crate::bisection::bisect;
use crate::decide::Class;

use super::super::hint::Outlook;

/// Halvings of the range of a price.
const HALVINGS: usize = 30;

/// Blocks of the window that are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// `None` for a block that is stored at any price.
    pub class: Option<Class>,
    pub outlook: Outlook,
    pub count: f64,
    pub raw_bytes: f64,
}

impl Group {
    /// Returns the bytes of a block, on the mean.
    pub fn block_bytes(&self) -> u64 {
        (self.raw_bytes / self.count).round() as u64
    }
}

/// The blocks of the window and their arms, between the two ends of a price.
#[derive(Default)]
pub struct Balance {
    /// Seconds of the workers that no price changes.
    pub work: f64,
    /// Seconds of the link that no price changes.
    pub write: f64,
    /// The arms of each group, group by group.
    pub arms: Vec<Weighed>,
    /// The number of blocks of each group, and the end of its arms.
    pub groups: Vec<(f64, usize)>,
}

/// An arm on a class.
#[derive(Clone, Copy)]
pub struct Weighed {
    /// The cost at price zero, and its growth with the price: prices are linear in it.
    pub at_zero: f64,
    pub per_price: f64,
    /// Seconds of a worker.
    pub work: f64,
    /// Seconds of the link.
    pub write: f64,
}

impl Balance {
    pub fn clear(&mut self) {
        (self.work, self.write) = (0.0, 0.0);
        self.arms.clear();
        self.groups.clear();
    }

    /// Returns the demands of these blocks at a price: seconds of the workers together, with the application's
    /// computing, and of the link.
    pub fn needs_at(&self, price: f64) -> (f64, f64) {
        let (mut work, mut write) = (self.work, self.write);
        let mut start = 0;
        for &(count, end) in &self.groups {
            let arms = &self.arms[start..end];
            let cost = |arm: &Weighed| arm.at_zero + price * arm.per_price;
            let mut best = &arms[0];
            let mut least = cost(best);
            for arm in &arms[1..] {
                let cost = cost(arm);
                if cost < least {
                    (best, least) = (arm, cost);
                }
            }
            work += count * best.work;
            write += count * best.write;
            start = end;
        }
        (work, write)
    }
}

/// Adds blocks to those like them.
pub fn join(groups: &mut Vec<Group>, new: &Group) {
    let alike = |it: &&mut Group| (it.class, it.outlook) == (new.class, new.outlook);
    match groups.iter_mut().find(alike) {
        Some(group) => {
            group.count += new.count;
            group.raw_bytes += new.raw_bytes;
        }
        None => groups.push(*new),
    }
}

/// Returns the point from which on a price is no longer too low, to one part in 2^30. This is asked
/// for at most blocks, so it stops long before the last bit.
pub fn turn(range: Range<f64>, is_too_low: impl Fn(f64) -> bool) -> f64 {
    bisect(range, HALVINGS, is_too_low).end
}
