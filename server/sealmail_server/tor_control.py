"""Tor's control port, as far as an onion service needs it: log in, publish, hold on."""

import asyncio
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
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


class TorControl:
    """A connection that is logged in; services that were added on it end with it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: ControlPort) -> "TorControl":
        """Connect and log in, by password, safe cookie or nothing; else ``ControlFailed``."""
        try:
            async with asyncio.timeout(_DEADLINE):
                reader, writer = await _open(port.place)
        except (OSError, TimeoutError, ValueError) as error:
            raise ControlFailed(
                f"Tor's control port {port.place} cannot be reached: {error}; is tor running, "
                "with ControlPort or ControlSocket in its torrc?"
            ) from error
        control = cls(reader, writer)
        try:
            await control._log_in(port)
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
        if port.password and "HASHEDPASSWORD" in methods:
            quoted = port.password.replace("\\", "\\\\").replace('"', '\\"')
            await self._ask(f'AUTHENTICATE "{quoted}"')
        elif "SAFECOOKIE" in methods and (match := _COOKIE_FILE.search(auth)):
            await self._show_cookie(Path(re.sub(r"\\(.)", r"\1", match[1])))
        elif "NULL" in methods:
            await self._ask("AUTHENTICATE")
        else:
            raise ControlFailed(
                f"Tor's control port {port.place} takes {', '.join(methods)}: set "
                "CookieAuthentication 1 in torrc, or write the password to tor/control_password"
            )

    async def _show_cookie(self, path: Path) -> None:
        """Prove to know the cookie, once tor has: nobody else is to be told what a file holds."""
        try:
            cookie = await asyncio.to_thread(_read_cookie, path)
        except (OSError, ValueError) as error:
            raise ControlFailed(
                f"the cookie of Tor's control port cannot be read ({error}): make the server's "
                "user a member of tor's group, with CookieAuthFileGroupReadable 1"
            ) from error
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


async def _open(place: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if place.startswith("/"):
        return await asyncio.open_unix_connection(place, limit=_MAX_LINE)
    address = ServerAddress.parse(place)
    return await asyncio.open_connection(address.host, address.port, limit=_MAX_LINE)


def _read_cookie(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_COOKIE_BYTES + 1)
