"""What is wrong with a block is data."""

import pickle

from sealmail_protocol.errors import InvalidBlock, Refusal


def test_an_invalid_block_can_cross_a_process() -> None:
    """The code and the reason survive pickling."""
    error = pickle.loads(pickle.dumps(InvalidBlock(Refusal.KEY, "why")))  # noqa: S301
    assert (error.code, error.reason, str(error)) == (Refusal.KEY, "why", "key: why")
