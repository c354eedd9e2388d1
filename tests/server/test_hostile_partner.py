"""A partner that is hostile or broken, and who got hold of a pairing code that was not for him."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.server.inside import TurnedClock, address_of, connect, make_server, serving
from tests.server.post_office import PostOffice, in_post_office
from tests.server.users import now

from sealmail_net.errors import NetworkError
from sealmail_protocol.addresses import Transport
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.commands import PartnerAccount, PartnerPair
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.invitations import PairingCode
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Word
from sealmail_server.account_desk import AccountDesk
from sealmail_server.accounts import hash_auth_key
from sealmail_server.outgoing.accepting import NotServed
from sealmail_server.outgoing.mirroring import Mirror
from sealmail_server.outgoing.rows import new_row, new_ticket
from sealmail_server.service import Server
from sealmail_store import Account

KEY = BlockKey(bytes(20))
DIGEST = bytes(range(32))
FAR = "9999-12-31T23:59:59Z"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one server directory for the tests of this file."""
    made = tmp_path_factory.mktemp("hostile") / "server"
    make_server(made, TurnedClock(now()))
    return made


async def offered_by(server: Server) -> PairingCode:
    """Return a fresh pairing code."""
    return PairingCode.parse((await server.operator.fulfil({"do": "pair offer"}))["code"])


def test_who_logged_in_by_a_stolen_code_is_out_as_soon_as_the_code_has_served(
    directory: Path,
) -> None:
    """Until then he may do nothing but pair; a former partner may do all until he is that."""

    async def scenario() -> None:
        async with serving(directory, TurnedClock(now())) as server:
            keys = ("K" * 20, "L" * 20)
            former = ""
            for auth_key in keys:
                code = await offered_by(server)
                thief, partner = await connect(server), await connect(server)
                assert await thief.login("replication", former or code.secret)
                assert await partner.login("replication", code.secret)
                backdoor = PartnerAccount(hash_auth_key("M" * 20), "5E" * 20, "confirmed")
                assert await thief.call(backdoor) is (Word.DONE if former else Word.FAILED)
                pair = PartnerPair(code.secret, bytes(32), auth_key, address_of(server))
                assert await partner.call(pair) is Word.DONE
                await partner.hang_up()
                with pytest.raises(NetworkError):
                    await thief.call(backdoor)
                former = auth_key

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_pairing_code_serves_once_even_at_the_same_moment(directory: Path) -> None:
    """Of two who use it together one is the partner, and the other gets FAILED."""

    async def scenario() -> None:
        async with serving(directory, TurnedClock(now())) as server:
            code = await offered_by(server)
            rivals = [await connect(server) for _ in range(4)]
            for remote in rivals:
                assert await remote.login("replication", code.secret)
            answers = await asyncio.gather(
                *(
                    remote.call(PartnerPair(code.secret, bytes(32), name * 20, address_of(server)))
                    for remote, name in zip(rivals, "WXYZ", strict=True)
                ),
                return_exceptions=True,
            )
            assert answers.count(Word.DONE) == 1
            for remote in rivals:
                await remote.hang_up()

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("far", range(4))
def test_rows_of_a_far_future_are_not_mirrored(tmp_path: Path, far: int) -> None:
    """They would never end, and moments beyond the last year end whoever reckons with them."""

    async def scenario(office: PostOffice) -> None:
        today = format_date(office.time)
        dates = [FAR if place == far else today for place in range(4)]
        row = f"Queued-Row: {'0' * 16} AAAAAAAA 1 waiting - - {' '.join(dates)} server=a.example:1"
        mirror = Mirror(office.store, office.intake, lambda: office.time, ignore, ignore)
        with pytest.raises(NotServed, match="ahead"):
            await mirror.take_text(
                KEY, (f"Queued-Block: {DIGEST.hex()} data".encode(), row.encode())
            )

    in_post_office(tmp_path / "store", scenario)


def ignore(_: object) -> None:
    """Stand for those who would work on what the partner says."""


async def settled_rows(server: Server) -> list[dict[str, Any]]:
    """Return what the operator is shown of the queue once nothing in it waits."""
    async with asyncio.timeout(20):
        while True:
            rows = await server.office.desk.rows(full=True)
            if not any(each["state"] == "waiting" for each in rows):
                return rows
            await asyncio.sleep(0.05)


def test_a_row_that_nobody_can_reckon_with_does_not_end_the_delivery(directory: Path) -> None:
    """It becomes a dead letter; the rows behind it are delivered or tried."""
    clock = TurnedClock(now())

    async def scenario() -> None:
        async with serving(directory, clock) as server:
            for date, owner in ((parse_date(FAR), "A" * 40), (clock(), "B" * 40)):
                row = new_row(
                    ticket=new_ticket(),
                    digest=DIGEST,
                    key=KEY,
                    type=BlockType.DATA,
                    date=date,
                    entry=7,
                    owner=owner,
                    target=Transport.parse("server=192.168.0.1:1"),
                    line=1,
                    queued=clock(),
                    start=clock(),
                )
                await server.services.store.write(lambda view: view.queue.put(row))  # noqa: B023
        async with serving(directory, clock) as server:
            rows = await settled_rows(server)
            assert [each["state"] for each in rows] == ["given-up", "given-up"]
            assert [each["code"] for each in rows] == ["internal", "forbidden"]

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_the_partner_cannot_end_a_role(tmp_path: Path) -> None:
    """Neither the administrator's auth key nor that of servers is its to change."""

    async def scenario(office: PostOffice) -> None:
        desk = AccountDesk(office.store, lambda: office.time)
        for role in ("administrator", "replication"):
            key = role[:10] * 3
            await desk.add(role, key)
            for userid, state in ((None, "disabled"), ("A" * 40, "confirmed")):
                moment = office.time
                await desk.merge(Account(hash_auth_key(key), userid, state, moment, moment))
            assert await desk.log_in(role, key) is not None

    in_post_office(tmp_path / "store", scenario)


@pytest.mark.parametrize(
    ("userid", "state", "ends"),
    [
        ("B" * 40, "confirmed", False),
        ("C" * 40, "confirmed", False),
        ("A" * 40, "confirmed", True),
        (None, "disabled", True),
        ("B" * 40, "disabled", True),
        (None, "undefined", False),
    ],
    ids=["the-same", "a-higher-userid", "a-lower-userid", "removed", "removed-by-name", "unbound"],
)
def test_who_is_logged_in_by_a_key_that_changes_hands_is_out(
    tmp_path: Path, userid: str | None, state: str, ends: bool
) -> None:
    """Both servers gave one key away: the lower userid keeps it, and the other's sessions end."""
    ended: list[bytes] = []

    async def scenario(office: PostOffice) -> None:
        desk = AccountDesk(office.store, lambda: office.time, end_logins=ended.append)
        await desk.add("B" * 40, "K" * 20)
        key, moment = hash_auth_key("K" * 20), office.time
        await desk.merge(Account(key, userid, state, moment, moment))
        assert ended == ([key] if ends else [])
        assert (await desk.log_in("B" * 40, "K" * 20) is None) is ends

    in_post_office(tmp_path / "store", scenario)
