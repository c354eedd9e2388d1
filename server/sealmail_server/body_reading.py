"""Reading the body of a command to its end, whatever becomes of it: both sides stay in step."""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from sealmail_net.link import PeerLink
from sealmail_protocol.bodies import (
    BODY_ENDS,
    CrowdedBody,
    DataChunk,
    DataEnded,
    DataStarted,
    OversizedBody,
    TextBody,
)
from sealmail_protocol.commands import Command
from sealmail_protocol.conversation import Closed
from sealmail_protocol.errors import InvalidBlock, ProtocolError, Refusal
from sealmail_protocol.replies import Verdict
from sealmail_server.memory import Crowded
from sealmail_server.outgoing.accepting import NotServed
from sealmail_store import StoreError

_log = logging.getLogger(__name__)

Lines = tuple[bytes, ...]


class DataReceiver(Protocol):
    """What takes the bytes of a data block, wherever it is to go."""

    async def take(self, chunk: bytes) -> None:
        """Take the next bytes."""

    async def finish(self) -> Verdict:
        """Decide, commit, and return the verdict."""

    async def discard(self) -> None:
        """Forget the bytes of a block that is not stored."""


class BodyReader:
    """Reads the bodies that come over one link; ``source`` is named where memory runs short.

    ``remember_refusal`` is told the digest of a body that is too large to be kept.
    """

    def __init__(
        self,
        link: PeerLink,
        source: str,
        remember_refusal: Callable[[bytes, InvalidBlock], Verdict],
    ) -> None:
        self._link = link
        self._source = source
        self._remember_refusal = remember_refusal

    async def read(
        self,
        command: Command,
        take_text: Callable[[Lines], Awaitable[Verdict]],
        receive_data: Callable[[Lines], DataReceiver],
    ) -> Verdict:
        """Hand a body on, and return the verdict; one that is too large is refused here."""
        event = await self._link.next_event("a body")
        match event:
            case TextBody():
                verdict = await take_text(event.lines)
            case DataStarted():
                verdict = await self._read_data(receive_data, event.lines)
            case OversizedBody():
                error = InvalidBlock(Refusal.SIZE, f"{event.size} bytes in one body")
                verdict = self._remember_refusal(event.digest, error)
            case CrowdedBody():
                raise Crowded(self._source)
            case _:
                raise ProtocolError("the connection ended where a body belongs")
        _log.info("%s: %s", command, verdict)
        return verdict

    async def skip(self) -> None:
        """Pass over a body whose command is refused."""
        self._link.conversation.skip_body()
        await self._pass_over()

    async def _read_data(
        self, receive_data: Callable[[Lines], DataReceiver], lines: Lines
    ) -> Verdict:
        try:
            intake = receive_data(lines)
        except NotServed:
            await self._pass_over()
            raise
        try:
            while not isinstance(event := await self._link.next_event(), DataEnded):
                if not isinstance(event, DataChunk):
                    raise ProtocolError("the connection ended inside a data block")
                try:
                    await intake.take(event.data)
                except StoreError:
                    await intake.discard()
                    # The peer sends on: what is left is no commands.
                    await self._pass_over()
                    raise
            return await intake.finish()
        except BaseException:
            await intake.discard()
            raise

    async def _pass_over(self) -> None:
        while not isinstance(await self._link.next_event(), (*BODY_ENDS, Closed)):
            pass
