"""What brings announced messages home: ask, fetch, open, verify, file and acknowledge.

Each step leaves its mark in the inbox before the next begins, and may be repeated.
"""

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sealmail_client.ack_files import parse_ack
from sealmail_client.answers import read_entries
from sealmail_client.cutting import PieceFile, join
from sealmail_client.desk import Desk
from sealmail_client.errors import BadKey, BadMessage, BadPiece, NotForUs
from sealmail_client.folders import Envelope, Folder, SignatureState
from sealmail_client.gpg_status import SignatureCheck
from sealmail_client.headers import Header
from sealmail_client.inbox import ArrivingMessage, DueAcknowledgment, Step
from sealmail_client.key_lookup import FoundKey, KeyLookup
from sealmail_client.message_zip import OpenedLetter, open_letter
from sealmail_client.posting import NotTaken, Peer
from sealmail_client.progress import mint_watched
from sealmail_client.safe_files import make_private, sync_file
from sealmail_client.sealing import OpenedSeal, open_seal
from sealmail_net.errors import DamagedBlock, NetworkError
from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.blocks import Acknowledgment, BlockType, MessageAnnouncement
from sealmail_protocol.compose import make_acknowledgment
from sealmail_protocol.keys import BlockKey, KeyId, acknowledgment_key, mailbox_key
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_protocol.stamps import acknowledgment_challenge

_SEALED_NAME = "sealed.pgp"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What one visit to the home server brought."""

    filed: tuple[int, ...]
    waiting: tuple[ArrivingMessage, ...]
    refused: tuple[ArrivingMessage, ...]
    doubts: tuple[str, ...]


class Receiver:
    """Works on the messages in the inbox of one desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._doubts: list[str] = []
        self._filed: list[int] = []
        self._refused: list[int] = []

    async def visit(self, peer: Peer, *, everything: bool = False) -> Arrivals:
        """Bring home what the logged-in server ``peer`` has for us.

        ``everything`` asks for all mail again, and fetches what was stamped below our price.
        """
        if everything:
            for message in self._desk.inbox.at(Step.UNDERPAID):
                self._desk.inbox.record_step(message.number, Step.ANNOUNCED)
        for mailbox in self._desk.settings.mailboxes:
            await self._ask(peer, mailbox, everything=everything)
        for message in self._desk.inbox.at(Step.ANNOUNCED):
            await self._fetch(peer, message)
        for message in self._desk.inbox.at(Step.FETCHED):
            await self._open(peer, message)
        for message in self._desk.inbox.at(Step.FILED):
            await self._acknowledge(message)
        inbox = self._desk.inbox
        refused = tuple(one for one in inbox.at(Step.REFUSED) if one.number in self._refused)
        waiting = inbox.at(Step.ANNOUNCED, Step.FETCHED, Step.UNDERPAID)
        return Arrivals(tuple(self._filed), waiting, refused, tuple(self._doubts))

    # Which messages there are.

    async def _ask(self, peer: Peer, mailbox: str, *, everything: bool) -> None:
        desk, now = self._desk, self._desk.clock()
        key = mailbox_key(mailbox, desk.settings.key_id)
        since = None if everything else desk.inbox.since(mailbox, now)
        lines = await peer.server.get(key, since)
        found = await asyncio.to_thread(read_entries, lines or (), key, now, self._doubts)
        newest = None
        for entry in found:
            if isinstance(entry.block, MessageAnnouncement):
                newest = max(newest or entry.block.date, entry.block.date)
                step = self._first_step(entry.bits, len(entry.block.stamp.nonces), everything)
                desk.inbox.add(entry.block, entry.bits, step)
        desk.inbox.note_asked(mailbox, newest, now, full=since is None)

    def _first_step(self, bits: int, nonces: int, everything: bool) -> Step:
        price = self._desk.settings.price
        paid = bits >= price.bits and nonces >= price.nonces
        return Step.ANNOUNCED if paid or everything else Step.UNDERPAID

    # Their bytes.

    async def _fetch(self, peer: Peer, message: ArrivingMessage) -> None:
        directory = make_private(self._directory(message))
        keys = message.announcement.data_blocks
        missing = 0
        with self._desk.watcher.task(f"fetching a mail of {len(keys)} blocks") as report:
            for position, key in enumerate(keys):
                missing += not await self._fetch_block(peer, key, directory / key.hex)
                report((position + 1) / len(keys))
        if missing:
            reason = f"{missing} of {len(keys)} blocks are not on the server yet"
            self._desk.inbox.record_step(message.number, Step.ANNOUNCED, reason)
            return
        try:
            await asyncio.to_thread(self._join, message, directory)
        except BadPiece as error:
            # Damaged on our disk: fetched again at the next visit.
            (directory / error.key.hex).unlink(missing_ok=True)
            self._desk.inbox.record_step(message.number, Step.ANNOUNCED, str(error))
        except BadMessage as error:
            self._refuse(message, error.reason)
        else:
            self._desk.inbox.record_step(message.number, Step.FETCHED)

    async def _fetch_block(self, peer: Peer, key: BlockKey, target: Path) -> bool:
        """Fetch one block unless it is here; it gets its name when it is whole and proven."""
        if await asyncio.to_thread(target.exists):
            return True
        partial = target.with_suffix(".part")
        try:
            with await asyncio.to_thread(partial.open, "wb") as file:
                header = await peer.server.get_data(key, file.write)
        except DamagedBlock as error:
            self._doubts.append(str(error))
            header = None
        if header is None:
            await asyncio.to_thread(partial.unlink)
            return False
        await asyncio.to_thread(partial.replace, target)
        return True

    def _join(self, message: ArrivingMessage, directory: Path) -> None:
        pieces = [PieceFile(key, directory / key.hex) for key in message.announcement.data_blocks]
        target = directory / _SEALED_NAME
        join(pieces, message.announcement.message_hash, target)
        sync_file(target)
        for piece in pieces:
            piece.path.unlink(missing_ok=True)

    # What they say, and who says it.

    async def _open(self, peer: Peer, message: ArrivingMessage) -> None:
        desk, directory = self._desk, self._directory(message)
        passphrase = desk.passphrase
        try:
            opened = await asyncio.to_thread(
                open_seal,
                directory / _SEALED_NAME,
                keyring=desk.keyring,
                passphrase=passphrase,
                directory=directory,
            )
            letter = await asyncio.to_thread(open_letter, opened.zip_file)
            check = await self._verify(peer, letter, opened)
            if check.key_missing:
                reason = f"the key of its sender {letter.header.sender} cannot be found"
                desk.inbox.record_step(message.number, Step.FETCHED, reason)
                return
            await self._file(message, letter, opened, check)
        except (BadMessage, NotForUs) as error:
            self._refuse(message, str(error))

    async def _verify(
        self, peer: Peer, letter: OpenedLetter, opened: OpenedSeal
    ) -> SignatureCheck:
        """Check the signature, after the sender's key has been sought where that tells nobody."""
        await self._learn_sender(peer, letter)
        return await asyncio.to_thread(
            self._desk.keyring.verify_detached, opened.signature, opened.zip_file
        )

    async def _learn_sender(self, peer: Peer, letter: OpenedLetter) -> None:
        """Take the sender's key from the mail itself, else from the home server."""
        sender = letter.header.sender
        if sender == self._desk.settings.key_id:
            return
        lookup = KeyLookup(peer.server, self._desk.verifier, self._desk.clock())
        brought = letter.key_files().get(sender)
        found: FoundKey | None = None
        if brought is not None:
            lines = brought.replace(b"\r\n", b"\n").rstrip(b"\n").split(b"\n")
            found = await lookup.in_text(lines, sender)
        if found is None and not await self._knows(sender):
            found = await lookup.by_key_id(sender)
        self._doubts += lookup.doubts
        if found is None:
            return
        self._desk.correspondents.remember(found)
        armored = found.announcement.signed.armored_key.decode()
        try:
            await asyncio.to_thread(self._desk.keyring.import_public, armored)
        except BadKey as error:
            self._doubts.append(f"{sender}: {error.reason}")

    async def _knows(self, key_id: KeyId) -> bool:
        return await asyncio.to_thread(self._desk.keyring.has, key_id)

    # Where they are kept.

    async def _file(
        self,
        message: ArrivingMessage,
        letter: OpenedLetter,
        opened: OpenedSeal,
        check: SignatureCheck,
    ) -> None:
        desk, header, now = self._desk, letter.header, self._desk.clock()
        state, remark = _judged(header, check, desk.settings.key_id)
        envelope = Envelope(
            folder=Folder.INBOX,
            unique_id=header.unique_id,
            message_hash=message.announcement.message_hash,
            sender=header.sender_user_id,
            sender_key=header.sender,
            recipients=tuple(one.user_id for one in header.recipients),
            subject=header.subject,
            date=header.date,
            signature=state,
            remark=remark,
            checked=now,
        )
        due = None
        if state is SignatureState.VALID and not remark:
            due = await self._due(letter)
        known = {mail.number for mail in desk.folders.all(Folder.INBOX)}
        number = desk.folders.file(envelope, opened.zip_file, opened.signature, now)
        if number not in known:
            self._filed.append(number)
        desk.inbox.record_filed(message.number, number, due)
        await asyncio.to_thread(shutil.rmtree, self._directory(message), ignore_errors=True)

    async def _due(self, letter: OpenedLetter) -> DueAcknowledgment | None:
        """Return what is owed to the sender, if the mail says so in good order."""
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
            secret = parse_ack(content).ack
        except (BadMessage, NotForUs) as error:
            self._doubts.append(f"no acknowledgment for mail of {header.sender}: {error}")
            return None
        servers = self._acknowledged_at(header)
        if acknowledgment_key(secret) != named.ack_key or servers is None:
            return None
        return DueAcknowledgment(secret, str(servers), None)

    def _acknowledged_at(self, header: Header) -> Transport | None:
        """Return where the sender looks for acknowledgments: as he announces, or as he wrote."""
        announced = self._desk.correspondents.newest(header.sender)
        return announced.transport if announced is not None else header.sender_transport

    # What is owed for them.

    async def _acknowledge(self, message: ArrivingMessage) -> None:
        due = message.due
        if due is None:
            self._desk.inbox.record_acknowledged(message.number)
            return
        block = due.block
        if block is None:
            date = self._desk.clock()
            challenge = acknowledgment_challenge(date, due.secret)
            floor = BLOCK_POLICY[BlockType.ACKNOWLEDGMENT].server_stamp
            stamp = await mint_watched(challenge, floor, "acknowledging", self._desk.watcher)
            block = make_acknowledgment(date, stamp, due.secret)
            self._desk.inbox.record_acknowledgment(message.number, block)
        servers = Transport.parse(due.servers).servers
        reason = await self._post_anywhere(servers, acknowledgment_key(due.secret), block)
        if reason is None:
            self._desk.inbox.record_acknowledged(message.number)
        else:
            self._desk.inbox.record_step(message.number, Step.FILED, reason)
            self._doubts.append(f"mail {message.mail} is not acknowledged yet: {reason}")

    async def _post_anywhere(
        self, servers: Sequence[ServerAddress], key: BlockKey, block: Acknowledgment
    ) -> str | None:
        """Leave an acknowledgment at one server of the group; return why none took it."""
        try:
            async with self._desk.servers.deliver(servers) as peer:
                outcome = await peer.post(key, block)
        except NetworkError as error:
            return str(error)
        return outcome.reason if isinstance(outcome, NotTaken) else None

    # What all steps need.

    def _directory(self, message: ArrivingMessage) -> Path:
        return self._desk.home.incoming / str(message.number)

    def _refuse(self, message: ArrivingMessage, reason: str) -> None:
        """Give up a message that no repetition can mend."""
        self._desk.inbox.record_step(message.number, Step.REFUSED, reason)
        self._refused.append(message.number)
        shutil.rmtree(self._directory(message), ignore_errors=True)


def _judged(header: Header, check: SignatureCheck, own: KeyId) -> tuple[SignatureState, str]:
    """Return what the signature is worth, and what the user must know besides."""
    if not check.valid:
        return SignatureState.INVALID, check.reason
    if check.signer != header.sender:
        return SignatureState.INVALID, f"it is signed by {check.signer}, not by its sender"
    if header.recipient(own) is None:
        return SignatureState.VALID, "it was written to others, and sealed to you by somebody"
    return SignatureState.VALID, ""
