"""TLS: names in the certificate, old clients, new files without a restart, and the direct port."""

import asyncio
import shutil
import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from tests.dialogues.server.playing import ORIGINALS_CIPHER, old_context
from tests.server.inside import TurnedClock, connect, make_server, serving

from sealmail_net.tls import client_context
from sealmail_protocol.replies import Word
from sealmail_server.service import Server
from sealmail_server.tls_identity import (
    BadIdentity,
    TlsIdentity,
    make_tls_identity,
    pin_of,
    read_certificate,
)

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one server directory, for all tests here."""
    made = tmp_path_factory.mktemp("tls") / "data"
    make_server(made, TurnedClock(NOW))
    return made


@pytest.fixture(scope="module")
def other_identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a second key and certificate, with several names."""
    place = tmp_path_factory.mktemp("other")
    names = ("mail.example.org", "mail2.example.org", "192.0.2.1", "2001:db8::1")
    make_tls_identity(place / "server.crt", place / "server.key", names, NOW)
    return place


def test_the_certificate_holds_every_name(other_identity: Path) -> None:
    """Host names and addresses; the key is RSA of 3072 bits, which an original can use."""
    certificate = read_certificate(other_identity / "server.crt")
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["mail.example.org", "mail2.example.org"]
    assert list(map(str, names.get_values_for_type(x509.IPAddress))) == [
        "192.0.2.1",
        "2001:db8::1",
    ]
    assert getattr(certificate.public_key(), "key_size", 0) == 3072
    assert (other_identity / "server.key").stat().st_mode & 0o777 == 0o600


def talk(port: int, context: ssl.SSLContext, *, direct: bool) -> tuple[str, str, str]:
    """Speak as a client made of the standard library alone; return cipher, version and answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        if not direct:
            assert plain.recv(100).endswith(b"READY\r\n")
            plain.sendall(b"STARTTLS\r\n")
            assert plain.recv(100) == b"PROCEED\r\n"
        with context.wrap_socket(plain) as secured:
            expected = b"READY" if direct else b"ENCRYPTED"
            assert secured.recv(100).strip().endswith(expected)
            secured.sendall(b"PING by TLS\r\n")
            answer = secured.recv(100).decode().strip()
            cipher = secured.cipher()
            assert cipher is not None
            return cipher[0], secured.version() or "", answer


@pytest.mark.parametrize("direct", [False, True], ids=["starttls", "direct"])
def test_both_ports_serve_new_and_old_clients(directory: Path, direct: bool) -> None:
    """TLS 1.3, and TLS 1.2 with the one cipher of the original."""

    async def run() -> None:
        async with serving(directory, TurnedClock(NOW), direct_tls_listen="127.0.0.1:0") as server:
            port = _port(server, direct=direct)
            old = await asyncio.to_thread(talk, port, old_context(), direct=direct)
            assert old == (ORIGINALS_CIPHER, "TLSv1.2", "PONG by TLS")
            new = await asyncio.to_thread(talk, port, client_context(), direct=direct)
            assert new[1:] == ("TLSv1.3", "PONG by TLS")

    asyncio.run(run())


def test_on_the_direct_port_nothing_is_said_in_clear(directory: Path) -> None:
    """Plaintext there fails the handshake and is answered by no command."""

    def speak_clear(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            plain.sendall(b"PING clear\r\nCAPABILITIES\r\n")
            heard = b""
            try:
                while received := plain.recv(1000):
                    heard += received
            except ConnectionResetError:
                pass
            return heard

    async def run() -> None:
        async with serving(directory, TurnedClock(NOW), direct_tls_listen="127.0.0.1:0") as server:
            heard = await asyncio.to_thread(speak_clear, _port(server, direct=True))
            assert b"PONG" not in heard
            assert b"READY" not in heard

    asyncio.run(run())


def test_new_files_are_taken_up_at_the_next_connection(
    directory: Path, other_identity: Path, tmp_path: Path
) -> None:
    """Who is connected stays so; files that do not fit together change nothing."""
    for name in ("server.crt", "server.key"):
        shutil.copy(directory / "tls" / name, tmp_path / name)
    files = {
        "certificate": str(tmp_path / "server.crt"),
        "private_key": str(tmp_path / "server.key"),
    }
    old_pin, new_pin = pin_of(tmp_path / "server.crt"), pin_of(other_identity / "server.crt")

    async def run() -> None:
        async with (
            serving(directory, TurnedClock(NOW), **files) as server,
            await connect(server) as before,
        ):
            assert before.pin == old_pin
            shutil.copy(other_identity / "server.crt", tmp_path / "server.crt")
            async with await connect(server) as between:
                assert between.pin == old_pin
            shutil.copy(other_identity / "server.key", tmp_path / "server.key")
            async with await connect(server) as after:
                assert after.pin == new_pin
            assert await before.ping("still here") == "still here"

    asyncio.run(run())


def test_files_that_cannot_be_used_are_refused_by_name(
    tmp_path: Path, other_identity: Path
) -> None:
    """No certificate, no key, a key that is locked: nobody is asked for a passphrase."""
    (tmp_path / "server.crt").write_text("no certificate")
    (tmp_path / "server.key").write_text("no key")
    with pytest.raises(BadIdentity, match=r"server\.crt"):
        TlsIdentity(tmp_path / "server.crt", tmp_path / "server.key")
    locked = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"passphrase")
    )
    (tmp_path / "server.key").write_bytes(locked)
    shutil.copy(other_identity / "server.crt", tmp_path / "server.crt")
    with pytest.raises(BadIdentity, match=r"server\.key"):
        TlsIdentity(tmp_path / "server.crt", tmp_path / "server.key")
    with pytest.raises(BadIdentity, match="holds no certificate"):
        pin_of(tmp_path / "missing.crt")


def test_what_was_said_in_clear_is_forgotten_by_starttls(directory: Path) -> None:
    """With require_tls = false a login in clear works, and TLS begins with nobody logged in."""
    clock = TurnedClock(NOW)

    def speak(port: int, auth_key: str) -> list[str]:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            heard = [_line(plain)]
            for line in (f"LOGIN CLEARUSER {auth_key}", "SELFTEST", "QUEUE"):
                plain.sendall(line.encode() + b"\r\n")
                heard.append(_line(plain))
                if line == "SELFTEST":
                    heard.append(_line(plain))
            plain.sendall(b"STARTTLS\r\n")
            heard.append(_line(plain))
            with client_context().wrap_socket(plain) as secured:
                heard.append(_line(secured))
                secured.sendall(f"LOGIN CLEARUSER {auth_key}\r\n".encode())
                heard.append(_line(secured))
            return heard

    async def run() -> None:
        async with serving(directory, clock, require_tls=False) as server:
            made = await server.operator.fulfil({"do": "account add", "userid": "CLEARUSER"})
            port = _port(server, direct=False)
            heard = await asyncio.to_thread(speak, port, made["auth_key"])
            assert heard[1:] == [
                Word.DONE, "PASS", "EndBlock", "EndBlock",
                Word.PROCEED, Word.ENCRYPTED, Word.DONE,
            ]  # fmt: skip

    asyncio.run(run())


def _port(server: Server, *, direct: bool) -> int:
    status = server.status()
    listen = status.direct_tls_listen if direct else status.listen
    assert listen is not None
    return listen.port


def _line(wire: socket.socket) -> str:
    heard = b""
    while not heard.endswith(b"\r\n"):
        received = wire.recv(1)
        assert received, heard
        heard += received
    return heard.decode().strip()
