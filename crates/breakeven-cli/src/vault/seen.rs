//! The newest record of each vault that this machine has seen: it shows that an older state was put back.
//!
//! A file for each vault in the state folder has a line for each place where the vault was opened: epoch, hash, place.
//! A line that cannot be read counts as missing, and without a state folder nothing is remembered.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use breakeven::quoted::quoted;
use breakeven::storage::beside::{self, OWNER_ALONE, SmallFileOptions};
use breakeven::vault::{Id, SeenRecord, Vault};

use super::{PARTIAL, VaultOptions, store_address};
use crate::{environment, standard};

/// The vault is in an older state than this machine has seen.
pub const OLDER: u8 = 4;
/// Places of one vault that are remembered, the last ones: a line of some hundred bytes for each.
const PLACES_MAX: usize = 100;

/// The refusal to change such a vault.
#[derive(Debug)]
pub struct Older(String);

impl fmt::Display for Older {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Older {}

/// One line of the file.
struct Line {
    record: SeenRecord,
    place: String,
}

/// This machine's memory of one vault.
struct Seen {
    file: PathBuf,
    place: String,
    lines: Vec<Line>,
}

impl Seen {
    fn of(options: &VaultOptions, repo: &Path, vault: &Vault) -> Option<Seen> {
        let file = (environment::state_folder()?.join("vaults")).join(vault.id().hex());
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let place = match store_address(repo) {
            Some(address) => {
                let endpoint = options.endpoint.as_ref().map_or("", |it| &it.0);
                format!("{endpoint} {address}")
            }
            None => {
                let path = std::fs::canonicalize(repo).ok()?;
                path.to_string_lossy().into_owned()
            }
        };
        Some(Seen {
            file,
            place: place.escape_default().to_string(),
            lines: text.lines().filter_map(line).collect(),
        })
    }

    /// Returns the record last seen at this place.
    fn here(&self) -> Option<&SeenRecord> {
        let mut lines = self.lines.iter();
        lines.find(|it| it.place == self.place).map(|it| &it.record)
    }

    /// Returns why the vault is older than it was, if it is.
    fn refusal(&self, vault: &Vault) -> Result<Option<String>> {
        let Some(seen) = self.here() else {
            return Ok(None);
        };
        Ok(vault.is_older_than(seen)?.then(|| {
            let now = vault.newest_record().map_or(0, |it| it.epoch);
            format!(
                "{}: this machine has seen change {} of this vault, and its newest is {now} now, or another one of that number: an older state was put back, or its newest records were deleted; \
                 --accept-older takes it as it is",
                self.place, seen.epoch
            )
        }))
    }

    /// Prints it if the vault is newer elsewhere and was never opened here.
    fn tell_newer_elsewhere(&self, vault: &Vault) -> Result<()> {
        let newest = self.lines.iter().max_by_key(|it| it.record.epoch);
        let Some(newest) = newest.filter(|_| self.here().is_none()) else {
            return Ok(());
        };
        if vault.is_older_than(&newest.record)? {
            standard::complain(format_args!(
                "{}: this is an older state of the vault than the one at {}, of change {}",
                self.place, newest.place, newest.record.epoch
            ));
        }
        Ok(())
    }

    /// Writes down the record seen.
    fn remember(mut self, record: SeenRecord) -> Result<()> {
        if self.here() == Some(&record) {
            return Ok(());
        }
        self.lines.retain(|it| it.place != self.place);
        let place = std::mem::take(&mut self.place);
        self.lines.push(Line { record, place });
        let from = self.lines.len().saturating_sub(PLACES_MAX);
        let lines = self.lines[from..].iter().map(|it| {
            let SeenRecord { epoch, digest } = it.record;
            format!("{epoch} {} {}\n", digest.hex(), it.place)
        });
        let folder = self.file.parent().expect("a file in a folder");
        std::fs::create_dir_all(folder)?;
        let written = SmallFileOptions {
            mode: OWNER_ALONE,
            ..SmallFileOptions::default()
        };
        Ok(beside::write(
            &self.file,
            lines.collect::<String>().as_bytes(),
            written,
        )?)
    }
}

fn line(text: &str) -> Option<Line> {
    let mut words = text.splitn(3, ' ');
    let record = SeenRecord {
        epoch: words.next()?.parse().ok()?,
        digest: Id::from_hex(words.next()?)?,
    };
    let place = words.next()?.to_string();
    Some(Line { record, place })
}

/// Refuses to change or copy from a vault that is older than it was.
pub fn check(options: &VaultOptions, repo: &Path, vault: &Vault) -> Result<()> {
    let Some(seen) = Seen::of(options, repo, vault).filter(|_| !options.accept_older) else {
        return Ok(());
    };
    seen.tell_newer_elsewhere(vault)?;
    match seen.refusal(vault)? {
        Some(reason) => Err(Older(reason).into()),
        None => Ok(()),
    }
}

/// Remembers the newest record. Prints it if a vault that was read is older than it was.
pub fn end(options: &VaultOptions, repo: &Path, vault: &Vault, code: ExitCode) -> Result<ExitCode> {
    let Some(seen) = Seen::of(options, repo, vault) else {
        return Ok(code);
    };
    if !options.accept_older {
        seen.tell_newer_elsewhere(vault)?;
        if let Some(reason) = seen.refusal(vault)? {
            standard::complain(reason);
            let is_done = code == ExitCode::SUCCESS || code == ExitCode::from(PARTIAL);
            return Ok(if is_done { ExitCode::from(OLDER) } else { code });
        }
    }
    // Where the newest record cannot be read, a readable older one is no news.
    let record = vault.newest_record();
    let is_news = |it: &SeenRecord| seen.here().is_none_or(|seen| it.epoch >= seen.epoch);
    if let Some(record) = record.filter(|it| options.accept_older || is_news(it)) {
        let file = seen.file.clone();
        if let Err(error) = seen.remember(record) {
            standard::complain(format_args!(
                "{}: the newest change of the vault cannot be remembered, by which an older state would be told: {error}",
                quoted(&file)
            ));
        }
    }
    Ok(code)
}
