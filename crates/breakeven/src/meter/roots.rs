//! Where the meter looks: the roots of `/proc` and `/sys`, and the clock it waits by.
//!
//! Both are values handed in, so that tests put a made-up machine and a made-up time in their
//! place. Reads are bounded and a file that is missing, locked or not text is simply not there.

#![deny(unsafe_code)]

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::units::Seconds;

/// The most that is read of one file: `/proc/cpuinfo` of a thousand processors fits four times.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// The roots of the kernel's two information trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// The process tree, `/proc`.
    pub proc: PathBuf,
    /// The device tree, `/sys`.
    pub sys: PathBuf,
}

impl Default for Roots {
    /// The trees of the running kernel.
    fn default() -> Roots {
        Roots {
            proc: PathBuf::from("/proc"),
            sys: PathBuf::from("/sys"),
        }
    }
}

/// A clock and a way to let it pass, for everything here that has to wait.
#[derive(Clone, Copy)]
pub struct Clock<'a> {
    /// Seconds since any fixed moment; never runs backwards.
    pub now: &'a dyn Fn() -> Seconds,
    /// Returns when this much time has passed.
    pub wait: &'a dyn Fn(Seconds),
}

impl Clock<'static> {
    /// The machine's monotonic clock.
    pub fn real() -> Clock<'static> {
        Clock {
            now: &monotonic,
            wait: &|span| std::thread::sleep(Duration::from_secs_f64(span.0.max(0.0))),
        }
    }
}

/// Reads the monotonic clock.
pub(super) fn monotonic() -> Seconds {
    clock_seconds(ClockId::Monotonic)
}

/// Reads any of the kernel's clocks as seconds.
pub(super) fn clock_seconds(clock: ClockId) -> Seconds {
    let time = clock_gettime(clock);
    Seconds(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

/// Reads a small text file; bytes that are not UTF-8 become replacement characters.
pub(super) fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads a file that holds one trimmed line, or nothing if it is not there or empty.
pub(super) fn read_line(path: &Path) -> Option<String> {
    let text = read_text(path).ok()?;
    let line = text.lines().next().unwrap_or("").trim();
    (!line.is_empty()).then(|| line.to_string())
}

/// Reads a file that holds one unsigned number, or nothing if it holds anything else.
pub(super) fn read_number(path: &Path) -> Option<u64> {
    read_line(path)?.parse().ok()
}

#[cfg(test)]
pub(super) mod fake {
    //! A made-up machine in a folder of its own, and a clock that moves only when waited on.

    use std::cell::{Cell, RefCell};
    use std::fs;

    use super::*;

    /// A tree of files standing in for `/proc` and `/sys`, removed on drop.
    pub struct Tree {
        pub folder: tempfile::TempDir,
    }

    impl Tree {
        pub fn new(files: &[(&str, &str)]) -> Tree {
            let tree = Tree {
                folder: tempfile::tempdir().expect("a temporary folder"),
            };
            for (name, text) in files {
                tree.write(name, text);
            }
            tree
        }

        pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
            let path = self.folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            // In one step, as the kernel's own files change: a reader never sees half.
            let temporary = path.with_extension("written");
            fs::write(&temporary, text).expect("a file");
            fs::rename(temporary, path).expect("a rename");
        }

        pub fn roots(&self) -> Roots {
            Roots {
                proc: self.folder.path().join("proc"),
                sys: self.folder.path().join("sys"),
            }
        }
    }

    /// A time that passes only by waiting, with something that happens at each wait.
    pub struct FakeTime<'a> {
        pub now: Cell<f64>,
        on_pass: RefCell<Box<dyn FnMut(f64) + 'a>>,
    }

    impl<'a> FakeTime<'a> {
        pub fn new(on_pass: impl FnMut(f64) + 'a) -> FakeTime<'a> {
            FakeTime {
                now: Cell::new(1000.0),
                on_pass: RefCell::new(Box::new(on_pass)),
            }
        }

        pub fn pass(&self, span: Seconds) {
            self.now.set(self.now.get() + span.0);
            (self.on_pass.borrow_mut())(span.0);
        }
    }

    #[test]
    fn only_a_plain_number_is_a_number() {
        let tree = Tree::new(&[("sys/a", "42\n"), ("sys/b", "4x\n"), ("sys/c", "")]);
        let read = |name: &str| read_number(&tree.folder.path().join("sys").join(name));
        assert_eq!(
            [read("a"), read("b"), read("c"), read("d")],
            [Some(42), None, None, None]
        );
        tree.write("sys/e", [0xff, 0xfe, b'7']);
        assert_eq!(read("e"), None);
    }
}
