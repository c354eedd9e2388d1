"""What verification finds out."""

from dataclasses import dataclass
from datetime import datetime

from sealmail_protocol.keys import KeyId


@dataclass(frozen=True, slots=True)
class Verification:
    """A clear-signed text that ``signer`` signed, every byte of it.

    ``signer`` is the primary key even where a subkey made the signature. ``revoked`` tells that
    the primary key carries a valid revocation: such a text proves the revocation, nothing else.
    """

    signer: KeyId
    revoked: bool
    hash_algorithm: str
    signed_at: datetime


@dataclass(frozen=True, slots=True)
class Lifetime:
    """How long a public key is good; ``old_self_signature`` as in ``CertificateFacts``."""

    expires: datetime | None
    old_self_signature: bool


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What a public key says of itself, by self-signatures that were checked.

    ``can_encrypt`` asks for a key to seal to that is neither revoked nor expired now.
    ``old_self_signature`` marks a key that only gpg still accepts, mostly for SHA-1.
    """

    key_id: KeyId
    user_ids: tuple[str, ...]
    revoked: bool
    can_encrypt: bool
    created: datetime
    expires: datetime | None
    old_self_signature: bool
