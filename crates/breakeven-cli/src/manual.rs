//! `breakeven man` and `breakeven completions SHELL`: the files that `make install` puts beside the program. Both are
//! made from the one table of options.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::options::{EXIT_STATUS, Options};

/// The text beside the table of options, as roff.
const ENVIRONMENT_AND_FILES: &str = "\
.SH ENVIRONMENT
.TP
\\fBBREAKEVEN_CACHE\\fR
The folder for what is learned about this machine, an absolute path.
.SH FILES
.TP
\\fI$XDG_CACHE_HOME/breakeven\\fR, \\fI~/.cache/breakeven\\fR
What is learned about this machine: the speed of its codecs, and its watts if they were calibrated.
Deleting it costs the next run a little time.
";

/// Prints the manual page.
pub fn man() -> Result<ExitCode> {
    let page = page().context("write the manual page")?;
    crate::standard::print(page);
    Ok(ExitCode::SUCCESS)
}

/// Prints the completions of a shell.
pub fn completions(shell: Shell) -> Result<ExitCode> {
    crate::standard::print(script(shell));
    Ok(ExitCode::SUCCESS)
}

fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Options::command(), "breakeven", &mut script);
    script
}

/// One page with all commands, each a section of its own.
fn page() -> io::Result<Vec<u8>> {
    let mut command = Options::command();
    command.build();
    // The exit status has a section of its own.
    let whole = Man::new(command.clone().after_help(""));
    let mut page = Vec::new();
    whole.render_title(&mut page)?;
    whole.render_name_section(&mut page)?;
    whole.render_synopsis_section(&mut page)?;
    whole.render_description_section(&mut page)?;
    whole.render_options_section(&mut page)?;
    for command in commands(&command) {
        let title = command.get_bin_name().unwrap_or(command.get_name());
        writeln!(page, ".SH \"{}\"", title.to_uppercase())?;
        let man = Man::new(command.clone());
        for render in [
            Man::render_description_section,
            Man::render_synopsis_section,
            Man::render_options_section,
        ] {
            let mut part = Vec::new();
            render(&man, &mut part)?;
            page.extend_from_slice(&below(&part));
        }
    }
    writeln!(page, ".SH \"EXIT STATUS\"\n{EXIT_STATUS}")?;
    page.extend_from_slice(ENVIRONMENT_AND_FILES.as_bytes());
    whole.render_version_section(&mut page)?;
    Ok(page)
}

/// The commands, each with those below it, without clap's own `help`.
fn commands(command: &Command) -> Vec<&Command> {
    let own = |command| Command::get_subcommands(command).filter(|it| it.get_name() != "help");
    let with_below = |command| std::iter::once(command).chain(own(command));
    own(command).flat_map(with_below).collect()
}

/// Makes sections subsections.
fn below(part: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(part);
    let lines = text.lines().map(|line| match line.strip_prefix(".SH ") {
        Some(title) => format!(".SS {title}\n"),
        None => format!("{line}\n"),
    });
    lines.collect::<String>().into_bytes()
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// The long options of every command that are not hidden, with the command's name.
    fn long_options() -> Vec<(String, String)> {
        let mut command = Options::command();
        command.build();
        let of = |command: &Command| {
            let name = command.get_bin_name().expect("a built command").to_string();
            let longs = command
                .get_arguments()
                .filter(|option| !option.is_hide_set())
                .filter_map(|option| option.get_long());
            longs
                .map(|long| (name.clone(), long.to_string()))
                .collect::<Vec<_>>()
        };
        let found: Vec<_> = commands(&command).into_iter().flat_map(of).collect();
        assert!(found.len() > 25, "the table has its options: {found:?}");
        found
    }

    #[test]
    fn the_manual_has_every_command_and_option() {
        let page = String::from_utf8(page().expect("a page")).expect("text");
        let mut sections = page.split("\n.SH ");
        assert!(sections.next().is_some_and(|head| head.contains(".TH")));
        let sections: Vec<&str> = sections.collect();
        for (command, option) in long_options() {
            let title = format!("\"{}\"", command.to_uppercase());
            let section = sections
                .iter()
                .find(|section| section.starts_with(&title))
                .unwrap_or_else(|| panic!("no section {title}"));
            // roff marks a hyphen that must stay one with a backslash.
            let text = section.replace('\\', "");
            assert!(
                text.contains(&format!("--{option}")),
                "{command} --{option}"
            );
        }
        assert!(page.contains("EXIT STATUS") && page.contains("BREAKEVEN_CACHE"));
    }

    #[test]
    fn completions_have_every_option_and_their_shell_reads_them() {
        for (shell, program) in [
            (Shell::Bash, "bash"),
            (Shell::Zsh, "zsh"),
            (Shell::Fish, "fish"),
        ] {
            let script = script(shell);
            let text = String::from_utf8(script.clone()).expect("text");
            for (command, option) in long_options() {
                assert!(text.contains(&option), "{shell}: {command} --{option}");
            }
            check_syntax(program, &script);
        }
    }

    /// Has the shell read the script without running it, where there is such a shell.
    fn check_syntax(program: &str, script: &[u8]) {
        let started = std::process::Command::new(program)
            .arg("-n")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = started else {
            println!("there is no {program} here to read its completions");
            return;
        };
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(script).expect("the shell reads");
        drop(input);
        let output = child.wait_with_output().expect("its end");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {message}");
    }
}
