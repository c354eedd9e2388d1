"""Work on several things at once, a few at a time: gpg on one mail while another one travels."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

# One mail in gpg and one on the wire; more would only wait for the same processor and disk.
WIDTH = 2


async def abreast(
    items: Iterable[T], work: Callable[[T], Awaitable[object]], width: int = WIDTH
) -> None:
    """Do ``work`` on every item, begun in order; the first error ends all and is raised."""
    coming = iter(items)

    async def worker() -> None:
        for item in coming:
            await work(item)

    workers = [asyncio.create_task(worker()) for _ in range(width)]
    try:
        await asyncio.gather(*workers)
    finally:
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
