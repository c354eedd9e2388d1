"""From an address or a key id to key-announcements, at one server, all of them checked."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sealmail_client.answers import read_entries
from sealmail_client.errors import ClientError
from sealmail_protocol.addresses import normal_address
from sealmail_protocol.blocks import AddressClaim, BlockType, KeyAnnouncement
from sealmail_protocol.keys import BlockKey, KeyId, address_key, announcement_key
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_verify import BadSignature, Undecided, Verifier

# Each claim costs a question and two signatures; no honest address has as many.
MAX_CLAIMS = 32
# A server keeps one announcement of a key; every further one that it gives costs a signature.
MAX_ANNOUNCEMENTS = 4
_KEPT_FOR = BLOCK_POLICY[BlockType.KEY_ANNOUNCEMENT].max_age


class TooManyClaims(ClientError):
    """So many keys claim this address that it says nothing: ask for the key by its id."""

    exit_code = 22


class Library(Protocol):
    """Where blocks are asked for: a server, or what stands for several."""

    async def get(self, key: BlockKey, since: datetime | None = None) -> tuple[bytes, ...] | None:
        """Return the lines stored under ``key``, ``None`` if there are none."""
        ...


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A key-announcement that holds in itself; whose it is, is another question."""

    key_id: KeyId
    announcement: KeyAnnouncement
    revoked: bool

    def beats(self, other: "FoundKey") -> bool:
        """Return whether this one counts, of two of the same key: revoked, then the newer."""
        mine = (self.revoked, self.announcement.date)
        return mine > (other.revoked, other.announcement.date)


class KeyLookup:
    """Finds keys and believes nobody: what a server gives is checked as if a stranger had sent it.

    What does not hold is left out; why, is in ``doubts`` for the user to read.
    """

    def __init__(self, library: Library, verifier: Verifier, now: datetime) -> None:
        self._library = library
        self._verifier = verifier
        self._now = now
        self.doubts: list[str] = []

    async def by_address(self, address: str) -> tuple[FoundKey, ...]:
        """Return every key with a valid claim to ``address``, the newest claim first."""
        address = normal_address(address)
        claims = await self._claims(address)
        if len(claims) > MAX_CLAIMS:
            raise TooManyClaims(
                f"{len(claims)} keys claim {address}, so that it says nothing any more: "
                "ask its owner for the key id, and `sealmail send --key KEYID`"
            )
        found = [await self._claimant(claim) for claim in claims]
        return tuple(key for key in found if key is not None)

    async def by_key_id(self, key_id: KeyId) -> FoundKey | None:
        """Return the announcement of ``key_id``, ``None`` if there is none that holds."""
        key = announcement_key(key_id)
        return await self._best(await self._library.get(key) or (), key_id)

    async def in_text(self, lines: Iterable[bytes], key_id: KeyId) -> FoundKey | None:
        """Return the announcement of ``key_id`` that somebody handed over, if it holds."""
        return await self._best(lines, key_id)

    async def _best(self, lines: Iterable[bytes], key_id: KeyId) -> FoundKey | None:
        # A revocation is believed at any age, so age is judged after the signature.
        key = announcement_key(key_id)
        entries = read_entries(lines, key, self._now, self.doubts, any_age=True)
        announcements = [e.block for e in entries if isinstance(e.block, KeyAnnouncement)]
        announcements.sort(key=lambda block: block.date, reverse=True)
        best: FoundKey | None = None
        for announcement in announcements[:MAX_ANNOUNCEMENTS]:
            found = await self._checked(announcement, key_id)
            if found is not None and (best is None or found.beats(best)):
                best = found
        return best

    async def _claims(self, address: str) -> list[AddressClaim]:
        """Return the newest claim of each key."""
        key = address_key(address)
        newest: dict[KeyId, AddressClaim] = {}
        lines = await self._library.get(key) or ()
        for entry in read_entries(lines, key, self._now, self.doubts):
            block = entry.block
            if isinstance(block, AddressClaim) and block.address == address:
                held = newest.get(block.key_id)
                if held is None or held.date < block.date:
                    newest[block.key_id] = block
        return sorted(newest.values(), key=lambda claim: claim.date, reverse=True)

    async def _claimant(self, claim: AddressClaim) -> FoundKey | None:
        found = await self.by_key_id(claim.key_id)
        if found is None:
            self.doubts.append(f"{claim.key_id} claims the address but its key is not there")
            return None
        certificate = found.announcement.signed.armored_key
        signed = await self._signed(claim.signed.message, certificate, claim.key_id)
        return None if signed is None else found

    async def _checked(self, announcement: KeyAnnouncement, key_id: KeyId) -> FoundKey | None:
        signed = announcement.signed
        revoked = await self._signed(signed.message, signed.armored_key, key_id)
        if revoked is None:
            return None
        if not revoked and self._now - announcement.date >= _KEPT_FOR:
            self.doubts.append(f"{key_id}: its announcement is too old to be believed")
            return None
        return FoundKey(key_id, announcement, revoked)

    async def _signed(self, text: bytes, certificate: bytes, key_id: KeyId) -> bool | None:
        """Return whether the signing key is revoked; ``None`` if the signature does not hold."""
        try:
            verification = await asyncio.to_thread(
                self._verifier.verify_clear_signed, text, certificate, key_id
            )
        except Undecided:
            raise
        except BadSignature as error:
            self.doubts.append(f"{key_id}: {error.reason}")
            return None
        return verification.revoked
