"""The index file: its tables, its version, and how a connection to it is set up.

Any SQLite from 3.37 on can read the file beside a running server, when it opens it read-only.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import apsw

from sealmail_store.errors import NewerSchema, NotAStore
from sealmail_store.safe_files import PRIVATE_FILE, sync_directory

INDEX_NAME = "index.sqlite"

# Tells our files from other SQLite files: "SLML".
APPLICATION_ID = 0x534C4D4C

# Pages that the writer keeps at hand; the usual 2 MiB would be read again for every mail.
_WRITER_CACHE_KIB = 64 * 1024

# Dates are seconds since 1970 UTC. An entry whose data is NULL though it has a size keeps its
# bytes in data/AB/CD/<KEY>. The large columns come last, so that scans need not read them.
# Verdicts and nonces all live about as long, so the oldest rows are the first to go and need no
# index by age. spaces holds running sums, kept in the transaction that changes what they count.
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
    holder BLOB NOT NULL,
    paid INTEGER NOT NULL,
    source TEXT NOT NULL,
    header BLOB NOT NULL,
    data BLOB,
    UNIQUE (type, key, identity)
) STRICT;
CREATE INDEX entries_by_age ON entries (type, date);
CREATE INDEX entries_in_files ON entries (key) WHERE data IS NULL AND size > 0;
CREATE INDEX announcements_by_digest ON entries (digest) WHERE type = 'message-announcement';
CREATE TABLE named_data (
    key BLOB NOT NULL,
    holder BLOB NOT NULL,
    entry INTEGER NOT NULL,
    PRIMARY KEY (key, holder, entry)
) STRICT, WITHOUT ROWID;
CREATE INDEX named_data_by_entry ON named_data (entry);
CREATE TABLE spaces (
    name TEXT NOT NULL PRIMARY KEY,
    entries INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE waiting (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    awaits BLOB NOT NULL,
    key BLOB NOT NULL CHECK (length(key) = 20),
    poster TEXT,
    source TEXT NOT NULL,
    replicated INTEGER NOT NULL,
    until INTEGER NOT NULL,
    header BLOB NOT NULL
) STRICT;
CREATE INDEX waiting_by_awaited ON waiting (awaits, id);
CREATE INDEX waiting_by_age ON waiting (until);
CREATE TABLE tombstones (
    key BLOB NOT NULL,
    digest BLOB NOT NULL,
    identity BLOB NOT NULL,
    until INTEGER NOT NULL,
    UNIQUE (key, digest)
) STRICT;
CREATE INDEX tombstones_by_identity ON tombstones (key, identity);
CREATE INDEX tombstones_by_age ON tombstones (until);
CREATE TABLE used_nonces (
    nonce TEXT NOT NULL UNIQUE,
    identity BLOB NOT NULL,
    until INTEGER NOT NULL
) STRICT;
CREATE TABLE terms (
    holder BLOB NOT NULL,
    announced INTEGER NOT NULL,
    mailboxes TEXT NOT NULL,
    price TEXT NOT NULL,
    ended INTEGER
) STRICT;
CREATE INDEX terms_by_holder ON terms (holder, announced);
CREATE TABLE verdicts (
    digest BLOB NOT NULL UNIQUE,
    text TEXT NOT NULL,
    kept_until INTEGER NOT NULL
) STRICT;
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

# Rows of the queue are numbered once and for all: whoever has told a row finishes that one, not a
# later one in its place. A row that was never put off has 0 in not_before, so that the index of
# what waits gives those first, in their order. A block to be proxied is held under the type
# 'proxied' with its digest as its identity, as long as a row names it.
_VERSION_2 = """
CREATE TABLE queue (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    type TEXT NOT NULL,
    key BLOB,
    entry INTEGER,
    destination TEXT NOT NULL,
    not_before INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    state TEXT NOT NULL,
    code TEXT NOT NULL,
    queued INTEGER NOT NULL,
    last INTEGER,
    owner TEXT,
    line INTEGER,
    content BLOB NOT NULL
) STRICT;
CREATE INDEX queue_waiting ON queue (kind, not_before, number) WHERE state = 'waiting';
CREATE INDEX queue_by_digest ON queue (digest);
CREATE INDEX queue_by_owner ON queue (owner, number) WHERE owner IS NOT NULL;
CREATE INDEX queue_settled ON queue (last) WHERE state != 'waiting';
"""

# The key that a server has shown on one way to it, and the one it showed before.
_VERSION_3 = """
CREATE TABLE server_keys (
    way TEXT NOT NULL UNIQUE,
    pin BLOB NOT NULL CHECK (length(pin) = 32),
    since INTEGER NOT NULL,
    before BLOB
) STRICT;
"""

# What the DHT has a node keep, apart from the blocks of its own users. `distance` is that of the
# key from the node's id, as bytes that compare like the number.
_VERSION_4 = """
CREATE TABLE dht_values (
    id INTEGER PRIMARY KEY,
    key BLOB NOT NULL CHECK (length(key) = 20),
    type TEXT NOT NULL,
    identity BLOB NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    date INTEGER NOT NULL,
    stamp_bits INTEGER NOT NULL,
    revoked INTEGER NOT NULL,
    distance BLOB NOT NULL,
    source TEXT NOT NULL,
    ours INTEGER NOT NULL,
    size INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (key, type, identity)
) STRICT;
CREATE INDEX dht_values_by_distance ON dht_values (distance) WHERE ours = 0;
CREATE INDEX dht_values_ours ON dht_values (key) WHERE ours = 1;
CREATE INDEX dht_values_by_age ON dht_values (type, date);
CREATE INDEX dht_values_by_source ON dht_values (source, size);
"""

# Until when a value of the DHT is kept: its own age, or that of the key that it travels with. How
# many there are and their bytes are running sums, of each source and, under '*', of all. What is
# here already stays as long as its type is kept. A value that waits was given here, and others do
# not keep it yet; if it is ours too, a user gave it, and it never makes room.
_VERSION_5 = """
ALTER TABLE dht_values ADD COLUMN until INTEGER NOT NULL DEFAULT 0;
UPDATE dht_values SET until = date + 86400 * CASE
    WHEN revoked THEN 400 WHEN type = 'key-announcement' THEN 31 ELSE 10 END;
ALTER TABLE dht_values ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;
UPDATE dht_values SET waits = ours;
DROP INDEX dht_values_by_age;
DROP INDEX dht_values_ours;
CREATE INDEX dht_values_waiting ON dht_values (key) WHERE waits = 1;
CREATE INDEX dht_values_by_end ON dht_values (until);
CREATE INDEX dht_values_by_digest ON dht_values (key, digest, until);
CREATE TABLE dht_shares (
    source TEXT NOT NULL PRIMARY KEY,
    entries INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO dht_shares SELECT source, count(*), sum(size) FROM dht_values GROUP BY source;
INSERT INTO dht_shares SELECT '*', count(*), coalesce(sum(size), 0) FROM dht_values;
"""

# A row that a user may ask for is told from the others of its block by a random ticket, here and
# at the partner. Rows of before get the same one on both servers of a pair.
_VERSION_6 = """
ALTER TABLE queue ADD COLUMN ticket TEXT NOT NULL DEFAULT '';
UPDATE queue SET ticket = printf('%012x%04x', queued, line) WHERE owner IS NOT NULL;
"""

# Two rows of one block, user, second and line had the same ticket: it begins with their rank now.
# What tells the partner of a drop, or was told by it, may be older than the identities in both:
# the tombstone knows that, or the digest alone has to do. Before it stands a date of 20 letters.
_VERSION_7 = """
UPDATE queue SET ticket = printf('%04x', twins.rank) || substr(ticket, 5) FROM (
    SELECT number AS twin, row_number() OVER
        (PARTITION BY digest, owner, ticket ORDER BY number) - 1 AS rank
    FROM queue WHERE owner IS NOT NULL
) AS twins WHERE number = twins.twin AND twins.rank > 0;
UPDATE tombstones SET identity = digest WHERE identity = x'';
UPDATE queue SET content = CAST(substr(content, 1, 20) || ' ' || lower(hex(coalesce(
    (SELECT identity FROM tombstones t WHERE t.key = queue.key AND t.digest = queue.digest),
    digest))) AS BLOB) WHERE kind = 'tombstone' AND length(content) < 22;
"""

# The script at place n leads from schema n to schema n + 1; none is edited once released.
STEPS = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5, _VERSION_6, _VERSION_7)


def open_writer(path: Path, steps: Sequence[str] = STEPS) -> apsw.Connection:
    """Open the one writing connection, bringing an empty or older file to our schema.

    An older file is first copied to ``<name>.schema-N``, which stays until somebody removes
    it. Refuses a newer schema and a foreign file without changing them.
    """
    connection = apsw.Connection(str(path))
    try:
        version = check_index(connection, path, len(steps))
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KIB}")
        # What a unit may have to undo is small; by default it would go through a file.
        connection.execute("PRAGMA temp_store = MEMORY")
        if 0 < version < len(steps):
            copy_index(connection, path.with_name(f"{path.name}.schema-{version}"))
        with connection:
            for step, script in enumerate(steps[version:], start=version + 1):
                connection.execute(script)
                connection.execute(f"PRAGMA user_version = {step}")
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    except BaseException:
        connection.close()
        raise
    return connection


def copy_index(connection: apsw.Connection, target: Path) -> None:
    """Write the state that ``connection`` sees to ``target``, durably and all or nothing."""
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    connection.execute("VACUUM INTO ?", (str(partial),))
    with partial.open("rb+") as file:
        os.fchmod(file.fileno(), PRIVATE_FILE)
        os.fsync(file.fileno())
    partial.replace(target)
    sync_directory(target.parent)


def open_reader(path: Path) -> apsw.Connection:
    """Open a connection that can neither write nor checkpoint."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    # A reader waits only while the writer restarts the log.
    connection.set_busy_timeout(10_000)
    return connection


def check_index(connection: apsw.Connection, path: Path, known: int = len(STEPS)) -> int:
    """Return the schema version of the file, 0 for an empty one; refuse what is not ours."""
    try:
        application = connection.pragma("application_id")
        version = connection.pragma("user_version")
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    except apsw.NotADBError as error:
        raise NotAStore(path) from error
    if application != APPLICATION_ID and (application, version, tables) != (0, 0, 0):
        raise NotAStore(path)
    if version > known:
        raise NewerSchema(path, version, known)
    return int(version)
