"""A home of two servers: one is stopped, or accepts and hangs, and mail goes on."""

import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.end_to_end.programs import PROGRAMS, SECONDS, Server, User

from sealmail_client.profile import Home

# A head start and the work of the program itself, on a busy machine; deadlines are far longer.
WITHIN_SECONDS = 12


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Stop a server for a while: who comes is refused."""
    server.stop()
    try:
        yield
    finally:
        server.start()


@contextmanager
def hanging(server: Server) -> Iterator[None]:
    """Let something that accepts and says nothing stand in the place of a server."""
    with stopped(server), socket.create_server((server.address.host, server.address.port)):
        yield


@contextmanager
def busy(server: Server) -> Iterator[None]:
    """Let a server have as many connections as it takes, so that it says BUSY to who comes."""
    config = server.directory / "config.toml"
    text = config.read_text()
    with stopped(server):
        config.write_text(f"{text}\nmax_connections = 1\n")
    try:
        with socket.create_connection((server.address.host, server.address.port)) as only:
            assert b"READY" in only.recv(100)
            yield
    finally:
        with stopped(server):
            config.write_text(text)


@pytest.fixture(scope="module")
def group(place: Path) -> Iterator[tuple[Server, Server]]:
    """Run two servers on which the same user has an account."""
    first, second = (Server.create(place / name) for name in ("e", "f"))
    for server in (first, second):
        server.start()
    yield first, second
    for server in (first, second):
        server.stop()


@pytest.fixture(scope="module")
def erin(place: Path, group: tuple[Server, Server]) -> User:
    """Return a user at home on both; her key is published on both."""
    first, second = group
    user = User.settle(place, "Erin", "erin@e.example", first)
    auth_key = Home(user.home).load_auth_key().text
    account = ["account", "add", user.key_id.hex, "--auth-key-stdin", "--data"]
    subprocess.run(
        [str(PROGRAMS / "sealmaild"), *account, str(second.directory)],
        input=auth_key, text=True, capture_output=True, timeout=SECONDS, check=True,
    )  # fmt: skip
    both = ("--server", str(first.address), "--server", str(second.address))
    user.does("identity", "set", *both)
    with stopped(first):
        user.does("key", "publish")
    return user


def forget_failures(user: User) -> None:
    """Let time pass, so that the first server is asked first again."""
    with closing(sqlite3.connect(Home(user.home).database)) as database, database:
        database.execute("DELETE FROM server_failure")


def test_everything_goes_on_while_the_first_server_is_stopped(
    erin: User, alice: User, group: tuple[Server, Server]
) -> None:
    """Looking up, sending, fetching and acknowledging, at the other server."""
    servers = ("--server", str(group[1].address))
    with stopped(group[0]):
        alice.does("key", "find", erin.address, *servers)
        sent = alice.does(
            "send", "--to", erin.address, "--subject", "One", "--message", "1", "--json"
        )
        assert sent.value["recipients"][0]["server"] == str(group[1].address)
        filed = erin.does("fetch", "--json").value["filed"]
        assert [mail["subject"] for mail in filed] == ["One"]
        reply = ("--to", alice.address, "--server", str(alice.server.address))
        erin.does("send", *reply, "--subject", "Two", "--message", "2")
        alice.does("fetch")
        (row,) = erin.does("outbox", "--json").value
        erin.outcome(row["number"], "acknowledged")


def test_a_server_that_accepts_and_hangs_costs_seconds_once(
    erin: User, alice: User, group: tuple[Server, Server]
) -> None:
    """Then the other one is asked first, until some minutes have passed."""
    forget_failures(erin)
    with hanging(group[0]):
        begin = time.monotonic()
        erin.does("fetch")
        assert 2.0 < time.monotonic() - begin < WITHIN_SECONDS
        begin = time.monotonic()
        erin.does("acks")
        assert time.monotonic() - begin < 2.0
        begin = time.monotonic()
        alice.does("send", "--to", erin.address, "--subject", "Three", "--message", "3")
        assert time.monotonic() - begin < WITHIN_SECONDS
        erin.does("fetch")
        assert "Three" in erin.subjects()


def test_switching_between_servers_files_no_mail_twice_and_loses_none(
    erin: User, alice: User, group: tuple[Server, Server]
) -> None:
    """Each server has a mail that the other one lacks, as replicas that lag have."""
    forget_failures(erin)
    for down, subject in ((group[1], "At the first"), (group[0], "At the second")):
        with stopped(down):
            alice.does("send", "--to", erin.address, "--subject", subject, "--message", "text")
    forget_failures(erin)
    for down in (group[1], group[0], group[1], group[0]):
        with stopped(down):
            erin.does("fetch")
    for subject in ("At the first", "At the second", "One", "Three"):
        assert erin.subjects().count(subject) == 1


def test_a_home_of_other_servers_only_is_no_change_of_the_group(erin: User) -> None:
    """What lies on the servers it is at home on would be left behind."""
    refused = erin.tries("identity", "set", "--server", "192.0.2.1:8081")
    assert refused.exit_code == 2
    assert "keep at least one of the present servers" in refused.complaint


def test_when_both_servers_are_away_the_reasons_of_both_are_told(
    erin: User, group: tuple[Server, Server]
) -> None:
    """With the exit code of the network; what was not fetched is fetched later."""
    with stopped(group[0]), stopped(group[1]):
        failed = erin.runs("fetch")
    assert failed.exit_code == 3
    assert all(str(server.address) in failed.complaint for server in group)
    erin.does("fetch")


def test_a_busy_server_is_passed_over_and_its_words_are_told(
    erin: User, alice: User, group: tuple[Server, Server]
) -> None:
    """Mail goes on at the other one; when that is away, the user reads what the first said."""
    forget_failures(erin)
    forget_failures(alice)
    alice.does("key", "find", erin.address, "--server", str(group[1].address))
    with busy(group[0]):
        alice.does("send", "--to", erin.address, "--subject", "Four", "--message", "4")
        erin.does("fetch")
        assert "Four" in erin.subjects()
        with stopped(group[1]):
            failed = erin.runs("fetch")
    assert failed.exit_code == 3
    assert f"{group[0].address} does not serve now: 'BUSY'" in failed.complaint


def test_a_login_that_one_server_refuses_is_tried_at_the_other(
    erin: User, group: tuple[Server, Server]
) -> None:
    """An account may be new, and not on its way to the other replica yet."""
    forget_failures(erin)
    command = (str(PROGRAMS / "sealmaild"), "account", "remove", erin.key_id.hex)
    subprocess.run(
        [*command, "--data", str(group[0].directory)],
        capture_output=True, timeout=SECONDS, check=True,
    )  # fmt: skip
    erin.does("fetch")
    with stopped(group[1]):
        refused = erin.runs("fetch")
    assert refused.exit_code == 3
    assert "refused the login" in refused.complaint
