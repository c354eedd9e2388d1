"""Dialing a server: way, connect, banner, STARTTLS, pin; nothing secret before all that."""

import asyncio
import logging
import os
from dataclasses import dataclass, field

from sealmail_net.errors import (
    NoTls,
    PinChanged,
    Unavailable,
    Unreachable,
)
from sealmail_net.handshakes import Handshake, pinned_handshake
from sealmail_net.link import ServerLink
from sealmail_net.pins import PinCheck, PinStore, check_pin, delivery_way, login_way
from sealmail_net.remote_server import RemoteServer
from sealmail_net.socks import Proxies
from sealmail_net.targets import IpAddress, check_literal, resolve
from sealmail_net.tls import public_key_pin
from sealmail_net.ways import Way
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.commands import StartTls
from sealmail_protocol.conversation import ClientConversation
from sealmail_protocol.errors import ProtocolError
from sealmail_protocol.replies import Banner, Word

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DialSettings:
    """Whom we dial, on which ways, and how long we wait; the deadlines are in seconds.

    ``source`` is the address of this machine to dial from; otherwise the system chooses.
    Whoever dials often keeps one value: the threads of its proxies are bounded together.
    """

    allow_private_targets: bool = False
    connect_deadline: float = 15.0
    answer_deadline: float = 60.0
    # A circuit to a hidden service takes several round trips around the world to build.
    proxy_deadline: float = 60.0
    proxies: Proxies = field(default_factory=Proxies)
    source: str | None = None
    handshake: Handshake = pinned_handshake


async def dial(
    address: ServerAddress, settings: DialSettings, pins: PinStore, *, strict_pin: bool
) -> RemoteServer:
    """Return a server that is ready for commands inside TLS, or raise a ``NetworkError``.

    ``NoWay`` is one that no later try mends.

    ``strict_pin`` belongs wherever we log in, replicate or derive trust: a changed key then
    raises ``PinChanged``. Without it (delivery to strangers) the change is logged and recorded.
    """
    way = settings.proxies.policy.way_to(address)
    if way is Way.DIRECT:
        link = await _connect(address, settings)
    else:
        link = await _connect_by_proxy(address, way, settings)
    try:
        await _read_banner(link, address)
        await _start_tls(link, address, settings.handshake)
        pin = _pin_of(link, address)
        _judge_pin(address, pin, pins, way, strict=strict_pin)
    except BaseException:
        await link.hang_up()
        raise
    return RemoteServer(address, link, pin, way, link.shown)


async def _connect(address: ServerAddress, settings: DialSettings) -> ServerLink:
    targets = await resolve(
        address, allow_private=settings.allow_private_targets, deadline=settings.connect_deadline
    )
    reasons: list[str] = []
    for target in targets:
        try:
            return await _connect_to(target, address, settings)
        except TimeoutError:
            reasons.append(f"{target} did not answer in time")
        except OSError as error:
            reasons.append(f"{target}: {os.strerror(error.errno) if error.errno else error}")
    raise Unreachable(address, ", ".join(reasons))


async def _connect_to(
    target: IpAddress, address: ServerAddress, settings: DialSettings
) -> ServerLink:
    """Connect to exactly the address that was judged; a second look-up could differ."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(settings.connect_deadline):
        _, link = await loop.create_connection(
            lambda: _new_link(address, settings),
            str(target),
            address.port,
            local_addr=(settings.source, 0) if settings.source else None,
        )
    return link


async def _connect_by_proxy(
    address: ServerAddress, way: Way, settings: DialSettings
) -> ServerLink:
    check_literal(address, allow_private=settings.allow_private_targets)
    connected = await settings.proxies.connect(address, way, settings.proxy_deadline)
    loop = asyncio.get_running_loop()
    try:
        _, link = await loop.create_connection(
            lambda: _new_link(address, settings), sock=connected
        )
    except BaseException:
        connected.close()
        raise
    return link


def _new_link(address: ServerAddress, settings: DialSettings) -> ServerLink:
    return ServerLink(ClientConversation(), peer=address, idle_seconds=settings.answer_deadline)


async def _read_banner(link: ServerLink, address: ServerAddress) -> None:
    try:
        banner = await link.next_event("its banner")
    except ProtocolError as error:
        raise Unavailable(address, f"no Confidant Mail server ({error})") from error
    if not isinstance(banner, Banner):
        raise Unavailable(address, "it closed the connection")
    if not banner.ready:
        raise Unavailable(address, banner.ending)


async def _start_tls(link: ServerLink, address: ServerAddress, handshake: Handshake) -> None:
    """Ask for TLS; any other answer than PROCEED ends the connection, never goes on in clear."""
    try:
        link.write(link.conversation.send(StartTls()))
        await link.drain()
        answer = await link.next_event("the answer to STARTTLS")
        if answer is not Word.PROCEED:
            raise NoTls(address, f"it answered {answer}")
        await link.start_tls(handshake)
        answer = await link.next_event("ENCRYPTED")
        if answer is not Word.ENCRYPTED:
            raise NoTls(address, f"it ended after the handshake with {answer}")
    except ProtocolError as error:
        raise NoTls(address, str(error)) from error


def _pin_of(link: ServerLink, address: ServerAddress) -> bytes:
    if link.shown.certificate is None:
        raise NoTls(address, "it showed no certificate")
    try:
        return public_key_pin(link.shown.certificate)
    except ValueError as error:
        raise NoTls(address, f"its certificate cannot be read ({error})") from error


def _judge_pin(
    address: ServerAddress, pin: bytes, pins: PinStore, way: Way, *, strict: bool
) -> None:
    name = login_way(address, way) if strict else delivery_way(address, way)
    known = pins.pin_of(name)
    check = check_pin(pins, name, pin)
    if check is PinCheck.CHANGED and known is not None:
        if strict:
            raise PinChanged(address, known, pin, way)
        _log.warning("%s shows another key than before; sealed mail goes on", address)
    if check is not PinCheck.SAME:
        pins.remember(name, pin)
