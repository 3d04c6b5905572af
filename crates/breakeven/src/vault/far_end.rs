//! The seam between a vault and where its objects lie: names that are free are put once, read, listed and deleted.
//!
//! Two things stand behind it: a folder ([`FolderEnd`](super::FolderEnd)), and a store of objects that answers requests
//! ([`ObjectsEnd`](super::ObjectsEnd)). Nothing is assumed of either but what the methods promise: no
//! renames, no appending, no order between objects.

use crate::error::Result;

/// What became of an object that was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is there now.
    Created,
    /// Another object has that name; nothing was changed.
    Exists,
}

/// An object as a listing names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// The name below the folder that was listed.
    pub name: String,
    /// Its size, where the listing says it for nothing.
    pub size_bytes: Option<u64>,
}

/// The turn to write; it ends when this is dropped, or with its process.
pub struct Turn {
    _held: Box<dyn std::any::Any>,
}

impl Turn {
    /// Makes a turn that lasts as long as what it holds.
    pub fn new(held: impl std::any::Any) -> Turn {
        Turn {
            _held: Box::new(held),
        }
    }
}

/// The mark of one that adds; it ends when this is dropped, or with its process.
pub trait AddMark {
    /// Says whether there is a mark of another one that adds.
    ///
    /// # Errors
    /// Those of the medium.
    fn has_others(&self) -> Result<bool>;
}

/// Where the objects of a vault lie.
pub trait FarEnd: Send + Sync {
    /// Puts an object under a name, unless the name is taken. When this returns, the object is durable with its
    /// name, or was there before.
    ///
    /// # Errors
    /// Those of the medium. Whether the object is there is then unknown.
    fn put(&self, name: &str, bytes: &[u8]) -> Result<Put>;

    /// Reads a whole object of at most `most_bytes`.
    ///
    /// # Errors
    /// [`crate::Error::Limit`] for a longer one, and those of the medium.
    fn read(&self, name: &str, most_bytes: u64) -> Result<Vec<u8>>;

    /// Reads a part of an object, which must have all of it.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] where the object is shorter, and those of the medium.
    fn read_range(&self, name: &str, offset: u64, length_bytes: usize) -> Result<Vec<u8>>;

    /// Returns the size of an object, nothing if it is not there.
    ///
    /// # Errors
    /// Those of the medium.
    fn size_bytes(&self, name: &str) -> Result<Option<u64>>;

    /// Lists the objects in a folder and in folders below it, sorted; none if there is no such folder.
    ///
    /// # Errors
    /// Those of the medium: a listing that breaks off is an error, never a shorter one.
    fn list(&self, folder: &str) -> Result<Vec<Listed>>;

    /// Deletes objects of one folder; those that are not there are no error.
    ///
    /// # Errors
    /// Those of the medium.
    fn delete(&self, folder: &str, names: &[String]) -> Result<()>;

    /// Takes the turn to write, unless another process has it.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if another has it, and those of the medium.
    fn take_turn(&self) -> Result<Turn>;

    /// Marks one that adds beside others. What dead ones left half done is removed where nobody else adds.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] while [`FarEnd::exclude`] is in force, and those of the medium.
    fn share(&self) -> Result<Box<dyn AddMark>>;

    /// Keeps out those who add, as long as what it returns is kept; for the one who deletes what no index names.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] while another adds or deletes, and those of the medium.
    fn exclude(&self) -> Result<Turn>;

    /// Gives the turn and all marks back whoever has them: one who still lives finds out when it commits.
    ///
    /// # Errors
    /// Those of the medium.
    fn break_turn(&self) -> Result<()>;

    /// Returns what putting an object costs beside its bytes, as bytes that are held for a year.
    fn put_costs_bytes(&self) -> u64 {
        0
    }

    /// Keeps so much room aside, as far as there is any: see [`FarEnd::use_kept_room`]. Nothing hangs on it.
    fn keep_room(&self, _size_bytes: u64) {}

    /// Lets what is kept aside be used once there is no other room; for changes that give some back.
    fn use_kept_room(&self) {}

    /// Says whether there was no room but what was kept aside.
    fn is_short(&self) -> bool {
        false
    }

    /// Makes the names in a folder durable, which whoever put them may not have done; for the one who has the turn.
    ///
    /// # Errors
    /// Those of the medium.
    fn settle(&self, _folder: &str) -> Result<()> {
        Ok(())
    }

    /// Removes what dead writers left half done in a folder and below; for the one who has the turn.
    ///
    /// # Errors
    /// Those of the medium.
    fn clear(&self, _folder: &str) -> Result<()> {
        Ok(())
    }
}

/// Reports that an object is not there, as every far end does.
pub(super) fn not_there(name: &str) -> crate::Error {
    let source = std::io::Error::from_raw_os_error(libc::ENOENT);
    crate::Error::io("find", name, source)
}
