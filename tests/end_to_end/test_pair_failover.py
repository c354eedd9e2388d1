"""A home that is a real pair: what one server was given to deliver, the other one tells of."""

import json
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.programs import PROGRAMS, SECONDS, Server, User, letter_to

from sealmail_client.profile import Home


def operate(server: Server, *words: str) -> str:
    """Give an operator's command."""
    command = [str(PROGRAMS / "sealmaild"), *words, "--data", str(server.directory)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=True
    ).stdout


@contextmanager
def away(server: Server, *, hangs: bool = False) -> Iterator[None]:
    """Stop a server for a while; in its place may be what accepts and says nothing."""
    server.stop()
    try:
        with ExitStack() as stack:
            if hangs:
                place = (server.address.host, server.address.port)
                stack.enter_context(socket.create_server(place))
            yield
    finally:
        server.start()


@pytest.fixture(scope="module")
def pair(place: Path) -> Iterator[tuple[Server, Server]]:
    """Run two servers that are paired."""
    first, second = (Server.create(place / name) for name in ("p", "q"))
    for server in (first, second):
        server.start()
    code = operate(first, "pair", "--address", str(first.address)).strip()
    operate(second, "pair", code, "--address", str(second.address))
    yield first, second
    for server in (first, second):
        server.stop()


@pytest.fixture(scope="module")
def pia(place: Path, pair: tuple[Server, Server]) -> User:
    """Return a user at home on the pair, who lets it deliver her mail."""
    user = User.settle(place, "Pia", "pia@p.example", pair[0])
    both = [word for server in pair for word in ("--server", str(server.address))]
    user.does("identity", "set", "--send", "proxy", *both)
    return user


@pytest.fixture(autouse=True)
def _forget_failures(pia: User) -> None:
    """Have the first server asked first again."""
    with closing(sqlite3.connect(Home(pia.home).database)) as database, database:
        database.execute("DELETE FROM server_failure")


def copies(server: Server) -> list[dict[str, Any]]:
    """Return the copies that a server has of its partner's rows."""
    rows = json.loads(operate(server, "queue", "list", "--all", "--json"))
    return [row for row in rows if row["copy"]]


def test_the_other_server_tells_what_became_of_mail(
    pia: User, bob: User, pair: tuple[Server, Server]
) -> None:
    """The first one delivered it, and is away before anybody has asked it."""
    first, second = pair
    moment = (datetime.now(UTC) + timedelta(seconds=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
    letter = letter_to([bob], "Told by the other")
    sent = pia.does(*letter, "--after", moment, "--json").value
    assert sent["recipients"][0]["state"] == "queued"
    deadline = time.monotonic() + SECONDS
    while not (known := copies(second)) or {row["state"] for row in known} != {"delivered"}:
        assert time.monotonic() < deadline, known
        time.sleep(0.2)
    with away(first):
        row = pia.outcome(sent["number"], "sent", "outbox")
        assert row["recipients"][0]["server"] == f"server={bob.server.address}"
        bob.does("fetch")
    assert "Told by the other" in bob.subjects()


@pytest.mark.parametrize("hangs", [False, True], ids=["stopped", "hanging"])
def test_mail_is_given_to_the_other_server_while_the_first_is_away(
    pia: User, bob: User, pair: tuple[Server, Server], hangs: bool
) -> None:
    """It delivers it, and tells so; what came back is known at the first one too, later."""
    subject = f"Given to the other, {hangs}"
    before = len(copies(pair[0]))
    with away(pair[0], hangs=hangs):
        sent = pia.does(*letter_to([bob], subject), "--json").value
        pia.outcome(sent["number"], "sent", "outbox")
        bob.does("fetch")
        assert bob.subjects().count(subject) == 1
    deadline = time.monotonic() + SECONDS
    while len([row for row in copies(pair[0]) if row["state"] == "delivered"]) <= before:
        assert time.monotonic() < deadline, copies(pair[0])
        time.sleep(0.2)
