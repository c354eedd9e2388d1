"""The copy of a pair's queue: what is told of rows, and which of two states stays."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.server.post_office import PostOffice, in_post_office
from tests.server.users import data_lines

from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.block_codec import parse_data_header
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.bundles import MAX_POST_TO
from sealmail_protocol.canonical import data_digest
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Accepted
from sealmail_server.outgoing.accepting import NotServed
from sealmail_server.outgoing.mirroring import Mirror
from sealmail_server.outgoing.rows import new_row
from sealmail_server.outgoing.telling import Teller
from sealmail_server.outgoing.told import parse_told, told_heads
from sealmail_server.partnership import Partner, Partnership
from sealmail_store import QueueKind, QueueRow, QueueState, WriteView

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
KEY = BlockKey(bytes(20))
DIGEST = bytes(range(32))
OWNER = "A" * 40
TARGET = Transport((ServerAddress("mail.example", 8081),))
PARTNERSHIP = Partnership(Partner(ServerAddress("b.example", 8081), "A" * 40, bytes(32)), 100)


def ignore(_: object) -> None:
    """Stand for those who would work on what the partner says."""


def row(**more: object) -> QueueRow:
    """Return a row of this server that waits."""
    made = new_row(
        ticket=f"{more.get('line', 1):016x}",
        digest=DIGEST,
        key=KEY,
        type=BlockType.DATA,
        date=NOW,
        entry=7,
        owner=OWNER,
        target=TARGET,
        line=1,
        queued=NOW,
        start=NOW + timedelta(hours=1),
    )
    return replace(made, **more)  # type: ignore[arg-type]  # a test names the fields it means


SETTLED = {"destination": "", "content": b"", "entry": None, "not_before": None, "last": NOW}


def test_rows_are_told_whole() -> None:
    """What is read is what was told, but for its kind and its place in the store."""
    rows = (
        row(),
        row(line=2, state=QueueState.REFUSED, code="price bd,53,2", **SETTLED),
        row(line=3, state=QueueState.DELIVERED, **SETTLED),
    )
    [head] = told_heads(DIGEST, rows)
    told = parse_told(KEY, (*head.split(b"\r\n")[:-1], b"Type: data"))
    assert told.rows == tuple(replace(each, kind=QueueKind.MIRRORED, entry=None) for each in rows)
    assert (told.digest, told.type, told.lines) == (DIGEST, BlockType.DATA, (b"Type: data",))


def test_a_copy_is_told_back_as_the_owners_own() -> None:
    """Whoever owns it may have lost it; once it is settled, nobody has to deliver it."""
    copy = row(kind=QueueKind.MIRRORED)
    for told, kind in (
        (copy, QueueKind.PROXY),
        (replace(copy, state=QueueState.DELIVERED, **SETTLED), QueueKind.MIRRORED),  # type: ignore[arg-type]  # as above
    ):
        [head] = told_heads(DIGEST, (told,))
        [read] = parse_told(KEY, tuple(head.split(b"\r\n")[:-1])).rows
        assert read == replace(told, kind=kind, entry=None)


def test_more_rows_than_one_body_takes_are_told_in_several() -> None:
    """Each head is small enough for the partner to read, and none of the rows is left out."""
    names = ",".join(f"server-{number}.{'long' * 12}.example:8081" for number in range(16))
    rows = tuple(
        row(line=line, destination=f"server={names}") for line in range(1, MAX_POST_TO + 1)
    )
    heads = told_heads(DIGEST, rows)
    assert len(heads) > 2
    assert max(map(len, heads)) <= 60 * 1024
    told = [
        each for head in heads for each in parse_told(KEY, tuple(head.split(b"\r\n")[:-1])).rows
    ]
    assert [each.line for each in told] == [each.line for each in rows]


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (b"Type: data",),
        (b"Queued-Block: 00 data",),
        (b"Queued-Block: " + DIGEST.hex().encode() + b" data",),
        (b"Queued-Block: " + DIGEST.hex().encode() + b" data", b"Queued-Row: what"),
        (
            b"Queued-Block: " + DIGEST.hex().encode() + b" data",
            b"Queued-Row: 0123456789abcdef AAAAAAAA 1 waiting - - 2026-05-01T12:00:00Z - - - -",
        ),
        (
            b"Queued-Block: " + DIGEST.hex().encode() + b" data",
            b"Queued-Row: AAAAAAAA 1 delivered - - 2026-05-01T12:00:00Z - - - -",
        ),
        (
            b"Queued-Block: " + DIGEST.hex().encode() + b" data",
            b"Queued-Row: 0123456789abcdef AAAAAAAA 1 lost - - 2026-05-01T12:00:00Z - - - -",
        ),
    ],
)
def test_what_cannot_be_read_is_not_taken(tmp_path: Path, lines: tuple[bytes, ...]) -> None:
    """The answer is FAILED, and nothing is kept."""

    async def scenario(office: PostOffice) -> None:
        mirror = Mirror(office.store, office.intake, lambda: office.time, ignore, ignore)
        with pytest.raises(NotServed):
            await mirror.take_text(KEY, lines)

    in_post_office(tmp_path / "store", scenario)


def test_of_two_states_the_better_one_stays(tmp_path: Path) -> None:
    """Delivered before refused before given up before waiting, whatever comes first."""
    forgotten: list[int] = []

    async def scenario(office: PostOffice) -> None:
        mirror = Mirror(office.store, office.intake, lambda: office.time, forgotten.append, ignore)

        async def tell(state: QueueState, code: str = "-") -> None:
            [head] = told_heads(DIGEST, (row(state=state, code=code, **SETTLED),))
            assert await mirror.take_text(KEY, tuple(head.split(b"\r\n")[:-1])) == Accepted()

        async def known() -> list[tuple[str, str]]:
            rows = await office.store.read(lambda view: view.queue.owned(OWNER, limit=9))
            return [(each.state, each.code) for each in rows]

        number = await office.store.write(lambda view: view.queue.put(row(entry=None)))
        await tell(QueueState.GIVEN_UP, "expired")
        assert await known() == [("given-up", "expired")]
        await tell(QueueState.REFUSED, "full")
        await tell(QueueState.GIVEN_UP, "expired")
        assert await known() == [("refused", "full")]
        await tell(QueueState.DELIVERED)
        await tell(QueueState.REFUSED, "full")
        assert await known() == [("delivered", "-")]
        assert forgotten[0] == number

    in_post_office(tmp_path / "store", scenario)


def test_a_copy_comes_with_its_block_and_ends_with_its_owners_word(tmp_path: Path) -> None:
    """What is not kept is not answered DONE; the copy goes when its rows are settled."""

    async def scenario(office: PostOffice) -> None:
        data = b"proxied" * 20_000
        key, lines = data_lines(data, office.time)
        mirror = Mirror(office.store, office.intake, lambda: office.time, ignore, ignore)
        body = tuple(line.encode() for line in lines)
        digest = data_digest(parse_data_header(lines), key)
        told = replace(row(), digest=digest, key=key)
        for claimed, kept in ((DIGEST, 0), (digest, 1)):
            [head] = told_heads(claimed, (replace(told, digest=claimed),))
            coming = mirror.receive_data(key, (*head.split(b"\r\n")[:-1], *body))
            await coming.take(data)
            with nullcontext() if kept else pytest.raises(NotServed):
                await coming.finish()
            counts = await office.store.read(lambda view: view.counts())
            assert ("proxied" in counts) == bool(kept)
        done = replace(told, state=QueueState.DELIVERED, **SETTLED)  # type: ignore[arg-type]  # as above
        [head] = told_heads(digest, (done,))
        await mirror.take_text(key, tuple(head.split(b"\r\n")[:-1]))
        assert "proxied" not in await office.store.read(lambda view: view.counts())

    in_post_office(tmp_path / "store", scenario)


def test_the_partner_is_told_the_block_once_and_then_what_became_of_it(tmp_path: Path) -> None:
    """Newer news take the place of older ones, which keep the block while it has not gone."""

    async def scenario(office: PostOffice) -> None:
        teller = Teller(office.store, PARTNERSHIP, lambda: office.time)
        numbers: list[int] = []

        def accept(view: WriteView) -> None:
            for line in (1, 2, 3):
                numbers.append(view.queue.put(row(line=line)))
            kept = view.queue.row(numbers[0])
            assert kept is not None
            teller.tell(view, kept, office.time)

        async def news() -> list[QueueRow]:
            rows = await office.store.read(lambda view: view.queue.about(DIGEST))
            return [each for each in rows if each.kind == QueueKind.MIRROR]

        await office.store.write(accept)
        await teller.settled(numbers[0], QueueState.DELIVERED, "-")
        [told] = await news()
        assert told.entry == 7
        await office.store.write(lambda view: view.queue.finish((told.number,)))
        await teller.settled(numbers[1], QueueState.REFUSED, "full")
        [told] = await news()
        assert told.entry is None
        await teller.settled(numbers[2], QueueState.DELIVERED, "-")
        assert len(await news()) == 1

    in_post_office(tmp_path / "store", scenario)
