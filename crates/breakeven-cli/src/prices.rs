//! The price file: dated, edited by users, checked once here.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use breakeven::model::Prices;
use breakeven::quoted::quoted;
use serde::Deserialize;

/// A price file is a page of text; anything larger is something else.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The prices that come with the program.
const DEFAULT: &str = include_str!("prices.toml");

/// The content of a price file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceFile {
    /// When the prices were looked up.
    pub date: String,
    /// Hardware threads of the machine that `prices.machine` describes.
    pub machine_threads: f64,
    pub prices: Prices,
}

impl PriceFile {
    /// Reads the file, or the prices that come with the program.
    ///
    /// # Errors
    /// A file that is missing, too large, not TOML of this form, or with a number out of range.
    pub fn load(path: Option<&Path>) -> Result<PriceFile> {
        let Some(path) = path else {
            return PriceFile::parse(DEFAULT).context("the prices that come with the program");
        };
        let context = || format!("price file {}", quoted(&path));
        let mut text = String::new();
        let file = File::open(path).with_context(context)?;
        file.take(FILE_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .with_context(context)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            bail!(
                "price file {}: longer than {FILE_BYTES_MAX} bytes",
                quoted(&path)
            );
        }
        PriceFile::parse(&text).with_context(context)
    }

    fn parse(text: &str) -> Result<PriceFile> {
        let file: PriceFile = toml::from_str(text)?;
        ensure!(
            file.machine_threads >= 1.0 && file.machine_threads.is_finite(),
            "machine_threads is {}, expected at least 1",
            file.machine_threads
        );
        if let Some(field) = file.prices.fault() {
            bail!("{field} is out of range");
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_sound_and_mistakes_are_named() {
        let prices = PriceFile::load(None).expect("the default").prices;
        assert_eq!(prices.eur_per_kwh, 0.20);
        for (from, to, word) in [
            ("eur_per_kwh = 0.20", "eur_per_kwh = -1", "eur_per_kwh"),
            ("eur_per_kwh = 0.20", "eur_per_kWh = 1", "eur_per_kWh"),
            (
                "machine_threads = 24",
                "machine_threads = 0",
                "machine_threads",
            ),
            ("[prices.machine]", "[prices.machine", "prices"),
        ] {
            let error = PriceFile::parse(&DEFAULT.replace(from, to)).expect_err(to);
            assert!(format!("{error:#}").contains(word), "{to}: {error:#}");
        }
    }
}
