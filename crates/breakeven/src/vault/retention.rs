//! Which snapshots are meant, and which a rule keeps: the last of each day, week, month and year, and those with a tag.
//!
//! Pure: times are given. Days are those of UTC, weeks begin on Monday.

use std::collections::BTreeSet;

use super::Snapshot;

/// What is kept. Nothing is kept by a count of 0, and a rule of nothing keeps everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The newest so many. Default 0.
    pub last: usize,
    /// The newest of each of so many days. Default 0.
    pub daily: usize,
    /// The newest of each of so many weeks. Default 0.
    pub weekly: usize,
    /// The newest of each of so many months. Default 0.
    pub monthly: usize,
    /// The newest of each of so many years. Default 0.
    pub yearly: usize,
    /// All with one of these tags. Default none.
    pub tags: Vec<String>,
}

/// Which snapshots are meant. Default all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotFilter {
    /// Of one of these machines, unless there is none.
    pub hosts: Vec<String>,
    /// Of all of these paths, and maybe others.
    pub paths: Vec<Vec<u8>>,
    /// With one of these tags, unless there is none.
    pub tags: Vec<String>,
}

impl SnapshotFilter {
    /// Says whether a snapshot is meant.
    pub fn matches(&self, snapshot: &Snapshot) -> bool {
        let is_of_host = self.hosts.is_empty() || self.hosts.contains(&snapshot.host);
        let is_tagged = |tag: &String| snapshot.tags.contains(tag);
        let is_tagged = self.tags.is_empty() || self.tags.iter().any(is_tagged);
        let is_of_path = |path: &Vec<u8>| snapshot.paths.contains(path);
        is_of_host && is_tagged && self.paths.iter().all(is_of_path)
    }
}

/// A snapshot and why it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its number.
    pub epoch: u64,
    /// The rules that keep it; none where it is to be forgotten.
    pub reasons: Vec<&'static str>,
}

/// The number of the period in which a day lies.
type Period = fn(i64) -> i64;

const DAY_SECONDS: i64 = 86_400;

impl Retention {
    /// Applies the rules to snapshots of the same host and paths by themselves, and returns all, oldest first.
    pub fn apply(&self, snapshots: &[(u64, Snapshot)]) -> Vec<Kept> {
        let groups = groups_of(snapshots);
        let mut kept: Vec<Kept> = groups
            .iter()
            .flat_map(|group| self.apply_to(group))
            .collect();
        kept.sort_by_key(|kept| kept.epoch);
        kept
    }

    /// Returns a snapshot of each group of the same host and paths of which the rules keep nothing.
    pub fn emptied<'s>(&self, snapshots: &'s [(u64, Snapshot)]) -> Vec<&'s Snapshot> {
        let mut groups = groups_of(snapshots);
        groups.retain(|group| {
            self.apply_to(group)
                .iter()
                .all(|kept| kept.reasons.is_empty())
        });
        groups.iter().map(|group| &group[0].1).collect()
    }

    fn apply_to(&self, group: &[&(u64, Snapshot)]) -> Vec<Kept> {
        let mut newest: Vec<_> = group.to_vec();
        newest.sort_by_key(|(epoch, snapshot)| std::cmp::Reverse((snapshot.begun, *epoch)));
        let periods: [(&'static str, usize, Period); 4] = [
            ("daily", self.daily, |day| day),
            // 1970 began on a Thursday.
            ("weekly", self.weekly, |day| (day + 3).div_euclid(7)),
            ("monthly", self.monthly, |day| {
                let (year, month) = year_month(day);
                year * 12 + month
            }),
            ("yearly", self.yearly, |day| year_month(day).0),
        ];
        let keeps_all = *self == Retention::default();
        let mut seen: [BTreeSet<i64>; 4] = Default::default();
        let mut kept = Vec::with_capacity(newest.len());
        for (at, (epoch, snapshot)) in newest.into_iter().enumerate() {
            let mut reasons = Vec::new();
            if keeps_all {
                reasons.push("no rule");
            }
            if at < self.last {
                reasons.push("last");
            }
            let day = snapshot.begun.seconds.div_euclid(DAY_SECONDS);
            for ((name, count, period), seen) in periods.iter().zip(&mut seen) {
                if seen.len() < *count && seen.insert(period(day)) {
                    reasons.push(name);
                }
            }
            if snapshot.tags.iter().any(|tag| self.tags.contains(tag)) {
                reasons.push("tag");
            }
            kept.push(Kept {
                epoch: *epoch,
                reasons,
            });
        }
        kept
    }
}

/// Sorts snapshots by host and paths.
fn groups_of(snapshots: &[(u64, Snapshot)]) -> Vec<Vec<&(u64, Snapshot)>> {
    let mut groups: Vec<Vec<&(u64, Snapshot)>> = Vec::new();
    for snapshot in snapshots {
        let is_same = |group: &&mut Vec<&(u64, Snapshot)>| {
            let (_, first) = group[0];
            first.host == snapshot.1.host && first.paths == snapshot.1.paths
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push(snapshot),
            None => groups.push(vec![snapshot]),
        }
    }
    groups
}

/// Returns year and month of a day since 1970, by Hinnant's `civil_from_days`.
fn year_month(day: i64) -> (i64, i64) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::Time;

    fn snapshot(epoch: u64, day: i64, tag: &str) -> (u64, Snapshot) {
        let begun = Time {
            seconds: day * DAY_SECONDS + epoch as i64,
            nanoseconds: 0,
        };
        let tags = vec![tag.to_string()];
        (
            epoch,
            Snapshot {
                begun,
                tags,
                ..Snapshot::default()
            },
        )
    }

    fn check(retention: &Retention, snapshots: &[(u64, Snapshot)], expected: &[u64]) {
        let kept = retention.apply(snapshots);
        assert_eq!(kept.len(), snapshots.len());
        let kept: Vec<u64> = (kept.iter().filter(|kept| !kept.reasons.is_empty()))
            .map(|kept| kept.epoch)
            .collect();
        assert_eq!(kept, expected, "{retention:?}");
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        assert_eq!(year_month(0), (1970, 1));
        assert_eq!(year_month(-1), (1969, 12));
        // 2024-02-29 and the day behind it.
        assert_eq!(year_month(19_782), (2024, 2));
        assert_eq!(year_month(19_783), (2024, 3));
    }

    #[test]
    fn a_filter_means_what_has_all_that_it_names() {
        let of = |host: &str, paths: &[&str], tags: &[&str]| Snapshot {
            host: host.to_string(),
            paths: paths.iter().map(|path| path.as_bytes().to_vec()).collect(),
            tags: tags.iter().map(|tag| tag.to_string()).collect(),
            ..Snapshot::default()
        };
        let filter = |hosts: &[&str], paths: &[&str], tags: &[&str]| SnapshotFilter {
            hosts: hosts.iter().map(|host| host.to_string()).collect(),
            paths: paths.iter().map(|path| path.as_bytes().to_vec()).collect(),
            tags: tags.iter().map(|tag| tag.to_string()).collect(),
        };
        let snapshot = of("one", &["/a", "/b"], &["x", "y"]);
        assert!(SnapshotFilter::default().matches(&snapshot));
        assert!(filter(&["two", "one"], &["/b"], &["y", "z"]).matches(&snapshot));
        assert!(!filter(&["two"], &[], &[]).matches(&snapshot));
        assert!(!filter(&[], &["/a", "/c"], &[]).matches(&snapshot));
        assert!(!filter(&[], &[], &["z"]).matches(&snapshot));
    }

    #[test]
    fn a_rule_that_keeps_nothing_of_a_group_says_so() {
        let (mut one, mut two) = (snapshot(1, 1, "keep"), snapshot(2, 2, ""));
        (one.1.host, two.1.host) = ("one".to_string(), "two".to_string());
        let by_tag = |tag: &str| Retention {
            tags: vec![tag.to_string()],
            ..Retention::default()
        };
        let snapshots = [one, two];
        let emptied = |rule: &Retention| -> Vec<String> {
            let groups = rule.emptied(&snapshots).into_iter();
            groups.map(|group| group.host.clone()).collect()
        };
        assert_eq!(emptied(&by_tag("keep")), ["two"]);
        assert_eq!(emptied(&by_tag("kept")), ["one", "two"]);
        assert!(emptied(&Retention::default()).is_empty());
    }

    #[test]
    fn the_newest_of_each_period_is_kept() {
        // Two a day for 40 days from 1970-01-01 on.
        let snapshots: Vec<_> = (0..80)
            .map(|at| snapshot(at + 1, at as i64 / 2, if at == 3 { "keep" } else { "" }))
            .collect();
        let rule = Retention::default();
        check(&rule, &snapshots, &(1..=80).collect::<Vec<_>>());
        check(
            &Retention {
                last: 3,
                ..rule.clone()
            },
            &snapshots,
            &[78, 79, 80],
        );
        check(
            &Retention {
                daily: 2,
                ..rule.clone()
            },
            &snapshots,
            &[78, 80],
        );
        // Day 39 is a Monday: the week before ends on day 38.
        check(
            &Retention {
                weekly: 2,
                ..rule.clone()
            },
            &snapshots,
            &[78, 80],
        );
        check(
            &Retention {
                monthly: 5,
                ..rule.clone()
            },
            &snapshots,
            &[62, 80],
        );
        check(
            &Retention {
                tags: vec!["keep".to_string()],
                ..rule
            },
            &snapshots,
            &[4],
        );
    }
}
