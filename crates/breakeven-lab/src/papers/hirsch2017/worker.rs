//! This program as a contender or as a far end: pack and unpack as `breakeven` does, and receive.
//!
//! The program `breakeven` itself is another artifact that may be older than this one, so its loops
//! over the library's writer and reader stand here once more.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use breakeven::decide::Profile;
use breakeven::pool::{Pool, PoolOptions};
use breakeven::stream::{
    Choice, Container, Goal, Priced, Reader, ReaderOptions, SeekableReader, Writer, WriterOptions,
    read_seek_table,
};
use breakeven::units::BytesPerSecond;
use clap::Subcommand;
use rustix::pipe::fcntl_setpipe_size;

use super::bench::WORKERS;
use super::network;

/// Bytes read at a time, as `breakeven pack` does.
const READ_BYTES: usize = 1 << 20;
/// The size set for a pipe, as `breakeven unpack` does.
const PIPE_BYTES: usize = 1 << 20;

/// The work of a child process of the laboratory.
#[derive(Subcommand)]
pub enum Order {
    /// Pack standard input to standard output, as fast as can be
    Pack {
        /// Bytes a second of the output's reader; else it is measured
        #[arg(long)]
        link: Option<f64>,
    },
    /// Unpack a file to standard output
    Unpack {
        /// The stream
        stream: PathBuf,
    },
    /// Read the bytes that come to a port of an address
    Receive {
        /// The address
        address: String,
    },
}

/// Does it.
pub fn run(order: Order) -> Result<()> {
    match order {
        Order::Pack { link } => pack(link),
        Order::Unpack { stream } => unpack(&stream),
        Order::Receive { address } => network::receive(&address),
    }
}

fn pool() -> Result<Pool> {
    Ok(Pool::new(PoolOptions {
        worker_count: WORKERS,
    })?)
}

fn standard_output() -> Result<File> {
    Ok(std::io::stdout().as_fd().try_clone_to_owned()?.into())
}

fn pack(link: Option<f64>) -> Result<()> {
    let pool = pool()?;
    let options = WriterOptions {
        choice: Choice::Priced(Box::new(Priced {
            goal: Goal::Fastest,
            arms: Container::Portable.arms(),
            link: link.map(BytesPerSecond),
            profile: Profile::default(),
        })),
        ..WriterOptions::default()
    };
    let mut writer = Writer::new(standard_output()?, &pool, options)?;
    let mut input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut piece = vec![0; READ_BYTES];
    loop {
        match input.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => writer.write_all(&piece[..count])?,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("read"),
        }
    }
    writer.finish()?;
    Ok(())
}

fn unpack(stream: &Path) -> Result<()> {
    let pool = pool()?;
    let mut output = standard_output()?;
    // An output that is no pipe stays as it is.
    let _ = fcntl_setpipe_size(&output, PIPE_BYTES);
    let mut file = File::open(stream).with_context(|| format!("open {}", stream.display()))?;
    let options = ReaderOptions::default();
    match read_seek_table(&mut file)? {
        Some(table) => {
            let mut reader = SeekableReader::new(file, &table, &pool, &options)?;
            loop {
                let content = reader.fill()?;
                if content.is_empty() {
                    return Ok(());
                }
                output.write_all(content)?;
                let count = content.len();
                reader.consume(count);
            }
        }
        None => {
            let mut reader = Reader::new(file, &pool, options)?;
            std::io::copy(&mut reader, &mut output)?;
            Ok(())
        }
    }
}
