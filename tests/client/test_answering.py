"""Whom an answer goes to, what it is called, and what it quotes."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.client.samples import AMY, BOB, DATE, header

from sealmail_client.answering import (
    NotSigned,
    forward_subject,
    passed_on,
    readers_of_reply,
    reply_subject,
    with_forwarded_text,
    with_quote,
)
from sealmail_client.folders import Envelope, FiledMail, Folder, SignatureState
from sealmail_client.headers import Header, Place, Recipient
from sealmail_client.letters import Letter
from sealmail_client.message_zip import OpenedLetter, open_letter, zip_chunks
from sealmail_protocol.keys import BlockKey, KeyId

CAROL, DAVE = KeyId(bytes(range(40, 60))), KeyId(bytes(range(60, 80)))


def to_many() -> Header:
    """Return the header of a mail from Amy to Bob, Carol and, hidden, Dave."""
    places = ((BOB, Place.TO), (CAROL, Place.CC), (DAVE, Place.BCC), (AMY, Place.CC))
    people = tuple(Recipient(place, f"{place}", key_id, None, None) for key_id, place in places)
    return replace(header(), recipients=people)


@pytest.mark.parametrize(
    ("own", "everybody", "readers"),
    [
        pytest.param(BOB, False, {AMY: Place.TO}, id="one"),
        pytest.param(BOB, True, {AMY: Place.TO, CAROL: Place.CC}, id="all"),
        pytest.param(DAVE, True, {AMY: Place.TO, BOB: Place.TO, CAROL: Place.CC}, id="hidden"),
        pytest.param(AMY, False, {BOB: Place.TO}, id="own"),
        pytest.param(AMY, True, {BOB: Place.TO, CAROL: Place.CC}, id="own-all"),
    ],
)
def test_an_answer_goes_to(own: KeyId, everybody: bool, readers: dict[KeyId, Place]) -> None:
    """Never to oneself, never to somebody hidden."""
    assert readers_of_reply(to_many(), own, everybody=everybody) == readers


def test_a_subject_is_marked_once() -> None:
    """Also by the marks of other programs."""
    assert reply_subject("Hello") == "Re: Hello"
    assert reply_subject("RE: Hello") == "RE: Hello"
    assert forward_subject("Hello") == "Fwd: Hello"
    assert forward_subject("FW: Hello") == "FW: Hello"


def opened(tmp_path: Path, text: str | None, html: str | None = None) -> OpenedLetter:
    """Return a received letter."""
    path = tmp_path / "message.zip"
    with path.open("wb") as file:
        file.writelines(zip_chunks(Letter(to_many(), text, html)))
    return open_letter(path)


def test_a_quote_stands_below_the_answer(tmp_path: Path) -> None:
    """With a mark before each line."""
    quoted = with_quote("Yes.\n", opened(tmp_path, "When?\n\nWhere?\n"))
    assert quoted == (
        "Yes.\n\nOn 2026-03-01T12:00:00Z, Amy Alien <amy@a.example> wrote:\n> When?\n>\n> Where?\n"
    )


def test_a_forwarded_text_names_nobody_who_was_hidden(tmp_path: Path) -> None:
    """HTML alone is quoted as text."""
    text = with_forwarded_text("See:", opened(tmp_path, None, "<p>Hi<p>there"))
    assert text.startswith("See:\n\n---------- Forwarded ----------\nFrom: Amy Alien")
    assert "\nTo: To\nCc: Cc\n" in text
    assert "Bcc" not in text
    assert text.endswith("> Hi\n> there\n")


def test_a_mail_is_not_passed_on_with_a_signature_that_is_not_good(tmp_path: Path) -> None:
    """As quoted text it may be."""
    envelope = Envelope(
        *(Folder.INBOX, "a" * 40, BlockKey(bytes(20)), "Amy", AMY, ("Bob",), "Hello", DATE),
        SignatureState.INVALID,
        "forged",
        DATE,
    )
    mail = FiledMail(1, envelope, DATE, True, tmp_path / "zip", tmp_path / "sig")
    with pytest.raises(NotSigned, match="sealmail send"):
        passed_on(mail, "b" * 40)
    assert passed_on(mail, None).signed_as is None
