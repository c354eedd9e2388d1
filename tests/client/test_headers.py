"""HEADER.TXT: the specification's samples, and what is refused on either way."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealmail_client.errors import BadMessage, CannotSeal
from sealmail_client.headers import MAX_RECIPIENTS, Header, Place, Recipient, parse_header
from sealmail_protocol.addresses import Transport
from sealmail_protocol.keys import BlockKey, KeyId

AMY = KeyId.from_hex("62209a154b731d747be15e545e9b328e6ce255b3")
WILLIAM = KeyId.from_hex("c3202b03eb24b1a156dd2f2bb4f5c41ce3e5967d")

REPLY_TEXT = """\
From: Amy Alien <alien@pobox.com> 62209a154b731d747be15e545e9b328e6ce255b3
To: Amy Alien <alien@pobox.com> 62209a154b731d747be15e545e9b328e6ce255b3
KeyTransport-62209a154b731d747be15e545e9b328e6ce255b3: server=localhost:8082
Ack-62209a154b731d747be15e545e9b328e6ce255b3: 5ba98e9a8f46bc903b1bac94ca93ac937b2dce8c
To: William Wreck <wreck@pobox.com> c3202b03eb24b1a156dd2f2bb4f5c41ce3e5967d
KeyTransport-c3202b03eb24b1a156dd2f2bb4f5c41ce3e5967d: server=192.168.4.102:8081
Ack-c3202b03eb24b1a156dd2f2bb4f5c41ce3e5967d: 3ecd496f6b893fae5583e07861e6b55ef192437c
MessageUniqueId: 031cf398b44be44b6d5dc08d22ddb35e0b51a0ba
ReplyThreadId: c0ca9efd86d54a8a22ca47e40a5fd6182e891c18
Subject: RE: test unique id
Date: 2014-11-20T06:25:23Z
"""
REPLY = Header(
    sender_user_id="Amy Alien <alien@pobox.com>",
    sender=AMY,
    sender_transport=Transport.parse("server=localhost:8082"),
    recipients=(
        Recipient(
            Place.TO,
            "Amy Alien <alien@pobox.com>",
            AMY,
            Transport.parse("server=localhost:8082"),
            BlockKey.from_hex("5ba98e9a8f46bc903b1bac94ca93ac937b2dce8c"),
        ),
        Recipient(
            Place.TO,
            "William Wreck <wreck@pobox.com>",
            WILLIAM,
            Transport.parse("server=192.168.4.102:8081"),
            BlockKey.from_hex("3ecd496f6b893fae5583e07861e6b55ef192437c"),
        ),
    ),
    unique_id="031cf398b44be44b6d5dc08d22ddb35e0b51a0ba",
    subject="RE: test unique id",
    date=datetime(2014, 11, 20, 6, 25, 23, tzinfo=UTC),
    reply_thread_id="c0ca9efd86d54a8a22ca47e40a5fd6182e891c18",
)

FORWARD_TEXT = """\
From: William Wreck <wreck@pobox.com> c3202b03eb24b1a156dd2f2bb4f5c41ce3e5967d
To: Amy Alien <alien@pobox.com> 62209a154b731d747be15e545e9b328e6ce255b3
KeyTransport-62209a154b731d747be15e545e9b328e6ce255b3: server=localhost:8082
Ack-62209a154b731d747be15e545e9b328e6ce255b3: b11e5f837f229f32d8f21d1bc9b257bd6e5152e5
MessageUniqueId: 128293e5b6d2290d7201f1521b424436c57bdf9d
ForwardedMessageId: 749b112cdc5dc9af9e481387900d6687991373ca
Subject: FW: RE: test unique id
Date: 2014-11-20T06:29:42Z
KeyTransport-c3202b03eb24b1a156dd2f2bb4f5c41ce3e5967d: server=localhost:8081
"""
FORWARD = Header(
    sender_user_id="William Wreck <wreck@pobox.com>",
    sender=WILLIAM,
    sender_transport=Transport.parse("server=localhost:8081"),
    recipients=(
        Recipient(
            Place.TO,
            "Amy Alien <alien@pobox.com>",
            AMY,
            Transport.parse("server=localhost:8082"),
            BlockKey.from_hex("b11e5f837f229f32d8f21d1bc9b257bd6e5152e5"),
        ),
    ),
    unique_id="128293e5b6d2290d7201f1521b424436c57bdf9d",
    subject="FW: RE: test unique id",
    date=datetime(2014, 11, 20, 6, 29, 42, tzinfo=UTC),
    forwarded_id="749b112cdc5dc9af9e481387900d6687991373ca",
)

SAMPLES = [
    pytest.param(REPLY_TEXT, REPLY, id="reply"),
    pytest.param(FORWARD_TEXT, FORWARD, id="forward"),
]


@pytest.mark.parametrize(("text", "header"), SAMPLES)
def test_the_samples_of_the_specification_are_read_and_written(text: str, header: Header) -> None:
    """The samples of the specification are read and written."""
    assert parse_header(text.encode()) == header
    assert header.to_bytes() == text.encode()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda text: text.replace("\n", "\r\n"), id="crlf"),
        pytest.param(lambda text: text.replace("KeyTransport-", "Key-Transport-"), id="hyphen"),
        pytest.param(lambda text: text.replace("Subject:", "SUBJECT:"), id="case-of-names"),
        pytest.param(lambda text: text.replace("Ack-62209a", "Ack-62209A"), id="case-of-ids"),
        pytest.param(lambda text: "X-New: 1\n\nno colon\n" + text, id="unknown-lines"),
        pytest.param(lambda text: text.removesuffix("\n"), id="no-last-line-end"),
    ],
)
def test_other_spellings_say_the_same(change: Callable[[str], str]) -> None:
    """Other spellings say the same."""
    assert parse_header(change(FORWARD_TEXT).encode()) == FORWARD


def test_a_transport_that_cannot_be_read_is_none() -> None:
    """A transport that cannot be read is none."""
    text = FORWARD_TEXT.replace("server=localhost:8082", "carrier-pigeon=roof")
    assert parse_header(text.encode()).recipients[0].transport is None


def test_a_recipient_named_twice_by_an_original_counts_once() -> None:
    """A recipient named twice by an original counts once."""
    text = REPLY_TEXT.replace("MessageUniqueId", f"Cc: Amy {AMY}\nMessageUniqueId")
    assert parse_header(text.encode()).recipients == REPLY.recipients


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("From:", "Form:", "no from line"),
        ("Date:", "Data:", "no date line"),
        ("MessageUniqueId:", "Message:", "no messageuniqueid line"),
        ("Subject:", "Subject: a\nSubject:", "two subject lines"),
        ("2014-11-20", "2014-99-20", "impossible date"),
        ("Ack-62209a154b731d747be15e545e9b328e6ce255b3: b1", "Ack-" + "6" * 40 + ": zz", "none"),
        ("To: Amy Alien <alien@pobox.com> 62", "To: Amy Alien <alien@pobox.com> x", "key id"),
        ("ForwardedMessageId: 749b", "ForwardedMessageId: ../749b", "mail id"),
        ("Subject: FW", "Subject: \x1b[2J", "control characters"),
        ("Subject: ", "Subject: " + "x" * 20_000, "too long"),
        ("Subject: ", "X: y\n" * 300_000, "larger than"),
        ("To: ", f"Cc: X {AMY}\n" * (MAX_RECIPIENTS + 1) + "To: ", "more than 1000 recipients"),
        ("Message", f"Ack-{AMY}: {WILLIAM}\nMessage", "two acknowledgment ids"),
    ],
)
def test_a_header_is_refused_with_its_reason(old: str, new: str, reason: str) -> None:
    """A header is refused with its reason."""
    text = FORWARD_TEXT.replace(old, new, 1)
    assert text != FORWARD_TEXT
    with pytest.raises(BadMessage, match=reason):
        parse_header(text.encode())


def test_a_header_that_is_not_utf8_is_refused() -> None:
    """A header that is not utf8 is refused."""
    with pytest.raises(BadMessage, match="UTF-8"):
        parse_header(FORWARD_TEXT.encode().replace(b"FW", b"\xff\xfe"))


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (replace(REPLY, subject="two\nlines"), "one line"),
        (replace(REPLY, subject="broken \ud800"), "UTF-8"),
        (replace(REPLY, sender_user_id="Amy\r\nTo: x"), "one line"),
        (replace(REPLY, unique_id="../../etc"), "id of a mail"),
        (replace(REPLY, recipients=(*REPLY.recipients, REPLY.recipients[0])), "twice"),
    ],
)
def test_what_does_not_fit_into_a_header_is_not_sealed(header: Header, reason: str) -> None:
    """What does not fit into a header is not sealed."""
    with pytest.raises(CannotSeal, match=reason):
        header.to_bytes()


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=40))
def test_any_subject_of_one_line_comes_back(subject: str) -> None:
    """Any subject of one line comes back."""
    header = replace(FORWARD, subject=subject)
    assert parse_header(header.to_bytes()) == header


@given(st.binary(max_size=300))
def test_noise_raises_nothing_but_a_refusal(noise: bytes) -> None:
    """Noise raises nothing but a refusal."""
    with pytest.raises(BadMessage):
        parse_header(noise)
