"""The outgoing queue of a pair: what one server took the other knows, and delivers if need be."""

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.server.inside import TurnedClock, address_of, serving
from tests.server.mailing import (
    RECIPIENT,
    SENDER,
    holds,
    log_in,
    make_servers,
    open_account,
    post_to,
    running,
    send_mail,
    settled,
    until,
)
from tests.server.users import data_lines, message, now

from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.blocks import MessageAnnouncement
from sealmail_protocol.bundles import MAX_POST_TO
from sealmail_protocol.commands import StoreProxy
from sealmail_protocol.keys import data_key, mailbox_key
from sealmail_protocol.replies import QueueState, Word
from sealmail_server.config import Config
from sealmail_server.operator import OperatorError
from sealmail_server.service import Server
from sealmail_store import QueueKind, WriteView

# Larger than what is kept in the index, so that it goes by a file.
DATA = b"waits for its hour " * 20_000
# Clocks tell more than blocks, rows and the wire, which have whole seconds.
FRACTION = timedelta(microseconds=654_321)


@pytest.fixture
def homes(tmp_path: Path) -> list[Path]:
    """Make a target, a pair, and what takes the place of its second server."""
    return make_servers(tmp_path, 4)


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario to its end."""
    asyncio.run(scenario())


@asynccontextmanager
async def paired(directory: Path, clock: TurnedClock, **more: Any) -> AsyncIterator[Server]:
    """Run a server with the partner that its file names, where that looks for it."""
    config = Config.load(directory)
    settings: dict[str, Any] = {
        "partner": config.partner,
        "partner_auth_key": config.partner_auth_key,
        "partner_pin": config.partner_pin,
        "allow_private_targets": True,
        **more,
    }
    place = directory / "address"
    if place.exists():
        settings["listen"] = place.read_text()
    async with serving(directory, clock, **settings) as server:
        place.write_text(str(address_of(server)))
        yield server


async def pair(first: Server, second: Server) -> None:
    """Pair two servers as two operators would, and wait until both have told everything."""
    address = str(address_of(first))
    offered = await first.operator.fulfil({"do": "pair offer", "address": address})
    join = {"do": "pair join", "code": offered["code"], "address": str(address_of(second))}
    await second.operator.fulfil(join)
    for server in (first, second):
        await until(lambda: has_told_all(server))  # noqa: B023 - awaited before the next one


async def has_told_all(server: Server) -> bool:
    """Tell whether the partner of a server is there and knows everything."""
    found = await server.operator.fulfil({"do": "pair status"})
    return bool(
        found["connected"] and not sum(found["queued"].values()) and found["comparing"] is None
    )


async def hand_in(
    remote: RemoteServer, mail: MessageAnnouncement, line: str, clock: TurnedClock
) -> None:
    """Hand in a mail and its data, to go in an hour."""
    date = clock.moment - FRACTION
    after = date + timedelta(hours=1)
    key, lines = data_lines(DATA, date)
    command = StoreProxy(key, after)
    assert await remote.post_data(command, (line, *lines), len(DATA), (DATA,)) is Word.DONE
    assert await send_mail(remote, mail, line, after=after) is Word.DONE


async def rows(server: Server) -> list[tuple[bool, str]]:
    """Return of each row whether it is a copy, and its state."""
    found = await server.operator.fulfil({"do": "queue list"})
    return [(row["copy"], row["state"]) for row in found]


async def has_rows(server: Server, count: int) -> bool:
    """Tell whether a server knows so many rows."""
    return len(await rows(server)) == count


async def arrived(target: Server) -> bool:
    """Tell whether the recipient has mail and data."""
    mail = await holds(target, "message-announcement", mailbox_key("0", RECIPIENT))
    return mail == 1 and await holds(target, "data", data_key(DATA)) == 1


def test_what_a_lost_partner_had_to_deliver_is_delivered_and_told_to_its_successor(
    homes: list[Path],
) -> None:
    """The copies become the survivor's own when it is paired anew, and stay so over a restart."""
    clock = TurnedClock(now() + FRACTION)

    async def scenario() -> None:
        async with running(homes[0], clock=clock) as (target,):
            await open_account(target, RECIPIENT)
            async with paired(homes[1], clock) as first:
                async with paired(homes[2], clock) as lost:
                    await pair(first, lost)
                    remote = await log_in(lost)
                    await hand_in(remote, message(RECIPIENT, data=DATA), post_to(target), clock)
                    await until(lambda: has_rows(first, 2))
                    assert await rows(first) == [(True, "waiting")] * 2
                    await remote.hang_up()
                shutil.rmtree(homes[2])
                async with paired(homes[3], clock) as successor:
                    await pair(first, successor)
                    assert await rows(first) == [(False, "waiting")] * 2
                    assert await rows(successor) == [(True, "waiting")] * 2
            async with paired(homes[3], clock) as successor:
                async with paired(homes[1], clock) as first:
                    assert not await arrived(target)
                    clock.turn(hours=1)
                    await until(lambda: arrived(target))
                    await until(lambda: has_told_all(first))
                async with await log_in(successor) as remote:
                    told = await settled(remote, 2)
                    assert {row.state for row in told} == {QueueState.DELIVERED}

    play(scenario)


def test_a_partner_restored_from_an_older_backup_gets_its_queue_back(homes: list[Path]) -> None:
    """``pair sync`` tells it what it has forgotten, and it is the one that delivers."""
    clock = TurnedClock(now() + FRACTION)
    old = homes[3]

    async def scenario() -> None:
        async with running(homes[0], clock=clock) as (target,):
            await open_account(target, RECIPIENT)
            async with paired(homes[1], clock) as first:
                async with paired(homes[2], clock) as second:
                    await pair(first, second)
                shutil.rmtree(old)
                shutil.copytree(homes[2], old)
                async with paired(homes[2], clock) as second:
                    async with await log_in(second) as remote:
                        mail = message(RECIPIENT, data=DATA)
                        await hand_in(remote, mail, post_to(target), clock)
                    await until(lambda: has_rows(first, 2))
                async with paired(old, clock) as second:
                    await until(lambda: has_told_all(second))
                    assert await rows(second) == []
                    await second.operator.fulfil({"do": "pair sync"})
                    await until(lambda: has_rows(second, 2))
                    assert await rows(second) == [(False, "waiting")] * 2
                    assert await rows(first) == [(True, "waiting")] * 2
                    clock.turn(hours=1)
                    await until(lambda: arrived(target))
                    await until(lambda: is_told(first))

    play(scenario)


def test_with_both_a_dead_letter_is_at_the_partner_when_its_block_is_answered(
    homes: list[Path],
) -> None:
    """Also one that is made at once, because no server may take the block."""
    clock = TurnedClock(now() + FRACTION)

    async def scenario() -> None:
        async with (
            paired(homes[1], clock, replication="both") as first,
            paired(homes[2], clock, replication="both") as second,
        ):
            await pair(first, second)
            async with await log_in(second) as remote:
                old = message(RECIPIENT, date=now() - timedelta(days=11))
                line = "Post-To: server=192.168.0.1:1"
                assert await send_mail(remote, old, line) is Word.DONE
            assert await rows(first) == [(True, "refused")]

    play(scenario)


@pytest.mark.parametrize("large", [True, False], ids=["data", "text"])
def test_a_block_for_more_targets_than_one_command_tells_is_mirrored_whole(
    homes: list[Path], large: bool
) -> None:
    """Every row is at the partner, with the block."""
    clock = TurnedClock(now() + FRACTION)
    names = [f"s{number}.{'long-' * 4}name.example:8081" for number in range(15)]
    groups = itertools.islice(itertools.combinations(names, 4), MAX_POST_TO)
    lines = [post_to(*group) for group in groups]
    assert 40_000 < sum(map(len, lines)) < 60_000

    async def scenario() -> None:
        async with paired(homes[1], clock) as first, paired(homes[2], clock) as second:
            await pair(first, second)
            async with await log_in(second) as remote:
                date = clock.moment - FRACTION
                after = date + timedelta(hours=1)
                if large:
                    key, header = data_lines(DATA, date)
                    body = (*lines, *header)
                    command = StoreProxy(key, after)
                    assert await remote.post_data(command, body, len(DATA), (DATA,)) is Word.DONE
                else:
                    mail = message(RECIPIENT, date=date)
                    assert await send_mail(remote, mail, *lines, after=after) is Word.DONE
            await until(lambda: has_rows(first, MAX_POST_TO))
            assert await rows(first) == [(True, "waiting")] * MAX_POST_TO
            held = await first.services.store.read(lambda view: view.counts())
            assert held["proxied"].entries == 1
            await until(lambda: has_told_all(second))

    play(scenario)


def test_a_pairing_that_a_stop_kept_out_of_the_settings_is_written_down_at_the_start(
    homes: list[Path],
) -> None:
    """What was agreed on is in the store first; neither server is paired alone after that."""
    clock = TurnedClock(now())
    written = homes[2] / "config.toml"

    async def scenario() -> None:
        async with paired(homes[1], clock) as first:
            async with paired(homes[2], clock) as second:
                written.rename(homes[2] / "away")
                with pytest.raises(OperatorError, match=r"config\.toml"):
                    await pair(first, second)
                (homes[2] / "away").rename(written)
            assert Config.load(homes[2]).second_server is None
            async with paired(homes[2], clock) as second:
                agreed = Config.load(homes[2]).second_server
                assert agreed is not None
                assert agreed.address == address_of(first)
                await until(lambda: has_told_all(second))
                await until(lambda: has_told_all(first))

    play(scenario)


async def is_told(server: Server) -> bool:
    """Tell whether a server knows that its partner has delivered everything."""
    return await rows(server) == [(True, "delivered")] * 2


def test_whoever_ends_a_pair_delivers_what_the_partner_had_taken(homes: list[Path]) -> None:
    """Without a partner in its file a server owns the copies from its next start on."""
    clock = TurnedClock(now() + FRACTION)

    async def scenario() -> None:
        async with running(homes[0], clock=clock) as (target,):
            await open_account(target, RECIPIENT)
            async with paired(homes[1], clock) as first, paired(homes[2], clock) as lost:
                await pair(first, lost)
                async with await log_in(lost) as remote:
                    mail = message(RECIPIENT, data=DATA)
                    await hand_in(remote, mail, post_to(target), clock)
                await until(lambda: has_rows(first, 2))
            async with running(homes[1], clock=clock) as (alone,):
                clock.turn(hours=1)
                await until(lambda: arrived(target))
                async with await log_in(alone, SENDER) as remote:
                    told = await settled(remote, 2)
                    assert {row.state for row in told} == {QueueState.DELIVERED}

    play(scenario)


def test_what_becomes_of_one_delivery_is_not_taken_for_another(homes: list[Path]) -> None:
    """One block, handed in twice in one second, each time as the first line of its own command."""
    clock = TurnedClock(now() + FRACTION)

    async def scenario() -> None:
        async with running(homes[0], homes[3], clock=clock) as (target, other):
            async with paired(homes[1], clock) as first, paired(homes[2], clock) as lost:
                await pair(first, lost)
                async with await log_in(lost) as remote:
                    key, lines = data_lines(DATA, clock.moment - FRACTION)
                    later = StoreProxy(key, clock.moment - FRACTION + timedelta(hours=1))
                    for command, server in ((later, other), (StoreProxy(key), target)):
                        body = (post_to(server), *lines)
                        word = await remote.post_data(command, body, len(DATA), (DATA,))
                        assert word is Word.DONE
                one_of_them = [(True, "waiting"), (True, "delivered")]
                await until(lambda: has_these(first, one_of_them))
                await until(lambda: has_told_all(lost))
            shutil.rmtree(homes[2])
            async with running(homes[1], clock=clock):
                clock.turn(hours=1)
                await until(lambda: has_data(other))

    play(scenario)


def test_a_row_that_waits_is_never_told_without_its_block(homes: list[Path]) -> None:
    """Also where the block was to be told for another row, which was delivered meanwhile."""
    clock = TurnedClock(now() + FRACTION)

    async def scenario() -> None:
        async with (
            running(homes[0], clock=clock) as (target,),
            paired(homes[2], clock) as owner,
        ):
            async with paired(homes[1], clock) as first:
                await pair(first, owner)
            async with await log_in(owner) as remote:
                key, lines = data_lines(DATA, clock.moment - FRACTION)
                body = (post_to(target), *lines)
                word = await remote.post_data(StoreProxy(key), body, len(DATA), (DATA,))
                assert word is Word.DONE
                await settled(remote)
                later = StoreProxy(key, clock.moment - FRACTION + timedelta(hours=1))
                body = (post_to("192.168.0.1:1"), *lines)
                assert await remote.post_data(later, body, len(DATA), (DATA,)) is Word.DONE
            async with paired(homes[1], clock) as first:
                known = [(True, "delivered"), (True, "waiting")]
                await until(lambda: has_these(first, known))
                held = await first.services.store.read(lambda view: view.counts())
                assert held["proxied"].entries == 1

    play(scenario)


def test_a_partner_that_lost_a_block_is_told_it_again_with_its_row(homes: list[Path]) -> None:
    """It answers FAILED to a row that waits for what it has not, and gets both at once."""
    clock = TurnedClock(now() + FRACTION)

    async def scenario() -> None:
        async with paired(homes[1], clock) as first, paired(homes[2], clock) as owner:
            await pair(first, owner)
            async with await log_in(owner) as remote:
                key, lines = data_lines(DATA, clock.moment - FRACTION)
                later = StoreProxy(key, clock.moment - FRACTION + timedelta(hours=1))
                body = (post_to("192.168.0.1:1"), post_to("192.168.0.2:1"), *lines)
                assert await remote.post_data(later, body, len(DATA), (DATA,)) is Word.DONE
            await until(lambda: has_rows(first, 2))
            await until(lambda: has_told_all(owner))

            def lose(view: WriteView) -> None:
                rows = view.queue.all(QueueKind.MIRRORED, limit=9)
                view.queue.finish(row.number for row in rows)

            await first.services.store.write(lose)
            [dropped, *_] = await owner.operator.fulfil({"do": "queue list"})
            await owner.operator.fulfil({"do": "queue drop", "number": dropped["number"]})
            async with asyncio.timeout(5):
                await until(lambda: has_these(first, [(True, "given-up"), (True, "waiting")]))

    play(scenario)


async def has_these(server: Server, known: list[tuple[bool, str]]) -> bool:
    """Tell whether these are the rows of a server."""
    return await rows(server) == known


async def has_data(server: Server) -> bool:
    """Tell whether the data has arrived."""
    return await holds(server, "data", data_key(DATA)) == 1
