"""What users and the operator are told of the queue, and what the operator may do with it."""

from datetime import datetime
from functools import partial
from typing import Any

from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.dates import format_date
from sealmail_server.outgoing.postman import Postman
from sealmail_server.outgoing.rows import wire_row
from sealmail_server.outgoing.telling import Teller
from sealmail_server.outgoing.told import ROW_KINDS
from sealmail_store import BlockStore, QueueKind, QueueRow, QueueState, ReadView, WriteView

_PAGE = 500
# Lines of one QUEUE, some 10 MB: clients take listings up to 16 MiB.
MAX_TOLD = 50_000
# The operator's list comes in pages of so many rows: a long queue is too much for one answer.
SHOWN_AT_ONCE = 5_000
# A place in that list: whether it is among the copies for the partner, and a number.
Place = tuple[bool, int]
BEGINNING: Place = (False, 0)
# What the operator took out of the queue is a dead letter with this code.
DROPPED = "dropped"


class QueueDesk:
    """Shows rows; with a ``postman`` changes reach him at once, without one they wait for him."""

    def __init__(self, store: BlockStore, teller: Teller, postman: Postman | None = None) -> None:
        self._store = store
        self._teller = teller
        self._postman = postman

    async def told(self, owner: str, since: datetime | None) -> tuple[str, ...]:
        """Return the rows of one login as QUEUE lists them, the oldest that fit into an answer."""
        lines: list[str] = []
        after = 0
        while len(lines) < MAX_TOLD and (
            rows := await self._store.read(partial(_owned, owner=owner, since=since, after=after))
        ):
            lines += [str(wire_row(row)) for row in rows]
            after = rows[-1].number
        return tuple(lines)

    async def rows(
        self,
        *,
        full: bool,
        delivered: bool = True,
        after: Place = BEGINNING,
        limit: int = SHOWN_AT_ONCE,
    ) -> list[dict[str, Any]]:
        """Return a page of rows for the operator, those last of which the partner is the owner.

        The next page is ``after`` the last row of this one; behind the end it is empty. ``full``
        shows where those go that wait.
        """
        found: list[dict[str, Any]] = []
        copy, number = after
        for kind in ROW_KINDS[copy:]:
            while rows := await self._store.read(partial(_all, kind=kind, after=number)):
                number = rows[-1].number
                found += [
                    _shown(row, full=full)
                    for row in rows
                    if delivered or row.state != QueueState.DELIVERED
                ]
                if len(found) >= limit:
                    return found[:limit]
            number = 0
        return found

    async def retry(self, number: int | None) -> int:
        """Let one row be tried now, or all that wait; return how many."""
        numbers = [row.number for row in await self._waiting(number)]

        def hasten(view: WriteView) -> None:
            for each in numbers:
                view.queue.hasten(each)

        await self._store.write(hasten)
        if self._postman is not None:
            self._postman.hasten(numbers)
        return len(numbers)

    async def drop(self, number: int) -> bool:
        """Give a waiting row up: its sender finds a dead letter."""
        dropped = await self._teller.settled(number, QueueState.GIVEN_UP, DROPPED)
        if dropped and self._postman is not None:
            self._postman.book.forget(number)
        return dropped

    async def counts(self) -> dict[str, int]:
        """Return how many rows there are in each state."""
        states = dict.fromkeys(QueueState, 0)
        after = 0
        while rows := await self._store.read(partial(_all, kind=QueueKind.PROXY, after=after)):
            for row in rows:
                states[QueueState(row.state)] += 1
            after = rows[-1].number
        return {str(state): number for state, number in states.items()}

    def down(self) -> tuple[ServerAddress, ...]:
        """Return the servers that are thought to be down."""
        return self._postman.routes.down() if self._postman else ()

    async def _waiting(self, number: int | None) -> list[QueueRow]:
        found: list[QueueRow] = []
        after = 0 if number is None else number - 1
        while rows := await self._store.read(partial(_all, kind=QueueKind.PROXY, after=after)):
            found += [row for row in rows if row.state == QueueState.WAITING]
            if number is not None:
                return [row for row in found if row.number == number]
            after = rows[-1].number
        return found


def _owned(view: ReadView, owner: str, since: datetime | None, after: int) -> tuple[QueueRow, ...]:
    return view.queue.owned(owner, since, after=after, limit=_PAGE)


def _all(view: ReadView, kind: QueueKind, after: int) -> tuple[QueueRow, ...]:
    return view.queue.all(kind, after=after, limit=_PAGE)


def _shown(row: QueueRow, *, full: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "number": row.number,
        "copy": row.kind == QueueKind.MIRRORED,
        "user": row.owner,
        "type": row.type,
        "key": row.key.hex if row.key else None,
        "line": row.line,
        "state": row.state,
        "code": row.code,
        "attempts": row.attempts,
        "queued": format_date(row.queued),
        "last": format_date(row.last) if row.last else None,
        "next": format_date(row.not_before) if row.not_before else None,
    }
    return {**shown, "target": row.destination or None} if full else shown
