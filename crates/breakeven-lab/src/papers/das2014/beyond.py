"""Reads of COUNT messages by number, and a change of one in twenty: prints wall seconds, processor seconds, bytes given to
the block device and the length of the database's files.
"""

REQUESTS = min(10000, 2 * count)


def fill(made):
    database = connect("OFF")
    database.execute("CREATE TABLE message(id INTEGER PRIMARY KEY, session TEXT, body TEXT)")
    database.execute("BEGIN")
    for number in range(count):
        row = ("session %d" % (number // 40), message(made, number))
        database.execute("INSERT INTO message(session, body) VALUES(?, ?)", row)
    database.execute("COMMIT")
    database.close()


def requests(database, made):
    for number in range(REQUESTS):
        chosen = made.randint(1, count)
        if number % 20 == 19:
            database.execute("UPDATE message SET body = ? WHERE id = ?", (message(made, number), chosen))
        else:
            assert len(database.execute("SELECT body FROM message WHERE id = ?", (chosen,)).fetchone()[0]) > 100


made = random.Random(1000 + run)
if task == "fill":
    fill(made)
    os.sync()
    print(0, 0, 0, file_bytes())
elif task == "copy":
    copy_of("delete.db")
    os.sync()
    print(0, 0, 0, file_bytes())
else:
    database = connect()
    requests(database, made)
    before, cpu, begun = written_bytes(), cpu_seconds(), time.monotonic()
    requests(database, made)
    told = [time.monotonic() - begun, cpu_seconds() - cpu, written_bytes() - before]
    database.close()
    print(*told, file_bytes())
