"""Who is reached through the DHT, what blocks must be like there, and which mail is too large."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.client.conftest import Correspondent
from tests.client.samples import AMY, DATE
from tests.client.signed_blocks import announcement_of

from sealmail_client.channels import BY_DHT, BY_SERVER, channel_for, route_to
from sealmail_client.desk import Desk
from sealmail_client.drafts import Addressee, Draft
from sealmail_client.headers import Place
from sealmail_client.home_database import HomeDatabase
from sealmail_client.key_lookup import FoundKey
from sealmail_client.paying import asked_by, price_for
from sealmail_client.profile import Home
from sealmail_client.sending import Sender
from sealmail_client.settings import AuthKey, Settings
from sealmail_client.weighing import TooLargeForDht, require_fit
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.policy import MIB

IN_DHT, THERE = Transport(), Transport.parse("server=b.example:8081")
DOOR = ServerAddress("door.example", 8081)
HOME = Settings(AMY, "Amy", "amy@a.example", Transport.parse("server=a.example:8081"))
HOMELESS = replace(HOME, transport=IN_DHT, doors=(DOOR,))


@pytest.fixture
def desk(tmp_path: Path, bob: Correspondent, amy: Correspondent) -> Desk:
    """Return a desk that knows Bob, who lives in the DHT, and Amy, who has a home server."""
    home = Home(tmp_path)
    home.save_auth_key(AuthKey("0" * 40))
    desk = Desk(home, HOME, HomeDatabase(home.database), clock=lambda: DATE)
    low = Difficulty(8, 2)
    for one, transport in ((bob, "entangled"), (amy, str(THERE))):
        announced = announcement_of(one, transport=transport, price=low)
        desk.correspondents.remember(FoundKey(one.key_id, announced, revoked=False))
    return desk


def draft(*addressees: Addressee, attached: Path | None = None) -> Draft:
    """Return a short letter, perhaps with a file."""
    return Draft("a" * 40, "subject", "text", addressees, (attached,) if attached else ())


def to(one: Correspondent, place: Place = Place.TO) -> Addressee:
    """Return a recipient."""
    return Addressee(f"{one.key_id.hex[:4].lower()}@b.example", one.key_id, one.user_id, place)


def test_the_dht_is_entered_by_ones_own_servers() -> None:
    """Those of the home group, or the doors of one who has no home; others' by their own."""
    assert route_to(IN_DHT, HOME).servers == HOME.transport.servers
    assert route_to(IN_DHT, HOMELESS).servers == (DOOR,)
    assert route_to(IN_DHT, HOME).channel is BY_DHT
    for settings in (HOME, HOMELESS):
        assert route_to(THERE, settings).servers == THERE.servers
        assert route_to(THERE, settings).channel is BY_SERVER


def test_a_mail_keeps_to_the_rules_of_the_dht_if_one_reader_lives_there() -> None:
    """Blocks of 64 KiB and 20 bits at least, which servers take as well."""
    assert channel_for((THERE, IN_DHT)) is BY_DHT
    assert channel_for((THERE,)) is BY_SERVER
    assert BY_DHT.piece_size == 64 * 1024
    for kind in (BlockType.DATA, BlockType.MESSAGE_ANNOUNCEMENT, BlockType.ACKNOWLEDGMENT):
        assert BY_DHT.floor(kind) == Difficulty(20, 2)
        assert BY_SERVER.floor(kind).bits < 20


def test_whoever_lives_in_the_dht_has_no_lower_price_than_it(
    desk: Desk, bob: Correspondent, amy: Correspondent
) -> None:
    """Bd,8,2 is announced by both, and enough for a server."""
    known = {one: desk.correspondents.newest(one.key_id) for one in (bob, amy)}
    prices = {}
    for one, announced in known.items():
        assert announced is not None
        prices[one.key_id] = asked_by(announced)
        assert price_for(desk, one.key_id, announced) == prices[one.key_id]
    assert prices == {bob.key_id: Difficulty(20, 2), amy.key_id: Difficulty(8, 2)}


def test_a_mail_of_a_mib_is_too_large_for_the_dht_alone(
    desk: Desk, bob: Correspondent, amy: Correspondent, tmp_path: Path
) -> None:
    """What is told names who lives there; what belongs to a letter counts as well."""
    attached = tmp_path / "file"
    attached.write_bytes(bytes(MIB))
    require_fit(desk, draft(to(amy), attached=attached))
    for readers in ((to(bob),), (to(amy), to(bob)), (to(amy), to(bob, Place.BCC))):
        with pytest.raises(TooLargeForDht, match="at most") as caught:
            require_fit(desk, draft(*readers, attached=attached))
        assert to(bob).address in str(caught.value)
        assert to(amy).address not in str(caught.value)
    attached.write_bytes(bytes(MIB - 32 * 1024))
    require_fit(desk, draft(to(amy), to(bob), attached=attached))
    desk.settings = replace(HOME, pad_sizes=True)
    attached.write_bytes(bytes(MIB - 8 * 1024))
    with pytest.raises(TooLargeForDht):
        require_fit(desk, draft(to(bob), attached=attached))


def test_a_file_that_grows_before_it_is_sealed_is_refused_then(
    desk: Desk, bob: Correspondent, tmp_path: Path
) -> None:
    """The reason stands in the outbox, and nothing was sealed."""
    attached = tmp_path / "file"
    attached.write_bytes(b"small")
    number = desk.outbox.add(draft(to(bob), attached=attached), DATE)
    attached.write_bytes(bytes(2 * MIB))
    message = asyncio.run(Sender(desk).advance(number))
    (recipient,) = message.recipients
    assert "1 MiB at most" in recipient.reason
    assert message.message_hash is None
