"""One stored block as a row, and what its content says of itself: the facts that jobs work on.

Plain values: whoever audits without Spark uses the same ones.
"""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple


class Problem(NamedTuple):
    """What is wrong with a block: a code of ``findings`` and the evidence."""

    code: str
    detail: str


class StoredRow(NamedTuple):
    """One entry of a store; ``data`` is a path where a file keeps the bytes.

    ``seen`` is the latest moment that its store knew of: the audit's present. ``certificate``
    is the announcement of the key that signed a claim: of the same store, or, in the DHT, the
    one that travels with it. ``held`` tells the server's own blocks from values of the DHT.
    ``wrong`` is what no server writes in columns, which hold what is nearest to it instead.
    """

    store: str
    seen: int
    type: str
    key: bytes
    identity: bytes
    date: int
    size: int
    stamp_bits: int
    digest: bytes
    revoked: bool
    holder: bytes
    paid: bool
    header: bytes
    data: bytes | Path | None
    certificate: bytes | None
    held: str
    wrong: tuple[Problem, ...] = ()


@dataclass(slots=True)
class AnnouncedKey:
    """What a key-announcement says; the last three only where certificates are read."""

    user_id: str
    price_bits: int
    price_nonces: int
    networks: tuple[str, ...]
    mailboxes: int
    expires: datetime
    algorithm: str
    bits: int
    created: datetime | None
    read: bool = False
    key_expires: datetime | None = None
    old_self_signature: bool | None = None


@dataclass(slots=True)
class Facts:
    """What the content of one block says, and what is wrong with it.

    ``bits`` is what its stamp is worth; ``nonce_height`` the highest nonce of a stamp that was
    searched by counting, which tells how many were tried. ``stamp`` is the same for entries
    that one stamp paid for. ``signature`` is ``good``, ``bad``,
    ``no key``, ``undecided`` or ``left out``.
    """

    problems: list[Problem] = field(default_factory=list)
    bits: int | None = None
    nonces: int | None = None
    nonce_height: int | None = None
    stamp: bytes | None = None
    tokened: bool | None = None
    named: tuple[bytes, ...] | None = None
    address: str | None = None
    announced: AnnouncedKey | None = None
    signature: str | None = None
