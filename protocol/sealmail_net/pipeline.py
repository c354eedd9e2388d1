"""Several commands in flight on one connection: who has much to say need not wait each time."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from sealmail_net.errors import BadAnswer, ConnectionLost, NetworkError
from sealmail_net.link import ServerLink
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.bodies import BodyEvent
from sealmail_protocol.commands import BodyCommand, Command
from sealmail_protocol.conversation import Closed
from sealmail_protocol.errors import ProtocolError
from sealmail_protocol.replies import LineReply, Listing

Answer = LineReply | Listing
_END = b"EndBlock\r\n"


class Pipeline:
    """Sends commands without waiting for each answer; made by ``RemoteServer.pipeline``.

    Answers come in the order of the commands. When the exchange fails, every answer that is
    still owed is a ``NetworkError``, and so is every later ``send``.
    """

    def __init__(self, address: ServerAddress, link: ServerLink, window: int) -> None:
        self._address = address
        self._link = link
        self._room = asyncio.Semaphore(window)
        self._owed: deque[asyncio.Future[Answer]] = deque()
        self._something_owed = asyncio.Event()
        self._failure: NetworkError | None = None
        self._listening = asyncio.create_task(self._listen())

    async def send(
        self, command: Command, body: bytes = b"", data: AsyncIterator[bytes] | None = None
    ) -> "asyncio.Future[Answer]":
        """Send a command, with its body if it takes one, and return its answer to come.

        ``body`` is the lines as they stand on the wire; ``data`` the bytes behind them, which
        must be as many as the last line says. One sender at a time.
        """
        await self._room.acquire()
        if self._failure is not None:
            raise self._failure
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        try:
            self._owed.append(answer)
            self._something_owed.set()
            line = self._link.conversation.send(command)
            if isinstance(command, BodyCommand):
                line += body + (_END if data is None else b"")
            self._link.write(line)
            await self._link.drain()
            if data is not None:
                async for chunk in data:
                    self._link.write(chunk)
                    await self._link.drain()
        except BaseException as error:
            # Answers that have come already are still read: what they say was done, is done.
            self._break(error)
            if self._listening.done():
                self._fail(error)
            raise
        return answer

    def widen(self, more: int) -> None:
        """Let more commands be in flight than until now."""
        for _ in range(more):
            self._room.release()

    async def lost(self) -> NetworkError:
        """Wait until the exchange has failed, and return why."""
        await asyncio.wait((self._listening,))
        return self._failure or ConnectionLost(self._address, "it is closed")

    async def close(self) -> None:
        """Stop listening; what is owed then will not be answered."""
        self._listening.cancel()
        await asyncio.wait((self._listening,))
        self._fail(ConnectionLost(self._address, "we left"))

    async def _listen(self) -> None:
        try:
            while True:
                self._something_owed.clear()
                if not self._owed:
                    await self._until_something_happens()
                    continue
                event = await self._link.next_event("an answer")
                if isinstance(event, Closed):
                    raise ConnectionLost(self._address, "it closed instead of answering")
                if isinstance(event, BodyEvent):
                    raise BadAnswer(self._address, "a block where a line belongs")
                self._room.release()
                answer = self._owed.popleft()
                if not answer.done():
                    answer.set_result(event)
        except Exception as error:
            self._fail(error)

    async def _until_something_happens(self) -> None:
        """Wait for the next command; a server that leaves meanwhile is noticed at once."""
        gone = asyncio.ensure_future(self._link.wait_gone())
        asked = asyncio.ensure_future(self._something_owed.wait())
        try:
            await asyncio.wait((gone, asked), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            asked.cancel()
        if gone.done() and not gone.cancelled():
            raise ConnectionLost(self._address, "it is closed")

    def _break(self, error: BaseException) -> None:
        if self._failure is None:
            if isinstance(error, NetworkError):
                self._failure = error
            elif isinstance(error, ProtocolError):
                self._failure = BadAnswer(self._address, str(error))
            else:
                self._failure = ConnectionLost(self._address, f"left half-way ({error!r})")
            self._link.abort()

    def _fail(self, error: BaseException) -> None:
        self._break(error)
        while self._owed:
            answer = self._owed.popleft()
            if not answer.done():
                answer.set_exception(
                    self._failure or ConnectionLost(self._address, "it is closed")
                )
                # Nobody may be left who asks for it.
                answer.exception()
            self._room.release()
