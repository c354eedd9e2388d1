"""The clock: believed within bounds, else the server is BUSY and deletes nothing."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.server.inside import TurnedClock, banner_of, connect, make_server, serving
from tests.server.mailing import RECIPIENT, SENDER, is_accepted, until
from tests.server.post_office import ANYBODY, key_of, lines_of
from tests.server.users import message

from sealmail_net.errors import NetworkError, Unavailable
from sealmail_protocol import commands
from sealmail_protocol.canonical import block_digest
from sealmail_protocol.keys import KeyId
from sealmail_protocol.replies import Accepted, Listing, Pending
from sealmail_server.clock_guard import ClockGuard, ClockState, judge_clock
from sealmail_server.limits import Limits
from sealmail_server.partner_feed import PartnerFeed
from sealmail_server.service import Server
from sealmail_store import BlockStore, QueueKind, QueueRow, StoredEntry

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


def test_what_a_clock_that_was_ahead_put_off_is_due_when_it_is_set_right(tmp_path: Path) -> None:
    """It would wait until that day; what its user wants to go in three days waits on."""

    async def run() -> None:
        clock = TurnedClock(NOW)
        async with BlockStore.open(tmp_path / "store", create=True) as store:
            guard = await guard_of(store, clock)
            waits = [NOW + timedelta(days=50, minutes=5), NOW + timedelta(days=3)]
            rows = [QueueRow(QueueKind.MIRROR, b"d" * 32, NOW, not_before=each) for each in waits]
            await store.write(lambda view: [view.queue.put(row) for row in rows])
            clock.turn(days=50)
            await guard.tick()
            clock.moment = NOW
            assert guard.state() is ClockState.BEHIND
            await guard.confirm()
            kept = await store.read(lambda view: view.queue.all(QueueKind.MIRROR, limit=9))
            assert [row.not_before for row in kept] == [None, waits[1]]

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


async def rows_of(server: Server) -> list[tuple[str, bool]]:
    """Return the state of each row of the outgoing queue, and whether its block is held."""
    return await server.services.store.read(
        lambda view: [
            (row.state, row.entry is not None and view.numbered(row.entry) is not None)
            for row in view.queue.all(QueueKind.PROXY, limit=9)
        ]
    )


async def a_sweep(server: Server) -> None:
    """Have the queue looked at now, not after a second, and wait until that is over."""
    server.office.postman.hasten((1,))
    await asyncio.sleep(0.2)


def test_what_was_taken_outlives_a_wrong_clock(tmp_path: Path) -> None:
    """Mail to be delivered, and mail that waits for an account, is judged by no wrong clock.

    Nor is it given up, or refused, by one that has jumped and is not trusted yet.
    """
    clock = TurnedClock(NOW)
    make_server(tmp_path, clock)
    mail = message(RECIPIENT, date=NOW)
    lines = (b"Post-To: server=127.0.0.1:1", *lines_of(mail))
    jumps = (EPOCH, LAST_DAY, NOW + timedelta(days=50))

    async def run() -> None:
        async with serving(tmp_path, clock, allow_private_targets=True) as server:
            assert (
                await server.services.intake.take_text(key_of(mail), lines_of(mail), ANYBODY)
                == Pending()
            )
            order = commands.StoreProxy(key_of(mail), NOW + timedelta(days=2))
            taken = await server.office.acceptance.take_text(order, lines, SENDER.hex)
            assert taken == Accepted()
        for clock.moment in jumps:
            async with serving(tmp_path, clock, allow_private_targets=True) as server:
                # The operator's socket is open whatever the clock says.
                await server.services.desk.add(RECIPIENT.hex, "K" * 40)
                await a_sweep(server)
                assert await rows_of(server) == [("waiting", True)]
                read = server.services.store.read
                assert await read(lambda view: view.is_waiting(block_digest(mail)))
        clock.moment = NOW + timedelta(minutes=1)
        async with serving(tmp_path, clock, allow_private_targets=True) as server:
            await server.operator.fulfil({"do": "clock confirm"})
            async with asyncio.timeout(10):
                await until(lambda: is_accepted(server, mail))
            assert await rows_of(server) == [("waiting", True)]

    asyncio.run(run())


def test_the_partner_is_told_of_what_looks_too_old_by_a_doubtful_clock(tmp_path: Path) -> None:
    """It has a clock of its own to judge by; a trusted one spares it what nobody would take."""
    clock = TurnedClock(NOW)
    entry = StoredEntry(
        type="message-announcement",
        key=key_of(message(KeyId(bytes(20)))),
        identity=b"i" * 32,
        date=NOW,
        header=b"header",
        digest=b"d" * 32,
        stamp_bits=8,
    )

    async def run() -> None:
        async with BlockStore.open(tmp_path / "store", create=True) as store:
            number = await store.write(lambda view: view.put_entry(entry))
            row = QueueRow(QueueKind.REPLICATE, entry.digest, NOW, entry.type, entry.key, number)
            await store.write(lambda view: view.queue.put(row))
            for turn in (LAST_DAY, NOW + timedelta(days=50), NOW + timedelta(days=40)):
                guard = await guard_of(store, clock)
                clock.moment = turn
                trusted = turn == NOW + timedelta(days=40)
                if trusted:
                    await guard.confirm()
                    clock.turn(days=1, seconds=1)
                    await guard.confirm()
                feed = PartnerFeed(
                    store, clock, Limits(), lambda wait: wait, lambda *_: None, guard
                )
                reading = asyncio.create_task(feed.run())
                if trusted:
                    await until(lambda: store.read(lambda view: view.queue.row(1) is None))
                else:
                    await feed.wait()
                    item = feed.take()
                    assert item is not None
                    assert item.entry is not None
                reading.cancel()
                await asyncio.wait((reading,))
                clock.moment = NOW

    asyncio.run(asyncio.wait_for(run(), 20))


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
