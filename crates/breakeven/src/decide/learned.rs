//! The learned profile file: the learned times of one processor and library version, kept between runs.
//!
//! One JSON file in a folder that the caller names, shared by all places and processes:
//!
//! ```text
//! {"schema":1,"crc32c":"89abcdef","profile":{"processor":..,"libraries":..,"cells":[..]}}
//! ```
//!
//! It is a cache and not a store. It is written beside itself and renamed, so it is old or new and never half. A file
//! that is corrupt, foreign, of a later version or too big is ignored with a reason, and the next [`save`] replaces it.
//!
//! Times are kept, and ratios are not: ratios belong to the data and not to the machine. This was measured by leaving
//! out one of 43 files at a time. Times learned on the others lower the error of ln encode from 0.55 to 0.42 (root mean
//! square). Ratios learned there raise that of ln stored from the shipped prior's 0.28 to 0.39. A place's own classes
//! are not kept here either, because they mean nothing to others. The place keeps them itself, ratios included
//! ([`place_bytes`]), since its data stay its data.
//!
//! It does not name the processor or find the folder: doors do.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::codec::Method;
use crate::decide::class::Class;
use crate::decide::prior::{DECODE, ENCODE, STORED};
use crate::decide::profile::{Cell, CellKey, LENGTH_BITS_MAX, LENGTH_BITS_MIN};
use crate::decide::profile::{Profile, ProfileOptions};
use crate::decide::tracker::{FADED_WEIGHT, Tracker};
use crate::error::{Error, Result};
use crate::storage::beside::{self, SmallFileOptions};

/// The conditions for using a measurement again: the same machine and the same codecs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The processor's model, by the system's name for it.
    pub processor: String,
    /// This library's version and those of its codecs.
    pub libraries: String,
}

impl Fingerprint {
    /// Returns the name of the file for this fingerprint, so that machines which share a home
    /// folder do not share a profile.
    pub fn file_name(&self) -> String {
        let text = format!("{}\n{}", self.processor, self.libraries);
        format!(
            "profile-{:016x}.json",
            xxhash_rust::xxh64::xxh64(text.as_bytes(), 0)
        )
    }
}

/// The result of [`load`].
#[derive(Clone, Debug)]
pub struct Learned {
    /// The profile that earlier runs filled, or a fresh one.
    pub profile: Profile,
    /// Whether there was a usable file.
    pub found: bool,
    /// A file that could not be used.
    pub ignored: Option<Ignored>,
}

/// A file that cannot be used; the next [`save`] replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// The file.
    pub path: PathBuf,
    /// Why, for people.
    pub reason: String,
}

const SCHEMA: u32 = 1;
/// The largest file that is read; one of [`CELLS_SAVED_MAX`] cells is half of it.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The most cells written: those of the greatest weight.
const CELLS_SAVED_MAX: usize = 2048;
/// The most observations that earlier runs count for in a cell, because their data was different. With a half, 92 to 94
/// of 100 intervals hold times of the file left out; with two, 82 to 87.
const WEIGHT_LOADED_MAX: f64 = 0.5;

/// Reads the profile of earlier runs; never fails, since a profile can start without a file.
///
/// # Example
/// ```
/// use breakeven::decide::learned::{self, Fingerprint};
/// use breakeven::decide::{Profile, ProfileOptions};
///
/// let folder = tempfile::tempdir().unwrap();
/// let fingerprint = Fingerprint {
///     processor: "EPYC 9554".to_string(),
///     libraries: "breakeven 0.1.0, zstd 1.5.7, lz4 1.10.0".to_string(),
/// };
/// learned::save(&Profile::default(), folder.path(), &fingerprint)?;
/// let learned = learned::load(folder.path(), &fingerprint, ProfileOptions::default());
/// assert!(learned.found);
/// # Ok::<(), breakeven::Error>(())
/// ```
pub fn load(folder: &Path, fingerprint: &Fingerprint, options: ProfileOptions) -> Learned {
    let path = folder.join(fingerprint.file_name());
    let cells = read_bounded(&path).and_then(|bytes| match bytes {
        Some(bytes) => parse(&bytes, fingerprint).map(Some),
        None => Ok(None),
    });
    match cells {
        Ok(cells) => Learned {
            found: cells.is_some(),
            profile: Profile::from_cells(options, cells.unwrap_or_default()),
            ignored: None,
        },
        Err(reason) => Learned {
            found: false,
            profile: Profile::new(options),
            ignored: Some(Ignored { path, reason }),
        },
    }
}

/// Writes the profile, together with the observations that other runs wrote since. A file that cannot be used is
/// replaced. Makes the folder if it is missing.
///
/// If two processes save at once, one file of the two is left, whole.
///
/// # Errors
/// [`Error::Io`] when the folder or the file cannot be written; nothing is left behind.
pub fn save(profile: &Profile, folder: &Path, fingerprint: &Fingerprint) -> Result<()> {
    let path = folder.join(fingerprint.file_name());
    fs::create_dir_all(folder).map_err(|error| Error::io("create folder", folder, error))?;
    let mut all = load(folder, fingerprint, profile.options()).profile;
    all.merge(profile);
    let text = render(&all, fingerprint);
    // It is a cache: damage from a power cut is detected, and the file replaced.
    let options = SmallFileOptions {
        is_synced: false,
        waits_for_reader: false,
        ..SmallFileOptions::default()
    };
    beside::write(&path, text.as_bytes(), options)
}

/// The most cells that a place keeps: those of the greatest weight. Some 350 bytes each.
const PLACE_CELLS_MAX: usize = 256;

/// Returns the observations of a place's own classes, for the place to keep with its data: at most 128 KiB.
pub fn place_bytes(profile: &Profile, fingerprint: &Fingerprint) -> Vec<u8> {
    render_cells(profile, fingerprint, &Scope::Place).into_bytes()
}

/// Adds to a profile an earlier run's observations of the place's own classes ([`place_bytes`]). They are each method's
/// ratio on them, and its times if the machine is the same. Each counts as two observations.
///
/// # Errors
/// [`Error::Parse`] for bytes that are truncated, changed, of a later version, or not of a place: nothing is added.
///
/// # Example
/// ```
/// use breakeven::decide::learned::{self, Fingerprint};
/// use breakeven::decide::{Class, Observation, Profile};
///
/// let fingerprint = Fingerprint {
///     processor: "EPYC 9554".to_string(),
///     libraries: "breakeven 0.1.0, zstd 1.5.7, lz4 1.10.0".to_string(),
/// };
/// let (class, method) = (Class::place(7), "zstd:3+dict".parse()?);
/// let mut profile = Profile::default();
/// profile.observe(&Observation { class, method, raw_bytes: 4096, stored_bytes: 512, encode: None, decode: None });
/// let kept = learned::place_bytes(&profile, &fingerprint);
/// let mut next = Profile::default();
/// learned::add_place(&mut next, &kept, &fingerprint)?;
/// let stored = next.estimate(class, method, 4096).stored_per_raw.value.mean;
/// assert!(stored < 0.2, "{stored}");
/// # Ok::<(), breakeven::Error>(())
/// ```
pub fn add_place(profile: &mut Profile, bytes: &[u8], fingerprint: &Fingerprint) -> Result<()> {
    let cells = parse_cells(bytes, fingerprint, &Scope::Place);
    let cells = cells.map_err(|reason| Error::parse("profile of a place", "", reason))?;
    profile.merge(&Profile::from_cells(profile.options(), cells));
    Ok(())
}

fn read_bounded(path: &Path) -> std::result::Result<Option<Vec<u8>>, String> {
    let status = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        status => status.map_err(|error| error.to_string())?,
    };
    // A FIFO would block for ever.
    if !status.is_file() {
        return Err("it is no regular file".to_string());
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(format!("it is longer than {FILE_BYTES_MAX} bytes")),
        false => Ok(Some(bytes)),
    }
}

/// Weight, mean and variance of the logarithm, mean of the value.
type Moments = [f64; 4];

#[derive(Serialize, Deserialize)]
struct Body {
    #[serde(flatten)]
    fingerprint: Fingerprint,
    cells: Vec<SavedCell>,
}

#[derive(Serialize, Deserialize)]
struct SavedCell {
    class: u16,
    /// For people; the number counts.
    name: String,
    method: Method,
    /// Blocks of at most two to this power bytes.
    length_bits: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    encode: Option<Moments>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decode: Option<Moments>,
    /// Only for a place's own classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stored: Option<Moments>,
}

/// The owner of a profile's classes.
enum Scope {
    /// Content classes, which mean the same everywhere: times alone.
    Content,
    /// A place's own.
    Place,
}

impl Scope {
    fn factors(&self) -> &[usize] {
        match self {
            Scope::Content => &[ENCODE, DECODE],
            Scope::Place => &[ENCODE, DECODE, STORED],
        }
    }

    fn cells_max(&self) -> usize {
        match self {
            Scope::Content => CELLS_SAVED_MAX,
            Scope::Place => PLACE_CELLS_MAX,
        }
    }

    fn class(&self, number: u16) -> Option<Class> {
        match self {
            Scope::Content => Class::from_content_number(number),
            Scope::Place => Class::try_from(number).ok().filter(|it| it.is_place()),
        }
    }
}

fn render(profile: &Profile, fingerprint: &Fingerprint) -> String {
    render_cells(profile, fingerprint, &Scope::Content)
}

fn render_cells(profile: &Profile, fingerprint: &Fingerprint, scope: &Scope) -> String {
    let mut cells: Vec<(&CellKey, &Cell)> = profile.cells().iter().collect();
    let tells = |cell: &Cell| {
        let mut factors = scope.factors().iter();
        factors.any(|&it| cell.trackers[it].weight > 0.0)
    };
    cells.retain(|(key, cell)| scope.class(key.0.number()).is_some() && tells(cell));
    cells.sort_by(|a, b| b.1.weight().total_cmp(&a.1.weight()).then(a.0.cmp(b.0)));
    cells.truncate(scope.cells_max());
    cells.sort_by_key(|(key, _)| **key);
    let moments = |tracker: &Tracker| {
        let moments = [
            tracker.weight,
            tracker.mean_ln,
            tracker.variance_ln,
            tracker.mean,
        ];
        (tracker.weight > 0.0).then_some(moments)
    };
    let saved = |(key, cell): (&CellKey, &Cell)| SavedCell {
        class: key.0.number(),
        name: key.0.to_string(),
        method: key.1,
        length_bits: key.2,
        encode: moments(&cell.trackers[ENCODE]),
        decode: moments(&cell.trackers[DECODE]),
        stored: match scope {
            Scope::Content => None,
            Scope::Place => moments(&cell.trackers[STORED]),
        },
    };
    let body = Body {
        fingerprint: fingerprint.clone(),
        cells: cells.into_iter().map(saved).collect(),
    };
    let body = serde_json::to_string(&body).expect("numbers and texts are always JSON");
    let checksum = crc32c::crc32c(body.as_bytes());
    format!("{{\"schema\":{SCHEMA},\"crc32c\":\"{checksum:08x}\",\"profile\":{body}}}\n")
}

/// Reads a file's bytes into cells, or returns the fault in them.
fn parse(
    bytes: &[u8],
    fingerprint: &Fingerprint,
) -> std::result::Result<BTreeMap<CellKey, Cell>, String> {
    parse_cells(bytes, fingerprint, &Scope::Content)
}

fn parse_cells(
    bytes: &[u8],
    fingerprint: &Fingerprint,
    scope: &Scope,
) -> std::result::Result<BTreeMap<CellKey, Cell>, String> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is longer than {FILE_BYTES_MAX} bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no text".to_string())?;
    let (schema, rest) = text
        .strip_prefix("{\"schema\":")
        .and_then(|rest| rest.split_once(','))
        .ok_or("it is no profile")?;
    match schema.parse::<u32>() {
        Ok(SCHEMA) => {}
        Ok(schema) if schema > SCHEMA => {
            return Err(format!("it is of schema {schema}, later than {SCHEMA}"));
        }
        _ => return Err(format!("it is of no known schema, expected {SCHEMA}")),
    }
    let (checksum, body) = rest
        .strip_prefix("\"crc32c\":\"")
        .and_then(|rest| rest.strip_suffix("}\n"))
        .and_then(|rest| rest.split_once("\",\"profile\":"))
        .ok_or("it is cut or changed")?;
    let found = format!("{:08x}", crc32c::crc32c(body.as_bytes()));
    if checksum != found {
        return Err(format!("its checksum is {found}, expected {checksum}"));
    }
    let body: Body = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let is_same_machine = body.fingerprint == *fingerprint;
    if !is_same_machine && matches!(scope, Scope::Content) {
        let Fingerprint {
            processor,
            libraries,
        } = body.fingerprint;
        return Err(format!("it was made by '{processor}' with '{libraries}'"));
    }
    let (count, most) = (body.cells.len(), scope.cells_max());
    if count > most {
        return Err(format!("it has {count} cells, at most {most}"));
    }
    let cell = |saved: &SavedCell| parse_cell(saved, scope, is_same_machine);
    body.cells.iter().map(cell).collect()
}

fn parse_cell(
    saved: &SavedCell,
    scope: &Scope,
    is_same_machine: bool,
) -> std::result::Result<(CellKey, Cell), String> {
    let class = scope
        .class(saved.class)
        .ok_or_else(|| format!("no class has number {}", saved.class))?;
    let bits = saved.length_bits;
    if !(LENGTH_BITS_MIN..=LENGTH_BITS_MAX).contains(&bits) {
        return Err(format!("no block has 2^{bits} bytes"));
    }
    let key = (class, saved.method, bits);
    let mut cell = Cell::new(&key);
    let moments = [saved.encode, saved.decode, saved.stored];
    let weight_max = match scope {
        Scope::Content => WEIGHT_LOADED_MAX,
        Scope::Place => FADED_WEIGHT,
    };
    for &factor in scope.factors() {
        let moments = moments[factor];
        let Some([weight, mean_ln, variance_ln, mean]) = moments else {
            continue;
        };
        let is_sound = weight > 0.0
            && mean_ln.abs() < 50.0
            && (0.0..1000.0).contains(&variance_ln)
            && mean > 0.0
            && mean.ln().abs() < 50.0;
        if !is_sound {
            return Err(format!("{moments:?} are no moments"));
        }
        let is_sound_share = factor != STORED || mean <= 1.0;
        if !is_sound_share {
            return Err(format!("{moments:?} store more than all"));
        }
        // Another machine's time has no bearing on this one.
        if factor == STORED || is_same_machine {
            let weight = weight.min(weight_max);
            cell.trackers[factor] = Tracker::of_moments(weight, mean_ln, variance_ln, mean);
        }
    }
    Ok((key, cell))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::profile::Observation;
    use crate::decide::seeded;
    use crate::units::Seconds;
    use tempfile::TempDir;

    fn fingerprint() -> Fingerprint {
        Fingerprint {
            processor: "AMD \"EPYC\" 9554".to_string(),
            libraries: "breakeven 0.1.0, zstd 1.5.7".to_string(),
        }
    }

    fn folder() -> TempDir {
        tempfile::tempdir().unwrap()
    }

    fn observe(profile: &mut Profile, class: Class, name: &str, stored_bytes: u64) {
        for _ in 0..20 {
            profile.observe(&Observation {
                class,
                method: name.parse().unwrap(),
                raw_bytes: 65_536,
                stored_bytes,
                encode: Some(Seconds(1e-4)),
                decode: None,
            });
        }
    }

    fn taught() -> Profile {
        let mut profile = Profile::default();
        observe(&mut profile, Class::TEXT, "zstd:3", 20_000);
        observe(&mut profile, Class::BINARY, "shuffle4+lz4:1", 40_000);
        observe(&mut profile, Class::place(3), "lz4:1", 50_000);
        profile
    }

    fn load_from(folder: &TempDir) -> Learned {
        load(folder.path(), &fingerprint(), ProfileOptions::default())
    }

    fn found(folder: &TempDir) -> Profile {
        let learned = load_from(folder);
        assert!(learned.found, "{:?}", learned.ignored);
        learned.profile
    }

    fn file(folder: &TempDir) -> PathBuf {
        folder.path().join(fingerprint().file_name())
    }

    /// A file with this body and its right checksum.
    fn sealed(body: &str) -> String {
        let checksum = crc32c::crc32c(body.as_bytes());
        format!("{{\"schema\":1,\"crc32c\":\"{checksum:08x}\",\"profile\":{body}}}\n")
    }

    #[track_caller]
    fn check_ignored(bytes: &[u8], expected: &str) {
        let folder = folder();
        fs::write(file(&folder), bytes).unwrap();
        let learned = load_from(&folder);
        assert!(
            !learned.found,
            "accepted: {}",
            String::from_utf8_lossy(bytes)
        );
        let Ignored { path, reason } = learned.ignored.unwrap();
        assert_eq!(path, file(&folder));
        assert!(reason.contains(expected), "{reason}, expected {expected}");
        // The next observations replace an ignored file.
        save(&taught(), folder.path(), &fingerprint()).unwrap();
        assert_eq!(found(&folder).cells().len(), 2);
    }

    #[test]
    fn what_is_saved_is_found_again() {
        let folder = folder();
        let missing = load_from(&folder);
        assert!(!missing.found && missing.ignored.is_none());
        let profile = taught();
        save(&profile, folder.path(), &fingerprint()).unwrap();
        let found = found(&folder);
        for (class, name) in [(Class::TEXT, "zstd:3"), (Class::BINARY, "shuffle4+lz4:1")] {
            let at = |it: &Profile| it.estimate(class, name.parse().unwrap(), 65_536);
            let (before, after) = (at(&profile), at(&found));
            let moved = before.encode_seconds_per_byte.value.mean
                / after.encode_seconds_per_byte.value.mean;
            assert!((0.5..2.0).contains(&moved), "{moved}");
            assert_eq!(after.encode_seconds_per_byte.weight, WEIGHT_LOADED_MAX);
            assert_eq!(after.decode_seconds_per_byte.weight, 0.0);
            assert_eq!(after.stored_per_raw.weight, 0.0, "a ratio was kept");
        }
        let kept = found.cells().keys().all(|key| key.0.is_content());
        assert!(kept && found.cells().len() == 2, "a place's class was kept");
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn a_place_keeps_what_it_learned_of_its_own_classes() {
        let mut profile = taught();
        let (class, method): (Class, Method) = (Class::place(9), "zstd:3+dict".parse().unwrap());
        observe(&mut profile, class, "zstd:3+dict", 6_000);
        let bytes = place_bytes(&profile, &fingerprint());
        let elsewhere = Fingerprint {
            processor: "another".to_string(),
            ..fingerprint()
        };
        for (machine, weight) in [(fingerprint(), FADED_WEIGHT), (elsewhere, 0.0)] {
            let mut next = Profile::default();
            add_place(&mut next, &bytes, &machine).unwrap();
            let found = next.estimate(class, method, 65_536);
            let share = found.stored_per_raw.value.mean * 65_536.0 / 6_000.0;
            assert!((0.7..1.4).contains(&share), "{share}");
            assert_eq!(found.encode_seconds_per_byte.weight, weight);
            assert_eq!(found.stored_per_raw.weight, FADED_WEIGHT);
            let known = |key: &&CellKey| key.0.is_content();
            assert_eq!(next.cells().keys().filter(known).count(), 0);
        }
        let mut next = Profile::default();
        let mut random = seeded("changed profiles of a place");
        let mut refused = 0;
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << random.u32(..8);
            for bad in [&bytes[..at], &changed] {
                refused += u32::from(add_place(&mut next, bad, &fingerprint()).is_err());
            }
        }
        println!("{refused} of {} refused", 2 * bytes.len());
        assert!(refused as usize == 2 * bytes.len() && bytes.len() > 200);
        assert!(add_place(&mut next, &vec![b' '; 2 << 20], &fingerprint()).is_err());
        // The shared file does not serve a place, and a place's file does not serve all.
        let shared = render(&profile, &fingerprint()).into_bytes();
        assert!(add_place(&mut next, &shared, &fingerprint()).is_err());
        assert!(parse(&bytes, &fingerprint()).is_err());
        assert!(next.cells().is_empty());
        for number in 0..1000 {
            observe(&mut profile, Class::place(number), "zstd:3", 6_000);
        }
        let most = place_bytes(&profile, &fingerprint());
        assert!(most.len() < 128 << 10, "{}", most.len());
        add_place(&mut next, &most, &fingerprint()).unwrap();
        assert_eq!(next.cells().len(), PLACE_CELLS_MAX);
    }

    #[test]
    fn two_runs_learn_together() {
        let folder = folder();
        let (mut first, mut second) = (Profile::default(), Profile::default());
        observe(&mut first, Class::TEXT, "zstd:3", 20_000);
        observe(&mut second, Class::TEXT, "lz4:1", 40_000);
        save(&first, folder.path(), &fingerprint()).unwrap();
        save(&second, folder.path(), &fingerprint()).unwrap();
        assert_eq!(found(&folder).cells().len(), 2);
    }

    #[test]
    fn what_cannot_be_used_is_ignored_with_a_reason() {
        let good = render(&taught(), &fingerprint());
        let body = &good[good.find("{\"processor").unwrap()..good.len() - 2];
        assert_eq!(sealed(body), good);
        let changed = |from: &str, to: &str| {
            assert!(body.contains(from), "{body}");
            sealed(&body.replacen(from, to, 1))
        };
        check_ignored(b"", "no profile");
        check_ignored(b"\xFF\xFE", "no text");
        check_ignored(b"{\"schema\":2,\"anything\":0}", "schema 2, later than 1");
        check_ignored(b"{\"schema\":0,", "no known schema");
        check_ignored(b"{\"schema\":1,\"crc32c\":\"0\"}\n", "cut or changed");
        check_ignored(
            &vec![b' '; 1 + FILE_BYTES_MAX as usize],
            "longer than 1048576",
        );
        check_ignored(
            changed("9554", "9654").as_bytes(),
            "made by 'AMD \"EPYC\" 9654'",
        );
        check_ignored(changed("1.5.7", "1.5.6").as_bytes(), "zstd 1.5.6");
        check_ignored(changed("zstd:3", "zstd:99").as_bytes(), "99");
        check_ignored(
            changed("\"class\":12", "\"class\":300").as_bytes(),
            "number 300",
        );
        check_ignored(changed("_bits\":16", "_bits\":99").as_bytes(), "2^99");
        check_ignored(
            changed("\"encode\":[", "\"encode\":[-").as_bytes(),
            "no moments",
        );
        check_ignored(changed("\"encode\":[", "\"encode\":[1e999,").as_bytes(), "");
        check_ignored(sealed(&"[".repeat(200_000)).as_bytes(), "");
        check_ignored(sealed("{}").as_bytes(), "");
    }

    #[test]
    fn no_byte_can_be_lost_or_changed_unseen() {
        let good = render(&taught(), &fingerprint()).into_bytes();
        assert!(parse(&good, &fingerprint()).is_ok());
        let mut random = seeded("changed profiles");
        for length in 0..good.len() {
            assert!(
                parse(&good[..length], &fingerprint()).is_err(),
                "cut at {length}"
            );
            let mut changed = good.clone();
            changed[length] ^= 1 << random.u32(..8);
            assert!(
                parse(&changed, &fingerprint()).is_err(),
                "changed at {length}"
            );
        }
        println!("{} cuts and changes", 2 * good.len());
        assert!(good.len() > 400);
    }

    #[test]
    fn what_passes_the_checksum_is_still_checked() {
        let good = render(&taught(), &fingerprint());
        let body = &good[good.find("{\"processor").unwrap()..good.len() - 2];
        let mut random = seeded("profiles changed and sealed again");
        let (changes, mut accepted) = (20_000, 0);
        for _ in 0..changes {
            let mut bytes = body.as_bytes().to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random
                    .choice(b"0123456789eE+-.,:[]{}\"ns ")
                    .copied()
                    .unwrap();
            }
            let body = String::from_utf8(bytes).unwrap();
            let Ok(cells) = parse(sealed(&body).as_bytes(), &fingerprint()) else {
                continue;
            };
            accepted += 1;
            let profile = Profile::from_cells(ProfileOptions::default(), cells);
            for (class, name) in [(Class::TEXT, "zstd:3"), (Class::BINARY, "lz4:1")] {
                let estimate = profile.estimate(class, name.parse().unwrap(), 65_536);
                let time = estimate.encode_seconds_per_byte.value;
                assert!(time.low > 0.0 && time.high.is_finite(), "{body}");
            }
        }
        println!("{accepted} of {changes} accepted");
        assert!(accepted > 1000 && accepted < changes - 1000);
    }

    #[test]
    fn odd_things_in_the_place_of_the_file() {
        let folder = folder();
        fs::create_dir(file(&folder)).unwrap();
        let ignored = load_from(&folder).ignored.unwrap();
        assert_eq!(ignored.reason, "it is no regular file");
        assert!(save(&taught(), folder.path(), &fingerprint()).is_err());
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "left behind"
        );
        // A file in the place of the folder.
        let blocked = folder.path().join("file");
        fs::write(&blocked, b"").unwrap();
        assert!(save(&taught(), &blocked.join("below"), &fingerprint()).is_err());
    }

    #[test]
    fn a_full_profile_fits_the_file() {
        let mut profile = Profile::new(ProfileOptions::default());
        for class in Class::all_content() {
            for level in 1..=22 {
                for bits in LENGTH_BITS_MIN..=LENGTH_BITS_MAX {
                    profile.observe(&Observation {
                        class,
                        method: format!("zstd:{level}").parse().unwrap(),
                        raw_bytes: 1 << bits,
                        stored_bytes: 1 << (bits - 1),
                        encode: Some(Seconds(1.0 / 3.0)),
                        decode: Some(Seconds(1.0 / 7.0)),
                    });
                }
            }
        }
        assert_eq!(profile.cells().len(), Profile::CELLS_MAX);
        let text = render(&profile, &fingerprint());
        println!("{} bytes for {CELLS_SAVED_MAX} cells", text.len());
        assert!((text.len() as u64) < FILE_BYTES_MAX);
        let cells = parse(text.as_bytes(), &fingerprint()).unwrap();
        assert_eq!(cells.len(), CELLS_SAVED_MAX);
    }

    #[test]
    fn writers_at_once_leave_a_whole_file() {
        let folder = folder();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        save(&taught(), folder.path(), &fingerprint()).unwrap();
                        assert_eq!(found(&folder).cells().len(), 2);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
