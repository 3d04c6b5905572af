//! The strategy of a stream in its typed form.

/// How methods are picked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strategy {
    /// Ends as early as possible.
    Fastest,
    /// As small as possible within this factor of the uncompressed time.
    Within(f64),
    /// As small as can be.
    Smallest,
    /// As cheap as can be.
    Money,
    /// Takes as few joules as possible.
    Energy,
}

/// Reads a strategy.
pub fn parse_strategy(text: &str) -> Result<Strategy, String> {
    let factor = |text: &str| {
        let factor = text.parse::<f64>().ok();
        factor.filter(|it| (1.0..=1e6).contains(it))
    };
    match (text, text.strip_prefix("within:").map(factor)) {
        ("fastest", _) => Ok(Strategy::Fastest),
        ("free", _) => Ok(Strategy::Within(1.0)),
        ("smallest", _) => Ok(Strategy::Smallest),
        ("money", _) => Ok(Strategy::Money),
        ("energy", _) => Ok(Strategy::Energy),
        (_, Some(Some(factor))) => Ok(Strategy::Within(factor)),
        (_, Some(None)) => Err("expected a factor of at least 1, as in within:1.5".to_string()),
        _ => Err("expected fastest, free, within:F, smallest, money or energy".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_are_read_as_they_are_typed() {
        assert_eq!(parse_strategy("free"), Ok(Strategy::Within(1.0)));
        assert_eq!(parse_strategy("within:1.5"), Ok(Strategy::Within(1.5)));
        assert_eq!(parse_strategy("money"), Ok(Strategy::Money));
        assert_eq!(parse_strategy("energy"), Ok(Strategy::Energy));
        for text in ["", "within", "within:", "within:0.5", "within:nan", "fast"] {
            assert!(parse_strategy(text).is_err(), "{text}");
        }
    }
}
