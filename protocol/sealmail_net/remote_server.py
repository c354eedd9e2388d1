"""Typed calls on a server that was dialled: one command, one answer, in turn."""

import asyncio
import inspect
import logging
import re
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from types import TracebackType
from typing import Self

from sealmail_net.errors import (
    BadAnswer,
    ConnectionLost,
    DamagedBlock,
    NetworkError,
    Unavailable,
)
from sealmail_net.handshakes import Shown
from sealmail_net.link import ServerLink
from sealmail_net.pipeline import Pipeline
from sealmail_net.ways import Way
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.block_codec import parse_data_header
from sealmail_protocol.blocks import DataHeader
from sealmail_protocol.bodies import (
    BodyEvent,
    DataChunk,
    DataStarted,
    Room,
    TextBody,
)
from sealmail_protocol.commands import (
    AskVerdict,
    BodyCommand,
    Capabilities,
    Command,
    GetDhtValue,
    GetEntangled,
    GetProxy,
    GetServer,
    Login,
    Ping,
    PlainCommand,
    Quit,
    StoreServer,
)
from sealmail_protocol.conversation import ClientEvent, Closed
from sealmail_protocol.errors import InvalidBlock, ProtocolError
from sealmail_protocol.fields import decode_lines, is_line
from sealmail_protocol.keys import BlockKey, DataKeyHasher
from sealmail_protocol.replies import (
    Accepted,
    LineReply,
    Listing,
    Pending,
    Pong,
    Refused,
    Verdict,
    Word,
)

_log = logging.getLogger(__name__)

GetCommand = GetServer | GetEntangled | GetProxy | GetDhtValue
# Bytes that are sent; a part of a block need not be copied out of it.
Chunk = bytes | memoryview
# Takes the next bytes of a data block; what it returns is awaited if it can be.
Sink = Callable[[bytes], object]
# The bytes of a data block, at hand or read while they go.
Chunks = Iterable[Chunk] | AsyncIterable[Chunk]

# What ends the lines of a text block.
_END_OF_BLOCK = len("EndBlock\r\n")
# Bytes handed to the link at once: more would only wait in memory.
_SLICE = 256 * 1024
# However soon other answers are awaited, the one to a data block may take this long.
DATA_ANSWER_SECONDS = 60.0
# A server that does not say GOODBYE soon is left without it.
_GOODBYE_SECONDS = 5.0
_CAPABILITY = re.compile(r"([A-Z][A-Z0-9-]*)(?: (.*))?")


class RemoteServer:
    """A server inside TLS, whose key is known; made by ``dialing.dial``.

    All calls raise ``NetworkError`` when the exchange fails; the connection is then gone.
    As a context manager it says QUIT at the end, or cuts the connection on an error.
    """

    def __init__(
        self,
        address: ServerAddress,
        link: ServerLink,
        pin: bytes,
        way: Way = Way.DIRECT,
        shown: Shown = Shown(),  # noqa: B008 - a frozen value
    ) -> None:
        self.address = address
        self.pin = pin
        self.way = way
        self.shown = shown
        # Awaited with the size of each piece that goes or comes; for a caller who throttles.
        self.pace: Callable[[int], Awaitable[None]] | None = None
        self._link = link
        self._turn = asyncio.Lock()
        self._capabilities: dict[str, str] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self.quit()
        else:
            await self.hang_up()

    def bound_answers(self, room: Room) -> None:
        """Keep no more of an answer to a GET than there is room for, else ``BadAnswer``."""
        self._link.conversation.room = room

    async def login(self, userid: str, auth_key: str) -> bool:
        """Log in; ``False`` if the server knows no such account."""
        return await self.call(Login(userid, auth_key)) is Word.DONE

    async def get(self, key: BlockKey, since: datetime | None = None) -> tuple[bytes, ...] | None:
        """Return the lines of a text block or bundle; ``None`` if the server gives none."""
        return await self.fetch(GetServer(key, since))

    async def fetch(self, command: GetCommand) -> tuple[bytes, ...] | None:
        """Return the lines that answer any kind of GET; ``None`` if the server gives none."""
        async with self._exchange():
            event = await self._ask(command)
            if isinstance(event, DataStarted):
                await self._take_data(_ignore)
        if isinstance(event, Word):
            self._require_given(event)
            return None
        if isinstance(event, TextBody):
            # An original server answers a bare end of block when it has lost the block.
            return event.lines or None
        raise BadAnswer(self.address, f"no text block but {type(event).__name__} to a GET")

    async def get_data(
        self, key: BlockKey, sink: Sink, command: GetCommand | None = None
    ) -> DataHeader | None:
        """Stream a data block into ``sink``; ``None`` if the server has none.

        It is asked for by ``GET SERVER`` unless another ``command`` for ``key`` is given.

        What ``sink`` got counts only once this returns: until then the bytes are unproven,
        and ``DamagedBlock`` says that they are not those of ``key``.
        """
        async with self._exchange():
            event = await self._ask(command or GetServer(key))
            if isinstance(event, DataStarted):
                found = await self._take_data(sink)
        if isinstance(event, Word):
            self._require_given(event)
            return None
        if event == TextBody(()):
            return None
        if not isinstance(event, DataStarted):
            raise DamagedBlock(self.address, key, "a text block where data was asked for")
        if found != key:
            raise DamagedBlock(self.address, key, f"its bytes are those of {found}")
        try:
            return parse_data_header(decode_lines(event.lines))
        except InvalidBlock as error:
            raise DamagedBlock(self.address, key, error.reason) from error

    async def fetch_body(self, command: GetCommand, most: int) -> bytes | None:
        """Return a whole block of any type, as it came; ``None`` if the server gives none.

        One of more than ``most`` bytes is a ``BadAnswer``, and is not read to its end. Nothing
        of it is checked.
        """
        async with self._exchange(), self._of_lines(most + _END_OF_BLOCK):
            event = await self._ask(command)
            if isinstance(event, DataStarted):
                if event.size > most:
                    raise BadAnswer(self.address, f"{event.size} bytes where {most} may come")
                data = bytearray()
                await self._take_data(data.extend)
        if isinstance(event, TextBody | DataStarted):
            body = b"".join(line + b"\r\n" for line in event.lines)
            body += bytes(data) if isinstance(event, DataStarted) else b""
            if len(body) > most:
                raise BadAnswer(self.address, f"{len(body)} bytes where {most} may come")
            return body or None
        return None

    def _require_given(self, answer: Word) -> None:
        """Tell a server that cannot answer now from one that has nothing."""
        if answer is Word.FAILED:
            raise Unavailable(self.address, "FAILED to a GET")

    async def store(self, key: BlockKey, lines: Sequence[str]) -> Word:
        """Store a text block; the answer is DONE or a refusal."""
        return await self.post(StoreServer(key), lines)

    async def store_data(self, key: BlockKey, header: DataHeader, chunks: Chunks) -> Word:
        """Store a data block whose bytes come in chunks; the answer is DONE or a refusal."""
        return await self.post_data(StoreServer(key), header.lines, header.size, chunks)

    async def post(self, command: BodyCommand, lines: Sequence[str]) -> Word:
        """Send any command that takes a text body."""
        _check_lines(lines)
        async with self._exchange():
            conversation = self._link.conversation
            body = conversation.send(command) + conversation.send_text_body(lines)
            await self._write((body,))
            return _word(await self._answer(command))

    async def post_data(
        self, command: BodyCommand, lines: Sequence[str], size: int, chunks: Chunks
    ) -> Word:
        """Send any command that takes a data block; ``lines`` end with its ``Data:`` line."""
        _check_lines(lines)
        async with self._exchange():
            conversation = self._link.conversation
            await self._write((conversation.send(command), conversation.send_data_header(lines)))
            await self._write(_of_size(chunks, size))
            # What was written may lie in buffers for a while where the way is narrow.
            with self._link.patient(DATA_ANSWER_SECONDS):
                return _word(await self._answer(command))

    async def verdict(self, digest: bytes) -> Verdict | None:
        """Ask what became of a block; ``None`` if the server cannot tell."""
        reply = await self.call(AskVerdict(digest))
        return reply if isinstance(reply, Accepted | Pending | Refused) else None

    async def capabilities(self) -> dict[str, str]:
        """Return name and arguments of each extension; an original server has none."""
        if self._capabilities is None:
            reply = await self.call(Capabilities())
            lines = reply.lines if isinstance(reply, Listing) else ()
            matches = filter(None, map(_CAPABILITY.fullmatch, lines))
            self._capabilities = {match[1]: match[2] or "" for match in matches}
        return dict(self._capabilities)

    @property
    def known_capabilities(self) -> dict[str, str]:
        """Return the extensions it named when it was asked; none before that."""
        return dict(self._capabilities or {})

    async def ping(self, text: str = "") -> str:
        """Return the text that comes back with PONG."""
        reply = await self.call(Ping(text))
        if not isinstance(reply, Pong):
            raise BadAnswer(self.address, f"{reply} to PING")
        return reply.text

    async def call(self, command: PlainCommand) -> LineReply | Listing:
        """Send a command without a body, and return its answer of one line or a listing."""
        async with self._exchange():
            event = await self._ask(command)
            if isinstance(event, BodyEvent):
                raise ProtocolError("a block where a line belongs; use fetch or get_data")
            return event

    @property
    def stands(self) -> bool:
        """Return whether the connection is open, as far as is known here."""
        return self._link.stands

    @asynccontextmanager
    async def pipeline(self, window: int) -> AsyncIterator[Pipeline]:
        """Have the connection for commands of which up to ``window`` are in flight at once.

        Whatever is owed when the context ends is given up, and the connection with it.
        """
        async with self._turn:
            pipeline = Pipeline(self.address, self._link, window)
            try:
                yield pipeline
            finally:
                await pipeline.close()

    async def hang_up(self) -> None:
        """Cut the connection."""
        await self._link.hang_up()

    async def quit(self) -> None:
        """Say QUIT and close; it matters to nobody if the server has gone already."""
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self.call(Quit())
        except (NetworkError, TimeoutError) as error:
            _log.debug("%s left without GOODBYE: %s", self.address, error)
        await self._link.finish()

    @asynccontextmanager
    async def _exchange(self) -> AsyncIterator[None]:
        """Keep question and answer together; an exchange left half-way ends the connection."""
        async with self._turn:
            try:
                yield
            except BadAnswer:
                self._link.abort()
                raise
            except ProtocolError as error:
                self._link.abort()
                raise BadAnswer(self.address, str(error)) from error
            except BaseException:
                self._link.abort()
                raise

    @asynccontextmanager
    async def _of_lines(self, most: int) -> AsyncIterator[None]:
        """Read no more than ``most`` bytes of lines of an answer."""
        conversation = self._link.conversation
        conversation.most_lines = most
        try:
            yield
        finally:
            conversation.most_lines = None

    async def _ask(self, command: Command) -> "_Answer":
        await self._write((self._link.conversation.send(command),))
        return await self._answer(command)

    async def _answer(self, command: Command) -> "_Answer":
        # The name of the command only: its text may hold a secret.
        return await self._next(f"the answer to {type(command).__name__}")

    async def _next(self, awaited: str) -> "_Answer":
        event = await self._link.next_event(awaited)
        if isinstance(event, Closed):
            raise ConnectionLost(self.address, f"it closed instead of giving {awaited}")
        return event

    async def _write(self, chunks: Chunks) -> None:
        async for chunk in _each(chunks):
            for start in range(0, len(chunk), _SLICE):
                piece = chunk[start : start + _SLICE]
                if self.pace is not None:
                    await self.pace(len(piece))
                self._link.write(piece)
                await self._link.drain()

    async def _take_data(self, sink: Sink) -> BlockKey:
        """Read the bytes of a data block to their end, and return the key they have."""
        hasher = DataKeyHasher()
        while isinstance(event := await self._next("more of a data block"), DataChunk):
            hasher.update(event.data)
            if self.pace is not None:
                await self.pace(len(event.data))
            taken = sink(event.data)
            if inspect.isawaitable(taken):
                await taken
        return hasher.key()


_Answer = LineReply | Listing | BodyEvent


def _word(event: ClientEvent) -> Word:
    if not isinstance(event, Word):
        raise ProtocolError(f"{event} to a STORE")
    return event


def _ignore(chunk: bytes) -> None:
    """Let bytes go that nobody asked for."""


def _check_lines(lines: Sequence[str]) -> None:
    """Refuse what would end the body early and make commands of its rest."""
    for line in lines:
        if not is_line(line) or line.lower() == "endblock":
            raise ValueError(f"not a line of a block: {line[:60]!r}")


async def _each(chunks: Chunks) -> AsyncIterator[Chunk]:
    if isinstance(chunks, AsyncIterable):
        async for chunk in chunks:
            yield chunk
        return
    for chunk in chunks:
        yield chunk


async def _of_size(chunks: Chunks, size: int) -> AsyncIterator[Chunk]:
    """Pass chunks on; ``ValueError`` before a byte too many, or at the end if some miss."""
    left = size
    async for chunk in _each(chunks):
        left -= len(chunk)
        if left < 0:
            break
        yield chunk
    if left:
        raise ValueError(f"the data has not the {size} bytes its header names")
