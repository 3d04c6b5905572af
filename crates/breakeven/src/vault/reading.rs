//! The content of a file that others may change meanwhile.
//!
//! Promises: no more is read than the file's length when it was opened, so the read of a growing file ends. A stated
//! length is never relied on. The file may be shorter or longer when it is read, and files that the system makes up
//! have none.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::error::{Error, Result};

use super::hashing::next_data;
use super::writer::Source;

/// The moments at which others may change the file that is read. Only tests do something then.
pub(super) mod moments {
    #[cfg(not(test))]
    pub(crate) fn pass() {}

    #[cfg(test)]
    pub(crate) use told::{pass, set};

    #[cfg(test)]
    mod told {
        use std::cell::RefCell;

        type Listener = Box<dyn FnMut()>;

        thread_local! {
            static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
        }

        pub(crate) fn set(listener: Option<Listener>) {
            LISTENER.set(listener);
        }

        pub(crate) fn pass() {
            LISTENER.with_borrow_mut(|listener| {
                if let Some(listener) = listener {
                    listener();
                }
            });
        }
    }
}

/// An open file that is read.
pub(super) struct FileSource {
    file: Arc<File>,
    /// How many bytes are read; all to its end if unknown.
    limit_bytes: Option<u64>,
    /// Whether the snapshot before has another content of it.
    is_changed: bool,
    read_bytes: u64,
    failure: Option<String>,
}

impl FileSource {
    pub(super) fn new(file: File, limit_bytes: Option<u64>, is_changed: bool) -> FileSource {
        FileSource {
            file: Arc::new(file),
            limit_bytes,
            is_changed,
            read_bytes: 0,
            failure: None,
        }
    }

    pub(super) fn descriptor(&self) -> &File {
        &self.file
    }

    /// Says why the file could not be read, if it could not.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    /// Says whether the file goes on behind a length.
    pub(super) fn has_more(&self, length_bytes: u64) -> bool {
        moments::pass();
        matches!(self.file.read_at(&mut [0], length_bytes), Ok(1..))
    }

    fn watch<T>(&mut self, result: std::io::Result<T>) -> Result<T> {
        result.map_err(|error| {
            self.failure = Some(error.to_string());
            Error::io("read", "a file", error)
        })
    }
}

impl Source for FileSource {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let left = self.limit_bytes.map_or(u64::MAX, |it| it - self.read_bytes);
        let wanted = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        moments::pass();
        loop {
            match (&*self.file).read(&mut buffer[..wanted]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                result => {
                    let count = self.watch(result)?;
                    self.read_bytes += count as u64;
                    return Ok(count);
                }
            }
        }
    }

    fn rewind(&mut self) -> Result<bool> {
        let rewound = (&*self.file).rewind();
        self.read_bytes = 0;
        self.watch(rewound).map(|()| true)
    }

    fn zeros_ahead(&mut self) -> Result<u64> {
        let Some(limit) = self.limit_bytes else {
            return Ok(0);
        };
        let at = self.read_bytes;
        Ok(next_data(&self.file, at).min(limit).saturating_sub(at))
    }

    fn skip_zeros(&mut self, count: u64) -> Result<()> {
        self.read_bytes += count;
        let sought = (&*self.file).seek(SeekFrom::Start(self.read_bytes));
        self.watch(sought).map(drop)
    }

    fn file(&self) -> Option<&Arc<File>> {
        Some(&self.file)
    }

    fn is_hardly_known(&self) -> bool {
        self.is_changed
    }

    fn size_bytes(&self) -> Option<u64> {
        moments::pass();
        self.limit_bytes
    }
}
