//! Objects that lie twice: packs of folders and lists, records, `config` and keys have a copy under another name.
//!
//! They are a hundredth of a vault's bytes, and name all the rest: without a copy one flipped bit in a folder loses a
//! tree. A copy has the same bytes. Where one of the two is damaged, the other is read and the damage noted.
//!
//! Promises: the copy of a pack is durable before any index lists the pack. The copy of a record is put only when the
//! record is the vault's.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::error::Result;

use super::cipher::{Id, Keys};
use super::damage_log::DamageLog;
use super::far_end::FarEnd;
use super::index::PackPlace;
use super::pack::{
    CompressedFrame, HEAD_BYTES, PACK_BYTES_LIMIT, PackKind, name_from, name_of, object_name,
    open_frame, read_head,
};
use super::repair::{is_damage, unless_damaged};
use super::{CONFIG, Damage, RECORD, Vault, epoch_of, object};

/// Where copies lie.
pub(super) const COPIES: &str = "copies";
const KEY: &str = "key-";
const SNAPSHOT: &str = "record-";

/// Returns the name of the copy of an object.
///
/// # Panics
/// For an object that has none.
pub(super) fn copy_name(object: &str) -> String {
    let copy = match object.split_once('/') {
        Some(("keys", name)) => format!("{KEY}{name}"),
        Some(("snapshots", name)) => format!("{SNAPSHOT}{name}"),
        Some(("packs", listed)) => name_from(listed).expect("the name of a pack").hex(),
        _ => CONFIG.to_string(),
    };
    format!("{COPIES}/{copy}")
}

/// Returns the name of the original of an object in the folder of copies.
fn original_name(copy: &str) -> Option<String> {
    if let Some(key) = copy.strip_prefix(KEY) {
        return Some(format!("keys/{key}"));
    }
    if let Some(record) = copy.strip_prefix(SNAPSHOT) {
        return Some(format!("snapshots/{record}"));
    }
    match copy == CONFIG {
        true => Some(CONFIG.to_string()),
        false => Id::from_hex(copy).map(object_name),
    }
}

/// Reads from an object. If it is damaged, reads from its copy and notes the damage.
pub(super) fn read_either<T>(
    object: &str,
    damages: &DamageLog,
    mut read: impl FnMut(&str) -> Result<T>,
) -> Result<T> {
    match read(object) {
        Err(error) if is_damage(&error) => match read(&copy_name(object)) {
            Ok(value) => {
                damages.note(object, &error);
                Ok(value)
            }
            Err(other) if is_damage(&other) => Err(error),
            Err(other) => Err(other),
        },
        value => value,
    }
}

/// Reads frames of packs, and of their copies.
pub(super) struct FrameReader<'r> {
    pub(super) far: &'r dyn FarEnd,
    pub(super) keys: &'r Keys,
    pub(super) damages: &'r DamageLog,
}

impl FrameReader<'_> {
    /// Reads the frame at these bytes of a pack. `head` is the pack's, once a frame of it was read.
    pub(super) fn frame(
        &self,
        pack: &PackPlace,
        place: Range<u64>,
        head: &mut Option<[u8; HEAD_BYTES]>,
    ) -> Result<CompressedFrame> {
        let mut read = |object: &str| {
            let known = match *head {
                Some(head) => head,
                None => read_head(&self.far.read_range(object, 0, HEAD_BYTES)?)?.0,
            };
            let length = (place.end - place.start) as usize;
            let sealed = self.far.read_range(object, place.start, length)?;
            let frame = open_frame(self.keys, &known, place.start, sealed)?;
            *head = Some(known);
            Ok(frame)
        };
        let object = object_name(pack.name);
        match pack.has_copy {
            true => read_either(&object, self.damages, read),
            false => read(&object),
        }
    }
}

impl Vault {
    /// Returns the packs that have a copy.
    pub(super) fn copied_packs(&self) -> Result<BTreeSet<Id>> {
        let listed = self.far.list(COPIES)?;
        let packs = listed.iter().filter_map(|it| Id::from_hex(&it.name));
        Ok(packs.collect())
    }

    /// Returns the epochs whose records have a copy, in rising order.
    pub(super) fn copied_records(&self) -> Result<Vec<u64>> {
        let listed = self.far.list(COPIES)?;
        let names = listed
            .iter()
            .filter_map(|it| it.name.strip_prefix(SNAPSHOT));
        Ok(names.filter_map(epoch_of).collect())
    }

    /// Puts a missing object again as its copy is; says whether the copy is whole.
    pub(super) fn put_back(&self, object: &str) -> Result<bool> {
        let Some(bytes) = self.whole_bytes(object, &copy_name(object))? else {
            return Ok(false);
        };
        self.far.put(object, &bytes)?;
        Ok(true)
    }

    /// Returns the bytes of an object that lie under its own name or its copy's; nothing if they are damaged.
    fn whole_bytes(&self, object: &str, name: &str) -> Result<Option<Vec<u8>>> {
        let read = self.far.read(name, 2 * PACK_BYTES_LIMIT as u64);
        Ok(unless_damaged(read)?.filter(|bytes| self.is_right(object, bytes)))
    }

    /// Gives an object the copy that it lacks; says whether it lacked one.
    pub(super) fn copy_object(&self, object: &str) -> Result<bool> {
        let copy = copy_name(object);
        if self.far.size_bytes(&copy)?.is_some() {
            return Ok(false);
        }
        let bytes = self.far.read(object, 2 * PACK_BYTES_LIMIT as u64)?;
        self.far.put(&copy, &bytes)?;
        Ok(true)
    }

    /// Gives a pack that was put before the copy that its kind has; says whether its kind has one.
    pub(super) fn copy_pack(&self, name: Id, kind: PackKind) -> Result<bool> {
        let has_copy = kind.object_count() > 1;
        if has_copy {
            self.copy_object(&object_name(name))?;
        }
        Ok(has_copy)
    }

    /// Says whether these are the bytes of an object that has a copy.
    fn is_right(&self, object: &str, bytes: &[u8]) -> bool {
        match object.split_once('/') {
            Some(("keys", _)) => self.keys.master.check_record(bytes).is_ok(),
            Some(("snapshots", _)) => self.keys.open(RECORD, object, bytes).is_ok(),
            Some(("packs", listed)) => {
                let is_twice = read_head(bytes).is_ok_and(|(_, kind)| kind.object_count() > 1);
                is_twice && name_from(listed) == Some(name_of(bytes))
            }
            _ => bytes == self.config,
        }
    }

    /// Puts damaged objects again as their copies are, and damaged copies; returns how many. The record of an epoch is
    /// put again only where a newer state lists it. Otherwise an older one would be the vault's state for a moment.
    pub(super) fn mend(&self, damages: &[Damage]) -> Result<u64> {
        let mut mended = 0;
        for damage in damages {
            let (folder, name) = damage.name.split_once('/').unwrap_or(("", &damage.name));
            let original = match folder {
                COPIES => original_name(name),
                "keys" | "snapshots" | "packs" => Some(damage.name.clone()),
                _ => (damage.name == CONFIG).then(|| CONFIG.to_string()),
            };
            let Some(original) = original else { continue };
            let is_listed = |epoch| self.state.snapshots.contains(&epoch) && epoch != self.epoch;
            if folder == "snapshots" && !epoch_of(name).is_some_and(is_listed) {
                continue;
            }
            let copy = copy_name(&original);
            let (damaged, whole) = match folder {
                COPIES => (&copy, &original),
                _ => (&original, &copy),
            };
            let Some(bytes) = self.whole_bytes(&original, whole)? else {
                continue;
            };
            let (folder, name) = damaged.rsplit_once('/').unwrap_or(("", damaged));
            self.far.delete(folder, &[name.to_string()])?;
            self.far.put(damaged, &bytes)?;
            mended += 1;
        }
        Ok(mended)
    }

    /// Returns whole objects that lie once, though they have a copy in a vault of today.
    pub(super) fn lying_once(&self) -> Result<Vec<String>> {
        let listed = self.far.list(COPIES)?;
        let copies: BTreeSet<String> = listed.into_iter().map(|it| it.name).collect();
        let mut objects = vec![CONFIG.to_string()];
        for key in self.far.list("keys")? {
            objects.push(format!("keys/{}", key.name));
        }
        let newest = (self.epoch > 0).then_some(self.epoch);
        let records: BTreeSet<u64> = self.state.snapshots.iter().copied().chain(newest).collect();
        objects.extend(records.into_iter().map(|epoch| object("snapshots", epoch)));
        self.each_pack(|pack, _| {
            if pack.kind.object_count() > 1 {
                objects.push(object_name(pack.name));
            }
            Ok(())
        })?;
        let lacks = |object: &String| {
            let copy = copy_name(object);
            !copies.contains(&copy[COPIES.len() + 1..])
        };
        let mut lying = Vec::new();
        for object in objects.into_iter().filter(lacks) {
            match self.far.read(&object, 2 * PACK_BYTES_LIMIT as u64) {
                Ok(bytes) if self.is_right(&object, &bytes) => lying.push(object),
                Err(error) if !is_damage(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(lying)
    }

    /// Says whether these are the bytes of an object in the folder of copies, other than of a pack.
    pub(super) fn is_right_copy(&self, copy: &str, bytes: &[u8]) -> bool {
        original_name(copy).is_none_or(|original| self.is_right(&original, bytes))
    }

    /// Deletes the copies of packs that are in no index, and not doomed.
    pub(super) fn delete_stray_copies(&self) -> Result<()> {
        let mut stray = self.copied_packs()?;
        for doomed in &self.state.doomed {
            stray.remove(&doomed.pack);
        }
        self.each_pack(|pack, _| {
            stray.remove(&pack.name);
            Ok(())
        })?;
        let names: Vec<String> = stray.iter().map(Id::hex).collect();
        self.far.delete(COPIES, &names)
    }
}
