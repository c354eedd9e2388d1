"""Starting a real server on loopback, in a process of its own, and operating it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from sealmail_protocol.addresses import ServerAddress


@dataclass(frozen=True)
class RunningServer:
    """A server that answers, and the keys it printed at ``init``."""

    directory: Path
    address: ServerAddress
    administrator: str = field(repr=False)
    replication: str = field(repr=False)
    process: "subprocess.Popen[str]"
    auth_keys: tuple[str, ...] = field(default=(), repr=False)


def sealmaild(*arguments: str) -> list[str]:
    """Return the command line of the operator's program."""
    return [sys.executable, "-m", "sealmail_server", *arguments]


def operate(*arguments: str, given: str | None = None) -> str:
    """Run ``sealmaild`` to its end, and return what it printed."""
    done = subprocess.run(
        sealmaild(*arguments), capture_output=True, text=True, check=False, input=given
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(*arguments: str) -> tuple[int, str]:
    """Run ``sealmaild`` to its end, and return its exit code and what it complained of."""
    done = subprocess.run(
        sealmaild(*arguments), capture_output=True, text=True, check=False, input=""
    )
    return done.returncode, done.stderr


@contextmanager
def started_server(
    directory: Path, *lines: str, log: IO[str] | None = None, verbose: str = ""
) -> Iterator[RunningServer]:
    """Make a server with further lines of configuration, run it, and stop it in good order."""
    printed = operate("init", "--data", str(directory), "--listen", "127.0.0.1:0")
    keys = re.findall(r"auth key: ([0-9A-F]{40})", printed)
    with (directory / "config.toml").open("a") as config:
        config.writelines(f"{line}\n" for line in lines)
    with run_server(directory, log=log, verbose=verbose) as (process, address):
        yield RunningServer(directory, address, keys[0], keys[1], process)


@contextmanager
def run_server(
    directory: Path, *, log: IO[str] | None = None, verbose: str = ""
) -> Iterator[tuple["subprocess.Popen[str]", ServerAddress]]:
    """Run the server of a directory, and stop it in good order."""
    options = (verbose,) if verbose else ()
    process = subprocess.Popen(
        sealmaild("run", "--data", str(directory), *options),
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        match = re.fullmatch(r"sealmaild: listening on (127\.0\.0\.1:[0-9]+)\n", line)
        assert match, line
        yield process, ServerAddress.parse(match[1])
    finally:
        process.terminate()
        assert process.wait(30) == 0
        process.stdout.close()
