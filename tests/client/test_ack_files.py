"""ACK files: both forms of the specification, and hostile content."""

from datetime import UTC, datetime

import pytest

from sealmail_client.ack_files import AckSecret, GivenSecret, parse_ack
from sealmail_client.errors import BadMessage
from sealmail_protocol.bypass import BypassSecret
from sealmail_protocol.keys import AckHash, acknowledgment_key

# The acknowledgment and the bypass secret of the specification's samples.
ACK = AckHash.from_hex("15f8b83f6380c2a25a0249cc615ec7e58a9dcf71")
SECRET = BypassSecret(bytes.fromhex("7b3272b2346fe3d81c416011177d551b017c341a"))
CREATED = datetime(2014, 11, 8, 5, 25, 22, tzinfo=UTC)
EXPIRES = datetime(2015, 11, 8, 5, 25, 22, tzinfo=UTC)
TEXT = (
    b"ack=15f8b83f6380c2a25a0249cc615ec7e58a9dcf71"
    b"|bt=7b3272b2346fe3d81c416011177d551b017c341a,2014-11-08T05:25:22Z,never"
)


@pytest.mark.parametrize(
    ("secret", "content"),
    [
        pytest.param(AckSecret(ACK), ACK.raw, id="20-bytes"),
        pytest.param(AckSecret(ACK, GivenSecret(SECRET, CREATED)), TEXT, id="never"),
        pytest.param(
            AckSecret(ACK, GivenSecret(SECRET, CREATED, EXPIRES)),
            TEXT.replace(b"never", b"2015-11-08T05:25:22Z"),
            id="expires",
        ),
    ],
)
def test_each_form_is_written_and_read(secret: AckSecret, content: bytes) -> None:
    """Each form is written and read."""
    assert secret.to_bytes() == content
    assert parse_ack(content) == secret


def test_unknown_parts_are_skipped() -> None:
    """Unknown parts are skipped."""
    content = b"new=1|" + TEXT.upper().replace(b"ACK=", b"ack=").replace(b"BT=", b"bt=")
    assert parse_ack(content.replace(b"NEVER", b"never") + b"|x|\n") == parse_ack(TEXT)


def test_the_secret_is_the_precursor_of_the_public_id() -> None:
    """The secret is the precursor of the public id."""
    public = acknowledgment_key(parse_ack(TEXT).ack)
    assert public.hex == "DA458F9588E1B4F9F85EE79E8DEB4DD85B448092"


def test_secrets_are_not_shown() -> None:
    """Secrets are not shown."""
    shown = repr(parse_ack(TEXT)).lower()
    assert ACK.raw.hex() not in shown
    assert SECRET.raw.hex() not in shown


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"ack=00", id="short"),
        pytest.param(b"ack=" + b"0" * 5000, id="long"),
        pytest.param(b"\xff" * 21, id="not-ascii"),
        pytest.param(TEXT.partition(b"|")[2], id="no-ack"),
        pytest.param(TEXT + b"|" + TEXT, id="twice"),
        pytest.param(TEXT.replace(b"ack=15", b"ack=zz"), id="not-hex"),
        pytest.param(TEXT.replace(b"ack=15", b"ack=1 "), id="blank-in-hex"),
        pytest.param(TEXT.replace(b",never", b""), id="no-expiry"),
        pytest.param(TEXT.replace(b"never", b"2015-02-30T00:00:00Z"), id="impossible-date"),
        pytest.param(TEXT.replace(b"bt=7b", b"bt="), id="short-secret"),
    ],
)
def test_hostile_content_is_refused(content: bytes) -> None:
    """Hostile content is refused."""
    with pytest.raises(BadMessage, match="ACK file"):
        parse_ack(content)
