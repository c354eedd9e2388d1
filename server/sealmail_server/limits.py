"""The bounds that an operator may change, as one value for all who decide about blocks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.policy import BLOCK_POLICY, MAILBOX_SIZE

_MIB = 1024**2
_GIB = 1024**3

# Data counts once against the quota of each user whose accepted mail names it.
QUOTA_BYTES = 4 * _GIB


def _default_ages() -> Mapping[BlockType, timedelta]:
    return MappingProxyType({kind: row.max_age for kind, row in BLOCK_POLICY.items()})


@dataclass(frozen=True, slots=True)
class Limits:
    """How long blocks are kept (never longer than the block table says), and in how much room.

    Loose data is what no paid announcement names: every mail's data is that until the
    announcement follows. What one source may have is a part of the whole, so that nobody
    uses it up alone.
    """

    max_age: Mapping[BlockType, timedelta] = field(default_factory=_default_ages)
    quota_bytes: int = QUOTA_BYTES
    mailbox_bytes: int = MAILBOX_SIZE
    loose_bytes: int = 16 * _GIB
    loose_bytes_by_source: int = 4 * _GIB
    acknowledgment_bytes: int = 256 * _MIB
    acknowledgment_bytes_by_source: int = 16 * _MIB
    waiting_bytes: int = 64 * _MIB
    waiting_bytes_by_source: int = 4 * _MIB
    verdicts: int = 1_000_000


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What may wait to be delivered elsewhere, in rows and bytes, in all and of one user."""

    rows: int = 100_000
    rows_by_user: int = 10_000
    bytes: int = 16 * _GIB
    bytes_by_user: int = 2 * _GIB
