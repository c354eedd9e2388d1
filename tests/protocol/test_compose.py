"""Nothing is signed or sent that would be refused."""

from datetime import UTC, datetime

import pytest

from sealmail_pow import Difficulty, Stamp
from sealmail_protocol.addresses import Transport
from sealmail_protocol.compose import KeyText, claim_text
from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.keys import KeyId

HALLOWEEN = datetime(2014, 10, 31, 9, 2, 22, tzinfo=UTC)


def test_nothing_is_signed_that_would_be_refused() -> None:
    """A line break in a name would forge fields."""
    text = KeyText(
        HALLOWEEN, HALLOWEEN, "Eve\nMailboxes: 9", Transport(), ("0",), Difficulty(8), "key"
    )
    with pytest.raises(ValueError, match="not one line"):
        text.stamped(Stamp(("1", "2")))
    with pytest.raises(ValueError, match="not one line"):
        claim_text(HALLOWEEN, Stamp(("1", "2")), KeyId(bytes(20)), "a@b\nX: y")
    with pytest.raises(InvalidBlock):
        claim_text(HALLOWEEN, Stamp(("1", "2")), KeyId(bytes(20)), " a@b")
