"""A store that real programs filled: sealmaild took what sealmail sent, and nothing is wrong."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from tests.end_to_end.programs import Server, User, free_port
from tests.spark.conftest import MARKET

from sealmail_client.desk import utc_now
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.commands import StoreProxy
from sealmail_protocol.fields import split_lines
from sealmail_protocol.replies import Word
from sealmail_spark.audits import JOBS, Background, audit_delivery
from sealmail_spark.generator.workshop import Workshop
from sealmail_spark.jobs.delivery import LEDGER
from sealmail_spark.reading import Tables, Wish

SIZE = 200_000
HELD = 3000


@dataclass(frozen=True)
class Correspondence:
    """A running server with two users, and the ledger of one who wrote twice and was read once."""

    server: Server
    users: tuple[User, User]
    ledger: Path


async def leave_for_nobody(remote: RemoteServer) -> None:
    """Have the server hold an acknowledgment and data for a server that does not answer."""
    workshop = Workshop(Random(6))  # noqa: S311 - invented mail is no secret
    target = f"Post-To: server=127.0.0.1:{free_port()}"
    word, data = workshop.acknowledgment(utc_now()), workshop.data(utc_now(), HELD)
    lines = (target, *split_lines(word.header))
    assert await remote.post(StoreProxy(word.key), lines) is Word.DONE
    assert data.data is not None
    assert isinstance(data.data.content, bytes)
    lines, chunks = (target, *split_lines(data.header)), (data.data.content,)
    assert await remote.post_data(StoreProxy(data.key), lines, HELD, chunks) is Word.DONE


@pytest.fixture(scope="module")
def correspondence() -> Iterator[Correspondence]:
    """Let two people write by the installed programs; the server goes on running."""
    # GnuPG's sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="sms-") as directory:
        place = Path(directory)
        server = Server.create(place / "server")
        server.start()
        try:
            alice = User.settle(place, "Alice", "alice@a.example", server)
            bob = User.settle(place, "Bob", "bob@a.example", server)
            (place / "large").write_bytes(bytes(range(256)) * (SIZE // 256))
            assert alice.sends([bob], "read", "--attach", str(place / "large")).exit_code == 0
            bob.does("fetch")
            alice.outcome(1, "acknowledged")
            assert alice.sends([bob], "unread").exit_code == 0
            alice.does("outbox", "--export", str(place / "ledger.jsonl"))
            alice.asks_server(leave_for_nobody)
            yield Correspondence(server, (alice, bob), place / "ledger.jsonl")
        finally:
            server.stop()


def test_nothing_is_wrong_with_a_store_that_real_programs_filled(
    spark: SparkSession, correspondence: Correspondence
) -> None:
    """Every job finds the blocks that must be there, beside the running server, and no fault."""
    tables = Tables(spark, [correspondence.server.directory], Wish(signatures=1.0))
    figures: dict[tuple[str, str], float] = {}
    for name, job in JOBS.items():
        audit = job(tables, Background(MARKET))
        assert audit.findings.collect() == [], name
        figures |= {
            (row["measure"], row["group"]): row["value"] for row in audit.figures.collect()
        }
        audit.release()
    assert figures["blocks", "key-announcement"] == 2
    assert figures["blocks", "address-claim"] == 2
    assert figures["blocks", "message-announcement"] == 2
    assert figures["blocks", "acknowledgment"] == 1
    assert figures["signature", "key-announcement good"] == 2
    bob = correspondence.users[1]
    assert figures["mails of user", bob.key_id.hex] == 2
    assert figures["bytes of user", bob.key_id.hex] > SIZE
    assert figures["demanded", "20"] == 2
    assert figures["held for other servers", "blocks"] == 2
    assert figures["held for other servers", "bytes"] > HELD


def test_a_ledger_of_the_client_is_understood(
    spark: SparkSession, correspondence: Correspondence
) -> None:
    """Both mails were delivered, one was acknowledged; the store knows how many a day."""
    ledger = spark.read.schema(LEDGER).json(str(correspondence.ledger))
    tables = Tables(spark, [correspondence.server.directory], Wish())
    audit = audit_delivery(ledger, tables)
    assert audit.findings.collect() == []
    found = {
        (row["measure"], row["group"].split()[0]): row["value"] for row in audit.figures.collect()
    }
    assert found["delivery rate", "of"] == 1
    assert found["acknowledgment rate", "of"] == 0.5
    assert found["a day", "acknowledgment"] == 1
