"""Claims for one address are bounded, and a flood of them keeps nobody out."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.server.inside import TurnedClock, make_server, serving
from tests.server.mailing import is_accepted, until
from tests.server.post_office import PostOffice, code_of, in_post_office, lines_of, user
from tests.server.users import User, now

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.keys import address_key, announcement_key
from sealmail_protocol.replies import Accepted, Pending
from sealmail_server.admission import Decision, admit
from sealmail_server.candidates import Arrival, examine
from sealmail_server.claims import MAX_CLAIMS, make_room_for_claim
from sealmail_server.limits import Limits
from sealmail_server.partnership import Partnership
from sealmail_store import Account, StoredEntry, WriteView

ADDRESS = "ann@a.example"
KEY = address_key(ADDRESS)


@pytest.fixture(scope="module")
def ann() -> Iterator[User]:
    """Return a user with a GnuPG key."""
    with tempfile.TemporaryDirectory() as place:
        made = User.create(Path(place) / "a", "ann")
        yield made
        made.close()


def flood(bits: int, count: int = MAX_CLAIMS) -> list[StoredEntry]:
    """Return claims for the address, each of another key; so many as it may have, or others."""
    return [
        StoredEntry(
            type=BlockType.ADDRESS_CLAIM,
            key=KEY,
            identity=bytes([number]) * 20,
            date=now(),
            header=b"Type: address-claim\r\n",
            digest=bytes([number]) * 32,
            stamp_bits=bits,
            source="203.0.113.9",
        )
        for number in range(count)
    ]


async def let_in(office: PostOffice, claims: list[StoredEntry], *, users: bool) -> None:
    """Put claims into the store, of users or of strangers."""

    def work(view: WriteView) -> None:
        for claim in claims:
            view.put_entry(claim)
            if users:
                name = claim.identity.hex().upper()
                view.put_account(Account(claim.digest, name, "confirmed", now(), now()))

    await office.store.write(work)


async def claimers(office: PostOffice) -> set[bytes]:
    """Return whose claims the address has."""
    held = await office.store.read(lambda view: view.entries(BlockType.ADDRESS_CLAIM, KEY))
    return {entry.identity for entry in held}


def test_a_user_of_the_server_displaces_a_strangers_claim(tmp_path: Path, ann: User) -> None:
    """The weakest stamp among the strangers goes, however good it is; the number stays."""
    claims = flood(bits=60)
    claims[7] = replace(claims[7], stamp_bits=50)

    async def scenario(office: PostOffice) -> None:
        login = await office.open_account(ann.key_id)
        await office.post(ann.announcement(), announcement_key(ann.key_id), login)
        await let_in(office, claims, users=False)
        assert await office.post(ann.claim(ADDRESS), KEY, login) == Accepted()
        expected = {claim.identity for claim in claims} - {claims[7].identity}
        assert await claimers(office) == expected | {ann.key_id.raw}

    in_post_office(tmp_path / "store", scenario)


def test_a_claim_that_is_worth_no_more_than_the_others_is_refused(
    tmp_path: Path, ann: User
) -> None:
    """A login that nothing has confirmed comes behind every user; nothing is displaced."""
    claims = flood(bits=24)

    async def scenario(office: PostOffice) -> None:
        login = replace(user(ann.key_id), confirmed=False)
        await office.post(ann.announcement(), announcement_key(ann.key_id), login)
        await let_in(office, claims, users=True)
        assert code_of(await office.post(ann.claim(ADDRESS), KEY, login)) is Refusal.FULL
        assert await claimers(office) == {claim.identity for claim in claims}

    in_post_office(tmp_path / "store", scenario)


def test_who_has_a_claim_renews_it_in_a_full_address(tmp_path: Path, ann: User) -> None:
    """The newer claim of one key takes the place of the older, and needs no room."""
    claims = flood(bits=60)
    claims[0] = replace(claims[0], identity=ann.key_id.raw, date=now().replace(year=2000))

    async def scenario(office: PostOffice) -> None:
        login = replace(user(ann.key_id), confirmed=False)
        await office.post(ann.announcement(), announcement_key(ann.key_id), login)
        await let_in(office, claims, users=False)
        assert await office.post(ann.claim(ADDRESS), KEY, login) == Accepted()
        assert len(await claimers(office)) == MAX_CLAIMS

    in_post_office(tmp_path / "store", scenario)


@pytest.mark.parametrize("bits", [24, 60], ids=["all-alike", "users-who-paid-less"])
def test_of_too_many_claims_the_same_ones_stay_whatever_their_order(
    tmp_path: Path, bits: int
) -> None:
    """Of equals those of the lower digest stay, so that two partners keep the same set."""
    strangers, users = flood(bits, MAX_CLAIMS + 3), flood(24, MAX_CLAIMS + 5)[-2:]
    claims = [*strangers, *users]

    async def told(office: PostOffice, order: list[StoredEntry]) -> set[bytes]:
        def work(view: WriteView) -> None:
            for claim in users:
                name = claim.identity.hex().upper()
                view.put_account(Account(claim.digest, name, "confirmed", now(), now()))
            for claim in order:
                with suppress(InvalidBlock):
                    make_room_for_claim(view, claim)
                    view.put_entry(claim)

        await office.store.write(work)
        return await claimers(office)

    expected = {claim.identity for claim in (*strangers[: MAX_CLAIMS - 2], *users)}
    for number, order in enumerate((claims, claims[::-1], claims[40:] + claims[:40])):
        held = in_post_office(tmp_path / str(number), partial(told, order=order))
        assert held == expected


def test_a_stop_between_a_key_and_the_judging_of_its_claims_is_made_good(
    tmp_path: Path, ann: User
) -> None:
    """A claim from the partner waits for its key, whose user needs no account here."""
    clock = TurnedClock(now())
    make_server(tmp_path, clock)
    key, claim, announced = announcement_key(ann.key_id), ann.claim(ADDRESS), ann.announcement()
    arrival = Arrival.replicated_for(None)
    given = Decision(arrival, clock(), Limits(), Partnership())
    candidate = examine(lines_of(announced), key, arrival, clock(), Limits())

    async def run() -> None:
        async with serving(tmp_path, clock) as server:
            intake = server.services.intake
            assert await intake.replicate_text(KEY, lines_of(claim), None) == Pending()
            # What takes a key in, up to its commit.
            await server.services.store.write(lambda view: admit(view, candidate, given))
        async with serving(tmp_path, clock) as server, asyncio.timeout(10):
            await until(lambda: is_accepted(server, claim))

    asyncio.run(run())
