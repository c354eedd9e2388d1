"""Dialing: which targets are allowed, what a banner means."""

import asyncio
import ipaddress
import socket
from typing import Any

import pytest
from tests.net.conftest import Identity
from tests.net.small_server import LOOPBACK, READY, ScriptedServer, SmallServer, serving

from sealmail_net.dialing import DialSettings, dial
from sealmail_net.errors import (
    ForbiddenTarget,
    Timeout,
    TlsFailed,
    Unavailable,
    Unreachable,
)
from sealmail_net.pins import MemoryPins
from sealmail_net.targets import is_public
from sealmail_protocol.addresses import ServerAddress

PUBLIC_ONLY = DialSettings(connect_deadline=5.0, answer_deadline=5.0)
ONION = "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion"


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.1.1",
        "0.0.0.0",  # noqa: S104 - nobody listens on it here
        "100.64.0.1", "0.1.2.3", "224.0.0.1", "239.1.1.1", "240.0.0.1",
        "255.255.255.255", "192.0.2.1", "198.18.0.1", "::", "::1", "fe80::1", "fc00::1", "fd00::1",
        "fec0::1", "ff02::1", "ff0e::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8",
        "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::1", "2001::1",
    ],
)  # fmt: skip
def test_an_address_inside_some_network_is_not_public(text: str) -> None:
    """Loopback, private, link-local, shared, reserved and disguised ones are told apart."""
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", ["9.9.9.9", "2620:fe::fe", "64:ff9b::909:909"])
def test_an_address_of_the_internet_is_public(text: str) -> None:
    """Ordinary addresses pass, also through NAT64."""
    assert is_public(ipaddress.ip_address(text))


def test_the_address_that_was_judged_is_the_one_that_is_dialled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that leads elsewhere when it is looked up again does not lead us there."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def rebound(host: str, *rest: Any, **more: Any) -> list[Any]:
        if host != "rebound.example":
            return real(host, *rest, **more)
        asked.append(host)
        return real("127.0.0.2" if len(asked) == 1 else "127.0.0.1", *rest, **more)

    async def scene() -> None:
        fake = ScriptedServer(READY)
        async with fake.serving() as address:
            with pytest.raises(Unreachable, match=r"127\.0\.0\.2"):
                await dial(
                    ServerAddress("rebound.example", address.port),
                    LOOPBACK,
                    MemoryPins(),
                    strict_pin=True,
                )
        assert asked == ["rebound.example"]

    monkeypatch.setattr(socket, "getaddrinfo", rebound)
    asyncio.run(scene())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "::ffff:127.0.0.1"])
def test_a_private_target_is_refused_without_a_connection(host: str) -> None:
    """The resolved address decides; the server that listens there sees nobody."""

    async def scene() -> None:
        fake = ScriptedServer(READY)
        async with fake.serving() as address:
            with pytest.raises(ForbiddenTarget, match="allow_private_targets"):
                await dial(
                    ServerAddress(host, address.port), PUBLIC_ONLY, MemoryPins(), strict_pin=False
                )
        assert fake.connections == 0

    asyncio.run(scene())


def test_a_private_target_is_dialled_where_that_is_allowed(identity: Identity) -> None:
    """With ``allow_private_targets`` a name of loopback is resolved and dialled."""

    async def scene() -> None:
        async with serving(SmallServer(identity.context())) as (address, _):
            named = ServerAddress("localhost", address.port)
            async with await dial(named, LOOPBACK, MemoryPins(), strict_pin=True) as remote:
                assert await remote.ping() == ""

    asyncio.run(scene())


@pytest.mark.parametrize(("host", "network"), [(ONION, "Tor"), ("mail.i2p", "I2P")])
def test_hidden_services_never_reach_dns(
    host: str, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a proxy such a host is unreachable, and no resolver hears its name."""

    def heard(*_: object, **__: object) -> None:
        pytest.fail("the resolver was asked")

    monkeypatch.setattr(socket, "getaddrinfo", heard)
    with pytest.raises(Unreachable, match=f"no proxy to {network} is configured"):
        asyncio.run(dial(ServerAddress(host, 8081), LOOPBACK, MemoryPins(), strict_pin=False))


def test_a_name_that_does_not_exist_is_unreachable() -> None:
    """A failed look-up is told as such."""
    with pytest.raises(Unreachable, match="looked up"):
        asyncio.run(
            dial(ServerAddress("nobody.invalid", 1), LOOPBACK, MemoryPins(), strict_pin=False)
        )


def test_a_closed_port_is_unreachable() -> None:
    """The refusal of the operating system is part of the reason."""
    with pytest.raises(Unreachable, match="refused"):
        asyncio.run(dial(_closed_port(), LOOPBACK, MemoryPins(), strict_pin=False))


@pytest.mark.parametrize(
    ("banner", "text"),
    [
        pytest.param(b"CONFIDANT MAIL SERVER PROTOCOL 1 BUSY\r\n", "BUSY", id="busy"),
        pytest.param(b"CONFIDANT MAIL SERVER PROTOCOL 7 MOVED AWAY\r\n", "MOVED AWAY", id="text"),
        pytest.param(b"220 mail.example ESMTP\r\n", "no Confidant Mail server", id="smtp"),
    ],
)
def test_any_ending_but_ready_means_unavailable(banner: bytes, text: str) -> None:
    """The server's text is shown, and nothing is sent to it."""

    async def scene() -> None:
        fake = ScriptedServer(banner)
        async with fake.serving() as address:
            with pytest.raises(Unavailable, match=text):
                await dial(address, LOOPBACK, MemoryPins(), strict_pin=False)
        assert not fake.received

    asyncio.run(scene())


def test_a_silent_server_hits_the_deadline() -> None:
    """A peer that accepts and says nothing costs the deadline, no more."""

    async def scene() -> None:
        fake = ScriptedServer()
        hasty = DialSettings(allow_private_targets=True, answer_deadline=0.2)
        async with fake.serving() as address:
            with pytest.raises(Timeout, match="its banner"):
                await dial(address, hasty, MemoryPins(), strict_pin=False)

    asyncio.run(scene())


def test_a_silent_handshake_hits_the_deadline() -> None:
    """A peer that says PROCEED and then nothing costs the deadline, no more."""

    async def scene() -> None:
        fake = ScriptedServer(READY, b"PROCEED\r\n")
        hasty = DialSettings(allow_private_targets=True, answer_deadline=0.2)
        async with fake.serving() as address:
            with pytest.raises(TlsFailed):
                await dial(address, hasty, MemoryPins(), strict_pin=False)

    asyncio.run(scene())


def _closed_port() -> ServerAddress:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return ServerAddress("127.0.0.1", listening.getsockname()[1])
