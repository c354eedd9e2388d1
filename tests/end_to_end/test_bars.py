"""What a user at a terminal sees of long work."""

import errno
import os
import pty
import re
import subprocess
from pathlib import Path

from tests.end_to_end.programs import SECONDS, Server, User, letter_to

# The least stamp that is worth a bar.
SHOWN = "bd,28,2"
_PARTS = re.compile(r"\x1b\[([0-9?;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


def at_a_terminal(user: User, *arguments: str) -> str:
    """Give a command that must succeed; return what it writes to a terminal as errors."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        user.command(*arguments),
        stdout=subprocess.DEVNULL,
        stderr=follower,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(follower)
    written = b""
    while chunk := _read(leader):
        written += chunk
    os.close(leader)
    assert process.wait(SECONDS) == 0, written
    return written.decode()


def _read(leader: int) -> bytes:
    """Read some bytes, none when nobody holds the other end any more."""
    try:
        return os.read(leader, 65536)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


def screen(written: str) -> tuple[list[str], int]:
    """Return the lines that stand on a terminal in the end, and the column of its cursor."""
    lines, row, column = [""], 0, 0
    for number, letter, control, text in _PARTS.findall(written):
        if control == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif control == "\r":
            column = 0
        elif text:
            lines[row] = (
                f"{lines[row]:{column}}"[:column] + text + lines[row][column + len(text) :]
            )
            column += len(text)
        elif letter == "A":
            row -= int(number or 1)
        elif letter == "K":
            lines[row] = ""
    return lines, column


def test_bars_show_signing_sealing_minting_and_sending_and_are_wiped_away(
    alice: User, place: Path, servers: tuple[Server, Server], tmp_path: Path
) -> None:
    """They leave what was said before them, an empty line and a cursor that is seen."""
    rita = User.settle(place, "Rita", "rita@b.example", servers[1], SHOWN)
    large = tmp_path / "large.bin"
    large.write_bytes(os.urandom(20 * 1024 * 1024))
    words = (*letter_to([rita], "With bars"), "--attach", str(large))
    written = at_a_terminal(alice, *words)
    for label in ("signing", "sealing", "stamping for rita@b.example", "sending to 127.0.0.1"):
        assert label in written
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")
    (price, rest), column = screen(written)
    assert price.startswith("rita@b.example asks for bd,28,2")
    assert (rest, column) == ("", 0)


def test_a_pipe_gets_no_bars(alice: User, place: Path, servers: tuple[Server, Server]) -> None:
    """Scripts read what is written there."""
    sam = User.settle(place, "Sam", "sam@b.example", servers[1], SHOWN)
    assert "stamping" not in alice.runs(*letter_to([sam], "No bars")).complaint
