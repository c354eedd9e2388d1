"""What a client remembers of DNS: for how long, that nothing is there, and what was signed."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.net.conftest import make_identity
from tests.net.name_server import name_server
from tests.net.small_server import LOOPBACK, SmallServer, serving
from tests.net.validating_resolver import validating_resolver

from sealmail_client.connecting import Connecting, DnsUse
from sealmail_client.domains import Domains, DomainServers
from sealmail_client.home_database import HomeDatabase
from sealmail_client.posting import Peer
from sealmail_net.dialing import dial
from sealmail_net.pins import MemoryPins
from sealmail_protocol.addresses import ServerAddress, Transport

START = datetime(2026, 5, 1, tzinfo=UTC)
# What the zone says, and what the records of tests say of names that are not there.
LIFE, NEGATIVE_LIFE = timedelta(seconds=300), timedelta(seconds=120)
MOMENT = timedelta(seconds=1)


class Watch:
    """A clock that is set by hand."""

    now = START

    def __call__(self) -> datetime:
        """Return its time."""
        return self.now


@pytest.fixture
def database(tmp_path: Path) -> Iterator[HomeDatabase]:
    """Return the database of a new home."""
    database = HomeDatabase(tmp_path / "mail.sqlite")
    yield database
    database.close()


def domains(
    database: HomeDatabase, watch: Watch, dns: ServerAddress, *, dnssec: bool = False
) -> Domains:
    """Return what asks a resolver directly."""

    def home() -> AbstractAsyncContextManager[Peer]:
        raise AssertionError("the home server is not asked")

    return Domains(Connecting(dns_server=dns, dnssec=dnssec), database, watch, home)


def servers(*hosts: str, signed: bool = False) -> DomainServers:
    """Return what a domain names: one group."""
    named = Transport(tuple(ServerAddress(host, 8081) for host in hosts))
    return DomainServers((named,) if hosts else (), signed)


def told(way: Domains, domain: str) -> DomainServers:
    """Return what a domain names."""
    return asyncio.run(way.servers_of(domain))


def test_answers_count_for_their_lifetime(tmp_path: Path, database: HomeDatabase) -> None:
    """Found or not, a domain is asked again when its answer has expired, and no sooner."""
    watch = Watch()
    first = 'cmsvr TXT "server=first.test:8081"\n'
    second = 'cmsvr TXT "server=second.test:8081"\ncmsvr.later TXT "server=later.test:8081"\n'

    with name_server(tmp_path / "first", {"a.test": first}) as dns:
        asked = domains(database, watch, dns)
        assert told(asked, "a.test") == servers("first.test")
        assert told(asked, "later.a.test") == servers()
    with name_server(tmp_path / "second", {"a.test": second}, port=dns.port):
        watch.now = START + NEGATIVE_LIFE - MOMENT
        assert told(asked, "later.a.test") == servers()
        watch.now = START + NEGATIVE_LIFE
        assert told(asked, "later.a.test") == servers("later.test")
        watch.now = START + LIFE - MOMENT
        assert told(asked, "a.test") == servers("first.test")
        watch.now = START + LIFE
        assert told(asked, "a.test") == servers("second.test")


def test_that_the_home_server_knows_nothing_counts_for_moments(
    tmp_path: Path, database: HomeDatabase
) -> None:
    """It says the same when DNS has failed; what it does know counts for minutes."""
    watch = Watch()
    small = SmallServer(make_identity(tmp_path).context())

    async def scene() -> None:
        async with serving(small) as (address, _):

            @asynccontextmanager
            async def home() -> AsyncIterator[Peer]:
                async with await dial(address, LOOPBACK, MemoryPins(), strict_pin=True) as server:
                    yield Peer(server, {})

            asked = Domains(Connecting(dns=DnsUse.SERVER), database, watch, home)
            assert await asked.servers_of("a.test") == servers()
            small.texts = {"cmsvr.a.test": ("server=mail.test:8081",)}
            watch.now += timedelta(seconds=10)
            assert await asked.servers_of("a.test") == servers()
            watch.now += timedelta(seconds=50)
            assert await asked.servers_of("a.test") == servers("mail.test")
            small.texts = {}
            watch.now += timedelta(seconds=60)
            assert await asked.servers_of("a.test") == servers("mail.test")

    asyncio.run(scene())


def test_whether_an_answer_was_signed_is_remembered(
    tmp_path: Path, database: HomeDatabase
) -> None:
    """Each way of asking has answers of its own, so that none is believed for another's."""
    watch = Watch()
    record = 'cmsvr TXT "server=mail.test:8081"\n'
    zones = {"signed.test": record, "plain.test": record}
    with (
        name_server(tmp_path / "knot", zones, signed=("signed.test",)) as authority,
        validating_resolver(
            tmp_path / "unbound", authority, tuple(zones), {"signed.test": "signed.test"}
        ) as dns,
    ):
        ways = [domains(database, watch, dns, dnssec=dnssec) for dnssec in (False, True)]
        fresh = [[told(way, zone) for zone in zones] for way in ways]
    assert fresh == [
        [servers("mail.test"), servers("mail.test")],
        [servers("mail.test", signed=True), servers("mail.test")],
    ]
    # Nobody answers any more.
    assert [[told(way, zone) for zone in zones] for way in ways] == fresh
