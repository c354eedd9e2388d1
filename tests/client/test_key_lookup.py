"""Keys are found by address, and nothing that a server says about them is believed."""

import asyncio
from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import TypeVar

import pytest
from tests.client.conftest import Correspondent
from tests.client.samples import DATE
from tests.client.signed_blocks import SIGNED_FLOOR, Shelf, announcement_of, claim_of

from sealmail_client.key_lookup import MAX_CLAIMS, KeyLookup, TooManyClaims
from sealmail_pow import mint
from sealmail_protocol.block_codec import parse_block, parse_text_block
from sealmail_protocol.blocks import KeyAnnouncement
from sealmail_protocol.compose import claim_text
from sealmail_protocol.keys import KeyId
from sealmail_protocol.stamps import claim_challenge
from sealmail_verify import Verifier

T = TypeVar("T")
ADDRESS = "bob@b.example"


def run(awaitable: Awaitable[T]) -> T:
    """Run one look-up."""

    async def runner() -> T:
        return await awaitable

    return asyncio.run(runner())


@pytest.fixture(scope="module")
def bobs_key(bob: Correspondent) -> KeyAnnouncement:
    """Return Bob's announcement."""
    return announcement_of(bob)


def lookup(shelf: Shelf, now: datetime = DATE) -> KeyLookup:
    """Return a look-up on a shelf."""
    return KeyLookup(shelf, Verifier(), now)


def test_a_claimed_key_is_found(bob: Correspondent, bobs_key: KeyAnnouncement) -> None:
    """Address and key id lead to the same announcement; the case of an address is nothing."""
    shelf = Shelf()
    shelf.put_claims(ADDRESS, claim_of(bob, ADDRESS))
    shelf.put_key(bob.key_id, bobs_key)
    (found,) = run(lookup(shelf).by_address("Bob@B.example"))
    assert (found.key_id, found.announcement, found.revoked) == (bob.key_id, bobs_key, False)
    assert run(lookup(shelf).by_key_id(bob.key_id)) == found


def test_nothing_there_is_nothing_found(bob: Correspondent) -> None:
    """An empty server has no opinion."""
    finder = lookup(Shelf())
    assert run(finder.by_address(ADDRESS)) == ()
    assert run(finder.by_key_id(bob.key_id)) is None
    assert finder.doubts == []


def test_a_claim_in_the_name_of_another_key_is_left_out(
    amy: Correspondent, bob: Correspondent, bobs_key: KeyAnnouncement
) -> None:
    """Amy signs that Bob's key claims an address: that is not Bob's word."""
    shelf = Shelf()
    shelf.put_claims("else@b.example", claim_of(amy, "else@b.example", bob.key_id))
    shelf.put_key(bob.key_id, bobs_key)
    finder = lookup(shelf)
    assert run(finder.by_address("else@b.example")) == ()
    assert len(finder.doubts) == 1


def test_a_foreign_key_in_the_place_of_another_is_left_out(
    amy: Correspondent, bob: Correspondent
) -> None:
    """The server gives Amy's announcement under Bob's key id, and a claim without a key."""
    shelf = Shelf()
    shelf.put_claims(ADDRESS, claim_of(bob, ADDRESS))
    shelf.put_key(bob.key_id, announcement_of(amy))
    finder = lookup(shelf)
    assert run(finder.by_address(ADDRESS)) == ()
    assert any("its key is not there" in doubt for doubt in finder.doubts)


def test_a_claim_to_another_address_is_left_out(bob: Correspondent) -> None:
    """A true claim under the wrong key says nothing."""
    shelf = Shelf()
    shelf.put_claims(ADDRESS, claim_of(bob, "bob@elsewhere.example"))
    assert run(lookup(shelf).by_address(ADDRESS)) == ()


@pytest.mark.parametrize("days", [-2, 11, 40])
def test_blocks_out_of_their_time_are_left_out(
    bob: Correspondent, bobs_key: KeyAnnouncement, days: int
) -> None:
    """Claims live for ten days, keys for a month, and none comes from the future."""
    shelf = Shelf()
    shelf.put_claims(ADDRESS, claim_of(bob, ADDRESS))
    shelf.put_key(bob.key_id, bobs_key)
    finder = lookup(shelf, DATE + timedelta(days=days))
    assert run(finder.by_address(ADDRESS)) == ()
    assert finder.doubts


def test_an_altered_announcement_is_left_out(bob: Correspondent) -> None:
    """Whoever turns Bob's mail to another server needs more than Bob's old signature."""
    block = announcement_of(bob)
    text = "\n".join(block.lines).replace(bob.user_id, "Bob Elsewhere <bob@b.example>")
    altered = parse_block(text.encode())
    assert isinstance(altered, KeyAnnouncement)
    finder = lookup(Shelf())
    lines = [line.encode() for line in altered.lines]
    assert run(finder.in_text(lines, bob.key_id)) is None
    assert finder.doubts
    lines = [line.encode() for line in block.lines]
    assert run(finder.in_text(lines, bob.key_id)) is not None


def test_too_many_claims_are_an_error_before_any_key_is_asked_for(bob: Correspondent) -> None:
    """Each would cost a question and two signatures."""
    shelf = Shelf()
    signature = claim_of(bob, ADDRESS).lines
    claims = []
    for number in range(MAX_CLAIMS + 1):
        key_id = KeyId(number.to_bytes(20, "big"))
        stamp = mint(claim_challenge(DATE, key_id, ADDRESS), SIGNED_FLOOR)
        said = claim_text(DATE, stamp, key_id, ADDRESS).split("\n")[:-1]
        end = signature.index("-----BEGIN PGP SIGNATURE-----")
        claims.append(parse_text_block((*signature[:3], *said, *signature[end:])))
    shelf.put_claims(ADDRESS, *claims)
    with pytest.raises(TooManyClaims, match="send --key"):
        run(lookup(shelf).by_address(ADDRESS))
    assert shelf.asked == 1
