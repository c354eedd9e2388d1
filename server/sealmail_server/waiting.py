"""Entries that wait outside their mailbox, for an account, a price or a key to arrive."""

from datetime import datetime, timedelta

from sealmail_pow import Difficulty
from sealmail_protocol.blocks import AddressClaim, BlockType
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.fields import split_lines
from sealmail_protocol.keys import KeyId
from sealmail_protocol.replies import Pending
from sealmail_server.candidates import Arrival, Candidate
from sealmail_server.limits import Limits
from sealmail_store import WAITING, WaitingEntry, WriteView, source_space

MAY_WAIT = frozenset({BlockType.MESSAGE_ANNOUNCEMENT, BlockType.ADDRESS_CLAIM})
# Long enough for an account or a price on its way from the partner.
WAITS_FOR = timedelta(hours=24)


def let_wait(
    view: WriteView,
    candidate: Candidate,
    arrival: Arrival,
    awaits: KeyId,
    now: datetime,
    limits: Limits,
    *,
    otherwise: InvalidBlock,
    demand: Difficulty | None = None,
) -> tuple[Pending, datetime]:
    """Keep a candidate until ``awaits`` arrives; return the verdict and how long it holds.

    Raises ``otherwise`` when there is no room for it.
    """
    until = _until(candidate, arrival, now, limits)
    if arrival.replicated:
        # Let in at the partner, it waits longer than what waited at both, and is not asked more.
        view.remove_waiting(candidate.digest)
    if not view.is_waiting(candidate.digest):
        size = len(candidate.header)
        for name, limit in (
            (WAITING, limits.waiting_bytes),
            (source_space(WAITING, arrival.source), limits.waiting_bytes_by_source),
        ):
            # What the partner lets wait was limited there, by its own sources.
            whole = limits.waiting_bytes if arrival.by_partner else limit
            if view.space(name).bytes + size > whole:
                raise otherwise
        view.put_waiting(
            WaitingEntry(
                candidate.digest,
                awaits.raw,
                candidate.key,
                candidate.header,
                arrival.poster,
                arrival.source,
                arrival.replicated,
                until,
            )
        )
    return Pending(demand), until


def arrival_of(entry: WaitingEntry) -> Arrival:
    """Return the arrival of an entry that is judged again; its poster was asked for before."""
    return Arrival(entry.poster, entry.source, entry.replicated, waits_until=entry.until)


def lines_of(entry: WaitingEntry) -> tuple[bytes, ...]:
    """Return the lines of an entry as they came."""
    return tuple(line.encode() for line in split_lines(entry.header))


def no_key(candidate: Candidate) -> InvalidBlock:
    """Return why a claim that may not wait is refused."""
    return InvalidBlock(Refusal.KEY, "the key that claims the address is not here: post it first")


def _until(candidate: Candidate, arrival: Arrival, now: datetime, limits: Limits) -> datetime:
    if arrival.replicated and isinstance(candidate.block, AddressClaim):
        return candidate.block.date + limits.max_age[BlockType.ADDRESS_CLAIM]
    latest = now + WAITS_FOR
    return min(arrival.waits_until or latest, latest)
