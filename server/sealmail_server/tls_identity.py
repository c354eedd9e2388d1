"""The server's TLS key and self-signed certificate, made once at ``init``."""

import ipaddress
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from sealmail_store.safe_files import make_directory_durably, write_durably

# The original speaks TLS 1.2 with ECDHE-RSA only.
_KEY_BITS = 3072
# Peers pin the public key and look at no date; an operator who wants one replaces the files.
_LIFETIME = timedelta(days=3650)
# A certificate's common name holds no more.
_MAX_COMMON_NAME = 64


def make_tls_identity(certificate: Path, key: Path, name: str, now: datetime) -> None:
    """Write a new RSA key and a certificate for ``name``, durable, the key readable by us only."""
    private_key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_MAX_COMMON_NAME])])
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName([_alternative_name(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private_key, hashes.SHA256())
    )
    make_directory_durably(key.parent)
    make_directory_durably(certificate.parent)
    write_durably(
        key,
        private_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
    write_durably(certificate, signed.public_bytes(serialization.Encoding.PEM), mode=0o644)


def _alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
