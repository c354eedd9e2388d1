"""TXT look-ups against a real name server: what is found, what is not, and what is dropped."""

import asyncio
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import dns.flags
import dns.message
import dns.query
import pytest
from tests.net.name_server import BROKEN_ZONE, free_port, name_server
from tests.net.validating_resolver import validating_resolver

from sealmail_net.txt_resolver import (
    LONGEST_LIFE,
    SHORTEST_LIFE,
    LookupFailed,
    TxtAnswer,
    TxtResolver,
)
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.dns_records import MAX_RECORDS

LONG = "server=" + ",".join(f"{'x' * 50}{n}.example:8081" for n in range(24))
RECORDS = f"""
cmsvr TXT "server=mail.found.test:8081"
parts TXT "server=one.test:1," "two.te" "st:2"
several TXT "v=spf1 -all"
several TXT "server=a.test:1"
several TXT "server=b.test:2"
long TXT {" ".join(f'"{LONG[at : at + 250]}"' for at in range(0, len(LONG), 250))}
alias CNAME cmsvr
nothing A 127.0.0.1
brief 1 TXT "server=brief.test:1"
lasting 999999 TXT "server=lasting.test:1"
split TXT "server=a.test:1\\013\\010DONE"
bell TXT "server=a.test:1\\007"
binary TXT "\\255\\254server=a.test:1"
latin TXT "\\226\\128\\168"
hostile TXT "EndBlock\\010TXT: x"
hostile TXT "harmless"
"""
MANY = "".join(f'many TXT "record {number:03}"\n' for number in range(100))


@pytest.fixture(scope="module")
def resolver() -> Iterator[TxtResolver]:
    """Run a name server, and return who asks it."""
    directory = Path(tempfile.mkdtemp(prefix="smd-"))
    with name_server(directory, {"found.test": RECORDS + MANY}) as address:
        yield TxtResolver(address, deadline=3.0)
    shutil.rmtree(directory)


def ask(resolver: TxtResolver, label: str, zone: str = "found.test") -> TxtAnswer:
    """Return the answer to one question."""
    return asyncio.run(resolver.ask(f"{label}.{zone}"))


def test_a_record_is_found(resolver: TxtResolver) -> None:
    """Text and lifetime come back."""
    assert ask(resolver, "cmsvr") == TxtAnswer(("server=mail.found.test:8081",), 300)


def test_the_strings_of_a_record_are_joined(resolver: TxtResolver) -> None:
    """A record is one text, however it was cut."""
    assert ask(resolver, "parts").texts == ("server=one.test:1,two.test:2",)


def test_every_record_is_an_answer(resolver: TxtResolver) -> None:
    """Other people's records are there too, in a fixed order."""
    assert ask(resolver, "several").texts == ("server=a.test:1", "server=b.test:2", "v=spf1 -all")


def test_a_truncated_answer_is_fetched_by_tcp(resolver: TxtResolver) -> None:
    """An answer beyond a datagram arrives whole, which a datagram alone does not bring."""
    assert resolver.server is not None
    question = dns.message.make_query("long.found.test.", "TXT", use_edns=0, payload=1232)
    cut = dns.query.udp(question, resolver.server.host, 5, resolver.server.port)
    assert cut.flags & dns.flags.TC
    assert len(LONG) > 1300
    assert ask(resolver, "long").texts == (LONG,)


def test_an_alias_is_followed(resolver: TxtResolver) -> None:
    """A CNAME leads to the record."""
    assert ask(resolver, "alias").texts == ("server=mail.found.test:8081",)


@pytest.mark.parametrize("label", ["absent", "nothing"])
def test_no_record_is_an_answer_with_a_lifetime(resolver: TxtResolver, label: str) -> None:
    """Neither an absent name nor one without TXT is an error; the zone says for how long."""
    assert ask(resolver, label) == TxtAnswer((), 120)


@pytest.mark.parametrize(
    ("label", "lifetime"), [("brief", SHORTEST_LIFE), ("lasting", LONGEST_LIFE)]
)
def test_lifetimes_have_a_floor_and_a_ceiling(
    resolver: TxtResolver, label: str, lifetime: int
) -> None:
    """A zone can make nobody ask every second, nor believe it for a fortnight."""
    assert ask(resolver, label).lifetime == lifetime


@pytest.mark.parametrize("label", ["split", "bell", "binary", "latin"])
def test_what_could_inject_a_reply_is_dropped(resolver: TxtResolver, label: str) -> None:
    """Line ends, controls and what is no UTF-8 never leave the resolver."""
    assert ask(resolver, label).texts == ()


def test_a_hostile_record_does_not_take_others_along(resolver: TxtResolver) -> None:
    """Each record is judged alone."""
    assert ask(resolver, "hostile").texts == ("harmless",)


def test_the_number_of_records_is_capped(resolver: TxtResolver) -> None:
    """A hundred records are as many as the cap."""
    assert len(ask(resolver, "many").texts) == MAX_RECORDS


def test_a_failing_zone_is_no_answer(resolver: TxtResolver) -> None:
    """SERVFAIL says neither yes nor no."""
    with pytest.raises(LookupFailed, match="refused or failed"):
        ask(resolver, "cmsvr", BROKEN_ZONE)


def test_a_strange_zone_is_no_answer(resolver: TxtResolver) -> None:
    """A server that refuses cannot tell."""
    with pytest.raises(LookupFailed):
        ask(resolver, "cmsvr", "elsewhere.test")


def test_a_silent_resolver_is_left_by_the_deadline() -> None:
    """A slow one costs its deadline and no more."""
    with socket.socket(type=socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        address = ServerAddress("127.0.0.1", silent.getsockname()[1])
        begun = time.monotonic()
        with pytest.raises(LookupFailed, match="in time"):
            ask(TxtResolver(address, deadline=0.6), "cmsvr")
        assert time.monotonic() - begun < 2.0


def test_a_dead_resolver_is_no_answer() -> None:
    """Nobody at the port is told as a failure."""
    with pytest.raises(LookupFailed):
        ask(TxtResolver(ServerAddress("127.0.0.1", free_port()), deadline=0.6), "cmsvr")


def test_a_resolver_is_named_by_its_address() -> None:
    """A name would have to be looked up before there is anybody to ask."""
    with pytest.raises(ValueError, match="IP address"):
        TxtResolver(ServerAddress("dns.example", 53))


SIGNED = 'cmsvr TXT "server=mail.test:8081"\n'
ZONES = {"good.test": SIGNED, "bogus.test": SIGNED, "plain.test": SIGNED}


@pytest.fixture(scope="module")
def validating() -> Iterator[ServerAddress]:
    """Run a resolver that checks DNSSEC, and believes another key for one zone than it has."""
    directory = Path(tempfile.mkdtemp(prefix="smv-"))
    anchors = {"good.test": "good.test", "bogus.test": "good.test"}
    with (
        name_server(directory / "knot", ZONES, signed=("good.test", "bogus.test")) as authority,
        validating_resolver(directory / "unbound", authority, tuple(ZONES), anchors) as address,
    ):
        yield address
    shutil.rmtree(directory)


@pytest.mark.parametrize(
    ("label", "zone", "validates", "signed"),
    [
        ("cmsvr", "good.test", True, True),
        ("cmsvr", "good.test", False, False),
        ("absent", "good.test", True, False),
        ("cmsvr", "plain.test", True, False),
    ],
)
def test_a_signed_answer_is_one_where_the_resolver_is_believed(
    validating: ServerAddress, label: str, zone: str, validates: bool, signed: bool
) -> None:
    """Its word counts for records, and only of a resolver that the user has said checks."""
    answer = ask(TxtResolver(validating, validates=validates), label, zone)
    assert answer.texts == (("server=mail.test:8081",) if label == "cmsvr" else ())
    assert answer.signed is signed


def test_a_name_server_proves_nothing_of_its_own_zone(resolver: TxtResolver) -> None:
    """It answers without having checked anything, and says so."""
    asked = TxtResolver(resolver.server, validates=True)
    assert ask(asked, "cmsvr") == TxtAnswer(("server=mail.found.test:8081",), 300)


@pytest.mark.parametrize("validates", [True, False])
def test_a_zone_signed_by_another_key_is_no_answer(
    validating: ServerAddress, validates: bool
) -> None:
    """What does not hold is never handed on, whatever the user said of the resolver."""
    with pytest.raises(LookupFailed, match="refused or failed"):
        ask(TxtResolver(validating, validates=validates), "cmsvr", "bogus.test")


@pytest.mark.parametrize("server", [None, "192.0.2.1:53", "[2001:db8::1]:53"])
def test_only_a_resolver_of_this_machine_is_believed(server: str | None) -> None:
    """Between here and any other anybody could say it in its name."""
    address = None if server is None else ServerAddress.parse(server)
    with pytest.raises(ValueError, match="on this machine only"):
        TxtResolver(address, validates=True)
