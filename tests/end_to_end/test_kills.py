"""Programs that are killed outright: each stage and step survives it, and nothing is doubled."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.end_to_end.programs import SECONDS, Server, User, letter_to

from sealmail_client.inbox import Step
from sealmail_client.outbox import Stage
from sealmail_client.profile import Home
from sealmail_client.settings import Delivery
from sealmail_protocol.blocks import BlockType

ROOT = Path(__file__).parents[2]
COMPOSED, *SENDING = (
    f"outgoing_recipient {stage}"
    for stage in (Stage.COMPOSED, Stage.SEALED, Stage.STAMPED, Stage.SENT)
)
QUEUED = f"outgoing_recipient {Stage.QUEUED}"
ACKNOWLEDGED = f"outgoing_recipient {Stage.ACKNOWLEDGED}"
# A mail that is opened as it comes is recorded as fetched only by who finds its blocks here, so
# somebody must have died before it was filed.
ANNOUNCED, FETCHED, FILED, ENDED = (
    f"incoming {step}" for step in (Step.ANNOUNCED, Step.FETCHED, Step.FILED, Step.ENDED)
)
BEFORE, AFTER, BOTH = ("before",), ("after",), ("before", "after")


def is_killed(user: User, moments: Sequence[str], change: str, *arguments: str) -> None:
    """Give a command that is killed at each moment of a change, as soon as there is one."""
    for moment in moments:
        deadline = time.monotonic() + SECONDS
        while (code := _dies(user, moment, change, *arguments)) != -signal.SIGKILL:
            assert code == 0, change
            assert time.monotonic() < deadline, change


def _dies(user: User, *arguments: str) -> int:
    moment, change, *words = arguments
    program = "tests.end_to_end.dying_program"
    return subprocess.run(
        [sys.executable, "-m", program, moment, change, *user.command(*words)[1:]],
        cwd=ROOT,
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=SECONDS,
    ).returncode


def held(server: Server) -> Counter[str]:
    """Count the blocks of mail on a server."""
    index = f"file:{server.directory / 'store' / 'index.sqlite'}?mode=ro"
    with closing(sqlite3.connect(index, uri=True)) as database:
        counted = Counter(
            dict(database.execute("SELECT type, count(*) FROM entries GROUP BY type"))
        )
    own = (BlockType.KEY_ANNOUNCEMENT, BlockType.ADDRESS_CLAIM)
    return Counter({kind: number for kind, number in counted.items() if kind not in own})


@pytest.fixture(autouse=True)
def ways_of_before(alice: User, bob: User) -> Iterator[None]:
    """Give others back the users whose mail goes another way here."""
    homes = [Home(user.home) for user in (alice, bob)]
    kept = [home.load() for home in homes]
    yield
    for home, settings in zip(homes, kept, strict=True):
        home.save(replace(home.load(), send=settings.send, acknowledge=settings.acknowledge))


@pytest.mark.parametrize(
    ("delivery", "moments"),
    [
        (Delivery.DIRECT, AFTER),
        pytest.param(Delivery.DIRECT, BOTH, marks=pytest.mark.long),
        pytest.param(Delivery.PROXY, BOTH, marks=pytest.mark.long),
    ],
)
def test_a_mail_whose_programs_are_killed_at_every_stage_and_step_comes_once(
    alice: User, bob: User, delivery: Delivery, moments: Sequence[str]
) -> None:
    """One announcement, its data once, one mail, one acknowledgment, and its sender is told."""
    for user in (alice, bob):
        user.does("fetch")
        home = Home(user.home)
        home.save(replace(home.load(), send=delivery, acknowledge=delivery))
    alice.does("key", "find", bob.address, "--server", str(bob.server.address))
    subject = f"Killed {delivery} {moments}"
    before, before_here = held(bob.server), held(alice.server)
    entries = len(bob.mailbox_entries())

    is_killed(alice, AFTER, COMPOSED, *letter_to([bob], subject))
    for change in SENDING[:-1]:
        is_killed(alice, moments, change, "outbox", "--retry")
    # What a server did is not known here yet.
    left = SENDING[-1] if delivery is Delivery.DIRECT else QUEUED
    is_killed(alice, BOTH, left, "outbox", "--retry")
    alice.does("outbox", "--retry")
    deadline = time.monotonic() + SECONDS
    while len(bob.mailbox_entries()) == entries:
        assert time.monotonic() < deadline

    is_killed(bob, moments, ANNOUNCED, "fetch")
    is_killed(bob, BEFORE, "mail", "fetch")
    for change in (FETCHED, "mail", FILED):
        is_killed(bob, moments, change, "fetch")
    is_killed(bob, BOTH, ENDED, "fetch")
    bob.does("fetch")
    is_killed(alice, moments, ACKNOWLEDGED, "fetch")
    alice.does("fetch")

    (row,) = (one for one in alice.does("acks", "--json").value if one["subject"] == subject)
    assert [one["state"] for one in row["recipients"]] == [Stage.ACKNOWLEDGED]
    assert bob.subjects().count(subject) == 1
    sent = alice.does("list", "--folder", "sent", "--json").value
    assert [one["subject"] for one in sent].count(subject) == 1
    assert held(bob.server) - before == {BlockType.MESSAGE_ANNOUNCEMENT: 1, BlockType.DATA: 1}
    assert held(alice.server) - before_here == {BlockType.ACKNOWLEDGMENT: 1}
