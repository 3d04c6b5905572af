//! The binary `breakeven`: reads the command line and the environment, calls the library, prints.
//!
//! Exit codes: 0 good, 1 the answer is no or the data is bad, 2 usage. `compare` keeps 1 for a changed verdict and
//! returns 2 for bad data as well. A reader of standard output that left is no error, and does not turn a failure into
//! a success.

#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

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
mod strategy;
mod terms;
#[cfg(feature = "vault")]
mod vault;
mod zstd;
mod zstd_options;

use std::process::ExitCode;

use anyhow::Result;
use signal_hook::consts::SIGPIPE;
use signal_hook::low_level::emulate_default_handler;

use breakeven::quoted::printable;
use breakeven_cli::{screen, text};
use options::{Command, DbCommand, DiskCommand, Options};

fn main() -> ExitCode {
    memory::share_where_limited();
    memory::with_stack(begin)
}

/// Reads the command line and carries it out.
fn begin() -> ExitCode {
    let program = std::env::args_os().next().unwrap_or_default();
    // For scripts of zstd, every error is 1.
    let usage = match zstd::stands_in(&program.to_string_lossy()) {
        true => 1,
        false => 2,
    };
    let arguments = match zstd::spell(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(refused) => {
            standard::complain(refused);
            return ExitCode::from(usage);
        }
    };
    let is_ultra = std::env::args_os().any(|it| it == "--ultra");
    let variable = |name: &str| std::env::var_os(name);
    let (arguments, complaints) = zstd::with_variables(arguments, is_ultra, variable);
    complaints.iter().for_each(standard::complain);
    let options = match Options::read(arguments) {
        Ok(options) => options,
        Err(error) if error.use_stderr() => {
            standard::tell(refusal(&error.render().to_string()).trim_end());
            return ExitCode::from(usage);
        }
        Err(help) => {
            standard::print(help.render().to_string());
            return end(ExitCode::SUCCESS, 1);
        }
    };
    // In a comparison, 1 says that a verdict changed; data that cannot be compared has another code.
    let failure = match options.command {
        Command::Compare(_) => 2,
        _ => 1,
    };
    // There is nobody to read that there is nothing to print to.
    let ready = environment::outlive_file_limit().and_then(|()| environment::hear_children());
    let ready = ready.and_then(|()| match prints(&options.command) {
        true => standard::check(),
        false => Ok(()),
    });
    let code = match ready.and_then(|()| run(options.command)) {
        Ok(code) => code,
        // A script learns that not all of the stream was read, as from every program that writes one.
        Err(error) if error.is::<standard::ReaderGone>() => {
            let _ = emulate_default_handler(SIGPIPE);
            ExitCode::from(failure)
        }
        Err(error) => {
            standard::complain(describe(&error));
            ExitCode::from(match error.is::<options::Usage>() {
                true => usage,
                false => failure,
            })
        }
    };
    end(code, failure)
}

/// Returns the parser's message with the typed text quoted, so that no name starts a line of its own.
fn refusal(text: &str) -> String {
    std::env::args_os().fold(text.to_string(), |text, typed| {
        let typed = typed.to_string_lossy();
        // The parser names the value of `--option=value` apart.
        let value = typed.split_once('=').map(|(_, value)| value);
        [Some(&*typed), value]
            .into_iter()
            .flatten()
            .filter(|typed| printable(typed) != *typed)
            .fold(text, |text, typed| text.replace(typed, &printable(typed)))
    })
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
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
        #[cfg(not(feature = "vault"))]
        Command::Vault { .. } => anyhow::bail!(
            "this build lacks the feature `vault`: build it with `--features vault`, or by `make install`, which adds S3"
        ),
        Command::Disk(command) => disk::run(&command),
        Command::Serve { arguments } => Ok(breakeven_memcached::run(&["serve".into()], &arguments)),
        Command::Bench(options) => bench::run(&options),
        Command::Db { command } => db::run(&command),
        Command::Man => manual::man(),
        Command::Completions { shell } => manual::completions(shell),
    }
}

/// Returns whether a command prints a report. For commands that write data, the target says so itself.
fn prints(command: &Command) -> bool {
    match command {
        Command::Pack(options) => options.ledger,
        Command::Report(_) | Command::Unpack(_) | Command::Cat(_) | Command::Repack(_) => false,
        Command::Serve { .. } => false,
        #[cfg(feature = "vault")]
        Command::Vault(options) => !options.command.is_mount(),
        Command::Disk(command) => matches!(
            command,
            DiskCommand::Info(_) | DiskCommand::Fsck(_) | DiskCommand::Compact(_)
        ),
        Command::Db { command } => !matches!(command, DbCommand::Create { .. }),
        _ => true,
    }
}

/// Ends the use of standard output. A loss there turns a success into a failure, and leaves a failure unchanged.
fn end(code: ExitCode, failure: u8) -> ExitCode {
    match standard::finish() {
        Err(error) => {
            standard::complain(describe(&error));
            match code == ExitCode::SUCCESS {
                true => ExitCode::from(failure),
                false => code,
            }
        }
        Ok(()) => code,
    }
}

/// Returns the error and its causes, each once: our own errors state their causes themselves.
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
