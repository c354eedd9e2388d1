"""Letters for tests."""

from datetime import UTC, datetime

from sealmail_client.headers import Header, Place, Recipient
from sealmail_protocol.addresses import Transport
from sealmail_protocol.keys import KeyId

DATE = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
AMY = KeyId(bytes(range(20)))
BOB = KeyId(bytes(range(20, 40)))


def header(
    sender: KeyId = AMY,
    *recipients: KeyId,
    place: Place = Place.TO,
    forwarded_id: str | None = None,
) -> Header:
    """Return the header of a letter to ``recipients``, or to Bob."""
    return Header(
        sender_user_id="Amy Alien <amy@a.example>",
        sender=sender,
        sender_transport=Transport.parse("server=a.example:8081"),
        recipients=tuple(
            Recipient(place, "Reader <reader@b.example>", key_id, None, None)
            for key_id in recipients or (BOB,)
        ),
        unique_id="0123456789abcdef0123456789abcdef01234567",
        subject="Grüße",
        date=DATE,
        forwarded_id=forwarded_id,
    )
