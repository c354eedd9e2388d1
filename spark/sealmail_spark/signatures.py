"""Signatures of key-announcements and claims, all or a sample of them.

The sample goes by the digest of a block, so that every run, partition and replica takes the same.
"""

from typing import Final, Protocol

from sealmail_protocol.blocks import AddressClaim, KeyAnnouncement
from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.fields import split_lines
from sealmail_protocol.keys import KeyId
from sealmail_protocol.signed_text import KEY_BEGIN, KEY_END, SignedText
from sealmail_spark.demands import DHT
from sealmail_spark.facts import Facts, Problem, StoredRow
from sealmail_verify.errors import BadSignature, Undecided
from sealmail_verify.evidence import read_key_block
from sealmail_verify.key_parts import sealing_parts
from sealmail_verify.results import Lifetime, Verification

_ESCAPE: Final = b"\r\n- "
_BEGIN: Final = KEY_BEGIN.encode() + b"\n"
_END: Final = KEY_END.encode() + b"\n"
_KEY_BEGIN: Final = _ESCAPE + KEY_BEGIN.encode() + b"\r\n"
_KEY_END: Final = _ESCAPE + KEY_END.encode() + b"\r\n"


class Verifying(Protocol):
    """What a ``sealmail_verify.Verifier`` does."""

    def verify_clear_signed(
        self, text: bytes, certificate: bytes, expected: KeyId
    ) -> Verification:
        """Verify a text."""

    def read_lifetime(self, armored: bytes) -> Lifetime:
        """Read how long a key is good."""


class SignatureChecks:
    """Verifies the signatures of a share of the signed blocks, and reads their keys if asked.

    Without a verifier all are left out.
    """

    def __init__(
        self, verifier: Verifying | None, share: float, *, certificates: bool = False
    ) -> None:
        if not 0 <= share <= 1:
            raise ValueError(f"a share is from 0 to 1, not {share}")
        self._verifier = verifier
        self._below = round(share * (1 << 32))
        self._certificates = certificates

    def check(self, row: StoredRow, facts: Facts, block: KeyAnnouncement | AddressClaim) -> None:
        """Verify one block, if it is in the sample, and note what was found."""
        verifier = self._verifier
        if verifier is None:
            facts.signature = "left out"
            return
        if self._certificates and isinstance(block, KeyAnnouncement):
            _read_certificate(verifier, facts, block)
        if int.from_bytes(row.digest[:4], "big") >= self._below:
            facts.signature = "left out"
            return
        try:
            facts.signature = _verify(verifier, row, facts, block)
        except Undecided as error:
            facts.signature = "undecided"
            facts.problems.append(Problem("undecided-signature", error.reason))
        except (BadSignature, InvalidBlock) as error:
            facts.signature = "bad"
            facts.problems.append(Problem("bad-signature", error.reason))


def _verify(
    verifier: Verifying, row: StoredRow, facts: Facts, block: KeyAnnouncement | AddressClaim
) -> str:
    if isinstance(block, KeyAnnouncement):
        armored, signer = block.signed.armored_key, KeyId(row.key)
    elif row.certificate is None and row.held == DHT:
        # That it travels with no key is what is wrong with it, and told.
        return "no key"
    elif row.certificate is None:
        detail = f"no announcement of {block.key_id} in this store"
        facts.problems.append(Problem("claim-without-key", detail))
        return "no key"
    else:
        armored, signer = _key_in(row.certificate), block.key_id
    found = verifier.verify_clear_signed(block.signed.message, armored, signer)
    if isinstance(block, AddressClaim) and row.held == DHT and row.certificate is not None:
        carried = SignedText.parse(split_lines(row.certificate))
        if verifier.verify_clear_signed(carried.message, armored, signer).revoked:
            facts.problems.append(Problem("bad-signature", "the key that claims is revoked"))
    if isinstance(block, KeyAnnouncement) and found.revoked != row.revoked:
        detail = (
            "recorded as revoked, but it is not" if row.revoked else "revoked, but not recorded"
        )
        facts.problems.append(Problem("wrong-revocation", detail))
    return "good"


def _key_in(announcement: bytes) -> bytes:
    """Return the armored key in an announcement; all else of it is examined where it stands.

    It is the same text as ``SignedText.armored_key``, by which a verifier knows it again.
    """
    begin, end = announcement.find(_KEY_BEGIN), announcement.find(_KEY_END)
    if 0 <= begin < end:
        inner = announcement[begin + len(_KEY_BEGIN) : end + 2]
        return _BEGIN + inner.replace(b"\r\n", b"\n") + _END
    return SignedText.parse(split_lines(announcement)).armored_key


def _read_certificate(verifier: Verifying, facts: Facts, block: KeyAnnouncement) -> None:
    if facts.announced is None:
        return
    try:
        held = verifier.read_lifetime(block.signed.armored_key)
    except BadSignature:
        # A key that cannot be read cannot verify anything either; that is reported.
        return
    facts.announced.read = True
    # When the last part that mail is sealed to has expired, nobody can write to the key.
    sealing = sealing_parts(read_key_block(block.signed.armored_key))
    last = [part.expires for part in sealing if part.expires is not None]
    ends = [held.expires] if held.expires is not None else []
    if sealing and len(last) == len(sealing):
        ends.append(max(last))
    facts.announced.key_expires = min(ends, default=None)
    facts.announced.old_self_signature = held.old_self_signature
