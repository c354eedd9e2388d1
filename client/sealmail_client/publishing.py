"""The user's own key-announcement and address-claim: made, kept, and posted to his server."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from sealmail_client.errors import ClientError
from sealmail_client.home_database import HomeDatabase
from sealmail_client.keyring import Keyring
from sealmail_client.posting import NotTaken, Peer
from sealmail_client.progress import Watcher, mint_watched
from sealmail_client.settings import Settings
from sealmail_protocol.block_codec import parse_block, serialise_block
from sealmail_protocol.blocks import AddressClaim, BlockType, KeyAnnouncement, TextBlock
from sealmail_protocol.compose import KeyText, claim_text
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.keys import BlockKey, address_key, announcement_key
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_protocol.stamps import claim_challenge

# After this long others fetch the announcement again.
FRESH_FOR = timedelta(days=7)
# Early enough that a weekend without mail leaves no gap.
REPOST_AFTER = timedelta(days=5)


class NotPublished(ClientError):
    """The server did not take our key or address: the reason is its own."""

    exit_code = 23


class OwnBlocks:
    """The blocks by which others find the user, as they were last made."""

    def __init__(self, database: HomeDatabase) -> None:
        self._database = database

    def announcement(self) -> KeyAnnouncement | None:
        """Return our key-announcement, if one was made."""
        block = self._block(BlockType.KEY_ANNOUNCEMENT)
        return block if isinstance(block, KeyAnnouncement) else None

    def claim(self) -> AddressClaim | None:
        """Return our address-claim, if one was made."""
        block = self._block(BlockType.ADDRESS_CLAIM)
        return block if isinstance(block, AddressClaim) else None

    def keep(self, block: KeyAnnouncement | AddressClaim) -> None:
        """Store a block that is about to be posted."""
        self._database.write(
            "INSERT OR REPLACE INTO own_block (type, date, block) VALUES (?, ?, ?)",
            block.type,
            format_date(block.date),
            serialise_block(block),
        )

    def mark_posted(self, kind: BlockType, now: datetime) -> None:
        """Remember that the home server took it."""
        self._database.write(
            "UPDATE own_block SET posted = ? WHERE type = ?", format_date(now), kind
        )

    def posted(self, kind: BlockType) -> datetime | None:
        """Return when the home server took the block that we hold."""
        row = self._database.row("SELECT posted FROM own_block WHERE type = ?", kind)
        return parse_date(row["posted"]) if row is not None and row["posted"] else None

    def due(self, now: datetime) -> bool:
        """Return whether key or claim must be posted, again or at last."""
        blocks = (self.announcement(), self.claim())
        return any(
            block is None or self.posted(block.type) is None or now - block.date >= REPOST_AFTER
            for block in blocks
        )

    def _block(self, kind: BlockType) -> object:
        row = self._database.row("SELECT block FROM own_block WHERE type = ?", kind)
        return None if row is None else parse_block(row["block"])


class Publisher:
    """Makes the user's own blocks and posts them, the key before the claim."""

    def __init__(
        self,
        own: OwnBlocks,
        settings: Settings,
        keyring: Keyring,
        passphrase: Callable[[], str | None],
        clock: Callable[[], datetime],
        watcher: Watcher,
    ) -> None:
        self._own = own
        self._settings = settings
        self._keyring = keyring
        self._passphrase = passphrase
        self._clock = clock
        self._watcher = watcher

    async def publish(self, peer: Peer) -> None:
        """Make both blocks anew and post them; ``NotPublished`` tells what was not taken."""
        date = peer.moment(self._clock())
        self._own.keep(await self._make_announcement(date))
        self._own.keep(await self._make_claim(date))
        await self.post(peer)

    async def publish_if_due(self, peer: Peer) -> bool:
        """Publish what others would soon miss; return whether that was needed."""
        if not self._own.due(self._clock()):
            return False
        await self.publish(peer)
        return True

    async def post(self, peer: Peer) -> None:
        """Post the blocks we hold."""
        settings = self._settings
        announcement, claim = self._own.announcement(), self._own.claim()
        if announcement is not None:
            await self._post(peer, announcement_key(settings.key_id), announcement)
        if claim is not None:
            await self._post(peer, address_key(settings.address), claim)

    async def _post(self, peer: Peer, key: BlockKey, block: TextBlock) -> None:
        outcome = await peer.post(key, block)
        if isinstance(outcome, NotTaken):
            raise NotPublished(
                f"the {block.type} was not taken: {outcome.reason}; "
                "once that is mended, `sealmail key publish` tries again"
            )
        self._own.mark_posted(block.type, self._clock())

    async def _make_announcement(self, date: datetime) -> KeyAnnouncement:
        settings = self._settings
        text = KeyText(
            date=date,
            expires=date + FRESH_FOR,
            user_id=settings.user_id,
            transport=settings.transport,
            mailboxes=settings.mailboxes,
            price=settings.price,
            armored_key=self._keyring.public_key(settings.key_id),
        )
        floor = BLOCK_POLICY[BlockType.KEY_ANNOUNCEMENT].server_stamp
        stamp = await mint_watched(text.challenge, floor, "stamping the key", self._watcher)
        block = await self._signed(text.stamped(stamp))
        assert isinstance(block, KeyAnnouncement)  # noqa: S101 - the text says so
        return block

    async def _make_claim(self, date: datetime) -> AddressClaim:
        settings = self._settings
        challenge = claim_challenge(date, settings.key_id, settings.address)
        floor = BLOCK_POLICY[BlockType.ADDRESS_CLAIM].server_stamp
        stamp = await mint_watched(challenge, floor, "stamping the claim", self._watcher)
        block = await self._signed(claim_text(date, stamp, settings.key_id, settings.address))
        assert isinstance(block, AddressClaim)  # noqa: S101 - the text says so
        return block

    async def _signed(self, text: str) -> object:
        signed = await asyncio.to_thread(
            self._keyring.clear_sign, text, self._settings.key_id, self._passphrase()
        )
        return parse_block(signed.encode())
