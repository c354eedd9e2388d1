"""What brings announced messages home: ask, fetch, open, verify, file and acknowledge.

Each step leaves its mark in the inbox before the next begins, and may be repeated.
"""

import asyncio
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sealmail_client.abreast import abreast
from sealmail_client.ack_files import parse_ack
from sealmail_client.acknowledgments import acknowledge
from sealmail_client.answers import read_entries
from sealmail_client.cutting import PIECE_SIZE, JoinedPieces, damaged
from sealmail_client.desk import Desk
from sealmail_client.errors import (
    BadKey,
    BadMessage,
    BadPiece,
    ClientError,
    GpgFailed,
    LargerThanTaken,
    NotForUs,
    NotOpened,
    WrongPassphrase,
)
from sealmail_client.fetching import Fetching, Here, Missing, TooLarge, fits, pieces_in
from sealmail_client.folders import Envelope, Folder, SignatureState
from sealmail_client.gpg_status import SignatureCheck
from sealmail_client.headers import Header, address_in, in_sight
from sealmail_client.inbox import WAITING, ArrivingMessage, DueAcknowledgment, Step
from sealmail_client.judging import judged
from sealmail_client.key_lookup import FoundKey, KeyLookup
from sealmail_client.key_sources import Answer, KeySource
from sealmail_client.message_zip import OpenedLetter, open_letter
from sealmail_client.originals import file_original
from sealmail_client.posting import Peer
from sealmail_client.retrying import next_try
from sealmail_client.safe_files import make_private, sync_files
from sealmail_client.sealing import OpenedSeal, open_seal
from sealmail_client.sender_keys import sources_for_sender
from sealmail_net.errors import NetworkError
from sealmail_protocol.addresses import Transport
from sealmail_protocol.blocks import BlockType, KeyAnnouncement, MessageAnnouncement
from sealmail_protocol.keys import KeyId, acknowledgment_key, mailbox_key
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_verify import Undecided

# What a block brings lies on disk three times for a moment: as it came, opened, and, if it is of a
# forwarded mail, unpacked from there.
_ROOM_FOR_A_BLOCK = 3 * PIECE_SIZE
# Blocks that were damaged on our disk are fetched again at once, and not for ever.
_MAX_FETCHES = 2
# Who wrote is known when a mail is open, and before only by a token: what is larger waits, whether
# that shows before it is opened, or only then.
MAX_UNASKED = 100 * 1024 * 1024
_MAY_BE_LARGE = f"it may have more than {MAX_UNASKED // 1024**2} MiB"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What one visit to the home server brought."""

    filed: tuple[int, ...]
    waiting: tuple[ArrivingMessage, ...]
    refused: tuple[ArrivingMessage, ...]
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Verified:
    """What a signature is worth; ``open``: another day, and another server, may tell otherwise."""

    check: SignatureCheck
    open: bool


class Receiver:
    """Works on the messages in the inbox of one desk."""

    def __init__(self, desk: Desk, *, dice: random.Random | None = None) -> None:
        self._desk = desk
        self._dice = dice or random.SystemRandom()
        self._doubts: list[str] = []
        self._filed: list[int] = []
        self._refused: list[int] = []

    async def visit(
        self, peer: Peer, *, everything: bool = False, wanted: Sequence[int] = ()
    ) -> Arrivals:
        """Bring home what the logged-in server ``peer`` has for us.

        ``everything`` asks for all mail again, and fetches what is too large, was stamped below
        our price or refused before; ``wanted`` are the numbers of such messages.
        """
        await self._sweep()
        for number in wanted:
            self._desk.inbox.want(number)
        for mailbox in self._desk.terms.mailboxes:
            await self._ask(peer, mailbox, everything=everything)
        if everything:
            for message in self._desk.inbox.at(*WAITING, Step.REFUSED):
                if message.step is not Step.FETCHED:
                    self._desk.inbox.want(message.number)
        await abreast(self._arriving(everything=everything), partial(self._bring, peer))
        async with self._desk.servers.keeping_links():
            await abreast(self._desk.inbox.at(Step.FILED), partial(self._acknowledge, peer))
        inbox = self._desk.inbox
        refused = tuple(one for one in inbox.at(Step.REFUSED) if one.number in self._refused)
        waiting = inbox.at(*WAITING)
        return Arrivals(tuple(self._filed), waiting, refused, tuple(self._doubts))

    async def _acknowledge(self, peer: Peer, message: ArrivingMessage) -> None:
        reason = await acknowledge(self._desk, message, peer)
        if reason is not None:
            self._doubts.append(f"mail {message.mail} is not acknowledged yet: {reason}")

    # Which messages there are.

    async def _ask(self, peer: Peer, mailbox: str, *, everything: bool) -> None:
        desk, now = self._desk, self._desk.clock()
        key = mailbox_key(mailbox, desk.settings.key_id)
        since = None if everything else desk.inbox.since(mailbox, now)
        lines = await peer.get(key, since)
        found = await asyncio.to_thread(read_entries, lines or (), key, now, self._doubts)
        newest = None
        with desk.database.unit():
            for entry in found:
                if isinstance(entry.block, MessageAnnouncement):
                    newest = max(newest or entry.block.date, entry.block.date)
                    step = self._first_step(entry.block, entry.bits)
                    desk.inbox.add(entry.block, entry.bits, step)
            desk.inbox.note_asked(mailbox, newest, now, full=since is None)

    def _first_step(self, announcement: MessageAnnouncement, bits: int) -> Step:
        """Judge by what was paid: in work, or with a token made from a secret that we gave."""
        if self._desk.terms.paid_by(bits, len(announcement.stamp.nonces)):
            return Step.ANNOUNCED
        fit = self._desk.bypass.fit(announcement)
        if fit is not None and self._desk.blocklist.holds(fit.key_id):
            return Step.REFUSED
        return Step.UNDERPAID if fit is None or fit.revoked else Step.ANNOUNCED

    def _arriving(self, *, everything: bool) -> list[ArrivingMessage]:
        """Return what may be tried now, in the order of the inbox."""
        now, messages = self._desk.clock(), self._desk.inbox.at(Step.ANNOUNCED, Step.FETCHED)
        return [message for message in messages if everything or message.may_be_tried(now)]

    # Their bytes.

    async def _bring(self, peer: Peer, message: ArrivingMessage) -> None:
        """Fetch, open and file one message, as far as it comes."""
        directory = make_private(self._directory(message))
        asked = message.wanted or self._comes_from_known(message)
        limit, opened = None if asked else MAX_UNASKED, None
        if message.step is Step.ANNOUNCED:
            keys = message.announcement.data_blocks
            free = shutil.disk_usage(directory).free
            if free < len(keys) * _ROOM_FOR_A_BLOCK:
                reason = (
                    f"its {len(keys)} blocks may be too large for a disk with {free} free bytes"
                )
                self._desk.inbox.record_step(message.number, Step.ANNOUNCED, reason)
                return
            if limit is not None and len(keys) * peer.channel.piece_size > limit:
                self._leave_large(message, _MAY_BE_LARGE)
                return
            found = await self._fetch(peer, message, directory, limit)
            if found is None:
                return
            opened = found.opened
        await self._open(peer, message, opened, limit)

    async def _fetch(
        self, peer: Peer, message: ArrivingMessage, directory: Path, limit: int | None
    ) -> Here | None:
        """Fetch the blocks; ``None`` if they are not all here and good, and why is recorded."""
        announcement, passphrase = message.announcement, self._desk.passphrase
        fetching = Fetching(
            peer,
            announcement,
            directory,
            watcher=self._desk.watcher,
            limit=limit,
            doubts=self._doubts,
        )

        def opener(joined: JoinedPieces) -> OpenedSeal:
            return open_seal(
                joined,
                keyring=self._desk.keyring,
                passphrase=passphrase,
                directory=directory,
                limit=limit,
                watcher=self._desk.watcher,
            )

        for _ in range(_MAX_FETCHES):
            match await fetching.bring(opener):
                case TooLarge():
                    self._leave_large(message, _MAY_BE_LARGE)
                    return None
                case Missing(position):
                    self._wait_for_blocks(message, position)
                    return None
                case Here(opened=None) as here:
                    pieces = pieces_in(directory, announcement)
                    if await asyncio.to_thread(fits, pieces, announcement.message_hash):
                        await self._keep(message)
                        return here
                    bad = await asyncio.to_thread(damaged, pieces)
                    if not bad:
                        self._refuse(message, "its pieces together do not fit the MessageHash")
                        return None
                    # Damaged on our disk: these are fetched again.
                    for error in bad:
                        (directory / error.key.hex).unlink(missing_ok=True)
                case here:
                    return here
        reason = "its blocks are damaged as soon as they are on this disk"
        self._desk.inbox.record_step(message.number, Step.ANNOUNCED, reason)
        return None

    def _comes_from_known(self, message: ArrivingMessage) -> bool:
        """Return whether a token shows that the sender was written to; else he is a stranger."""
        fit = self._desk.bypass.fit(message.announcement)
        return fit is not None and not fit.revoked

    async def _keep(self, message: ArrivingMessage, reason: str = "") -> None:
        """Record that all blocks are here, once they are on stable storage."""
        pieces = pieces_in(self._directory(message), message.announcement)
        step = Step.FETCHED
        try:
            await asyncio.to_thread(sync_files, *(piece.path for piece in pieces))
        except FileNotFoundError as error:
            step, reason = Step.ANNOUNCED, str(error)
        self._desk.inbox.record_step(message.number, step, reason)

    def _leave_large(self, message: ArrivingMessage, reason: str) -> None:
        """Let a large mail lie until the user asks for it."""
        self._desk.inbox.record_step(message.number, Step.LARGE, reason)
        shutil.rmtree(self._directory(message), ignore_errors=True)

    def _wait_for_blocks(self, message: ArrivingMessage, present: int) -> None:
        """Wait for the rest of a message as long as servers may still get it."""
        if self._outlived(message):
            date = message.announcement.date.isoformat()
            self._doubts.append(f"a mail of {date} is given up: its blocks never came")
            self._desk.inbox.forget(message.number)
            return
        total = len(message.announcement.data_blocks)
        reason = f"block {present + 1} of {total} is not on the server yet"
        self._desk.inbox.record_step(message.number, Step.ANNOUNCED, reason)

    def _outlived(self, message: ArrivingMessage) -> bool:
        lifetime = BLOCK_POLICY[BlockType.MESSAGE_ANNOUNCEMENT].max_age
        return self._desk.clock() - message.announcement.date >= lifetime

    # What they say, and who says it.

    async def _open(
        self,
        peer: Peer,
        message: ArrivingMessage,
        opened: OpenedSeal | None,
        limit: int | None,
    ) -> None:
        """Open, verify and file a message whose blocks are here, unless it is open already.

        What is filed has ``limit`` bytes at most.
        """
        desk = self._desk
        try:
            if opened is None:
                opened = await self._open_pieces(message, limit)
            letter = await asyncio.to_thread(open_letter, opened.zip_file)
            if desk.blocklist.holds(letter.header.sender):
                self._refuse(message, f"its sender {letter.header.sender} is blocked")
                return
            verified = await self._verify(peer, letter, opened)
            if verified.open and not self._outlived(message):
                await self._keep(message, _undecided(letter.header, verified.check))
                return
            await self._file(peer, message, letter, opened, verified.check, limit)
        except LargerThanTaken as error:
            self._leave_large(message, str(error))
        except BadPiece as error:
            desk.inbox.record_step(message.number, Step.ANNOUNCED, str(error))
        except (BadMessage, NotForUs) as error:
            self._refuse(message, str(error))
        except WrongPassphrase:
            raise
        except (ClientError, Undecided, OSError) as error:
            # This mail may be opened another day; the others must not wait for it.
            if self._outlived(message):
                self._refuse(message, f"it could not be opened for too long: {error}")
            elif isinstance(error, GpgFailed) and await self._is_to_blame(message, error):
                self._refuse(message, f"gpg is well, but gives it up: {error.details}")
            else:
                await self._keep(message, str(error))
                self._put_off(message)

    async def _is_to_blame(self, message: ArrivingMessage, error: GpgFailed) -> bool:
        """Return whether gpg gives this mail up again and again, and opens a seal of ours.

        Of some damage it says no more than when it is ill itself, so that one try tells nothing.
        """
        if not error.gave_up or message.tries == 0:
            return False
        keyring, own = self._desk.keyring, self._desk.settings.key_id
        return await asyncio.to_thread(keyring.opens_own_seal, own, self._desk.passphrase)

    def _put_off(self, message: ArrivingMessage) -> None:
        """Try again at the next visit, and from then on more and more rarely.

        What another hour does not mend, as a mail that is sealed to somebody else, asks the user
        for his passphrase each time, or keeps gpg busy.
        """
        now, failed = self._desk.clock(), message.tries + 1
        again = now if failed == 1 else next_try(failed - 1, now, self._dice)
        self._desk.inbox.put_off(message.number, again)

    async def _open_pieces(self, message: ArrivingMessage, limit: int | None) -> OpenedSeal:
        directory, passphrase = self._directory(message), self._desk.passphrase
        pieces = pieces_in(directory, message.announcement)
        if not await asyncio.to_thread(fits, pieces, message.announcement.message_hash):
            bad = await asyncio.to_thread(damaged, pieces)
            for error in bad:
                (directory / error.key.hex).unlink(missing_ok=True)
            raise bad[0] if bad else BadMessage("its pieces do not fit the MessageHash")
        return await asyncio.to_thread(
            open_seal,
            JoinedPieces.of(pieces),
            keyring=self._desk.keyring,
            passphrase=passphrase,
            directory=directory,
            watcher=self._desk.watcher,
            size=sum(piece.path.stat().st_size for piece in pieces if piece.path.exists()),
            limit=limit,
        )

    async def _verify(self, peer: Peer, letter: OpenedLetter, opened: OpenedSeal) -> _Verified:
        """Check the signature by the sender's key, sought where that tells nobody."""
        keyring, sender = self._desk.keyring, letter.header.sender
        lookup = KeyLookup(peer, self._desk.verifier, self._desk.clock())
        brought, check = letter.key_files().get(sender), opened.check
        held = self._desk.correspondents.newest(sender)
        if brought is not None and (held is None or not _same_text(brought, held)):
            await self._learn(await lookup.in_text(_lines(brought), sender))
            check = None
        elif held is not None and (check is None or check.open_to_keys):
            await self._learn_key(held)
            check = None
        proof = (opened.signature, opened.zip_file)
        if check is None:
            check = await asyncio.to_thread(keyring.verify_detached, *proof)
        # The owner of a key that has expired may have given it more time.
        if check.open_to_keys:
            await self._learn(await lookup.by_key_id(sender))
            check = await asyncio.to_thread(keyring.verify_detached, *proof)
        self._doubts += lookup.doubts
        unreached = False
        for source in sources_for_sender(self._desk, peer, letter.header):
            if not check.open_to_keys:
                break
            answer = await self._ask_for_key(source, sender)
            if answer is None:
                unreached = True
            elif answer.keys:
                check = await asyncio.to_thread(keyring.verify_detached, *proof)
        if check.key_missing and await asyncio.to_thread(keyring.has, sender):
            # The sender's key is here, so the one that is missing is another's, or new.
            foreign = replace(check, key_missing=False, reason="it is not signed by its sender")
            return _Verified(foreign, unreached)
        return _Verified(check, check.key_missing or (check.key_expired and unreached))

    async def _ask_for_key(self, source: KeySource, sender: KeyId) -> Answer | None:
        """Keep and return what a source has of the sender's key; ``None`` if it is not reached."""
        try:
            answer = await source.by_key_id(sender)
        except NetworkError as error:
            self._doubts.append(f"{source.name} was not asked for the key {sender}: {error}")
            return None
        self._doubts += (f"{source.name}: {doubt}" for doubt in answer.doubts)
        for found in answer.keys:
            await self._learn(found)
        return answer

    async def _learn(self, found: FoundKey | None) -> None:
        """Keep a key that was found, but for our own."""
        if found is None or found.key_id == self._desk.settings.key_id:
            return
        self._desk.correspondents.remember(found)
        await self._learn_key(found.announcement)

    async def _learn_key(self, announcement: KeyAnnouncement) -> None:
        armored = announcement.signed.armored_key.decode()
        try:
            await asyncio.to_thread(self._desk.keyring.import_public, armored)
        except BadKey as error:
            self._doubts.append(f"{announcement.user_id}: {error.reason}")

    # Where they are kept.

    async def _file(
        self,
        peer: Peer,
        message: ArrivingMessage,
        letter: OpenedLetter,
        opened: OpenedSeal,
        check: SignatureCheck,
        limit: int | None,
    ) -> None:
        desk, header, now = self._desk, letter.header, self._desk.clock()
        known = desk.correspondents.known(address_in(header.sender_user_id))
        state, remark = judged(header, check, known, desk.settings.key_id)
        seen, hidden = in_sight(header)
        envelope = Envelope(
            folder=Folder.INBOX,
            unique_id=header.unique_id,
            message_hash=message.announcement.message_hash,
            sender=header.sender_user_id,
            sender_key=header.sender,
            recipients=seen,
            subject=header.subject,
            date=header.date,
            signature=state,
            remark=remark,
            checked=now,
            hidden=hidden,
            original=await self._original(peer, message, letter, limit),
            signer=check.signer,
            signed_at=check.signed_at,
        )
        due = None
        if state is SignatureState.VALID and not remark:
            due = await self._due(message, letter)
        filed = await desk.folders.file(envelope, opened.zip_file, opened.signature, now)
        if filed.new:
            self._filed.append(filed.number)
        desk.inbox.record_filed(message.number, filed.number, due)
        await asyncio.to_thread(shutil.rmtree, self._directory(message), ignore_errors=True)

    async def _original(
        self, peer: Peer, message: ArrivingMessage, letter: OpenedLetter, limit: int | None
    ) -> int | None:
        """File what is forwarded in a mail; a bad original is no fault of who passes it on."""

        async def verify(inner: OpenedLetter, opened: OpenedSeal) -> SignatureCheck:
            verified = await self._verify(peer, inner, opened)
            # The mail around it does not wait, so it is not judged.
            return replace(verified.check, key_missing=verified.open)

        message_hash, directory = message.announcement.message_hash, self._directory(message)
        try:
            return await file_original(
                self._desk, letter, message_hash, verify, directory, limit=limit
            )
        except (BadMessage, GpgFailed) as error:
            # A failure may pass, but a mail is not given up for what is forwarded in it.
            if isinstance(error, GpgFailed) and not await self._is_to_blame(message, error):
                raise
            self._doubts.append(f"the original in a mail of {letter.header.sender}: {error}")
            return None

    async def _due(
        self, message: ArrivingMessage, letter: OpenedLetter
    ) -> DueAcknowledgment | None:
        """Return what is owed to the sender, if the mail says so in good order.

        A bypass secret that comes with it is kept, unless others could have read it.
        """
        own, header = self._desk.settings.key_id, letter.header
        named, ack = header.recipient(own), letter.ack_file(own)
        if named is None or named.ack_key is None or ack is None:
            return None
        try:
            content = ack.content
            if ack.sealed:
                content = await asyncio.to_thread(
                    self._desk.keyring.decrypt_bytes, content, self._desk.passphrase
                )
            told = parse_ack(content)
        except (BadMessage, NotForUs, NotOpened, GpgFailed) as error:
            # The last two may pass, but a mail that is open is not given up for them.
            passes = isinstance(error, NotOpened | GpgFailed) and not self._outlived(message)
            if isinstance(error, GpgFailed) and passes:
                passes = not await self._is_to_blame(message, error)
            if passes:
                raise
            self._doubts.append(f"no acknowledgment for mail of {header.sender}: {error}")
            return None
        if ack.sealed and told.bypass is not None:
            self._desk.bypass.keep(header.sender, told.bypass)
        servers = self._acknowledged_at(header)
        if acknowledgment_key(told.ack) != named.ack_key or servers is None:
            return None
        return DueAcknowledgment(told.ack, str(servers), None)

    def _acknowledged_at(self, header: Header) -> Transport | None:
        """Return where the sender looks for acknowledgments: as he announces, or as he wrote."""
        announced = self._desk.correspondents.newest(header.sender)
        return announced.transport if announced is not None else header.sender_transport

    # What all steps need.

    async def _sweep(self) -> None:
        """Remove what a program that was stopped left of messages that are done."""
        open_messages = self._desk.inbox.at(*WAITING)
        names = {str(message.number) for message in open_messages}
        for directory in self._desk.home.incoming.iterdir():
            if directory.name not in names:
                await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    def _directory(self, message: ArrivingMessage) -> Path:
        return self._desk.home.incoming / str(message.number)

    def _refuse(self, message: ArrivingMessage, reason: str) -> None:
        """Give up a message that no repetition can mend."""
        self._desk.inbox.record_step(message.number, Step.REFUSED, reason)
        self._refused.append(message.number)
        shutil.rmtree(self._directory(message), ignore_errors=True)


def _undecided(header: Header, check: SignatureCheck) -> str:
    """Return why the signature of a mail is not judged yet."""
    if check.key_missing:
        return _no_key(header)
    return f"{check.reason} as far as is known, and not all could be asked for a newer key"


def _no_key(header: Header) -> str:
    """Return why a mail waits; what the user can do shows him to the sender's server."""
    named = header.sender_transport.servers if header.sender_transport is not None else ()
    reason = f"the key of its sender {header.sender} cannot be found"
    if not named:
        return reason
    return (
        f"{reason}; `sealmail key find {header.sender.hex} --server {named[0]}` asks where he "
        "says he lives, and shows you there"
    )


def _lines(text: bytes) -> list[bytes]:
    """Return the lines of a block from a file, whichever way they end."""
    return text.replace(b"\r\n", b"\n").rstrip(b"\n").split(b"\n")


def _same_text(brought: bytes, held: KeyAnnouncement) -> bool:
    return _lines(brought) == _lines(held.signed.message)
