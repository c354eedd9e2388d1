"""Two real servers, paired by one code: what one of them takes, both hold."""

import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
from tests.server.pairs import (
    Side,
    assert_equal,
    on,
    pair,
    running_pair,
    store_data,
    store_text,
    until_settled,
)
from tests.server.users import User, message

from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.keys import BlockKey, mailbox_key


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
        held = assert_equal(*sides)
        assert len(held["data"]) == 18 + 5
        assert len(held["accounts"]) == 2
    finally:
        for side in sides:
            side.end()
        for user in users:
            user.close()


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


@pytest.mark.timeout(300)
def test_a_cut_with_a_restart_loses_nothing(tmp_path: Path) -> None:
    """Both servers take writes, accounts, prices and mail while cut apart; then they are equal."""
    print(play_apart(tmp_path, "clocks", "kill-second"))


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
def test_no_cut_loses_anything(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Whatever happens beside the cut, in either mode."""
    print(play_apart(tmp_path, *words))


def play_apart(directory: Path, *words: str) -> str:
    """Play a schedule in a network of its own; return what it tells at the end."""
    alone = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    program = [sys.executable, "-m", "tests.server.cut_apart", str(directory), *words]
    done = subprocess.run([*alone, *program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def _publish(remote: RemoteServer, user: User) -> None:
    await store_text(remote, BlockKey(user.key_id.raw), user.announcement())


async def _store(remote: RemoteServer, blocks: list[bytes]) -> None:
    for data in blocks:
        await store_data(remote, data)


def _getting(
    key: BlockKey,
) -> Callable[[RemoteServer], Coroutine[None, None, tuple[bytes, ...] | None]]:
    return lambda remote: remote.get(key)
