"""Whom a server's certificate is for: the names that vouch for the keys of a mail domain."""

import ipaddress
from collections.abc import Iterable

from cryptography import x509

from sealmail_net.handshakes import Shown
from sealmail_protocol.dns_records import lookup_name, record_name


def vouches_for(shown: Shown, domain: str, signed_hosts: Iterable[str] = ()) -> bool:
    """Return whether the session that showed this speaks for the mail domain ``domain``.

    It does if a known CA says that it is the domain itself, or the name under which that names
    its servers, or one of ``signed_hosts``: those that a record names which DNSSEC has proven.
    """
    if not shown.ca_verified or shown.certificate is None:
        return False
    try:
        names = {lookup_name(domain), record_name(domain), *signed_hosts}
    except ValueError:
        # No name of the public DNS: no CA can speak for it.
        return False
    try:
        certificate = x509.load_der_x509_certificate(shown.certificate)
        return any(_is_for(certificate, name) for name in names)
    except (ValueError, x509.UnsupportedGeneralNameType, x509.DuplicateExtension):
        return False


def _is_for(certificate: x509.Certificate, name: str) -> bool:
    # A quarter of a program's start, and few commands look a key up.
    from service_identity import CertificateError, VerificationError
    from service_identity.cryptography import (
        verify_certificate_hostname,
        verify_certificate_ip_address,
    )

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
