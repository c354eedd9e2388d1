"""The block store: one directory that keeps what it is handed, and loses none of it."""

import asyncio
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from sealmail_store.backup import take_backup
from sealmail_store.data_files import DataFiles, DataSpool
from sealmail_store.errors import StoreClosed, StoreLocked, StoreMissing
from sealmail_store.reader import Reader
from sealmail_store.safe_files import PRIVATE_FILE, make_directory_durably, sync_directory
from sealmail_store.schema import INDEX_NAME, open_writer
from sealmail_store.views import ReadView
from sealmail_store.write_view import WriteView
from sealmail_store.writer import Writer

T = TypeVar("T")

LOCK_NAME = "lock"

# Set while the store is open: whoever finds it set opens after a crash.
_IN_USE = "in-use"


class BlockStore:
    """Entries, verdicts, accounts and settings in one directory, with one writing process.

    It knows nothing of admission: callers decide inside ``write`` and it keeps what they put.
    """

    def __init__(self, directory: Path, lock: int) -> None:
        """Take a locked directory whose index exists or may be made; ``open`` is the way here."""
        self.directory = directory
        self._lock = lock
        self._files = DataFiles(directory)
        self._connection = open_writer(directory / INDEX_NAME)
        sync_directory(directory)
        view = WriteView(self._connection, self._files)
        self._recover(view)
        self._view = view
        self._reader = Reader(directory / INDEX_NAME, self._files)
        self._backup_turn = asyncio.Lock()
        self._writer = Writer(directory, self._connection, view)
        self._closed = False

    @classmethod
    def open(cls, directory: Path, *, create: bool = False) -> Self:
        """Open the store in ``directory``, made first if ``create``; touches the disk.

        Removes what a crash left half-done. Raises ``StoreMissing``, ``StoreLocked``,
        ``NotAStore`` or ``NewerSchema``.
        """
        directory = directory.absolute()
        if create:
            make_directory_durably(directory)
        elif not (directory / INDEX_NAME).is_file():
            raise StoreMissing(directory)
        lock = _lock_directory(directory)
        try:
            return cls(directory, lock)
        except BaseException:
            os.close(lock)
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def write(self, work: Callable[[WriteView], T]) -> T:
        """Run ``work`` in the writer's transaction; return its result once it is durable.

        Work of other callers may share the commit. If ``work`` raises, its changes alone are
        undone and the exception arrives here. A caller who is cancelled while waiting cannot
        know whether the work was done.
        """
        return await self._writer.submit(work)

    async def read(self, work: Callable[[ReadView], T]) -> T:
        """Run ``work`` on the last committed state, beside the writer, and return its result.

        Questions of one turn of the loop share a state and a trip, so ``work`` is brief.
        """
        return await self._reader.submit(work)

    async def survey(self, work: Callable[[ReadView], T]) -> T:
        """Run ``work`` as ``read`` does, on a connection of its own: it may take long."""
        if self._closed:
            raise StoreClosed
        return await asyncio.to_thread(self._reader.look_apart, work)

    def spool(self) -> DataSpool:
        """Return a spool that takes the bytes of one data block."""
        return self._files.spool()

    async def backup(self, target: Path) -> int:
        """Copy the store to the new directory ``target`` while it is in use.

        Return the number of data files; what was answered before the call is in the copy.
        Raises ``NotEmpty``.
        """
        if self._closed:
            raise StoreClosed
        async with self._backup_turn:
            self._view.keep_files = True
            try:
                return await asyncio.to_thread(take_backup, self.directory, target)
            finally:
                self._view.keep_files = False

    @property
    def reads(self) -> int:
        """Number of trips that reads took since the store was opened."""
        return self._reader.trips

    @property
    def commits(self) -> int:
        """Number of durable commits since the store was opened."""
        return self._writer.commits

    async def close(self) -> None:
        """Finish the queued work, tidy up and release the directory; repeating it is harmless."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._close)

    def _recover(self, view: WriteView) -> None:
        self._files.clear_incoming()
        with self._connection:
            if view.setting(_IN_USE) is not None:
                view.sweep_data()
            view.put_setting(_IN_USE, "yes")

    def _close(self) -> None:
        try:
            self._writer.close()
            self._reader.close()
            if not self._writer.failed:
                with self._connection:
                    WriteView(self._connection, self._files).remove_setting(_IN_USE)
            # The last connection to close moves the log into the index.
            self._connection.close()
        finally:
            os.close(self._lock)


def _lock_directory(directory: Path) -> int:
    """Take the lock that makes this process the only writer; it ends with the process."""
    lock = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise StoreLocked(directory) from error
    except BaseException:
        os.close(lock)
        raise
    return lock
