"""The journey of one mail, told by the installed programs themselves.

Three servers on loopback: one for Alice, and a pair for Bob. Alice finds Bob's key by his address,
sends him a mail, Bob fetches and reads it, and Alice sees it acknowledged. Then one server of the
pair is lost, mail goes on, and it comes back and catches up. ``--keep`` leaves the servers up.
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
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(sys.executable).parent
KEPT = Path(__file__).resolve().parent.parent / "build" / "run"
SUBJECT, SECOND, THIRD = "First light", "One is away", "While you were out"
BODY = "Dear Bob, this mail was sealed before it left my machine. Yours, Alice"
# Below the default price, so that the story is not about waiting.
PRICE = "bd,28,2"
START_SECONDS = 20
PATIENCE_SECONDS = 30


@dataclass(frozen=True)
class Person:
    """A user of the story, at home on one of its servers, or on a pair."""

    name: str
    address: str
    home: Path
    servers: tuple["Server", ...]

    @property
    def named(self) -> list[str]:
        """The options that say where the user lives."""
        return [word for server in self.servers for word in ("--server", server.address)]


@dataclass
class Server:
    """A server of the story."""

    letter: str
    directory: Path
    port: int
    process: "subprocess.Popen[str] | None" = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """Where it writes what would break into the story."""
        return self.directory.with_suffix(".log")

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = sealmaild(self, "run")
        print(f"$ {told(command)} &")
        # A session of its own: Ctrl-C is for us, and we stop the server.
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        line = self.process.stdout.readline() if self.process.stdout else ""
        if "listening on" not in line:
            sys.exit(f"server {self.letter} did not start: {self.log.read_text()}")
        print(f"  {line.strip()}")

    def stop(self) -> None:
        """Stop it in good order, if it runs."""
        process, self.process = self.process, None
        if process is not None:
            process.terminate()
            process.wait(START_SECONDS)


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
    chapter("Three servers: a is on its own, b and c are made a pair by one pasted code")
    a, b, c = (prepare_server(place, letter) for letter in "abc")
    for server in (a, b, c):
        stack.callback(server.stop)
        server.start()
    make_pair(b, c)
    chapter("A user on each side: a key pair is made, the key and the address are published")
    alice, bob = settle(place, "Alice", a), settle(place, "Bob", b, c)
    chapter("Alice looks Bob up: all she has is his address")
    show(sealmail(alice, "key", "find", bob.address, "--server", b.address))
    chapter(
        "Alice writes: sealed for Bob alone, stamped with his price, sent to one of his servers"
    )
    write(alice, bob, SUBJECT, BODY)
    chapter("Bob fetches: hashes checked, opened, signature verified, acknowledged")
    number = fetch(bob, SUBJECT)
    show(sealmail(bob, "list"))
    read = show(sealmail(bob, "read", number))
    if BODY not in " ".join(read.split()):
        sys.exit("the mail was not readable")
    chapter("Alice asks for acknowledgments: Bob's server has brought this one to hers")
    wait_for("acknowledged", sealmail(alice, "acks"))
    print("\nThe mail was delivered, verified and acknowledged.")
    lose_one(alice, bob)
    if keep:
        stay(alice, bob, place)


def lose_one(alice: Person, bob: Person) -> None:
    """Stop one of Bob's servers, go on, start it again, and rely on what it has caught up with."""
    b, c = bob.servers
    chapter("Server b is lost: mail goes on by server c")
    print(f"server b, {b.address}, is stopped")
    b.stop()
    write(alice, bob, SECOND, "Dear Bob, one of your servers is away. Yours, Alice")
    fetch(bob, SECOND)
    write(alice, bob, THIRD, "Dear Bob, this one waits for you. Yours, Alice")
    chapter("Server b comes back, and catches up with its partner")
    b.start()
    show(sealmaild(c, "pair", "sync"))
    chapter("Now server c is lost: what came while b was away is there all the same")
    print(f"server c, {c.address}, is stopped")
    c.stop()
    fetch(bob, THIRD)
    c.start()
    print("\nNeither loss was more than a pause: no mail is missing.")


def write(sender: Person, reader: Person, subject: str, text: str) -> None:
    """Send a mail, and see that it left."""
    letter = ("--to", reader.address, *reader.named, "--subject", subject, "--message", text)
    show(sealmail(sender, "send", *letter))


def fetch(reader: Person, subject: str) -> str:
    """Fetch new mail, and return the number of the one with ``subject``."""
    fetched = show(sealmail(reader, "fetch"))
    arrived = re.search(rf"^ *([0-9]+) .*{subject}", fetched, re.MULTILINE)
    if arrived is None:
        sys.exit("the mail did not arrive")
    return arrived[1]


def make_pair(first: Server, second: Server) -> None:
    """Make two servers a pair, once; on a later start they are one already."""
    if re.search(r'(?m)^partner = "[^"]', (first.directory / "config.toml").read_text()):
        return
    code = show(sealmaild(first, "pair", "--address", first.address), secret=True).strip()
    show(sealmaild(second, "pair", code, "--address", second.address), secret=True)


def stay(alice: Person, bob: Person, place: Path) -> None:
    """Print what to try, and wait for Ctrl-C."""
    # SIGTERM ends the wait as Ctrl-C does, so that the servers are stopped in good order.
    awaited = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    print("\nThe servers stay up until Ctrl-C. In another terminal, try:\n")
    answer = ("send", "--to", alice.address, *alice.named)
    for command in (
        sealmail(bob, *answer, "--subject", "Re: First light", "--message", "Hello Alice"),
        sealmail(alice, "fetch"),
        sealmail(alice, "list"),
        [*sealmail(alice, "read"), "NUMBER"],
        sealmail(bob, "acks"),
        sealmail(bob, "--help"),
    ):
        print(f"  {shlex.join(command)}")
    print(f"\nServers, their logs and users stay in {place}; `make clean` removes them.")
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


def settle(place: Path, name: str, *servers: Server) -> Person:
    """Make a user once, with an identity published on his servers."""
    domain = f"{servers[0].letter}.example"
    person = Person(name, f"{name.lower()}@{domain}", place / name.lower(), servers)
    if not (person.home / "1" / "config.toml").exists():
        auth_key = show(sealmaild(servers[0], "account", "generate", "1"), secret=True).strip()
        identity = ("--name", name, "--address", person.address, "--price", PRICE)
        home = (*person.named, "--allow-private-targets", "--no-passphrase")
        # Command lines are seen by every user of a machine, so the auth key is in none.
        show(sealmail(person, "init", *identity, *home), secret=True, auth_key=auth_key)
    return person


def sealmaild(server: Server, *words: str) -> list[str]:
    """Return the command line of the operator's program."""
    return [str(PROGRAMS / "sealmaild"), *words, "--data", str(server.directory)]


def sealmail(person: Person, *arguments: str) -> list[str]:
    """Return the command line of the user's program."""
    return [str(PROGRAMS / "sealmail"), "--home", str(person.home), *arguments]


def show(command: list[str], *, secret: bool = False, auth_key: str = "") -> str:
    """Print a command, run it, print what it says, and return that."""
    print(f"$ {hidden(told(command)) if secret else told(command)}")
    environment = {**os.environ, **({"SEALMAIL_AUTH_KEY": auth_key} if auth_key else {})}
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    for line in done.stdout.rstrip().splitlines():
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
    """Keep auth keys, which are forty hex digits in upper case, and codes out of the story."""
    text = re.sub(r"(auth[- ]key:? )[0-9A-F]{40}|^[0-9A-F]{40}$", r"\1<auth key>", text)
    return re.sub(r"\bsealmailpair1:[0-9A-Z]+", "<pairing code>", text, flags=re.IGNORECASE)


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
