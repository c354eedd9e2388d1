"""Marks of keys: what a certificate, a signed zone and a comparison of fingerprints earn."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.programs import Server, User
from tests.net.authority import Authority
from tests.net.name_server import name_server
from tests.net.validating_resolver import validating_resolver

from sealmail_protocol.addresses import ServerAddress
from sealmail_server.config import CERTIFICATE_NAME, KEY_NAME
from sealmail_server.tls_identity import pin_of

ROOT = Authority("a public CA")
UNKNOWN = Authority("a CA that nobody knows")
_TLS = (CERTIFICATE_NAME, KEY_NAME)


@dataclass(frozen=True)
class Town:
    """Alice, who judges certificates, and the people of two servers."""

    alice: User
    bert: User
    fred: User

    @property
    def named(self) -> tuple[str, str]:
        """Return the option that names the server of b.test."""
        return ("--server", str(self.bert.server.address))


@pytest.fixture(scope="module")
def town(place: Path) -> Iterator[Town]:
    """Run a server that signs its own certificate, and one with a CA's for b.test."""
    home, other = (Server.create(place / name) for name in ("trust-a", "trust-b"))
    show(other, ROOT, "b.test")
    for server in (home, other):
        server.start()
    alice = User.settle(place, "Alice", "alice@a.test", home)
    root = ROOT.root_file(place / "trust-root.pem")
    alice.does("identity", "set", "--ca-certificates", str(root))
    yield Town(
        alice,
        User.settle(place, "Bert", "bert@b.test", other),
        User.settle(place, "Fred", "fred@other.test", other),
    )
    for server in (home, other):
        server.stop()


def show(server: Server, authority: Authority, *names: str) -> None:
    """Let a server show a certificate with these names, which it takes up at its next start."""
    directory = Path(tempfile.mkdtemp())
    certificate, key = authority.issue(directory, names)
    shutil.copy(certificate, server.directory / CERTIFICATE_NAME)
    shutil.copy(key, server.directory / KEY_NAME)
    shutil.rmtree(directory)


def found(finder: User, other: User, *options: str) -> Any:
    """Look somebody's key up as if for the first time, and return what is known of it."""
    finder.tries("key", "forget", other.address)
    finder.does("key", "find", other.address, *options)
    (row,) = finder.does("key", "show", other.address, "--json").value
    assert row["key_id"] == other.key_id.hex
    return row


def test_the_certificate_of_the_domain_is_a_mark_shown_with_the_key(town: Town) -> None:
    """In lists, beside mail and for scripts; comparing fingerprints adds another."""
    alice, bert = town.alice, town.bert
    row = found(alice, bert, *town.named)
    assert row["marks"] == ["pinned", "domain-verified"]
    assert row["domain_verified"] == row["last_seen"]
    assert "pinned, domain-verified" in alice.does("key", "list", bert.address).output
    assert f"domain-verified {row['last_seen']}" in alice.does("key", "show", bert.address).output
    bert.does(
        *("send", "--to", alice.address, "--server", str(alice.server.address)),
        *("--subject", "From a domain", "--message", "text"),
    )
    (number,) = (mail["number"] for mail in alice.does("fetch", "--json").value["filed"])
    assert "(pinned, domain-verified)" in alice.does("read", str(number)).output
    alice.does("key", "verify", bert.address, "--fingerprint", bert.key_id.hex)
    (known,) = alice.does("key", "list", bert.address, "--json").value
    assert known["marks"] == ["pinned", "domain-verified", "verified in person"]
    mail = alice.does("read", str(number), "--json").value
    assert mail["sender_marks"] == known["marks"]


def test_the_certificate_of_another_domain_is_none(town: Town) -> None:
    """Fred lives on the server of b.test, which has nothing to say of other.test."""
    assert found(town.alice, town.fred, *town.named)["marks"] == ["pinned"]


def test_rivals_for_an_address_earn_no_mark(town: Town, place: Path) -> None:
    """Another user of the same server may claim it too: the domain has not said who is right."""
    hugo = User.settle(place, "Hugo", "hugo@b.test", town.bert.server)
    assert found(town.alice, hugo, *town.named)["marks"] == ["pinned", "domain-verified"]
    rival = User.settle(place, "Rival", hugo.address, town.bert.server)
    for _ in ("an old mark goes", "a new one is not earned"):
        town.alice.does("key", "find", hugo.address, *town.named)
        rows = town.alice.does("key", "show", hugo.address, "--json").value
        assert {row["key_id"] for row in rows} == {hugo.key_id.hex, rival.key_id.hex}
        assert all("domain-verified" not in row["marks"] for row in rows)
        town.alice.does("key", "forget", hugo.address)


def test_a_user_who_believes_no_such_authority_sees_no_mark(town: Town) -> None:
    """Those of the system do not know the CA of this test."""
    alice = town.alice
    kept = Path(alice.home / "config.toml").read_text()
    alice.does("identity", "set", "--ca-certificates", "none")
    assert found(alice, town.bert, *town.named)["marks"] == ["pinned"]
    (alice.home / "config.toml").write_text(kept)


@dataclass(frozen=True)
class SignedTown:
    """Anna, who believes a resolver in DNSSEC, and the people of a server found by DNS alone.

    Carl's zone is signed and Fay's is not; bogus.test is signed by another key than it should be.
    """

    dns: ServerAddress
    anna: User
    carl: User
    fay: User


@pytest.fixture(scope="module")
def signed_town(place: Path) -> Iterator[SignedTown]:
    """Run a home server, and one that has a CA's certificate for its own host."""
    home, other = (Server.create(place / name) for name in ("signed-a", "signed-c"))
    record = f'cmsvr TXT "server=localhost:{other.address.port}"\n'
    zones = dict.fromkeys(("c.test", "forged.test", "bogus.test"), record)
    anchors = {"c.test": "c.test", "bogus.test": "c.test"}
    directory = Path(tempfile.mkdtemp(prefix="smd-"))
    with (
        name_server(directory / "knot", zones, signed=tuple(anchors)) as authority,
        validating_resolver(directory / "unbound", authority, tuple(zones), anchors) as dns,
    ):
        with (home.directory / "config.toml").open("a") as config:
            config.write(f'dns_server = "{dns}"\n')
        show(other, ROOT, "localhost")
        for server in (home, other):
            server.start()
        anna = User.settle(place, "Anna", "anna@a.test", home)
        root = ROOT.root_file(place / "signed-root.pem")
        anna.does("identity", "set", "--ca-certificates", str(root))
        ask_directly(anna, dns)
        yield SignedTown(
            dns,
            anna,
            User.settle(place, "Carl", "carl@c.test", other),
            User.settle(place, "Fay", "fay@forged.test", other),
        )
        for server in (home, other):
            server.stop()
    shutil.rmtree(directory)


def ask_directly(user: User, dns: ServerAddress) -> None:
    """Let a user ask a resolver on this machine, and believe it in DNSSEC."""
    user.does("identity", "set", "--dns", "direct", "--dns-server", str(dns), "--dnssec")


def marks(finder: User, other: User) -> list[str]:
    """Return what a key earns that is found from the address alone."""
    row = found(finder, other)
    assert row["seen_at"] == f"dns {other.address.rpartition('@')[2]}"
    earned: list[str] = row["marks"]
    return earned


@contextmanager
def showing(finder: User, server: Server, authority: Authority, name: str) -> Iterator[None]:
    """Let a server show another certificate for a while, whose key the finder has accepted."""
    host = ServerAddress("localhost", server.address.port)
    kept = [(server.directory / each, (server.directory / each).read_bytes()) for each in _TLS]
    pinned = pin_at(finder, host)
    show(server, authority, name)
    finder.does("server", "accept", str(host), pin_of(server.directory / CERTIFICATE_NAME).hex())
    try:
        yield
    finally:
        for path, content in kept:
            path.write_bytes(content)
        finder.does("server", "accept", str(host), pinned)


def pin_at(user: User, server: ServerAddress) -> str:
    """Return which key a user knows a server by."""
    rows = user.does("server", "pins", "--json").value
    (pin,) = (row["pin"] for row in rows if row["way"] == f"direct {server}")
    assert isinstance(pin, str)
    return pin


def test_a_host_that_a_signed_record_names_speaks_for_the_domain(signed_town: SignedTown) -> None:
    """The certificate is for that host and not for the domain; the answer kept says the same."""
    for _ in range(2):
        assert marks(signed_town.anna, signed_town.carl) == ["pinned", "domain-verified"]


def test_a_host_that_an_unsigned_record_names_does_not(signed_town: SignedTown) -> None:
    """Whoever forges a record may lead to a server with a good certificate of its own."""
    assert marks(signed_town.anna, signed_town.fay) == ["pinned"]


def test_a_record_whose_signature_does_not_hold_leads_nowhere(signed_town: SignedTown) -> None:
    """The key behind it is not even found."""
    done = signed_town.anna.tries("key", "find", "bo@bogus.test")
    assert done.exit_code == 20
    assert "DNS could not be asked" in done.complaint


@pytest.mark.parametrize(
    ("authority", "name"), [(ROOT, "elsewhere.test"), (UNKNOWN, "localhost"), (UNKNOWN, "c.test")]
)
def test_a_man_in_the_middle_behind_a_signed_record_earns_no_mark(
    signed_town: SignedTown, authority: Authority, name: str
) -> None:
    """He has a good certificate of another name, or one for the right name by a CA of his own."""
    anna, carl = signed_town.anna, signed_town.carl
    assert marks(anna, carl) == ["pinned", "domain-verified"]
    with showing(anna, carl.server, authority, name):
        assert marks(anna, carl) == ["pinned"]


@pytest.mark.parametrize("ways", [("--no-dnssec",), ("--no-dnssec", "--dns", "server")])
def test_a_signed_record_counts_where_a_resolver_here_is_believed(
    signed_town: SignedTown, ways: tuple[str, ...]
) -> None:
    """Not of a resolver that nobody vouches for, nor through the home server."""
    anna = signed_town.anna
    anna.does("identity", "set", *ways)
    assert marks(anna, signed_town.carl) == ["pinned"]
    ask_directly(anna, signed_town.dns)
    assert marks(anna, signed_town.carl) == ["pinned", "domain-verified"]


def test_the_marks_stand_where_one_decides(town: Town) -> None:
    """In what compares, trusts, blocks and withdraws too, and for scripts."""
    alice, bert = town.alice, town.bert
    found(alice, bert, *town.named)
    there = ("--server", str(town.fred.server.address))
    bert.does("send", "--to", town.fred.address, *there, "--subject", "s", "--message", "m")
    (number,) = (mail["number"] for mail in town.fred.does("fetch", "--json").value["filed"])
    home = ("--to", alice.address, "--server", str(alice.server.address))
    town.fred.does("forward", str(number), *home, "--with-signature", "--message", "look")
    (forwarded,) = (
        mail["number"]
        for mail in alice.does("fetch", "--json").value["filed"]
        if mail["sender_key"] == town.fred.key_id.hex
    )
    bert.does("send", *home, "--subject", "a secret", "--message", "m")
    alice.does("fetch")
    alice.does("send", "--to", bert.address, "--subject", "another", "--message", "m")
    key_id, earned = bert.key_id.hex, ["pinned", "domain-verified"]
    told = f"({', '.join(earned)})"
    for words in (
        ("read", str(forwarded)),
        ("key", "trust", bert.address, key_id),
        ("bypass", "list"),
        ("bypass", "revoke", bert.address),
        ("block", bert.address),
        ("unblock", alice.key_id.hex),
        ("unblock", bert.address),
    ):
        assert told in alice.does(*words).output, words
    assert "pinned, domain-verified" in alice.does("key", "verify", bert.address).output
    for words in (("key", "verify", bert.address), ("key", "verify", key_id), ("bypass", "list")):
        rows = [row for row in alice.does(*words, "--json").value if row["key_id"] == key_id]
        assert rows, words
        assert all(row["marks"] == earned for row in rows), words
    (own,) = alice.does("key", "verify", "--json").value
    assert own["standing"] == "your own"
    done = alice.does("key", "verify", bert.address, "--fingerprint", key_id)
    assert "(pinned, domain-verified, verified in person)" in done.output
