"""What is typed on the command line, read into values at once."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

import click

from sealmail_client.settings import AuthKey
from sealmail_client.terms import parse_price
from sealmail_protocol.addresses import ServerAddress, normal_address
from sealmail_protocol.invitations import Invitation
from sealmail_protocol.keys import KeyId

T = TypeVar("T")

_SPAN = re.compile(r"([1-9][0-9]{0,3})([mhd])")
_MINUTES = {"m": 1, "h": 60, "d": 24 * 60}

# What takes an address away again.
NONE = "none"


class Parsed(click.ParamType[T], Generic[T]):
    """A value that ``parse`` reads; what it refuses with ``ValueError`` is told to the user."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> T:
        """Read a text; a default that is a value already stays as it is."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, context)


def _pin(text: str) -> bytes:
    if not re.fullmatch(r"[0-9A-Fa-f]{64}", text):
        raise ValueError("a pin has 64 hex digits")
    return bytes.fromhex(text)


def _key_id(text: str) -> KeyId:
    # Fingerprints are often written in groups of four.
    return KeyId.from_hex("".join(text.split()))


def _who(text: str) -> str | KeyId:
    if "@" in text:
        return normal_address(text)
    try:
        return _key_id(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither an address (name@domain) nor a key id of 40 hex digits"
        ) from None


def _moment(text: str) -> Callable[[datetime], datetime]:
    """Read a span from now, or a time of day on the user's clock or in UTC (Z)."""
    if match := _SPAN.fullmatch(text):
        span = timedelta(minutes=int(match[1]) * _MINUTES[match[2]])
        return lambda now: now + span
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither 90m, 8h or 2d nor 2026-05-01T18:00") from None
    return lambda _: moment.astimezone(UTC).replace(microsecond=0)


def _proxy(text: str) -> ServerAddress | str:
    if text.lower() == NONE:
        return NONE
    address = ServerAddress.parse(text)
    if address.literal is None:
        raise ValueError(f"{text!r} is not IP:PORT: a name would have to be looked up")
    return address


ADDRESS = Parsed("ADDRESS", normal_address)
SERVER = Parsed("HOST:PORT", ServerAddress.parse)
PRICE = Parsed("PRICE", parse_price)
AUTH_KEY = Parsed("AUTH_KEY", AuthKey)
INVITATION = Parsed("CODE", Invitation.parse)
KEY_ID = Parsed("KEYID", _key_id)
WHO: Parsed[str | KeyId] = Parsed("ADDRESS|KEYID", _who)
PIN = Parsed("PIN", _pin)
MOMENT = Parsed("WHEN", _moment)
PROXY: Parsed[ServerAddress | str] = Parsed("IP:PORT|none", _proxy)
