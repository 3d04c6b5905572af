//! Earlier runs' measurements of this machine's codecs: one file in the user's cache folder, which all commands share.

use breakeven::decide::learned::{self, Fingerprint};
use breakeven::decide::{Profile, ProfileOptions};
use breakeven::meter::Machine;
use breakeven::quoted::quoted;

use crate::{environment, standard};

/// Returns the learned profile of the machine's codecs from earlier runs.
pub fn load(machine: &Machine) -> Profile {
    let Some(folder) = environment::cache_folder() else {
        return Profile::default();
    };
    let learned = learned::load(&folder, &fingerprint(machine), ProfileOptions::default());
    if let Some(ignored) = learned.ignored {
        let path = quoted(&ignored.path);
        standard::tell(&format!("ignored {path}: {}", ignored.reason));
    }
    learned.profile
}

/// Keeps it for the next run. The file is a convenience: no answer is withheld because of it, and a quiet run says
/// nothing about it.
pub fn keep(profile: &Profile, machine: &Machine, is_quiet: bool) {
    let Some(folder) = environment::cache_folder() else {
        return;
    };
    let saved = learned::save(profile, &folder, &fingerprint(machine));
    if let (Err(error), false) = (saved, is_quiet) {
        standard::tell(&format!("what was learned is not kept: {error}"));
    }
}

/// The conditions under which a speed learned by one run holds for another.
fn fingerprint(machine: &Machine) -> Fingerprint {
    Fingerprint {
        processor: machine.processor.to_string(),
        libraries: format!("breakeven {}", env!("CARGO_PKG_VERSION")),
    }
}
