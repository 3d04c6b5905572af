//! Which snapshots are meant, and which a rule keeps. Rules keep the last of each hour, day, week, month and year,
//! young snapshots, and tagged ones.
//!
//! Pure: the caller gives times, and the wall clock's distance from UTC at each. Hours and days are those of that
//! clock, and weeks begin on Monday. The hour that a clock shows twice in autumn counts as two hours.

use std::collections::BTreeSet;

use super::Snapshot;

/// The rules that choose which snapshots stay. A count of 0 keeps nothing, and a rule of nothing keeps everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The newest so many. Default 0.
    pub last: usize,
    /// The newest of each of so many hours. Default 0.
    pub hourly: usize,
    /// The newest of each of so many days. Default 0.
    pub daily: usize,
    /// The newest of each of so many weeks. Default 0.
    pub weekly: usize,
    /// The newest of each of so many months. Default 0.
    pub monthly: usize,
    /// The newest of each of so many years. Default 0.
    pub yearly: usize,
    /// Snapshots at most so many seconds older than the newest. Default 0.
    pub within_seconds: i64,
    /// All with one of these tags. Default none.
    pub tags: Vec<String>,
}

/// Returns how many seconds the wall clock is ahead of UTC, at a time in seconds since 1970.
pub type UtcOffset<'o> = &'o dyn Fn(i64) -> i64;

/// A choice among snapshots. Default all.
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

/// The number of the period in which a moment of a wall clock lies.
type Period = fn(LocalMoment) -> (i64, i64);

const HOUR_SECONDS: i64 = 3_600;
const DAY_SECONDS: i64 = 86_400;

/// The time on a wall clock, in seconds as if it were UTC, and how far ahead of UTC it is.
#[derive(Clone, Copy)]
struct LocalMoment {
    seconds: i64,
    offset: i64,
}

impl LocalMoment {
    fn day(&self) -> i64 {
        self.seconds.div_euclid(DAY_SECONDS)
    }
}

impl Retention {
    /// Applies the rules to each group of the same host and paths, and returns all snapshots, oldest first.
    pub fn apply(&self, snapshots: &[(u64, Snapshot)], offset: UtcOffset<'_>) -> Vec<Kept> {
        let groups = groups_of(snapshots);
        let mut kept: Vec<Kept> = groups
            .iter()
            .flat_map(|group| self.apply_to(group, offset))
            .collect();
        kept.sort_by_key(|kept| kept.epoch);
        kept
    }

    /// Returns one snapshot of each group of the same host and paths in which the rules keep nothing.
    pub fn emptied<'s>(
        &self,
        snapshots: &'s [(u64, Snapshot)],
        offset: UtcOffset<'_>,
    ) -> Vec<&'s Snapshot> {
        let mut groups = groups_of(snapshots);
        groups.retain(|group| {
            self.apply_to(group, offset)
                .iter()
                .all(|kept| kept.reasons.is_empty())
        });
        groups.iter().map(|group| &group[0].1).collect()
    }

    fn apply_to(&self, group: &[&(u64, Snapshot)], offset: UtcOffset<'_>) -> Vec<Kept> {
        let mut newest: Vec<_> = group.to_vec();
        newest.sort_by_key(|(epoch, snapshot)| std::cmp::Reverse((snapshot.begun, *epoch)));
        let youngest = newest[0].1.begun.seconds;
        let periods: [(&'static str, usize, Period); 5] = [
            ("hourly", self.hourly, |at| {
                (at.seconds.div_euclid(HOUR_SECONDS), at.offset)
            }),
            ("daily", self.daily, |at| (at.day(), 0)),
            // 1970 began on a Thursday.
            ("weekly", self.weekly, |at| {
                ((at.day() + 3).div_euclid(7), 0)
            }),
            ("monthly", self.monthly, |at| year_month(at.day())),
            ("yearly", self.yearly, |at| (year_month(at.day()).0, 0)),
        ];
        let keeps_all = *self == Retention::default();
        let mut seen: [BTreeSet<(i64, i64)>; 5] = Default::default();
        let mut kept = Vec::with_capacity(newest.len());
        for (at, (epoch, snapshot)) in newest.into_iter().enumerate() {
            let mut reasons = Vec::new();
            if keeps_all {
                reasons.push("no rule");
            }
            if at < self.last {
                reasons.push("last");
            }
            let seconds = snapshot.begun.seconds;
            if youngest.saturating_sub(seconds) < self.within_seconds {
                reasons.push("within");
            }
            let offset = offset(seconds);
            let at = LocalMoment {
                seconds: seconds.saturating_add(offset),
                offset,
            };
            for ((name, count, period), seen) in periods.iter().zip(&mut seen) {
                if seen.len() < *count && seen.insert(period(at)) {
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
        check_at(retention, snapshots, &|_| 0, expected);
    }

    fn check_at(
        retention: &Retention,
        snapshots: &[(u64, Snapshot)],
        offset: UtcOffset<'_>,
        expected: &[u64],
    ) {
        let kept = retention.apply(snapshots, offset);
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
            let groups = rule.emptied(&snapshots, &|_| 0).into_iter();
            groups.map(|group| group.host.clone()).collect()
        };
        assert_eq!(emptied(&by_tag("keep")), ["two"]);
        assert_eq!(emptied(&by_tag("kept")), ["one", "two"]);
        assert!(emptied(&Retention::default()).is_empty());
        let young = Retention {
            within_seconds: 1,
            ..Retention::default()
        };
        assert!(emptied(&young).is_empty());
    }

    /// In Berlin, where summer time begins on 2025-03-30 and ends on 2025-10-26, each at 01:00 UTC.
    fn berlin(seconds: i64) -> i64 {
        match (1_743_296_400..1_761_440_400).contains(&seconds) {
            true => 7200,
            false => 3600,
        }
    }

    /// Snapshots at these seconds.
    fn at(seconds: impl IntoIterator<Item = i64>) -> Vec<(u64, Snapshot)> {
        let numbered = seconds.into_iter().zip(1..);
        let of = |(seconds, epoch)| {
            let mut of = snapshot(epoch, 0, "");
            of.1.begun.seconds = seconds;
            of
        };
        numbered.map(of).collect()
    }

    #[test]
    fn days_and_hours_are_those_of_the_clock_on_the_wall() {
        let daily = |daily: usize| Retention {
            daily,
            ..Retention::default()
        };
        // 2025-10-25 21:30 UTC is 23:30 in Berlin, half an hour later is another day.
        let evening = 1_761_427_800;
        let late = at([evening, evening + 1800]);
        check(&daily(2), &late, &[2]);
        check_at(&daily(2), &late, &berlin, &[1, 2]);
        // The day of 25 hours, hour by hour from its midnight on: the last hour is its own.
        let autumn = at((0..26).map(|hour| evening + 1800 + hour * 3600));
        check_at(&daily(9), &autumn, &berlin, &[25, 26]);
        // The day of 23 hours.
        let spring = at((0..25).map(|hour| 1_743_289_200 + hour * 3600));
        check_at(&daily(9), &spring, &berlin, &[23, 25]);
        // Every hour of either day, at half past and at its end. The clock shows one hour twice and one not at all.
        let hourly = Retention {
            hourly: 99,
            ..Retention::default()
        };
        for (midnight, hours) in [(evening + 1800, 25), (1_743_289_200, 23)] {
            let halves = at((0..2 * hours).map(|half| midnight + half * 1800));
            let ends: Vec<u64> = (1..=hours as u64).map(|hour| 2 * hour).collect();
            check_at(&hourly, &halves, &berlin, &ends);
        }
        // A clock that is half an hour off.
        let halves = at((0..4).map(|half| midnight_of(1) + half * 1800));
        check_at(&hourly, &halves, &|_| 1800, &[1, 3, 4]);
    }

    fn midnight_of(day: i64) -> i64 {
        day * DAY_SECONDS
    }

    #[test]
    fn what_is_young_beside_the_newest_is_kept() {
        let within = |within_seconds: i64| Retention {
            within_seconds,
            ..Retention::default()
        };
        let snapshots = at([0, 100, 199, 200]);
        check(&within(1), &snapshots, &[4]);
        check(&within(100), &snapshots, &[3, 4]);
        check(&within(101), &snapshots, &[2, 3, 4]);
        check(&within(i64::MAX), &at([i64::MIN, 5]), &[2]);
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
