"""When a mail stands among the sent ones: once it has left for anybody, and not before."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from tests.client.conftest import Correspondent
from tests.client.samples import AMY, DATE
from tests.client.signed_blocks import announcement_of, message_to

from sealmail_client.desk import Desk
from sealmail_client.drafts import Addressee, Draft
from sealmail_client.folders import FiledMail, Folder
from sealmail_client.headers import Place
from sealmail_client.home_database import HomeDatabase
from sealmail_client.key_lookup import FoundKey
from sealmail_client.outbox import LIFETIME, OutgoingBlock, Stage
from sealmail_client.profile import Home
from sealmail_client.sending import Sender
from sealmail_client.settings import AuthKey, Settings
from sealmail_client.writing import SealedFiles
from sealmail_protocol.addresses import Transport
from sealmail_protocol.keys import BlockKey, KeyId, data_key

SEALED = b"sealed"
KEY = data_key(SEALED)
# It is forbidden to dial it, so nothing leaves the machine.
NOWHERE = "server=127.0.0.1:9"


@pytest.fixture
def now() -> list[int]:
    """Return how many days have passed."""
    return [0]


@pytest.fixture
def desk(tmp_path: Path, amy: Correspondent, bob: Correspondent, now: list[int]) -> Desk:
    """Return a desk that reaches nobody, and knows Amy and Bob."""
    settings = Settings(AMY, "Me", "me@a.example", Transport.parse("server=home.invalid:1"))
    home = Home(tmp_path)
    home.save_auth_key(AuthKey("0" * 40))
    clock = lambda: DATE + timedelta(days=now[0])  # noqa: E731
    desk = Desk(home, settings, HomeDatabase(home.database), clock=clock)
    for one in (amy, bob):
        announcement = announcement_of(one, transport=NOWHERE)
        desk.correspondents.remember(FoundKey(one.key_id, announcement, revoked=False))
    return desk


def written(desk: Desk, *readers: tuple[Correspondent, Place]) -> int:
    """Put a mail into the outbox."""
    addressees = tuple(
        Addressee(f"{one.user_id} of old", one.key_id, one.user_id, place)
        for one, place in readers
    )
    return desk.outbox.add(Draft("a" * 40, "subject", "text", addressees), DATE)


def seal(desk: Desk, number: int, *readers: Correspondent) -> SealedFiles:
    """Do as if a copy was sealed."""
    ack_keys = {one.key_id: BlockKey(b"b" * 20) for one in readers}
    block = OutgoingBlock(0, KEY, len(SEALED), None)
    desk.outbox.record_sealed(number, DATE, KEY, (block,), ack_keys)
    files = SealedFiles(desk.home.outgoing / str(number))
    files.directory.mkdir()
    files.sealed.write_bytes(SEALED)
    files.zip_file.write_text(f"copy {number}")
    files.signature.write_bytes(b"signature")
    return files


def leave(desk: Desk, number: int, key_id: KeyId) -> None:
    """Do as if a server had taken a copy."""
    desk.outbox.record_stamped(number, key_id, message_to(key_id))
    desk.outbox.record_sent(number, key_id, "b.example:1", DATE)


def work(desk: Desk) -> tuple[FiledMail, ...]:
    """Work on all mail, and return what is among the sent."""
    asyncio.run(Sender(desk).work())
    return desk.folders.all(Folder.SENT)


def test_a_mail_that_has_left_for_one_of_two_is_among_the_sent(
    desk: Desk, amy: Correspondent, bob: Correspondent
) -> None:
    """The server of the other may be away for days."""
    number = written(desk, (amy, Place.TO), (bob, Place.TO))
    seal(desk, number, amy, bob)
    assert work(desk) == ()
    leave(desk, number, amy.key_id)
    (mail,) = work(desk)
    assert mail.zip_file.read_text() == f"copy {number}"
    assert work(desk) == (mail,)


def test_a_mail_that_never_left_for_anybody_is_not(
    desk: Desk, bob: Correspondent, now: list[int]
) -> None:
    """It expires, and its sealed bytes go."""
    number = written(desk, (bob, Place.TO))
    files = seal(desk, number, bob)
    assert work(desk) == ()
    now[0] = LIFETIME.days
    assert work(desk) == ()
    (unsent,) = desk.outbox.one(number).recipients
    assert unsent.stage is Stage.EXPIRED
    assert not files.directory.exists()
    assert desk.outbox.unfinished() == ()


def test_a_hidden_copy_stands_for_a_mail_whose_first_copy_cannot_be_sealed(
    desk: Desk, bob: Correspondent
) -> None:
    """Also if it was opened before it could be filed; both readers are told."""
    carol = Correspondent(bob.keyring, KeyId(b"c" * 20), "Carol <carol@c.example>", None)
    number = written(desk, (carol, Place.TO), (bob, Place.BCC))
    hidden = desk.outbox.copies(number)[1].number
    files = seal(desk, hidden, bob)
    leave(desk, hidden, bob.key_id)
    desk.outbox.record_acknowledged(hidden, bob.key_id, DATE)
    (mail,) = work(desk)
    assert mail.zip_file.read_text() == f"copy {hidden}"
    assert mail.envelope.recipients == (carol.user_id,)
    assert mail.envelope.hidden == (bob.user_id,)
    assert work(desk) == (mail,)
    assert not files.directory.exists()


def test_the_first_copy_is_filed_for_a_hidden_one_that_left_before_it(
    desk: Desk, amy: Correspondent, bob: Correspondent
) -> None:
    """It names nobody who is hidden, so that it may be passed on whole."""
    number = written(desk, (amy, Place.TO), (bob, Place.BCC))
    hidden = desk.outbox.copies(number)[1].number
    seal(desk, number, amy)
    seal(desk, hidden, bob)
    leave(desk, hidden, bob.key_id)
    (mail,) = work(desk)
    assert mail.zip_file.read_text() == f"copy {number}"


def test_a_mail_whose_copies_are_all_gone_keeps_no_other_back(
    desk: Desk, amy: Correspondent, bob: Correspondent
) -> None:
    """Former versions removed the hidden copy that left, and never filed the first one."""
    number = written(desk, (amy, Place.TO), (bob, Place.BCC))
    hidden = desk.outbox.copies(number)[1].number
    gone = seal(desk, hidden, bob)
    leave(desk, hidden, bob.key_id)
    gone.remove()
    desk.database.write(
        "UPDATE outgoing_recipient SET state = 'expired' WHERE message = ?", number
    )
    other = written(desk, (amy, Place.TO))
    seal(desk, other, amy)
    leave(desk, other, amy.key_id)
    (mail,) = work(desk)
    assert mail.zip_file.read_text() == f"copy {other}"
    assert hidden in [message.number for message in desk.outbox.unfinished()]
    desk.outbox.record_acknowledged(hidden, bob.key_id, DATE)
    assert work(desk) == (mail,)
    assert [message.number for message in desk.outbox.unfinished()] == [other]


def test_a_copy_that_cannot_be_read_keeps_no_other_back(
    desk: Desk, amy: Correspondent, bob: Correspondent, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again, and the user is told."""
    sick, well = written(desk, (amy, Place.TO)), written(desk, (bob, Place.TO))
    files = seal(desk, sick, amy)
    files.signature.unlink()
    files.signature.mkdir()
    seal(desk, well, bob)
    leave(desk, sick, amy.key_id)
    leave(desk, well, bob.key_id)
    (mail,) = work(desk)
    assert mail.zip_file.read_text() == f"copy {well}"
    assert f"mail {sick} is not among the sent mail yet" in caplog.text
    files.signature.rmdir()
    files.signature.write_bytes(b"signature")
    work(desk)
    assert desk.outbox.one(sick).filed
