"""The clock: believed within bounds, else the server is BUSY and deletes nothing."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.server.inside import TurnedClock, banner_of, connect, make_server, serving

from sealmail_net.errors import NetworkError, Unavailable
from sealmail_protocol import commands
from sealmail_protocol.replies import Listing
from sealmail_server.clock_guard import ClockGuard, ClockState, judge_clock
from sealmail_store import BlockStore

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, 0, 5, 0, tzinfo=UTC)
LAST_DAY = datetime(2038, 1, 19, 3, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "state"),
    [
        (NOW, ClockState.RIGHT),
        (NOW - timedelta(hours=1), ClockState.RIGHT),
        (NOW - timedelta(hours=1, seconds=1), ClockState.BEHIND),
        (NOW + timedelta(days=60), ClockState.RIGHT),
        (NOW + timedelta(days=60, seconds=1), ClockState.AHEAD),
        (EPOCH, ClockState.BEHIND),
        (LAST_DAY, ClockState.AHEAD),
    ],
)
def test_the_clock_is_judged_by_the_latest_time_seen(now: datetime, state: ClockState) -> None:
    """An hour behind and sixty days ahead are the bounds; a new store believes any clock."""
    assert judge_clock(now, NOW) is state
    assert judge_clock(now, None) is ClockState.RIGHT


async def guard_of(store: BlockStore, clock: TurnedClock) -> ClockGuard:
    """Return a guard as it stands after a start."""
    guard = ClockGuard(store, clock)
    await guard.look()
    await guard.tick()
    return guard


def test_after_a_gap_nothing_is_deleted_for_a_day(tmp_path: Path) -> None:
    """The hold outlives a restart; a short gap makes none."""

    async def run() -> None:
        clock = TurnedClock(NOW)
        async with BlockStore.open(tmp_path / "store", create=True) as store:
            guard = await guard_of(store, clock)
            assert guard.may_delete()
            clock.turn(hours=48)
            assert (await guard_of(store, clock)).may_delete()
            clock.turn(hours=49)
            assert not guard.may_delete()
            held = await guard_of(store, clock)
            assert held.state() is ClockState.RIGHT
            assert not held.may_delete()
            clock.turn(hours=23)
            assert not (await guard_of(store, clock)).may_delete()
            clock.turn(hours=1)
            assert (await guard_of(store, clock)).may_delete()

    asyncio.run(run())


def test_a_clock_in_doubt_is_not_remembered_until_the_operator_confirms_it(
    tmp_path: Path,
) -> None:
    """A clock that was far ahead, was believed, and is set right: confirming goes back in time."""

    async def run() -> None:
        clock = TurnedClock(NOW)
        async with BlockStore.open(tmp_path / "store", create=True) as store:
            await guard_of(store, clock)
            clock.moment = LAST_DAY
            guard = await guard_of(store, clock)
            assert guard.latest == NOW
            assert not guard.may_delete()
            await guard.confirm()
            assert guard.state() is ClockState.RIGHT
            assert not guard.may_delete()
            clock.moment = NOW
            assert guard.state() is ClockState.BEHIND
            assert not guard.may_delete()
            await guard.confirm()
            again = await guard_of(store, clock)
            assert again.latest == NOW
            clock.turn(hours=25)
            assert again.may_delete()

    asyncio.run(run())


def test_a_little_behind_lowers_nothing(tmp_path: Path) -> None:
    """Steps back within the hour do not add up."""

    async def run() -> None:
        clock = TurnedClock(NOW)
        async with BlockStore.open(tmp_path / "store", create=True) as store:
            guard = await guard_of(store, clock)
            clock.turn(minutes=-50)
            assert await guard.tick() is ClockState.RIGHT
            clock.turn(minutes=-50)
            assert await guard.tick() is ClockState.BEHIND

    asyncio.run(run())


@pytest.mark.parametrize("wrong", [EPOCH, LAST_DAY], ids=["1970", "2038"])
def test_a_server_that_starts_with_a_wrong_clock_is_busy(tmp_path: Path, wrong: datetime) -> None:
    """It serves when the clock is right again, or when the operator confirms it."""
    clock = TurnedClock(NOW)
    make_server(tmp_path, clock)
    clock.moment = wrong

    async def run() -> None:
        async with serving(tmp_path, clock) as server:
            assert (await banner_of(server)).ending == "BUSY"
            with pytest.raises(Unavailable):
                await connect(server)
            clock.moment = NOW + timedelta(minutes=1)
            async with await connect(server) as remote:
                assert await remote.call(commands.SelfTest()) == Listing(("PASS",))
                # Who is inside when the clock goes wrong is not served any more.
                clock.moment = wrong
                with pytest.raises(NetworkError):
                    await remote.ping()
            assert (await banner_of(server)).ending == "BUSY"
            await server.operator.fulfil({"do": "clock confirm"})
            assert (await banner_of(server)).ready

    asyncio.run(run())


def test_a_self_test_always_writes(tmp_path: Path) -> None:
    """Also while the clock stands still; a store that takes nothing is told of."""
    clock = TurnedClock(NOW)
    make_server(tmp_path, clock)

    async def run() -> None:
        async with serving(tmp_path, clock) as server, await connect(server) as remote:
            store = server.services.store
            for number in (1, 2):
                assert await remote.call(commands.SelfTest()) == Listing(("PASS",))
                written = await store.read(lambda view: view.setting("self-tests"))
                assert written == str(number)
            await store.close()
            assert await remote.call(commands.SelfTest()) == Listing(("FAIL STORE",))
            assert await remote.ping("in step") == "in step"

    asyncio.run(run())
