"""A whole home in one file, and files that claim to be one."""

import io
import json
import os
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sealmail_client.backup import BadBackup, restore_backup, write_backup
from sealmail_client.errors import HomeUnusable
from sealmail_client.home_database import HomeDatabase
from sealmail_client.household import Household
from sealmail_client.profile import ProfileInUse
from sealmail_client.settings import AuthKey, Settings
from sealmail_protocol.addresses import Transport
from sealmail_protocol.keys import KeyId

NOW = datetime(2026, 5, 1, tzinfo=UTC)
KEY_FILE = f"gnupg/private-keys-v1.d/{'A' * 40}.key"

Entries = list[tuple[tarfile.TarInfo, bytes]]


@pytest.fixture
def household(tmp_path: Path) -> Household:
    """Return a home with one identity, and things in it that stay where they are."""
    household = Household(tmp_path / "home")
    with household.building() as home:
        transport = Transport.parse("server=mail.a.example:8081")
        home.save(Settings(KeyId(b"\x01" * 20), "Amy", "amy@a.example", transport))
        home.save_auth_key(AuthKey("ABCDEFGH12345678"))
        HomeDatabase(home.database).close()
        for name in (KEY_FILE, "gnupg/gpg-agent.conf", "mail/1/message.zip", "lock"):
            path = home.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
        (home.path / "mail" / "1" / "link").symlink_to("/etc/passwd")
        household.admit(home)
    return household


def test_what_is_backed_up_comes_back(household: Household, tmp_path: Path) -> None:
    """Settings of GnuPG's programs, locks and links do not, and everything is private."""
    archive, back = tmp_path / "archive", Household(tmp_path / "back")
    tmp_path.chmod(0o755)
    content = write_backup(household, archive, NOW)
    assert archive.stat().st_mode & 0o777 == 0o600
    assert restore_backup(archive, back) == content
    assert content.identities == ("Amy <amy@a.example>",)
    names = {str(path.relative_to(back.path)) for path in back.path.rglob("*") if path.is_file()}
    kept = ("config.toml", "auth_key", "mail.sqlite", KEY_FILE, "mail/1/message.zip")
    assert names - {"1/mail.sqlite-gate"} == {f"1/{name}" for name in kept}
    assert {path.stat().st_mode & 0o077 for path in back.path.rglob("*")} == {0}
    assert back.choose().settings == household.choose().settings
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "back", "home"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_copies_of_databases_never_leave_the_home(
    household: Household, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk may be encrypted, and that of temporary files not; what was left there goes."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    left = household.path / ".backup-of-a-killed-program"
    left.mkdir()
    (left / "1.sqlite").write_text("drafts")
    write_backup(household, tmp_path / "archive", NOW)
    assert not list(household.path.glob(".backup-*"))


def test_all_that_is_restored_is_on_the_disk_before_it_has_its_name(
    household: Household, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files and directories; the gate of a database is empty, and is made again where it lacks."""
    synced, sync = set[int](), os.fsync

    def noting(handle: int) -> None:
        if not (tmp_path / "back").exists():
            synced.add(os.fstat(handle).st_ino)
        sync(handle)

    write_backup(household, tmp_path / "archive", NOW)
    monkeypatch.setattr("os.fsync", noting)
    restore_backup(tmp_path / "archive", Household(tmp_path / "back"))
    restored = [tmp_path / "back", *(tmp_path / "back").rglob("*")]
    unsynced = {path.name for path in restored if path.stat().st_ino not in synced}
    assert unsynced <= {"mail.sqlite-gate"}


def test_a_home_in_use_is_not_backed_up(household: Household, tmp_path: Path) -> None:
    """Half of a change would be in the archive."""
    with household.choose().home.locked(), pytest.raises(ProfileInUse):
        write_backup(household, tmp_path / "archive", NOW)
    assert not (tmp_path / "archive").exists()


def test_a_home_with_something_in_it_is_not_restored_into(
    household: Household, tmp_path: Path
) -> None:
    """And where nothing is, there is nothing to back up."""
    write_backup(household, tmp_path / "archive", NOW)
    with pytest.raises(HomeUnusable, match="not empty"):
        restore_backup(tmp_path / "archive", household)
    with pytest.raises(HomeUnusable, match="no identity"):
        write_backup(Household(tmp_path / "none"), tmp_path / "other", NOW)


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    """Return an entry of a hostile archive."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def adds(info: tarfile.TarInfo, content: bytes = b"") -> Callable[[Entries], Entries]:
    """Return what puts a further entry into an archive, and counts it."""
    info.size = len(content)

    def change(entries: Entries) -> Entries:
        heading = json.loads(entries[0][1])
        heading["files"] += 1
        heading["size"] += len(content)
        return [_headed(entries[0][0], heading), *entries[1:], (info, content)]

    return change


def says(**rows: object) -> Callable[[Entries], Entries]:
    """Return what changes the heading of an archive."""

    def change(entries: Entries) -> Entries:
        heading = {**json.loads(entries[0][1]), **rows}
        return [_headed(entries[0][0], heading), *entries[1:]]

    return change


def _headed(info: tarfile.TarInfo, heading: object) -> tuple[tarfile.TarInfo, bytes]:
    text = json.dumps(heading).encode()
    info.size = len(text)
    return info, text


@pytest.mark.parametrize(
    "change",
    [
        adds(entry("../outside"), b"x"),
        adds(entry("/outside"), b"x"),
        adds(entry("1/mail/1/../../../../outside"), b"x"),
        adds(entry("1//mail/1/x"), b"x"),
        adds(entry("1/mail/1/x", tarfile.SYMTYPE, "/etc/passwd")),
        adds(entry("1/mail/1/x", tarfile.LNKTYPE, "1/config.toml")),
        adds(entry("1/mail/1/x", tarfile.FIFOTYPE)),
        adds(entry("1/mail/1/x", tarfile.CHRTYPE)),
        adds(entry("1/mail/1", tarfile.DIRTYPE)),
        adds(entry("1/gnupg/gpg-agent.conf"), b"pinentry-program /tmp/evil\n"),
        adds(entry("1/gnupg/S.gpg-agent"), b"x"),
        adds(entry("1/new"), b"x"),
        adds(entry("1/mail/1/a\nb"), b"x"),
        adds(entry("1/config.toml"), b"x"),
        adds(entry("1/mail/1/message.zip/x"), b"x"),
        adds(entry("2/config.toml"), b"version = 1\n"),
        says(files=1),
        says(files=100),
        says(size=0),
        says(size=-1),
        says(size="many"),
        says(files=True),
        says(files=10**9),
        says(version=2),
        says(identities=["Eve <eve@a.example>"]),
        says(identities=5),
        lambda entries: entries[1:],
        lambda entries: [],
        lambda entries: [e for e in entries if "config" not in e[0].name],
    ],
)
def test_a_hostile_archive_is_refused_and_leaves_nothing(
    household: Household, tmp_path: Path, change: Callable[[Entries], Entries]
) -> None:
    """Names out of place, links, devices, doubles, and headings that lie."""
    archive = tmp_path / "archive"
    write_backup(household, archive, NOW)
    with tarfile.open(archive) as tar:
        entries = [(info, _content(tar, info)) for info in tar]
    with tarfile.open(archive, "w") as tar:
        for info, content in change(entries):
            tar.addfile(info, io.BytesIO(content))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BadBackup):
        restore_backup(archive, Household(tmp_path / "back"))
    assert sorted(tmp_path.iterdir()) == before


def _content(tar: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(info)
    assert file is not None
    return file.read()


@pytest.mark.parametrize("size", [0, 100, 700, 2000, -1024])
def test_noise_and_cut_archives_are_refused(
    household: Household, tmp_path: Path, size: int
) -> None:
    """Wherever the file ends."""
    archive = tmp_path / "archive"
    write_backup(household, archive, NOW)
    whole = archive.read_bytes()
    for content in (whole[: size if size >= 0 else len(whole) // 2], b"\xff" * abs(size)):
        archive.write_bytes(content)
        with pytest.raises(BadBackup):
            restore_backup(archive, Household(tmp_path / "back"))


def test_a_database_with_a_trigger_is_refused(household: Household, tmp_path: Path) -> None:
    """It would change what the user never asked to change."""
    with closing(sqlite3.connect(household.choose().home.database)) as database:
        database.execute("CREATE TRIGGER t AFTER INSERT ON pin BEGIN DELETE FROM pin; END")
    write_backup(household, tmp_path / "archive", NOW)
    with pytest.raises(BadBackup, match="database"):
        restore_backup(tmp_path / "archive", Household(tmp_path / "back"))
