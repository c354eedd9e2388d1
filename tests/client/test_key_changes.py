"""What stops mail to an address, how it is told, and what the user's decision changes."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.client.conftest import Correspondent
from tests.client.samples import AMY, BOB, DATE
from tests.client.signed_blocks import announcement_of

from sealmail_client import home_database
from sealmail_client.correspondents import (
    Change,
    Correspondents,
    Decision,
    KeyRevoked,
    KeyUndecided,
)
from sealmail_client.home_database import HomeDatabase
from sealmail_client.key_lookup import FoundKey
from sealmail_protocol.keys import KeyId

ADDRESS = "bob@b.example"
SOURCE = "server=b.example:8081"
DAY = timedelta(days=1)

Find = Callable[..., FoundKey]


@pytest.fixture
def book(tmp_path: Path) -> Correspondents:
    """Return an empty address book."""
    return Correspondents(HomeDatabase(tmp_path / "mail.sqlite"))


@pytest.fixture(scope="module")
def find(bob: Correspondent) -> Find:
    """Return what makes a found key of any key id, user id and date."""
    made: dict[tuple[str, int], FoundKey] = {}

    def found(
        key_id: KeyId = BOB, day: int = 0, name: str = bob.user_id, revoked: bool = False
    ) -> FoundKey:
        if (name, day) not in made:
            block = announcement_of(replace(bob, user_id=name), DATE + day * DAY)
            made[name, day] = FoundKey(BOB, block, revoked=False)
        return replace(made[name, day], key_id=key_id, revoked=revoked)

    return found


def complaint(book: Correspondents, address: str = ADDRESS) -> str:
    """Return why nothing is sent to an address."""
    with pytest.raises(KeyUndecided) as caught:
        book.trusted_key(address)
    assert f"sealmail key verify {address}" in str(caught.value)
    assert f"sealmail key trust {address} " in str(caught.value)
    return str(caught.value)


def test_a_second_claimant_and_a_changed_key_are_told_apart(
    book: Correspondents, find: Find
) -> None:
    """Whether the known key still claims the address is what the user must know."""
    book.learn(ADDRESS, [find()], DATE)
    book.learn(ADDRESS, [find(), find(AMY)], DATE + DAY)
    assert "another key than the known one" in complaint(book)
    book.learn(ADDRESS, [find(AMY)], DATE + 2 * DAY)
    assert "has changed" in complaint(book)
    assert str(BOB) in complaint(book)


def test_a_new_key_beside_a_revoked_one_waits_for_the_user(
    book: Correspondents, find: Find
) -> None:
    """Who could revoke a key need not be who makes the next one."""
    book.learn(ADDRESS, [find()], DATE)
    book.learn(ADDRESS, [find(revoked=True), find(AMY)], DATE + DAY)
    assert "is revoked, and another one claims" in complaint(book)
    with pytest.raises(KeyRevoked):
        book.trust(ADDRESS, BOB, DATE)
    book.trust(ADDRESS, AMY, DATE)
    assert book.trusted_key(ADDRESS) == AMY


@pytest.mark.parametrize("days", [0, 31, 400, 4000])
def test_a_revoked_key_is_never_sealed_to_again(
    book: Correspondents, find: Find, days: int
) -> None:
    """Newer announcements, claims, decisions and forgetting change nothing."""
    book.learn(ADDRESS, [find(revoked=True)], DATE)
    assert book.trusted_key(ADDRESS) is None
    book.learn(ADDRESS, [find(day=1)], DATE + days * DAY)
    assert book.forget(ADDRESS)
    book.learn(ADDRESS, [find(day=1)], DATE + days * DAY)
    with pytest.raises(KeyRevoked, match="nothing is sealed to it"):
        book.announcement(BOB)
    for decide in (book.trust, book.verify):
        with pytest.raises(KeyRevoked, match="nothing is sealed to it"):
            decide(ADDRESS, BOB, DATE)


def test_a_key_that_claims_no_longer_stops_mail_until_it_does_or_the_user_agrees(
    book: Correspondents, find: Find
) -> None:
    """The text names the place where the claim is missed; who agreed is not asked again."""
    book.learn(ADDRESS, [find()], DATE, {BOB: SOURCE})
    book.miss_claim(ADDRESS, BOB)
    assert f"does not claim {ADDRESS} any more" in complaint(book)
    assert SOURCE in complaint(book)
    book.learn(ADDRESS, [find()], DATE + DAY, {BOB: SOURCE})
    assert book.trusted_key(ADDRESS) == BOB
    book.miss_claim(ADDRESS, BOB)
    book.trust(ADDRESS, BOB, DATE)
    assert book.trusted_key(ADDRESS) == BOB
    assert book.known(ADDRESS)[0].seen_at == ""


def test_an_owner_who_names_another_address_stops_mail_to_the_old_one(
    book: Correspondents, find: Find
) -> None:
    """The way to the new address is told; back again, nothing is left of it."""
    book.learn(ADDRESS, [find()], DATE)
    book.remember(find(day=1, name="Bob <bob@new.example>"))
    assert "Bob <bob@new.example>" in complaint(book)
    assert "sealmail key find bob@new.example" in complaint(book)
    book.remember(find(day=2))
    assert book.trusted_key(ADDRESS) == BOB
    book.remember(find(day=3, name="Bob <bob@new.example>"))
    book.trust(ADDRESS, BOB, DATE)
    book.remember(find(day=4, name="Robert <bob@new.example>"))
    assert book.trusted_key(ADDRESS) == BOB


def test_an_old_announcement_with_another_address_changes_nothing(
    book: Correspondents, find: Find
) -> None:
    """A server that digs it out cannot stop mail."""
    book.learn(ADDRESS, [find(day=1)], DATE)
    book.remember(find(day=0, name="Bob <bob@older.example>"))
    assert book.trusted_key(ADDRESS) == BOB


def test_a_verified_key_stays_verified(book: Correspondents, find: Find) -> None:
    """Trusting it again takes nothing away; another claimant still stops mail."""
    book.learn(ADDRESS, [find()], DATE)
    book.verify(ADDRESS, BOB, DATE)
    book.trust(ADDRESS, BOB, DATE)
    assert book.known(ADDRESS)[0].decision is Decision.VERIFIED
    book.learn(ADDRESS, [find(), find(AMY)], DATE)
    assert f"{BOB} (pinned, verified in person" in complaint(book)
    book.verify(ADDRESS, BOB, DATE)
    assert book.trusted_key(ADDRESS) == BOB


def test_the_book_is_searched_by_address_name_and_key(book: Correspondents, find: Find) -> None:
    """In any case of letters; every entry says when and where it was seen last."""
    book.learn(ADDRESS, [find()], DATE)
    book.learn("amy@a.example", [find(AMY, name="Amy <amy@a.example>")], DATE, {AMY: SOURCE})
    assert [one.address for one in book.search()] == ["amy@a.example", ADDRESS]
    for text in ("AMY@", "amy <", AMY.hex[5:20].lower()):
        (one,) = book.search(text)
        assert (one.key_id, one.last_seen, one.seen_at) == (AMY, DATE, SOURCE)
    assert book.search("nobody") == ()


def test_who_is_forgotten_is_a_stranger_again(book: Correspondents, find: Find) -> None:
    """Another key may then be the first one seen; a key of two addresses is kept for the other."""
    book.learn(ADDRESS, [find()], DATE)
    book.learn("robert@b.example", [find()], DATE)
    assert book.forget(ADDRESS)
    assert not book.forget(ADDRESS)
    assert book.newest(BOB) is not None
    assert book.forget("robert@b.example")
    assert book.newest(BOB) is None
    book.learn(ADDRESS, [find(AMY)], DATE)
    assert book.trusted_key(ADDRESS) == AMY


def test_a_home_of_the_first_version_keeps_its_address_book(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, decisions and pins are carried over."""
    with monkeypatch.context() as earlier:
        earlier.setattr(home_database, "_STEPS", home_database._STEPS[:1])
        old = HomeDatabase(tmp_path / "mail.sqlite")
        date = "2026-01-02T03:04:05Z"
        old.write("INSERT INTO known_key VALUES (?, ?, 'trusted', ?)", ADDRESS, BOB.hex, date)
        old.write("INSERT INTO pin VALUES ('direct b.example:1', ?, ?)", b"p" * 32, date)
        old.close()
    database = HomeDatabase(tmp_path / "mail.sqlite")
    (known,) = Correspondents(database).known(ADDRESS)
    assert (known.decision, known.change) == (Decision.TRUSTED, Change.NONE)
    assert known.last_seen == known.first_seen
    row = database.row("SELECT * FROM pin")
    assert row is not None
    assert row["previous"] is None
