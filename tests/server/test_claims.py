"""Claims for one address are bounded, and a flood of them keeps nobody out."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.server.post_office import PostOffice, code_of, in_post_office, user
from tests.server.users import User, now

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.errors import Refusal
from sealmail_protocol.keys import address_key, announcement_key
from sealmail_protocol.replies import Accepted
from sealmail_server.claims import MAX_CLAIMS
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


def flood(bits: int) -> list[StoredEntry]:
    """Return as many claims for the address as it may have, each of another key."""
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
        for number in range(MAX_CLAIMS)
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
