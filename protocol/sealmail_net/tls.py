"""TLS contexts of both sides, and the pin of a public key."""

import hashlib
import ssl
from pathlib import Path

# For TLS 1.2: a stolen server key must not open recorded traffic, so ephemeral keys only.
# (TLS 1.3 has no others.) An original server uses ECDHE-RSA-AES256-GCM-SHA384.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the context of a server that shows this certificate (PEM files)."""
    context = _restricted(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    # A ticket's key outlives the session and would open it again.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    # Without it a locked key would be asked for at the terminal, and the server wait for ever.
    context.load_cert_chain(certificate, key, password=lambda: "")
    return context


def client_context() -> ssl.SSLContext:
    """Return the context of a client that judges the server by its pin, after the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Servers sign their own certificates; trust comes from public-key pins (``pins``).
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return _restricted(context)


def public_key_pin(der_certificate: bytes) -> bytes:
    """Return the SHA-256 of the certificate's SubjectPublicKeyInfo; ``ValueError`` if bad."""
    # Loading it takes longer than a command that connects to nobody.
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public_key = x509.load_der_x509_certificate(der_certificate).public_key()
    info = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(info).digest()


def _restricted(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    return context
