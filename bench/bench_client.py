"""What a mail costs the client, against what it is made of, in one run on the same cores.

A large attachment is sealed and sent, then fetched and opened, with a real ``sealmaild`` beside
it. Compared with that are gpg alone on the same ZIP from and to files, minting the stamps of its
blocks alone, and a bare TLS transfer whose receiver fsyncs. Then small mails, against the gpg
calls that each needs. Every figure of docs/benchmarks.md about the client is from here.

``--mib`` lists sizes (1024 4096): the first is compared, of the others time and memory are told.
``--mails N`` is the number of small mails (1000); none and 0 leave a part out. ``--quick`` is
``--mib 64 128 --mails 20``. Of the largest size, six copies lie on the disk for a moment.
"""

import argparse
import asyncio
import json
import os
import re
import secrets
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sealmail_client.desk import Desk, open_desk, utc_now
from sealmail_client.drafts import Addressee, Draft
from sealmail_client.household import Household
from sealmail_client.outbox import Stage
from sealmail_client.receiving import Receiver
from sealmail_client.sending import Sender
from sealmail_pow import Difficulty, mint
from sealmail_protocol.stamps import data_challenge_prefix

PROGRAMS = Path(sys.executable).parent
BLOCK = 8 * 1024 * 1024
FLOOR = Difficulty(8, 2)
# What the client's tasks are called in docs/benchmarks.md, by the first word of their label, in
# the order of their beginnings. They overlap: each is from its first to its last moment, with
# what it waits for, and those of a kind are added up.
STAGES = {
    "signing": "signing, with packing the ZIP",
    "sealing": "encrypting; pieces are hashed beside it",
    "cutting": "hashing what was left",
    "syncing": "bringing the seal to the disk",
    "stamping": "minting",
    "sending": "sending what was left, with stamps waited for",
    "posting": "sending, blocks alone",
    "fetching": "fetching",
    "opening": "opening, with blocks waited for",
    "verifying": "verifying, with blocks waited for",
    "filing": "filing",
    "acknowledging": "minting",
}
PRICE = "bd,20,2"
BOB = "bob@b.example"


class Stopwatch:
    """Watches the client's tasks, and adds up how long those of each kind take."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def task(self, label: str, *, brief: bool = False) -> Iterator[Callable[[float], None]]:
        """Time one task by the first word of its label."""
        del brief
        start = time.perf_counter()
        yield lambda _done: None
        seconds, kind = time.perf_counter() - start, label.split()[0]
        with self._lock:
            self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds


def main() -> None:
    """Measure, and print one line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, nargs="*", default=[1024, 4096])
    parser.add_argument("--mails", type=int, default=1000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    said = parser.parse_args()
    if said.part:
        _part(*said.part)
        return
    sizes, mails = ([64, 128], 20) if said.quick else (said.mib, said.mails)
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="smb-")))
        print(f"load before: {_load()} on {os.cpu_count()} cores")
        alice, bob, data = _settle(place, stack)
        # The first mail brings the key of its sender along.
        _run("send-small", str(alice), "1")
        _run("fetch", str(bob))
        for number, mib in enumerate(sizes):
            _large(place, alice, bob, data, mib, compared=number == 0)
        if mails:
            _small(alice, bob, mails)
        print(f"load after: {_load()}")


# One large mail.


def _large(place: Path, alice: Path, bob: Path, data: Path, mib: int, *, compared: bool) -> None:
    attachment = place / "attachment.bin"
    with attachment.open("wb") as file:
        for _ in range(mib):
            file.write(secrets.token_bytes(1024 * 1024))
    sent = _run("send", str(alice), str(attachment))
    attachment.unlink()
    got = _run("fetch", str(bob))
    zip_file = _newest(alice / "1" / "mail", "message.zip")
    sealed = _newest(alice / "1" / "outgoing", "sealed.pgp")
    blocks = -(-sealed.stat().st_size // BLOCK)
    print(f"\none mail of {mib} MiB, {blocks} blocks; load {_load()}")
    _tell("seal and send", sent)
    if compared:
        parts = {
            "gpg sign": _gpg(alice, place, zip_file, "--detach-sign"),
            "gpg encrypt": _gpg(alice, place, zip_file, *_sealing(bob)),
            "mint": _minting(sealed),
            "transfer": _transfer(place, sealed, data),
        }
        _compare(sent, parts)
    _tell("fetch and open", got)
    if compared:
        opening = {
            "gpg decrypt": _gpg(bob, place, sealed, "--decrypt"),
            "gpg verify": _verifying(bob, zip_file),
            "transfer": parts["transfer"],
        }
        _compare(got, opening)


def _newest(directory: Path, name: str) -> Path:
    return max(directory.glob(f"*/{name}"), key=lambda path: path.stat().st_mtime_ns)


def _tell(what: str, measured: dict[str, float]) -> None:
    total, peak = measured["total"], measured["peak_mib"]
    print(f"{what}: {total:.1f} s; peak memory {peak:.0f} MiB, without gpg's")
    for name, stage in STAGES.items():
        if name in measured:
            print(f"    stage {measured[name]:7.1f} s  {stage}")


def _compare(measured: dict[str, float], parts: dict[str, float]) -> None:
    for name, seconds in parts.items():
        print(f"    alone {seconds:7.1f} s  {name}")
    whole, longest, together = measured["total"], max(parts.values()), sum(parts.values())
    print(f"    {whole / longest:.2f} times the longest, {whole / together:.2f} times the sum")


def _sealing(bob: Path) -> tuple[str, ...]:
    key = Household(bob).choose().settings.key_id.hex
    trust = ("--trust-model", "always", "--throw-keyids", "-z", "0")
    return (*trust, "--recipient", key, "--encrypt")


def _gpg(home: Path, place: Path, source: Path, *arguments: str) -> float:
    target = place / "gpg.out"
    options = ("--batch", "--yes", "--quiet", "--no-options", "--disable-dirmngr")
    command = ["gpg", "--homedir", str(home / "1" / "gnupg"), *options, "--output", str(target)]
    start = time.perf_counter()
    subprocess.run([*command, *arguments, str(source)], check=True, capture_output=True)
    seconds = time.perf_counter() - start
    target.unlink()
    return seconds


def _verifying(home: Path, zip_file: Path) -> float:
    command = ["gpg", "--homedir", str(home / "1" / "gnupg"), "--batch", "--no-options"]
    start = time.perf_counter()
    signature = zip_file.with_name("message.sig")
    subprocess.run(
        [*command, "--verify", str(signature), str(zip_file)], check=True, capture_output=True
    )
    return time.perf_counter() - start


def _minting(sealed: Path) -> float:
    prefix, seconds = data_challenge_prefix(utc_now()), 0.0
    with sealed.open("rb") as source:
        while piece := source.read(BLOCK):
            challenge = prefix + piece
            start = time.perf_counter()
            mint(challenge, FLOOR)
            seconds += time.perf_counter() - start
    return seconds


def _transfer(place: Path, sealed: Path, data: Path) -> float:
    """Send the file through TLS to a process that writes and fsyncs every block."""
    command = [sys.executable, __file__, "--part", "sink", str(data), str(place / "sunk")]
    sink = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert sink.stdout is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", int(sink.stdout.readline()))) as plain:
        start = time.perf_counter()
        with context.wrap_socket(plain) as link, sealed.open("rb") as source:
            while chunk := source.read(256 * 1024):
                link.sendall(chunk)
    sink.wait()
    seconds = time.perf_counter() - start
    sink.stdout.close()
    (place / "sunk").unlink()
    return seconds


# Small mails.


def _small(alice: Path, bob: Path, count: int) -> None:
    sent = _run("send-small", str(alice), str(count))
    got = _run("fetch", str(bob))
    calls = _gpg_calls(alice, bob, min(count, 50))
    print(f"\n{count} small mails; load {_load()}")
    for what, measured, names in (
        ("sent", sent, ("sign", "encrypt")),
        ("fetched", got, ("decrypt", "verify")),
    ):
        least = sum(calls[name] for name in names)
        each = measured["total"] / count
        _tell(what, measured)
        print(
            f"{what}: {1 / each:.1f} mails a second; gpg {' and '.join(names)} alone would be "
            f"{1 / least:.1f}: {each / least:.2f} times their cost"
        )


def _gpg_calls(alice: Path, bob: Path, count: int) -> dict[str, float]:
    """Return the seconds of one call of each kind on a small file, on average."""
    with tempfile.TemporaryDirectory() as directory:
        small = Path(directory) / "small"
        small.write_bytes(secrets.token_bytes(3000))
        sums = dict.fromkeys(("sign", "encrypt", "decrypt", "verify"), 0.0)
        zips = (alice / "1" / "mail").glob("*/message.zip")
        zip_file = min(zips, key=lambda path: path.stat().st_size)
        seals = (alice / "1" / "outgoing").glob("*/sealed.pgp")
        sealed = min(seals, key=lambda path: path.stat().st_size)
        for _ in range(count):
            sums["sign"] += _gpg(alice, Path(directory), small, "--detach-sign")
            sums["encrypt"] += _gpg(alice, Path(directory), small, *_sealing(bob))
            sums["decrypt"] += _gpg(bob, Path(directory), sealed, "--decrypt")
            sums["verify"] += _verifying(bob, zip_file)
        return {name: seconds / count for name, seconds in sums.items()}


# Parts that run in a process of their own, so that their memory is theirs alone.


def _run(*words: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--part", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _part(name: str, *words: str) -> None:
    if name == "sink":
        _sink(Path(words[0]), Path(words[1]))
        return
    stopwatch = Stopwatch()
    home = Household(Path(words[0])).choose().home
    start = time.perf_counter()
    with open_desk(home, alone=True, watcher=stopwatch) as desk:
        if name == "send":
            asyncio.run(_send(desk, (Path(words[1]),), 1))
        elif name == "send-small":
            asyncio.run(_send(desk, (), int(words[1])))
        else:
            asyncio.run(_fetch(desk))
    total = time.perf_counter() - start
    print(json.dumps({"total": total, "peak_mib": _peak_mib(), **stopwatch.seconds}))


def _peak_mib() -> float:
    """Return the largest memory of this process; ``getrusage`` would count its parent's too."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


async def _send(desk: Desk, files: tuple[Path, ...], count: int) -> None:
    key_id = desk.correspondents.trusted_key(BOB)
    assert key_id is not None
    to = Addressee(BOB, key_id, f"Bob <{BOB}>")
    for _ in range(count):
        draft = Draft(secrets.token_hex(20), "A benchmark", "A few words.\n" * 40, (to,), files)
        desk.outbox.add(draft, desk.clock())
    await Sender(desk).work()
    unsent = [message for message in desk.outbox.all() if not message.at(Stage.SENT)]
    assert not unsent, unsent


async def _fetch(desk: Desk) -> None:
    async with desk.servers.home() as peer:
        arrivals = await Receiver(desk).visit(peer, everything=True)
    assert arrivals.filed, arrivals
    assert not arrivals.waiting, arrivals


def _sink(data: Path, target: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(data / "tls" / "server.crt", data / "tls" / "server.key")
    with socket.create_server(("127.0.0.1", 0)) as server, target.open("wb") as file:
        print(server.getsockname()[1], flush=True)
        with context.wrap_socket(server.accept()[0], server_side=True) as link:
            unsynced = 0
            while chunk := link.recv(256 * 1024):
                file.write(chunk)
                unsynced += len(chunk)
                if unsynced >= BLOCK:
                    file.flush()
                    os.fsync(file.fileno())
                    unsynced = 0
            file.flush()
            os.fsync(file.fileno())


# The server and its users.


def _settle(place: Path, stack: ExitStack) -> tuple[Path, Path, Path]:
    data, address = place / "server", f"127.0.0.1:{_free_port()}"
    _program("sealmaild", "init", "--data", str(data), "--listen", address)
    config = data / "config.toml"
    config.write_text(re.sub(r"(?m)^quota = .*$", "quota = 68719476736", config.read_text()))
    keys = _program("sealmaild", "account", "generate", "2", "--data", str(data)).split()
    command = [str(PROGRAMS / "sealmaild"), "run", "--data", str(data)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    stack.callback(server.wait)
    stack.callback(server.terminate)
    assert server.stdout is not None
    server.stdout.readline()
    drain = threading.Thread(target=server.stdout.read, daemon=True)
    drain.start()
    homes = []
    for name, key in zip(("alice@a.example", BOB), keys, strict=True):
        home = place / name[0]
        home_options = ("--server", address, "--allow-private-targets", "--no-passphrase")
        words = ("init", "--name", name[0], "--address", name, "--price", PRICE, *home_options)
        _program("sealmail", "--home", str(home), *words, "--auth-key", key)
        homes.append(home)
    _program("sealmail", "--home", str(homes[0]), "key", "find", BOB)
    return homes[0], homes[1], data


def _program(name: str, *words: str) -> str:
    command = [str(PROGRAMS / name), *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _load() -> str:
    return " ".join(f"{one:.1f}" for one in os.getloadavg())


if __name__ == "__main__":
    main()
