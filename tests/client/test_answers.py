"""What a server answers is read entry by entry, and believed where it holds in itself."""

from datetime import timedelta

from tests.client.samples import AMY, BOB, DATE
from tests.client.signed_blocks import message_to

from sealmail_client.answers import MAX_DOUBTS, read_entries
from sealmail_protocol.bundles import join_bundle
from sealmail_protocol.keys import mailbox_key

KEY = mailbox_key("0", BOB)


def encoded(*lines: str) -> list[bytes]:
    """Return lines as they come from the wire."""
    return [line.encode() for line in lines]


def test_a_bad_entry_hides_none_of_the_others() -> None:
    """Mail for others, of another time, without a stamp, and noise are left out."""
    good = [message_to(BOB, b"one"), message_to(BOB, b"two")]
    unpaid = tuple(line for line in good[0].lines if not line.startswith("ProofOfWork"))
    bad = (
        message_to(AMY).lines,
        message_to(BOB, b"old", DATE - timedelta(days=11)).lines,
        message_to(BOB, b"new", DATE + timedelta(days=2)).lines,
        unpaid,
        ("noise",),
        ("Type: data", "\x1b"),
        (),
    )
    lines = encoded(*join_bundle(good[:1]))
    for entry in bad:
        lines += encoded("NextMessage", *entry)
    lines += encoded("nextmessage", *good[1].lines)
    doubts: list[str] = []
    entries = read_entries(lines, KEY, DATE, doubts)
    assert [entry.block for entry in entries] == good
    assert all(entry.bits >= 8 for entry in entries)
    assert len(doubts) == len(bad)


def test_a_million_bad_entries_are_not_a_million_complaints() -> None:
    """The rest is counted."""
    doubts: list[str] = []
    assert read_entries([b"NextMessage"] * 99_999, KEY, DATE, doubts) == []
    assert len(doubts) == MAX_DOUBTS + 1
    assert doubts[-1].startswith(f"{100_000 - MAX_DOUBTS} more entries")


def test_no_lines_are_no_entries() -> None:
    """An empty mailbox raises no doubt."""
    doubts: list[str] = []
    assert read_entries((), KEY, DATE, doubts) == []
    assert doubts == []
