"""Bypass secrets: whom they let in, for how long, and what others are told of them."""

from datetime import timedelta
from pathlib import Path

import pytest
from tests.client.samples import AMY, BOB, DATE
from tests.client.signed_blocks import message_to
from tests.protocol.vector_files import block_vectors

from sealmail_client.ack_files import GivenSecret
from sealmail_client.blocklist import Blocklist
from sealmail_client.bypass_book import BypassBook, Fit
from sealmail_client.home_database import HomeDatabase
from sealmail_protocol.block_codec import parse_block
from sealmail_protocol.blocks import MessageAnnouncement
from sealmail_protocol.bypass import BypassSecret, bypass_token
from sealmail_protocol.compose import make_announcement

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
# The secret of the specification's sample, and the announcement with its token.
SAMPLE_SECRET = bytes.fromhex("7b3272b2346fe3d81c416011177d551b017c341a")
SAMPLES = {vector.name: vector for vector in block_vectors()}
SECRET = BypassSecret(b"a secret of 20 bytes")


@pytest.fixture
def database(tmp_path: Path) -> HomeDatabase:
    """Return the database of a new home."""
    return HomeDatabase(tmp_path / "mail.sqlite")


@pytest.fixture
def book(database: HomeDatabase) -> BypassBook:
    """Return a book without secrets."""
    return BypassBook(database)


def numbered(number: int) -> bytes:
    """Return twenty bytes that are not random."""
    return bytes([number]) * 20


def paid_with(secret: BypassSecret) -> MessageAnnouncement:
    """Return an announcement with a token."""
    bare = message_to(BOB)
    return make_announcement(
        bare.date,
        bare.stamp,
        bare.recipient,
        bare.mailbox,
        bare.data_blocks,
        bare.message_hash,
        bypass_token(secret, bare.challenge),
    )


def test_the_published_token_fits_the_published_secret(book: BypassBook) -> None:
    """It is found among others, and tells to whom the secret was given."""
    book.give(BOB, DATE, numbered)
    book.give(AMY, DATE, lambda _: SAMPLE_SECRET)
    sample = parse_block(SAMPLES["token"].body(b"\n"))
    bare = parse_block(SAMPLES["sample_announcement"].body(b"\n"))
    assert isinstance(sample, MessageAnnouncement)
    assert isinstance(bare, MessageAnnouncement)
    assert book.fit(sample) == Fit(AMY, revoked=False)
    assert book.fit(bare) is None
    assert book.fit(paid_with(SECRET)) is None


def test_a_correspondent_has_one_secret_that_is_younger_than_what_is_published(
    book: BypassBook,
) -> None:
    """Every mail repeats it, whatever was thrown since."""
    given = book.give(BOB, DATE, numbered)
    assert given.created > book.accepted_since(DATE)
    assert given.expires is None
    assert book.give(BOB, DATE + HOUR, lambda _: SAMPLE_SECRET) == given
    assert book.give(AMY, DATE + HOUR, lambda _: SAMPLE_SECRET) != given


def test_a_revoked_secret_pays_nothing_and_the_published_date_moves_behind_it(
    book: BypassBook,
) -> None:
    """Older secrets of others stay good, but they are given new ones."""
    of_amy = book.give(AMY, DATE, lambda _: SAMPLE_SECRET)
    of_bob = book.give(BOB, DATE + HOUR, lambda _: SECRET.raw)
    assert book.revoke(BOB, DATE + HOUR)
    assert not book.revoke(BOB, DATE + HOUR)
    assert book.fit(paid_with(of_bob.secret)) == Fit(BOB, revoked=True)
    assert book.fit(paid_with(of_amy.secret)) == Fit(AMY, revoked=False)
    since = book.accepted_since(DATE + HOUR)
    assert since > of_bob.created
    for reader in (AMY, BOB):
        again = book.give(reader, DATE + HOUR, lambda size: numbered(size))
        assert again.created > since
    assert book.fit(paid_with(of_amy.secret)) == Fit(AMY, revoked=False)


def test_a_reset_voids_every_secret_also_within_the_same_second(book: BypassBook) -> None:
    """Those made after it are younger than the date, and good."""
    old = [book.give(reader, DATE, lambda _: SECRET.raw) for reader in (AMY, BOB)]
    assert book.reset(DATE) == 2
    since = book.accepted_since(DATE)
    assert all(one.created < since for one in old)
    fit = book.fit(paid_with(SECRET))
    assert fit is not None
    assert fit.revoked
    assert book.give(BOB, DATE, numbered).created > since
    assert book.reset(DATE) == 1
    assert book.accepted_since(DATE) > since


def test_a_received_secret_is_used_while_its_giver_honours_it(book: BypassBook) -> None:
    """Not without BypassTokenAccepted, not from before it, not when it has expired."""
    book.keep(BOB, GivenSecret(SECRET, DATE, DATE + HOUR))
    assert book.usable(BOB, DATE - SECOND, DATE) == SECRET
    assert book.usable(BOB, DATE, DATE) == SECRET
    assert book.usable(BOB, DATE + SECOND, DATE) is None
    assert book.usable(BOB, None, DATE) is None
    assert book.usable(BOB, DATE, DATE + HOUR) is None
    assert book.usable(AMY, DATE, DATE) is None


def test_of_two_received_secrets_the_younger_is_used(book: BypassBook) -> None:
    """An old mail that comes late does not bring an old secret back."""
    younger = BypassSecret(numbered(1))
    book.keep(BOB, GivenSecret(younger, DATE))
    book.keep(BOB, GivenSecret(SECRET, DATE - HOUR))
    assert book.usable(BOB, DATE - HOUR, DATE) == younger


def test_the_list_shows_no_secret(book: BypassBook) -> None:
    """Neither given nor received ones."""
    book.give(AMY, DATE, lambda _: SECRET.raw)
    book.keep(BOB, GivenSecret(SECRET, DATE, DATE + HOUR))
    entries = book.entries(DATE + HOUR)
    assert [(one.key_id, one.given, one.usable) for one in entries] == [
        (AMY, True, True),
        (BOB, False, False),
    ]
    assert repr(SECRET.raw) not in repr(entries)


def test_who_is_blocked_stays_so_until_he_is_let_in_again(database: HomeDatabase) -> None:
    """Blocking twice keeps the first date."""
    blocklist = Blocklist(database)
    blocklist.block(BOB, DATE)
    blocklist.block(BOB, DATE + HOUR)
    assert blocklist.all() == {BOB: DATE}
    assert blocklist.holds(BOB)
    assert not blocklist.holds(AMY)
    assert blocklist.unblock(BOB)
    assert not blocklist.unblock(BOB)
    assert not blocklist.holds(BOB)
