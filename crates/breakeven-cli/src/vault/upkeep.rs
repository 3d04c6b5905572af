//! The upkeep of a vault: copy, repair, unlock.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use breakeven::quoted::quoted;
use breakeven::vault::{Vault, WriterOptions};
use serde_json::{Value, json};

use super::options::Prices;
use super::{Bar, PARTIAL, VaultOptions, now, pool, tell, writer_options};
use crate::standard;

pub fn copy(
    options: &VaultOptions,
    vault: &mut Vault,
    source: &Vault,
    snapshots: &[u64],
    writing: WriterOptions,
) -> Result<ExitCode> {
    let bar = Bar::new()?;
    let copied = vault.copy_from(source, snapshots, &pool()?, writing, &mut |progress| {
        bar.show(progress)
    })?;
    bar.0.finish_and_clear();
    let pairs: Value = (copied.snapshots.iter())
        .map(|(theirs, ours)| json!({ "from": theirs, "snapshot": ours }))
        .collect();
    let problems: Value = (copied.problems.iter())
        .map(|(epoch, reason)| json!({ "from": epoch, "reason": reason }))
        .collect();
    let facts = json!({
        "copied": pairs, "present": copied.present, "read_bytes": copied.read_bytes, "problems": problems,
    });
    let text = format!(
        "copied {} snapshots, {} were there; read {} bytes of files",
        copied.snapshots.len(),
        copied.present.len(),
        copied.read_bytes
    );
    tell(options, &facts, &text);
    for (epoch, reason) in &copied.problems {
        standard::complain(format_args!("snapshot {epoch} is not copied: {reason}"));
    }
    Ok(match copied.problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(PARTIAL),
    })
}

pub fn repair(options: &VaultOptions, vault: &mut Vault) -> Result<ExitCode> {
    let bar = Bar::new()?;
    let writing = writer_options(options, Prices::Default);
    let repaired = vault.repair(&pool()?, writing, now().seconds, &mut |progress| {
        bar.show(progress)
    })?;
    bar.0.finish_and_clear();
    let damages: Value = (repaired.damages.iter())
        .map(|it| json!({ "object": it.name, "reason": it.reason }))
        .collect();
    let lost = lost(&repaired.lost);
    let facts = json!({
        "damages": damages, "mended_objects": repaired.mended_objects, "copied_objects": repaired.copied_objects, "dropped_packs": repaired.dropped_packs, "saved_chunks": repaired.saved_chunks,
        "lost_chunks": repaired.lost_chunks, "lost_snapshots": repaired.lost_snapshots, "lost": lost,
        "found": repaired.found.map(|it| json!({ "snapshot": it.epoch, "folders": it.folders, "files": it.files, "chunks": it.chunks })),
    });
    let text = match repaired.damages.is_empty() {
        true => "nothing is damaged".to_string(),
        false => format!(
            "{} damages: put {} objects again as their copies are; dropped {} packs, saved {} chunks of them, lost {}; lost {} snapshots, and {} files and folders of others",
            repaired.damages.len(),
            repaired.mended_objects,
            repaired.dropped_packs,
            repaired.saved_chunks,
            repaired.lost_chunks,
            repaired.lost_snapshots.len(),
            repaired.lost.len()
        ),
    };
    let text = match repaired.copied_objects {
        0 => text,
        copied => format!("{text}; gave {copied} objects of before their copies"),
    };
    tell(options, &facts, &text);
    for damage in &repaired.left {
        standard::complain(format_args!("{}: {}", damage.name, damage.reason));
        if let Some(key) = damage.name.strip_prefix("keys/") {
            standard::complain(format_args!(
                "no password opens the vault by that key; `breakeven vault key --remove {key}` removes it"
            ));
        }
    }
    for epoch in &repaired.lost_snapshots {
        standard::complain(format_args!("snapshot {epoch} is lost"));
    }
    for (epoch, path) in &repaired.lost {
        standard::complain(format_args!(
            "snapshot {epoch} has lost parts of {}",
            quoted(&path)
        ));
    }
    if let Some(found) = &repaired.found {
        standard::complain(format_args!(
            "snapshot {} has what no folder leads to any more: {} folders, {} whole files, {} small files or parts of others; `breakeven vault restore {}` brings it back",
            found.epoch, found.folders, found.files, found.chunks, found.epoch
        ));
    }
    Ok(ExitCode::from(u8::from(!repaired.is_whole())))
}

/// Returns the entries that lost something, by their snapshots.
pub fn lost(entries: &[(u64, PathBuf)]) -> Value {
    let entries = entries.iter();
    entries
        .map(|(epoch, path)| json!({ "snapshot": epoch, "path": path.to_string_lossy() }))
        .collect()
}

/// Names the damage that a command got around: its output is right, but something needs a repair.
pub fn tell_damages(vault: &Vault, code: ExitCode) -> ExitCode {
    let damages = vault.damages();
    for damage in &damages {
        standard::complain(format_args!("{}: {}", damage.name, damage.reason));
    }
    if damages.is_empty() {
        return code;
    }
    standard::complain(
        "the vault is damaged; `breakeven vault repair` says what is lost, and mends the rest",
    );
    match code == ExitCode::SUCCESS {
        true => ExitCode::from(PARTIAL),
        false => code,
    }
}

pub fn unlock(options: &VaultOptions, vault: &mut Vault) -> Result<ExitCode> {
    let open = vault.unlock()?;
    let text = match open {
        0 => "the turn is free; a command that still runs keeps its own lock".to_string(),
        _ => "the turn is free; the writer that had it cannot commit any more".to_string(),
    };
    tell(options, &json!({ "fenced": open }), &text);
    Ok(ExitCode::SUCCESS)
}
