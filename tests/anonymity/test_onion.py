"""Mail over onion services in a private Tor network: every way of being anonymous."""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.anonymity.correspondence import (
    correspond,
    doctor_of,
    eventually,
    operator_asks,
    pins_of,
    sends,
    ways_of,
)
from tests.anonymity.tor_network import TorNetwork, tor_network
from tests.end_to_end.programs import PROGRAMS, Server, User, free_port

from sealmail_protocol.addresses import ServerAddress
from sealmail_server.config import CONTROL_PASSWORD_NAME, ONION_KEY_NAME
from sealmail_server.onion_key import load_onion_key

# Circuits are built while the machine does other things too.
pytestmark = pytest.mark.timeout(400)


@dataclass(frozen=True)
class Town:
    """A network, a server with two faces and its users: Anna is anonymous, Paul is not."""

    place: Path
    network: TorNetwork
    dual: Server
    onion: ServerAddress
    anna: User
    paul: User

    @property
    def by_tor(self) -> tuple[str, str]:
        """Return the option that names the SOCKS port of the client's tor."""
        return ("--tor", f"127.0.0.1:{self.network.socks_port}")


@pytest.fixture(scope="module")
def town() -> Iterator[Town]:
    """Start the network and the server, and let both users settle."""
    place = Path(tempfile.mkdtemp(prefix="smo-"))
    with tor_network() as network:
        dual, onion = onion_server(place / "dual", network)
        dual.start()
        try:
            until_published(dual)
            ways = ("--tor", f"127.0.0.1:{network.socks_port}", "--anonymous")
            both = (dual.address, onion)
            paul = User.settle(place, "Paul", "paul@dual.test", dual, reached_at=both)
            anna = User.settle(place, "Anna", "anna@dual.test", dual, reached_at=both, ways=ways)
            yield Town(place, network, dual, onion, anna, paul)
        finally:
            dual.stop()
    shutil.rmtree(place)


def onion_server(
    directory: Path, network: TorNetwork, *lines: str
) -> tuple[Server, ServerAddress]:
    """Make a server whose onion service is published by the control socket of the network."""
    server = Server.create(directory)
    settings = (
        f'hidden_listen = "127.0.0.1:{free_port()}"',
        f'tor_control = "{network.control}"',
        f'tor_proxy = "127.0.0.1:{network.socks_port}"',
        *lines,
    )
    with (directory / "config.toml").open("a") as config:
        config.writelines(f"{line}\n" for line in settings)
    host = load_onion_key(directory / ONION_KEY_NAME).host
    return server, ServerAddress(host, 8081)


def until_published(server: Server) -> None:
    """Wait until the onion service of a server is there, and leads to it through Tor."""
    eventually(lambda: operator_asks(server, "status")["onion_published"])
    until_reached(server)


def until_reached(server: Server) -> None:
    """Wait until the doctor comes to a server through Tor."""
    eventually(lambda: doctor_of(server)["tor"])


def test_an_anonymous_and_a_public_user_write_to_each_other(town: Town) -> None:
    """A server with two faces serves both; each mail is acknowledged.

    The anonymous user has never met the server but as an onion, the public one never so.
    """
    correspond(town.anna, town.paul, "from the dark")
    correspond(town.paul, town.anna, "into the dark")
    assert ways_of(town.anna) <= {"tor", "delivery-tor"}
    assert ways_of(town.paul) <= {"direct", "delivery"}


def test_the_two_faces_of_a_server_share_no_key(town: Town) -> None:
    """Who meets both cannot tell by their certificates that they are one."""
    dark = {row["pin"] for row in pins_of(town.anna)}
    public = {row["pin"] for row in pins_of(town.paul)}
    assert not dark & public


@pytest.mark.long
def test_the_service_is_published_again_when_tor_comes_back(town: Town) -> None:
    """After a crash of tor the same address leads to the server again; the doctor tells both."""
    town.network.restart_host()
    until_published(town.dual)
    eventually(lambda: doctor_of(town.dual)["tor"])
    found = doctor_of(town.dual)
    assert found["onion"]
    assert found["hidden"]
    eventually(lambda: town.anna.tries("fetch").exit_code == 0)


@dataclass(frozen=True)
class Elsewhere:
    """A covert server with Conny, and one that is public only with Pia."""

    covert: Server
    onion: ServerAddress
    conny: User
    public: Server
    pia: User


@pytest.fixture(scope="module")
def elsewhere(town: Town) -> Iterator[Elsewhere]:
    """Start two more servers and let a user settle on each."""
    covert, onion = onion_server(town.place / "covert", town.network, "covert = true")
    public = Server.create(town.place / "public")
    with ExitStack() as running:
        for server in (covert, public):
            server.start()
            running.callback(server.stop)
        until_published(covert)
        ways = (*town.by_tor, "--anonymous")
        conny = User.settle(
            town.place, "Conny", "conny@covert.test", covert, reached_at=(onion,), ways=ways
        )
        pia = User.settle(town.place, "Pia", "pia@public.test", public)
        yield Elsewhere(covert, onion, conny, public, pia)


def test_a_covert_server_has_no_public_port(elsewhere: Elsewhere) -> None:
    """Where its ordinary port would be, nobody listens; DNS and doctor say nothing of it."""
    covert = elsewhere.covert
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((covert.address.host, covert.address.port), 5)
    found = operator_asks(covert, "doctor")
    assert found["dns"] is None
    assert {row["part"] for row in found["findings"]} >= {"hidden", "onion"}


def test_a_covert_key_is_found_by_onion_host_and_port(town: Town, elsewhere: Elsewhere) -> None:
    """Who types the onion address finds the key there, and writes to it through Tor."""
    at = ("--server", str(elsewhere.onion))
    correspond(town.anna, elsewhere.conny, "to the covert", *at)


def test_a_public_user_and_a_covert_one_write_by_the_proxy_of_the_public_server(
    town: Town, elsewhere: Elsewhere
) -> None:
    """Paul has no Tor: his server finds the key for him and delivers; the answer comes back."""
    refused = sends(town.paul, elsewhere.conny, "no Tor", "--server", str(elsewhere.onion))
    assert refused.exit_code != 0
    assert "no proxy to Tor" in refused.complaint
    with sending_by_server(town.paul):
        at = ("--server", str(elsewhere.onion))
        correspond(town.paul, elsewhere.conny, "by my server", *at)
    correspond(elsewhere.conny, town.paul, "an answer", "--server", str(town.onion))
    assert ways_of(town.paul) <= {"direct", "delivery"}


def test_an_anonymous_user_reaches_a_public_server_by_the_proxy_of_his_server(
    town: Town, elsewhere: Elsewhere
) -> None:
    """His own server, which is no secret, asks and delivers there; he is seen by nobody else."""
    at = ("--server", str(elsewhere.public.address))
    with sending_by_server(town.anna):
        correspond(town.anna, elsewhere.pia, "by my server", *at)
    assert ways_of(town.anna) <= {"tor", "delivery-tor"}


def test_an_anonymous_user_reaches_a_public_server_by_an_exit_if_he_allows_it(
    town: Town, elsewhere: Elsewhere
) -> None:
    """Without leave nothing is sent; with it the mail goes past an exit, whose pin is apart."""
    at = ("--server", str(elsewhere.public.address))
    refused = sends(town.anna, elsewhere.pia, "no exit", *at)
    assert refused.exit_code != 0
    assert "exit node" in refused.output + refused.complaint
    town.anna.does("identity", "set", "--exit-nodes")
    town.anna.does("key", "find", elsewhere.pia.address, *at)
    correspond(town.anna, elsewhere.pia, "past an exit", *at)
    pins = {row["way"] for row in pins_of(town.anna)}
    assert f"exit {elsewhere.public.address}" in pins
    assert f"direct {elsewhere.public.address}" not in pins
    town.anna.does("identity", "set", "--no-exit-nodes")


@pytest.mark.long
def test_what_the_operator_does_by_hand_leads_to_his_server(town: Town) -> None:
    """The printed lines in torrc make one onion service, the password of a control port another.

    To users and doctor they are like any other.
    """
    by_torrc, by_password = (Server.create(town.place / name) for name in ("torrc", "password"))
    port = free_port()
    service = town.network.base / "byhand" / "service"
    lines = [
        line.replace("/var/lib/tor/sealmail", str(service)).replace(":8082", f":{port}")
        for line in printed(by_torrc, "onion")
    ]
    directory = town.network.add_host("byhand", "a pass phrase", lines)
    host = (service / "hostname").read_text().strip()
    settle_in(by_torrc, town, f'hidden_names = ["{host}"]', port=port)
    settle_in(by_password, town, f'tor_control = "{directory / "control"}"', port=free_port())
    password = by_password.directory / CONTROL_PASSWORD_NAME
    password.parent.mkdir(mode=0o700, exist_ok=True)
    password.write_text("a pass phrase\n")
    users = []
    with ExitStack() as running:
        for server, name in ((by_torrc, "Tom"), (by_password, "Pam")):
            server.start()
            running.callback(server.stop)
            until_reached(server)
            (first, *_) = printed(server, "onion")
            at = ServerAddress.parse(first)
            ways = (*town.by_tor, "--anonymous")
            user = User.settle(
                town.place, name, f"{name.lower()}@hand.test", server, reached_at=(at,), ways=ways
            )
            users.append((user, ("--server", str(at))))
        (tom, to_tom), (pam, to_pam) = users
        correspond(tom, pam, "by torrc", *to_pam)
        correspond(pam, tom, "by password", *to_tom)


def settle_in(server: Server, town: Town, line: str, *, port: int) -> None:
    """Give a server a hidden face behind a port, and the way to see it from outside."""
    with (server.directory / "config.toml").open("a") as config:
        config.write(f'hidden_listen = "127.0.0.1:{port}"\n{line}\n')
        config.write(f'tor_proxy = "127.0.0.1:{town.network.socks_port}"\n')


def printed(server: Server, *arguments: str) -> list[str]:
    """Return what a command of the operator prints."""
    command = [str(PROGRAMS / "sealmaild"), *arguments, "--data", str(server.directory)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@contextmanager
def sending_by_server(user: User) -> Iterator[None]:
    """Let a user's server find keys and deliver, for a while."""
    user.does("identity", "set", "--send", "proxy")
    yield
    user.does("identity", "set", "--send", "direct")
