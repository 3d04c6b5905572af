//! The experiments, a folder for each paper: claim, parameters, expected figure and tolerance as
//! data, and the code that measures.

mod breakeven;
mod harper2018;
pub mod harper2018_cache;
pub mod hirsch2017;
pub mod kothiyal2009;

use std::path::Path;

use anyhow::Result;

use crate::laboratory::{Finding, Laboratory};
use crate::statistics::Target;

/// A claim and how it is tested.
pub struct Experiment {
    /// `paper/name`.
    pub key: &'static str,
    /// One sentence.
    pub claim: &'static str,
    /// Where the claim and its figure stand.
    pub source: &'static str,
    /// What the figure of a finding is, with its unit.
    pub figure: &'static str,
    /// The figures that agree with the claim: the expected one with its tolerance.
    pub target: Target,
    /// What is measured and how: name and text.
    pub parameters: &'static [(&'static str, &'static str)],
    /// How the figures are to be read.
    pub analysis: &'static str,
    /// Measures and judges.
    pub run: fn(&Laboratory) -> Result<Vec<Finding>>,
    /// Makes Markdown of what is recorded in a folder of records; empty where nothing is.
    pub table: fn(&Path) -> Result<String>,
    /// Draws what is recorded in a folder of records; nothing where nothing is.
    pub pictures: fn(&Path) -> Result<Vec<Picture>>,
}

/// A picture of what is recorded, shown below the experiment's tables.
pub struct Picture {
    /// The file's name without `.svg`: letters, digits and `-`.
    pub name: String,
    /// One sentence that says what there is to see.
    pub caption: String,
    /// A file that stands alone, as `draw::standalone` makes it.
    pub svg: String,
}

impl Experiment {
    /// Returns the name of the experiment's paper.
    pub fn paper(&self) -> &'static str {
        self.key.split('/').next().unwrap_or(self.key)
    }
}

/// Draws nothing, for an experiment whose tables say it all.
pub fn no_pictures(_: &Path) -> Result<Vec<Picture>> {
    Ok(Vec::new())
}

/// Returns all experiments in the order of their papers.
pub fn all() -> impl Iterator<Item = &'static Experiment> {
    breakeven::EXPERIMENTS
        .iter()
        .chain(kothiyal2009::EXPERIMENTS)
        .chain(harper2018::EXPERIMENTS)
        .chain(harper2018_cache::EXPERIMENTS)
        .chain(hirsch2017::EXPERIMENTS)
}

/// Returns the experiments that a word means: `all`, a paper, or `paper/name`.
pub fn named(word: &str) -> Vec<&'static Experiment> {
    let means = |experiment: &&Experiment| {
        word == "all" || word == experiment.key || word == experiment.paper()
    };
    all().filter(means).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_mean_experiments() {
        let check = |word: &str, expected: usize| assert_eq!(named(word).len(), expected, "{word}");
        check("all", all().count());
        check("breakeven", 3);
        check("breakeven/codec-overhead", 1);
        check("codec-overhead", 0);
        check("", 0);
    }

    #[test]
    fn every_experiment_says_what_it_is() {
        for experiment in all() {
            assert_eq!(experiment.key.split('/').count(), 2, "{}", experiment.key);
            assert!(experiment.claim.ends_with('.'), "{}", experiment.key);
            assert!(experiment.analysis.ends_with('.'), "{}", experiment.key);
            assert!(experiment.source.len() > 10, "{}", experiment.key);
            assert!(experiment.parameters.len() >= 2, "{}", experiment.key);
            let named = named(experiment.key);
            assert_eq!(named.len(), 1, "two are called {}", experiment.key);
        }
    }
}
