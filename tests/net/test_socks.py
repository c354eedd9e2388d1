"""Dialing through SOCKS: names stay for the far end, identities apart, and failure is closed."""

import asyncio
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.net.conftest import Identity
from tests.net.small_server import SmallServer, serving
from tests.net.socks_server import Mood, SocksServer

from sealmail_net.dialing import DialSettings, dial
from sealmail_net.errors import ForbiddenTarget, PinChanged, Unreachable
from sealmail_net.pins import MemoryPins, login_way
from sealmail_net.socks import MAX_HANDSHAKES, Proxies
from sealmail_net.ways import ProxyPolicy, Way
from sealmail_protocol.addresses import ServerAddress

ONION = ServerAddress("pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion", 8081)
GARLIC = ServerAddress("mail.i2p", 8081)
PUBLIC = ServerAddress("mail.example", 8081)


def anonymous(proxy: ServerAddress, deadline: float = 5.0) -> DialSettings:
    """Return the settings of somebody who uses Tor alone, exits too."""
    policy = ProxyPolicy(proxy, direct=False, use_exit_node=True)
    return DialSettings(proxy_deadline=deadline, answer_deadline=5.0, proxies=Proxies(policy))


@pytest.fixture
def deaf_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test that looks up a name here."""

    def heard(host: object, *_: object, **__: object) -> None:
        pytest.fail(f"the resolver was asked for {host!r}")

    monkeypatch.setattr(socket, "getaddrinfo", heard)
    monkeypatch.setattr(socket, "gethostbyname", heard)


@pytest.mark.usefixtures("deaf_resolver")
@pytest.mark.parametrize(("target", "way"), [(ONION, Way.TOR), (PUBLIC, Way.EXIT)])
def test_names_are_resolved_at_the_far_end(
    identity: Identity, target: ServerAddress, way: Way
) -> None:
    """The proxy hears the name, no resolver does, and TLS and pin are as on any way."""

    async def scene() -> None:
        async with serving(SmallServer(identity.context())) as (real, _):
            proxy, pins = SocksServer({target.host: real.port}), MemoryPins()
            async with (
                proxy.serving() as at,
                await dial(target, anonymous(at), pins, strict_pin=True) as remote,
            ):
                assert await remote.ping("there") == "there"
                assert remote.way is way
        assert [(one.host, one.port) for one in proxy.asked] == [(target.host, target.port)]
        assert pins.pin_of(login_way(target, way)) == identity.pin
        assert pins.pin_of(login_way(target)) is None

    asyncio.run(scene())


def test_identities_and_servers_have_circuits_of_their_own(identity: Identity) -> None:
    """SOCKS user and password differ by identity and server, and stay while one is at work."""

    async def scene() -> None:
        async with serving(SmallServer(identity.context())) as (real, _):
            proxy = SocksServer({ONION.host: real.port, PUBLIC.host: real.port})
            async with proxy.serving() as at:
                first, second = anonymous(at), anonymous(at)
                for who, target in (
                    (first, ONION),
                    (first, ONION),
                    (first, PUBLIC),
                    (second, ONION),
                ):
                    async with await dial(target, who, MemoryPins(), strict_pin=True):
                        pass
        one, again, elsewhere, other = (asked.password for asked in proxy.asked)
        assert one == again
        assert len({one, elsewhere, other}) == 3
        assert all(asked.user for asked in proxy.asked)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("mood", "reason"),
    [
        (Mood.SILENT, "in time"),
        (Mood.DRIPPING, "in time|invalid"),
        (Mood.GARBLED, "invalid data"),
        (Mood.REFUSING, "Host unreachable"),
        (Mood.CUTTING, "closed|unexpectedly"),
        (Mood.SELECTIVE, "authentication"),
    ],
)
def test_a_bad_proxy_fails_closed_in_time(mood: Mood, reason: str) -> None:
    """Whatever a proxy does, the answer is an error by the deadline, and nothing goes direct."""

    async def scene() -> None:
        proxy = SocksServer(mood=mood)
        async with proxy.serving() as at:
            begun = time.monotonic()
            with pytest.raises(Unreachable, match=reason):
                await dial(ONION, anonymous(at, 1.0), MemoryPins(), strict_pin=False)
            assert time.monotonic() - begun < 2.5
            assert proxy.connections == 1

    asyncio.run(scene())


def test_a_dead_proxy_is_told(free_port: int) -> None:
    """Where nobody listens, the error names the proxy."""
    dead = ServerAddress("127.0.0.1", free_port)
    with pytest.raises(Unreachable, match=f"the proxy {dead}.*refused"):
        asyncio.run(dial(ONION, anonymous(dead), MemoryPins(), strict_pin=False))


def test_a_slow_proxy_uses_up_no_threads(identity: Identity) -> None:
    """Handshakes that hang hold a bounded number of threads, and other proxies serve on.

    When they have failed, their threads are free again.
    """

    async def scene() -> None:
        silent = SocksServer(mood=Mood.SILENT)
        async with serving(SmallServer(identity.context())) as (real, _):
            honest = SocksServer({GARLIC.host: real.port})
            async with silent.serving() as tor, honest.serving() as i2p:
                policy = ProxyPolicy(tor, i2p, direct=False)
                settings = DialSettings(
                    proxy_deadline=1.5, answer_deadline=5.0, proxies=Proxies(policy)
                )
                hanging = [
                    asyncio.create_task(dial(ONION, settings, MemoryPins(), strict_pin=False))
                    for _ in range(MAX_HANDSHAKES + 40)
                ]
                await asyncio.sleep(0.3)
                assert _threads_of(tor) == MAX_HANDSHAKES
                async with await dial(GARLIC, settings, MemoryPins(), strict_pin=False) as remote:
                    assert await remote.ping() == ""
                assert await asyncio.to_thread(lambda: "free") == "free"
                results = await asyncio.gather(*hanging, return_exceptions=True)
                assert all(isinstance(one, Unreachable) for one in results)
                silent.mood = Mood.REFUSING
                with pytest.raises(Unreachable, match="Host unreachable"):
                    await dial(ONION, settings, MemoryPins(), strict_pin=False)

    asyncio.run(scene())


def test_a_private_address_is_refused_before_the_proxy_hears_of_it() -> None:
    """An address in somebody's own network is no better behind a proxy."""

    async def scene() -> None:
        proxy = SocksServer()
        async with proxy.serving() as at:
            for host in ("127.0.0.1", "10.0.0.1", "::1", "::ffff:10.0.0.1"):
                with pytest.raises(ForbiddenTarget):
                    await dial(
                        ServerAddress(host, 80), anonymous(at), MemoryPins(), strict_pin=False
                    )
        assert proxy.connections == 0

    asyncio.run(scene())


def test_an_exit_cannot_replace_the_direct_pin(
    identity: Identity, other_identity: Identity
) -> None:
    """Each way has a pin: what an exit shows is judged by what exits showed before."""

    async def scene() -> None:
        server = SmallServer(identity.context())
        async with serving(server) as (real, _):
            pins = MemoryPins()
            pins.remember(login_way(PUBLIC), b"the direct one".ljust(32))
            async with SocksServer({PUBLIC.host: real.port}).serving() as at:
                async with await dial(PUBLIC, anonymous(at), pins, strict_pin=True):
                    pass
                server.tls = other_identity.context()
                with pytest.raises(PinChanged, match="on the way exit"):
                    await dial(PUBLIC, anonymous(at), pins, strict_pin=True)
            assert pins.pin_of(login_way(PUBLIC)) == b"the direct one".ljust(32)
            assert pins.pin_of(login_way(PUBLIC, Way.EXIT)) == identity.pin

    asyncio.run(scene())


def test_a_socks_server_of_the_system_serves(identity: Identity, free_port: int) -> None:
    """Names and addresses go through microsocks, with user and password."""

    async def scene(proxy: ServerAddress) -> None:
        async with serving(SmallServer(identity.context())) as (real, _):
            settings = DialSettings(
                allow_private_targets=True,
                proxies=Proxies(ProxyPolicy(proxy, direct=False, use_exit_node=True)),
            )
            for host in ("localhost", "127.0.0.1"):
                target = ServerAddress(host, real.port)
                async with await dial(target, settings, MemoryPins(), strict_pin=True) as remote:
                    assert await remote.ping() == ""
            gone = ServerAddress("127.0.0.1", 1)
            with pytest.raises(Unreachable, match="refused"):
                await dial(gone, settings, MemoryPins(), strict_pin=True)

    with microsocks(free_port) as proxy:
        asyncio.run(scene(proxy))


@contextmanager
def microsocks(port: int) -> Iterator[ServerAddress]:
    """Run microsocks on a port of loopback."""
    program = shutil.which("microsocks")
    assert program is not None, "make test-needs installs microsocks"
    process = subprocess.Popen(
        [program, "-i", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(port)
        yield ServerAddress("127.0.0.1", port)
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int) -> None:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("the proxy did not start")


def _threads_of(proxy: ServerAddress) -> int:
    return sum(each.name.startswith(f"socks {proxy}") for each in threading.enumerate())


@pytest.fixture
def free_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
