"""Taking text blocks in: examine, verify, then decide and commit together. ``DONE`` comes after.

The same few steps serve STORE, REPLICATE and what is judged again after it had to wait.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import TypeGuard, TypeVar

from sealmail_protocol.blocks import AddressClaim, BlockType, KeyAnnouncement
from sealmail_protocol.bundles import split_bundle
from sealmail_protocol.canonical import BodyDigest
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.policy import (
    HARD_TEXT_BODY,
    MAX_FUTURE_REPLICATED,
    SMALLEST_ANNOUNCEMENT,
)
from sealmail_protocol.replies import Accepted, Refused, Verdict, parse_verdict, refused, worst
from sealmail_server.accounts import AccountState
from sealmail_server.admission import (
    VERDICT_KEPT,
    Decision,
    StaleCertificate,
    admit,
    admit_data,
    certificate_for,
)
from sealmail_server.bundle_memory import BundleMemory
from sealmail_server.candidates import Arrival, Candidate, examine, signed_by
from sealmail_server.clock_guard import Believed, Watch
from sealmail_server.data_intake import DataIntake
from sealmail_server.limits import Limits
from sealmail_server.partnership import Partnership
from sealmail_server.quotas import Arriving
from sealmail_server.refusals import Refusals
from sealmail_server.visitor import Visitor
from sealmail_server.waiting import MAY_WAIT, arrival_of, lines_of
from sealmail_store import (
    WAITING_PAGE,
    BlockStore,
    StoredEntry,
    StoreError,
    Tombstone,
    WaitingEntry,
    WriteView,
)
from sealmail_store import Verdict as StoredVerdict
from sealmail_verify import BadSignature, BrokeVerifier, Undecided, VerifierPool

_log = logging.getLogger(__name__)

# A dropped mail stays away longer than any copy of it may live.
TOMBSTONE_KEPT = timedelta(days=12)
# Entries of a bundle decided in one unit of work; more would keep the writer from others.
_SLICE = 64
# No body has room for more blocks than this: the rest would be separators with nothing between.
MAX_ENTRIES = HARD_TEXT_BODY // SMALLEST_ANNOUNCEMENT
# A body up to this size costs less to examine than to hand to another thread.
_SMALL = 8 * 1024
_FEW_LINES = 500
# How soon it is seen that a doubtful clock is right again.
_LOOK_SECONDS = 1.0
# A key that changes under a claim more often than this is changed by somebody on purpose.
_ATTEMPTS = 3

T = TypeVar("T")
_Lines = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of a body: the digest to ask its verdict by, and what became of it so far."""

    digest: bytes
    candidate: Candidate | None = None
    refusal: InvalidBlock | None = None

    @classmethod
    def unread(cls, lines: _Lines, error: InvalidBlock) -> "_Entry":
        """Return an entry whose lines do not parse."""
        digest = hashlib.sha256(b"".join(line + b"\r\n" for line in lines)).digest()
        return cls(digest, refusal=error)

    def refused(self, error: InvalidBlock) -> "_Entry":
        return replace(self, refusal=error)


class Intake:
    """Takes blocks into the store, and remembers what became of each.

    Beside a verdict all its calls may raise ``StoreError`` or ``Undecided``: nothing was decided
    then, for want of room or of a verifier, and the sender may try again. What waits is judged
    again only while ``watch`` takes the clock for right.
    """

    def __init__(
        self,
        store: BlockStore,
        verifier: VerifierPool,
        clock: Callable[[], datetime],
        limits: Limits | None = None,
        partnership: Partnership | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._store = store
        self._verifier = verifier
        self._clock = clock
        self._limits = limits or Limits()
        self._partnership = partnership or Partnership()
        self._watch = watch or Believed()
        self._refusals = Refusals()
        self._bundles = BundleMemory()
        self._arriving = Arriving()
        # Whom more waits for than was judged at once, and the place to go on.
        self._left_waiting: dict[bytes, int] = {}
        self._more_waits = asyncio.Event()

    async def take_text(self, key: BlockKey, lines: _Lines, visitor: Visitor) -> Verdict:
        """Take a text body, entry by entry; the verdict is that of its worst entry."""
        return await self._take(key, lines, Arrival.stored(visitor))

    async def replicate_text(self, key: BlockKey, lines: _Lines, poster: str | None) -> Verdict:
        """Take a text body that the partner took from ``poster``."""
        return await self._take(key, lines, Arrival.replicated_for(poster))

    async def wait_with_partner(
        self, key: BlockKey, lines: _Lines, poster: str | None, until: datetime
    ) -> bool:
        """Let an entry wait that waits at the partner, or in; tell whether it need not come again.

        One that was decided here before stays that. Why one is not kept is not remembered: the
        partner, which goes on with it, tells it again.
        """
        arrival = Arrival.waiting_at_partner(poster, until)
        [entry] = await self._examine(key, [lines], arrival)
        candidate = entry.candidate
        if candidate is None or candidate.block.type not in MAY_WAIT:
            return False
        stored = await self._store.read(lambda view: view.verdict(entry.digest))
        if stored is not None and stored.kept_until >= self._clock():
            # Telling it again must not bring back what was dropped, say.
            return True
        [verdict] = await self._commit([await self._verified(entry)], arrival)
        self._partnership.wake()
        return not isinstance(verdict, Refused)

    @property
    def limits(self) -> Limits:
        """Return the bounds by which blocks are judged."""
        return self._limits

    def receive_data(self, key: BlockKey, lines: _Lines, visitor: Visitor) -> DataIntake:
        """Begin to take a data block, whose bytes come in chunks."""
        return self._receive(key, lines, Arrival.stored(visitor))

    def replicate_data(self, key: BlockKey, lines: _Lines, poster: str | None) -> DataIntake:
        """Begin to take a data block that the partner took from ``poster``."""
        return self._receive(key, lines, Arrival.replicated_for(poster))

    def receive_proxied(self, key: BlockKey, lines: _Lines, owner: str) -> DataIntake:
        """Begin to take a data block that its owner gives to be delivered elsewhere."""
        return self._receive(key, lines, Arrival(owner, owner))

    async def take_held(self, entry: StoredEntry, visitor: Visitor) -> Verdict:
        """Take a data block whose bytes are here already, held for delivery."""
        arrival = Arrival.stored(visitor)
        given = self._given(arrival)
        entry = replace(
            entry, type=BlockType.DATA, identity=b"", poster=arrival.poster, source=arrival.source
        )
        try:
            verdict = await self._store.write(lambda view: admit_data(view, entry, given))
        except InvalidBlock as error:
            return self.remember_refusal(entry.digest, error, arrival.source)
        await self._told((entry.digest,))
        return verdict

    async def drop(self, key: BlockKey, digest: bytes, visitor: Visitor) -> bool:
        """Remove an entry of the visitor's own mailbox for good; ``False`` if there is none."""
        owner = visitor.key_id if visitor.confirmed else None
        if owner is None:
            return False
        now = self._clock()
        until = now + TOMBSTONE_KEPT

        def remove(view: WriteView) -> bool:
            entry = view.announcement_by_digest(key, digest)
            if entry is None or entry.holder != owner.raw:
                return False
            view.remove_entry(entry.type, entry.key, entry.identity)
            stone = Tombstone(key, digest, entry.identity, until)
            view.bury(stone)
            self._partnership.tell_drop(view, stone, now)
            return True

        removed = await self._store.write(remove)
        await self._told((digest,))
        return removed

    async def take_tombstone(self, stone: Tombstone) -> None:
        """Remove for good what its owner has dropped at the partner, whatever its stamp here.

        A stone that names the digest in the place of an identity finds that version alone.
        """
        latest = self._clock() + TOMBSTONE_KEPT + MAX_FUTURE_REPLICATED
        stone = replace(stone, until=min(stone.until, latest))

        def remove(view: WriteView) -> None:
            held = view.announcement_by_digest(stone.key, stone.digest)
            named = stone if held is None else replace(stone, identity=held.identity)
            view.remove_entry(BlockType.MESSAGE_ANNOUNCEMENT, named.key, named.identity)
            view.bury(named)

        await self._store.write(remove)

    def questions(self, digest: bytes) -> int:
        """Return how many verdicts have to be looked up to tell the one of this digest."""
        return max(1, len(self._bundles.entries_of(digest)))

    async def verdict(self, digest: bytes) -> Verdict | None:
        """Return what became of the block, or of the worst entry of the bundle, of this digest."""
        [verdict] = await self._verdicts((digest,))
        entries = self._bundles.entries_of(digest)
        if verdict is not None or not entries:
            return verdict
        verdicts = await self._verdicts(entries)
        known = tuple(each for each in verdicts if each is not None)
        # Of an entry that nothing is known of the sender may hear worse yet.
        whole = worst(known) if known else None
        return whole if isinstance(whole, Refused) or len(known) == len(verdicts) else None

    async def _verdicts(self, digests: Sequence[bytes]) -> list[Verdict | None]:
        """Return the verdicts of single blocks as they are now."""
        stored = await self._store.read(lambda view: [view.verdict(each) for each in digests])
        verdicts = {
            digest: self._told_of(digest, each)
            for digest, each in zip(digests, stored, strict=True)
        }
        accepted = [each for each in verdicts if isinstance(verdicts[each], Accepted)]
        for digest in await self._partnership.lacks(accepted) if accepted else ():
            verdicts[digest] = Accepted(degraded=True)
        return [verdicts[digest] for digest in digests]

    def _told_of(self, digest: bytes, stored: StoredVerdict | None) -> Verdict | None:
        if stored is None or stored.kept_until < self._clock():
            return self._refusals.of(digest)
        return parse_verdict(stored.text)

    async def judge_waiting(self, userid: str) -> int:
        """Judge again what waits for ``userid``, whose account, price or key has come.

        Return how many entries no longer wait. What is more than a page is left to
        ``judge_the_rest``, so that nobody has to wait for it.
        """
        try:
            awaits = bytes.fromhex(userid)
        except ValueError:
            return 0
        if not self._watch.is_right():
            self._leave_waiting(awaits, 0)
            return 0
        place, page = await self._waiting(awaits, 0)
        judged = await self._judge_page(page)
        if len(page) >= WAITING_PAGE:
            self._leave_waiting(awaits, place)
        return judged

    async def judge_the_rest(self) -> None:
        """Judge page by page what was left waiting, until cancelled."""
        while True:
            await self._more_waits.wait()
            self._more_waits.clear()
            while self._left_waiting:
                if not self._watch.is_right():
                    await asyncio.sleep(_LOOK_SECONDS)
                    continue
                # One page of each in turn: nobody's crowd keeps the others waiting.
                awaits = next(iter(self._left_waiting))
                await self._judge_next_page(awaits, self._left_waiting.pop(awaits))
                await asyncio.sleep(0)

    async def _judge_next_page(self, awaits: bytes, after: int) -> None:
        try:
            place, page = await self._waiting(awaits, after)
            await self._judge_page(page)
        except (StoreError, Undecided) as error:
            _log.error("what waits for %s is judged at the next start: %s", awaits.hex(), error)
            return
        if len(page) >= WAITING_PAGE:
            self._leave_waiting(awaits, place)

    async def judge_all_waiting(self) -> None:
        """Leave to ``judge_the_rest`` all that waits for what is here.

        A stop may have come between an arrival and its judging, and an account may have come
        while no server was running.
        """
        state = AccountState.CONFIRMED
        for awaits in await self._store.read(lambda view: view.arrived(account_state=state)):
            self._leave_waiting(awaits, 0)

    def _leave_waiting(self, awaits: bytes, place: int) -> None:
        """Leave what waits beyond ``place`` to ``judge_the_rest``."""
        self._left_waiting[awaits] = min(place, self._left_waiting.get(awaits, place))
        self._more_waits.set()

    def remember_refusal(self, digest: bytes, error: InvalidBlock, source: str = "") -> Verdict:
        """Remember why a block of a source was refused, for as long as there is room."""
        return self._refusals.remember(digest, error, source)

    def _receive(self, key: BlockKey, lines: _Lines, arrival: Arrival) -> DataIntake:
        return DataIntake(
            self._store,
            key,
            lines,
            arrival,
            self._clock,
            self._limits,
            self._arriving,
            partial(self.remember_refusal, source=arrival.source),
            self._partnership,
        )

    def _given(self, arrival: Arrival) -> Decision:
        return Decision(arrival, self._clock(), self._limits, self._partnership)

    async def _told(self, digests: Sequence[bytes]) -> None:
        """Let the partner be told, before DONE is said if it is to be."""
        self._partnership.wake()
        await self._partnership.has_all(digests)

    async def _take(self, key: BlockKey, lines: _Lines, arrival: Arrival) -> Verdict:
        entries, whole = await _off_the_loop((lines,), lambda: _cut(lines))
        if len(entries) > MAX_ENTRIES:
            error = InvalidBlock(Refusal.FORM, f"more than {MAX_ENTRIES} entries in one body")
            return self.remember_refusal(whole, error, arrival.source)
        verdicts: list[Verdict] = []
        digests: list[bytes] = []
        for start in range(0, len(entries), _SLICE):
            part = await self._examine(key, entries[start : start + _SLICE], arrival)
            verdicts += await self._settle(part, arrival)
            digests += [entry.digest for entry in part]
            if start + _SLICE < len(entries):
                # Entries that are refused at once would never let others have their turn.
                await asyncio.sleep(0)
        if not arrival.replicated:
            # Once for all of them: who is slow is waited for once.
            stored = zip(digests, verdicts, strict=True)
            await self._told([digest for digest, each in stored if not isinstance(each, Refused)])
        if len(entries) > 1:
            self._bundles.remember(whole, digests)
        return worst(tuple(verdicts))

    async def _examine(
        self, key: BlockKey, entries: list[_Lines], arrival: Arrival
    ) -> list[_Entry]:
        """Do all checks that need no store, in another thread when they may take long."""
        now = self._clock()

        def work() -> list[_Entry]:
            return [_examined(lines, key, arrival, now, self._limits) for lines in entries]

        return await _off_the_loop(entries, work)

    async def _settle(self, entries: Sequence[_Entry], arrival: Arrival) -> list[Verdict]:
        """Verify and commit; what was committed as a key may let others in that wait for it."""
        entries = [await self._verified(entry) for entry in entries]
        verdicts = await self._commit(entries, arrival)
        for entry, verdict in zip(entries, verdicts, strict=True):
            if isinstance(verdict, Refused):
                error = InvalidBlock(verdict.code, verdict.text)
                self.remember_refusal(entry.digest, error, arrival.source)
            elif isinstance(verdict, Accepted) and _is_key(entry.candidate):
                await self._judge_for(entry.candidate.key.hex)
        if not arrival.replicated:
            self._partnership.wake()
        return verdicts

    async def _judge_for(self, userid: str) -> None:
        """Judge what waits for a key that was accepted, which stands whatever comes of it."""
        try:
            await self.judge_waiting(userid)
        except (StoreError, Undecided) as error:
            _log.error("what waits for %s is judged at the next start: %s", userid, error)

    async def _verified(self, entry: _Entry) -> _Entry:
        """Verify a signed block, off the loop; the others pass."""
        candidate = entry.candidate
        if entry.refusal is not None or candidate is None:
            return entry
        block = candidate.block
        if not isinstance(block, KeyAnnouncement | AddressClaim):
            return entry
        try:
            armored, announced_by = block.signed.armored_key, None
            if isinstance(block, AddressClaim):
                claim = block
                found = await self._store.read(lambda view: certificate_for(view, claim))
                if found is None:
                    return entry
                armored, announced_by = found.armored_key, found.announced_by
            verification = await self._verifier.verify(
                block.signed.message, armored, signed_by(block, candidate.key)
            )
        except InvalidBlock as error:
            return entry.refused(error)
        except BrokeVerifier as error:
            _log.error("a block broke its verifier: %s", error)
            return entry.refused(InvalidBlock(Refusal.INTERNAL, str(error)))
        except Undecided:
            raise
        except BadSignature as error:
            return entry.refused(InvalidBlock(Refusal.SIGNATURE, error.reason))
        proven = replace(candidate, revoked=verification.revoked, verified_by=announced_by)
        return replace(entry, candidate=proven)

    async def _commit(self, entries: Sequence[_Entry], arrival: Arrival) -> list[Verdict]:
        """Decide and store in one unit of work; one that breaks it is refused by itself."""
        given = self._given(arrival)
        if not any(entry.refusal is None for entry in entries):
            return [_refusal(entry.refusal) for entry in entries if entry.refusal is not None]
        try:
            return await self._store.write(
                lambda view: [_decide(view, entry, given) for entry in entries]
            )
        except StoreError:
            raise
        except Exception as error:
            if len(entries) > 1:
                return [(await self._commit([entry], arrival))[0] for entry in entries]
            if isinstance(error, StaleCertificate):
                return [await self._commit_claim(entries[0], arrival)]
            _log.exception("a block broke its admission")
            return [refused(Refusal.INTERNAL, "this server could not decide about the block")]

    async def _commit_claim(self, entry: _Entry, arrival: Arrival) -> Verdict:
        """Verify a claim by the key that came meanwhile."""
        for _ in range(_ATTEMPTS):
            entry = await self._verified(entry)
            if entry.refusal is not None:
                return _refusal(entry.refusal)
            given = self._given(arrival)
            with suppress(StaleCertificate):
                return await self._store.write(partial(_decide, entry=entry, given=given))
        raise Undecided("the key of a claim does not stay the same")

    async def _waiting(self, awaits: bytes, place: int) -> tuple[int, tuple[WaitingEntry, ...]]:
        return await self._store.read(lambda view: view.waiting(awaits, place))

    async def _judge_page(self, page: tuple[WaitingEntry, ...]) -> int:
        """Decide anew about a page in one unit of work: strangers can let thousands wait."""
        if not page:
            return 0
        judged = []
        for waiting in page:
            arrival = arrival_of(waiting)
            [entry] = await self._examine(waiting.key, [lines_of(waiting)], arrival)
            given = self._given(arrival)
            judged.append((waiting, await self._verified(entry), given))

        def judge(view: WriteView) -> int:
            return sum(
                self._close(view, waiting, _decide(view, entry, given), given.now)
                for waiting, entry, given in judged
            )

        try:
            closed = await self._store.write(judge)
            self._partnership.wake()
            return closed
        except StoreError:
            raise
        except Exception:  # one entry broke it: each is decided by itself
            return sum([await self._judge_again(*each) for each in judged])

    async def _judge_again(self, waiting: WaitingEntry, entry: _Entry, given: Decision) -> bool:
        [verdict] = await self._commit([entry], given.arrival)
        return await self._store.write(lambda view: self._close(view, waiting, verdict, given.now))

    def _close(
        self, view: WriteView, waiting: WaitingEntry, verdict: Verdict, now: datetime
    ) -> bool:
        """Replace the PENDING of an entry that need not wait any more; tell whether it was one.

        What looks too old by a clock that has jumped waits on.
        """
        if isinstance(verdict, Refused):
            decided = verdict.code is not Refusal.DATE or self._watch.may_delete()
        else:
            decided = isinstance(verdict, Accepted)
        if not decided:
            return False
        view.put_verdict(StoredVerdict(waiting.digest, str(verdict), now + VERDICT_KEPT))
        return view.remove_waiting(waiting.digest)


async def _off_the_loop(entries: Sequence[_Lines], work: Callable[[], T]) -> T:
    """Do in another thread what takes long for many or long lines."""
    few = sum(map(len, entries)) <= _FEW_LINES
    if few and sum(len(line) for lines in entries for line in lines) <= _SMALL:
        return work()
    return await asyncio.to_thread(work)


def _cut(lines: _Lines) -> tuple[list[_Lines], bytes]:
    """Return the entries of a body, one more at most than it may have, and its digest."""
    entries = list(islice(split_bundle(lines), MAX_ENTRIES + 1))
    # That of a single entry is its own, and asked for under that.
    return entries, BodyDigest.of(lines) if len(entries) > 1 else b""


def _examined(
    lines: _Lines, key: BlockKey, arrival: Arrival, now: datetime, limits: Limits
) -> _Entry:
    try:
        candidate = examine(lines, key, arrival, now, limits)
    except InvalidBlock as error:
        return _Entry.unread(lines, error)
    except Exception:  # whatever a stranger's bytes set off, the others are served
        _log.exception("a block broke its examination")
        reason = "this server could not read the block"
        return _Entry.unread(lines, InvalidBlock(Refusal.INTERNAL, reason))
    return _Entry(candidate.digest, candidate)


def _decide(view: WriteView, entry: _Entry, given: Decision) -> Verdict:
    if entry.refusal is not None or entry.candidate is None:
        return _refusal(entry.refusal)
    try:
        return admit(view, entry.candidate, given)
    except InvalidBlock as error:
        return _refusal(error)


def _refusal(error: InvalidBlock | None) -> Verdict:
    if error is None:
        return refused(Refusal.INTERNAL, "an entry without a candidate")
    return refused(error.code, error.reason)


def _is_key(candidate: Candidate | None) -> TypeGuard[Candidate]:
    return candidate is not None and candidate.block.type is BlockType.KEY_ANNOUNCEMENT
