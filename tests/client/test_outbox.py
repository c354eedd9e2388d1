"""Messages on their way move forward only, and are read again as they were written."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.client.samples import AMY, BOB, DATE
from tests.client.signed_blocks import message_to

from sealmail_client.drafts import Addressee, Draft, ForwardedMail
from sealmail_client.headers import Place
from sealmail_client.home_database import HomeDatabase
from sealmail_client.outbox import (
    ACK_LIFETIME,
    LIFETIME,
    NoSuchMessage,
    Outbox,
    OutgoingBlock,
    OutOfOrder,
    Stage,
    TooLate,
)
from sealmail_pow import Difficulty, mint
from sealmail_protocol.compose import make_data_header
from sealmail_protocol.keys import BlockKey, KeyId, data_key

KEY = data_key(b"sealed")
CAROL = KeyId(bytes(range(40, 60)))
ANNOUNCEMENT = message_to(BOB)
DRAFT = Draft(
    "a" * 40,
    "Grüße \N{SNOWMAN}",
    "text",
    (Addressee("bob@b.example", BOB, "Bob"), Addressee("amy@a.example", AMY, "Amy")),
    (Path("/home/bob/odd\udcff name"),),
)


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    """Return an empty outbox."""
    return Outbox(HomeDatabase(tmp_path / "mail.sqlite"))


def sealed(outbox: Outbox) -> int:
    """Add a message that is sealed."""
    number = outbox.add(DRAFT, DATE)
    blocks = (OutgoingBlock(0, KEY, 6, None),)
    ack_keys = {BOB: BlockKey(b"b" * 20), AMY: BlockKey(b"a" * 20)}
    outbox.record_sealed(number, DATE, KEY, blocks, ack_keys)
    return number


def test_a_draft_is_the_same_after_json() -> None:
    """Also with a file name that is not UTF-8; its text is in no repr."""
    assert Draft.from_json(DRAFT.to_json()) == DRAFT
    assert DRAFT.to_json().isascii()
    assert "'text'" not in repr(DRAFT)


def test_a_draft_of_an_earlier_version_is_read() -> None:
    """It named no places, and had neither HTML nor anything forwarded."""
    parts = json.loads(DRAFT.to_json())
    for later in ("html", "reply_thread_id", "forwarded"):
        del parts[later]
    for one in parts["addressees"]:
        del one["place"]
    assert Draft.from_json(json.dumps(parts)) == DRAFT


def test_each_bcc_recipient_has_a_message_of_his_own(outbox: Outbox) -> None:
    """His names the others; theirs names nobody who is hidden. One of them is filed for all."""
    amy = Addressee("amy@a.example", AMY, "Amy", Place.BCC)
    carol = Addressee("carol@a.example", CAROL, "Carol", Place.BCC)
    forwarded = ForwardedMail(Path("/zip"), Path("/sig"), "b" * 40)
    bob = DRAFT.addressees[0]
    draft = replace(DRAFT, addressees=(bob, amy, carol), html="<p>", forwarded=forwarded)
    number = outbox.add(draft, DATE)
    copies = outbox.copies(number)
    assert [[one.key_id for one in copy.recipients] for copy in copies] == [[BOB], [AMY], [CAROL]]
    assert [copy.copy_of for copy in copies] == [None, number, number]
    assert [copy.filed for copy in copies] == [False, True, True]
    assert all(copy.draft == draft for copy in copies)
    assert draft.named_to({BOB}) == (bob,)
    assert draft.named_to({AMY}) == (bob, amy)
    hidden = replace(draft, addressees=(amy, carol))
    assert [copy.filed for copy in outbox.copies(outbox.add(hidden, DATE))] == [False, True]


def test_a_message_goes_from_draft_to_acknowledgment(outbox: Outbox) -> None:
    """Every recipient on his own; the lines come back as they were recorded."""
    number = sealed(outbox)
    header = make_data_header(DATE, mint(b"", Difficulty(8, 2)), 6)
    outbox.record_data_stamp(number, OutgoingBlock(0, KEY, 6, None), header)
    outbox.record_stamped(number, BOB, ANNOUNCEMENT)
    outbox.record_trouble(number, BOB, "down")
    assert [one.reason for one in outbox.one(number).at(Stage.STAMPED)] == ["down"]
    outbox.record_sent(number, BOB, "b.example:1", DATE)
    outbox.record_acknowledged(number, BOB, DATE)
    message = outbox.one(number)
    assert message.draft == DRAFT
    assert message.blocks == (OutgoingBlock(0, KEY, 6, header),)
    (bob,) = message.at(Stage.ACKNOWLEDGED)
    assert (bob.key_id, bob.reason, bob.announcement) == (BOB, "", ANNOUNCEMENT)
    assert [one.key_id for one in message.at(Stage.SEALED)] == [AMY]
    assert not message.ended
    assert outbox.unfinished() == (message,)


def test_a_step_that_was_left_out_is_an_error(outbox: Outbox) -> None:
    """Nothing is recorded by it."""
    number = outbox.add(DRAFT, DATE)
    with pytest.raises(OutOfOrder):
        outbox.record_sent(number, BOB, "b.example:1", DATE)
    sealed_number = sealed(outbox)
    outbox.record_stamped(sealed_number, BOB, ANNOUNCEMENT)
    with pytest.raises(OutOfOrder):
        outbox.record_sealed(sealed_number, DATE, KEY, (), {BOB: KEY})
    assert outbox.one(number).at(Stage.COMPOSED) == outbox.one(number).recipients
    assert len(outbox.one(sealed_number).blocks) == 1


def test_an_unknown_number_tells_where_numbers_are(outbox: Outbox) -> None:
    """The way out is a command."""
    with pytest.raises(NoSuchMessage, match="sealmail outbox"):
        outbox.one(1)


def test_messages_end_when_no_server_keeps_them(outbox: Outbox) -> None:
    """A sent one is waited for as long as an acknowledgment made on its last day lives."""
    number = sealed(outbox)
    outbox.record_stamped(number, BOB, ANNOUNCEMENT)
    outbox.record_sent(number, BOB, "b.example:1", DATE)
    outbox.expire(DATE + LIFETIME - timedelta(seconds=1))
    assert not outbox.one(number).at(Stage.EXPIRED)
    outbox.expire(DATE + LIFETIME)
    assert [one.key_id for one in outbox.one(number).at(Stage.EXPIRED)] == [AMY]
    outbox.expire(DATE + ACK_LIFETIME)
    assert outbox.one(number).ended


def test_cancelling_a_mail_ends_its_hidden_copies_too(outbox: Outbox) -> None:
    """They are one mail to who wrote it."""
    hidden = Addressee("carol@c.example", CAROL, "Carol", Place.BCC)
    draft = replace(DRAFT, addressees=(*DRAFT.addressees, hidden))
    number = outbox.add(draft, DATE, DATE + timedelta(hours=1))
    first, second = outbox.copies(number)
    assert not any(one.due(DATE) for copy in (first, second) for one in copy.recipients)
    ended = outbox.cancel(second.number, DATE)
    assert [copy.number for copy in ended] == [first.number, second.number]
    assert {one.stage for copy in ended for one in copy.recipients} == {Stage.CANCELLED}
    with pytest.raises(TooLate):
        outbox.cancel(number, DATE)
