"""Programs that die half-way: a repetition loses nothing and doubles nothing."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.dying_program import named
from tests.end_to_end.programs import User, letter_to

from sealmail_client.acknowledgments import look_for_acknowledgments
from sealmail_client.desk import Desk, open_desk, utc_now
from sealmail_client.drafts import Addressee, Draft
from sealmail_client.following import follow_queue
from sealmail_client.home_database import HomeDatabase
from sealmail_client.outbox import Stage
from sealmail_client.posting import Peer
from sealmail_client.profile import Home
from sealmail_client.receiving import Receiver
from sealmail_client.sending import Sender
from sealmail_client.settings import Delivery

# What a mail becomes on its way, and an acknowledgment: each by one commit.
STAMPING = ("outgoing_recipient sealed", "outgoing_data", "outgoing_recipient stamped")
SENDING = {
    Delivery.DIRECT: (*STAMPING, "outgoing_taken", "outgoing_recipient sent", "mail", "outgoing"),
    Delivery.PROXY: (*STAMPING, "proxied", "outgoing_recipient queued", "mail", "outgoing"),
}
# What is announced is written with the date of its mailbox. Who finds blocks here that an earlier
# life brought takes note when all have come.
FILING = ("mailbox", "incoming fetched", "mail", "incoming filed")
RECEIVING = {
    Delivery.DIRECT: (*FILING, "incoming", "incoming ended"),
    Delivery.PROXY: (*FILING, "incoming", "proxied", "incoming ended"),
}


class Crash(BaseException):
    """The end of a program, where nothing is cleaned up."""


class DyingDatabase(HomeDatabase):
    """The program dies before a change is committed, and after; each time it survives one more.

    ``survived`` are those deaths: a moment, and the name of what was written last.
    """

    def __init__(self, path: Path, survived: set[str]) -> None:
        super().__init__(path)
        self._survived = survived

    def write(self, statement: str, *values: object) -> int:
        """Write, and die unless more belongs to the same commit."""
        self._name = named(statement, values)
        if self._connection.in_transaction:
            return super().write(statement, *values)
        self._die("before")
        row = super().write(statement, *values)
        self._die("after")
        return row

    @contextmanager
    def unit(self) -> Iterator[None]:
        """Commit all of it or nothing, and die."""
        self._name = ""
        with super().unit():
            yield
            self._die("before")
        self._die("after")

    def _die(self, moment: str) -> None:
        death = f"{moment} {self._name}"
        if self._name and death not in self._survived:
            self._survived.add(death)
            raise Crash


def around(*names: str) -> set[str]:
    """Return the deaths before and after each change."""
    return {f"{moment} {name}" for moment in ("before", "after") for name in names}


def lives(
    user: User,
    work: Callable[[Desk], Coroutine[Any, Any, object]],
    delivery: Delivery = Delivery.DIRECT,
) -> set[str]:
    """Let the program work and die around each commit until all is done; return its deaths.

    Each life begins a second later, so that a block which is made anew has another date.
    """
    home = Home(user.home)
    survived: set[str] = set()
    for life in range(100):
        late = timedelta(seconds=life)
        settings = replace(home.load(), send=delivery, acknowledge=delivery)
        desk = Desk(home, settings, DyingDatabase(home.database, survived), partial(later, late))
        try:
            asyncio.run(work(desk))
        except Crash:
            continue
        finally:
            desk.put_away()
        return survived
    raise AssertionError("the work does not end")


def later(by: timedelta) -> datetime:
    """Return a moment that is to come."""
    return utc_now() + by


def composed(sender: User, reader: User, subject: str) -> int:
    """Put a short mail into the outbox of somebody who knows the reader; return its number."""
    sender.does("key", "find", reader.address, "--server", str(reader.server.address))
    to = Addressee(reader.address, reader.key_id, reader.name)
    with open_desk(Home(sender.home), alone=True) as desk:
        return desk.outbox.add(Draft(os.urandom(20).hex(), subject, "text", (to,)), desk.clock())


@pytest.mark.parametrize("delivery", [Delivery.DIRECT, Delivery.PROXY])
def test_programs_that_die_around_every_commit_still_deliver_once(
    alice: User, bob: User, delivery: Delivery
) -> None:
    """One entry in the mailbox, one mail in the folder, and its sender is told.

    Who dies between the server's DONE and its record sends again what the server has.
    """
    bob.does("fetch")
    before = len(bob.mailbox_entries())
    subject = f"Often killed, {delivery}"
    number = composed(alice, bob, subject)

    async def send(desk: Desk) -> None:
        message = await Sender(desk).advance(number)
        assert message.at(Stage.SENT, Stage.QUEUED)

    async def receive(desk: Desk) -> None:
        async with desk.servers.home() as peer:
            await Receiver(desk).visit(peer)

    async def acks(desk: Desk) -> None:
        async def errand(peer: Peer) -> None:
            await look_for_acknowledgments(desk, peer)
            await follow_queue(desk, peer, Sender(desk))

        while not desk.outbox.one(number).at(Stage.ACKNOWLEDGED):
            await desk.servers.at_home(errand)

    assert lives(alice, send, delivery) == around(*SENDING[delivery])
    while len(bob.mailbox_entries()) == before:
        time.sleep(0.1)
    assert lives(bob, receive, delivery) == around(*RECEIVING[delivery])
    assert bob.subjects().count(subject) == 1
    assert not any((bob.home / "incoming").iterdir())
    assert lives(alice, acks, delivery) >= around("outgoing_recipient acknowledged")
    assert len(bob.mailbox_entries()) == before + 1


@pytest.mark.parametrize("stage", ["composed", "stamped"])
def test_killing_send_and_fetch_and_repeating_them_files_one_mail_once(
    alice: User, bob: User, stage: str
) -> None:
    """Wherever the kill hits, the outbox knows what is left to do."""
    alice.does("key", "find", bob.address, "--server", str(bob.server.address))
    subject = f"Killed when {stage}"
    reached = f"SELECT message FROM outgoing_recipient WHERE state = '{stage}'"  # noqa: S608
    slowly = ("--throttle", "8")
    alice.is_killed_at(reached, *letter_to([bob], subject), *slowly)
    alice.does("outbox", "--retry")
    arriving = "SELECT id FROM incoming WHERE state IN ('announced', 'fetched')"
    bob.is_killed_at(arriving, "fetch", *slowly)
    bob.does("fetch")
    assert bob.subjects().count(subject) == 1
    hashes = Counter(entry.message_hash for entry in bob.mailbox_entries())
    assert set(hashes.values()) == {1}
