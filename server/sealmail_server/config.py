"""The server's settings: one frozen value read from ``config.toml``, every default in it."""

import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

CONFIG_NAME = "config.toml"
STORE_NAME = "store"
CERTIFICATE_NAME = "tls/server.crt"
KEY_NAME = "tls/server.key"

DEFAULT_LISTEN = "[::]:8081"

_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s\[\]:]+)):([0-9]{1,5})")


class BadConfig(Exception):
    """The configuration cannot be used; the message names the line to change."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the server listens; port 0 lets the system choose."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Listen":
        """Read ``HOST:PORT``; an IPv6 address stands in brackets."""
        match = _LISTEN.fullmatch(text)
        if not match or int(match[3]) > 65_535:
            raise BadConfig(f"listen = {text!r} is not HOST:PORT or [IPV6]:PORT")
        return cls(match[1] or match[2], int(match[3]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Config:
    """What an operator may choose."""

    listen: str = DEFAULT_LISTEN
    name: str = "localhost"
    max_connections: int = 1000
    idle_seconds: int = 60

    @classmethod
    def load(cls, directory: Path) -> "Config":
        """Read the settings of a data directory; unknown or ill-typed ones are refused."""
        path = directory / CONFIG_NAME
        try:
            values = tomllib.loads(path.read_text())
        except FileNotFoundError:
            raise BadConfig(
                f"{directory} is no server directory: run 'sealmaild init --data {directory}'"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadConfig(f"{path}: {error}") from None
        return cls(**_checked(path, values))

    @property
    def address(self) -> Listen:
        """Return where to listen, parsed."""
        return Listen.parse(self.listen)


def _checked(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    known = {field.name: field.type for field in fields(Config)}
    for name, value in values.items():
        if name not in known:
            raise BadConfig(f"{path}: unknown setting {name!r}")
        if type(value) is not known[name]:
            raise BadConfig(f"{path}: {name} must be of type {known[name]}")
    for name in ("max_connections", "idle_seconds"):
        if values.get(name, 1) < 1:
            raise BadConfig(f"{path}: {name} must be at least 1")
    Listen.parse(values.get("listen", DEFAULT_LISTEN))
    return values


def config_text(listen: Listen, name: str) -> str:
    """Return a first ``config.toml``: the chosen values, and every default as a comment."""
    default = Config()
    return f"""\
# Sealmail server. Lines that begin with '#' show the defaults.

# Where to listen: HOST:PORT, IPv6 addresses in brackets.
listen = "{listen}"

# The host name that users and other servers know this server by.
name = "{name}"

# Connections beyond this number are answered BUSY.
# max_connections = {default.max_connections}

# A connection on which nothing happens for this many seconds is closed.
# idle_seconds = {default.idle_seconds}
"""
