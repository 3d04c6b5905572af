//! The write path: bytes in, a row of standard frames out, and back.
//!
//! A [`Writer`] cuts its input into blocks and compresses them on the workers of a pool. A thread of its own writes the
//! frames in order. So compressing and writing overlap (Hirsch 2017, section 3.2). Stock tools decode its output:
//! `docs/format.md` shows the bytes.
//!
//! A [`Reader`] takes any row of standard frames as it comes, a [`SeekableReader`] a file with a seek table from any
//! byte on. Both decode on the workers of a pool.
//!
//! Promises: frames are in order and whole. Memory is bounded by a formula. An error of the sink or of a worker ends
//! every wait and is reported once. An unfinished stream has no seek table. No input makes a reader panic or take
//! memory beyond its formula. It returns the right bytes or an error.
#![deny(unsafe_code)]

mod books;
#[cfg(test)]
mod calls_test;
#[cfg(test)]
mod cells_test;
#[cfg(test)]
mod controlled_test;
mod decoding;
mod drain;
#[cfg(test)]
mod faults_test;
mod feed;
mod frozen;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod habit;
mod hint;
mod input;
#[cfg(test)]
mod kill_test;
mod long;
#[doc(hidden)]
pub mod oracle;
mod pace;
mod pick;
#[doc(hidden)]
pub mod price;
mod reader;
#[cfg(test)]
mod recorded_test;
#[cfg(test)]
mod regimes_test;
mod seekable;
mod shared;
#[doc(hidden)]
pub mod simulate;
mod split;
mod spread;
#[cfg(test)]
mod starts_test;
#[cfg(test)]
mod stream_test;
mod survey;
#[cfg(test)]
mod swings_test;
mod writer;

pub use books::{Books, LinkBasis, Prospect, SeenLink};
pub use decoding::ReaderOptions;
pub use hint::{Advice, Hint, Outlook, PAYLOAD_BYTES};
pub use long::{EARLY_BYTES, LongWriter};
pub use pace::{Contention, Pace, Pacer, Standing};
pub use pick::{Choice, Outcome, Priced, Rule};
pub use price::Goal;
pub use reader::{Counted, Reader};
pub use seekable::SeekableReader;
pub use writer::{CallTimes, Container, Pending, Summary, Writer, WriterOptions};

// For the doors and the laboratory.
#[doc(hidden)]
pub use frozen::Frozen;
#[doc(hidden)]
pub use seekable::read_seek_table;
#[doc(hidden)]
pub use spread::SpreadFile;
#[doc(hidden)]
pub use survey::{FoundFrame, Survey, survey, visit};
