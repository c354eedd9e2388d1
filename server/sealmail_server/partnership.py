"""What is to be told to the partner server: put into the queue by the work that changes it.

Whether there is a partner is known here, so that intake and accounts need not know how it is told.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sealmail_net.pins import PinStore
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.commands import ADMINISTRATOR, REPLICATION
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.keys import BlockKey
from sealmail_store import (
    Account,
    EntryName,
    QueueKind,
    QueueRow,
    ReadView,
    StoredEntry,
    Tombstone,
    WriteView,
    queue_space,
)

# What may wait for the partner; the first two are small, and never dropped. What mirrors the
# outgoing queue is bounded by the limits of that, and what tells of waiting entries by theirs.
PARTNER_KINDS = (
    QueueKind.ACCOUNT,
    QueueKind.TOMBSTONE,
    QueueKind.MIRROR,
    QueueKind.PENDING,
    QueueKind.REPLICATE,
)
# Set while the queue does not hold all that the partner lacks, and how far both were compared.
RESYNC = "partner-resync-needed"
COMPARED_TO = "partner-compared-to"
# Whether the partner is an original, as it was last seen: "yes", "no", or not known yet.
IS_ORIGINAL = "partner-is-original"
# Whose outgoing queue there are copies of: the pin of the partner, or nothing without one.
COPIES_OF = "partner-queue-copies-of"
# The secret of a pairing code by its hash, and until when it holds, in seconds since 1970.
OFFER = "pairing-offer"
# What an account is called that belongs to nobody; also in the place of a userid.
UNBOUND = "undefined"
_ROLES = {ADMINISTRATOR.upper(), REPLICATION.upper()}


class Mode(StrEnum):
    """When a STORE is answered: after the commit here, or after that of the partner too."""

    ASYNC = "async"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Partner:
    """The second server of the pair, and the key that it lets us in by."""

    address: ServerAddress
    auth_key: str = field(repr=False)
    pin: bytes


class PartnerPin(PinStore):
    """The one key that the partner may show: it was agreed when the servers were paired."""

    def __init__(self, pin: bytes) -> None:
        self._pin = pin

    def pin_of(self, way: str) -> bytes:
        """Return the agreed pin."""
        return self._pin

    def remember(self, way: str, pin: bytes) -> None:
        """Keep nothing: the agreed pin stays."""


class Partnership:
    """Tells the queue what the partner has to know, while there is a partner.

    ``cap`` bounds the blocks that wait for it. This one only queues; ``Replication`` tells too.
    """

    def __init__(self, partner: Partner | None = None, cap: int = 0) -> None:
        self.partner = partner
        self.cap = cap

    @property
    def paired(self) -> bool:
        """Whether there is a partner."""
        return self.partner is not None

    @property
    def away_since(self) -> datetime | None:
        """Since when the partner cannot be reached; ``None`` if it can, or there is none."""
        return None

    def wake(self) -> None:
        """Note that something was queued, once it is committed."""

    async def has_all(self, digests: Collection[bytes]) -> bool:
        """Wait, where the partner is to know before DONE is said; tell whether it knows it all."""
        return True

    async def lacks(self, digests: Collection[bytes]) -> Collection[bytes]:
        """Return what of this the partner should have had before DONE was said, and has not."""
        return ()

    def put_entry(self, view: WriteView, entry: StoredEntry, now: datetime) -> None:
        """Keep an entry that came to this server first, and queue it."""
        number = view.put_entry(entry)
        if self.paired:
            self._queue_entry(view, entry, number, now)

    def repeat_entry(self, view: WriteView, held: StoredEntry, now: datetime) -> None:
        """Queue what is stored here already and came again, unless the partner confirmed it.

        What the partner confirmed has no row. Only when some of what it lacks was not queued
        can there be an entry without a row that it does not have.
        """
        if not self.paired:
            return
        for row in view.queue.about(held.digest, QueueKind.REPLICATE):
            view.queue.hasten(row.number)
            return
        number = view.entry_number(held.type, held.key, held.identity)
        if number is not None and needs_resync(view):
            self._queue_entry(view, held, number, now)

    def room(self, view: ReadView) -> int:
        """Return how many more blocks may wait for the partner; those set aside wait too."""
        return max(0, self.cap - view.space(queue_space(QueueKind.REPLICATE)).entries)

    def tell_waiting(
        self, view: WriteView, digest: bytes, key: BlockKey, now: datetime, *, new: bool
    ) -> None:
        """Queue an entry that begins to wait here, or hasten one that came again.

        The row goes with the entry. An original could not let it wait.
        """
        if not self.paired or view.setting(IS_ORIGINAL) == "yes":
            return
        rows = view.queue.about(digest, QueueKind.PENDING)
        for row in rows:
            view.queue.hasten(row.number)
        if new and not rows:
            view.queue.put(QueueRow(QueueKind.PENDING, digest, now, key=key))

    def copy_entry(self, view: WriteView, found: EntryName, type: str, now: datetime) -> bool:
        """Queue what the partner was found to lack; tells whether it was not queued before."""
        if view.queue.is_waiting(found.digest, QueueKind.REPLICATE):
            return False
        row = QueueRow(QueueKind.REPLICATE, found.digest, now, type, found.key, found.number)
        view.queue.put(row)
        return True

    def tell_account(
        self, view: WriteView, account: Account, now: datetime, auth_key: str = ""
    ) -> None:
        """Queue an account change in the place of an earlier one of the same key."""
        if not self.paired or not is_shared(account):
            return
        content = b""
        if view.setting(IS_ORIGINAL) != "no":
            # An original knows accounts by the auth key itself, which is not kept elsewhere. One
            # that has not got it yet gets it as what it is by now.
            auth_key = auth_key or _untold_auth_key(view, account)
            content = f"{_name_for_original(account)} {auth_key}".encode() if auth_key else b""
        view.queue.replace(
            QueueRow(QueueKind.ACCOUNT, account.auth_key_hash, queued=now, content=content)
        )

    def tell_drop(self, view: WriteView, stone: Tombstone, now: datetime) -> None:
        """Queue the tombstone of a dropped entry."""
        if self.paired:
            content = f"{format_date(stone.until)} {stone.identity.hex()}".encode()
            view.queue.replace(
                QueueRow(QueueKind.TOMBSTONE, stone.digest, now, key=stone.key, content=content)
            )

    def _queue_entry(
        self, view: WriteView, entry: StoredEntry, number: int, now: datetime
    ) -> None:
        if not self.room(view):
            ask_for_comparison(view)
            return
        view.queue.put(_row(entry, number, now))


def is_shared(account: Account) -> bool:
    """Tell whether the partner is to know of an account: not of roles, nor of what may lapse."""
    return account.state != "provisional" and not has_role(account)


def has_role(account: Account) -> bool:
    """Tell whether an auth key is an administrator's, or one that servers log in with."""
    return (account.userid or "").upper() in _ROLES


def needs_resync(view: ReadView) -> bool:
    """Tell whether the partner may lack what is not in the queue."""
    return view.setting(RESYNC) is not None


def ask_for_comparison(view: WriteView) -> None:
    """Have everything compared from the beginning, as soon as the partner is there."""
    view.remove_setting(COMPARED_TO)
    view.put_setting(RESYNC, "yes")


def keep_copies_of(view: WriteView, partner: Partner | None) -> int:
    """Note whose outgoing queue is copied here from now on.

    What waits of a former partner's has no other owner any more: it is this server's own from
    now on. Returns how many rows these are.
    """
    before, pin = view.setting(COPIES_OF), "" if partner is None else partner.pin.hex()
    if before == pin:
        return 0
    view.put_setting(COPIES_OF, pin)
    return view.queue.take_over() if before else 0


def named_account(view: ReadView, setting: str) -> bytes | None:
    """Return the hash of the auth key that a setting names."""
    text = view.setting(setting)
    return None if text is None else bytes.fromhex(text.split(" ")[0])


def is_stale_offer(view: ReadView, auth_key_hash: bytes, now: datetime) -> bool:
    """Tell whether an auth key is the secret of a pairing code that holds no more."""
    text = view.setting(OFFER)
    if text is None or named_account(view, OFFER) != auth_key_hash:
        return False
    return now.timestamp() > int(text.split(" ")[1])


def tombstone_of(row: QueueRow) -> Tombstone | None:
    """Return the tombstone that a row of ``tell_drop`` tells of; ``None`` of any other.

    One without an identity is told by its digest alone.
    """
    date, _, identity = row.content.decode().partition(" ")
    if row.key is None:
        return None
    named = bytes.fromhex(identity) or row.digest
    return Tombstone(row.key, row.digest, named, parse_date(date))


def _row(entry: StoredEntry, number: int, now: datetime) -> QueueRow:
    return QueueRow(QueueKind.REPLICATE, entry.digest, now, entry.type, entry.key, number)


def _untold_auth_key(view: ReadView, account: Account) -> str:
    """Return the auth key that still waits to be told to an original; empty if none does."""
    rows = view.queue.about(account.auth_key_hash, QueueKind.ACCOUNT)
    told = (row.content.decode().partition(" ")[2] for row in rows)
    return next(filter(None, told), "")


def _name_for_original(account: Account) -> str:
    """Return what REPLOGIN says in the place of the userid."""
    if account.state == "disabled":
        return account.state
    return account.userid or UNBOUND
