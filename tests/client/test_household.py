"""Several identities in one directory."""

from pathlib import Path

import pytest

from sealmail_client.household import Household, NoSuchIdentity
from sealmail_client.profile import Home, NoProfile, ProfileInUse
from sealmail_client.settings import Settings
from sealmail_protocol.addresses import Transport
from sealmail_protocol.keys import KeyId

AMY, ALIAS = KeyId(b"\x01" * 20), KeyId(b"\x02" * 20)


def build(household: Household, address: str, key_id: KeyId) -> Home:
    """Add an identity without a key."""
    with household.building() as home:
        transport = Transport.parse("server=mail.a.example:8081")
        home.save(Settings(key_id, "Amy", address, transport))
        return household.admit(home).home


def test_an_identity_gets_a_number_when_it_is_complete(tmp_path: Path) -> None:
    """Nothing of the building site is left."""
    household = Household(tmp_path / "home")
    assert build(household, "amy@a.example", AMY).path.name == "1"
    assert build(household, "alias@a.example", ALIAS).path.name == "2"
    assert sorted(path.name for path in household.path.iterdir()) == ["1", "2", "lock"]
    assert household.path.stat().st_mode & 0o777 == 0o700


def test_what_was_not_completed_is_gone(tmp_path: Path) -> None:
    """Also after a kill, which leaves the unfinished directory behind."""
    household = Household(tmp_path / "home")
    with household.building() as home:
        (home.path / "half").touch()
    assert household.members() == ()
    (household.path / "new").mkdir()
    (household.path / "new" / "left").touch()
    with household.building() as home:
        assert list(home.path.iterdir()) == []


def test_an_identity_is_chosen_by_address_key_or_default(tmp_path: Path) -> None:
    """Without a default the first is meant; of one address the youngest."""
    household = Household(tmp_path)
    with pytest.raises(NoProfile, match="sealmail init"):
        household.choose()
    build(household, "amy@a.example", AMY)
    build(household, "alias@a.example", ALIAS)
    assert household.choose().settings.key_id == AMY
    assert household.choose("ALIAS@a.example").settings.key_id == ALIAS
    assert household.choose(AMY.hex).settings.key_id == AMY
    household.set_default(ALIAS)
    assert household.choose().settings.key_id == ALIAS
    with pytest.raises(NoSuchIdentity, match=r"only amy@a.example, alias@a.example"):
        household.choose("bob@a.example")
    newer = KeyId(b"\x03" * 20)
    build(household, "amy@a.example", newer)
    assert household.choose("amy@a.example").settings.key_id == newer


def test_only_one_program_adds_identities(tmp_path: Path) -> None:
    """Two would build in the same place."""
    household = Household(tmp_path)
    with household.locked(), pytest.raises(ProfileInUse), household.building():
        pass
