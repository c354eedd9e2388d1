"""What the DHT takes: values that prove themselves to whoever is handed one.

A claim travels with the key-announcement that signed it, so that every node can check it
without asking anybody. All other blocks stand alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import chain

from sealmail_protocol.block_codec import parse_block, parse_text_block, serialise_block
from sealmail_protocol.blocks import (
    AddressClaim,
    Block,
    BlockType,
    DataBlock,
    KeyAnnouncement,
)
from sealmail_protocol.canonical import block_digest
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.fields import SIGNED_BEGIN, split_lines
from sealmail_protocol.keys import BlockKey, KeyId, announcement_key
from sealmail_protocol.merges import Standing, displaces, entry_identity
from sealmail_protocol.policy import BLOCK_POLICY, MAX_FUTURE
from sealmail_protocol.signed_text import SignedText
from sealmail_protocol.stamps import stamp_bits
from sealmail_protocol.validity import check_stamp
from sealmail_store import DhtRow
from sealmail_verify import BadSignature, VerifierPool

# A revocation has to outlive every copy of the key that it ends.
REVOCATION_AGE = timedelta(days=400)
# Entries of one mailbox, claims for one address: those with most stamp bits stay.
MOST_UNDER_KEY = {BlockType.MESSAGE_ANNOUNCEMENT: 256, BlockType.ADDRESS_CLAIM: 32}
_SIGNED = (BlockType.KEY_ANNOUNCEMENT, BlockType.ADDRESS_CLAIM)
# A claim and the key-announcement it travels with; anything larger is refused unread.
MAX_VALUE = sum(BLOCK_POLICY[kind].dht_size for kind in _SIGNED)

_SEPARATOR = b"NextClaim\r\n"
_BETWEEN = b"\r\n" + _SEPARATOR


@dataclass(frozen=True, slots=True)
class Value:
    """A block with all that is needed to check it, as it travels: ``body``.

    That is parsed only when somebody asks for the block, because of one that names many others
    it takes six times the memory. ``key_until`` is when the key-announcement that travels with
    it is too old.
    """

    key: BlockKey
    type: BlockType
    standing: Standing
    identity: bytes
    body: bytes = field(repr=False)
    key_until: datetime | None = field(default=None, compare=False)

    @classmethod
    def of(cls, row: DhtRow) -> "Value":
        """Return a value that is kept here: it was examined when it came, and is believed."""
        standing = Standing(row.date, row.digest, row.revoked, row.stamp_bits)
        return cls(row.key, BlockType(row.type), standing, row.identity, row.body, row.until)

    @property
    def block(self) -> Block:
        """Return the block, parsed."""
        return split_value(self.body)[0]

    @property
    def block_body(self) -> bytes:
        """Return the bytes of the block alone, without what it travels with."""
        if self.type is not BlockType.ADDRESS_CLAIM:
            return self.body
        return self.body.split(_BETWEEN)[0] + b"\r\n"

    @property
    def date(self) -> datetime:
        """Return the Date of the block, which nobody can renew."""
        return self.standing.date

    @property
    def digest(self) -> bytes:
        """Return the SHA-256 of the canonical form of the block."""
        return self.standing.digest

    @property
    def until(self) -> datetime:
        """Return when it, or the key-announcement that it travels with, is too old."""
        age = REVOCATION_AGE if self.standing.revoked else BLOCK_POLICY[self.type].max_age
        end = self.date + age
        return end if self.key_until is None else min(end, self.key_until)

    @property
    def rank(self) -> tuple[int, bytes]:
        """Return what orders values by who stays: most stamp bits first, then lower digests."""
        return -self.standing.bits, self.digest

    def displaces(self, other: "Standing") -> bool:
        """Return whether it stays where ``other`` has the same identity."""
        return displaces(self.type, self.standing, other)


class Examiner:
    """Judges values by what they say alone: every node before it stores, every reader."""

    def __init__(self, verifier: VerifierPool) -> None:
        self._verifier = verifier

    async def examine(self, key: BlockKey, body: bytes, now: datetime) -> Value:
        """Return a value that holds, or raise ``InvalidBlock``; cheap checks come first."""
        value = read_value(key, body, now)
        return await self.verified(value, now)

    async def verified(self, value: Value, now: datetime) -> Value:
        """Verify the signatures of a value, if it has any; ``Undecided`` for want of room."""
        if value.type not in _SIGNED:
            return value
        block, certificate = split_value(value.body)
        if isinstance(block, AddressClaim):
            if certificate is None:
                raise InvalidBlock(Refusal.KEY, "a claim without its key-announcement")
            await self._verify(block.signed, certificate, block.key_id)
            if await self._verify(certificate.signed, certificate, block.key_id):
                raise InvalidBlock(Refusal.KEY, "the key that claims the address is revoked")
        if isinstance(block, KeyAnnouncement):
            revoked = await self._verify(block.signed, block, KeyId(value.key.raw))
            value = replace(value, standing=replace(value.standing, revoked=revoked))
            check_age(value, now)
        return value

    async def _verify(
        self, signed: SignedText, certificate: KeyAnnouncement, signer: KeyId
    ) -> bool:
        """Check one signature, and return whether the key is revoked."""
        try:
            found = await self._verifier.verify(
                signed.message, certificate.signed.armored_key, signer
            )
        except BadSignature as error:
            raise InvalidBlock(Refusal.SIGNATURE, error.reason) from None
        return found.revoked


def read_value(key: BlockKey, body: bytes, now: datetime) -> Value:
    """Check all but signatures: form, size, key, date and stamp; raise ``InvalidBlock``."""
    if len(body) > MAX_VALUE:
        raise InvalidBlock(Refusal.SIZE, f"more than {MAX_VALUE} bytes")
    block, certificate = split_value(body)
    value = value_of(key, block, certificate)
    _check(value, block, key, now)
    if certificate is not None:
        carried = value_of(announcement_key(_signer(block)), certificate)
        _check(carried, certificate, carried.key, now)
        check_age(carried, now)
    if value.body != body:
        raise InvalidBlock(Refusal.FORM, "not in its canonical form")
    return value


def value_of(key: BlockKey, block: Block, certificate: KeyAnnouncement | None = None) -> Value:
    """Return a block as a value, unchecked."""
    body, key_until = serialise_block(block), None
    if certificate is not None:
        body += _SEPARATOR + serialise_block(certificate)
        key_until = certificate.date + BLOCK_POLICY[certificate.type].max_age
    date = block.header.date if isinstance(block, DataBlock) else block.date
    standing = Standing(date, block_digest(block), bits=stamp_bits(block))
    return Value(key, block.type, standing, entry_identity(block), body, key_until)


def merged(values: Iterable[Value]) -> tuple[Value, ...]:
    """Return what stays of values under one key, by type in the order of the table."""
    kept: dict[tuple[BlockType, bytes], Value] = {}
    for value in values:
        place = value.type, value.identity
        held = kept.get(place)
        if held is None or value.displaces(held.standing):
            kept[place] = value
    order = tuple(BlockType)
    return tuple(
        sorted(
            chain.from_iterable(_most(kind, kept.values()) for kind in order),
            key=lambda each: (order.index(each.type), each.date, each.digest),
        )
    )


def check_age(value: Value, now: datetime) -> None:
    """Refuse what is older than its type may be, or dated ahead."""
    if value.until <= now:
        raise InvalidBlock(Refusal.DATE, "older than blocks of this type are kept")
    if value.date - now > MAX_FUTURE:
        raise InvalidBlock(Refusal.DATE, f"dated more than {MAX_FUTURE} ahead")


def _check(value: Value, block: Block, key: BlockKey, now: datetime) -> None:
    policy = BLOCK_POLICY[value.type]
    if _counted(block) > policy.dht_size:
        raise InvalidBlock(Refusal.SIZE, f"more than {policy.dht_size} bytes")
    if block.own_key is not None and block.own_key != key:
        raise InvalidBlock(Refusal.KEY, f"its content belongs under {block.own_key}")
    bits, nonces = value.standing.bits, len(block.stamp.nonces)
    check_stamp(bits, nonces, policy.dht_stamp)
    if value.type is BlockType.KEY_ANNOUNCEMENT:
        # Whether it is a revocation, which lives longer, only its signature tells.
        value = replace(value, standing=replace(value.standing, revoked=True))
    check_age(value, now)


def split_value(body: bytes) -> tuple[Block, KeyAnnouncement | None]:
    """Return the block of a value, and the key-announcement that it travels with, if any."""
    if not body.startswith(SIGNED_BEGIN.encode()):
        return parse_block(body), None
    first, *rest = body.split(_BETWEEN)
    block = parse_text_block(split_lines(first))
    if not rest and not isinstance(block, AddressClaim):
        return block, None
    if len(rest) != 1 or not isinstance(block, AddressClaim):
        raise InvalidBlock(Refusal.FORM, "not one claim and its key-announcement")
    certificate = parse_text_block(split_lines(rest[0]))
    if not isinstance(certificate, KeyAnnouncement):
        raise InvalidBlock(Refusal.FORM, "a claim without its key-announcement")
    return block, certificate


def _most(kind: BlockType, values: Iterable[Value]) -> list[Value]:
    """Return the values of one type, as many as an honest node keeps under a key."""
    found = (value for value in values if value.type is kind)
    return sorted(found, key=lambda each: each.rank)[: MOST_UNDER_KEY.get(kind)]


def _signer(block: Block) -> KeyId:
    assert isinstance(block, AddressClaim)  # noqa: S101 - only claims travel with a certificate
    return block.key_id


def _counted(block: Block) -> int:
    """Return the size that the policy table bounds: of data its bytes, else the whole."""
    return len(block.data) if isinstance(block, DataBlock) else len(serialise_block(block))
