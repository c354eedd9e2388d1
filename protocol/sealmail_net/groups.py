"""A group of servers is as good as the first of them that answers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from sealmail_net.errors import NetworkError, NoServerReached, PinChanged
from sealmail_protocol.addresses import ServerAddress

# A server that is well has answered long before, and a user waits no longer for one that hangs.
HEAD_START = 2.0

_log = logging.getLogger(__name__)


class Connected(Protocol):
    """What an attempt brings about, if it succeeds."""

    async def hang_up(self) -> None:
        """End the connection now."""


T = TypeVar("T", bound=Connected)


async def first_by_rank(
    ranks: Iterable[Sequence[ServerAddress]],
    attempt: Callable[[ServerAddress], Awaitable[T]],
    *,
    head_start: float = HEAD_START,
) -> T:
    """Return the first of the first rank that serves, as ``first_of_group`` does of each.

    A rank begins when the one before it has failed, however slow that is: whoever comes by another
    way shows more of himself, and is not to do so because a circuit takes its time.
    """
    reasons: list[NetworkError] = []
    for rank in ranks:
        try:
            reached = await first_of_group(rank, attempt, head_start=head_start)
        except NoServerReached as error:
            reasons += error.reasons
        else:
            _warn_of(reasons)
            return reached
    raise NoServerReached(reasons)


async def first_of_group(
    order: Sequence[ServerAddress],
    attempt: Callable[[ServerAddress], Awaitable[T]],
    *,
    head_start: float = HEAD_START,
) -> T:
    """Return what the first ``attempt`` to succeed brought about.

    The next server of ``order`` is tried at once when one fails, and beside one that has not
    answered ``head_start`` seconds later. ``NoServerReached`` holds the reason of each. A changed
    key is one of those reasons; where another server answers, it is a warning.
    """
    coming, running = list(order), set[asyncio.Future[T]]()
    reasons: list[NetworkError] = []
    try:
        while coming or running:
            if coming:
                running.add(asyncio.ensure_future(attempt(coming.pop(0))))
            ended, _ = await asyncio.wait(
                running,
                timeout=head_start if coming else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for one in ended:
                error = one.exception()
                if error is None:
                    running.discard(one)
                    _warn_of(reasons)
                    return one.result()
                running.discard(one)
                if not isinstance(error, NetworkError):
                    raise error
                _log.info("next server: %s", error)
                reasons.append(error)
    finally:
        await _abandon(running)
    raise NoServerReached(reasons)


async def _abandon(running: set["asyncio.Future[T]"]) -> None:
    """End the attempts that lost; one that succeeded at the same moment hangs up."""
    for one in running:
        one.cancel()
    for outcome in await asyncio.gather(*running, return_exceptions=True):
        if not isinstance(outcome, BaseException):
            await outcome.hang_up()


def _warn_of(reasons: Sequence[NetworkError]) -> None:
    for reason in reasons:
        if isinstance(reason, PinChanged):
            _log.warning("%s", reason)
