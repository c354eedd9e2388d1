"""The user's directory: settings, auth key, database and lock, and every refusal's way out."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from tests.client.samples import AMY

from sealmail_client.desk import open_desk
from sealmail_client.errors import HomeUnusable
from sealmail_client.home_database import HomeDatabase, NewerDatabase
from sealmail_client.profile import BadProfile, Home, NoProfile, ProfileInUse
from sealmail_client.settings import SETTINGS_VERSION, AuthKey, Locked, Settings
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import Transport

VERSION = f"version = {SETTINGS_VERSION}"
SETTINGS = Settings(
    AMY,
    'Amy "the\tAlien" \\ Ä',
    "amy@a.example",
    Transport.parse("server=a.example:8081,[::1]:8082"),
    ("0", "x"),
    Difficulty(20, 3),
    passphrase=Locked.NOTHING,
    allow_private_targets=True,
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return a home with settings and auth key."""
    home = Home(tmp_path / "home")
    with home.locked():
        home.save(SETTINGS)
        home.save_auth_key(AuthKey("0123456789abcdef"))
    return home


def test_settings_are_the_same_after_toml(home: Home) -> None:
    """Whatever the name is made of; only their owner reads them."""
    assert home.load() == SETTINGS
    assert Settings.from_toml(SETTINGS.to_toml()) == SETTINGS
    for path in (home.path, home.settings_file, home.auth_file, home.incoming, home.mail):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (VERSION, f"version = {SETTINGS_VERSION + 1}", f"version {SETTINGS_VERSION + 1}"),
        (VERSION, f"{VERSION}\ncolour = 1", "unknown setting colour"),
        ('passphrase = "none"', "", "no setting passphrase"),
        ('passphrase = "none"', 'passphrase = "some"', "none of none, ask, agent"),
        ("private_targets = true", "private_targets = 0", "neither true nor false"),
        ('address = "amy@a.example"', 'address = "Amy@a.example"', "lower case"),
        ('address = "amy@a.example"', "address = 1", "not a text"),
        ('"bd,20,3"', '"bd,999,3"', "bits"),
        ("server=a.example:8081,[::1]:8082", "entangled", "server is needed"),
        ("doors = []", "doors = [1]", "not a list of servers"),
        (VERSION, "version = ", "value"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(
    home: Home, old: str, new: str, reason: str
) -> None:
    """The error names the file and what is wrong in it."""
    text = home.settings_file.read_text()
    assert old in text
    home.settings_file.write_text(text.replace(old, new))
    with pytest.raises(BadProfile, match=reason) as caught:
        home.load()
    assert str(home.settings_file) in str(caught.value)


def test_names_that_would_break_lines_are_refused() -> None:
    """Brackets and line ends belong to no name."""
    for name in ("", "  ", "a\nb", "a <b>"):
        with pytest.raises(ValueError, match="name"):
            replace(SETTINGS, name=name)


def test_an_auth_key_is_shown_by_no_repr_and_refused_if_it_is_none(home: Home) -> None:
    """A missing or damaged file is named."""
    assert "0123456789abcdef" not in repr(home.load_auth_key())
    assert home.load_auth_key().text == "0123456789abcdef"
    home.auth_file.write_text("short")
    with pytest.raises(BadProfile, match="letters and digits"):
        home.load_auth_key()
    home.auth_file.unlink()
    with pytest.raises(BadProfile, match="put the auth key into it"):
        home.load_auth_key()


def test_a_home_without_identity_is_missed_with_a_hint(tmp_path: Path) -> None:
    """The refusal tells what to do."""
    with pytest.raises(NoProfile, match="sealmail init"):
        Home(tmp_path / "empty").load()


def test_one_program_at_a_time_works_in_a_home(home: Home) -> None:
    """Others may look; the lock is free again at the end."""
    for _ in range(2):
        with open_desk(home, alone=True) as desk:
            assert "0123456789abcdef" not in repr(desk)
            with pytest.raises(ProfileInUse, match="wait"), open_desk(home, alone=True):
                pass
            with open_desk(home, alone=False) as visitor:
                assert visitor.outbox.all() == ()


def write_twice(database: HomeDatabase) -> None:
    """Write a row, and fail at writing it again."""
    with database.unit():
        for _ in range(2):
            database.write("INSERT INTO pin (way, pin, first_seen) VALUES ('lost', x'00', '')")


def test_a_database_is_private_and_keeps_what_was_committed(tmp_path: Path) -> None:
    """What fails within a unit leaves nothing."""
    path = tmp_path / "mail.sqlite"
    database = HomeDatabase(path)
    with pytest.raises(sqlite3.IntegrityError):
        write_twice(database)
    with database.unit():
        database.write("INSERT INTO pin (way, pin, first_seen) VALUES ('kept', x'00', '')")
    database.close()
    again = HomeDatabase(path)
    assert [row["way"] for row in again.rows("SELECT * FROM pin")] == ["kept"]
    again.close()
    assert path.stat().st_mode & 0o077 == 0


def test_a_database_that_cannot_be_read_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    """One of a newer program, and one that is none."""
    path = tmp_path / "mail.sqlite"
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(NewerDatabase, match="newer sealmail"):
        HomeDatabase(path)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(HomeUnusable, match="back-up"):
        HomeDatabase(path)
