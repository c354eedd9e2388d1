"""The five kinds of blocks as values.

A block is its lines: every value keeps them as they came, so that relaying changes nothing,
and beside them what they say, read once by ``block_codec``.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from sealmail_pow import Difficulty, Stamp
from sealmail_protocol.addresses import Transport
from sealmail_protocol.keys import AckHash, BlockKey, KeyId
from sealmail_protocol.signed_text import SignedText


class BlockType(StrEnum):
    """The kinds of blocks, in the order in which GET looks for them under one key."""

    KEY_ANNOUNCEMENT = "key-announcement"
    ADDRESS_CLAIM = "address-claim"
    MESSAGE_ANNOUNCEMENT = "message-announcement"
    ACKNOWLEDGMENT = "acknowledgment"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class KeyAnnouncement:
    """A public key, signed by itself, with the servers and the price of its owner."""

    type: ClassVar[BlockType] = BlockType.KEY_ANNOUNCEMENT
    lines: tuple[str, ...] = field(repr=False)
    date: datetime
    stamp: Stamp
    expires: datetime
    user_id: str
    transport: Transport
    mailboxes: tuple[str, ...]
    price: Difficulty
    tokens_accepted_since: datetime | None
    signed: SignedText = field(repr=False)


@dataclass(frozen=True, slots=True)
class AddressClaim:
    """A key's wish to be written to under an address."""

    type: ClassVar[BlockType] = BlockType.ADDRESS_CLAIM
    lines: tuple[str, ...] = field(repr=False)
    date: datetime
    stamp: Stamp
    key_id: KeyId
    address: str
    signed: SignedText = field(repr=False)


@dataclass(frozen=True, slots=True)
class BypassToken:
    """Proof that the sender was given a secret by the recipient."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class MessageAnnouncement:
    """Word to a recipient of one mail, and of the data blocks it is made of."""

    type: ClassVar[BlockType] = BlockType.MESSAGE_ANNOUNCEMENT
    lines: tuple[str, ...] = field(repr=False)
    date: datetime
    stamp: Stamp
    recipient: KeyId
    mailbox: str
    data_blocks: tuple[BlockKey, ...]
    message_hash: BlockKey
    token: BypassToken | None


@dataclass(frozen=True, slots=True)
class Acknowledgment:
    """The secret of a mail, revealed by who opened it."""

    type: ClassVar[BlockType] = BlockType.ACKNOWLEDGMENT
    lines: tuple[str, ...] = field(repr=False)
    date: datetime
    stamp: Stamp
    secret: AckHash


@dataclass(frozen=True, slots=True)
class DataHeader:
    """The text lines of a data block; the bytes travel beside it."""

    type: ClassVar[BlockType] = BlockType.DATA
    lines: tuple[str, ...] = field(repr=False)
    date: datetime
    stamp: Stamp
    size: int


@dataclass(frozen=True, slots=True)
class DataBlock:
    """A data block that is small enough to be held whole."""

    type: ClassVar[BlockType] = BlockType.DATA
    header: DataHeader
    data: bytes = field(repr=False)


TextBlock = KeyAnnouncement | AddressClaim | MessageAnnouncement | Acknowledgment
Block = TextBlock | DataBlock
