"""The face towards Tor and I2P: keys, Tor's control port, a listener and a class of its own."""

import asyncio
import base64
import hashlib
import hmac
import os
import stat
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.net.socks_server import SocksServer
from tests.server.inside import LOCAL, TurnedClock, banner_of, connect, make_server, serving
from tests.server.mailing import open_account, send_data, settled, states, until
from tests.server.test_door import use_up
from tests.server.users import data_lines

from sealmail_net.dialing import dial
from sealmail_net.errors import NetworkError, Unavailable
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import Network, ServerAddress
from sealmail_protocol.commands import AskVerdict, DnsTxt, GetEntangled, StoreServer
from sealmail_protocol.invitations import Invitation
from sealmail_protocol.keys import BlockKey, KeyId
from sealmail_protocol.replies import Word
from sealmail_server.backups import restore
from sealmail_server.config import (
    CONTROL_PASSWORD_NAME,
    HIDDEN_KEY_NAME,
    I2P_CERTIFICATE_NAME,
    I2P_KEY_NAME,
    ONION_KEY_NAME,
    Config,
)
from sealmail_server.dht import node as nodes
from sealmail_server.hidden import hidden_faces
from sealmail_server.onion_key import BadOnionKey, OnionKey, load_onion_key
from sealmail_server.onion_service import OnionService
from sealmail_server.service import Server
from sealmail_server.setting_rules import BadConfig, Listen
from sealmail_server.tls_identity import make_tls_identity, names_in, pin_of, read_certificate
from sealmail_server.tor_control import ControlFailed, ControlPort, TorControl

HOST = "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion"
I2P_HOST = "a.b32.i2p"
HIDDEN: dict[str, Any] = {"hidden_listen": "127.0.0.1:0", "hidden_names": [HOST]}
BOTH = {
    "hidden_listen": "127.0.0.1:0",
    "i2p_listen": "[::1]:0",
    "hidden_names": [HOST, I2P_HOST],
}
SEED = bytes(range(32))
DATE = datetime(2026, 5, 1, tzinfo=UTC)


def test_an_onion_key_has_the_name_and_form_that_tor_gives_it() -> None:
    """The public half of a well-known seed is in it; tor itself is asked in tests/anonymity."""
    key = OnionKey(SEED)
    public = base64.b32decode(key.host.removesuffix(".onion").upper())[:32]
    assert public.hex() == "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    assert ServerAddress.parse(f"{key.host}:80").host == key.host
    expanded = hashlib.sha512(SEED).digest()
    assert key.for_tor.startswith("ED25519-V3:")
    assert expanded[32:].hex() not in repr(key)


def test_the_key_file_is_private_and_stays(tmp_path: Path) -> None:
    """It is made once; a damaged one is refused, never replaced."""
    path = tmp_path / "tor" / "onion.key"
    key = load_onion_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_onion_key(path) == key
    path.write_bytes(b"short")
    with pytest.raises(BadOnionKey, match="restore a backup"):
        load_onion_key(path)


@dataclass
class FakeTor:
    """A control port that takes one kind of login and notes what it is told."""

    methods: str
    cookie_file: Path | None = None
    cookie: bytes = b"c" * 32
    password: str = ""
    knows_cookie: bool = True
    told: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def serving(self, socket: Path | None = None) -> AsyncIterator[str]:
        """Serve on a free port, or by a Unix socket."""
        if socket is not None:
            async with await asyncio.start_unix_server(self._serve, socket):
                yield str(socket)
            return
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self.told.append(line.decode().strip())
                writer.write(self._answer(self.told[-1]).replace("\n", "\r\n").encode())
        finally:
            writer.close()

    def _answer(self, line: str) -> str:
        word, _, rest = line.partition(" ")
        if word == "PROTOCOLINFO":
            file = f' COOKIEFILE="{self.cookie_file}"' if self.cookie_file else ""
            return f"250-PROTOCOLINFO 1\n250-AUTH METHODS={self.methods}{file}\n250 OK\n"
        if word == "AUTHCHALLENGE":
            nonce, mine = bytes.fromhex(rest.split()[1]), b"n" * 32
            known = self.cookie if self.knows_cookie else b"x" * 32
            tag = b"Tor safe cookie authentication server-to-controller hash"
            proof = hmac.digest(tag, known + nonce + mine, "sha256").hex().upper()
            return f"250 AUTHCHALLENGE SERVERHASH={proof} SERVERNONCE={mine.hex().upper()}\n"
        if word == "AUTHENTICATE" and self.password and rest != f'"{self.password}"':
            return "515 Authentication failed\n"
        if word == "ADD_ONION":
            return f"250-ServiceID={OnionKey(SEED).host.removesuffix('.onion')}\n250 OK\n"
        return "250 OK\n"


def publish(fake: FakeTor, password: str = "", socket: Path | None = None) -> None:
    """Publish a service by a control port."""

    async def scene() -> None:
        key = OnionKey(SEED)
        async with (
            fake.serving(socket) as place,
            await TorControl.connect(ControlPort(place, password)) as tor,
        ):
            await tor.publish(key.for_tor, key.host, 8081, "127.0.0.1:8082")

    asyncio.run(scene())


def make_cookie(path: Path, mode: int = 0o640) -> None:
    """Write what tor would."""
    path.write_bytes(b"c" * 32)
    path.chmod(mode)


def told_nothing(fake: FakeTor) -> bool:
    """Return whether a control port heard of no secret: neither key nor password."""
    return all(line.split()[0] in {"PROTOCOLINFO", "AUTHCHALLENGE"} for line in fake.told)


def test_a_safe_cookie_opens_the_control_port(tmp_path: Path) -> None:
    """Both sides prove to know it, and the service is added with our key and target."""
    make_cookie(tmp_path / "cookie")
    fake = FakeTor("COOKIE,SAFECOOKIE", tmp_path / "cookie")
    publish(fake)
    assert (b"c" * 32).hex() not in " ".join(fake.told)
    assert fake.told[-1].endswith("Flags=DiscardPK Port=8081,127.0.0.1:8082")


def test_a_port_that_does_not_know_the_cookie_learns_nothing(tmp_path: Path) -> None:
    """Whoever only listens there is sent no proof."""
    make_cookie(tmp_path / "cookie")
    fake = FakeTor("SAFECOOKIE", tmp_path / "cookie", knows_cookie=False)
    with pytest.raises(ControlFailed, match="does not know tor's cookie"):
        publish(fake)
    assert not any(line.startswith("AUTHENTICATE") for line in fake.told)


def test_a_tcp_port_that_asks_for_nothing_is_told_nothing() -> None:
    """Any user of the machine may listen there; the key of the service is not for him."""
    fake = FakeTor("NULL")
    for password in ("", "p w"):
        with pytest.raises(ControlFailed, match="CookieAuthentication 1"):
            publish(fake, password)
    assert told_nothing(fake)


def test_a_socket_that_asks_for_nothing_is_believed(tmp_path: Path) -> None:
    """The file system says who may listen there."""
    fake = FakeTor("NULL")
    publish(fake, socket=tmp_path / "control")
    assert fake.told[-1].startswith("ADD_ONION")


def test_the_cookie_comes_before_the_password(tmp_path: Path) -> None:
    """Where the other side can prove itself it has to; the password is for where it cannot."""
    cookie, methods = tmp_path / "cookie", "COOKIE,SAFECOOKIE,HASHEDPASSWORD"
    make_cookie(cookie)
    fake = FakeTor(methods, cookie)
    publish(fake, "p w")
    assert "p w" not in " ".join(fake.told)
    fake = FakeTor(methods, cookie, knows_cookie=False)
    with pytest.raises(ControlFailed, match="does not know tor's cookie"):
        publish(fake, "p w")
    assert told_nothing(fake)
    publish(FakeTor(methods, tmp_path / "absent", password="p w"), "p w")


@pytest.mark.parametrize("kind", ["pipe", "directory", "for all to read"])
def test_a_cookie_file_that_is_not_tors_is_refused(tmp_path: Path, kind: str) -> None:
    """The port names it, whoever that is: nothing waits for ever, and nothing is told."""
    path = tmp_path / "cookie"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        make_cookie(path, 0o644)
    fake = FakeTor("SAFECOOKIE", path)
    begin = time.monotonic()
    with pytest.raises(ControlFailed, match="cannot be read"):
        publish(fake)
    assert time.monotonic() - begin < 5
    assert told_nothing(fake)


@pytest.mark.parametrize(
    "greeting",
    [
        b"250 " + b"x" * 100_000,
        b'250-AUTH METHODS=SAFECOOKIE COOKIEFILE="a\0b"\r\n250 OK\r\n',
        b"250-\xff\r\n" * 1000,
        b"",
    ],
)
def test_what_is_not_tor_is_a_failure_like_any_other(greeting: bytes) -> None:
    """Whatever listens there: the service is published again later, and the task goes on."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(greeting)
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ControlFailed):
                await TorControl.connect(ControlPort(f"127.0.0.1:{port}"))

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_password_opens_the_control_port() -> None:
    """It is quoted; a wrong one is told with tor's own words."""
    publish(FakeTor("HASHEDPASSWORD", password="p w"), "p w")
    with pytest.raises(ControlFailed, match="515 Authentication failed"):
        publish(FakeTor("HASHEDPASSWORD", password="p w"), "other")


def test_a_password_that_is_written_down_later_is_taken_up() -> None:
    """The operator does what the message says, and the service is published at the next try."""

    async def scene() -> None:
        passwords = [""]
        async with FakeTor("HASHEDPASSWORD", password="p w").serving() as place:
            service = OnionService(OnionKey(SEED), 8081, lambda: ControlPort(place, passwords[-1]))
            keeping = asyncio.create_task(service.keep_published("127.0.0.1:8082"))
            await until(lambda: asyncio.sleep(0, "control_password" in service.state))
            passwords.append("p w")
            await until(lambda: asyncio.sleep(0, service.published))
            keeping.cancel()

    asyncio.run(asyncio.wait_for(scene(), 20))


@pytest.mark.parametrize(
    ("methods", "reason"),
    [("HASHEDPASSWORD", "control_password"), ("SAFECOOKIE", "cannot be read")],
)
def test_what_is_missing_is_told(tmp_path: Path, methods: str, reason: str) -> None:
    """No password, or a cookie that may not be read: the message says what to set."""
    with pytest.raises(ControlFailed, match=reason):
        publish(FakeTor(methods, tmp_path / "absent"))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"hidden_listen": "0.0.0.0:1", "hidden_names": [HOST]}, "loopback"),
        ({"hidden_listen": "127.0.0.1:1"}, "hidden_names or tor_control"),
        ({"hidden_names": [HOST]}, "hidden_listen"),
        ({"hidden_names": [I2P_HOST]}, "hidden_listen"),
        ({"hidden_names": [HOST], "i2p_listen": "127.0.0.1:1"}, "i2p host"),
        ({**BOTH, "hidden_names": [I2P_HOST]}, "nothing forwards"),
        ({**BOTH, "hidden_listen": ""}, "hidden_listen"),
        ({**BOTH, "i2p_listen": ""}, "another port for I2P"),
        ({**BOTH, "i2p_listen": "127.0.0.1:0"}, "another port for I2P"),
        ({**BOTH, "i2p_listen": "0.0.0.0:1"}, "loopback"),
        ({**HIDDEN, "hidden_names": ["mail.example"]}, "no .onion or .i2p"),
        ({**HIDDEN, "covert": True}, "proxy"),
        ({"covert": True, "tor_proxy": "127.0.0.1:1"}, "hidden_listen"),
        ({"tor_proxy": "localhost:9050"}, "IP address"),
        ({"use_exit_node": True}, "exit nodes"),
        ({"preferred_connection": "fast"}, "direct, tor or i2p"),
        ({**HIDDEN, "tor_control": "localhost:9051"}, "IP address"),
        ({**HIDDEN, "tor_control": "192.0.2.1:9051"}, "loopback"),
        ({**HIDDEN, "tor_control": "[2001:db8::1]:9051"}, "loopback"),
    ],
)
def test_settings_that_would_leak_are_refused(values: dict[str, Any], reason: str) -> None:
    """A mistake in the configuration stops the server, and is named."""
    with pytest.raises(BadConfig, match=reason):
        Config.of(values)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a server."""
    place = tmp_path_factory.mktemp("hidden") / "server"
    make_server(place, TurnedClock(datetime.now(UTC)))
    return place


def test_forwarders_are_a_class_of_their_own(directory: Path) -> None:
    """Users who fill all hidden places keep nobody out of the public port, nor the reverse."""

    async def scene() -> None:
        clock, key_id = TurnedClock(datetime.now(UTC)), KeyId(b"f" * 20)
        settings = {**HIDDEN, "max_hidden_connections": 2, "max_connections_per_source": 1}
        async with serving(directory, clock, **settings) as server:
            await open_account(server, key_id)
            inside = [await by_forwarder(server) for _ in range(2)]
            for remote in inside:
                assert await remote.login(key_id.hex, key_id.hex)
            with pytest.raises(Unavailable, match="BUSY"):
                await by_forwarder(server)
            assert (await banner_of(server)).ready
            for remote in inside:
                await remote.quit()

    asyncio.run(scene())


def test_strangers_who_take_all_hidden_places_make_room(directory: Path) -> None:
    """Who came first goes first, even in the middle of a command; whoever logs in stays."""

    async def scene() -> None:
        clock, key_id = TurnedClock(datetime.now(UTC)), KeyId(b"g" * 20)
        async with serving(directory, clock, **HIDDEN, max_hidden_connections=3) as server:
            await open_account(server, key_id)
            first, second, third = [await by_forwarder(server) for _ in range(3)]
            user = await by_forwarder(server)
            with pytest.raises(NetworkError):
                await first.ping()
            assert await user.login(key_id.hex, key_id.hex)
            command, slow = AskVerdict(bytes(32)), asyncio.create_task(drip(second))
            await asyncio.sleep(0.1)
            for _ in range(4):
                await by_forwarder(server)
            for gone in (second, third):
                with pytest.raises(NetworkError):
                    await gone.call(command)
            await slow
            assert await user.ping("still here") == "still here"
            assert (await banner_of(server)).ready

    asyncio.run(scene())


def test_a_user_who_takes_all_hidden_places_makes_room(directory: Path) -> None:
    """His first connection goes, and nobody's who has few."""

    async def scene() -> None:
        clock, key_ids = TurnedClock(datetime.now(UTC)), [KeyId(b"u" * 20), KeyId(b"v" * 20)]
        async with serving(directory, clock, **HIDDEN, max_hidden_connections=10) as server:
            modest, *greedy = [await by_forwarder(server) for _ in range(10)]
            for key_id, inside in zip(key_ids, ([modest], greedy), strict=True):
                await open_account(server, key_id)
                for remote in inside:
                    assert await remote.login(key_id.hex, key_id.hex)
            newcomer = await by_forwarder(server)
            for remote in (newcomer, modest, *greedy[1:]):
                assert await remote.ping("here") == "here"
            with pytest.raises(NetworkError):
                await greedy[0].ping()

    asyncio.run(scene())


async def drip(remote: RemoteServer) -> None:
    """Store a block as slowly as nobody wants it."""

    async def drops() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b"x"
            await asyncio.sleep(0.05)

    key, lines = data_lines(b"x" * 200)
    with pytest.raises(NetworkError):
        await remote.post_data(StoreServer(key), lines, 200, drops())


async def by_forwarder(server: Server) -> RemoteServer:
    """Connect as Tor or I2P do."""
    return await come_to(server.status().hidden[0].listen)


async def come_to(listen: Listen) -> RemoteServer:
    """Connect to a port of this machine."""
    at = ServerAddress(listen.host, listen.port)
    return await dial(at, LOCAL, MemoryPins(), strict_pin=True)


def test_a_covert_server_looks_nothing_up_and_has_no_other_port(directory: Path) -> None:
    """DNS TXT is FAILED, nothing is dialled directly, and invitations name hidden hosts only.

    Nor does it own to a public name: what is for one is not delivered here.
    """

    async def scene() -> None:
        clock = TurnedClock(datetime.now(UTC))
        settings = {**HIDDEN, "covert": True, "tor_proxy": "127.0.0.1:1"}
        settings |= {"listen": "127.0.0.1:8081", "allow_private_targets": True}
        async with serving(directory, clock, **settings) as server:
            running = server.status()
            assert [running.listen] == [port.listen for port in running.hidden]
            async with await come_to(running.listen) as remote:
                assert await remote.call(DnsTxt("cmsvr.example.net")) is Word.FAILED
                shown = remote.pin
                key_id = "0A" * 20
                await open_account(server, KeyId.from_hex(key_id))
                assert await remote.login(key_id, key_id)
                named = "Post-To: server=localhost:8081"
                assert await send_data(remote, b"are you localhost?", named) is Word.DONE
                assert states(await settled(remote)) == [("data", 1, "given-up", "network")]
            invited = await server.operator.fulfil({"do": "account invite"})
            servers = Invitation.parse(invited["code"]).servers
            assert [(str(one.address), one.pin) for one in servers] == [(f"{HOST}:8081", shown)]

    asyncio.run(scene())


def test_the_faces_towards_tor_and_i2p_share_nothing(directory: Path, tmp_path: Path) -> None:
    """Port, key, certificate and limits are those of one network; an invitation has both pins.

    A backup has both keys.
    """

    async def scene() -> None:
        clock = TurnedClock(datetime.now(UTC))
        async with serving(directory, clock, **BOTH, max_hidden_connections=1) as server:
            ports = server.status().hidden
            assert [str(one) for port in ports for one in port.addresses] == [
                f"{HOST}:8081",
                f"{I2P_HOST}:8081",
            ]
            use_up(server.services.lookup_requests, Network.TOR.value)
            onion, i2p = [await come_to(port.listen) for port in ports]
            assert onion.pin != i2p.pin
            assert await i2p.call(DnsTxt("single-label")) is Word.NOT_FOUND
            with pytest.raises(NetworkError):
                await onion.call(DnsTxt("single-label"))
            named = [names_of(remote) for remote in (onion, i2p)]
            assert named == [[HOST], [I2P_HOST]]
            invited = await server.operator.fulfil({"do": "account invite"})
            pins = {str(one.address): one.pin for one in Invitation.parse(invited["code"]).servers}
            assert pins.pop(f"{HOST}:8081") == onion.pin
            assert pins.pop(f"{I2P_HOST}:8081") == i2p.pin
            assert not {onion.pin, i2p.pin} & set(pins.values())
            await server.operator.fulfil({"do": "backup", "target": str(tmp_path / "copy")})
            await i2p.quit()

    asyncio.run(scene())
    for name in (HIDDEN_KEY_NAME, I2P_KEY_NAME):
        assert (tmp_path / "copy" / name).read_bytes() == (directory / name).read_bytes()


def test_a_new_onion_name_shows_nothing_of_the_old_one(tmp_path: Path) -> None:
    """Neither its name nor its key; a name beside the old one keeps the key, which is pinned."""
    make_tls_identity(tmp_path / "tls/hidden.crt", tmp_path / HIDDEN_KEY_NAME, [HOST], DATE)

    def shown(*hosts: str) -> tuple[bytes, set[str]]:
        config = Config.of({**HIDDEN, "hidden_names": list(hosts)})
        (face,) = hidden_faces(tmp_path, config, DATE)
        assert pin_of(tmp_path / "tls/hidden.crt") == face.pin
        return face.pin, names_in(read_certificate(tmp_path / "tls/hidden.crt"))

    old, _ = shown(HOST)
    other = OnionKey(SEED).host
    assert shown(HOST, other) == (old, {HOST, other})
    assert shown(HOST) == (old, {HOST})
    new, names = shown(other)
    assert new != old
    assert names == {other}
    assert pin_of(tmp_path / "tls/hidden.crt.old") == old
    assert stat.S_IMODE((tmp_path / f"{HIDDEN_KEY_NAME}.old").stat().st_mode) == 0o600


@pytest.mark.parametrize("named", [[HOST], ["old.onion"]], ids=["one-of-two", "none"])
def test_an_operators_own_certificate_stays(
    tmp_path: Path, named: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Others have pinned its key, and it may be of a kind that we do not make."""
    certificate, key = tmp_path / "tls/hidden.crt", tmp_path / HIDDEN_KEY_NAME
    make_own_identity(certificate, key, named)
    before = certificate.read_bytes(), key.read_bytes()
    other = OnionKey(SEED).host
    (face,) = hidden_faces(tmp_path, Config.of({**HIDDEN, "hidden_names": [HOST, other]}), DATE)
    assert (certificate.read_bytes(), key.read_bytes()) == before
    assert face.pin == pin_of(certificate)
    assert f"not for {HOST}, {other}" in caplog.text


def make_own_identity(certificate: Path, key: Path, names: list[str]) -> None:
    """Write what an operator may have signed himself."""
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    made = (
        x509.CertificateBuilder(subject, subject, private.public_key())
        .serial_number(1)
        .not_valid_before(DATE)
        .not_valid_after(DATE + timedelta(days=365))
        .add_extension(x509.SubjectAlternativeName(list(map(x509.DNSName, names))), critical=False)
        .sign(private, hashes.SHA256())
    )
    certificate.parent.mkdir(parents=True, exist_ok=True)
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def test_a_new_onion_key_has_another_tls_key(tmp_path: Path) -> None:
    """The file was replaced: at the next start the new name stands alone."""
    config = Config.of({"hidden_listen": "127.0.0.1:0", "tor_control": "/nowhere/control"})
    pins = set()
    for seed in (SEED, bytes(32)):
        (tmp_path / "tor").mkdir(exist_ok=True)
        (tmp_path / ONION_KEY_NAME).write_bytes(seed)
        (face,) = hidden_faces(tmp_path, config, DATE)
        pins.add(face.pin)
    assert len(pins) == 2


def names_of(remote: RemoteServer) -> list[str]:
    """Return whom the certificate of a session is for, in all its names."""
    assert remote.shown.certificate is not None
    certificate = x509.load_der_x509_certificate(remote.shown.certificate)
    others = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return others.get_values_for_type(x509.DNSName)


def test_a_server_in_i2p_alone_needs_one_port(directory: Path) -> None:
    """The port is the one of its only network; the key is that of I2P all the same."""

    async def scene() -> None:
        settings = {"hidden_listen": "127.0.0.1:0", "hidden_names": [I2P_HOST]}
        clock = TurnedClock(datetime.now(UTC))
        async with (
            serving(directory, clock, **settings) as server,
            await by_forwarder(server) as remote,
        ):
            assert remote.pin == pin_of(directory / I2P_CERTIFICATE_NAME)

    asyncio.run(scene())


async def is_with_partner(server: Server) -> bool:
    """Tell whether a server is connected to its partner."""
    return bool((await server.operator.fulfil({"do": "pair status"}))["connected"])


def test_covert_servers_are_paired_through_their_proxies(tmp_path: Path) -> None:
    """Code and partner name onions and the keys shown there, and so do invitations."""
    clock = TurnedClock(datetime.now(UTC))
    hosts = [OnionKey(bytes((number,)) * 32).host for number in (1, 2)]
    for host in hosts:
        make_server(tmp_path / host, clock)

    async def scene() -> None:
        proxy = SocksServer({})
        async with AsyncExitStack() as stack, asyncio.timeout(60):
            at = await stack.enter_async_context(proxy.serving())
            first, second = [
                await stack.enter_async_context(
                    serving(
                        tmp_path / host,
                        clock,
                        hidden_listen="127.0.0.1:0",
                        hidden_names=[host],
                        covert=True,
                        tor_proxy=str(at),
                    )
                )
                for host in hosts
            ]
            proxy.hosts = {
                host: server.status().listen.port
                for host, server in zip(hosts, (first, second), strict=True)
            }
            offered = await first.operator.fulfil({"do": "pair offer"})
            joined = await second.operator.fulfil({"do": "pair join", "code": offered["code"]})
            assert joined["partner"] == f"{hosts[0]}:8081"
            for server in (first, second):
                await until(partial(is_with_partner, server))
            invited = await first.operator.fulfil({"do": "account invite"})
            named = [one.address.host for one in Invitation.parse(invited["code"]).servers]
            assert named == hosts
        assert {one.host for one in proxy.asked} == set(hosts)

    asyncio.run(scene())


def test_the_onion_key_is_in_a_backup(directory: Path, tmp_path: Path) -> None:
    """Whoever restores the server restores its onion address; nobody else may read the files."""
    password = directory / CONTROL_PASSWORD_NAME
    password.parent.mkdir(exist_ok=True)
    password.write_text("secret")

    async def scene() -> None:
        clock = TurnedClock(datetime.now(UTC))
        settings = {"hidden_listen": "127.0.0.1:0", "tor_control": "/nowhere/control"}
        async with serving(directory, clock, **settings) as server:
            await server.operator.fulfil({"do": "backup", "target": str(tmp_path / "copy")})
            onion = server.status().onion
            assert onion is not None
            assert not onion.published

    asyncio.run(scene())
    restore(tmp_path / "copy", tmp_path / "restored")
    secrets = (ONION_KEY_NAME, CONTROL_PASSWORD_NAME, HIDDEN_KEY_NAME)
    for place in (tmp_path / "copy", tmp_path / "restored"):
        for name in secrets:
            assert (place / name).read_bytes() == (directory / name).read_bytes()
            assert stat.S_IMODE((place / name).stat().st_mode) == 0o600
    assert load_onion_key(tmp_path / "restored" / ONION_KEY_NAME).host.endswith(".onion")


def test_one_stranger_at_the_hidden_port_is_not_all_of_them(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one source may look up in the DHT at a time bounds no door."""
    monkeypatch.setattr(nodes, "_FIND_SECONDS", 0.1)
    monkeypatch.setattr(nodes, "_FOUND_FOR_ONE", 0)

    async def scene() -> None:
        clock, key = TurnedClock(datetime.now(UTC)), BlockKey(bytes(20))
        part = {"dht": True, "dht_network": "alone", **HIDDEN}
        async with serving(directory, clock, **part) as server:
            async with await by_forwarder(server) as stranger:
                assert await stranger.fetch(GetEntangled(key)) is None
            async with await connect(server) as stranger:
                with pytest.raises(Unavailable):
                    await stranger.fetch(GetEntangled(key))

    asyncio.run(scene())


def test_strangers_keep_no_user_out_of_the_hidden_port(directory: Path) -> None:
    """They are one source, which may be used up; who logs in is a source of his own."""

    async def scene() -> None:
        clock, key_id = TurnedClock(datetime.now(UTC)), KeyId(b"k" * 20)
        async with serving(directory, clock, **HIDDEN) as server:
            await open_account(server, key_id)
            use_up(server.services.failed_logins, Network.TOR.value)
            use_up(server.services.lookup_requests, Network.TOR.value)
            async with await by_forwarder(server) as stranger:
                with pytest.raises(NetworkError):
                    await stranger.call(DnsTxt("cmsvr.example.net"))
            async with await by_forwarder(server) as guesser:
                with pytest.raises(NetworkError):
                    await guesser.login(key_id.hex, "W" * 40)
            async with await by_forwarder(server) as user:
                assert await user.login(key_id.hex, key_id.hex)
                assert await user.call(DnsTxt("single-label")) is Word.NOT_FOUND

    asyncio.run(scene())
