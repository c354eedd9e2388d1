"""Marks of keys: what a certificate, a signed zone and a comparison of fingerprints earn."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.programs import Server, User
from tests.net.authority import Authority

from sealmail_server.config import CERTIFICATE_NAME, KEY_NAME

ROOT = Authority("a public CA")


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


def test_a_user_who_believes_no_such_authority_sees_no_mark(town: Town) -> None:
    """Those of the system do not know the CA of this test."""
    alice = town.alice
    kept = Path(alice.home / "config.toml").read_text()
    alice.does("identity", "set", "--ca-certificates", "none")
    assert found(alice, town.bert, *town.named)["marks"] == ["pinned"]
    (alice.home / "config.toml").write_text(kept)
