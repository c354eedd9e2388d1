"""The five kinds of blocks as values.

A block is its lines: every value keeps them as they came, so that relaying changes nothing,
and beside them what they say, read once by ``block_codec``. What depends on the type alone, the
stamped bytes and the key that the content asks for, each type tells of itself. A further type is
a class here, a parser in ``block_codec`` and a row in ``policy``.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from sealmail_pow import Difficulty, Stamp
from sealmail_protocol.addresses import Transport
from sealmail_protocol.keys import (
    AckHash,
    BlockKey,
    KeyId,
    acknowledgment_key,
    address_key,
    data_key,
    mailbox_key,
)
from sealmail_protocol.signed_text import SignedText
from sealmail_protocol.stamps import (
    acknowledgment_challenge,
    claim_challenge,
    data_challenge_prefix,
    key_challenge,
    message_challenge,
)


class BlockType(StrEnum):
    """The kinds of blocks, in the order in which GET looks for them under one key."""

    KEY_ANNOUNCEMENT = "key-announcement"
    ADDRESS_CLAIM = "address-claim"
    MESSAGE_ANNOUNCEMENT = "message-announcement"
    ACKNOWLEDGMENT = "acknowledgment"
    DATA = "data"


# An original reads both spellings.
_OTHER_NAMES = {"acknowledgement": BlockType.ACKNOWLEDGMENT}


def type_named(name: str) -> BlockType | None:
    """Return the type that a ``Type`` line names, exactly in lower case, if it names one."""
    return _BY_NAME.get(name)


_BY_NAME = {**{str(kind): kind for kind in BlockType}, **_OTHER_NAMES}


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

    @property
    def challenge(self) -> bytes:
        """Return the stamped bytes."""
        return key_challenge(self.signed.content[1:])

    @property
    def own_key(self) -> None:
        """Return nothing: its key is a fingerprint, which only a verifier can tell."""
        return


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

    @property
    def challenge(self) -> bytes:
        """Return the stamped bytes."""
        return claim_challenge(self.date, self.key_id, self.address)

    @property
    def own_key(self) -> BlockKey:
        """Return the key under which its content belongs."""
        return address_key(self.address)


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
    # The stamped bytes, which a bypass token signs as well; asked for several times.
    challenge: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        stamped = message_challenge(self.recipient, self.message_hash, self.date, self.data_blocks)
        object.__setattr__(self, "challenge", stamped)

    @property
    def own_key(self) -> BlockKey:
        """Return the key under which its content belongs."""
        return mailbox_key(self.mailbox, self.recipient)


@dataclass(frozen=True, slots=True)
class Acknowledgment:
    """The secret of a mail, revealed by who opened it."""

    type: ClassVar[BlockType] = BlockType.ACKNOWLEDGMENT
    lines: tuple[str, ...] = field(repr=False)
    date: datetime
    stamp: Stamp
    secret: AckHash

    @property
    def challenge(self) -> bytes:
        """Return the stamped bytes."""
        return acknowledgment_challenge(self.date, self.secret)

    @property
    def own_key(self) -> BlockKey:
        """Return the key under which its content belongs."""
        return acknowledgment_key(self.secret)


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

    @property
    def stamp(self) -> Stamp:
        """Return the stamp in its header."""
        return self.header.stamp

    @property
    def challenge(self) -> bytes:
        """Return the stamped bytes."""
        return data_challenge_prefix(self.header.date) + self.data

    @property
    def own_key(self) -> BlockKey:
        """Return the key under which its content belongs."""
        return data_key(self.data)


TextBlock = KeyAnnouncement | AddressClaim | MessageAnnouncement | Acknowledgment
Block = TextBlock | DataBlock
