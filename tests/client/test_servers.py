"""Which server of a group the client dials, and what becomes of those that do not serve."""

import asyncio
import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.client.samples import DATE
from tests.net.conftest import Identity, make_identity
from tests.net.small_server import AUTH_KEY, ScriptedServer, SmallServer, serving
from tests.net.socks_server import SocksServer

from sealmail_client.connecting import DIRECTLY, Connecting, DnsUse
from sealmail_client.home_database import HomeDatabase
from sealmail_client.posting import Peer
from sealmail_client.servers import Servers
from sealmail_client.settings import AuthKey, Place, Settings
from sealmail_net.errors import (
    ConnectionLost,
    NoServerReached,
    PinChanged,
    Unavailable,
    Unreachable,
)
from sealmail_net.pins import login_way
from sealmail_protocol.addresses import Network, ServerAddress, Transport
from sealmail_protocol.keys import KeyId
from sealmail_protocol.replies import Banner

ONION = ServerAddress("pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion", 8081)
PUBLIC = ServerAddress("mail.example", 8081)
SHORT = 0.05
HOME = Settings(
    KeyId(bytes(20)), "Ann", "ann@a.example", Transport((PUBLIC,)), allow_private_targets=True
)


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    """Return the key and certificate of the servers."""
    return make_identity(tmp_path_factory.mktemp("identity"))


@dataclass(frozen=True)
class Desk:
    """The client's connections over a home of its own, by settings that the test may change."""

    database: HomeDatabase

    def servers(
        self,
        connecting: Connecting | None = None,
        head_start: float = 2.0,
        hasty: float = 20.0,
    ) -> Servers:
        """Return what dials for the user."""
        settings = replace(HOME, connecting=connecting) if connecting else HOME
        times = {"head_start": head_start, "hasty": hasty}
        return Servers(settings, {}, self.database, lambda: DATE, **times)

    def at_home(self, *group: ServerAddress, connecting: Connecting = DIRECTLY) -> Servers:
        """Return what dials for a user who has his account on these servers."""
        settings = replace(HOME, transport=Transport(group), connecting=connecting)
        keys = {Place.HOME: AuthKey(AUTH_KEY)}
        return Servers(settings, keys, self.database, lambda: DATE)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Return a new home: no server in it has a pin or failed lately."""
    database = HomeDatabase(tmp_path / "mail.sqlite")
    yield Desk(database)
    database.close()


async def reached(servers: Servers, *group: ServerAddress) -> ServerAddress:
    """Return which server of a group takes what is delivered."""
    async with servers.deliver(group) as peer:
        return peer.server.address


def closed_port() -> ServerAddress:
    """Return an address on loopback where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return ServerAddress("127.0.0.1", free.getsockname()[1])


def test_behind_a_busy_and_a_dead_server_the_third_is_reached(
    identity: Identity, desk: Desk
) -> None:
    """And asked first from then on, as long as the others are known to have failed."""

    async def scene() -> None:
        busy = SmallServer(identity.context(), Banner(ending="BUSY"))
        ready = SmallServer(identity.context())
        async with serving(busy) as (first, _), serving(ready) as (third, _):
            second = closed_port()
            assert await reached(desk.servers(), first, second, third) == third
            assert desk.servers().hints.order((first, second, third))[0] == third

    asyncio.run(scene())


def test_the_reasons_of_all_servers_are_told(identity: Identity, desk: Desk) -> None:
    """When nobody serves, the error names every server's own reason, and the banner's words."""

    async def scene() -> None:
        busy = SmallServer(identity.context(), Banner(ending="BUSY"))
        async with serving(busy) as (address, _):
            with pytest.raises(NoServerReached, match="BUSY") as caught:
                await reached(desk.servers(), address, closed_port())
            assert {type(reason) for reason in caught.value.reasons} == {Unavailable, Unreachable}

    asyncio.run(scene())


def test_every_server_of_a_group_is_somebodys_first_to_look_keys_up(
    identity: Identity, desk: Desk
) -> None:
    """Chance shares the work among those that all have what is asked for."""

    async def scene() -> None:
        small = [SmallServer(identity.context()) for _ in range(2)]
        async with serving(small[0]) as (first, _), serving(small[1]) as (second, _):
            servers, chosen = desk.servers(), set()
            # All 40 by the same one: once in 10 ** 12 runs.
            for _ in range(40):
                async with servers.look_up((first, second)) as peer:
                    chosen.add(peer.server.address)
                if len(chosen) == 2:
                    break
            assert chosen == {first, second}

    asyncio.run(scene())


def test_a_changed_key_is_told_although_another_server_answers(
    identity: Identity, desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The user must hear of it, and his mail need not wait for that."""

    async def scene() -> None:
        other = SmallServer(make_identity(tmp_path).context())
        small = SmallServer(identity.context())
        async with serving(other) as (changed, _), serving(small) as (ready, _):
            both, alone = desk.at_home(changed, ready), desk.at_home(changed)
            both.pins.remember(login_way(changed), identity.pin)
            async with both.home() as peer:
                assert peer.server.address == ready
            with pytest.raises(NoServerReached) as caught:
                async with alone.home():
                    pass
            assert isinstance(caught.value.reasons[0], PinChanged)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scene())
    assert "shows another key than before" in caplog.text


def test_the_preferred_address_of_a_group_is_dialled_first(identity: Identity, desk: Desk) -> None:
    """An anonymous user never tries the public name of a server that has an onion too."""

    async def scene() -> None:
        async with serving(SmallServer(identity.context())) as (real, _):
            proxy = SocksServer({ONION.host: real.port, PUBLIC.host: real.port})
            async with proxy.serving() as at:
                tor = Connecting(at, anonymous=True, exit_nodes=True, dns=DnsUse.OFF)
                servers = desk.servers(tor)
                for _ in range(2):
                    assert await reached(servers, PUBLIC, ONION) == ONION
                without = desk.servers(replace(tor, exit_nodes=False))
                with pytest.raises(NoServerReached, match="exit node"):
                    await reached(without, PUBLIC)
        assert {one.host for one in proxy.asked} == {ONION.host}

    asyncio.run(scene())


def test_exits_wait_for_a_slow_onion(identity: Identity, desk: Desk) -> None:
    """However long a circuit takes, no exit is tried beside it, nor at the next time."""

    async def scene() -> None:
        async with serving(SmallServer(identity.context())) as (real, _):
            hosts = {ONION.host: real.port, PUBLIC.host: real.port}
            proxy = SocksServer(hosts, far_off={ONION.host: 4 * SHORT})
            async with proxy.serving() as at:
                ways = Connecting(at, anonymous=True, exit_nodes=True, dns=DnsUse.OFF)
                for _ in range(2):
                    assert await reached(desk.servers(ways, SHORT), PUBLIC, ONION) == ONION
            assert {one.host for one in proxy.asked} == {ONION.host}

    asyncio.run(scene())


def test_the_open_network_waits_for_a_slow_onion_that_is_preferred(
    identity: Identity, desk: Desk
) -> None:
    """The address beside it never sees who comes by Tor."""

    async def scene() -> None:
        beside = ScriptedServer(b"CONFIDANT MAIL SERVER PROTOCOL 1 BUSY\r\n")
        async with (
            serving(SmallServer(identity.context())) as (real, _),
            beside.serving() as open_,
        ):
            proxy = SocksServer({ONION.host: real.port}, far_off={ONION.host: 4 * SHORT})
            async with proxy.serving() as at:
                ways = Connecting(at, prefer=Network.TOR)
                for _ in range(2):
                    assert await reached(desk.servers(ways, SHORT), open_, ONION) == ONION
            assert beside.connections == 0

    asyncio.run(scene())


def test_a_dead_onion_keeps_its_rank(identity: Identity, desk: Desk) -> None:
    """The other way is taken when it has failed, each time anew: a hint is no preference."""

    async def scene() -> None:
        async with serving(SmallServer(identity.context())) as (real, _):
            proxy = SocksServer()
            async with proxy.serving() as at:
                for _ in range(2):
                    servers = desk.servers(Connecting(at, prefer=Network.TOR))
                    assert await reached(servers, real, ONION) == real
        assert [one.host for one in proxy.asked] == [ONION.host, ONION.host]

    asyncio.run(scene())


def test_a_way_that_hung_lately_is_not_waited_for_as_long(identity: Identity, desk: Desk) -> None:
    """It is tried first all the same; it has its whole time when it is alone, or served again."""

    async def scene() -> None:
        async with serving(SmallServer(identity.context())) as (real, _):
            proxy = SocksServer(pits={ONION.host})
            async with proxy.serving() as at:
                servers = desk.servers(Connecting(at, prefer=Network.TOR), hasty=SHORT)
                servers.hints.note_failed(ONION)
                async with asyncio.timeout(5):
                    assert await reached(servers, real, ONION) == real
            proxy.hosts, proxy.pits, proxy.far_off = (
                {ONION.host: real.port},
                (),
                {ONION.host: 4 * SHORT},
            )
            async with proxy.serving() as at:
                servers = desk.servers(Connecting(at, prefer=Network.TOR), hasty=SHORT)
                assert await reached(servers, ONION) == ONION
                assert await reached(servers, real, ONION) == ONION
        assert [one.host for one in proxy.asked] == [ONION.host] * 3

    asyncio.run(scene())


def test_an_errand_whose_circuit_was_cut_is_begun_again_by_another_circuit(
    identity: Identity, desk: Desk
) -> None:
    """Whoever can cut it is not to see the user come directly, as long as the onion is there."""
    begun = []

    async def errand(peer: Peer) -> None:
        begun.append(peer.server.address)
        if len(begun) == 1:
            raise ConnectionLost(peer.server.address, "the circuit was cut")

    async def scene() -> None:
        async with serving(SmallServer(identity.context())) as (real, _):
            proxy = SocksServer({ONION.host: real.port})
            async with proxy.serving() as at:
                ways = Connecting(at, prefer=Network.TOR)
                await desk.at_home(real, ONION, connecting=ways).at_home(errand)
                assert begun == [ONION, ONION]
                proxy.hosts = {}
                begun.clear()
                await desk.at_home(real, ONION, connecting=ways).at_home(errand)
                assert begun == [real, real]

    asyncio.run(scene())


def test_an_errand_that_was_lost_goes_on_by_another_way(identity: Identity, desk: Desk) -> None:
    """The preferred server serves and breaks off: it has failed, and the next one is asked."""
    begun = []

    async def errand(peer: Peer) -> None:
        begun.append(peer.server.address)
        if len(begun) == 1:
            raise ConnectionLost(peer.server.address, "its disk is full")

    async def scene() -> None:
        async with serving(SmallServer(identity.context())) as (real, _):
            proxy = SocksServer({ONION.host: real.port})
            async with proxy.serving() as at:
                await desk.at_home(real, ONION, connecting=Connecting(at)).at_home(errand)
            assert begun == [real, ONION]

    asyncio.run(scene())
