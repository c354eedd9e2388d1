"""A real server on loopback, in a process of its own, and a real user with a GnuPG key."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sealmail_protocol.addresses import ServerAddress


@dataclass(frozen=True)
class RunningServer:
    """A server that answers, and the keys it printed at ``init``."""

    directory: Path
    address: ServerAddress
    administrator: str = field(repr=False)
    replication: str = field(repr=False)
    auth_keys: tuple[str, ...] = field(repr=False)


def sealmaild(*arguments: str) -> list[str]:
    """Return the command line of the operator's program."""
    return [sys.executable, "-m", "sealmail_server", *arguments]


def run(*arguments: str) -> str:
    """Run ``sealmaild`` to its end, and return what it printed."""
    done = subprocess.run(sealmaild(*arguments), capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Start a server on a free loopback port, and stop it in good order."""
    directory = tmp_path_factory.mktemp("server") / "data"
    printed = run("init", "--data", str(directory), "--listen", "127.0.0.1:0")
    keys = re.findall(r"auth key: ([0-9A-F]{40})", printed)
    auth_keys = run("account", "generate", "20", "--data", str(directory)).split()
    process = subprocess.Popen(
        sealmaild("run", "--data", str(directory)), stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(r"sealmaild: listening on (127\.0\.0\.1:[0-9]+)\n", line)
        assert match, line
        address = ServerAddress.parse(match[1])
        yield RunningServer(directory, address, keys[0], keys[1], tuple(auth_keys))
    finally:
        process.terminate()
        assert process.wait(10) == 0
        if process.stdout is not None:
            process.stdout.close()
