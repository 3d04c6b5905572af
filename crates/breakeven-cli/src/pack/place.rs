//! Sources and targets of bytes: files, pipes, and files that appear whole or not at all.
//!
//! A file is written under another name in its folder, and renamed when it is complete. A signal or an error removes
//! it. A target that is no regular file (a device, a pipe) is written to directly.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Metadata, OpenOptions};
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use breakeven::frame::{Kind, MAGIC_BYTES};
use breakeven::quoted::quoted;
use breakeven::storage::beside::{self, Partial, Place};
use breakeven::storage::images::{data_runs, next_data};
use breakeven::storage::{self, RealStorage, Storage, closing, is_zero};
use breakeven::stream::SpreadFile;
use rustix::fs::{SeekFrom as SeekTo, seek};
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use rustix::process::geteuid;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::READ_BYTES;
use crate::environment::{ending_signals, process_status};
use crate::options::Usage;
use crate::standard;

/// The file under its other name, while there is one.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// The stack of the thread that waits for signals: many times the 4 KiB path that it removes. The usual 2 MiB would
/// count against a limit of the address space.
const SIGNALS_STACK_BYTES: usize = 64 << 10;

/// Lets a signal that ends the program remove the unfinished file first.
///
/// A thread waits for the signal, so that it ends the program in any state: in a read from a pipe, in a write to a full
/// one.
pub fn clean_up_at_signals() -> Result<()> {
    let mut signals = Signals::new(ending_signals()).context("catch signals")?;
    std::thread::Builder::new()
        .name("signals".to_string())
        .stack_size(SIGNALS_STACK_BYTES)
        .spawn(move || {
            for signal in signals.forever() {
                // Held until the end: no file is begun or completed any more.
                let unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(path) = &*unfinished {
                    let _ = fs::remove_file(path);
                }
                let _ = emulate_default_handler(signal);
            }
        })
        .context("start a thread for signals")?;
    Ok(())
}

/// The capacity that a pipe gets, so that neither side wakes the other every 64 KiB.
const PIPE_BYTES: usize = 1 << 20;

/// Makes a pipe hold more. A file that is not a pipe, or may not hold more, stays unchanged.
fn widen(descriptor: &File) {
    if fcntl_getpipe_size(descriptor).is_ok_and(|bytes| bytes < PIPE_BYTES) {
        let _ = fcntl_setpipe_size(descriptor, PIPE_BYTES);
    }
}

/// The source of the bytes.
pub struct Source {
    pub file: File,
    /// Its path, `-` for standard input.
    pub path: PathBuf,
    /// The name for messages.
    pub name: String,
    /// Its metadata, where it is a regular file.
    pub metadata: Option<Metadata>,
    /// The current stretch of reading.
    stretch: Stretch,
}

/// The number of places of a file that are checked for zeros, and the bytes of each. For shorter files the check does
/// not pay, since a disk may have to seek to each place.
const ZEROS_PLACES: u64 = 16;
const ZEROS_SEEN_BYTES: usize = 4 << 10;
const ZEROS_FILE_BYTES_MIN: u64 = 16 << 20;

/// Returns room for so many bytes of a source.
fn piece_of(bytes: usize) -> Result<Vec<u8>> {
    let mut piece = Vec::new();
    let taken = piece.try_reserve_exact(bytes);
    taken.map_err(|_| breakeven::Error::OutOfMemory { what: "reading" })?;
    piece.resize(bytes, 0);
    Ok(piece)
}

/// A stretch of a file with data, or without.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stretch {
    /// Its bytes that are still unread.
    left_bytes: u64,
    is_hole: bool,
}

/// Only holes of at least this length are skipped; a shorter one is read as fast as it is found.
const HOLE_BYTES_MIN: u64 = 1 << 20;

impl Source {
    /// Returns the metadata that its copy gets. There is none for standard input, since nobody named a file.
    pub fn given_metadata(&self) -> Option<&Metadata> {
        (self.metadata.as_ref()).filter(|_| self.path != Path::new("-"))
    }

    /// Returns its name as data has it.
    pub fn data_name(&self) -> String {
        match self.path == Path::new("-") {
            true => standard::INPUT.to_string(),
            false => self.path.to_string_lossy().into_owned(),
        }
    }

    /// Opens a path, or standard input for `-`.
    pub fn open(path: &Path) -> Result<Source> {
        let (file, name) = if path == Path::new("-") {
            if io::stdin().is_terminal() {
                bail!("standard input is a terminal");
            }
            let file = standard::input()?;
            widen(&file);
            (file, standard::INPUT.to_string())
        } else {
            let name = quoted(&path).to_string();
            (File::open(path).with_context(|| name.clone())?, name)
        };
        let metadata = file.metadata().with_context(|| name.clone())?;
        if metadata.is_dir() {
            bail!("{name} is a folder; use tar");
        }
        let metadata = Some(metadata).filter(Metadata::is_file);
        Ok(Source {
            file,
            path: path.to_path_buf(),
            name,
            metadata,
            stretch: Stretch::default(),
        })
    }

    /// Opens a file that is read at any place. A FIFO would let its opening wait for a writer.
    pub fn open_file(path: &Path) -> Result<Source> {
        let is_stream = |metadata: Metadata| !metadata.is_file() && !metadata.is_dir();
        if path != Path::new("-") && fs::metadata(path).is_ok_and(is_stream) {
            bail!("{} is no regular file", quoted(&path));
        }
        Source::open(path)
    }

    /// Says whether it is a device.
    pub fn is_device(&self) -> Result<bool> {
        let metadata = self.file.metadata().with_context(|| self.name.clone())?;
        let kind = metadata.file_type();
        Ok(kind.is_char_device() || kind.is_block_device())
    }

    /// Returns the number of bytes to read, if it is a regular file.
    pub fn bytes_ahead(&mut self) -> Option<u64> {
        let length = self.metadata.as_ref()?.len();
        let at = self.file.stream_position().ok()?;
        Some(length.saturating_sub(at))
    }

    /// Reads the bytes that show the kind of a source; they are read again where it can seek.
    pub fn magic_ahead(&mut self) -> Result<Magic> {
        let place = self.place();
        let mut bytes = vec![0; MAGIC_BYTES];
        let count = self.fill(&mut bytes)?;
        bytes.truncate(count);
        let unread = match place {
            Some(place) if Kind::of(&bytes).is_some() => {
                self.go_back(place)?;
                Vec::new()
            }
            _ => bytes.clone(),
        };
        Ok(Magic { bytes, unread })
    }

    /// Returns its position, if it is a file that can be read again from there.
    pub fn place(&mut self) -> Option<u64> {
        self.metadata.as_ref()?;
        self.file.stream_position().ok()
    }

    /// Goes back to a position.
    pub fn go_back(&mut self, place: u64) -> Result<()> {
        self.stretch = Stretch::default();
        let gone = self.file.seek(io::SeekFrom::Start(place));
        gone.map(drop).with_context(|| self.name.clone())
    }

    /// Reads some bytes, none at the end. A hole is not read: its bytes are zeros.
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        if self.metadata.is_none() {
            return self.read_data(bytes);
        }
        if self.stretch.left_bytes == 0 {
            self.stretch = self.next_stretch();
        }
        let left = usize::try_from(self.stretch.left_bytes).unwrap_or(usize::MAX);
        let room = bytes.len().min(left);
        let count = match self.stretch.is_hole {
            true => {
                let context = || format!("read {}", self.name);
                let by = io::SeekFrom::Current(room as i64);
                self.file.seek(by).with_context(context)?;
                bytes[..room].fill(0);
                room
            }
            false => self.read_data(&mut bytes[..room])?,
        };
        self.stretch.left_bytes -= count as u64;
        Ok(count)
    }

    /// Finds the next stretch: a hole of some length, or data. Where the system does not say, the bytes are read.
    fn next_stretch(&mut self) -> Stretch {
        let data = Stretch {
            left_bytes: u64::MAX,
            is_hole: false,
        };
        let Ok(at) = self.file.stream_position() else {
            return data;
        };
        // If there is no more data the rest is a hole, as long as the file is now.
        let end = next_data(&self.file, at);
        let is_hole = end.saturating_sub(at) >= HOLE_BYTES_MIN;
        let data_end = match is_hole {
            true => Ok(at),
            false => seek(&self.file, SeekTo::Hole(end.max(at))),
        };
        // The position is restored, with either finding.
        if self.file.seek(io::SeekFrom::Start(at)).is_err() {
            return data;
        }
        match (is_hole, data_end) {
            (true, _) => Stretch {
                left_bytes: end - at,
                is_hole: true,
            },
            (false, Ok(data_end)) if data_end > at => Stretch {
                left_bytes: data_end - at,
                is_hole: false,
            },
            _ => data,
        }
    }

    fn read_data(&mut self, bytes: &mut [u8]) -> Result<usize> {
        loop {
            match self.file.read(bytes) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context(format!("read {}", self.name)),
            }
        }
    }

    /// Reads until a buffer is full, or to the end, and returns the filled length.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    }

    /// Reads the first bytes, as many as are read at a time.
    ///
    /// Files of /proc and /sys report wrong lengths. A file that ends within these bytes is exactly as long as was
    /// read.
    pub fn head(&mut self) -> Result<Head> {
        let ahead = self.bytes_ahead();
        let is_file = ahead.is_some();
        // One byte more than expected shows that there are no more; a small file needs a small buffer.
        let wanted = ahead.map_or(u64::MAX, |bytes| bytes + 1);
        let mut piece = piece_of(wanted.min(READ_BYTES as u64) as usize)?;
        let mut count = self.fill(&mut piece)?;
        if count == piece.len() && count < READ_BYTES {
            piece.resize(READ_BYTES, 0);
            count += self.fill(&mut piece[count..])?;
        }
        let content_bytes = match count < piece.len() {
            true => Some(count as u64).filter(|_| is_file),
            false => ahead.filter(|&bytes| bytes > count as u64),
        };
        Ok(Head {
            piece,
            count,
            content_bytes,
        })
    }

    /// Returns whether a file has more holes or zeros than data, judged by some of its places. File systems that
    /// compress also allocate less than a file is long.
    pub fn is_mostly_zeros(&mut self) -> Result<bool> {
        let (Some(place), Some(metadata)) = (self.place(), &self.metadata) else {
            return Ok(false);
        };
        let (length, half) = (metadata.len(), metadata.len() / 2);
        if 512 * metadata.blocks() < half {
            let data = data_runs(&self.file).map(|(start, end)| end - start);
            let is_mostly_holes = data.sum::<u64>() < half;
            self.go_back(place)?;
            if is_mostly_holes {
                return Ok(true);
            }
        }
        if length < ZEROS_FILE_BYTES_MIN {
            return Ok(false);
        }
        let mut seen = [0; ZEROS_SEEN_BYTES];
        let mut is_zero_at = |part: &u64| {
            let at = length / ZEROS_PLACES * part;
            // Packing reports a place that cannot be read.
            self.file.read_exact_at(&mut seen, at).is_ok() && is_zero(&seen)
        };
        let zeros = (0..ZEROS_PLACES).filter(&mut is_zero_at).count() as u64;
        Ok(zeros > ZEROS_PLACES / 2)
    }

    /// Checks that a file was read to its stated length: a part of a file that was cut meanwhile would pass for the
    /// whole.
    pub fn check_read(&self, announced_bytes: Option<u64>, read_bytes: u64) -> Result<()> {
        match announced_bytes {
            // A file may state more than it has; then nothing of it changed.
            Some(announced) if read_bytes < announced && !self.is_as_opened()? => bail!(
                "{} changed while it was read: it had {announced} bytes, {read_bytes} came",
                self.name
            ),
            _ => Ok(()),
        }
    }

    /// Checks that nobody wrote to the file since it was opened.
    pub fn check_as_opened(&self) -> Result<()> {
        match self.is_as_opened()? {
            true => Ok(()),
            false => bail!("{} changed while it was read", self.name),
        }
    }

    fn is_as_opened(&self) -> Result<bool> {
        let now = self.file.metadata().with_context(|| self.name.clone())?;
        let opened = self.metadata.as_ref();
        Ok(opened.is_none_or(|opened| Version::of(opened) == Version::of(&now)))
    }

    /// Returns another descriptor of its file.
    pub fn duplicate(&self) -> Result<File> {
        self.file.try_clone().with_context(|| self.name.clone())
    }

    /// Lets another thread read on from here.
    pub fn ahead(&self) -> Result<Ahead> {
        let mut source = Source {
            file: self.duplicate()?,
            path: self.path.clone(),
            name: self.name.clone(),
            metadata: self.metadata.clone(),
            stretch: self.stretch,
        };
        let (full, pieces) = sync_channel(PIECES_AHEAD);
        let (used, empty) = channel::<Vec<u8>>();
        let read = move || {
            loop {
                let read = match empty.try_recv() {
                    Ok(piece) => Ok(piece),
                    Err(_) => piece_of(READ_BYTES),
                };
                let read = read.and_then(|mut piece| {
                    piece.resize(READ_BYTES, 0);
                    source.read(&mut piece).map(|count| (piece, count))
                });
                let is_last = !matches!(read, Ok((_, 1..)));
                if full.send(read).is_err() || is_last {
                    break;
                }
            }
        };
        // Nobody joins it: where the sink fails, it may be blocked in a read of a pipe.
        std::thread::Builder::new()
            .name("read".to_string())
            .spawn(read)
            .context("start a thread that reads")?;
        Ok(Ahead { pieces, used })
    }

    /// Checks that a target path does not lead to this file.
    pub fn ensure_not_at(&self, path: &Path) -> Result<()> {
        match self.is_at(path) {
            true => bail!(
                "{} is the input; the output needs a name of its own",
                quoted(&path)
            ),
            false => Ok(()),
        }
    }

    /// Returns whether a path leads to this file.
    fn is_at(&self, path: &Path) -> bool {
        let (Some(one), Ok(other)) = (&self.metadata, fs::metadata(path)) else {
            return false;
        };
        (one.dev(), one.ino()) == (other.dev(), other.ino())
    }

    /// Checks that this file is still the one at a path, and that nobody wrote to it since it was opened.
    pub fn check_unchanged(&self, path: &Path) -> Result<()> {
        let now = fs::metadata(path).with_context(|| self.name.clone())?;
        if self.metadata.as_ref().map(Version::of) != Some(Version::of(&now)) {
            bail!("{} changed while it was read; it is kept", self.name);
        }
        Ok(())
    }

    /// Removes the file, unless another now has its name, or somebody wrote to it.
    pub fn remove(&self, path: &Path) -> Result<()> {
        self.check_unchanged(path)?;
        fs::remove_file(path).with_context(|| format!("remove {}", self.name))
    }
}

/// The bytes that show the kind of a source.
#[derive(Default)]
pub struct Magic {
    /// All of them.
    pub bytes: Vec<u8>,
    /// The bytes that will not be read again.
    pub unread: Vec<u8>,
}

/// The first bytes of a source.
pub struct Head {
    /// The buffer with them, and its filled length.
    pub piece: Vec<u8>,
    pub count: usize,
    /// Bytes of the whole file, if known.
    pub content_bytes: Option<u64>,
}

/// The marks of the opened file at that time, by which it is recognised. A program that sets back the time of writing
/// cannot set back that of the inode.
#[derive(PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Version {
    fn of(it: &Metadata) -> Version {
        Version {
            device: it.dev(),
            inode: it.ino(),
            size_bytes: it.len(),
            modified: (it.mtime(), it.mtime_nsec()),
            changed: (it.ctime(), it.ctime_nsec()),
        }
    }
}

/// Pieces that are read before they are asked for.
const PIECES_AHEAD: usize = 2;

/// A source that another thread reads ahead of the work on it.
pub struct Ahead {
    pieces: Receiver<Result<(Vec<u8>, usize)>>,
    used: Sender<Vec<u8>>,
}

impl Ahead {
    /// Takes a buffer back and returns the next one with its filled length, 0 at the end.
    pub fn next(&self, used: Vec<u8>) -> Result<(Vec<u8>, usize)> {
        // At the end there is nobody to take it back.
        let _ = self.used.send(used);
        self.pieces.recv().unwrap_or_else(|_| Ok((Vec::new(), 0)))
    }
}

/// The treatment of an existing file in the place of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    Keep,
    Overwrite,
    /// Ask the user at the terminal; keep the file where there is none.
    Ask,
}

impl Existing {
    /// Returns the requested treatment: to overwrite by force, or to ask where there is somebody to ask.
    pub fn of(is_forced: bool, may_ask: bool) -> Existing {
        match (is_forced, may_ask) {
            (true, _) => Existing::Overwrite,
            (false, true) => Existing::Ask,
            (false, false) => Existing::Keep,
        }
    }

    /// Returns whether the file of this name may be overwritten.
    fn allows(self, name: &str) -> bool {
        match self {
            Existing::Keep => false,
            Existing::Overwrite => true,
            Existing::Ask if io::stdin().is_terminal() && io::stderr().is_terminal() => {
                let _ = write!(io::stderr(), "{name} already exists; overwrite it (y/n)? ");
                let mut answer = String::new();
                let read = io::stdin().read_line(&mut answer);
                read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
            }
            Existing::Ask => false,
        }
    }
}

/// The target of the bytes.
pub struct Target {
    /// The only descriptor for writing, so that the error of closing it is seen.
    file: Arc<File>,
    /// The name for messages.
    pub name: String,
    /// The unfinished file that will get its name; `None` for a stream or device.
    partial: Option<Partial>,
    overwrites: bool,
}

impl Target {
    /// Takes standard output; a terminal only if the text is for people. Otherwise the error names the way out.
    pub fn standard_output(allows_terminal: bool, instead: &str) -> Result<Target> {
        standard::check()?;
        if !allows_terminal && io::stdout().is_terminal() {
            bail!("standard output is a terminal; {instead}");
        }
        let file = standard::output();
        widen(&file);
        Ok(Target {
            file,
            name: standard::OUTPUT.to_string(),
            partial: None,
            overwrites: true,
        })
    }

    /// Begins a file that will take its source's place once it is complete.
    pub fn in_place_of(path: &Path) -> Result<Target> {
        let name = quoted(&path).to_string();
        match beside::find(path)? {
            Place::File { path, .. } if beside::is_mount_point(&path) => {
                bail!("{name} is a mount point, so no file can replace it; -o names another")
            }
            Place::File { path, .. } => Target::begin(&path, name, true),
            Place::Other => bail!("{name} is no regular file any more"),
        }
    }

    /// Begins a file that will stand under `path` once it is complete; `path` must not be the source.
    pub fn create(path: &Path, source: &Source, existing: Existing) -> Result<Target> {
        let named = path;
        let name = quoted(&path).to_string();
        source.ensure_not_at(path)?;
        if path.is_dir() || name.ends_with('/') {
            bail!("{name} is a folder; name a file to write");
        }
        let mut overwrites = existing == Existing::Overwrite;
        match beside::find(path)? {
            Place::Other => {
                let file = OpenOptions::new().write(true).open(path);
                Ok(Target {
                    file: Arc::new(file.with_context(|| name.clone())?),
                    name,
                    partial: None,
                    overwrites,
                })
            }
            Place::File { path, exists } => {
                if exists && !existing.allows(&name) {
                    bail!("{name} already exists; overwrite it with -f");
                }
                overwrites |= exists;
                // A link to a file is itself replaced, as by zstd and gzip: the user did not name the file behind it.
                let path = if exists { named } else { &path };
                Target::begin(path, name, overwrites)
            }
        }
    }

    /// Begins a file in the folder of a path, to be written and read; it is gone when it is closed.
    pub fn nameless(path: &Path) -> Result<Target> {
        Ok(Target {
            file: Arc::new(beside::nameless(folder_of(path))?),
            name: quoted(&path).to_string(),
            partial: None,
            overwrites: false,
        })
    }

    /// Begins a file that will be renamed to a path.
    fn begin(path: &Path, name: String, overwrites: bool) -> Result<Target> {
        let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        let partial = Partial::create(path, beside::OWNER_ALONE)?;
        *unfinished = Some(partial.path().to_path_buf());
        Ok(Target {
            file: Arc::clone(partial.file()),
            name,
            partial: Some(partial),
            overwrites,
        })
    }

    /// Returns the file to write to.
    pub fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Returns the file for reading back its bytes, after asking the system for errors of writing them.
    pub fn reread(&self) -> Result<File> {
        closing::ask(&self.file).with_context(|| self.name.clone())?;
        self.file.try_clone().with_context(|| self.name.clone())
    }

    /// Empties an unfinished file, so that it is written again.
    pub fn empty(&self) -> Result<()> {
        let mut file = self.file.as_ref();
        let emptied = file.set_len(0).and_then(|()| file.rewind());
        emptied.with_context(|| self.name.clone())
    }

    /// Returns the file as a sink that several threads write to at once.
    pub fn spread(&self, links: usize) -> Result<SpreadFile> {
        let Some(partial) = &self.partial else {
            let reason = format!("--links wants a file, not {}", self.name);
            bail!(Usage(reason));
        };
        let storage = RealStorage::open_folder(folder_of(partial.path()))?;
        let name = partial.path().file_name().and_then(OsStr::to_str);
        let name = name.expect("a name of ours");
        let file = storage.open(name, storage::OpenOptions::default())?;
        Ok(SpreadFile::new(file, links)?)
    }

    /// Returns whether it is standard output.
    pub fn is_standard_output(&self) -> bool {
        self.partial.is_none() && self.name == standard::OUTPUT
    }

    /// Returns whether it is a regular file, as standard output may be one.
    pub fn is_file(&self) -> Result<bool> {
        let metadata = self.file.metadata();
        Ok(metadata.with_context(|| self.name.clone())?.is_file())
    }

    /// Returns whether it is a file that appears when it is complete.
    pub fn is_renamed(&self) -> bool {
        self.partial.is_some()
    }

    /// Gives the complete file its own name, and the owner, mode and times of its source. It is synced before that, if
    /// the source will be removed. Returns the parts that its file system refused.
    pub fn complete(mut self, source: Option<&Metadata>, syncs: bool) -> Result<Vec<Refusal>> {
        let Some(partial) = &self.partial else {
            closing::ask(&self.file).with_context(|| self.name.clone())?;
            return Ok(Vec::new());
        };
        let name = self.name.clone();
        let failed = || format!("complete {name}");
        let refused = match source {
            Some(source) => give_metadata(&self.file, source).with_context(failed)?,
            None => refusal("mode", give_default_mode(&self.file))
                .into_iter()
                .collect(),
        };
        let place = partial.place().to_path_buf();
        let replaces = self.overwrites && place.exists();
        partial.finish(syncs || beside::must_sync(&self.file, replaces))?;
        let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(partial) = self.partial.take() {
            match self.overwrites {
                true => partial.replace()?,
                false => partial.publish()?,
            }
        }
        *unfinished = None;
        drop(unfinished);
        if syncs {
            beside::sync_folder(&place)?;
        }
        Ok(refused)
    }
}

/// A part of the metadata that a file system refused for a file that is otherwise complete.
#[derive(Debug)]
pub struct Refusal {
    /// The part: its owner, its mode.
    pub what: &'static str,
    /// The system's error.
    pub error: io::Error,
}

fn refusal(what: &'static str, outcome: io::Result<()>) -> Option<Refusal> {
    outcome.err().map(|error| Refusal { what, error })
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(partial) = self.partial.take() {
            let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
            drop(partial);
            *unfinished = None;
        }
    }
}

/// Returns the folder that a file stands in.
fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Gives a file the owner of another, as far as that is allowed, then its mode and its times. Returns the refused
/// parts.
fn give_metadata(file: &File, source: &Metadata) -> io::Result<Vec<Refusal>> {
    let made = file.metadata()?;
    let is_root = geteuid().is_root();
    // Only root may give files away; everybody else's files are their own.
    let is_allowed = |error: &io::Error| is_root || error.kind() != io::ErrorKind::PermissionDenied;
    // Never set-user-id: under another owner it would lend rights that the source did not.
    let mut mode = source.mode() & 0o777;
    let mut refused = Vec::new();
    if source.uid() != made.uid() {
        let owner = refusal("owner", fchown(file, Some(source.uid()), None));
        refused.extend(owner.filter(|it| is_allowed(&it.error)));
    }
    if source.gid() != made.gid()
        && let Some(group) = refusal("group", fchown(file, None, Some(source.gid())))
    {
        // The group is another, so it gets the rights of all others.
        mode &= !0o070 | (mode & 0o007) << 3;
        refused.extend(Some(group).filter(|it| is_allowed(&it.error)));
    }
    let permissions = fs::Permissions::from_mode(mode);
    refused.extend(refusal("mode", file.set_permissions(permissions)));
    let mut times = FileTimes::new();
    if let Ok(time) = source.accessed() {
        times = times.set_accessed(time);
    }
    if let Ok(time) = source.modified() {
        times = times.set_modified(time);
    }
    refused.extend(refusal("times", file.set_times(times)));
    Ok(refused)
}

/// Gives a file that was made for its owner alone the mode that a new file would have.
fn give_default_mode(file: &File) -> io::Result<()> {
    // Linux reports the mask; other threads would see a change of it for reading.
    let mask = process_status("Umask:").and_then(|text| u32::from_str_radix(&text, 8).ok());
    file.set_permissions(fs::Permissions::from_mode(0o666 & !mask.unwrap_or(0o077)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ahead_is_known_of_files_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [7; 10]).unwrap();
        let mut source = Source::open(&path).unwrap();
        assert_eq!(source.bytes_ahead(), Some(10));
        assert_eq!(source.read(&mut [0; 4]).unwrap(), 4);
        assert_eq!(source.bytes_ahead(), Some(6));
        fs::write(&path, b"").unwrap();
        // It need not be so when it is read.
        assert_eq!(source.bytes_ahead(), Some(6));
        let mut device = Source::open(Path::new("/dev/zero")).unwrap();
        assert_eq!(device.bytes_ahead(), None);
    }
}
