"""Comparing with the partner: what it lacks of what is here is queued for it.

Accounts, tombstones, the outgoing queue and what waits are told whole. The first copy after a
pairing is that, and the repair when the queue could not hold everything. Both servers do it, each
for what it has itself. Where it has got to is written down together with what was queued, so that
it goes on after a stop.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from sealmail_net.errors import BadAnswer
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.commands import PartnerList, PartnerSync
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Listing
from sealmail_server.outgoing.telling import tell_again
from sealmail_server.outgoing.told import ROW_KINDS
from sealmail_server.partnership import COMPARED_TO, RESYNC, Partnership, is_shared, needs_resync
from sealmail_store import BlockStore, QueueKind, ReadView, WriteView

_log = logging.getLogger(__name__)

# Entries compared in one unit of work, and lines of one PARTNER LIST: whole keys, so some more.
_SLICE = 200
LISTED = 1000
# While more than this waits for the partner, nothing is added to it.
_ENOUGH = 2000
_WAIT_SECONDS = 0.2
# Keys before claims, which wait for them, and data before what names it.
_ORDER = (
    BlockType.KEY_ANNOUNCEMENT,
    BlockType.ADDRESS_CLAIM,
    BlockType.DATA,
    BlockType.MESSAGE_ANNOUNCEMENT,
    BlockType.ACKNOWLEDGMENT,
)
_FIRST, _LAST = BlockKey(bytes(20)), BlockKey(b"\xff" * 20)


@dataclass(frozen=True, slots=True)
class _Place:
    """How far a comparison has got: the next type and key, and what was queued so far."""

    stage: int = 0
    key: str = _FIRST.hex
    copied: int = 0

    @classmethod
    def read(cls, view: ReadView) -> "_Place | None":
        text = view.setting(COMPARED_TO)
        return None if text is None else cls(**json.loads(text))

    def write(self, view: WriteView) -> None:
        view.put_setting(COMPARED_TO, json.dumps(asdict(self)))


class _Overtaken(Exception):
    """Something was left out of the queue meanwhile: everything is to be compared again."""


class Comparison:
    """Goes over all that is stored, once each time that ``ask_for_comparison`` was called."""

    def __init__(
        self, store: BlockStore, clock: Callable[[], datetime], partnership: Partnership
    ) -> None:
        self._store = store
        self._clock = clock
        self._partnership = partnership

    async def progress(self) -> dict[str, Any] | None:
        """Return how far it has got, for the operator; ``None`` while there is nothing to do."""
        needed, place = await self._store.read(
            lambda view: (needs_resync(view), _Place.read(view))
        )
        if not needed:
            return None
        place = place or _Place()
        done = (place.stage + int(place.key[:4], 16) / 0x10000) / len(_ORDER)
        return {"percent": round(100 * done), "queued": place.copied}

    async def run(self, remote: RemoteServer) -> None:
        """Compare everything with what ``remote`` lists; may be cut short and run again."""
        place = await self._store.read(_Place.read)
        if place is None:
            place = await self._begin()
        _log.warning("comparing with the partner")
        try:
            while place.stage < len(_ORDER):
                place = await self._compare_from(remote, place)
            await self._store.write(_end)
        except _Overtaken:
            return
        _log.warning("compared with the partner: %d blocks queued for it", place.copied)

    async def _begin(self) -> _Place:
        """Queue all accounts, tombstones, proxied and waiting blocks: few, and not listed."""
        now, place = self._clock(), _Place()
        accounts = await self._store.read(lambda view: view.accounts())
        shared = [each for each in accounts if is_shared(each)]
        for start in range(0, len(shared), _SLICE):
            part = shared[start : start + _SLICE]

            def tell(view: WriteView) -> None:
                for account in part:  # noqa: B023 - the work is done before the next slice
                    if not view.queue.is_waiting(account.auth_key_hash, QueueKind.ACCOUNT):
                        self._partnership.tell_account(view, account, now)

            await self._store.write(tell)
        after = -1
        while True:
            following, stones = await self._store.read(
                lambda view: view.tombstones(after, _SLICE)  # noqa: B023 - as above
            )
            if not stones:
                break
            after = following

            def bury(view: WriteView) -> None:
                for stone in stones:  # noqa: B023 - as above
                    self._partnership.tell_drop(view, stone, now)

            await self._store.write(bury)
        await self._tell_queue(now)
        await self._tell_waiting(now)
        await self._store.write(place.write)
        self._partnership.wake()
        return place

    async def _tell_queue(self, now: datetime) -> None:
        """Tell of every proxied block, also of those of which the partner is the owner.

        It may have lost them, or have been put in the place of the one that did.
        """
        for kind in ROW_KINDS:
            after = 0
            while rows := await self._store.read(
                lambda view: view.queue.all(kind, after=after, limit=_SLICE)  # noqa: B023 - above
            ):
                after = rows[-1].number

                def tell(view: WriteView) -> None:
                    for row in rows:
                        tell_again(view, row, now)

                await self._store.write(tell)

    async def _tell_waiting(self, now: datetime) -> None:
        """Tell of what waits here; of what the partner let in it is the partner to tell."""
        after = 0
        while True:
            after, page = await self._store.read(lambda view: view.all_waiting(after))  # noqa: B023 - as above
            if not page:
                return

            def tell(view: WriteView) -> None:
                for each in page:  # noqa: B023 - as above
                    # One may have gone meanwhile, and its row would stay.
                    if not each.replicated and view.is_waiting(each.digest):
                        self._partnership.tell_waiting(view, each.digest, each.key, now, new=True)

            await self._store.write(tell)

    async def _compare_from(self, remote: RemoteServer, place: _Place) -> _Place:
        """Compare one page of the partner's listing with what is here; return the next place."""
        kind, first = _ORDER[place.stage], BlockKey.from_hex(place.key)
        listed = await _listing(remote, kind, first)
        last = max((key for key, _ in listed), key=lambda key: key.raw, default=_LAST)
        theirs = {digest for _, digest in listed}
        after: bytes | None = b""
        while after is not None:
            await self._wait_for_room()
            place, after = await self._store.write(
                lambda view: self._queue_slice(view, place, last, theirs, after or b"")  # noqa: B023
            )
            self._partnership.wake()
        following = _after(last)
        if following is None:
            place = replace(place, stage=place.stage + 1, key=_FIRST.hex)
        else:
            place = replace(place, key=following.hex)
        await self._store.write(partial(_go_on, place=place))
        return place

    def _queue_slice(
        self, view: WriteView, place: _Place, last: BlockKey, theirs: set[bytes], after: bytes
    ) -> tuple[_Place, bytes | None]:
        """Queue what is missing of one slice; return the place, ``None`` behind it at the end.

        It ends before the first one that there is no room for.
        """
        kind, now = _ORDER[place.stage], self._clock()
        first = BlockKey.from_hex(place.key)
        names = view.names_between(kind, first, last, limit=_SLICE, after=after)
        missing = [each for each in names if each.digest not in theirs]
        room, whole = self._partnership.room(view), len(names) < _SLICE
        if len(missing) > room:
            names, missing, whole = names[: names.index(missing[room])], missing[:room], False
        copied = sum(self._partnership.copy_entry(view, each, kind, now) for each in missing)
        if whole:
            return replace(place, copied=place.copied + copied), None
        if not names:
            return place, after
        place = replace(place, key=names[-1].key.hex, copied=place.copied + copied)
        _go_on(view, place)
        return place, names[-1].identity or b"\0"

    async def _wait_for_room(self) -> None:
        """Wait until most of what was queued is told.

        What was set aside is waited for only when there is no room for more: a partner that takes
        nothing must not make the queue as large as the store.
        """
        while await self._store.read(self._is_full):  # noqa: ASYNC110 - it is the store's
            await asyncio.sleep(_WAIT_SECONDS)

    def _is_full(self, view: ReadView) -> bool:
        if not self._partnership.room(view):
            return True
        due = view.queue.count_due(QueueKind.REPLICATE, self._clock(), _ENOUGH + 1)
        return due > _ENOUGH


def list_names(view: ReadView, kind: str, first: BlockKey) -> tuple[str, ...]:
    """Return the lines of a PARTNER LIST: whole keys, ``LISTED`` lines and what then belongs."""
    names = view.names_between(kind, first, _LAST, limit=LISTED)
    if len(names) == LISTED:
        under = names[-1]
        names += view.names_between(
            kind, under.key, under.key, limit=10 * LISTED**2, after=under.identity or b"\0"
        )
    return tuple(f"{each.key} {each.digest.hex()}" for each in names)


async def ask_partner_to_compare(remote: RemoteServer) -> None:
    """Have the partner look for what we lack."""
    await remote.call(PartnerSync())


async def _listing(
    remote: RemoteServer, kind: BlockType, first: BlockKey
) -> list[tuple[BlockKey, bytes]]:
    reply = await remote.call(PartnerList(kind, first))
    if not isinstance(reply, Listing):
        raise BadAnswer(remote.address, f"{reply} to PARTNER LIST")
    try:
        lines = [line.split(" ") for line in reply.lines]
        listed = [(BlockKey.from_hex(key), bytes.fromhex(digest)) for key, digest in lines]
    except ValueError as error:
        raise BadAnswer(remote.address, f"no line of a PARTNER LIST ({error})") from error
    # Who goes backwards would never let the comparison come to its end.
    if any(key.raw < first.raw for key, _ in listed):
        raise BadAnswer(remote.address, f"a PARTNER LIST from {first} with a key before that")
    return listed


def _after(key: BlockKey) -> BlockKey | None:
    number = int.from_bytes(key.raw) + 1
    return None if number >> 160 else BlockKey(number.to_bytes(20))


def _go_on(view: WriteView, place: _Place) -> None:
    if _Place.read(view) is None:
        raise _Overtaken
    place.write(view)


def _end(view: WriteView) -> None:
    if _Place.read(view) is None:
        raise _Overtaken
    view.remove_setting(COMPARED_TO)
    view.remove_setting(RESYNC)
