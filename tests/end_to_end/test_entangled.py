"""Mail over the DHT, by the installed programs: two who live there alone, and one with a home."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.end_to_end.programs import SECONDS, Server, User


@dataclass(frozen=True)
class Town:
    """Three servers that share a DHT, and who reaches it by which of them."""

    servers: tuple[Server, ...]
    ada: User
    ben: User
    cat: User


@pytest.fixture(scope="module")
def town(place: Path) -> Iterator[Town]:
    """Ada and Ben have no home server; Cat has one, which takes part."""
    servers = tuple(Server.create(place / f"town-{name}") for name in "abc")
    for server in servers:
        with (server.directory / "config.toml").open("a") as config:
            config.write(f'dht = true\ndht_bootstrap = ["{servers[0].address}"]\n')
        server.start()
    yield Town(
        servers,
        User.settle_in_dht(place, "Ada", "ada@a.example", servers[0]),
        User.settle_in_dht(place, "Ben", "ben@b.example", servers[1], servers[0]),
        User.settle(place, "Cat", "cat@c.example", servers[2]),
    )
    for server in servers:
        server.stop()


def brings(reader: User, subject: str) -> None:
    """Fetch until a letter is there: what is stored spreads a moment later."""
    deadline = time.monotonic() + SECONDS
    while subject not in reader.subjects():
        assert time.monotonic() < deadline, subject
        reader.does("fetch")


def writes(sender: User, reader: User, subject: str, *options: str) -> int:
    """Send a letter by the address alone; return its number."""
    done = sender.does(
        "send", "--to", reader.address, "--subject", subject, "--message", "text", "--json",
        *options,
    )  # fmt: skip
    number: int = done.value["number"]
    return number


def test_two_without_a_home_write_to_each_other(town: Town) -> None:
    """By their addresses alone; each mail is acknowledged through the DHT."""
    number = writes(town.ada, town.ben, "by nobody's server")
    brings(town.ben, "by nobody's server")
    town.ada.outcome(number, "acknowledged")
    back = writes(town.ben, town.ada, "and back")
    brings(town.ada, "and back")
    town.ben.outcome(back, "acknowledged")


@pytest.mark.parametrize("delivery", ["direct", "proxy"])
def test_one_with_a_home_writes_to_one_without_and_is_answered(town: Town, delivery: str) -> None:
    """Directly by STORE ENTANGLED at the home server, or by its queue; so do acknowledgments."""
    ada, cat = town.ada, town.cat
    cat.does("identity", "set", "--dht", "--send", delivery, "--acknowledge", delivery)
    there, back = f"to the DHT, {delivery}", f"from the DHT, {delivery}"
    number = writes(cat, ada, there)
    (sent,) = cat.outcome(number, "sent", "outbox")["recipients"]
    by_herself = f"entangled by {cat.server.address}"
    assert sent["server"] == ("entangled" if delivery == "proxy" else by_herself)
    brings(ada, there)
    cat.outcome(number, "acknowledged")
    number = writes(ada, cat, back)
    brings(cat, back)
    ada.outcome(number, "acknowledged")


def test_a_mail_to_both_kinds_is_one_that_the_dht_takes(town: Town, tmp_path: Path) -> None:
    """It is cut into pieces of 64 KiB for all, and each reader acknowledges it."""
    ada, ben, cat = town.ada, town.ben, town.cat
    attached = tmp_path / "noise.bin"
    attached.write_bytes(os.urandom(500_000))
    number = writes(ada, ben, "to both", "--cc", cat.address, "--attach", str(attached))
    for reader in (ben, cat):
        brings(reader, "to both")
    ada.outcome(number, "acknowledged")
    with closing(sqlite3.connect(ada.home / "mail.sqlite")) as database:
        rows = database.execute("SELECT size FROM outgoing_data WHERE message = ?", (number,))
        sizes = [size for (size,) in rows]
    assert set(sizes[:-1]) == {64 * 1024}
    assert 500_000 < sum(sizes) < 520_000


def test_more_than_a_mib_is_refused_before_it_is_sealed(town: Town, tmp_path: Path) -> None:
    """The reason is told, and nothing is left in the outbox; to one with a home it goes."""
    ada, ben, cat = town.ada, town.ben, town.cat
    attached = tmp_path / "large.bin"
    attached.write_bytes(bytes(1024 * 1024))
    command = ("send", "--to", ben.address, "--message", "x", "--attach", str(attached))
    for sender in (ada, cat):
        before = sender.does("outbox", "--json").value
        done = sender.tries(*command)
        assert done.exit_code == 17
        assert "takes 1 MiB at most" in done.complaint
        assert ben.address in done.complaint
        assert sender.does("outbox", "--json").value == before
    writes(ada, cat, "large", "--attach", str(attached))
    brings(cat, "large")
