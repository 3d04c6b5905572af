//! A memcached: the text and meta protocols over the library's store of small objects, on TCP or a UNIX socket.
//!
//! [`run`] is the command `breakeven serve`, with memcached's option letters. [`Server`] is for programs that start one
//! inside. [`client`] is for programs that talk to one, or to any other memcached. The answers are those of Debian's
//! memcached 1.6.18, byte for byte, except where `docs/serve.md` says otherwise.
#![deny(unsafe_code)]
// Standard error may be full or gone, and these end the process then.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod admin;
mod base64;
pub mod client;
mod clock;
mod counters;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod line;
mod meta;
mod number;
mod options;
mod process;
mod server;
mod session;
mod settings;
mod shared;
pub mod sockets;
mod stats;
mod stream;
mod text;
mod unread;
mod worker;

pub use options::{Asked, read};
pub use process::run;
pub use server::{Server, Stopper};
pub use settings::{Listen, Settings};
pub use stream::Stream;
