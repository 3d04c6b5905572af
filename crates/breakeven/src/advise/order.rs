//! A random order of a range that needs no memory, for drawing without replacement.
//!
//! Any beginning of the order is spread evenly. Cut the range into a power of two of equal parts. Then as many numbers
//! from the beginning fall one into each part, at a random place in it. Neighbours are alike (the pieces of a file, the
//! files of a folder). So such a sample is stratified without named strata, and differs less from the whole than one of
//! independent draws (Cochran, Sampling Techniques, section 5.6). Each number is equally likely at each position.
//!
//! Source: van der Corput's sequence, scrambled by nesting (Owen 1995, "Randomly permuted
//! (t,m,s)-nets and (t,s)-sequences").

/// A random order of `0..count`. It takes the numbers below the next power of two with their bits reversed, and inverts
/// each bit or not, by the seed and the bits before it. Numbers from `count` on are skipped.
pub struct Order {
    count: u64,
    bits: u32,
    seed: u64,
    next: u64,
}

impl Order {
    /// Makes the order of `0..count` that belongs to `seed`.
    ///
    /// # Panics
    /// If `count` is above 2^62.
    pub fn new(count: u64, seed: u64) -> Order {
        assert!(count <= 1 << 62, "{count} numbers");
        Order {
            count,
            bits: count.next_power_of_two().trailing_zeros(),
            seed,
            next: 0,
        }
    }

    fn at(&self, position: u64) -> u64 {
        let mut value = 0;
        for level in 0..self.bits {
            let before = position & ((1 << level) - 1);
            let turned = mixed(self.seed, before | (1 << level)) & 1;
            value = (value << 1) | (((position >> level) & 1) ^ turned);
        }
        value
    }
}

impl Iterator for Order {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        while self.next < 1 << self.bits {
            let value = self.at(self.next);
            self.next += 1;
            if value < self.count {
                return Some(value);
            }
        }
        None
    }
}

/// Mixes a number with the seed, so that each bit depends on all of theirs (Steele, Lea and Flood 2014, "Fast
/// splittable pseudorandom number generators": SplitMix64's last steps).
fn mixed(seed: u64, number: u64) -> u64 {
    let mut bits = number
        .wrapping_add(seed.wrapping_mul(0xd134_2543_de82_ef95))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_drawing_visits_everything_once() {
        for count in [0, 1, 2, 3, 7, 64, 1000, 4097] {
            let mut seen: Vec<u64> = Order::new(count, 9).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..count), "{count}");
        }
    }

    #[test]
    fn any_beginning_is_spread_evenly() {
        for seed in 0..20 {
            for parts in [2u64, 8, 64] {
                let begun = Order::new(1024, seed).take(parts as usize);
                let mut hit: Vec<u64> = begun.map(|number| number * parts / 1024).collect();
                hit.sort_unstable();
                assert!(hit.into_iter().eq(0..parts), "seed {seed}, {parts} parts");
            }
            // If the count is not a power of two, no part is hit much more often than another.
            let begun = Order::new(700, seed).take(70);
            let mut hits = [0; 7];
            begun.for_each(|number| hits[(number / 100) as usize] += 1);
            assert!(hits.iter().all(|hits| (7..=13).contains(hits)), "{hits:?}");
        }
    }

    #[test]
    fn any_number_may_be_the_first() {
        let mut firsts = [0; 8];
        for seed in 0..4000 {
            let first = Order::new(8, seed).next().expect("a number");
            firsts[first as usize] += 1;
        }
        // Five standard deviations of 500 in 4000.
        assert!(
            firsts.iter().all(|hits| (395..=605).contains(hits)),
            "{firsts:?}"
        );
    }
}
