"""A stranger's server is found from the address alone, by DNS here or through the home server."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.programs import Server, User
from tests.net.name_server import BROKEN_ZONE, free_port, name_server


@pytest.fixture(scope="module")
def town(place: Path) -> Iterator[dict[str, User]]:
    """Run two servers whose domains are in DNS, and let users settle on them."""
    directory = Path(tempfile.mkdtemp(prefix="smn-"))
    first, second = (Server.create(place / name) for name in ("dns-a", "dns-b"))
    dead = f"127.0.0.1:{free_port()}"
    zone = f"""
cmsvr TXT "v=spf1 -all"
cmsvr TXT "server={dead}"
cmsvr TXT "server={dead},{second.address}"
cmsvr.empty TXT "nothing of ours"
"""
    unicode_zone = f'cmsvr TXT "server={second.address}"\n'
    with name_server(directory, {"b.test": zone, "xn--bcher-kva.test": unicode_zone}) as dns:
        with (first.directory / "config.toml").open("a") as config:
            config.write(f'dns_server = "{dns}"\n')
        for server in (first, second):
            server.start()
        users = {
            "Dora": User.settle(place, "Dora", "dora@a.test", first),
            "Bert": User.settle(place, "Bert", "bert@b.test", second),
            "Ilse": User.settle(place, "Ilse", "ilse@bücher.test", second),
        }
        users["Dora"].does("identity", "set", "--dns-server", str(dns))
        yield users
        for server in (first, second):
            server.stop()
    shutil.rmtree(directory)


@pytest.mark.parametrize("way", ["direct", "server"])
@pytest.mark.parametrize("reader", ["Bert", "Ilse"])
def test_an_address_is_enough(town: dict[str, User], way: str, reader: str) -> None:
    """`send --to` needs no server: the record of the domain leads there, dead ones are passed."""
    dora, other = town["Dora"], town[reader]
    dora.does("identity", "set", "--dns", way)
    dora.tries("key", "forget", other.address)
    dora.does("send", "--to", other.address, "--subject", f"by {way}", "--message", "text")
    other.does("fetch")
    assert f"by {way}" in other.subjects()
    known = dora.does("key", "show", other.address, "--json").value
    assert known[0]["seen_at"] == f"dns {other.address.rpartition('@')[2]}"


@pytest.mark.parametrize("way", ["direct", "server"])
@pytest.mark.parametrize(
    ("domain", "fails"),
    [
        ("absent.test", True),
        ("empty.b.test", False),
        ("missing.b.test", False),
        (BROKEN_ZONE, True),
    ],
)
def test_a_domain_that_names_no_server_is_told(
    town: dict[str, User], way: str, domain: str, fails: bool
) -> None:
    """Missing, foreign and failing records lead to no key, and the user reads why.

    The home server does not say which of them it is.
    """
    dora = town["Dora"]
    dora.does("identity", "set", "--dns", way)
    done = dora.tries("send", "--to", f"nobody@{domain}", "--subject", "s", "--message", "m")
    assert done.exit_code == 20
    if way == "direct" and fails:
        assert f"DNS could not be asked for cmsvr.{domain}" in done.complaint
    else:
        assert f"dns {domain}: DNS names no server for it" in done.complaint


def test_dns_is_not_asked_where_it_is_off(town: dict[str, User]) -> None:
    """Without DNS the key of another domain is not found, and no doubt speaks of it."""
    dora = town["Dora"]
    dora.does("identity", "set", "--dns", "off")
    done = dora.tries("key", "find", "bert@b.test")
    assert done.exit_code == 20
    assert "DNS" not in done.complaint


def test_answers_here_and_through_the_server_are_kept_apart(town: dict[str, User]) -> None:
    """What was asked directly is not believed of the server, nor the other way round."""
    dora = town["Dora"]
    dora.does("identity", "set", "--dns", "direct")
    dora.does("key", "find", "bert@b.test")
    dora.does("identity", "set", "--dns", "server", "--dns-server", "none")
    dora.does("key", "find", "bert@b.test")
    dora.does("identity", "set", "--dns", "direct", "--dns-server", f"127.0.0.1:{free_port()}")
    done = dora.tries("key", "find", "bert@b.test")
    assert done.exit_code == 20
    assert "DNS could not be asked" in done.complaint
