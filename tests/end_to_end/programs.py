"""The installed programs, as an operator and a user start them."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any, TypeVar

from click.testing import CliRunner

from sealmail_client.answers import read_entries
from sealmail_client.cli import main
from sealmail_client.desk import utc_now
from sealmail_client.profile import Home
from sealmail_net.dialing import DialSettings, dial
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.blocks import MessageAnnouncement
from sealmail_protocol.keys import KeyId, mailbox_key

T = TypeVar("T")

PROGRAMS = Path(sys.executable).parent
# Below the default, so that nothing waits.
PRICE = "bd,20,2"
SECONDS = 60


@dataclass
class Server:
    """A ``sealmaild`` in a process of its own."""

    directory: Path
    address: ServerAddress
    auth_keys: list[str] = field(repr=False)
    process: "subprocess.Popen[str] | None" = None

    @classmethod
    def create(cls, directory: Path) -> "Server":
        """Make a server on a free port, and auth keys for its users."""
        address = f"127.0.0.1:{free_port()}"
        _sealmaild("init", "--data", str(directory), "--listen", address)
        allow_private_targets(directory)
        auth_keys = _sealmaild("account", "generate", "64", "--data", str(directory)).split()
        return cls(directory, ServerAddress.parse(address), auth_keys)

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [str(PROGRAMS / "sealmaild"), "run", "--data", str(self.directory)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert "listening" in self.process.stdout.readline()

    def stop(self) -> None:
        """Stop it in good order."""
        if self.process is None:
            return
        self.process.terminate()
        assert self.process.wait(SECONDS) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None


@dataclass(frozen=True)
class Done:
    """What a program left behind."""

    exit_code: int
    output: str
    complaint: str

    @property
    def value(self) -> Any:
        """Return the JSON that was printed."""
        return json.loads(self.output)


@dataclass(frozen=True)
class User:
    """Somebody with a home, who uses ``sealmail``."""

    name: str
    address: str
    directory: Path
    server: Server

    @classmethod
    def settle(
        cls,
        place: Path,
        name: str,
        address: str,
        server: Server,
        price: str = PRICE,
        *,
        reached_at: Sequence[ServerAddress] = (),
        ways: Sequence[str] = (),
    ) -> "User":
        """Make an identity, published on its server.

        ``reached_at`` are other addresses of that server, ``ways`` further options of ``init``.
        """
        user = cls(name, address, _unused(place / name.lower()), server)
        identity = ("--name", name, "--address", address, "--price", price)
        # Only tests that run a name server ask one.
        home = ["--allow-private-targets", "--dns", "off", *ways]
        for one in reached_at or (server.address,):
            home += ["--server", str(one)]
        auth_key = server.auth_keys.pop()
        done = user.runs(
            "init",
            *identity,
            *home,
            "--no-passphrase",
            environment={"SEALMAIL_AUTH_KEY": auth_key},
        )
        assert done.exit_code == 0, done
        return user

    @classmethod
    def settle_in_dht(
        cls, place: Path, name: str, address: str, *doors: Server, price: str = PRICE
    ) -> "User":
        """Make an identity that lives in the DHT, reached by any of ``doors``."""
        user = cls(name, address, _unused(place / name.lower()), doors[0])
        named = [word for door in doors for word in ("--entangled", str(door.address))]
        identity = ("--name", name, "--address", address, "--price", price, "--no-passphrase")
        local = ("--allow-private-targets", "--dns", "off")
        done = user.runs("init", *identity, *local, *named)
        assert done.exit_code == 0, done
        return user

    @property
    def home(self) -> Path:
        """Return where the user's first identity lies."""
        return self.directory / "1"

    @property
    def key_id(self) -> KeyId:
        """Return the fingerprint of the user's key."""
        return Home(self.home).load().key_id

    def command(self, *arguments: str) -> list[str]:
        """Return a command line of the program."""
        return [str(PROGRAMS / "sealmail"), "--home", str(self.directory), *arguments]

    def tries(self, *arguments: str) -> Done:
        """Give a command, whatever comes of it.

        It runs in this process, which spares the program's start; ``runs`` does not.
        """
        result = CliRunner().invoke(main, self.command(*arguments)[1:], prog_name="sealmail")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Done(result.exit_code, result.stdout, result.stderr)

    def runs(self, *arguments: str, environment: dict[str, str] | None = None) -> Done:
        """Give a command to the installed program."""
        done = subprocess.run(
            self.command(*arguments),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
            env={**os.environ, **(environment or {})},
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def does(self, *arguments: str) -> Done:
        """Give a command that must succeed."""
        done = self.tries(*arguments)
        assert done.exit_code == 0, done
        return done

    def is_killed_at(self, query: str, *arguments: str, again: bool = False) -> None:
        """Give a command, and kill the program as soon as ``query`` finds a row that is new.

        A program that ends before that is a failure, unless it is to be tried ``again``. What is
        soon over should be throttled.
        """
        deadline = time.monotonic() + SECONDS
        uri = f"file:{self.home / 'mail.sqlite'}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as database:
            while (code := self._dies_at(database, query, *arguments)) != -signal.SIGKILL:
                assert again, f"{arguments[0]} ended with {code} before it was killed"
                assert time.monotonic() < deadline, query

    def _dies_at(self, database: sqlite3.Connection, query: str, *arguments: str) -> int:
        """Give a command, kill it when there is a new row, and return how it ended."""
        before = set(database.execute(query))
        process = subprocess.Popen(
            self.command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + SECONDS
        try:
            while process.poll() is None and set(database.execute(query)) <= before:
                assert time.monotonic() < deadline, query
                time.sleep(0.002)
        finally:
            process.kill()
        return process.wait(SECONDS)

    def sends(self, to: "Sequence[User]", subject: str, *options: str) -> Done:
        """Write to ``to``, looking up their keys on their servers."""
        return self.tries(*letter_to(to, subject), *options)

    def outcome(self, number: int, state: str, command: str = "acks") -> Any:
        """Return a message that was sent, once it is at ``state`` for everybody.

        What the home server delivers takes a moment.
        """
        deadline = time.monotonic() + SECONDS
        while True:
            (row,) = (r for r in self.does(command, "--json").value if r["number"] == number)
            states = {one["state"] for one in row["recipients"]}
            if states == {state}:
                return row
            assert time.monotonic() < deadline, row
            time.sleep(0.2)

    def subjects(self) -> list[str]:
        """Return the subjects of all mail in the inbox."""
        return [row["subject"] for row in self.does("list", "--json").value]

    def moved(self, directory: Path) -> "User":
        """Return the same user with a copy of his home."""
        shutil.copytree(self.directory, directory, ignore=shutil.ignore_patterns("S.*"))
        return User(self.name, self.address, directory, self.server)

    def setting(self, name: str, value: str) -> None:
        """Change a line of the user's settings."""
        path = self.home / "config.toml"
        text, count = re.subn(rf"(?m)^{name} = .*$", f'{name} = "{value}"', path.read_text())
        assert count == 1
        path.write_text(text)

    def asks_server(self, talk: Callable[[RemoteServer], Awaitable[T]]) -> T:
        """Log in at the home server without the program, and talk."""

        async def connected() -> T:
            local = DialSettings(allow_private_targets=True)
            pins = MemoryPins()
            async with await dial(self.server.address, local, pins, strict_pin=True) as remote:
                auth_key = Home(self.home).load_auth_key().text
                assert await remote.login(self.key_id.hex, auth_key)
                return await talk(remote)

        return asyncio.run(connected())

    def mailbox_entries(self) -> list[MessageAnnouncement]:
        """Return all that is in the user's mailboxes on his server."""

        async def talk(remote: RemoteServer) -> list[MessageAnnouncement]:
            found = []
            for mailbox in Home(self.home).load().mailboxes:
                key = mailbox_key(mailbox, self.key_id)
                for entry in read_entries(await remote.get(key) or (), key, utc_now(), []):
                    assert isinstance(entry.block, MessageAnnouncement)
                    found.append(entry.block)
            return found

        return self.asks_server(talk)


def letter_to(readers: Sequence[User], subject: str) -> list[str]:
    """Return the words of a command that writes to ``readers``."""
    named = [("--to", user.address, "--server", str(user.server.address)) for user in readers]
    words = [word for pair in named for word in pair]
    return ["send", *words, "--subject", subject, "--message", "text"]


def allow_private_targets(directory: Path) -> None:
    """Let a server deliver to others on loopback."""
    config = directory / "config.toml"
    config.write_text(f"allow_private_targets = true\n{config.read_text()}")


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _sealmaild(*arguments: str) -> str:
    command = [str(PROGRAMS / "sealmaild"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    return done.stdout


def _unused(directory: Path) -> Path:
    """Return a directory that is not there yet: tests that share a place may share a name."""
    numbered = (directory.with_name(f"{directory.name}-{number}") for number in count(2))
    return next(each for each in chain((directory,), numbered) if not each.exists())
