"""Mail over the documented I2P tunnel, in a private network of real routers."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from tests.anonymity.correspondence import (
    correspond,
    doctor_of,
    eventually,
    sends,
    ways_of,
)
from tests.anonymity.i2p_network import I2pNetwork, address_of, i2p_network
from tests.end_to_end.programs import Server, User, free_port

from sealmail_protocol.addresses import ServerAddress

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

# Which router is whose.
ANONYMOUS_USERS, DUAL, COVERT = range(3)


@dataclass(frozen=True)
class Town:
    """A public server with an I2P face, a covert one, and a user of each kind.

    Anna and Ivo are anonymous, Paul has no I2P of his own.
    """

    place: Path
    network: I2pNetwork
    dual: Server
    covert: Server
    anna: User
    paul: User
    ivo: User

    @property
    def covert_address(self) -> ServerAddress:
        """Return where the covert server is found."""
        return address_of(self.network, COVERT)


@pytest.fixture(scope="module")
def town() -> Iterator[Town]:
    """Start routers and servers, and let all users settle."""
    place = Path(tempfile.mkdtemp(prefix="smi-"))
    ports = {DUAL: free_port(), COVERT: free_port()}
    with i2p_network(ports) as network:
        dual = i2p_server(place / "dual", network, DUAL, ports[DUAL])
        covert = i2p_server(place / "covert", network, COVERT, ports[COVERT], "covert = true")
        for server in (dual, covert):
            server.start()
        try:
            for server in (dual, covert):
                eventually(partial(is_reached, server))
            hidden = ("--i2p", network.socks(ANONYMOUS_USERS), "--anonymous")
            both = (dual.address, address_of(network, DUAL))
            dark = (address_of(network, COVERT),)
            paul = User.settle(place, "Paul", "paul@dual.test", dual, reached_at=both)
            anna = User.settle(place, "Anna", "anna@dual.test", dual, reached_at=both, ways=hidden)
            ivo = User.settle(
                place, "Ivo", "ivo@covert.test", covert, reached_at=dark, ways=hidden
            )
            yield Town(place, network, dual, covert, anna, paul, ivo)
        finally:
            for server in (dual, covert):
                server.stop()
    shutil.rmtree(place)


def i2p_server(
    directory: Path, network: I2pNetwork, router: int, port: int, *lines: str
) -> Server:
    """Make a server behind the tunnel of a router, as docs/operations.md says."""
    server = Server.create(directory)
    settings = (
        f'hidden_listen = "127.0.0.1:{port}"',
        f'hidden_names = ["{network.host(router)}"]',
        f'i2p_proxy = "{network.socks(router)}"',
        *lines,
    )
    with (directory / "config.toml").open("a") as config:
        config.writelines(f"{line}\n" for line in settings)
    return server


def is_reached(server: Server) -> bool:
    """Tell whether the doctor comes to a server through I2P."""
    return doctor_of(server)["i2p"]


def test_an_anonymous_and_a_public_user_write_to_each_other(town: Town) -> None:
    """The one has met the server through I2P only, the other never so; all is acknowledged."""
    correspond(town.anna, town.paul, "from the dark")
    correspond(town.paul, town.anna, "into the dark")
    assert ways_of(town.anna) <= {"i2p", "delivery-i2p"}


def test_a_covert_key_is_found_by_i2p_host_and_port(town: Town) -> None:
    """Who types the host and port finds the key there; mail and acknowledgment come through."""
    correspond(town.anna, town.ivo, "to the covert", "--server", str(town.covert_address))


def test_servers_deliver_to_each_other_by_their_i2p_proxies(town: Town) -> None:
    """A user without I2P has his server find the key and deliver; the answer comes that way."""
    town.paul.does("identity", "set", "--send", "proxy")
    town.ivo.does("identity", "set", "--send", "proxy")
    correspond(town.paul, town.ivo, "by my server", "--server", str(town.covert_address))
    correspond(town.ivo, town.paul, "by mine", "--server", str(address_of(town.network, DUAL)))


def test_an_anonymous_user_reaches_a_public_server_by_the_proxy_of_his_server(town: Town) -> None:
    """I2P has no exits: by himself he gets nowhere, his own server asks and delivers for him."""
    public = Server.create(town.place / "public")
    public.start()
    try:
        pia = User.settle(town.place, "Pia", "pia@public.test", public)
        at = ("--server", str(public.address))
        assert sends(town.anna, pia, "no way", *at).exit_code != 0
        town.anna.does("identity", "set", "--send", "proxy")
        correspond(town.anna, pia, "by my server", *at)
    finally:
        public.stop()
    assert ways_of(town.anna) <= {"i2p", "delivery-i2p"}


def test_the_doctor_misses_the_tunnel_when_its_router_has_gone(town: Town) -> None:
    """It comes through I2P to the server's own key, and then does so no more."""
    found = doctor_of(town.covert)
    assert found["hidden"]
    assert found["i2p"]
    town.network.end_router(COVERT)
    found = doctor_of(town.covert)
    assert found["hidden"]
    assert not found["i2p"]
