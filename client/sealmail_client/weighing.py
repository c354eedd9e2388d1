"""How large a mail will be once it is sealed, told before any work is done for it."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from sealmail_client.channels import Channel, channel_for
from sealmail_client.desk import Desk
from sealmail_client.drafts import Addressee, Draft
from sealmail_client.errors import CannotSeal
from sealmail_client.padding import padded_size
from sealmail_protocol.keys import KeyId
from sealmail_protocol.policy import KIB, MIB

# What a letter has beside its content, and for each recipient and file; and what sealing adds.
# All of it is generous, so that what is let through fits.
_LETTER, _READER, _FILE = 2 * KIB, 2 * KIB, 256
_SEAL, _SEALED_TO = 2 * KIB, 1 * KIB


class TooLargeForDht(CannotSeal):
    """The DHT takes small mail only: send less, or by a server that its reader has."""

    def __init__(self, size: int, most: int, readers: Sequence[str]) -> None:
        super().__init__(
            f"sealed it would have {size / MIB:.1f} MiB, and the DHT, in which "
            f"{' and '.join(readers)} can be reached, takes {most / MIB:g} MiB at most: "
            "send less at a time"
        )


def channel_of_copy(desk: Desk, readers: Iterable[KeyId]) -> Channel:
    """Return by whose rules one copy of a mail is cut and stamped, as far as readers are known."""
    known = map(desk.correspondents.newest, readers)
    return channel_for(one.transport for one in known if one is not None)


def require_fit(desk: Desk, draft: Draft) -> None:
    """Raise ``TooLargeForDht`` if a copy that goes through the DHT would be too large for it."""
    for readers in draft.copies():
        require_copy_fits(desk, draft, readers)


def require_copy_fits(desk: Desk, draft: Draft, readers: Sequence[Addressee]) -> None:
    """Raise ``TooLargeForDht`` if the copy for these ``readers`` would be."""
    require_size(desk, _size(desk, draft), readers)


def require_size(desk: Desk, size: int, readers: Sequence[Addressee]) -> None:
    """Raise ``TooLargeForDht`` if a copy of so many bytes is too large for its ``readers``."""
    most = channel_of_copy(desk, [one.key_id for one in readers]).most_sealed
    if most is not None and size > most:
        there = [one for one in readers if channel_of_copy(desk, (one.key_id,)).in_dht]
        raise TooLargeForDht(size, most, [one.address for one in there])


def _size(desk: Desk, draft: Draft) -> int:
    own = desk.own_blocks.announcement()
    files = list(draft.attachments)
    if draft.forwarded is not None:
        files += (draft.forwarded.zip_file, draft.forwarded.signature_file)
    size = _LETTER + len(draft.addressees) * _READER + len(files) * _FILE
    size += len(draft.text.encode()) + len((draft.html or "").encode())
    size += 0 if own is None else len(own.signed.message)
    size += sum(map(_size_of, files))
    letter = padded_size(size) if desk.settings.pad_sizes else size
    return letter + _SEAL + len(draft.addressees) * _SEALED_TO


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        # Sealing says what is wrong with it.
        return 0
