"""Arriving messages: which are asked for, and that one is one however often it comes."""

from datetime import timedelta
from pathlib import Path

import pytest
from tests.client.samples import BOB, DATE
from tests.client.signed_blocks import message_to

from sealmail_client.home_database import HomeDatabase
from sealmail_client.inbox import FULL_GET_EVERY, LOOK_BACK, DueAcknowledgment, Inbox, Step
from sealmail_pow import Difficulty, mint
from sealmail_protocol.compose import make_acknowledgment
from sealmail_protocol.keys import AckHash

HOUR = timedelta(hours=1)


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    """Return an empty inbox."""
    return Inbox(HomeDatabase(tmp_path / "mail.sqlite"))


def test_a_mailbox_is_asked_from_four_days_before_the_newest_date(inbox: Inbox) -> None:
    """The first time, and once a day, for everything."""
    assert inbox.since("0", DATE) is None
    inbox.note_asked("0", DATE - HOUR, DATE, full=True)
    assert inbox.since("0", DATE + HOUR) == DATE - HOUR - LOOK_BACK
    assert inbox.since("1", DATE + HOUR) is None
    inbox.note_asked("0", DATE - timedelta(days=3), DATE + HOUR, full=False)
    assert inbox.since("0", DATE + HOUR) == DATE - HOUR - LOOK_BACK
    assert inbox.since("0", DATE + FULL_GET_EVERY) is None


def test_a_date_of_the_future_hides_no_mail(inbox: Inbox) -> None:
    """Neither a sender's nor that of a clock which was wrong for a while."""
    inbox.note_asked("0", DATE + timedelta(days=1), DATE, full=True)
    assert inbox.since("0", DATE) == DATE - LOOK_BACK
    wrong = DATE + timedelta(days=365)
    inbox.note_asked("0", wrong, wrong, full=True)
    assert inbox.since("0", DATE + HOUR) is None
    inbox.note_asked("0", DATE, DATE + HOUR, full=True)
    assert inbox.since("0", DATE + HOUR) == DATE + HOUR - LOOK_BACK


def test_a_message_that_is_announced_twice_is_one(inbox: Inbox) -> None:
    """Another date or mailbox makes no other message of the same bytes."""
    assert inbox.add(message_to(BOB), 8, Step.ANNOUNCED)
    assert not inbox.add(message_to(BOB, date=DATE + HOUR, mailbox="1"), 9, Step.ANNOUNCED)
    assert inbox.add(message_to(BOB, b"other"), 8, Step.ANNOUNCED)
    assert len(inbox.at(Step.ANNOUNCED)) == 2


def test_a_cheap_copy_of_an_announcement_does_not_hold_the_paid_one_back(inbox: Inbox) -> None:
    """Who announces a foreign message first, below the price, delays it no further."""
    inbox.add(message_to(BOB), 8, Step.UNDERPAID)
    inbox.add(message_to(BOB), 48, Step.ANNOUNCED)
    (message,) = inbox.at(Step.ANNOUNCED)
    inbox.record_step(message.number, Step.ENDED)
    inbox.add(message_to(BOB), 8, Step.UNDERPAID)
    assert inbox.at(Step.UNDERPAID, Step.ANNOUNCED) == ()


def test_a_message_that_is_put_off_is_tried_then_or_when_the_user_asks(inbox: Inbox) -> None:
    """How often it was tried is not forgotten, and it stands behind the others."""
    inbox.add(message_to(BOB), 8, Step.FETCHED)
    inbox.add(message_to(BOB, b"other"), 8, Step.FETCHED)
    message, other = inbox.at(Step.FETCHED)
    assert message.may_be_tried(DATE)
    inbox.put_off(message.number, DATE + HOUR)
    inbox.put_off(message.number, DATE + HOUR)
    behind = inbox.at(Step.FETCHED)
    assert [one.number for one in behind] == [other.number, message.number]
    message = behind[-1]
    assert message.tries == 2
    assert not message.may_be_tried(DATE)
    assert message.may_be_tried(DATE + HOUR)
    inbox.want(message.number)
    (message,) = inbox.at(Step.ANNOUNCED)
    assert message.may_be_tried(DATE)
    assert message.tries == 2


def test_what_is_forgotten_is_new_when_it_is_announced_again(inbox: Inbox) -> None:
    """Its blocks may have come in the meantime."""
    inbox.add(message_to(BOB), 8, Step.ANNOUNCED)
    inbox.forget(inbox.at(Step.ANNOUNCED)[0].number)
    assert inbox.add(message_to(BOB), 8, Step.ANNOUNCED)


def test_an_acknowledgment_is_owed_until_it_is_left(inbox: Inbox) -> None:
    """Its block is kept before it is sent; its secret is shown by no repr."""
    secret = AckHash(b"a secret of twenty..")
    inbox.add(message_to(BOB), 8, Step.FETCHED)
    (message,) = inbox.at(Step.FETCHED)
    inbox.record_filed(message.number, 1, DueAcknowledgment(secret, "entangled", None))
    (message,) = inbox.at(Step.FILED)
    assert message.due is not None
    assert message.due.secret == secret
    assert secret.hex not in repr(message)
    block = make_acknowledgment(DATE, mint(b"", Difficulty(8, 2)), secret)
    inbox.record_acknowledgment(message.number, block)
    (message,) = inbox.at(Step.FILED)
    assert message.due == DueAcknowledgment(secret, "entangled", block)
    inbox.record_acknowledged(message.number)
    (message,) = inbox.at(Step.ENDED)
    assert message.due is None
