"""What ``status`` and ``doctor`` tell of the DHT, beside real servers."""

import socket
import time
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner
from tests.server.starting import started_server

from sealmail_server.cli import main

PART = ("dht = true", 'dht_network = "health"', "allow_private_targets = true")
UNASKED = "not known to be reached from outside: nobody has come unasked yet"


def told(directory: Path, command: str) -> list[str]:
    """Return what a command tells of the DHT, without what stands before each line."""
    printed = CliRunner().invoke(main, [command, "--data", str(directory)]).stdout
    lines = (line.split(maxsplit=1 if command == "status" else 2) for line in printed.splitlines())
    return [line[-1] for line in lines if "dht" in line[:-1]]


def wait_until(well: Callable[[], bool]) -> None:
    """Wait until something has become true."""
    for _ in range(300):
        if well():
            return
        time.sleep(0.1)
    raise AssertionError("it has not become true")


def test_status_and_doctor_tell_of_neighbours_reachability_and_values(tmp_path: Path) -> None:
    """One server waits and is found by the other, which nobody finds."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        nobody.listen(0)
        peer = f"127.0.0.1:{nobody.getsockname()[1]}"
    with started_server(tmp_path / "found", *PART) as found:
        assert told(found.directory, "status") == [
            "0 neighbours, seen by nobody yet",
            UNASKED,
            "0 values, 0 bytes",
            "0 keys that others do not keep yet",
        ]
        (finding,) = told(found.directory, "doctor")
        assert finding.startswith("no neighbour answers")
        more = (f'dht_bootstrap = ["{found.address}"]', f'entangled_peers = ["{peer}"]')
        with started_server(tmp_path / "finds", *PART, *more) as finds:
            wait_until(lambda: "came unasked" in told(found.directory, "status")[1])
            reached = "reached from outside: 1 came unasked"
            seen = f"1 neighbours, seen at {found.address}"
            assert told(found.directory, "status")[:2] == [seen, reached]
            assert told(found.directory, "doctor") == [f"{seen}; {reached}"]
            seen = f"1 neighbours, seen at {finds.address}"
            assert told(finds.directory, "status")[:2] == [seen, UNASKED]
            assert told(finds.directory, "status")[4:] == [f"peer {peer} well, 0 waiting"]
            assert told(finds.directory, "doctor") == [f"{seen}; {UNASKED}"]
