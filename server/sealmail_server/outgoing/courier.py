"""One block, one server: handing it over, and what the answer means for its row in the queue."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sealmail_net.errors import (
    BadAnswer,
    ConnectionLost,
    ForbiddenTarget,
    NetworkError,
    NoTls,
    NoWay,
    Timeout,
    TlsFailed,
    Unavailable,
    Unreachable,
)
from sealmail_net.remote_server import RemoteServer
from sealmail_pow import Difficulty
from sealmail_protocol.block_codec import parse_data_header
from sealmail_protocol.bundles import is_separator
from sealmail_protocol.errors import Refusal
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import (
    Accepted,
    Pending,
    QueueState,
    Refused,
    Verdict,
    Word,
    demand_of,
)
from sealmail_store import BlockData

# A server may be slow, but not so slow that a block of 8 MiB takes longer than some half an hour.
_SLOWEST = 4096
_LEAST_SECONDS = 90.0
# A Sealmail server counts the verdict of a larger bundle as so many requests that a few of them
# would have it send us away, and hold up what others sent there.
_ENTRIES_ASKED = 64
# The longest separator is shorter than this.
_SEPARATOR_BYTES = 32
# Bytes of a block that are in memory while it goes.
_PIECE = 256 * 1024

# Codes of QUEUE that are no refusals: what kept a block from being delivered.
FAILED = "failed"
UNSURE = "unsure"
SLOW = "slow"
PENDING = "pending"
PRICE = str(Refusal.PRICE)
EXPIRED = "expired"
INTERNAL = str(Refusal.INTERNAL)

_CODES: dict[type[NetworkError], str] = {
    ForbiddenTarget: "forbidden",
    NoWay: "network",
    Unreachable: "unreachable",
    Unavailable: "busy",
    NoTls: "tls",
    TlsFailed: "tls",
    Timeout: SLOW,
    ConnectionLost: "lost",
    BadAnswer: "protocol",
}
# Refusals that may end by themselves: the queue tries again before the sender has to.
_PASSING = frozenset({Refusal.FULL, Refusal.QUOTA, Refusal.INTERNAL})
# For how long an undecided or passing answer is followed up, and how it is told when it stays. A
# price that stays is told soon, since the sender mints anew; an entry without an account waits
# there for a day.
_PATIENCE = {
    PRICE: timedelta(minutes=5),
    PENDING: timedelta(hours=26),
    **{str(code): timedelta(hours=24) for code in _PASSING},
}
_IN_THE_END = {PENDING: str(Refusal.RECIPIENT)}


@dataclass(frozen=True, slots=True)
class Delivered:
    """The server has it."""


@dataclass(frozen=True, slots=True)
class TryLater:
    """Not now, for a reason that may pass; ``demand`` is the stamp that was asked for, if any."""

    code: str
    demand: Difficulty | None = None


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Never: it becomes a dead letter."""

    state: QueueState
    code: str
    demand: Difficulty | None = None


Outcome = Delivered | TryLater | GivenUp


@dataclass(frozen=True, slots=True)
class Parcel:
    """One block with all that is sent of it; ``pending`` if a server has it under judgement."""

    key: BlockKey
    digest: bytes
    lines: Sequence[str] = field(repr=False)
    data: BlockData | None = None
    pending: bool = False


async def hand_over(remote: RemoteServer, parcel: Parcel, *, verdicts: bool) -> Outcome:
    """Give a block to a server, and ask for its verdict if the server gives any.

    That of a large bundle is not asked: it is believed to be there at DONE. Raises
    ``NetworkError`` when the connection breaks; it is of no more use then.
    """
    size = parcel.data.size if parcel.data else 0
    verdicts = verdicts and _entries(parcel.lines) <= _ENTRIES_ASKED
    try:
        async with asyncio.timeout(_LEAST_SECONDS + size / _SLOWEST):
            if parcel.pending and verdicts:
                verdict = await remote.verdict(parcel.digest)
                if verdict is not None:
                    return outcome_of(verdict)
            if await _store(remote, parcel) is not Word.DONE:
                return TryLater(FAILED)
            return outcome_of(await remote.verdict(parcel.digest)) if verdicts else Delivered()
    except TimeoutError:
        raise Timeout(remote.address, "it to take a block") from None


def outcome_of(verdict: Verdict | None) -> Outcome:
    """Return what a verdict means; none at all means that the block has to be sent again."""
    match verdict:
        case None:
            return TryLater(UNSURE)
        case Accepted():
            return Delivered()
        case Pending():
            return TryLater(PRICE if verdict.demand else PENDING, verdict.demand)
        case Refused():
            code = str(verdict.code)
            passing = verdict.code in _PASSING
            if passing:
                return TryLater(code)
            return GivenUp(QueueState.REFUSED, code, demand_of(verdict))


def conclude(outcome: Outcome, start: datetime, now: datetime) -> Outcome:
    """Turn an answer that stays the same for too long into a refusal."""
    if not isinstance(outcome, TryLater):
        return outcome
    patience = _PATIENCE.get(outcome.code)
    if patience is None or now - start <= patience:
        return outcome
    code = _IN_THE_END.get(outcome.code, outcome.code)
    return GivenUp(QueueState.REFUSED, code, outcome.demand)


def code_of(error: NetworkError) -> str:
    """Return how QUEUE names a failure of the connection."""
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), "lost")


def _entries(lines: Sequence[str]) -> int:
    """Count the entries of a body: one more than its separators."""
    short = (line for line in lines if len(line) < _SEPARATOR_BYTES)
    return 1 + sum(is_separator(line.encode()) for line in short)


async def _store(remote: RemoteServer, parcel: Parcel) -> Word:
    if parcel.data is None:
        return await remote.store(parcel.key, parcel.lines)
    header = parse_data_header(tuple(parcel.lines))
    async with aclosing(_pieces(parcel.data)) as pieces:
        return await remote.store_data(parcel.key, header, pieces)


async def _pieces(data: BlockData) -> AsyncGenerator[bytes]:
    """Read the bytes of a block a slice at a time, files off the loop."""
    if isinstance(data.content, bytes):
        yield data.content
        return
    reader = await asyncio.to_thread(data.open)
    try:
        while piece := await asyncio.to_thread(reader.read, _PIECE):
            yield piece
    finally:
        reader.close()
