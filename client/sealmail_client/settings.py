"""What a user has decided: who he is, where he is reached, and what strangers pay."""

import json
import re
import tomllib
from dataclasses import dataclass, field

from sealmail_pow import Difficulty
from sealmail_protocol.addresses import Transport, normal_address
from sealmail_protocol.fields import is_line
from sealmail_protocol.keys import KeyId

SETTINGS_VERSION = 1
DEFAULT_MAILBOXES = ("0", "1", "2", "3")
# Half a second of a compiled minter, half a minute of one in pure Python.
DEFAULT_PRICE = Difficulty(48, 2)

_AUTH_KEY = re.compile(r"[0-9A-Za-z]{8,40}")


@dataclass(frozen=True, slots=True)
class AuthKey:
    """What opens the user's account on his server."""

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        if not _AUTH_KEY.fullmatch(self.text):
            raise ValueError("an auth key is 8 to 40 letters and digits")


@dataclass(frozen=True, slots=True)
class Settings:
    """The content of ``config.toml``; ``passphrase`` tells whether the key is locked by one."""

    key_id: KeyId
    name: str
    address: str
    transport: Transport
    mailboxes: tuple[str, ...] = DEFAULT_MAILBOXES
    price: Difficulty = DEFAULT_PRICE
    passphrase: bool = True
    allow_private_targets: bool = False

    def __post_init__(self) -> None:
        if not self.name.strip() or not is_line(self.name) or set(self.name) & set("<>"):
            raise ValueError("a name is one line of text without < and >")
        if self.address != normal_address(self.address):
            raise ValueError(f"{self.address!r} is not in lower case")
        if self.transport.entangled:
            raise ValueError("a home server is needed: server=host:port")

    @property
    def user_id(self) -> str:
        """Return the name and address as OpenPGP user ids and headers write them."""
        return f"{self.name} <{self.address}>"

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
        }
        return "".join(f"{name} = {value}\n" for name, value in rows.items())

    @classmethod
    def from_toml(cls, text: str) -> "Settings":
        """Read what ``to_toml`` writes, edited by hand or not; else a ``ValueError``."""
        rows = tomllib.loads(text)
        version = rows.pop("version", None)
        if version != SETTINGS_VERSION:
            raise ValueError(f"version {version}, where this program knows {SETTINGS_VERSION}")
        strange = set(rows) - set(cls.__slots__)
        if strange:
            raise ValueError(f"unknown setting {min(strange)}")
        try:
            return cls(
                key_id=KeyId.from_hex(_text(rows, "key_id")),
                name=_text(rows, "name"),
                address=_text(rows, "address"),
                transport=Transport.parse(_text(rows, "transport")),
                mailboxes=tuple(str(name) for name in rows["mailboxes"]),
                price=Difficulty.parse(_text(rows, "price")),
                passphrase=_switch(rows, "passphrase"),
                allow_private_targets=_switch(rows, "allow_private_targets"),
            )
        except KeyError as missing:
            raise ValueError(f"no setting {missing.args[0]}") from None


def _text(rows: dict[str, object], name: str) -> str:
    value = rows[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a text")
    return value


def _switch(rows: dict[str, object], name: str) -> bool:
    value = rows[name]
    if not isinstance(value, bool):
        raise ValueError(f"{name} is neither true nor false")
    return value
