"""Verification inside this process by pysequoia: thousands of texts a second.

pysequoia is imported when first used: its classes cannot be pickled, and a base install lacks it.
It holds the interpreter lock all the while, so an event loop must not call it (see ``pool``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sealmail_protocol.keys import KeyId
from sealmail_verify.errors import BadSignature
from sealmail_verify.evidence import Evidence, gather, read_key_block
from sealmail_verify.packets import KeyBlock
from sealmail_verify.results import CertificateFacts, Verification

if TYPE_CHECKING:
    import pysequoia


class SequoiaVerifier:
    """Decides on keys with a sound self-signature that are not revoked; refuses all others.

    A signature counts if its key was valid when it was made, so an expired key's older texts
    stand. A key is valid from its self-signature on, which gpg replaces when the expiry date is
    moved: who changes a key signs announcement and claims anew.
    """

    def verify_clear_signed(
        self, text: bytes, certificate: bytes, expected: KeyId
    ) -> Verification:
        """Verify that ``expected``, found in ``certificate``, signed all of ``text``."""
        evidence = gather(text, read_key_block(certificate), expected)
        key = load(evidence.key)
        if is_revoked(key):
            raise BadSignature("the key is revoked")
        return self.decide(evidence, key)

    def decide(self, evidence: Evidence, key: pysequoia.Cert) -> Verification:
        """Verify the signature by ``key``, which is the loaded ``evidence.key``."""
        with _at_the_seam(
            "the signature does not match the text and the key, or the key was not valid then"
        ):
            import pysequoia

            signature = pysequoia.Sig.from_bytes(evidence.signature.raw)
            found = pysequoia.verify(
                bytes=evidence.signed, store=lambda _: [key], signature=signature
            )
            signers = [valid.certificate.upper() for valid in found.valid_sigs]
        if signers != [evidence.key.key_id.hex]:
            raise BadSignature("the signature was made by another key")
        return Verification(
            signer=evidence.key.key_id,
            revoked=False,
            hash_algorithm=evidence.signature.hash_algorithm,
            signed_at=evidence.signature.signed_at,
        )

    def read_certificate(self, armored: bytes) -> CertificateFacts:
        """Return what a key with a sound self-signature says of itself."""
        block = read_key_block(armored)
        return self.describe(block, load(block))

    def describe(self, block: KeyBlock, key: pysequoia.Cert) -> CertificateFacts:
        """Return what ``key``, which is the loaded ``block``, says of itself."""
        with _at_the_seam("the key has no sound self-signature"):
            return CertificateFacts(
                key_id=block.key_id,
                user_ids=tuple(str(user_id) for user_id in key.user_ids),
                revoked=key.is_revoked,
                can_encrypt=not key.is_revoked and _can_encrypt(key),
                created=block.created,
                expires=key.expiration,
                old_self_signature=False,
            )


def load(block: KeyBlock) -> pysequoia.Cert:
    """Hand the key block to pysequoia."""
    with _at_the_seam("the key block is damaged"):
        import pysequoia

        return pysequoia.Cert.from_bytes(block.raw)


def is_revoked(key: pysequoia.Cert) -> bool:
    """Tell whether the primary key carries a valid revocation."""
    with _at_the_seam("the key block is damaged"):
        return key.is_revoked


def is_sound(key: pysequoia.Cert) -> bool:
    """Tell whether the key has a self-signature that is sound by today's measure."""
    try:
        with _at_the_seam("no sound self-signature"):
            _ = key.expiration
    except BadSignature:
        return False
    return True


def _can_encrypt(key: pysequoia.Cert) -> bool:
    """Seal nothing to the key: the one question about encryption that pysequoia answers."""
    import pysequoia

    try:
        with _at_the_seam("no key to seal to"):
            pysequoia.encrypt(b"", recipients=[key])
    except BadSignature:
        return False
    return True


@contextmanager
def _at_the_seam(reason: str) -> Iterator[None]:
    """Turn whatever pysequoia raises into ``BadSignature``; its own words are for its authors."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, OverflowError):
        raise BadSignature(reason) from None
    except BaseException as error:
        # A Rust panic is no Exception, and its class cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise BadSignature(reason) from None
