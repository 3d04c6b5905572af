//! The surroundings of this crate's tests: their seed, and whether to take long.
//!
//! The variables are those of docs/testing.md.

/// Returns the seed of a randomised test, `BREAKEVEN_SEED` or else its own, and prints it.
///
/// # Panics
/// When the variable is no number: a replay with another seed than the one asked for is none.
pub fn seed(own: u64) -> u64 {
    let text = std::env::var("BREAKEVEN_SEED");
    let seed = text.map_or(own, |text| {
        text.parse().expect("BREAKEVEN_SEED is a decimal number")
    });
    println!("BREAKEVEN_SEED={seed}");
    seed
}

/// Returns the generator of a randomised test with a seed of its own, and prints both.
pub fn seeded(test: &str, own: u64) -> fastrand::Rng {
    print!("{test}: ");
    fastrand::Rng::with_seed(seed(own))
}

/// Says whether the long floors are asked for.
pub fn is_full() -> bool {
    std::env::var("BREAKEVEN_FULL").is_ok_and(|value| value == "1")
}
