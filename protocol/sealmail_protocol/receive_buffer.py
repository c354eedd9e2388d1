"""Bytes that wait to become lines or counted data."""

from sealmail_protocol.errors import ProtocolError
from sealmail_protocol.fields import MAX_LINE


class ReceiveBuffer:
    """Takes bytes at one end, gives lines and counted bytes at the other, each once."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._start = 0
        self._searched = 0

    def __len__(self) -> int:
        return len(self._bytes) - self._start

    def feed(self, data: bytes) -> None:
        """Take what the socket gave."""
        if self._start:
            del self._bytes[: self._start]
            self._searched -= self._start
            self._start = 0
        self._bytes += data

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

    def take_up_to(self, count: int) -> bytes:
        """Return at most ``count`` bytes, as many as there are."""
        chunk = bytes(memoryview(self._bytes)[self._start : self._start + count])
        self._start += len(chunk)
        self._searched = self._start
        return chunk
