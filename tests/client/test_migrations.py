"""Settings and databases of older versions, brought up to date beside a copy of what they were."""

import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sealmail_client.errors import HomeUnusable
from sealmail_client.home_database import SCHEMA_VERSION, HomeDatabase, NewerDatabase
from sealmail_client.profile import BadProfile, Home
from sealmail_client.publishing import OwnBlocks
from sealmail_client.settings import SETTINGS_VERSION, Locked, Settings
from sealmail_protocol.blocks import BlockType

KEY = "0123456789ABCDEF0123456789ABCDEF01234567"
SETTINGS_1 = f"""version = 1
key_id = "{KEY}"
name = "Amy"
address = "amy@a.example"
transport = "server=mail.a.example:8081"
mailboxes = ["0", "1"]
price = "bd,20,2"
passphrase = true
allow_private_targets = false
"""
# The tables of version 1 that a later step touches.
SCHEMA_1 = """
CREATE TABLE pin (way TEXT PRIMARY KEY, pin BLOB NOT NULL, first_seen TEXT NOT NULL) STRICT;
CREATE TABLE known_key (
    address TEXT NOT NULL, key_id TEXT NOT NULL, decision TEXT NOT NULL, first_seen TEXT NOT NULL,
    PRIMARY KEY (address, key_id)
) STRICT;
CREATE TABLE own_block (
    type TEXT PRIMARY KEY, date TEXT NOT NULL, posted TEXT, block BLOB NOT NULL
) STRICT;
CREATE TABLE capability (server TEXT PRIMARY KEY, asked TEXT NOT NULL, names TEXT NOT NULL) STRICT;
CREATE TABLE incoming (id INTEGER PRIMARY KEY) STRICT;
CREATE TABLE outgoing (id INTEGER PRIMARY KEY, draft TEXT NOT NULL) STRICT;
CREATE TABLE outgoing_recipient (message INTEGER NOT NULL, key_id TEXT NOT NULL) STRICT;
CREATE TABLE mail (
    id INTEGER PRIMARY KEY, recipients TEXT NOT NULL, sender_key TEXT NOT NULL,
    signature TEXT NOT NULL
) STRICT;
INSERT INTO mail VALUES (1, '', 'AA', 'valid'), (2, '', 'BB', 'invalid');
INSERT INTO own_block VALUES
    ('key-announcement', '2026-05-01T00:00:00Z', '2026-05-01T00:00:05Z', x'00'),
    ('address-claim', '2026-05-01T00:00:00Z', NULL, x'00');
PRAGMA user_version = 1;
"""


def test_settings_of_version_1_are_read_and_rewritten(tmp_path: Path) -> None:
    """The file as it was stays beside the new one."""
    home = Home(tmp_path)
    home.settings_file.write_text(SETTINGS_1)
    settings = home.load()
    assert settings.passphrase is Locked.PASSPHRASE
    assert list(settings.places) == ["home"]
    assert f"version = {SETTINGS_VERSION}" in home.settings_file.read_text()
    assert (tmp_path / "config.toml.version-1").read_text() == SETTINGS_1
    assert home.load() == settings
    assert Settings.from_toml(settings.to_toml()) == settings


@pytest.mark.parametrize("version", ["0", str(SETTINGS_VERSION + 1), '"1"', "true"])
def test_settings_of_an_unknown_version_are_not_touched(tmp_path: Path, version: str) -> None:
    """A newer program may have written them."""
    home = Home(tmp_path)
    text = SETTINGS_1.replace("version = 1", f"version = {version}")
    home.settings_file.write_text(text)
    with pytest.raises(BadProfile, match="this program knows"):
        home.load()
    assert home.settings_file.read_text() == text


def test_a_database_of_version_1_is_migrated_beside_a_copy(tmp_path: Path) -> None:
    """What was posted at home is still known to be."""
    path = tmp_path / "mail.sqlite"
    with closing(sqlite3.connect(path)) as planted:
        planted.executescript(SCHEMA_1)
    database = HomeDatabase(path)
    own = OwnBlocks(database)
    assert own.posted(BlockType.KEY_ANNOUNCEMENT) is not None
    assert own.posted(BlockType.ADDRESS_CLAIM) is None
    assert not own.revoked
    row = database.row("PRAGMA user_version")
    assert row is not None
    assert row[0] == SCHEMA_VERSION
    signers = [tuple(mail) for mail in database.rows("SELECT signer, signed_at FROM mail")]
    assert signers == [("AA", None), (None, None)]
    database.close()
    copy = tmp_path / "mail.sqlite.version-1"
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as former:
        assert former.execute("PRAGMA user_version").fetchone() == (1,)
        assert former.execute("SELECT count(*) FROM own_block").fetchone() == (2,)
    HomeDatabase(path).close()


def test_a_step_that_fails_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    """Here a table is missing that the step changes."""
    path = tmp_path / "mail.sqlite"
    with closing(sqlite3.connect(path)) as planted:
        planted.executescript("CREATE TABLE pin (way TEXT); PRAGMA user_version = 1;")
    with pytest.raises(Exception, match="restore it from a back-up"):
        HomeDatabase(path)
    with closing(sqlite3.connect(path)) as left:
        assert left.execute("PRAGMA user_version").fetchone() == (1,)
        assert left.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (1,)


def test_a_disk_that_is_full_is_not_the_fault_of_the_database(tmp_path: Path) -> None:
    """No back-up mends that; a file that is none of ours is another thing."""
    path = tmp_path / "mail.sqlite"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(sqlite3.OperationalError):
            HomeDatabase(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    HomeDatabase(path).close()
    path.write_bytes(b"no database " * 100)
    with pytest.raises(HomeUnusable, match="restore it from a back-up"):
        HomeDatabase(path)


def test_a_database_of_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    """What its rows mean is not known here."""
    path = tmp_path / "mail.sqlite"
    with closing(sqlite3.connect(path)) as planted:
        planted.executescript(f"PRAGMA user_version = {SCHEMA_VERSION + 1};")
    with pytest.raises(NewerDatabase, match="use the newer sealmail"):
        HomeDatabase(path)
