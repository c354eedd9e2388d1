"""Filed mail: once each, private, and whole or not there."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.client.samples import AMY, DATE

from sealmail_client.folders import Envelope, Filed, Folder, Folders, NoSuchMail, SignatureState
from sealmail_client.home_database import HomeDatabase
from sealmail_protocol.keys import BlockKey

ENVELOPE = Envelope(
    folder=Folder.INBOX,
    unique_id="a" * 40,
    message_hash=BlockKey(b"h" * 20),
    sender="Amy <amy@a.example>",
    sender_key=AMY,
    recipients=(),
    subject="Grüße",
    date=DATE,
    signature=SignatureState.VALID,
    remark="",
    checked=DATE,
)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """Return empty folders."""
    (tmp_path / "mail").mkdir()
    return Folders(HomeDatabase(tmp_path / "mail.sqlite"), tmp_path / "mail")


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Return a ZIP, as far as folders care."""
    path = tmp_path / "message.zip"
    path.write_bytes(b"zip")
    return path


def test_a_mail_is_filed_once_and_read_as_it_was(folders: Folders, packed: Path) -> None:
    """Also one that names no recipient at all; nobody else can look into its directory."""
    number = asyncio.run(folders.file(ENVELOPE, packed, b"signature", DATE)).number
    assert asyncio.run(folders.file(ENVELOPE, packed, b"signature", DATE)) == Filed(
        number, new=False
    )
    (mail,) = folders.all(Folder.INBOX)
    assert mail.envelope == ENVELOPE
    assert mail.unread
    assert mail.zip_file.read_bytes() == b"zip"
    assert mail.signature_file.read_bytes() == b"signature"
    assert mail.zip_file.parent.stat().st_mode & 0o077 == 0
    folders.mark_read(number)
    assert not folders.one(number).unread
    assert folders.all(Folder.SENT) == ()


def test_a_forgery_with_a_borrowed_signature_takes_nobodys_place(
    folders: Folders, packed: Path
) -> None:
    """It was there first, and the true mail is still filed."""
    forged = replace(ENVELOPE, signature=SignatureState.INVALID, remark="no")
    first = asyncio.run(folders.file(forged, packed, b"signature", DATE)).number
    second = asyncio.run(folders.file(ENVELOPE, packed, b"signature", DATE)).number
    assert first != second


def test_files_of_a_program_that_died_are_replaced(
    folders: Folders, packed: Path, tmp_path: Path
) -> None:
    """The row was not written, so the number is free."""
    (tmp_path / "mail" / "1").mkdir()
    (tmp_path / "mail" / "1" / "message.zip").write_bytes(b"half")
    number = asyncio.run(folders.file(ENVELOPE, packed, b"signature", DATE)).number
    assert (number, folders.one(number).zip_file.read_bytes()) == (1, b"zip")


def test_an_unknown_number_tells_where_numbers_are(folders: Folders) -> None:
    """The way out is a command."""
    with pytest.raises(NoSuchMail, match="sealmail list"):
        folders.one(7)
