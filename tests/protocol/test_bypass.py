"""Tokens of announcements."""

import pytest
from tests.protocol.vector_files import block_vectors

from sealmail_protocol.block_codec import parse_block
from sealmail_protocol.blocks import MessageAnnouncement
from sealmail_protocol.bypass import BypassSecret, token_fits

SAMPLES = {vector.name: vector for vector in block_vectors()}


def test_a_token_fits_one_announcement_and_one_secret() -> None:
    """The published one fits; another secret, another mail or no token do not."""
    secret = BypassSecret(bytes.fromhex("7b3272b2346fe3d81c416011177d551b017c341a"))
    mail = parse_block(SAMPLES["token"].body(b"\n"))
    bare = parse_block(SAMPLES["sample_announcement"].body(b"\n"))
    other = parse_block(SAMPLES["token"].body(b"\n").replace(b"05:25:22Z", b"05:25:23Z"))
    for block, fits in ((mail, True), (bare, False), (other, False)):
        assert isinstance(block, MessageAnnouncement)
        assert token_fits(block, secret) is fits
        assert not token_fits(block, BypassSecret(bytes(20)))
    assert "7b32" not in repr(secret)
    with pytest.raises(ValueError, match="20 bytes"):
        BypassSecret(b"short")
