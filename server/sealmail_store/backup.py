"""A copy of a whole store, taken while it is in use, and a store made from such a copy.

A backup is a directory of the same form as a store: ``index.sqlite`` and ``data/``. Data files
are never changed in place, so on one file system the copy shares them by hard links.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw

from sealmail_protocol.keys import BlockKey, DataKeyHasher
from sealmail_store.data_files import DATA_NAME, data_path
from sealmail_store.errors import BadBackup, NotEmpty, StoreMissing
from sealmail_store.safe_files import make_directory_durably, sync_directory
from sealmail_store.schema import INDEX_NAME, check_index, copy_index, open_reader

_SLICE = 1024 * 1024
# What would run inside our own writer, if somebody put it into a copy.
_PROGRAMS = "SELECT count(*) FROM sqlite_schema WHERE type IN ('trigger', 'view')"


def take_backup(store: Path, target: Path) -> int:
    """Copy the store in directory ``store`` to the new directory ``target``; return the files.

    The caller sees to it that no data file is removed meanwhile. ``target`` appears when it is
    whole and on stable storage.
    """
    target = target.absolute()
    _check_empty(target)
    make_directory_durably(target.parent)
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    make_directory_durably(partial)
    with closing(open_reader(store / INDEX_NAME)) as connection:
        copy_index(connection, partial / INDEX_NAME)
    # The copy is read, not the store: it names exactly what belongs to it.
    files = 0
    with closing(_open_copy(partial / INDEX_NAME)) as connection:
        for key, _ in _in_files(connection):
            _link_or_copy(data_path(store, key), data_path(partial, key))
            files += 1
    _sync_tree(partial)
    if target.exists():
        target.rmdir()
    partial.replace(target)
    sync_directory(target.parent)
    return files


def restore_backup(backup: Path, target: Path) -> int:
    """Make a store in the new directory ``target`` from a backup; return its data files.

    Every data file is read and checked against its key, so what is restored is what was stored.
    """
    target = target.absolute()
    if not (backup / INDEX_NAME).is_file():
        raise StoreMissing(backup)
    _check_empty(target)
    make_directory_durably(target.parent)
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    make_directory_durably(partial)
    files = 0
    with closing(_open_copy(backup / INDEX_NAME)) as connection:
        check_index(connection, backup / INDEX_NAME)
        damage = connection.execute("PRAGMA quick_check(1)").get
        if damage != "ok":
            raise BadBackup(backup, f"its index is damaged ({damage})")
        if connection.execute(_PROGRAMS).get:
            raise BadBackup(backup, "its index holds triggers or views, which none of ours does")
        copy_index(connection, partial / INDEX_NAME)
        for key, size in _in_files(connection):
            _copy_checked(backup, partial, key, size)
            files += 1
    _sync_tree(partial)
    if target.exists():
        target.rmdir()
    partial.replace(target)
    sync_directory(target.parent)
    return files


def _open_copy(index: Path) -> apsw.Connection:
    return apsw.Connection(str(index), flags=apsw.SQLITE_OPEN_READONLY)


def _check_empty(directory: Path) -> None:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise NotEmpty(directory)


def _in_files(connection: apsw.Connection) -> Iterator[tuple[BlockKey, int]]:
    # A block that is stored and also held for delivery has one file.
    rows = connection.execute(
        "SELECT DISTINCT key, size FROM entries WHERE data IS NULL AND size > 0"
    )
    for raw, size in rows:
        yield BlockKey(raw), size


def _link_or_copy(source: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        target.hardlink_to(source)
    except OSError as error:
        # Another file system, or one without hard links.
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        with source.open("rb") as reader, target.open("xb") as writer:
            shutil.copyfileobj(reader, writer, _SLICE)
            writer.flush()
            os.fsync(writer.fileno())


def _copy_checked(backup: Path, target: Path, key: BlockKey, size: int) -> None:
    source, place = data_path(backup, key), data_path(target, key)
    if not source.is_file():
        raise BadBackup(backup, f"the data of block {key} is missing")
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    hasher, copied = DataKeyHasher(), 0
    with source.open("rb") as reader, place.open("xb") as writer:
        os.fchmod(writer.fileno(), 0o600)
        while chunk := reader.read(_SLICE):
            hasher.update(chunk)
            copied += len(chunk)
            writer.write(chunk)
        writer.flush()
        os.fsync(writer.fileno())
    if copied != size or hasher.key() != key:
        raise BadBackup(backup, f"the data of block {key} is damaged")


def _sync_tree(directory: Path) -> None:
    for path in (directory / DATA_NAME).glob("*/*"):
        sync_directory(path)
    for path in (directory / DATA_NAME).glob("*"):
        sync_directory(path)
    if (directory / DATA_NAME).is_dir():
        sync_directory(directory / DATA_NAME)
    sync_directory(directory)
