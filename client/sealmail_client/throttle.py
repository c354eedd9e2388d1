"""Not more than so many bytes a second, over all connections together."""

import asyncio
import time
from collections.abc import Awaitable, Callable

KIB = 1024
# Slower than this, a piece of a block takes longer than servers wait for one.
MIN_KIB = 8


class Throttle:
    """Makes whoever moves bytes wait until their turn has come."""

    def __init__(
        self,
        kib_per_second: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if kib_per_second < MIN_KIB:
            raise ValueError(f"a throttle lets at least {MIN_KIB} KiB a second pass")
        self._rate = kib_per_second * KIB
        self._clock = clock
        self._sleep = sleep
        self._free = 0.0

    async def pass_on(self, size: int) -> None:
        """Wait as long as ``size`` bytes may take."""
        now = self._clock()
        self._free = max(self._free, now) + size / self._rate
        await self._sleep(self._free - now)
