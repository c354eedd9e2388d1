"""What the signature under a mail is worth to its reader."""

from collections.abc import Sequence

from sealmail_client.correspondents import KnownKey
from sealmail_client.folders import SignatureState
from sealmail_client.gpg_status import SignatureCheck
from sealmail_client.headers import Header
from sealmail_protocol.keys import KeyId


def judged(
    header: Header, check: SignatureCheck, known: Sequence[KnownKey], reader: KeyId | None
) -> tuple[SignatureState, str]:
    """Return what the signature is worth, and what the user must know besides.

    ``known`` are the keys of the address that the sender gives as his own. ``reader`` should be
    named in the mail; a forwarded original may be to anybody.
    """
    if check.key_missing:
        return SignatureState.UNKNOWN_KEY, check.reason
    if not check.valid:
        return SignatureState.INVALID, check.reason
    if check.signer != header.sender:
        return SignatureState.INVALID, f"it is signed by {check.signer}, not by its sender"
    if reader is not None and header.recipient(reader) is None:
        return SignatureState.VALID, "it was written to others, and sealed to you by somebody"
    if known and not any(key.key_id == header.sender and key.decision.chosen for key in known):
        return SignatureState.VALID, "its sender gives an address that you know by another key"
    return SignatureState.VALID, ""
