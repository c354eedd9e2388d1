"""Is the machine's clock to be believed? Judged by the latest time that the store has seen.

A clock that is behind would take what has expired; one that is ahead would expire everything.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from sealmail_protocol.dates import format_date, parse_date
from sealmail_store import BlockStore, ReadView, WriteView

MAX_BEHIND = timedelta(hours=1)
MAX_AHEAD = timedelta(days=60)
# After a longer gap, nothing is deleted until somebody had a day to notice a wrong clock.
MAX_UNNOTICED = timedelta(hours=48)
HOLD = timedelta(hours=24)
# No row of the queue is put off further than this: AFTER, and a partner whose clock is ahead.
MAX_PUT_OFF = timedelta(days=6)

_HOLD_SETTING = "delete-nothing-until"


class ClockState(StrEnum):
    """What is thought of the clock."""

    RIGHT = "right"
    BEHIND = "behind"
    AHEAD = "ahead"


def judge_clock(now: datetime, latest: datetime | None) -> ClockState:
    """Compare the clock with the latest time seen; a new store believes any clock."""
    if latest is None:
        return ClockState.RIGHT
    if latest - now > MAX_BEHIND:
        return ClockState.BEHIND
    if now - latest > MAX_AHEAD:
        return ClockState.AHEAD
    return ClockState.RIGHT


class Watch(Protocol):
    """What those who act by the clock want to know of it."""

    def is_right(self) -> bool:
        """Tell whether blocks may be judged and delivered by it."""

    def may_delete(self) -> bool:
        """Tell whether what looks expired may be removed or given up."""


class Believed:
    """Stands for the guard of a running server where there is none: the clock is believed."""

    def is_right(self) -> bool:
        """Believe the clock."""
        return True

    def may_delete(self) -> bool:
        """Believe what looks expired."""
        return True


class ClockGuard:
    """The clock of a running server, and what the store knows of time.

    While ``state()`` is not ``RIGHT`` nobody is served; ``may_delete()`` is for whoever
    removes, or gives up, what has expired. ``tick`` has to be called now and then.
    """

    def __init__(self, store: BlockStore, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._latest: datetime | None = None
        self._hold: datetime | None = None

    @property
    def latest(self) -> datetime | None:
        """Return the latest time seen, as of the last tick."""
        return self._latest

    @property
    def hold(self) -> datetime | None:
        """Return until when nothing is deleted, if a gap in time was noticed."""
        return self._hold

    def state(self) -> ClockState:
        """Judge the clock as it stands."""
        return judge_clock(self._clock(), self._latest)

    def is_right(self) -> bool:
        """Tell whether anybody is served by the clock as it stands."""
        return self.state() is ClockState.RIGHT

    def may_delete(self) -> bool:
        """Tell whether what looks expired may be removed."""
        now = self._clock()
        if judge_clock(now, self._latest) is not ClockState.RIGHT or self._jumped(now):
            return False
        return self._hold is None or now >= self._hold

    async def look(self) -> None:
        """Learn what the store remembers; to be called before anything else."""
        self._latest, self._hold = await self._store.read(_remembered)

    async def tick(self) -> ClockState:
        """Remember the present, unless the clock is in doubt; say what is thought of it."""
        now = self._clock()
        state = judge_clock(now, self._latest)
        # A clock that is a little behind must not lower what is known.
        if state is ClockState.RIGHT and (self._latest is None or now > self._latest):
            await self._remember(now)
        return state

    async def confirm(self) -> None:
        """Take the operator's word that the clock is right as it stands."""
        await self._remember(self._clock())

    async def _remember(self, now: datetime) -> None:
        hold = now + HOLD if self._jumped(now) else self._hold
        went_back = self._latest is not None and now < self._latest

        def work(view: WriteView) -> None:
            view.reset_time(now)
            if went_back:
                # What a clock that was ahead put off would wait until that day.
                view.queue.bring_forward(now + MAX_PUT_OFF)
            if hold is not None:
                view.put_setting(_HOLD_SETTING, format_date(hold))

        await self._store.write(work)
        self._latest, self._hold = now, hold

    def _jumped(self, now: datetime) -> bool:
        return self._latest is not None and abs(now - self._latest) > MAX_UNNOTICED


def _remembered(view: ReadView) -> tuple[datetime | None, datetime | None]:
    hold = view.setting(_HOLD_SETTING)
    return view.latest_time_seen(), parse_date(hold) if hold else None
