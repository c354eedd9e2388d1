"""Who may look something up now: so many at a time, and nobody takes the turns of all others."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sealmail_store import StoreError


class NoTurn(StoreError):
    """Others were looked up for all the time: nobody was asked, and so nothing is known."""


@dataclass(frozen=True, slots=True)
class Asker:
    """For whom something is looked up: a user who logged in, or a stranger from a network.

    A ``shared`` source is a door behind which nobody can tell strangers apart.
    """

    source: str = ""
    stranger: bool = False
    shared: bool = False


# What this server wants to know itself.
OURS = Asker()


class Turns:
    """``most`` at a time, of strangers at most ``of_strangers``, of one source ``of_one``.

    A shared source may have more while nobody else wants them. Whoever came first is first: who
    has just had a turn waits behind all who wait.
    """

    def __init__(self, most: int, *, of_strangers: int, of_one: int) -> None:
        self._most = most
        self._of_strangers = of_strangers
        self._of_one = of_one
        self._busy: Counter[Asker] = Counter()
        self._line: dict[asyncio.Future[None], Asker] = {}

    @asynccontextmanager
    async def turn(self, asker: Asker) -> AsyncIterator[None]:
        """Wait for a turn, and have it."""
        called = asyncio.get_running_loop().create_future()
        self._line[called] = asker
        self._call()
        try:
            await called
            yield
        finally:
            if self._line.pop(called, None) is None:
                self._busy[asker] -= 1
                if not self._busy[asker]:
                    del self._busy[asker]
                self._call()

    def _call(self) -> None:
        """Give the turns that are free: those who have their part already come last."""
        for more in (False, True):
            for called, asker in tuple(self._line.items()):
                if self._is_free(asker, more=more) and not called.done():
                    del self._line[called]
                    self._busy[asker] += 1
                    called.set_result(None)

    def _is_free(self, asker: Asker, *, more: bool) -> bool:
        strangers = sum(count for each, count in self._busy.items() if each.stranger)
        return (
            self._busy.total() < self._most
            and (self._busy[asker] < self._of_one or (more and asker.shared))
            and not (asker.stranger and strangers >= self._of_strangers)
        )
