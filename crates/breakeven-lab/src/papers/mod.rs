//! The experiments, a folder for each paper: claim, parameters, expected figure and tolerance as
//! data, and the code that measures.

mod breakeven;
mod das2014;
mod das2014_disk;
mod harper2018;
pub mod harper2018_cache;
pub mod hirsch2017;
pub mod kothiyal2009;
mod peng2020;
mod peng2020_dedup;

use crate::experiment::Experiment;

/// Returns all experiments in the order of their papers.
pub fn all() -> impl Iterator<Item = &'static Experiment> {
    breakeven::EXPERIMENTS
        .iter()
        .chain(kothiyal2009::EXPERIMENTS)
        .chain(harper2018::EXPERIMENTS)
        .chain(harper2018_cache::EXPERIMENTS)
        .chain(hirsch2017::EXPERIMENTS)
        .chain(peng2020::EXPERIMENTS)
        .chain(das2014::EXPERIMENTS)
        .chain(das2014_disk::EXPERIMENTS)
        .chain(peng2020_dedup::EXPERIMENTS)
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
        let of_ours = |experiment: &&Experiment| experiment.key.starts_with("breakeven/");
        check("breakeven", all().filter(of_ours).count());
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
