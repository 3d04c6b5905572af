//! The binary `breakeven`: reads the command line and the environment, calls the library, prints.
//!
//! Exit codes: 0 good, 1 the answer is no or the data is bad, 2 usage; `compare` keeps 1 for a
//! changed verdict and says 2 to bad data as well. A broken pipe is no error.

#![deny(unsafe_code)]

mod advise;
mod bench;
mod calibrate;
mod compare;
mod db;
mod disk;
mod environment;
mod learned;
mod manual;
mod memory;
mod options;
mod pack;
mod page;
mod prices;
mod replay;
mod small_objects;
mod standard;
mod terms;
#[cfg(feature = "vault")]
mod vault;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use breakeven_cli::{screen, text};
use options::{Command, Options};

fn main() -> ExitCode {
    memory::share_where_limited();
    let options = match Options::try_parse_from(options::spell_levels(std::env::args_os())) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    // To a comparison, 1 says that a verdict changed; what cannot be compared is told apart from it.
    let failure = match options.command {
        Command::Compare(_) => 2,
        _ => 1,
    };
    let outcome = match options.command {
        Command::Advise(options) => advise::run(&options),
        Command::Calibrate(options) => calibrate::run(&options),
        Command::Report(options) => page::run(&options),
        Command::Compare(options) => compare::run(&options),
        Command::Pack(options) => pack::pack(&options),
        Command::Unpack(options) => pack::unpack(&options),
        Command::Cat(options) => pack::cat(&options),
        Command::Info(options) => pack::info(&options),
        Command::Explain(options) => pack::explain(&options),
        Command::Repack(options) => pack::repack(&options),
        Command::Replay(options) => replay::run(&options),
        #[cfg(feature = "vault")]
        Command::Vault(options) => vault::run(&options),
        Command::Disk(command) => disk::run(&command),
        Command::Serve { arguments } => Ok(breakeven_memcached::run(&["serve".into()], &arguments)),
        Command::Bench(options) => bench::run(&options),
        Command::Db { command } => db::run(&command),
        Command::Man => manual::man(),
        Command::Completions { shell } => manual::completions(shell),
    };
    match outcome {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "breakeven: {}", printable(&describe(&error)));
            ExitCode::from(if error.is::<options::Usage>() {
                2
            } else {
                failure
            })
        }
    }
}

/// Returns a message whose names, which may be anybody's, do nothing to a terminal.
fn printable(message: &str) -> String {
    let lines: Vec<String> = message.lines().map(text::printable).collect();
    lines.join("\n")
}

/// Returns what went wrong and why, each cause once: ours state theirs themselves.
fn describe(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| {
        let cause = cause.to_string();
        match text.is_empty() {
            true => cause,
            false if text.ends_with(&cause) => text,
            false => format!("{text}: {cause}"),
        }
    })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
