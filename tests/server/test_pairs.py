"""Two real servers, paired by one code: what one of them takes, both hold."""

import asyncio
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from tests.server.cut_apart import acknowledge
from tests.server.mailing import RECIPIENT, queue_of, send_mail
from tests.server.pairs import (
    Side,
    assert_equal,
    content_of,
    on,
    pair,
    running_pair,
    store_data,
    store_many,
    store_text,
    until,
    until_settled,
)
from tests.server.users import User, message, now

from sealmail_net.errors import NetworkError
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.canonical import block_digest
from sealmail_protocol.commands import Drop
from sealmail_protocol.invitations import Invitation
from sealmail_protocol.keys import BlockKey, KeyId, mailbox_key
from sealmail_protocol.replies import Word
from sealmail_server.accounts import hash_auth_key
from sealmail_server.operator import OperatorError
from sealmail_server.operator_socket import ask_running_server

# Who has no account yet.
LATECOMER = KeyId(b"\x5e" * 20)
# What ``record_property`` is.
Tell = Callable[[str, object], None]


def some_data(name: str, sizes: range) -> list[bytes]:
    """Return data blocks that differ by name and size."""
    return [f"{name} {size} ".encode() * (size // 8 + 1) for size in sizes]


def test_two_servers_that_both_have_users_become_one(tmp_path: Path) -> None:
    """Blocks and accounts of either side are copied once; then what comes to one reaches both."""
    sides = [Side.make(tmp_path / name) for name in ("a", "b")]
    users = [User.create(tmp_path / f"home-{name}", name) for name in ("alice", "robert")]
    keys = []
    for side, user in zip(sides, users, strict=True):
        side.start()
        keys.append(side.operate("account", "add", user.key_id.hex).strip())
        on(side, lambda remote: _publish(remote, user), user.key_id.hex, keys[-1])  # noqa: B023
        on(side, lambda remote: _store(remote, some_data(user.key_id.hex, range(9))))  # noqa: B023
    try:
        pair(*sides)
        until_settled(*sides)
        # Either user is at home on either server, with what was there before.
        for user, key in zip(users, keys, strict=True):
            for side in sides:
                found = on(side, _getting(BlockKey(user.key_id.raw)), user.key_id.hex, key)
                assert found is not None
        mail = message(users[0].key_id, data=b"sealed")
        mailbox = mailbox_key("0", users[0].key_id)
        on(sides[1], lambda remote: store_text(remote, mailbox, mail))
        on(
            sides[1],
            lambda remote: _store(remote, some_data("new", range(100_000, 500_000, 99_999))),
        )
        until_settled(*sides)
        assert on(sides[0], _getting(mailbox), users[0].key_id.hex, keys[0]) is not None
        invitation = Invitation.parse(sides[0].operate("account", "invite"))
        until_settled(*sides)
        assert {each.address for each in invitation.servers} == {each.address for each in sides}
        held = assert_equal(*sides)
        assert len(held["data"]) == 18 + 5
        assert len(held["accounts"]) == 3
    finally:
        for side in sides:
            side.end()
        for user in users:
            user.close()


def test_a_code_that_holds_no_more_is_refused_with_a_way_out(tmp_path: Path) -> None:
    """Nobody is told to try again later with it, and neither server has a partner then."""
    sides = [Side.make(tmp_path / name) for name in ("a", "b")]
    try:
        for side in sides:
            side.start()
        offer = {"do": "pair offer", "address": str(sides[0].address)}
        old, _ = (ask_running_server(sides[0].directory, offer)["code"] for _ in range(2))
        join = {"do": "pair join", "code": old, "address": str(sides[1].address)}
        with pytest.raises(OperatorError, match=r"does not take this code.*print another one"):
            ask_running_server(sides[1].directory, join)
        with pytest.raises(OperatorError, match="no partner"):
            ask_running_server(sides[1].directory, {"do": "pair sync"})
    finally:
        for side in sides:
            side.kill()


def test_what_is_stored_while_the_partner_is_down_comes_later(tmp_path: Path) -> None:
    """Nothing is lost by a partner that is killed and comes back; the status says how it is."""
    with running_pair(tmp_path) as (first, second):
        second.kill()
        on(first, lambda remote: _store(remote, some_data("away", range(30))))
        found = first.partner()
        assert not found["connected"]
        assert found["queued"]["replicate"] == 30
        first.kill()
        second.start()
        first.start()
        until_settled(first, second)
        assert len(assert_equal(first, second)["data"]) == 30


@dataclass
class LastHour:
    """What a server was given until it was killed: by which moment each block was answered DONE.

    ``lag`` is what the server itself told just before ``killed``.
    """

    answered: dict[str, float] = field(default_factory=dict)
    lag: float = 0.0
    killed: float = 0.0

    def play(self, side: Side, seconds: float, last_things: Callable[[], None]) -> None:
        """Store as fast as it goes, do ``last_things`` beside it, and kill the server."""

        async def store(number: int) -> None:
            with suppress(NetworkError):
                async with await side.connect() as remote:
                    for count in itertools.count():
                        key = await store_data(remote, f"{number} {count}".encode())
                        self.answered[key.hex] = time.monotonic()

        async def all_together() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(8):
                    group.create_task(store(number))
                await asyncio.sleep(seconds)
                await asyncio.to_thread(last_things)
                found = await asyncio.to_thread(side.partner)
                self.lag = float(found["lag_seconds"])
                assert side.process is not None
                self.killed = time.monotonic()
                side.process.kill()

        asyncio.run(all_together())
        side.kill()


@pytest.mark.parametrize(
    ("mode", "seconds"), [("both", 2), pytest.param("async", 10, marks=pytest.mark.long)]
)
def test_the_loss_of_a_data_directory_costs_what_the_mode_says(
    tmp_path: Path, mode: str, seconds: int, record_property: Tell
) -> None:
    """With both nothing that was answered is missing; with async only what was within the lag."""
    with running_pair(tmp_path, f'replication = "{mode}"') as (first, second):
        made, last_hour = [], LastHour()
        user = User.create(tmp_path / "home", "wanda")
        announcement, key = user.announcement(), BlockKey(user.key_id.raw)
        user.close()
        login = (key.hex, first.operate("account", "add", key.hex).strip())

        def last_things() -> None:
            """Make an account, mail for it and for nobody yet, a key, and what is for others."""
            made.append(first.operate("account", "add", RECIPIENT.hex).strip())
            on(first, post_last, *login)

        async def post_last(remote: RemoteServer) -> None:
            await store_text(remote, key, announcement)
            for recipient in (RECIPIENT, LATECOMER):
                await store_text(remote, mailbox_key("0", recipient), message(recipient))
            await acknowledge(remote, b"the last one")
            await _post_for_others(remote)

        last_hour.play(first, seconds, last_things)
        shutil.rmtree(first.directory)
        rows = on(second, queue_of, *login)
        # Who had no account yet gets one from the survivor.
        late = {"do": "account add", "userid": LATECOMER.hex, "auth_key": ""}
        ask_running_server(second.directory, late)
        second.end()
        content = content_of(second.directory)
    answered, held = last_hour.answered, {key for key, *_ in content["data"]}
    missing = set(answered) - held
    oldest = max((last_hour.killed - answered[key] for key in missing), default=0.0)
    record_property(
        "told",
        f"{len(missing)} of {len(answered)} missing, from the last {oldest:.2f} s;"
        f" the lag was {last_hour.lag:.0f} s",
    )
    assert len(answered) > 20
    assert held & set(answered)
    if mode == "both":
        assert not missing
        assert sorted((row.state, row.code) for row in rows) == [
            ("refused", "date"),
            ("waiting", "-"),
        ]
        assert hash_auth_key(made[0]) in {each[0] for each in content["accounts"]}
        assert len(content["key-announcement"]) == len(content["acknowledgment"]) == 1
        mailboxes = {key for key, *_ in content["message-announcement"]}
        assert mailboxes == {mailbox_key("0", each).hex for each in (RECIPIENT, LATECOMER)}
    else:
        # The lag is told in whole seconds, and blocks came while it was asked for.
        bound = last_hour.lag + 1.0
        assert last_hour.killed - min(answered.values()) > bound
        assert oldest <= bound


async def _post_for_others(remote: RemoteServer) -> None:
    """Hand in a block that waits for an hour, and one that no server may take any more."""
    line, moment = "Post-To: server=mail.example:8081", now()
    mail = message(RECIPIENT, date=moment)
    assert await send_mail(remote, mail, line, after=moment + timedelta(hours=1)) is Word.DONE
    old = message(RECIPIENT, date=moment - timedelta(days=11))
    assert await send_mail(remote, old, line) is Word.DONE


def test_past_its_cap_the_queue_says_so_and_both_are_compared_later(tmp_path: Path) -> None:
    """What was not queued is found when the partner is back; accounts were never left out."""
    with running_pair(tmp_path, "partner_queue_blocks = 5") as (first, second):
        second.kill()
        on(first, lambda remote: _store(remote, some_data("many", range(20))))
        first.operate("account", "generate", "3")
        found = first.partner()
        assert found["resync_needed"]
        assert (found["queued"]["account"], found["queued"]["replicate"]) == (3, 5)
        assert "resync needed" in first.operate("status")
        second.start()
        until_settled(first, second)
        assert not first.partner()["resync_needed"]
        held = assert_equal(first, second)
        assert (len(held["data"]), len(held["accounts"])) == (20, 3)


def test_mail_that_its_owner_drops_goes_from_both(tmp_path: Path) -> None:
    """A tombstone is told too, and the dropped mail does not come back by a comparison."""
    user = User.create(tmp_path / "home", "alice")
    mail, mailbox = message(user.key_id), mailbox_key("0", user.key_id)
    try:
        with running_pair(tmp_path) as (first, second):
            key = first.operate("account", "add", user.key_id.hex).strip()
            on(first, lambda remote: store_text(remote, mailbox, mail))
            until_settled(first, second)
            second.kill()
            drop = Drop(mailbox, block_digest(mail))
            dropped = on(first, lambda remote: remote.call(drop), user.key_id.hex, key)
            assert dropped is Word.DONE
            second.start()
            until_settled(first, second)
            first.operate("pair", "sync")
            until_settled(first, second)
            held = assert_equal(first, second)
            assert held["message-announcement"] == set()
            assert len(held["tombstones"]) == 1
    finally:
        user.close()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_first_copy_that_is_killed_goes_on(tmp_path: Path) -> None:
    """Either server may die while what they hold is copied; it goes on where it was."""
    sides = [Side.make(tmp_path / name) for name in ("a", "b")]
    first, second = sides
    blocks = [f"block {number}".encode() for number in range(8000)]

    def copied() -> int:
        """Return how many blocks were found missing by a copy that is going on; else 0."""
        comparing = first.partner()["comparing"]
        return comparing["queued"] if comparing else 0

    try:
        first.start()
        second.start()
        asyncio.run(store_many(first, blocks))
        code = first.operate("pair", "--address", str(first.address)).strip()
        # Without waiting for the copy: it is to be killed.
        join = {"do": "pair join", "code": code, "address": str(second.address)}
        ask_running_server(second.directory, join)
        before = 0
        for victim in (first, second, first):
            until(lambda: copied() > before, "the copy to go on")  # noqa: B023 - at once
            before = copied()
            victim.kill()
            victim.start()
            assert copied() >= before > 0
        until_settled(first, second)
        assert len(assert_equal(first, second)["data"]) == len(blocks)
    finally:
        for side in sides:
            side.end()


@pytest.mark.schedule
@pytest.mark.timeout(300)
@pytest.mark.parametrize("words", [("clocks", "kill-second"), ("kill-after", "few")], ids=" ".join)
def test_a_cut_with_a_restart_loses_nothing(
    tmp_path: Path, words: tuple[str, ...], record_property: Tell
) -> None:
    """Both servers take all kinds of blocks while cut apart; then they are equal.

    One of them is killed, while the cut lasts or in the middle of being told what it missed.
    """
    record_property("told", play_apart(tmp_path, *words))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "words",
    [
        (),
        ("kill-first",),
        ("kill-after",),
        ("kill-first", "kill-second", "clocks"),
        ("both",),
        ("both", "kill-second", "kill-after"),
        ("both", "clocks", "kill-first", "kill-after"),
    ],
    ids=" ".join,
)
def test_no_cut_loses_anything(
    tmp_path: Path, words: tuple[str, ...], record_property: Tell
) -> None:
    """Whatever happens beside the cut, in either mode."""
    record_property("told", play_apart(tmp_path, *words))


def play_apart(directory: Path, *words: str) -> str:
    """Play a schedule in a network of its own; return what it tells at the end."""
    alone = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    program = [sys.executable, "-m", "tests.server.cut_apart", str(directory), *words]
    done = subprocess.run([*alone, *program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


async def _publish(remote: RemoteServer, user: User) -> None:
    await store_text(remote, BlockKey(user.key_id.raw), user.announcement())


async def _store(remote: RemoteServer, blocks: list[bytes]) -> None:
    for data in blocks:
        await store_data(remote, data)


def _getting(
    key: BlockKey,
) -> Callable[[RemoteServer], Coroutine[None, None, tuple[bytes, ...] | None]]:
    return lambda remote: remote.get(key)
