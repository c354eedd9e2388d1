"""Eight real servers that take part in the DHT, asked by STORE and GET ENTANGLED."""

import asyncio
import hashlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from tests.server.dht_network import DHT_PRICE, acknowledgment, mail
from tests.server.starting import RunningServer, operate, sealmaild
from tests.server.users import User, now

from sealmail_net.dialing import DialSettings, dial
from sealmail_net.errors import Unavailable
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_pow import mint
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.block_codec import parse_block
from sealmail_protocol.canonical import block_digest
from sealmail_protocol.commands import (
    GetDhtValue,
    GetEntangled,
    ListDhtValues,
    StoreDhtValue,
    StoreEntangled,
)
from sealmail_protocol.compose import make_data_header
from sealmail_protocol.errors import Refusal
from sealmail_protocol.fields import decode_lines, split_lines
from sealmail_protocol.keys import BlockKey, KeyId, address_key, data_key
from sealmail_protocol.replies import Accepted, Refused, Word
from sealmail_protocol.stamps import data_challenge_prefix
from sealmail_server.cli.common import ask

SETTINGS = (
    "dht = true",
    'dht_network = "a test"',
    "allow_private_targets = true",
    "dht_requests_per_second = 100000",
    "stranger_requests_per_second = 100000",
)
LOCAL = DialSettings(allow_private_targets=True)
RECIPIENT = KeyId(bytes(range(20)))


async def connect(address: ServerAddress) -> RemoteServer:
    """Connect to one of the servers."""
    return await dial(address, LOCAL, MemoryPins(), strict_pin=False)


async def find(address: ServerAddress, key: BlockKey) -> bytes | None:
    """Return what a server answers to GET ENTANGLED."""
    async with await connect(address) as remote:
        return await remote.fetch_body(GetEntangled(key), 2**20)


async def find_soon(address: ServerAddress, key: BlockKey, wanted: bytes) -> None:
    """Wait until a server finds exactly this."""
    found = None
    for _ in range(100):
        found = await find(address, key)
        if found == wanted:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"{found!r} where {wanted!r} was stored")


def status(directory: Path) -> dict[str, int]:
    """Return what the operator is told of the DHT."""
    told = ask(directory, do="status")["dht"]
    assert isinstance(told, dict)
    return told


def wait_for(directories: Sequence[Path], well: Callable[[dict[str, int]], bool]) -> None:
    """Wait until each of the servers is well."""
    until = time.monotonic() + 60
    for directory in directories:
        while not well(status(directory)):
            assert time.monotonic() < until, f"{directory.name}: {status(directory)}"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def ann() -> Iterator[User]:
    """Return a user with a key, in a place short enough for GnuPG's sockets."""
    with tempfile.TemporaryDirectory() as place:
        user = User.create(Path(place) / "a", "ann")
        yield user
        user.close()


def test_eight_servers_keep_find_and_survive(tmp_path: Path, ann: User) -> None:
    """Keys, claims, mail, data and acknowledgments; then half are lost, and all restart."""
    play_servers(tmp_path, ann, 8)


@pytest.mark.long
def test_thirty_servers_keep_find_and_survive(tmp_path: Path, ann: User) -> None:
    """The same with thirty."""
    play_servers(tmp_path, ann, 30)


def play_servers(place: Path, ann: User, count: int) -> None:
    """Store at some servers, find at others, lose half of them by chance, restart all.

    A value is kept by one more than are lost, and not by all.
    """
    directories, addresses = make_servers(place, count)
    lost = set(Random(count).sample(range(count), count // 2))  # noqa: S311 - a test
    left = [address for number, address in enumerate(addresses) if number not in lost]
    with running(directories) as processes:
        wait_for(directories, lambda dht: dht["neighbours"] >= min(count - 1, 7))
        placed = asyncio.run(store_all(addresses, ann))
        asyncio.run(refuse_all(addresses, ann))
        asyncio.run(find_all((addresses[-1], addresses[count // 2]), placed))
        wait_for(directories, lambda dht: dht["not_spread"] == 0)
        for number in lost:
            processes[number].kill()
        asyncio.run(find_all(left, placed))
    with running(directories):
        wait_for(directories, lambda dht: dht["neighbours"] >= 3)
        asyncio.run(find_all(addresses[1:2], placed))


async def find_all(addresses: Sequence[ServerAddress], placed: dict[BlockKey, bytes]) -> None:
    """Wait until each of the servers finds all that was stored."""
    await asyncio.gather(
        *(find_soon(address, key, body) for address in addresses for key, body in placed.items())
    )


def make_servers(place: Path, count: int) -> tuple[list[Path], list[ServerAddress]]:
    """Make one server and copies of it, each with a port of its own; keys are made later."""
    first = place / "0"
    operate("init", "--data", str(first), "--listen", "127.0.0.1:0")
    with ExitStack() as stack:
        opened = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        ports = [each.getsockname()[1] for each in opened]
    text = (first / "config.toml").read_text()
    directories = [first, *(place / str(number) for number in range(1, count))]
    for directory, port in zip(directories, ports, strict=True):
        if directory != first:
            shutil.copytree(first, directory)
        bootstrap = f'dht_bootstrap = ["127.0.0.1:{ports[0]}"]'
        replicas = f"dht_replicas = {count // 2 + 1}"
        listening = text.replace("127.0.0.1:0", f"127.0.0.1:{port}")
        lines = (listening, *SETTINGS, replicas, bootstrap, "")
        (directory / "config.toml").write_text("\n".join(lines))
    return directories, [ServerAddress.parse(f"127.0.0.1:{port}") for port in ports]


@contextmanager
def running(directories: Sequence[Path]) -> Iterator[list["subprocess.Popen[str]"]]:
    """Run servers side by side, and stop those that are left in good order."""
    processes = [
        subprocess.Popen(
            sealmaild("run", "--data", str(directory)), stdout=subprocess.PIPE, text=True
        )
        for directory in directories
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("sealmaild: listening on 127.0.0.1:")
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            assert process.wait(60) in (0, -signal.SIGKILL)
            assert process.stdout is not None
            process.stdout.close()


async def store_all(servers: Sequence[ServerAddress], ann: User) -> dict[BlockKey, bytes]:
    """Store one value of each type at different servers; return what is to be found."""
    date = now()
    announced, claim = ann.announcement(date), ann.claim("ann@a.example", date=date)
    ack_key, ack = acknowledgment(1, date)
    mail_key, first = mail(1, RECIPIENT, date)
    _, second = mail(2, RECIPIENT, date)
    content = bytes(range(256)) * 256
    header = make_data_header(
        date, mint(data_challenge_prefix(date) + content, DHT_PRICE), len(content)
    )
    key = BlockKey(ann.key_id.raw)
    async with await connect(servers[0]) as remote:
        assert "DHT-VALUE" in await remote.capabilities()
        assert await remote.post(StoreEntangled(key), announced.lines) is Word.DONE
        assert await remote.verdict(block_digest(announced)) == Accepted()
        # The key that signed the claim is at hand here.
        claimed = address_key("ann@a.example")
        assert await remote.post(StoreEntangled(claimed), claim.lines) is Word.DONE
        assert await remote.verdict(block_digest(claim)) == Accepted()
        lines = split_lines(ack)
        assert await remote.post(StoreEntangled(ack_key), lines) is Word.DONE
    for server, body in zip(servers[1:3], (first, second), strict=True):
        async with await connect(server) as remote:
            assert await remote.post(StoreEntangled(mail_key), split_lines(body)) is Word.DONE
    async with await connect(servers[3]) as remote:
        done = await remote.post_data(
            StoreEntangled(data_key(content)), header.lines, len(content), (content,)
        )
        assert done is Word.DONE
        forged = (*announced.lines[:-4], announced.lines[-3], *announced.lines[-4:-3])
        assert await remote.post(StoreEntangled(key), (*forged, announced.lines[-1])) is Word.DONE
        await refuses_what_does_not_hold(remote, key, announced.lines, ack)
    ordered = sorted((first, second), key=lambda body: block_digest(parse_block(body)))
    text = {
        key: announced.lines,
        claimed: claim.lines,
        ack_key: lines,
        mail_key: (*split_lines(ordered[0]), "NextMessage", *split_lines(ordered[1])),
    }
    bodies = {
        each: "".join(f"{line}\r\n" for line in lines).encode() for each, lines in text.items()
    }
    header_text = "".join(f"{line}\r\n" for line in header.lines).encode()
    return {**bodies, data_key(content): header_text + content}


async def refuses_what_does_not_hold(
    remote: RemoteServer, key: BlockKey, lines: tuple[str, ...], ack: bytes
) -> None:
    """Another node's values are refused unless they hold, and given only from what is kept."""
    assert await remote.post(StoreDhtValue(BlockKey(bytes(20))), lines) is Word.FAILED
    assert await remote.post(StoreDhtValue(key), split_lines(ack)) is Word.FAILED
    cheap = acknowledgment(2, now(), price=DHT_PRICE.__class__(8, 2))
    assert await remote.post(StoreEntangled(cheap[0]), split_lines(cheap[1])) is Word.DONE
    verdict = await remote.verdict(block_digest(parse_block(cheap[1])))
    assert isinstance(verdict, Refused)
    assert await remote.fetch_body(GetDhtValue(key, bytes(32)), 2**20) is None


async def refuse_all(addresses: Sequence[ServerAddress], ann: User) -> None:
    """Have every server refuse what does not hold, whoever gives it, and say why."""
    date, address = now(), "eve@a.example"
    announced, claim = ann.announcement(date), ann.claim(address, date=date)
    elsewhere, claimed = BlockKey(bytes(range(20))), address_key(address)
    old = acknowledgment(11, date - timedelta(days=11))
    cheap = acknowledgment(12, date, DHT_PRICE.__class__(12, 2))
    key, ack = acknowledgment(13, date)
    later = (date + timedelta(minutes=1)).strftime("Date: %Y-%m-%dT%H:%M:%SZ")
    redated = [later if line.startswith("Date:") else line for line in split_lines(ack)]
    signed = claim.lines
    forged = [line.replace("eve@", "eva@") for line in signed]
    bad: list[tuple[BlockKey, Sequence[str], Refusal]] = [
        (old[0], split_lines(old[1]), Refusal.DATE),
        (cheap[0], split_lines(cheap[1]), Refusal.STAMP),
        (key, redated, Refusal.STAMP),
        (elsewhere, split_lines(ack), Refusal.KEY),
        (elsewhere, announced.lines, Refusal.SIGNATURE),
        (claimed, signed, Refusal.FORM),
        (claimed, (*forged, "NextClaim", *announced.lines), Refusal.KEY),
    ]

    async def refuse(address: ServerAddress) -> None:
        async with await connect(address) as remote:
            for key, lines, code in bad:
                assert await remote.post(StoreDhtValue(key), tuple(lines)) is Word.FAILED
                first = "\r\n".join(lines).partition("\r\nNextClaim")[0]
                body = f"{first}\r\n".encode()
                verdict = await remote.verdict(hashlib.sha256(body).digest())
                assert isinstance(verdict, Refused)
                assert verdict.code is code, (code, verdict)
                assert await remote.call(ListDhtValues(key)) is Word.NOT_FOUND

    await asyncio.gather(*map(refuse, addresses))


def test_a_server_without_the_dht_says_so(server: RunningServer) -> None:
    """FAILED to all of its commands, their bodies consumed, and no word in CAPABILITIES."""

    async def scenario() -> None:
        key, body = acknowledgment(3, now())
        async with await connect(server.address) as remote:
            assert "DHT-VALUE" not in await remote.capabilities()
            with pytest.raises(Unavailable):
                await remote.fetch(GetEntangled(key))
            with pytest.raises(Unavailable):
                await remote.fetch(GetDhtValue(key, bytes(32)))
            lines = decode_lines(body.removesuffix(b"\r\n").split(b"\r\n"))
            for command in (StoreEntangled(key), StoreDhtValue(key)):
                assert await remote.post(command, lines) is Word.FAILED
            assert await remote.ping("still here") == "still here"

    asyncio.run(scenario())
