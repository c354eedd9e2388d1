"""The head of a seal, where each reader has a packet: counted before gpg tries our keys on it."""

from typing import Final

from sealmail_client.errors import BadMessage
from sealmail_client.gpg_streams import Readable

# gpg tries all our keys for each reader who is not named: some 10 ms each. A mail has at most 1000
# recipients, and room is left for clients that seal to more than one key of each.
MAX_READERS = 2000
TOO_MANY_READERS: Final = f"it is sealed to more than {MAX_READERS} keys"

# Behind one of these packets there are no readers any more, but what was sealed.
_SEALED_TAGS: Final = frozenset({9, 18, 20})
_LONGEST_HEADER = 6


class CountedReaders:
    """A seal that may be read unless it has more packets in its head than a mail has readers.

    Whatever is no packet is left to gpg, which says what is wrong with it.
    """

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._unread = b""
        self._skipped = 0
        self._packets = 0
        self._ended = False

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes."""
        chunk = self._source.read(size)
        if not self._ended:
            self._count(chunk)
        return chunk

    def _count(self, chunk: bytes) -> None:
        data = self._unread + chunk
        at = self._skipped
        while not self._ended and at + _LONGEST_HEADER <= len(data):
            length = _packet_length(data[at : at + _LONGEST_HEADER])
            if length is None:
                self._ended = True
                return
            self._packets += 1
            if self._packets > MAX_READERS:
                raise BadMessage(TOO_MANY_READERS)
            at += length
        # The next packet begins in what is to come, or its header ends there.
        self._unread, self._skipped = data[at:], max(0, at - len(data))


def _packet_length(header: bytes) -> int | None:
    """Return the bytes of a packet and its header; ``None`` where the head of a seal ends."""
    first, second = header[:2]
    if not first & 0x80:
        return None
    if first & 0x40:
        return None if first & 0x3F in _SEALED_TAGS else _new_length(second, header)
    kind = first & 3
    if first >> 2 & 0xF in _SEALED_TAGS or kind == 3:
        return None
    digits = 1 << kind
    return 1 + digits + int.from_bytes(header[1 : 1 + digits], "big")


def _new_length(second: int, header: bytes) -> int | None:
    """Read a length in the newer format; one in parts is for what was sealed only."""
    if second < 192:
        return 2 + second
    if second < 224:
        return 3 + (second - 192 << 8) + header[2] + 192
    return 6 + int.from_bytes(header[2:6], "big") if second == 255 else None
