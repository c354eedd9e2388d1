"""Lines and fields: what may stand in them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.fields import (
    Fields,
    PaddingFilter,
    as_line,
    decode_lines,
    is_line,
    split_lines,
)

ODD_LINES = [
    b"", b"A: 1", b"EndBlock", b"endbloc\xe2\x84\xaa", b"NEXTCLAIM", b"Padding: x", b"post-to:x",
    b"a\nEndBlock", b"\n", b"x" * 16_385, b"\xc3\xa4: \xe2\x80\xa8", b"\xff", b"a Embargo: x",
    b"\t",
]  # fmt: skip


def test_fields_compare_without_case_and_count() -> None:
    """Once, at most once, or any number of times."""
    fields = Fields.parse(("A: 1", "a: 2", "B: x y"))
    assert fields.every("A") == ("1", "2")
    assert (fields.one("b"), fields.optional("C")) == ("x y", None)
    with pytest.raises(InvalidBlock, match="more than one A"):
        fields.one("A")
    with pytest.raises(InvalidBlock, match="no C line"):
        fields.one("C")
    assert list(fields) == [("A", "1"), ("a", "2"), ("B", "x y")]


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "\x7f", "\x85", "\u2028", "\ud800", "ä" * 8193])
def test_what_is_no_line_is_told(text: str) -> None:
    """And can be made fit to be shown."""
    assert not is_line(text)
    assert is_line(as_line(text)[:8192])


def test_lines_may_end_either_way() -> None:
    """A last line without end is a line as well."""
    assert split_lines(b"a\r\nb\nc") == ("a", "b", "c")
    assert split_lines(b"") == ()
    assert split_lines(b"a\n\n") == ("a", "")


@given(st.lists(st.sampled_from(ODD_LINES) | st.binary(max_size=12), max_size=4))
def test_lines_together_are_read_as_each_alone(lines: list[bytes]) -> None:
    """What one line may not hold is refused among others, for the first reason there is."""

    def attempt(*some: bytes) -> tuple[str, ...] | str:
        try:
            return decode_lines(some)
        except InvalidBlock as error:
            return error.reason

    alone = [attempt(line) for line in lines]
    reasons = [found for found in alone if isinstance(found, str)]
    whole = tuple(text for found in alone for text in found if isinstance(found, tuple))
    assert attempt(*lines) == (reasons[0] if reasons else whole)


@given(st.lists(st.sampled_from([*ODD_LINES, b"a", b"\r", b"pADDING: y"]), max_size=5), st.data())
def test_a_body_is_cut_as_line_by_line(lines: list[bytes], data: st.DataObject) -> None:
    """Whatever ends the lines; padding is left out, but not within a signed text."""
    marks = [b"-----BEGIN PGP SIGNED MESSAGE-----", b"-----END PGP SIGNATURE-----"]
    lines = [*lines, *data.draw(st.lists(st.sampled_from([*marks, b"Padding: z"]), max_size=5))]
    ends = [data.draw(st.sampled_from([b"\n", b"\r\n"])) for _ in lines]
    body = b"".join(line + end for line, end in zip(lines, ends, strict=True))
    body = body.removesuffix(data.draw(st.sampled_from([b"", b"\n"])))
    padding = PaddingFilter()
    pieces = body.removesuffix(b"\n").split(b"\n") if body else []
    kept = [line for piece in pieces if padding.keeps(line := piece.removesuffix(b"\r"))]

    def attempt(cut: Callable[[], tuple[str, ...]]) -> tuple[str, ...] | str:
        try:
            return cut()
        except InvalidBlock as error:
            return error.reason

    assert attempt(lambda: split_lines(body)) == attempt(lambda: decode_lines(kept))
