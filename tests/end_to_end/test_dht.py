"""Keys by the DHT, by the installed programs: published by a setting, sought where nobody knew."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.programs import Server, User, free_port


@pytest.fixture(scope="module")
def town(place: Path) -> Iterator[tuple[User, User]]:
    """Run two servers that share a DHT and nothing else, with a user each."""
    first, second = (Server.create(place / name) for name in ("dht-a", "dht-b"))
    for server in (first, second):
        with (server.directory / "config.toml").open("a") as config:
            config.write(f'dht = true\ndht_bootstrap = ["{first.address}"]\n')
        server.start()
    yield (
        User.settle(place, "Dick", "dick@a.example", first),
        User.settle(place, "Betty", "betty@b.example", second),
    )
    for server in (first, second):
        server.stop()


def test_a_key_that_no_server_knows_is_found_in_the_dht(town: tuple[User, User]) -> None:
    """Only once both want it so; then mail goes by the address alone."""
    dick, betty = town
    betty.does("identity", "set", "--dht")
    assert dick.tries("key", "find", betty.address).exit_code == 20
    dick.does("identity", "set", "--dht")
    dick.does("send", "--to", betty.address, "--subject", "found", "--message", "text")
    betty.does("fetch")
    assert "found" in betty.subjects()
    (known,) = dick.does("key", "show", betty.address, "--json").value
    assert known["seen_at"] == "entangled"
    assert known["key_id"] == betty.key_id.hex


def test_the_dht_does_not_stand_in_for_one_who_was_not_heard(town: tuple[User, User]) -> None:
    """A zone or server that is made to say nothing must not lead to whoever claims an address."""
    dick, betty = town
    for user in town:
        user.tries("identity", "set", "--dht")
    dick.tries("key", "forget", betty.address)
    nobody = f"127.0.0.1:{free_port()}"
    dick.does("identity", "set", "--dns", "direct", "--dns-server", nobody)
    done = dick.tries("key", "find", betty.address)
    assert done.exit_code == 20
    assert "is asked when dns b.example answers" in done.complaint
    dick.does("identity", "set", "--dns", "off")
    dick.does("key", "find", betty.address)
