"""One archive of a whole household, and the way back from it.

What is taken is a list, not all that lies there: sockets and locks are of no use elsewhere, and
settings of GnuPG's programs could name programs to start, so nobody shall bring them in.
"""

import io
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Final

from sealmail_client.errors import ClientError, HomeUnusable
from sealmail_client.home_database import HomeDatabase
from sealmail_client.household import Household, Member
from sealmail_client.safe_files import (
    PRIVATE_DIRECTORY,
    create_private,
    make_private,
    sync_directory,
)
from sealmail_protocol.dates import format_date

FORMAT = "sealmail-backup"
VERSION = 1
MAX_FILES = 1_000_000

_NAME = re.compile(r"[^/\0\x00-\x1f]{1,255}")
_NUMBER: Final = r"[1-9][0-9]{0,5}"
_DATABASE = "mail.sqlite"
_SCRATCH: Final = ".backup-"
_TAKEN: Final = re.compile(
    rf"default|{_NUMBER}/(?:"
    r"config\.toml|auth_key(?:_old|_pub)?|revocation-certificate\.txt|revoked-key\.asc|"
    r"mail\.sqlite|"
    r"gnupg/(?:pubring\.kbx|pubring\.gpg|trustdb\.gpg|private-keys-v1\.d/[0-9A-F]{40}\.key|"
    r"openpgp-revocs\.d/[0-9A-F]{40}\.rev)|"
    r"(?:mail|outgoing|incoming)/[0-9]+/.+)",
    re.DOTALL,
)


class BadBackup(ClientError):
    """The archive is damaged, or was made to do harm: use another one."""

    exit_code = 27

    def __init__(self, reason: str) -> None:
        super().__init__(f"this is no good back-up: {reason}; nothing was restored")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class BackupContent:
    """What an archive holds."""

    made: str
    identities: tuple[str, ...]
    files: int
    size: int


def write_backup(household: Household, target: Path, now: datetime) -> BackupContent:
    """Write an archive of every identity, readable by its owner only; whole or not at all.

    Nobody works in the home meanwhile: ``ProfileInUse`` if somebody does.
    """
    with ExitStack() as stack:
        stack.enter_context(household.locked())
        members = household.members()
        if not members:
            raise HomeUnusable(f"there is no identity in {household.path} to back up")
        for member in members:
            stack.enter_context(member.home.locked())
        scratch = stack.enter_context(_scratch(household))
        files = dict(_files(household, members, scratch))
        content = BackupContent(
            format_date(now),
            tuple(member.settings.user_id for member in members),
            len(files),
            sum(path.stat().st_size for path in files.values()),
        )
        # Such files are made for their owner only.
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        partial = Path(name)
        try:
            with os.fdopen(handle, "wb") as sink:
                _write(files, content, sink)
                sink.flush()
                os.fsync(sink.fileno())
            partial.rename(target)
        finally:
            partial.unlink(missing_ok=True)
        sync_directory(target.absolute().parent)
        return content


@contextmanager
def _scratch(household: Household) -> Iterator[Path]:
    """Make a directory for copies of databases: in the home, whose disk may be the encrypted one.

    What a program that was killed left of such goes first.
    """
    for left in household.path.glob(f"{_SCRATCH}*"):
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=household.path) as name:
        yield Path(name)


def restore_backup(source: Path, household: Household) -> BackupContent:
    """Bring back what ``write_backup`` wrote, into a home that is empty or not there.

    ``BadBackup`` if anything in the archive is not as we would have written it.
    """
    if household.path.exists() and any(household.path.iterdir()):
        raise HomeUnusable(
            f"{household.path} is not empty: name another directory by --home to restore into"
        )
    parent = household.path.parent
    parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=parent) as name:
        built = Household(make_private(Path(name) / "home"))
        try:
            with tarfile.open(source, "r:") as archive:
                content = _unpack(archive, built.path, shutil.disk_usage(parent).free)
        except (tarfile.TarError, EOFError, UnicodeError, OverflowError) as error:
            raise BadBackup(f"it cannot be read ({error})") from None
        _inspect(built, content, Path(name))
        for directory in (built.path, *built.path.rglob("*/")):
            sync_directory(directory)
        if household.path.exists():
            household.path.rmdir()
        built.path.rename(household.path)
    sync_directory(parent)
    return content


def _files(
    household: Household, members: tuple[Member, ...], scratch: Path
) -> Iterator[tuple[str, Path]]:
    """Yield what is taken, by its name in the archive; databases as copies that are whole."""
    default = household.path / "default"
    if default.exists():
        yield "default", default
    for member in members:
        root = member.home.path
        copy = scratch / f"{member.number}.sqlite"
        database = HomeDatabase(member.home.database)
        try:
            database.copy_to(copy)
        finally:
            database.close()
        for path in sorted(root.rglob("*")):
            name = path.relative_to(household.path).as_posix()
            if _TAKEN.fullmatch(name) and path.is_file() and not path.is_symlink():
                yield name, copy if path == member.home.database else path


def _write(files: dict[str, Path], content: BackupContent, sink: object) -> None:
    heading = {
        "format": FORMAT,
        "version": VERSION,
        "made": content.made,
        "identities": list(content.identities),
        "files": content.files,
        "size": content.size,
    }
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        text = json.dumps(heading).encode()
        archive.addfile(_entry(FORMAT, len(text)), io.BytesIO(text))
        for name, path in files.items():
            with path.open("rb") as file:
                archive.addfile(_entry(name, path.stat().st_size), file)


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mode = 0o600
    return entry


def _unpack(archive: tarfile.TarFile, target: Path, room: int) -> BackupContent:
    """Write the files of an archive below ``target``, which is empty."""
    content = _heading(archive)
    if content.size > room:
        raise HomeUnusable(f"the back-up needs {content.size} bytes, and {room} are free")
    left, seen = content.size, 0
    while (entry := archive.next()) is not None:
        seen += 1
        left -= entry.size
        if seen > content.files or left < 0:
            raise BadBackup("it holds more than it says")
        path = target / _checked_name(entry)
        source = archive.extractfile(entry)
        if source is None:
            raise BadBackup(f"{entry.name[:80]!r} is no file")
        try:
            for directory in reversed(PurePosixPath(entry.name).parents):
                make_private(target / directory)
            with create_private(path) as file:
                shutil.copyfileobj(source, file)
                file.flush()
                # The directory gets its name when all of it is on stable storage.
                os.fsync(file.fileno())
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise BadBackup(f"{entry.name[:80]!r} is there twice") from None
        if path.stat().st_size != entry.size:
            raise BadBackup("it ends too early")
    if seen != content.files or left:
        raise BadBackup("it holds less than it says")
    return content


def _heading(archive: tarfile.TarFile) -> BackupContent:
    entry = archive.next()
    file = archive.extractfile(entry) if entry is not None and entry.isreg() else None
    if entry is None or file is None or entry.name != FORMAT or entry.size > 1024 * 1024:
        raise BadBackup("its heading is missing")
    try:
        rows = json.loads(file.read())
        if (rows["format"], rows["version"]) != (FORMAT, VERSION):
            raise BadBackup(f"its version is {rows['version']}, this program knows {VERSION}")
        content = BackupContent(
            str(rows["made"]), tuple(map(str, rows["identities"])), rows["files"], rows["size"]
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadBackup("its heading cannot be read") from None
    numbers = (content.files, content.size)
    if any(type(number) is not int or number < 0 for number in numbers):
        raise BadBackup("its heading cannot be read")
    if content.files > MAX_FILES:
        raise BadBackup(f"{content.files} files are more than {MAX_FILES}")
    return content


def _checked_name(entry: tarfile.TarInfo) -> str:
    """Return the name of an entry that is a plain file in a place of ours."""
    parts = PurePosixPath(entry.name).parts
    plain = (
        entry.isreg()
        and entry.sparse is None
        and entry.name == "/".join(parts)
        and all(_NAME.fullmatch(part) and part not in (".", "..") for part in parts)
        and len(parts) <= 16
        and _TAKEN.fullmatch(entry.name)
    )
    if not plain:
        raise BadBackup(f"{entry.name[:80]!r} has no place in a home")
    return entry.name


def _inspect(built: Household, content: BackupContent, scratch: Path) -> None:
    """Refuse identities that do not open, and databases with more in them than tables of ours."""
    fresh = HomeDatabase(scratch / _DATABASE)
    expected = fresh.table_names()
    fresh.close()
    try:
        members = built.members()
        for member in members:
            database = HomeDatabase(member.home.database)
            try:
                if database.table_names() != expected:
                    raise BadBackup(f"the database of {member.settings.address} is not ours")
            finally:
                database.close()
            if not member.home.keyring.is_dir():
                raise BadBackup(f"the key of {member.settings.address} is missing")
            if member.settings.has_account:
                member.home.load_auth_key()
    except HomeUnusable as error:
        raise BadBackup(str(error)) from None
    if tuple(member.settings.user_id for member in members) != content.identities:
        raise BadBackup("it holds other identities than it says")
