"""Whom the server of a session is: the names that vouch for the keys of a mail domain."""

from collections.abc import Iterable

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
    # Loading it takes longer than most commands, and few servers show a CA's certificate.
    from sealmail_client.certificate_names import is_for_one_of

    return is_for_one_of(shown.certificate, names)
