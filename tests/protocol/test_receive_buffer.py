"""Bytes become lines, each once."""

from hypothesis import given
from hypothesis import strategies as st

from sealmail_protocol.receive_buffer import ReceiveBuffer


@given(st.lists(st.binary(max_size=20)))
def test_a_buffer_gives_each_line_once(parts: list[bytes]) -> None:
    """A bare CR or LF ends none, and the rest stays."""
    buffer, lines = ReceiveBuffer(), []
    for part in parts:
        buffer.feed(part)
        while (line := buffer.take_line()) is not None:
            lines.append(line)
    rest = buffer.take_up_to(10_000)
    assert len(buffer) == 0
    assert b"\r\n".join((*lines, rest)) == b"".join(parts)
