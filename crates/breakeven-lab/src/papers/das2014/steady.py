"""Every row of every table five times again, if that is the task: prints wall seconds, processor seconds, bytes given to the
block device and the length of the database's files.
"""

database = connect("OFF")
made = random.Random(1000 + run)
before, begun, cpu = written_bytes(), time.monotonic(), cpu_seconds()
if task == "written again":
    # What views and triggers forbid is none of this test's business.
    database.execute("PRAGMA foreign_keys=OFF")
    for (trigger,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        database.execute('DROP TRIGGER "%s"' % trigger)
    write_again(database, made)
told = [time.monotonic() - begun, cpu_seconds() - cpu, written_bytes() - before]
assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
database.close()
os.sync()
print(*told, file_bytes())
