"""Which engine decides: pysequoia, and gpg where the key itself needs it."""

from dataclasses import replace

from sealmail_protocol.keys import KeyId
from sealmail_verify.evidence import gather, read_key_block
from sealmail_verify.gpg import GpgVerifier
from sealmail_verify.results import CertificateFacts, Verification
from sealmail_verify.sequoia import SequoiaVerifier, is_revoked, is_sound, load


class Verifier:
    """Verifies clear-signed texts and reads public keys.

    gpg is asked only for a key without sound self-signature (old ones are signed by SHA-1) or
    with a valid revocation, so a forged text over a good key never starts a program. Who sends a
    key block made to look old can start one; that is why gpg has few slots and a deadline.

    Every call blocks and holds the interpreter lock: under an event loop use ``VerifierPool``.
    """

    def __init__(self, gpg: GpgVerifier | None = None) -> None:
        self._sequoia = SequoiaVerifier()
        self._gpg = gpg or GpgVerifier()

    def verify_clear_signed(
        self, text: bytes, certificate: bytes, expected: KeyId
    ) -> Verification:
        """Verify that ``expected``, found in ``certificate``, signed all of ``text``.

        ``certificate`` is one armored public key block without dash escapes. The signature must
        be the only one, by the primary key or a signing subkey, with a sound hash, made while
        the key was valid; whether the key has expired since does not matter. Anything else
        raises ``BadSignature``.
        """
        evidence = gather(text, certificate, expected)
        key = load(evidence.key)
        if is_revoked(key):
            return replace(self._gpg.decide(evidence), revoked=True)
        if is_sound(key):
            return self._sequoia.decide(evidence, key)
        return self._gpg.decide(evidence)

    def read_certificate(self, armored: bytes) -> CertificateFacts:
        """Return what one armored public key says of itself, or raise ``BadSignature``."""
        block = read_key_block(armored)
        key = load(block)
        if is_sound(key):
            return self._sequoia.describe(block, key)
        facts = self._gpg.describe(block)
        return replace(facts, revoked=facts.revoked or is_revoked(key))


def verify_clear_signed(text: bytes, certificate: bytes, expected: KeyId) -> Verification:
    """Verify one text by a ``Verifier`` with default settings."""
    return Verifier().verify_clear_signed(text, certificate, expected)


def read_certificate(armored: bytes) -> CertificateFacts:
    """Read one public key by a ``Verifier`` with default settings."""
    return Verifier().read_certificate(armored)
