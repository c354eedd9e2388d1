"""Who may say what when: the two sides of a connection, without a socket.

Bytes go in by ``receive_data``, events come out of ``next_event`` until it returns ``None``;
anything else it raises than ``ProtocolError`` is a bug. After ``ProtocolError`` or ``Closed``
the conversation is over.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sealmail_protocol import commands
from sealmail_protocol.bodies import BODY_ENDS, BodyEvent, BodyReader, TextBody
from sealmail_protocol.commands import BodyCommand, Command, StartTls, parse_command
from sealmail_protocol.errors import ProtocolError
from sealmail_protocol.fields import join_lines
from sealmail_protocol.receive_buffer import ReceiveBuffer
from sealmail_protocol.replies import (
    REFUSALS,
    Banner,
    LineReply,
    Listing,
    Pong,
    Verdict,
    Word,
    parse_verdict,
)

# Another protocol's client, driven here by an attacker's page, shows itself by nonsense.
MAX_INVALID = 3
# Lines of CAPABILITIES, QUEUE and the like.
MAX_LISTING = 100_000


@dataclass(frozen=True, slots=True)
class Invalid:
    """A line that is no command; ``last`` if the connection must end after the answer."""

    reason: str
    last: bool


@dataclass(frozen=True, slots=True)
class Closed:
    """The peer has ended its side."""


ServerEvent = Command | Invalid | Closed | BodyEvent
ClientEvent = LineReply | Listing | Closed | BodyEvent


class _Side:
    """What both sides share: the buffer and the gap between PROCEED and TLS."""

    def __init__(self, *, encrypted: bool) -> None:
        self.encrypted = encrypted
        self._buffer = ReceiveBuffer()
        self._ended = False
        self._awaiting_tls = False
        self._body: BodyReader | None = None

    def receive_data(self, data: bytes) -> None:
        """Take what the socket gave; ``b""`` means that the peer has ended."""
        if self._awaiting_tls and data:
            raise ProtocolError("plaintext where the TLS handshake belongs")
        self._ended = self._ended or not data
        self._buffer.feed(data)

    def tls_started(self) -> None:
        """Note that the handshake is done: what comes now came through TLS."""
        if not self._awaiting_tls:
            raise ProtocolError("TLS without STARTTLS")
        self._awaiting_tls = False
        self.encrypted = True

    def _await_tls(self) -> None:
        # Bytes behind STARTTLS or PROCEED came in clear and would be read as if from TLS.
        if len(self._buffer):
            raise ProtocolError("plaintext behind STARTTLS")
        self._awaiting_tls = True

    def _next_body_event(self) -> BodyEvent | None:
        if self._body is None:
            return None
        event = self._body.next_event(self._buffer)
        if isinstance(event, BODY_ENDS):
            self._body = None
        return event

    def _end(self) -> Closed | None:
        if not self._ended:
            return None
        if len(self._buffer) or self._body is not None:
            raise ProtocolError("the connection ended in the middle of something")
        return Closed()


class ServerConversation(_Side):
    """The server's side: commands and bodies in, answers out."""

    def __init__(self, *, encrypted: bool = False) -> None:
        super().__init__(encrypted=encrypted)
        self._invalid = 0

    def expect_tls(self) -> None:
        """Note that TLS comes at once, without STARTTLS."""
        self._await_tls()

    def next_event(self) -> ServerEvent | None:
        """Return the next command, part of a body, invalid line or end; else ``None``."""
        if self._body is not None:
            event = self._next_body_event()
            return event if event is not None else self._end()
        line = self._buffer.take_line()
        if line is None:
            return self._end()
        try:
            command = parse_command(line)
        except ValueError as error:
            self._invalid += 1
            return Invalid(str(error), last=self._invalid >= MAX_INVALID)
        self._invalid = 0
        if isinstance(command, StartTls) and not self.encrypted:
            self._await_tls()
        if isinstance(command, BodyCommand):
            self._body = BodyReader()
        return command

    def send(self, reply: LineReply | Listing) -> bytes:
        """Return the bytes of an answer."""
        if isinstance(reply, Listing):
            return join_lines((*reply.lines, "EndBlock"))
        return f"{reply}\r\n".encode()

    def send_block(self, lines: Sequence[str]) -> bytes:
        """Return the bytes of a text block as the answer to a GET."""
        return join_lines((*lines, "EndBlock"))

    def send_data_header(self, lines: Sequence[str]) -> bytes:
        """Return the lines before the bytes of a data block, which the caller sends."""
        return join_lines(lines)


class ClientConversation(_Side):
    """The client's side: commands out, answers in, in the order of the commands."""

    def __init__(self, *, encrypted: bool = False) -> None:
        super().__init__(encrypted=encrypted)
        self._expected: deque[_Answer] = deque([_banner])
        self._listing: list[str] | None = None

    @property
    def waiting(self) -> int:
        """Return how many answers are still to come."""
        return len(self._expected)

    def send(self, command: Command) -> bytes:
        """Return the bytes of a command, and expect its answer."""
        if isinstance(command, _SECRET_COMMANDS) and not self.encrypted:
            raise ProtocolError("a secret would travel in clear: STARTTLS first")
        if isinstance(command, StartTls) and (self._expected or self.encrypted):
            raise ProtocolError("STARTTLS while an answer is awaited, or inside TLS")
        self._expected.append(_ANSWERS.get(type(command), _word))
        return f"{command}\r\n".encode()

    def send_text_body(self, lines: Sequence[str]) -> bytes:
        """Return the bytes of a text body behind a command that takes one."""
        return join_lines((*lines, "EndBlock"))

    def send_data_header(self, lines: Sequence[str]) -> bytes:
        """Return the lines before the bytes of a data block, which the caller sends."""
        return join_lines(lines)

    def tls_started(self) -> None:
        """Note that the handshake is done; the server says ENCRYPTED next."""
        super().tls_started()
        self._expected.append(_encrypted)

    def next_event(self) -> ClientEvent | None:
        """Return the next answer or part of one, or the end; else ``None``."""
        while True:
            if self._body is not None:
                event: ClientEvent | None = self._next_body_event()
                if event is None:
                    return self._end()
            else:
                line = self._buffer.take_line()
                if line is None:
                    return self._end()
                event = self._answer(line)
            if isinstance(event, BODY_ENDS):
                self._expected.popleft()
            if event is not None:
                return event

    def _answer(self, line: bytes) -> ClientEvent | None:
        if not self._expected:
            raise ProtocolError("an answer to nothing")
        text = line.decode(errors="replace")
        kind = self._expected[0]
        if kind is _listing:
            return self._listing_line(text)
        if kind is _block and text not in REFUSALS:
            return self._first_block_line(line)
        try:
            reply = kind(text)
        except ValueError:
            raise ProtocolError(f"an answer that none may be: {text[:60]!r}") from None
        self._expected.popleft()
        if reply is Word.PROCEED:
            self._await_tls()
        return reply

    def _first_block_line(self, line: bytes) -> BodyEvent | None:
        body = BodyReader()
        event = body.take_line(line)
        if not isinstance(event, BODY_ENDS):
            self._body = body
        return event

    def _listing_line(self, text: str) -> Listing | Word | None:
        if self._listing is None and text in REFUSALS:
            self._expected.popleft()
            return Word(text)
        lines = self._listing = self._listing if self._listing is not None else []
        if text.lower() == "endblock":
            self._expected.popleft()
            self._listing = None
            return Listing(tuple(lines))
        if len(lines) >= MAX_LISTING:
            raise ProtocolError(f"a listing of more than {MAX_LISTING} lines")
        lines.append(text)
        return None


_Answer = Callable[[str], LineReply]


def _word(text: str) -> Word:
    return Word(text)


def _banner(text: str) -> Banner:
    return Banner.parse(text)


def _pong(text: str) -> Pong | Word:
    return Word(text) if text in REFUSALS else Pong.parse(text)


def _verdict(text: str) -> Verdict | Word:
    return Word(text) if text in REFUSALS else parse_verdict(text)


def _encrypted(text: str) -> Word:
    if text != Word.ENCRYPTED:
        raise ValueError("not ENCRYPTED")
    return Word.ENCRYPTED


def _block(text: str) -> Word:
    """Stand for a block: its lines are read by a ``BodyReader``."""
    return Word(text)


def _listing(text: str) -> Word:
    """Stand for lines up to ``EndBlock``."""
    return Word(text)


_ANSWERS: dict[type[Command], _Answer] = {
    commands.GetServer: _block,
    commands.GetEntangled: _block,
    commands.GetProxy: _block,
    commands.Ping: _pong,
    commands.AskVerdict: _verdict,
    commands.Capabilities: _listing,
    commands.SelfTest: _listing,
    commands.DnsTxt: _listing,
    commands.GenLogin: _listing,
    commands.AskQueue: _listing,
    commands.PartnerList: _listing,
}
_SECRET_COMMANDS = (
    commands.Login,
    commands.AddLogin,
    commands.RmLogin,
    commands.RepLogin,
    commands.PartnerPair,
)

__all__ = [
    "ClientConversation",
    "ClientEvent",
    "Closed",
    "Invalid",
    "ServerConversation",
    "ServerEvent",
    "TextBody",
]
