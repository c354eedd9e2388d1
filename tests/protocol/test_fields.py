"""Lines and fields: what may stand in them."""

import pytest

from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.fields import Fields, as_line, is_line, split_lines


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
