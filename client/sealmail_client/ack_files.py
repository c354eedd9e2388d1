"""What an ACK file holds: the secret of an acknowledgment, and perhaps one for bypass tokens."""

import re
from dataclasses import dataclass, field
from datetime import datetime

from sealmail_client.errors import BadMessage
from sealmail_protocol.bypass import BypassSecret
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.keys import KEY_BYTES, AckHash

# Two known parts need 160 bytes; the rest is for parts that later versions add.
MAX_ACK_BYTES = 4096

_NEVER = "never"
_SECRET = re.compile(r"[0-9A-Fa-f]{40}")


@dataclass(frozen=True, slots=True)
class GivenSecret:
    """A bypass secret and when tokens made from it are good; ``None``: for ever."""

    secret: BypassSecret
    created: datetime
    expires: datetime | None = None


@dataclass(frozen=True, slots=True)
class AckSecret:
    """What one recipient is told, and nobody else."""

    ack: AckHash = field(repr=False)
    bypass: GivenSecret | None = None

    def to_bytes(self) -> bytes:
        """Write the content of an ACK file; with a bypass secret it must be sealed."""
        if self.bypass is None:
            return self.ack.raw
        expires = _NEVER if self.bypass.expires is None else format_date(self.bypass.expires)
        dates = f"{format_date(self.bypass.created)},{expires}"
        return f"ack={self.ack.raw.hex()}|bt={self.bypass.secret.raw.hex()},{dates}".encode()


def parse_ack(content: bytes) -> AckSecret:
    """Read the content of an ACK file; parts of unknown meaning are skipped."""
    if len(content) == KEY_BYTES:
        return AckSecret(AckHash(content))
    if not KEY_BYTES < len(content) <= MAX_ACK_BYTES:
        raise BadMessage(f"an ACK file of {len(content)} bytes")
    try:
        parts = content.decode("ascii").strip().split("|")
    except UnicodeDecodeError:
        raise BadMessage("an ACK file that is neither 20 bytes nor text") from None
    ack, bypass = _only(parts, "ack="), _only(parts, "bt=")
    if ack is None:
        raise BadMessage("an ACK file without ack=")
    return AckSecret(AckHash(_read_secret(ack)), None if bypass is None else _read_bypass(bypass))


def _only(parts: list[str], name: str) -> str | None:
    """Return what follows ``name``; two of them could be read in two ways."""
    values = [part.removeprefix(name) for part in parts if part.startswith(name)]
    if len(values) > 1:
        raise BadMessage(f"an ACK file with two {name} parts")
    return values[0] if values else None


def _read_bypass(value: str) -> GivenSecret:
    fields = value.split(",")
    if len(fields) != 3:
        raise BadMessage("an ACK file whose bt= part is not secret,created,expires")
    secret, created, expires = fields
    try:
        return GivenSecret(
            BypassSecret(_read_secret(secret)),
            parse_date(created),
            None if expires == _NEVER else parse_date(expires),
        )
    except ValueError:
        raise BadMessage("an ACK file with an impossible date") from None


def _read_secret(text: str) -> bytes:
    if not _SECRET.fullmatch(text):
        raise BadMessage("an ACK file with a secret that is not 40 hex digits")
    return bytes.fromhex(text)
