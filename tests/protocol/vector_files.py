"""Reading the text files of tests/vectors and tests/dialogues, and feeding bytes in pieces."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VECTORS = Path(__file__).parents[1] / "vectors"
DIALOGUES = Path(__file__).parents[1] / "dialogues"

_ESCAPE = re.compile(rb"\\(?:x([0-9a-f]{2})|\\)")
# Whole, byte by byte, and in pieces that end nowhere in particular.
PIECES = (1 << 30, 1, 7)


@dataclass(frozen=True, slots=True)
class BlockVector:
    """A body and what is expected of it."""

    name: str
    expected: dict[str, str]
    lines: tuple[bytes, ...]
    data: bytes | None

    def body(self, line_end: bytes) -> bytes:
        """Return the bytes, without end marker."""
        return b"".join(line + line_end for line in self.lines) + (self.data or b"")

    def on_the_wire(self) -> bytes:
        """Return the bytes as they are sent."""
        return self.body(b"\r\n") + (b"EndBlock\r\n" if self.data is None else b"")


def block_vectors() -> list[BlockVector]:
    """Return all of tests/vectors/blocks."""
    return [_read(path) for path in sorted((VECTORS / "blocks").glob("*.txt"))]


def in_pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Cut ``data``; nothing comes out of nothing."""
    for start in range(0, len(data), size):
        yield data[start : start + size]


def _read(path: Path) -> BlockVector:
    head, _, rest = path.read_bytes().partition(b"\n\n")
    expected = dict(line.split(": ", 1) for line in head.decode().splitlines())
    lines: list[bytes] = []
    data = None
    for line in rest.removesuffix(b"\n").split(b"\n") if rest else ():
        if line.startswith(b"\\cat "):
            lines += (VECTORS / line[5:].decode()).read_bytes().removesuffix(b"\n").split(b"\n")
        elif line.startswith(b"\\data "):
            data = _unescape(line[6:])
        else:
            lines.append(_unescape(line))
    return BlockVector(path.stem, expected, tuple(lines), data)


def _unescape(text: bytes) -> bytes:
    return _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()) if found[1] else b"\\", text)
