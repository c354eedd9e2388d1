"""Rows of what the home server delivers: matched to its own, whatever it tells, and when."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.client.samples import BOB, DATE

from sealmail_client.drafts import Addressee, Draft
from sealmail_client.home_database import HomeDatabase
from sealmail_client.outbox import Outbox
from sealmail_client.proxied import ProxiedBlocks
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import Transport
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import QueueRow, QueueState

A, B, C = (Transport.parse(f"server={name}.example:1") for name in "abc")
DATA, NEWS = b"d" * 32, b"n" * 32
MINUTE = timedelta(minutes=1)
DRAFT = Draft("a" * 40, "subject", "text", (Addressee("bob@b.example", BOB, "Bob"),))


def row(digest: bytes, line: int, state: QueueState, code: str = "-", later: int = 0) -> QueueRow:
    """Return what the server tells of a block that it queued ``later`` minutes after the date."""
    queued = DATE + later * MINUTE
    return QueueRow(BlockKey(bytes(20)), BlockType.DATA, line, state, code, queued, queued, digest)


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[ProxiedBlocks]:
    """Return the rows of a home with one message, number 1."""
    database = HomeDatabase(tmp_path / "mail.sqlite")
    assert Outbox(database).add(DRAFT, DATE) == 1
    yield ProxiedBlocks(database)
    database.close()


def test_a_block_is_missing_where_it_was_not_given_or_came_back(proxied: ProxiedBlocks) -> None:
    """What waits or was delivered is not given again."""
    assert proxied.missing(DATA, (A, B)) == [A, B]
    proxied.record_data(1, DATA, (A, B), DATE)
    assert proxied.missing(DATA, (A, B, C)) == [C]
    proxied.update([row(DATA, 1, QueueState.REFUSED, "full"), row(DATA, 2, QueueState.DELIVERED)])
    assert proxied.missing(DATA, (A, B)) == [A]
    dead = proxied.dead_data(1, A)
    assert dead is not None
    assert (dead.code, dead.dead) == ("full", True)
    assert proxied.dead_data(1, B) is None


def test_a_mail_waits_for_its_data_too(proxied: ProxiedBlocks) -> None:
    """While its announcement was not tried, the reason is that of its data at the same group."""
    proxied.record_data(1, DATA, (A, B), DATE)
    proxied.record_announcement(1, BOB, NEWS, A, DATE)
    assert proxied.held_up(1, BOB, A) is None
    proxied.update([row(DATA, 2, QueueState.WAITING, "slow")])
    assert proxied.held_up(1, BOB, A) is None
    proxied.update([row(DATA, 1, QueueState.WAITING, "unreachable")])
    waits = proxied.held_up(1, BOB, A)
    assert waits is not None
    assert waits.code == "unreachable"
    proxied.update([row(NEWS, 1, QueueState.WAITING, "busy")])
    waits = proxied.held_up(1, BOB, A)
    assert waits is not None
    assert waits.code == "busy"


def test_nothing_is_asked_while_nothing_is_under_way(proxied: ProxiedBlocks) -> None:
    """Else from a day before the first block that waits was given."""
    assert proxied.since() is None
    proxied.record_data(1, DATA, (A,), DATE)
    assert proxied.since() == DATE - timedelta(days=1)
    proxied.update([row(DATA, 1, QueueState.DELIVERED)])
    assert proxied.since() is None


def test_a_mirror_that_lags_takes_nothing_back(proxied: ProxiedBlocks) -> None:
    """Of two states the better one stays: delivered, refused, given up, waiting."""
    proxied.record_announcement(1, BOB, NEWS, A, DATE)
    proxied.update([row(NEWS, 1, QueueState.DELIVERED)])
    for state in (QueueState.WAITING, QueueState.GIVEN_UP, QueueState.REFUSED):
        proxied.update([row(NEWS, 1, state, "slow")])
    stands = proxied.announced(1, BOB)
    assert stands is not None
    assert stands.state is QueueState.DELIVERED


def test_what_is_told_of_an_earlier_try_is_passed_over(proxied: ProxiedBlocks) -> None:
    """The server keeps its dead letter beside the row of the new try."""
    proxied.record_announcement(1, BOB, NEWS, A, DATE)
    dead = row(NEWS, 1, QueueState.GIVEN_UP, "slow")
    proxied.update([dead])
    proxied.record_announcement(1, BOB, NEWS, A, DATE + MINUTE)
    proxied.update([dead])
    stands = proxied.announced(1, BOB)
    assert stands is not None
    assert (stands.state, stands.code) == (QueueState.WAITING, "-")
    proxied.update([dead, row(NEWS, 1, QueueState.DELIVERED, later=2)])
    stands = proxied.announced(1, BOB)
    assert stands is not None
    assert stands.state is QueueState.DELIVERED


def test_an_announcement_that_was_minted_anew_takes_the_place_of_the_old_one(
    proxied: ProxiedBlocks,
) -> None:
    """What is told of the old one later is nobody's any more."""
    proxied.record_announcement(1, BOB, NEWS, A, DATE)
    proxied.record_announcement(1, BOB, b"m" * 32, A, DATE + MINUTE)
    proxied.update([row(NEWS, 1, QueueState.REFUSED, "price")])
    stands = proxied.announced(1, BOB)
    assert stands is not None
    assert stands.state is QueueState.WAITING


def test_a_line_that_was_used_for_two_groups_tells_of_neither_wrongly(
    proxied: ProxiedBlocks,
) -> None:
    """The second group's row is not matched, and is given again if its mail came back."""
    proxied.record_data(1, DATA, (A,), DATE)
    proxied.record_data(1, DATA, (B,), DATE)
    proxied.update([row(DATA, 1, QueueState.DELIVERED)])
    assert proxied.missing(DATA, (A, B)) == []
    proxied.give_again(1, A)
    proxied.give_again(1, B)
    assert proxied.missing(DATA, (A, B)) == [B]


def test_an_acknowledgment_that_came_back_is_told_once(proxied: ProxiedBlocks) -> None:
    """One that arrived is forgotten without a word."""
    for mail, digest in ((7, b"x" * 32), (8, b"y" * 32), (9, b"z" * 32)):
        proxied.record_acknowledgment(mail, digest, A, DATE)
    proxied.update(
        [row(b"x" * 32, 1, QueueState.GIVEN_UP, "slow"), row(b"y" * 32, 1, QueueState.DELIVERED)]
    )
    assert [(one.mail, one.code) for one in proxied.take_dead_acknowledgments()] == [(7, "slow")]
    assert proxied.take_dead_acknowledgments() == []
    assert proxied.since() is not None


def test_a_demand_is_kept_beside_its_code(proxied: ProxiedBlocks) -> None:
    """It is what is to be minted."""
    proxied.record_announcement(1, BOB, NEWS, A, DATE)
    told = row(NEWS, 1, QueueState.REFUSED, "price")
    priced = QueueRow.parse(f"{told} bd,22,2")
    proxied.update([priced])
    stands = proxied.announced(1, BOB)
    assert stands is not None
    assert stands.demand == Difficulty(22, 2)
