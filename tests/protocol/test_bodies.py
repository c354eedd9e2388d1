"""Bodies are read within limits that are decided before anything is kept."""

from hashlib import sha256

import pytest

from sealmail_protocol.bodies import (
    FREE_BODY,
    BodyReader,
    CrowdedBody,
    DataChunk,
    DataEnded,
    DataStarted,
    OversizedBody,
    TextBody,
)
from sealmail_protocol.errors import ProtocolError
from sealmail_protocol.policy import (
    BLOCK_POLICY,
    FULL_MAILBOX_ANSWER,
    HARD_DATA,
    HARD_TEXT_BODY,
    KIB,
)
from sealmail_protocol.receive_buffer import ReceiveBuffer

LONG = b"X: " + b"x" * 16_000
ROOM = 64 * KIB


def feed(reader: BodyReader, *lines: bytes, times: int = 1) -> list[object]:
    """Return the events of lines, the last one ``times`` times."""
    every = [*lines[:-1], *[lines[-1]] * times]
    return [event for line in every if (event := reader.take_line(line)) is not None]


@pytest.mark.parametrize("targets", [True, False])
@pytest.mark.parametrize("kind", [kind for kind in BLOCK_POLICY if str(kind) != "data"])
def test_a_body_larger_than_its_type_is_read_and_thrown_away(kind: str, targets: bool) -> None:
    """The limit of the first Type line is kept to the byte, with room for Post-To lines if any."""
    room = ROOM if targets else 0
    limit = min(BLOCK_POLICY[kind].body_size + room, HARD_TEXT_BODY)  # type: ignore[index]
    first = f"Type: {kind}".encode()
    fits, rest = divmod(limit - len(first) - 2, len(LONG) + 2)
    if 0 < rest < 3:
        pytest.fail("choose another length")
    for extra, expected in ((0, TextBody), (1, OversizedBody)):
        reader = BodyReader(targets=targets)
        assert feed(reader, first, LONG, times=fits) == []
        (event,) = feed(reader, b"x" * (rest - 2 + extra), b"EndBlock")
        assert isinstance(event, expected)


def test_a_body_without_type_has_the_least_room() -> None:
    """64 KiB, then it is only counted."""
    (event,) = feed(BodyReader(), *[LONG] * 5, b"endblock")
    assert event == OversizedBody(5 * (len(LONG) + 2), sha256((LONG + b"\r\n") * 5).digest())


class Narrow:
    """Room for so many steps of a body."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def take(self, size: int) -> bool:
        """Take one step more, if there is one."""
        self.steps -= 1
        return self.steps >= 0

    def release(self) -> None:
        """Give nothing back."""


@pytest.mark.parametrize("steps", [100, 3, 0])
def test_a_body_that_is_too_large_has_the_digest_of_its_blocks(steps: int) -> None:
    """Whether it was kept at first or not; targets, separators and padding are no part of it."""
    head = (b"Post-To: server=a.example:8081", b"Padding: x", b"Type: address-claim")
    entry = (LONG, b"post-to: here it is", b"x" * 9, b"x" * 11)
    body = (*head, *entry, b"NEXTCLAIM", *entry * 100)
    (event,) = feed(BodyReader(room=Narrow(steps)), *body, b"EndBlock")
    whole = b"".join(line + b"\r\n" for line in (head[2], *entry, *entry * 100))
    assert event == OversizedBody(len(whole) + len(head[0]) + 13, sha256(whole).digest())


def test_a_late_type_does_not_revive_a_body() -> None:
    """Lines that were thrown away do not come back, so neither does the body."""
    reader = BodyReader()
    feed(reader, LONG, times=5)
    (event,) = feed(reader, b"Type: message-announcement", b"Date: x", b"EndBlock")
    assert isinstance(event, OversizedBody)


def test_an_endless_body_ends_the_connection() -> None:
    """Padding counts, too."""
    with pytest.raises(ProtocolError, match="text body"):
        feed(BodyReader(), b"Padding: " + b"x" * 16_000, times=1100)


def test_a_body_of_millions_of_short_lines_ends_the_connection() -> None:
    """Each line costs more memory than it carries, so a few bytes a line are no block."""
    reader = BodyReader(answer=True)
    with pytest.raises(ProtocolError, match="short lines"):
        feed(reader, b"Type: message-announcement", b"xx", times=2_000_000)


def test_a_full_mailbox_reaches_its_owner() -> None:
    """An answer has room for a mailbox of 16 MiB and the separators in it; a body has not."""
    entry = b"x" * 248
    entries = 16 * KIB * KIB // 250
    for answer, expected in ((True, TextBody), (False, None)):
        reader = BodyReader(answer=answer)
        feed(reader, b"Type: message-announcement")
        try:
            for _ in range(entries - 1):
                reader.take_line(entry)
                reader.take_line(b"NextMessage")
            event = reader.take_line(b"EndBlock")
        except ProtocolError:
            event = None
        assert (type(event) if event else None) is expected
    assert entries * 263 < FULL_MAILBOX_ANSWER


def test_an_endless_header_before_data_ends_the_connection() -> None:
    """No memory is spent on lines that no data block has."""
    reader = BodyReader()
    feed(reader, b"Type: data", LONG, times=9)
    with pytest.raises(ProtocolError, match="before data"):
        feed(reader, b"Data: 5")


def test_more_data_than_anybody_sends_ends_the_connection() -> None:
    """Up to 16 MiB are counted and refused by verdict; beyond that nobody waits for the end."""
    [started] = feed(BodyReader(), b"Type: data", b"Data: %d" % HARD_DATA)
    assert isinstance(started, DataStarted)
    with pytest.raises(ProtocolError, match="data block of"):
        feed(BodyReader(), b"Type: data", b"Data: %d" % (HARD_DATA + 1))


def test_data_come_in_chunks_and_stop_at_their_count() -> None:
    """What follows the last byte stays in the buffer."""
    reader, buffer = BodyReader(), ReceiveBuffer()
    buffer.feed(b"TYPE: data\r\ndata: 600000\r\n" + b"x" * 600_000 + b"PING\r\n")
    events: list[object] = []
    while not events or not isinstance(events[-1], DataEnded):
        events.append(reader.next_event(buffer))
    started, *chunks, _ = events
    assert started == DataStarted((b"TYPE: data", b"data: 600000"), 600_000)
    assert [len(chunk.data) for chunk in chunks if isinstance(chunk, DataChunk)] == [
        131_072, 131_072, 131_072, 131_072, 75_712,
    ]  # fmt: skip
    assert buffer.take_line() == b"PING"


@pytest.mark.parametrize(
    "lines",
    [
        (b"Data: 5", b"Type: data"),
        (b"Type: acknowledgment", b"Type: data", b"Data: 5"),
        (b"Type: DATA", b"Data: 5"),
        (b"Type: data", b"Data: 0"),
        (b"Type: data", b"Data: 05"),
        (b"Type: data", b"Data: +5"),
        (b"Type: data", b"Data:5"),
    ],
)
def test_nobody_waits_for_bytes_that_nobody_sends(lines: tuple[bytes, ...]) -> None:
    """A Data line counts bytes only in a body that said first that it is data."""
    assert feed(BodyReader(), *lines, b"EndBlock") == [TextBody(lines)]


def test_padding_is_no_part_of_a_body_unless_signed() -> None:
    """Signed text is never thinned."""
    signed = (
        b"-----BEGIN PGP SIGNED MESSAGE-----",
        b"Padding: kept",
        b"-----END PGP SIGNATURE-----",
    )
    lines = (b"Padding: gone", *signed, b"NextClaim", b"padding: gone", *signed)
    assert feed(BodyReader(), *lines, b"ENDBLOCK") == [TextBody((*signed, b"NextClaim", *signed))]


class CountedRoom:
    """So many bytes of room, and how many of them are taken."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken = 0

    def take(self, size: int) -> bool:
        """Take so many bytes more, or none of them."""
        if self.taken + size > self.size:
            return False
        self.taken += size
        return True

    def release(self) -> None:
        """Give back all."""
        self.taken = 0


MAIL = b"Type: message-announcement"


def test_an_ordinary_body_asks_for_no_room() -> None:
    """Where all room is used up, mail of everyday size is kept all the same."""
    (event,) = feed(BodyReader(room=CountedRoom(0)), MAIL, *[LONG] * 7, b"EndBlock")
    assert isinstance(event, TextBody)


def test_a_large_body_is_thrown_away_where_there_is_no_room_and_gives_back_what_it_had() -> None:
    """It is read to its end, and holds nothing from the line on for which there was no room."""
    room = CountedRoom(3 * FREE_BODY)
    reader = BodyReader(room=room)
    feed(reader, MAIL, LONG, times=30)
    assert room.taken == 3 * FREE_BODY
    feed(reader, LONG, times=10)
    assert room.taken == 0
    assert feed(reader, LONG, b"EndBlock") == [CrowdedBody()]


def test_short_lines_weigh_what_they_cost_in_memory() -> None:
    """A body of empty lines is small on the wire only."""
    reader = BodyReader(room=CountedRoom(0))
    assert feed(reader, MAIL, b"x", times=FREE_BODY // 32) == []
    assert feed(reader, b"EndBlock") == [CrowdedBody()]


def test_a_body_that_is_skipped_is_not_kept_and_its_data_are_still_counted() -> None:
    """Whoever passes a body over must know where it ends."""
    room = CountedRoom(100 * FREE_BODY)
    reader = BodyReader(room=room)
    reader.skip()
    feed(reader, MAIL, LONG, times=100)
    assert room.taken == 0
    assert feed(reader, b"EndBlock") == [TextBody(())]
    reader = BodyReader(room=room)
    reader.skip()
    assert feed(reader, b"Type: data", b"Data: 5") == [DataStarted((), 5)]
