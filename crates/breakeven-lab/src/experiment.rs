//! An experiment: its claim, its parameters, and the code that measures, judges and draws.

use std::path::Path;

use anyhow::Result;

use crate::laboratory::{Finding, Laboratory};
use crate::statistics::Target;
use crate::tables::Shown;

/// A claim and how it is tested.
pub struct Experiment {
    /// `paper/name`.
    pub key: &'static str,
    /// One or two sentences that end with a full stop.
    pub claim: &'static str,
    /// Where the claim and its figure stand.
    pub source: &'static str,
    /// The figure of a finding, with its unit.
    pub figure: &'static str,
    /// The figures that agree with the claim: the expected one with its tolerance.
    pub target: Target,
    /// The parameters of the measurement: name and text.
    pub parameters: &'static [(&'static str, &'static str)],
    /// How the figures are to be read.
    pub analysis: &'static str,
    /// Measures and judges.
    pub run: fn(&Laboratory) -> Result<Vec<Finding>>,
    /// Judges the records in a folder, and makes Markdown of them.
    pub table: fn(&Path) -> Result<Shown>,
    /// Draws the records in a folder; nothing where nothing is recorded.
    pub pictures: fn(&Path) -> Result<Vec<Picture>>,
}

/// A picture of records, shown below the experiment's tables.
pub struct Picture {
    /// The file's name without `.svg`: letters, digits and `-`.
    pub name: String,
    /// One sentence about the content of the picture.
    pub caption: String,
    /// A file that stands alone, as `draw::standalone` makes it.
    pub svg: String,
}

impl Experiment {
    /// Returns the name of the experiment's paper.
    pub fn paper(&self) -> &'static str {
        self.key.split('/').next().unwrap_or(self.key)
    }

    /// Returns its name within its paper.
    pub fn name(&self) -> &'static str {
        self.key.split('/').next_back().unwrap_or(self.key)
    }
}

/// Draws nothing, for an experiment whose tables say it all.
pub fn no_pictures(_: &Path) -> Result<Vec<Picture>> {
    Ok(Vec::new())
}
