"""A search over several sources: the union of claims, the newest valid, every doubt by name."""

import asyncio
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from tests.client.conftest import Correspondent, quick_home
from tests.client.samples import AMY, BOB, DATE
from tests.client.signed_blocks import Shelf, announcement_of

from sealmail_client.key_lookup import FoundKey, KeyLookup
from sealmail_client.key_sources import Answer, KeySearch, KeySource, union
from sealmail_client.keyring import Keyring
from sealmail_net.errors import NetworkError, NoServerReached, PinChanged, Unreachable
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.blocks import KeyAnnouncement
from sealmail_protocol.keys import KeyId
from sealmail_verify import Verifier

DAY = timedelta(days=1)
SERVER = ServerAddress.parse("b.example:8081")


@dataclass
class Notice:
    """A source that says what it is made to say, or cannot be reached."""

    name: str
    answer: Answer = field(default_factory=Answer)
    trouble: NetworkError | None = None
    asked: int = 0

    async def by_address(self, address: str) -> Answer:
        """Answer whatever is asked."""
        del address
        return await self._answer()

    async def by_key_id(self, key_id: KeyId) -> Answer:
        """Answer whatever is asked."""
        del key_id
        return await self._answer()

    async def _answer(self) -> Answer:
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        return self.answer


@pytest.fixture(scope="module")
def days(bob: Correspondent) -> list[KeyAnnouncement]:
    """Return announcements of three days in a row."""
    return [announcement_of(bob, DATE + day * DAY) for day in range(3)]


def test_claims_of_all_sources_are_united_and_the_newest_wins(
    days: list[KeyAnnouncement],
) -> None:
    """Whichever source comes first; each doubt names the source it came from."""
    old, new, other = (
        FoundKey(BOB, days[0], revoked=False),
        FoundKey(BOB, days[2], revoked=False),
        FoundKey(AMY, days[1], revoked=False),
    )
    first = Notice("first", Answer((old, other), ("a bad claim",)))
    second = Notice("second", Answer((new,)))
    orders: list[list[KeySource]] = [[first, second], [second, first]]
    for sources in orders:
        search = KeySearch(sources)
        sightings = asyncio.run(search.by_address("bob@b.example"))
        assert {one.key_id: one for one in union(sightings)} == {BOB: new, AMY: other}
        assert search.doubts == ["first: a bad claim"]


def test_a_revocation_at_any_source_beats_newer_announcements(
    days: list[KeyAnnouncement],
) -> None:
    """The owner's last word counts, wherever it was left."""
    revoked = FoundKey(BOB, days[0], revoked=True)
    newer = FoundKey(BOB, days[2], revoked=False)
    search = KeySearch([Notice("a", Answer((newer,))), Notice("b", Answer((revoked,)))])
    assert union(asyncio.run(search.by_key_id(BOB))) == (revoked,)


def test_a_source_out_of_reach_is_a_doubt_as_long_as_another_answers() -> None:
    """If none does, all reasons are told at once, changed TLS keys among them."""
    gone = Notice("gone", trouble=Unreachable(SERVER, "it is off"))
    changed = Notice(
        "changed", trouble=NoServerReached([PinChanged(SERVER, b"o" * 32, b"n" * 32)])
    )
    search = KeySearch([gone, Notice("there")])
    assert asyncio.run(search.by_key_id(BOB))[0].keys == ()
    assert search.doubts == ["b.example:8081 cannot be reached: it is off"]
    with pytest.raises(NoServerReached) as caught:
        asyncio.run(KeySearch([gone, changed]).by_key_id(BOB))
    assert [type(reason) for reason in caught.value.reasons] == [Unreachable, PinChanged]


def test_sources_are_asked_once_in_order_until_it_is_enough(days: list[KeyAnnouncement]) -> None:
    """Two names for one source are one question."""
    found = Answer((FoundKey(BOB, days[0], revoked=False),))
    first, second, third = Notice("1"), Notice("2", found), Notice("3", found)
    search = KeySearch([first, first, second, third])
    sightings = asyncio.run(search.by_key_id(BOB, lambda sighting: bool(sighting.keys)))
    assert [sighting.source for sighting in sightings] == ["1", "2"]
    assert (first.asked, second.asked, third.asked) == (1, 1, 0)


@pytest.fixture(scope="module")
def revoked_bob(bob: Correspondent, short_directory: Path) -> Iterator[str]:
    """Return Bob's public key with the revocation that was written when it was made."""
    with Keyring(quick_home(short_directory / "rev")) as keyring:
        keyring.import_public(bob.keyring.public_key(bob.key_id))
        certificate = bob.keyring.revocation_certificate(bob.key_id).read_text()
        subprocess.run(
            ["gpg", "--homedir", str(short_directory / "rev"), "--batch", "--import"],
            input=certificate.replace("\n:-----BEGIN", "\n-----BEGIN"),
            text=True,
            check=True,
            capture_output=True,
        )
        yield keyring.public_key(bob.key_id)


@dataclass(frozen=True)
class Showing:
    """A keyring that signs with Bob's key and shows another public key in its place."""

    signer: Keyring
    public: str

    def public_key(self, key_id: KeyId) -> str:
        """Return the key that is shown."""
        del key_id
        return self.public

    def clear_sign(self, text: str, key_id: KeyId, passphrase: str | None) -> str:
        """Sign as the owner does before the revocation is applied."""
        return self.signer.clear_sign(text, key_id, passphrase)


def test_a_revocation_is_believed_at_any_age(bob: Correspondent, revoked_bob: str) -> None:
    """An announcement of a living key is not, after the time that servers keep it."""
    showing = Correspondent(
        Showing(bob.keyring, revoked_bob),  # type: ignore[arg-type]
        bob.key_id,
        bob.user_id,
        None,
    )
    revoked, living = announcement_of(showing), announcement_of(bob, DATE + DAY)
    shelf = Shelf()
    for block, days, known in ((revoked, 500, True), (living, 20, True), (living, 40, False)):
        shelf.put_key(bob.key_id, block)
        lookup = KeyLookup(shelf, Verifier(), DATE + days * DAY)
        found = asyncio.run(lookup.by_key_id(bob.key_id))
        assert (found is not None) is known, (days, lookup.doubts)
        assert found is None or found.revoked is (block is revoked)
    assert "too old" in lookup.doubts[0]
