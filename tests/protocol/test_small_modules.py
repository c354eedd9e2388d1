"""Dates, keys, lines, buffers, stamps, validity and composing: the rules that fit on one line."""

import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies as s
from tests.protocol.vector_files import block_vectors

from sealmail_pow import Difficulty, Stamp
from sealmail_protocol.addresses import Transport
from sealmail_protocol.block_codec import parse_block
from sealmail_protocol.blocks import Acknowledgment, BlockType, MessageAnnouncement, type_named
from sealmail_protocol.bypass import BypassSecret, token_fits
from sealmail_protocol.compose import KeyText, claim_text
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.fields import Fields, as_line, is_line, split_lines
from sealmail_protocol.keys import AckHash, BlockKey, DataKeyHasher, KeyId, data_key
from sealmail_protocol.receive_buffer import ReceiveBuffer
from sealmail_protocol.replies import (
    Accepted,
    Banner,
    Pending,
    QueueRow,
    Refused,
    parse_verdict,
    refused,
    worst,
)
from sealmail_protocol.validity import check_date, check_text_block

SAMPLES = {vector.name: vector for vector in block_vectors()}
HALLOWEEN = datetime(2014, 10, 31, 9, 2, 22, tzinfo=UTC)
ACK_KEY = BlockKey.from_hex("DA458F9588E1B4F9F85EE79E8DEB4DD85B448092")


def acknowledgment() -> Acknowledgment:
    """Return the sample."""
    block = parse_block(SAMPLES["sample_acknowledgment"].body(b"\n"))
    assert isinstance(block, Acknowledgment)
    return block


@given(s.dates)
def test_a_date_is_read_as_it_was_written(date: datetime) -> None:
    """Twenty characters, from the year 1 to 9999."""
    assert len(format_date(date)) == 20
    assert parse_date(format_date(date)) == date


def test_a_date_is_written_in_utc() -> None:
    """A time zone is needed to know the moment."""
    there = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    assert format_date(there) == "2025-12-31T23:00:00Z"
    with pytest.raises(ValueError, match="time zone"):
        format_date(datetime(2026, 1, 1))


@given(st.text("0123456789-T:Z ٣", max_size=22))
def test_noise_is_a_date_or_a_value_error(text: str) -> None:
    """Only the one form is taken."""
    try:
        date = parse_date(text)
    except ValueError:
        return
    assert format_date(date) == text


@pytest.mark.parametrize("text", ["", "0" * 39, "0" * 41, "g" * 40, "٣" * 40, " " + "0" * 39])
def test_a_key_is_forty_hex_digits(text: str) -> None:
    """Of either case, and nothing else."""
    with pytest.raises(ValueError, match="40 hex"):
        BlockKey.from_hex(text)


def test_keys_of_different_kinds_are_never_equal() -> None:
    """A key id is not a block key, though its bytes may be the same."""
    raw = bytes(range(20))
    assert len({KeyId(raw), BlockKey(raw), AckHash(raw)}) == 3
    assert str(KeyId(raw)) == raw.hex().upper()
    assert raw.hex().upper() in repr(BlockKey(raw))
    assert raw.hex() not in repr(AckHash(raw)).lower()
    with pytest.raises(ValueError, match="19 bytes"):
        KeyId(raw[1:])


@given(st.lists(st.binary(max_size=30)))
def test_a_key_is_hashed_in_chunks_as_whole(chunks: list[bytes]) -> None:
    """The cuts do not matter."""
    hasher = DataKeyHasher()
    for chunk in chunks:
        hasher.update(chunk)
    assert hasher.key() == data_key(b"".join(chunks))


def test_fields_compare_without_case_and_count() -> None:
    """Once, at most once, or any number of times."""
    fields = Fields.parse(("A: 1", "a: 2", "B: x y"))
    assert fields.every("A") == ("1", "2")
    assert (fields.one("b"), fields.optional("C")) == ("x y", None)
    with pytest.raises(InvalidBlock, match="more than one A"):
        fields.one("A")
    with pytest.raises(InvalidBlock, match="no C line"):
        fields.one("C")
    assert list(fields) == [("A", "1"), ("a", "2"), ("B", "x y")]


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "\x7f", "\x85", "\u2028", "\ud800", "ä" * 8193])
def test_what_is_no_line_is_told(text: str) -> None:
    """And can be made fit to be shown."""
    assert not is_line(text)
    assert is_line(as_line(text)[:8192])


def test_lines_may_end_either_way() -> None:
    """A last line without end is a line as well."""
    assert split_lines(b"a\r\nb\nc") == ("a", "b", "c")
    assert split_lines(b"") == ()
    assert split_lines(b"a\n\n") == ("a", "")


@given(st.lists(st.binary(max_size=20)))
def test_a_buffer_gives_each_line_once(parts: list[bytes]) -> None:
    """A bare CR or LF ends none, and the rest stays."""
    buffer, lines = ReceiveBuffer(), []
    for part in parts:
        buffer.feed(part)
        while (line := buffer.take_line()) is not None:
            lines.append(line)
    rest = buffer.take_up_to(10_000)
    assert len(buffer) == 0
    assert b"\r\n".join((*lines, rest)) == b"".join(parts)


def test_an_invalid_block_can_cross_a_process() -> None:
    """The code and the reason survive pickling."""
    error = pickle.loads(pickle.dumps(InvalidBlock(Refusal.KEY, "why")))  # noqa: S301
    assert (error.code, error.reason, str(error)) == (Refusal.KEY, "why", "key: why")


def test_type_names_are_exact() -> None:
    """With the one other spelling that originals read."""
    assert type_named("acknowledgement") is BlockType.ACKNOWLEDGMENT
    assert type_named("Data") is None


@pytest.mark.parametrize(
    ("days", "key", "code"),
    [
        (0, ACK_KEY, None),
        (9, ACK_KEY, None),
        (10, ACK_KEY, "date"),
        (-1, ACK_KEY, None),
        (-2, ACK_KEY, "date"),
        (0, BlockKey(bytes(20)), "key"),
    ],
)
def test_a_block_must_fit_its_key_and_time(days: int, key: BlockKey, code: str | None) -> None:
    """Not past its age, not a day ahead, and under the key that its content asks for."""
    now = HALLOWEEN + timedelta(days=days)
    if code is None:
        assert check_text_block(acknowledgment(), key, now) == 18
        return
    with pytest.raises(InvalidBlock) as refusal:
        check_text_block(acknowledgment(), key, now)
    assert refusal.value.code == code


def test_a_block_must_be_small_and_stamped() -> None:
    """A kibibyte is the most that an acknowledgment may have."""
    body = SAMPLES["sample_acknowledgment"].body(b"\n")
    large = parse_block(body + b"X: " + b"x" * 1000 + b"\n")
    cheap = parse_block(body.replace(b"0000001f5", b"0000001f6"))
    for block, code in ((large, "size"), (cheap, "stamp")):
        assert isinstance(block, Acknowledgment)
        with pytest.raises(InvalidBlock) as refusal:
            check_text_block(block, ACK_KEY, HALLOWEEN)
        assert refusal.value.code == code
    check_date(acknowledgment(), HALLOWEEN - timedelta(hours=48), timedelta(hours=48))


def test_a_token_fits_one_announcement_and_one_secret() -> None:
    """The published one fits; another secret, another mail or no token do not."""
    secret = BypassSecret(bytes.fromhex("7b3272b2346fe3d81c416011177d551b017c341a"))
    mail = parse_block(SAMPLES["token"].body(b"\n"))
    bare = parse_block(SAMPLES["sample_announcement"].body(b"\n"))
    other = parse_block(SAMPLES["token"].body(b"\n").replace(b"05:25:22Z", b"05:25:23Z"))
    for block, fits in ((mail, True), (bare, False), (other, False)):
        assert isinstance(block, MessageAnnouncement)
        assert token_fits(block, secret) is fits
        assert not token_fits(block, BypassSecret(bytes(20)))
    assert "7b32" not in repr(secret)
    with pytest.raises(ValueError, match="20 bytes"):
        BypassSecret(b"short")


def test_a_verdict_text_is_fit_for_a_line() -> None:
    """Cut, and without what could end the line."""
    assert refused(Refusal.FORM, "a\r\nb\ud800").text == "a??b?"
    assert len(refused(Refusal.FORM, "x" * 300).text) == 200
    assert parse_verdict("REFUSED form " + "x" * 300) == Refused(Refusal.FORM, "x" * 200)


@pytest.mark.parametrize(
    "line",
    ["", "ACCEPTED ", "ACCEPTED twice", "accepted", "PENDING ", "PENDING bd,1", "REFUSED",
     "REFUSED because", "NOT FOUND"],
)  # fmt: skip
def test_what_is_no_verdict_is_refused(line: str) -> None:
    """``NOT FOUND`` is an answer, but no verdict."""
    with pytest.raises(ValueError, match=r"\w"):
        parse_verdict(line)


def test_a_bundle_is_as_good_as_its_worst_entry() -> None:
    """Refused, then pending, then accepted."""
    no = Refused(Refusal.FORM)
    assert worst((Accepted(), no, Pending())) == no
    assert worst((Accepted(), Pending())) == Pending()
    assert worst((Accepted(),)) == Accepted()


@pytest.mark.parametrize(
    "line",
    [
        "Block: x",
        f"Block: {'0' * 40} data 0 waiting - 2026-05-01T10:00:00Z -",
        f"Block: {'0' * 40} data ٣ waiting - 2026-05-01T10:00:00Z -",
        f"Block: {'0' * 40} data 1 asleep - 2026-05-01T10:00:00Z -",
        f"Block: {'0' * 40} data 1 waiting A 2026-05-01T10:00:00Z -",
        f"Block: {'0' * 40} mail 1 waiting - 2026-05-01T10:00:00Z -",
        f"Block: {'0' * 40} data 1 waiting - - -",
    ],
)
def test_what_is_no_queue_row_is_refused(line: str) -> None:
    """Numbers from one, known states, one word, real dates."""
    with pytest.raises(ValueError, match=r"\w"):
        QueueRow.parse(line)


@pytest.mark.parametrize(
    ("line", "ready"),
    [
        ("CONFIDANT MAIL SERVER PROTOCOL 1 READY", True),
        ("CONFIDANT MAIL SERVER PROTOCOL 999999999 READY", True),
        ("\x05 CONFIDANT MAIL SERVER PROTOCOL 1 READY", True),
        ("CONFIDANT MAIL SERVER PROTOCOL 1 READY or not", False),
        ("CONFIDANT MAIL SERVER PROTOCOL 1 ready", False),
        ("CONFIDANT MAIL SERVER PROTOCOL x READY", None),
        ("CONFIDANT MAIL SERVER PROTOCOL 1", None),
        ("XCONFIDANT MAIL SERVER PROTOCOL 1 READY", None),
    ],
)
def test_only_ready_means_ready(line: str, ready: bool | None) -> None:
    """Any whole version is taken; any other ending means that the server is unavailable."""
    if ready is None:
        with pytest.raises(ValueError, match="banner"):
            Banner.parse(line)
    else:
        assert Banner.parse(line).ready is ready


def test_nothing_is_signed_that_would_be_refused() -> None:
    """A line break in a name would forge fields."""
    text = KeyText(
        HALLOWEEN, HALLOWEEN, "Eve\nMailboxes: 9", Transport(), ("0",), Difficulty(8), "key"
    )
    with pytest.raises(ValueError, match="not one line"):
        text.stamped(Stamp(("1", "2")))
    with pytest.raises(ValueError, match="not one line"):
        claim_text(HALLOWEEN, Stamp(("1", "2")), KeyId(bytes(20)), "a@b\nX: y")
    with pytest.raises(InvalidBlock):
        claim_text(HALLOWEEN, Stamp(("1", "2")), KeyId(bytes(20)), " a@b")
