"""Mail that came inside other mail with its writer's signature: unpacked, verified and filed."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from sealmail_client.desk import Desk
from sealmail_client.errors import BadMessage, LargerThanTaken
from sealmail_client.folders import Envelope, Folder
from sealmail_client.gpg_status import SignatureCheck
from sealmail_client.headers import address_in, in_sight
from sealmail_client.judging import judged
from sealmail_client.message_zip import OpenedLetter, open_letter
from sealmail_client.safe_files import make_private
from sealmail_client.sealing import OpenedSeal
from sealmail_protocol.keys import BlockKey

# What was forwarded may have been forwarded to its sender; nobody passes a mail on for ever.
MAX_DEPTH = 8

Verify = Callable[[OpenedLetter, OpenedSeal], Awaitable[SignatureCheck]]


async def file_original(
    desk: Desk,
    letter: OpenedLetter,
    message_hash: BlockKey,
    verify: Verify,
    directory: Path,
    *,
    limit: int | None = None,
    depth: int = 0,
    before: int = 0,
) -> int | None:
    """File the original that ``letter`` brings, and return its number; ``None`` without one.

    What its own signature is worth is kept with it. ``BadMessage`` if it cannot be opened.
    ``LargerThanTaken``, and nothing is filed, if all letters together have more than ``limit``
    bytes; those around this one have ``before``.
    """
    if letter.header.forwarded_id is None:
        return None
    if depth == MAX_DEPTH:
        raise BadMessage(f"it was forwarded more than {MAX_DEPTH} times")
    before += letter.size
    if limit is not None and before + letter.forwarded_size > limit:
        raise LargerThanTaken(limit)
    place = directory / f"original-{depth + 1}"
    await asyncio.to_thread(_clear, place)
    forwarded = await asyncio.to_thread(letter.save_forwarded, place)
    if forwarded is None:
        raise BadMessage("it names a forwarded original that is not in it")
    inner = await asyncio.to_thread(open_letter, forwarded.zip_file)
    check = await verify(inner, OpenedSeal(forwarded.zip_file, forwarded.signature))
    header, now = inner.header, desk.clock()
    # The innermost is filed first, when all of them are known not to be too large.
    deeper = await file_original(
        desk,
        inner,
        message_hash,
        verify,
        directory,
        limit=limit,
        depth=depth + 1,
        before=before,
    )
    known = desk.correspondents.known(address_in(header.sender_user_id))
    state, remark = judged(header, check, known, reader=None)
    seen, hidden = in_sight(header)
    envelope = Envelope(
        folder=Folder.FORWARDED,
        unique_id=header.unique_id,
        message_hash=message_hash,
        sender=header.sender_user_id,
        sender_key=header.sender,
        recipients=seen,
        subject=header.subject,
        date=header.date,
        signature=state,
        remark=remark,
        checked=now,
        hidden=hidden,
        original=deeper,
        signer=check.signer,
        signed_at=check.signed_at,
    )
    filed = await desk.folders.file(envelope, forwarded.zip_file, forwarded.signature, now)
    return filed.number


def _clear(directory: Path) -> None:
    """Make an empty directory, whatever a program that was stopped left there."""
    shutil.rmtree(directory, ignore_errors=True)
    make_private(directory)
