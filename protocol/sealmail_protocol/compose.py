"""Making blocks: the texts that are signed, and the blocks of plain lines.

Blocks of plain lines come out of the parser that every reader uses; of a text that is still to
be signed, the fields are checked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sealmail_pow import Difficulty, Stamp
from sealmail_protocol.addresses import Transport
from sealmail_protocol.block_codec import parse_data_header, parse_text_block
from sealmail_protocol.blocks import (
    Acknowledgment,
    BlockType,
    BypassToken,
    DataHeader,
    MessageAnnouncement,
)
from sealmail_protocol.dates import format_date
from sealmail_protocol.fields import Fields, is_line
from sealmail_protocol.keys import AckHash, BlockKey, KeyId
from sealmail_protocol.stamps import key_challenge

BLOCK_VERSION = 1


@dataclass(frozen=True, slots=True)
class KeyText:
    """What a key-announcement says before it is stamped and signed."""

    date: datetime
    expires: datetime
    user_id: str
    transport: Transport
    mailboxes: tuple[str, ...]
    price: Difficulty
    armored_key: str
    tokens_accepted_since: datetime | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the text behind the ProofOfWork line."""
        since = self.tokens_accepted_since
        return (
            f"Type: {BlockType.KEY_ANNOUNCEMENT}",
            f"Version: {BLOCK_VERSION}",
            f"Date: {format_date(self.date)}",
            f"Expires: {format_date(self.expires)}",
            f"Userid: {self.user_id}",
            f"Transport: {self.transport}",
            f"Mailboxes: {','.join(self.mailboxes)}",
            f"SenderProofOfWork: {self.price}",
            *((f"BypassTokenAccepted: {format_date(since)}",) if since else ()),
            "",
            *self.armored_key.strip().split("\n"),
            "",
        )

    @property
    def challenge(self) -> bytes:
        """Return the bytes to stamp."""
        return key_challenge(self.lines)

    def stamped(self, stamp: Stamp) -> str:
        """Return the text to clear-sign."""
        lines = (f"ProofOfWork: {stamp}", *self.lines)
        _check_fields(lines[: lines.index("")])
        return "\n".join((*lines, ""))


def claim_text(date: datetime, stamp: Stamp, key_id: KeyId, address: str) -> str:
    """Return the text of an address-claim, to be clear-signed."""
    lines = (
        f"Type: {BlockType.ADDRESS_CLAIM}",
        f"Version: {BLOCK_VERSION}",
        f"Date: {format_date(date)}",
        f"ProofOfWork: {stamp}",
        f"Keyid: {key_id}",
        f"Address: {address}",
    )
    _check_fields(lines)
    return "\n".join((*lines, ""))


def make_acknowledgment(date: datetime, stamp: Stamp, secret: AckHash) -> Acknowledgment:
    """Return the acknowledgment that reveals ``secret``."""
    head = _head(BlockType.ACKNOWLEDGMENT, date)
    block = parse_text_block((*head, f"ProofOfWork: {stamp}", f"Hash: {secret.raw.hex()}"))
    assert isinstance(block, Acknowledgment)  # noqa: S101 - the type line says so
    return block


def make_announcement(
    date: datetime,
    stamp: Stamp,
    recipient: KeyId,
    mailbox: str,
    data_blocks: Sequence[BlockKey],
    message_hash: BlockKey,
    token: BypassToken | None = None,
) -> MessageAnnouncement:
    """Return the announcement of one mail."""
    block = parse_text_block(
        (
            *_head(BlockType.MESSAGE_ANNOUNCEMENT, date),
            f"Recipient: {recipient.raw.hex()}",
            f"Mailbox: {mailbox}",
            f"ProofOfWork: {stamp}",
            *(f"DataBlock: {key.raw.hex()}" for key in data_blocks),
            f"MessageHash: {message_hash.raw.hex()}",
            *((f"BypassToken: {token.raw.hex()}",) if token else ()),
        )
    )
    assert isinstance(block, MessageAnnouncement)  # noqa: S101 - the type line says so
    return block


def make_data_header(date: datetime, stamp: Stamp, size: int) -> DataHeader:
    """Return the lines of a data block of ``size`` bytes."""
    head = _head(BlockType.DATA, date)
    return parse_data_header((*head, f"ProofOfWork: {stamp}", f"Data: {size}"))


def _check_fields(lines: Sequence[str]) -> None:
    """Refuse, before somebody signs it, a value that would not stand as one line."""
    for line in lines:
        if not is_line(line):
            raise ValueError(f"not one line: {line[:60]!r}")
    Fields.parse(lines)


def _head(kind: BlockType, date: datetime) -> tuple[str, str, str]:
    return (f"Type: {kind}", f"Date: {format_date(date)}", f"Version: {BLOCK_VERSION}")
