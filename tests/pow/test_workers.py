"""Minting beside an event loop that has other things to do."""

import asyncio
import threading
import time

import pytest

from sealmail_pow import Difficulty, mint_off_loop, verify

# Long enough that a loop which stands still would be noticed.
OUT_OF_REACH = Difficulty(256)


def test_the_loop_keeps_turning_during_a_mint() -> None:
    """While a search runs, other tasks get their turn many times and without long waits."""

    async def tick_beside_a_mint() -> list[float]:
        search = asyncio.create_task(mint_off_loop(b"a letter", OUT_OF_REACH))
        waits = []
        for _ in range(20):
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            waits.append(time.perf_counter() - before)
        assert not search.done()
        search.cancel()
        with pytest.raises(asyncio.CancelledError):
            await search
        return waits

    waits = sorted(asyncio.run(tick_beside_a_mint()))
    assert waits[len(waits) // 2] < 0.25


def test_cancelling_the_task_stops_the_search() -> None:
    """A cancelled search leaves no thread at work behind it."""

    async def cancel_a_mint() -> float:
        search = asyncio.create_task(mint_off_loop(b"a letter", OUT_OF_REACH))
        await asyncio.sleep(0.05)
        search.cancel()
        cancelled = time.perf_counter()
        with pytest.raises(asyncio.CancelledError):
            await search
        return cancelled

    before = threading.active_count()
    # The end of run() waits for the threads: it would never come if one went on searching.
    cancelled = asyncio.run(cancel_a_mint())
    # Fifty milliseconds is what it should take; a loaded machine is given longer.
    assert time.perf_counter() - cancelled < 1
    assert threading.active_count() == before


def test_the_stamp_and_its_progress_reach_the_loop() -> None:
    """The stamp is good, and progress is reported in the thread of the loop."""
    reports: list[tuple[float, threading.Thread]] = []

    async def mint_with_progress() -> None:
        stamp = await mint_off_loop(
            b"a letter",
            Difficulty(28),
            progress=lambda done: reports.append((done, threading.current_thread())),
        )
        assert verify(b"a letter", stamp, Difficulty(28))

    asyncio.run(mint_with_progress())
    assert reports[-1][0] == 1.0
    assert {thread for _, thread in reports} == {threading.current_thread()}


def test_the_deterministic_search_runs_off_the_loop_too() -> None:
    """The published sample stamp comes out."""
    data = b"timing sample 0 level 24"
    stamp = asyncio.run(mint_off_loop(data, Difficulty(24), deterministic=True))
    assert str(stamp) == "bd,00000275e,000002960"
