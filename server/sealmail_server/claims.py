"""How many claims an address may have: the best ones stay, so that a flood hides nobody."""

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_server.accounts import is_user
from sealmail_store import ReadView, StoredEntry, WriteView

_POLICY = BLOCK_POLICY[BlockType.ADDRESS_CLAIM]
# What fits into one body, whatever the size of each claim.
MAX_CLAIMS = _POLICY.body_size // _POLICY.size


def make_room_for_claim(view: WriteView, claim: StoredEntry) -> None:
    """Remove the weakest claim for an address that has enough of them.

    ``claim`` is of a key that has none here yet; it is refused if it is the weakest itself. What
    the partner took is judged the same way, so that both keep the same ones whatever the order.
    """
    held = view.entries(claim.type, claim.key)
    if len(held) < MAX_CLAIMS:
        return
    weakest = min(held, key=lambda each: _worth(view, each))
    if _worth(view, claim) < _worth(view, weakest):
        raise InvalidBlock(
            Refusal.FULL,
            f"{MAX_CLAIMS} keys claim the address already: a better stamp gets in",
        )
    view.remove_entry(weakest.type, weakest.key, weakest.identity)


def _worth(view: ReadView, claim: StoredEntry) -> tuple[bool, int, int]:
    """Users of this server come before strangers, then who paid more, then the lower digest.

    The identity of a claim is the key id that claims.
    """
    user = is_user(view, claim.identity.hex())
    return user, claim.stamp_bits, -int.from_bytes(claim.digest)
