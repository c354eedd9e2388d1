"""What a server answers to GET, read entry by entry: a bad one hides none of the others."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import TextBlock
from sealmail_protocol.bundles import split_bundle
from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.fields import decode_lines
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.validity import check_text_block

# A million bad entries fit into one answer; nobody reads a million reasons.
MAX_DOUBTS = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """A block that is whole, in time, stamped and in its place, and the bits of its stamp."""

    block: TextBlock
    bits: int


def read_entries(
    lines: Iterable[bytes],
    key: BlockKey,
    now: datetime,
    doubts: list[str],
    *,
    any_age: bool = False,
) -> list[Entry]:
    """Return the entries that hold; why others do not is appended to ``doubts``.

    ``any_age`` lets old ones pass, for callers who know what old ones may still say.
    """
    entries = []
    left_out = 0
    body = tuple(lines)
    for raw in split_bundle(body) if body else ():
        try:
            block = parse_text_block(decode_lines(raw))
            moment = min(now, block.date) if any_age else now
            entries.append(Entry(block, check_text_block(block, key, moment)))
        except InvalidBlock as error:
            left_out += 1
            if left_out <= MAX_DOUBTS:
                doubts.append(f"an entry under {key}: {error.reason}")
    if left_out > MAX_DOUBTS:
        doubts.append(f"{left_out - MAX_DOUBTS} more entries under {key} do not hold")
    return entries
