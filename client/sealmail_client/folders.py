"""Local mail: a row for each, and its ZIP and signature as files beside it."""

import asyncio
import hashlib
import shutil
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from sealmail_client.errors import ClientError
from sealmail_client.home_database import HomeDatabase
from sealmail_client.progress import NOBODY, Watcher
from sealmail_client.safe_files import make_private, sync_directory, sync_files
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.keys import BlockKey, KeyId


class NoSuchMail(ClientError):
    """There is no mail with this number: `sealmail list` shows them."""

    exit_code = 21


class Folder(StrEnum):
    """Where a mail is filed."""

    INBOX = "inbox"
    SENT = "sent"
    FORWARDED = "forwarded"  # originals that came inside other mail


class SignatureState(StrEnum):
    """What became of the check of a mail's signature."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN_KEY = "unknown key"


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is known of a mail without opening its ZIP.

    ``hidden`` are its Bcc recipients, ``original`` is the number of the mail forwarded in it.
    ``signer`` is the key that made its signature, whatever that is worth, at ``signed_at`` as the
    signature says; ``None`` where that is not known.
    """

    folder: Folder
    unique_id: str
    message_hash: BlockKey
    sender: str
    sender_key: KeyId
    recipients: Sequence[str]
    subject: str
    date: datetime
    signature: SignatureState
    remark: str
    checked: datetime
    hidden: Sequence[str] = ()
    original: int | None = None
    signer: KeyId | None = None
    signed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class FiledMail:
    """A mail in a folder, with the number the user calls it by."""

    number: int
    envelope: Envelope
    filed: datetime
    unread: bool
    zip_file: Path
    signature_file: Path


@dataclass(frozen=True, slots=True)
class Filed:
    """Under which number a mail is filed, and whether it was not before."""

    number: int
    new: bool


class Folders:
    """All filed mail of one home."""

    def __init__(self, database: HomeDatabase, directory: Path, watcher: Watcher = NOBODY) -> None:
        self._database = database
        self._directory = directory
        self._watcher = watcher
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    async def file(
        self, envelope: Envelope, zip_file: Path, signature: bytes, now: datetime
    ) -> Filed:
        """File a mail; the same one again keeps the number it has.

        The row is written last: a row whose files are missing cannot be.
        """
        # With the state: a forgery that borrows a signature must not pass for the mail itself.
        digest = hashlib.sha256(envelope.signature.encode() + signature).digest()
        async with self._turn():
            row = self._database.row(
                "SELECT id FROM mail WHERE folder = ? AND sender_key = ? AND unique_id = ?"
                " AND signature_digest = ?",
                envelope.folder,
                envelope.sender_key.hex,
                envelope.unique_id,
                digest,
            )
            if row is not None:
                return Filed(int(row["id"]), new=False)
            number = self._next_number()
            with self._watcher.task("filing", brief=True):
                await asyncio.to_thread(self._keep_files, number, zip_file, signature)
                self._record(number, envelope, digest, now)
        return Filed(number, new=True)

    def _turn(self) -> asyncio.Lock:
        """Return what keeps two mails from taking one number; a lock belongs to one loop."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]

    def _record(self, number: int, envelope: Envelope, digest: bytes, now: datetime) -> None:
        self._database.write(
            "INSERT INTO mail VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            number,
            envelope.folder,
            envelope.unique_id,
            envelope.message_hash.hex,
            envelope.sender,
            envelope.sender_key.hex,
            "\n".join(envelope.recipients),
            envelope.subject,
            format_date(envelope.date),
            format_date(now),
            envelope.signature,
            digest,
            envelope.remark,
            format_date(envelope.checked),
            envelope.folder is Folder.INBOX,
            "\n".join(envelope.hidden),
            envelope.original,
            envelope.signer.hex if envelope.signer else None,
            format_date(envelope.signed_at) if envelope.signed_at else None,
        )

    def all(self, folder: Folder | None = None) -> tuple[FiledMail, ...]:
        """Return the mail of one folder, or of all, in the order it was filed."""
        if folder is None:
            rows = self._database.rows("SELECT * FROM mail ORDER BY id")
        else:
            rows = self._database.rows("SELECT * FROM mail WHERE folder = ? ORDER BY id", folder)
        return tuple(map(self._filed, rows))

    def one(self, number: int) -> FiledMail:
        """Return the mail with this number."""
        row = self._database.row("SELECT * FROM mail WHERE id = ?", number)
        if row is None:
            raise NoSuchMail(f"there is no mail {number}: `sealmail list` shows what there is")
        return self._filed(row)

    def mark_read(self, number: int) -> None:
        """Remember that the user has seen this mail."""
        self._database.write("UPDATE mail SET unread = 0 WHERE id = ?", number)

    def _next_number(self) -> int:
        row = self._database.row("SELECT coalesce(max(id), 0) + 1 AS next FROM mail")
        assert row is not None  # noqa: S101 - an aggregate always has a row
        return int(row["next"])

    def _keep_files(self, number: int, zip_file: Path, signature: bytes) -> None:
        directory = self._directory / str(number)
        # Left by a program that was stopped before it wrote the row.
        shutil.rmtree(directory, ignore_errors=True)
        make_private(directory)
        kept, kept_signature = _files(directory)
        try:
            kept.hardlink_to(zip_file)
        except OSError:
            shutil.copyfile(zip_file, kept)
        kept_signature.write_bytes(signature)
        sync_files(kept, kept_signature)
        sync_directory(self._directory)

    def _filed(self, row: sqlite3.Row) -> FiledMail:
        envelope = Envelope(
            folder=Folder(row["folder"]),
            unique_id=row["unique_id"],
            message_hash=BlockKey.from_hex(row["message_hash"]),
            sender=row["sender"],
            sender_key=KeyId.from_hex(row["sender_key"]),
            recipients=tuple(row["recipients"].splitlines()),
            subject=row["subject"],
            date=parse_date(row["date"]),
            signature=SignatureState(row["signature"]),
            remark=row["remark"],
            checked=parse_date(row["checked"]),
            hidden=tuple(row["hidden"].splitlines()),
            original=row["original"],
            signer=KeyId.from_hex(row["signer"]) if row["signer"] else None,
            signed_at=parse_date(row["signed_at"]) if row["signed_at"] else None,
        )
        return FiledMail(
            int(row["id"]),
            envelope,
            parse_date(row["filed"]),
            bool(row["unread"]),
            *_files(self._directory / str(row["id"])),
        )


def _files(directory: Path) -> tuple[Path, Path]:
    return directory / "message.zip", directory / "message.sig"
