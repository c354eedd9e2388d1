"""The user's own key-announcement and address-claim: made, kept, and posted to his servers."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from sealmail_client.bypass_book import BypassBook
from sealmail_client.errors import ClientError
from sealmail_client.home_database import HomeDatabase
from sealmail_client.keyring import Keyring
from sealmail_client.posting import NotTaken, Peer
from sealmail_client.progress import Watcher, mint_watched
from sealmail_client.settings import Place, Settings
from sealmail_client.terms import FormerTerms
from sealmail_protocol.block_codec import parse_block, serialise_block
from sealmail_protocol.blocks import AddressClaim, BlockType, KeyAnnouncement, TextBlock
from sealmail_protocol.compose import KeyText, claim_text
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.keys import BlockKey, KeyId, address_key, announcement_key
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_protocol.stamps import claim_challenge

# After this long others fetch the announcement again.
FRESH_FOR = timedelta(days=7)
# Early enough that a weekend without mail leaves no gap.
REPOST_AFTER = timedelta(days=5)
# A revocation cannot be signed anew, and must be there when the last correspondent comes back.
REVOKED_FOR = timedelta(days=400)

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


class NotPublished(ClientError):
    """The server did not take our key or address: the reason is its own."""

    exit_code = 23


class OwnKeyRevoked(ClientError):
    """The user's own key is revoked, for good: a new identity is needed."""

    exit_code = 25

    def __init__(self, key_id: KeyId) -> None:
        super().__init__(
            f"your key {key_id} is revoked: nothing is sent, claimed or published with it any "
            "more; make a new one with `sealmail identity create`"
        )
        self.key_id = key_id


class OwnBlocks:
    """The blocks by which others find the user, as they were last made."""

    def __init__(self, database: HomeDatabase) -> None:
        self._database = database
        self._former_terms = FormerTerms(database)
        self._bypass = BypassBook(database)

    def announcement(self) -> KeyAnnouncement | None:
        """Return our key-announcement, if one was made."""
        block = self._block(BlockType.KEY_ANNOUNCEMENT)
        return block if isinstance(block, KeyAnnouncement) else None

    def claim(self) -> AddressClaim | None:
        """Return our address-claim, if one was made."""
        block = self._block(BlockType.ADDRESS_CLAIM)
        return block if isinstance(block, AddressClaim) else None

    @property
    def revoked(self) -> bool:
        """Return whether the user has revoked his key."""
        return self._database.row("SELECT 1 FROM revocation") is not None

    def keep(self, block: KeyAnnouncement | AddressClaim) -> None:
        """Store a block that is about to be posted; terms that it changes are remembered."""
        with self._database.unit():
            if isinstance(block, KeyAnnouncement):
                self._note_terms(block)
            self._write(block)

    def keep_revocation(self, block: KeyAnnouncement | None, now: datetime) -> None:
        """End our key: nothing of it is posted any more but ``block``, which revokes it."""
        with self._database.unit():
            self._database.write("DELETE FROM own_block")
            if block is not None:
                self._write(block)
            self._database.write("DELETE FROM revocation")
            self._database.write("INSERT INTO revocation VALUES (?)", format_date(now))

    def mark_posted(self, kind: BlockType, now: datetime, place: Place = Place.HOME) -> None:
        """Remember that the server at ``place`` took the block that we hold."""
        self._database.write(
            "INSERT OR REPLACE INTO own_posting"
            " SELECT type, ?, date, ? FROM own_block WHERE type = ?",
            place,
            format_date(now),
            kind,
        )

    def posted(self, kind: BlockType, place: Place = Place.HOME) -> datetime | None:
        """Return when the server at ``place`` took the block that we hold."""
        row = self._database.row(
            "SELECT posted FROM own_posting JOIN own_block USING (type, date)"
            " WHERE type = ? AND place = ?",
            kind,
            place,
        )
        return None if row is None else parse_date(row["posted"])

    @property
    def published(self) -> bool:
        """Return whether the home server took a claim of ours, be it a former one."""
        query = "SELECT 1 FROM own_posting WHERE type = ? AND place = ?"
        return self._database.row(query, BlockType.ADDRESS_CLAIM, Place.HOME) is not None

    def unposted(self, place: Place) -> bool:
        """Return whether the server at ``place`` has not taken all that we hold."""
        held = (block for block in (self.announcement(), self.claim()) if block is not None)
        return any(self.posted(block.type, place) is None for block in held)

    def due(self, now: datetime) -> bool:
        """Return whether key or claim must be posted at home, again or at last."""
        return self.outdated(now) or self.unposted(Place.HOME)

    def outdated(self, now: datetime) -> bool:
        """Return whether others would soon miss what we hold, or are told what holds no more."""
        if self.revoked:
            return False
        announcement, claim = self.announcement(), self.claim()
        if announcement and announcement.tokens_accepted_since != self._bypass.published_since:
            return True
        return any(
            block is None or now - block.date >= REPOST_AFTER for block in (announcement, claim)
        )

    def tokens_accepted_since(self, now: datetime) -> datetime:
        """Return since when we honour bypass secrets, as others are told."""
        return self._bypass.accepted_since(now)

    def forget_postings(self, place: Place) -> None:
        """Post everything to ``place`` again: another server is there now."""
        self._database.write("DELETE FROM own_posting WHERE place = ?", place)

    def _block(self, kind: BlockType) -> object:
        row = self._database.row("SELECT block FROM own_block WHERE type = ?", kind)
        return None if row is None else parse_block(row["block"])

    def _write(self, block: KeyAnnouncement | AddressClaim) -> None:
        self._database.write(
            "INSERT OR REPLACE INTO own_block (type, date, block) VALUES (?, ?, ?)",
            block.type,
            format_date(block.date),
            serialise_block(block),
        )

    def _note_terms(self, new: KeyAnnouncement) -> None:
        held = self.announcement()
        if held and (held.price, held.mailboxes) != (new.price, new.mailboxes):
            self._former_terms.note(held.price, held.mailboxes, new.date)


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
        """Make both blocks anew and post them; ``NotPublished`` tells what was not taken.

        They are dated after the login, which a new account is bound by.
        """
        await self.renew(peer.moment(self._clock()))
        await self.post(peer)

    async def renew(self, moment: datetime) -> None:
        """Make both blocks anew; ``OwnKeyRevoked`` if the key is."""
        if self._own.revoked:
            raise OwnKeyRevoked(self._settings.key_id)
        date = self._later(moment)
        armored = self._keyring.public_key(self._settings.key_id)
        self._own.keep(await self._make_announcement(date, date + FRESH_FOR, armored))
        self._own.keep(await self._make_claim(date))

    async def publish_if_due(self, peer: Peer) -> None:
        """Publish at the home server what others would soon miss."""
        if not self._own.due(self._clock()):
            return
        if self._own.revoked:
            await self.post(peer)
        else:
            await self.publish(peer)

    async def write_revocation(self, revoked_key: str) -> None:
        """Make the last announcement, whose text carries the revoked key.

        It must be signed before the revocation is applied to the keyring, which would not sign
        afterwards. From here on the identity counts as revoked.
        """
        date = self._later(self._clock())
        block = await self._make_announcement(date, date + REVOKED_FOR, revoked_key)
        self._own.keep_revocation(block, date)

    async def post(self, peer: Peer, place: Place = Place.HOME) -> None:
        """Post the blocks we hold to ``peer``, the server at ``place``."""
        settings = self._settings
        announcement, claim = self._own.announcement(), self._own.claim()
        if announcement is not None:
            await self._post(peer, announcement_key(settings.key_id), announcement, place)
        if claim is not None:
            await self._post(peer, address_key(settings.address), claim, place)

    async def _post(self, peer: Peer, key: BlockKey, block: TextBlock, place: Place) -> None:
        outcome = await peer.post(key, block)
        if isinstance(outcome, NotTaken):
            raise NotPublished(
                f"the {block.type} was not taken: {outcome.reason}; "
                "once that is mended, `sealmail key publish` tries again"
            )
        self._own.mark_posted(block.type, self._clock(), place)

    def _later(self, date: datetime) -> datetime:
        """Return a date after that of the block it replaces: of two with one Date either wins."""
        held = self._own.announcement()
        if held is None or not -_SECOND < held.date - date < _DAY:
            return date
        return held.date + _SECOND

    async def _make_announcement(
        self, date: datetime, expires: datetime, armored_key: str
    ) -> KeyAnnouncement:
        settings = self._settings
        text = KeyText(
            date=date,
            expires=expires,
            user_id=settings.user_id,
            transport=settings.transport,
            mailboxes=settings.mailboxes,
            price=settings.price,
            armored_key=armored_key,
            tokens_accepted_since=self._own.tokens_accepted_since(date),
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
