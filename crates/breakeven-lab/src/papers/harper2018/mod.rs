//! Harper 2018, "Viability of time-memory trade-offs in large data sets": does a cache pay that
//! keeps part of its buffers compressed?
//!
//! Ratios of pages (Figures 6 and 7), costs of devices (Tables 1 and 3, Figures 4 and 5), speeds of codecs (Figures 8
//! and 9), Table 4. The conclusions for a cache are Figures 1, 3, 10, 12 and 13. Its data are not all at hand, see
//! [`corpus`], and its machine is not this one. So a claim is tested by its shape and the published figure stands
//! beside ours.

mod bench;
mod cache;
pub mod corpus;
mod costs;
mod devices;
mod faults;
mod pictures;
mod published;
mod rates;
mod ratio;

use super::Experiment;
use crate::laboratory::Finding;
use crate::statistics::{Interval, Target, Verdict};

pub const EXPERIMENTS: &[Experiment] = &[
    ratio::EXPERIMENT,
    devices::EXPERIMENT,
    rates::EXPERIMENT,
    costs::EXPERIMENT,
    cache::EXPERIMENT,
];

/// One thing that is claimed, and the figures that agree with it.
pub struct Claim<'a> {
    pub question: String,
    /// Whether it decides the verdict of the experiment.
    pub core: bool,
    pub target: Target,
    /// The thesis's finding, and other facts for a reader.
    pub note: &'a str,
}

impl Claim<'_> {
    /// Judges the figures. With a `doubt` the verdict is "cannot tell": figures of generated data are no evidence about
    /// a thesis on real ones.
    pub fn judge(self, found: Interval, doubt: Option<&str>) -> Finding {
        let verdict = match doubt {
            None => self.target.judge(found),
            Some(_) => Verdict::CannotTell,
        };
        let mut note = format!("target {}; {}", self.target, self.note);
        if let Some(doubt) = doubt {
            note.push_str(&format!("; {doubt}"));
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

/// Returns the geometric mean of times or rates; NaN of none.
fn mean(values: &[f64]) -> f64 {
    match values {
        [] => f64::NAN,
        values => Interval::of_ratios(values).middle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_never_judges() {
        let check = |figure: f64, doubt: Option<&str>, verdict: Verdict, note: &str| {
            let claim = Claim {
                question: "ratio".to_string(),
                core: true,
                target: Target::at_least(1.0),
                note: "published 1.5",
            };
            let finding = claim.judge(Interval::exact(figure), doubt);
            assert_eq!((finding.verdict, finding.note.as_str()), (verdict, note));
        };
        let plain = "target at least 1; published 1.5";
        check(2.0, None, Verdict::Holds, plain);
        check(0.5, None, Verdict::Differs, plain);
        let doubted = "target at least 1; published 1.5; generated data";
        check(2.0, Some("generated data"), Verdict::CannotTell, doubted);
        check(0.5, Some("generated data"), Verdict::CannotTell, doubted);
    }

    #[test]
    fn means_are_geometric() {
        assert!((mean(&[1.0, 4.0]) - 2.0).abs() < 1e-12);
        assert!(mean(&[]).is_nan());
    }
}
