"""Removing what has had its time, in slices that let everybody else go between.

A slice is a commit of its own, so a stop in the middle loses nothing and the next pass goes on
with what is left. Announcements go before data, which stays as long as one names it.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from sealmail_protocol.blocks import BlockType
from sealmail_server.limits import Limits
from sealmail_store import BlockStore, WriteView

_log = logging.getLogger(__name__)

PASS_EVERY = timedelta(hours=1)
# Rows looked at in one unit of work: a few milliseconds of the writer.
SLICE = 200


@dataclass(frozen=True, slots=True)
class Swept:
    """What one pass has removed; ``whole`` is false if it had to stop half-way."""

    blocks: int = 0
    waited: int = 0
    marks: int = 0
    whole: bool = True


class _Stopped(Exception):
    """The clock is not to be trusted any more."""


class Expiry:
    """Sweeps the store; ``may_delete`` is asked before every slice, and by a jumped clock says no.

    A slice is decided by one reading of the clock.
    """

    def __init__(
        self,
        store: BlockStore,
        clock: Callable[[], datetime],
        limits: Limits | None = None,
        may_delete: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits or Limits()
        self._may_delete = may_delete

    async def run(self, every: timedelta = PASS_EVERY) -> None:
        """Sweep again and again, until cancelled."""
        while True:
            swept = await self.sweep()
            if swept.blocks or swept.waited or not swept.whole:
                _log.info("expiry: %s", swept)
            await asyncio.sleep(every.total_seconds())

    async def sweep(self) -> Swept:
        """Make one pass over everything that has a time."""
        blocks = waited = marks = 0
        try:
            waited = await self._repeat(_remove_waited)
            for kind in BlockType:
                blocks += await self._sweep_type(kind)
            marks = await self._repeat(_forget_marks)
            marks += await self._repeat(partial(_forget_verdicts, most=self._limits.verdicts))
            await self._sweep_terms()
        except _Stopped:
            return Swept(blocks, waited, marks, whole=False)
        return Swept(blocks, waited, marks)

    async def _sweep_type(self, kind: BlockType) -> int:
        gone, place = 0, (0, 0)
        while True:
            before = self._now() - self._limits.max_age[kind]
            removed, following = await self._store.write(
                partial(_remove_expired, kind=kind, before=before, after=place)
            )
            gone += removed
            if following is None:
                return gone
            place = following

    async def _sweep_terms(self) -> None:
        place: bytes | None = b""
        while place is not None:
            self._now()
            place = await self._store.write(partial(_forget_terms, after=place))

    async def _repeat(self, work: "_Sweep") -> int:
        """Do ``work`` until a slice finds nothing more; it removes at most a slice each time."""
        gone = 0
        while True:
            now = self._now()
            removed = await self._store.write(partial(work, now=now))
            gone += removed
            if not removed:
                return gone

    def _now(self) -> datetime:
        if not self._may_delete():
            raise _Stopped
        return self._clock()


class _Sweep(Protocol):
    def __call__(self, view: WriteView, *, now: datetime) -> int:
        """Remove at most a slice of what has had its time."""


def _remove_waited(view: WriteView, *, now: datetime) -> int:
    return view.remove_waited(now, SLICE)


def _forget_marks(view: WriteView, *, now: datetime) -> int:
    return view.forget_marks(now, SLICE)


def _forget_verdicts(view: WriteView, *, now: datetime, most: int) -> int:
    return view.forget_verdicts(now, SLICE, most)


def _remove_expired(
    view: WriteView, *, kind: BlockType, before: datetime, after: tuple[int, int]
) -> tuple[int, tuple[int, int] | None]:
    return view.remove_expired(kind, before, after, SLICE)


def _forget_terms(view: WriteView, *, after: bytes) -> bytes | None:
    return view.forget_terms_of_strangers(after, SLICE)
