"""How fast the server is, against what the same machine does without it, in one run.

One load generator, in a process of its own, asks in turn a bare asyncio TLS echo and a real
``sealmaild``. The store alone, an fsynced write, the hashes of a data block and the bare TLS
link say what the parts could do. All are measured in turn, three times, and the best of each
counts. Every figure of docs/benchmarks.md about the server is from here. ``--quick`` takes a
tenth of the requests.
"""

import asyncio
import hashlib
import itertools
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sealmail_pow import Difficulty, mint
from sealmail_protocol.canonical import block_digest
from sealmail_protocol.compose import make_announcement, make_data_header
from sealmail_protocol.dates import parse_date
from sealmail_protocol.fields import join_lines
from sealmail_protocol.keys import BlockKey, KeyId, data_key, mailbox_key
from sealmail_protocol.stamps import data_challenge_prefix, message_challenge
from sealmail_store import BlockStore, StoredEntry, Verdict

HERE = Path(__file__).resolve().parent
FLOOR = Difficulty(8, 2)
BLOCK = 8 * 1024 * 1024
READER = KeyId(b"\x5e" * 20)
Request = tuple[bytes, int]
# For one connection and for fifty.
Rates = tuple[float, float]
ROUNDS = 3


@dataclass(frozen=True)
class Place:
    """Where the run keeps its files, and how much it asks for."""

    directory: Path
    share: float
    date: str

    def count(self, whole: int) -> int:
        """Return how many requests to make of a kind."""
        return max(20, int(whole * self.share))


@dataclass(frozen=True)
class Target:
    """A server to be asked."""

    port: int
    mail: bool = False
    login: str = ""


def main() -> None:
    """Measure, and print one line for each figure."""
    share = 0.1 if "--quick" in sys.argv else 1.0
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sealmail-")))
        place = Place(directory, share, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        run(place, stack)


def run(place: Place, stack: ExitStack) -> None:
    """Prepare the servers, then measure small requests, bulk, and the parts."""
    data = place.directory / "server"
    _sealmaild("init", "--data", str(data), "--listen", "127.0.0.1:0")
    printed = _sealmaild("account", "add", READER.hex, "--data", str(data))
    auth_key = next(word for word in re.findall("[0-9A-F]{40}", printed) if word != READER.hex)
    certificate, key = _certificate(data)
    mail = Target(stack.enter_context(_serving(_run_server(data))), mail=True)
    reader = Target(mail.port, mail=True, login=f"{READER} {auth_key}")
    bare = {
        kind: Target(stack.enter_context(_serving(_run_bare(certificate, key, kind))))
        for kind in ("echo", "sink", "source")
    }
    stored = small_data(place, 500)
    ask(place, mail, [(body, 6) for body, _ in stored], 50, "DONE")
    gets = [get for _, get in stored]
    mails = announcements(place)
    echo, got, kept, own = best_of_rounds(
        lambda: rates(place, bare["echo"], [(bytes(1024), 1024)], 10_000, ""),
        lambda: rates(place, reader, gets, 6_000, "Type: data"),
        lambda: store_rates(place, mail, mails),
        lambda: (0.0, store_alone(place)),
    )
    print(f"{'a second':50} {'1 connection':>14} {'50 connections':>14}")
    print_rates("bare TLS echo of 1 KiB", echo)
    print_rates("GET of 1 KiB data", got)
    print_rates("durable STORE of a mail announcement", kept)
    print(f"{'the store alone, same entries, 50 at a time':50} {'':14} {own[1]:14,.0f}")
    print_ratio("GET, of the echo", got, echo)
    print_ratio("durable small STORE, of the echo", kept, echo)
    print(f"{'durable small STORE, of the store alone':50} {'':14} {kept[1] / own[1]:14.0%}")
    redis_rates(place, stack, certificate, key)
    bulk(place, mail, reader, bare)


def best_of_rounds(*measures: Callable[[], Rates]) -> list[Rates]:
    """Take all measures in turn, several times, and return the best of each.

    Whatever else the machine does slows one round of one measure, hardly all of them.
    """
    rounds = [[measure() for measure in measures] for _ in range(ROUNDS)]
    return [
        (max(one for one, _ in found), max(fifty for _, fifty in found))
        for found in zip(*rounds, strict=True)
    ]


def rates(place: Place, target: Target, requests: list[Request], count: int, begins: str) -> Rates:
    """Return requests a second, over one connection and over fifty."""
    found = []
    for connections, part in ((1, 5), (50, 1)):
        number = place.count(count // part)
        supply = [requests[index % len(requests)] for index in range(number)]
        found.append(number / ask(place, target, supply, connections, begins))
    return found[0], found[1]


def announcements(place: Place) -> Iterator[Request]:
    """Make STOREs of distinct announcements, without end."""
    for index in itertools.count():
        key, entry = announcement(place, index)
        yield f"STORE SERVER {key}\r\n".encode() + entry.header + b"EndBlock\r\n", 6


def store_rates(place: Place, target: Target, mails: Iterator[Request]) -> Rates:
    """Return durable STOREs a second, over one connection and over fifty."""
    found = []
    for connections, whole in ((1, 500), (50, 3_000)):
        requests = list(itertools.islice(mails, place.count(whole)))
        found.append(len(requests) / ask(place, target, requests, connections, "DONE"))
    return found[0], found[1]


def bulk(place: Place, mail: Target, reader: Target, bare: dict[str, Target]) -> None:
    """Measure 8 MiB blocks against the link, the disk and the hashes."""
    number = max(4, place.count(60) // 5)
    mebibytes = 8.0 * number
    fresh = itertools.count()

    def received() -> Rates:
        return mebibytes / ask(place, bare["sink"], [(bytes(BLOCK), 4)] * number, 1, "OK"), 0.0

    def sent() -> Rates:
        return mebibytes / ask(place, bare["source"], [(b"!", BLOCK)] * number, 1, ""), 0.0

    def kept_and_got() -> Rates:
        blocks = [large_data(place, next(fresh)) for _ in range(number)]
        stored = ask(place, mail, [(body, 6) for body, _ in blocks], 1, "DONE")
        got = ask(place, reader, [get for _, get in blocks], 1, "Type: data")
        return mebibytes / stored, mebibytes / got

    (sink, _), (source, _), (stores, gets), (disk, hashes) = best_of_rounds(
        received, sent, kept_and_got, lambda: (fsynced_writes(place, number), hash_rate(number))
    )
    print(f"\n{'MiB a second, 8 MiB blocks, 1 connection':50}")
    for name, value in (
        ("bare TLS link, received", sink),
        ("bare TLS link, sent", source),
        ("fsynced write of a file", disk),
        ("SHA-1 and two SHA-256 of the same bytes", hashes),
        ("durable STORE", stores),
        ("GET", gets),
    ):
        print(f"{name:50} {value:14,.0f}")
    print(f"{'STORE, of the slower of write and hashes':50} {stores / min(disk, hashes):14.0%}")
    print(f"{'GET, of the bare link':50} {gets / source:14.0%}")


def ask(
    place: Place, target: Target, requests: list[Request], connections: int, begins: str
) -> float:
    """Have the generator ask; return the seconds it took."""
    path = place.directory / "requests"
    with path.open("wb") as file:
        for request, answer in requests:
            file.write(struct.pack(">II", len(request), answer) + request)
    order = {
        "port": target.port,
        "mail": target.mail,
        "login": target.login,
        "requests": str(path),
        "connections": connections,
        "begins": begins,
    }
    done = subprocess.run(
        [sys.executable, str(HERE / "load_generator.py")],
        input=json.dumps(order) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return float(json.loads(done.stdout))


def small_data(place: Place, number: int) -> list[tuple[bytes, Request]]:
    """Return STORE bodies of 1 KiB data blocks, and the GET of each."""
    return [_data_block(place, index.to_bytes(4, "big") * 256) for index in range(number)]


def large_data(place: Place, index: int) -> tuple[bytes, Request]:
    """Return the STORE body of an 8 MiB block, and its GET."""
    seed = hashlib.sha256(index.to_bytes(4, "big")).digest()
    return _data_block(place, seed * (BLOCK // 32))


def _data_block(place: Place, data: bytes) -> tuple[bytes, Request]:
    date = parse_date(place.date)
    stamp = mint(data_challenge_prefix(date) + data, FLOOR)
    header = join_lines(make_data_header(date, stamp, len(data)).lines)
    key = data_key(data)
    get = (f"GET SERVER {key}\r\n".encode(), len(header) + len(data))
    return f"STORE SERVER {key}\r\n".encode() + header + data, get


def announcement(place: Place, index: int) -> tuple[BlockKey, StoredEntry]:
    """Return a mail announcement for the reader, and where it belongs."""
    date, data, mailbox = parse_date(place.date), data_key(str(index).encode()), str(index % 4)
    stamped = message_challenge(READER, data, date, (data,))
    block = make_announcement(date, mint(stamped, FLOOR), READER, mailbox, (data,), data)
    key, digest = mailbox_key(mailbox, READER), block_digest(block)
    header = join_lines(block.lines)
    entry = StoredEntry(
        block.type, key, digest, date, header, digest, 8, None, False, None, READER.raw, True, "b",
        block.data_blocks,
    )  # fmt: skip
    return key, entry


def store_alone(place: Place) -> float:
    """Return how many announcements a second the store commits for fifty callers."""
    entries = [announcement(place, -index)[1] for index in range(1, place.count(3_000) + 1)]

    async def keep(store: BlockStore, supply: Iterator[StoredEntry]) -> None:
        for entry in supply:
            verdict = Verdict(entry.digest, "ACCEPTED", entry.date)

            def work(view, entry=entry, verdict=verdict):  # type: ignore[no-untyped-def]
                view.put_entry(entry)
                view.put_verdict(verdict)

            await store.write(work)

    async def fill() -> float:
        alone = tempfile.mkdtemp(dir=place.directory)
        async with BlockStore.open(Path(alone), create=True) as store:
            supply, start = iter(entries), time.perf_counter()
            await asyncio.gather(*(keep(store, supply) for _ in range(50)))
            return len(entries) / (time.perf_counter() - start)

    return asyncio.run(fill())


def fsynced_writes(place: Place, number: int) -> float:
    """Return the MiB a second that reach the disk, a file and an fsync for each block."""
    data = bytes(BLOCK)
    start = time.perf_counter()
    for index in range(number):
        with (place.directory / f"file{index}").open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    return 8 * number / (time.perf_counter() - start)


def hash_rate(number: int) -> float:
    """Return the MiB a second of the three hashes that a data block needs."""
    data = memoryview(bytes(BLOCK))
    start = time.perf_counter()
    for _ in range(number):
        for new in (hashlib.sha1, hashlib.sha256, hashlib.sha256):
            new(data).digest()
    return 8 * number / (time.perf_counter() - start)


def redis_rates(place: Place, stack: ExitStack, certificate: Path, key: Path) -> None:
    """Print what Redis does with appendfsync always over TLS, where it is installed."""
    program = shutil.which("redis-server")
    if program is None:
        print(f"{'(Redis is not installed: no orientation by it)':50}")
        return
    with _free_port() as port:
        command = [program, "--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1"]
    command += ["--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
    command += ["--tls-auth-clients", "no", "--appendonly", "yes", "--appendfsync", "always"]
    command += ["--dir", str(place.directory), "--save", "", "--loglevel", "warning"]
    stack.enter_context(_process(command))
    time.sleep(1)
    sets = [
        (b"*3\r\n$3\r\nSET\r\n$8\r\n%08d\r\n$430\r\n%b\r\n" % (index, bytes(430)), 5)
        for index in range(2_000)
    ]
    name = "(Redis SET of 430 bytes, TLS, appendfsync always)"
    print_rates(name, rates(place, Target(port), sets, 6_000, "+"))


def print_rates(name: str, found: Rates) -> None:
    """Print one figure for each number of connections."""
    print(f"{name:50} {found[0]:14,.0f} {found[1]:14,.0f}")


def print_ratio(name: str, ours: Rates, theirs: Rates) -> None:
    """Print one share for each number of connections."""
    print(f"{name:50} {ours[0] / theirs[0]:14.0%} {ours[1] / theirs[1]:14.0%}")


def _sealmaild(*arguments: str) -> str:
    command = [sys.executable, "-m", "sealmail_server", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _run_server(data: Path) -> list[str]:
    return [sys.executable, "-m", "sealmail_server", "run", "--data", str(data)]


def _run_bare(certificate: Path, key: Path, kind: str) -> list[str]:
    return [sys.executable, str(HERE / "bare_server.py"), str(certificate), str(key), kind]


def _certificate(data: Path) -> tuple[Path, Path]:
    """Return the certificate and the key that ``init`` made."""
    texts = {path: path.read_text(errors="replace") for path in data.rglob("*") if path.is_file()}
    certificate = next(path for path, text in texts.items() if "BEGIN CERTIFICATE" in text)
    key = next(path for path, text in texts.items() if "PRIVATE KEY" in text)
    return certificate, key


@contextmanager
def _serving(command: list[str]) -> Iterator[int]:
    """Run a server, and give the port that it prints."""
    with _process(command) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"([0-9]+)\s*$", line)
        if not found:
            sys.exit(f"{command} printed {line!r}")
        yield int(found[1])


@contextmanager
def _process(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def _free_port() -> Iterator[int]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        yield found.getsockname()[1]


if __name__ == "__main__":
    main()
