//! The data of the thesis, as far as it is at hand.
//!
//! He took the twelve files of the Silesia corpus and three B-trees of the Mouse Genome Database (Table 2). These have
//! integers 11 times each, timestamps and texts nearly unique, and are 31.2 % of the bytes. Of Silesia four files are
//! at hand. B-trees of another PostgreSQL database stand in for his: integers 88 times each and unique texts of 32
//! bytes, a third of the bytes. PostgreSQL 13 and later store equal keys once: the same integers deduplicated are shown
//! beside, not among them.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::data::{self, Kind, SEED};
use crate::laboratory::Laboratory;
use crate::record::CellRecord;

/// Files in the place of the thesis's, with the set each belongs to.
const FILES: &[(&str, Set)] = &[
    ("silesia/dickens", Set::Silesia),
    ("silesia/nci", Set::Silesia),
    ("silesia/reymont", Set::Silesia),
    ("silesia/xml", Set::Silesia),
    ("postgres/pg_btree_int8_flight.idx", Set::Trees),
    ("postgres/pg_btree_text_leg.idx", Set::Trees),
    ("postgres/pg_btree_int8_flight_dedup.idx", Set::Deduplicated),
];
const GENERATED: [Kind; 3] = [Kind::Text, Kind::Rows, Kind::Numbers];

/// Why generated data are no evidence about the thesis's.
pub const GENERATED_DATA: &str = "generated data";
/// The name of the data in a cell's parameters.
const LABEL_REAL: &str = "silesia-part+btrees";
const LABEL_GENERATED: &str = "generated";

/// The set that a file stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Part of the Silesia corpus.
    Silesia,
    /// B-trees in the place of the thesis's.
    Trees,
    /// A B-tree as PostgreSQL stores it since version 13.
    Deduplicated,
    /// No real data.
    Generated,
}

impl Set {
    /// Whether its files are counted together as the thesis's data.
    pub fn is_counted(self) -> bool {
        self != Set::Deduplicated
    }

    pub fn name(self) -> &'static str {
        match self {
            Set::Silesia => "Silesia (4 of 12 files)",
            Set::Trees => "B-trees",
            Set::Deduplicated => "B-tree, deduplicated",
            Set::Generated => "generated",
        }
    }

    /// Returns the set that a recorded name of data belongs to.
    pub fn of(name: &str) -> Set {
        let known = FILES.iter().find(|(file, _)| *file == name);
        known.map_or(Set::Generated, |(_, set)| *set)
    }
}

/// One file.
#[derive(Clone, Debug)]
pub struct Source {
    pub name: String,
    pub bytes: u64,
    file: Option<data::SharedFile>,
}

impl Source {
    /// Returns `bytes` of a generated kind.
    pub fn generated(kind: Kind, bytes: u64) -> Source {
        Source {
            name: kind.to_string(),
            bytes,
            file: None,
        }
    }

    pub fn load(&self, folder: Option<&Path>) -> Result<Vec<u8>> {
        match (&self.file, folder) {
            (Some(file), Some(folder)) => file.load(folder),
            _ => {
                let kind = GENERATED.iter().find(|kind| kind.to_string() == self.name);
                let kind = kind.expect("a source without a file is generated");
                Ok(kind.generate(self.bytes as usize, SEED))
            }
        }
    }
}

/// Returns the files, or `generated_bytes` of each generated kind where there is no folder of data;
/// a quick run takes generated ones.
///
/// # Errors
///
/// If the folder lacks one of the files.
pub fn sources(laboratory: &Laboratory, generated_bytes: u64) -> Result<Vec<Source>> {
    let folder = laboratory.data.as_deref().filter(|_| !laboratory.quick);
    let Some(folder) = folder else {
        let source = |kind: Kind| Source::generated(kind, generated_bytes);
        return Ok(GENERATED.map(source).into());
    };
    let shared = data::shared_files(folder)?;
    let mut sources = Vec::new();
    for (name, _) in FILES {
        let file = shared.iter().find(|file| file.name == *name);
        ensure!(file.is_some(), "{} has no {name}", folder.display());
        sources.extend(file.map(|file| Source {
            name: name.to_string(),
            bytes: file.raw_bytes,
            file: Some(file.clone()),
        }));
    }
    Ok(sources)
}

/// Returns the words of a cell's parameters about its data.
pub fn label(sources: &[Source]) -> &'static str {
    match sources.iter().all(|source| source.file.is_some()) {
        true => LABEL_REAL,
        false => LABEL_GENERATED,
    }
}

/// Returns why a cell is no evidence about the thesis's data.
pub fn doubt(cell: &CellRecord) -> Option<&'static str> {
    (cell.parameter("data") == Some(LABEL_GENERATED)).then_some(GENERATED_DATA)
}

/// Returns the sources that are counted as the thesis's data.
pub fn counted(sources: Vec<Source>) -> Vec<Source> {
    let counted = |source: &Source| Set::of(&source.name).is_counted();
    sources.into_iter().filter(counted).collect()
}
