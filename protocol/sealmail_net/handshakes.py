"""How a connection changes to TLS, and what the peer shows while it does.

The standard library's way is here. Another one, which asks more of a certificate, is the business
of whoever wants to know more.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Protocol

from sealmail_net.tls import client_context

# How long the handshake that ends TLS may take.
FAREWELL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Shown:
    """The certificate that a peer showed, and whether a chain that it showed leads to a known CA.

    Names are not judged: ``ca_verified`` says nothing of whom the certificate is for.
    """

    certificate: bytes | None = None
    ca_verified: bool = False


class Handshake(Protocol):
    """Changes a connected socket to TLS on behalf of ``link``."""

    async def __call__(
        self, socket: asyncio.Transport, link: asyncio.Protocol, deadline: float
    ) -> tuple[asyncio.Transport, Shown]:
        """Return the transport inside TLS, and what was shown; ``OSError`` if that failed.

        ``link`` gets nothing before the call has returned.
        """
        ...


@dataclass(frozen=True, slots=True)
class SslHandshake:
    """The handshake of the standard library; no CA is asked."""

    context: ssl.SSLContext
    server_side: bool = False

    async def __call__(
        self, socket: asyncio.Transport, link: asyncio.Protocol, deadline: float
    ) -> tuple[asyncio.Transport, Shown]:
        """Return the transport inside TLS, and the certificate of the peer, if it showed one."""
        secured = await asyncio.get_running_loop().start_tls(
            socket,
            link,
            self.context,
            server_side=self.server_side,
            ssl_handshake_timeout=deadline,
            ssl_shutdown_timeout=FAREWELL_SECONDS,
        )
        if secured is None:
            raise ConnectionResetError("the connection ended")
        tls: ssl.SSLObject = secured.get_extra_info("ssl_object")
        return secured, Shown(tls.getpeercert(binary_form=True))


async def pinned_handshake(
    socket: asyncio.Transport, link: asyncio.Protocol, deadline: float
) -> tuple[asyncio.Transport, Shown]:
    """Shake hands with a server that is judged by its pin alone, afterwards."""
    return await SslHandshake(client_context())(socket, link, deadline)
