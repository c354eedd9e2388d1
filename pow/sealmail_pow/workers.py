"""Minting beside a running event loop."""

import asyncio
import threading
from collections.abc import Callable

from sealmail_pow.check import Buffer
from sealmail_pow.difficulty import Difficulty
from sealmail_pow.search import mint
from sealmail_pow.stamp import Stamp


async def mint_off_loop(
    data: Buffer,
    difficulty: Difficulty,
    *,
    threads: int | None = None,
    deterministic: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Stamp:
    """Search a stamp as ``mint`` does, in a thread, while the event loop keeps turning.

    ``progress`` is called on the loop. Cancelling the task stops the search within
    milliseconds.
    """
    # A thread, not a process: the search in C leaves the interpreter to the loop, the one in
    # Python hands the loop its turn every few milliseconds, and 8 MiB need not be copied anywhere.
    loop = asyncio.get_running_loop()
    abandoned = threading.Event()

    def report(done: float) -> None:
        if progress is not None:
            loop.call_soon_threadsafe(progress, done)

    try:
        return await asyncio.to_thread(
            mint,
            data,
            difficulty,
            threads=threads,
            deterministic=deterministic,
            progress=None if progress is None else report,
            cancel=abandoned.is_set,
        )
    finally:
        abandoned.set()
