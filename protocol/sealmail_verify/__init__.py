"""Public OpenPGP verification of clear-signed blocks, for server, client and audits."""

from sealmail_verify.errors import BadSignature, BrokeVerifier, Undecided
from sealmail_verify.gpg import GpgVerifier
from sealmail_verify.pool import VerifierPool
from sealmail_verify.results import CertificateFacts, Verification
from sealmail_verify.sequoia import SequoiaVerifier
from sealmail_verify.verifier import Verifier, read_certificate, verify_clear_signed

__all__ = [
    "BadSignature",
    "BrokeVerifier",
    "CertificateFacts",
    "GpgVerifier",
    "SequoiaVerifier",
    "Undecided",
    "Verification",
    "Verifier",
    "VerifierPool",
    "read_certificate",
    "verify_clear_signed",
]
