"""Certificates made once a session; everything else is real TLS on loopback."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from sealmail_net.tls import public_key_pin, server_context


@dataclass(frozen=True, slots=True)
class Identity:
    """A server's key and certificate in files, and its pin."""

    certificate: Path
    key: Path
    pin: bytes

    def context(self) -> ssl.SSLContext:
        """Return a server's context with this certificate."""
        return server_context(self.certificate, self.key)


def make_identity(directory: Path) -> Identity:
    """Make a key, and a certificate that signs itself."""
    private = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mail.example")])
    start = datetime.now(UTC) - timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=30))
        .sign(private, SHA256())
    )
    der = certificate.public_bytes(Encoding.DER)
    identity = Identity(directory / "cert.pem", directory / "key.pem", public_key_pin(der))
    identity.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
    identity.key.write_bytes(
        private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    return identity


@pytest.fixture(scope="session")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    """Return the server's identity."""
    return make_identity(tmp_path_factory.mktemp("identity"))


@pytest.fixture(scope="session")
def other_identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    """Return another key than the server's."""
    return make_identity(tmp_path_factory.mktemp("other"))
