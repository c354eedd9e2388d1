"""Which engine decides: pysequoia, and gpg where the key itself needs it."""

from dataclasses import replace

from sealmail_protocol.keys import KeyId
from sealmail_verify.evidence import gather, read_key_block
from sealmail_verify.gpg import GpgVerifier
from sealmail_verify.loaded_keys import KeyMemory, LoadedKey
from sealmail_verify.packets import KeyBlock
from sealmail_verify.results import CertificateFacts, Lifetime, Verification
from sealmail_verify.sequoia import SequoiaVerifier


class Verifier:
    """Verifies clear-signed texts and reads public keys.

    gpg is asked only for a key without sound self-signature (old ones are signed by SHA-1) or
    with a valid revocation, so a forged text over a good key never starts a program. Who sends a
    key block made to look old can start one; that is why gpg has few slots and a deadline.

    Every call blocks and holds the interpreter lock: under an event loop use ``VerifierPool``.
    With a ``memory`` keys are loaded once; it is for who reads many texts by few keys.
    """

    def __init__(self, gpg: GpgVerifier | None = None, memory: KeyMemory | None = None) -> None:
        self._sequoia = SequoiaVerifier()
        self._gpg = gpg or GpgVerifier()
        self._memory = memory or KeyMemory()

    def verify_clear_signed(
        self, text: bytes, certificate: bytes, expected: KeyId
    ) -> Verification:
        """Verify that ``expected``, found in ``certificate``, signed all of ``text``.

        ``certificate`` is one armored public key block without dash escapes. The signature must
        be the only one, by the primary key or a signing subkey, with a sound hash, made while
        the key was valid; whether the key has expired since does not matter. Anything else
        raises ``BadSignature``.
        """
        known = self._memory.get(certificate)
        block = known.block if known else read_key_block(certificate)
        evidence = gather(text, block, expected)
        key = known or self._load(certificate, block)
        if key.revoked:
            return replace(self._gpg.decide(evidence), revoked=True)
        if key.sound:
            return self._sequoia.decide(evidence, key.certificate)
        return self._gpg.decide(evidence)

    def read_certificate(self, armored: bytes) -> CertificateFacts:
        """Return what one armored public key says of itself, or raise ``BadSignature``."""
        key = self._key(armored)
        if key.sound:
            return self._sequoia.describe(key.block, key.certificate)
        facts = self._gpg.describe(key.block)
        return replace(facts, revoked=facts.revoked or key.revoked)

    def read_lifetime(self, armored: bytes) -> Lifetime:
        """Return how long a public key is good by its self-signature, or raise ``BadSignature``.

        Unlike ``read_certificate`` it seals nothing to the key.
        """
        key = self._key(armored)
        if key.sound:
            return Lifetime(key.certificate.expiration, old_self_signature=False)
        facts = self._gpg.describe(key.block)
        return Lifetime(facts.expires, facts.old_self_signature)

    def _key(self, armored: bytes) -> LoadedKey:
        return self._memory.get(armored) or self._load(armored, read_key_block(armored))

    def _load(self, armored: bytes, block: KeyBlock) -> LoadedKey:
        key = LoadedKey.of(block)
        self._memory.put(armored, key)
        return key


def verify_clear_signed(text: bytes, certificate: bytes, expected: KeyId) -> Verification:
    """Verify one text by a ``Verifier`` with default settings."""
    return Verifier().verify_clear_signed(text, certificate, expected)


def read_certificate(armored: bytes) -> CertificateFacts:
    """Read one public key by a ``Verifier`` with default settings."""
    return Verifier().read_certificate(armored)
