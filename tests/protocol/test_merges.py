"""Replicas agree, whatever the order in which blocks reach them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import strategies as s

from sealmail_pow import Stamp
from sealmail_protocol.blocks import AddressClaim, BlockType, BypassToken, MessageAnnouncement
from sealmail_protocol.compose import make_announcement
from sealmail_protocol.keys import KeyId
from sealmail_protocol.merges import Standing, displaces, entry_identity

some = settings(max_examples=60)
KINDS = list(BlockType)
KEY, CLAIM, MAIL, ACK, DATA = KINDS
DAY = datetime(2026, 1, 1, tzinfo=UTC)
LATER = DAY + timedelta(seconds=1)
LOW, HIGH = bytes(32), b"\xff" * 32


def of_two(kind: BlockType, one: Standing, two: Standing) -> Standing:
    """Return which of two entries stays when the second comes to the first."""
    return two if displaces(kind, two, one) else one


@some
@given(st.sampled_from(KINDS), st.lists(s.standings, min_size=1, max_size=6), st.data())
def test_one_entry_stays_whatever_the_order_and_the_repetitions(
    kind: BlockType, rivals: list[Standing], data: st.DataObject
) -> None:
    """The merge of every type commutes, associates and repeats harmlessly."""
    # One digest is one text: it has one date, one stamp and one key.
    rivals = list({one.digest: one for one in rivals}.values())
    again = data.draw(st.lists(st.sampled_from(rivals), max_size=4))
    order = data.draw(st.permutations([*rivals, *again]))
    last = reduce(lambda one, two: of_two(kind, one, two), rivals)
    assert reduce(lambda one, two: of_two(kind, one, two), order) == last
    assert not any(displaces(kind, one, last) for one in rivals)


@pytest.mark.parametrize(
    ("kinds", "stays", "goes"),
    [
        pytest.param(
            [KEY], Standing(DAY, HIGH, revoked=True), Standing(LATER, LOW), id="revoked-first"
        ),
        pytest.param([KEY, CLAIM, ACK, DATA], Standing(LATER, HIGH, bits=24),
                     Standing(DAY, LOW, bits=40), id="newer-though-cheaper"),
        pytest.param([MAIL], Standing(DAY, HIGH, bits=25), Standing(DAY, LOW, bits=24),
                     id="more-bits"),
        pytest.param(KINDS, Standing(DAY, LOW), Standing(DAY, HIGH), id="lower-digest"),
        pytest.param([KEY], Standing(DAY, LOW, revoked=True), Standing(DAY, HIGH, revoked=True),
                     id="lower-digest-of-revoked"),
    ],
)  # fmt: skip
def test_what_stays_is_what_the_table_says(
    kinds: list[BlockType], stays: Standing, goes: Standing
) -> None:
    """Revoked, newer or better paid by type; then the lower digest."""
    for kind in kinds:
        assert displaces(kind, stays, goes)
        assert not displaces(kind, goes, stays)
        assert not displaces(kind, stays, stays)


@some
@given(s.message_announcements, s.stamps, st.none() | s.raw_keys, st.integers(0, 1))
def test_a_mail_is_the_same_by_what_is_stamped_and_its_token(
    mail: MessageAnnouncement, stamp: Stamp, token: bytes | None, later: int
) -> None:
    """So nobody can re-date, strip or overwrite another's mail; he can only add an entry."""
    other = make_announcement(
        mail.date + timedelta(seconds=later), stamp, mail.recipient, mail.mailbox,
        mail.data_blocks, mail.message_hash, mail.token if token is None else BypassToken(token),
    )  # fmt: skip
    same = (mail.challenge, mail.token) == (other.challenge, other.token)
    assert (entry_identity(mail) == entry_identity(other)) == same
    stamped_again = replace(other, stamp=mail.stamp)
    assert entry_identity(stamped_again) == entry_identity(other)


@some
@given(s.address_claims, s.address_claims, s.key_ids)
def test_a_claim_is_the_same_by_its_key(
    one: AddressClaim, two: AddressClaim, key_id: KeyId
) -> None:
    """Another's claim for the same address stays beside it."""
    assert entry_identity(one) == entry_identity(replace(two, key_id=one.key_id))
    assert (entry_identity(replace(one, key_id=key_id)) == entry_identity(one)) == (
        key_id == one.key_id
    )


@some
@given(st.one_of(s.key_announcements, s.acknowledgments, s.data_blocks))
def test_of_every_other_type_there_is_one_under_a_key(block: object) -> None:
    """Whatever it says."""
    assert entry_identity(block) == b""  # type: ignore[arg-type]
