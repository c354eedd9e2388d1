"""A million random and mutated inputs: no surprise, and no more memory than is allowed."""

import gc
import random
import tracemalloc
from collections.abc import Callable

import pytest
from tests.protocol.vector_files import DIALOGUES, block_vectors, in_pieces

from sealmail_protocol.addresses import domain_of
from sealmail_protocol.block_codec import parse_block, serialise_block
from sealmail_protocol.command_codec import parse_command
from sealmail_protocol.commands import GetServer
from sealmail_protocol.conversation import ClientConversation, ServerConversation
from sealmail_protocol.errors import InvalidBlock, ProtocolError
from sealmail_protocol.keys import BlockKey

INPUTS = 250_000
# Far above what one input needs, far below what a leak of a few bytes an input would take.
MEMORY_BOUND = 8 * 1024 * 1024
KEY = BlockKey(bytes(20))

BODIES = [vector.body(b"\r\n") for vector in block_vectors() if len(vector.body(b"\n")) < 5000]
WIRE_BODIES = [vector.on_the_wire() for vector in block_vectors() if vector.name != "long_line"]
SAID = {
    mark: [
        line[3:].encode()
        for path in sorted(DIALOGUES.glob("*.txt"))
        for line in path.read_text().splitlines()
        if line.startswith(mark)
    ]
    for mark in ("C>", "S>")
}
PIECES = [b"\r\n", b"\n", b" ", b": ", b"\x00", b"\xff", b"Data: 9", b"EndBlock", b"Type: data",
          b"-----BEGIN PGP SIGNED MESSAGE-----", b"- ", b"Padding: ", b"0" * 40]  # fmt: skip


def mutate(chance: random.Random, original: bytes) -> bytes:
    """Return ``original`` with a few bytes replaced, cut, doubled or put in."""
    for _ in range(chance.randrange(4)):
        start = chance.randrange(len(original) + 1)
        end = start + chance.choice((0, 0, 1, 5, 40))
        added = chance.choice((b"", original[start:end] * 2, chance.choice(PIECES),
                               chance.randbytes(3)))  # fmt: skip
        original = original[:start] + added + original[end:]
    return original


def block(chance: random.Random) -> None:
    """Parse something like a block."""
    wire = chance.randbytes(60) if chance.random() < 0.1 else mutate(chance, chance.choice(BODIES))
    try:
        parsed = parse_block(wire)
    except InvalidBlock:
        return
    assert parse_block(serialise_block(parsed)) == parsed


def command(chance: random.Random) -> None:
    """Parse something like a command."""
    line = (
        chance.randbytes(40)
        if chance.random() < 0.1
        else mutate(chance, chance.choice(SAID["C>"]))
    )
    try:
        parsed = parse_command(line)
    except ValueError:
        return
    assert parse_command(str(parsed).encode()) == parsed


def server(chance: random.Random) -> None:
    """Let a server hear something like a client."""
    wire = b"STORE SERVER " + b"0" * 40 + b"\r\n" + chance.choice(WIRE_BODIES)
    lines = b"\r\n".join(chance.choices(SAID["C>"], k=2)) + b"\r\n"
    hear(ServerConversation(encrypted=chance.random() < 0.5), mutate(chance, wire + lines), chance)


def client(chance: random.Random) -> None:
    """Let a client hear something like a server."""
    side = ClientConversation(encrypted=True)
    for said in (
        GetServer(KEY),
        *map(parse_command, (b"QUEUE", b"PING", b"VERDICT " + b"0" * 64)),
    ):
        side.send(said)
    answers = b"\r\n".join(chance.choices(SAID["S>"], k=3)) + b"\r\n"
    wire = chance.choice(WIRE_BODIES) + answers
    banner = b"CONFIDANT MAIL SERVER PROTOCOL 1 READY\r\n"
    hear(side, mutate(chance, banner) + mutate(chance, wire), chance)


def hear(
    side: ServerConversation | ClientConversation, wire: bytes, chance: random.Random
) -> None:
    """Feed ``wire`` to a side until it has enough."""
    try:
        for part in (*in_pieces(wire, chance.choice((50, 400, 1 << 20))), b""):
            side.receive_data(part)
            while (event := side.next_event()) is not None:
                if type(event).__name__ == "Closed":
                    return
    except ProtocolError:
        return


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("attempt", [block, command, server, client], ids=lambda f: f.__name__)
def test_a_quarter_of_a_million_inputs_surprise_nobody(
    attempt: Callable[[random.Random], None],
) -> None:
    """Only the documented errors are raised, and the memory in use stays below its bound."""
    play(attempt, INPUTS)


@pytest.mark.parametrize("attempt", [block, command, server, client], ids=lambda f: f.__name__)
def test_some_hundred_inputs_surprise_nobody(attempt: Callable[[random.Random], None]) -> None:
    """The same in short, so that the long test is known to work."""
    play(attempt, 300)


def play(attempt: Callable[[random.Random], None], inputs: int) -> None:
    """Try so many inputs, always the same ones."""
    chance = random.Random(attempt.__name__)  # noqa: S311 - repeatable noise
    # The tables of IDNA are loaded by the first name that needs them, once.
    domain_of("someone@bücher.example")
    tracemalloc.start()
    try:
        for number in range(inputs):
            attempt(chance)
            if number % 1000 == 0:
                gc.collect()  # and empty the interpreter's free lists
                assert tracemalloc.get_traced_memory()[1] < MEMORY_BOUND
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BOUND
    finally:
        tracemalloc.stop()
