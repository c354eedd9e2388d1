"""A server we are connected with, handing it one block, and hearing what became of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sealmail_net.remote_server import Chunk, RemoteServer
from sealmail_pow import Difficulty
from sealmail_protocol.blocks import DataHeader, TextBlock
from sealmail_protocol.canonical import block_digest, data_digest
from sealmail_protocol.commands import StoreEntangled
from sealmail_protocol.dates import parse_date
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Accepted, Pending, Refused, Word, demand_of

VERDICT = "VERDICT"
DHT_VALUE = "DHT-VALUE"
TIME = "TIME"
# A server whose clock is further away than this is wrong, or lies.
_CLOCK_TRUST = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Taken:
    """The server keeps the block."""


@dataclass(frozen=True, slots=True)
class NotTaken:
    """The server does not keep the block; with a stamp of ``demand`` it would."""

    reason: str
    demand: Difficulty | None = None


Outcome = Taken | NotTaken


@dataclass(frozen=True, slots=True)
class Peer:
    """A connected server and what it can do beyond the specification."""

    server: RemoteServer
    capabilities: Mapping[str, str]

    def moment(self, now: datetime) -> datetime:
        """Return the date to write: the later of our clock and the server's, if they are near."""
        return later_of(now, self.capabilities)

    async def post(self, key: BlockKey, block: TextBlock) -> Outcome:
        """Store a block of text; taken means ACCEPTED where verdicts are given, else DONE."""
        word = await self.server.store(key, block.lines)
        return await self._outcome(word, block_digest(block))

    async def post_entangled(self, key: BlockKey, block: TextBlock) -> Outcome:
        """Hand a block of text to the DHT, by a server that takes part in it."""
        if DHT_VALUE not in self.capabilities:
            return NotTaken("the server takes no part in the DHT")
        word = await self.server.post(StoreEntangled(key), block.lines)
        return await self._outcome(word, block_digest(block))

    async def post_data(
        self, key: BlockKey, header: DataHeader, chunks: Iterable[Chunk]
    ) -> Outcome:
        """Store a data block, as ``post`` does."""
        word = await self.server.store_data(key, header, chunks)
        return await self._outcome(word, data_digest(header, key))

    async def _outcome(self, word: Word, digest: bytes) -> Outcome:
        if word is not Word.DONE:
            return NotTaken(f"the server answered {word}: no room, or no permission")
        if VERDICT not in self.capabilities:
            return Taken()
        verdict = await self.server.verdict(digest)
        demand = None if verdict is None else demand_of(verdict)
        match verdict:
            case Accepted():
                return Taken()
            case Pending() if demand is None:
                return NotTaken("the server does not know yet whom this belongs to")
            case Pending():
                return NotTaken(f"the server asks for a stamp of {demand}", demand)
            case Refused(code=code, text=text):
                reason = f"the server refused it ({code}){f': {text}' if text else ''}"
                return NotTaken(reason, demand)
            case _:
                return NotTaken("the server has not decided; send it again")


def later_of(now: datetime, capabilities: Mapping[str, str]) -> datetime:
    """Return the later of our time and the one a server tells, unless they are far apart."""
    try:
        theirs = parse_date(capabilities.get(TIME, ""))
    except ValueError:
        return now
    return theirs if timedelta(0) < theirs - now < _CLOCK_TRUST else now
