"""What a user agreed to pay holds for as long as his mail is on its way."""

import asyncio
from pathlib import Path

import pytest
from tests.client.conftest import Correspondent
from tests.client.samples import AMY, DATE
from tests.client.signed_blocks import PRICE, announcement_of

from sealmail_client.desk import Desk
from sealmail_client.drafts import Addressee, Draft
from sealmail_client.home_database import HomeDatabase
from sealmail_client.key_lookup import FoundKey
from sealmail_client.outbox import OutgoingBlock, Stage
from sealmail_client.paying import MAX_CLIMB
from sealmail_client.profile import Home
from sealmail_client.quotes import quote
from sealmail_client.sending import Sender
from sealmail_client.settings import AuthKey, Settings
from sealmail_client.writing import SealedFiles
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import Transport
from sealmail_protocol.keys import BlockKey, data_key
from sealmail_protocol.stamps import stamp_bits

SEALED = b"sealed"
KEY = data_key(SEALED)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a desk that reaches nobody."""
    settings = Settings(AMY, "Amy", "amy@a.example", Transport.parse("server=home.invalid:1"))
    home = Home(tmp_path)
    home.save_auth_key(AuthKey("0" * 40))
    return Desk(home, settings, HomeDatabase(home.database), clock=lambda: DATE)


# It is forbidden to dial it, so nothing leaves the machine.
NOWHERE = "server=127.0.0.1:9"


def sealed(desk: Desk, bob: Correspondent, limit: Difficulty | None) -> int:
    """Put a mail to Bob, who asks bd,20,2, into the outbox as it is once it is sealed."""
    announcement = announcement_of(bob, transport=NOWHERE)
    desk.correspondents.remember(FoundKey(bob.key_id, announcement, revoked=False))
    draft = Draft("a" * 40, "subject", "text", (Addressee("bob@b.example", bob.key_id, "Bob"),))
    limits = None if limit is None else {bob.key_id: limit}
    number = desk.outbox.add(draft, DATE, limits=limits)
    block = OutgoingBlock(0, KEY, len(SEALED), None)
    desk.outbox.record_sealed(number, DATE, KEY, (block,), {bob.key_id: BlockKey(b"b" * 20)})
    files = SealedFiles(desk.home.outgoing / str(number))
    files.directory.mkdir(parents=True)
    files.sealed.write_bytes(SEALED)
    return number


def test_a_price_that_was_raised_before_the_stamp_waits_until_the_user_agrees(
    desk: Desk, bob: Correspondent
) -> None:
    """The reason has the command that pays; a mail of an earlier version has no limit."""
    number = sealed(desk, bob, Difficulty(PRICE.bits - 1, PRICE.nonces))
    (waiting,) = asyncio.run(Sender(desk).advance(number)).recipients
    assert (waiting.stage, waiting.tries) == (Stage.SEALED, 1)
    assert "you agreed to bd,19,2 at most" in waiting.reason
    assert f"`sealmail outbox pay {number} --max-price {PRICE}`" in waiting.reason
    desk.outbox.agree(number, PRICE)
    (paid,) = asyncio.run(Sender(desk).advance(number)).recipients
    assert paid.stage is Stage.STAMPED
    assert paid.announcement is not None
    assert stamp_bits(paid.announcement) >= PRICE.bits
    (unlimited,) = asyncio.run(Sender(desk).advance(sealed(desk, bob, None))).recipients
    assert unlimited.stage is Stage.STAMPED


def test_without_a_limit_of_the_user_a_price_may_climb_by_what_a_mailbox_adds(
    desk: Desk, bob: Correspondent
) -> None:
    """And not by more, whatever its owner announces later."""
    announcement = announcement_of(bob)
    desk.correspondents.remember(FoundKey(bob.key_id, announcement, revoked=False))
    (one,) = quote((Addressee("bob@b.example", bob.key_id, "Bob"),), desk, rate=1e6)
    assert one.price == PRICE
    assert one.ceiling == Difficulty(PRICE.bits + MAX_CLIMB, PRICE.nonces)
