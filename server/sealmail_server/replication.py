"""Telling the partner all that it has to know: the connection, and what waits while it is lost."""

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sealmail_net.dialing import DialSettings
from sealmail_net.errors import NetworkError
from sealmail_protocol.dates import format_date
from sealmail_protocol.errors import ProtocolError
from sealmail_server.clock_guard import Watch
from sealmail_server.comparing import Comparison
from sealmail_server.limits import Limits
from sealmail_server.partner_feed import PartnerFeed
from sealmail_server.partner_lane import Lane, call_on, is_original
from sealmail_server.partnership import (
    IS_ORIGINAL,
    PARTNER_KINDS,
    Mode,
    Partner,
    Partnership,
    needs_resync,
)
from sealmail_store import BlockStore, ReadView, StoreError, queue_space

_log = logging.getLogger(__name__)

# How long a STORE waits for the partner before it is answered without it.
PATIENCE_SECONDS = 5.0
# Pauses between attempts to reach the partner: doubled from the first to the last, and spread.
FIRST_PAUSE, LAST_PAUSE = 0.5, 30.0
# A connection on which something was told, or that stood for so long, was a good one: the next
# pause is short again.
_GOOD_SECONDS = 30.0
# Further connections while much waits, since the partner commits together what comes by several.
LANES = 8
_CROWD = 32
_LANE_IDLE_SECONDS = 2.0
# How soon a need to compare is seen, and how soon it is begun again after it was cut short.
_COMPARE_SECONDS = 1.0
# So many digests of what the partner took are remembered.
_CONFIRMED = 10_000


@dataclass(slots=True)
class _Standing:
    """How it stands with the partner; ``answers`` is whether it took what it was told last."""

    connected: bool = False
    since: datetime | None = None
    reason: str = "not reached yet"
    answers: bool = False
    waiters: dict[bytes, set["asyncio.Future[bool]"]] = field(default_factory=dict)


class Replication(Partnership):
    """The partnership of a running server; ``run`` is its work in the background."""

    def __init__(
        self,
        store: BlockStore,
        clock: Callable[[], datetime],
        limits: Limits,
        settings: DialSettings,
        mode: Mode,
        cap: int,
        partner: Partner | None,
        dice: random.Random | None = None,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(partner, cap)
        self.mode = mode
        self.comparison = Comparison(store, clock, self)
        self._store = store
        self._clock = clock
        self._settings = settings
        self._dice = dice or random.SystemRandom()
        self._original: bool | None = None
        self._began = clock()
        self._standing = _Standing()
        self._changed = asyncio.Event()
        # What the partner took last: while some of what it lacks has no row, who asks hears of it.
        self._confirmed: OrderedDict[bytes, None] = OrderedDict()
        self._feed = PartnerFeed(store, clock, limits, self._spread, self._told, watch)

    # What the rest of the server asks.

    @property
    def degraded(self) -> bool:
        """Whether STOREs are answered without the partner though they should wait for it."""
        standing = self._standing
        if self.mode is not Mode.BOTH or not self.paired:
            return False
        return not (standing.connected and standing.answers)

    @property
    def away_since(self) -> datetime | None:
        """Since when the partner cannot be reached; ``None`` if it can, or there is none."""
        standing = self._standing
        if not self.paired or standing.connected:
            return None
        return standing.since or self._began

    def wake(self) -> None:
        """Note that something was queued."""
        self._feed.wake()

    async def has_all(self, digests: Collection[bytes]) -> bool:
        """Wait for the partner as long as the mode asks, and tell whether it knows all this."""
        if self.mode is not Mode.BOTH or not self.paired or not digests:
            return True
        if self.degraded:
            # It did not answer those before: these need not wait for it too.
            return False
        answers = [self._answer_about(digest) for digest in digests]
        try:
            waiting = await self._store.read(lambda view: _waiting(view, digests))
            async with asyncio.timeout(PATIENCE_SECONDS):
                for digest, answer in zip(digests, answers, strict=True):
                    if digest not in waiting or self._feed.has_taken(digest):
                        continue
                    if not await answer:
                        return False
        except TimeoutError:
            _log.warning("the partner is slow: answering without it until it answers again")
            self._standing.answers = False
            return False
        finally:
            for digest, answer in zip(digests, answers, strict=True):
                self._forget(digest, answer)
        return True

    async def lacks(self, digests: Collection[bytes]) -> Collection[bytes]:
        """Return what of this the partner should have had before DONE was said, and has not."""
        asked = {digest for digest in digests if not self._feed.has_taken(digest)}
        if self.mode is not Mode.BOTH or not self.paired or not asked:
            return ()
        waiting, resync = await self._store.read(
            lambda view: (_waiting(view, asked), needs_resync(view))
        )
        if not resync:
            return waiting
        # What was left out of the queue has no row; nor has what the partner took long ago.
        return waiting | {digest for digest in asked if digest not in self._confirmed}

    async def pair_with(self, partner: Partner) -> None:
        """Have another partner from now on; the present connection ends."""
        self._confirmed.clear()
        self.partner = partner
        self._original = None
        await self._store.write(lambda view: view.remove_setting(IS_ORIGINAL))
        self._standing.reason = "just paired"
        self._changed.set()

    async def status(self) -> dict[str, Any] | None:
        """Return how it stands with the partner, for the operator; ``None`` without one."""
        if self.partner is None:
            return None
        queued, oldest, resync = await self._store.read(_queued)
        lag = (self._clock() - oldest).total_seconds() if oldest else 0.0
        standing = self._standing
        return {
            "partner": str(self.partner.address),
            "kind": {None: "unknown", True: "original", False: "sealmail"}[self._original],
            "connected": standing.connected,
            "since": standing.since and format_date(standing.since),
            "reason": None if standing.connected else standing.reason,
            "replication": str(self.mode),
            "degraded": self.degraded,
            "queued": queued,
            "lag_seconds": max(0, round(lag)),
            "resync_needed": resync,
            "comparing": await self.comparison.progress(),
        }

    # The work in the background.

    async def run(self) -> None:
        """Keep a connection to the partner, and tell it what is queued; until cancelled."""
        await self._remember_kind()
        pause, loop, careful = FIRST_PAUSE, asyncio.get_running_loop(), False
        while True:
            self._changed.clear()
            if self.partner is None:
                await self._changed.wait()
                continue
            began, told = loop.time(), self._feed.told
            try:
                await self._serve(self.partner, careful=careful)
            except (NetworkError, ProtocolError, StoreError, OSError) as error:
                self._note_away(str(error))
            except Exception as error:  # whatever a partner sets off, it is called on again
                _log.exception("the work for the partner broke")
                self._note_away(f"an internal error ({type(error).__name__})")
            careful = self._feed.told == told
            if not careful or loop.time() - began >= _GOOD_SECONDS:
                pause = FIRST_PAUSE
            await self._rest(pause)
            pause = min(2 * pause, LAST_PAUSE)

    async def _serve(self, partner: Partner, *, careful: bool) -> None:
        """Tell the partner what there is to tell until the connection or the pairing ends."""
        remote = await call_on(partner, self._settings)
        self._feed.begin()
        try:
            original = await is_original(remote)
            await self._note_kind(original)
            self._note_reached()
            works: list[Coroutine[Any, Any, object]] = [
                self._feed.run(),
                Lane(remote, self._feed, original=original, careful=careful).run(),
                self._changed.wait(),
            ]
            if not original:
                works += [self._further_lanes(partner), self._look_round(partner)]
            await _first_to_end(works)
            self._note_away("paired anew")
        finally:
            await remote.hang_up()
            await self._feed.flush()

    async def _further_lanes(self, partner: Partner) -> None:
        """Open more connections while much waits, and let them go when nothing does."""
        lanes: set[asyncio.Task[None]] = set()
        try:
            while True:
                await asyncio.sleep(0.05)
                if self._feed.backlog >= _CROWD and len(lanes) < LANES - 1:
                    lane = asyncio.create_task(self._further_lane(partner))
                    lanes.add(lane)
                    lane.add_done_callback(lanes.discard)
        finally:
            for lane in tuple(lanes):
                lane.cancel()
            if lanes:
                await asyncio.wait(tuple(lanes))

    async def _further_lane(self, partner: Partner) -> None:
        try:
            remote = await call_on(partner, self._settings)
            try:
                await Lane(remote, self._feed, original=False).run(_LANE_IDLE_SECONDS)
            finally:
                await remote.hang_up()
        except (NetworkError, ProtocolError) as error:
            _log.info("a further connection to the partner ended: %s", error)
            # The main one tells whether the partner is away.
            await asyncio.sleep(FIRST_PAUSE)

    async def _look_round(self, partner: Partner) -> None:
        """Compare with the partner on a connection of its own, as often as there is need."""
        while True:
            if await self._store.read(needs_resync):
                try:
                    await self._compare(partner)
                except (NetworkError, ProtocolError) as error:
                    _log.warning("comparing with the partner was cut short: %s", error)
            await asyncio.sleep(_COMPARE_SECONDS)

    async def _compare(self, partner: Partner) -> None:
        remote = await call_on(partner, self._settings)
        try:
            await self.comparison.run(remote)
        finally:
            await remote.hang_up()

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(self._spread(timedelta(seconds=seconds)).total_seconds()):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _spread(self, wait: timedelta) -> timedelta:
        """Return a wait of about this length, so that two servers do not keep in step."""
        return wait * self._dice.uniform(0.75, 1.25)

    async def _remember_kind(self) -> None:
        kept = await self._store.read(lambda view: view.setting(IS_ORIGINAL))
        self._original = None if kept is None else kept == "yes"

    async def _note_kind(self, original: bool) -> None:
        if original is not self._original:
            self._original = original
            kept = "yes" if original else "no"
            await self._store.write(lambda view: view.put_setting(IS_ORIGINAL, kept))

    def _note_reached(self) -> None:
        standing = self._standing
        standing.connected = standing.answers = True
        standing.since = self._clock()
        _log.warning("the partner is reached")

    def _note_away(self, reason: str) -> None:
        standing = self._standing
        if standing.connected or standing.reason != reason:
            _log.warning("the partner is away: %s", reason)
        if standing.connected:
            standing.since = self._clock()
        standing.connected = standing.answers = False
        standing.reason = reason
        for answers in standing.waiters.values():
            for answer in answers:
                if not answer.done():
                    answer.set_result(False)

    def _told(self, digest: bytes, taken: bool) -> None:
        """Let those who wait go on."""
        if taken:
            self._confirmed[digest] = None
            self._confirmed.move_to_end(digest)
            if len(self._confirmed) > _CONFIRMED:
                self._confirmed.popitem(last=False)
        self._standing.answers = self._standing.answers or (taken and self._standing.connected)
        for answer in self._standing.waiters.get(digest, ()):
            if not answer.done():
                answer.set_result(taken)

    def _answer_about(self, digest: bytes) -> "asyncio.Future[bool]":
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._standing.waiters.setdefault(digest, set()).add(answer)
        return answer

    def _forget(self, digest: bytes, answer: "asyncio.Future[bool]") -> None:
        waiting = self._standing.waiters.get(digest, set())
        waiting.discard(answer)
        if not waiting:
            self._standing.waiters.pop(digest, None)


async def _first_to_end(works: list[Coroutine[Any, Any, object]]) -> None:
    """Run all of them until one ends, then end the others; raises what that one raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        error = task.exception()
        if isinstance(error, BaseExceptionGroup):
            raise error.exceptions[0]
        if error is not None:
            raise error


def _waiting(view: ReadView, digests: Collection[bytes]) -> set[bytes]:
    """Return which of these the partner is still to be told of."""
    return {digest for digest in digests if view.queue.is_waiting(digest, *PARTNER_KINDS)}


def _queued(view: ReadView) -> tuple[dict[str, int], datetime | None, bool]:
    queued = {str(kind): view.space(queue_space(kind)).entries for kind in PARTNER_KINDS}
    moments = [moment for kind in PARTNER_KINDS if (moment := view.queue.oldest(kind))]
    return queued, min(moments, default=None), needs_resync(view)
