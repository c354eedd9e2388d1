"""The one thread that writes: it joins waiting units of work into one durable commit."""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import apsw

from sealmail_store.data_files import is_full_disk
from sealmail_store.errors import NoRoom, StoreClosed, StoreFailed
from sealmail_store.write_view import WriteView

T = TypeVar("T")

# More units than this in one commit would make the first wait without sparing fsyncs.
MAX_GROUP = 512

# Pages in the log before they move into the index. Four times the usual 4 MB: a page that
# changed in many commits moves once.
_CHECKPOINT_PAGES = 4_000

# Readers that overlap without end keep the log from starting over; at 64 MB the writer waits
# a moment for them.
_RESTART_PAGES = 4 * _CHECKPOINT_PAGES
_RESTART_PATIENCE_MS = 1_000


@dataclass(frozen=True, slots=True)
class _Unit:
    """Work for the writer and the future of the caller who waits for it."""

    work: Callable[[WriteView], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What becomes of a unit once its group has committed."""

    unit: _Unit
    result: Any = None
    error: BaseException | None = None


class Writer:
    """Owns the writing connection; ``submit`` is for event loops, the rest is its thread.

    Units that wait while a commit is on its way to the disk share the next one. A unit that
    fails is undone alone. Nothing is answered before it is durable.
    """

    def __init__(self, directory: Path, connection: apsw.Connection, view: WriteView) -> None:
        self._directory = directory
        self._connection = connection
        self._view = view
        # Not bounded here: each waiting caller has one unit in it.
        self._units: queue.SimpleQueue[_Unit | None] = queue.SimpleQueue()
        self._door = threading.Lock()
        self._closed = False
        self._failure: StoreFailed | None = None
        self._log_pages = 0
        self.commits = 0
        # Our own checkpoints run after the answers; SQLite's would run before them.
        connection.set_wal_hook(self._note_log)
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[WriteView], T]) -> "asyncio.Future[T]":
        """Queue ``work``; the future is done when its changes are durable, or were undone."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._door:
            if self._closed:
                raise StoreClosed
            self._units.put(_Unit(work, loop, future))
        return future

    def close(self) -> None:
        """Finish what is queued and stop the thread; blocks until then."""
        with self._door:
            if not self._closed:
                self._closed = True
                self._units.put(None)
        self._thread.join()

    @property
    def failed(self) -> bool:
        """Whether the disk failed, after which nothing more is written."""
        return self._failure is not None

    def _run(self) -> None:
        while self._serve_group():
            pass

    def _serve_group(self) -> bool:
        """Commit and answer what is waiting; tells whether there will be more."""
        group, last = self._next_group()
        if group:
            _answer(self._commit(group))
            self._tidy()
        return not last

    def _next_group(self) -> tuple[list[_Unit], bool]:
        """Wait for a unit, then take what else is waiting; tells whether it was the last."""
        group: list[_Unit] = []
        unit = self._units.get()
        while unit is not None:
            if not unit.future.cancelled():
                group.append(unit)
            if len(group) >= MAX_GROUP:
                return group, False
            try:
                unit = self._units.get_nowait()
            except queue.Empty:
                return group, False
        return group, True

    def _commit(self, group: list[_Unit]) -> list[_Outcome]:
        """Do the work of ``group`` in one transaction and make it durable."""
        if self._failure is not None:
            return _fail_all(group, self._failure)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            outcomes = [self._attempt(unit) for unit in group]
            self._view.sync_data()
            self._connection.execute("COMMIT")
        except (apsw.Error, OSError) as error:
            # What cannot be rolled back refuses the next BEGIN, and so every later group.
            with suppress(apsw.Error):
                self._connection.execute("ROLLBACK")
            return _fail_all(group, self._explained_to_all(error))
        self.commits += 1
        return outcomes

    def _attempt(self, unit: _Unit) -> _Outcome:
        """Do the work of one unit; if it fails, undo just that."""
        self._connection.execute("SAVEPOINT unit")
        try:
            outcome = _Outcome(unit, result=unit.work(self._view))
        except BaseException as error:  # the thread must outlive whatever the work raises
            if not self._connection.in_transaction and isinstance(error, apsw.Error):
                # SQLite gave up the whole group because of this unit.
                raise
            self._connection.execute("ROLLBACK TO unit")
            outcome = _Outcome(unit, error=self._explained(error))
        self._connection.execute("RELEASE unit")
        return outcome

    def _explained(self, error: BaseException) -> BaseException:
        """Return what the caller of one unit is told of its ``error``."""
        explained: BaseException
        if isinstance(error, apsw.FullError) or is_full_disk(error):
            explained = NoRoom(self._directory)
        elif isinstance(error, apsw.IOError | apsw.CorruptError):
            explained = self._fail(error)
        elif isinstance(error, StopIteration):
            # A future cannot carry it.
            explained = RuntimeError("the work raised StopIteration")
        else:
            return error
        explained.__cause__ = error
        return explained

    def _explained_to_all(self, error: apsw.Error | OSError) -> BaseException:
        """Return what the callers of a whole group are told: here any OSError is the disk's."""
        if isinstance(error, OSError) and not is_full_disk(error):
            return self._fail(error)
        return self._explained(error)

    def _fail(self, error: BaseException) -> StoreFailed:
        """Write no more: after a failed fsync the next may succeed though pages were lost.

        Only opening the store again reads what is really there.
        """
        self._failure = StoreFailed(self._directory, error)
        return self._failure

    def _note_log(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._log_pages = pages
        return apsw.SQLITE_OK

    def _tidy(self) -> None:
        """Remove loose data files, and move a long log into the index, after the answers."""
        if self._failure is not None:
            return
        try:
            self._view.remove_loose_data()
            if self._log_pages >= _CHECKPOINT_PAGES:
                self._checkpoint()
        except (apsw.Error, OSError) as error:
            self._fail(error)

    def _checkpoint(self) -> None:
        long_log = self._log_pages >= _RESTART_PAGES
        mode = apsw.SQLITE_CHECKPOINT_RESTART if long_log else apsw.SQLITE_CHECKPOINT_PASSIVE
        self._connection.set_busy_timeout(_RESTART_PATIENCE_MS if long_log else 0)
        with suppress(apsw.BusyError):
            self._connection.wal_checkpoint(mode=mode)
        self._log_pages = 0


def _fail_all(group: list[_Unit], error: BaseException) -> list[_Outcome]:
    return [_Outcome(unit, error=error) for unit in group]


def _answer(outcomes: list[_Outcome]) -> None:
    """Hand the outcomes to the loops that wait for them, waking each loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome.unit.loop, []).append(outcome)
    for loop, its_outcomes in by_loop.items():
        # A loop that was closed meanwhile has nobody left who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, its_outcomes)


def _settle(outcomes: list[_Outcome]) -> None:
    for outcome in outcomes:
        future = outcome.unit.future
        if future.done():
            continue
        if outcome.error is None:
            future.set_result(outcome.result)
        else:
            future.set_exception(outcome.error)
