//! The time after which a strategy's investment has redeemed itself, on the thesis's costs (sections 3.4 and 5.2.2).

use std::fmt::Write as _;

use breakeven::model::{HIRSCH_2017, Keeping, Outcome};
use breakeven::units::Seconds;

use super::bench::BETAS;
use super::figures::of_strategies;
use super::published::{self, LINK_MB_S, LINKS, TABLES};
use super::race::{self, DRAINED_SECONDS, LINK, RAW_BYTES};
use crate::record::CellRecord;

const STORE_EUR_PER_GB_YEAR: f64 = 0.053;

/// Table 3.1 and Figure 3.8: arithmetic on the thesis's costs.
pub fn redemption() -> String {
    const COMPRESS_EUR_PER_GB: f64 = 0.00061;
    const ABOVE_IDLE_EUR_PER_GB: f64 = 0.000_055;
    const RAW_GB: f64 = 40e3;
    const MONTHS: f64 = 3.0;
    let mut text = "\nTable 3.1 and Figure 3.8 again, by the formulas of docs/model.md on the thesis's own costs: euros saved by \
        keeping 40 TB for three months, and days until compressing has redeemed itself, paid in full and above idle only. The \
        thesis says 46 days at 1.1 and about a week at 1.05 above idle.\n\n\
        | factor | EUR | published | days | days above idle |\n|---:|---:|---:|---:|---:|\n"
        .to_string();
    for (ratio, published) in published::SAVINGS {
        let keeping = |codec_eur_per_gb: f64| Keeping {
            ratio,
            codec_eur_per_gb,
            store_eur_per_gb_year: STORE_EUR_PER_GB_YEAR,
        };
        let days = |cost: f64| match keeping(cost).redemption_days() {
            Outcome::Above(days) => format!("{days:.1}"),
            other => format!("{other:?}"),
        };
        let kept = Seconds(MONTHS / 12.0 * 365.0 * 86_400.0);
        let _ = writeln!(
            text,
            "| {ratio} | {:.0} | {published} | {} | {} |",
            keeping(0.0).gross(RAW_GB, kept).0,
            days(COMPRESS_EUR_PER_GB),
            days(ABOVE_IDLE_EUR_PER_GB)
        );
    }
    text
}

/// Figure 5.9 by measurement: the costs and savings of S1 at once, and the amount that the rest of the machine time of
/// S2 and S3 has to earn.
pub fn strategies(fastest: &[CellRecord], promises: &[CellRecord]) -> String {
    let mut text = "\nFigure 5.9 again, by measurement here and with the thesis's costs: days until the storage saved \
        has paid for the cost of a strategy beyond the one before it. S1 costs the energy above idle and saves machine \
        time at once. The time that S2 takes beyond S1, and S3 beyond S2, is machine time paid in full. Times are \
        shares of the uncompressed call, which takes as long as over the thesis's link. The thesis reads off its \
        model: S1 3 days at a factor of 1.05 and none from 1.1 on; S2 less than 90 days up to a factor of 4.5.\n\n\
        | call | S1: factor, time, days | S2 | S3 |\n|---|---:|---:|---:|\n"
        .to_string();
    let mut any = false;
    for table in &TABLES {
        for (index, beta) in BETAS.into_iter().enumerate() {
            let cell = (table.file, beta);
            let ratios = of_strategies(fastest, promises, cell, race::ratio);
            let times = of_strategies(fastest, promises, cell, share_of_raw_time);
            let raw_seconds = Seconds(1e3 / LINK_MB_S[index]);
            let steps = steps(ratios, times, raw_seconds);
            any |= steps.iter().any(|step| step != "-");
            let _ = writeln!(
                text,
                "| {}, beta {beta} ({}) | {} |",
                table.file.name(),
                LINKS[index],
                steps.join(" | ")
            );
        }
    }
    if any { text } else { String::new() }
}

/// Returns the time of a contender over that of storing over the same link.
fn share_of_raw_time(cell: &CellRecord, contender: &str) -> f64 {
    let of = |column| race::median(cell, contender, column);
    of(DRAINED_SECONDS) * of(LINK) / of(RAW_BYTES)
}

/// Returns for S1, S2 and S3 their factor, their share of the uncompressed time, and the days after which their step
/// has paid for itself; `-` where one of it is not known.
fn steps(ratios: [Option<f64>; 3], times: [Option<f64>; 3], raw: Seconds) -> [String; 3] {
    let compute = HIRSCH_2017.compute();
    let mut before: Option<(f64, f64)> = None;
    let mut words = [const { String::new() }; 3];
    for (index, word) in words.iter_mut().enumerate() {
        let (Some(ratio), Some(time)) = (ratios[index], times[index]) else {
            *word = "-".to_string();
            continue;
        };
        let cost = match (index, before) {
            (0, _) => compute.above_idle(raw * time) - compute.machine(raw * (1.0 - time)),
            (_, Some((_, earlier))) => compute.machine(raw * (time - earlier)),
            (_, None) => {
                *word = "-".to_string();
                continue;
            }
        };
        // Stored is 1/ratio of the bytes; a step saves the bytes that it stores less than the step before.
        let stored_before = before.map_or(1.0, |(ratio, _)| 1.0 / ratio);
        let saved = stored_before - 1.0 / ratio;
        let days = match saved > 0.0 {
            // Keeping takes the ratio by which storage shrinks: of 1 GB, `saved` GB are not kept.
            true => days(1.0 / (1.0 - saved), cost.0),
            false if cost.0 <= 0.0 => "at once".to_string(),
            false => "never".to_string(),
        };
        *word = format!("{ratio:.2}, {time:.2}, {days}");
        before = Some((ratio, time));
    }
    words
}

fn days(ratio: f64, codec_eur_per_gb: f64) -> String {
    let keeping = Keeping {
        ratio,
        codec_eur_per_gb,
        store_eur_per_gb_year: STORE_EUR_PER_GB_YEAR,
    };
    match keeping.redemption_days() {
        Outcome::Above(days) => format!("{days:.1}"),
        Outcome::Always => "at once".to_string(),
        Outcome::Below(_) | Outcome::Never => "never".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redemption_is_the_thesiss() {
        let text = redemption();
        assert!(text.contains("| 1.1 | 48 | 48 | 46.2 | 4.2 |"), "{text}");
        assert!(text.contains("| 2 | 265 | 265 |"), "{text}");
    }

    #[test]
    fn steps_are_paid_by_what_they_store_less() {
        // Section 5.2.2: S1 at a factor of 1.05 takes 1/1.05 of the call and has paid after 3 days. The same factor by
        // S2 in the whole call costs 4.76 % of 5 s of the machine, 0.00061 EUR, for nothing. S3 stores 0.1 less in half
        // of it more: 0.0003 EUR at 0.053 EUR a year for a GB.
        let found = steps(
            [Some(1.05), Some(1.05), Some(1.0 / (1.0 / 1.05 - 0.1))],
            [Some(1.0 / 1.05), Some(1.0), Some(1.5)],
            Seconds(5.0),
        );
        assert_eq!(
            found,
            ["1.05, 0.95, 3.3", "1.05, 1.00, never", "1.17, 1.50, 21.0"]
        );
        let unknown = steps(
            [None, Some(2.0), None],
            [None, Some(1.0), None],
            Seconds(1.0),
        );
        assert_eq!(unknown, ["-", "-", "-"]);
    }
}
