"""Sound blocks as a server would keep them: composed, stamped, signed, and read back."""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random

from sealmail_pow import Difficulty, level, mint
from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import (
    BypassToken,
    MessageAnnouncement,
    TextBlock,
)
from sealmail_protocol.canonical import canonical_form
from sealmail_protocol.compose import (
    KeyText,
    claim_text,
    make_acknowledgment,
    make_announcement,
    make_data_header,
)
from sealmail_protocol.fields import join_lines, split_lines
from sealmail_protocol.keys import AckHash, BlockKey, announcement_key, data_key
from sealmail_protocol.merges import entry_identity
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_protocol.stamps import (
    acknowledgment_challenge,
    claim_challenge,
    data_challenge_prefix,
    message_challenge,
    stamp_bits,
)
from sealmail_spark.generator.people import Person
from sealmail_store import BlockData, StoredEntry

KEY_LIFE = timedelta(days=7)
FLOOR = Difficulty(8, 2)


class Workshop:
    """Makes entries; what varies comes from ``rng``."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def data(self, date: datetime, size: int, *, price: Difficulty = FLOOR) -> StoredEntry:
        """Return a data block of random bytes."""
        return self.data_of(date, self.rng.randbytes(size), price=price)

    def data_of(
        self,
        date: datetime,
        raw: bytes,
        key: BlockKey | None = None,
        *,
        price: Difficulty = FLOOR,
    ) -> StoredEntry:
        """Return a data block of these bytes, if asked under a key that is not theirs."""
        stamped = data_challenge_prefix(date) + raw
        stamp = mint(stamped, price, threads=1)
        lines = make_data_header(date, stamp, len(raw)).lines
        place = key or data_key(raw)
        header = join_lines(lines)
        return StoredEntry(
            type="data",
            key=place,
            identity=b"",
            date=date,
            header=header,
            digest=hashlib.sha256(header + place.raw).digest(),
            stamp_bits=level(stamped, stamp),
            data=BlockData(place, len(raw), raw),
            source="generated",
        )

    def announcement(
        self,
        reader: Person,
        date: datetime,
        named: Sequence[BlockKey],
        *,
        price: Difficulty | None = None,
        tokened: bool = False,
    ) -> StoredEntry:
        """Return word of a mail, stamped at the reader's price, or at the floor with a token."""
        mailbox = self.rng.choice(reader.mailboxes)
        message = BlockKey(hashlib.sha1(b"".join(key.raw for key in named)).digest())
        asked = price or (FLOOR if tokened else reader.price)
        token = BypassToken(self.rng.randbytes(20)) if tokened else None
        stamp = mint(message_challenge(reader.key_id, message, date, named), asked, threads=1)
        block = make_announcement(date, stamp, reader.key_id, mailbox, named, message, token)
        paid = reader.price.met_by(asked.bits, asked.nonces)
        return text_entry(block, block.own_key, paid=paid)

    def acknowledgment(
        self, date: datetime, secret: AckHash | None = None, *, price: Difficulty | None = None
    ) -> StoredEntry:
        """Return the acknowledgment of a mail that may be anywhere."""
        secret = secret or AckHash(self.rng.randbytes(20))
        asked = price or _STAMPS["acknowledgment"]
        stamp = mint(acknowledgment_challenge(date, secret), asked, threads=1)
        block = make_acknowledgment(date, stamp, secret)
        return text_entry(block, block.own_key)

    def key(
        self, owner: Person, date: datetime, *, life: timedelta = KEY_LIFE, revoked: bool = False
    ) -> StoredEntry:
        """Return the announcement of a person's key."""
        text = KeyText(
            date=date,
            expires=date + life,
            user_id=f"{owner.name} <{owner.address}>",
            transport=owner.transport,
            mailboxes=owner.mailboxes,
            price=owner.price,
            armored_key=owner.armored_key,
        )
        stamp = mint(text.challenge, _STAMPS["key-announcement"], threads=1)
        block = parse_text_block(split_lines(owner.sign(text.stamped(stamp))))
        return text_entry(block, announcement_key(owner.key_id), revoked=revoked)

    def claim(
        self,
        owner: Person,
        date: datetime,
        *,
        address: str | None = None,
        by: Person | None = None,
    ) -> StoredEntry:
        """Return a person's claim to an address, if asked signed by another."""
        claimed = address or owner.address
        challenge = claim_challenge(date, owner.key_id, claimed)
        stamp = mint(challenge, _STAMPS["address-claim"], threads=1)
        text = claim_text(date, stamp, owner.key_id, claimed)
        block = parse_text_block(split_lines((by or owner).sign(text)))
        if block.own_key is None:
            raise TypeError("a claim has a key of its own")
        return text_entry(block, block.own_key)


_STAMPS = {str(kind): policy.server_stamp for kind, policy in BLOCK_POLICY.items()}


def text_entry(
    block: TextBlock, key: BlockKey, *, revoked: bool = False, paid: bool = False
) -> StoredEntry:
    """Return a text block as the store keeps it."""
    header = canonical_form(block)
    mail = block if isinstance(block, MessageAnnouncement) else None
    return StoredEntry(
        type=block.type,
        key=key,
        identity=entry_identity(block),
        date=block.date,
        header=header,
        digest=hashlib.sha256(header).digest(),
        stamp_bits=stamp_bits(block),
        revoked=revoked,
        holder=mail.recipient.raw if mail else b"",
        paid=paid and mail is not None,
        source="generated",
        names=mail.data_blocks if mail else (),
    )


def some_key(rng: Random) -> BlockKey:
    """Return a key that belongs to nothing."""
    return BlockKey(rng.randbytes(20))
