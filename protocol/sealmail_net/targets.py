"""Which addresses may be dialled: decided on what a name resolves to, never on the name."""

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from sealmail_net.errors import ForbiddenTarget, NoWay, Unreachable
from sealmail_protocol.addresses import Network, ServerAddress

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# A name with more addresses than this makes us dial strangers in turn.
MAX_ADDRESSES = 4
# Behind NAT64 every IPv4 address has a name in here; what counts is the one inside.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# A name server that says nothing holds a thread for half a minute, whatever our deadline: these
# threads, since the few that all other work shares would soon stand still.
_LOOKING_UP = ThreadPoolExecutor(96, thread_name_prefix="names")
_PROXIED = {Network.TOR: "Tor", Network.I2P: "I2P"}


def is_public(address: IpAddress) -> bool:
    """Return whether an address is one of the open Internet, beyond anybody's own network."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(address.packed[-4:]))
        # IPv4 in another form, or private of old: an honest name has no use for them.
        if address.ipv4_mapped or address.sixtofour or address.teredo or address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


def check_literal(address: ServerAddress, *, allow_private: bool) -> None:
    """Judge what a proxy will dial: names resolve at its far end, addresses are known here."""
    literal = address.literal
    if literal is not None and not (allow_private or is_public(literal)):
        raise ForbiddenTarget(address, (str(literal),))


async def resolve(
    address: ServerAddress, *, allow_private: bool, deadline: float
) -> tuple[IpAddress, ...]:
    """Return the addresses to dial, in the order of the resolver, without forbidden ones."""
    if address.network in _PROXIED:
        network = _PROXIED[address.network]
        raise NoWay(address, f"it lives in {network}, and no proxy to {network} is configured")
    literal = address.literal
    found = (literal,) if literal else await _look_up(address, deadline)
    allowed = tuple(ip for ip in found if allow_private or is_public(ip))
    if not allowed:
        raise ForbiddenTarget(address, tuple(map(str, found)))
    return allowed[:MAX_ADDRESSES]


async def _look_up(address: ServerAddress, deadline: float) -> tuple[IpAddress, ...]:
    loop = asyncio.get_running_loop()
    ask = partial(
        socket.getaddrinfo,
        address.host,
        address.port,
        type=socket.SOCK_STREAM,
        proto=socket.IPPROTO_TCP,
    )
    try:
        async with asyncio.timeout(deadline):
            rows = await loop.run_in_executor(_LOOKING_UP, ask)
    except TimeoutError:
        raise Unreachable(address, "its name could not be looked up in time") from None
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Unreachable(address, f"its name could not be looked up: {reason}") from error
    return tuple(dict.fromkeys(ipaddress.ip_address(row[4][0]) for row in rows))
