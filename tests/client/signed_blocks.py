"""Real announcements and claims, stamped and signed with the keys of correspondents."""

from datetime import datetime, timedelta

from tests.client.conftest import Correspondent
from tests.client.samples import DATE

from sealmail_pow import Difficulty, mint
from sealmail_protocol.addresses import Transport
from sealmail_protocol.block_codec import parse_block
from sealmail_protocol.blocks import (
    AddressClaim,
    KeyAnnouncement,
    MessageAnnouncement,
    TextBlock,
)
from sealmail_protocol.bundles import join_bundle
from sealmail_protocol.compose import KeyText, claim_text, make_announcement
from sealmail_protocol.keys import BlockKey, KeyId, address_key, announcement_key, data_key
from sealmail_protocol.stamps import claim_challenge, message_challenge

SIGNED_FLOOR = Difficulty(24, 2)
PRICE = Difficulty(20, 2)


def announcement_of(
    owner: Correspondent,
    date: datetime = DATE,
    transport: str = "server=a.example:8081",
    price: Difficulty = PRICE,
) -> KeyAnnouncement:
    """Return a key-announcement that every server takes."""
    text = KeyText(
        date=date,
        expires=date + timedelta(days=7),
        user_id=owner.user_id,
        transport=Transport.parse(transport),
        mailboxes=("0", "1"),
        price=price,
        armored_key=owner.keyring.public_key(owner.key_id),
    )
    stamped = text.stamped(mint(text.challenge, SIGNED_FLOOR))
    block = parse_block(sign(owner, stamped))
    assert isinstance(block, KeyAnnouncement)
    return block


def claim_of(
    owner: Correspondent, address: str, key_id: KeyId | None = None, date: datetime = DATE
) -> AddressClaim:
    """Return a claim to ``address``, of another's key id if a test wants a forgery."""
    claimed = key_id or owner.key_id
    stamp = mint(claim_challenge(date, claimed, address), SIGNED_FLOOR)
    block = parse_block(sign(owner, claim_text(date, stamp, claimed, address)))
    assert isinstance(block, AddressClaim)
    return block


def message_to(
    reader: KeyId, data: bytes = b"sealed", date: datetime = DATE, mailbox: str = "0"
) -> MessageAnnouncement:
    """Return the announcement of a message of one block, stamped at the floor."""
    key = data_key(data)
    stamp = mint(message_challenge(reader, key, date, (key,)), Difficulty(8, 2))
    return make_announcement(date, stamp, reader, mailbox, (key,), key)


def sign(owner: Correspondent, text: str) -> bytes:
    """Clear-sign a text."""
    return owner.keyring.clear_sign(text, owner.key_id, owner.passphrase).encode()


class Shelf:
    """A server's blocks in memory, given to whoever asks; what lies there need not be true."""

    def __init__(self) -> None:
        self._lines: dict[BlockKey, tuple[bytes, ...]] = {}
        self.asked = 0

    def put(self, key: BlockKey, *blocks: TextBlock) -> None:
        """Lay blocks under a key."""
        self._lines[key] = tuple(line.encode() for line in join_bundle(blocks))

    def put_key(self, owner: KeyId, block: TextBlock) -> None:
        """Lay a block where the announcement of ``owner`` belongs."""
        self.put(announcement_key(owner), block)

    def put_claims(self, address: str, *blocks: TextBlock) -> None:
        """Lay blocks where the claims to ``address`` belong."""
        self.put(address_key(address), *blocks)

    async def get(self, key: BlockKey, since: datetime | None = None) -> tuple[bytes, ...] | None:
        """Return what lies under a key."""
        del since
        self.asked += 1
        return self._lines.get(key)
