"""What the home server tells of its queue, and what becomes of the message then."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from tests.client.conftest import Correspondent
from tests.client.samples import AMY, DATE
from tests.client.signed_blocks import announcement_of

from sealmail_client.dead_letters import MEANINGS, meaning_of
from sealmail_client.desk import Desk
from sealmail_client.drafts import Addressee, Draft
from sealmail_client.following import follow_queue, something_queued
from sealmail_client.home_database import HomeDatabase
from sealmail_client.key_lookup import FoundKey
from sealmail_client.outbox import OutgoingBlock, OutgoingRecipient, Stage
from sealmail_client.paying import MAX_CLIMB
from sealmail_client.posting import Peer
from sealmail_client.profile import Home
from sealmail_client.sending import Sender
from sealmail_client.settings import AuthKey, Settings
from sealmail_net.remote_server import RemoteServer
from sealmail_pow import Difficulty, mint
from sealmail_protocol.addresses import Transport
from sealmail_protocol.blocks import BlockType, KeyAnnouncement
from sealmail_protocol.bypass import BypassSecret, bypass_token
from sealmail_protocol.canonical import block_digest
from sealmail_protocol.commands import AskQueue
from sealmail_protocol.compose import make_announcement
from sealmail_protocol.errors import Refusal
from sealmail_protocol.keys import BlockKey, data_key
from sealmail_protocol.replies import Listing, QueueRow, QueueState, Word
from sealmail_protocol.stamps import stamp_bits

TARGET = Transport.parse("server=a.example:8081")
KEY = data_key(b"sealed")


@dataclass
class Teller:
    """A home server that answers QUEUE with what the test says."""

    answer: Listing | Word = field(default_factory=Listing)
    asked: list[AskQueue] = field(default_factory=list)

    async def call(self, command: AskQueue) -> Listing | Word:
        """Answer."""
        self.asked.append(command)
        return self.answer

    def peer(self, *capabilities: str) -> Peer:
        """Return the connection."""
        able = dict.fromkeys(capabilities or ("QUEUE",), "")
        return Peer(cast("RemoteServer", self), able, account=True)


@dataclass
class Underway:
    """A message for Bob that his friend's home server delivers; the clock is set by hand."""

    desk: Desk
    number: int
    now: list[datetime]
    teller: Teller = field(default_factory=Teller)

    def stage(self) -> Stage:
        """Return how far the message has come."""
        return self.recipient.stage

    @property
    def recipient(self) -> OutgoingRecipient:
        """Return how the message stands for him."""
        return self.desk.outbox.one(self.number).recipients[0]

    def hears(self, state: QueueState, code: str = "-", demand: Difficulty | None = None) -> None:
        """Hear of the announcement, as ``fetch`` does."""
        announcement = self.recipient.announcement
        assert announcement is not None
        row = QueueRow(
            KEY, BlockType.MESSAGE_ANNOUNCEMENT, 1, state, code, DATE, DATE,
            block_digest(announcement), demand,
        )  # fmt: skip
        self.teller.answer = Listing(("a line of a newer server", str(row)))
        self.follows()

    def follows(self) -> tuple[str, ...]:
        """Ask the queue."""
        return asyncio.run(follow_queue(self.desk, self.teller.peer(), Sender(self.desk)))


@pytest.fixture(scope="module")
def announced(bob: Correspondent) -> KeyAnnouncement:
    """Return what Bob asks: bd,20,2."""
    return announcement_of(bob)


@pytest.fixture
def underway(tmp_path: Path, bob: Correspondent, announced: KeyAnnouncement) -> Underway:
    """Return a message with a token that the home server has."""
    settings = Settings(AMY, "Amy", "amy@a.example", Transport.parse("server=home.invalid:1"))
    now = [DATE]
    home = Home(tmp_path)
    home.save_auth_key(AuthKey("0" * 40))
    desk = Desk(home, settings, HomeDatabase(home.database), clock=lambda: now[0])
    desk.correspondents.remember(FoundKey(bob.key_id, announced, revoked=False))
    draft = Draft("a" * 40, "subject", "text", (Addressee("bob@b.example", bob.key_id, "Bob"),))
    number = desk.outbox.add(draft, DATE)
    desk.outbox.record_sealed(
        number, DATE, KEY, (OutgoingBlock(0, KEY, 6, None),), {bob.key_id: BlockKey(b"b" * 20)}
    )
    stamped = desk.outbox.one(number).stamped_bytes(bob.key_id, DATE)
    token = bypass_token(BypassSecret(b"s" * 20), stamped)
    stamp = mint(stamped, Difficulty(8, 2))
    announcement = make_announcement(DATE, stamp, bob.key_id, "0", (KEY,), KEY, token)
    desk.outbox.record_stamped(number, bob.key_id, announcement)
    desk.outbox.record_queued(number, bob.key_id, "home.invalid:1")
    desk.proxied.record_data(number, b"d" * 32, (TARGET,), DATE)
    digest = block_digest(announcement)
    desk.proxied.record_announcement(number, bob.key_id, digest, TARGET, DATE)
    return Underway(desk, number, now)


def test_mail_that_waits_says_why(underway: Underway) -> None:
    """And is queued until something else is told."""
    underway.hears(QueueState.WAITING)
    assert (underway.stage(), underway.recipient.reason) == (Stage.QUEUED, "")
    underway.hears(QueueState.WAITING, "unreachable")
    assert underway.stage() is Stage.QUEUED
    assert "(unreachable)" in underway.recipient.reason
    assert something_queued(underway.desk)


def test_mail_that_was_delivered_is_sent(underway: Underway) -> None:
    """At the time of the last attempt, to the group that has it."""
    underway.hears(QueueState.DELIVERED)
    assert underway.stage() is Stage.SENT
    assert (underway.recipient.server, underway.recipient.sent) == (str(TARGET), DATE)
    assert not something_queued(underway.desk)


@pytest.mark.parametrize("state", [QueueState.WAITING, QueueState.REFUSED])
def test_a_price_is_paid_anew_with_the_same_token(underway: Underway, state: QueueState) -> None:
    """Also before the queue has given up; the message then leaves at once."""
    before = underway.recipient.announcement
    underway.hears(state, "price", Difficulty(16, 2))
    after = underway.recipient.announcement
    assert before is not None
    assert after is not None
    assert (after.date, after.token, after.mailbox) == (before.date, before.token, before.mailbox)
    assert stamp_bits(after) >= 16
    assert underway.stage() is Stage.STAMPED
    assert underway.recipient.due(DATE)


@pytest.mark.parametrize("demand", [None, Difficulty(20 + MAX_CLIMB + 1, 2)])
def test_a_price_that_is_greed_or_not_named_is_the_end(
    underway: Underway, demand: Difficulty | None
) -> None:
    """The reason is told, and what was asked."""
    underway.hears(QueueState.REFUSED, "price", demand)
    assert underway.stage() is Stage.FAILED
    assert "(price)" in underway.recipient.reason


def test_a_price_that_the_user_did_not_agree_to_waits_for_his_word(underway: Underway) -> None:
    """In the queue, which asks on, or here if it came back; nothing is minted until he agrees."""
    before = underway.recipient.announcement
    underway.desk.outbox.agree(underway.number, Difficulty(12, 2))
    underway.hears(QueueState.WAITING, "price", Difficulty(16, 2))
    assert underway.stage() is Stage.QUEUED
    assert "`sealmail outbox pay 1 --max-price bd,16,2`" in underway.recipient.reason
    underway.hears(QueueState.REFUSED, "price", Difficulty(16, 2))
    assert (underway.stage(), underway.recipient.tries) == (Stage.STAMPED, 1)
    assert "bd,12,2 at most" in underway.recipient.reason
    assert underway.recipient.announcement == before
    assert not underway.recipient.due(DATE)
    underway.desk.outbox.agree(underway.number, Difficulty(16, 2))
    assert underway.recipient.due(DATE)


def test_a_price_that_he_agreed_to_later_is_paid(underway: Underway) -> None:
    """When the queue is next asked."""
    underway.desk.outbox.agree(underway.number, Difficulty(12, 2))
    underway.hears(QueueState.WAITING, "price", Difficulty(16, 2))
    underway.desk.outbox.agree(underway.number, Difficulty(16, 2))
    underway.hears(QueueState.WAITING, "price", Difficulty(16, 2))
    announcement = underway.recipient.announcement
    assert announcement is not None
    assert stamp_bits(announcement) >= 16


def test_what_found_no_room_is_given_again_later(underway: Underway) -> None:
    """By the same schedule as what this program could not send; after five returns it ends."""
    underway.hears(QueueState.GIVEN_UP, "full")
    assert underway.stage() is Stage.STAMPED
    assert not underway.recipient.due(DATE)
    assert underway.recipient.due(DATE + timedelta(minutes=2))


def test_mail_that_comes_back_again_and_again_ends(underway: Underway, bob: Correspondent) -> None:
    """It is not carried to and fro for ever."""
    for _ in range(5):
        underway.desk.outbox.record_trouble(underway.number, bob.key_id, "before")
    underway.hears(QueueState.GIVEN_UP, "full")
    assert underway.stage() is Stage.FAILED


def test_the_reason_of_its_data_is_that_of_the_mail(underway: Underway) -> None:
    """An announcement whose data was refused was never tried."""
    told = QueueRow(
        KEY, BlockType.DATA, 1, QueueState.REFUSED, "size", DATE, DATE, b"d" * 32
    )  # fmt: skip
    underway.desk.proxied.update([told])
    underway.hears(QueueState.GIVEN_UP, "data")
    assert underway.stage() is Stage.FAILED
    assert "(size)" in underway.recipient.reason


def test_a_recipient_who_is_not_there_and_has_not_moved_is_the_end(underway: Underway) -> None:
    """He was looked up again; nobody could be asked here."""
    underway.hears(QueueState.REFUSED, "recipient")
    assert underway.stage() is Stage.FAILED
    assert "ask the recipient" in underway.recipient.reason


def test_what_the_server_has_lost_is_given_again(underway: Underway) -> None:
    """After a day: its partner, which had it, may be back before."""
    underway.follows()
    assert underway.stage() is Stage.QUEUED
    underway.now[0] += timedelta(days=1, minutes=1)
    underway.follows()
    assert underway.stage() is Stage.STAMPED


def test_a_server_without_a_queue_is_not_asked(underway: Underway) -> None:
    """An original would close the connection; one that fails changes nothing."""
    peer = underway.teller.peer("VERDICT")
    asyncio.run(follow_queue(underway.desk, peer, Sender(underway.desk)))
    assert underway.teller.asked == []
    underway.teller.answer = Word.FAILED
    underway.follows()
    assert underway.stage() is Stage.QUEUED


def test_an_acknowledgment_that_came_back_is_a_note(underway: Underway) -> None:
    """With its reason."""
    underway.desk.proxied.record_acknowledgment(7, b"a" * 32, TARGET, DATE)
    row = QueueRow(
        KEY, BlockType.ACKNOWLEDGMENT, 1, QueueState.GIVEN_UP, "slow", DATE, DATE, b"a" * 32
    )  # fmt: skip
    underway.teller.answer = Listing((str(row),))
    (note,) = underway.follows()
    assert note.startswith("mail 7 ")
    assert "(slow)" in note


def test_every_refusal_has_a_reason_and_codes_to_come_have_one_too() -> None:
    """A code that nobody knows yet is no crash."""
    assert {str(code) for code in Refusal} <= set(MEANINGS)
    assert meaning_of("somethingnew").reason
