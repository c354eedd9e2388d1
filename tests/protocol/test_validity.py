"""Whether a block fits its key and its time."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.protocol.vector_files import block_vectors

from sealmail_protocol.block_codec import parse_block
from sealmail_protocol.blocks import Acknowledgment
from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.validity import check_date, check_text_block

SAMPLES = {vector.name: vector for vector in block_vectors()}
HALLOWEEN = datetime(2014, 10, 31, 9, 2, 22, tzinfo=UTC)
ACK_KEY = BlockKey.from_hex("DA458F9588E1B4F9F85EE79E8DEB4DD85B448092")


def acknowledgment() -> Acknowledgment:
    """Return the sample."""
    block = parse_block(SAMPLES["sample_acknowledgment"].body(b"\n"))
    assert isinstance(block, Acknowledgment)
    return block


@pytest.mark.parametrize(
    ("days", "key", "code"),
    [
        (0, ACK_KEY, None),
        (9, ACK_KEY, None),
        (10, ACK_KEY, "date"),
        (-1, ACK_KEY, None),
        (-2, ACK_KEY, "date"),
        (0, BlockKey(bytes(20)), "key"),
    ],
)
def test_a_block_must_fit_its_key_and_time(days: int, key: BlockKey, code: str | None) -> None:
    """Not past its age, not a day ahead, and under the key that its content asks for."""
    now = HALLOWEEN + timedelta(days=days)
    if code is None:
        assert check_text_block(acknowledgment(), key, now) == 18
        return
    with pytest.raises(InvalidBlock) as refusal:
        check_text_block(acknowledgment(), key, now)
    assert refusal.value.code == code


def test_a_block_must_be_small_and_stamped() -> None:
    """A kibibyte is the most that an acknowledgment may have."""
    body = SAMPLES["sample_acknowledgment"].body(b"\n")
    large = parse_block(body + b"X: " + b"x" * 1000 + b"\n")
    cheap = parse_block(body.replace(b"0000001f5", b"0000001f6"))
    for block, code in ((large, "size"), (cheap, "stamp")):
        assert isinstance(block, Acknowledgment)
        with pytest.raises(InvalidBlock) as refusal:
            check_text_block(block, ACK_KEY, HALLOWEEN)
        assert refusal.value.code == code
    check_date(acknowledgment(), HALLOWEEN - timedelta(hours=48), timedelta(hours=48))
