"""Writes every row of every table five times again, by a value of its own that stays. Follows on connect.py."""


def key_of(database, table):
    """How rows are told: by the number that SQLite gives them, or by their primary key."""
    try:
        database.execute('SELECT rowid FROM "%s" LIMIT 1' % table)
        return ["rowid"]
    except sqlite3.OperationalError:
        columns = database.execute('PRAGMA table_info("%s")' % table).fetchall()
        return [column[1] for column in sorted(columns, key=lambda column: column[5]) if column[5] > 0]


def write_again(database, made):
    tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall()
    for (table,) in tables:
        key = key_of(database, table)
        columns = [column[1] for column in database.execute('PRAGMA table_info("%s")' % table)]
        value = next((column for column in reversed(columns) if column not in key), None)
        if value is None:
            continue
        change = 'UPDATE "%s" SET "%s" = "%s" WHERE %s' % (table, value, value, " AND ".join('"%s" IS ?' % it for it in key))
        if key == ["rowid"]:
            change = change.replace('"rowid"', "rowid")
        rows = database.execute('SELECT %s FROM "%s"' % (", ".join(key), table)).fetchall()
        for _ in range(5):
            made.shuffle(rows)
            for first in range(0, len(rows), 20):
                database.execute("BEGIN")
                database.executemany(change, rows[first : first + 20])
                database.execute("COMMIT")
