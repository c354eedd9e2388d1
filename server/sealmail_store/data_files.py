"""The bytes of large data blocks: received into ``incoming/``, kept in ``data/AB/CD/<KEY>``.

A file is durable under its final name before the row that names it commits, so a crash leaves
at most files that no row names; ``sweep`` removes those.
"""

import errno
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from sealmail_protocol.keys import BlockKey, DataKeyHasher
from sealmail_store.entries import INLINE_LIMIT, BlockData
from sealmail_store.errors import DataGone, NoRoom
from sealmail_store.safe_files import make_directory_durably, sync_directory

DATA_NAME = "data"
INCOMING_NAME = "incoming"

# The disk is given this much at a time while the rest still arrives, so that the sync at the
# end finds little left to do.
_EARLY = 1024 * 1024
# Bytes of a file in memory while it is hashed.
_PIECE = 256 * 1024


def data_path(store: Path, key: BlockKey) -> Path:
    """Return where a store keeps the data of ``key`` when it is large."""
    name = key.hex
    return store / DATA_NAME / name[:2] / name[2:4] / name


def is_full_disk(error: BaseException) -> bool:
    """Tell whether ``error`` says that the disk, or the owner's share of it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


class DataSpool:
    """Takes the bytes of one data block as they arrive, and hashes them on the way.

    Its methods touch the disk, so call them off the event loop. Leaving its context discards
    what was not stored by then.
    """

    def __init__(self, incoming: Path) -> None:
        self._incoming = incoming
        self._hasher = DataKeyHasher()
        self._size = 0
        self._on_its_way = 0
        self._buffer = bytearray()
        self._path: Path | None = None
        self._file: BinaryIO | None = None
        self._open = True
        # A cancelled caller discards while its last chunk is still being written elsewhere.
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Take the next bytes; ``NoRoom`` when the disk is full."""
        with self._lock:
            self._check_open()
            self._hasher.update(chunk)
            self._size += len(chunk)
            if self._file is None and self._size <= INLINE_LIMIT:
                self._buffer += chunk
                return
            try:
                file = self._file or self._spill()
                file.write(chunk)
                self._begin_writeback(file)
            except OSError as error:
                raise self._explained(error) from error

    def key(self) -> BlockKey:
        """Return the key of the bytes taken so far."""
        return self._hasher.key()

    def finish(self) -> BlockData:
        """Return the data, on stable storage if it is large; nothing can be written after."""
        with self._lock:
            self._check_open()
            self._open = False
            if self._file is None or self._path is None:
                return BlockData(self._hasher.key(), self._size, bytes(self._buffer))
            try:
                with self._file as file:
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise self._explained(error) from error
            return BlockData(self._hasher.key(), self._size, self._path)

    def discard(self) -> None:
        """Forget the data unless it has been stored; may be called at any time, repeatedly."""
        with self._lock:
            self._open = False
            self._buffer.clear()
            try:
                if self._file is not None:
                    self._file.close()
            except OSError as error:
                # Closing flushes; on a full disk that fails for bytes nobody wants any more.
                if not is_full_disk(error):
                    raise
            finally:
                if self._path is not None:
                    self._path.unlink(missing_ok=True)

    def _check_open(self) -> None:
        if not self._open:
            raise ValueError("this spool is finished or discarded")

    def _spill(self) -> BinaryIO:
        """Move what is in memory to a file, and go on there."""
        descriptor, name = tempfile.mkstemp(dir=self._incoming)
        self._path = Path(name)
        # Unbuffered writes may be short; a buffered writer never is.
        self._file = os.fdopen(descriptor, "wb")
        self._file.write(self._buffer)
        self._buffer.clear()
        return self._file

    def _begin_writeback(self, file: BinaryIO) -> None:
        """Have the kernel begin to write what has come; a hint that promises nothing.

        Pages that are not on the disk yet stay in memory, so a reader to come finds them there.
        """
        if self._size - self._on_its_way >= _EARLY and hasattr(os, "posix_fadvise"):
            begin, self._on_its_way = self._on_its_way, self._size
            length = self._size - begin
            os.posix_fadvise(file.fileno(), begin, length, os.POSIX_FADV_DONTNEED)

    def _explained(self, error: OSError) -> Exception:
        return NoRoom(self._incoming.parent) if is_full_disk(error) else error


def _is_sound(path: Path, data: BlockData) -> bool:
    """Tell whether a file is there that is what its name says, and as long as ``data``."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != data.size:
                return False
            hasher = DataKeyHasher()
            while piece := file.read(_PIECE):
                hasher.update(piece)
    except OSError:
        return False
    return hasher.key() == data.key


class DataFiles:
    """The data files of one store; only the writer places and removes them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._data = directory / DATA_NAME
        self._incoming = directory / INCOMING_NAME
        make_directory_durably(self._data)
        make_directory_durably(self._incoming)
        self._unsynced: set[Path] = set()

    def spool(self) -> DataSpool:
        """Return a spool for one data block; any thread may use it."""
        return DataSpool(self._incoming)

    def path(self, key: BlockKey) -> Path:
        """Return where the data of ``key`` is kept when it is large."""
        return data_path(self._directory, key)

    def place(self, data: BlockData) -> None:
        """Give large ``data`` its final name; durable after the next ``sync``.

        It takes the place of a file that is damaged. A sound one stays: other bytes of the same
        hash would change what was accepted.
        """
        if isinstance(data.content, bytes):
            return
        path = self.path(data.key)
        if data.content == path or not data.content.exists():
            # It has its name: several rows of one unit of work may ask for the same data.
            if not path.exists():
                raise DataGone(data.key)
            return
        if _is_sound(path, data):
            data.content.unlink()
            return
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._unsynced |= {self._data, path.parent.parent}
        data.content.replace(path)
        self._unsynced.add(path.parent)

    def sync(self) -> None:
        """Bring the names given by ``place`` to stable storage; files were synced when spooled."""
        for directory in self._unsynced:
            sync_directory(directory)
        self._unsynced.clear()

    def remove(self, key: BlockKey) -> None:
        """Remove the data of ``key``; readers that have it open read on."""
        self.path(key).unlink(missing_ok=True)

    def clear_incoming(self) -> None:
        """Remove what a crash left of data that was still arriving."""
        for path in self._incoming.iterdir():
            path.unlink()

    def sweep(self, is_named: Callable[[BlockKey], bool]) -> int:
        """Remove the files that no row names and return how many; leave strange names alone."""
        removed = 0
        for path in self._data.glob("[0-9A-F][0-9A-F]/[0-9A-F][0-9A-F]/*"):
            try:
                key = BlockKey.from_hex(path.name)
            except ValueError:
                continue
            if path == self.path(key) and not is_named(key):
                path.unlink()
                removed += 1
        return removed
