"""The operator's program, beside a running server and without one."""

import json
import re
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.dialogues.server.playing import Player
from tests.server.starting import RunningServer, refused, run_server, sealmaild, started_server
from tests.server.users import data_lines

from sealmail_protocol.invitations import Invitation
from sealmail_server.cli import main
from sealmail_server.cli.common import Exit
from sealmail_server.operator_socket import SOCKET_NAME
from sealmail_server.tls_identity import pin_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Run a server whose directory has a path too long for a Unix socket."""
    place = tmp_path_factory.mktemp("operating") / ("long-name-" * 10) / "data"
    with started_server(place) as running:
        yield running


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a server that is not running."""
    directory = tmp_path_factory.mktemp("stopped") / "data"
    call(directory, "init", "--listen", "127.0.0.1:18081", "--name", "mail.example.org")
    return directory


def call(
    directory: Path, *arguments: str, code: int = 0, given: str | None = None
) -> tuple[str, str]:
    """Run a command in this process; return what it printed and what it complained of."""
    done = CliRunner().invoke(main, [*arguments, "--data", str(directory)], input=given)
    assert done.exit_code == code, done.output
    return done.stdout, done.stderr


def asked(directory: Path, *arguments: str, given: str | None = None) -> Any:
    """Run a command, and return what it says to scripts."""
    return json.loads(call(directory, *arguments, "--json", given=given)[0])


@pytest.fixture(params=["running", "stopped"])
def directory(request: pytest.FixtureRequest) -> Path:
    """Return the directory of a server that runs, and of one that does not."""
    if request.param == "running":
        running: RunningServer = request.getfixturevalue("server")
        return running.directory
    stopped: Path = request.getfixturevalue("stopped")
    return stopped


ONION = "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion"


@pytest.mark.parametrize(
    ("settings", "names", "port", "target"),
    [
        ("", [], 8081, "127.0.0.1:8082"),
        (
            f'hidden_listen = "[::1]:18082"\nhidden_port = 443\nhidden_names = ["{ONION}"]\n',
            [f"{ONION}:443"],
            443,
            "[::1]:18082",
        ),
        (
            'hidden_listen = "127.0.0.1:18083"\nhidden_names = ["a.b32.i2p"]\n',
            ["a.b32.i2p:8081"],
            8081,
            "127.0.0.1:8082",
        ),
    ],
)
def test_what_torrc_needs_is_printed(
    tmp_path: Path, settings: str, names: list[str], port: int, target: str
) -> None:
    """Three lines without a control port, behind the hosts that there are; the rest is a note."""
    (tmp_path / "config.toml").write_text(settings)
    lines, note = call(tmp_path, "onion")
    assert lines.splitlines() == [
        *names,
        "HiddenServiceDir /var/lib/tor/sealmail",
        "HiddenServiceVersion 3",
        f"HiddenServicePort {port} {target}",
    ]
    assert f'hidden_listen = "{target}"' in note


def test_an_onion_of_our_own_needs_no_torrc(tmp_path: Path) -> None:
    """With a control port the address is all, and stays."""
    (tmp_path / "config.toml").write_text(
        'hidden_listen = "127.0.0.1:18082"\ntor_control = "/run/tor/control"\n'
    )
    lines, note = call(tmp_path, "onion")
    assert re.fullmatch(r"[a-z2-7]{56}\.onion:8081\n", lines)
    assert "publishes it by /run/tor/control" in note
    assert call(tmp_path, "onion")[0] == lines


def test_accounts_are_made_listed_and_removed(directory: Path) -> None:
    """The same commands do the same, whether a server runs or not."""
    key = call(directory, "account", "add", "someuser01")[0].strip()
    assert re.fullmatch(r"[0-9A-F]{40}", key)
    second = asked(directory, "account", "add", "SOMEUSER01")
    assert (second["userid"], second["state"], second["short"]) == (
        "SOMEUSER01", "confirmed", False,
    )  # fmt: skip
    rows = [row for row in asked(directory, "account", "list") if row["userid"] == "SOMEUSER01"]
    assert len(rows) == 2
    listed = call(directory, "account", "list")[0]
    assert key not in listed
    assert listed.count("SOMEUSER01") == 2
    one = asked(directory, "account", "remove", "--key", second["key"])
    assert [(row["key"], row["state"]) for row in one] == [(second["key"], "disabled")]
    rest = asked(directory, "account", "remove", "someuser01")
    assert [row["key"] for row in rest] == [
        row["key"] for row in rows if row["key"] != second["key"]
    ]
    _, complaint = call(directory, "account", "remove", "someuser01", code=Exit.FAILED)
    assert "no account of someuser01" in complaint
    assert len(asked(directory, "account", "generate", "3")) == 3
    assert len(call(directory, "account", "generate", "2")[0].split()) == 2


def test_a_chosen_key_comes_from_stdin_and_a_short_one_is_warned_of(directory: Path) -> None:
    """It is not echoed; a taken or malformed one is refused."""
    arguments = ("account", "add", "CHOSENUSER", "--auth-key-stdin")
    printed, warned = call(directory, *arguments, given="SHORTKEY99\n")
    assert printed == ""
    assert "fewer than 20 characters" in warned
    assert "SHORTKEY99" not in warned
    _, told = call(
        directory, "account", "add", "OTHERUSER", "--auth-key-stdin", code=1, given="SHORTKEY99\n"
    )
    assert "belongs to somebody already" in told
    call(directory, *arguments, code=2, given="bad key!\n")
    call(directory, "account", "add", "bad", code=2)
    call(directory, "account", "remove", code=2)


def test_an_invitation_names_domain_server_pin_and_a_key_that_works(directory: Path) -> None:
    """The code holds all that a client needs."""
    invitation = Invitation.parse(call(directory, "account", "invite")[0])
    (invited,) = invitation.servers
    assert invited.pin == pin_of(directory / "tls" / "server.crt")
    assert str(invited.address).startswith(f"{invitation.domain}:")
    assert invited.address.port == int(asked(directory, "status")["listen"].rpartition(":")[2])
    before = {row["key"] for row in asked(directory, "account", "list")}
    made = asked(directory, "account", "invite", "--user", "INVITEDUSER")
    assert Invitation.parse(made["code"]).auth_key
    assert (made["userid"], made["state"]) == ("INVITEDUSER", "confirmed")
    assert made["key"] not in before


def test_an_account_made_beside_the_server_logs_in_at_once(server: RunningServer) -> None:
    """One writer: the running server itself did it."""
    key = call(server.directory, "account", "add", "PROMPTUSER")[0].strip()
    player = Player(server.address)
    player.enter("prompt", {"prompt": ("PROMPTUSER", key)})
    player.close()


def test_the_socket_is_for_its_owner_alone(server: RunningServer) -> None:
    """Mode 0600, in a directory of mode 0700, and noise on it harms nobody."""
    path = server.directory / SOCKET_NAME
    assert len(str(path)) > 108
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
    for noise in (b"", b"no json\n", b"[]\n", b'{"do": "no such thing"}\n', b'{"do": 5}\n'):
        with socket.socket(socket.AF_UNIX) as wire:
            wire.settimeout(10)
            connect_by_directory(wire, server.directory)
            wire.sendall(noise)
            wire.shutdown(socket.SHUT_WR)
            heard = wire.makefile("rb").readline()
            assert b"error" in heard
    assert asked(server.directory, "status")["running"]


def connect_by_directory(wire: socket.socket, directory: Path) -> None:
    """Connect by a path that is short, though the directory's is not."""
    link = Path("/tmp") / f"sealmail-test-{directory.stat().st_ino}"  # noqa: S108
    link.symlink_to(directory)
    try:
        wire.connect(str(link / SOCKET_NAME))
    finally:
        link.unlink()


def test_status_tells_what_is_there(server: RunningServer, stopped: Path) -> None:
    """For people and for scripts; a stopped server is not an error."""
    found = asked(server.directory, "status")
    assert found["running"]
    assert found["listen"] == str(server.address)
    assert found["clock"] == "right"
    assert found["accounts"]["confirmed"] >= 2
    assert "running since" in call(server.directory, "status")[0]
    assert not asked(stopped, "status")["running"]
    assert "not running" in call(stopped, "status")[0]


def test_the_doctor_examines_and_prints_the_dns_line(server: RunningServer, stopped: Path) -> None:
    """All well is exit code 0; a server that is not running is not well."""
    found = asked(server.directory, "doctor")
    assert found["well"], found
    parts = [each["part"] for each in found["findings"]]
    assert parts == ["port", "dns", "certificate", "disk", "clock"]
    port = server.address.port
    assert found["dns"] == f'cmsvr.localhost. IN TXT "server=localhost:{port}"'
    assert found["dns"] in call(server.directory, "doctor")[0]
    printed, _ = call(stopped, "doctor", code=Exit.UNWELL)
    assert "FAIL  port" in printed
    assert 'cmsvr.mail.example.org. IN TXT "server=mail.example.org:18081"' in printed


def test_the_doctor_sees_a_certificate_that_does_not_fit(stopped: Path, tmp_path: Path) -> None:
    """A name that is not in it, and files that are none."""
    config = stopped / "config.toml"
    text = config.read_text()
    try:
        config.write_text(text.replace('["mail.example.org"]', '["other.example.org"]'))
        printed, _ = call(stopped, "doctor", code=Exit.UNWELL)
        assert "it does not name other.example.org" in printed
        (tmp_path / "empty").touch()
        config.write_text(text + f'certificate = "{tmp_path / "empty"}"\n')
        printed, _ = call(stopped, "doctor", code=Exit.UNWELL)
        assert "cannot be used for TLS" in printed
    finally:
        config.write_text(text)


@pytest.mark.parametrize("name", ["config.toml", "tls/server.key", "tor/onion.key"])
def test_the_doctor_sees_secrets_that_others_may_read(stopped: Path, name: str) -> None:
    """A copy or an editor may have opened them; the command that mends it is told."""
    path = stopped / name
    path.parent.mkdir(exist_ok=True)
    made = not path.exists()
    if made:
        path.touch()
    try:
        for open_to in (0o640, 0o604):
            path.chmod(open_to)
            printed, _ = call(stopped, "doctor", code=Exit.UNWELL)
            assert f"FAIL  files         others may use {path}: chmod go= {path}" in printed
        path.chmod(0o600)
        assert "others may use" not in call(stopped, "doctor", code=Exit.UNWELL)[0]
    finally:
        path.chmod(0o600)
        if made:
            path.unlink()


def test_the_clock_is_confirmed(directory: Path) -> None:
    """It is right already, and says so."""
    assert asked(directory, "clock", "confirm")["clock_was"] == "right"


def test_failures_have_exit_codes(tmp_path: Path, stopped: Path) -> None:
    """A missing server, a wrong setting, an occupied place."""
    _, told = call(tmp_path / "nothing", "status", code=Exit.BAD_CONFIG)
    assert "sealmaild init" in told
    (tmp_path / "config.toml").write_text("listne = 1\n")
    _, told = call(tmp_path, "run", code=Exit.BAD_CONFIG)
    assert "did you mean 'listen'?" in told
    (tmp_path / "config.toml").write_text("")
    _, told = call(tmp_path, "status", code=Exit.STORE_UNAVAILABLE)
    assert "holds no block store" in told
    _, told = call(stopped, "init", code=Exit.BAD_CONFIG)
    assert "holds a server already" in told
    _, told = call(stopped, "backup", str(tmp_path), code=Exit.FAILED)
    assert "is not empty" in told


def test_commands_without_a_server_wait_for_each_other(stopped: Path) -> None:
    """Each takes the lock in its turn; none fails, none is lost."""
    before = len(asked(stopped, "account", "list"))
    command = sealmaild("account", "generate", "5", "--data", str(stopped))
    started = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait(60) for process in started] == [0, 0, 0]
    assert len(asked(stopped, "account", "list")) == before + 15


def test_a_second_server_in_the_same_directory_does_not_start(server: RunningServer) -> None:
    """It leaves the lock, the store and the socket to the first."""
    code, told = refused("run", "--data", str(server.directory))
    assert code == Exit.STORE_UNAVAILABLE
    assert "is in use: stop the other sealmaild first" in told
    assert asked(server.directory, "status")["running"]


def test_the_socket_of_a_server_that_died_is_no_obstacle(stopped: Path) -> None:
    """Nobody listens there, so the command opens the store itself."""
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(stopped / SOCKET_NAME))
    assert not asked(stopped, "status")["running"]
    (stopped / SOCKET_NAME).unlink()


class Storing(threading.Thread):
    """A client that stores data blocks, large and small, and notes which were answered DONE."""

    def __init__(self, server: RunningServer) -> None:
        super().__init__()
        self._server = server
        self._ending = threading.Event()
        self.some_are_stored = threading.Event()
        self.done: list[tuple[str, bytes]] = []

    def run(self) -> None:
        """Store until told to end."""
        player = Player(self._server.address)
        player.enter("anonymous", {})
        number = 0
        while not self._ending.is_set():
            number += 1
            data = f"block {number} ".encode() * (20_000 if number % 2 else 20)
            key, lines = data_lines(data)
            for line in (f"STORE SERVER {key}", *lines):
                player.say(line)
            player.send(data)
            player.expect("DONE", f"block {number}")
            self.done.append((key.hex, data))
            if number >= 6:
                self.some_are_stored.set()
        player.close()

    def end(self) -> None:
        """Tell it to end, and wait for that."""
        self._ending.set()
        self.join()


def test_a_backup_taken_under_load_is_restored_into_an_empty_directory(
    server: RunningServer, tmp_path: Path
) -> None:
    """Everything answered DONE before the backup began is there, with accounts and certificate."""
    directory = server.directory
    key = call(directory, "account", "add", "BACKEDUPUSER")[0].strip()
    load = Storing(server)
    load.start()
    assert load.some_are_stored.wait(60)
    before = list(load.done)
    assert "copied to" in call(directory, "backup", str(tmp_path / "backup"))[0]
    load.end()
    # It was taken while others stored.
    assert len(load.done) > len(before)
    new = tmp_path / "restored"
    call(new, "restore", str(tmp_path / "backup"))
    assert pin_of(new / "tls" / "server.crt") == pin_of(directory / "tls" / "server.crt")
    assert stat.S_IMODE((new / "tls" / "server.key").stat().st_mode) == 0o600
    call(new, "restore", str(tmp_path / "backup"), code=Exit.BAD_CONFIG)
    with run_server(new) as (_, address):
        player = Player(address)
        player.enter("user", {"user": ("BACKEDUPUSER", key)})
        for name, data in before:
            player.say(f"GET SERVER {name}")
            while not player.hear().startswith("Data: "):
                pass
            assert player.take(len(data)) == data
        player.close()
