"""A certificate authority of the tests: chains for any names, good ones and bad ones."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True)
class Authority:
    """Signs certificates; one that another authority has signed is an ``intermediate`` of it."""

    name: str
    issuer: "Authority | None" = None
    is_ca: bool = True
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1()), repr=False
    )

    @property
    def certificate(self) -> x509.Certificate:
        """Return the authority's own certificate, made anew each time with the same key."""
        issuer = self.issuer or self
        built = _builder(self.name, issuer.name, self.key, _now() - 100 * DAY, _now() + 100 * DAY)
        constraints = x509.BasicConstraints(ca=self.is_ca, path_length=None)
        return built.add_extension(constraints, critical=True).sign(issuer.key, SHA256())

    def root_file(self, path: Path) -> Path:
        """Write what a user is to trust."""
        path.write_bytes(self.certificate.public_bytes(Encoding.PEM))
        return path

    def issue(
        self,
        directory: Path,
        names: Sequence[str],
        *,
        starts: timedelta = -DAY,
        ends: timedelta = 10 * DAY,
        usage: x509.ObjectIdentifier = SERVER,
        common_name: str = "mail",
        with_chain: bool = True,
    ) -> tuple[Path, Path]:
        """Write chain and key of a server in PEM; names that are IP addresses go as such."""
        key = ec.generate_private_key(ec.SECP256R1())
        built = _builder(common_name, self.name, key, _now() + starts, _now() + ends)
        built = built.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if names:
            alternatives = x509.SubjectAlternativeName([_general(name) for name in names])
            built = built.add_extension(alternatives, critical=False)
        chain = [built.sign(self.key, SHA256())]
        if self.issuer is not None and with_chain:
            chain.append(self.certificate)
        directory.mkdir(exist_ok=True, parents=True)
        paths = directory / "certificate.pem", directory / "key.pem"
        paths[0].write_bytes(b"".join(one.public_bytes(Encoding.PEM) for one in chain))
        paths[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return paths


def _builder(
    subject: str,
    issuer: str,
    key: ec.EllipticCurvePrivateKey,
    starts: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_named(subject))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts)
        .not_valid_after(ends)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _now() -> datetime:
    return datetime.now(UTC)
