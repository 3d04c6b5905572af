//! The binary `breakeven`: reads the command line and the environment, calls the library, prints.
//!
//! Exit codes: 0 good, 1 the answer is no or the data is bad, 2 usage. A broken pipe is no error.

#![deny(unsafe_code)]

mod advise;
mod calibrate;
mod environment;
mod options;
mod page;
mod prices;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use breakeven_cli::text;
use options::{Command, Options};

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let outcome = match options.command {
        Command::Advise(options) => advise::run(&options),
        Command::Calibrate(options) => calibrate::run(&options),
        Command::Report(options) => page::run(&options),
    };
    match outcome {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "breakeven: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}
