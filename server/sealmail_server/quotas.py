"""Room for what nobody has paid for: shares of the store, and how much of them one source has."""

from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.keys import BlockKey
from sealmail_server.candidates import Arrival
from sealmail_server.limits import Limits
from sealmail_store import (
    ACKNOWLEDGMENTS,
    LOOSE_DATA,
    ReadView,
    ShareFull,
    holder_space,
    source_space,
)


def check_data_room(
    view: ReadView, key: BlockKey, size: int, arrival: Arrival, limits: Limits
) -> None:
    """Check that new data has room: in the quota of who waits for it, or in the loose share.

    Raises ``InvalidBlock`` where a quota is used up, ``ShareFull`` where the share is.
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
    by_source = limits.loose_bytes_by_source
    _check_share(view, LOOSE_DATA, size, arrival.source, limits.loose_bytes, by_source)


def check_acknowledgment_room(view: ReadView, size: int, arrival: Arrival, limits: Limits) -> None:
    """Check that a new acknowledgment has room; raises ``ShareFull``."""
    if not arrival.replicated:
        whole, by_source = limits.acknowledgment_bytes, limits.acknowledgment_bytes_by_source
        _check_share(view, ACKNOWLEDGMENTS, size, arrival.source, whole, by_source)


def _check_share(
    view: ReadView, share: str, size: int, source: str, whole: int, by_source: int
) -> None:
    for name, limit in ((share, whole), (source_space(share, source), by_source)):
        if view.space(name).bytes + size > limit:
            raise ShareFull(name, limit)
