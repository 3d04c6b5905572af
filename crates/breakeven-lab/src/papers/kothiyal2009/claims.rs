//! The claims of the paper about time and sizes, each an experiment over the shared record.

use std::path::Path;

use anyhow::Result;

use super::contenders::{CONTENDERS, PLAIN};
use super::files::FileType;
use super::measured::{self, Measured, Metric, RUNS_MIN};
use super::pictures;
use super::published;
use super::tasks::{self, READ, WRITE};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::Finding;
use crate::record::CellRecord;
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self as markdown, Shown};

/// The parameters of all experiments on single files.
pub const PARAMETERS: &[(&str, &str)] = &[
    (
        "files",
        "text, binary, random and zero; one period of 64 MiB, of --data where it is given, over and over",
    ),
    (
        "sizes",
        "512 MiB; 256, 64 and 16 MiB for slow and slower invocations, of random a quarter of that; scaled in proportion to 2 GiB. All of them 2 GiB with --paper-size, which takes many hours (quick: 2 MiB and less)",
    ),
    (
        "programs",
        "gzip, lzop, bzip2, compress and 7-Zip's PPMd as Table 4.2 has them; lz4, zstd, xz; our methods in 1 MiB blocks",
    ),
    (
        "tasks",
        "raw file to stored file and sync; stored file to nowhere; nothing in the page cache before either",
    ),
    (
        "runs",
        "5, and up to 10 until both half-widths are below 5 % (quick: 2); all contenders of a file size take turns",
    ),
];

pub const LZOP_ON_TEXT: Experiment = Experiment {
    key: "kothiyal2009/lzop-on-text",
    claim: "On text, lzop -1 and -3 always pay in time: they write and read faster than plain writing and reading.",
    source: "sections 5.3.1 and 6; the server writes in 0.66 and reads in 0.31 of the plain time",
    figure: "time with compression over time without",
    target: BELOW_ONE,
    parameters: PARAMETERS,
    analysis: "The variations are programs that came after the paper, and binary files. There the paper finds that \
        lzop pays only above one read per write. The disk decides: at the rate of the paper's one, every program here \
        would pay, and at the rate of a memory none.",
    run: |laboratory| Ok(lzop_on_text(&tasks::measure(laboratory)?)),
    table: |records| table(records, lzop_on_text),
    pictures: |records| pictures::bars(records, FileType::Text, "5.1 to 5.3, 5.8 and 5.12"),
};

pub const SLOW_PROGRAMS: Experiment = Experiment {
    key: "kothiyal2009/slow-programs",
    claim: "On text and binary files, bzip2, compress and PPMd never pay in time.",
    source: "sections 5.2, 5.3 and Table 5.1",
    figure: "time with compression over time without, of writing or reading, whichever is less",
    target: ABOVE_ONE,
    parameters: PARAMETERS,
    analysis: "Never means that neither writing nor reading is faster, so the lesser of the two ratios judges.",
    run: |laboratory| Ok(slow_programs(&tasks::measure(laboratory)?)),
    table: |records| table(records, slow_programs),
    pictures: |records| pictures::bars(records, FileType::Binary, "5.1, 5.2, 5.5, 5.9 and 5.13"),
};

pub const RANDOM_FILES: Experiment = Experiment {
    key: "kothiyal2009/random-files",
    claim: "On random files, nothing ever pays in time.",
    source: "section 5.3.3 and Tables 5.1 to 5.3",
    figure: "time with compression over time without, of writing or reading, whichever is less",
    target: ABOVE_ONE,
    parameters: PARAMETERS,
    analysis: "The variations came after the paper: they give up early on data that do not shrink, so they lose least.",
    run: |laboratory| Ok(random_files(&tasks::measure(laboratory)?)),
    table: |records| table(records, random_files),
    pictures: |records| pictures::bars(records, FileType::Random, "5.1, 5.2, 5.6, 5.10 and 5.14"),
};

pub const ZERO_FILES: Experiment = Experiment {
    key: "kothiyal2009/zero-files",
    claim: "On files of zeros, gzip, lzop -1 and -3 and compress always pay in time.",
    source: "section 5.3.4 and Table 5.1",
    figure: "time with compression over time without, of writing or reading, whichever is more",
    target: BELOW_ONE,
    parameters: PARAMETERS,
    analysis: "Always means that both writing and reading are faster, so the greater of the two ratios judges. Nothing \
        is left to write, so only the speed at which a program looks at zeros remains. On a fast disk that is no \
        longer enough.",
    run: |laboratory| Ok(zero_files(&tasks::measure(laboratory)?)),
    table: |records| table(records, zero_files),
    pictures: |records| pictures::bars(records, FileType::Zero, "5.1, 5.2, 5.7, 5.11 and 5.15"),
};

pub const RATIOS: Experiment = Experiment {
    key: "kothiyal2009/ratios",
    claim: "Text shrinks as Table 4.3 says.",
    source: "Table 4.3, compression ratios",
    figure: "our ratio over the published one",
    target: Target {
        low: 0.75,
        high: 1.33,
    },
    parameters: PARAMETERS,
    analysis: "The paper's files are not at hand. Its text is sources alone; ours is half sources, and has a dictionary and a \
        novel besides, which shrink less. Its binary file is objects and executables, ours executables, measurements, an \
        image and tables. The order of the programs can be compared, the figures only roughly. That random files are said to \
        grow by 5 % is the paper's own figure: gzip grows by 0.02 %.",
    run: |laboratory| Ok(ratios(&tasks::measure(laboratory)?)),
    table: ratios_table,
    pictures: no_pictures,
};

const BELOW_ONE: Target = Target {
    low: 0.0,
    high: 1.0,
};
const ABOVE_ONE: Target = Target::at_least(1.0);

/// Makes Markdown of findings and where they come from.
pub fn table(records: &Path, judge: impl Fn(&[CellRecord]) -> Vec<Finding>) -> Result<Shown> {
    markdown::table_of(records, tasks::RECORD, tasks::COLUMNS, judge)
}

/// The one of the two tasks that judges.
enum Way {
    Least,
    Most,
}

/// Makes a finding of a contender's time over plain's.
fn finding(
    measured: &Measured<'_>,
    file: FileType,
    way: &Way,
    target: Target,
    core: bool,
) -> Finding {
    let write = measured.over_plain(WRITE, Metric::Time);
    let read = measured.over_plain(READ, Metric::Time);
    let found = match (way, write.middle < read.middle) {
        (Way::Least, true) | (Way::Most, false) => write,
        (Way::Least, false) | (Way::Most, true) => read,
    };
    let published = published::find(published::SERVER.rows, measured.name);
    let published = match published {
        Some(row) => format!("; published server: {}", row.cell(file)),
        None if measured.name.starts_with("ppmd") => "; published: never".to_string(),
        None => String::new(),
    };
    Finding {
        question: format!("{} {}", file.name(), measured.name),
        core,
        found,
        verdict: target.judge_by(found, RUNS_MIN),
        note: format!(
            "writes in {:.2}, reads in {:.2} of the plain time{}{published}",
            write.middle,
            read.middle,
            scaled(measured)
        ),
    }
}

fn scaled(measured: &Measured<'_>) -> String {
    let from = measured.scaled_from();
    from.map_or(String::new(), |size| format!("; scaled from {size}"))
}

/// Returns the findings on the `core` contenders of a file, then on the `others`.
fn findings(
    cells: &[CellRecord],
    file: FileType,
    (way, target): (Way, Target),
    core: impl Fn(&str) -> bool,
    others: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let all = measured::of_file(cells, file);
    let contenders = all.iter().filter(|measured| measured.name != PLAIN);
    let (first, rest): (Vec<&Measured<'_>>, Vec<&Measured<'_>>) =
        contenders.partition(|measured| core(measured.name));
    let rest = rest.into_iter().filter(|measured| others(measured.name));
    let one = |measured: &Measured<'_>| finding(measured, file, &way, target, core(measured.name));
    first.into_iter().chain(rest).map(one).collect()
}

/// Whether the paper has a contender.
pub fn is_of_paper(name: &str) -> bool {
    published::find(published::RATIOS, name).is_some()
}

fn lzop_on_text(cells: &[CellRecord]) -> Vec<Finding> {
    const CORE: [&str; 2] = ["lzop -1", "lzop -3"];
    const LATER: [&str; 6] = [
        "lz4 -1",
        "zstd -1",
        "zstd -3",
        "our lz4:1",
        "our zstd:1",
        "our zstd:3",
    ];
    let is_core = |name: &str| CORE.contains(&name);
    let is_later = |name: &str| LATER.contains(&name);
    let nobody = |_: &str| false;
    let text = (Way::Most, BELOW_ONE);
    let mut found = findings(cells, FileType::Text, text, is_core, is_later);
    let binary = (Way::Most, BELOW_ONE);
    let either = |name: &str| is_core(name) || is_later(name);
    found.extend(findings(cells, FileType::Binary, binary, nobody, either));
    found
}

fn slow_programs(cells: &[CellRecord]) -> Vec<Finding> {
    let is_core = |name: &str| {
        ["bzip2", "compress", "ppmd"]
            .iter()
            .any(|slow| name.starts_with(slow))
    };
    let files = [FileType::Text, FileType::Binary];
    let of_file = |file| {
        findings(cells, file, (Way::Least, ABOVE_ONE), is_core, |name| {
            name == "xz -6"
        })
    };
    files.into_iter().flat_map(of_file).collect()
}

fn random_files(cells: &[CellRecord]) -> Vec<Finding> {
    let way = (Way::Least, ABOVE_ONE);
    findings(cells, FileType::Random, way, is_of_paper, |_| true)
}

fn zero_files(cells: &[CellRecord]) -> Vec<Finding> {
    let is_core = |name: &str| {
        name.starts_with("gzip")
            || name.starts_with("compress")
            || ["lzop -1", "lzop -3"].contains(&name)
    };
    findings(
        cells,
        FileType::Zero,
        (Way::Most, BELOW_ONE),
        is_core,
        |_| true,
    )
}

fn ratios(cells: &[CellRecord]) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in [FileType::Text, FileType::Binary, FileType::Random] {
        for measured in measured::of_file(cells, file) {
            let row = published::find(published::RATIOS, measured.name);
            let Some(published) = row.and_then(|row| published::number(row.cell(file), 0)) else {
                continue;
            };
            let quotient = Interval::exact((1e3 * measured.ratio() / published).round() / 1e3);
            found.push(Finding {
                question: format!("{} {}", file.name(), measured.name),
                core: file == FileType::Text,
                found: quotient,
                // Generated data is like no file of the paper's.
                verdict: match measured.is_generated() && file != FileType::Random {
                    true => Verdict::CannotTell,
                    false => RATIOS.target.judge(quotient),
                },
                note: format!("ratio {:.2}, published {published}", measured.ratio()),
            });
        }
    }
    found
}

/// Table 4.3 again: our ratios, the published ones beside them.
fn ratios_table(records: &Path) -> Result<Shown> {
    let cells = tasks::recorded(records)?;
    let mut text = table(records, ratios)?;
    if cells.is_empty() {
        return Ok(text);
    }
    text.push_str("\nTable 4.3 again: ratios here, the published ones in brackets.\n\n");
    text.push_str("| | text | binary | random | zero |\n|---|---:|---:|---:|---:|\n");
    for contender in CONTENDERS {
        let cell = |file: FileType| {
            let found = measured::find(&cells, file, contender.name);
            let own = found.map_or("-".to_string(), |measured| ratio(measured.ratio()));
            let published = published::find(published::RATIOS, contender.name);
            let published = published.map(|row| format!(" ({})", row.cell(file)));
            own + &published.unwrap_or_default()
        };
        let row: Vec<String> = FileType::ALL.map(cell).into();
        text.push_str(&format!("| {} | {} |\n", contender.name, row.join(" | ")));
    }
    Ok(text)
}

fn ratio(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 100.0 => format!("{ratio:.2}"),
        ratio => breakeven_cli::draw::scale::number(ratio.round()),
    }
}
