"""Mail over the DHT, by the installed programs: two who live there alone, and one with a home."""

import asyncio
import os
import pty
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from tests.end_to_end.programs import PRICE, SECONDS, Server, User

from sealmail_client.addressing import Addressing
from sealmail_client.desk import open_desk, utc_now
from sealmail_client.profile import Home


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


@pytest.mark.parametrize(
    "reached",
    [
        "SELECT message FROM outgoing_recipient WHERE state = 'stamped'",
        "SELECT message FROM outgoing_taken WHERE server LIKE 'entangled%'",
    ],
    ids=["stamped", "half sent"],
)
def test_killed_and_repeated_a_mail_arrives_once(town: Town, tmp_path: Path, reached: str) -> None:
    """Wherever sender and reader are killed: what is left to do is known."""
    ada, ben = town.ada, town.ben
    attached, subject = tmp_path / "noise.bin", f"killed {len(reached)}"
    attached.write_bytes(os.urandom(900_000))
    words = ("--to", ben.address, "--subject", subject, "--message", "x", "--throttle", "1024")
    ada.is_killed_at(reached, "send", *words, "--attach", str(attached))
    ada.does("outbox", "--retry")
    # What is stored spreads a moment later.
    arriving = "SELECT id FROM incoming WHERE state IN ('announced', 'fetched')"
    ben.is_killed_at(arriving, "fetch", "--throttle", "1024", again=True)
    brings(ben, subject)
    ben.does("fetch")
    assert ben.subjects().count(subject) == 1
    number = max(row["number"] for row in ada.does("outbox", "--json").value)
    ada.outcome(number, "acknowledged")


def test_a_door_that_is_away_is_passed_over_and_others_can_be_named(town: Town) -> None:
    """Ben has two doors; a server that takes no part in the DHT is none."""
    ada, ben = town.ada, town.ben
    town.servers[1].stop()
    try:
        number = writes(ben, ada, "by the other door")
        brings(ada, "by the other door")
        ben.outcome(number, "acknowledged")
    finally:
        town.servers[1].start()
    third = str(town.servers[2].address)
    done = ben.does("identity", "set", "--entangled", third)
    assert f"the DHT is reached by {third}\n" in done.output
    findings = {row["part"]: row for row in ben.does("doctor", "--json").value}
    assert findings["dht"]["well"]
    assert findings["key"]["well"]
    assert "login" not in findings


def test_what_needs_a_home_server_is_refused_with_the_reason(town: Town, place: Path) -> None:
    """Nobody holds mail back for one who lives in the DHT, and nobody there has an account."""
    ada, cat, door = town.ada, town.cat, str(town.servers[0].address)
    letter = ("send", "--to", cat.address, "--message", "x")
    for words in (
        (*letter, "--after", "1h"),
        ("identity", "set", "--send", "proxy"),
        ("identity", "set", "--server", door),
    ):
        assert ada.tries(*words).exit_code == 2
    assert ada.tries("identity", "set", "--no-entangled").exit_code == 2
    dan = User("Dan", "dan@d.example", place / "dan", town.servers[0])
    for more in (("--server", door), ("--auth-key", "0" * 20), ("--no-dht",)):
        words = ("--name", "Dan", "--address", dan.address, "--entangled", door, *more)
        refused = dan.tries("init", *words)
        assert refused.exit_code == 2
        assert "without a server and an account" in refused.complaint


def test_a_door_into_nothing_is_told_and_init_goes_on_by_another(
    town: Town, place: Path, servers: tuple[Server, Server]
) -> None:
    """The server is there, but takes no part in the DHT."""
    eve = User("Eve", "eve@e.example", place / "eve", town.servers[0])
    who = ("--name", eve.name, "--address", eve.address, "--allow-private-targets")
    options = ("--no-passphrase", "--price", PRICE, "--dns", "off")
    done = eve.tries("init", *who, *options, "--entangled", str(servers[0].address))
    assert done.exit_code == 23
    assert "takes no part in the DHT" in done.complaint
    eve.does("init", "--entangled", str(town.servers[0].address))
    number = writes(eve, town.ada, "at last")
    brings(town.ada, "at last")
    eve.outcome(number, "acknowledged")


@pytest.mark.parametrize("answer", ["y", "n"])
def test_one_at_a_terminal_is_asked_about_the_dht(town: Town, place: Path, answer: str) -> None:
    """Nobody is asked who says so by an option, or is no human."""
    server = town.servers[2]
    fay = User("Fay", f"fay-{answer}@f.example", place / f"fay-{answer}", server)
    who = ("--name", fay.name, "--address", fay.address, "--price", PRICE, "--no-passphrase")
    home = ("--server", str(server.address), "--auth-key", server.auth_keys.pop())
    command = fay.command("init", *who, *home, "--allow-private-targets", "--dns", "off")
    keyboard, terminal = pty.openpty()
    try:
        with subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE) as process:
            os.write(keyboard, f"{answer}\n".encode())
            told, _ = process.communicate(timeout=SECONDS)
    finally:
        os.close(keyboard)
        os.close(terminal)
    assert process.returncode == 0
    assert b"in the DHT too?" in told
    assert Home(fay.home).load().dht is (answer == "y")


def test_a_rival_claim_stops_no_mail_to_one_who_is_known(town: Town, place: Path) -> None:
    """Anybody can claim an address there: a newcomer must choose, a correspondent need not.

    Also when the key that is known is due to be renewed, which is asked for by its id.
    """
    ada = town.ada
    ivy = User.settle_in_dht(place, "Ivy", "ivy@i.example", town.servers[0])
    writes(ada, ivy, "before the rival")
    rival = User.settle_in_dht(place, "Rival", ivy.address, town.servers[2])
    gus = User.settle_in_dht(place, "Gus", "gus@g.example", town.servers[1])

    def found() -> set[str]:
        return {row["key_id"] for row in gus.does("key", "find", ivy.address, "--json").value}

    deadline = time.monotonic() + SECONDS
    while found() != {ivy.key_id.hex, rival.key_id.hex}:
        assert time.monotonic() < deadline
    assert gus.tries("send", "--to", ivy.address, "--message", "x").exit_code == 22
    later = utc_now() + timedelta(days=8)
    with open_desk(Home(ada.home), alone=True, clock=lambda: later) as desk:
        assert asyncio.run(Addressing(desk).addressee(ivy.address)).key_id == ivy.key_id
        (known,) = desk.correspondents.known(ivy.address)
        assert known.seen_at == "entangled"


def test_one_whose_home_server_is_outside_the_dht_names_a_door(
    town: Town, servers: tuple[Server, Server], place: Path
) -> None:
    """Before that his mail waits with the reason, and after that all goes both ways."""
    ada, door = town.ada, str(town.servers[0].address)
    hal = User.settle(place, "Hal", "hal@h.example", servers[0])
    first = writes(ada, hal, "to the outside", "--server", str(servers[0].address))
    brings(hal, "to the outside")
    (mail,) = hal.does("list", "--json").value
    refused = hal.tries("reply", str(mail["number"]), "--message", "x")
    assert refused.exit_code == 4
    (row,) = hal.does("outbox", "--json").value
    assert "takes no part in the DHT" in row["recipients"][0]["reason"]
    hal.does("identity", "set", "--entangled", door, "--dht")
    hal.does("outbox", "--retry")
    hal.does("fetch")
    brings(ada, "Re: to the outside")
    ada.outcome(first, "acknowledged")
    hal.outcome(row["number"], "acknowledged")
    number = writes(hal, town.ben, "by a door")
    brings(town.ben, "by a door")
    hal.outcome(number, "acknowledged")
    assert hal.does("identity", "set", "--no-entangled").exit_code == 0
