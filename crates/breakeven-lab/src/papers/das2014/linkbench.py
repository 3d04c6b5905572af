"""LinkBench's schema and mix of requests over COUNT nodes: prints wall seconds, processor seconds, bytes given to the
block device, the length of the database's files, and the request that took longer than 99 in 100.
"""

TYPES = (123456789, 123456790)
# The requests that are timed, after a tenth as many that are not.
REQUESTS = min(2000, 2 * count)


def zipf(made, exponent):
    """The number of a node, drawn by a Zipf law of an exponent below 1, the ranks all over the numbers."""
    rank = int(count * made.random() ** (1 / (1 - exponent)))
    return rank * 1_000_003 % count + 1


def motif(made, length, low, high, share):
    """LinkBench's payload: part of it drawn anew, the rest the beginning of a text of 128 bytes."""
    drawn = int(length * share)
    fresh = bytes(made.randrange(low, high) for _ in range(drawn))
    return fresh + (MOTIFS[low] * (length // 128 + 1))[: length - drawn]


def motif_text(low, high):
    made = random.Random(low)
    return bytes(made.randrange(low, high) for _ in range(128))


MOTIFS = {32: motif_text(32, 100), 50: motif_text(50, 220)}


def link_data(made):
    return motif(made, max(1, min(255, int(made.lognormvariate(2.4, 1)))), 32, 100, 0.225)


def node_data(made):
    return motif(made, max(1, min(4096, int(made.lognormvariate(4.85, 1)))), 50, 220, 0.63)


def fill(made):
    database = connect("OFF")
    database.executescript(
        """
        CREATE TABLE linktable(id1 INTEGER, id2 INTEGER, link_type INTEGER, visibility INTEGER, data BLOB,
            time INTEGER, version INTEGER, PRIMARY KEY(link_type, id1, id2)) WITHOUT ROWID;
        CREATE INDEX id1_type ON linktable(id1, link_type, visibility, time, id2, version, data);
        CREATE TABLE counttable(id INTEGER, link_type INTEGER, count INTEGER, time INTEGER, version INTEGER,
            PRIMARY KEY(id, link_type)) WITHOUT ROWID;
        CREATE TABLE nodetable(id INTEGER PRIMARY KEY, type INTEGER, version INTEGER, time INTEGER, data BLOB);
        BEGIN;
        """
    )
    for node in range(1, count + 1):
        add_node(database, made, node)
        for kind in TYPES:
            others = {zipf(made, 0.741) for _ in range(min(200, int(made.paretovariate(1.3))))}
            for other in others:
                row = (node, other, kind, 1, link_data(made), 1000 + made.randrange(10**6), 0)
                database.execute("INSERT INTO linktable VALUES(?, ?, ?, ?, ?, ?, ?)", row)
            database.execute("INSERT INTO counttable VALUES(?, ?, ?, 0, 0)", (node, kind, len(others)))
    database.execute("COMMIT")
    database.close()


def add_node(database, made, node=None):
    row = (node, 2048, 0, made.randrange(10**9), node_data(made))
    database.execute("INSERT INTO nodetable VALUES(?, ?, ?, ?, ?)", row)


def get_link_list(database, made):
    database.execute(
        "SELECT id2, data, version, time FROM linktable WHERE id1 = ? AND link_type = ? AND visibility = 1"
        " AND time BETWEEN 0 AND 2000000 ORDER BY time DESC LIMIT 10000",
        (zipf(made, 0.8), made.choice(TYPES)),
    ).fetchall()


def get_node(database, made):
    database.execute("SELECT * FROM nodetable WHERE id = ?", (zipf(made, 0.8),)).fetchall()


def count_link(database, made):
    key = (zipf(made, 0.8), made.choice(TYPES))
    database.execute("SELECT count FROM counttable WHERE id = ? AND link_type = ?", key).fetchall()


def get_link(database, made):
    key = (made.choice(TYPES), zipf(made, 0.8), zipf(made, 0.8))
    database.execute("SELECT * FROM linktable WHERE link_type = ? AND id1 = ? AND id2 = ?", key).fetchall()


def known_link(database, made, node, kind):
    """A link that there is, for who changes one."""
    found = database.execute("SELECT id2 FROM linktable WHERE id1 = ? AND link_type = ? LIMIT 1", (node, kind)).fetchone()
    return found[0] if found else zipf(made, 0.741)


def put_link(database, made, is_known):
    node, kind = zipf(made, 0.741), made.choice(TYPES)
    database.execute("BEGIN IMMEDIATE")
    other = known_link(database, made, node, kind) if is_known else zipf(made, 0.741)
    before = database.execute(
        "SELECT visibility FROM linktable WHERE link_type = ? AND id1 = ? AND id2 = ?", (kind, node, other)
    ).fetchone()
    row = (node, other, kind, 1, link_data(made), 1000 + made.randrange(10**6), 0)
    database.execute("INSERT OR REPLACE INTO linktable VALUES(?, ?, ?, ?, ?, ?, ?)", row)
    if before != (1,):
        count_links(database, node, kind, 1)
    database.execute("COMMIT")


def count_links(database, node, kind, change):
    database.execute(
        "INSERT INTO counttable VALUES(?, ?, 1, 0, 0)"
        " ON CONFLICT DO UPDATE SET count = max(0, count + ?), version = version + 1",
        (node, kind, change),
    )


def add_link(database, made):
    put_link(database, made, False)


def update_link(database, made):
    put_link(database, made, True)


def delete_link(database, made):
    node, kind = zipf(made, 0.741), made.choice(TYPES)
    database.execute("BEGIN IMMEDIATE")
    key = (kind, node, known_link(database, made, node, kind))
    hide = "UPDATE linktable SET visibility = 0 WHERE link_type = ? AND id1 = ? AND id2 = ? AND visibility = 1"
    if database.execute(hide, key).rowcount:
        count_links(database, node, kind, -1)
    database.execute("COMMIT")


def update_node(database, made):
    row = (made.randrange(10**9), node_data(made), zipf(made, 0.741))
    database.execute("UPDATE nodetable SET version = version + 1, time = ?, data = ? WHERE id = ?", row)


def delete_node(database, made):
    database.execute("DELETE FROM nodetable WHERE id = ?", (zipf(made, 0.741),))


# Armstrong and others 2013, table 2: parts in a thousand.
MIX = [
    (get_link_list, 507), (get_node, 129), (add_link, 90), (update_link, 80), (update_node, 74), (count_link, 49),
    (delete_link, 30), (add_node, 26), (delete_node, 10), (get_link, 5),
]


def requests(made):
    database = connect()
    chosen = made.choices([kind for kind, _ in MIX], [part for _, part in MIX], k=REQUESTS + REQUESTS // 10)
    for request in chosen[REQUESTS:]:
        request(database, made)
    before, cpu, took = written_bytes(), cpu_seconds(), []
    begun = last = time.monotonic()
    for request in chosen[:REQUESTS]:
        request(database, made)
        now = time.monotonic()
        took.append(now - last)
        last = now
    told = [last - begun, cpu_seconds() - cpu, written_bytes() - before]
    took.sort()
    slow = took[len(took) * 99 // 100]
    links = database.execute("SELECT count(*) FROM linktable WHERE visibility = 1").fetchone()
    assert database.execute("SELECT sum(count) FROM counttable").fetchone() == links, "links that were not counted"
    database.close()
    return told + [file_bytes(), slow]


made = random.Random(1000 + run)
if task == "fill":
    fill(made)
    os.sync()
    print(0, 0, 0, file_bytes(), 0)
elif task == "copy":
    copy_of("delete.db")
    os.sync()
    print(0, 0, 0, file_bytes(), 0)
elif task == "written again":
    database = connect("OFF")
    write_again(database, made)
    database.close()
    os.sync()
    print(0, 0, 0, file_bytes(), 0)
else:
    print(*requests(made))
