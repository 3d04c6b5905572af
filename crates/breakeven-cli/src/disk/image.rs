//! Images in and out, the forecast of an import, and the check of every block.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use breakeven::blocks::{BlocksOptions, Durability, INDEX_MAX};
use breakeven::disk::{Disk, DiskOptions, IMPORT_BYTES, Volume, predict};
use breakeven::meter::thread_cpu;
use breakeven::quoted::quoted;
use breakeven::storage::beside::{self, Partial};
use breakeven::storage::images::{HEAD_BYTES, Image, data_runs, next_data};
use breakeven::storage::{OpenOptions as StoredOptions, Storage as _};
use breakeven_cli::text;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{Opened, reserve};
use crate::environment;
use crate::options::{DiskExportOptions, DiskFsckOptions, DiskImportOptions};
use crate::standard;

/// Bytes read and written at a time.
const STEP_BYTES: usize = IMPORT_BYTES as usize;
/// A disk of a shorter image is made with short segments, so that it is small.
const LONG_IMAGE_BYTES: u64 = 2 << 20;
/// The blocks whose state is asked for at a time.
pub(super) const STATUS_BLOCKS: u64 = 1 << 20;

/// The way in for images that are not raw.
const CONVERT: &str = "qemu-img convert -n -O raw IMAGE 'nbd+unix:///?socket=SOCKET'";

/// Returns the kind of image in a file, by its first bytes.
fn kind_of(file: &File, size_bytes: u64) -> io::Result<Option<Image>> {
    let mut head = Vec::new();
    let mut file = file;
    file.seek(SeekFrom::Start(0))?;
    file.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(Image::find(&head, Some(size_bytes)))
}

/// Predicts the result of an import of an image, from `bytes_max` of it. Returns nothing if it is no image, or cannot
/// be read. Nothing is written.
pub fn foretold(path: &Path, bytes_max: u64) -> Option<String> {
    let path = std::fs::canonicalize(path).ok()?;
    let file = File::open(&path).ok()?;
    let size_bytes = file.metadata().ok()?.len();
    let kind = kind_of(&file, size_bytes).ok()??;
    let name = quoted(&path);
    if !kind.is_raw() {
        return Some(format!(
            "{name} is {kind}: what `breakeven disk` would make of it is told of a raw one; it comes in by {CONVERT}"
        ));
    }
    let mut runs: Vec<Range<u64>> = data_runs(&file).map(|(start, end)| start..end).collect();
    if runs.is_empty() {
        // The file system reports no holes, or the file is one.
        runs.push(0..size_bytes);
    }
    let (storage, _, name_in_folder) = Opened::place(&path).ok()?;
    let image = storage
        .open(&name_in_folder, StoredOptions::read_only())
        .ok()?;
    let before = thread_cpu();
    let found = predict(&*image, &runs, DiskOptions::default(), bytes_max).ok()?;
    let seconds =
        (thread_cpu().0 - before.0) * found.data_bytes as f64 / found.sampled_bytes as f64;
    let size = |bytes: u64| text::size(bytes as f64);
    let part = match found.sampled_bytes < found.data_bytes {
        true => format!(", as far as {} of it tell", size(found.sampled_bytes)),
        false => String::new(),
    };
    Some(format!(
        "{name} is {kind}, and would be a file of {} in place of {} as a disk, of which {} are zeros and {} are there \
         already, for {seconds:.1} s of a core{part}: `breakeven disk import`",
        size(found.file_bytes),
        size(found.data_bytes),
        size(found.zero_bytes),
        size(found.duplicate_bytes),
    ))
}

fn progress(size_bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}");
    ProgressBar::new(size_bytes).with_style(style.expect("a template"))
}

fn progress_of_stream() -> ProgressBar {
    let style = ProgressStyle::with_template("{bytes}, {bytes_per_sec}");
    ProgressBar::new_spinner().with_style(style.expect("a template"))
}

/// Calls `visit` with every run of bytes that is stored, in pieces.
fn for_each_stored(volume: &Volume, mut visit: impl FnMut(u64, usize) -> Result<()>) -> Result<()> {
    let size_bytes = volume.status().size_bytes;
    let mut at = 0;
    while at < size_bytes {
        for extent in volume.extents(at..size_bytes, STATUS_BLOCKS)? {
            let end = at + extent.length_bytes;
            while at < end {
                let step = (end - at).min(if extent.is_hole {
                    u64::MAX
                } else {
                    STEP_BYTES as u64
                });
                if !extent.is_hole {
                    visit(at, step as usize)?;
                }
                at += step;
            }
        }
    }
    Ok(())
}

/// Returns the stored bytes of a volume, before compression and sharing.
pub fn mapped_bytes(volume: &Volume) -> Result<u64> {
    let mut bytes = 0;
    for_each_stored(volume, |_, count| {
        bytes += count as u64;
        Ok(())
    })?;
    Ok(bytes)
}

/// Makes a disk of a raw image.
pub fn import(options: &DiskImportOptions) -> Result<()> {
    let stop = environment::stop_at_signals()?;
    let mut source = match options.image == Path::new("-") {
        true => ImageSource::stream()?,
        false => ImageSource::file(&options.image)?,
    };
    let is_long = source
        .before
        .is_none_or(|(length, _)| length >= LONG_IMAGE_BYTES);
    let fill = |disk: &Disk, folder: &Path| {
        reserve(disk, folder, options.reserve);
        source.import(disk, &options.volume, &stop)
    };
    let usual = DiskOptions::default();
    let disk_options = DiskOptions {
        blocks: BlocksOptions {
            // Long segments have room for long dictionaries.
            block_bytes_max: match is_long {
                true => 4 * usual.block_bytes,
                false => usual.block_bytes,
            },
            ..usual.blocks
        },
        ..usual
    };
    Opened::make(&options.file.path, disk_options, fill)
}

/// The longest volume there is. A stream fills as much of it as it has.
const STREAM_BYTES_MAX: u64 = INDEX_MAX * 4096;

/// The source of an image.
struct ImageSource {
    image: File,
    name: String,
    /// Its length and the time of its last change, unless it is a stream.
    before: Option<(u64, Option<SystemTime>)>,
}

impl ImageSource {
    fn file(path: &Path) -> Result<ImageSource> {
        let name = quoted(&path).to_string();
        let context = || format!("import {name}");
        // A FIFO without a writer would let the call wait, whatever signal comes.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let opened = File::options().read(true).custom_flags(flags).open(path);
        let mut image = opened.with_context(context)?;
        standard::make_blocking(image.as_fd());
        let kind = image.metadata().with_context(context)?.file_type();
        let mut before = None;
        if !kind.is_fifo() {
            before = Some(length_and_time(&mut image).with_context(context)?);
            image.seek(SeekFrom::Start(0)).with_context(context)?;
        }
        Ok(ImageSource {
            image,
            name,
            before,
        })
    }

    fn stream() -> Result<ImageSource> {
        Ok(ImageSource {
            image: standard::input()?,
            name: standard::INPUT.to_string(),
            before: None,
        })
    }

    /// Fills a volume with it; nobody sees the disk before that is done.
    fn import(&mut self, disk: &Disk, volume_name: &str, stop: &AtomicBool) -> Result<()> {
        let announced_bytes = self.before.map(|(length, _)| length);
        ensure!(announced_bytes != Some(0), "{}: it is empty", self.name);
        let size_bytes = announced_bytes.unwrap_or(STREAM_BYTES_MAX);
        disk.create_volume(volume_name, size_bytes)?;
        let bar = announced_bytes.map_or_else(progress_of_stream, progress);
        let filled = self.fill(&disk.volume(volume_name)?, &bar, stop);
        bar.finish_and_clear();
        let filled_bytes = filled.with_context(|| format!("import {}", self.name))?;
        match self.before {
            Some(before) => {
                let now = length_and_time(&mut self.image)?;
                let is_same = now == before && filled_bytes == before.0;
                ensure!(
                    is_same,
                    "{}: it was written to while it was read",
                    self.name
                );
            }
            None => {
                ensure!(filled_bytes > 0, "{}: it is empty", self.name);
                disk.resize_volume(volume_name, filled_bytes, false)?;
            }
        }
        Ok(())
    }

    /// Passes over a hole of a file. Returns the hole's end.
    fn skip_hole(&mut self, at: u64) -> Result<u64> {
        let is_file = self.before.is_some_and(|(_, modified)| modified.is_some());
        if !is_file {
            return Ok(at);
        }
        let next = next_data(&self.image, at);
        if next > at {
            self.image.seek(SeekFrom::Start(next))?;
        }
        Ok(next)
    }

    /// Writes all bytes into a volume. Returns their number.
    fn fill(&mut self, volume: &Volume, bar: &ProgressBar, stop: &AtomicBool) -> Result<u64> {
        let mut buffer = vec![0; STEP_BYTES];
        let mut at = 0;
        loop {
            at = self.skip_hole(at)?;
            let count = self.read(&mut buffer, stop)?;
            let bytes = &buffer[..count];
            if at == 0
                && let Some(kind) = Image::find(bytes, self.before.map(|(length, _)| length))
            {
                ensure!(
                    kind.is_raw(),
                    "{}: {kind}; serve an empty disk and let qemu-img convert it: {CONVERT}",
                    self.name
                );
            }
            if bytes.is_empty() {
                return Ok(at);
            }
            let has_grown = at + count as u64 > volume.status().size_bytes;
            ensure!(
                !has_grown,
                "{}: it was written to while it was read",
                self.name
            );
            volume.write(at, bytes, Durability::Lazy)?;
            at += count as u64;
            bar.set_position(at);
        }
    }

    /// Reads until the buffer is full or nothing more comes.
    fn read(&mut self, buffer: &mut [u8], stop: &AtomicBool) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            await_bytes(&self.image, stop)?;
            match self.image.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }
}

/// Waits until something can be read, which a file always says, or a signal asks for the end.
fn await_bytes(image: &File, stop: &AtomicBool) -> Result<()> {
    // A signal that comes just before the wait is noticed behind it.
    let patience = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    loop {
        check_going_on(stop)?;
        let mut polled = [PollFd::new(image, PollFlags::IN)];
        match poll(&mut polled, Some(&patience)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

/// Returns the facts that show whether anybody wrote to an image. A block device has no time.
fn length_and_time(image: &mut File) -> io::Result<(u64, Option<SystemTime>)> {
    let metadata = image.metadata()?;
    let modified = metadata.is_file().then(|| metadata.modified());
    Ok((image.seek(SeekFrom::End(0))?, modified.transpose()?))
}

/// Fails once a signal asks for the end.
fn check_going_on(stop: &AtomicBool) -> Result<()> {
    match stop.load(Ordering::Relaxed) {
        true => Err(breakeven::Error::Interrupted.into()),
        false => Ok(()),
    }
}

/// Writes a volume as a raw image whose holes are holes. Says no if the image lacks blocks that cannot be read.
pub fn export(options: &DiskExportOptions) -> Result<ExitCode> {
    let opened = Opened::open_read_only(&options.file)?;
    let volumes = opened.disk.volumes()?;
    let first = volumes.first().context("the disk has no volume")?;
    let volume = opened
        .disk
        .volume(options.volume.as_ref().unwrap_or(&first.name))?;
    let size_bytes = volume.status().size_bytes;
    let stop = environment::stop_at_signals()?;
    let mut image = ImageTarget::create(&options.image, size_bytes)?;
    let bar = progress(size_bytes);
    let mut buffer = vec![0; STEP_BYTES];
    let mut damage = Damage::default();
    for_each_stored(&volume, |at, count| {
        check_going_on(&stop)?;
        match options.skip_damaged {
            true => damage.read(&volume, at, &mut buffer[..count]),
            false => volume.read(at, &mut buffer[..count])?,
        }
        image.write(&buffer[..count], at)?;
        bar.set_position(at);
        Ok(())
    })?;
    image.finish(&options.image, size_bytes)?;
    bar.finish_and_clear();
    let mut lost = String::new();
    damage.tell(&volume.status().name, &mut lost);
    for line in lost.lines() {
        standard::complain(format_args!("{line}; the image has zeros there"));
    }
    Ok(ExitCode::from(u8::from(damage.bytes > 0)))
}

/// The place of an exported image.
enum ImageTarget {
    File(Partial),
    /// Standard output, and the bytes that went there.
    Stream(Arc<File>, u64),
}

impl ImageTarget {
    fn create(path: &Path, size_bytes: u64) -> Result<ImageTarget> {
        if path == Path::new("-") {
            standard::check()?;
            let output = standard::output();
            ensure!(!output.is_terminal(), "standard output is a terminal");
            return Ok(ImageTarget::Stream(output, 0));
        }
        let is_free = path.symlink_metadata().is_err();
        ensure!(is_free, "{} exists", quoted(&path));
        let partial = Partial::create(path, beside::AS_NEW)?;
        let grown = partial.file().set_len(size_bytes);
        grown.with_context(|| format!("write {}", quoted(&path)))?;
        Ok(ImageTarget::File(partial))
    }

    /// Writes at a place that is not before the last one.
    fn write(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        match self {
            ImageTarget::File(partial) => {
                let written = partial.file().write_all_at(bytes, at);
                written.with_context(|| format!("write {}", quoted(&partial.place())))
            }
            ImageTarget::Stream(output, done) => {
                let mut zeros = io::repeat(0).take(at - *done);
                let written = io::copy(&mut zeros, &mut &**output);
                let written = written.and_then(|_| (&**output).write_all(bytes));
                *done = at + bytes.len() as u64;
                written.context("standard output")
            }
        }
    }

    fn finish(mut self, path: &Path, size_bytes: u64) -> Result<()> {
        self.write(&[], size_bytes)?;
        if let ImageTarget::File(partial) = self {
            partial.finish(true)?;
            partial.publish()?;
            beside::sync_folder(path)?;
        }
        Ok(())
    }
}

/// Reads every block of every volume; each has a checksum. Says no if a block cannot be read, or something that was
/// acknowledged may be missing.
pub fn check(options: &DiskFsckOptions) -> Result<ExitCode> {
    let is_mended = match options.repair {
        true => crate::db::mend(&options.file.path)?,
        false => true,
    };
    let opened = Opened::open_read_only(&options.file)?;
    let mut buffer = vec![0; STEP_BYTES];
    let mut out = String::new();
    let mut is_bad = !is_mended || opened.disk.opened().may_lack;
    for status in opened.disk.volumes()? {
        let volume = opened.disk.volume(&status.name)?;
        let bar = progress(status.size_bytes);
        let (mut bytes, mut damage) = (0, Damage::default());
        let walked = for_each_stored(&volume, |at, count| {
            damage.read(&volume, at, &mut buffer[..count]);
            bytes += count as u64;
            bar.set_position(at);
            Ok(())
        });
        bar.finish_and_clear();
        is_bad |= damage.bytes > 0 || walked.is_err();
        let read = text::memory_size(bytes);
        out.push_str(&match damage.bytes {
            0 => format!("{}: {read} read, all good\n", status.name),
            lost => format!(
                "{}: {read} looked at, of which {} ({lost} bytes) cannot be read\n",
                status.name,
                text::memory_size(lost)
            ),
        });
        damage.tell(&status.name, &mut out);
        if let Err(error) = walked {
            out.push_str(&format!(
                "{}: where the rest lies cannot be read: {error:#}\n",
                status.name
            ));
        }
    }
    super::add_remarks(&opened.disk, &mut out);
    standard::print(&out);
    Ok(ExitCode::from(u8::from(is_bad)))
}

/// The most unreadable places that are named one by one.
const PLACES_MAX: usize = 100;

/// The unreadable parts of a volume.
#[derive(Default)]
struct Damage {
    /// The first places, and why the first block of each cannot be read.
    places: Vec<(Range<u64>, String)>,
    bytes: u64,
    /// The number of places that are not named.
    others: u64,
}

impl Damage {
    /// Reads the volume from `at` on, with zeros for blocks that cannot be read. Each block is lost by itself.
    fn read(&mut self, volume: &Volume, at: u64, target: &mut [u8]) {
        if volume.read(at, target).is_ok() {
            return;
        }
        let block_bytes = u64::from(volume.status().block_bytes);
        let end = at + target.len() as u64;
        let mut from = at;
        while from < end {
            let next = (from / block_bytes + 1) * block_bytes;
            let block = from..next.min(end);
            let part = &mut target[(from - at) as usize..(block.end - at) as usize];
            if let Err(error) = volume.read(from, part) {
                part.fill(0);
                self.add(block.clone(), &error);
            }
            from = block.end;
        }
    }

    fn add(&mut self, block: Range<u64>, error: &breakeven::Error) {
        self.bytes += block.end - block.start;
        let has_room = self.places.len() < PLACES_MAX;
        match self.places.last_mut() {
            Some((last, _)) if last.end == block.start => last.end = block.end,
            _ if has_room => self.places.push((block, error.to_string())),
            _ => self.others += 1,
        }
    }

    /// Names the blocks that cannot be read.
    fn tell(&self, volume: &str, out: &mut String) {
        for (place, why) in &self.places {
            let Range { start, end } = place;
            out.push_str(&format!(
                "{volume}: bytes {start} to {end} cannot be read: {why}\n"
            ));
        }
        if self.others > 0 {
            out.push_str(&format!("{volume}: and {} blocks more\n", self.others));
        }
    }
}
