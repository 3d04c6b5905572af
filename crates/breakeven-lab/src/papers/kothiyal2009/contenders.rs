//! The compressors: the invocations of Table 4.2, the programs that came after it, and this library.

use std::path::Path;

/// How large a file a contender gets in a full run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// The paper's 2 GiB, if it is asked for.
    Whole,
    /// A quarter of it.
    Quarter,
    /// An eighth of it.
    Eighth,
    /// 64 MiB, for contenders that take seconds for that much.
    ThirtySecond,
    /// 16 MiB, for contenders that take most of a minute for 64 MiB of random bytes.
    Least,
}

impl Share {
    pub const ALL: [Share; 5] = [
        Share::Whole,
        Share::Quarter,
        Share::Eighth,
        Share::ThirtySecond,
        Share::Least,
    ];

    /// Returns this share of the paper's file in bytes.
    pub fn of(self, bytes: usize) -> usize {
        match self {
            Share::Whole => bytes,
            Share::Quarter => bytes / 4,
            Share::Eighth => bytes / 8,
            Share::ThirtySecond => bytes / 32,
            Share::Least => bytes / 128,
        }
    }
}

/// The program of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing is compressed.
    Plain,
    /// A program that reads its standard input and writes its standard output.
    Filter {
        program: &'static str,
        compress: &'static [&'static str],
        decompress: &'static [&'static str],
    },
    /// 7-Zip with PPMd of an order: it writes a file that it names itself.
    Ppmd { method: &'static str },
    /// A method of this library, in a process of its own, in blocks of 1 MiB.
    Library { method: &'static str },
}

/// A contender that writes and reads the files.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// The invocation, as tables and pictures show it.
    pub name: &'static str,
    pub share: Share,
    pub work: Work,
}

/// The name of the contender that compresses nothing.
pub const PLAIN: &str = "plain";
/// The program of 7-Zip as Debian installs it.
const SEVEN_ZIP: &str = "7zz";

const fn filter(
    name: &'static str,
    share: Share,
    program: &'static str,
    compress: &'static [&'static str],
    decompress: &'static [&'static str],
) -> Contender {
    let work = Work::Filter {
        program,
        compress,
        decompress,
    };
    Contender { name, share, work }
}

const fn ppmd(name: &'static str, method: &'static str) -> Contender {
    let work = Work::Ppmd { method };
    Contender {
        name,
        share: Share::Least,
        work,
    }
}

const fn library(name: &'static str, share: Share, method: &'static str) -> Contender {
    let work = Work::Library { method };
    Contender { name, share, work }
}

/// All contenders but the plain one: first those of the paper in its order.
pub const CONTENDERS: &[Contender] = &[
    filter("gzip -1", Share::Eighth, "gzip", &["-1", "-c"], &["-dc"]),
    filter(
        "gzip -6",
        Share::ThirtySecond,
        "gzip",
        &["-6", "-c"],
        &["-dc"],
    ),
    filter(
        "gzip -9",
        Share::ThirtySecond,
        "gzip",
        &["-9", "-c"],
        &["-dc"],
    ),
    filter("lzop -1", Share::Quarter, "lzop", &["-1", "-c"], &["-dc"]),
    filter("lzop -3", Share::Quarter, "lzop", &["-3", "-c"], &["-dc"]),
    filter("lzop -9", Share::Least, "lzop", &["-9", "-c"], &["-dc"]),
    filter(
        "bzip2 -1",
        Share::ThirtySecond,
        "bzip2",
        &["-1", "-c"],
        &["-dc"],
    ),
    filter(
        "bzip2 -9",
        Share::ThirtySecond,
        "bzip2",
        &["-9", "-c"],
        &["-dc"],
    ),
    filter(
        "compress -b 10",
        Share::Eighth,
        "compress",
        &["-b", "10", "-c", "-f"],
        &["-dc"],
    ),
    filter(
        "compress -b 16",
        Share::Eighth,
        "compress",
        &["-b", "16", "-c", "-f"],
        &["-dc"],
    ),
    ppmd("ppmd -o 2", "-m0=PPMd:o=2:mem=256m"),
    ppmd("ppmd -o 16", "-m0=PPMd:o=16:mem=256m"),
    filter(
        "lz4 -1",
        Share::Quarter,
        "lz4",
        &["-1", "-c", "-q"],
        &["-dc", "-q"],
    ),
    filter(
        "lz4 -9",
        Share::ThirtySecond,
        "lz4",
        &["-9", "-c", "-q"],
        &["-dc", "-q"],
    ),
    filter(
        "zstd -1",
        Share::Quarter,
        "zstd",
        &["-1", "-c", "-q"],
        &["-dc", "-q"],
    ),
    filter(
        "zstd -3",
        Share::Quarter,
        "zstd",
        &["-3", "-c", "-q"],
        &["-dc", "-q"],
    ),
    filter(
        "zstd -9",
        Share::ThirtySecond,
        "zstd",
        &["-9", "-c", "-q"],
        &["-dc", "-q"],
    ),
    filter("xz -6", Share::Least, "xz", &["-6", "-T1", "-c"], &["-dc"]),
    library("our lz4:1", Share::Quarter, "lz4:1"),
    library("our zstd:1", Share::Eighth, "zstd:1"),
    library("our zstd:3", Share::Quarter, "zstd:3"),
    library("our deflate:6", Share::ThirtySecond, "deflate:6"),
];

/// The contender that compresses nothing, in a race over a file of this share.
pub fn plain(share: Share) -> Contender {
    Contender {
        name: PLAIN,
        share,
        work: Work::Plain,
    }
}

impl Contender {
    /// Returns the program that must be installed; nothing for work of this program itself.
    pub fn program(&self) -> Option<&'static str> {
        match self.work {
            Work::Filter { program, .. } => Some(program),
            Work::Ppmd { .. } => Some(SEVEN_ZIP),
            Work::Plain | Work::Library { .. } => None,
        }
    }

    /// Returns the words of the command that compresses standard input to standard output, or to
    /// `target` where [`Contender::names_its_target`].
    pub fn compress(&self, target: &Path) -> Vec<String> {
        match self.work {
            Work::Plain => own(&["copy"]),
            Work::Library { method } => own(&["compress", method]),
            Work::Filter {
                program, compress, ..
            } => words(program, compress),
            Work::Ppmd { method } => {
                let target = target.to_string_lossy();
                let options = [
                    "a", "-t7z", "-mmt=1", "-bso0", "-bsp0", "-si", method, &target,
                ];
                words(SEVEN_ZIP, &options)
            }
        }
    }

    /// Returns the words of the command that decompresses standard input, or `source` where
    /// [`Contender::names_its_target`], to standard output.
    pub fn decompress(&self, source: &Path) -> Vec<String> {
        match self.work {
            Work::Plain => own(&["copy"]),
            Work::Library { method } => own(&["decompress", method]),
            Work::Filter {
                program,
                decompress,
                ..
            } => words(program, decompress),
            Work::Ppmd { .. } => {
                let source = source.to_string_lossy();
                words(SEVEN_ZIP, &["x", "-mmt=1", "-bsp0", "-so", &source])
            }
        }
    }

    /// Whether the compressed file is named on the command line.
    pub fn names_its_target(&self) -> bool {
        matches!(self.work, Work::Ppmd { .. })
    }
}

/// This program under its hidden command; the link stays good when the file is built again.
fn own(arguments: &[&str]) -> Vec<String> {
    words("/proc/self/exe", &[&["work"], arguments].concat())
}

fn words(program: &str, arguments: &[&str]) -> Vec<String> {
    let all = [&[program], arguments].concat();
    all.into_iter().map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_plain_enough_for_a_record() {
        for (index, contender) in CONTENDERS.iter().enumerate() {
            assert!(!contender.name.contains([',', '+', '=']));
            let earlier = &CONTENDERS[..index];
            assert!(earlier.iter().all(|other| other.name != contender.name));
        }
    }

    #[test]
    fn commands_name_the_archive_only_where_they_must() {
        let path = Path::new("/scratch/stored.7z");
        for contender in CONTENDERS.iter().chain([&plain(Share::Whole)]) {
            let named = |words: Vec<String>| words.iter().any(|word| word == "/scratch/stored.7z");
            assert_eq!(
                named(contender.compress(path)),
                contender.names_its_target()
            );
            assert_eq!(
                named(contender.decompress(path)),
                contender.names_its_target()
            );
        }
    }
}
