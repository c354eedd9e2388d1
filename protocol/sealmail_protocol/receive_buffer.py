"""Bytes that wait to become lines or counted data."""

from sealmail_protocol.errors import ProtocolError
from sealmail_protocol.fields import MAX_LINE

# Lines seen at once: most blocks are shorter, and what is seen and not taken costs little.
_PEEK = 4096


class ReceiveBuffer:
    """Takes bytes at one end, gives lines and counted bytes at the other, each once."""

    def __init__(self) -> None:
        # What one read gave stays as it is; only what has to be joined is copied.
        self._bytes: bytes | bytearray = b""
        self._start = 0
        self._searched = 0

    def __len__(self) -> int:
        return len(self._bytes) - self._start

    def feed(self, data: bytes) -> None:
        """Take what the socket gave."""
        if self._start == len(self._bytes):
            self._bytes, self._searched = data, 0
        else:
            if isinstance(self._bytes, bytes):
                self._bytes = bytearray(memoryview(self._bytes)[self._start :])
            else:
                del self._bytes[: self._start]
            self._searched -= self._start
            self._bytes += data
        self._start = 0

    def take_line(self) -> bytes | None:
        """Return the next line without its CRLF, or ``None`` while it is incomplete."""
        end = self._bytes.find(b"\r\n", max(self._start, self._searched))
        length = (len(self._bytes) if end < 0 else end) - self._start
        if length > MAX_LINE + (end < 0):
            raise ProtocolError(f"a line longer than {MAX_LINE} bytes")
        if end < 0:
            # The next CR may be the last byte we have.
            self._searched = max(self._start, len(self._bytes) - 1)
            return None
        line = bytes(self._bytes[self._start : end])
        self._start = self._searched = end + 2
        return line

    def peek_lines(self) -> list[bytes]:
        """Return lines that are complete, without their CRLF; a few kilobytes at most.

        ``skip`` takes them, or some. None may be returned though there is a long one.
        """
        end = self._bytes.rfind(b"\r\n", self._start, self._start + _PEEK)
        if end < 0:
            return []
        return bytes(memoryview(self._bytes)[self._start : end]).split(b"\r\n")

    def skip(self, count: int) -> None:
        """Take ``count`` bytes that were seen before."""
        self._start += count
        self._searched = self._start

    def take_up_to(self, count: int) -> bytes:
        """Return at most ``count`` bytes, as many as there are."""
        if self._start == 0 and len(self._bytes) <= count:
            chunk = bytes(self._bytes)
        else:
            chunk = bytes(memoryview(self._bytes)[self._start : self._start + count])
        self._start += len(chunk)
        if self._start == len(self._bytes):
            # What is handed out is nobody's business here any more, its memory least of all.
            self._bytes, self._start = b"", 0
        self._searched = self._start
        return chunk
