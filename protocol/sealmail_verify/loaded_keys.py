"""Keys as pysequoia holds them, and a memory of those that were loaded.

Loading a key and asking it what it is costs about as much as verifying a text by it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from sealmail_verify.packets import KeyBlock
from sealmail_verify.sequoia import is_revoked, is_sound, load

if TYPE_CHECKING:
    import pysequoia

# About what a loaded key occupies, by its armored text: 20 KiB were measured for 1800 bytes.
_OVERHEAD: Final = 4096
_TIMES: Final = 10


@dataclass(frozen=True, slots=True)
class LoadedKey:
    """A key block, loaded, and what decides which engine is asked about it."""

    block: KeyBlock
    certificate: pysequoia.Cert
    revoked: bool
    sound: bool

    @classmethod
    def of(cls, block: KeyBlock) -> Self:
        """Load a key block, or raise ``BadSignature``."""
        certificate = load(block)
        return cls(block, certificate, is_revoked(certificate), is_sound(certificate))


class KeyMemory:
    """The keys that were used last, by their armored text, within about ``most`` bytes.

    With 0 it remembers nothing, which is what a server wants: strangers choose what it loads.
    """

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._held: OrderedDict[bytes, LoadedKey] = OrderedDict()
        self._size = 0

    def get(self, armored: bytes) -> LoadedKey | None:
        """Return a key that is remembered."""
        found = self._held.get(armored)
        if found is not None:
            self._held.move_to_end(armored)
        return found

    def put(self, armored: bytes, key: LoadedKey) -> None:
        """Remember a key that is not there yet, and forget what was not used for longest."""
        if _size_of(armored) > self._most:
            return
        self._held[armored] = key
        self._size += _size_of(armored)
        while self._size > self._most:
            forgotten, _ = self._held.popitem(last=False)
            self._size -= _size_of(forgotten)


def _size_of(armored: bytes) -> int:
    return _OVERHEAD + _TIMES * len(armored)
