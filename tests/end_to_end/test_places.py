"""The old and the Pub server of a user, beside his home server: what is done there, and when."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.end_to_end.programs import PRICE, Server, User

from sealmail_client.creation import Account, Wish, create_identity
from sealmail_client.desk import open_desk, utc_now
from sealmail_client.household import Household
from sealmail_client.presence import publish_everywhere
from sealmail_client.profile import Home
from sealmail_client.settings import AuthKey, Locked, Place
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import Transport
from sealmail_protocol.dates import parse_date


@pytest.fixture(scope="module")
def home_server(place: Path) -> Iterator[Server]:
    """Run a server that only users of these tests live on, since it is stopped at times."""
    server = Server.create(place / "home-of-places")
    server.start()
    yield server
    server.stop()


def found_at(seeker: User, server: Server, address: str) -> datetime:
    """Return the date of the one key that a server has for an address."""
    words = ("key", "find", address, "--server", str(server.address), "--json")
    (found,) = seeker.does(*words).value
    return parse_date(found["date"])


def test_while_the_home_server_is_away_the_others_get_key_and_claim(
    place: Path, home_server: Server, servers: tuple[Server, Server], bob: User
) -> None:
    """Six days old, they are made anew by a fetch that fails; the home server gets them later."""
    pub = servers[1]
    wish = Wish(
        "Paul",
        "paul@p.example",
        Account((home_server.address,), AuthKey(home_server.auth_keys.pop())),
        Difficulty.parse(PRICE),
        Locked.NOTHING,
        allow_private_targets=True,
    )
    paul = User("Paul", wish.address, place / "paul-of-places", home_server)
    member = create_identity(Household(paul.directory), wish, None, "ed25519", utc_now)
    member.home.save_auth_key(AuthKey(pub.auth_keys.pop()), Place.PUB)
    member.home.save(replace(member.settings, pub_transport=Transport((pub.address,))))
    begin = utc_now()
    six_days_ago = begin - timedelta(days=6)
    with open_desk(member.home, alone=True, clock=lambda: six_days_ago) as desk:
        assert asyncio.run(publish_everywhere(desk)) == ()
    assert found_at(bob, pub, paul.address) < begin
    home_server.stop()
    try:
        failed = paul.tries("fetch")
        assert (failed.exit_code, str(home_server.address) in failed.complaint) == (3, True)
        assert found_at(bob, pub, paul.address) >= begin
        assert paul.does("identity", "list", "--json").value[0]["published"]
    finally:
        home_server.start()
    paul.does("fetch")
    assert found_at(bob, home_server, paul.address) >= begin


def test_an_acknowledgment_that_is_only_at_the_old_server_is_found(
    place: Path, home_server: Server, servers: tuple[Server, Server], bob: User
) -> None:
    """The reader knew no other; while that server is away, a note says so."""
    old = servers[0]
    olga = User.settle(place, "Olga", "olga@o.example", old)
    number = olga.sends([bob], "Before I moved", "--json").value["number"]
    move(olga, home_server)
    bob.does("fetch")
    home_server.stop()
    try:
        # It is found while the home server is away too, and what is known is listed.
        states = set[str]()
        while states != {"acknowledged"}:
            asked = olga.tries("acks", "--json")
            assert asked.exit_code == 3
            assert str(home_server.address) in asked.complaint
            states = {one["state"] for one in asked.value[0]["recipients"]}
    finally:
        home_server.start()
    olga.outcome(number, "acknowledged")
    olga.sends([bob], "After I moved")
    old.stop()
    try:
        asked = olga.does("acks")
    finally:
        old.start()
    assert "the old server was not asked" in asked.complaint


def move(user: User, server: Server) -> None:
    """Let a user live on another server; where he lived becomes his old one."""
    home = Home(user.home)
    home.save_auth_key(home.load_auth_key(), Place.OLD)
    home.save_auth_key(AuthKey(server.auth_keys.pop()))
    settings = home.load()
    there = Transport((server.address,))
    home.save(replace(settings, transport=there, old_transport=settings.transport))
    user.does("key", "publish")
