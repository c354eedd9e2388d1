"""SOCKS5: the handshake by PySocks in a worker thread, the connected socket then for asyncio."""

import asyncio
import contextlib
import hashlib
import secrets
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import socks

from sealmail_net.errors import Unreachable
from sealmail_net.ways import DIRECT_ONLY, ProxyPolicy, Way
from sealmail_protocol.addresses import ServerAddress

# Handshakes with one proxy at a time: a hostile or slow one holds these threads and no others.
# More than a server ever has under way (deliveries, looks at who is down, fetches, its partner):
# whoever waits for a hidden service that has gone is not to be waited for by all.
MAX_HANDSHAKES = 160
# Tor keeps streams apart by user and password, whatever they are.
_USER = "sealmail"


@dataclass
class Proxies:
    """The proxies of one identity or server, and the threads that shake hands with them.

    Tor gives each SOCKS user a circuit of its own: ours is drawn anew for every ``Proxies`` and
    differs for every server, so that neither identities nor their servers can be told together.
    """

    policy: ProxyPolicy = DIRECT_ONLY
    isolation: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    def __post_init__(self) -> None:
        self._threads: dict[ServerAddress, ThreadPoolExecutor] = {}

    async def connect(self, address: ServerAddress, way: Way, deadline: float) -> socket.socket:
        """Return a socket that leads to ``address``; ``Unreachable`` after ``deadline`` at last.

        The name is resolved at the far end. When the time is up the thread is let go by
        closing its socket.
        """
        proxy = self.policy.proxy_for(way)
        if proxy is None:
            raise Unreachable(address, f"no proxy for the way {way} is configured")
        raw = self._socket_for(proxy, address, deadline)
        handshake = self._threads_for(proxy).submit(raw.connect, (address.host, address.port))
        try:
            async with asyncio.timeout(deadline):
                await asyncio.wrap_future(handshake)
        except BaseException as error:
            _let_go(raw, handshake)
            if isinstance(error, TimeoutError):
                reason = f"the proxy {proxy} did not get there in time"
                raise Unreachable(address, reason) from None
            if isinstance(error, OSError | ValueError):
                raise Unreachable(address, f"by the proxy {proxy}: {_reason(error)}") from error
            raise
        # Without what PySocks puts around it: asyncio is to have an ordinary socket.
        connected = socket.socket(fileno=raw.detach())
        connected.setblocking(False)
        return connected

    def _socket_for(
        self, proxy: ServerAddress, address: ServerAddress, deadline: float
    ) -> socks.socksocket:
        literal = proxy.literal
        family = socket.AF_INET6 if literal is not None and literal.version == 6 else None
        raw = socks.socksocket(family or socket.AF_INET, socket.SOCK_STREAM)
        raw.set_proxy(
            socks.SOCKS5,
            proxy.host,
            proxy.port,
            rdns=True,
            username=_USER,
            password=self._password(address),
        )
        # A little longer than we wait: until then the thread is woken by closing its socket.
        raw.settimeout(deadline + 1)
        return raw

    def _password(self, address: ServerAddress) -> str:
        return hashlib.sha256(f"{self.isolation} {address}".encode()).hexdigest()

    def _threads_for(self, proxy: ServerAddress) -> ThreadPoolExecutor:
        threads = self._threads.get(proxy)
        if threads is None:
            threads = ThreadPoolExecutor(MAX_HANDSHAKES, thread_name_prefix=f"socks {proxy}")
            self._threads[proxy] = threads
        return threads


def _let_go(raw: socket.socket, handshake: Future[None]) -> None:
    """Wake the thread that waits on this socket; only behind it is the number free for others."""
    with contextlib.suppress(OSError):
        raw.shutdown(socket.SHUT_RDWR)
    handshake.add_done_callback(lambda _: raw.close())


def _reason(error: BaseException) -> str:
    """Return the cause that PySocks wraps, or what it says itself."""
    if isinstance(error, socks.ProxyError) and error.socket_err is not None:
        return f"{error.msg}: {error.socket_err}"
    return str(error) or type(error).__name__
