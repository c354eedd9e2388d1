"""The journey of one mail, told by the installed programs themselves.

Two servers on loopback, a user on each; Alice finds Bob's key by his address, sends him a mail,
Bob fetches and reads it, and Alice sees it acknowledged. ``--keep`` leaves the servers up.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(sys.executable).parent
KEPT = Path(__file__).resolve().parent.parent / "build" / "run"
SUBJECT = "First light"
BODY = "Dear Bob, this mail was sealed before it left my machine. Yours, Alice"
# Below the default price, so that the story is not about waiting.
PRICE = "bd,28,2"
START_SECONDS = 20
PATIENCE_SECONDS = 30


@dataclass(frozen=True)
class Person:
    """A user of the story, at home on one of its servers."""

    name: str
    address: str
    home: Path
    server: "Server"


@dataclass(frozen=True)
class Server:
    """A server of the story."""

    letter: str
    directory: Path
    port: int

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"


def main() -> None:
    """Tell the story; any step that fails ends it with that step's output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--keep",
        metavar="DIRECTORY",
        nargs="?",
        const=KEPT,
        type=Path,
        help="keep the servers up until Ctrl-C, and their data for the next start",
    )
    kept: Path | None = parser.parse_args().keep
    # Stopped at whatever point, we stop our servers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    with ExitStack() as stack:
        if kept is not None:
            place = kept
            place.mkdir(parents=True, exist_ok=True)
        else:
            place = Path(tempfile.mkdtemp(prefix="sealmail-"))
            stack.callback(shutil.rmtree, place, ignore_errors=True)
        tell(place, stack, keep=kept is not None)


def tell(place: Path, stack: ExitStack, *, keep: bool) -> None:
    """Set the scene in ``place``, and let one mail travel."""
    chapter("Two servers that know nothing of each other")
    servers = [prepare_server(place, letter) for letter in "ab"]
    for server in servers:
        stack.enter_context(running(server))
    chapter("A user on each: a key pair is made, the key and the address are published")
    alice, bob = (
        settle(place, name, server) for name, server in zip(("Alice", "Bob"), servers, strict=True)
    )
    chapter("Alice looks Bob up: all she has is his address")
    show(sealmail(alice, "key", "find", bob.address, "--server", bob.server.address))
    chapter("Alice writes: sealed for Bob alone, stamped with his price, sent to his server")
    letter = ("--to", bob.address, "--server", bob.server.address)
    show(sealmail(alice, "send", *letter, "--subject", SUBJECT, "--message", BODY))
    chapter("Bob fetches: hashes checked, opened, signature verified, acknowledged")
    fetched = show(sealmail(bob, "fetch"))
    arrived = re.search(rf"^ *([0-9]+) .*{SUBJECT}", fetched, re.MULTILINE)
    if arrived is None:
        sys.exit("the mail did not arrive")
    show(sealmail(bob, "list"))
    read = show(sealmail(bob, "read", arrived[1]))
    if BODY not in " ".join(read.split()):
        sys.exit("the mail was not readable")
    chapter("Alice asks for acknowledgments: Bob's server has brought this one to hers")
    wait_for("acknowledged", sealmail(alice, "acks"))
    print("\nThe mail was delivered, verified and acknowledged.")
    if keep:
        stay(alice, bob, place)


def stay(alice: Person, bob: Person, place: Path) -> None:
    """Print what to try, and wait for Ctrl-C."""
    # SIGTERM ends the wait as Ctrl-C does, so that the servers are stopped in good order.
    awaited = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    print("\nThe servers stay up until Ctrl-C. In another terminal, try:\n")
    answer = ("send", "--to", alice.address, "--server", alice.server.address)
    for command in (
        sealmail(bob, *answer, "--subject", "Re: First light", "--message", "Hello Alice"),
        sealmail(alice, "fetch"),
        sealmail(alice, "list"),
        [*sealmail(alice, "read"), "NUMBER"],
        sealmail(bob, "acks"),
        sealmail(bob, "--help"),
    ):
        print(f"  {shlex.join(command)}")
    print(f"\nServers and users stay in {place}; `make clean` removes them.")
    sys.stdout.flush()
    signal.sigwait(awaited)
    print("\nstopping")


def prepare_server(place: Path, letter: str) -> Server:
    """Make a server once; on a later start it is there already."""
    directory = place / f"server-{letter}"
    config = directory / "config.toml"
    if not config.exists():
        port = free_port()
        arguments = ("init", "--data", str(directory), "--listen", f"127.0.0.1:{port}")
        show([str(PROGRAMS / "sealmaild"), *arguments, "--name", "localhost"], secret=True)
        # All servers of the story are on this machine.
        config.write_text(f"allow_private_targets = true\n{config.read_text()}")
    match = re.search(r'^listen = "127\.0\.0\.1:([0-9]+)"$', config.read_text(), re.MULTILINE)
    if match is None:
        sys.exit(f"{config} does not say where to listen")
    return Server(letter, directory, int(match[1]))


@contextmanager
def running(server: Server) -> Iterator[None]:
    """Run a server, and stop it in good order at the end."""
    auth_keys = server.directory / "auth-keys-of-the-story"
    # An empty one is from a start that was broken off.
    if not auth_keys.exists() or not auth_keys.read_text():
        command = [str(PROGRAMS / "sealmaild"), "account", "generate", "1"]
        auth_keys.touch(mode=0o600)
        auth_keys.write_text(show([*command, "--data", str(server.directory)], secret=True))
    command = [str(PROGRAMS / "sealmaild"), "run", "--data", str(server.directory)]
    print(f"$ {told(command)} &")
    # A session of its own: Ctrl-C is for us, and we stop the server.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        if "listening on" not in line:
            sys.exit(f"server {server.letter} did not start")
        print(f"  {line.strip()}")
        yield
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def settle(place: Path, name: str, server: Server) -> Person:
    """Make a user once, with an identity published on his server."""
    domain = f"{server.letter}.example"
    person = Person(name, f"{name.lower()}@{domain}", place / name.lower(), server)
    if not (person.home / "1" / "config.toml").exists():
        auth_key = (server.directory / "auth-keys-of-the-story").read_text().strip()
        identity = ("--name", name, "--address", person.address, "--price", PRICE)
        home = ("--server", server.address, "--allow-private-targets", "--no-passphrase")
        # Command lines are seen by every user of a machine, so the auth key is in none.
        show(sealmail(person, "init", *identity, *home), secret=True, auth_key=auth_key)
    return person


def sealmail(person: Person, *arguments: str) -> list[str]:
    """Return the command line of the user's program."""
    return [str(PROGRAMS / "sealmail"), "--home", str(person.home), *arguments]


def show(command: list[str], *, secret: bool = False, auth_key: str = "") -> str:
    """Print a command, run it, print what it says, and return that."""
    print(f"$ {told(command)}")
    environment = {**os.environ, **({"SEALMAIL_AUTH_KEY": auth_key} if auth_key else {})}
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment
    )
    said = done.stdout + done.stderr
    for line in said.rstrip().splitlines():
        print(f"  {hidden(line) if secret else line}")
    sys.stdout.flush()
    if done.returncode != 0:
        sys.exit(f"that step failed with exit code {done.returncode}")
    return done.stdout


def wait_for(word: str, command: list[str]) -> str:
    """Repeat a command until it says ``word``, then show it once: servers need a moment."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while word not in ask(command):
        if time.monotonic() > deadline:
            show(command)
            sys.exit(f"{word!r} was waited for in vain")
        time.sleep(0.3)
    return show(command)


def ask(command: list[str]) -> str:
    """Run a command, and return what it says, unseen."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.stdout


def told(command: list[str]) -> str:
    """Return a command as a reader would type it, without its directory."""
    return shlex.join([Path(command[0]).name, *command[1:]])


def hidden(text: str) -> str:
    """Keep auth keys, which are forty hex digits in upper case, out of the story."""
    return re.sub(r"(auth[- ]key:? )[0-9A-F]{40}|^[0-9A-F]{40}$", r"\1<auth key>", text)


def chapter(title: str) -> None:
    """Begin a part of the story."""
    print(f"\n== {title}")


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
