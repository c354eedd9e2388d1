"""What gpg reads from and writes to, with the errors that its library would swallow."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol


class Readable(Protocol):
    """Bytes that are signed or sealed as they come; ``b""`` is their end."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes."""


class WatchedSource:
    """A source that remembers why reading failed.

    The library ends gpg's input there, as if the source were whole, and may tell nobody.
    """

    def __init__(self, source: Readable) -> None:
        self._source = source
        self.taken = 0
        self._error: Exception | None = None

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none after a failure."""
        try:
            chunk = self._source.read(size)
        except Exception as error:
            self._error = error
            return b""
        self.taken += len(chunk)
        return chunk

    def require_whole(self) -> None:
        """Raise what stopped the reading, if anything did."""
        if self._error is not None:
            raise self._error


class Measured:
    """A source of about ``size`` bytes that tells ``report`` the share that was taken."""

    def __init__(self, source: Readable, size: int, report: Callable[[float], None]) -> None:
        self._source = source
        self._size = max(1, size)
        self._report = report
        self._taken = 0

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes."""
        chunk = self._source.read(size)
        self._taken += len(chunk)
        self._report(min(1.0, self._taken / self._size))
        return chunk


@contextmanager
def reading(source: Path | Readable) -> Iterator[Readable]:
    """Open a file, and close it again; a stream belongs to its owner."""
    if isinstance(source, Path):
        with source.open("rb") as file:
            yield file
    else:
        yield source
