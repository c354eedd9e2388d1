"""Replicas agree, whatever the order in which blocks reach them."""

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from tests import strategies as s

from sealmail_pow import Stamp
from sealmail_protocol.blocks import (
    Acknowledgment,
    AddressClaim,
    KeyAnnouncement,
    MessageAnnouncement,
)
from sealmail_protocol.compose import make_acknowledgment, make_announcement, make_data_header
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.merges import (
    merge_acknowledgments,
    merge_announcements,
    merge_claims,
    merge_data,
    merge_key_announcements,
)
from sealmail_protocol.stamps import stamp_bits

some = settings(max_examples=60)
KEY = BlockKey(bytes(20))


def relatives(mail: MessageAnnouncement) -> st.SearchStrategy[list[MessageAnnouncement]]:
    """Return entries of which some are the same mail, stamped or tokened otherwise."""
    one = st.builds(
        lambda stamp, token, later: make_announcement(
            mail.date + timedelta(seconds=later), stamp, mail.recipient, mail.mailbox,
            mail.data_blocks, mail.message_hash, token,
        ),
        s.stamps,
        st.sampled_from((None, mail.token)),
        st.integers(0, 1),
    )  # fmt: skip
    return st.lists(one, max_size=5)


families = s.message_announcements.flatmap(
    lambda mail: st.tuples(relatives(mail), relatives(mail), relatives(mail))
)


@some
@given(families)
def test_mailboxes_merge_as_a_set(
    mails: tuple[list[MessageAnnouncement], list[MessageAnnouncement], list[MessageAnnouncement]],
) -> None:
    """The merge commutes, associates and repeats harmlessly, and loses nobody's mail."""
    one, two, three = mails
    both = merge_announcements(one, two)
    assert both == merge_announcements(two, one)
    assert merge_announcements(both.values(), two) == both
    right = merge_announcements(two, three).values()
    assert merge_announcements(both.values(), three) == merge_announcements(one, right)
    assert {mail.challenge for mail in both.values()} == {m.challenge for m in (*one, *two)}
    for (stamped, token), kept in both.items():
        rivals = [
            mail
            for mail in (*one, *two)
            if mail.challenge == stamped and (mail.token.raw if mail.token else b"") == token
        ]
        assert stamp_bits(kept) == max(map(stamp_bits, rivals))


@some
@given(st.lists(s.address_claims, max_size=4), st.lists(s.address_claims, max_size=4), st.data())
def test_claims_merge_by_key(
    one: list[AddressClaim], two: list[AddressClaim], data: st.DataObject
) -> None:
    """Of each key the newest claim stays, in any order."""
    if one:
        rival = data.draw(s.address_claims)
        two = [*two, replace(rival, key_id=one[0].key_id)]
    merged = merge_claims(one, two)
    assert merged == merge_claims(two, one)
    assert merge_claims(merged.values(), two) == merged
    for key_id, kept in merged.items():
        assert kept.date == max(c.date for c in (*one, *two) if c.key_id == key_id)


@some
@given(s.key_announcements, s.key_announcements, st.booleans(), st.booleans())
def test_a_revoked_key_beats_every_date(
    one: KeyAnnouncement, two: KeyAnnouncement, one_revoked: bool, two_revoked: bool
) -> None:
    """Revoked wins, then the newer date, then the lower digest: in any order."""
    first, second = (one, one_revoked), (two, two_revoked)
    merged = merge_key_announcements(first, second)
    assert merged == merge_key_announcements(second, first)
    assert merge_key_announcements(merged, second) == merged
    if one_revoked != two_revoked:
        assert merged[1] is True
    else:
        assert merged[0].date == max(one.date, two.date)


@some
@given(s.acknowledgments, s.stamps, st.integers(-1, 1))
def test_acknowledgments_of_one_mail_merge_to_the_newest(
    one: Acknowledgment, stamp: Stamp, later: int
) -> None:
    """Equal dates are decided by the digest, so that both orders agree."""
    two = make_acknowledgment(one.date + timedelta(seconds=later), stamp, one.secret)
    merged = merge_acknowledgments(one, two)
    assert merged == merge_acknowledgments(two, one) == merge_acknowledgments(merged, two)
    assert merged.date == max(one.date, two.date)


@some
@given(s.dates, s.stamps, s.stamps, st.integers(-1, 1))
def test_headers_of_the_same_data_merge_to_the_newest(
    date: datetime, stamp: Stamp, other: Stamp, later: int
) -> None:
    """The header that lives longer stays."""
    one = make_data_header(date, stamp, 5)
    two = make_data_header(date + timedelta(seconds=later), other, 5)
    merged = merge_data(KEY, one, two)
    assert merged == merge_data(KEY, two, one) == merge_data(KEY, merged, two)
    assert merged.date == max(one.date, two.date)
