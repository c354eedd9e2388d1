"""Who may say what when: the two sides of a connection, without a socket.

Bytes go in by ``receive_data``, events come out of ``next_event`` until it returns ``None``;
anything else it raises than ``ProtocolError`` is a bug. After ``ProtocolError`` or ``Closed``
the conversation is over, and says so again to whoever asks. ``send`` refuses by ``ValueError``
what would not be one line of the protocol.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sealmail_protocol import commands
from sealmail_protocol.bodies import BODY_ENDS, BodyEvent, BodyReader, Room, TextBody
from sealmail_protocol.command_codec import parse_command
from sealmail_protocol.commands import NAMING_TARGETS, BodyCommand, Command, StartTls
from sealmail_protocol.errors import ProtocolError
from sealmail_protocol.fields import as_line, is_line, join_lines
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
# QUEUE and the like, asked of servers that have an account of ours: lines, and bytes of them.
MAX_LISTING = 100_000
MAX_LISTING_SIZE = 16 * 1024 * 1024
# CAPABILITIES are asked of strangers' servers too, of many at a time.
MAX_CAPABILITIES = 256
MAX_CAPABILITIES_SIZE = 16 * 1024


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


EventT = TypeVar("EventT")


class _Side(Generic[EventT]):
    """What both sides share: the buffer, the gap between PROCEED and TLS, and the end."""

    def __init__(self, *, encrypted: bool) -> None:
        self.encrypted = encrypted
        self._broken: ProtocolError | None = None
        self._buffer = ReceiveBuffer()
        self._ended = False
        self._awaiting_tls = False
        self._body: BodyReader | None = None

    def receive_data(self, data: bytes) -> None:
        """Take what the socket gave; ``b""`` means that the peer has ended."""
        if self._broken is not None:
            return
        if self._awaiting_tls and data:
            self._broken = ProtocolError("plaintext where the TLS handshake belongs")
            raise self._broken
        self._ended = self._ended or not data
        self._buffer.feed(data)

    def next_event(self) -> EventT | None:
        """Return what was said next, or the end; ``None`` when more bytes are needed."""
        if self._broken is not None:
            raise ProtocolError(str(self._broken))
        try:
            return self._advance()
        except ProtocolError as error:
            self._broken = error
            raise

    def _advance(self) -> EventT | None:
        raise NotImplementedError

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


class ServerConversation(_Side[ServerEvent]):
    """The server's side: commands and bodies in, answers out.

    ``room``, where it is set, bounds the large bodies that are kept.
    """

    def __init__(self, *, encrypted: bool = False) -> None:
        super().__init__(encrypted=encrypted)
        self._invalid = 0
        self.room: Room | None = None

    def skip_body(self) -> None:
        """Keep nothing of the body that is being read; its end is still told."""
        if self._body is not None:
            self._body.skip()

    def expect_tls(self) -> None:
        """Note that TLS comes at once, without STARTTLS."""
        self._await_tls()

    def _advance(self) -> ServerEvent | None:
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
            self._body = BodyReader(targets=isinstance(command, NAMING_TARGETS), room=self.room)
        return command

    def send(self, reply: LineReply | Listing) -> bytes:
        """Return the bytes of an answer."""
        if isinstance(reply, Listing):
            return _checked_lines(reply.lines) + join_lines(("EndBlock",))
        return _checked_lines((str(reply),))


class ClientConversation(_Side[ClientEvent]):
    """The client's side: commands out, answers in, in the order of the commands.

    ``room``, where it is set, bounds the large answers to a GET that are kept; ``most_lines``
    the bytes of their lines that are read at all.
    """

    def __init__(self, *, encrypted: bool = False) -> None:
        super().__init__(encrypted=encrypted)
        self._expected: deque[_Answer] = deque([_banner])
        self._listing: list[str] | None = None
        self._listed = 0
        self.room: Room | None = None
        self.most_lines: int | None = None

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
        if self._awaiting_tls or _proceed in self._expected:
            raise ProtocolError("a command between STARTTLS and the handshake")
        line = str(command).encode()
        if type(parse_command(line)) is not type(command):
            raise ValueError(f"{type(command).__name__} would be read as another command")
        self._expected.append(_ANSWERS.get(type(command), _done))
        return line + b"\r\n"

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

    def _advance(self) -> ClientEvent | None:
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
        # Answers are shown and logged, so they may not steer a terminal.
        text = as_line(line.decode(errors="replace"))
        kind = self._expected[0]
        if kind is _listing:
            return self._listing_line(text, MAX_LISTING, MAX_LISTING_SIZE)
        if kind is _short_listing:
            return self._listing_line(text, MAX_CAPABILITIES, MAX_CAPABILITIES_SIZE)
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
        body = BodyReader(answer=True, room=self.room, most=self.most_lines)
        event = body.take_line(line)
        if not isinstance(event, BODY_ENDS):
            self._body = body
        return event

    def _listing_line(self, text: str, most: int, size: int) -> Listing | Word | None:
        if self._listing is None and text in REFUSALS:
            self._expected.popleft()
            return Word(text)
        lines = self._listing = self._listing if self._listing is not None else []
        if text.lower() == "endblock":
            self._expected.popleft()
            self._listing, self._listed = None, 0
            return Listing(tuple(lines))
        self._listed += len(text)
        if len(lines) >= most or self._listed > size:
            raise ProtocolError(f"a listing beyond {most} lines or {size} bytes")
        lines.append(text)
        return None


def _checked_lines(lines: Sequence[str]) -> bytes:
    """Return lines of an answer, none of which may end it or begin another."""
    for line in lines:
        if not is_line(line) or line.lower() == "endblock":
            raise ValueError(f"not a line of an answer: {line[:60]!r}")
    return join_lines(lines)


_Answer = Callable[[str], LineReply]


def _word_or_refusal(success: Word) -> _Answer:
    """Make the reader of an answer that is one word, or a refusal."""

    def read(text: str) -> Word:
        word = Word(text)
        if word is not success and word not in REFUSALS:
            raise ValueError(f"not {success}")
        return word

    return read


_done = _word_or_refusal(Word.DONE)
_proceed = _word_or_refusal(Word.PROCEED)
_goodbye = _word_or_refusal(Word.GOODBYE)


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


def _short_listing(text: str) -> Word:
    """Stand for few lines up to ``EndBlock``, since anybody may be asked for them."""
    return Word(text)


# Every other command is answered DONE or a refusal.
_ANSWERS: dict[type[Command], _Answer] = {
    commands.StartTls: _proceed,
    commands.Quit: _goodbye,
    commands.Shutdown: _goodbye,
    commands.GetServer: _block,
    commands.GetEntangled: _block,
    commands.GetProxy: _block,
    commands.GetDhtValue: _block,
    commands.Ping: _pong,
    commands.AskVerdict: _verdict,
    commands.Capabilities: _short_listing,
    commands.SelfTest: _short_listing,
    commands.DnsTxt: _listing,
    commands.GenLogin: _listing,
    commands.ListDhtValues: _listing,
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
