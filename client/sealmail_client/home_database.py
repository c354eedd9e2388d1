"""The one SQLite file of a home, and its schema; what the rows mean is said by their owners.

A commit is one sync of a write-ahead log, where a rollback journal needs five: sending a short
mail is some eight commits.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sealmail_client.errors import HomeUnusable
from sealmail_client.safe_files import create_private

_FIRST_SCHEMA = """
CREATE TABLE pin (
    way TEXT PRIMARY KEY,              -- such as direct host:port
    pin BLOB NOT NULL,                 -- digest of the server's public key
    first_seen TEXT NOT NULL
) STRICT;
CREATE TABLE capability (
    server TEXT PRIMARY KEY,
    asked TEXT NOT NULL,
    names TEXT NOT NULL                -- lines as the server gave them
) STRICT;
CREATE TABLE announcement (
    key_id TEXT PRIMARY KEY,
    date TEXT NOT NULL,
    revoked INTEGER NOT NULL,
    block BLOB NOT NULL
) STRICT;
CREATE TABLE own_block (
    type TEXT PRIMARY KEY,             -- key-announcement, address-claim
    date TEXT NOT NULL,
    posted TEXT,                       -- when the home server took it
    block BLOB NOT NULL
) STRICT;
CREATE TABLE known_key (
    address TEXT NOT NULL,
    key_id TEXT NOT NULL,
    decision TEXT NOT NULL,            -- trusted, undecided, rejected
    first_seen TEXT NOT NULL,
    PRIMARY KEY (address, key_id)
) STRICT;
CREATE TABLE outgoing (
    id INTEGER PRIMARY KEY,
    composed TEXT NOT NULL,
    draft TEXT NOT NULL,               -- JSON
    date TEXT,                         -- of all its blocks
    message_hash TEXT,
    filed INTEGER NOT NULL DEFAULT 0   -- whether a copy is among the sent mail
) STRICT;
CREATE TABLE outgoing_data (
    message INTEGER NOT NULL REFERENCES outgoing ON DELETE CASCADE,
    position INTEGER NOT NULL,
    key TEXT NOT NULL,
    size INTEGER NOT NULL,
    header BLOB,                       -- once stamped
    PRIMARY KEY (message, position)
) STRICT;
CREATE TABLE outgoing_recipient (
    message INTEGER NOT NULL REFERENCES outgoing ON DELETE CASCADE,
    key_id TEXT NOT NULL,
    address TEXT NOT NULL,
    state TEXT NOT NULL,               -- composed, sealed, stamped, sent, acknowledged, expired
    reason TEXT NOT NULL DEFAULT '',   -- of the last failure, or why it ended
    ack_key TEXT,                      -- where the acknowledgment will be
    announcement BLOB,
    server TEXT,                       -- which took it
    sent TEXT,
    acknowledged TEXT,
    PRIMARY KEY (message, key_id)
) STRICT;
CREATE TABLE mailbox (
    name TEXT PRIMARY KEY,
    newest TEXT NOT NULL,              -- Date seen
    full_get TEXT NOT NULL             -- when all entries were last asked for
) STRICT;
CREATE TABLE incoming (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,       -- of the message hash and the data blocks
    message_hash TEXT NOT NULL,
    date TEXT NOT NULL,
    bits INTEGER NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    announcement BLOB NOT NULL,
    mail INTEGER,                      -- where it is filed
    ack_secret BLOB,                   -- until it is acknowledged
    ack_servers TEXT,
    ack_block BLOB
) STRICT;
CREATE TABLE mail (
    id INTEGER PRIMARY KEY,
    folder TEXT NOT NULL,
    unique_id TEXT NOT NULL,
    message_hash TEXT NOT NULL,
    sender TEXT NOT NULL,
    sender_key TEXT NOT NULL,
    recipients TEXT NOT NULL,
    subject TEXT NOT NULL,
    date TEXT NOT NULL,
    filed TEXT NOT NULL,
    signature TEXT NOT NULL,
    signature_digest BLOB NOT NULL,
    remark TEXT NOT NULL,
    checked TEXT NOT NULL,
    unread INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX mail_once ON mail (folder, sender_key, unique_id, signature_digest);
"""

_SIGHTINGS = """
ALTER TABLE known_key ADD COLUMN last_seen TEXT;  -- to claim the address
ALTER TABLE known_key ADD COLUMN seen_at TEXT NOT NULL DEFAULT '';  -- by which source
ALTER TABLE known_key ADD COLUMN change TEXT NOT NULL DEFAULT '';  -- what stops mail to it
UPDATE known_key SET last_seen = first_seen;
ALTER TABLE pin ADD COLUMN previous BLOB;  -- the pin before this one
"""

_OWN_PLACES = """
CREATE TABLE own_posting (
    type TEXT NOT NULL,                -- key-announcement, address-claim
    place TEXT NOT NULL,               -- home, old, pub
    date TEXT NOT NULL,                -- of the block that was taken there
    posted TEXT NOT NULL,
    PRIMARY KEY (type, place)
) STRICT;
INSERT INTO own_posting SELECT type, 'home', date, posted FROM own_block WHERE posted IS NOT NULL;
ALTER TABLE own_block DROP COLUMN posted;
CREATE TABLE revocation (
    date TEXT NOT NULL                 -- when the user revoked his key; there is one row or none
) STRICT;
CREATE TABLE former_terms (
    ended TEXT NOT NULL,               -- when other terms were published
    price TEXT NOT NULL,
    mailboxes TEXT NOT NULL            -- with commas between them
) STRICT;
"""

_TRIES = """
ALTER TABLE outgoing_recipient ADD COLUMN tries INTEGER NOT NULL DEFAULT 0;  -- that failed
ALTER TABLE outgoing_recipient ADD COLUMN next_try TEXT;  -- not before this; NULL is at once
CREATE TABLE outgoing_taken (          -- which server holds which data block
    message INTEGER NOT NULL REFERENCES outgoing ON DELETE CASCADE,
    position INTEGER NOT NULL,
    server TEXT NOT NULL,
    PRIMARY KEY (message, position, server)
) STRICT;
ALTER TABLE incoming ADD COLUMN wanted INTEGER NOT NULL DEFAULT 0;  -- the user asked for it
ALTER TABLE capability ADD COLUMN ahead INTEGER NOT NULL DEFAULT 0;  -- seconds, of our clock
"""

_WRITING = """
ALTER TABLE outgoing ADD COLUMN copy_of INTEGER;  -- the first copy of the same mail
ALTER TABLE mail ADD COLUMN hidden TEXT NOT NULL DEFAULT '';  -- Bcc recipients
ALTER TABLE mail ADD COLUMN original INTEGER;  -- the mail that is forwarded in it
CREATE TABLE bypass_given (
    id INTEGER PRIMARY KEY,
    key_id TEXT NOT NULL,              -- who may pay with it
    secret BLOB NOT NULL,
    created TEXT NOT NULL,
    revoked INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE bypass_accepted (
    since TEXT NOT NULL                -- as it is published; there is one row or none
) STRICT;
CREATE TABLE bypass_received (
    key_id TEXT PRIMARY KEY,           -- whom it pays
    secret BLOB NOT NULL,
    created TEXT NOT NULL,
    expires TEXT                       -- none: never
) STRICT;
CREATE TABLE blocked (
    key_id TEXT PRIMARY KEY,
    since TEXT NOT NULL
) STRICT;
"""

_HINTS = """
CREATE TABLE server_failure (
    server TEXT PRIMARY KEY,
    failed TEXT NOT NULL               -- since when it has not served
) STRICT;
"""

_PROXY = """
ALTER TABLE outgoing ADD COLUMN after TEXT;  -- the home server is to hold it until then
CREATE TABLE proxied (                 -- what the home server was given to deliver
    id INTEGER PRIMARY KEY,
    message INTEGER REFERENCES outgoing ON DELETE CASCADE,
    key_id TEXT,                       -- of an announcement: for whom
    mail INTEGER,                      -- of an acknowledgment: for what
    type TEXT NOT NULL,
    digest BLOB NOT NULL,
    line INTEGER NOT NULL,             -- which Post-To line; 0 if that cannot be told
    target TEXT NOT NULL,
    handed TEXT NOT NULL,
    state TEXT NOT NULL,
    code TEXT NOT NULL DEFAULT '-',
    demand TEXT,
    queued TEXT NOT NULL DEFAULT '',   -- the Date of the server's row that was seen last
    last TEXT,
    stale TEXT NOT NULL DEFAULT '',    -- rows until then are of an earlier try
    UNIQUE (digest, target)
) STRICT;
CREATE INDEX proxied_message ON proxied (message);
"""

_DOMAINS = """
CREATE TABLE txt_answer (
    asked TEXT NOT NULL,               -- who: the home server, or a resolver
    name TEXT NOT NULL,
    until TEXT NOT NULL,               -- asked again then
    texts TEXT NOT NULL,               -- JSON; none is an answer too
    PRIMARY KEY (asked, name)
) STRICT;
"""

_MARKS = """
ALTER TABLE known_key ADD COLUMN domain_verified TEXT;  -- when its domain last vouched for it
ALTER TABLE txt_answer ADD COLUMN signed INTEGER NOT NULL DEFAULT 0;  -- DNSSEC says so
"""

_SIGNERS = """
ALTER TABLE mail ADD COLUMN signer TEXT;  -- the key that made the signature, if that is known
ALTER TABLE mail ADD COLUMN signed_at TEXT;  -- as the signature says
UPDATE mail SET signer = sender_key WHERE signature = 'valid';
"""

_PRICE_LIMITS = """
ALTER TABLE outgoing_recipient ADD COLUMN max_price TEXT;  -- that the user agreed to pay
"""

_OPENINGS = """
ALTER TABLE incoming ADD COLUMN tries INTEGER NOT NULL DEFAULT 0;  -- to open it, in vain
ALTER TABLE incoming ADD COLUMN next_try TEXT;
"""

# Step n leads from version n to n + 1; what was released is never edited.
_STEPS = (
    _FIRST_SCHEMA,
    _SIGHTINGS,
    _OWN_PLACES,
    _TRIES,
    _WRITING,
    _HINTS,
    _DOMAINS,
    _PROXY,
    _MARKS,
    _SIGNERS,
    _PRICE_LIMITS,
    _OPENINGS,
)
SCHEMA_VERSION = len(_STEPS)


class NewerDatabase(HomeUnusable):
    """The directory was last used by a newer sealmail: use that one."""


# What a sound file may meet: a full disk, a missing permission, another program. No back-up
# mends that.
_OF_THE_MACHINE = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)
# Extended codes have the primary one in their lowest byte.
_PRIMARY = 0xFF


class _Gate:
    """Lets one program at a time commit or move the log into the file.

    SQLite orders commits by itself, but before 3.51.3 a commit of one connection while another
    moves the log could damage the file, and most systems still have an older one.
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._depth = 0

    def __enter__(self) -> None:
        if self._depth == 0:
            fcntl.flock(self._handle, fcntl.LOCK_EX)
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let the gate go."""
        os.close(self._handle)


class HomeDatabase:
    """The open file; ``unit`` makes what is written in it one commit.

    A file of an older version is brought up to date, after a copy of it was left beside it.
    """

    def __init__(self, path: Path) -> None:
        self._gate = _Gate(path.with_name(f"{path.name}-gate"))
        try:
            self._connection = sqlite3.connect(path, isolation_level=None)
        except BaseException:
            self._gate.close()
            raise
        try:
            path.chmod(0o600)
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("PRAGMA synchronous = EXTRA")
            self._connection.execute("PRAGMA foreign_keys = ON")
            with self._gate:
                self._migrate(path)
                self._connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            self.close()
            if getattr(error, "sqlite_errorcode", 0) & _PRIMARY in _OF_THE_MACHINE:
                raise
            raise HomeUnusable(f"{path}: {error}; restore it from a back-up") from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let the file go."""
        with self._gate:
            self._connection.close()
        self._gate.close()

    @contextmanager
    def unit(self) -> Iterator[None]:
        """Commit all or nothing of what is written inside, on stable storage."""
        with self._gate:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def write(self, statement: str, *values: object) -> int:
        """Run one statement; return the id of the row it made."""
        with self._gate:
            return self._connection.execute(statement, values).lastrowid or 0

    def rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        """Return what ``query`` finds."""
        return self._connection.execute(query, values).fetchall()

    def row(self, query: str, *values: object) -> sqlite3.Row | None:
        """Return the first row that ``query`` finds, if any."""
        found: sqlite3.Row | None = self._connection.execute(query, values).fetchone()
        return found

    def copy_to(self, path: Path) -> None:
        """Write the whole content to another file, in the place of what is there."""
        path.unlink(missing_ok=True)
        create_private(path).close()
        with closing(sqlite3.connect(path)) as copy:
            self._connection.backup(copy)

    def table_names(self) -> frozenset[str]:
        """Return the kind and name of everything in the schema."""
        rows = self.rows("SELECT type, name FROM sqlite_schema")
        return frozenset(f"{row['type']} {row['name']}" for row in rows)

    def _migrate(self, path: Path) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise NewerDatabase(
                f"{path} has schema {version}, this program knows {SCHEMA_VERSION}: "
                "use the newer sealmail that wrote it"
            )
        if 0 < version < SCHEMA_VERSION:
            self.copy_to(path.with_name(f"{path.name}.version-{version}"))
        for number, step in enumerate(_STEPS[version:], start=version + 1):
            # executescript commits by itself: the transaction stands inside the script.
            self._connection.executescript(
                f"BEGIN IMMEDIATE; {step} PRAGMA user_version = {number}; COMMIT;"
            )
