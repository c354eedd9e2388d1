"""The bounds that an operator may change, as one value for all who decide about blocks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.policy import BLOCK_POLICY

# Data counts once against the quota of each user whose accepted mail names it.
QUOTA_BYTES = 4 * 1024**3


def _default_ages() -> Mapping[BlockType, timedelta]:
    return MappingProxyType({kind: row.max_age for kind, row in BLOCK_POLICY.items()})


@dataclass(frozen=True, slots=True)
class Limits:
    """How long blocks of each type are kept, and how much one user's mail may take."""

    max_age: Mapping[BlockType, timedelta] = field(default_factory=_default_ages)
    quota_bytes: int = QUOTA_BYTES
