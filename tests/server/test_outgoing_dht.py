"""Blocks given to STORE PROXY for the DHT: entered here by its rules, and spread from here."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.server.inside import TurnedClock, address_of, connect
from tests.server.mailing import (
    RECIPIENT,
    log_in,
    make_servers,
    queue_of,
    running,
    send_mail,
    settled,
    states,
    until,
)
from tests.server.users import FLOOR, message, now

from sealmail_net.remote_server import RemoteServer
from sealmail_pow import Difficulty, mint
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.canonical import data_digest
from sealmail_protocol.commands import GetEntangled, StoreEntangled, StoreProxy
from sealmail_protocol.compose import make_data_header
from sealmail_protocol.keys import BlockKey, KeyId, data_key
from sealmail_protocol.policy import BLOCK_POLICY, KIB
from sealmail_protocol.replies import Refused, Word
from sealmail_protocol.stamps import data_challenge_prefix
from sealmail_server.service import Server

MAIL, TO_DHT = "message-announcement", "Post-To: entangled"
PRICE = BLOCK_POLICY[BlockType.DATA].dht_stamp
MANY = 100_000
OTHER = KeyId(bytes(20))
IN_DHT: dict[str, Any] = {
    "dht": True,
    "dht_requests_per_second": MANY,
    "stranger_requests_per_second": MANY,
}


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Directories of two servers, used by one test after the other."""
    return make_servers(tmp_path_factory.mktemp("servers"), 2)


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario to its end."""
    asyncio.run(scenario())


async def send_data(
    remote: RemoteServer, data: bytes, price: Difficulty = PRICE, *, direct: bool = False
) -> bytes:
    """Hand in a data block for the DHT, and return its digest."""
    key, date = data_key(data), now()
    header = make_data_header(date, mint(data_challenge_prefix(date) + data, price), len(data))
    command = StoreEntangled(key) if direct else StoreProxy(key)
    head = () if direct else (TO_DHT,)
    done = await remote.post_data(command, (*head, *header.lines), len(data), (data,))
    assert done is Word.DONE
    return data_digest(header, key)


def test_a_mail_for_the_dht_is_found_at_another_server(homes: list[Path]) -> None:
    """Its data goes first, and both are delivered once they are durable here."""
    data = bytes(range(256)) * 256
    mail = message(RECIPIENT, PRICE, data=data)

    async def scenario() -> None:
        async with running(homes[0], **IN_DHT) as (first,):
            bootstrap = [str(address_of(first))]
            async with running(homes[1], dht_bootstrap=bootstrap, **IN_DHT) as (second,):
                async with await log_in(first) as remote:
                    assert await send_mail(remote, mail, TO_DHT) is Word.DONE
                    assert states(await queue_of(remote))[0][:2] == (MAIL, 1)
                    await send_data(remote, data)
                    rows = states(await settled(remote, 2))
                assert rows == [(MAIL, 1, "delivered", "-"), ("data", 1, "delivered", "-")]
                await until(lambda: is_found(second, mail.own_key))
                await until(lambda: is_found(second, data_key(data)))

    play(scenario)


async def is_found(server: Server, key: BlockKey) -> bool:
    """Return whether a server finds something in the DHT."""
    async with await connect(server) as remote:
        return await remote.fetch_body(GetEntangled(key), 2**20) is not None


def test_what_the_dht_does_not_take_is_a_dead_letter(homes: list[Path]) -> None:
    """For its size or its stamp, by the column of the DHT."""
    large, cheap = bytes(64 * KIB + 1), b"cheap" * 100

    async def scenario() -> None:
        async with (
            running(homes[0], **IN_DHT) as (server,),
            await log_in(server, OTHER) as remote,
        ):
            await send_data(remote, large)
            assert states(await settled(remote, 1)) == [("data", 1, "refused", "size")]
            await send_data(remote, cheap, FLOOR)
            assert states(await settled(remote, 2))[1:] == [("data", 1, "refused", "stamp")]
            assert await send_mail(remote, message(RECIPIENT, data=cheap), TO_DHT) is Word.DONE
            assert states(await settled(remote, 3))[2:] == [(MAIL, 1, "refused", "stamp")]
            assert not await is_found(server, data_key(cheap))

    play(scenario)


def test_the_verdict_on_refused_data_is_found_by_its_digest(homes: list[Path]) -> None:
    """The digest of a data block is over its lines and its key."""

    async def scenario() -> None:
        async with (
            running(homes[0], **IN_DHT) as (server,),
            await connect(server) as remote,
        ):
            for digest in (
                await send_data(remote, b"cheap too" * 50, FLOOR, direct=True),
                await send_data(remote, bytes(200 * KIB), direct=True),
            ):
                assert isinstance(await remote.verdict(digest), Refused)

    play(scenario)


def test_a_server_that_leaves_the_dht_returns_what_waits_for_it(homes: list[Path]) -> None:
    """The row was taken when the DHT was on, and waits for its time."""
    mail, clock = message(RECIPIENT, PRICE), TurnedClock(now())
    after = now() + timedelta(hours=1)

    async def scenario() -> None:
        async with (
            running(homes[0], clock=clock, **IN_DHT) as (server,),
            await log_in(server) as remote,
        ):
            known = len(await queue_of(remote))
            assert await send_mail(remote, mail, TO_DHT, after=after) is Word.DONE
        clock.turn(hours=2)
        async with running(homes[0], clock=clock) as (server,), await log_in(server) as remote:
            rows = await settled(remote, known + 1)
            assert states(rows)[known:] == [(MAIL, 1, "given-up", "entangled")]

    play(scenario)
