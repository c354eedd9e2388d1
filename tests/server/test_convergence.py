"""Servers that are told the same blocks hold the same, in whatever order the blocks came."""

import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server.post_office import PostOffice, in_post_office, lines_of
from tests.server.users import User, data_lines, message, now
from tests.store.samples import all_entries

from sealmail_pow import Difficulty, mint
from sealmail_protocol.blocks import Acknowledgment, BlockType, MessageAnnouncement
from sealmail_protocol.canonical import block_digest
from sealmail_protocol.compose import make_acknowledgment
from sealmail_protocol.keys import (
    AckHash,
    BlockKey,
    acknowledgment_key,
    address_key,
    announcement_key,
    data_key,
    mailbox_key,
)
from sealmail_protocol.merges import entry_identity
from sealmail_protocol.stamps import acknowledgment_challenge, stamp_bits
from sealmail_store import ReadView, Tombstone

ADDRESS = "ann@a.example"
SECRET = AckHash(b"s" * 20)
DATA = b"the same bytes"

# The lines of a block under its key, of data the bytes follow; or the tombstone of one.
Told = tuple[BlockKey, tuple[bytes, ...]] | Tombstone
Held = set[tuple[str, BlockKey, bytes, bytes]]


@pytest.fixture(scope="module")
def ann() -> Iterator[User]:
    """Make a user with a key."""
    with tempfile.TemporaryDirectory() as place:
        person = User.create(Path(place) / "a", "ann")
        yield person
        person.close()


def acknowledgment(date: datetime) -> Acknowledgment:
    """Return an acknowledgment of one mail."""
    stamp = mint(acknowledgment_challenge(date, SECRET), Difficulty(16, 2))
    return make_acknowledgment(date, stamp, SECRET)


def twins(ann: User, date: datetime, weight: int) -> tuple[MessageAnnouncement, ...]:
    """Return one mail stamped twice, both times with so many bits."""
    made: dict[bytes, MessageAnnouncement] = {}
    while len(made) < 2:
        mail = message(ann.key_id, Difficulty(weight, 2), date=date)
        if stamp_bits(mail) == weight:
            made[block_digest(mail)] = mail
    return tuple(made.values())


def rivals(ann: User) -> list[Told]:
    """Return blocks of every type that compete for the same places, twice with equal dates."""
    date = now()
    later = date + timedelta(seconds=5)
    keys = [ann.announcement(each) for each in (date, later, later)]
    claims = [ann.claim(ADDRESS, date=each) for each in (date, later, later)]
    mails = [
        *twins(ann, date, 12),
        *twins(ann, date, 16),
        message(ann.key_id, date=later),
        message(ann.key_id, date=date, data=b"another"),
    ]
    acknowledgments = [acknowledgment(each) for each in (date, later, later)]
    told: list[Told] = [
        *((announcement_key(ann.key_id), lines_of(each)) for each in keys),
        *((address_key(ADDRESS), lines_of(each)) for each in claims),
        *((mailbox_key("0", ann.key_id), lines_of(each)) for each in mails),
        *((acknowledgment_key(SECRET), lines_of(each)) for each in acknowledgments),
    ]
    for each in (date, later, later):
        key, lines = data_lines(DATA, each)
        told.append((key, tuple(line.encode() for line in lines)))
    assert len(set(told)) == len(told)
    return told


def held_after(told: Sequence[Told]) -> Held:
    """Tell blocks to a new server as its partner would, and return what it holds then."""

    async def scenario(office: PostOffice) -> Held:
        for each in told:
            if isinstance(each, Tombstone):
                await office.intake.take_tombstone(each)
                continue
            key, lines = each
            if key == data_key(DATA):
                intake = office.intake.replicate_data(key, lines, None)
                await intake.take(DATA)
                await intake.finish()
            else:
                await office.intake.replicate_text(key, lines, None)

        def everything(view: ReadView) -> Held:
            return {
                (entry.type, entry.key, entry.identity, entry.digest)
                for kind in BlockType
                for entry in all_entries(view, kind)
            }

        return await office.store.read(everything)

    with tempfile.TemporaryDirectory() as directory:
        return in_post_office(Path(directory), scenario)


@pytest.mark.parametrize("revoked", [False, True], ids=["in-use", "revoked"])
def test_the_order_of_blocks_makes_no_difference(ann: User, revoked: bool) -> None:
    """Every order, with repetitions, ends in one and the same store; a revocation included."""
    told = rivals(ann)
    if revoked:
        before = now() - timedelta(hours=1)
        last_words = [ann.announcement(before, revoked=True) for _ in range(2)]
        told += [(announcement_key(ann.key_id), lines_of(each)) for each in last_words]
    first = held_after(told)
    kinds = sorted(kind for kind, *_ in first)
    claims = [] if revoked else ["address-claim"]
    mails = ["message-announcement"] * 3
    assert kinds == ["acknowledgment", *claims, "data", "key-announcement", *mails]

    @settings(max_examples=8, deadline=None)
    @given(st.permutations(told), st.lists(st.sampled_from(told), max_size=6))
    def in_any_order(order: list[Told], again: list[Told]) -> None:
        assert held_after([*order, *again]) == first

    in_any_order()


def test_dropped_mail_stays_away_whatever_its_stamp(ann: User) -> None:
    """One server dropped the weaker version of a mail, the other held or got the better one."""
    date = now()
    weak, better = twins(ann, date, 12)[0], twins(ann, date, 16)[0]
    mailbox = mailbox_key("0", ann.key_id)
    stone = Tombstone(mailbox, block_digest(weak), entry_identity(weak), date + timedelta(days=12))
    told: list[Told] = [stone, *((mailbox, lines_of(each)) for each in (weak, better))]
    for order in permutations(told):
        assert held_after(order) == set()
