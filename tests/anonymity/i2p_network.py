"""A private I2P network on loopback: i2pd routers that know each other and nobody else.

Nothing of it leaves the machine: every address is in 127/8, the network has an id of its own, and
nothing is reseeded or subscribed to.
"""

import base64
import hashlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.end_to_end.programs import free_port

from sealmail_protocol.addresses import ServerAddress

ROUTERS = 3
# Made by `make test-long`; the script says what it does.
FETCHED = Path(sys.prefix) / "i2pd"
OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"

# Two starts and tunnels, on a machine that is busy.
_PATIENCE = 150.0
# A fixed part, then a certificate: a byte for its type and two for its length.
_KEYS_SIZE, _CERTIFICATE_HEAD = 384, 3
# One hop is what three routers can build in all directions.
_LENGTHS = """\
inbound.length = 1
outbound.length = 1
inbound.quantity = 2
outbound.quantity = 2
"""
_CONFIG = """\
log = file
logfile = {directory}/i2pd.log
loglevel = warn
netid = 77
host = {host}
address4 = {host}
port = {port}
ipv4 = true
ipv6 = false
nat = false
reservedrange = false
floodfill = true
bandwidth = X
share = 100
[ntcp2]
enabled = true
published = true
[ssu2]
enabled = true
published = true
[http]
enabled = false
[httpproxy]
enabled = false
[sam]
enabled = false
[bob]
enabled = false
[i2cp]
enabled = false
[i2pcontrol]
enabled = false
[upnp]
enabled = false
[nettime]
enabled = false
[reseed]
verify = false
urls =
yggurls =
threshold = 0
[addressbook]
enabled = false
defaulturl =
subscriptions =
[persist]
profiles = false
[socksproxy]
enabled = true
address = 127.0.0.1
port = {socks}
{lengths}
[exploratory]
{lengths}
"""


def i2pd_program() -> Path:
    """Return the command that runs i2pd; skips, with the reason, where none can be had."""
    program, reason = FETCHED / "i2pd", FETCHED / "reason"
    if reason.exists():
        pytest.skip(f"no I2P: {reason.read_text().strip()}")
    assert program.exists(), f"run .ci/i2pd {FETCHED} first, as `make test-long` does"
    return program


def documented_tunnel(port: int) -> str:
    """Return the tunnel of docs/operations.md, to another port: an operator's has its own too."""
    block = re.search(r"\*\*I2P\.\*\*[^`]*(?:`[^`]+`[^`]*)*```\n(.*?)```", _page(), re.DOTALL)
    assert block is not None
    tunnel, count = re.subn(r"(?m)^port = 8082$", f"port = {port}", block[1])
    assert count == 1
    return tunnel


class I2pNetwork:
    """The routers; each has a SOCKS port and, if asked for, the documented tunnel to a port."""

    def __init__(self, base: Path, tunnels: Mapping[int, int]) -> None:
        """``tunnels`` says to which port of loopback the tunnel of a router leads."""
        self.base = base
        self._program = i2pd_program()
        self._tunnels = tunnels
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._socks = [free_port() for _ in range(ROUTERS)]

    def socks(self, router: int) -> str:
        """Return the SOCKS proxy of a router."""
        return f"127.0.0.1:{self._socks[router]}"

    def host(self, router: int) -> str:
        """Return the name under which the tunnel of a router is found, as its key file has it."""
        return f"{_base32(_hash_of(self._directory(router) / 'sealmail.dat'))}.b32.i2p"

    def start(self) -> None:
        """Start each router once to know it, tell all of all others, and start them for good."""
        for router in range(ROUTERS):
            self._write(router)
        introductions = [self._directory(router) / "router.info" for router in range(ROUTERS)]
        self._run()
        self._until("the routers have keys", lambda: all(map(_is_whole, introductions)))
        self.stop()
        for router in range(ROUTERS):
            for introduction in introductions:
                self._introduce(router, introduction)
        self._run()
        keys = [self._directory(router) / "sealmail.dat" for router in self._tunnels]
        self._until("the tunnels have keys", lambda: all(map(_is_whole, keys)))

    def stop(self) -> None:
        """End every router."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def end_router(self, router: int) -> None:
        """End one router, as a crash would."""
        process = self._processes.pop(router)
        process.kill()
        process.wait()

    def _write(self, router: int) -> None:
        directory = self._directory(router)
        (directory / "certificates").mkdir(parents=True)
        # Routers that share an address would not take each other for two.
        host = f"127.0.{router + 1}.1"
        config = _CONFIG.format(
            directory=directory,
            host=host,
            port=free_port(),
            socks=self._socks[router],
            lengths=_LENGTHS,
        )
        (directory / "i2pd.conf").write_text(config)
        port = self._tunnels.get(router)
        tunnels = documented_tunnel(port) + _LENGTHS if port else ""
        (directory / "tunnels.conf").write_text(tunnels)

    def _introduce(self, router: int, introduction: Path) -> None:
        """Put what one router says of itself where another keeps what it knows."""
        if introduction.parent == self._directory(router):
            return
        name = base64.b64encode(_hash_of(introduction), b"-~").decode()
        shelf = self._directory(router) / "netDb" / f"r{name[0]}"
        shelf.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(introduction, shelf / f"routerInfo-{name}.dat")

    def _run(self) -> None:
        for router in range(ROUTERS):
            directory = self._directory(router)
            options = {
                "datadir": directory,
                "conf": directory / "i2pd.conf",
                "tunconf": directory / "tunnels.conf",
                "tunnelsdir": directory / "none",
                "certsdir": directory / "certificates",
                "pidfile": directory / "pid",
            }
            with (directory / "output").open("ab") as output:
                self._processes[router] = subprocess.Popen(
                    [self._program, *(f"--{name}={value}" for name, value in options.items())],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )

    def _until(self, what: str, done: Callable[[], bool]) -> None:
        end = time.monotonic() + _PATIENCE
        while not done():
            for router, process in self._processes.items():
                output = self._directory(router) / "output"
                assert process.poll() is None, output.read_text()[-800:]
            assert time.monotonic() < end, f"in vain until {what}"
            time.sleep(0.1)

    def _directory(self, router: int) -> Path:
        return self.base / f"router{router}"


@contextmanager
def i2p_network(tunnels: Mapping[int, int]) -> Iterator[I2pNetwork]:
    """Run a network of routers; ``tunnels`` as ``I2pNetwork`` takes them."""
    base = Path(tempfile.mkdtemp(prefix="smi2p-"))
    network = I2pNetwork(base, tunnels)
    try:
        network.start()
        yield network
    finally:
        network.stop()
        shutil.rmtree(base)


def address_of(network: I2pNetwork, router: int) -> ServerAddress:
    """Return where the server behind the tunnel of a router is found."""
    return ServerAddress(network.host(router), 8081)


def _page() -> str:
    return OPERATIONS.read_text()


def _is_whole(path: Path) -> bool:
    """Tell whether a file with an identity at its beginning has been written."""
    return path.exists() and path.stat().st_size > _KEYS_SIZE + _CERTIFICATE_HEAD


def _hash_of(path: Path) -> bytes:
    """Return the hash of the identity at the beginning of a file, by which I2P names it."""
    content = path.read_bytes()
    head = _KEYS_SIZE + _CERTIFICATE_HEAD
    length = head + int.from_bytes(content[head - 2 : head])
    return hashlib.sha256(content[:length]).digest()


def _base32(digest: bytes) -> str:
    return base64.b32encode(digest).decode().lower().rstrip("=")
