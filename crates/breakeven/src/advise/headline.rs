//! The one sentence that comes first: the advice, and its saving with its error.

use crate::advise::report::{
    ClassReport, Evidence, MethodReport, Report, SmallFilesReport, VerdictReport,
};
use crate::advise::verdict::{Metric, WORTH_WHILE};
use crate::advise::{AdviseOptions, find, store_text};
use crate::units::Estimate;

/// Words the answer for the user's preference.
pub fn headline(report: &Report, options: &AdviseOptions) -> String {
    let mut text = file_by_file(report, options);
    // A user who does nothing to each file may still archive them, which is another answer beside this one.
    if let Some(found) = report
        .small_files
        .as_ref()
        .filter(|of| of.answer == "saves")
    {
        text.push_str(&format!(
            " Unless single files are read often, put the {} small files into one archive: compressed by {} it saves {} of \
             the space that they take alone, compressed.",
            found.files,
            archive_method(found),
            percent_range(&found.saved_share),
        ));
    }
    text
}

/// Words the method that compresses an archive of small files.
pub fn archive_method(found: &SmallFilesReport) -> String {
    match found.matches_far {
        true => format!("{} with far matches", found.method),
        false => found.method.clone(),
    }
}

/// Words the answer for files that are each stored alone.
fn file_by_file(report: &Report, options: &AdviseOptions) -> String {
    let Some(metric) = options.preference.metric() else {
        return densest_sentence(report, options);
    };
    let Some(verdict) = find(report, "file", metric, "all") else {
        return "Undecided: too little of the data was looked at for an answer.".to_string();
    };
    let mut text = sentence(report, options, metric, verdict);
    if let Some(might) = &verdict.might {
        text.push_str(&format!(
            " {} might cost less ({} of storing raw), but was {}.",
            might.method,
            percent_range(&might.cost_ratio),
            might.evidence.words(),
        ));
    }
    text
}

/// Words a verdict for all data at rest.
fn sentence(
    report: &Report,
    options: &AdviseOptions,
    metric: Metric,
    verdict: &VerdictReport,
) -> String {
    let terms = terms(options, metric);
    if verdict.answer == "undecided" {
        return format!(
            "Undecided: {} costs {} of storing raw in {metric} {terms}, so it may pay or not.",
            verdict.candidate,
            percent_range(&verdict.cost_ratio),
        );
    }
    if verdict.method == store_text() {
        return format!(
            "Do nothing: compressing does not pay. The best method, {}, would cost {} of storing raw in {metric} {terms}.",
            verdict.candidate,
            percent_range(&verdict.cost_ratio),
        );
    }
    let (saved, total) = saved_bytes(report, verdict, metric, options);
    let mut text = format!(
        "Compress with {} in {} blocks: saves {} of the space and costs {} of storing raw in {metric} {terms}.",
        verdict.method,
        binary_size(options.sample.block_bytes as u64),
        share(&saved.map(|bytes| bytes / total)),
        percent_range(&verdict.cost_ratio),
    );
    text.push_str(&of_bytes_alone(report, options, &verdict.method));
    let raw = raw_classes(report, metric);
    if !raw.is_empty() {
        text.push_str(&format!(" Store raw: {}.", raw.join(", ")));
    }
    text
}

/// The sentence for users who want the least space at any cost.
fn densest_sentence(report: &Report, options: &AdviseOptions) -> String {
    match densest(report, options.sample.block_bytes as u64) {
        Some(method) => format!(
            "Compress with {} in {} blocks: saves {} of the space, at {:.3} MB/s a core.{}",
            method.method,
            binary_size(options.sample.block_bytes as u64),
            share(&method.space_ratio().map(|ratio| 1.0 - 1.0 / ratio)),
            method.compress_mb_s,
            of_bytes_alone(report, options, &method.method),
        ),
        _ => "Do nothing: no method saves 1 % of the space.".to_string(),
    }
}

/// If saved space and saved bytes differ by more, both are named.
const TOLD_APART: f64 = 0.01;

/// Words the saving of a method in bytes, where whole blocks of the file system save another share.
fn of_bytes_alone(report: &Report, options: &AdviseOptions, method: &str) -> String {
    let block_bytes = options.sample.block_bytes as u64;
    let all = report.classes.last().map(|all| all.methods.iter());
    let named = |of: &&MethodReport| of.method == method && of.block_bytes == block_bytes;
    let Some(method) = all.and_then(|mut methods| methods.find(named)) else {
        return String::new();
    };
    let saved = |ratio: Estimate| 1.0 - 1.0 / ratio.mean;
    let (space, bytes) = (saved(method.space_ratio()), saved(method.ratio));
    if (space - bytes).abs() < TOLD_APART {
        return String::new();
    }
    format!(
        " Each file takes whole blocks of {} on its file system: of the bytes alone it saves {:.1} %.",
        binary_size(report.medium.allocation_unit_bytes),
        100.0 * bytes,
    )
}

/// Returns the measured method that stores least of all data at one block size; `None` if none is worth it.
pub fn densest(report: &Report, block_bytes: u64) -> Option<&MethodReport> {
    densest_of(report.classes.last()?, block_bytes)
}

/// Returns the measured method that stores least of a class at one block size. `None` if none saves more than
/// compressing must save anywhere.
pub fn densest_of(class: &ClassReport, block_bytes: u64) -> Option<&MethodReport> {
    let ratios = |method: &MethodReport| (method.space_ratio().mean, method.ratio.mean);
    let methods = class.methods.iter();
    methods
        .filter(|method| method.block_bytes == block_bytes)
        .filter(|method| method.evidence == Evidence::Measured)
        .filter(|method| 1.0 / method.space_ratio().mean < WORTH_WHILE)
        .max_by(|a, b| {
            let ((a_space, a_bytes), (b_space, b_bytes)) = (ratios(a), ratios(b));
            a_space
                .total_cmp(&b_space)
                .then(a_bytes.total_cmp(&b_bytes))
        })
}

/// Bytes of space for the files of a class.
fn space_of(class: &ClassReport) -> f64 {
    class.allocated_bytes.unwrap_or(class.bytes.mean)
}

/// Space saved by the method of `verdict`, and space taken. The saving is that on all data, less that on the classes
/// that are better stored raw.
fn saved_bytes(
    report: &Report,
    verdict: &VerdictReport,
    metric: Metric,
    options: &AdviseOptions,
) -> (Estimate, f64) {
    let block_bytes = options.sample.block_bytes as u64;
    let saved_of = |class: &ClassReport| {
        let named = |method: &&MethodReport| {
            method.method == verdict.method && method.block_bytes == block_bytes
        };
        let ratio = class.methods.iter().find(named)?.space_ratio();
        Some(ratio.map(|ratio| space_of(class) * (1.0 - 1.0 / ratio)))
    };
    let all = report.classes.iter().find(|class| class.name == "all");
    let total = all.map_or(0.0, space_of);
    let of_all = all.and_then(saved_of).unwrap_or(Estimate::exact(0.0));
    let is_raw = |class: &&ClassReport| {
        let chosen = find(report, "file", metric, &class.name);
        class.name != "all" && chosen.is_some_and(|chosen| chosen.method == store_text())
    };
    let raw_classes = report.classes.iter().filter(is_raw);
    let left: f64 = raw_classes.filter_map(saved_of).map(|of| of.mean).sum();
    // The error is that of all data together: the classes' own errors are not independent.
    let half_width = (of_all.high - of_all.low) / 2.0;
    (
        Estimate::plus_minus((of_all.mean - left).max(0.0), half_width),
        total,
    )
}

/// Classes of at least 1 % of the bytes that are better stored raw.
fn raw_classes(report: &Report, metric: Metric) -> Vec<String> {
    let classes: Vec<&ClassReport> = report
        .classes
        .iter()
        .filter(|class| class.name != "all")
        .collect();
    let total: f64 = classes.iter().map(|class| class.bytes.mean).sum();
    classes
        .into_iter()
        .filter(|class| class.bytes.mean >= 0.01 * total)
        .filter(|class| {
            find(report, "file", metric, &class.name)
                .is_some_and(|verdict| verdict.method == store_text())
        })
        .map(|class| {
            format!(
                "{} ({:.0} % of the bytes)",
                class_words(&class.name),
                100.0 * class.bytes.mean / total
            )
        })
        .collect()
}

/// Returns the words for people for a class, by its name in the report.
pub fn class_words(name: &str) -> String {
    if let Some(bytes) = name.strip_prefix("smooth-numbers-") {
        return format!("smooth {bytes}-byte numbers");
    }
    if let Some(bytes) = name.strip_prefix("rough-numbers-") {
        return format!("noisy {bytes}-byte numbers");
    }
    match name {
        "zero" => "zeros".to_string(),
        "constant" => "one byte repeated".to_string(),
        "packed" => "already packed".to_string(),
        "narrow-text" => "text of few letters".to_string(),
        "narrow-binary" => "binary of few values".to_string(),
        name => name.replace('-', " "),
    }
}

fn terms(options: &AdviseOptions, metric: Metric) -> String {
    let Estimate { low, high, .. } = options.reads_per_write;
    let reads = if low == high {
        format!("{low} reads per write")
    } else {
        format!("{low} to {high} reads per write")
    };
    if metric == Metric::Money {
        format!("over {} days and {reads}", options.days_kept)
    } else {
        format!("for {reads}")
    }
}

/// Beyond this multiple the exact number does not matter.
const FAR: f64 = 10.0;

/// Words a cost as a share of storing raw, or another share, with its interval.
pub fn percent_range(ratio: &Estimate) -> String {
    let (low, high) = (100.0 * ratio.low, 100.0 * ratio.high);
    if ratio.low >= FAR {
        "over 1000 %".to_string()
    } else if ratio.high >= FAR {
        format!("{low:.0} % to over 1000 %")
    } else if high - low < 1.0 {
        format!("{:.0} %", 100.0 * ratio.mean)
    } else {
        format!("{low:.0}-{high:.0} %")
    }
}

fn share(share: &Estimate) -> String {
    let half_width = 100.0 * (share.high - share.low) / 2.0;
    if !half_width.is_finite() {
        return format!("about {:.0} %", 100.0 * share.mean);
    }
    format!("{:.1} % +- {half_width:.1} %", 100.0 * share.mean)
}

/// Words a block size.
pub fn binary_size(bytes: u64) -> String {
    let units = [(20, "MiB"), (10, "KiB")];
    let whole = |(bits, _): &(u32, &str)| bytes >> bits > 0 && bytes.is_multiple_of(1 << bits);
    match units.into_iter().find(whole) {
        Some((bits, unit)) => format!("{} {unit}", bytes >> bits),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_a_person_would_say() {
        let check = |low: f64, high: f64, expected: &str| {
            let mean = (low + high) / 2.0;
            assert_eq!(percent_range(&Estimate { mean, low, high }), expected);
        };
        check(0.42, 0.424, "42 %");
        check(0.4, 0.6, "40-60 %");
        check(0.9, 4090.0, "90 % to over 1000 %");
        check(4090.0, 4095.87, "over 1000 %");
        check(0.5, f64::INFINITY, "50 % to over 1000 %");
    }
}
