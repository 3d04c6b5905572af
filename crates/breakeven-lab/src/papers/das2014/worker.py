"""A history of messages: prints wall seconds, processor seconds, bytes given to the block device and the length of the
database's files.
"""


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


def bulk(database, made):
    """All rows in one transaction."""
    database.execute("BEGIN")
    database.execute("CREATE TABLE message(id INTEGER PRIMARY KEY, session TEXT, body TEXT)")
    database.executemany("INSERT INTO message(session, body) VALUES(?, ?)", rows)
    database.execute("COMMIT")


made = random.Random(1000 + run)
if task == "bulk":
    rows = [("session %d" % (number // 40), message(made, number)) for number in range(count)]
    for end in ("", "-wal", "-shm", "-journal"):
        if os.path.exists(name + end):
            os.remove(name + end)
database = connect()
before, begun = written_bytes(), time.monotonic()
cpu = cpu_seconds()
{"fill": fill, "commits": commits, "overwrite": overwrite, "bulk": bulk}[task](database, made)
seconds = time.monotonic() - begun
cpu = cpu_seconds() - cpu
written = written_bytes() - before
if contender == "wal" and task != "commits":
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
assert database.execute("SELECT count(*) FROM message").fetchone()[0] >= count
database.close()
print(seconds, cpu, written, file_bytes())
