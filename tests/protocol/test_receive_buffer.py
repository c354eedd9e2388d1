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


@given(
    st.lists(st.sampled_from([b"a", b"\r", b"\n", b"\r\n", b"x" * 2100]), max_size=7),
    st.integers(0, 3),
)
def test_lines_seen_are_the_lines_taken(parts: list[bytes], taken: int) -> None:
    """Looking takes nothing; some that were seen may be taken, and the others come next."""
    seen_by, read_by = ReceiveBuffer(), ReceiveBuffer()
    for part in parts:
        seen_by.feed(part)
        read_by.feed(part)
    seen = seen_by.peek_lines()[:taken]
    seen_by.skip(sum(len(line) + 2 for line in seen))
    assert seen == [read_by.take_line() for _ in seen]
    assert (len(seen_by), seen_by.take_line()) == (len(read_by), read_by.take_line())
