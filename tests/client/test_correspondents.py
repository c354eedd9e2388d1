"""The address book: the first key is trusted, every later one waits for the user."""

from datetime import timedelta
from pathlib import Path

import pytest
from tests.client.conftest import Correspondent
from tests.client.samples import AMY, BOB, DATE
from tests.client.signed_blocks import announcement_of

from sealmail_client.correspondents import Correspondents, Decision, KeyRevoked, KeyUndecided
from sealmail_client.home_database import HomeDatabase
from sealmail_client.key_lookup import FoundKey
from sealmail_protocol.blocks import KeyAnnouncement
from sealmail_protocol.keys import KeyId

ADDRESS = "bob@b.example"


@pytest.fixture(scope="module")
def block(bob: Correspondent) -> KeyAnnouncement:
    """Return an announcement; the book does not look into it."""
    return announcement_of(bob)


@pytest.fixture
def book(tmp_path: Path) -> Correspondents:
    """Return an empty address book."""
    return Correspondents(HomeDatabase(tmp_path / "mail.sqlite"))


def found(block: KeyAnnouncement, key_id: KeyId, *, revoked: bool = False) -> FoundKey:
    """Return a key as a look-up finds it."""
    return FoundKey(key_id, block, revoked)


def test_the_only_key_of_a_new_address_is_trusted(
    book: Correspondents, block: KeyAnnouncement
) -> None:
    """And stays so when it is seen again."""
    assert book.trusted_key(ADDRESS) is None
    for _ in range(2):
        book.learn(ADDRESS, [found(block, BOB)], DATE)
        assert book.trusted_key(ADDRESS) == BOB
    assert book.announcement(BOB) == block
    assert book.addresses() == (ADDRESS,)


def test_two_keys_at_once_are_both_undecided(book: Correspondents, block: KeyAnnouncement) -> None:
    """Nothing is sent until the user compares fingerprints; the error says how."""
    book.learn(ADDRESS, [found(block, AMY), found(block, BOB)], DATE)
    with pytest.raises(KeyUndecided, match=f"sealmail key trust {ADDRESS} ") as caught:
        book.trusted_key(ADDRESS)
    assert {one.key_id for one in caught.value.known} == {AMY, BOB}
    book.trust(ADDRESS, AMY, DATE)
    assert book.trusted_key(ADDRESS) == AMY


def test_a_key_that_comes_later_blocks_sending_until_the_user_decides(
    book: Correspondents, block: KeyAnnouncement
) -> None:
    """A rejected key stays rejected when it is seen again."""
    book.learn(ADDRESS, [found(block, BOB)], DATE)
    book.learn(ADDRESS, [found(block, AMY)], DATE + timedelta(days=1))
    with pytest.raises(KeyUndecided):
        book.trusted_key(ADDRESS)
    book.trust(ADDRESS, BOB, DATE)
    book.learn(ADDRESS, [found(block, AMY)], DATE + timedelta(days=2))
    assert book.trusted_key(ADDRESS) == BOB
    decisions = {one.key_id: one.decision for one in book.known(ADDRESS)}
    assert decisions == {BOB: Decision.TRUSTED, AMY: Decision.REJECTED}


def test_a_revocation_stays(book: Correspondents, block: KeyAnnouncement) -> None:
    """Whatever a server shows later, nothing is sealed to a revoked key."""
    book.remember(found(block, BOB, revoked=True))
    book.remember(found(block, BOB))
    with pytest.raises(KeyRevoked, match="new one"):
        book.announcement(BOB)
    assert book.newest(BOB) == block


def test_the_newest_announcement_wins(book: Correspondents, bob: Correspondent) -> None:
    """An old one that a server digs out changes nothing."""
    old, new = announcement_of(bob), announcement_of(bob, DATE + timedelta(days=1))
    for block in (old, new, old):
        book.remember(found(block, bob.key_id))
    assert book.announcement(bob.key_id) == new


def test_of_two_keys_that_one_server_vouches_for_none_is_marked(
    book: Correspondents, block: KeyAnnouncement
) -> None:
    """A rival takes the mark away, until he is gone or revoked."""

    def marked(*keys: FoundKey) -> set[KeyId]:
        book.learn(ADDRESS, keys, DATE, vouched={AMY, BOB})
        return {one.key_id for one in book.known(ADDRESS) if one.domain_verified is not None}

    bob, amy = found(block, BOB), found(block, AMY)
    assert marked(bob) == {BOB}
    assert marked(bob, amy) == set()
    assert marked(bob) == {BOB}
    assert BOB in marked(bob, found(block, AMY, revoked=True))
