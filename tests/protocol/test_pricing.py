"""What a mailbox asks, line by line of the table in tests/vectors/demand.txt."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies as s
from tests.protocol.vector_files import VECTORS

from sealmail_pow import Difficulty
from sealmail_protocol.pricing import FLOOR, Fill, demand

LINES = [
    line for line in (VECTORS / "demand.txt").read_text().splitlines() if not line.startswith("#")
]
shares = st.fractions(0, 2)


@pytest.mark.parametrize("line", LINES)
def test_the_demand_is_that_of_the_table(line: str) -> None:
    """Price, token, fill of mailbox and token share, and size give the answer."""
    price, token, mailbox, tokens, size, answer = line.split()
    fill = Fill(Fraction(mailbox), Fraction(tokens))
    asked = demand(Difficulty.parse(price), token == "token", fill, int(size))
    assert (str(asked) if asked else "full") == answer


@given(s.difficulties, shares, shares, st.integers(0, 1 << 24), shares, st.integers(0, 1 << 24))
def test_a_fuller_mailbox_and_a_larger_mail_never_cost_less(
    price: Difficulty, mailbox: Fraction, tokens: Fraction, size: int, more: Fraction, bytes_: int
) -> None:
    """And a token never costs more than none, nor less than the floor."""
    for token in (False, True):
        asked = demand(price, token, Fill(mailbox, tokens), size)
        fuller = demand(price, token, Fill(mailbox + more, tokens + more), size + bytes_)
        if asked is None:
            assert fuller is None
        elif fuller is not None:
            assert FLOOR.bits <= asked.bits <= fuller.bits
    without = demand(price, False, Fill(mailbox, tokens), size)
    by_token = demand(price, True, Fill(mailbox, tokens), size)
    if without is not None and by_token is not None:
        assert by_token.bits <= without.bits
