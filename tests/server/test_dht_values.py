"""What the DHT takes: signed values with all that proves them, and nothing near to it."""

import asyncio
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server.dht_network import acknowledgment, data
from tests.server.users import User, now
from tests.strategies import BLOCKS, standings

from sealmail_protocol.block_codec import serialise_block
from sealmail_protocol.blocks import AddressClaim, Block, BlockType, KeyAnnouncement
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.keys import BlockKey, address_key, announcement_key
from sealmail_server.dht.values import (
    REVOCATION_AGE,
    Examiner,
    Value,
    merged,
    read_value,
    value_of,
)
from sealmail_verify import VerifierPool

NOW, KEY = now(), BlockKey(bytes(20))


@pytest.fixture(scope="module")
def users() -> Iterator[tuple[User, User]]:
    """Return two users with keys."""
    with tempfile.TemporaryDirectory() as place:
        ann, bob = (User.create(Path(place) / name, name) for name in ("a", "b"))
        yield ann, bob
        ann.close()
        bob.close()


def examined(key: BlockKey, body: bytes, hours: float = 0) -> Value | Refusal:
    """Examine a value some hours later; return it, or why it was refused."""

    async def examine() -> Value:
        async with VerifierPool(1) as verifier:
            return await Examiner(verifier).examine(key, body, NOW + timedelta(hours=hours))

    try:
        return asyncio.run(examine())
    except InvalidBlock as error:
        return error.code


def body_of(block: Block, certificate: KeyAnnouncement | None = None) -> bytes:
    """Return how a block travels."""
    return value_of(BlockKey(bytes(20)), block, certificate).body


def test_a_claim_travels_with_what_signed_it(users: tuple[User, User]) -> None:
    """Without it, with another's, or with a claim of another's key it is refused."""
    ann, bob = users
    key = address_key("ann@a.example")
    claim, announced = ann.claim("ann@a.example", date=NOW), ann.announcement(NOW)
    found = examined(key, body_of(claim, announced))
    assert isinstance(found, Value)
    assert isinstance(found.block, AddressClaim)
    assert found.identity == ann.key_id.raw
    assert examined(key, serialise_block(claim)) is Refusal.FORM
    assert examined(key, body_of(claim, bob.announcement(NOW))) is Refusal.SIGNATURE
    forged = bob.claim("ann@a.example", ann.key_id, NOW)
    assert examined(key, body_of(forged, announced)) is Refusal.SIGNATURE
    revoked = ann.announcement(NOW, revoked=True)
    assert examined(key, body_of(claim, revoked)) is Refusal.KEY
    assert examined(address_key("bob@a.example"), body_of(claim, announced)) is Refusal.KEY


def test_a_key_is_kept_a_month_and_its_revocation_longer(users: tuple[User, User]) -> None:
    """Under its own fingerprint only; a revocation displaces what is newer."""
    ann, bob = users
    key, later = announcement_key(ann.key_id), 24.0 * 40
    live, dead = ann.announcement(NOW), ann.announcement(NOW, revoked=True)
    first, second = examined(key, body_of(live)), examined(key, body_of(dead))
    assert isinstance(first, Value)
    assert isinstance(second, Value)
    assert merged([first, second]) == merged([second, first]) == (second,)
    assert examined(announcement_key(bob.key_id), body_of(live)) is Refusal.SIGNATURE
    assert examined(key, body_of(live), later) is Refusal.DATE
    assert isinstance(examined(key, body_of(dead), later), Value)
    assert examined(key, body_of(dead), REVOCATION_AGE.days * 24.0) is Refusal.DATE


@settings(max_examples=60)
@given(st.data())
def test_readers_agree_whatever_the_order_in_which_values_come(draw: st.DataObject) -> None:
    """Of each type and identity one value stays, the same with ties and repetitions."""
    some = [draw.draw(kind) for kind in BLOCKS.values()]
    under = st.builds(
        lambda block, standing, identity: Value(
            KEY, block.type, standing, identity, standing.digest
        ),
        st.sampled_from(some),
        standings,
        st.sampled_from((b"", b"another")),
    )
    values = draw.draw(st.lists(under, max_size=8, unique_by=lambda value: value.digest))
    again = draw.draw(st.lists(st.sampled_from(values), max_size=4)) if values else []
    order = draw.draw(st.permutations([*values, *again]))
    found = merged(order)
    assert found == merged(values)
    places = {(value.type, value.identity) for value in values}
    assert {(value.type, value.identity) for value in found} == places
    assert len(found) == len(places)


def test_data_is_bounded_stamped_and_under_its_hash() -> None:
    """64 KiB of it, whatever it looks like inside."""
    content = b"\r\nNextClaim\r\n" + bytes(64 * 1024 - 13)
    key, body = data(content, NOW)
    assert isinstance(examined(key, body), Value)
    too_large, larger = data(content + b"x", NOW)
    assert examined(too_large, larger) is Refusal.SIZE
    assert examined(key, body[:-1] + b"x") in (Refusal.KEY, Refusal.STAMP)
    assert examined(key, body + b"x" * 200_000) is Refusal.SIZE


@pytest.mark.parametrize("hours", [-25, 24 * 10])
def test_a_date_must_be_near(hours: float) -> None:
    """Neither a day ahead nor beyond the age of the type."""
    key, body = acknowledgment(1, NOW)
    assert examined(key, body, hours) is Refusal.DATE
    assert isinstance(examined(key, body, hours * 0.9), Value)


def test_only_one_form_is_taken() -> None:
    """What could travel in two forms would be listed and fetched twice."""
    key, body = acknowledgment(1, NOW)
    assert read_value(key, body, NOW).type is BlockType.ACKNOWLEDGMENT
    for other in (body.replace(b"\r\n", b"\n"), body + b"Padding: x\r\n"):
        with pytest.raises(InvalidBlock):
            read_value(key, other, NOW)
