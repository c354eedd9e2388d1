"""Pins: first seen, same, changed, and what each means for the connection."""

import asyncio
import logging

import pytest
from tests.net.conftest import Identity
from tests.net.small_server import AUTH_KEY, LOOPBACK, USERID, SmallServer, serving

from sealmail_net.dialing import dial
from sealmail_net.errors import PinChanged
from sealmail_net.pins import MemoryPins, PinCheck, check_pin, delivery_way, login_way
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.commands import StartTls

FIRST, SECOND = b"\x01" * 32, b"\x02" * 32


def test_a_pin_is_first_seen_then_same_then_changed() -> None:
    """Checking remembers nothing; only ``remember`` does."""
    pins = MemoryPins()
    assert check_pin(pins, "direct a:1", FIRST) is PinCheck.FIRST_SEEN
    assert check_pin(pins, "direct a:1", FIRST) is PinCheck.FIRST_SEEN
    pins.remember("direct a:1", FIRST)
    assert check_pin(pins, "direct a:1", FIRST) is PinCheck.SAME
    assert check_pin(pins, "direct a:1", SECOND) is PinCheck.CHANGED


def test_each_way_has_its_own_pin() -> None:
    """What one way shows does not touch the pin of another."""
    pins = MemoryPins()
    pins.remember("direct a:1", FIRST)
    assert check_pin(pins, "exit a:1", SECOND) is PinCheck.FIRST_SEEN


def test_a_first_connection_remembers_the_key(identity: Identity) -> None:
    """The pin of a strict connection is kept for the direct way, and the next one passes."""

    async def scene() -> None:
        pins = MemoryPins()
        async with serving(SmallServer(identity.context())) as (address, _):
            for _ in range(2):
                async with await dial(address, LOOPBACK, pins, strict_pin=True):
                    assert pins.pin_of(login_way(address)) == identity.pin

    asyncio.run(scene())


def test_a_changed_key_stops_a_strict_connection(
    identity: Identity, other_identity: Identity
) -> None:
    """Nothing is sent to a server with another key, and the known pin stays."""

    async def scene() -> None:
        pins = MemoryPins()
        server = SmallServer(identity.context())
        async with serving(server) as (address, _):
            pins.remember(login_way(address), other_identity.pin)
            with pytest.raises(PinChanged, match="Ask its operator") as caught:
                async with await dial(address, LOOPBACK, pins, strict_pin=True) as remote:
                    await remote.login(USERID, AUTH_KEY)
            assert (caught.value.old, caught.value.new) == (other_identity.pin, identity.pin)
            assert pins.pin_of(login_way(address)) == other_identity.pin
        assert server.events == [StartTls()]

    asyncio.run(scene())


def test_a_changed_key_does_not_stop_a_delivery(
    identity: Identity, other_identity: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    """A delivery warns, records and goes on, and leaves the pin of logins alone."""

    async def scene() -> ServerAddress:
        pins = MemoryPins()
        async with serving(SmallServer(identity.context())) as (address, _):
            pins.remember(delivery_way(address), other_identity.pin)
            pins.remember(login_way(address), other_identity.pin)
            async with await dial(address, LOOPBACK, pins, strict_pin=False) as remote:
                assert await remote.ping() == ""
            assert pins.pin_of(delivery_way(address)) == identity.pin
            assert pins.pin_of(login_way(address)) == other_identity.pin
        return address

    with caplog.at_level(logging.WARNING):
        address = asyncio.run(scene())
    assert f"{address} shows another key" in caplog.text
