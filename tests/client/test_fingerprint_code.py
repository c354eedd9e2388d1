"""Fingerprints as QR codes."""

import segno

from sealmail_client.fingerprint_code import code_text, terminal_code
from sealmail_protocol.keys import KeyId

KEY = KeyId.from_hex("101BD94616CC85794587C4B9EE0A877720321464")
# Two rows of squares to a line of text: the upper and the lower one.
SQUARES = {" ": (1, 1), "▀": (0, 1), "▄": (1, 0), "█": (0, 0)}
QUIET = 4


def test_the_code_says_what_other_openpgp_programs_expect() -> None:
    """The scheme is theirs; the fingerprint is whole."""
    assert code_text(KEY) == "OPENPGP4FPR:101BD94616CC85794587C4B9EE0A877720321464"


def test_the_drawing_is_the_code_square_by_square() -> None:
    """Read back from the terminal, with a quiet zone of four squares around it."""
    drawn: list[list[int]] = []
    for line in terminal_code(KEY).splitlines():
        drawn += ([SQUARES[c][0] for c in line], [SQUARES[c][1] for c in line])
    size = len(drawn[0])
    inner = [row[QUIET : size - QUIET] for row in drawn[QUIET : size - QUIET]]
    code = segno.make_qr(code_text(KEY), error="m")
    assert inner == [[square & 1 for square in row] for row in code.matrix]
    assert not any(any(row) for row in (*drawn[:QUIET], *drawn[size - QUIET : size]))
