"""Reading the body of a STORE or the answer of a GET, with limits set before buffering."""

import re
from dataclasses import dataclass, field

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.errors import ProtocolError
from sealmail_protocol.fields import PaddingFilter
from sealmail_protocol.policy import BLOCK_POLICY, HARD_DATA, HARD_TEXT_BODY, UNKNOWN_BODY
from sealmail_protocol.receive_buffer import ReceiveBuffer

_TYPE = re.compile(rb"type: ([a-z-]{1,40})", re.IGNORECASE)
_DATA = re.compile(rb"data: ([1-9][0-9]{0,18})", re.IGNORECASE)
# Post-To lines at the head of a proxied body come on top of the block.
_POST_TO_ROOM = 64 * 1024
_BODY_LIMITS = {str(kind).encode(): row.body_size for kind, row in BLOCK_POLICY.items()} | {
    b"acknowledgement": BLOCK_POLICY[BlockType.ACKNOWLEDGMENT].body_size
}
# Bytes of data handed on at once: enough to be cheap, little enough to keep memory flat.
_CHUNK = 128 * 1024


@dataclass(frozen=True, slots=True)
class TextBody:
    """A whole text body, padding removed, without its end marker."""

    lines: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class OversizedBody:
    """A body that was read to its end and thrown away, since no block may be that large."""

    size: int


@dataclass(frozen=True, slots=True)
class DataStarted:
    """The lines of a data block; ``size`` bytes follow in chunks."""

    lines: tuple[bytes, ...] = field(repr=False)
    size: int


@dataclass(frozen=True, slots=True)
class DataChunk:
    """The next bytes of the data block."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class DataEnded:
    """All bytes of the data block have come."""


BodyEvent = TextBody | OversizedBody | DataStarted | DataChunk | DataEnded
BODY_ENDS = (TextBody, OversizedBody, DataEnded)


class BodyReader:
    """Reads one body from a buffer; after an event of ``BODY_ENDS`` it is spent."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._kept = 0
        self._seen = 0
        self._limit = UNKNOWN_BODY
        self._type: bytes | None = None
        self._padding = PaddingFilter()
        self._data_left: int | None = None

    def next_event(self, buffer: ReceiveBuffer) -> BodyEvent | None:
        """Return the next event of this body, or ``None`` when more bytes are needed."""
        if self._data_left is not None:
            return self._next_chunk(buffer)
        while (line := buffer.take_line()) is not None:
            event = self.take_line(line)
            if event is not None:
                return event
        return None

    def take_line(self, line: bytes) -> BodyEvent | None:
        """Take one line of the body; used for a first line that was read to know what comes."""
        self._seen += len(line) + 2
        if self._seen > HARD_TEXT_BODY + _POST_TO_ROOM:
            raise ProtocolError(f"a text body of more than {HARD_TEXT_BODY} bytes")
        if line.lower() == b"endblock":
            if self._kept > self._limit:
                return OversizedBody(self._kept)
            return TextBody(tuple(self._lines))
        if not self._padding.keeps(line):
            return None
        self._note_type(line)
        self._kept += len(line) + 2
        if self._kept <= self._limit:
            self._lines.append(line)
        else:
            self._lines.clear()
        return self._start_of_data(line)

    def _note_type(self, line: bytes) -> None:
        """Let the first Type line set the limit; a bundle has many, all of one type."""
        match = _TYPE.fullmatch(line) if self._type is None else None
        if match:
            self._type = match[1]
            self._limit = _BODY_LIMITS.get(match[1], UNKNOWN_BODY)
            if self._limit < HARD_TEXT_BODY:
                self._limit += _POST_TO_ROOM

    def _start_of_data(self, line: bytes) -> DataStarted | None:
        match = _DATA.fullmatch(line) if self._type == b"data" else None
        if not match:
            return None
        size = int(match[1])
        if size > HARD_DATA or self._kept > self._limit:
            raise ProtocolError(f"a data block of {size} bytes or an endless header")
        self._data_left = size
        return DataStarted(tuple(self._lines), size)

    def _next_chunk(self, buffer: ReceiveBuffer) -> DataChunk | DataEnded | None:
        if self._data_left == 0:
            return DataEnded()
        chunk = buffer.take_up_to(min(self._data_left or 0, _CHUNK))
        if not chunk:
            return None
        self._data_left = (self._data_left or 0) - len(chunk)
        return DataChunk(chunk)
