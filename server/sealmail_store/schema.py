"""The index file: its tables, its version, and how a connection to it is set up.

Any SQLite from 3.37 on can read the file beside a running server, when it opens it read-only.
"""

from pathlib import Path

import apsw

from sealmail_store.errors import NewerSchema, NotAStore

INDEX_NAME = "index.sqlite"

# Tells our files from other SQLite files: "SLML".
APPLICATION_ID = 0x534C4D4C

# Dates are seconds since 1970 UTC. An entry whose data is NULL though it has a size keeps its
# bytes in data/AB/CD/<KEY>. The large columns come last, so that scans need not read them.
_VERSION_1 = """
CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    type TEXT NOT NULL,
    key BLOB NOT NULL CHECK (length(key) = 20),
    identity BLOB NOT NULL,
    date INTEGER NOT NULL,
    size INTEGER NOT NULL,
    stamp_bits INTEGER NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    poster TEXT,
    revoked INTEGER NOT NULL,
    header BLOB NOT NULL,
    data BLOB,
    UNIQUE (type, key, identity)
) STRICT;
CREATE INDEX entries_in_files ON entries (key) WHERE data IS NULL AND size > 0;
CREATE TABLE verdicts (
    digest BLOB NOT NULL UNIQUE,
    text TEXT NOT NULL,
    kept_until INTEGER NOT NULL
) STRICT;
CREATE INDEX verdicts_by_age ON verdicts (kept_until);
CREATE TABLE accounts (
    auth_key_hash BLOB NOT NULL UNIQUE CHECK (length(auth_key_hash) = 32),
    userid TEXT COLLATE NOCASE,
    state TEXT NOT NULL,
    created INTEGER NOT NULL,
    changed INTEGER NOT NULL
) STRICT;
CREATE INDEX accounts_by_userid ON accounts (userid);
CREATE TABLE settings (
    name TEXT NOT NULL UNIQUE,
    value TEXT NOT NULL
) STRICT;
"""

# The script at place n leads from schema n to schema n + 1; none is ever edited.
_STEPS = (_VERSION_1,)
SCHEMA_VERSION = len(_STEPS)


def open_writer(path: Path) -> apsw.Connection:
    """Open the one writing connection, bringing an empty or older file to our schema.

    Refuses a newer schema and a foreign file without changing them.
    """
    connection = apsw.Connection(str(path))
    try:
        version = _check_version(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        with connection:
            for step, script in enumerate(_STEPS[version:], start=version + 1):
                connection.execute(script)
                connection.execute(f"PRAGMA user_version = {step}")
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> apsw.Connection:
    """Open a connection that can neither write nor checkpoint."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    # A reader waits only while the writer restarts the log.
    connection.set_busy_timeout(10_000)
    return connection


def _check_version(connection: apsw.Connection, path: Path) -> int:
    """Return the schema version of the file, 0 for an empty one."""
    try:
        application = connection.pragma("application_id")
        version = connection.pragma("user_version")
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    except apsw.NotADBError as error:
        raise NotAStore(path) from error
    if application != APPLICATION_ID and (application, version, tables) != (0, 0, 0):
        raise NotAStore(path)
    if version > SCHEMA_VERSION:
        raise NewerSchema(path, version, SCHEMA_VERSION)
    return int(version)
