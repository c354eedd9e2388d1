"""The operator's list of a long queue: whole, in pages, each small enough for one answer."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from click.testing import CliRunner

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.keys import BlockKey
from sealmail_server.cli import main
from sealmail_server.config import STORE_NAME
from sealmail_server.outgoing.desk import QueueDesk
from sealmail_server.outgoing.telling import Teller
from sealmail_server.partnership import Partnership
from sealmail_store import BlockStore, QueueKind, QueueRow, QueueState, WriteView

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
KINDS = (QueueKind.MIRRORED, QueueKind.PROXY)
STATES = (QueueState.DELIVERED, QueueState.GIVEN_UP)


def fill(view: WriteView, count: int) -> None:
    """Queue rows of each kind in turn, of which every other pair is delivered."""
    for number in range(count):
        view.queue.put(
            QueueRow(
                kind=KINDS[number % 2],
                digest=number.to_bytes(32, "big"),
                queued=NOW,
                type=BlockType.DATA,
                key=BlockKey(bytes(20)),
                owner="A" * 40,
                line=1,
                state=STATES[number // 2 % 2],
                code="expired",
                last=NOW + timedelta(hours=1),
            )
        )


def test_pages_give_every_row_once(tmp_path: Path) -> None:
    """Own rows first, then the partner's; each page goes on behind the last."""

    async def scenario() -> None:
        async with BlockStore.open(tmp_path, create=True) as store:
            await store.write(lambda view: fill(view, 1100))
            desk = QueueDesk(store, Teller(store, Partnership(), lambda: NOW))
            for delivered in (True, False):
                pages = []
                after = (False, 0)
                while page := await desk.rows(
                    full=False, delivered=delivered, after=after, limit=7
                ):
                    assert len(page) <= 7
                    pages += [(row["copy"], row["number"]) for row in page]
                    after = pages[-1]
                assert pages == sorted(set(pages))
                assert len(pages) == (1100 if delivered else 550)

    asyncio.run(scenario())


def test_a_queue_of_several_pages_is_listed_whole(tmp_path: Path) -> None:
    """The program asks for one page behind the other."""
    data = tmp_path / "server"
    run = CliRunner().invoke
    done = run(main, ["init", "--data", str(data), "--listen", "127.0.0.1:0"])
    assert done.exit_code == 0, done.output

    async def scenario() -> None:
        async with BlockStore.open(data / STORE_NAME) as store:
            await store.write(lambda view: fill(view, 11_000))

    asyncio.run(scenario())
    for words, count in (((), 5500), (("--all",), 11_000)):
        done = run(main, ["queue", "list", "--data", str(data), "--json", *words])
        assert len(json.loads(done.stdout)) == count
