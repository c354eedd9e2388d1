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


@dataclass(frozen=True, slots=True)
class Entry:
    """A block that is whole, in time, stamped and in its place, and the bits of its stamp."""

    block: TextBlock
    bits: int


def read_entries(
    lines: Iterable[bytes], key: BlockKey, now: datetime, doubts: list[str]
) -> list[Entry]:
    """Return the entries that hold; why others do not is appended to ``doubts``."""
    entries = []
    for raw in filter(None, split_bundle(lines)):
        try:
            block = parse_text_block(decode_lines(raw))
            entries.append(Entry(block, check_text_block(block, key, now)))
        except InvalidBlock as error:
            doubts.append(f"an entry under {key}: {error.reason}")
    return entries
