//! Opening a vault: from a password to the master key, by any whole ones of `config`, keys and their copies.

use std::collections::BTreeSet;

use crate::error::{Error, Result};

use super::cipher::MasterKey;
use super::copies::{COPIES, copy_name};
use super::damage_log::DamageLog;
use super::far_end::FarEnd;
use super::repair::is_damage;
use super::{CONFIG, CONFIG_BYTES_MAX};

/// Returns `config` and the master key. The copies are read only when their original does not open.
pub(super) fn open(
    far: &dyn FarEnd,
    password: &[u8],
    damages: &DamageLog,
) -> Result<(Vec<u8>, MasterKey)> {
    let mut opening = Opening {
        far,
        password,
        tried: BTreeSet::new(),
        damage: None,
    };
    let configs = [CONFIG.to_string(), copy_name(CONFIG)];
    // Nothing is listed before a config is found: a missing bucket answers a read with "not found", and a list with an
    // error.
    for config in &configs {
        let Some(bytes) = opening.read(config)? else {
            continue;
        };
        for folder in ["keys", COPIES] {
            for key in opening.keys_in(folder)? {
                if let Some(master) = opening.unwrap(&bytes, &key)? {
                    opening.note(config, &key, damages);
                    return Ok((bytes, master));
                }
            }
        }
    }
    if opening.tried.is_empty() && configs_are_gone(far, &configs)? {
        let reason = "there is none: its config is not there";
        return Err(Error::invalid("vault", reason));
    }
    let refused = "the password opens none of its keys, or config or key are damaged";
    Err((opening.damage).unwrap_or_else(|| Error::invalid("vault", refused)))
}

fn configs_are_gone(far: &dyn FarEnd, configs: &[String]) -> Result<bool> {
    for config in configs {
        if far.size_bytes(config)?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

struct Opening<'o> {
    far: &'o dyn FarEnd,
    password: &'o [u8],
    /// Pairs of `config` and key record: an equal copy opens no more, and each try takes its time.
    tried: BTreeSet<[Vec<u8>; 2]>,
    damage: Option<Error>,
}

impl Opening<'_> {
    /// Returns the objects of keys in a folder.
    fn keys_in(&self, folder: &str) -> Result<Vec<String>> {
        let listed = self.far.list(folder)?;
        let names = listed.iter().map(|it| &it.name);
        let keys = names.filter(|name| folder != COPIES || name.starts_with("key-"));
        Ok(keys.map(|name| format!("{folder}/{name}")).collect())
    }

    /// Reads an object; nothing if it is damaged.
    fn read(&mut self, object: &str) -> Result<Option<Vec<u8>>> {
        match self.far.read(object, CONFIG_BYTES_MAX) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if is_damage(&error) => {
                self.damage.get_or_insert(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn unwrap(&mut self, config: &[u8], key: &str) -> Result<Option<MasterKey>> {
        let Some(record) = self.read(key)? else {
            return Ok(None);
        };
        if !self.tried.insert([config.to_vec(), record.clone()]) {
            return Ok(None);
        }
        match MasterKey::unwrap(config, &record, self.password) {
            Ok(master) => Ok(master),
            Err(error) => {
                self.damage = Some(error);
                Ok(None)
            }
        }
    }

    /// Notes the objects whose copies were used.
    fn note(&self, config: &str, key: &str, damages: &DamageLog) {
        let reason = "its copy opened the vault, and it did not";
        if config != CONFIG {
            damages.note(CONFIG, &Error::invalid("config", reason));
        }
        if let Some(name) = key.strip_prefix("copies/key-") {
            damages.note(&format!("keys/{name}"), &Error::invalid("key", reason));
        }
    }
}
