//! Storage compression that pays for itself.
//!
//! Breakeven measures what compressing costs on this machine for this data, decides block by block, and keeps the
//! books. It offers a program three things:
//!
//! - a buffer cache that compresses a part of its blocks where that saves time ([`cache`]),
//! - streams that compress each block where that pays on its way ([`stream`]),
//! - advice on its data ([`advise`](mod@advise)).
//!
//! # A cache over a file
//!
//! A block is read once and kept, as it is or compressed, whichever costs less in the end.
//!
//! ```
//! use std::{fs::File, os::unix::fs::FileExt};
//!
//! use breakeven::{Error, cache::{Cache, CacheOptions}};
//!
//! let file = File::open("Cargo.toml").map_err(|error| Error::io("open", "Cargo.toml", error))?;
//! let cache = Cache::new(CacheOptions { budget_bytes: 16 << 20, ..CacheOptions::default() })?;
//! let page = |number: u64| cache.get_or_load(number, 256, |frame| {
//!     let read = file.read_exact_at(frame, number * 256);
//!     read.map_err(|error| Error::io("read", "Cargo.toml", error))
//! });
//! assert!(page(0)?.starts_with(b"[package]"));
//! assert_ne!(page(0)?[..], page(1)?[..]);
//! # Ok::<(), Error>(())
//! ```
//!
//! # A stream that adapts
//!
//! Each block is compressed by the method with which the stream is over soonest, at the speed that the sink
//! turns out to have. Stock `zstd -d` reads it.
//!
//! ```
//! use std::io::Read;
//!
//! use breakeven::pool::{Pool, PoolOptions};
//! use breakeven::stream::{Goal, Reader, ReaderOptions, Writer, WriterOptions};
//!
//! let data = b"what is said again and again ".repeat(100_000);
//! let pool = Pool::new(PoolOptions::default())?;
//! let mut writer = Writer::new(Vec::new(), &pool, WriterOptions::adaptive(Goal::Fastest))?;
//! writer.write_all(&data)?;
//! let (stream, summary) = writer.finish()?;
//! assert_eq!(summary.raw_bytes, data.len() as u64);
//! let (mut reader, mut back) = (Reader::new(&stream[..], &pool, ReaderOptions::default())?, Vec::new());
//! reader.read_to_end(&mut back).expect("what was just written");
//! assert!(back == data);
//! # Ok::<(), breakeven::Error>(())
//! ```
//!
//! # What is built
//!
//! Features are places (`cache`, `blocks`, `disk`, `pages`, `objects`, `stream`, `replay`, `advise`, `vault`) and
//! codecs beside store, lz4 and zstd (`xz`, `deflate`, `bzip2`). `dictionaries` adds names of dictionaries by content,
//! and their training. All are on by default but `vault`, because a program asks for its ciphers by name: 44 crates,
//! build tools and this one included. A program that wants the cache alone asks for
//! `default-features = false, features = ["cache"]`: 31 crates.
//!
//! The other public modules are for the doors and the laboratory of this project. They are not shown here, and may
//! change with any version.
#![deny(missing_docs)]

#[cfg(feature = "advise")]
pub mod advise;
#[doc(hidden)]
pub mod arena;
#[doc(hidden)]
pub mod bisection;
#[cfg(feature = "blocks")]
#[doc(hidden)]
pub mod blocks;
#[cfg(feature = "cache")]
pub mod cache;
#[doc(hidden)]
pub mod codec;
#[doc(hidden)]
pub mod decide;
#[cfg(feature = "dictionaries")]
#[doc(hidden)]
pub mod dictionaries;
#[cfg(feature = "disk")]
#[doc(hidden)]
pub mod disk;
pub mod error;
#[cfg(feature = "stream")]
#[doc(hidden)]
pub mod frame;
#[cfg(any(all(test, feature = "default"), feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(feature = "advise")]
#[doc(hidden)]
pub mod medium;
#[doc(hidden)]
pub mod meter;
#[doc(hidden)]
pub mod model;
#[cfg(feature = "objects")]
#[doc(hidden)]
pub mod objects;
#[cfg(feature = "pages")]
#[doc(hidden)]
pub mod pages;
pub mod pool;
#[doc(hidden)]
pub mod quoted;
#[cfg(feature = "replay")]
#[doc(hidden)]
pub mod replay;
#[doc(hidden)]
pub mod statistics;
#[doc(hidden)]
pub mod storage;
#[cfg(feature = "stream")]
pub mod stream;
#[cfg(any(test, feature = "proof"))]
#[doc(hidden)]
pub mod testing;
pub mod units;
#[cfg(feature = "vault")]
#[doc(hidden)]
pub mod vault;

pub use codec::Method;
pub use error::{Error, Result};
