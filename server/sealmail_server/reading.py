"""What GET answers: the first type under a key that the visitor may read."""

from datetime import datetime

from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import BlockType, MessageAnnouncement
from sealmail_protocol.bundles import SEPARATORS
from sealmail_protocol.fields import split_lines
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.policy import BLOCK_POLICY, Reader, Role
from sealmail_server.visitor import Visitor
from sealmail_store import ReadView, StoredEntry


def find_block(
    view: ReadView, key: BlockKey, since: datetime | None, visitor: Visitor, now: datetime
) -> tuple[StoredEntry, ...]:
    """Return the entries to answer with; none means NOT FOUND."""
    for kind in BlockType:
        if not _may_read(kind, visitor):
            continue
        is_mailbox = kind is BlockType.MESSAGE_ANNOUNCEMENT
        entries = view.entries(kind, key, since=since if is_mailbox else None)
        alive = tuple(entry for entry in entries if now - entry.date < BLOCK_POLICY[kind].max_age)
        if alive and (not is_mailbox or _is_recipient(alive[0], visitor)):
            return alive
    return ()


def join_entries(entries: tuple[StoredEntry, ...]) -> bytes:
    """Return the text of a block, its entries separated, ended as the wire wants it."""
    separator = SEPARATORS.get(BlockType(entries[0].type), "")
    between = f"{separator}\r\n".encode()
    return between.join(entry.header for entry in entries) + b"EndBlock\r\n"


def _may_read(kind: BlockType, visitor: Visitor) -> bool:
    match BLOCK_POLICY[kind].reader:
        case Reader.ANYONE:
            return True
        case Reader.LOGGED_IN:
            return visitor.confirmed
        case Reader.RECIPIENT:
            return visitor.confirmed and visitor.role is Role.USER


def _is_recipient(entry: StoredEntry, visitor: Visitor) -> bool:
    """Tell by one entry: all under a mailbox's key name the recipient it was made from."""
    block = parse_text_block(split_lines(entry.header))
    return isinstance(block, MessageAnnouncement) and block.recipient == visitor.key_id
