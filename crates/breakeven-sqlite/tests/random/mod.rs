//! Random SQL by the stock shell, into a plain database and a compressed one: they say the same.

use std::fmt::Write;

use super::hosts::{Hosts, is_full};

const STATEMENTS: u64 = 80;

/// Writes a script; the same seed, the same script.
fn script(seed: u64) -> String {
    let mut random = fastrand::Rng::with_seed(seed);
    let page_bytes = 512 << random.u32(..8);
    let vacuum = ["NONE", "FULL", "INCREMENTAL"][random.usize(..3)];
    let mut script = format!("PRAGMA page_size={page_bytes}; PRAGMA auto_vacuum={vacuum};\n");
    script.push_str("PRAGMA cache_size=12;\nCREATE TABLE t0(k INTEGER PRIMARY KEY, a, b TEXT);\n");
    let mut tables = 1;
    let mut depth = 0;
    for number in 0..STATEMENTS {
        let table = random.u64(..tables);
        let (low, high) = (random.u32(..800), random.u32(1..400));
        let value = format!("printf('%.*c %d', {}, 'x', {number})", random.u32(..3000));
        let _ = match random.u8(..18) {
            0 => {
                tables += 1;
                let new = tables - 1;
                writeln!(
                    script,
                    "CREATE TABLE t{new}(k INTEGER PRIMARY KEY, a, b TEXT);"
                )
            }
            1 => writeln!(
                script,
                "CREATE INDEX IF NOT EXISTS i{table} ON t{table}(a, b);"
            ),
            2 => writeln!(script, "DROP INDEX IF EXISTS i{table};"),
            3 => writeln!(script, "DELETE FROM t{table};"),
            4..=6 => writeln!(
                script,
                "DELETE FROM t{table} WHERE k BETWEEN {low} AND {};",
                low + high
            ),
            7..=8 => writeln!(
                script,
                "UPDATE t{table} SET b = {value} WHERE k % 7 = {};",
                low % 7
            ),
            9 if depth == 0 => writeln!(script, "VACUUM;"),
            10 if depth == 0 => {
                depth = 1;
                writeln!(script, "BEGIN;")
            }
            11 if depth > 0 => {
                depth += 1;
                writeln!(script, "SAVEPOINT s{depth};")
            }
            12 if depth > 1 => {
                writeln!(script, "ROLLBACK TO s{depth};")
            }
            13 | 14 if depth > 0 => {
                depth = 0;
                writeln!(script, "{};", ["COMMIT", "ROLLBACK"][random.usize(..2)])
            }
            15 => writeln!(script, "PRAGMA incremental_vacuum({});", random.u32(1..20)),
            _ => writeln!(
                script,
                "INSERT OR REPLACE INTO t{table} WITH RECURSIVE n(i) AS (SELECT {low} UNION ALL SELECT i + 1 FROM n WHERE i < {}) \
                 SELECT i, i * {high}, {value} || i FROM n;",
                low + high / 4
            ),
        };
    }
    if depth > 0 {
        script.push_str("COMMIT;\n");
    }
    script
}

#[test]
fn random_sql_leaves_a_compressed_database_like_a_plain_one() {
    let Some(hosts) = Hosts::find() else { return };
    let first = std::env::var("BREAKEVEN_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let first: u64 = first.unwrap_or(20_140_907);
    let scripts = if is_full() { 500 } else { 12 };
    for seed in first..first + scripts {
        let script = script(seed);
        let [plain, compressed] = [("plain", "unix"), ("small", "breakeven")].map(|(name, vfs)| {
            let name = format!("{name}{seed}.db?vfs={vfs}");
            // A rollback drops tables that later statements name: that fails the same way in both.
            let said = hosts.sqlite_unchecked(&format!(".open file:{name}\n{script}"));
            (
                said,
                hosts.sum(&name),
                hosts.sqlite(&format!(".open file:{name}\n.dump")),
            )
        });
        assert!(plain.2.len() > 100, "seed {seed}: {}", plain.2);
        assert!(
            plain == compressed,
            "seed {seed}:\n{}\n{}",
            plain.0,
            compressed.0
        );
    }
    println!("{scripts} scripts of {STATEMENTS} statements from seed {first}");
}
