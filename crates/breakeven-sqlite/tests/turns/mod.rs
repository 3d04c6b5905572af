//! Processes that write one transaction after the other, each as fast as it can: all of them have their turns.

use super::hosts::Hosts;

/// The processes.
const WRITERS: usize = 3;
/// How often each has to begin behind another.
const TURNS: u64 = 4;
/// How many transactions each may have until then: a turn has some dozens on a slow disk, some thousands in memory.
const TRANSACTIONS_MAX: u64 = 100_000;

const MADE: &str = "d = connect('app.db')\n\
    d.executescript('CREATE TABLE turns(who INTEGER PRIMARY KEY, count INTEGER);'\n\
    \x20   'INSERT INTO turns VALUES(0, 0), (1, 0), (2, 0);'\n\
    \x20   'CREATE TABLE last(who INTEGER, written INTEGER); INSERT INTO last VALUES(-1, 0)')";

#[test]
fn each_of_several_writers_has_its_turns() {
    let Some(hosts) = Hosts::find() else { return };
    hosts.python(MADE);
    let write = |who: usize| {
        format!(
            "d = connect('app.db')\n\
             d.isolation_level = None\n\
             for written in range({TRANSACTIONS_MAX}):\n\
             \x20   d.execute('BEGIN IMMEDIATE')\n\
             \x20   if d.execute('SELECT who FROM last').fetchone() != ({who},):\n\
             \x20       d.execute('UPDATE turns SET count = count + 1 WHERE who = {who}')\n\
             \x20   d.execute('UPDATE last SET who = {who}, written = written + 1')\n\
             \x20   least = d.execute('SELECT min(count) FROM turns').fetchone()[0]\n\
             \x20   d.execute('COMMIT')\n\
             \x20   if least >= {TURNS}: break"
        )
    };
    let writers: Vec<_> = (0..WRITERS)
        .map(|who| hosts.start_python(&write(who)))
        .collect();
    for writer in writers {
        let output = writer.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let told = hosts.python(
        "d = connect('app.db')\n\
         print(*d.execute('SELECT min(count), (SELECT written FROM last) FROM turns').fetchone())",
    );
    println!("turns and transactions: {told}");
    let least = told
        .split_whitespace()
        .next()
        .and_then(|it| it.parse::<u64>().ok());
    assert!(least >= Some(TURNS), "{told}");
}
