"""What a stored block has to meet, by where it is kept: as the server's own, or for the DHT.

Both are columns of the one policy table. A server keeps what is named or revoked beyond its age,
so how long its own blocks stay is for ``references`` to judge; a value of the DHT has one age.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sealmail_pow import Difficulty
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.policy import BLOCK_POLICY, MAX_FUTURE, MAX_FUTURE_REPLICATED

SERVER: Final = "server"
DHT: Final = "dht"
HELD: Final = (SERVER, DHT)
# The type under which a server holds what its users have it deliver elsewhere. These are parts of
# its queue: it serves them to nobody, bundles among them, so they are counted and not examined.
IN_TRANSIT: Final = "proxied"
# A store notes the time once a minute, and sweeps once an hour.
_NOTED: Final = timedelta(minutes=5)
_SWEPT: Final = timedelta(hours=2)
# docs/dht.md section 1: a revocation has to outlive every copy of the key.
_REVOCATION: Final = timedelta(days=400)


@dataclass(frozen=True, slots=True)
class Demand:
    """What blocks of one type must meet; ``age`` only where every block has one."""

    size: int
    stamp: Difficulty
    ahead: timedelta
    asked_by: str
    age: timedelta | None = None
    revoked_age: timedelta | None = None

    def age_of(self, *, revoked: bool) -> timedelta | None:
        """Return how old a block may be."""
        return self.revoked_age if revoked else self.age


DEMANDS: Final[dict[tuple[str, str], Demand]] = {
    (SERVER, str(kind)): Demand(
        policy.size, policy.server_stamp, MAX_FUTURE_REPLICATED, "every server"
    )
    for kind, policy in BLOCK_POLICY.items()
} | {
    (DHT, str(kind)): Demand(
        policy.dht_size,
        policy.dht_stamp,
        MAX_FUTURE + _NOTED,
        "the DHT",
        policy.max_age + _SWEPT,
        (_REVOCATION if kind is BlockType.KEY_ANNOUNCEMENT else policy.max_age) + _SWEPT,
    )
    for kind, policy in BLOCK_POLICY.items()
}
