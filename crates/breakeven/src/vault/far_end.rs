//! The seam between a vault and the place of its objects: objects are put once under free names, read, listed and
//! deleted.
//!
//! Two things stand behind it: a folder ([`FolderEnd`](super::FolderEnd)), and a store of objects that answers requests
//! ([`ObjectsEnd`](super::ObjectsEnd)). Nothing is assumed of either beyond the promises of the methods: no renames, no
//! appending, no order between objects.

use crate::error::Result;

/// The outcome of a put.
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
    /// Its size, where the listing gives it at no cost.
    pub size_bytes: Option<u64>,
}

/// The turn to write; it ends when this is dropped, or with its process.
pub struct Turn {
    _held: Box<dyn std::any::Any>,
}

impl Turn {
    /// Makes a turn that lasts as long as `held`.
    pub fn new(held: impl std::any::Any) -> Turn {
        Turn {
            _held: Box::new(held),
        }
    }
}

/// The mark of a process that adds. It ends when this is dropped, or with the process.
pub trait AddMark {
    /// Says whether another process that adds has a mark.
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

    /// Reads a part of an object; the object must have all of it.
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

    /// Deletes objects of one folder; missing ones are no error.
    ///
    /// # Errors
    /// Those of the medium.
    fn delete(&self, folder: &str, names: &[String]) -> Result<()>;

    /// Takes the turn to write, unless another process has it.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if another has it, and those of the medium.
    fn take_turn(&self) -> Result<Turn>;

    /// Marks a process that adds beside others. Half-done work of dead ones is removed where no other adds.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] while [`FarEnd::exclude`] is in force, and those of the medium.
    fn share(&self) -> Result<Box<dyn AddMark>>;

    /// Keeps out all that add while the returned turn lives; for a caller that deletes objects that no index names.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] while another adds or deletes, and those of the medium.
    fn exclude(&self) -> Result<Turn>;

    /// Takes the turn and all marks from their holders: a living holder finds out when it commits.
    ///
    /// # Errors
    /// Those of the medium.
    fn break_turn(&self) -> Result<()>;

    /// Returns the cost of a put beside its bytes, as bytes that are held for a year.
    fn put_costs_bytes(&self) -> u64 {
        0
    }

    /// Keeps so much room aside, as far as there is any: see [`FarEnd::use_kept_room`]. Nothing depends on it.
    fn keep_room(&self, _size_bytes: u64) {}

    /// Lets the room kept aside be used once there is no other; for changes that give some back.
    fn use_kept_room(&self) {}

    /// Says whether only the room kept aside was left.
    fn is_short(&self) -> bool {
        false
    }

    /// Makes the names in a folder durable, for the holder of the turn: the process that put them may not have done it.
    ///
    /// # Errors
    /// Those of the medium.
    fn settle(&self, _folder: &str) -> Result<()> {
        Ok(())
    }

    /// Removes half-done work of dead writers in a folder and below; for the holder of the turn.
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
