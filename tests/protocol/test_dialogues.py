"""Both sides of every conversation in tests/dialogues, joined in memory."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.protocol.vector_files import DIALOGUES, PIECES, in_pieces

from sealmail_protocol.block_codec import parse_data_header, parse_text_block
from sealmail_protocol.blocks import Block, DataBlock
from sealmail_protocol.bodies import DataChunk, DataEnded, DataStarted, OversizedBody, TextBody
from sealmail_protocol.bundles import split_bundle
from sealmail_protocol.canonical import canonical_form
from sealmail_protocol.commands import BodyCommand, Command, Ping
from sealmail_protocol.conversation import (
    ClientConversation,
    Closed,
    Invalid,
    ServerConversation,
)
from sealmail_protocol.errors import ProtocolError
from sealmail_protocol.fields import decode_lines, join_lines
from sealmail_protocol.keys import BlockKey, data_key
from sealmail_protocol.replies import Banner
from sealmail_server.reading import block_slices
from sealmail_store import BlockData, StoredEntry

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FILES = sorted(DIALOGUES.glob("*.txt"))


class ConversationPair:
    """A client and a server whose bytes reach each other in pieces of one size.

    Each side's events are written again as the other side writes them: what was understood
    must be what was sent.
    """

    def __init__(self, piece: int, *, encrypted: bool) -> None:
        self._piece = piece
        self.client = ClientConversation(encrypted=encrypted)
        self.server = ServerConversation(encrypted=encrypted)
        self.last_invalid = False
        if encrypted:
            self.server_says(self.server.send(Banner()))

    def client_says(self, wire: bytes) -> None:
        """Carry bytes to the server, and let the client expect the answers."""
        understood = b""
        for part in in_pieces(wire, self._piece):
            self.server.receive_data(part)
            while (event := self.server.next_event()) is not None:
                understood += self._written_by_client(event, wire)
        assert understood == wire

    def server_says(self, wire: bytes) -> None:
        """Carry bytes to the client."""
        understood = b""
        for part in in_pieces(wire, self._piece):
            self.client.receive_data(part)
            while (event := self.client.next_event()) is not None:
                understood += self._written_by_server(event)
        assert understood == wire

    def handshake(self) -> None:
        """Let both sides be inside TLS."""
        self.client.tls_started()
        self.server.tls_started()

    def end(self) -> None:
        """End both sides: nothing may be left over."""
        for side in (self.client, self.server):
            side.receive_data(b"")
            assert side.next_event() == Closed()
            assert side.next_event() == Closed()

    def _written_by_client(self, event: object, wire: bytes) -> bytes:
        match event:
            case Invalid():
                self.client.send(Ping())  # which may be answered INVALID COMMAND as well
                self.last_invalid = event.last
                return wire
            case TextBody():
                return self.client.send_text_body([line.decode() for line in event.lines])
            case DataStarted():
                return self.client.send_data_header([line.decode() for line in event.lines])
            case DataChunk() | DataEnded():
                return event.data if isinstance(event, DataChunk) else b""
            case _:
                assert isinstance(event, Command)
                return self.client.send(event)

    def _written_by_server(self, event: object) -> bytes:
        match event:
            case TextBody():
                return text_answer(event.lines)
            case DataStarted():
                self._data = DataBlock(parse_data_header(decode_lines(event.lines)), b"")
                return b""
            case DataChunk():
                self._data = DataBlock(self._data.header, self._data.data + event.data)
                return b""
            case DataEnded():
                return data_answer(self._data)
            case _:
                assert not isinstance(event, Closed | OversizedBody)
                return self.server.send(event)  # type: ignore[arg-type]


def text_answer(lines: tuple[bytes, ...]) -> bytes:
    """Return what the server answers a GET with for the text blocks in these lines."""
    if not lines:
        return join_lines(("EndBlock",))  # only an original says so
    blocks = [parse_text_block(decode_lines(each)) for each in split_bundle(lines)]
    return answered(tuple(stored(block, canonical_form(block)) for block in blocks))


def data_answer(block: DataBlock) -> bytes:
    """Return what the server answers a GET with for a data block."""
    data = BlockData(data_key(block.data), block.header.size, block.data)
    return answered((stored(block, join_lines(block.header.lines), data),))


def stored(block: Block, header: bytes, data: BlockData | None = None) -> StoredEntry:
    """Return a block as the store keeps it; what the answer does not tell is made up."""
    key = data.key if data else BlockKey(bytes(20))
    return StoredEntry(block.type, key, b"", NOW, header, bytes(32), stamp_bits=0, data=data)


def answered(entries: tuple[StoredEntry, ...]) -> bytes:
    """Return what a session writes for the entries that a GET found."""

    async def slices() -> bytes:
        return b"".join([piece async for piece in block_slices(entries)])

    return asyncio.run(slices())


def data(count: int) -> bytes:
    """Return ``count`` bytes, line ends among them."""
    return (b"\r\nEndBlock\r\n\x00\xff" * count)[:count]


def steps(path: Path) -> list[tuple[str, bytes]]:
    """Return who says what; what one side says in a row is one step."""
    found: list[tuple[str, bytes]] = []
    for line in path.read_text().splitlines():
        mark, text = line[:2], line[3:]
        if mark == "# ":
            continue
        if mark in ("--", "C!", "S!"):
            found.append((mark, text.encode()))
            continue
        said = data(int(text)) if mark[1] == "#" else join_lines((text,))
        if found and found[-1][0] == mark[0]:
            said = found.pop()[1] + said
        found.append((mark[0], said))
    return found


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_both_sides_understand_a_dialogue(path: Path, piece: int) -> None:
    """Each side reads what the other says, and would have said it in the same bytes."""
    script = steps(path)
    inside = script[0] == ("--", b"inside TLS")
    pair = ConversationPair(piece, encrypted=inside)
    speak = {"C": pair.client_says, "S": pair.server_says}
    script = script[inside:]
    for place, (mark, said) in enumerate(script):
        following = script[place + 1][0] if place + 1 < len(script) else ""
        if mark == "--":
            pair.handshake()
        elif following.endswith("!"):
            with pytest.raises(ProtocolError, match=script[place + 1][1].decode()):
                speak[mark](said)
            return
        else:
            speak[mark](said)
    assert pair.client.waiting == 0
    pair.end()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_commands_may_be_sent_without_waiting(path: Path) -> None:
    """All that a client says at once, with a beginning behind it, gives the same commands."""
    script = [step for step in steps(path) if step[0] == "C"]
    if not script or "STARTTLS" in path.read_text() or "S!" in path.read_text():
        script = [("C", b"PING\r\n")]
    server = ServerConversation(encrypted=True)
    server.receive_data(b"".join(said for _, said in script) + b"GET SERV")
    commands = bodies = 0
    while (event := server.next_event()) is not None:
        commands += isinstance(event, BodyCommand)
        bodies += isinstance(event, TextBody | DataEnded)
    assert commands == bodies
    server.receive_data(b"ER " + b"0" * 40 + b"\r\n")
    assert isinstance(server.next_event(), Command)


def test_the_third_line_of_nonsense_is_the_last() -> None:
    """The server is told to close after its answer."""
    pair = ConversationPair(1, encrypted=True)
    for expected in (False, False, True):
        pair.client_says(b"EHLO\r\n")
        assert pair.last_invalid is expected
        pair.server_says(b"INVALID COMMAND\r\n")
