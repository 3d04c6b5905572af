//! A random order of a range that needs no memory, for drawing without replacement.

/// A random order of `0..count` that needs no memory: a Feistel network over the next power of
/// four, walked until it lands inside.
pub struct Permutation {
    count: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    /// Makes the order of `0..count` that belongs to `seed`.
    pub fn new(count: u64, seed: u64) -> Permutation {
        let bits = (64 - count.saturating_sub(1).leading_zeros()).max(2);
        let mut random = fastrand::Rng::with_seed(seed);
        Permutation {
            count,
            half_bits: bits.div_ceil(2),
            keys: std::array::from_fn(|_| random.u64(..)),
        }
    }

    /// Returns the number at a position below `count`.
    pub fn at(&self, position: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let mut value = position;
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for key in self.keys {
                let mixed = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (left, right) = (right, left ^ ((mixed >> 29) & mask));
            }
            value = (left << self.half_bits) | right;
            if value < self.count {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_drawing_visits_everything_once() {
        for count in [1, 2, 3, 7, 64, 1000, 4097] {
            let order = Permutation::new(count, 9);
            let mut seen: Vec<u64> = (0..count).map(|position| order.at(position)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..count), "{count}");
        }
    }
}
