"""What holds for every block, command and answer, and for every noise."""

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import strategies as s

from sealmail_protocol.block_codec import parse_block, serialise_block
from sealmail_protocol.blocks import Block, BlockType, DataBlock
from sealmail_protocol.bodies import DataChunk
from sealmail_protocol.canonical import block_digest, canonical_form
from sealmail_protocol.command_codec import parse_command
from sealmail_protocol.commands import Command, GetServer, Ping, StoreServer
from sealmail_protocol.conversation import ClientConversation, ServerConversation
from sealmail_protocol.errors import InvalidBlock, ProtocolError
from sealmail_protocol.fields import join_lines
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.policy import COMMAND_POLICY
from sealmail_protocol.replies import (
    Accepted,
    Banner,
    Listing,
    Pending,
    Pong,
    QueueRow,
    Refused,
    parse_verdict,
)

KEY = BlockKey(bytes(20))
wire_blocks = s.blocks.map(serialise_block)
few = settings(max_examples=40)


def body_of(block: Block) -> bytes:
    """Return a block as it is sent."""
    end = b"" if isinstance(block, DataBlock) else b"EndBlock\r\n"
    return serialise_block(block) + end


client_streams = st.lists(
    s.commands.map(lambda command: f"{command}\r\n".encode())
    | s.blocks.map(lambda block: f"{StoreServer(KEY)}\r\n".encode() + body_of(block))
    | st.binary(max_size=40).map(lambda noise: noise + b"\r\n"),
    max_size=4,
).map(b"".join)
server_streams = st.lists(
    s.blocks.map(body_of)
    | s.line_replies.map(lambda reply: f"{reply}\r\n".encode())
    | st.binary(max_size=40).map(lambda noise: noise + b"\r\n"),
    max_size=4,
).map(b"".join)


@pytest.mark.parametrize("kind", BlockType)
@few
@given(st.data())
def test_an_accepted_block_is_written_as_it_came(kind: BlockType, data: st.DataObject) -> None:
    """The round trip of every type is exact, with either line end."""
    block = data.draw(s.BLOCKS[kind])
    wire = serialise_block(block)
    assert parse_block(wire) == block
    assert serialise_block(parse_block(wire)) == wire
    if not isinstance(block, DataBlock):
        assert parse_block(wire.replace(b"\r\n", b"\n")) == block
        assert canonical_form(block) == wire


@few
@given(s.message_announcements | s.acknowledgments, st.data())
def test_padding_changes_no_digest(block: Block, data: st.DataObject) -> None:
    """Padding lines anywhere in an unsigned block leave the block what it is."""
    lines = serialise_block(block).split(b"\r\n")
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(lines) - 1))
        lines.insert(place, data.draw(st.sampled_from((b"Padding: x", b"PADDING: y z"))))
    padded = parse_block(b"\r\n".join(lines))
    assert block_digest(padded) == block_digest(block)


@pytest.mark.parametrize("kind", s.COMMANDS, ids=lambda kind: kind.__name__)
@few
@given(st.data())
def test_a_command_is_read_as_it_was_written(kind: type[Command], data: st.DataObject) -> None:
    """``str`` and ``parse_command`` are each other's way back, in any case of the words."""
    command = data.draw(s.COMMANDS[kind])
    assert parse_command(str(command).encode()) == command
    assert ClientConversation(encrypted=True).send(Ping()) == b"PING\r\n"


def test_every_command_has_a_strategy_and_a_policy() -> None:
    """A command that is forgotten in a table is found here."""
    assert set(s.COMMANDS) == set(COMMAND_POLICY)
    assert set(s.BLOCKS) == set(BlockType)


@few
@given(s.verdicts)
def test_a_verdict_is_read_as_it_was_written(verdict: Accepted | Pending | Refused) -> None:
    """Every verdict has one spelling."""
    assert parse_verdict(str(verdict)) == verdict


@few
@given(s.queue_rows, s.banners, s.pongs)
def test_answers_are_read_as_they_were_written(row: QueueRow, banner: Banner, pong: Pong) -> None:
    """Rows, banners and pongs have one spelling each."""
    assert QueueRow.parse(str(row)) == row
    assert Banner.parse(str(banner)) == banner
    assert Pong.parse(str(pong)) == pong


@few
@given(s.listings)
def test_a_listing_is_read_as_it_was_written(listing: Listing) -> None:
    """What a server lists, a client reads."""
    client = ClientConversation(encrypted=True)
    client.receive_data(b"CONFIDANT MAIL SERVER PROTOCOL 1 READY\r\n")
    client.next_event()
    client.send(parse_command(b"QUEUE"))
    client.receive_data(ServerConversation().send(listing))
    assert client.next_event() == listing


@given(st.binary(max_size=300) | s.mutated(wire_blocks))
def test_noise_is_a_block_in_its_one_form_or_refused(noise: bytes) -> None:
    """Nothing but ``InvalidBlock`` is raised, and what is taken is written again and read."""
    try:
        block = parse_block(noise)
    except InvalidBlock:
        return
    assert parse_block(serialise_block(block)) == block


@given(st.binary(max_size=80) | s.mutated(s.commands.map(lambda c: str(c).encode())))
def test_noise_is_a_command_or_a_value_error(noise: bytes) -> None:
    """What is taken for a command can be written and means the same."""
    try:
        command = parse_command(noise)
    except ValueError:
        return
    assert parse_command(str(command).encode()) == command


@given(st.text(max_size=60) | s.verdicts.map(str) | s.queue_rows.map(str))
def test_noise_is_an_answer_or_a_value_error(noise: str) -> None:
    """The readers of answers refuse by ``ValueError`` alone."""
    for parse in (parse_verdict, QueueRow.parse, Banner.parse, Pong.parse):
        try:
            parse(noise)
        except ValueError:
            continue


def events_of(
    side: ServerConversation | ClientConversation, wire: bytes, cuts: list[int]
) -> list[object]:
    """Return what a side makes of bytes cut at ``cuts``, chunks of data joined."""
    events: list[object] = []
    ends = [*sorted({cut % (len(wire) + 1) for cut in cuts}), len(wire)]
    start = 0
    try:
        for end in ends:
            if end > start:
                side.receive_data(wire[start:end])
            start = end
            while (event := side.next_event()) is not None:
                events.append(event)
    except ProtocolError:
        events.append("broken")
        side.receive_data(b"PING\r\n")
        with pytest.raises(ProtocolError):
            side.next_event()
    joined: list[object] = []
    for each in events:
        last = joined[-1] if joined else None
        if isinstance(each, DataChunk) and isinstance(last, DataChunk):
            joined[-1] = DataChunk(last.data + each.data)
        else:
            joined.append(each)
    return joined


cuts = st.lists(st.integers(0, 5000), max_size=8)


@given(client_streams | s.mutated(client_streams), cuts, st.booleans())
def test_the_server_does_not_mind_how_bytes_are_cut(
    wire: bytes, places: list[int], encrypted: bool
) -> None:
    """Any split of the bytes gives the same commands, bodies and end."""
    whole = events_of(ServerConversation(encrypted=encrypted), wire, [])
    assert events_of(ServerConversation(encrypted=encrypted), wire, places) == whole


@given(server_streams | s.mutated(server_streams), cuts, st.lists(s.commands, max_size=4))
def test_the_client_does_not_mind_how_bytes_are_cut(
    wire: bytes, places: list[int], commands: list[Command]
) -> None:
    """Any split of the bytes gives the same answers, or the same end."""
    sides = []
    for _ in range(2):
        client = ClientConversation(encrypted=True)
        for command in (GetServer(KEY), *commands):
            if str(command) != "STARTTLS":
                client.send(command)
        sides.append(client)
    stream = b"CONFIDANT MAIL SERVER PROTOCOL 1 READY\r\n" + wire
    assert events_of(sides[0], stream, []) == events_of(sides[1], stream, places)


@given(st.lists(st.integers(1, 300)).map(lambda sizes: list(accumulate(sizes))))
def test_a_bundle_does_not_mind_how_bytes_are_cut(places: list[int]) -> None:
    """A body of two entries comes out as the lines that went in."""
    lines = ["Type: message-announcement", "X: y", "NextMessage", "Type: message-announcement"]
    wire = f"{StoreServer(KEY)}\r\n".encode() + join_lines((*lines, "EndBlock"))
    assert len(events_of(ServerConversation(), wire, places)) == 2
