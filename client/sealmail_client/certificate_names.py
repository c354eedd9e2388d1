"""Whether a certificate is for a name; ``domain_names`` loads this when it has one to judge."""

import ipaddress
from collections.abc import Iterable

from cryptography import x509
from service_identity import CertificateError, VerificationError
from service_identity.cryptography import (
    verify_certificate_hostname,
    verify_certificate_ip_address,
)


def is_for_one_of(der_certificate: bytes, names: Iterable[str]) -> bool:
    """Return whether the certificate is made for any of ``names``, hosts or IP addresses.

    One that cannot be read is for nobody.
    """
    try:
        certificate = x509.load_der_x509_certificate(der_certificate)
        return any(_is_for(certificate, name) for name in names)
    except (ValueError, x509.UnsupportedGeneralNameType, x509.DuplicateExtension):
        return False


def _is_for(certificate: x509.Certificate, name: str) -> bool:
    judge = verify_certificate_ip_address if _is_ip(name) else verify_certificate_hostname
    try:
        judge(certificate, name)
    except (CertificateError, VerificationError):
        return False
    return True


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
