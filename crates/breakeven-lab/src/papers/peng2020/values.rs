//! The stored values: rows of real files, split into a part to learn from and a measured part.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::data::{self, Random, SEED};

/// A set of values under one prefix of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    pub name: &'static str,
    /// The files, below the folder of data.
    files: &'static [&'static str],
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Lines of JSON of 200 to 1000 bytes.
    JsonLines,
    /// Rows of CSV, each as a JSON object with the names of its columns.
    JsonOfCsv,
    /// Lines of at least one byte.
    Lines,
    Random,
    /// Records of JSON of 200 to 1000 bytes that are made up.
    MadeUp,
}

/// The values without a folder of data. They judge no claim about real data.
pub const MADE_UP: Set = Set {
    name: "made-up",
    files: &[],
    kind: Kind::MadeUp,
};

/// All sets: those with targets first.
pub const SETS: &[Set] = &[
    Set {
        name: "json-cellphones",
        files: &["json/amazon_cellphones.ndjson"],
        kind: Kind::JsonLines,
    },
    Set {
        name: "json-flights",
        files: &["csv/nycflights13_flights.csv"],
        kind: Kind::JsonOfCsv,
    },
    Set {
        name: "dbtext",
        files: &[
            "dbtext/chinese",
            "dbtext/city",
            "dbtext/faust",
            "dbtext/firstname",
            "dbtext/genome",
            "dbtext/hamlet",
            "dbtext/hex",
            "dbtext/japanese",
            "dbtext/l_comment",
            "dbtext/street",
            "dbtext/wiki",
            "dbtext/yago",
        ],
        kind: Kind::Lines,
    },
    Set {
        name: "random",
        files: &[],
        kind: Kind::Random,
    },
];

/// Returns the sets that are there, or made-up ones where there is no folder.
pub fn sets(folder: Option<&Path>) -> impl Iterator<Item = Set> {
    let sets = SETS.iter().copied().filter(move |set| set.is_there(folder));
    sets.chain([MADE_UP].into_iter().filter(move |_| folder.is_none()))
}

/// Writes values as the lines of a file, from which `breakeven bench` takes them, and returns their mean length. Ends
/// of lines within them become other bytes.
pub fn write_lines(values: &[Value], path: &Path) -> Result<f64> {
    let mut text = Vec::new();
    for value in values {
        let bytes = value.bytes.iter();
        text.extend(bytes.map(|byte| if *byte == b'\n' { 0x0b } else { *byte }));
        text.push(b'\n');
    }
    std::fs::write(path, &text).with_context(|| format!("write {}", path.display()))?;
    Ok(text.len() as f64 / values.len() as f64 - 1.0)
}

/// A value with the prefix of its key.
#[derive(Clone, Debug)]
pub struct Value {
    pub prefix: String,
    pub bytes: Vec<u8>,
}

/// Values that may be learned from, and others of the same kind.
pub struct Split {
    pub taught: Vec<Value>,
    pub held_out: Vec<Value>,
}

impl Set {
    /// Whether there is all it consists of.
    fn is_there(&self, folder: Option<&Path>) -> bool {
        self.files.is_empty() || folder.is_some()
    }

    /// Reads the values. One in ten is learned from, or half of them where they are few.
    pub fn load(&self, folder: Option<&Path>) -> Result<Split> {
        let mut values = Vec::new();
        for file in self.files {
            let folder = folder.context("no folder of data")?;
            let found = data::shared_files(folder)?;
            let found = found
                .iter()
                .find(|it| it.name.trim_end_matches(".txt") == *file);
            let found = found.with_context(|| format!("no {file} in the folder of data"))?;
            let bytes = found.load(folder)?;
            let prefix = file
                .rsplit('/')
                .next()
                .unwrap_or(file)
                .replace(['.', '_'], "");
            let prefix: String = prefix.chars().filter(|it| !it.is_ascii_digit()).collect();
            let rows = self.rows(&bytes);
            values.push(rows.into_iter().map(move |bytes| Value {
                prefix: prefix.clone(),
                bytes,
            }));
        }
        let mut all = Vec::new();
        // Alternating, so that every part has some of every file.
        let mut left = true;
        while std::mem::take(&mut left) {
            for rows in &mut values {
                let row = rows.next();
                left |= row.is_some();
                all.extend(row);
            }
        }
        let mut random = Random::new(SEED);
        let mut made = |count: usize, prefix: &str, make: fn(&mut Random) -> Vec<u8>| {
            all.extend((0..count).map(|_| Value {
                prefix: prefix.to_string(),
                bytes: make(&mut random),
            }));
        };
        match self.kind {
            Kind::Random => made(100_000, "random", noise),
            Kind::MadeUp => made(20_000, "made", record),
            _ => {}
        }
        ensure!(all.len() >= 100, "{}: {} values", self.name, all.len());
        // Rows that stand together are alike: which are learned from is drawn.
        let mut random = Random::new(SEED ^ 1);
        for at in (1..all.len()).rev() {
            all.swap(at, random.below(at as u64 + 1) as usize);
        }
        let taught = if all.len() < 10_000 {
            all.len() / 2
        } else {
            all.len() / 10
        };
        let held_out = all.split_off(taught);
        Ok(Split {
            taught: all,
            held_out,
        })
    }

    fn rows(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let lines = bytes.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        match self.kind {
            Kind::JsonLines => {
                let fits = |line: &&[u8]| (200..=1000).contains(&line.len());
                lines.filter(fits).map(<[u8]>::to_vec).collect()
            }
            Kind::JsonOfCsv => {
                let mut lines = lines.map(String::from_utf8_lossy);
                let header = lines.next().unwrap_or_default().into_owned();
                let names: Vec<&str> = header.split(',').collect();
                lines
                    .map(|line| object(&names, &line).into_bytes())
                    .collect()
            }
            Kind::Lines => lines.map(<[u8]>::to_vec).collect(),
            Kind::Random | Kind::MadeUp => Vec::new(),
        }
    }
}

/// Makes up 300 bytes in which nothing repeats.
fn noise(random: &mut Random) -> Vec<u8> {
    (0..38)
        .flat_map(|_| random.next().to_le_bytes())
        .take(300)
        .collect()
}

/// Makes up a record of JSON.
fn record(random: &mut Random) -> Vec<u8> {
    let length = 200 + random.below(800) as usize;
    let (id, token) = (random.below(1 << 32), random.next());
    let mut text = format!("{{\"id\":{id},\"token\":\"{token:016x}\",\"tags\":[");
    while text.len() + 12 < length {
        text.push_str(&format!("\"word{}\",", random.below(1000)));
    }
    text.push_str("\"\"]}");
    text.into_bytes()
}

/// Makes a JSON object of a row of CSV without quotes.
fn object(names: &[&str], row: &str) -> String {
    let field = |(name, value): (&&str, &str)| match value.parse::<f64>() {
        Ok(_) => format!("\"{name}\":{value}"),
        Err(_) => format!("\"{name}\":\"{value}\""),
    };
    let fields: Vec<String> = names.iter().zip(row.split(',')).map(field).collect();
    format!("{{{}}}", fields.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_objects() {
        let found = object(&["a", "b"], "1,x y");
        assert_eq!(found, r#"{"a":1,"b":"x y"}"#);
    }

    #[test]
    fn no_value_is_on_both_sides() {
        let random = SETS.last().unwrap();
        let Split { taught, held_out } = random.load(None).unwrap();
        assert_eq!((taught.len(), held_out.len()), (10_000, 90_000));
        let taught: std::collections::BTreeSet<&[u8]> =
            taught.iter().map(|it| &it.bytes[..]).collect();
        assert!(
            held_out
                .iter()
                .all(|it| !taught.contains(&it.bytes[..]) && it.bytes.len() == 300)
        );
    }
}
