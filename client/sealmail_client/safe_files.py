"""Files that are whole or absent: temp file, fsync, rename, fsync of the directory."""

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PRIVATE_DIRECTORY = 0o700
_SYNC_EVERY = 64 * 1024 * 1024


def make_private(directory: Path) -> Path:
    """Make ``directory``, and tell nobody else what is in it; return it."""
    directory.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        directory.chmod(PRIVATE_DIRECTORY)
    return directory


def create_private(path: Path) -> BinaryIO:
    """Make a new file, readable by its owner only; an existing one or a link is not touched."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    return os.fdopen(handle, "wb")


def write_private(path: Path, content: bytes) -> None:
    """Put ``content`` under ``path``, readable by its owner only, on stable storage."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Bring a file that somebody else wrote, and its name, to stable storage."""
    sync_files(path)


def sync_files(*paths: Path) -> None:
    """Bring files of one directory, and their names, to stable storage."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    for directory in {path.parent for path in paths}:
        sync_directory(directory)


class SyncedWriter:
    """Writes to a file, and has what is there brought to the disk now and then, in a thread."""

    def __init__(self, file: BinaryIO, thread: ThreadPoolExecutor) -> None:
        self._file = file
        self._thread = thread
        self._unsynced = 0
        self._syncing: Future[None] | None = None

    def write(self, chunk: bytes) -> None:
        """Write; a sync that is still at work is not waited for."""
        self._file.write(chunk)
        self._unsynced += len(chunk)
        if self._unsynced >= _SYNC_EVERY and (self._syncing is None or self._syncing.done()):
            self.require_synced()
            self._unsynced = 0
            self._file.flush()
            self._syncing = self._thread.submit(os.fdatasync, self._file.fileno())

    def require_synced(self) -> None:
        """Raise what kept bytes from the disk: the system tells it only once."""
        if self._syncing is not None:
            self._syncing.result()


@contextmanager
def syncing(file: BinaryIO) -> Iterator[SyncedWriter]:
    """Write a large file so that its last sync, which is the caller's, does not take long."""
    with ThreadPoolExecutor(1) as thread:
        writer = SyncedWriter(file, thread)
        yield writer
        writer.require_synced()


def sync_directory(directory: Path) -> None:
    """Bring the names in ``directory`` to stable storage."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
