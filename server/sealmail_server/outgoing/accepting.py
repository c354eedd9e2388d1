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
from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Accepted, QueueState, Refused, Verdict
from sealmail_server.admission import Decision
from sealmail_server.candidates import Arrival, Candidate, examine
from sealmail_server.data_intake import DataIntake
from sealmail_server.intake import Intake
from sealmail_server.outgoing.postman import Postman
from sealmail_server.outgoing.rows import new_row
from sealmail_server.outgoing.targets import Doubt, Never, TargetRules
from sealmail_server.sources import Allowance, Rate
from sealmail_store import (
    PROXIED,
    BlockStore,
    QueueKind,
    QueueRow,
    ShareFull,
    StoredEntry,
    WriteView,
    source_space,
)
from sealmail_store import QueueState as StoredState

T = TypeVar("T")

# A body of so few lines costs less to look through than to hand to another thread.
_FEW_LINES = 500
# AFTER may not be further ahead.
MAX_AFTER = timedelta(days=3)
# Servers new to us that one user may have us dial: a mail to some hundred strangers at once, and
# as many an hour. More would make us a scanner of other people's hosts.
_NEW_SERVERS = Rate(per_second=512 / 3600, burst=512)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What may wait, in rows and bytes, in all and of one user."""

    rows: int = 100_000
    rows_by_user: int = 10_000
    bytes: int = 16 * 1024**3
    bytes_by_user: int = 2 * 1024**3


class NotServed(Exception):
    """A target or a time that is never served, or one beyond a limit: the answer is FAILED."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a user asks for: which block where, and when at the earliest."""

    key: BlockKey
    owner: str
    targets: tuple[Transport, ...]
    lines: tuple[bytes, ...]
    queued: datetime
    start: datetime


class Acceptance:
    """The counter where users hand in what is to go elsewhere."""

    def __init__(
        self,
        store: BlockStore,
        intake: Intake,
        postman: Postman,
        rules: TargetRules,
        limits: QueueLimits,
        clock: Callable[[], datetime],
        steady_clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._intake = intake
        self._postman = postman
        self._rules = rules
        self._limits = limits
        self._clock = clock
        self._steady_clock = steady_clock
        self._new_servers = Allowance(_NEW_SERVERS)

    async def order(
        self, key: BlockKey, lines: tuple[bytes, ...], after: datetime | None, owner: str
    ) -> Order:
        """Read the head of a body; ``NotServed`` if it asks for what is never done."""
        now = self._clock()
        if after is not None and after > now + MAX_AFTER:
            raise NotServed("AFTER is more than three days ahead")
        try:
            targets, block = await _off_the_loop(lines, lambda: split_post_to(lines))
        except InvalidBlock as error:
            raise NotServed(error.reason) from error
        for number, target in enumerate(targets, 1):
            meaning = self._rules.judge(target)
            if isinstance(meaning, Never) and meaning.doubt is not Doubt.NETWORK:
                raise NotServed(f"Post-To line {number} is {meaning.doubt}")
        board = self._postman.board
        if (
            board.rows_of(owner) + len(targets) > self._limits.rows_by_user
            or len(board) + len(targets) > self._limits.rows
        ):
            raise NotServed("too many blocks wait already")
        self._charge_new_servers(owner, targets)
        return Order(key, owner, targets, block, now, max(now, after or now))

    async def take_text(self, order: Order) -> Verdict:
        """Queue a text block, or a bundle as one; the rows are durable on return."""
        arrival, limits = Arrival(order.owner, order.owner), self._intake.limits

        def work() -> list[Candidate]:
            entries = split_bundle(order.lines)
            return [examine(each, order.key, arrival, order.queued, limits) for each in entries]

        try:
            candidates = await _off_the_loop(order.lines, work)
        except InvalidBlock as error:
            return await self._refuse(order, _type_of(order.lines), error)
        entry = _held(order, candidates)
        await self._queue(order, candidates[0].block.type, entry)
        return Accepted()

    def receive_data(self, order: Order) -> DataIntake:
        """Begin to take a data block; its rows are durable when it is finished."""
        return self._intake.receive_proxied(order.key, order.lines, order.owner)

    async def finish_data(self, order: Order, intake: DataIntake) -> Verdict:
        """Queue a data block all of whose bytes have come."""
        queued: list[QueueRow] = []

        def put(view: WriteView, entry: StoredEntry, given: Decision) -> Verdict:
            queued.extend(self._put(view, order, BlockType.DATA, _as_held(entry)))
            return Accepted()

        verdict = await intake.finish(put)
        if isinstance(verdict, Refused):
            return await self._refuse(
                order, BlockType.DATA, InvalidBlock(verdict.code, verdict.text)
            )
        self._hand_on(queued)
        return verdict

    async def _queue(self, order: Order, kind: BlockType, entry: StoredEntry) -> None:
        self._hand_on(await self._store.write(lambda view: self._put(view, order, kind, entry)))

    def _hand_on(self, rows: Sequence[QueueRow]) -> None:
        for row in rows:
            self._postman.add(row)

    def _put(
        self, view: WriteView, order: Order, kind: BlockType, entry: StoredEntry
    ) -> list[QueueRow]:
        """Keep block and rows; what the same user has waiting for a target already stays."""
        size = len(entry.header) + entry.size
        self._check_room(view, order.owner, size)
        waiting = {
            row.destination
            for row in view.queue.about(entry.digest, QueueKind.PROXY)
            if row.owner == order.owner and row.state == StoredState.WAITING
        }
        number, rows = 0, []
        for line, target in enumerate(order.targets, 1):
            if str(target) in waiting:
                continue
            waiting.add(str(target))
            number = number or view.hold(entry)
            row = new_row(
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
        return rows

    def _check_room(self, view: WriteView, owner: str, size: int) -> None:
        own = source_space(PROXIED, owner)
        for space, limit in ((own, self._limits.bytes_by_user), (PROXIED, self._limits.bytes)):
            if view.space(space).bytes + size > limit:
                raise ShareFull("blocks that wait for other servers", limit)

    async def _refuse(self, order: Order, kind: BlockType | None, error: InvalidBlock) -> Verdict:
        """Make a block that no server may take a dead letter at once."""
        digest = _digest(order, kind or BlockType.MESSAGE_ANNOUNCEMENT)
        if kind is not None:
            rows = [
                QueueRow(
                    kind=QueueKind.PROXY,
                    digest=digest,
                    queued=order.queued,
                    type=kind,
                    key=order.key,
                    owner=order.owner,
                    line=line,
                    state=StoredState(QueueState.REFUSED.value),
                    code=str(error.code),
                    last=order.queued,
                )
                for line in range(1, len(order.targets) + 1)
            ]
            await self._store.write(lambda view: [view.queue.put(row) for row in rows])
        return self._intake.remember_refusal(digest, error)

    def _charge_new_servers(self, owner: str, targets: Sequence[Transport]) -> None:
        """Let nobody have us dial one unknown server after the other without end."""
        routes, moment = self._postman.routes, self._steady_clock()
        new = {
            server
            for target in targets
            for server in target.servers
            if not routes.is_known(server) and server not in self._rules.own()
        }
        if new and self._new_servers.wait(owner, moment) > 0:
            raise NotServed("too many servers that we do not know in too short a time")
        for _ in new:
            self._new_servers.charge(owner, moment)


async def _off_the_loop(lines: Sequence[bytes], work: Callable[[], T]) -> T:
    """Do what costs by the line in another thread, unless it is little."""
    if len(lines) <= _FEW_LINES:
        return work()
    return await asyncio.to_thread(work)


def _held(order: Order, candidates: Sequence[Candidate]) -> StoredEntry:
    """Return a text block as it is held: a bundle is one, its separators kept."""
    first = candidates[0]
    separator = f"{SEPARATORS.get(first.block.type, '')}\r\n".encode()
    whole = b"".join(each.header for each in candidates)
    digest = first.digest if len(candidates) == 1 else hashlib.sha256(whole).digest()
    return StoredEntry(
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


def _as_held(entry: StoredEntry) -> StoredEntry:
    return replace(entry, type=PROXIED, identity=entry.digest)


def _digest(order: Order, kind: BlockType) -> bytes:
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
