"""Keys of others, by the installed programs: found, compared, changed and renewed; pins."""

import asyncio
import shutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.end_to_end.programs import Server, User

from sealmail_client import publishing
from sealmail_client.addressing import Addressing
from sealmail_client.correspondents import KeyUndecided
from sealmail_client.desk import Desk, open_desk, utc_now
from sealmail_client.drafts import Addressee
from sealmail_client.profile import Home
from sealmail_protocol.blocks import KeyAnnouncement

# After a week a key is fetched again; servers take what is dated up to a day ahead.
LATER = timedelta(days=7, hours=12)
AHEAD = timedelta(hours=20)


@pytest.fixture(scope="module")
def dave(place: Path, servers: tuple[Server, Server]) -> User:
    """Return a user of the second server whom nobody else writes to."""
    return User.settle(place, "Dave", "dave@b.example", servers[1])


@pytest.fixture
def eve(alice: User, place: Path, request: pytest.FixtureRequest) -> Iterator[User]:
    """Return somebody with Alice's account, and an address book of her own."""
    home = place / f"e{abs(hash(request.node.name)) % 10**6}"
    yield alice.moved(home)
    shutil.rmtree(home)


def at(user: User) -> tuple[str, str]:
    """Return the option that names a user's server."""
    return ("--server", str(user.server.address))


def standing(user: User, address: str) -> list[str]:
    """Return the decisions in a user's address book."""
    rows = user.does("key", "list", address, "--json").value
    return [row["decision"] for row in rows if row["address"] == address]


def renewed(user: User, when: datetime) -> KeyAnnouncement:
    """Publish a user's key and claim anew, dated ``when``."""

    async def publish(desk: Desk) -> None:
        async with desk.servers.home() as peer:
            await desk.publisher.publish(peer)

    with open_desk(Home(user.home), alone=True, clock=lambda: when) as desk:
        asyncio.run(publish(desk))
        block = desk.own_blocks.announcement()
    assert block is not None
    return block


def addressed(desk: Desk, address: str) -> tuple[Addressee, list[str]]:
    """Return whom a desk would seal to, and what it doubts."""
    addressing = Addressing(desk)
    return asyncio.run(addressing.addressee(address)), addressing.doubts


def test_a_fingerprint_read_aloud_makes_a_key_verified(eve: User, dave: User) -> None:
    """Other words are another key, which is told with an exit code of its own."""
    assert eve.tries("key", "verify", dave.address).exit_code == 20
    eve.does("key", "find", dave.address, *at(dave))
    (own,) = dave.does("key", "verify", "--json").value
    assert own["key_id"] == dave.key_id.hex
    shown = eve.runs("key", "verify", dave.address).output
    assert all(word in shown for word in own["words"])
    assert "█" in shown
    wrong = eve.tries("key", "verify", dave.address, "--words", " ".join(own["words"][::-1]))
    assert wrong.exit_code == 30
    assert standing(eve, dave.address) == ["trusted"]
    eve.does("key", "verify", dave.address, "--words", ", ".join(own["words"]).upper())
    assert standing(eve, dave.address) == ["verified"]
    dave.does("send", "--to", eve.address, *at(eve), "--subject", "Read", "--message", "text")
    (number,) = (
        mail["number"]
        for mail in eve.does("fetch", "--json").value["filed"]
        if mail["subject"] == "Read"
    )
    assert f"{dave.key_id} (pinned, verified in person)" in eve.does("read", str(number)).output
    eve.does("key", "verify", dave.key_id.hex, "--fingerprint", dave.key_id.hex.lower())
    (found,) = eve.does("key", "find", dave.address, *at(dave), "--json").value
    assert found["standing"] == "pinned, verified in person"
    assert eve.tries("key", "verify", "--words", " ".join(own["words"])).exit_code == 2


def test_a_key_is_found_and_written_to_by_its_id(eve: User, dave: User) -> None:
    """No address is asked for; nothing is trusted by it."""
    key_id = dave.key_id.hex
    assert eve.tries("key", "find", key_id).exit_code == 20
    (found,) = eve.does("key", "find", key_id, *at(dave), "--json").value
    assert (found["key_id"], found["standing"]) == (key_id, "not in the address book")
    letter = ("--subject", "By key", "--message", "text")
    assert eve.tries("send", *letter).exit_code == 2
    sent = eve.does("send", "--key", key_id, *letter, "--json").value
    assert [one["state"] for one in sent["recipients"]] == ["sent"]
    dave.does("fetch")
    assert "By key" in dave.subjects()
    assert standing(eve, dave.address) == []


def test_the_address_book_is_listed_searched_shown_and_forgotten(eve: User, dave: User) -> None:
    """Every row tells decision, key, and when and where it was seen last."""
    eve.does("key", "find", dave.address, *at(dave))
    (row,) = eve.does("key", "list", "DAVE", "--json").value
    assert (row["address"], row["key_id"]) == (dave.address, dave.key_id.hex)
    assert (row["decision"], row["change"], row["revoked"]) == ("trusted", "", False)
    assert row["seen_at"] == f"server={dave.server.address}"
    assert eve.does("key", "list", "nobody").output == "nobody found\n"
    assert dave.address in eve.runs("key", "list").output
    for who in (dave.address, dave.key_id.hex):
        assert "Dave <dave@b.example>" in eve.does("key", "show", who).output
    eve.does("key", "forget", dave.address)
    assert eve.tries("key", "forget", dave.address).exit_code == 20
    assert eve.tries("key", "show", dave.address).exit_code == 20


def test_a_week_later_the_key_is_fetched_again_with_its_new_terms(
    eve: User, dave: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever date it promises. Until its owner renews it the old one serves, with a note."""
    now = utc_now()
    with monkeypatch.context() as promising:
        promising.setattr(publishing, "FRESH_FOR", timedelta(days=30))
        assert renewed(dave, now).expires >= now + timedelta(days=30)
    eve.does("key", "find", dave.address, *at(dave))
    with open_desk(Home(eve.home), alone=True, clock=lambda: now + LATER) as desk:
        dave.server.stop()
        try:
            who, doubts = addressed(desk, dave.address)
        finally:
            dave.server.start()
        assert who.key_id == dave.key_id
        assert any("cannot be reached" in doubt for doubt in doubts)
        assert "has not renewed his key since" in doubts[-1]
        dave.setting("price", "bd,22,2")
        block = renewed(dave, now + AHEAD)
        who, doubts = addressed(desk, dave.address)
        assert desk.correspondents.newest(dave.key_id) == block
        assert str(block.price) == "bd,22,2"
        assert doubts == []


def test_a_claim_that_is_gone_from_where_it_was_stops_mail(eve: User, dave: User) -> None:
    """Its owner is about, as his key shows, but does not claim the address there any more."""
    (found,) = eve.does("key", "find", dave.key_id.hex, *at(dave), "--json").value
    renewed(dave, utc_now() + AHEAD + timedelta(minutes=1))
    address = "formerly-dave@b.example"
    with open_desk(Home(eve.home), alone=True, clock=lambda: utc_now() + LATER) as desk:
        key = asyncio.run(Addressing(desk).find_by_id(dave.key_id, [dave.server.address]))
        assert key is not None
        old = desk.clock() - timedelta(days=9)
        desk.correspondents.learn(address, [key], old, {dave.key_id: found["transport"]})
        # As if the announcement that is held were one of last week.
        desk.database.write("DELETE FROM announcement WHERE key_id = ?", dave.key_id.hex)
        with pytest.raises(KeyUndecided, match="does not claim formerly-dave"):
            addressed(desk, address)
        desk.correspondents.trust(address, dave.key_id, desk.clock())
        assert addressed(desk, address)[0].key_id == dave.key_id


def test_an_owner_who_moves_and_a_rival_each_stop_mail_until_decided(
    eve: User, dave: User, mallory: User, place: Path
) -> None:
    """The same exit code, a text for each, and one command as the way out."""
    eve.does("key", "find", dave.address, *at(dave))
    letter = ("send", "--to", dave.address, "--subject", "Hi", "--message", "text")
    dave.setting("address", "dave@new.example")
    renewed(dave, utc_now() + AHEAD + timedelta(minutes=2))
    found = eve.does("key", "find", dave.key_id.hex, *at(dave))
    assert "calls himself Dave <dave@new.example> now" in found.complaint
    moved = eve.tries(*letter)
    assert moved.exit_code == 22
    assert "sealmail key find dave@new.example" in moved.complaint
    eve.does("key", "trust", dave.address, dave.key_id.hex)
    rival = mallory.moved(place / "mallory-as-dave")
    rival.setting("address", dave.address)
    renewed(rival, utc_now() + AHEAD)
    both = (*at(dave), *at(rival))
    warned = eve.does("key", "find", dave.address, *both)
    assert "another key than the known one claims" in warned.complaint
    assert eve.tries(*letter).exit_code == 22
    assert sorted(standing(eve, dave.address)) == ["trusted", "undecided"]
    eve.does("key", "trust", dave.address, dave.key_id.hex)
    eve.does(*letter)
    assert sorted(standing(eve, dave.address)) == ["rejected", "trusted"]


def test_a_server_with_another_key_gets_sealed_mail_but_no_trust(
    eve: User, bob: User, place: Path
) -> None:
    """Delivery warns, records and goes on; a look-up stops until the user accepts the key."""
    letter = ("send", "--to", bob.address, "--subject", "Pin", "--message", "text")
    eve.does(*letter, *at(bob))
    server = bob.server
    server.stop()
    shutil.move(server.directory / "tls", place / "kept-tls")
    shutil.copytree(eve.server.directory / "tls", server.directory / "tls")
    server.start()
    try:
        sent = eve.runs(*letter)
        assert sent.exit_code == 0
        assert f"warning: {server.address} shows another key than before" in sent.complaint
        ways = {row["way"]: row for row in eve.does("server", "pins", "--json").value}
        direct = ways[f"direct {server.address}"]
        delivery = ways[f"delivery {server.address}"]
        assert direct["previous"] is None
        assert delivery["previous"] == direct["pin"]
        refused = eve.tries("key", "find", bob.address, *at(bob))
        assert refused.exit_code == 3
        accept = f"sealmail server accept {server.address} {delivery['pin']}"
        assert accept in refused.complaint
        eve.does(*accept.split()[1:])
        eve.does("key", "find", bob.address, *at(bob))
        assert delivery["pin"] in eve.does("server", "pins").output
        assert eve.tries("server", "accept", str(server.address), "short").exit_code == 2
    finally:
        server.stop()
        shutil.rmtree(server.directory / "tls")
        shutil.move(place / "kept-tls", server.directory / "tls")
        server.start()
