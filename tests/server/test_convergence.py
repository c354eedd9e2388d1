"""Servers that are told the same blocks hold the same, in whatever order the blocks came."""

import random
import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.server.post_office import PostOffice, in_post_office, lines_of
from tests.server.users import User, data_lines, message, now
from tests.store.samples import all_entries

from sealmail_pow import Difficulty, mint
from sealmail_protocol.blocks import Acknowledgment, BlockType
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
from sealmail_protocol.stamps import acknowledgment_challenge
from sealmail_store import ReadView

ADDRESS = "ann@a.example"
SECRET = AckHash(b"s" * 20)
DATA = b"the same bytes"

# The lines of a block under its key; of data the bytes follow.
Told = tuple[BlockKey, tuple[bytes, ...]]
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


def rivals(ann: User) -> list[Told]:
    """Return blocks of every type that compete for the same places."""
    date = now()
    later = date + timedelta(seconds=5)
    key, address, mailbox = (
        announcement_key(ann.key_id),
        address_key(ADDRESS),
        mailbox_key("0", ann.key_id),
    )
    keys = (
        ann.announcement(date),
        ann.announcement(later, Difficulty(9, 2)),
        ann.announcement(later, Difficulty(10, 2)),
    )
    claims = (ann.claim(ADDRESS, date=date), ann.claim(ADDRESS, date=later))
    mails = (
        message(ann.key_id, Difficulty(12, 2), date=date),
        message(ann.key_id, Difficulty(16, 2), date=date),
        message(ann.key_id, date=date, data=b"another"),
    )
    data = [data_lines(DATA, each) for each in (date, later)]
    return [
        *((key, lines_of(each)) for each in keys),
        *((address, lines_of(each)) for each in claims),
        *((mailbox, lines_of(each)) for each in mails),
        *((acknowledgment_key(SECRET), lines_of(acknowledgment(each))) for each in (date, later)),
        *((key, tuple(line.encode() for line in lines)) for key, lines in data),
    ]


def held_after(directory: Path, told: list[Told]) -> Held:
    """Tell blocks to a new server as its partner would, and return what it holds then."""

    async def scenario(office: PostOffice) -> Held:
        for key, lines in told:
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

    return in_post_office(directory, scenario)


@pytest.mark.parametrize("revoked", [False, True], ids=["in-use", "revoked"])
def test_the_order_of_blocks_makes_no_difference(tmp_path: Path, ann: User, revoked: bool) -> None:
    """Every order, with repetitions, ends in one and the same store; a revocation included."""
    told, order = rivals(ann), random.Random(2026)  # noqa: S311 - an order is no secret
    if revoked:
        last_word = ann.announcement(now() - timedelta(hours=1), revoked=True)
        told.append((announcement_key(ann.key_id), lines_of(last_word)))
    held = []
    for number in range(6):
        order.shuffle(told)
        held.append(held_after(tmp_path / str(number), [*told, *order.choices(told, k=6)]))
    kinds = sorted(kind for kind, *_ in held[0])
    claims = [] if revoked else ["address-claim"]
    mails = ["message-announcement"] * 2
    assert kinds == ["acknowledgment", *claims, "data", "key-announcement", *mails]
    assert [each for each in held if each != held[0]] == []
