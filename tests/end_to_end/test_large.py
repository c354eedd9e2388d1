"""Mail of many blocks: what overlaps on its way, and what becomes of it when it is broken off."""

import asyncio
import os
import re
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.end_to_end.programs import Server, User, letter_to
from tests.end_to_end.test_crashes import RECEIVING, SENDING, around, lives

from sealmail_client.desk import Desk, open_desk
from sealmail_client.drafts import Addressee, Draft
from sealmail_client.early_blocks import EarlyBlocks
from sealmail_client.outbox import Stage
from sealmail_client.profile import Home
from sealmail_client.receiving import Receiver
from sealmail_client.sending import Sender
from sealmail_client.settings import Delivery

PIECES = 3
MAX_MEMORY_KIB = 150 * 1024


@pytest.fixture(scope="module")
def large(place: Path) -> Path:
    """Return a file that travels in several blocks."""
    path = place / "large.bin"
    path.write_bytes(os.urandom(PIECES * 8 * 1024 * 1024 - 100_000))
    return path


@pytest.fixture(scope="module")
def dora(place: Path, servers: tuple[Server, Server]) -> User:
    """Return a user for whom nothing of other tests waits."""
    return User.settle(place, "Dora", "dora@b.example", servers[1])


def compose(sender: User, reader: User, subject: str, file: Path) -> int:
    """Put a mail into the outbox of somebody who knows the reader, and return its number."""
    sender.does("key", "find", reader.address, "--server", str(reader.server.address))
    to = Addressee(reader.address, reader.key_id, reader.name)
    with open_desk(Home(sender.home), alone=True) as desk:
        return desk.outbox.add(
            Draft(os.urandom(20).hex(), subject, "text", (to,), (file,)), desk.clock()
        )


def saved(reader: User, subject: str, place: Path) -> bytes:
    """Return the attachment of the one mail with this subject."""
    (row,) = (one for one in reader.does("list", "--json").value if one["subject"] == subject)
    assert row["signature"] == "valid"
    place.mkdir()
    reader.does("save", str(row["number"]), str(place))
    (path,) = place.iterdir()
    return path.read_bytes()


def test_blocks_leave_while_the_mail_is_still_being_sealed(
    alice: User, bob: User, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the seal is whole, a server holds some of them, with the stamps that are recorded."""
    number = compose(alice, bob, "Leaving early", large)
    seen: list[tuple[Stage, int]] = []
    finish = EarlyBlocks.finish

    with open_desk(Home(alice.home), alone=True) as desk:

        async def looked_at(early: EarlyBlocks) -> None:
            await finish(early)
            message = desk.outbox.one(number)
            held = desk.outbox.taken(number, str(bob.server.address))
            assert all(message.blocks[position].header for position in held)
            seen.append((message.recipients[0].stage, len(held)))

        monkeypatch.setattr(EarlyBlocks, "finish", looked_at)
        message = asyncio.run(Sender(desk).advance(number))
    assert message.at(Stage.SENT)
    ((stage, held),) = seen
    assert stage is Stage.COMPOSED
    assert 0 < held < len(message.blocks)
    bob.does("fetch")
    assert (
        saved(bob, "Leaving early", alice.directory.parent / "leaving-early") == large.read_bytes()
    )


def test_mail_that_is_held_back_sends_nothing_early(alice: User, bob: User, large: Path) -> None:
    """Its time has not come, for any part of it."""
    number = compose(alice, bob, "Held back", large)
    with open_desk(Home(alice.home), alone=True) as desk:
        desk.database.write(
            "UPDATE outgoing_recipient SET next_try = '2099-01-01T00:00:00Z' WHERE message = ?",
            number,
        )
        message = asyncio.run(Sender(desk).advance(number))
        assert message.at(Stage.STAMPED)
        assert desk.outbox.taken(number, str(bob.server.address)) == frozenset()
        desk.outbox.cancel(number, desk.clock())


def test_large_mail_whose_programs_die_around_every_commit_arrives_once(
    alice: User, dora: User, large: Path
) -> None:
    """Blocks that left early, of a seal that never became whole, are of no mail."""
    number = compose(alice, dora, "Large and often killed", large)

    async def send(desk: Desk) -> None:
        message = await Sender(desk).advance(number)
        assert message.at(Stage.SENT)

    async def receive(desk: Desk) -> None:
        async with desk.servers.home() as peer:
            await Receiver(desk).visit(peer)

    assert lives(alice, send) == around("outgoing_data", *SENDING[Delivery.DIRECT])
    assert lives(dora, receive) == around(*RECEIVING[Delivery.DIRECT])
    name = alice.directory.parent / "large-and-often-killed"
    assert saved(dora, "Large and often killed", name) == large.read_bytes()
    assert len(dora.mailbox_entries()) == 1
    assert not any((dora.home / "incoming").iterdir())


def test_a_block_that_is_damaged_on_our_disk_is_fetched_again(
    alice: User, bob: User, large: Path
) -> None:
    """The whole does not fit the MessageHash, so each block is looked at, and one is bad."""
    assert alice.sends([bob], "With a bad block", "--attach", str(large)).exit_code == 0
    bob.is_killed_at("SELECT id FROM incoming WHERE state = 'announced'", "fetch")
    with sqlite3.connect(bob.home / "mail.sqlite") as database:
        (number,) = database.execute("SELECT max(id) FROM incoming").fetchone()
    database.close()
    entry = max(bob.mailbox_entries(), key=lambda one: one.date)
    directory = bob.home / "incoming" / str(number)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / entry.data_blocks[1].hex).write_bytes(b"not what came")
    bob.does("fetch")
    name = alice.directory.parent / "with-a-bad-block"
    assert saved(bob, "With a bad block", name) == large.read_bytes()


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Keep a server away for a while."""
    server.stop()
    try:
        yield
    finally:
        server.start()


def test_a_server_that_is_away_costs_a_large_mail_only_time(
    alice: User, bob: User, large: Path
) -> None:
    """Nothing leaves early, the seal is made all the same, and goes when the server is back."""
    number = compose(alice, bob, "When you are back", large)
    with stopped(bob.server), open_desk(Home(alice.home), alone=True) as desk:
        waiting = asyncio.run(Sender(desk).advance(number))
        assert waiting.at(Stage.STAMPED)
    assert alice.tries("outbox", "--retry").exit_code == 0
    bob.does("fetch")
    name = alice.directory.parent / "when-you-are-back"
    assert saved(bob, "When you are back", name) == large.read_bytes()


def peak_memory(user: User, *arguments: str) -> int:
    """Give a command to the installed program; return the most KiB it ever had, without gpg's."""
    process = subprocess.Popen(
        user.command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    status, peak = Path(f"/proc/{process.pid}/status"), 0
    # The figure only grows, and is gone with the process.
    while process.poll() is None:
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        peak = peak if found is None else int(found[1])
        time.sleep(0.01)
    _, complaint = process.communicate()
    assert process.returncode == 0, complaint
    return peak


def test_memory_stays_flat_when_large_mail_is_sent_and_fetched(
    alice: User, bob: User, tmp_path: Path
) -> None:
    """Neither program holds more than some blocks of it."""
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(256 * 1024 * 1024)
    words = letter_to([bob], "Larger than memory")
    sending = peak_memory(alice, *words, "--attach", str(large))
    assert 0 < sending < MAX_MEMORY_KIB
    assert 0 < peak_memory(bob, "fetch", "--all") < MAX_MEMORY_KIB
    assert "Larger than memory" in bob.subjects()
