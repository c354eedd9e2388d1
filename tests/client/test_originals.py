"""Forwarded originals: whose they are is told by their own signature alone."""

import asyncio
import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.client.conftest import Correspondent
from tests.client.samples import DATE, header
from tests.client.test_migrations import SETTINGS_1

from sealmail_client.desk import Desk
from sealmail_client.errors import BadMessage
from sealmail_client.folders import FiledMail, Folder, SignatureState
from sealmail_client.gpg_status import SignatureCheck
from sealmail_client.home_database import HomeDatabase
from sealmail_client.letters import Forwarded, Letter
from sealmail_client.message_zip import OpenedLetter, open_letter, zip_chunks
from sealmail_client.originals import MAX_DEPTH, file_original
from sealmail_client.profile import Home
from sealmail_client.sealing import OpenedSeal
from sealmail_client.settings import Settings
from sealmail_protocol.keys import BlockKey

HASH = BlockKey(bytes(20))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Return the desk of the reader, with an empty folder."""
    home = Home(tmp_path / "home")
    home.path.mkdir()
    database = HomeDatabase(home.database)
    desk = Desk(home, Settings.from_toml(SETTINGS_1), database, clock=lambda: DATE)
    yield desk
    desk.put_away()


def packed(letter: Letter, path: Path) -> Path:
    """Write a letter's ZIP."""
    with path.open("wb") as file:
        file.writelines(zip_chunks(letter))
    return path


def signed(signer: Correspondent, letter: Letter, path: Path) -> Forwarded:
    """Return a letter as it is forwarded, signed by whomever."""
    content = packed(letter, path).read_bytes()
    signature = signer.keyring.sign_detached(io.BytesIO(content), signer.key_id, signer.passphrase)
    return Forwarded("f" * 40, path, signature)


def forwarding(forwarded: Forwarded, path: Path) -> OpenedLetter:
    """Return a letter that brings an original."""
    head = header(forwarded_id=forwarded.message_id)
    return open_letter(packed(Letter(head, "look", forwarded=forwarded), path))


def filed(desk: Desk, reader: Correspondent, letter: OpenedLetter, place: Path) -> FiledMail:
    """File the original in a letter, verified with the keys of ``reader``."""

    async def verify(inner: OpenedLetter, opened: OpenedSeal) -> SignatureCheck:
        del inner
        return reader.keyring.verify_detached(opened.signature, opened.zip_file)

    number = asyncio.run(file_original(desk, letter, HASH, verify, place))
    assert number is not None
    return desk.folders.one(number)


def test_an_original_is_its_writers_although_it_names_another_reader(
    desk: Desk, amy: Correspondent, bob: Correspondent, tmp_path: Path
) -> None:
    """It is filed once, however often it is forwarded."""
    original = signed(amy, Letter(header(amy.key_id), "mine"), tmp_path / "inner.zip")
    letter = forwarding(original, tmp_path / "outer.zip")
    mail = filed(desk, bob, letter, tmp_path)
    assert mail.envelope.folder is Folder.FORWARDED
    assert (mail.envelope.signature, mail.envelope.remark) == (SignatureState.VALID, "")
    assert mail.zip_file.read_bytes() == original.zip_file.read_bytes()
    assert filed(desk, bob, letter, tmp_path).number == mail.number


def test_an_original_that_another_signed_is_not_valid(
    desk: Desk, amy: Correspondent, bob: Correspondent, tmp_path: Path
) -> None:
    """Nor is one that was changed after it was signed."""
    forged = signed(bob, Letter(header(amy.key_id), "hers"), tmp_path / "forged.zip")
    mail = filed(desk, bob, forwarding(forged, tmp_path / "outer1.zip"), tmp_path)
    assert mail.envelope.signature is SignatureState.INVALID
    assert "not by its sender" in mail.envelope.remark
    changed = signed(amy, Letter(header(amy.key_id), "mine"), tmp_path / "changed.zip")
    packed(Letter(header(amy.key_id), "else"), changed.zip_file)
    mail = filed(desk, bob, forwarding(changed, tmp_path / "outer2.zip"), tmp_path)
    assert mail.envelope.signature is SignatureState.INVALID


def test_an_original_in_an_original_is_filed_too_but_not_without_end(
    desk: Desk, amy: Correspondent, bob: Correspondent, tmp_path: Path
) -> None:
    """Each is linked to the one that it brings."""
    inner = signed(amy, Letter(header(amy.key_id), "0"), tmp_path / "0.zip")
    head = header(amy.key_id, forwarded_id=inner.message_id)
    for depth in range(1, MAX_DEPTH + 1):
        if depth == 2:
            mail = filed(desk, bob, forwarding(inner, tmp_path / "two.zip"), tmp_path)
            assert mail.envelope.original is not None
            assert desk.folders.one(mail.envelope.original).envelope.original is None
        letter = Letter(head, str(depth), forwarded=inner)
        inner = signed(amy, letter, tmp_path / f"{depth}.zip")
    with pytest.raises(BadMessage, match="times"):
        filed(desk, bob, forwarding(inner, tmp_path / "end.zip"), tmp_path)


def test_an_original_that_is_missing_or_no_letter_is_refused(
    desk: Desk, amy: Correspondent, bob: Correspondent, tmp_path: Path
) -> None:
    """What a stranger put there is examined like any other mail."""
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"no ZIP")
    letter = forwarding(Forwarded("f" * 40, broken, b"signature"), tmp_path / "outer.zip")
    with pytest.raises(BadMessage):
        filed(desk, bob, letter, tmp_path)
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("HEADER.TXT", header(forwarded_id="f" * 40).to_bytes())
        archive.writestr(f"{'f' * 40}.DTS", b"signature")
        archive.writestr(f"{'f' * 40}.ZIP", bytes(1024 * 1024))
    with pytest.raises(BadMessage, match="larger than itself"):
        filed(desk, bob, open_letter(bomb), tmp_path)
    absent = replace(letter, header=header(amy.key_id, forwarded_id="e" * 40))
    with pytest.raises(BadMessage, match="not in it"):
        filed(desk, bob, absent, tmp_path)
