"""Compressed databases for Python's sqlite3: a loadable extension with the VFS "breakeven".

    connection = sqlite3.connect(":memory:")
    connection.enable_load_extension(True)
    breakeven_sqlite.load(connection)
    database = sqlite3.connect("file:app.db?vfs=breakeven", uri=True)

The extension stays loaded when the connection that loaded it is closed.
"""

import os

__version__ = "VERSION"


def loadable_path():
    """Returns the path of the extension, without its ending, as SQLite takes it."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "libbreakeven_sqlite")


def load(connection):
    """Loads the extension by a connection that may load extensions."""
    connection.load_extension(loadable_path())


def load_as_default(connection):
    """Loads it as the VFS of databases that are opened by a plain path from now on: new ones are compressed."""
    path = loadable_path().replace("'", "''")
    connection.execute(f"SELECT load_extension('{path}', 'sqlite3_breakeven_default_init')")
