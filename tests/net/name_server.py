"""A real name server (knot) on a free port of loopback, with zones that tests write."""

import socket
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sealmail_protocol.addresses import ServerAddress

_HEAD = """\
$TTL 300
@ SOA ns.{zone}. hostmaster.{zone}. 1 3600 600 86400 120
@ NS ns.{zone}.
ns A 127.0.0.1
"""
_CONFIG = """\
server:
    listen: 127.0.0.1@{port}
    rundir: {directory}
    udp-max-payload: 1232
database:
    storage: {directory}
log:
  - target: stderr
    any: error
policy:
  - id: one-key
    single-type-signing: on
zone:
{zones}"""
# What knot signs stays in its journal: the files are ours.
_ZONE = """\
  - domain: {zone}
    file: {file}
    zonefile-sync: -1
    dnssec-signing: {signing}
    dnssec-policy: one-key
"""
# Of this one knot has no file, so that every question for it fails.
BROKEN_ZONE = "broken.test"


@contextmanager
def name_server(
    directory: Path,
    zones: Mapping[str, str],
    *,
    signed: Collection[str] = (),
    port: int | None = None,
) -> Iterator[ServerAddress]:
    """Serve ``zones``, each a name and the lines of its records; those in ``signed`` by DNSSEC.

    ``port``: where another one served before.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    for zone, records in zones.items():
        (directory / zone).write_text(_HEAD.format(zone=zone) + records)
    address = ServerAddress("127.0.0.1", port or free_port())
    listed = "".join(
        _ZONE.format(zone=zone, file=directory / zone, signing="on" if zone in signed else "off")
        for zone in (*zones, BROKEN_ZONE)
    )
    config = directory / "knot.conf"
    config.write_text(_CONFIG.format(port=address.port, directory=directory, zones=listed))
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(["knotd", "-c", str(config)], stdout=log, stderr=log)
    try:
        wait_for(address.port, process, directory / "log")
        yield address
    finally:
        process.terminate()
        process.wait(30)


def free_port() -> int:
    """Return a port that is free now for TCP and UDP."""
    with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        stream.bind(("127.0.0.1", 0))
        port: int = stream.getsockname()[1]
        datagrams.bind(("127.0.0.1", port))
        return port


def wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until something listens on a TCP port of loopback."""
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        else:
            return
    raise AssertionError(log.read_text())
