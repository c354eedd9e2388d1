"""Mail that the home server delivers: what it is given, what it tells, and what comes back."""

import json
import sqlite3
import subprocess
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.programs import PROGRAMS, SECONDS, Server, User, letter_to


@pytest.fixture(scope="module")
def paula(place: Path, servers: tuple[Server, Server]) -> User:
    """Return a user of the first server who lets it deliver all her mail."""
    user = User.settle(place, "Paula", "paula@a.example", servers[0])
    user.does("identity", "set", "--send", "proxy")
    return user


def proxied(user: User, message: int) -> list[tuple[str, str, int]]:
    """Return type, target and line of all that the home server was given of a message."""
    with closing(sqlite3.connect(user.home / "mail.sqlite")) as database:
        return database.execute(
            "SELECT type, target, line FROM proxied WHERE message = ? ORDER BY id", (message,)
        ).fetchall()


def queue(server: Server, *words: str) -> Any:
    """Give the operator's command about the queue."""
    command = [str(PROGRAMS / "sealmaild"), "queue", *words, "--data", str(server.directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    return json.loads(done.stdout) if "--json" in words else done.stdout


def test_no_server_but_the_home_is_dialled(paula: User, bob: User) -> None:
    """Not to find a key that is unknown, nor to leave mail or an acknowledgment."""
    sent = paula.does(*letter_to([bob], "By proxy"), "--json").value
    assert sent["recipients"][0]["state"] in ("queued", "sent")
    row = paula.outcome(sent["number"], "sent", "outbox")
    assert row["recipients"][0]["server"] == f"server={bob.server.address}"
    assert row["recipients"][0]["sent"] is not None
    filed = bob.does("fetch", "--json").value["filed"]
    assert [mail["subject"] for mail in filed].count("By proxy") == 1
    paula.outcome(sent["number"], "acknowledged")
    bob.does("send", "--to", paula.address, "--server", str(paula.server.address),
             "--subject", "Back", "--message", "text")  # fmt: skip
    assert paula.does("fetch", "--json").value["filed"]
    ways = [pin["way"] for pin in paula.does("server", "pins", "--json").value]
    assert ways == [f"direct {paula.server.address}"]


def test_data_is_handed_over_once_for_all_recipients(paula: User, bob: User, alice: User) -> None:
    """With a Post-To line for each server, and an announcement for each recipient."""
    sent = paula.does(*letter_to([bob, alice], "To both"), "--json").value
    here, there = (f"server={user.server.address}" for user in (alice, bob))
    given = proxied(paula, sent["number"])
    assert [row for row in given if row[0] == "data"] == [("data", there, 1), ("data", here, 2)]
    announced = [row for row in given if row[0] == "message-announcement"]
    assert announced == [("message-announcement", there, 1), ("message-announcement", here, 1)]
    paula.outcome(sent["number"], "sent", "outbox")
    for reader in (bob, alice):
        reader.does("fetch")
        assert reader.subjects().count("To both") == 1


def test_mail_is_held_until_its_time(alice: User, bob: User) -> None:
    """Also for who sends his other mail himself; then it leaves without his program."""
    moment = (datetime.now(UTC) + timedelta(seconds=4)).strftime("%Y-%m-%dT%H:%M:%SZ")
    sent = alice.does(*letter_to([bob], "In its time"), "--after", moment, "--json").value
    assert (sent["after"], sent["recipients"][0]["state"]) == (moment, "queued")
    bob.does("fetch")
    assert "In its time" not in bob.subjects()
    row = alice.outcome(sent["number"], "sent", "outbox")
    assert row["recipients"][0]["sent"] >= moment
    bob.does("fetch")
    assert "In its time" in bob.subjects()


@pytest.mark.parametrize("when", ["4d", "0h", "tomorrow", "2026-13-01T00:00"])
def test_a_time_that_no_server_keeps_is_an_error_of_usage(
    alice: User, bob: User, when: str
) -> None:
    """Nothing is written then."""
    before = len(alice.does("outbox", "--json").value)
    assert alice.tries(*letter_to([bob], "Never"), "--after", when).exit_code == 2
    assert len(alice.does("outbox", "--json").value) == before


def test_what_comes_back_is_told_with_its_reason(
    paula: User, bob: User, servers: tuple[Server, Server]
) -> None:
    """First why it waits, then that it came back; the operator dropped it."""
    paula.does("key", "find", bob.address, "--server", str(bob.server.address))
    servers[1].stop()
    try:
        sent = paula.does(
            "send", "--to", bob.address, "--subject", "Lost", "--message", "x", "--json"
        )
        number = sent.value["number"]
        waiting = paula.outcome(number, "queued", "outbox")["recipients"][0]
        assert waiting["next_try"] is None
        for row in queue(servers[0], "list", "--json"):
            if row["state"] == "waiting" and row["type"] == "message-announcement":
                queue(servers[0], "drop", str(row["number"]))
        (failed,) = paula.outcome(number, "failed", "outbox")["recipients"]
    finally:
        servers[1].start()
    assert "(dropped)" in failed["reason"]
    assert "ask the operator" in failed["reason"]
    assert f"{bob.address}  failed: " in paula.does("outbox").output


def test_a_home_server_that_is_away_keeps_mail_in_the_outbox(
    paula: User, bob: User, servers: tuple[Server, Server]
) -> None:
    """It is not sent directly instead: that would show what the user wants to hide."""
    servers[0].stop()
    try:
        failed = paula.tries("send", "--to", bob.address, "--subject", "Away", "--message", "x")
    finally:
        servers[0].start()
    assert failed.exit_code == 4
    sent = paula.does("outbox", "--retry", "--json").value[-1]
    paula.outcome(sent["number"], "sent", "outbox")


def test_acknowledgments_go_directly_where_the_user_says_so(alice: User, bob: User) -> None:
    """The setting is kept apart from that for mail."""
    bob.does("identity", "set", "--acknowledge", "direct")
    try:
        sent = alice.does(*letter_to([bob], "Direct"), "--json").value
        bob.does("fetch")
    finally:
        bob.does("identity", "set", "--acknowledge", "proxy")
    (row,) = (r for r in alice.does("acks", "--json").value if r["number"] == sent["number"])
    assert row["recipients"][0]["state"] == "acknowledged"
