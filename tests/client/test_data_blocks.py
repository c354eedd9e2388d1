"""Data blocks on their way to servers that do not keep to what they say."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from tests.client.samples import AMY, BOB, DATE

from sealmail_client.channels import BY_DHT, BY_SERVER, Channel
from sealmail_client.data_blocks import DataBlocks
from sealmail_client.desk import Desk
from sealmail_client.drafts import Addressee, Draft
from sealmail_client.home_database import HomeDatabase
from sealmail_client.ledger import ledger_rows
from sealmail_client.outbox import OutgoingBlock, Stage, TooLate
from sealmail_client.posting import Peer
from sealmail_client.profile import Home
from sealmail_client.settings import AuthKey, Settings
from sealmail_net.errors import ConnectionLost
from sealmail_net.remote_server import RemoteServer
from sealmail_pow import level
from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.block_codec import parse_data_header
from sealmail_protocol.commands import BodyCommand, StoreEntangled, StoreServer
from sealmail_protocol.errors import Refusal
from sealmail_protocol.keys import BlockKey, data_key
from sealmail_protocol.replies import Accepted, Pending, Refused, Verdict, Word
from sealmail_protocol.stamps import data_challenge_prefix

PIECES = (b"first piece", b"second", b"third")
DRAFT = Draft("a" * 40, "secret subject", "text", (Addressee("bob@b.example", BOB, "Bob"),))


@dataclass
class Hostile:
    """A server that answers each STORE of data with the next of its moods."""

    moods: list[object]
    address: ServerAddress = field(default_factory=lambda: ServerAddress("b.example", 1))
    stored: list[tuple[BlockKey, tuple[str, ...], bytes]] = field(default_factory=list)
    judgment: Verdict | None = None

    async def post_data(
        self, command: BodyCommand, lines: Sequence[str], size: int, chunks: Iterable[bytes]
    ) -> Word:
        """Take a block, or fail in the way that is next."""
        assert isinstance(command, StoreServer | StoreEntangled)
        mood = self.moods.pop(0) if self.moods else Accepted()
        if mood is ConnectionLost:
            raise ConnectionLost(self.address, "gone")
        data = b"".join(chunks)
        assert len(data) == size
        self.stored.append((command.key, tuple(lines), data))
        if isinstance(mood, Word):
            return mood
        self.judgment = cast("Verdict | None", mood)
        return Word.DONE

    async def verdict(self, digest: bytes) -> Verdict | None:
        """Say what became of the last block."""
        del digest
        return self.judgment

    @property
    def peer(self) -> Peer:
        """Return the connection."""
        return Peer(cast("RemoteServer", self), {"VERDICT": "", "DHT-VALUE": ""})


@dataclass
class Sent:
    """A sealed message in the outbox of a desk whose clock the test sets."""

    desk: Desk
    number: int
    sealed: Path
    now: list[datetime]

    def hands_over(self, server: Hostile, channel: Channel = BY_SERVER) -> str | None:
        """Give all data to a server."""
        blocks = DataBlocks(self.desk, self.number, self.sealed, channel)
        return asyncio.run(blocks.hand_over(server.peer.by(channel)))


@pytest.fixture
def message(tmp_path: Path) -> Sent:
    """Return a message of three small blocks."""
    settings = Settings(AMY, "Amy", "amy@a.example", Transport.parse("server=a.example:1"))
    now = [DATE]
    home = Home(tmp_path)
    home.save_auth_key(AuthKey("0" * 40))
    desk = Desk(home, settings, HomeDatabase(home.database), clock=lambda: now[0])
    number = desk.outbox.add(DRAFT, DATE)
    blocks = [OutgoingBlock(at, data_key(one), len(one), None) for at, one in enumerate(PIECES)]
    desk.outbox.record_sealed(
        number, DATE, data_key(b"".join(PIECES)), blocks, {BOB: blocks[0].key}
    )
    sealed = tmp_path / "sealed.pgp"
    sealed.write_bytes(b"".join(PIECES))
    return Sent(desk, number, sealed, now)


@pytest.mark.parametrize(
    "mood",
    [Word.FAILED, Refused(Refusal.SIZE, ""), Pending(), None, ConnectionLost],
    ids=["FAILED", "DONE but REFUSED", "PENDING", "no verdict", "cut"],
)
@pytest.mark.parametrize("before", range(len(PIECES)))
def test_a_block_that_is_not_taken_stops_there_and_goes_again_as_it_was(
    message: Sent, mood: object, before: int
) -> None:
    """What was taken is not sent a second time, and a repeat is byte for byte the same."""
    server = Hostile([*[Accepted()] * before, mood])
    if mood is ConnectionLost:
        with pytest.raises(ConnectionLost):
            message.hands_over(server)
    else:
        assert message.hands_over(server) is not None
    first = list(server.stored)
    server.stored.clear()
    message.now[0] += timedelta(hours=1)
    assert message.hands_over(server) is None
    assert [data for _, _, data in server.stored] == list(PIECES[before:])
    repeated: Sequence[object] = first[before:]
    assert repeated in ([], server.stored[:1])
    server.stored.clear()
    assert message.hands_over(server) is None
    assert server.stored == []


def test_another_server_is_given_all_of_it_in_the_same_bytes(message: Sent) -> None:
    """Stamps are paid for once."""
    one, other = Hostile([]), Hostile([], ServerAddress("c.example", 1))
    assert message.hands_over(one) is None
    assert message.hands_over(other) is None
    assert one.stored == other.stored


def test_blocks_that_servers_would_soon_drop_are_dated_and_sent_again(message: Sent) -> None:
    """Nine days after their stamp; a day before that they are left as they are."""
    server = Hostile([])
    assert message.hands_over(server) is None
    before = list(server.stored)
    message.now[0] = DATE + timedelta(days=8)
    assert message.hands_over(server) is None
    assert server.stored == before
    message.now[0] = DATE + timedelta(days=9)
    assert message.hands_over(server) is None
    again = server.stored[len(before) :]
    assert [data for _, _, data in again] == list(PIECES)
    assert all("Date: 2026-03-10T12:00:00Z" in lines for _, lines, _ in again)


def test_the_ledger_names_no_subject_and_no_address(message: Sent) -> None:
    """What is cancelled ends, and cannot be cancelled twice."""
    outbox = message.desk.outbox
    (cancelled,) = outbox.cancel(message.number, DATE)
    assert cancelled.at(Stage.CANCELLED)
    with pytest.raises(TooLate):
        outbox.cancel(message.number, DATE)
    (row,) = ledger_rows(outbox.all())
    assert (row["state"], row["bytes"], row["recipient"]) == ("cancelled", 22, BOB.hex)
    assert "secret subject" not in str(row)
    assert "b.example" not in str(row)


def test_mail_is_dated_by_a_home_server_that_is_ahead(message: Sent) -> None:
    """The difference is remembered until the server is met again."""
    message.desk.database.write(
        "INSERT INTO capability VALUES ('a.example:1', '2026-03-01T12:00:00Z', '', 90)"
    )
    assert message.desk.servers.moment() == DATE + timedelta(seconds=90)


def test_for_the_dht_blocks_are_stamped_anew_and_counted_by_themselves(message: Sent) -> None:
    """What a server took for its user is not in the DHT; one stamp is enough for both."""
    server = Hostile([])
    assert message.hands_over(server) is None
    assert message.hands_over(server, BY_DHT) is None
    assert [data for _, _, data in server.stored] == [*PIECES, *PIECES]
    for key, lines, data in server.stored[len(PIECES) :]:
        header = parse_data_header(lines)
        stamped = data_challenge_prefix(header.date) + data
        assert data_key(data) == key
        assert level(stamped, header.stamp) >= 20
    again = Hostile([])
    assert message.hands_over(again, BY_DHT) is None
    assert again.stored == []
    assert message.hands_over(again) is None
    assert again.stored == server.stored[len(PIECES) :]
