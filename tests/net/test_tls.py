"""Which TLS is spoken: versions, ephemeral keys, and the pin of a public key."""

import base64
import hashlib
import ssl
import subprocess
import sys
import warnings

import pytest
from tests.net.conftest import Identity

from sealmail_net.tls import client_context, public_key_pin


def test_our_two_sides_agree_on_tls_1_3(identity: Identity) -> None:
    """Between two of ours the newest version is spoken."""
    assert _handshake(client_context(), identity.context())[0] == "TLSv1.3"


def test_the_cipher_of_original_peers_works_with_tls_1_2(identity: Identity) -> None:
    """ECDHE-RSA-AES256-GCM-SHA384 in TLS 1.2 works in both roles."""
    expected = ("TLSv1.2", "ECDHE-RSA-AES256-GCM-SHA384")
    original_client = _loose_client("ECDHE-RSA-AES256-GCM-SHA384")
    assert _handshake(original_client, identity.context()) == expected
    original_server = _loose_server(identity, "ECDHE-RSA-AES256-GCM-SHA384")
    assert _handshake(client_context(), original_server) == expected


def test_keys_that_are_not_ephemeral_are_refused(identity: Identity) -> None:
    """RSA key exchange fails in both roles, though the other side would take it."""
    with pytest.raises(ssl.SSLError):
        _handshake(_loose_client("AES256-GCM-SHA384"), identity.context())
    with pytest.raises(ssl.SSLError):
        _handshake(client_context(), _loose_server(identity, "AES256-GCM-SHA384"))


def test_tls_1_1_is_refused(identity: Identity) -> None:
    """A peer that speaks no newer version than 1.1 is refused in both roles."""
    old = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        _handshake(_loose_client("ALL:@SECLEVEL=0", old), identity.context())
    with pytest.raises(ssl.SSLError):
        _handshake(client_context(), _loose_server(identity, "ALL:@SECLEVEL=0", old))


def test_the_refused_peers_understand_each_other(identity: Identity) -> None:
    """The loose peers of these tests fail because of us, not because they cannot."""
    for ciphers, version in (
        ("AES256-GCM-SHA384", ssl.TLSVersion.TLSv1_2),
        ("ALL:@SECLEVEL=0", ssl.TLSVersion.TLSv1_1),
    ):
        client, server = _loose_client(ciphers, version), _loose_server(identity, ciphers, version)
        assert _handshake(client, server)


def test_the_pin_is_the_hash_of_the_public_key_alone(identity: Identity) -> None:
    """OpenSSL's own view of the certificate's public key gives the same pin."""
    pem = identity.certificate.read_bytes()
    command = ["openssl", "x509", "-noout", "-pubkey", "-in", str(identity.certificate)]
    public = subprocess.run(command, check=True, capture_output=True).stdout
    body = b"".join(public.splitlines()[1:-1])
    der = ssl.PEM_cert_to_DER_cert(pem.decode())
    assert public_key_pin(der) == hashlib.sha256(base64.b64decode(body)).digest()


def test_a_broken_certificate_has_no_pin() -> None:
    """Bytes that are no certificate are a ``ValueError``."""
    with pytest.raises(ValueError, match=r"."):
        public_key_pin(b"no certificate")


def _loose_client(
    ciphers: str, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return _only(context, ciphers, version)


def _loose_server(
    identity: Identity, ciphers: str, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    return _only(context, ciphers, version)


def _only(context: ssl.SSLContext, ciphers: str, version: ssl.TLSVersion) -> ssl.SSLContext:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = version
        context.maximum_version = version
    context.set_ciphers(ciphers)
    return context


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> tuple[str | None, str]:
    """Shake hands in memory, and return version and cipher as the client sees them."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    cipher = ours.cipher()
    assert cipher is not None
    return ours.version(), cipher[0]


def test_who_connects_to_nobody_loads_no_certificate_code() -> None:
    """Reading certificates takes a fifth of the start of a program; only a pin needs it."""
    script = "import sys, sealmail_net.dialing; print('cryptography' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
