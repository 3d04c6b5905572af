//! One reading of a meter: any command that prints watts.
//!
//! The command runs through the shell, in a process group of its own, with a deadline after which the whole group is
//! killed. Its watts are the first number on its last line that is not empty. Four outputs are errors that name the
//! command: more bytes than the bound, none at all, an exit status other than 0, and a number that cannot be the watts
//! of a machine.

#![deny(unsafe_code)]

use std::io::{self, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{Error, Result};
use crate::units::{Seconds, Watts};

/// A meter that prints more than this for one reading is not one.
const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Outside of this no machine runs: a management controller without a sensor prints 0.
const WATTS_RANGE: std::ops::RangeInclusive<f64> = 0.1..=1e6;

/// How often the end of a command that has closed its output is looked for.
const END_INTERVAL: Duration = Duration::from_millis(2);

/// Runs `command` once and returns the watts it prints.
///
/// # Errors
///
/// [`Error::Invalid`] if it cannot be run, fails or passes the deadline; [`Error::Parse`] if what
/// it prints is not watts.
pub(super) fn read_watts(command: &str, deadline: Seconds) -> Result<Watts> {
    parse_watts(&run(command, deadline)?)
}

/// Returns the first number on the last line of `text` that is not empty.
///
/// # Errors
///
/// [`Error::Parse`] if there is no such number or no machine draws it.
fn parse_watts(text: &str) -> Result<Watts> {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    let line = line.ok_or_else(|| Error::parse("meter output", "", "it printed nothing"))?;
    let number = first_number(line)
        .ok_or_else(|| Error::parse("meter output", line, "no number on the last line"))?;
    if !WATTS_RANGE.contains(&number) {
        let (low, high) = (WATTS_RANGE.start(), WATTS_RANGE.end());
        let reason = format!("{number} W is not between {low} and {high} W");
        return Err(Error::parse("meter output", line, reason));
    }
    Ok(Watts(number))
}

/// Finds the first number that does not stand inside a word: `PSU1: 231.5W` holds 231.5.
fn first_number(line: &str) -> Option<f64> {
    let bytes = line.as_bytes();
    let in_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_.".contains(&byte) || byte >= 0x80;
    let first = (0..bytes.len()).find(|&at| {
        bytes[at].is_ascii_digit() && !at.checked_sub(1).is_some_and(|at| in_word(bytes[at]))
    })?;
    let digits = |at: usize| {
        let digit = |byte: &&u8| byte.is_ascii_digit();
        at + bytes[at..].iter().take_while(digit).count()
    };
    let mut end = digits(first);
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let signed = matches!(bytes.get(end + 1), Some(b'+' | b'-'));
        let exponent = end + 1 + usize::from(signed);
        if bytes.get(exponent).is_some_and(u8::is_ascii_digit) {
            end = digits(exponent);
        }
    }
    // `1.2.3` is a version and `1,234.5` two readings or one: neither is taken for watts.
    let more = matches!(bytes.get(end), Some(b'.' | b','));
    if more && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let negative = first > 0 && bytes[first - 1] == b'-';
    line[first - usize::from(negative)..end].parse().ok()
}

/// Runs `command` and returns what it printed.
fn run(command: &str, deadline: Seconds) -> Result<String> {
    let failed = |reason: String| Error::invalid("meter command", format!("'{command}' {reason}"));
    let no_pipe = |error: io::Error| failed(format!("could not be run: {error}"));
    let (output, output_end) = io::pipe().map_err(no_pipe)?;
    let (complaints, complaints_end) = io::pipe().map_err(no_pipe)?;
    let child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(output_end)
        .stderr(complaints_end)
        .process_group(0)
        .spawn()
        .map_err(no_pipe)?;
    let mut group = Group { child };
    let end = Instant::now() + Duration::from_secs_f64(deadline.0);
    let [printed, complained] = collect([output, complaints], end).map_err(|error| {
        failed(match error.kind() {
            io::ErrorKind::TimedOut => format!("gave no answer within {deadline} and was stopped"),
            _ => format!("could not be read: {error}"),
        })
    })?;
    let status = group
        .wait(end)
        .map_err(|error| failed(format!("could not be waited for: {error}")))?
        .ok_or_else(|| failed(format!("did not end within {deadline} and was stopped")))?;
    if !status.success() {
        let complaint = String::from_utf8_lossy(&complained);
        let last = complaint
            .lines()
            .map(str::trim)
            .rfind(|line| !line.is_empty());
        let last: String = last.unwrap_or("no complaint").chars().take(200).collect();
        return Err(failed(format!("ended with {status}: {last}")));
    }
    Ok(String::from_utf8_lossy(&printed).into_owned())
}

/// The command and all it started, killed and waited for on drop.
struct Group {
    child: Child,
}

impl Group {
    /// Waits for the command itself until `end`.
    fn wait(&mut self, end: Instant) -> io::Result<Option<ExitStatus>> {
        loop {
            match self.child.try_wait()? {
                Some(status) => return Ok(Some(status)),
                None if Instant::now() >= end => return Ok(None),
                None => std::thread::sleep(END_INTERVAL),
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            // Fails only if nothing of the group is left.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Reads both pipes to their ends, at most [`OUTPUT_BYTES_MAX`] each, until `end`.
fn collect(pipes: [PipeReader; 2], end: Instant) -> io::Result<[Vec<u8>; 2]> {
    let mut texts = [Vec::new(), Vec::new()];
    let mut open = [true, true];
    let mut buffer = [0u8; 4096];
    while open != [false, false] {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let waiting: Vec<usize> = (0..2).filter(|index| open[*index]).collect();
        let mut polled: Vec<PollFd<'_>> = waiting
            .iter()
            .map(|index| PollFd::new(&pipes[*index], PollFlags::IN))
            .collect();
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (index, _) in waiting.into_iter().zip(ready).filter(|(_, ready)| *ready) {
            let count = (&pipes[index]).read(&mut buffer)?;
            open[index] = count > 0;
            texts[index].extend_from_slice(&buffer[..count]);
            if texts[index].len() > OUTPUT_BYTES_MAX {
                return Err(io::Error::other(format!(
                    "more than {OUTPUT_BYTES_MAX} bytes"
                )));
            }
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<f64>) {
        assert_eq!(parse_watts(text).ok(), expected.map(Watts), "{text:?}");
    }

    #[test]
    fn watts_are_the_first_number_of_the_last_line() {
        check("231", Some(231.0));
        check("  231.5 W\n\n \n", Some(231.5));
        check(
            "starting 99\nInstantaneous power reading:   231 Watts\n",
            Some(231.0),
        );
        check("power=12.25W", Some(12.25));
        check("PSU1: 40.W", Some(40.0));
        check("psu_1 in2 x.5 7", Some(7.0));
        check("2.5e+02 W", Some(250.0));
        check("1e2", Some(100.0));
        check("1eV", Some(1.0));
        check("(80)", Some(80.0));
        check("231\r\n", Some(231.0));
        for text in [
            "",
            "\n \n",
            "no sensor",
            "0",
            "0.0 W",
            "-5 W",
            "1e",
            "1.2.3 W",
            "9999999",
        ] {
            check(text, if text == "1e" { Some(1.0) } else { None });
        }
        check("1,234.5 W", None);
        check("12, 13", Some(12.0));
        check("\u{fffd}5 watts \u{b5}", None);
        check("NaN inf", None);
    }

    #[test]
    fn the_command_runs_through_the_shell() {
        let watts = read_watts("echo noise >&2; echo 'power 40 W' | tr 4 5", Seconds(60.0));
        assert_eq!(watts.expect("watts"), Watts(50.0));
    }

    fn refuse(command: &str, deadline: f64, reason: &str) {
        let error = read_watts(command, Seconds(deadline))
            .expect_err(command)
            .to_string();
        assert!(error.contains(reason), "expected '{reason}' in: {error}");
    }

    #[test]
    fn commands_that_fail_or_hang_are_named() {
        refuse(
            "echo 5; echo not today >&2; exit 3",
            60.0,
            "exit status: 3: not today",
        );
        refuse("/no/such/meter", 60.0, "exit status: 127");
        refuse("kill -9 $$", 60.0, "signal: 9");
        refuse("true", 60.0, "printed nothing");
        refuse(
            "while :; do echo 1234567890; done",
            60.0,
            "more than 65536 bytes",
        );
        for hanging in [
            "echo 5; sleep 99",
            "sleep 99 & echo 5",
            "exec >&- 2>&-; sleep 99",
        ] {
            refuse(hanging, 0.05, "within 0.05 s and was stopped");
        }
    }
}
