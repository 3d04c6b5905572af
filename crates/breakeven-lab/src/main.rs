//! `breakeven-lab`: the claims of the papers and of this project, measured on this machine.
//!
//! Options and exit codes. 0: no claim was refuted. 1: a claim was, or something could not be done.
//! 2: usage. A quick run has too few runs to refute a claim about speed.
#![deny(unsafe_code)]

mod chart;
mod clock;
mod data;
mod device;
mod experiment;
mod interleave;
mod laboratory;
mod memory;
mod origin;
mod pages;
mod papers;
mod peers;
mod programs;
mod record;
mod statistics;
mod tables;

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};

use crate::experiment::Experiment;
use crate::laboratory::Laboratory;
use crate::origin::Origin;
use crate::papers::{harper2018_cache, hirsch2017, kothiyal2009};
use crate::statistics::Verdict;

/// Measures the claims of the papers and of this project on this machine.
#[derive(Parser)]
#[command(version)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the experiments with their claims.
    List,
    /// Measure, record and judge.
    Run(RunOptions),
    /// Write the tables and pictures of docs/lab from the records.
    Figures {
        /// The folder of records [default: the tree's own]
        #[arg(long, value_name = "DIR")]
        records: Option<PathBuf>,
    },
    /// List the peers that there are, with their versions.
    Peers,
    /// Start a peer: `breakeven-lab peer zstd -V`.
    Peer {
        /// The program and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Work of the laboratory's own child processes.
    #[command(hide = true)]
    Work {
        #[command(subcommand)]
        order: kothiyal2009::worker::Order,
    },
    /// The same, as a cache.
    #[command(hide = true)]
    Rival {
        #[command(subcommand)]
        order: harper2018_cache::rival_worker::Order,
    },
    /// The same, over streams.
    #[command(hide = true)]
    Stream {
        #[command(subcommand)]
        order: hirsch2017::worker::Order,
    },
}

#[derive(Args)]
struct RunOptions {
    /// The experiments: PAPER/EXPERIMENT, PAPER, or all.
    #[arg(required = true)]
    experiments: Vec<String>,
    /// A handful of cells and few runs, to see that everything works; recorded only with --records.
    #[arg(long)]
    quick: bool,
    /// A folder of real data with a MANIFEST.tsv.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The folder of records [default: the tree's own]
    #[arg(long, value_name = "DIR")]
    records: Option<PathBuf>,
    /// Measure cells again that are recorded for this code, machine and parameters.
    #[arg(long)]
    again: bool,
    /// Measure only cells whose name has this word; take others from records of older code.
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// kothiyal2009: give every program the paper's 2 GiB, not a part of it (many hours). hirsch2017: write for 10 s in
    /// every run of every cell. peng2020-dedup/best: borg at lzma,9 too.
    #[arg(long)]
    paper_size: bool,
    /// hirsch2017/fastest: about so many seconds for each run of a core cell.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    core_seconds: f64,
    /// Replace the committed table of compressed sizes by the measured one.
    #[arg(long)]
    update: bool,
}

fn main() -> ExitCode {
    let outcome = match Options::parse().command {
        Command::List => {
            list();
            Ok(Verdict::Holds)
        }
        Command::Peers => {
            peers::list();
            Ok(Verdict::Holds)
        }
        Command::Peer { words } => peers::become_peer(&words).map(|()| Verdict::Holds),
        Command::Run(options) => match chosen(&options.experiments) {
            Ok(experiments) => run(options, &experiments),
            Err(error) => {
                eprintln!("breakeven-lab: {error:#}");
                return ExitCode::from(2);
            }
        },
        Command::Work { order } => kothiyal2009::worker::run(order).map(|()| Verdict::Holds),
        Command::Rival { order } => {
            harper2018_cache::rival_worker::run(&order).map(|()| Verdict::Holds)
        }
        Command::Stream { order } => hirsch2017::worker::run(order).map(|()| Verdict::Holds),
        Command::Figures { records } => {
            let records = records.unwrap_or_else(default_records);
            pages::write(&pages::folder(), &records).map(|()| Verdict::Holds)
        }
    };
    match outcome {
        Ok(Verdict::Holds | Verdict::CannotTell) => ExitCode::SUCCESS,
        Ok(Verdict::Differs) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("breakeven-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn list() {
    for experiment in papers::all() {
        println!("{}\n    {}", experiment.key, experiment.claim);
        println!("    {}", tables::expectation(experiment));
    }
}

/// Returns the meaning of the words.
fn chosen(words: &[String]) -> Result<Vec<&'static Experiment>> {
    let mut experiments = Vec::new();
    for word in words {
        let named = papers::named(word);
        ensure!(
            !named.is_empty(),
            "no experiment '{word}'; see breakeven-lab list"
        );
        experiments.extend(named);
    }
    Ok(experiments)
}

fn run(options: RunOptions, experiments: &[&Experiment]) -> Result<Verdict> {
    let laboratory = Laboratory {
        quick: options.quick,
        again: options.again,
        only: options.only,
        update: options.update,
        data: options.data,
        paper_size: options.paper_size,
        core_seconds: options.core_seconds,
        done: RefCell::default(),
        keep: !options.quick || options.records.is_some(),
        records: options.records.unwrap_or_else(default_records),
        origin: Origin::read(),
    };
    if laboratory.keep && !laboratory.quick {
        origin::check_built()?;
    }
    eprintln!("machine {}", laboratory.origin.machine_description);
    eprintln!("{}", peers::origin());
    let mut worst = Verdict::Holds;
    for experiment in experiments {
        let findings = (experiment.run)(&laboratory).with_context(|| experiment.key.to_string())?;
        println!("{}: {}", experiment.key, experiment.claim);
        println!("{}\n", tables::expectation(experiment));
        println!("{}", tables::findings(&findings));
        println!("verdict: {}\n", tables::summary(&findings));
        worst = tables::verdict(&findings).map_or(worst, |verdict| verdict.max(worst));
    }
    Ok(worst)
}

fn default_records() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("records")
}
