"""GET PROXY: the home server fetches keys and claims, and nothing else, for its users."""

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.net.small_server import SmallServer
from tests.net.small_server import serving as serving_small
from tests.net.socks_server import SocksServer
from tests.server.inside import TurnedClock, address_of, connect
from tests.server.mailing import log_in, make_servers, open_account, running
from tests.server.users import User, now

from sealmail_net.dialing import DialSettings
from sealmail_net.errors import Unavailable
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_net.socks import Proxies
from sealmail_net.tls import server_context
from sealmail_net.ways import ProxyPolicy
from sealmail_protocol.addresses import Network, ServerAddress, Transport
from sealmail_protocol.commands import GetProxy
from sealmail_protocol.fields import decode_lines
from sealmail_protocol.keys import BlockKey, address_key
from sealmail_protocol.replies import Word
from sealmail_server.onion_key import OnionKey
from sealmail_server.outgoing.connecting import OutgoingDialer
from sealmail_server.outgoing.fetching import Fetcher, NotFetched
from sealmail_server.outgoing.routes import Routes
from sealmail_server.outgoing.strangers import Strangers
from sealmail_server.outgoing.targets import TargetRules
from sealmail_server.service import Server

ONION = ServerAddress(OnionKey(b"1" * 32).host, 8081)


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Directories of two servers, used by one test after the other."""
    return make_servers(tmp_path_factory.mktemp("servers"), 2)


@pytest.fixture(scope="module")
def ann() -> Iterator[User]:
    """Return a user with a key, in a place short enough for GnuPG's sockets."""
    with tempfile.TemporaryDirectory() as place:
        user = User.create(Path(place) / "a", "ann")
        yield user
        user.close()


async def fetch(
    remote: RemoteServer, key: BlockKey, *servers: Server | str
) -> tuple[bytes, ...] | None:
    """Ask for a key at a group of servers."""
    names = [str(address_of(each)) if isinstance(each, Server) else each for each in servers]
    return await remote.fetch(GetProxy(key, Transport.parse(f"server={','.join(names)}")))


def test_keys_and_claims_are_fetched_from_a_strangers_server(homes: list[Path], ann: User) -> None:
    """The first server that answers is believed, and asked once a minute."""
    clock = TurnedClock(now())

    async def scenario() -> None:
        async with running(*homes, clock=clock) as (home, target):
            await open_account(target, ann.key_id)
            key = BlockKey(ann.key_id.raw)
            claimed = address_key("ann@a.example")
            async with await log_in(target, ann.key_id) as owner:
                announced, claim = ann.announcement(), ann.claim("ann@a.example")
                assert await owner.store(key, announced.lines) is Word.DONE
                assert await owner.store(claimed, claim.lines) is Word.DONE
            async with await log_in(home) as remote:
                found = await fetch(remote, key, "127.0.0.1:1", target)
                assert found is not None
                assert decode_lines(found) == announced.lines
                found = await fetch(remote, claimed, target)
                assert found is not None
                assert decode_lines(found) == claim.lines
                assert await fetch(remote, BlockKey(bytes(20)), target) is None
                # By its own name it answers itself, as GET does.
                assert await fetch(remote, key, home) is None
            await target.services.store.write(
                lambda view: view.remove_entry("key-announcement", key)
            )
            async with await log_in(home) as remote:
                assert await fetch(remote, key, "127.0.0.1:1", target) is not None
                clock.turn(seconds=61)
                assert await fetch(remote, key, "127.0.0.1:1", target) is None

    asyncio.run(scenario())


def test_the_preferred_network_is_asked_first(homes: list[Path]) -> None:
    """Of a server with two faces the onion is asked, where the operator prefers Tor."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            (target,) = await stack.enter_async_context(running(homes[1]))
            proxy = SocksServer({ONION.host: address_of(target).port})
            at = await stack.enter_async_context(proxy.serving())
            settings: dict[str, Any] = {"tor_proxy": str(at), "preferred_connection": "tor"}
            (home,) = await stack.enter_async_context(running(homes[0], **settings))
            async with await log_in(home) as remote:
                for number in range(6):
                    key = BlockKey(bytes((number,)) * 20)
                    assert await fetch(remote, key, target, str(ONION)) is None
        assert [one.host for one in proxy.asked] == [ONION.host] * 6

    asyncio.run(scenario())


def test_a_dead_onion_leaves_time_for_the_server_beside_it(homes: list[Path]) -> None:
    """And is asked last from then on; what is to be delivered there does not suffer for it."""
    chance = random.SystemRandom()

    async def scenario() -> None:
        proxy = SocksServer(pits=(ONION.host,))
        async with running(homes[1]) as (target,), proxy.serving() as at:
            policy = ProxyPolicy(at, preferred=Network.TOR)
            settings = DialSettings(allow_private_targets=True, proxies=Proxies(policy))
            dialer = OutgoingDialer(settings, MemoryPins(), set, now)
            rules, routes = TargetRules(set, allow_private=True, policy=policy), Routes(chance)
            strangers = Strangers(routes, set, time.monotonic)
            fetcher = Fetcher(rules, dialer, routes, strangers, now, deadline=0.6)
            group = Transport((address_of(target), ONION))
            routes.worked(ONION, now())
            for number in range(3):
                assert await fetcher.fetch(BlockKey(bytes((number,)) * 20), group, "ann") is None
            assert routes.down() == ()
            assert routes.is_known(ONION)
        assert [one.host for one in proxy.asked] == [ONION.host]

    asyncio.run(scenario())


def test_nothing_else_is_fetched_and_nobody_but_users_may_ask(homes: list[Path]) -> None:
    """A stranger is FAILED, and so are a forbidden target and one that does not answer."""
    key = BlockKey(bytes(20))

    async def scenario() -> None:
        async with running(*homes) as (home, target):
            async with await connect(home) as stranger:
                with pytest.raises(Unavailable):
                    await fetch(stranger, key, target)
            async with await log_in(home) as remote:
                with pytest.raises(Unavailable):
                    await fetch(remote, key, "127.0.0.1:1")
        async with (
            running(homes[0], allow_private_targets=False) as (home,),
            await log_in(home) as remote,
        ):
            for name in ("10.0.0.1:8081", "localhost:1"):
                with pytest.raises(Unavailable):
                    await fetch(remote, key, name)
            assert {"GET-PROXY", "QUEUE"} < set(await remote.capabilities())

    asyncio.run(scenario())


def test_an_endless_answer_is_not_kept(homes: list[Path]) -> None:
    """A server that answers a GET with more than all claims can be is not believed."""
    lines = b"Type: address-claim\r\n" + b"X: y\r\n" * 400_000 + b"EndBlock\r\n"

    async def scenario() -> None:
        hostile = SmallServer(
            server_context(homes[1] / "tls/server.crt", homes[1] / "tls/server.key")
        )
        hostile.blocks[BlockKey(bytes(20))] = lines
        async with (
            serving_small(hostile) as (address, _),
            running(homes[0]) as (home,),
            await log_in(home) as remote,
        ):
            with pytest.raises(Unavailable):
                await fetch(remote, BlockKey(bytes(20)), str(address))

    asyncio.run(scenario())


def test_nobody_has_hosts_looked_for_by_fetching(homes: list[Path]) -> None:
    """New servers count as those of STORE PROXY do; one that was asked before may be asked on."""

    async def scenario() -> None:
        async with running(homes[0]) as (home,):
            fetcher = home.services.office.fetcher

            async def ask(number: int, key: int = 0) -> str:
                target = f"server={','.join(f'127.9.9.{number}:{port}' for port in range(1, 17))}"
                with pytest.raises(NotFetched) as refused:
                    await fetcher.fetch(BlockKey(bytes([key] * 20)), Transport.parse(target), "U")
                return str(refused.value)

            told = [await ask(number) for number in range(40)]
            # 512 servers are 32 groups; the allowance grows while they are asked.
            refused = [number for number, each in enumerate(told) if "do not know" in each]
            assert 0 < len(refused) <= 8
            assert refused[-1] == 39
            assert "do not know" not in await ask(5, key=1)

    asyncio.run(scenario())
