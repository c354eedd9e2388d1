"""Programs that die half-way: a repetition loses nothing and doubles nothing."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.programs import User, letter_to

from sealmail_client.desk import Desk
from sealmail_client.drafts import Addressee, Draft
from sealmail_client.home_database import HomeDatabase
from sealmail_client.outbox import Stage
from sealmail_client.profile import Home
from sealmail_client.receiving import Receiver
from sealmail_client.sending import Sender


class Crash(BaseException):
    """The end of a program, where nothing is cleaned up."""


class DyingDatabase(HomeDatabase):
    """Commits one change, then the program dies; each kind of change is survived once."""

    def __init__(self, path: Path, survived: set[tuple[str, object]]) -> None:
        super().__init__(path)
        self._survived = survived

    def write(self, statement: str, *values: object) -> int:
        """Write, and die unless more belongs to the same commit."""
        row = super().write(statement, *values)
        # The first value is a step, a stage or a name.
        self._last = (statement, values[0])
        if not self._connection.in_transaction:
            self._die()
        return row

    @contextmanager
    def unit(self) -> Iterator[None]:
        """Commit, and die."""
        with super().unit():
            yield
        self._die()

    def _die(self) -> None:
        if self._last not in self._survived:
            self._survived.add(self._last)
            raise Crash


def lives(user: User, work: Callable[[Desk], Coroutine[Any, Any, object]]) -> int:
    """Let the program work and die after each commit until all is done; return its deaths."""
    home = Home(user.home)
    survived: set[tuple[str, object]] = set()
    for deaths in range(100):
        desk = Desk(home, home.load(), DyingDatabase(home.database, survived))
        try:
            asyncio.run(work(desk))
        except Crash:
            continue
        finally:
            desk.put_away()
        return deaths
    raise AssertionError("the work does not end")


def test_a_program_that_dies_after_every_commit_still_delivers_once(
    alice: User, bob: User
) -> None:
    """One entry in the mailbox, one mail in the folder, one acknowledgment."""
    alice.does("key", "find", bob.address, "--server", str(bob.server.address))
    bob.does("fetch")
    before = len(bob.mailbox_entries())
    draft = Draft("a" * 40, "Often killed", "text", (Addressee(bob.address, bob.key_id, "Bob"),))
    database = HomeDatabase(alice.home / "mail.sqlite")
    home = Home(alice.home)
    desk = Desk(home, home.load(), database)
    number = desk.outbox.add(draft, desk.clock())
    desk.put_away()

    async def send(desk: Desk) -> None:
        message = await Sender(desk).advance(number)
        assert message.at(Stage.SENT)

    async def receive(desk: Desk) -> None:
        async with desk.servers.home() as peer:
            await Receiver(desk).visit(peer)

    assert lives(alice, send) >= 3
    assert len(bob.mailbox_entries()) == before + 1
    assert lives(bob, receive) >= 5
    assert bob.subjects().count("Often killed") == 1
    assert not any((bob.home / "incoming").iterdir())
    alice.outcome(number, "acknowledged")


@pytest.mark.parametrize("stage", ["composed", "stamped"])
def test_killing_send_and_fetch_and_repeating_them_files_one_mail_once(
    alice: User, bob: User, stage: str
) -> None:
    """Wherever the kill hits, the outbox knows what is left to do."""
    alice.does("key", "find", bob.address, "--server", str(bob.server.address))
    subject = f"Killed when {stage}"
    reached = f"SELECT 1 FROM outgoing_recipient WHERE state = '{stage}'"  # noqa: S608
    alice.is_killed_at(reached, *letter_to([bob], subject))
    alice.does("outbox", "--retry")
    bob.is_killed_at("SELECT 1 FROM incoming WHERE state IN ('announced', 'fetched')", "fetch")
    bob.does("fetch")
    assert bob.subjects().count(subject) == 1
    hashes = Counter(entry.message_hash for entry in bob.mailbox_entries())
    assert set(hashes.values()) == {1}
