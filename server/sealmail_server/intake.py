"""Taking a block in: examine, verify, then decide and commit together. ``DONE`` comes after."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from sealmail_pow import StampCheck
from sealmail_protocol.block_codec import parse_data_header, parse_text_block
from sealmail_protocol.blocks import (
    AddressClaim,
    BlockType,
    DataHeader,
    KeyAnnouncement,
    MessageAnnouncement,
)
from sealmail_protocol.bundles import split_bundle
from sealmail_protocol.canonical import data_digest
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.fields import decode_lines, join_lines, split_lines
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.policy import BLOCK_POLICY, Role
from sealmail_protocol.replies import Accepted, Verdict, parse_verdict, refused, worst
from sealmail_protocol.stamps import data_challenge_prefix
from sealmail_protocol.validity import check_date, check_stamp
from sealmail_server.accounts import confirm
from sealmail_server.admission import (
    Candidate,
    admit,
    certificate_for,
    displaces_data,
    examine,
    signed_by,
)
from sealmail_server.visitor import Visitor
from sealmail_store import BlockStore, StoredEntry, WriteView
from sealmail_store import Verdict as StoredVerdict
from sealmail_verify import BadSignature, Undecided, VerifierPool

VERDICT_KEPT = timedelta(days=14)
# Refusals are remembered in memory only: a stranger must not fill the disk with them.
MAX_REFUSALS = 10_000


class Intake:
    """Takes blocks into the store, and remembers what became of each."""

    def __init__(
        self, store: BlockStore, verifier: VerifierPool, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._verifier = verifier
        self._clock = clock
        self._refusals: OrderedDict[bytes, Verdict] = OrderedDict()

    async def take_text(
        self, key: BlockKey, lines: tuple[bytes, ...], visitor: Visitor
    ) -> Verdict:
        """Take a text body, entry by entry; the verdict is that of its worst entry."""
        try:
            entries = tuple(split_bundle(lines))
        except InvalidBlock as error:
            return self.remember_refusal(_digest_of_lines(lines), error)
        return worst(tuple([await self._take_entry(key, each, visitor) for each in entries]))

    def receive_data(
        self, key: BlockKey, lines: tuple[bytes, ...], visitor: Visitor
    ) -> "DataIntake":
        """Begin to take a data block, whose bytes come in chunks."""
        return DataIntake(self, self._store, key, lines)

    async def replicate_text(
        self, key: BlockKey, lines: tuple[bytes, ...], poster: str | None
    ) -> Verdict:
        """Take a text body that the partner took from ``poster``."""
        role = Role.USER if poster else Role.ANONYMOUS
        return await self.take_text(key, lines, Visitor(role, poster, confirmed=bool(poster)))

    def replicate_data(
        self, key: BlockKey, lines: tuple[bytes, ...], poster: str | None
    ) -> "DataIntake":
        """Begin to take a data block that the partner took from ``poster``."""
        return DataIntake(self, self._store, key, lines)

    async def drop(self, key: BlockKey, digest: bytes, visitor: Visitor) -> bool:
        """Remove an entry of the visitor's own mailbox; tell whether it was there."""
        return await self._store.write(lambda view: _drop(view, key, digest, visitor))

    async def judge_waiting(self, userid: str) -> None:
        """Judge again what waits for an account of ``userid``; nothing waits yet."""

    async def verdict(self, digest: bytes) -> Verdict | None:
        """Return what became of the block with this canonical digest."""
        stored = await self._store.read(lambda view: view.verdict(digest))
        if stored is not None:
            return parse_verdict(stored.text)
        return self._refusals.get(digest)

    async def _take_entry(
        self, key: BlockKey, lines: tuple[str, ...], visitor: Visitor
    ) -> Verdict:
        try:
            now = self._clock()
            block = await asyncio.to_thread(parse_text_block, lines)
            candidate = await asyncio.to_thread(examine, block, key, visitor, now)
            candidate = await self._verified(candidate)
            return await self._store.write(lambda view: self._commit(view, candidate, visitor))
        except InvalidBlock as error:
            return self.remember_refusal(hashlib.sha256(join_lines(lines)).digest(), error)

    async def _verified(self, candidate: Candidate) -> Candidate:
        block = candidate.block
        if not isinstance(block, KeyAnnouncement | AddressClaim):
            return candidate
        certificate = await self._store.read(lambda view: certificate_for(view, block))
        try:
            found = await self._verifier.verify(
                block.signed.message, certificate, signed_by(block, candidate.key)
            )
        except Undecided:
            raise
        except BadSignature as error:
            raise InvalidBlock(Refusal.SIGNATURE, error.reason) from None
        return replace(candidate, revoked=found.revoked)

    def _commit(self, view: WriteView, candidate: Candidate, visitor: Visitor) -> Verdict:
        now = self._clock()
        admit(view, candidate, visitor)
        if isinstance(candidate.block, KeyAnnouncement):
            confirm(view, visitor, candidate.block.date, now)
        return self.keep_verdict(view, candidate.entry(visitor.userid).digest)

    def keep_verdict(self, view: WriteView, digest: bytes) -> Verdict:
        """Commit the verdict of a block with the block itself."""
        verdict = Accepted()
        view.put_verdict(StoredVerdict(digest, str(verdict), self._clock() + VERDICT_KEPT))
        return verdict

    def remember_refusal(self, digest: bytes, error: InvalidBlock) -> Verdict:
        """Remember why a block was refused, for as long as there is room."""
        verdict = refused(error.code, error.reason)
        self._refusals[digest] = verdict
        self._refusals.move_to_end(digest)
        if len(self._refusals) > MAX_REFUSALS:
            self._refusals.popitem(last=False)
        return verdict

    def now(self) -> datetime:
        """Return the time that decisions are made by."""
        return self._clock()


class DataIntake:
    """One data block on its way in: its bytes go to disk as they come, hashed and checked."""

    def __init__(
        self, intake: Intake, store: BlockStore, key: BlockKey, lines: tuple[bytes, ...]
    ) -> None:
        self._intake = intake
        self._store = store
        self._key = key
        self._digest = _digest_of_lines(lines, key.raw)
        self._spool = store.spool()
        self._error: InvalidBlock | None = None
        try:
            self._header = self._examine(lines)
        except InvalidBlock as error:
            self._error = error
            return
        self._check = StampCheck(self._header.stamp)
        self._check.update(data_challenge_prefix(self._header.date))

    async def take(self, chunk: bytes) -> None:
        """Take the next bytes; those of a block already refused are dropped."""
        if self._error is None:
            await asyncio.to_thread(self._take, chunk)

    async def finish(self) -> Verdict:
        """Decide, commit, and return the verdict."""
        try:
            return await self._finish()
        except InvalidBlock as error:
            return self._intake.remember_refusal(self._digest, error)
        finally:
            await self.discard()

    async def discard(self) -> None:
        """Forget the bytes of a block that is not stored."""
        await asyncio.to_thread(self._spool.discard)

    def _take(self, chunk: bytes) -> None:
        self._spool.write(chunk)
        self._check.update(chunk)

    def _examine(self, lines: tuple[bytes, ...]) -> DataHeader:
        header = parse_data_header(decode_lines(lines))
        policy = BLOCK_POLICY[BlockType.DATA]
        if header.size > policy.size:
            raise InvalidBlock(Refusal.SIZE, f"more than {policy.size} bytes")
        check_date(header, self._intake.now())
        return header

    async def _finish(self) -> Verdict:
        if self._error is not None:
            raise self._error
        bits = self._check.bits()
        check_stamp(
            bits, len(self._header.stamp.nonces), BLOCK_POLICY[BlockType.DATA].server_stamp
        )
        data = await asyncio.to_thread(self._spool.finish)
        if data.key != self._key:
            raise InvalidBlock(Refusal.KEY, f"its bytes belong under {data.key}")
        entry = StoredEntry(
            type=BlockType.DATA,
            key=self._key,
            identity=b"",
            date=self._header.date,
            header=join_lines(self._header.lines),
            digest=data_digest(self._header, self._key),
            stamp_bits=bits,
            data=data,
        )
        return await self._store.write(lambda view: self._commit(view, entry))

    def _commit(self, view: WriteView, entry: StoredEntry) -> Verdict:
        held = view.entry(entry.type, entry.key)
        if held is None or displaces_data(entry, held):
            view.put_entry(entry)
        return self._intake.keep_verdict(view, entry.digest)


def _drop(view: WriteView, key: BlockKey, digest: bytes, visitor: Visitor) -> bool:
    for entry in view.entries(BlockType.MESSAGE_ANNOUNCEMENT, key):
        block = parse_text_block(split_lines(entry.header))
        is_own = isinstance(block, MessageAnnouncement) and block.recipient == visitor.key_id
        if entry.digest == digest and is_own:
            return view.remove_entry(entry.type, key, entry.identity)
    return False


def _digest_of_lines(lines: tuple[bytes, ...], end: bytes = b"") -> bytes:
    """Return the canonical digest of a body that may not even parse."""
    return hashlib.sha256(b"".join(line + b"\r\n" for line in lines) + end).digest()
