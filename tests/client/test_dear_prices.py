"""Prices whose search takes a large table: told before any search, or kept to one mail."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.client.conftest import Correspondent
from tests.client.samples import AMY, DATE
from tests.client.signed_blocks import announcement_of

from sealmail_client.desk import Desk
from sealmail_client.drafts import Addressee, Draft
from sealmail_client.home_database import HomeDatabase
from sealmail_client.key_lookup import FoundKey
from sealmail_client.outbox import OutgoingBlock, OutgoingMessage, Stage
from sealmail_client.profile import Home
from sealmail_client.progress import NOBODY, Report, Watcher
from sealmail_client.quotes import quote
from sealmail_client.sending import Sender
from sealmail_client.settings import AuthKey, Settings
from sealmail_client.writing import SealedFiles
from sealmail_pow import Difficulty, hash_rate
from sealmail_protocol.addresses import Transport
from sealmail_protocol.keys import data_key

HOME = Settings(AMY, "Amy", "amy@a.example", Transport.parse("server=a.example:8081"))
SEALED = b"a sealed letter"


class Exhausted:
    """Watches a machine whose memory ends as soon as a recipient is stamped for."""

    @contextmanager
    def task(self, label: str, *, brief: bool = False) -> Iterator[Report]:
        """Let blocks be stamped, but nothing else."""
        with NOBODY.task(label, brief=brief) as report:
            yield report
            if "block" not in label:
                raise MemoryError


def desk_for(place: Path, reader: Correspondent, price: Difficulty, watcher: Watcher) -> Desk:
    """Return a desk that knows one reader and his price."""
    home = Home(place)
    home.save_auth_key(AuthKey("0" * 40))
    desk = Desk(home, HOME, HomeDatabase(home.database), clock=lambda: DATE, watcher=watcher)
    announced = announcement_of(reader, transport="server=b.example:8081", price=price)
    desk.correspondents.remember(FoundKey(reader.key_id, announced, revoked=False))
    return desk


def addressee(reader: Correspondent) -> Addressee:
    """Return the reader as one who is written to."""
    return Addressee("bob@b.example", reader.key_id, reader.user_id)


def stamped(desk: Desk, reader: Correspondent) -> OutgoingMessage:
    """Stamp a sealed letter; it is not brought to any server, as that fails first."""
    draft = Draft("a" * 40, "subject", "text", (addressee(reader),))
    number = desk.outbox.add(draft, DATE)
    files = SealedFiles(desk.home.outgoing / str(number))
    files.sealed.parent.mkdir(parents=True)
    files.sealed.write_bytes(SEALED)
    key = data_key(SEALED)
    block = OutgoingBlock(0, key, len(SEALED), None)
    desk.outbox.record_sealed(number, DATE, key, [block], {reader.key_id: key})
    return asyncio.run(Sender(desk).advance(number))


@pytest.mark.parametrize("price", [Difficulty(48, 3), Difficulty(30, 16), Difficulty(80, 2)])
def test_a_price_that_nobody_can_pay_is_a_trouble_of_its_mail(
    tmp_path: Path, bob: Correspondent, price: Difficulty
) -> None:
    """Also where few hashes would do and only the memory is missing; nothing is searched."""
    (recipient,) = stamped(desk_for(tmp_path, bob, price, NOBODY), bob).recipients
    assert recipient.stage is Stage.SEALED
    assert f"asks for a stamp of {price}: nobody can pay that" in recipient.reason


def test_memory_that_ends_is_a_trouble_of_its_mail(tmp_path: Path, bob: Correspondent) -> None:
    """The outbox goes on to the next, and the mail is tried again."""
    desk = desk_for(tmp_path, bob, Difficulty(8, 3), Exhausted())
    (recipient,) = stamped(desk, bob).recipients
    assert recipient.stage is Stage.SEALED
    assert "not enough memory to search a stamp of bd,8,3" in recipient.reason


def test_more_nonces_are_quoted_at_the_rate_of_a_table(tmp_path: Path, bob: Correspondent) -> None:
    """Walks are several times as fast on one core alone, and take all cores."""
    desk = desk_for(tmp_path, bob, Difficulty(30, 3), NOBODY)
    (told,) = quote([addressee(bob)], desk)
    by_walks = told.cost.expected_hashes / hash_rate(threads=1)
    assert told.cost.seconds > by_walks
