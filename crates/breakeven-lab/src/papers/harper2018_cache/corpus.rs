//! The cached data: pages of five kinds, from those that shrink most to those that do not, and the traces of their
//! accesses.
//!
//! A kind is named for its real files. Its ratio is measured and stands in the record. Where no folder of data is
//! given, and in a quick run, each kind has a generated one in its place, and no claim is judged.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use breakeven::replay::{Contents, Pattern, TraceFormat, Workload};

use crate::data::{self, Kind, SEED};
use crate::laboratory::Laboratory;
use crate::record::CellRecord;

/// Bytes of each kind at most, so that all of them and their compressed forms fit in memory.
const BYTES_MAX: usize = 48 << 20;
const QUICK_BYTES: usize = 1 << 20;
/// Why generated pages are no evidence about real ones.
pub const GENERATED_DATA: &str = "generated data";
const LABEL_GENERATED: &str = "data=generated";

/// A kind of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Set {
    /// Text of many like records: molecules, XML, logs.
    Records,
    /// Pages of databases: heap and B-trees of PostgreSQL, a file of SQLite.
    Database,
    /// C sources, in a tar.
    Source,
    /// English and Polish prose.
    Prose,
    /// Images and a film, which do not shrink.
    Media,
}

impl Set {
    pub fn name(self) -> &'static str {
        match self {
            Set::Records => "records",
            Set::Database => "database",
            Set::Source => "source",
            Set::Prose => "prose",
            Set::Media => "media",
        }
    }

    pub fn files(self) -> &'static [&'static str] {
        match self {
            Set::Records => &["silesia/nci", "silesia/xml", "logs/loghub_2k.tar"],
            Set::Database => &[
                "postgres/pg_btree_text_leg.idx",
                "postgres/pg_heap_flights_16MiB.heap",
                "postgres/pg_btree_int8_flight.idx",
                "sqlite/proj.db",
            ],
            Set::Source => &["source-tar/linux-headers-6.1-include.tar"],
            Set::Prose => &["silesia/dickens", "silesia/reymont"],
            Set::Media => &[
                "dicom/RG1_UNCR.dcm",
                "netcdf/monthly_navy_winds.cdf",
                "video/bigbuckbunny.mp4",
            ],
        }
    }

    fn kind(self) -> Kind {
        match self {
            Set::Records | Set::Database => Kind::Rows,
            Set::Source => Kind::Mixed,
            Set::Prose => Kind::Text,
            Set::Media => Kind::Noise,
        }
    }

    /// Returns the bytes of the kind.
    pub fn load(self, laboratory: &Laboratory) -> Result<Vec<u8>> {
        let Some(folder) = real(laboratory) else {
            return Ok(self.kind().generate(QUICK_BYTES, SEED));
        };
        let shared = data::shared_files(folder)?;
        let mut bytes = Vec::new();
        for name in self.files() {
            bytes.extend(load(folder, &shared, name)?);
        }
        bytes.truncate(BYTES_MAX);
        Ok(bytes)
    }

    /// Returns the kind cut into pages.
    pub fn contents(self, laboratory: &Laboratory, page_bytes: usize) -> Result<Contents> {
        Ok(Contents::new(self.load(laboratory)?, page_bytes)?)
    }
}

fn load(folder: &Path, shared: &[data::SharedFile], name: &str) -> Result<Vec<u8>> {
    let file = shared.iter().find(|file| file.name == name);
    let file = file.with_context(|| format!("{} has no {name}", folder.display()))?;
    file.load(folder)
}

/// Returns the folder of real data, if it is used.
pub fn real(laboratory: &Laboratory) -> Option<&Path> {
    laboratory.data.as_deref().filter(|_| !laboratory.quick)
}

/// Returns the words of a cell's parameters about its data.
pub fn label(laboratory: &Laboratory) -> &'static str {
    match real(laboratory) {
        Some(_) => "data=real",
        None => LABEL_GENERATED,
    }
}

/// Returns why a cell is no evidence about real data.
pub fn doubt(cell: &CellRecord) -> Option<&'static str> {
    (cell.parameter("data") == Some("generated")).then_some(GENERATED_DATA)
}

/// A trace that others published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    pub name: &'static str,
    file: &'static str,
    format: TraceFormat,
}

const fn trace(name: &'static str, file: &'static str, format: TraceFormat) -> Trace {
    Trace { name, file, format }
}

/// The shipped traces: of a storage array, a web server, an object mapper, a content network, and
/// those by which LIRS was introduced.
pub const TRACES: [Trace; 9] = [
    trace(
        "cloudPhysics",
        "traces/cloudPhysicsIO.oracleGeneral.bin",
        TraceFormat::OracleGeneral,
    ),
    trace("web07", "traces/cache2k_web07.u32", TraceFormat::U32),
    trace("web12", "traces/cache2k_web12.u32", TraceFormat::U32),
    trace("orm-busy", "traces/cache2k_orm-busy.u32", TraceFormat::U32),
    trace("cdn", "traces/adaptsize_cdn_request.txt", TraceFormat::Csv),
    trace("loop", "traces/lirs_loop.txt", TraceFormat::Text),
    trace("multi1", "traces/lirs_multi1.txt", TraceFormat::Text),
    trace("multi3", "traces/lirs_multi3.txt", TraceFormat::Text),
    trace("sprite", "traces/lirs_sprite.txt", TraceFormat::Text),
];

impl Trace {
    /// Returns the trace of this name.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn named(name: &str) -> Trace {
        let found = TRACES.iter().find(|trace| trace.name == name);
        *found.expect("a trace of the list")
    }

    /// Returns at most the first `keys_max` keys of the trace; without real data as many keys that
    /// fall by Zipf 1.0, three accesses a key.
    pub fn keys(&self, laboratory: &Laboratory, keys_max: usize) -> Result<Vec<u64>> {
        let Some(folder) = real(laboratory) else {
            let blocks = keys_max as u64 / 3 + 1;
            return Ok(Workload::new(Pattern::Zipf(1.0), blocks, SEED)
                .take(keys_max)
                .collect());
        };
        let bytes = load(folder, &data::shared_files(folder)?, self.file)?;
        let requests = self.format.parse(&bytes).with_context(|| self.file)?;
        ensure!(!requests.is_empty(), "{} has no accesses", self.file);
        Ok(requests
            .iter()
            .take(keys_max)
            .map(|request| request.key)
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_pages_are_told_from_real_ones() {
        let doubt_of = |parameters: &str| doubt(&CellRecord::made_up("", parameters, Vec::new()));
        assert_eq!(doubt_of("a=1 data=generated b=2"), Some(GENERATED_DATA));
        assert_eq!(doubt_of("a=1 data=real"), None);
        for set in [
            Set::Records,
            Set::Database,
            Set::Source,
            Set::Prose,
            Set::Media,
        ] {
            let bytes = set.kind().generate(100_000, SEED);
            let pages = Contents::new(bytes, 4096).unwrap();
            assert_eq!(pages.page_count(), 24, "{}", set.name());
            assert!(!set.files().is_empty());
        }
        assert_eq!(Trace::named("sprite").format, TraceFormat::Text);
    }
}
