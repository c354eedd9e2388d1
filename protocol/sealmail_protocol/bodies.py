"""Reading the body of a STORE or the answer of a GET, with limits set before buffering."""

import re
from dataclasses import dataclass, field
from typing import Protocol

from sealmail_protocol.blocks import BlockType, type_named
from sealmail_protocol.canonical import BodyDigest
from sealmail_protocol.errors import ProtocolError
from sealmail_protocol.fields import PaddingFilter
from sealmail_protocol.policy import (
    BLOCK_POLICY,
    FULL_MAILBOX_ANSWER,
    HARD_DATA,
    HARD_TEXT_BODY,
    UNKNOWN_BODY,
)
from sealmail_protocol.receive_buffer import ReceiveBuffer

_TYPE = re.compile(rb"type: ([a-z-]{1,40})", re.IGNORECASE)
_DATA = re.compile(rb"data: ([1-9][0-9]{0,18})", re.IGNORECASE)
# Post-To lines at the head of a proxied body come on top of the block.
_POST_TO_ROOM = 64 * 1024
# Bytes of data handed on at once: enough to be cheap, little enough to keep memory flat.
_CHUNK = 128 * 1024
_END = b"endblock"
_END_LENGTH = len(_END)
# What a line costs in memory beside its bytes: short ones cost many times what they carry.
_LINE_COST = 64
# Lines of a block are longer than this on average, a separator and a blank line here and there.
_MEAN_LINE = 16
# A body of this weight is kept without asking for room, so that ordinary mail always gets in;
# more room is asked for in steps of the same size.
FREE_BODY = 128 * 1024


@dataclass(frozen=True, slots=True)
class TextBody:
    """A whole text body, padding removed, without its end marker."""

    lines: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class OversizedBody:
    """A body that was read to its end and thrown away, since no block may be that large.

    ``digest`` is its ``BodyDigest``, to ask its verdict by.
    """

    size: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class CrowdedBody:
    """A body that was read to its end and thrown away, since there was no room for it now."""


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


BodyEvent = TextBody | OversizedBody | CrowdedBody | DataStarted | DataChunk | DataEnded
BODY_ENDS = (TextBody, OversizedBody, CrowdedBody, DataEnded)


class Room(Protocol):
    """The memory that large bodies of one connection may take."""

    def take(self, size: int) -> bool:
        """Take so many bytes more, or none of them."""

    def release(self) -> None:
        """Give back all that was taken."""


class BodyReader:
    """Reads one body from a buffer; after an event of ``BODY_ENDS`` it is spent.

    An ``answer`` to a GET may be a whole mailbox or all claims for an address; what is posted
    may not. ``targets`` may stand at the head of what is to be delivered elsewhere. ``room`` is
    asked before a large body is kept; who uses the body gives it back. Lines of more than
    ``most`` bytes are not read to their end but are a ``ProtocolError``.
    """

    def __init__(
        self,
        *,
        answer: bool = False,
        targets: bool = False,
        room: Room | None = None,
        most: int | None = None,
    ) -> None:
        self._answer = answer
        self._head_room = _POST_TO_ROOM if targets else 0
        self._room = room
        hard_limit = (FULL_MAILBOX_ANSWER if answer else HARD_TEXT_BODY) + _POST_TO_ROOM
        self._hard_limit = hard_limit if most is None else min(most, hard_limit)
        self._limit = UNKNOWN_BODY
        self._lines: list[bytes] = []
        self._digest = BodyDigest()
        self._digested = 0
        self._size = 0
        self._seen = 0
        self._weight = 0
        self._granted = FREE_BODY
        self._oversized = False
        self._crowded = False
        self._skipped = False
        self._typed = False
        self._is_data = False
        self._padding = PaddingFilter()
        self._data_left: int | None = None

    def next_event(self, buffer: ReceiveBuffer) -> BodyEvent | None:
        """Return the next event of this body, or ``None`` when more bytes are needed."""
        if self._data_left is not None:
            return self._next_chunk(buffer)
        while True:
            if lines := buffer.peek_lines():
                taken, event = self._take_lines(lines)
                buffer.skip(taken)
            else:
                # Longer than one look, or not whole yet.
                line = buffer.take_line()
                if line is None:
                    return None
                event = self.take_line(line)
            if event is not None:
                return event

    def _take_lines(self, lines: list[bytes]) -> tuple[int, BodyEvent | None]:
        """Take lines up to the next event; return how many bytes of them were taken."""
        taken = 0
        for line in lines:
            taken += len(line) + 2
            event = self.take_line(line)
            if event is not None:
                return taken, event
        return taken, None

    def take_line(self, line: bytes) -> BodyEvent | None:
        """Take one line of the body; used for a first line that was read to know what comes."""
        self._seen += len(line) + 2
        if self._seen > self._hard_limit:
            raise ProtocolError(f"a text body of more than {self._hard_limit} bytes")
        if len(self._lines) * _MEAN_LINE > self._hard_limit:
            raise ProtocolError("a text body of too many short lines")
        if len(line) == _END_LENGTH and line.lower() == _END:
            return self._end_of_text()
        if not self._padding.keeps(line):
            return None
        if not self._typed:
            self._note_type(line)
        self._keep(line)
        return self._start_of_data(line) if self._is_data else None

    def skip(self) -> None:
        """Keep nothing of what comes: the body is only to be passed over."""
        self._skipped = True
        self._drop_lines()

    def _end_of_text(self) -> BodyEvent:
        if self._oversized:
            return OversizedBody(self._size, self._digest.value())
        return CrowdedBody() if self._crowded else TextBody(tuple(self._lines))

    def _note_type(self, line: bytes) -> None:
        """Let the first Type line set the limit; a bundle has many, all of one type."""
        match = _TYPE.fullmatch(line)
        if not match:
            return
        self._typed = True
        kind = type_named(match[1].decode())
        self._is_data = kind is BlockType.DATA
        if kind is None:
            return
        policy = BLOCK_POLICY[kind]
        if self._answer and policy.separator:
            self._limit = FULL_MAILBOX_ANSWER
        else:
            self._limit = min(policy.body_size + self._head_room, HARD_TEXT_BODY)

    def _keep(self, line: bytes) -> None:
        if self._skipped:
            return
        self._size += len(line) + 2
        self._weight += len(line) + _LINE_COST
        # For good: a Type line that comes late must not revive a body whose head is gone.
        self._oversized = self._oversized or self._size > self._limit
        if self._oversized or self._crowded or not self._has_room():
            # What finds no room may turn out too large as well, and then needs its digest.
            self._digest_lines()
            self._drop_lines()
            self._digest.take((line,))
        else:
            self._lines.append(line)

    def _has_room(self) -> bool:
        while self._room is not None and self._weight > self._granted:
            if not self._room.take(FREE_BODY):
                self._crowded = True
                return False
            self._granted += FREE_BODY
            # Step by step: all of a large body at once would keep others waiting.
            self._digest_lines()
        return True

    def _digest_lines(self) -> None:
        self._digest.take(self._lines[self._digested :])
        self._digested = len(self._lines)

    def _drop_lines(self) -> None:
        self._digested = 0
        if self._lines:
            self._lines.clear()
            if self._room is not None:
                self._room.release()

    def _start_of_data(self, line: bytes) -> DataStarted | None:
        match = _DATA.fullmatch(line)
        if not match:
            return None
        size = int(match[1])
        if self._oversized:
            raise ProtocolError(f"more than {self._limit} bytes of lines before data")
        if self._crowded:
            raise ProtocolError("no room for so many lines before data")
        if size > HARD_DATA:
            raise ProtocolError(f"a data block of {size} bytes")
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
