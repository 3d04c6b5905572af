//! The four types of file: text, binary, random and zero (section 4.2).
//!
//! Each is one period of 64 MiB over and over. That is longer than any window of a contender that gets more than one
//! period, so none of them sees that it repeats. A share of a file is whole periods where it is that long, so that all
//! shares have the same content.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::data::{self, Kind, SEED, SharedFile};
use crate::laboratory::Laboratory;

const PERIOD_BYTES: usize = 64 << 20;
/// Pieces of each real file, so that a quarter of a period is like the whole.
const PARTS: usize = 16;

/// Real files that make up a period, in this order, cut where it ends: sources as the paper has
/// them, then other text.
const TEXT: &[&str] = &[
    "source-tar/linux-headers-6.1-include.tar",
    "silesia/xml",
    "dictionary/gcide_20MiB.txt",
    "silesia/dickens",
    "postgres/netflix.sql",
];
/// Executables as the paper has them, then measurements, an image and tables.
const BINARY: &[&str] = &[
    "elf-tar/coreutils-9.1-amd64.tar",
    "netcdf/monthly_navy_winds.cdf",
    "dicom/RG1_UNCR.dcm",
    "netcdf/coads_climatology.cdf",
    "sqlite/proj.db",
    "postgres/pg_heap_flights_16MiB.heap",
];

/// A type of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileType {
    Text,
    Binary,
    Random,
    Zero,
}

impl FileType {
    pub const ALL: [FileType; 4] = [
        FileType::Text,
        FileType::Binary,
        FileType::Random,
        FileType::Zero,
    ];

    pub fn name(self) -> &'static str {
        match self {
            FileType::Text => "text",
            FileType::Binary => "binary",
            FileType::Random => "random",
            FileType::Zero => "zero",
        }
    }

    /// Returns how much of a file of so many bytes shows as much: a quarter of random bytes, which are
    /// alike everywhere and slow to compress.
    pub fn enough(self, bytes: usize) -> usize {
        match self {
            FileType::Random => bytes / 4,
            FileType::Text | FileType::Binary | FileType::Zero => bytes,
        }
    }

    fn real(self) -> &'static [&'static str] {
        match self {
            FileType::Text => TEXT,
            FileType::Binary => BINARY,
            FileType::Random | FileType::Zero => &[],
        }
    }

    fn generated(self) -> Kind {
        match self {
            FileType::Text => Kind::Text,
            FileType::Binary => Kind::Mixed,
            FileType::Random => Kind::Noise,
            FileType::Zero => Kind::Zero,
        }
    }

    /// Returns the real files it is made of: none where it is generated.
    ///
    /// # Errors
    ///
    /// If a folder of real data is given and lacks one of them, or they are less than a period.
    fn real_files(self, laboratory: &Laboratory) -> Result<Vec<SharedFile>> {
        let Some(folder) = &laboratory.data else {
            return Ok(Vec::new());
        };
        let all = data::shared_files(folder)?;
        let found = |name: &&str| {
            let file = all.iter().find(|file| file.name == *name);
            file.cloned()
                .with_context(|| format!("{}: no {name}", folder.display()))
        };
        let files = self.real().iter().map(found).collect::<Result<Vec<_>>>()?;
        let bytes: u64 = files.iter().map(|file| file.raw_bytes).sum();
        ensure!(
            files.is_empty() || bytes >= PERIOD_BYTES as u64,
            "{}: the files of type {} are {bytes} bytes, less than {PERIOD_BYTES}",
            folder.display(),
            self.name()
        );
        Ok(files)
    }

    /// Returns where the bytes come from, as a word of a record.
    pub fn source(self, laboratory: &Laboratory) -> Result<String> {
        let files = self.real_files(laboratory)?;
        if files.is_empty() {
            return Ok(format!("generated-{} seed={SEED}", self.generated()));
        }
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        Ok(names.join("+"))
    }

    /// Writes a file of `bytes` bytes of this type.
    pub fn write(self, laboratory: &Laboratory, path: &Path, bytes: usize) -> Result<()> {
        let period = self.period(laboratory, bytes)?;
        let write = || -> std::io::Result<()> {
            let mut file = File::create(path)?;
            let mut left = bytes;
            while left > 0 {
                let part = &period[..left.min(period.len())];
                file.write_all(part)?;
                left -= part.len();
            }
            file.sync_all()
        };
        write().with_context(|| format!("write {}", path.display()))
    }

    fn period(self, laboratory: &Laboratory, bytes: usize) -> Result<Vec<u8>> {
        let length = bytes.clamp(1, PERIOD_BYTES);
        let files = self.real_files(laboratory)?;
        let Some(folder) = laboratory.data.as_ref().filter(|_| !files.is_empty()) else {
            return Ok(self.generated().generate(length, SEED));
        };
        let contents = files.iter().map(|file| file.load(folder));
        let contents = contents.collect::<Result<Vec<_>>>()?;
        let mut period = interleaved(&contents, PARTS);
        period.truncate(length);
        Ok(period)
    }
}

/// Returns the first part of each of `contents`, then the second of each, and so on, so that a part
/// of the result is like the whole.
fn interleaved(contents: &[Vec<u8>], parts: usize) -> Vec<u8> {
    let part = |content: &Vec<u8>, index: usize| {
        let bound = |index: usize| content.len() * index / parts;
        bound(index)..bound(index + 1)
    };
    let mut all = Vec::with_capacity(contents.iter().map(Vec::len).sum());
    for index in 0..parts {
        for content in contents {
            all.extend(&content[part(content, index)]);
        }
    }
    all
}

/// Returns the period in bytes, as records say it.
pub fn period_bytes(file_bytes: usize) -> usize {
    file_bytes.min(PERIOD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_interleaved_whole() {
        let contents = [b"abcdef".to_vec(), b"1234567".to_vec()];
        assert_eq!(interleaved(&contents, 3), b"ab12cd34ef567");
        assert_eq!(interleaved(&contents, 1), b"abcdef1234567");
    }
}
