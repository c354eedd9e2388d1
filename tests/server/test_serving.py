"""The running server over real TLS: who may store and read what, and what verdicts tell."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from tests.server.conftest import RunningServer
from tests.server.users import User, data_lines, message, now

from sealmail_net.dialing import DialSettings, dial
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_pow import Difficulty, mint
from sealmail_protocol import commands
from sealmail_protocol.block_codec import parse_data_header, parse_text_block
from sealmail_protocol.blocks import TextBlock
from sealmail_protocol.canonical import block_digest, data_digest
from sealmail_protocol.compose import make_acknowledgment
from sealmail_protocol.errors import Refusal
from sealmail_protocol.fields import decode_lines
from sealmail_protocol.keys import AckHash, BlockKey, acknowledgment_key, address_key, mailbox_key
from sealmail_protocol.replies import Accepted, Listing, Pending, Refused, Verdict, Word
from sealmail_protocol.stamps import acknowledgment_challenge

T = TypeVar("T")
LOCAL = DialSettings(allow_private_targets=True)


@pytest.fixture(scope="module")
def people() -> Iterator[tuple[User, User]]:
    """Two users with keys, in a place short enough for GnuPG's sockets."""
    with tempfile.TemporaryDirectory() as place:
        users = (User.create(Path(place) / "a", "ann"), User.create(Path(place) / "b", "ben"))
        yield users
        for user in users:
            user.close()


def with_server(
    server: RunningServer, talk: Callable[[RemoteServer], Awaitable[T]], timeout: float = 60
) -> T:
    """Connect to the server, talk, and return what came of it."""

    async def connected() -> T:
        async with asyncio.timeout(timeout):
            async with await dial(server.address, LOCAL, MemoryPins(), strict_pin=True) as remote:
                return await talk(remote)

    return asyncio.run(connected())


async def post(remote: RemoteServer, key: BlockKey, block: TextBlock) -> Verdict | None:
    """Store a block, see it answered DONE, and return its verdict."""
    assert await remote.store(key, block.lines) is Word.DONE
    return await remote.verdict(block_digest(block))


def code_of(verdict: Verdict | None) -> Refusal | None:
    """Return why a block was refused."""
    return verdict.code if isinstance(verdict, Refused) else None


def test_a_users_first_login_binds_a_key_and_the_announcement_confirms_it(
    server: RunningServer, people: tuple[User, User]
) -> None:
    """Until the own key is posted a new login reads no mail; afterwards it does."""
    user = people[0]
    key = BlockKey(user.key_id.raw)
    mailbox = mailbox_key("0", user.key_id)

    async def talk(remote: RemoteServer) -> None:
        assert await remote.login(user.key_id.hex, server.auth_keys[0])
        early = message(user.key_id, data=b"early")
        assert await post(remote, mailbox, early) == Pending()
        announcement = user.announcement()
        assert await post(remote, key, announcement) == Accepted()
        stored = await remote.get(key)
        assert stored is not None
        assert decode_lines(stored) == announcement.lines
        assert await remote.verdict(block_digest(early)) == Accepted()
        lines = await remote.get(mailbox)
        assert lines is not None
        assert decode_lines(lines) == early.lines

    with_server(server, talk)


def test_a_userid_that_has_an_account_cannot_be_bound_by_another_key(
    server: RunningServer, people: tuple[User, User]
) -> None:
    """A second auth key does not take over the userid of the first."""

    async def talk(remote: RemoteServer) -> None:
        assert not await remote.login(people[0].key_id.hex, server.auth_keys[1])
        assert await remote.login(people[0].key_id.hex.lower(), server.auth_keys[0])
        assert await remote.call(commands.Login("administrator", "X" * 20)) is Word.FAILED
        assert await remote.call(commands.Shutdown()) is Word.FAILED

    with_server(server, talk)


def test_strangers_get_keys_but_no_mail(server: RunningServer, people: tuple[User, User]) -> None:
    """Mailboxes, data and acknowledgments are NOT FOUND for who has not logged in."""
    data_key, lines = data_lines(b"for readers only")

    async def talk(remote: RemoteServer) -> None:
        header = parse_data_header(lines)
        assert await remote.store_data(data_key, header, [b"for readers only"]) is Word.DONE
        assert await remote.verdict(data_digest(header, data_key)) == Accepted()
        assert await remote.get(data_key) is None
        assert await remote.get(mailbox_key("0", people[0].key_id)) is None
        assert await remote.get(BlockKey(people[0].key_id.raw)) is not None

    async def logged_in(remote: RemoteServer) -> None:
        assert await remote.login(people[0].key_id.hex, server.auth_keys[0])
        received: list[bytes] = []
        assert await remote.get_data(data_key, received.append) is not None
        assert b"".join(received) == b"for readers only"

    with_server(server, talk)
    with_server(server, logged_in)


def test_a_mailbox_is_read_by_its_owner_only(
    server: RunningServer, people: tuple[User, User]
) -> None:
    """Another user of the same server is told NOT FOUND."""
    reader = people[1]

    async def talk(remote: RemoteServer) -> None:
        assert await remote.login(reader.key_id.hex, server.auth_keys[2])
        announcement = reader.announcement(price=Difficulty(20, 2))
        assert await post(remote, BlockKey(reader.key_id.raw), announcement) == Accepted()
        assert await remote.get(mailbox_key("0", people[0].key_id)) is None

    with_server(server, talk)


def test_claims_need_their_owners_signature(
    server: RunningServer, people: tuple[User, User]
) -> None:
    """A claim is taken from its owner, and not with a forged signature or by another login."""
    owner, other = people
    key = address_key("ann@a.example")

    async def talk(remote: RemoteServer) -> None:
        assert await remote.login(owner.key_id.hex, server.auth_keys[0])
        assert await post(remote, key, owner.claim("ann@a.example")) == Accepted()
        forged = other.claim("ann@a.example", key_id=owner.key_id)
        assert code_of(await post(remote, key, forged)) is Refusal.SIGNATURE
        foreign = other.claim("ann@a.example")
        assert code_of(await post(remote, key, foreign)) is Refusal.PERMISSION

    with_server(server, talk)


def test_mail_below_the_price_waits_and_the_verdict_names_the_price(
    server: RunningServer, people: tuple[User, User]
) -> None:
    """The verdict names what is asked; paying it gets the mail in."""
    user = people[1]
    mailbox = mailbox_key("1", user.key_id)

    async def talk(remote: RemoteServer) -> None:
        assert await remote.login(user.key_id.hex, server.auth_keys[2])
        cheap = await post(remote, mailbox, message(user.key_id, mailbox="1"))
        assert cheap == Pending(Difficulty(20, 2))
        paid = message(user.key_id, Difficulty(20, 2), mailbox="1")
        assert await post(remote, mailbox, paid) == Accepted()
        lost = message(user.key_id, Difficulty(20, 2), mailbox="9")
        verdict = await post(remote, mailbox_key("9", user.key_id), lost)
        assert code_of(verdict) is Refusal.RECIPIENT

    with_server(server, talk)


@pytest.mark.parametrize(
    ("age", "code"),
    [
        pytest.param(timedelta(days=11), Refusal.DATE, id="too-old"),
        pytest.param(timedelta(days=-3), Refusal.DATE, id="from-the-future"),
        pytest.param(timedelta(), None, id="fresh"),
    ],
)
def test_acknowledgments_are_checked(
    server: RunningServer, age: timedelta, code: Refusal | None
) -> None:
    """Dates are bounded both ways, and the block lands under the key it proves."""
    date, secret = now() - age, AckHash(b"s" * 20)
    stamp = mint(acknowledgment_challenge(date, secret), Difficulty(16, 2))
    block = make_acknowledgment(date, stamp, secret)

    async def talk(remote: RemoteServer) -> None:
        assert code_of(await post(remote, BlockKey(b"x" * 20), block)) is Refusal.KEY
        verdict = await post(remote, acknowledgment_key(secret), block)
        assert code_of(verdict) is code
        assert (verdict == Accepted()) is (code is None)

    with_server(server, talk)


def test_an_impossible_date_is_refused_and_harms_nobody(server: RunningServer) -> None:
    """The block that stops an original's store for good is answered like any other."""
    lines = (
        "Type: acknowledgment",
        "Date: 2026-99-99T99:99:99Z",
        "Version: 1",
        "ProofOfWork: bd,00000014f,0000001f5",
        "Hash: 15f8b83f6380c2a25a0249cc615ec7e58a9dcf71",
    )

    async def talk(remote: RemoteServer) -> None:
        assert await remote.store(BlockKey(b"d" * 20), lines) is Word.DONE
        assert await remote.call(commands.SelfTest()) == Listing(("PASS",))

    with_server(server, talk)


def test_a_large_data_block_comes_back_byte_for_byte(
    server: RunningServer, people: tuple[User, User]
) -> None:
    """Eight mebibytes are stored and fetched; one byte more is refused by verdict."""
    data = bytes(range(256)) * (8 * 4096)
    key, lines = data_lines(data)
    large_key, large_lines = data_lines(data + b"!")

    async def talk(remote: RemoteServer) -> None:
        assert await remote.login(people[0].key_id.hex, server.auth_keys[0])
        assert await remote.store_data(key, parse_data_header(lines), [data]) is Word.DONE
        received = bytearray()
        assert await remote.get_data(key, received.extend) is not None
        assert received == data
        header = parse_data_header(large_lines)
        assert await remote.store_data(large_key, header, [data, b"!"]) is Word.DONE
        assert code_of(await remote.verdict(data_digest(header, large_key))) is Refusal.SIZE

    with_server(server, talk)


def test_a_data_block_with_the_key_of_a_mailbox_displaces_nothing(
    server: RunningServer, people: tuple[User, User]
) -> None:
    """Types live apart: the bytes that hash to a mailbox's key do not hide its mail."""
    owner = people[0]
    data = b"0" + owner.key_id.raw
    key, lines = data_lines(data)
    assert key == mailbox_key("0", owner.key_id)

    async def talk(remote: RemoteServer) -> None:
        assert await remote.store_data(key, parse_data_header(lines), [data]) is Word.DONE
        assert await remote.login(owner.key_id.hex, server.auth_keys[0])
        found = await remote.get(key)
        assert found is not None
        assert parse_text_block(decode_lines(found)).type == "message-announcement"

    with_server(server, talk)


def test_what_is_not_built_is_failed_and_not_advertised(
    server: RunningServer, people: tuple[User, User]
) -> None:
    """Every command of the table that has no part yet is answered FAILED, its body consumed."""
    key = BlockKey(b"k" * 20)

    async def talk(remote: RemoteServer) -> None:
        assert set(await remote.capabilities()) == {
            "TIME",
            "VERDICT",
            "QUEUE",
            "GET-PROXY",
            "DROP",
            "PARTNER",
        }
        assert await remote.login(people[0].key_id.hex, server.auth_keys[0])
        for command in (
            commands.GetEntangled(key),
            commands.AddLogin(None, "A" * 20),
            commands.GenLogin(1),
        ):
            assert await remote.call(command) is Word.FAILED
        assert await remote.ping("still in step")

    with_server(server, talk)


def test_administrators_and_partners_read_no_mail(
    server: RunningServer, people: tuple[User, User]
) -> None:
    """The special logins work, and a mailbox stays closed to them."""
    for userid, auth_key in (
        ("administrator", server.administrator),
        ("replication", server.replication),
    ):

        async def talk(remote: RemoteServer, userid: str = userid, key: str = auth_key) -> None:
            assert await remote.login(userid, key)
            assert await remote.get(mailbox_key("1", people[1].key_id)) is None

        with_server(server, talk)
