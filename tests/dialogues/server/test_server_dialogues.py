"""Every cell of the command table, played over a real connection to a running server."""

import hashlib
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
from tests.dialogues.server.playing import (
    Cast,
    Player,
    Scene,
    exchanges_of,
    old_context,
    read_scenes,
)
from tests.net.name_server import name_server
from tests.server.starting import RunningServer, operate, started_server
from tests.server.users import User, data_lines, message, now

from sealmail_pow import Difficulty, mint
from sealmail_protocol.block_codec import parse_data_header
from sealmail_protocol.canonical import block_digest, data_digest
from sealmail_protocol.commands import Command, PartnerPair, StartTls
from sealmail_protocol.compose import make_acknowledgment
from sealmail_protocol.dates import format_date
from sealmail_protocol.keys import AckHash, KeyId, acknowledgment_key, address_key, mailbox_key
from sealmail_protocol.policy import COMMAND_POLICY, Role
from sealmail_protocol.stamps import acknowledgment_challenge
from sealmail_server.session import CAPABILITIES, HANDLERS

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.txt"))
# Played where the DHT and DNS are on: what is off is FAILED to everybody, and tells no permission.
FILES_SWITCHED_ON = sorted((HERE / "switched_on").glob("*.txt"))
ROLES = {
    "before-tls": Role.BEFORE_TLS,
    "anonymous": Role.ANONYMOUS,
    "user": Role.USER,
    "administrator": Role.ADMINISTRATOR,
    "replication": Role.REPLICATION,
}
# Permitted by the table, and FAILED all the same: TLS begins once, and only who is logged in by
# the secret of a pairing code may become the partner.
FAILED_ALL_THE_SAME = {(role, StartTls) for role in Role if role is not Role.BEFORE_TLS} | {
    (Role.REPLICATION, PartnerPair)
}
Blocks = dict[str, str | tuple[str, ...]]
DATA = "data in a dialogue"
ADDRESS = "ulla@a.example"
# Who has no account on the stage.
NOBODY = KeyId(b"\x5e" * 20)
# Blocks to be posted: of each role its own, and those that the partner copies.
NEW = ("new", "copied")


@dataclass(frozen=True)
class Stage:
    """A server with the blocks and accounts that the dialogues speak of."""

    server: RunningServer
    cast: Cast
    logins: dict[str, tuple[str, str]]

    def play(self, scene: Scene, context: ssl.SSLContext | None = None) -> None:
        """Open a connection, take up the role, and speak."""
        player = Player(self.server.address, context=context)
        try:
            player.enter(scene.role, self.logins)
            player.play(scene.steps)
        finally:
            player.close()


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    """Return a user with a GnuPG key."""
    with tempfile.TemporaryDirectory() as place:
        made = User.create(Path(place) / "u", "ulla")
        yield made
        made.close()


@pytest.fixture(scope="module")
def blocks(user: User) -> Blocks:
    """Make the blocks of the dialogues, the same ones for every server."""
    date = now()
    first, third, second = (
        user.announcement(date - timedelta(minutes=each)) for each in (3, 2, 1)
    )
    claims = [user.claim(ADDRESS, date=date - timedelta(minutes=each)) for each in (3, 2, 1)]
    secret = AckHash(b"dialogue ack secret."[:20])
    stamp = mint(acknowledgment_challenge(date, secret), Difficulty(20, 2))
    acknowledgment = make_acknowledgment(date, stamp, secret)
    mail = message(user.key_id, date=date)
    waiting_mail = message(NOBODY, date=date)
    data_key, data_header = data_lines(DATA.encode(), date)
    made: Blocks = {
        "userid": user.key_id.hex,
        "key": "0F" * 20,
        "digest": "ab" * 32,
        "past": format_date(date - timedelta(days=1)),
        "future": format_date(date + timedelta(days=1)),
        "announcement": first.lines,
        "announcement2": second.lines,
        "announcement2_digest": block_digest(second).hex(),
        "announcement_between": third.lines,
        "announcement_between_digest": block_digest(third).hex(),
        "claim": claims[0].lines,
        "claim_key": address_key(ADDRESS).hex,
        "claim_digest": block_digest(claims[0]).hex(),
        "claim_between": claims[1].lines,
        "claim_between_digest": block_digest(claims[1]).hex(),
        "claim2": claims[2].lines,
        "claim2_digest": block_digest(claims[2]).hex(),
        "acknowledgment": acknowledgment.lines,
        "acknowledgment_key": acknowledgment_key(secret).hex,
        "acknowledgment_digest": block_digest(acknowledgment).hex(),
        "mail": mail.lines,
        "mail_digest": block_digest(mail).hex(),
        "waiting_mail": waiting_mail.lines,
        "waiting_mail_digest": block_digest(waiting_mail).hex(),
        "waiting_mailbox": mailbox_key("0", NOBODY).hex,
        "mailbox": mailbox_key("0", user.key_id).hex,
        "mailbox1": mailbox_key("1", user.key_id).hex,
        "data_header": data_header,
        "data_key": data_key.hex,
        "data": DATA,
    }
    made |= {f"copied_{name}": each for name, each in new_blocks(user, "a copy", date).items()}
    for role in (*ROLES, "provisional"):
        new = new_blocks(user, role, date)
        made |= {f"new_{name}@{role}": each for name, each in new.items()}
    return made


@pytest.fixture(scope="module")
def stage(blocks: Blocks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Start a server, and let the user move in."""
    directory = tmp_path_factory.mktemp("stage") / "data"
    # No dialogue asks the name servers of this machine.
    with started_server(directory, "permit_dns_txt = false") as server:
        yield prepared_stage(server, blocks)


@pytest.fixture(scope="module")
def full_stage(blocks: Blocks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Start a server with DHT and DNS, beside a name server, and let the user move in."""
    directory = tmp_path_factory.mktemp("full-stage")
    record = 'cmsvr TXT "server=mail.found.test:8081"\n'
    with name_server(directory / "knot", {"found.test": record}) as dns:
        network = ("dht = true", 'dht_network = "a dialogue"', f'dns_server = "{dns}"')
        with started_server(directory / "data", *network) as server:
            yield prepared_stage(server, blocks)


def prepared_stage(server: RunningServer, blocks: Blocks) -> Stage:
    """Make the accounts of the dialogues, and let the user move in."""
    directory, userid = str(server.directory), str(blocks["userid"])
    auth_key = operate("account", "add", userid, "--data", directory).strip()
    fresh = operate("account", "generate", "3", "--data", directory).split()
    cast = blocks | {
        "auth_key": auth_key,
        "administrator_key": server.administrator,
        "replication_key": server.replication,
        "fresh_key": fresh[0],
        "address": str(server.address),
    }
    logins = {
        "user": (userid, auth_key),
        "administrator": ("administrator", server.administrator),
        "replication": ("replication", server.replication),
        "provisional": ("PROVISIONALUSER", fresh[1]),
    }
    stage = Stage(server, cast, logins)
    for scene in read_scenes(HERE / "moving_in", cast):
        stage.play(scene)
    return stage


def new_blocks(user: User, whose: str, date: datetime) -> Blocks:
    """Return blocks that nobody has posted yet, made of data that says for whom."""
    data = f"data of {whose}"
    secret = AckHash(hashlib.sha1(data.encode()).digest())
    stamp = mint(acknowledgment_challenge(date, secret), Difficulty(16, 2))
    acknowledgment = make_acknowledgment(date, stamp, secret)
    mail = message(user.key_id, date=date, mailbox="1", data=data.encode())
    key, header = data_lines(data.encode(), date)
    return {
        "mail": mail.lines,
        "mail_digest": block_digest(mail).hex(),
        "acknowledgment": acknowledgment.lines,
        "acknowledgment_key": acknowledgment_key(secret).hex,
        "acknowledgment_digest": block_digest(acknowledgment).hex(),
        "data": data,
        "data_key": key.hex,
        "data_header": header,
        "data_digest": data_digest(parse_data_header(header), key).hex(),
    }


def placeholders() -> Cast:
    """Return texts of the right form, to read the commands without a server."""
    blocks = {"announcement", "announcement2", "announcement_between", "acknowledgment", "mail"}
    blocks |= {"claim", "claim_between", "claim2", "waiting_mail"}
    blocks |= {f"{word}_{each}" for word in NEW for each in ("mail", "acknowledgment")}
    keys = {"key", "userid", "mailbox", "mailbox1", "claim_key", "acknowledgment_key", "data_key"}
    keys |= {"waiting_mailbox"}
    keys |= {f"{word}_{each}_key" for word in NEW for each in ("acknowledgment", "data")}
    secrets = {"auth_key", "administrator_key", "replication_key", "fresh_key"}
    digests = {f"{each}_digest" for each in blocks} | {"digest", "new_data_digest"}
    digests |= {"copied_data_digest"}
    data = {"data_header", "new_data_header", "copied_data_header"}
    return (
        dict.fromkeys(keys | secrets, "0F" * 20)
        | dict.fromkeys(digests, "ab" * 32)
        | dict.fromkeys(("past", "future"), "2026-01-01T00:00:00Z")
        | dict.fromkeys(blocks, ("Type: acknowledgment",))
        | dict.fromkeys(data, ("Type: data", "Data: 18"))
        | {"data": DATA, "new_data": DATA, "copied_data": DATA, "address": "localhost:8081"}
    )


def test_every_command_of_the_table_is_built() -> None:
    """Nothing is answered FAILED only because nobody wrote it, or served though no row lets it."""
    assert set(HANDLERS) == set(COMMAND_POLICY)
    assert set(CAPABILITIES) <= set(COMMAND_POLICY)


def test_the_dialogues_show_every_cell_of_the_command_table() -> None:
    """Each command in each role: FAILED throughout, or served at least once, as it says."""
    scenes = [
        scene
        for path in (*FILES, *FILES_SWITCHED_ON)
        for scene in read_scenes(path, placeholders())
    ]
    failed: dict[tuple[Role, type[Command]], set[bool]] = {}
    for scene in scenes:
        for command, answer in exchanges_of(scene) if scene.role in ROLES else ():
            cell = ROLES[scene.role], type(command)
            failed.setdefault(cell, set()).add(answer == "FAILED")
    for cell in product(Role, COMMAND_POLICY):
        role, kind = cell
        if role in COMMAND_POLICY[kind] and cell not in FAILED_ALL_THE_SAME:
            assert False in failed[cell], f"{kind.__name__} is not served to {role.name}"
        else:
            assert failed[cell] == {True}, f"{kind.__name__} is served to {role.name}"


def test_an_old_client_hears_what_the_dialogue_says(stage: Stage) -> None:
    """Every role reads blocks by TLS 1.2 with the one cipher of the original."""
    for scene in read_scenes(HERE / "get_server.txt", stage.cast):
        stage.play(scene, old_context())


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.stem != "shutdown"], ids=lambda path: path.stem
)
def test_the_server_speaks_as_the_dialogue_says(stage: Stage, path: Path) -> None:
    """All scenes of one file, in their order."""
    for scene in read_scenes(path, stage.cast):
        stage.play(scene)


@pytest.mark.parametrize("path", FILES_SWITCHED_ON, ids=lambda path: path.stem)
def test_a_server_with_all_parts_speaks_as_the_dialogue_says(
    full_stage: Stage, path: Path
) -> None:
    """The same where the DHT and DNS are on."""
    for scene in read_scenes(path, full_stage.cast):
        full_stage.play(scene)


def test_an_administrator_ends_the_server(
    blocks: Blocks, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SHUTDOWN is FAILED for all others; for the administrator it is the end of the process."""
    place = tmp_path_factory.mktemp("shutdown") / "data"
    with started_server(place) as server:
        stage = prepared_stage(server, blocks)
        for scene in read_scenes(HERE / "shutdown.txt", stage.cast):
            stage.play(scene)
        assert server.process.wait(20) == 0
