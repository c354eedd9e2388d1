"""A private Tor network on loopback: authorities, exits, a client and a host of onion services.

Nothing of it leaves the machine: every address is 127.0.0.1, and exits look up no names.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

AUTHORITIES, RELAYS = 3, 3
# A start of tor and three votes, on a machine that is busy.
_PATIENCE = 150.0

_COMMON = """\
TestingTorNetwork 1
DataDirectory {directory}
RunAsDaemon 0
Nickname {nick}
Log notice file {directory}/notice.log
ShutdownWaitLength 0
ConnLimit 60
ControlPort 0
ControlSocket {directory}/control RelaxDirModeCheck
CookieAuthentication 1
__OwningControllerProcess {owner}
OutboundBindAddress 127.0.0.1
PathsNeededToBuildCircuits 0.67
LearnCircuitBuildTimeout 0
CircuitBuildTimeout 10
ClientUseIPv6 0
VanguardsLiteEnabled 0
{authorities}
"""
_RELAY = """\
SocksPort 0
Address 127.0.0.1
AddressDisableIPv6 1
ORPort 127.0.0.1:{or_port} IPv4Only
ExitRelay {exit}
ExitPolicy {policy}
ExitPolicyRejectPrivate 0
AssumeReachable 1
ServerDNSDetectHijacking 0
ServerDNSAllowBrokenConfig 1
ServerDNSTestAddresses
ServerDNSResolvConfFile {base}/resolv.conf
ExtendAllowPrivateAddresses 1
"""
_AUTHORITY = """\
DirPort 127.0.0.1:{dir_port} IPv4Only
AuthoritativeDirectory 1
V3AuthoritativeDirectory 1
ContactInfo test@localhost.invalid
TestingV3AuthInitialVotingInterval 5
TestingV3AuthInitialVoteDelay 2
TestingV3AuthInitialDistDelay 2
V3AuthVotingInterval 10
V3AuthVoteDelay 2
V3AuthDistDelay 2
TestingDirAuthVoteExit *
TestingDirAuthVoteGuard *
TestingDirAuthVoteHSDir *
TestingMinExitFlagThreshold 0
ConsensusParams cc_alg=2
"""
_CLIENT = "SocksPort {socks}\n"
_HOST = "SocksPort 0\nCookieAuthentication 0"


class TorNetwork:
    """The processes; ``socks_port`` is that of the client, ``control`` that of the onion host."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._authorities = [f"auth{number}" for number in range(AUTHORITIES)]
        self._relays = [f"exit{number}" for number in range(RELAYS)]
        ports = iter(_free_ports(AUTHORITIES * 2 + RELAYS + 1))
        self._or_ports = {nick: next(ports) for nick in (*self._authorities, *self._relays)}
        self._dir_ports = {nick: next(ports) for nick in self._authorities}
        self.socks_port = next(ports)
        self._lines = ""
        self._passwords: dict[str, str] = {}

    @property
    def control(self) -> Path:
        """Return the control socket of the host of onion services."""
        return self.base / "host" / "control"

    def start(self) -> None:
        """Start everything in its order; clients that come before a consensus give up for long."""
        (self.base / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        for nick in (*self._authorities, *self._relays, "client", "host"):
            (self.base / nick / "keys").mkdir(mode=0o700, parents=True)
            (self.base / nick).chmod(0o700)
        self._lines = self._authority_lines()
        for nick in self._authorities:
            self._run(nick, _RELAY + _AUTHORITY, exit=0, policy="reject *:*")
        for nick in self._authorities:
            self._until(f"{nick} listens", partial(_listens, self._dir_ports[nick]))
        for nick in self._relays:
            self._run(nick, _RELAY, exit=1, policy="accept *:*")
        for nick in self._authorities:
            self._until(f"{nick} knows all", partial(self._knows_all, nick))
        self._run("client", _CLIENT, socks=f"127.0.0.1:{self.socks_port}")
        self._run("host", _CLIENT, socks="0")
        for nick in ("client", "host"):
            self._until(f"{nick} is ready", partial(self._bootstrapped, nick))

    def restart_host(self) -> None:
        """End the host of onion services, as a crash would, and start it again."""
        process = self._processes.pop("host")
        process.kill()
        process.wait()
        self._run("host", _CLIENT, socks="0")
        self._until("the host is ready", lambda: self._bootstrapped("host"))

    def add_host(self, nick: str, password: str, lines: Sequence[str]) -> Path:
        """Run another host, with these lines in its torrc too; return its directory.

        Its control socket, ``control``, is opened by the password and by nothing else.
        """
        directory = self.base / nick
        (directory / "keys").mkdir(mode=0o700, parents=True)
        directory.chmod(0o700)
        hashed = subprocess.run(
            [*_tor(directory), "--quiet", "--hash-password", password],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        self._passwords[nick] = password
        role = "\n".join((_HOST, f"HashedControlPassword {hashed}", *lines, ""))
        self._run(nick, role)
        self._until(f"{nick} is ready", partial(self._bootstrapped, nick))
        return directory

    def stop(self) -> None:
        """End every process."""
        for process in self._processes.values():
            process.send_signal(signal.SIGINT)
        for process in self._processes.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _authority_lines(self) -> str:
        """Make the keys of the authorities, and return the lines by which all know them."""
        making = [self._make_keys(nick) for nick in self._authorities]
        for process in making:
            assert process.wait(60) == 0
        return "\n".join(map(self._authority_line, self._authorities))

    def _make_keys(self, nick: str) -> "subprocess.Popen[bytes]":
        keys = self.base / nick / "keys"
        command = ["tor-gencert", "--create-identity-key", "--passphrase-fd", "0", "-m", "12"]
        for option, name in (("-i", "identity_key"), ("-s", "signing_key"), ("-c", "certificate")):
            command += [option, str(keys / f"authority_{name}")]
        command += ["-a", f"127.0.0.1:{self._dir_ports[nick]}"]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        assert process.stdin is not None
        process.stdin.write(b"passphrase\n")
        process.stdin.close()
        return process

    def _authority_line(self, nick: str) -> str:
        directory = self.base / nick
        options = ["--quiet", "--list-fingerprint", "--ORPort", "1", "--Nickname", nick]
        dummy = "dummy 127.0.0.1:1 ffffffffffffffffffffffffffffffffffffffff"
        listed = subprocess.run(
            [
                *_tor(directory),
                *options,
                "--DataDirectory",
                str(directory),
                "--DirAuthority",
                dummy,
            ],
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
        fingerprint = re.search(rf"(?m)^{nick} ((?:[0-9A-F]{{4}} ?){{10}})\s*$", listed)
        certificate = (directory / "keys" / "authority_certificate").read_text()
        identity = re.search(r"(?m)^fingerprint ([0-9A-F]{40})$", certificate)
        assert fingerprint is not None, listed
        assert identity is not None
        return (
            f"DirAuthority {nick} orport={self._or_ports[nick]} v3ident={identity[1]} "
            f"127.0.0.1:{self._dir_ports[nick]} {fingerprint[1].replace(' ', '')}"
        )

    def _run(self, nick: str, role: str, **values: object) -> None:
        directory = self.base / nick
        torrc = (_COMMON + role).format(
            directory=directory,
            base=self.base,
            nick=nick,
            owner=os.getpid(),
            authorities=self._lines,
            or_port=self._or_ports.get(nick),
            dir_port=self._dir_ports.get(nick),
            **values,
        )
        (directory / "torrc").write_text(torrc)
        with (directory / "output").open("wb") as output:
            self._processes[nick] = subprocess.Popen(
                _tor(directory), stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    def _until(self, what: str, done: Callable[[], bool]) -> None:
        end = time.monotonic() + _PATIENCE
        while not done():
            for nick, process in self._processes.items():
                output = self.base / nick / "output"
                assert process.poll() is None, f"{nick}: {output.read_text()[-800:]}"
            assert time.monotonic() < end, f"in vain until {what}"
            time.sleep(0.1)

    def _knows_all(self, nick: str) -> bool:
        """Return whether an authority's consensus has every relay, and the exits as such."""
        known: dict[str, set[str]] = {}
        name = ""
        for line in self._asked(nick, "GETINFO ns/all"):
            if line.startswith("r "):
                name = line.split()[1]
            elif line.startswith("s "):
                known[name] = set(line.split())
        ready = {"Running", "HSDir"}
        return all(ready <= known.get(relay, set()) for relay in self._authorities) and all(
            ready | {"Exit"} <= known.get(relay, set()) for relay in self._relays
        )

    def _bootstrapped(self, nick: str) -> bool:
        phase = self._asked(nick, "GETINFO status/bootstrap-phase")
        return any("PROGRESS=100" in line for line in phase)

    def _asked(self, nick: str, question: str) -> Sequence[str]:
        """Ask a tor by its control socket; nothing if it does not answer yet."""
        directory = self.base / nick
        lines: list[str] = []
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as control:
            control.settimeout(10)
            control.connect(str(directory / "control"))
            if nick in self._passwords:
                secret = f'"{self._passwords[nick]}"'
            else:
                secret = (directory / "control_auth_cookie").read_bytes().hex()
            control.sendall(f"AUTHENTICATE {secret}\r\n{question}\r\nQUIT\r\n".encode())
            with control.makefile() as answer:
                lines = [line.rstrip() for line in answer]
        return lines


@contextmanager
def tor_network() -> Iterator[TorNetwork]:
    """Run a network; its directory has a short path, for the sockets."""
    base = Path(tempfile.mkdtemp(prefix="smtor-"))
    network = TorNetwork(base)
    try:
        network.start()
        yield network
    finally:
        network.stop()
        shutil.rmtree(base)


def _tor(directory: Path) -> list[str]:
    files = ["-f", str(directory / "torrc"), "--defaults-torrc", str(directory / "none")]
    return ["tor", *files, "--ignore-missing-torrc"]


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
