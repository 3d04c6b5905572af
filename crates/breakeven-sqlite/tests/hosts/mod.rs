//! Stock programs with the extension, each run in a folder of the test.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// Seconds after which a program counts as hanging: a deadline, not a measurement.
const DEADLINE_SECONDS: &str = "120";
/// Debian's, which loads extensions; others on the path may not.
pub const PYTHON: &str = "/usr/bin/python3";

/// A folder, and the programs.
pub struct Hosts {
    folder: TempDir,
}

/// Says that something is not here and nothing was tried with it, which is an error where everything has to be.
pub fn left_out(what: &str) {
    println!("{what}");
    assert!(std::env::var_os("CI").is_none(), "{what}");
}

fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| value == "1")
}

/// Says whether the long floors are asked for.
pub fn is_full() -> bool {
    is_set("BREAKEVEN_FULL")
}

/// Says whether file systems may be mounted.
pub fn is_root_test() -> bool {
    is_set("BREAKEVEN_ROOT_TESTS")
}

impl Hosts {
    /// Makes a folder, unless a program is missing.
    pub fn find() -> Option<Hosts> {
        for program in ["sqlite3", PYTHON] {
            let version = Command::new(program).arg("--version").output();
            if version.is_err() {
                left_out(&format!(
                    "{program} is not installed: nothing tried with it"
                ));
                return None;
            }
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let extension = "libbreakeven_sqlite.so";
        let test = std::env::current_exe().expect("a name of this test");
        let built = test.parent().expect("its folder").join(extension);
        std::os::unix::fs::symlink(built, folder.path().join(extension)).expect("a link");
        Some(Hosts { folder })
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the extension's path.
    pub fn library(&self) -> String {
        self.path("libbreakeven_sqlite").display().to_string()
    }

    /// Runs a script in the shell with the extension; returns what it printed.
    pub fn sqlite(&self, script: &str) -> String {
        self.sqlite_alone(&format!(".load ./libbreakeven_sqlite\n{script}"))
    }

    /// Runs a script in the shell.
    pub fn sqlite_alone(&self, script: &str) -> String {
        let output = self.shell(script);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success() && err.is_empty(),
            "{script}\n{out}{err}"
        );
        out
    }

    /// Runs a script in the shell that must fail; returns what it said.
    pub fn sqlite_fails(&self, script: &str) -> String {
        let output = self.shell(&format!(".load ./libbreakeven_sqlite\n{script}"));
        let said = text(&output.stderr);
        assert!(!said.is_empty(), "{script}\n{}", text(&output.stdout));
        said
    }

    /// Runs a script in the shell with the extension, past what fails; returns all that it said.
    pub fn sqlite_unchecked(&self, script: &str) -> String {
        let script = format!(".load ./libbreakeven_sqlite\n.bail off\n{script}");
        let output = self.shell(&script);
        assert!(
            output.status.code().is_some_and(|code| code < 2),
            "{script}\n{output:?}"
        );
        text(&output.stdout) + &text(&output.stderr)
    }

    fn shell(&self, script: &str) -> Output {
        let mut command = self.command("sqlite3");
        let mut child = command
            .args(["-batch", "-bail", ":memory:"])
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(script.as_bytes()).unwrap();
        drop(input);
        child.wait_with_output().unwrap()
    }

    /// Returns the checksum of a database's answers, for any pages.
    pub fn sum(&self, name: &str) -> String {
        self.sqlite(&format!(
            ".open file:{name}\n.sha3sum\nPRAGMA integrity_check;"
        ))
    }

    /// Runs a Python program that has `connect`, which opens by the extension.
    pub fn python(&self, program: &str) -> String {
        self.run_python(&with_connect(program))
    }

    /// Runs a program as [`Hosts::python`] does, with more in its environment. Returns its exit code, nothing if it was
    /// killed.
    pub fn python_with(&self, program: &str, environment: &[(&str, String)]) -> Option<i32> {
        let mut command = Command::new(PYTHON);
        command.args(["-c", &with_connect(program)]);
        command.current_dir(self.folder());
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        command.status().unwrap().code()
    }

    /// Runs a program as [`Hosts::python`] does, under another program. Returns its exit code, nothing if it was
    /// killed.
    pub fn python_under(&self, around: &[&str], program: &str) -> Option<i32> {
        let mut command = Command::new(around[0]);
        command.args(&around[1..]);
        command.args([PYTHON, "-c", &with_connect(program)]);
        command.current_dir(self.folder());
        command.status().unwrap().code()
    }

    /// Runs a Python program as it is.
    pub fn run_python(&self, program: &str) -> String {
        let output = self.command(PYTHON).args(["-c", program]).output().unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{program}\n{out}{err}");
        out
    }

    /// Starts what [`Hosts::python`] runs.
    pub fn start_python(&self, program: &str) -> Child {
        self.start_python_with(program, &[])
    }

    /// Starts what [`Hosts::python`] runs, with more in its environment.
    pub fn start_python_with(&self, program: &str, environment: &[(&str, &str)]) -> Child {
        let mut command = self.command(PYTHON);
        command
            .args(["-c", &with_connect(program)])
            .envs(environment.iter().copied())
            .spawn()
            .unwrap()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--foreground", "--signal=KILL", DEADLINE_SECONDS, program]);
        command.current_dir(self.folder());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

fn with_connect(program: &str) -> String {
    format!(
        "import sqlite3, sys, os\n\
         loader = sqlite3.connect(':memory:')\n\
         loader.enable_load_extension(True)\n\
         loader.load_extension('./libbreakeven_sqlite')\n\
         def connect(name):\n\
         \x20   return sqlite3.connect(f'file:{{name}}?vfs=breakeven', uri=True, timeout=60)\n\
         {program}\n"
    )
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a script of the shell in a folder.
pub fn sh(folder: &Path, script: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", script])
        .current_dir(folder)
        .output()
        .unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success() && err.is_empty(),
        "{script}\n{out}{err}"
    );
    out
}

/// Kills a program, unless it ended, and not the `timeout` around it, and waits.
pub fn kill(child: &mut Child) {
    let around = child.id();
    let list = format!("/proc/{around}/task/{around}/children");
    let inner = std::fs::read_to_string(list).unwrap_or_default();
    if !inner.is_empty() {
        let numbers = inner.split_whitespace();
        let done = Command::new("kill").arg("-9").args(numbers).output();
        assert!(done.is_ok(), "kill starts");
    }
    child.wait().expect("it ends");
}
