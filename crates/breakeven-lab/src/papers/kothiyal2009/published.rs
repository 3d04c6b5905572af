//! The figures of the paper: Tables 4.3, 5.1, 5.2 and 5.3, as they are printed.

use super::files::FileType;

/// A row of a published table: an invocation as this laboratory calls it and a cell for each type of file.
#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    cells: [&'static str; 4],
}

impl Row {
    /// Returns the cell as it is printed, with `always` for the nabla and `never` for the cross.
    pub fn cell(&self, file: FileType) -> &'static str {
        self.cells[file as usize]
    }
}

const fn row(name: &'static str, cells: [&'static str; 4]) -> Row {
    Row { name, cells }
}

/// Table 4.3: compression ratios; a power of ten is an order of magnitude.
pub const RATIOS: &[Row] = &[
    row("gzip -1", ["4.16", "1.81", "0.95", "~10^2"]),
    row("gzip -6", ["4.79", "1.81", "0.95", "~10^3"]),
    row("gzip -9", ["4.84", "1.81", "0.95", "~10^3"]),
    row("lzop -1", ["3.52", "1.53", "0.95", "~10^2"]),
    row("lzop -3", ["3.51", "1.53", "0.95", "~10^2"]),
    row("lzop -9", ["4.37", "1.81", "0.95", "~10^2"]),
    row("bzip2 -1", ["5.09", "1.81", "0.95", "~10^6"]),
    row("bzip2 -9", ["6.11", "2.09", "0.95", "~10^7"]),
    row("compress -b 10", ["1.17", "1.04", "0.8", "~10^2"]),
    row("compress -b 16", ["2.07", "1.17", "0.8", "~10^5"]),
    row("ppmd -o 2", ["3.86", "1.81", "0.95", "~10^3"]),
    row("ppmd -o 16", ["7.7", "2.44", "0.95", "~10^3"]),
];

/// A table of break-even reads per write in T / E / ET on one machine, `always` for the nabla and `never` for
/// the cross.
pub struct BreakEvens {
    /// The machine and the table's number.
    pub title: &'static str,
    pub rows: &'static [Row],
}

const NEVER: &str = "never";
const ALWAYS: &str = "always";

/// Tables 5.1, 5.2 and 5.3.
pub const BREAK_EVENS: &[BreakEvens] = &[
    BreakEvens {
        title: "server (5.1)",
        rows: &[
            row("gzip -1", ["2.8 / 20.2 / 18.3", NEVER, NEVER, ALWAYS]),
            row("gzip -6", ["10.9 / 19.7 / 62.5", NEVER, NEVER, ALWAYS]),
            row("gzip -9", ["24.9 / 49.0 / ~10^3", NEVER, NEVER, ALWAYS]),
            row("lzop -1", [ALWAYS, "0.8 / 2.1 / 4.0", NEVER, ALWAYS]),
            row("lzop -3", [ALWAYS, "1.0 / 2.0 / 4.3", NEVER, ALWAYS]),
            row(
                "lzop -9",
                [
                    "26.8 / 35.4 / ~10^2",
                    "~10^2 / ~10^2 / ~10^3",
                    NEVER,
                    "3.6 / 5.4 / 19.9",
                ],
            ),
            row("bzip2 -1", [NEVER, NEVER, NEVER, "always / 0.3 / always"]),
            row("bzip2 -9", [NEVER, NEVER, NEVER, "0.2 / 1.3 / 2.4"]),
            row("compress -b 10", [NEVER, NEVER, NEVER, ALWAYS]),
            row("compress -b 16", [NEVER, NEVER, NEVER, ALWAYS]),
        ],
    },
    BreakEvens {
        title: "desktop (5.2)",
        rows: &[
            row("gzip -1", ["0.2 / never / 9.1", NEVER, NEVER, ALWAYS]),
            row("gzip -6", ["4.1 / 33.2 / 38.4", NEVER, NEVER, ALWAYS]),
            row("gzip -9", ["10.8 / 78.6 / ~10^2", NEVER, NEVER, ALWAYS]),
            row("lzop -1", [ALWAYS, "1.0 / 3.8 / 6.7", NEVER, ALWAYS]),
            row("lzop -3", [ALWAYS, "0.9 / 3.5 / 5.9", NEVER, ALWAYS]),
            row(
                "lzop -9",
                [
                    "18.6 / 31.6 / ~10^2",
                    "89 / ~10^2 / ~10^3",
                    NEVER,
                    "1.9 / 4.2 / 15.3",
                ],
            ),
            row("bzip2 -1", [NEVER, NEVER, NEVER, "always / 1.3 / 1.4"]),
            row("bzip2 -9", [NEVER, NEVER, NEVER, "always / 1.7 / 2.3"]),
            row("compress -b 10", [NEVER, NEVER, NEVER, ALWAYS]),
            row("compress -b 16", [NEVER, NEVER, NEVER, ALWAYS]),
        ],
    },
    BreakEvens {
        title: "laptop (5.3)",
        rows: &[
            row(
                "gzip -1",
                [
                    "always / 0.03 / always",
                    "0.7 / never / 46.8",
                    NEVER,
                    ALWAYS,
                ],
            ),
            row(
                "gzip -6",
                ["always / 1.9 / 2.1", "7.2 / never / ~10^2", NEVER, ALWAYS],
            ),
            row(
                "gzip -9",
                ["1.6 / 6.3 / 18.3", "38.3 / never / ~10^2", NEVER, ALWAYS],
            ),
            row("lzop -1", [ALWAYS, "always / 0.7 / always", NEVER, ALWAYS]),
            row("lzop -3", [ALWAYS, "always / 0.9 / always", NEVER, ALWAYS]),
            row(
                "lzop -9",
                [
                    "7.4 / 15.5 / ~10^2",
                    "34.6 / 84.2 / ~10^2",
                    NEVER,
                    "always / 0.3 / always",
                ],
            ),
            row("bzip2 -1", [NEVER, NEVER, NEVER, ALWAYS]),
            row("bzip2 -9", [NEVER, NEVER, NEVER, ALWAYS]),
            row(
                "compress -b 10",
                ["0.2 / never / never", NEVER, NEVER, ALWAYS],
            ),
            row(
                "compress -b 16",
                ["0.9 / never / never", NEVER, NEVER, ALWAYS],
            ),
        ],
    },
];

/// The server, the nearest to this project's machines.
pub const SERVER: &BreakEvens = &BREAK_EVENS[0];

/// Returns the row of an invocation, where the paper has it.
pub fn find(rows: &'static [Row], name: &str) -> Option<&'static Row> {
    rows.iter().find(|row| row.name == name)
}

/// Returns the number a cell prints for one of the metrics T, E and ET; nothing for a word or a
/// magnitude.
pub fn number(cell: &str, metric: usize) -> Option<f64> {
    cell.split(" / ").nth(metric)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::contenders::CONTENDERS;
    use super::*;

    #[test]
    fn every_published_invocation_is_a_contender() {
        let tables = BREAK_EVENS.iter().map(|table| table.rows).chain([RATIOS]);
        for row in tables.flatten() {
            let known = CONTENDERS
                .iter()
                .any(|contender| contender.name == row.name);
            assert!(known, "{}", row.name);
        }
        assert_eq!(RATIOS.len(), 12);
    }

    #[test]
    fn cells_are_numbers_words_or_magnitudes() {
        for table in BREAK_EVENS {
            assert_eq!(table.rows.len(), 10);
            for (row, file) in table
                .rows
                .iter()
                .flat_map(|row| FileType::ALL.map(|file| (row, file)))
            {
                let parts: Vec<&str> = row.cell(file).split(" / ").collect();
                assert!([1, 3].contains(&parts.len()), "{row:?}");
                for (metric, part) in parts.iter().enumerate() {
                    let word = [NEVER, ALWAYS].contains(part) || part.starts_with("~10^");
                    assert_eq!(number(row.cell(file), metric).is_none(), word, "{row:?}");
                }
            }
        }
        let cell = find(SERVER.rows, "gzip -1").unwrap().cell(FileType::Text);
        assert_eq!(number(cell, 1), Some(20.2));
        assert_eq!(number(cell, 3), None);
    }
}
