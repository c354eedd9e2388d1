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
    """For whom something is looked up: a user who logged in, or a stranger from a network."""

    source: str = ""
    stranger: bool = False


# What this server wants to know itself.
OURS = Asker()


class Turns:
    """``most`` at a time, of strangers at most ``of_strangers``, of one source ``of_one``."""

    def __init__(self, most: int, *, of_strangers: int, of_one: int) -> None:
        self._most = most
        self._of_strangers = of_strangers
        self._of_one = of_one
        self._busy: Counter[Asker] = Counter()
        self._left = asyncio.Condition()

    @asynccontextmanager
    async def turn(self, asker: Asker) -> AsyncIterator[None]:
        """Wait for a turn, and have it."""
        async with self._left:
            await self._left.wait_for(lambda: self._is_free(asker))
            self._busy[asker] += 1
        try:
            yield
        finally:
            self._busy[asker] -= 1
            if not self._busy[asker]:
                del self._busy[asker]
            async with self._left:
                self._left.notify_all()

    def _is_free(self, asker: Asker) -> bool:
        strangers = sum(count for each, count in self._busy.items() if each.stranger)
        return (
            self._busy.total() < self._most
            and self._busy[asker] < self._of_one
            and not (asker.stranger and strangers >= self._of_strangers)
        )
