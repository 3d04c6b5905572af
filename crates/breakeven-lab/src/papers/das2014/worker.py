"""One database's work: python3 -c SCRIPT CONTENDER TASK COUNT RUN LIBRARY, in the folder of the databases.

Prints wall seconds, processor seconds, bytes given to the block device and the length of the database's files.
"""

import json
import os
import random
import resource
import sqlite3
import sys
import time

contender, task, count, run, library = sys.argv[1:6]
count, run = int(count), int(run)
name = contender + ".db"


def connect():
    if contender == "breakeven":
        loader = sqlite3.connect(":memory:")
        loader.enable_load_extension(True)
        loader.load_extension(library)
        database = sqlite3.connect("file:" + name + "?vfs=breakeven", uri=True)
    else:
        database = sqlite3.connect(name)
        database.execute("PRAGMA journal_mode=" + contender)
    database.execute("PRAGMA synchronous=FULL")
    database.isolation_level = None
    return database


def words():
    """A language of some thousand words, the first of which are the most used."""
    made = random.Random(7)
    parts = ["ba", "ko", "ri", "ten", "mo", "las", "su", "per", "in", "ge", "tra", "do", "vel", "ny", "qua", "sh"]
    return ["".join(made.choice(parts) for _ in range(made.randint(1, 4))) for _ in range(3000)]


WORDS = words()


def message(made, number):
    """A message of an agent's history, as JSON."""
    text = " ".join(WORDS[min(int(made.paretovariate(0.6)), len(WORDS)) - 1] for _ in range(made.randint(10, 250)))
    return json.dumps(
        {
            "id": "%016x" % made.getrandbits(64),
            "timestamp": 1700000000 + 17 * number,
            "role": made.choice(["user", "assistant", "tool"]),
            "content": [{"type": "text", "text": text}],
            "usage": {"input_tokens": made.randint(1, 9000), "output_tokens": made.randint(1, 900)},
        }
    )


def fill(database, made):
    database.execute("CREATE TABLE message(id INTEGER PRIMARY KEY, session TEXT, body TEXT)")
    for first in range(0, count, 100):
        database.execute("BEGIN")
        for number in range(first, min(first + 100, count)):
            row = ("session %d" % (number // 40), message(made, number))
            database.execute("INSERT INTO message(session, body) VALUES(?, ?)", row)
        database.execute("COMMIT")


def commits(database, made):
    """Transactions of one row: two new ones, then one changed."""
    for number in range(count):
        if number % 3 < 2:
            row = ("session %d" % run, message(made, number))
            database.execute("INSERT INTO message(session, body) VALUES(?, ?)", row)
        else:
            row = (message(made, number), made.randint(1, count))
            database.execute("UPDATE message SET body = ? WHERE id = ?", row)


def overwrite(database, made):
    """Five times as many rows as there are, ten in a transaction."""
    for first in range(0, 5 * count, 10):
        database.execute("BEGIN")
        for number in range(first, first + 10):
            row = (message(made, number), made.randint(1, count))
            database.execute("UPDATE message SET body = ? WHERE id = ?", row)
        database.execute("COMMIT")


def written_bytes():
    with open("/proc/self/io") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def file_bytes():
    return sum(os.path.getsize(name + end) for end in ("", "-wal") if os.path.exists(name + end))


database = connect()
made = random.Random(1000 + run)
before, begun = written_bytes(), time.monotonic()
cpu = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
{"fill": fill, "commits": commits, "overwrite": overwrite}[task](database, made)
seconds = time.monotonic() - begun
cpu = sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) - cpu
written = written_bytes() - before
if contender == "wal" and task != "commits":
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
assert database.execute("SELECT count(*) FROM message").fetchone()[0] >= count
database.close()
print(seconds, cpu, written, file_bytes())
