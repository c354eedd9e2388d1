"""Block keys and key ids, and every derivation of one from the other.

Nobody else hashes anything to a block key: a change here orphans stored mail.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Self

KEY_BYTES = 20

# What holds bytes: hashing copies none of them.
Buffer = bytes | bytearray | memoryview
_HEX_KEY = re.compile(r"[0-9A-Fa-f]{40}")


@dataclass(frozen=True, slots=True, order=True)
class _Hash160:
    """Twenty bytes, written as forty hex digits."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != KEY_BYTES:
            raise ValueError(f"{len(self.raw)} bytes where {KEY_BYTES} belong")

    @classmethod
    def from_hex(cls, text: str) -> Self:
        """Read forty hex digits of either case; anything else is a ``ValueError``."""
        if not _HEX_KEY.fullmatch(text):
            raise ValueError("not 40 hex digits")
        return cls(bytes.fromhex(text))

    @property
    def hex(self) -> str:
        """Forty upper-case hex digits, as keys are written in commands."""
        return self.raw.hex().upper()

    def __str__(self) -> str:
        return self.hex

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hex})"


class BlockKey(_Hash160):
    """Where a block is stored: the hash key of GET and STORE."""

    __slots__ = ()


class KeyId(_Hash160):
    """The fingerprint of a user's OpenPGP primary key."""

    __slots__ = ()


class AckHash(_Hash160):
    """The secret of an acknowledgment: publishing it proves that the mail was opened."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "AckHash(...)"


def announcement_key(key_id: KeyId) -> BlockKey:
    """Return where the key-announcement of ``key_id`` is stored: under its fingerprint."""
    return BlockKey(key_id.raw)


def address_key(address: str) -> BlockKey:
    """Return where the claims for ``address`` are stored; it must be in its normal form."""
    return BlockKey(hashlib.sha1(address.encode()).digest())


def mailbox_key(mailbox: str, recipient: KeyId) -> BlockKey:
    """Return where announcements of mail for one mailbox of ``recipient`` are stored."""
    return BlockKey(hashlib.sha1(mailbox.encode("ascii") + recipient.raw).digest())


def acknowledgment_key(secret: AckHash) -> BlockKey:
    """Return where the acknowledgment that reveals ``secret`` is stored."""
    return BlockKey(hashlib.sha1(secret.raw).digest())


def data_key(data: Buffer) -> BlockKey:
    """Return where the data block with these bytes is stored."""
    return BlockKey(hashlib.sha1(data).digest())


class DataKeyHasher:
    """``data_key`` of bytes that arrive in chunks."""

    def __init__(self) -> None:
        self._digest = hashlib.sha1()

    def update(self, chunk: Buffer) -> None:
        """Take the next bytes of the data."""
        self._digest.update(chunk)

    def key(self) -> BlockKey:
        """Return the key of the data taken so far."""
        return BlockKey(self._digest.digest())
