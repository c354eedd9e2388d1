"""What an anonymous client and a covert server send past their proxy, by the kernel: nothing."""

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path

import pytest
from tests.anonymity.network_namespace import INSIDE, OUTSIDE, Namespace, namespace
from tests.end_to_end.forging import forged_letter, post, sign
from tests.end_to_end.programs import PROGRAMS, Done, Server, User, free_port
from tests.net.name_server import name_server
from tests.net.socks_server import SocksServer
from tests.server.users import data_lines

from sealmail_client.headers import Place, Recipient
from sealmail_client.keyring import Keyring
from sealmail_client.profile import Home
from sealmail_net.dialing import DialSettings, dial
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_net.socks import Proxies
from sealmail_net.ways import ProxyPolicy
from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.commands import AskQueue, DnsTxt, GetProxy, StoreProxy
from sealmail_protocol.invitations import InvitedServer, PairingCode
from sealmail_protocol.keys import BlockKey, KeyId
from sealmail_protocol.replies import Listing, Word
from sealmail_server.config import ONION_KEY_NAME
from sealmail_server.onion_key import OnionKey

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
]

ONION = ServerAddress(OnionKey(b"1" * 32).host, 8081)
COVERT_SEED = b"2" * 32
COVERT = ServerAddress(OnionKey(COVERT_SEED).host, 8081)
STRANGER = ServerAddress("9.9.9.9", 8081)
STRANGER_6 = ServerAddress("2620:fe::9", 8081)
PUBLIC = (STRANGER, STRANGER_6, ServerAddress("mail.example.net", 8081))


class Proxy:
    """A SOCKS server in a thread of its own, at the outer end of the namespace's only way."""

    def __init__(self) -> None:
        self.server = SocksServer()
        self.port = free_port()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def address(self) -> ServerAddress:
        """Return where it serves."""
        return ServerAddress(OUTSIDE, self.port)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve until the end of the block."""
        ready = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)))
        thread.start()
        assert ready.wait(10)
        try:
            yield
        finally:
            assert self._loop is not None
            assert self._stop is not None
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join()

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self.server.serving(OUTSIDE, self.port):
            ready.set()
            await self._stop.wait()


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a directory with a short path."""
    directory = Path(tempfile.mkdtemp(prefix="sml-"))
    yield directory
    shutil.rmtree(directory)


def runs(
    inside: Namespace, user: User, *arguments: str, environment: dict[str, str] | None = None
) -> Done:
    """Give a command to the installed program, inside."""
    done = subprocess.run(
        inside.command(user.command(*arguments)),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        env={**os.environ, **(environment or {})},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


# Names of network namespaces are kept in /run, which is root's.
_AS_ROOT = 'mount -t tmpfs tmpfs /run && ip link set lo up && exec "$@"'
_SYSTEM_PROGRAMS = "/usr/sbin:/sbin"


def as_root(test: Callable[[Path], None]) -> Callable[[Path], None]:
    """Run a test by itself in a user namespace, where it is root, if it is not root here."""

    @wraps(test)
    def run(place: Path) -> None:
        if os.geteuid() == 0:
            test(place)
            return
        again = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
        inside = ("unshare", "--user", "--map-root-user", "--net", "--mount")
        done = subprocess.run(
            [*inside, "sh", "-c", _AS_ROOT, "sh", *again, f"{__file__}::{test.__name__}"],
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": f"{os.environ['PATH']}:{_SYSTEM_PROGRAMS}"},
        )
        told = f"{done.stdout}{done.stderr}"
        assert done.returncode == 0, f"this needs root, or namespaces for all users: {told}"

    return run


@as_root
def test_an_anonymous_client_leaks_no_packet(place: Path) -> None:
    """From its first command to the failure of its proxy it sends to the SOCKS port alone.

    It settles, writes to somebody whom DNS leads to, fetches, acknowledges, and reads and answers
    mail that names servers elsewhere, with acknowledgments by its server and by itself; it is told
    to look at public servers and to ask DNS itself. At the end the counters are shown to count.
    """
    proxy, server = Proxy(), Server.create(place / "server")
    proxy.server.hosts = {ONION.host: server.address.port}
    with ExitStack() as stack:
        way = f"ip daddr {OUTSIDE} tcp dport {proxy.port}"
        inside = stack.enter_context(namespace(way))
        zone = {"b.test": f'cmsvr TXT "server={ONION}"\n'}
        dns = stack.enter_context(name_server(place / "knot", zone))
        with (server.directory / "config.toml").open("a") as config:
            config.write(f'dns_server = "{dns}"\n')
        server.start()
        stack.callback(server.stop)
        both = (server.address, ONION)
        bob = User.settle(place, "Bob", "bob@b.test", server, reached_at=both)
        mallory = User.settle(place, "Mallory", "mallory@b.test", server, reached_at=both)
        anna = User("Anna", "anna@a.test", place / "anna", server)

        def quiet(*arguments: str, fails: str = "", auth_key: str = "") -> Done:
            secret = {"SEALMAIL_AUTH_KEY": auth_key} if auth_key else None
            done = runs(inside, anna, *arguments, environment=secret)
            assert inside.leaked == 0, arguments
            assert (done.exit_code != 0) == bool(fails), done
            assert fails in done.complaint
            return done

        with proxy.serving():
            who = ("--name", "Anna", "--address", anna.address, "--price", "bd,20,2")
            ways = (
                "--server",
                str(server.address),
                "--server",
                str(ONION),
                "--tor",
                str(proxy.address),
                "--anonymous",
            )
            quiet("init", *who, *ways, "--no-passphrase", auth_key=server.auth_keys.pop())
            quiet("send", "--to", bob.address, "--subject", "hello", "--message", "text")
            bob.does("fetch")
            assert "hello" in bob.subjects()
            assert bob.sends([anna], "answer").exit_code == 0
            assert "answer" in quiet("fetch", "--json").output
            for way in ("direct", "proxy"):
                quiet("identity", "set", "--acknowledge", way)
                for elsewhere in (STRANGER, STRANGER_6):
                    subject = f"look at {elsewhere}, {way}"
                    name_a_server_elsewhere(mallory, anna, place, elsewhere, subject)
                    (number,) = numbers(quiet("fetch", "--json"), subject)
                    assert subject in quiet("read", number).output
                    assert str(elsewhere) in quiet("read", "--html", "-", number).output
                    quiet("reply", number, "--message", "who are you?")
                    to_all = ("reply", number, "--all", "--message", "and who else?")
                    quiet(*to_all, fails="exit node")
            quiet("acks")
            quiet("identity", "set", "--send", "proxy")
            quiet("send", "--to", bob.address, "--subject", "by my server", "--message", "text")
            bob.does("fetch")
            assert "by my server" in bob.subjects()
            quiet("identity", "set", "--send", "direct")
            for public in (STRANGER, STRANGER_6, "mail.example.net:8081"):
                at = ("--server", str(public))
                quiet("key", "find", "x@example.net", *at, fails="exit node")
            quiet("key", "find", "x@example.net", "--server", "x.i2p:1", fails="no proxy to I2P")
            quiet("identity", "set", "--dns", "direct", fails="anonymous")
            quiet("key", "find", "nobody@elsewhere.test", fails="no key")
            quiet("doctor")
        late = ("send", "--to", bob.address, "--subject", "late", "--message", "text")
        quiet(*late, fails="not sent")
        quiet("fetch", fails="proxy")
        runs(inside, anna, "identity", "set", "--not-anonymous", "--dns", "direct")
        runs(inside, anna, "key", "find", "nobody@example.net")
        assert inside.leaked > inside.leaked_by_ipv6
        runs(inside, anna, "key", "find", "x@example.net", "--server", str(STRANGER_6))
        assert inside.leaked_by_ipv6 > 0


def numbers(fetched: Done, subject: str) -> list[str]:
    """Return which of the mails that were fetched have a subject."""
    return [str(mail["number"]) for mail in fetched.value["filed"] if mail["subject"] == subject]


def name_a_server_elsewhere(
    mallory: User, reader: User, place: Path, at: ServerAddress, subject: str
) -> None:
    """Post a mail whose acknowledgment is asked for at a public address, and another reader's key.

    Its HTML calls there too.
    """
    elsewhere = replace(mallory, server=replace(mallory.server, address=at))
    with Keyring(mallory.home / "gnupg") as tools:
        letter = forged_letter(elsewhere, reader, subject)
        key_id = KeyId(secrets.token_bytes(20))
        nobody = Recipient(Place.TO, "Nobody <n@example.net>", key_id, Transport((at,)), None)
        header = replace(
            letter.header,
            unique_id=secrets.token_hex(20),
            recipients=(*letter.header.recipients, nobody),
        )
        html = f'<link rel="preconnect" href="http://{at}"><img src="http://{at}/i.png">'
        letter = replace(letter, header=header, html=html)
        post(tools, reader, *sign(tools, mallory, letter), place)


FORWARDER = """
import asyncio, sys
async def pass_on(reader, writer):
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    writer.close()
async def serve(reader, writer):
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[3]))
    await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))
async def main():
    server = await asyncio.start_server(serve, sys.argv[1], int(sys.argv[2]))
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@as_root
def test_a_covert_server_leaks_no_packet(place: Path) -> None:
    """Whatever users and strangers ask of it, it sends to its SOCKS port and its forwarder alone.

    It serves a user, is asked for DNS, delivers for him to a server behind the proxy and fetches
    from it, is asked to do so with public ones and to be their partner, is examined by its doctor,
    and is asked for all that again when the proxy has gone. It listens on one port of loopback,
    and goes on looking for tor where its control socket should be.
    """
    proxy, covert, other = Proxy(), Server.create(place / "covert"), Server.create(place / "other")
    hidden, entrance = free_port(), free_port()
    settings = (
        "covert = true",
        f'hidden_listen = "127.0.0.1:{hidden}"',
        f'tor_control = "{place / "control"}"',
        f'tor_proxy = "{proxy.address}"',
    )
    (covert.directory / ONION_KEY_NAME).parent.mkdir()
    (covert.directory / ONION_KEY_NAME).write_bytes(COVERT_SEED)
    with (covert.directory / "config.toml").open("a") as config:
        config.writelines(f"{line}\n" for line in settings)
    proxy.server.hosts = {COVERT.host: (INSIDE, entrance), ONION.host: other.address.port}
    allowed = (
        f"ip daddr {OUTSIDE} tcp dport {proxy.port}",
        f"ip daddr {OUTSIDE} tcp sport {entrance}",
        f'oifname "lo" tcp dport {hidden}',
        f'oifname "lo" tcp sport {hidden}',
    )
    with ExitStack() as stack:
        inside = stack.enter_context(namespace(*allowed))
        server = [str(PROGRAMS / "sealmaild"), "run", "--data", str(covert.directory)]
        forwarder = [sys.executable, "-c", FORWARDER, INSIDE, str(entrance), str(hidden)]
        for command in (server, forwarder):
            stack.enter_context(started(inside.command(command)))
        other.start()
        stack.callback(other.stop)
        with proxy.serving():
            ways = ("--tor", str(proxy.address), "--anonymous")
            conny = User.settle(
                place, "Conny", "conny@c.test", covert, reached_at=(COVERT,), ways=ways
            )
            asyncio.run(ask_much_of_it(conny, proxy.address))
            assert inside.leaked == 0
            assert listening(inside) == {f"127.0.0.1:{hidden}", f"{INSIDE}:{entrance}"}
            for public in (STRANGER, STRANGER_6):
                code = PairingCode("0" * 8, InvitedServer(public, bytes(32))).code()
                assert "exit node" in operates(inside, covert, "pair", code).stderr
            assert examined(inside, covert)["tor"]
            assert inside.leaked == 0
        asyncio.run(ask_it_without_proxy(conny, ServerAddress(INSIDE, entrance)))
        assert not examined(inside, covert)["tor"]
        assert inside.leaked == 0
        subprocess.run(inside.command(["getent", "hosts", "mail.example.net"]), check=False)
        assert inside.leaked > inside.leaked_by_ipv6
        knock = f"import socket; socket.create_connection({(STRANGER_6.host, 1)}, 1)"
        subprocess.run(inside.command([sys.executable, "-c", knock]), check=False)
        assert inside.leaked_by_ipv6 > 0


def examined(inside: Namespace, server: Server) -> dict[str, bool]:
    """Return which parts the doctor finds well, inside."""
    found = json.loads(operates(inside, server, "doctor", "--json").stdout)["findings"]
    return {row["part"]: row["well"] for row in found}


def listening(inside: Namespace) -> set[str]:
    """Return where programs inside wait for connections or datagrams."""
    listed = subprocess.run(
        inside.command(["ss", "-Hltun"]), capture_output=True, text=True, check=True
    )
    return {line.split()[4] for line in listed.stdout.splitlines()}


def operates(
    inside: Namespace, server: Server, *arguments: str
) -> "subprocess.CompletedProcess[str]":
    """Give a command of the operator, inside."""
    command = [str(PROGRAMS / "sealmaild"), *arguments, "--data", str(server.directory)]
    return subprocess.run(inside.command(command), capture_output=True, text=True, timeout=120)


@contextmanager
def started(command: Sequence[str]) -> Iterator[None]:
    """Run a program that prints a line when it is ready, and end it."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline()
        yield
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


async def ask_much_of_it(user: User, proxy: ServerAddress) -> None:
    """Ask for names, and for keys of and deliveries to hidden, dead hidden and public servers."""
    dialing = DialSettings(
        allow_private_targets=True, proxies=Proxies(ProxyPolicy(proxy, direct=False))
    )
    async with await dial(COVERT, dialing, MemoryPins(), strict_pin=True) as remote:
        for name in ("cmsvr.example.net", "9.9.9.9.in-addr.arpa", str(ONION.host)):
            assert await remote.call(DnsTxt(name)) is Word.FAILED
        auth_key = Home(user.home).load_auth_key().text
        assert await remote.login(user.key_id.hex, auth_key)
        assert await remote.call(asked_at(ONION)) is Word.NOT_FOUND
        assert await hand_in(remote, ONION) is Word.DONE
        assert await hand_in(remote, ServerAddress(OnionKey(b"3" * 32).host, 1)) is Word.DONE
        for public in PUBLIC:
            assert await remote.call(asked_at(public)) is Word.FAILED
            await hand_in(remote, public)
        await until_told(remote, "delivered")


async def ask_it_without_proxy(user: User, entrance: ServerAddress) -> None:
    """Ask for the same by the forwarder, and wait until a delivery has been tried in vain."""
    dialing = DialSettings(allow_private_targets=True)
    async with await dial(entrance, dialing, MemoryPins(), strict_pin=True) as remote:
        assert await remote.call(DnsTxt("cmsvr.example.net")) is Word.FAILED
        assert await remote.login(user.key_id.hex, Home(user.home).load_auth_key().text)
        before = (await told(remote)).count("unreachable")
        assert await remote.call(asked_at(ONION)) is Word.NOT_FOUND
        assert await hand_in(remote, ONION) is Word.DONE
        for public in PUBLIC:
            assert await remote.call(asked_at(public)) is Word.FAILED
            await hand_in(remote, public)
        await until_told(remote, "unreachable", before + 1)


def asked_at(server: ServerAddress) -> GetProxy:
    """Return the question for a block at another server."""
    return GetProxy(BlockKey(bytes(20)), Transport((server,)))


async def until_told(remote: RemoteServer, word: str, times: int = 1) -> None:
    """Wait until the list of deliveries has a word so many times."""
    for _ in range(300):
        if (await told(remote)).count(word) >= times:
            return
        await asyncio.sleep(0.2)
    pytest.fail(await told(remote))


async def hand_in(remote: RemoteServer, at: ServerAddress) -> Word:
    """Give the server a block to deliver."""
    data = secrets.token_bytes(100)
    key, lines = data_lines(data)
    header = (f"Post-To: server={at}", *lines)
    return await remote.post_data(StoreProxy(key), header, len(data), (data,))


async def told(remote: RemoteServer) -> str:
    """Return what has become of the deliveries."""
    queue = await remote.call(AskQueue())
    return " ".join(queue.lines) if isinstance(queue, Listing) else ""
