//! Changes that a served disk can be asked for: clones, snapshots, removals and longer volumes. A socket beside its
//! file takes them, and it belongs to the file's owner alone.
//!
//! One line asks and one answers. The answer is empty for success, and a sentence for a failure. Names of volumes have
//! no spaces.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use breakeven::disk::Disk;
use breakeven::quoted::quoted;
use breakeven::storage::followed;
use breakeven_memcached::sockets::with_short_path;

use super::server::Listener;
use crate::standard::complain;

/// Two names and a word are shorter.
const LINE_BYTES_MAX: u64 = 1024;
/// A client is a command that has its line ready. Others wait behind it.
const PATIENCE: Duration = Duration::from_secs(5);

const CLONE: &str = "clone";
const SNAPSHOT: &str = "snapshot";
const REMOVE: &str = "remove";
const RESIZE: &str = "resize";

/// A change of a disk's volumes.
pub enum Change<'c> {
    Copy {
        from: &'c str,
        to: &'c str,
        is_read_only: bool,
    },
    Remove {
        volume: &'c str,
    },
    Resize {
        volume: &'c str,
        size_bytes: u64,
        /// Whether bytes behind the new end may be thrown away.
        is_discarded: bool,
    },
}

impl<'c> Change<'c> {
    fn parse(line: &'c str) -> Option<Change<'c>> {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some(match words[..] {
            [word @ (CLONE | SNAPSHOT), from, to] => Change::Copy {
                from,
                to,
                is_read_only: word == SNAPSHOT,
            },
            [REMOVE, volume] => Change::Remove { volume },
            [RESIZE, volume, size] => Change::Resize {
                volume,
                size_bytes: size.parse().ok()?,
                is_discarded: false,
            },
            _ => return None,
        })
    }

    fn line(&self) -> String {
        match self {
            Change::Copy {
                from,
                to,
                is_read_only,
            } => {
                let word = if *is_read_only { SNAPSHOT } else { CLONE };
                format!("{word} {from} {to}\n")
            }
            Change::Remove { volume } => format!("{REMOVE} {volume}\n"),
            Change::Resize {
                volume, size_bytes, ..
            } => format!("{RESIZE} {volume} {size_bytes}\n"),
        }
    }

    /// Makes the change, durably.
    pub fn make(&self, disk: &Disk) -> breakeven::Result<()> {
        match self {
            Change::Copy {
                from,
                to,
                is_read_only,
            } => disk.clone_volume(from, to, *is_read_only),
            // A disk without any could not be served, and no command makes one.
            Change::Remove { volume } => match &disk.volumes()?[..] {
                [last] if last.name == *volume => Err(breakeven::Error::Invalid {
                    what: "volume",
                    reason: format!("'{volume}' is the disk's last one: remove the file itself"),
                }),
                _ => disk.remove_volume(volume),
            },
            Change::Resize {
                volume,
                size_bytes,
                is_discarded,
            } => disk.resize_volume(volume, *size_bytes, *is_discarded),
        }
    }

    /// Makes the change while clients may have volumes open, with the length from before.
    fn make_served(&self, disk: &Disk) -> breakeven::Result<()> {
        if let Change::Resize {
            volume, size_bytes, ..
        } = self
            && *size_bytes < disk.volume(volume)?.status().size_bytes
        {
            let reason = "a served volume only becomes longer: its clients know where it ends; end its server";
            return Err(breakeven::Error::Invalid {
                what: "size of a volume",
                reason: reason.into(),
            });
        }
        self.make(disk)
    }

    /// Asks the disk's server for the change. Returns whether there is a server.
    pub fn ask(&self, disk: &Path) -> Result<bool> {
        let connected = with_short_path(&path_of(disk), |path| UnixStream::connect(path));
        let Ok(mut stream) = connected else {
            return Ok(false);
        };
        let context = || format!("ask the server of {}", quoted(&disk));
        stream
            .write_all(self.line().as_bytes())
            .with_context(context)?;
        let mut answer = String::new();
        let mut reader = BufReader::new(&stream);
        let length = reader.read_line(&mut answer).with_context(context)?;
        match answer.trim_end() {
            _ if length == 0 => bail!("the server of {} ended", quoted(&disk)),
            "" => Ok(true),
            sentence => bail!("{sentence}"),
        }
    }
}

/// Beside the file itself, so that a server is found by every link to its disk.
fn path_of(disk: &Path) -> PathBuf {
    super::beside(&followed(disk), ".control")
}

/// The socket for requests to a served disk.
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Listens beside the disk; called before any thread is started, as [`Listener::unix`] is.
    pub fn listen(disk: &Path) -> Result<Control> {
        let path = path_of(disk);
        match Listener::unix(&path)? {
            Listener::Unix(listener, _) => Ok(Control { listener, path }),
            Listener::Tcp(_) => bail!("not a socket of this machine"),
        }
    }

    /// Returns the socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Answers one after the other, for as long as the process lives.
    pub fn serve(&self, disk: &Disk) {
        for stream in self.listener.incoming() {
            let answered = stream.and_then(|stream| answer(&stream, disk));
            if let Err(error) = answered {
                complain(format_args!("a command was not answered: {error}"));
                // Where descriptors are short, others go on.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn answer(mut stream: &UnixStream, disk: &Disk) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    let sentence = match Change::parse(&line) {
        None => "not a command".to_string(),
        Some(change) => match change.make_served(disk) {
            Ok(()) => String::new(),
            Err(error) => error.to_string().replace('\n', " "),
        },
    };
    stream.write_all(format!("{sentence}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_understood_and_nothing_else() {
        for line in [
            "clone disk test\n",
            "snapshot a b@2\n",
            "remove disk\n",
            "resize a 5\n",
        ] {
            assert_eq!(
                Change::parse(line).map(|change| change.line()),
                Some(line.into())
            );
        }
        for line in [
            "",
            "clone a\n",
            "clone a b c\n",
            "Remove a\n",
            "remove\n",
            "resize a b\n",
        ] {
            assert!(Change::parse(line).is_none(), "{line}");
        }
    }
}
