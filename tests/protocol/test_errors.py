"""What is wrong with a block is data."""

import copy

from sealmail_protocol.errors import InvalidBlock, Refusal


def test_an_invalid_block_can_cross_a_process() -> None:
    """The code and the reason survive the copy that is made for it."""
    error = copy.copy(InvalidBlock(Refusal.KEY, "why"))
    assert (error.code, error.reason, str(error)) == (Refusal.KEY, "why", "key: why")
