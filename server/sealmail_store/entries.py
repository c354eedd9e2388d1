"""The values a store keeps: entries with their data, what waits, verdicts, terms, accounts."""

import io
import os
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from sealmail_protocol.keys import BlockKey
from sealmail_store.errors import DamagedData, DataGone

# Data up to this size sits in the database; beyond it a file of its own is the quicker place,
# and a connection that receives data never holds more than this in memory.
INLINE_LIMIT = 64 * 1024

DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class BlockData:
    """The bytes of a data block: at hand when small, in a file when large.

    A spool makes it, and an entry that was read carries it; ``key`` is the hash of the bytes.
    """

    key: BlockKey
    size: int
    content: bytes | Path = field(repr=False)

    def open(self) -> BinaryIO:
        """Open the bytes for reading; close the reader afterwards.

        A reader outlives the removal of its block. ``DataGone`` means that the block was
        removed since the entry was read, ``DamagedData`` that the file is not what was stored.
        """
        if isinstance(self.content, bytes):
            return io.BytesIO(self.content)
        try:
            reader = self.content.open("rb")
        except FileNotFoundError as error:
            raise DataGone(self.key) from error
        found = os.fstat(reader.fileno()).st_size
        if found != self.size:
            reader.close()
            raise DamagedData(self.key, self.size, found)
        return reader


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One block, or one entry of a bundle, as the store keeps it.

    ``identity`` distinguishes the entries of one type under one key: the key id of a claim,
    the digest of an announcement's stamped bytes, empty where there is only one. ``header`` is
    the canonical text with CRLF lines, ``digest`` its SHA-256. Moments are kept to the second.

    ``names`` are the data blocks that it needs kept, for ``holder`` (a raw key id). What is
    ``paid`` counts against the holder's space, the rest against that of unpaid entries. Data
    that nobody paid for, and acknowledgments, count against their ``source``. A view gives
    entries without ``names``: the header says them.
    """

    type: str
    key: BlockKey
    identity: bytes
    date: datetime
    header: bytes = field(repr=False)
    digest: bytes
    stamp_bits: int
    poster: str | None = None
    revoked: bool = False
    data: BlockData | None = None
    holder: bytes = b""
    paid: bool = False
    source: str = ""
    names: tuple[BlockKey, ...] = ()

    def __post_init__(self) -> None:
        if len(self.digest) != DIGEST_BYTES:
            raise ValueError(f"a digest of {len(self.digest)} bytes, not {DIGEST_BYTES}")
        if self.data is not None and self.data.key != self.key:
            raise ValueError(f"data of key {self.data.key} under key {self.key}")

    @property
    def size(self) -> int:
        """Return the number of data bytes; a text block has none."""
        return 0 if self.data is None else self.data.size


@dataclass(frozen=True, slots=True)
class EntryName:
    """By what an entry is told from others, without what it says; ``number`` is its row."""

    key: BlockKey
    identity: bytes
    digest: bytes
    number: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided about the block with this digest; may be forgotten after a time."""

    digest: bytes
    text: str
    kept_until: datetime


@dataclass(frozen=True, slots=True)
class WaitingEntry:
    """An entry outside its mailbox, until the key id it ``awaits`` comes or changes its terms."""

    digest: bytes
    awaits: bytes
    key: BlockKey
    header: bytes = field(repr=False)
    poster: str | None
    source: str
    replicated: bool
    until: datetime


@dataclass(frozen=True, slots=True)
class Tombstone:
    """An entry that its owner has dropped, by its identity, and until when it stays away.

    ``digest`` is of the version of it that was dropped.
    """

    key: BlockKey
    digest: bytes
    identity: bytes
    until: datetime


@dataclass(frozen=True, slots=True)
class Terms:
    """What one announcement of a key said of its mail; ``ended`` when the next one came."""

    holder: bytes
    announced: datetime
    mailboxes: str
    price: str
    ended: datetime | None = None


@dataclass(frozen=True, slots=True)
class MailPlace:
    """What is known of the place that an announcement asks for.

    ``dropped`` is whether its owner removed it before, ``held`` whether it is there already,
    ``awaited`` whether its holder has an account, ``seen_nonces`` whether any of its nonces
    may have served an entry. The rest are bytes: of the mailbox, of its unpaid part, and of the
    holder's data.
    """

    dropped: bool
    held: bool
    awaited: bool
    seen_nonces: bool
    used: int
    unpaid: int
    quota: int


@dataclass(frozen=True, slots=True)
class Account:
    """One auth key, known by its hash only, and whose it is; no ``userid`` while unbound."""

    auth_key_hash: bytes = field(repr=False)
    userid: str | None
    state: str
    created: datetime
    changed: datetime


@dataclass(frozen=True, slots=True)
class Count:
    """How many entries there are of one kind or in one space, and their bytes together."""

    entries: int
    bytes: int
