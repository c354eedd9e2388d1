"""The server's TLS key and certificate: made at ``init``, replaced while the server runs."""

import ipaddress
import logging
import ssl
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from sealmail_net.tls import public_key_pin, server_context
from sealmail_store import make_directory_durably, write_durably

_log = logging.getLogger(__name__)

# The original speaks TLS 1.2 with ECDHE-RSA only.
_KEY_BITS = 3072
# Peers pin the public key and look at no date; an operator who wants one replaces the files.
_LIFETIME = timedelta(days=3650)
# Clocks differ.
_BEFORE = timedelta(days=1)
_EXTENSIONS = {x509.SubjectAlternativeName, x509.BasicConstraints}
# A certificate's common name holds no more.
_MAX_COMMON_NAME = 64


class BadIdentity(Exception):
    """The certificate and key cannot be used; the message names the files and the reason."""


def make_tls_identity(certificate: Path, key: Path, names: Sequence[str], now: datetime) -> None:
    """Write a new RSA key and a certificate for ``names``, durable, the key for us only."""
    private_key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
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
    _write_certificate(certificate, private_key, names, now)


def rename_certificate(certificate: Path, key: Path, names: Sequence[str], now: datetime) -> None:
    """Write a certificate for other ``names``, of the same key: pins hold."""
    try:
        private_key = serialization.load_pem_private_key(key.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise BadIdentity(f"{key} holds no key: {error}") from None
    if not isinstance(private_key, rsa.RSAPrivateKey):
        raise BadIdentity(f"{key} is no RSA key, and none of ours")
    _write_certificate(certificate, private_key, names, now)


def _write_certificate(
    path: Path, private_key: rsa.RSAPrivateKey, names: Sequence[str], now: datetime
) -> None:
    common_name = names[0][:_MAX_COMMON_NAME]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    alternatives = x509.SubjectAlternativeName(list(map(_alternative_name, names)))
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _LIFETIME)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(private_key, hashes.SHA256())
    )
    write_durably(path, signed.public_bytes(serialization.Encoding.PEM), mode=0o644)


def is_our_make(certificate: x509.Certificate) -> bool:
    """Tell whether a certificate was made here, by all that is the same in each of ours."""
    key = certificate.public_key()
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return (
        certificate.issuer == certificate.subject
        and isinstance(key, rsa.RSAPublicKey)
        and key.key_size == _KEY_BITS
        and lifetime == _LIFETIME + _BEFORE
        and {type(each.value) for each in certificate.extensions} == _EXTENSIONS
    )


def names_in(certificate: x509.Certificate) -> set[str]:
    """Return the hosts and addresses that a certificate is for."""
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    addresses = extension.value.get_values_for_type(x509.IPAddress)
    return {*extension.value.get_values_for_type(x509.DNSName), *map(str, addresses)}


def read_certificate(path: Path) -> x509.Certificate:
    """Return the first certificate of a PEM file; ``BadIdentity`` if there is none."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise BadIdentity(f"{path} holds no certificate: {error}") from None


def pin_of(path: Path) -> bytes:
    """Return the pin of the public key in a certificate file."""
    certificate = read_certificate(path)
    return public_key_pin(certificate.public_bytes(serialization.Encoding.DER))


class TlsIdentity:
    """The certificate and key as they are on disk now, as a context for new connections."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Load both files; ``BadIdentity`` if they cannot be used."""
        self._certificate = certificate
        self._key = key
        self._seen = self._look()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection, anew if the files have changed."""
        if self._look() != self._seen:
            self.reload()
        return self._context

    def reload(self) -> None:
        """Take up the files as they are; while they do not fit together the old ones stay."""
        self._seen = self._look()
        try:
            self._context = self._load()
        except BadIdentity as error:
            _log.error("%s; the certificate loaded before stays in use", error)
        else:
            _log.warning("took up the certificate in %s", self._certificate)

    def _load(self) -> ssl.SSLContext:
        try:
            return server_context(self._certificate, self._key)
        except (OSError, ValueError) as error:
            raise BadIdentity(
                f"{self._certificate} and {self._key} cannot be used for TLS: {error}"
            ) from None

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        """Return what tells one state of the files from another, without reading them."""
        return tuple(map(_marks, (self._certificate, self._key)))


def _marks(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def _alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
