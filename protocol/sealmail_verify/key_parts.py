"""The parts of a public key, and what each is for, as far as form tells; no cryptography.

For audits alone, and only of keys whose owner has signed for them: what is bound to a key is
believed. Mail is sealed by GnuPG, which checks each binding.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sealmail_verify.errors import BadSignature
from sealmail_verify.packets import (
    CREATED,
    MAX_KEY_PACKETS,
    PUBLIC_KEY,
    PUBLIC_SUBKEY,
    SIGNATURE,
    KeyBlock,
    bits_of,
    moment,
    walk_packets,
    walk_subpackets,
)

# RFC 4880, section 5.2.1: what tells of the primary key, and of a subkey; and what revokes each.
_BINDING: Final = {PUBLIC_KEY: (0x10, 0x11, 0x12, 0x13, 0x1F), PUBLIC_SUBKEY: (0x18,)}
_REVOKING: Final = {PUBLIC_KEY: 0x20, PUBLIC_SUBKEY: 0x28}
# Section 5.2.3.1.
_EXPIRES, _FLAGS = 9, 27
# Mail and files are sealed to what has either flag, and where there are none to what can seal.
_SEALING_FLAGS: Final = 0x04 | 0x08
_SEALING: Final = frozenset({1, 2, 16, 18, 25, 26})


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A primary key or subkey that mail is sealed to; ``bits`` as in ``KeyBlock``."""

    algorithm: int
    bits: int
    expires: datetime | None

    def is_usable(self, now: datetime) -> bool:
        """Tell whether it has not expired."""
        return self.expires is None or self.expires > now


def sealing_parts(block: KeyBlock) -> tuple[KeyPart, ...]:
    """Return the parts of a key that mail can be sealed to and that are not revoked."""
    found = []
    for tag, body, signatures in _parts(block.raw):
        made = [each for each in map(_read, signatures) if each is not None]
        if any(kind == _REVOKING[tag] for kind, _ in made):
            continue
        bindings = [told for kind, told in made if kind in _BINDING[tag]]
        if not bindings:
            continue
        told = max(bindings, key=lambda each: each.get(CREATED, b""))
        flags = told.get(_FLAGS)
        seals = body[5] in _SEALING if flags is None else bool(flags[0] & _SEALING_FLAGS)
        if seals:
            lasts = int.from_bytes(told.get(_EXPIRES, b""), "big")
            expires = moment(body[1:5]) + timedelta(seconds=lasts) if lasts else None
            found.append(KeyPart(body[5], bits_of(body), expires))
    return tuple(found)


def _parts(raw: bytes) -> Iterator[tuple[int, bytes, list[bytes]]]:
    """Yield the tag and body of each part, with the signatures that follow it."""
    part: tuple[int, bytes, list[bytes]] | None = None
    for tag, body in walk_packets(raw, MAX_KEY_PACKETS):
        if tag in _BINDING:
            if part is not None:
                yield part
            part = tag, body, []
        elif tag == SIGNATURE and part is not None:
            part[2].append(body)
    if part is not None:
        yield part


def _read(body: bytes) -> tuple[int, dict[int, bytes]] | None:
    """Return kind and hashed words of a signature; nothing of one that is strange."""
    if len(body) < 6 or body[0] != 4:
        return None
    hashed = body[6 : 6 + int.from_bytes(body[4:6], "big")]
    try:
        return body[1], {kind: value for kind, value in walk_subpackets(hashed) if value}
    except BadSignature:
        return None
