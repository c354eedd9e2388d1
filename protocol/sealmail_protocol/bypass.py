"""Bypass tokens: a sender who was given a secret pays with it instead of with work."""

import hashlib
import hmac
from dataclasses import dataclass, field

from sealmail_protocol.blocks import BypassToken, MessageAnnouncement


@dataclass(frozen=True, slots=True)
class BypassSecret:
    """Twenty bytes that a recipient gave to one sender."""

    raw: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.raw) != 20:
            raise ValueError("a bypass secret has 20 bytes")


def bypass_token(secret: BypassSecret, stamped: bytes) -> BypassToken:
    """Return the token for an announcement whose stamped bytes are ``stamped``."""
    return BypassToken(hmac.digest(secret.raw, stamped, hashlib.sha1))


def token_fits(announcement: MessageAnnouncement, secret: BypassSecret) -> bool:
    """Return whether the announcement carries the token made from ``secret``."""
    if announcement.token is None:
        return False
    expected = bypass_token(secret, announcement.challenge)
    return hmac.compare_digest(announcement.token.raw, expected.raw)
