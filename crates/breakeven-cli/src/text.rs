//! The report as text: stable, aligned, readable in a pipe and in a terminal.

use std::fmt::Write;

use breakeven::advise::report::{
    BestSplitReport, ClassReport, Evidence, Flip, MethodReport, Report, SmallFilesReport,
    SuggestionReport, VerdictReport,
};
use breakeven::model::Access;
use breakeven::units::Estimate;

use breakeven::advise::archive_method;
pub use breakeven::advise::{binary_size, percent_range};
pub use breakeven::quoted::printable;

/// Renders the whole report, every table of it.
pub fn render(report: &Report) -> String {
    let whole = render_lines(report);
    let mut out = String::with_capacity(whole.len());
    for line in whole.lines() {
        out.push_str(&printable(line));
        out.push('\n');
    }
    out
}

fn render_lines(report: &Report) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}\n", report.headline);
    facts(&mut out, report);
    classes(&mut out, report);
    verdicts(&mut out, report);
    cache(&mut out, report);
    suggestions(&mut out, report);
    if let Some(found) = &report.small_files {
        let _ = writeln!(out, "archive  {}\n", archive(found));
    }
    for note in &report.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

fn facts(out: &mut String, report: &Report) {
    let (sample, medium) = (&report.sample, &report.medium);
    let _ = writeln!(
        out,
        "sample   {} of {} in {} files, blocks of {}, seed {}: the least certain ratio +- {} ({}, {:.0} s)",
        size(sample.bytes as f64),
        size(sample.population_bytes as f64),
        sample.files,
        binary_size(sample.block_bytes),
        sample.seed,
        percent(sample.bound),
        sample.ended,
        sample.seconds,
    );
    let _ = writeln!(out, "machine  {}", machine_line(report));
    let _ = writeln!(
        out,
        "medium   {}: reads {} MB/s, writes {} MB/s, random 8 KiB read {} us [{}]\n",
        medium.name,
        figures(medium.read_mb_s.mean),
        figures(medium.write_mb_s.mean),
        figures(medium.random_read_us.mean),
        medium.source,
    );
}

/// The machine in one line.
pub fn machine_line(report: &Report) -> String {
    let machine = &report.machine;
    let memory = machine
        .memory_bytes
        .map_or(String::new(), |bytes| format!(", {}", size(bytes as f64)));
    let virtualisation = machine.virtualisation.as_deref().unwrap_or("bare metal");
    format!(
        "{}, {} cores{memory}, {virtualisation}",
        machine.processor, machine.cores
    )
}

fn classes(out: &mut String, report: &Report) {
    let total = report.sample.population_bytes as f64;
    let _ = writeln!(
        out,
        "{:<24} {:>7}  {:<11} {:>7}  {:>15}  {:>9} {:>9}  {:>7} {:>7}",
        "class", "bytes", "method", "block", "ratio", "comp MB/s", "dec MB/s", "c J/GB", "d J/GB"
    );
    for class in &report.classes {
        let mut name = class.name.as_str();
        let mut share = percent(class.bytes.mean / total);
        for method in shown(class, report) {
            let _ = writeln!(
                out,
                "{:<24} {:>7}  {:<11} {:>7}  {:>15}  {:>9} {:>9}  {:>7} {:>7}",
                name,
                share,
                method.method,
                binary_size(method.block_bytes),
                marked_ratio(method),
                figures(method.compress_mb_s),
                figures(method.decompress_mb_s),
                figures(method.energy.compress_j_per_gb.mean),
                figures(method.energy.decompress_j_per_gb.mean),
            );
            (name, share) = ("", String::new());
        }
    }
    if let Some(energy) = report
        .classes
        .iter()
        .flat_map(|class| &class.methods)
        .next()
    {
        let _ = writeln!(out, "joules of one core [{}]", energy.energy.source);
    }
    if report
        .classes
        .iter()
        .flat_map(|class| shown(class, report))
        .any(is_doubtful)
    {
        let _ = writeln!(out, "{DOUBT_LEGEND}");
    }
    out.push('\n');
}

/// All methods at the files' block size; at other sizes only for all data together.
fn shown<'r>(class: &'r ClassReport, report: &'r Report) -> impl Iterator<Item = &'r MethodReport> {
    let all = class.name == "all";
    let file_block = report.sample.block_bytes;
    class
        .methods
        .iter()
        .filter(move |method| all || method.block_bytes == file_block)
}

/// The verdicts for all data in full, then the best method for each class.
fn verdicts(out: &mut String, report: &Report) {
    let _ = writeln!(
        out,
        "{:<6} {:<13} {:<10} {:>12}  {:<47} flips",
        "place", "metric", "best", "cost of raw", "answer for all data"
    );
    for verdict in report
        .verdicts
        .iter()
        .filter(|verdict| verdict.class == "all")
    {
        let _ = writeln!(
            out,
            "{:<6} {:<13} {:<10} {:>12}  {:<47} {}",
            verdict.place,
            verdict.metric,
            verdict.method,
            percent_range(&verdict.cost_ratio),
            answer(verdict),
            turns(verdict),
        );
    }
    let _ = writeln!(
        out,
        "\n{:<24} best in time, energy, energy-delay, money",
        "class"
    );
    for class in report.classes.iter().filter(|class| class.name != "all") {
        let places = ["file", "link", "pages"].map(|place| {
            let of_place =
                |verdict: &&VerdictReport| verdict.place == place && verdict.class == class.name;
            let methods: Vec<&str> = report
                .verdicts
                .iter()
                .filter(of_place)
                .map(|verdict| match verdict.answer.as_str() {
                    "undecided" => "undecided",
                    _ => verdict.method.as_str(),
                })
                .collect();
            match methods.as_slice() {
                [] => format!("{place}: not measured"),
                methods => format!("{place}: {}", methods.join(", ")),
            }
        });
        let _ = writeln!(out, "{:<24} {}", class.name, places.join("; "));
    }
    let _ = writeln!(out);
}

/// The best split of a cache's memory in each metric.
fn cache(out: &mut String, report: &Report) {
    let Some(cache) = &report.cache else { return };
    let _ = writeln!(
        out,
        "cache    {} of memory before {} of data, {}: {} of the accesses hit raw",
        memory_size(cache.memory_bytes),
        memory_size(cache.data_bytes),
        cache.access,
        percent(cache.raw_hit_ratio),
    );
    for best in &cache.best {
        let _ = writeln!(out, "         {:<13} {}", best.metric, split(best));
    }
    let _ = writeln!(out);
}

/// The advice for a cache's memory, in words.
pub fn split(best: &BestSplitReport) -> String {
    let again = if best.again { " seen again" } else { "" };
    let split = format!(
        "{:.0} % of it for {} buffers{again}",
        100.0 * best.compressed_share,
        best.method
    );
    let cost = percent_range(&best.cost_ratio);
    match best.answer.as_str() {
        "never" => format!("raw only: {split} would cost {cost} of that"),
        "undecided" => format!("undecided: {split} costs {cost} of raw only"),
        _ => format!(
            "{split}: costs {cost} of raw only, {} hit, {} of the accesses are restored",
            percent(best.hit_ratio),
            percent(best.restored)
        ),
    }
}

/// One line for each tool; the rest is on the page and in the JSON.
fn suggestions(out: &mut String, report: &Report) {
    if report.suggestions.is_empty() {
        return;
    }
    let _ = writeln!(out, "{:<10} {:<16} suggested setting", "tool", "for");
    for suggestion in &report.suggestions {
        let _ = writeln!(
            out,
            "{:<10} {:<16} {}",
            suggestion.tool,
            suggestion.subject,
            told(suggestion)
        );
    }
    let _ = writeln!(out);
}

/// The effect of an archive on small files, in words.
pub fn archive(found: &SmallFilesReport) -> String {
    let saves = match found.answer.as_str() {
        "saves" => format!("saves {}", percent_range(&found.saved_share)),
        "saves_nothing" => "saves nothing".to_string(),
        _ => "undecided".to_string(),
    };
    let milliseconds = |us: f64| figures(us / 1e3);
    format!(
        "{} small files of {} in one archive: {saves}; by {} it takes {} in place of {}, and to read one file {} ms on the mean \
         in place of {}",
        found.files,
        size(found.bytes as f64),
        archive_method(found),
        size(found.archive_bytes),
        size(found.alone_bytes),
        milliseconds(found.read_archived_us),
        milliseconds(found.read_alone_us),
    )
}

/// The setting for a tool, in one line.
pub fn told(suggestion: &SuggestionReport) -> String {
    let cost = percent_range(&suggestion.cost_ratio);
    let (method, metric) = (&suggestion.method, &suggestion.metric);
    match (suggestion.answer.as_str(), suggestion.settings.first()) {
        ("compress", _) => suggestion.settings.join("; "),
        ("leave_off", None) => format!("leave as it is ({method}: {cost} of raw in {metric})"),
        ("leave_off", Some(off)) => {
            format!("leave it off: {off} ({method}: {cost} of raw in {metric})")
        }
        _ => format!("undecided ({method}: {cost} of raw in {metric})"),
    }
}

/// The meaning of the marks before a ratio.
pub const DOUBT_LEGEND: &str =
    "~ predicted from other methods and data, ? hardly measured: neither may win a verdict";

/// Returns whether the evidence on a method is too thin to win a verdict.
pub fn is_doubtful(method: &MethodReport) -> bool {
    method.evidence != Evidence::Measured
}

/// The ratio of a method, with a mark if it is not a sound measurement.
pub fn marked_ratio(method: &MethodReport) -> String {
    let mark = match method.evidence {
        Evidence::Measured => "",
        Evidence::HardlyMeasured => "? ",
        Evidence::Predicted => "~ ",
    };
    format!("{mark}{}", ratio(&method.ratio))
}

/// The conditions that would turn a verdict: other terms, or better knowledge of a method.
pub fn turns(verdict: &VerdictReport) -> String {
    let might = verdict.might.iter().map(|might| {
        let cost = percent_range(&might.cost_ratio);
        format!(
            "{} might cost {cost} ({})",
            might.method,
            might.evidence.words()
        )
    });
    let turns: Vec<String> = verdict.flips_at.iter().map(flip).chain(might).collect();
    turns.join("; ")
}

/// The other side of a verdict's turn, and its place.
pub fn flip(flip: &Flip) -> String {
    let value = figures(flip.value);
    let then = &flip.then;
    match flip.quantity.as_str() {
        "medium_speed_factor" if flip.value >= 1.0 => format!("{then} if {value}x faster"),
        "medium_speed_factor" => format!("{then} if {}x slower", figures(1.0 / flip.value)),
        "reads_per_write" => format!("{then} from {value} reads"),
        "link_mb_s" => format!("{then} at {} MB/s", speed(flip.value)),
        "miss_us" => format!("{then} at misses of {value} us"),
        quantity => format!("{then} at {quantity} {value}"),
    }
}

/// MB/s; no slower link than a kB/s lasts long enough for the difference to count.
fn speed(mb_s: f64) -> String {
    match mb_s < 1e-3 {
        true => "under 0.001".to_string(),
        false => figures(mb_s),
    }
}

/// The unit of a break-even in words.
fn unit(verdict: &VerdictReport) -> &str {
    match verdict.unit.as_str() {
        "reads_per_write" => "reads",
        "link_mb_s" => "MB/s",
        "compressed_share" => "of memory",
        other => other,
    }
}

/// One verdict in words, with its break-even and the band of it.
pub fn answer(verdict: &VerdictReport) -> String {
    let (candidate, unit) = (&verdict.candidate, unit(verdict));
    let figures = |value| match verdict.unit.as_str() {
        "link_mb_s" => speed(value),
        _ => figures(value),
    };
    let band = match (verdict.break_even, verdict.low, verdict.high) {
        (Some(value), Some(low), Some(high)) if high > low => {
            format!("{} ({} to {})", figures(value), figures(low), figures(high))
        }
        (Some(value), _, _) => figures(value),
        (None, Some(low), Some(high)) => format!("{} to {}", figures(low), figures(high)),
        _ => String::new(),
    };
    match verdict.answer.as_str() {
        "pays" => format!("{candidate} pays"),
        "pays_above" => format!("{candidate} pays above {band} {unit}"),
        "pays_below" => format!("{candidate} pays below {band} {unit}"),
        "never" => format!("{candidate} never pays"),
        _ if band.is_empty() => format!("{candidate} undecided"),
        _ => format!("{candidate} undecided, break-even {band} {unit}"),
    }
}

/// Reads how accesses spread, as options and reports have it: even, pareto or zipf:S, S from 0 to 100.
pub fn access(text: &str) -> Option<Access> {
    match text.split_once(':') {
        None if text == "even" => Some(Access::Even),
        None if text == "pareto" => Some(Access::Pareto),
        Some(("zipf", exponent)) => {
            let exponent = exponent.parse::<f64>().ok();
            let exponent = exponent.filter(|it| (0.0..=100.0).contains(it));
            exponent.map(Access::Zipf)
        }
        _ => None,
    }
}

/// A size in decimal units, as disks are sold.
pub fn size(bytes: f64) -> String {
    let (value, unit) = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")]
        .into_iter()
        .find(|(scale, _)| bytes >= *scale)
        .map_or((bytes, "B"), |(scale, unit)| (bytes / scale, unit));
    format!("{} {unit}", figures(value))
}

/// A size in binary units, as memory is sold.
pub fn memory_size(bytes: u64) -> String {
    let (scale, unit) = [(30, "GiB"), (20, "MiB")]
        .into_iter()
        .find(|(bits, _)| bytes >> bits > 0)
        .unwrap_or((10, "KiB"));
    format!(
        "{} {unit}",
        figures(bytes as f64 / f64::from(1u32 << scale))
    )
}

pub fn ratio(ratio: &Estimate) -> String {
    let half_width = (ratio.high - ratio.low) / 2.0;
    if half_width < 0.005 * ratio.mean.abs().max(1.0) && half_width < 0.005 {
        return figures(ratio.mean);
    }
    if !half_width.is_finite() {
        return format!("{} +- ?", figures(ratio.mean));
    }
    format!("{} +- {:.2}", figures(ratio.mean), half_width)
}

/// A share in percent.
pub fn percent(share: f64) -> String {
    if share.is_finite() {
        format!("{:.1} %", 100.0 * share)
    } else {
        "?".to_string()
    }
}

/// Three significant figures, thousands set apart. Two for small values, and words for large ones.
pub fn figures(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_string();
    }
    match value.abs() {
        0.0 => "0".to_string(),
        size if !(1e-6..1e12).contains(&size) => format!("{value:.2e}"),
        size if size < 1e-3 => format!("{value:.*}", (1.0 - size.log10().floor()) as usize),
        size if size >= 1e9 => format!("{} billion", figures(value / 1e9)),
        size if size >= 1e6 => format!("{} million", figures(value / 1e6)),
        size if size >= 1000.0 => {
            let whole = value.round() as i64;
            format!("{},{:03}", whole / 1000, whole.abs() % 1000)
        }
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A count of days, for a number as it is printed.
pub fn days(number: &str) -> String {
    match number {
        "1" | "1.00" => "1 day".to_string(),
        number => format!("{number} days"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_day_is_no_days() {
        assert_eq!(days(&figures(1.0)), "1 day");
        assert_eq!(days(&1_f64.to_string()), "1 day");
        assert_eq!(days("1.5"), "1.5 days");
        assert_eq!(days(&figures(90.0)), "90.0 days");
    }

    #[test]
    fn words_for_spreads_are_read_as_they_are_written_or_refused() {
        for spread in [Access::Even, Access::Pareto, Access::Zipf(0.9)] {
            assert_eq!(access(&spread.to_string()), Some(spread));
        }
        for text in ["", "zipf", "zipf:x", "zipf:NaN", "zipf:1e9", "<b>"] {
            assert_eq!(access(text), None, "{text}");
        }
    }

    #[test]
    fn block_sizes_are_told_whole() {
        let check = |bytes, expected| assert_eq!(binary_size(bytes), expected);
        check(8192, "8 KiB");
        check(1 << 20, "1 MiB");
        check(3000, "3000 bytes");
        check(1 << 20 | 1 << 10, "1025 KiB");
        check(0, "0 bytes");
    }

    #[test]
    fn splits_are_worded() {
        let check = |answer: &str, again, expected: &str| {
            let best = BestSplitReport {
                metric: "time".to_string(),
                answer: answer.to_string(),
                method: "zstd:1".to_string(),
                compressed_share: 0.85,
                again,
                hit_ratio: 0.912,
                restored: 0.3,
                cost_ratio: Estimate::plus_minus(0.65, 0.05),
            };
            assert_eq!(split(&best), expected);
        };
        check(
            "pays",
            false,
            "85 % of it for zstd:1 buffers: costs 60-70 % of raw only, 91.2 % hit, 30.0 % of the accesses \
             are restored",
        );
        check(
            "undecided",
            true,
            "undecided: 85 % of it for zstd:1 buffers seen again costs 60-70 % of raw only",
        );
        check(
            "never",
            false,
            "raw only: 85 % of it for zstd:1 buffers would cost 60-70 % of that",
        );
    }

    #[test]
    fn figures_have_three_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (0.0123, "0.012"),
            (2.5, "2.50"),
            (12.34, "12.3"),
            (456.7, "457"),
            (12_345.6, "12,346"),
            (3.2e7, "32.0 million"),
            (4.5e9, "4.50 billion"),
            (3.2e14, "3.20e14"),
            (3.41e-5, "0.000034"),
            (3.41e-8, "3.41e-8"),
            (f64::INFINITY, "?"),
        ] {
            assert_eq!(figures(value), expected);
        }
        assert_eq!(size(3_210_000_000.0), "3.21 GB");
        let check = |bytes, expected| assert_eq!(memory_size(bytes), expected);
        check(0, "0 KiB");
        check(640 << 10, "640 KiB");
        check((3 << 20) + (512 << 10), "3.50 MiB");
        check(64 << 30, "64.0 GiB");
    }
}
