"""Reading off the event loop: what is asked in one turn of the loop is answered by one trip."""

import asyncio
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import apsw

from sealmail_store.data_files import DataFiles
from sealmail_store.errors import StoreClosed
from sealmail_store.schema import open_reader
from sealmail_store.views import ReadView

T = TypeVar("T")

# Reads are short and mostly from memory; more threads would only contend.
READERS = 4


@dataclass(frozen=True, slots=True)
class _Question:
    """Work on a view, and the future of the caller who waits for it."""

    work: Callable[[ReadView], Any]
    future: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class _Answer:
    question: _Question
    result: Any = None
    error: BaseException | None = None


class Reader:
    """Owns the reading connections. A trip to a thread costs more than a read, so they share it.

    Questions that come while every reader is under way go together with the first that returns.
    """

    def __init__(self, index: Path, files: DataFiles) -> None:
        self._index = index
        self._files = files
        self._connections: queue.SimpleQueue[apsw.Connection] = queue.SimpleQueue()
        for _ in range(READERS):
            self._connections.put(open_reader(index))
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        self._asked: dict[asyncio.AbstractEventLoop, list[_Question]] = {}
        self._under_way = 0
        self._closed = False
        self.trips = 0

    def submit(self, work: Callable[[ReadView], T]) -> "asyncio.Future[T]":
        """Have ``work`` done on the last committed state; call it from the loop that waits."""
        if self._closed:
            raise StoreClosed
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        asked = self._asked.setdefault(loop, [])
        if not asked:
            loop.call_soon(self._set_out, loop)
        asked.append(_Question(work, future))
        return future

    def look_apart(self, work: Callable[[ReadView], T]) -> T:
        """Do ``work`` on a connection made for it; in the caller's thread, and nobody waits."""
        connection = open_reader(self._index)
        try:
            connection.execute("BEGIN")
            return work(ReadView(connection, self._files))
        finally:
            connection.close()

    def close(self) -> None:
        """Finish the trips that are under way and close the connections; blocks until then."""
        self._closed = True
        self._threads.shutdown()
        while not self._connections.empty():
            self._connections.get().close()

    def _set_out(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._under_way >= READERS or not self._asked.get(loop):
            return
        questions = self._asked.pop(loop)
        if self._closed:
            _settle([_Answer(each, error=StoreClosed()) for each in questions])
            return
        self._under_way += 1
        self.trips += 1
        self._threads.submit(self._go, loop, questions)

    def _go(self, loop: asyncio.AbstractEventLoop, questions: list[_Question]) -> None:
        """Answer all questions from one state; runs in a thread of its own."""
        connection = self._connections.get()
        try:
            answers = self._answer(connection, questions)
        finally:
            self._connections.put(connection)
        # A loop that was closed meanwhile has nobody left who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._return, loop, answers)

    def _answer(self, connection: apsw.Connection, questions: list[_Question]) -> list[_Answer]:
        view = ReadView(connection, self._files)
        try:
            connection.execute("BEGIN")
            return [_attempt(view, question) for question in questions]
        except apsw.Error as error:
            return [_Answer(question, error=error) for question in questions]
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _return(self, loop: asyncio.AbstractEventLoop, answers: list[_Answer]) -> None:
        self._under_way -= 1
        _settle(answers)
        if self._asked.get(loop):
            # The answered ones may ask again in this turn: let them come along.
            loop.call_soon(self._set_out, loop)


def _attempt(view: ReadView, question: _Question) -> _Answer:
    if question.future.cancelled():
        return _Answer(question)
    try:
        return _Answer(question, result=question.work(view))
    except StopIteration as error:
        # A future cannot carry it.
        explained = RuntimeError("the work raised StopIteration")
        explained.__cause__ = error
        return _Answer(question, error=explained)
    except BaseException as error:  # one caller's failure is not the others'
        return _Answer(question, error=error)


def _settle(answers: list[_Answer]) -> None:
    for answer in answers:
        future = answer.question.future
        if future.done():
            continue
        if answer.error is None:
            future.set_result(answer.result)
        else:
            future.set_exception(answer.error)
