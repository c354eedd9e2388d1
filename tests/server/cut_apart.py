"""A pair of servers that is cut apart, healed and compared; run it in a network of its own.

``python -m tests.server.cut_apart DIRECTORY WORD...`` plays one schedule; the words say what
happens beside the cut: ``kill-first``, ``kill-second`` (kill -9 and restart while the cut lasts),
``kill-after`` (kill -9 of the second while it is being told thousands of blocks that it missed),
``few`` (hundreds of them), ``clocks`` (ten minutes apart), ``both`` (the mode).
"""

import asyncio
import hashlib
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from tests.server.mailing import send_mail
from tests.server.pairs import (
    Side,
    assert_equal,
    on,
    pair,
    store_data,
    store_many,
    store_text,
    until,
    until_settled,
)
from tests.server.users import User, data_lines, message, now

from sealmail_net.errors import NetworkError
from sealmail_net.remote_server import RemoteServer
from sealmail_pow import Difficulty, mint
from sealmail_protocol.blocks import MessageAnnouncement, TextBlock
from sealmail_protocol.canonical import block_digest
from sealmail_protocol.commands import Drop, StoreProxy
from sealmail_protocol.compose import make_acknowledgment
from sealmail_protocol.dates import parse_date
from sealmail_protocol.fields import join_lines
from sealmail_protocol.keys import (
    AckHash,
    BlockKey,
    acknowledgment_key,
    address_key,
    mailbox_key,
)
from sealmail_protocol.replies import Word
from sealmail_protocol.stamps import acknowledgment_challenge

HOSTS = ("127.0.1.1", "127.0.2.1")
TABLE = """
table inet cut {
  set apart { type ipv4_addr . ipv4_addr; }
  chain out {
    type filter hook output priority 0;
    ip saddr . ip daddr @apart drop
  }
}
"""
HIGH, LOW = Difficulty(26, 2), Difficulty(16, 2)
WRITERS = 3
# Blocks that the second is being told of while it is killed: some seconds of telling.
MANY, FEW = 5000, 1500


def faster() -> tuple[str, ...]:
    """Return words that run a command with a clock that is ten minutes ahead.

    The program ``faketime`` itself would stand between us and the process that is to be killed.
    """
    told = subprocess.run(
        ["faketime", "-f", "+600s", "env"], check=True, capture_output=True, text=True
    )
    words = [line for line in told.stdout.splitlines() if line.startswith("LD_PRELOAD=")]
    assert words, f"faketime puts nothing before a program: {told.stdout}"
    return ("env", *words, "FAKETIME=+600s", "FAKETIME_DONT_FAKE_MONOTONIC=1")


def ahead_of(second: Side, first: Side) -> float:
    """Return by how many seconds the clock of the one server is ahead of the other's."""

    async def ask(remote: RemoteServer) -> datetime:
        lines = await remote.capabilities()
        return parse_date(lines["TIME"])

    return (on(second, ask) - on(first, ask)).total_seconds()


def nft(*words: str, given: str | None = None) -> None:
    """Change the packet filter of this network."""
    subprocess.run(["nft", *words], check=True, input=given, text=True)


def cut(word: str) -> None:
    """Drop all packets between the servers, both ways (``add``), or no more (``delete``)."""
    pairs = f"{{ {HOSTS[0]} . {HOSTS[1]}, {HOSTS[1]} . {HOSTS[0]} }}"
    nft(word, "element", "inet", "cut", "apart", pairs)


def write_for(sides: list[Side], seconds: float, tag: str) -> set[BlockKey]:
    """Store on both servers, by several connections each; return what was answered DONE.

    It is data mostly, and acknowledgments.
    """
    done: set[BlockKey] = set()

    async def write(side: Side, number: int) -> None:
        count, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                async with await side.connect() as remote:
                    while time.monotonic() < end:
                        count += 1
                        size = 90_000 if count % 9 == 0 else 300
                        data = f"{tag} {side.address} {number} {count} ".encode() * (size // 30)
                        done.add(await store_data(remote, data))
                        if count % 20 == 0:
                            done.add(await acknowledge(remote, data))
            except (NetworkError, OSError):
                await asyncio.sleep(0.1)

    async def play() -> None:
        async with asyncio.TaskGroup() as group:
            for side in sides:
                for number in range(WRITERS):
                    group.create_task(write(side, number))

    asyncio.run(play())
    return done


async def acknowledge(remote: RemoteServer, data: bytes) -> BlockKey:
    """Store an acknowledgment, and return its key once it was answered DONE."""
    secret, date = AckHash(hashlib.sha1(data, usedforsecurity=False).digest()), now()
    stamp = mint(acknowledgment_challenge(date, secret), LOW)
    await store_text(remote, acknowledgment_key(secret), make_acknowledgment(date, stamp, secret))
    return acknowledgment_key(secret)


def claim(side: Side, user: User, auth_key: str, address: str) -> None:
    """Post a claim of a user."""
    block, key = user.claim(address), address_key(address)
    on(side, lambda remote: store_text(remote, key, block), user.key_id.hex, auth_key)


def drop(side: Side, user: User, auth_key: str, mail: MessageAnnouncement) -> None:
    """Remove a mail from a user's mailbox."""
    command = Drop(mailbox_key("0", user.key_id), block_digest(mail))
    assert on(side, lambda remote: remote.call(command), user.key_id.hex, auth_key) is Word.DONE


def hand_in(side: Side, user: User, auth_key: str, tag: str) -> None:
    """Hand in data that waits for an hour, twice, and mail that is a dead letter at once."""
    line, data = "Post-To: server=mail.example:8081", f"{tag} on its way ".encode() * 20

    async def work(remote: RemoteServer) -> None:
        time_there = parse_date((await remote.capabilities())["TIME"])
        after = time_there + timedelta(hours=1)
        for number in (1, 2):
            target = f"Post-To: server=mail{number}.example:8081"
            key, lines = data_lines(data, time_there)
            command = StoreProxy(key, after)
            word = await remote.post_data(command, (target, *lines), len(data), (data,))
            assert word is Word.DONE
        old = message(user.key_id, date=time_there - timedelta(days=11))
        assert await send_mail(remote, old, line) is Word.DONE

    on(side, work, user.key_id.hex, auth_key)


def publish(
    side: Side, user: User, auth_key: str, price: Difficulty, *, revoked: bool = False
) -> TextBlock:
    """Post a key-announcement of a user with this price, and return it."""
    block = user.announcement(now(), price, revoked=revoked)
    key = BlockKey(user.key_id.raw)
    on(side, lambda remote: store_text(remote, key, block), user.key_id.hex, auth_key)
    return block


def send(side: Side, user: User, price: Difficulty, data: bytes) -> MessageAnnouncement:
    """Post an announcement to a user's mailbox, and return it."""
    mail, key = message(user.key_id, price, data=data), mailbox_key("0", user.key_id)
    on(side, lambda remote: store_text(remote, key, mail))
    return mail


def mailbox_of(side: Side, user: User, auth_key: str) -> int:
    """Return how many entries a user finds in the first mailbox."""

    async def look(remote: RemoteServer) -> int:
        lines = await remote.get(mailbox_key("0", user.key_id)) or ()
        return sum(line.lower().startswith(b"messagehash:") for line in lines)

    return on(side, look, user.key_id.hex, auth_key)


def play(directory: Path, words: set[str]) -> None:
    """Play one schedule."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    nft("-f", "-", given=TABLE)
    mode = f'replication = "{"both" if "both" in words else "async"}"'
    sides = [
        Side.make(directory / name, f'outgoing_address = "{host}"', mode, host=host)
        for name, host in zip("ab", HOSTS, strict=True)
    ]
    first, second = sides
    if "clocks" in words:
        second.prefix = faster()
    alice, robert, carol, anew = (
        User.create(directory / name, name) for name in ("alice", "robert", "carol", "anew")
    )
    try:
        first.start()
        second.start()
        key = first.operate("account", "add", alice.key_id.hex).strip()
        publish(first, alice, key, HIGH)
        carols = first.operate("account", "add", carol.key_id.hex).strip()
        publish(first, carol, carols, LOW)
        unwanted = send(first, carol, LOW, b"that she will drop")
        pair(first, second)
        until_settled(first, second)
        assert "clocks" not in words or 550 < ahead_of(second, first) < 650
        done = write_for(sides, 0.5, "before")
        cut("add")
        # What the one server learns, the other gets mail for.
        time.sleep(1.1)
        publish(first, alice, key, LOW)
        roberts = first.operate("account", "add", robert.key_id.hex).strip()
        send(second, alice, LOW, b"at the new price")
        send(second, robert, LOW, b"to a new user")
        send(first, robert, LOW, b"to a new user, at home")
        # Carol has another key from now on; the one server knows that, the other does not.
        new_carols = first.operate("account", "add", anew.key_id.hex).strip()
        publish(first, anew, new_carols, LOW)
        # Under libfaketime the wait for gpg, which judges revoked keys, fails now and then.
        last_word = publish(first, carol, carols, HIGH, revoked="clocks" not in words)
        send(second, carol, LOW, b"to the key that is revoked")
        send(second, anew, LOW, b"to the new key")
        drop(second, carol, carols, unwanted)
        claim(first, anew, new_carols, "anew@a.example")
        claim(second, alice, key, "alice@a.example")
        for side in sides:
            hand_in(side, alice, key, str(side.address))
        done |= write_for(sides, 1.5, "apart")
        for word, side in (("kill-first", first), ("kill-second", second)):
            if word in words:
                side.kill()
                side.start()
        done |= write_for(sides, 0.5, "still apart")
        assert first.partner()["degraded"] or "both" not in words
        if "kill-after" in words:
            count = FEW if "few" in words else MANY
            blocks = [f"missed {number}".encode() for number in range(count)]
            done |= asyncio.run(store_many(first, blocks))
        most = first.partner()["queued"]["replicate"]
        cut("delete")
        if "kill-after" in words:
            until(
                lambda: 0 < first.partner()["queued"]["replicate"] < most,
                "the telling",
                patience=90,
                pause=0.01,
            )
            second.kill()
            assert first.partner()["queued"]["replicate"] > 0
            second.start()
        done |= write_for(sides, 0.5, "after")
        until_settled(first, second, patience=90)
        for side in sides:
            # Waiting mail is judged when what it waits for has come; then it is told in turn.
            until(mail_is_there(side, alice, key, 1), f"alice's mail on {side.address}")
            until(mail_is_there(side, robert, roberts, 2), f"robert's mail on {side.address}")
            until(mail_is_there(side, carol, carols, 1), f"carol's mail on {side.address}")
            until(mail_is_there(side, anew, new_carols, 1), f"her new mail on {side.address}")
        until_settled(first, second)
        held = assert_equal(first, second)
        kept = {name for kind in ("data", "acknowledgment") for name, *_ in held[kind]}
        missing = {each.hex for each in done} - kept
        assert not missing, f"{len(missing)} of {len(done)} blocks answered DONE are missing"
        assert len(held["accounts"]) == 4
        assert len(held["tombstones"]) == 1
        assert len(held["address-claim"]) == 2
        assert len(held["queue"]) == 6
        announced = {key: header for key, _, header, _ in held["key-announcement"]}
        assert announced[carol.key_id.hex] == join_lines(last_word.lines)
        print(f"{' '.join(sorted(words)) or 'cut'}: {len(done)} blocks on both servers")
    finally:
        for side in sides:
            side.kill()
        for user in (alice, robert, carol, anew):
            user.close()


def mail_is_there(side: Side, user: User, auth_key: str, count: int) -> Callable[[], bool]:
    """Return what tells whether a user has all his mail on this server."""
    return lambda: mailbox_of(side, user, auth_key) == count


if __name__ == "__main__":
    play(Path(sys.argv[1]), set(sys.argv[2:]))
