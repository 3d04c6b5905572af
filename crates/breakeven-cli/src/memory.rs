//! Memory under a limit: of the address space (`ulimit -v`), of the stack (`ulimit -s`), or of a control group, as
//! containers have.
//!
//! Beyond a group's limit the system kills the process, so nothing can be tried again with less. The limit is asked
//! first.
//!
//! glibc maps 64 MiB for each thread that asks for memory, so that threads need not wait for each other. A handful of
//! threads then uses up the allowed address space, and hardly any of it is memory. With one arena they share it.
//!
//! `unsafe` here: a call of the C library, which has no safe binding.
#![allow(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::thread;

use rustix::process::{Resource, getrlimit};

/// Lets all threads share one arena where the address space is limited.
pub fn share_where_limited() {
    #[cfg(target_env = "gnu")]
    if getrlimit(Resource::As).current.is_some() {
        // SAFETY: it sets a number of the allocator, before there are threads.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// The stack that a command gets where the limit (`ulimit -s`) is below it: Linux's usual one.
const STACK_BYTES: usize = 8 << 20;

/// Calls a function where the stack is long enough: threads' stacks have a length of their own.
pub fn with_stack(work: fn() -> ExitCode) -> ExitCode {
    let limit = getrlimit(Resource::Stack).current;
    if limit.is_none_or(|limit| limit >= STACK_BYTES as u64) {
        return work();
    }
    let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(work);
    match thread {
        // It said itself why.
        Ok(thread) => thread.join().unwrap_or(ExitCode::from(PANICKED)),
        Err(_) => work(),
    }
}

/// The exit code of a Rust program whose main thread panicked.
const PANICKED: u8 = 101;

/// Below this limit, commands begin with one thread and a small window. `pack` of a long file takes 100 MB with two
/// threads.
const USUAL_BYTES: u64 = 128 << 20;

/// Returns whether this process's control groups leave less memory than commands usually take.
pub fn is_scarce() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        limit_files(&groups, Path::new("/sys/fs/cgroup"))
            .into_iter()
            .filter_map(|file| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok())
            .any(|limit| limit < USUAL_BYTES)
    })
}

/// Returns the files with the limits of a process's memory: those of its group and of each group around it.
fn limit_files(groups: &str, root: &Path) -> Vec<PathBuf> {
    let of_line = |line: &str| {
        // `ID:CONTROLLERS:PATH` (cgroups(7)); the second version has no controllers there.
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, name) = match controllers {
            "" => (root.to_path_buf(), "memory.max"),
            _ if controllers.split(',').any(|it| it == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // In a container, the root of the files may be the group itself.
        let path = Path::new(path.trim_start_matches('/'));
        let files = path.ancestors().map(|path| root.join(path).join(name));
        Some(files.collect::<Vec<_>>())
    };
    groups.lines().filter_map(of_line).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_group_and_of_those_around_it_are_asked_in_both_versions() {
        let found = |groups| -> Vec<String> {
            limit_files(groups, Path::new("/g"))
                .iter()
                .map(|file| file.display().to_string())
                .collect()
        };
        assert_eq!(
            found("12:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n"),
            [
                "/g/memory/a/b/memory.limit_in_bytes",
                "/g/memory/a/memory.limit_in_bytes",
                "/g/memory/memory.limit_in_bytes",
                "/g/memory.max"
            ]
        );
        assert_eq!(
            found("0::/app.slice\n"),
            ["/g/app.slice/memory.max", "/g/memory.max"]
        );
        assert_eq!(found("").len(), 0);
    }
}
