"""Taking blocks to be delivered elsewhere: checked and durable before DONE.

What can never be served is refused at once; so is what goes beyond the limits of its user. A
block that no server may take is answered DONE and becomes a dead letter.
"""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from sealmail_protocol.addresses import Transport
from sealmail_protocol.blocks import BlockType, type_named
from sealmail_protocol.bundles import SEPARATORS, split_bundle, split_post_to
from sealmail_protocol.commands import StoreProxy
from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Accepted, Refused, Verdict
from sealmail_server.admission import Decision
from sealmail_server.candidates import Arrival, examine
from sealmail_server.data_intake import DataIntake
from sealmail_server.intake import Intake
from sealmail_server.limits import Limits, QueueLimits
from sealmail_server.outgoing.postman import Postman
from sealmail_server.outgoing.rows import new_row, new_ticket
from sealmail_server.outgoing.strangers import Strangers
from sealmail_server.outgoing.targets import Doubt, Never, TargetRules
from sealmail_server.outgoing.telling import Teller
from sealmail_server.sources import Allowance, Rate
from sealmail_store import (
    PROXIED,
    BlockStore,
    QueueKind,
    QueueRow,
    QueueState,
    ShareFull,
    StoredEntry,
    WriteView,
    source_space,
)

T = TypeVar("T")
_Lines = tuple[bytes, ...]

# A body of so few lines costs less to look through than to hand to another thread.
_FEW_LINES = 500
# AFTER may not be further ahead.
MAX_AFTER = timedelta(days=3)
# Dead letters that one user may make of blocks that no server takes: they cost him nothing, and
# each is kept for two weeks.
_MALFORMED = Rate(per_second=1 / 10, burst=2000)


class NotServed(Exception):
    """A target or a time that is never served, or one beyond a limit: the answer is FAILED."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a user asks for: which block where, and when at the earliest."""

    key: BlockKey
    owner: str
    targets: tuple[Transport, ...]
    lines: _Lines
    queued: datetime
    start: datetime


class Acceptance:
    """The counter where users hand in what is to go elsewhere.

    Its calls raise ``NotServed``, or ``StoreError`` when there is no room now.
    """

    def __init__(
        self,
        store: BlockStore,
        intake: Intake,
        postman: Postman,
        teller: Teller,
        rules: TargetRules,
        strangers: Strangers,
        limits: QueueLimits,
        clock: Callable[[], datetime],
        steady_clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._intake = intake
        self._postman = postman
        self._teller = teller
        self._rules = rules
        self._limits = limits
        self._clock = clock
        self._steady_clock = steady_clock
        self._strangers = strangers
        self._malformed = Allowance(_MALFORMED)

    async def take_text(self, command: StoreProxy, lines: _Lines, owner: str) -> Verdict:
        """Queue a text block, or a bundle as one; its rows are durable on return."""
        order = await _off_the_loop(lines, lambda: self._order(command, lines, owner))
        self._hold_to_limits(order)
        arrival, limits = Arrival(owner, owner), self._intake.limits
        try:
            kind, entry = await _off_the_loop(
                order.lines, lambda: held_text(order, arrival, limits)
            )
        except InvalidBlock as error:
            named = await _off_the_loop(order.lines, lambda: _type_of(order.lines))
            return await self.refuse(order, named, error)
        self.hand_on(await self._store.write(lambda view: self.put(view, order, kind, entry)))
        await self._teller.told((entry.digest,))
        return Accepted()

    def receive_data(self, command: StoreProxy, lines: _Lines, owner: str) -> "ProxiedData":
        """Begin to take a data block; ``NotServed`` leaves its bytes to the caller."""
        order = self._order(command, lines, owner)
        self._hold_to_limits(order)
        intake = self._intake.receive_proxied(order.key, order.lines, owner)
        return ProxiedData(self, order, intake)

    def put(
        self, view: WriteView, order: Order, kind: BlockType, entry: StoredEntry
    ) -> list[QueueRow]:
        """Keep block and rows in one unit of work; what the user has waiting already stays."""
        self._check_room(view, order.owner, len(entry.header) + entry.size)
        waiting = {
            row.destination
            for row in view.queue.about(entry.digest, QueueKind.PROXY)
            if row.owner == order.owner and row.state == QueueState.WAITING
        }
        number, rows = 0, []
        for line, target in enumerate(order.targets, 1):
            if str(target) in waiting:
                continue
            waiting.add(str(target))
            number = number or view.hold(entry)
            row = new_row(
                ticket=new_ticket(),
                digest=entry.digest,
                key=order.key,
                type=kind,
                date=entry.date,
                entry=number,
                owner=order.owner,
                target=target,
                line=line,
                queued=order.queued,
                start=order.start,
            )
            rows.append(replace(row, number=view.queue.put(row)))
        if rows:
            self._teller.tell(view, rows[0], order.queued)
        return rows

    def hand_on(self, rows: Sequence[QueueRow]) -> None:
        """Let rows go that are durable."""
        for row in rows:
            self._postman.add(row)

    async def refuse(self, order: Order, kind: BlockType | None, error: InvalidBlock) -> Verdict:
        """Make a block that no server may take a dead letter, if it says what it is.

        Raises ``NotServed`` if its user makes too many.
        """
        digest = await _off_the_loop(order.lines, lambda: _digest(order, kind))
        if kind is not None:
            self._charge_malformed(order)
            rows = [
                QueueRow(
                    kind=QueueKind.PROXY,
                    digest=digest,
                    queued=order.queued,
                    type=kind,
                    key=order.key,
                    owner=order.owner,
                    line=line,
                    state=QueueState.REFUSED,
                    code=str(error.code),
                    last=order.queued,
                    ticket=new_ticket(),
                )
                for line in range(1, len(order.targets) + 1)
            ]

            def put(view: WriteView) -> None:
                for row in rows:
                    view.queue.put(row)
                self._teller.tell(view, rows[0], order.queued)

            await self._store.write(put)
            await self._teller.told((digest,))
        return self._intake.remember_refusal(digest, error, order.owner)

    def _order(self, command: StoreProxy, lines: _Lines, owner: str) -> Order:
        """Read the head of a body; ``NotServed`` if it asks for what is never done."""
        now, after = self._clock(), command.after
        if after is not None and after > now + MAX_AFTER:
            raise NotServed("AFTER is more than three days ahead")
        try:
            targets, block = split_post_to(lines)
        except InvalidBlock as error:
            raise NotServed(error.reason) from error
        targets = tuple(map(_in_order, targets))
        for number, target in enumerate(targets, 1):
            meaning = self._rules.judge(target)
            if isinstance(meaning, Never) and meaning.doubt is not Doubt.NETWORK:
                raise NotServed(f"Post-To line {number} is {meaning.doubt}")
        return Order(command.key, owner, targets, block, now, max(now, after or now))

    def _hold_to_limits(self, order: Order) -> None:
        board, limits, count = self._postman.board, self._limits, len(order.targets)
        if board.rows_of(order.owner) + count > limits.rows_by_user:
            raise NotServed(f"{order.owner} has too many blocks waiting")
        if len(board) + count > limits.rows:
            raise NotServed("too many blocks wait")
        self._charge_new_servers(order.owner, order.targets)

    def _charge_new_servers(self, owner: str, targets: Sequence[Transport]) -> None:
        """Let nobody have us dial one unknown server after the other without end."""
        # What he has waiting for a target already was charged for.
        bags = self._postman.board.bags
        added = [target for target in targets if (owner, target) not in bags]
        if not self._strangers.may_dial(owner, {each for one in added for each in one.servers}):
            raise NotServed(f"{owner} names too many servers that we do not know")

    def _charge_malformed(self, order: Order) -> None:
        moment = self._steady_clock()
        if self._malformed.wait(order.owner, moment) > 0:
            raise NotServed(f"{order.owner} hands in too much that no server may take")
        for _ in order.targets:
            self._malformed.charge(order.owner, moment)

    def _check_room(self, view: WriteView, owner: str, size: int) -> None:
        own = source_space(PROXIED, owner)
        for space, limit in ((own, self._limits.bytes_by_user), (PROXIED, self._limits.bytes)):
            if view.space(space).bytes + size > limit:
                raise ShareFull("blocks that wait for other servers", limit)


class ProxiedData:
    """One data block on its way into the queue."""

    def __init__(self, acceptance: Acceptance, order: Order, intake: DataIntake) -> None:
        self._acceptance = acceptance
        self._order = order
        self._intake = intake

    async def take(self, chunk: bytes) -> None:
        """Take the next bytes."""
        await self._intake.take(chunk)

    async def finish(self) -> Verdict:
        """Check the block, and queue it durably."""
        rows: list[QueueRow] = []

        def put(view: WriteView, entry: StoredEntry, _: Decision) -> Verdict:
            held = replace(entry, type=PROXIED, identity=entry.digest)
            rows.extend(self._acceptance.put(view, self._order, BlockType.DATA, held))
            return Accepted()

        verdict = await self._intake.finish(put)
        if isinstance(verdict, Refused):
            error = InvalidBlock(verdict.code, verdict.text)
            return await self._acceptance.refuse(self._order, BlockType.DATA, error)
        self._acceptance.hand_on(rows)
        return verdict

    async def discard(self) -> None:
        """Forget the bytes of a block that is not queued."""
        await self._intake.discard()


async def _off_the_loop(lines: Sequence[bytes], work: Callable[[], T]) -> T:
    """Do what costs by the line in another thread, unless it is little."""
    if len(lines) <= _FEW_LINES:
        return work()
    return await asyncio.to_thread(work)


def held_text(order: Order, arrival: Arrival, limits: Limits) -> tuple[BlockType, StoredEntry]:
    """Return a text block as it is held, and what it is; a bundle is one, its separators kept.

    Raises ``InvalidBlock`` if no server may take it.
    """
    candidates = [
        examine(each, order.key, arrival, order.queued, limits)
        for each in split_bundle(order.lines)
    ]
    first = candidates[0]
    separator = f"{SEPARATORS.get(first.block.type, '')}\r\n".encode()
    whole = b"".join(each.header for each in candidates)
    digest = first.digest if len(candidates) == 1 else hashlib.sha256(whole).digest()
    return first.block.type, StoredEntry(
        type=PROXIED,
        key=order.key,
        identity=digest,
        date=min(each.block.date for each in candidates),
        header=separator.join(each.header for each in candidates),
        digest=digest,
        stamp_bits=min(each.bits for each in candidates),
        poster=order.owner,
        source=order.owner,
    )


def _in_order(target: Transport) -> Transport:
    """Return a target with its servers in one order: they are equals, however they were listed."""
    return Transport(tuple(sorted(set(target.servers), key=str)))


def _digest(order: Order, kind: BlockType | None) -> bytes:
    """Return the digest by which a block can be asked for that does not parse."""
    body = b"".join(line + b"\r\n" for lines in split_bundle(order.lines) for line in lines)
    tail = order.key.raw if kind is BlockType.DATA else b""
    return hashlib.sha256(body + tail).digest()


def _type_of(lines: Sequence[bytes]) -> BlockType | None:
    """Return what a block says it is."""
    for line in lines:
        name, _, value = line.decode(errors="replace").partition(": ")
        if name.lower() == "type":
            return type_named(value)
    return None
