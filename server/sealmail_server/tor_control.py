"""Tor's control port, as far as an onion service needs it: log in, publish, hold on.

Whoever listens there gets the secret key of the service, so he proves himself first where he can:
while tor is down, any user of the machine may sit at its port.
"""

import asyncio
import hashlib
import hmac
import os
import re
import secrets
import stat
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from sealmail_protocol.addresses import ServerAddress

_DEADLINE = 30.0
# A reply of tor is short; what is longer does not come from tor.
_MAX_LINE = 4096
_MAX_LINES = 200
_COOKIE_BYTES = 32
_SERVER_TAG = b"Tor safe cookie authentication server-to-controller hash"
_CLIENT_TAG = b"Tor safe cookie authentication controller-to-server hash"
_COOKIE_FILE = re.compile(r'COOKIEFILE="((?:[^"\\]|\\.)*)"')
_CHALLENGE = re.compile(r"AUTHCHALLENGE SERVERHASH=([0-9A-F]{64}) SERVERNONCE=([0-9A-F]{64})")


class ControlFailed(Exception):
    """Tor's control port cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ControlPort:
    """Where tor is controlled, IP:PORT or the path of a socket; and its password, if any."""

    place: str
    password: str = field(default="", repr=False)

    @property
    def is_socket(self) -> bool:
        """Return whether it is a Unix socket, where the file system says who may listen."""
        return self.place.startswith("/")


class TorControl:
    """A connection that is logged in; services that were added on it end with it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: ControlPort) -> "TorControl":
        """Connect and log in, by safe cookie or password; else ``ControlFailed``.

        With neither by a Unix socket only.
        """
        try:
            async with asyncio.timeout(_DEADLINE):
                reader, writer = await _open(port)
        except (OSError, TimeoutError, ValueError) as error:
            raise ControlFailed(
                f"Tor's control port {port.place} cannot be reached: {error}; is tor running, "
                "with ControlPort or ControlSocket in its torrc?"
            ) from error
        control = cls(reader, writer)
        try:
            async with asyncio.timeout(_DEADLINE):
                await control._log_in(port)
        except TimeoutError:
            writer.close()
            raise ControlFailed(f"Tor's control port {port.place} is too slow") from None
        except BaseException:
            writer.close()
            raise
        return control

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._writer.close()

    async def publish(self, key: str, host: str, virtual_port: int, target: str) -> None:
        """Publish the service of ``key`` for as long as this connection stands."""
        lines = await self._ask(f"ADD_ONION {key} Flags=DiscardPK Port={virtual_port},{target}")
        if f"ServiceID={host.removesuffix('.onion')}" not in lines:
            raise ControlFailed("tor published another service than the one of our key")

    async def gone(self) -> None:
        """Wait until tor, or the connection to it, has ended."""
        while await self._reader.read(_MAX_LINE):
            pass

    async def _log_in(self, port: ControlPort) -> None:
        info = await self._ask("PROTOCOLINFO 1")
        auth = next((line for line in info if line.startswith("AUTH METHODS=")), "AUTH METHODS=")
        methods = auth.split()[1].removeprefix("METHODS=").split(",")
        by_password = bool(port.password) and "HASHEDPASSWORD" in methods
        # The cookie first: it is the only way by which the other side proves something too.
        if "SAFECOOKIE" in methods and (match := _COOKIE_FILE.search(auth)):
            try:
                cookie = await asyncio.to_thread(_read_cookie, re.sub(r"\\(.)", r"\1", match[1]))
            except (OSError, ValueError) as error:
                if not by_password:
                    raise ControlFailed(
                        f"the cookie of Tor's control port cannot be read ({error}): make the "
                        "server's user a member of tor's group, with CookieAuthFileGroupReadable 1"
                    ) from error
            else:
                await self._show_cookie(cookie)
                return
        if by_password:
            quoted = port.password.replace("\\", "\\\\").replace('"', '\\"')
            await self._ask(f'AUTHENTICATE "{quoted}"')
        elif "NULL" in methods and port.is_socket:
            await self._ask("AUTHENTICATE")
        else:
            raise ControlFailed(
                f"Tor's control port {port.place} takes {', '.join(methods)}: set "
                "CookieAuthentication 1 in torrc, or write the password to tor/control_password"
            )

    async def _show_cookie(self, cookie: bytes) -> None:
        """Prove to know the cookie, once tor has: nobody else is to be told what a file holds."""
        nonce = secrets.token_bytes(32)
        lines = await self._ask(f"AUTHCHALLENGE SAFECOOKIE {nonce.hex()}")
        match = _CHALLENGE.fullmatch(lines[0])
        if match is None or len(cookie) != _COOKIE_BYTES:
            raise ControlFailed("what listens at Tor's control port is not tor")
        message = cookie + nonce + bytes.fromhex(match[2])
        proof = hmac.digest(_SERVER_TAG, message, hashlib.sha256)
        if not hmac.compare_digest(proof, bytes.fromhex(match[1])):
            raise ControlFailed("what listens at Tor's control port does not know tor's cookie")
        await self._ask(f"AUTHENTICATE {hmac.digest(_CLIENT_TAG, message, hashlib.sha256).hex()}")

    async def _ask(self, command: str) -> list[str]:
        """Give a command and return the lines of its reply, or raise ``ControlFailed``."""
        name = command.split()[0]
        try:
            async with asyncio.timeout(_DEADLINE):
                self._writer.write(f"{command}\r\n".encode())
                await self._writer.drain()
                return await self._reply(name)
        except TimeoutError:
            raise ControlFailed(f"tor did not answer {name} in time") from None
        except (OSError, ValueError, EOFError, asyncio.LimitOverrunError) as error:
            raise ControlFailed(f"tor ended the connection at {name}: {error}") from error

    async def _reply(self, name: str) -> list[str]:
        lines: list[str] = []
        while len(lines) < _MAX_LINES:
            raw = await self._reader.readuntil(b"\r\n")
            line = raw[:-2].decode("utf-8", "replace")
            if line.startswith("650"):
                continue
            if not line.startswith("250"):
                raise ControlFailed(f"tor refused {name}: {line}")
            lines.append(line[4:])
            if line[3:4] == " ":
                return lines
        raise ControlFailed(f"tor's answer to {name} has no end")


async def _open(port: ControlPort) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if port.is_socket:
        return await asyncio.open_unix_connection(port.place, limit=_MAX_LINE)
    address = ServerAddress.parse(port.place)
    return await asyncio.open_connection(address.host, address.port, limit=_MAX_LINE)


def _read_cookie(path: str) -> bytes:
    """Read the file that the control port names: any file, if that is not tor's.

    Tor never lets everybody read it; a file that all may read proves nothing of who knows it.
    """
    # A pipe would keep whoever opens it waiting for its other end.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode):
            raise ValueError(f"{path} is no file")
        if mode & stat.S_IROTH:
            raise ValueError(f"everybody may read {path}")
        return os.read(file, _COOKIE_BYTES + 1)
    finally:
        os.close(file)
