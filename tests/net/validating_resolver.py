"""A real resolver that checks DNSSEC (unbound) on loopback, before a name server of the tests."""

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import dns.message
import dns.name
import dns.query
import dns.rdatatype
from tests.net.name_server import free_port, wait_for

from sealmail_protocol.addresses import ServerAddress

_CONFIG = """\
server:
    interface: 127.0.0.1
    port: {port}
    directory: "{directory}"
    chroot: ""
    username: ""
    pidfile: ""
    use-syslog: no
    do-ip6: no
    do-not-query-localhost: no
    local-zone: "test." nodefault
{anchors}
remote-control:
    control-enable: no
{stubs}"""
_STUB = """\
stub-zone:
    name: "{zone}"
    stub-addr: {host}@{port}
"""
_PATIENCE = 20.0


@contextmanager
def validating_resolver(
    directory: Path, authority: ServerAddress, zones: Sequence[str], anchors: Mapping[str, str]
) -> Iterator[ServerAddress]:
    """Resolve ``zones`` at ``authority``; ``anchors`` says by whose key each signed one is judged.

    That is mostly its own; by the key of another zone nothing in it holds.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    address = ServerAddress("127.0.0.1", free_port())
    believed = "".join(
        f'    trust-anchor: "{zone}. DNSKEY {_key_of(other, authority)}"\n'
        for zone, other in anchors.items()
    )
    stubs = "".join(
        _STUB.format(zone=zone, host=authority.host, port=authority.port) for zone in zones
    )
    config = directory / "unbound.conf"
    config.write_text(
        _CONFIG.format(port=address.port, directory=directory, anchors=believed, stubs=stubs)
    )
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(["unbound", "-d", "-c", str(config)], stdout=log, stderr=log)
    try:
        wait_for(address.port, process, directory / "log")
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _key_of(zone: str, authority: ServerAddress) -> str:
    """Return the key of a zone once it is signed, as a record says it."""
    question = dns.message.make_query(dns.name.from_text(f"{zone}."), dns.rdatatype.DNSKEY)
    end = time.monotonic() + _PATIENCE
    while True:
        answer = dns.query.tcp(question, authority.host, 5, authority.port)
        if answer.answer:
            (key,) = answer.answer[0]
            return str(key)
        assert time.monotonic() < end, f"{zone} is not signed"
        time.sleep(0.05)
