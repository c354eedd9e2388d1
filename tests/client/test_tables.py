"""Lists as tables at a terminal, and as plain lines elsewhere."""

import io

import pytest
from rich.console import Console

from sealmail_client.cli.tables import Column, print_table, tell_table

COLUMNS = (Column("Key", whole=True), Column("Subject"), Column("Since", whole=True))
PIN = "0123456789abcdef" * 4


def printed(rows: list[tuple[str, ...]], width: int) -> list[str]:
    """Return the lines of a table on a terminal of this width, without colours."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    print_table(console, COLUMNS, rows)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [20, 80, 200])
def test_what_people_copy_is_in_one_piece_on_any_terminal(width: int) -> None:
    """The words of strangers make room for it."""
    subject = f"{'a long subject ' * 10} of bob.with.a.name@b.example {'x' * 500}"
    lines = printed([(PIN, subject, "2026-03-01T12:00:00Z")], width)
    for whole in (PIN, "2026-03-01T12:00:00Z", "bob.with.a.name@b.example"):
        assert sum(whole in line for line in lines) == 1
    assert "".join(lines).count("x") == 500 + "example".count("x")
    assert all(len(line) <= max(width, 150) for line in lines)


def test_a_short_list_is_as_narrow_as_it_can_be() -> None:
    """With a heading and a line under it."""
    heading, ruled, row = (line for line in printed([("k", "s", "d")], 80) if line)
    assert heading.split() == ["Key", "Subject", "Since"]
    assert set(ruled) <= {"─", " "}
    assert row.split() == ["k", "s", "d"]
    assert len(row) < 30


def test_strangers_write_neither_markup_nor_control_codes() -> None:
    """What they wrote is shown as it is, or by a mark where it could steer a terminal."""
    text = "\n".join(printed([("k", "[red]a\x1b[2Jb\x9b31m[/red]:smile:", "d")], 80))
    assert "\x1b" not in text
    assert "\x9b" not in text
    assert "[red]a�[2Jb�31m[/red]:smile:" in text


def test_a_pipe_gets_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts read them."""
    tell_table(COLUMNS, [("k", "s", "d")], "k  s  d")
    assert capsys.readouterr().out == "k  s  d\n"
