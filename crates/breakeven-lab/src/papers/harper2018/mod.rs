//! Harper 2018, "Viability of time-memory trade-offs in large data sets": does a cache pay that
//! keeps part of its buffers compressed?
//!
//! Ratios of pages (Figures 6 and 7), what devices cost (Tables 1 and 3, Figures 4 and 5), and what
//! the thesis makes of both. Its data are not all at hand, see [`corpus`], and its machine is not
//! this one, so a claim is tested by its shape and the published figure stands beside ours.

mod corpus;
mod devices;
mod published;
mod ratio;

use super::Experiment;
use crate::laboratory::Finding;
use crate::statistics::{Interval, Target, Verdict};

pub const EXPERIMENTS: &[Experiment] = &[ratio::EXPERIMENT, devices::EXPERIMENT];

/// One thing the thesis says, and the figures that agree with it.
struct Claim<'a> {
    question: String,
    /// Whether it decides the verdict of the experiment.
    core: bool,
    target: Target,
    /// The figure of the thesis, where it has one.
    published: Option<f64>,
    note: &'a str,
}

impl Claim<'_> {
    /// Judges what was found. Figures of generated data never tell: the thesis is about real ones.
    fn judge(self, found: Interval, is_real: bool) -> Finding {
        let verdict = match is_real {
            true => self.target.judge(found),
            false => Verdict::CannotTell,
        };
        let mut note = format!("target {}", self.target);
        if let Some(published) = self.published {
            note.push_str(&format!(", published {published:.3}"));
        }
        if !self.note.is_empty() {
            note.push_str(&format!("; {}", self.note));
        }
        if !is_real {
            note.push_str("; generated data");
        }
        Finding {
            question: self.question,
            core: self.core,
            found,
            verdict,
            note,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_data_never_judge() {
        let check = |figure: f64, is_real: bool, verdict: Verdict, word: &str| {
            let claim = Claim {
                question: "ratio".to_string(),
                core: true,
                target: Target::at_least(1.0),
                published: Some(1.5),
                note: "a note",
            };
            let finding = claim.judge(Interval::exact(figure), is_real);
            assert_eq!(finding.verdict, verdict);
            let note = finding.note;
            assert!(note.starts_with("target at least 1, published 1.500; a note"));
            assert!(note.ends_with(word), "{note}");
        };
        check(2.0, true, Verdict::Holds, "a note");
        check(0.5, true, Verdict::Differs, "a note");
        check(2.0, false, Verdict::CannotTell, "generated data");
        check(0.5, false, Verdict::CannotTell, "generated data");
    }
}
