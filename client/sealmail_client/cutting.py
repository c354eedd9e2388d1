"""Sealed bytes as pieces that travel one by one, and back: a piece becomes a data block."""

import threading
from collections.abc import Iterable, Iterator
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
    sealed: Path, block_size: int = PIECE_SIZE, written: threading.Event | None = None
) -> CutMessage:
    """Return the pieces of a sealed file, reading it once.

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
    return CutMessage(whole.key(), tuple(pieces))


def read_piece(sealed: Path, piece: Piece) -> bytes:
    """Return the bytes of one piece; a file that is not the one that was cut is refused."""
    with sealed.open("rb") as source:
        source.seek(piece.offset)
        data = source.read(piece.size)
    if len(data) != piece.size:
        raise BadPiece(piece.key, "is not in the sealed file any more")
    return data


class Joiner:
    """Writes pieces behind each other into a file, as they come."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._whole = DataKeyHasher()
        target.unlink(missing_ok=True)

    def append(self, piece: PieceFile) -> None:
        """Take the next piece; one that is missing or does not fit its key is a ``BadPiece``."""
        with self._target.open("ab") as sink:
            _append(piece, self._whole, sink)

    def finish(self, message_hash: BlockKey) -> None:
        """Check the whole; the file is gone if it is not what was announced."""
        if self._whole.key() != message_hash:
            self._target.unlink(missing_ok=True)
            raise BadMessage("its pieces together do not fit the MessageHash")


def join(pieces: Iterable[PieceFile], message_hash: BlockKey, target: Path) -> None:
    """Write the pieces behind each other into ``target``, which is whole or gone afterwards.

    A piece that is missing or does not fit its key is a ``BadPiece`` with that key.
    """
    joiner = Joiner(target)
    try:
        for piece in pieces:
            joiner.append(piece)
        joiner.finish(message_hash)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _append(piece: PieceFile, whole: DataKeyHasher, sink: BinaryIO) -> None:
    part = DataKeyHasher()
    try:
        source = piece.path.open("rb")
    except FileNotFoundError:
        raise BadPiece(piece.key, "is missing") from None
    with source:
        while chunk := source.read(_CHUNK):
            part.update(chunk)
            whole.update(chunk)
            sink.write(chunk)
    if part.key() != piece.key:
        raise BadPiece(piece.key, "is damaged")


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
