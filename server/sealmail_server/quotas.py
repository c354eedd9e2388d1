"""Room for what nobody has paid for: shares of the store, and how much of them one source has."""

from collections import Counter

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.keys import BlockKey
from sealmail_server.candidates import Arrival
from sealmail_server.limits import Limits
from sealmail_store import (
    ACKNOWLEDGMENTS,
    LOOSE_DATA,
    ReadView,
    ShareFull,
    StoredEntry,
    holder_space,
    source_space,
)


class Arriving:
    """How many bytes of data are on their way in, in all and from each source.

    They take room on the disk before any sum of the store knows of them.
    """

    def __init__(self) -> None:
        self.total = 0
        self._of_source: Counter[str] = Counter()

    def of(self, source: str) -> int:
        """Return how many bytes of one source are on their way."""
        return self._of_source[source]

    def begin(self, source: str, size: int) -> None:
        """Count data that begins to arrive."""
        self.total += size
        self._of_source[source] += size

    def end(self, source: str, size: int) -> None:
        """Count data that is stored now, or given up."""
        self.total -= size
        self._of_source[source] -= size
        if self._of_source[source] <= 0:
            del self._of_source[source]


NOTHING_ARRIVES = Arriving()


def check_data_room(
    view: ReadView,
    key: BlockKey,
    size: int,
    arrival: Arrival,
    limits: Limits,
    arriving: Arriving = NOTHING_ARRIVES,
) -> None:
    """Check that data has room: in the quota of who waits for it, or in the loose share.

    Raises ``InvalidBlock`` where a quota is used up, ``ShareFull`` where the share is.
    ``arriving`` is what is to have room beside it.
    """
    if arrival.replicated:
        return
    full = False
    for holder in view.holders(key):
        if view.space(holder_space(holder)).bytes + size <= limits.quota_bytes:
            return
        full = True
    if full:
        raise InvalidBlock(Refusal.QUOTA, "the recipient has no room left")
    source = arrival.source
    _check_share(view, LOOSE_DATA, size + arriving.total, limits.loose_bytes)
    own = source_space(LOOSE_DATA, source)
    _check_share(view, own, size + arriving.of(source), limits.loose_bytes_by_source)


def check_acknowledgment_room(view: ReadView, size: int, arrival: Arrival, limits: Limits) -> None:
    """Check that a new acknowledgment has room; raises ``ShareFull``."""
    if not arrival.replicated:
        own = source_space(ACKNOWLEDGMENTS, arrival.source)
        _check_share(view, ACKNOWLEDGMENTS, size, limits.acknowledgment_bytes)
        _check_share(view, own, size, limits.acknowledgment_bytes_by_source)


def check_taken_over(
    view: ReadView, entry: StoredEntry, held: StoredEntry, arrival: Arrival, limits: Limits
) -> None:
    """Check that a newer entry of another source has room in the share of that one.

    Whoever posts again what others have posted has it from then on, and it counts as his.
    Raises ``ShareFull``.
    """
    if arrival.replicated or arrival.source == held.source:
        return
    if entry.type == BlockType.ACKNOWLEDGMENT:
        own = source_space(ACKNOWLEDGMENTS, arrival.source)
        _check_share(view, own, len(entry.header), limits.acknowledgment_bytes_by_source)
    elif next(view.holders(entry.key), None) is None:
        own = source_space(LOOSE_DATA, arrival.source)
        _check_share(view, own, entry.size, limits.loose_bytes_by_source)


def _check_share(view: ReadView, share: str, size: int, limit: int) -> None:
    if view.space(share).bytes + size > limit:
        raise ShareFull(share, limit)
