"""Sealed bytes as pieces that travel one by one, and back: a piece becomes a data block."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sealmail_client.errors import BadMessage, BadPiece
from sealmail_protocol.keys import BlockKey, DataKeyHasher

# The size of a data block by convention; originals take no larger ones.
PIECE_SIZE = 8 * 1024 * 1024
_CHUNK = 256 * 1024
# How soon a file that grows is looked at again.
_LOOK_AGAIN = 0.02


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the sealed file, and the key it is stored under."""

    key: BlockKey
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class CutMessage:
    """All pieces in order; ``message_hash`` is over them together."""

    message_hash: BlockKey
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class PieceFile:
    """A received piece, kept in a file of its own."""

    key: BlockKey
    path: Path


def cut(
    sealed: Path,
    block_size: int = PIECE_SIZE,
    written: threading.Event | None = None,
    found: Callable[[Piece], object] | None = None,
) -> CutMessage:
    """Return the pieces of a sealed file, reading it once; ``found`` is told of each at once.

    With ``written`` the file may still grow until that is set, and need not be there yet.
    """
    if block_size < 1:
        raise ValueError("a piece has at least one byte")
    whole = DataKeyHasher()
    pieces: list[Piece] = []
    while written is not None and not written.is_set() and not sealed.exists():
        written.wait(_LOOK_AGAIN)
    with sealed.open("rb") as source:
        offset = 0
        while True:
            part, size = DataKeyHasher(), 0
            for chunk in _chunks(source, block_size, written):
                whole.update(chunk)
                part.update(chunk)
                size += len(chunk)
            if size == 0:
                break
            pieces.append(Piece(part.key(), offset, size))
            offset += size
            if found is not None:
                found(pieces[-1])
    return CutMessage(whole.key(), tuple(pieces))


def read_piece(sealed: Path, piece: Piece, prefix: bytes = b"") -> bytearray:
    """Return the bytes of one piece behind ``prefix``; another file than was cut is refused."""
    data = bytearray(len(prefix) + piece.size)
    data[: len(prefix)] = prefix
    with sealed.open("rb", buffering=0) as source, memoryview(data) as room:
        source.seek(piece.offset)
        filled = len(prefix)
        while filled < len(data) and (count := source.readinto(room[filled:])):
            filled += count
    if filled != len(data):
        raise BadPiece(piece.key, "is not in the sealed file any more")
    return data


class JoinedPieces:
    """Pieces one behind the other as one stream, whose end may still be on its way.

    One thread appends and another reads, which waits for what is to come. The pieces are not
    compared with their keys, only hashed together.
    """

    def __init__(self) -> None:
        self._coming: queue.SimpleQueue[PieceFile | Exception | None] = queue.SimpleQueue()
        self._whole = DataKeyHasher()
        self._source: BinaryIO | None = None
        self._ended = False

    @classmethod
    def of(cls, pieces: Iterable[PieceFile]) -> "JoinedPieces":
        """Return a stream of pieces that are all here."""
        joined = cls()
        for piece in pieces:
            joined.append(piece)
        joined.end()
        return joined

    def append(self, piece: PieceFile) -> None:
        """Add the next piece."""
        self._coming.put(piece)

    def end(self) -> None:
        """Say that no piece follows."""
        self._coming.put(None)

    def give_up(self) -> None:
        """Say that the rest does not come; reading raises ``BadMessage``."""
        self._coming.put(BadMessage("the rest of it did not come"))

    def read(self, size: int, /) -> bytes:
        """Return some bytes, none only at the end; a piece whose file is gone is ``BadPiece``."""
        while not self._ended:
            if self._source is None and not self._next():
                break
            if self._source is not None:
                if chunk := self._source.read(size):
                    self._whole.update(chunk)
                    return chunk
                self._source.close()
                self._source = None
        return b""

    def message_hash(self) -> BlockKey:
        """Return the hash of what was read, and of what was not."""
        while self.read(_CHUNK):
            pass
        return self._whole.key()

    def _next(self) -> bool:
        match self._coming.get():
            case None:
                self._ended = True
            case Exception() as error:
                self._ended = True
                raise error
            case piece:
                self._source = _opened(piece)
        return not self._ended


def damaged(pieces: Iterable[PieceFile]) -> list[BadPiece]:
    """Return what is wrong with each piece that is missing or does not fit its key."""
    found = []
    for piece in pieces:
        part = DataKeyHasher()
        try:
            with _opened(piece) as source:
                while chunk := source.read(_CHUNK):
                    part.update(chunk)
        except BadPiece as error:
            found.append(error)
            continue
        if part.key() != piece.key:
            found.append(BadPiece(piece.key, "is damaged"))
    return found


def _opened(piece: PieceFile) -> BinaryIO:
    try:
        return piece.path.open("rb")
    except FileNotFoundError:
        raise BadPiece(piece.key, "is missing") from None


def _chunks(source: BinaryIO, size: int, written: threading.Event | None) -> Iterator[bytes]:
    """Read the next ``size`` bytes, or what there is of them."""
    while size > 0 and (chunk := _read(source, min(size, _CHUNK), written)):
        size -= len(chunk)
        yield chunk


def _read(source: BinaryIO, size: int, written: threading.Event | None) -> bytes:
    """Read some bytes; none only at the end of a file that does not grow any more."""
    while True:
        ended = written is None or written.is_set()
        if (chunk := source.read(size)) or ended:
            return chunk
        if written is not None:
            written.wait(_LOOK_AGAIN)
