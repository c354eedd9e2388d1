"""A server we are connected with: handing it a block and hearing what became of it, asking it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sealmail_client.channels import BY_SERVER, Channel
from sealmail_net.errors import NotOffered
from sealmail_net.remote_server import Chunk, RemoteServer, Sink
from sealmail_pow import Difficulty
from sealmail_protocol.blocks import DataHeader, TextBlock
from sealmail_protocol.canonical import block_digest, data_digest
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
    """A connected server, what it can do beyond the specification, and how it is used.

    ``account`` is whether we are logged in there.
    """

    server: RemoteServer
    capabilities: Mapping[str, str]
    channel: Channel = BY_SERVER
    account: bool = False

    def by(self, channel: Channel) -> "Peer":
        """Return the same server, used by another channel."""
        return replace(self, channel=channel)

    @property
    def place(self) -> str:
        """Return what blocks are said to be at that were posted here."""
        return self.channel.place(self.server.address)

    @property
    def lacks(self) -> str | None:
        """Return why the channel does not lead anywhere here."""
        if self.channel.in_dht and DHT_VALUE not in self.capabilities:
            return "it takes no part in the DHT"
        return None

    def moment(self, now: datetime) -> datetime:
        """Return the date to write: the later of our clock and the server's, if they are near."""
        return later_of(now, self.capabilities)

    async def post(self, key: BlockKey, block: TextBlock) -> Outcome:
        """Store a block of text; taken means ACCEPTED where verdicts are given, else DONE."""
        if self.lacks:
            return NotTaken(self.lacks)
        word = await self.server.post(self.channel.store(key), block.lines)
        return await self._outcome(word, block_digest(block))

    async def post_data(
        self, key: BlockKey, header: DataHeader, chunks: Iterable[Chunk]
    ) -> Outcome:
        """Store a data block, as ``post`` does."""
        if self.lacks:
            return NotTaken(self.lacks)
        word = await self.server.post_data(
            self.channel.store(key), header.lines, header.size, chunks
        )
        return await self._outcome(word, data_digest(header, key))

    async def get(self, key: BlockKey, since: datetime | None = None) -> tuple[bytes, ...] | None:
        """Return the lines of text blocks; ``None`` if there are none, or raise ``NotOffered``."""
        self._require_channel()
        return await self.server.fetch(self.channel.get(key, since))

    async def get_data(self, key: BlockKey, sink: Sink) -> DataHeader | None:
        """Stream a data block into ``sink``, as ``RemoteServer.get_data`` does."""
        self._require_channel()
        return await self.server.get_data(key, sink, self.channel.get(key, None))

    def _require_channel(self) -> None:
        if self.lacks:
            raise NotOffered(self.server.address, self.lacks)

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
