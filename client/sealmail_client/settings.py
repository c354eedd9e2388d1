"""What a user has decided: who he is, where he is reached, and what strangers pay."""

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeVar

from sealmail_client.connecting import CONNECTING_ROWS, DIRECTLY, Connecting, DnsUse
from sealmail_client.throttle import MIN_KIB
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import ServerAddress, Transport, normal_address
from sealmail_protocol.fields import is_line
from sealmail_protocol.keys import KeyId

E = TypeVar("E", bound=StrEnum)

DEFAULT_MAILBOXES = ("0", "1", "2", "3")
# Half a second of a compiled minter, half a minute of one in pure Python.
DEFAULT_PRICE = Difficulty(48, 2)
# Mail is kept for ten days by servers; one that is held back must reach them long before.
MAX_DELAY_MINUTES = 24 * 60

_AUTH_KEY = re.compile(r"[0-9A-Za-z]{8,40}")


class Place(StrEnum):
    """A server with an account of the user, by what it is to him."""

    HOME = "home"
    OLD = "old"  # where he lived before: correspondents may still look there
    PUB = "pub"  # where his domain's DNS points, if he does not live there
    DHT = "dht"  # no server at all: the table that many keep, reached through the own servers


def auth_file_name(place: Place) -> str:
    """Return the name of the file with the key to the account at ``place``."""
    return "auth_key" if place is Place.HOME else f"auth_key_{place}"


class Delivery(StrEnum):
    """Who delivers what the user sends."""

    DIRECT = "direct"  # this program, so that the home server need not know to whom
    PROXY = "proxy"  # the home server, so that others see its network address alone


class Locked(StrEnum):
    """What stands between a thief of the home and the secret key."""

    NOTHING = "none"
    PASSPHRASE = "ask"  # noqa: S105 - a name, no secret
    AGENT = "agent"  # gpg-agent and its pinentry, or a smartcard


@dataclass(frozen=True, slots=True)
class AuthKey:
    """What opens the user's account on his server."""

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        if not _AUTH_KEY.fullmatch(self.text):
            raise ValueError("an auth key is 8 to 40 letters and digits")


@dataclass(frozen=True, slots=True)
class Settings:
    """The content of ``config.toml``; ``passphrase`` tells how the key is locked."""

    key_id: KeyId
    name: str
    address: str
    transport: Transport
    mailboxes: tuple[str, ...] = DEFAULT_MAILBOXES
    price: Difficulty = DEFAULT_PRICE
    passphrase: Locked = Locked.PASSPHRASE
    allow_private_targets: bool = False
    old_transport: Transport | None = None
    pub_transport: Transport | None = None
    throttle_kib: int = 0  # a second; 0 is as fast as it goes
    delay_minutes: int = 0  # mail is held back for a random time up to this
    pad_sizes: bool = False  # mail is filled up, so that its size tells less
    connecting: Connecting = DIRECTLY
    send: Delivery = Delivery.DIRECT
    acknowledge: Delivery = Delivery.PROXY  # where the home server does that
    dht: bool = False  # key and claim are published there, and those of others sought
    doors: tuple[ServerAddress, ...] = ()  # by which the DHT is reached; none: the home servers

    def __post_init__(self) -> None:
        if not self.name.strip() or not is_line(self.name) or set(self.name) & set("<>"):
            raise ValueError("a name is one line of text without < and >")
        if self.address != normal_address(self.address):
            raise ValueError(f"{self.address!r} is not in lower case")
        for transport in (self.old_transport, self.pub_transport):
            if transport is not None and transport.entangled:
                raise ValueError("a server is needed: server=host:port")
        if self.transport.entangled and not self.doors:
            raise ValueError("a server is needed: server=host:port, or doors to the DHT")
        if self.transport.entangled and self.send is Delivery.PROXY:
            raise ValueError("send = proxy needs a home server")
        if self.throttle_kib and self.throttle_kib < MIN_KIB:
            raise ValueError(f"throttle_kib is 0 for none, or at least {MIN_KIB}")
        if not 0 <= self.delay_minutes <= MAX_DELAY_MINUTES:
            raise ValueError(f"delay_minutes is between 0 and {MAX_DELAY_MINUTES}")

    @property
    def user_id(self) -> str:
        """Return the name and address as OpenPGP user ids and headers write them."""
        return f"{self.name} <{self.address}>"

    @property
    def home_servers(self) -> tuple[ServerAddress, ...]:
        """Return the servers that are asked first: of the home group, or doors to the DHT."""
        return self.transport.servers or self.doors

    @property
    def dht_servers(self) -> tuple[ServerAddress, ...]:
        """Return the servers by which the DHT is reached."""
        return self.doors or self.transport.servers

    @property
    def has_account(self) -> bool:
        """Return whether the user logs in where he is at home; nobody does in the DHT."""
        return not self.transport.entangled

    @property
    def places(self) -> dict[Place, Transport]:
        """Return every place at which the user is published, the home first."""
        named = {
            Place.HOME: self.transport,
            Place.OLD: self.old_transport,
            Place.PUB: self.pub_transport,
        }
        return {place: transport for place, transport in named.items() if transport is not None}

    def to_toml(self) -> str:
        """Write the settings; ``from_toml`` reads them again."""
        # A JSON string is a TOML string wherever the text has no control characters.
        rows = {
            "version": str(SETTINGS_VERSION),
            "key_id": json.dumps(self.key_id.hex),
            "name": json.dumps(self.name, ensure_ascii=False),
            "address": json.dumps(self.address, ensure_ascii=False),
            "transport": json.dumps(str(self.transport)),
            "mailboxes": json.dumps(list(self.mailboxes)),
            "price": json.dumps(str(self.price)),
            "passphrase": json.dumps(self.passphrase),
            "allow_private_targets": json.dumps(self.allow_private_targets),
            "old_transport": json.dumps(str(self.old_transport or "")),
            "pub_transport": json.dumps(str(self.pub_transport or "")),
            "throttle_kib": str(self.throttle_kib),
            "delay_minutes": str(self.delay_minutes),
            "pad_sizes": json.dumps(self.pad_sizes),
            **self.connecting.rows(),
            "send": json.dumps(self.send),
            "acknowledge": json.dumps(self.acknowledge),
            "dht": json.dumps(self.dht),
            "doors": json.dumps(list(map(str, self.doors))),
        }
        return "".join(f"{name} = {value}\n" for name, value in rows.items())

    @classmethod
    def from_toml(cls, text: str) -> "Settings":
        """Read what this or an older version wrote, edited by hand or not; else a ValueError."""
        rows = tomllib.loads(text)
        try:
            for migrate in _STEPS[_version(rows) - 1 :]:
                migrate(rows)
            known = {*cls.__slots__, *CONNECTING_ROWS, "version"} - {"connecting"}
            strange = set(rows) - known
            if strange:
                raise ValueError(f"unknown setting {min(strange)}")
            return cls(
                key_id=KeyId.from_hex(_text(rows, "key_id")),
                name=_text(rows, "name"),
                address=_text(rows, "address"),
                transport=Transport.parse(_text(rows, "transport")),
                mailboxes=tuple(str(name) for name in rows["mailboxes"]),
                price=Difficulty.parse(_text(rows, "price")),
                passphrase=_choice(rows, "passphrase", Locked),
                allow_private_targets=_switch(rows, "allow_private_targets"),
                old_transport=_transport(rows, "old_transport"),
                pub_transport=_transport(rows, "pub_transport"),
                throttle_kib=_number(rows, "throttle_kib"),
                delay_minutes=_number(rows, "delay_minutes"),
                pad_sizes=_switch(rows, "pad_sizes"),
                connecting=Connecting.from_rows(rows),
                send=_choice(rows, "send", Delivery),
                acknowledge=_choice(rows, "acknowledge", Delivery),
                dht=_switch(rows, "dht"),
                doors=_servers(rows, "doors"),
            )
        except KeyError as missing:
            raise ValueError(f"no setting {missing.args[0]}") from None


def settings_version(text: str) -> int:
    """Return the version that wrote these settings; ``ValueError`` if that is unknown."""
    return _version(tomllib.loads(text))


def _version(rows: dict[str, Any]) -> int:
    version = rows.get("version")
    if type(version) is not int or not 1 <= version <= SETTINGS_VERSION:
        raise ValueError(f"version {version}, where this program knows 1 to {SETTINGS_VERSION}")
    return version


def _name_the_lock_and_places(rows: dict[str, Any]) -> None:
    """Lead from version 1, where ``passphrase`` was true or false, to 2."""
    rows["passphrase"] = Locked.PASSPHRASE if _switch(rows, "passphrase") else Locked.NOTHING
    rows["old_transport"] = rows["pub_transport"] = ""


def _name_pace_and_cover(rows: dict[str, Any]) -> None:
    """Lead from version 2, where mail left at once, as fast and as small as it was, to 3."""
    rows["throttle_kib"] = rows["delay_minutes"] = 0
    rows["pad_sizes"] = False


def _name_the_ways_out(rows: dict[str, Any]) -> None:
    """Lead from version 3, where all was direct and DNS was not asked, to 4."""
    rows.update(tor_proxy="", i2p_proxy="", dns_server="", prefer="direct", dns=DnsUse.DIRECT)
    rows.update(anonymous=False, exit_nodes=False)


def _name_who_delivers(rows: dict[str, Any]) -> None:
    """Lead from version 4, where this program alone delivered, to 5."""
    rows["send"], rows["acknowledge"] = Delivery.DIRECT, Delivery.PROXY


def _name_the_dht(rows: dict[str, Any]) -> None:
    """Lead from a version that knew no DHT to one that is told to use it."""
    rows["dht"] = False


def _name_the_doors(rows: dict[str, Any]) -> None:
    """Lead from a version in which everybody had a home server to one where some have none."""
    rows["doors"] = []


# Step n leads from version n to n + 1.
_STEPS: Final[tuple[Callable[[dict[str, Any]], None], ...]] = (
    _name_the_lock_and_places,
    _name_pace_and_cover,
    _name_the_ways_out,
    _name_who_delivers,
    _name_the_dht,
    _name_the_doors,
)
SETTINGS_VERSION = len(_STEPS) + 1


def _text(rows: dict[str, Any], name: str) -> str:
    value = rows[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a text")
    return value


def _switch(rows: dict[str, Any], name: str) -> bool:
    value = rows[name]
    if not isinstance(value, bool):
        raise ValueError(f"{name} is neither true nor false")
    return value


def _number(rows: dict[str, Any], name: str) -> int:
    value = rows[name]
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is not a number from 0 on")
    return value


def _choice(rows: dict[str, Any], name: str, kind: type[E]) -> E:
    try:
        return kind(_text(rows, name))
    except ValueError:
        choices = ", ".join(kind)
        raise ValueError(f"{name} is none of {choices}") from None


def _servers(rows: dict[str, Any], name: str) -> tuple[ServerAddress, ...]:
    values = rows[name]
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise ValueError(f"{name} is not a list of servers")
    return tuple(map(ServerAddress.parse, values))


def _transport(rows: dict[str, Any], name: str) -> Transport | None:
    text = _text(rows, name)
    return Transport.parse(text) if text else None
