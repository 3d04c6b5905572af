"""What the workers have in common: python3 -c SCRIPT CONTENDER TASK COUNT RUN LIBRARY PARAMETERS GROUP, in the folder of
the databases. PARAMETERS are appended to our URI, and GROUP is a file that this process puts its number into, by which
its memory is limited.
"""

import json
import os
import random
import resource
import sqlite3
import sys
import time

contender, task, count, run, library, parameters, group = sys.argv[1:8]
count, run = int(count), int(run)
name = contender + ".db"
if group:
    with open(group, "w") as processes:
        processes.write(str(os.getpid()))


def connect(synchronous="FULL"):
    if contender == "breakeven":
        loader = sqlite3.connect(":memory:")
        loader.enable_load_extension(True)
        loader.load_extension(library)
        database = sqlite3.connect("file:" + name + "?vfs=breakeven" + parameters, uri=True)
    else:
        database = sqlite3.connect(name)
        database.execute("PRAGMA journal_mode=" + contender)
    database.execute("PRAGMA synchronous=" + synchronous)
    database.isolation_level = None
    return database


def copy_of(source):
    """Makes the contender's database of a plain one, page by page."""
    plain, database = sqlite3.connect(source), connect("OFF")
    plain.backup(database)
    if contender == "wal":
        database.execute("PRAGMA journal_mode=wal")
    database.close()


def words():
    """A language of some thousand words, the first of which are the most used."""
    made = random.Random(7)
    parts = ["ba", "ko", "ri", "ten", "mo", "las", "su", "per", "in", "ge", "tra", "do", "vel", "ny", "qua", "sh"]
    return ["".join(made.choice(parts) for _ in range(made.randint(1, 4))) for _ in range(3000)]


WORDS = words()


def text(made, low, high):
    return " ".join(WORDS[min(int(made.paretovariate(0.6)), len(WORDS)) - 1] for _ in range(made.randint(low, high)))


def message(made, number):
    """A message of an agent's history, as JSON."""
    body = text(made, 10, 250)
    return json.dumps(
        {
            "id": "%016x" % made.getrandbits(64),
            "timestamp": 1700000000 + 17 * number,
            "role": made.choice(["user", "assistant", "tool"]),
            "content": [{"type": "text", "text": body}],
            "usage": {"input_tokens": made.randint(1, 9000), "output_tokens": made.randint(1, 900)},
        }
    )


def cpu_seconds():
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


def written_bytes():
    with open("/proc/self/io") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def file_bytes():
    return sum(os.path.getsize(name + end) for end in ("", "-wal") if os.path.exists(name + end))
