"""What one server of a pair does with a partner that is slow, strange, away or an original."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.server.inside import TurnedClock, address_of, connect, live_on, make_server, serving
from tests.server.mailing import (
    SENDER,
    holds,
    log_in,
    post_to,
    send_data,
    settled,
    states,
)
from tests.server.original_partner import AUTH_KEY, OriginalPartner
from tests.server.pairs import store_data, store_text
from tests.server.users import User, data_lines, message, now

from sealmail_protocol.block_codec import parse_data_header
from sealmail_protocol.bundles import join_bundle
from sealmail_protocol.canonical import BodyDigest, data_digest
from sealmail_protocol.commands import (
    PartnerAccount,
    PartnerDrop,
    PartnerPair,
    Replicate,
    RepLogin,
    StoreServer,
)
from sealmail_protocol.invitations import PairingCode
from sealmail_protocol.keys import BlockKey, KeyId, data_key, mailbox_key
from sealmail_protocol.replies import Accepted, Word
from sealmail_server.account_desk import AccountDesk
from sealmail_server.accounts import hash_auth_key
from sealmail_server.config import CERTIFICATE_NAME, KEY_NAME, Config, set_settings
from sealmail_server.operator import OperatorError
from sealmail_server.partner_feed import Item
from sealmail_server.partner_lane import errands_for
from sealmail_server.service import Server
from sealmail_server.tls_identity import TlsIdentity, pin_of
from sealmail_store import QueueKind, queue_space

PATIENCE = 30.0
SOMEBODY = KeyId(b"\x5e" * 20)
# Entries of a bundle that takes three units of work.
BUNDLE = 192


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make two server directories, whose TLS keys serve for all tests of this file."""
    made = tmp_path_factory.mktemp("partner")
    for name in ("a", "b"):
        make_server(made / name, TurnedClock(now()))
    return made / "a", made / "b"


@pytest.fixture
def partner(directories: tuple[Path, Path]) -> OriginalPartner:
    """Return an original with the TLS key of the second directory."""
    certificate, key = directories[1] / CERTIFICATE_NAME, directories[1] / KEY_NAME
    return OriginalPartner(TlsIdentity(certificate, key))


def fresh(directory: Path, place: Path) -> Path:
    """Return a server directory with the TLS key of another one and a store of its own."""
    make_server(place, TurnedClock(now()))
    for name in (CERTIFICATE_NAME, KEY_NAME):
        (place / name).write_bytes((directory / name).read_bytes())
    return place


@asynccontextmanager
async def paired_with(
    partner: OriginalPartner,
    directories: tuple[Path, Path],
    place: Path,
    clock: TurnedClock | None = None,
    pin: str = "",
    **settings: Any,
) -> AsyncIterator[Server]:
    """Run a server whose partner is an original, by its own pin or another one."""
    async with partner.serving() as address:
        settings |= {
            "partner": str(address),
            "partner_auth_key": AUTH_KEY,
            "partner_pin": pin or pin_of(directories[1] / CERTIFICATE_NAME).hex(),
        }
        directory = await asyncio.to_thread(fresh, directories[0], place)
        async with serving(directory, clock or TurnedClock(now()), **settings) as server:
            yield server


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110 - it is the server's
            await asyncio.sleep(0.05)


async def status(server: Server) -> dict[str, Any]:
    """Return what the operator is told of the partner."""
    found: dict[str, Any] = await server.operator.fulfil({"do": "pair status"})
    return found


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    """Play a scenario with a bound in time."""

    async def play() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(play())


def test_an_original_is_told_blocks_and_account_changes_with_their_keys(
    partner: OriginalPartner, directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """REPLICATE, anonymous as none; REPLOGIN with the key itself."""

    async def scenario() -> None:
        async with paired_with(partner, directories, tmp_path / "s") as server:
            await until(lambda: connected(server))
            desk = server.services.desk
            await desk.add(SOMEBODY.hex, "A" * 20)
            [generated] = await desk.generate(1)
            await desk.remove_key("A" * 20)
            async with await connect(server) as remote:
                await store_data(remote, b"other")
            await until(lambda: told_all(server))
        accounts = [line for line in partner.told if line.startswith("REPLOGIN")]
        assert f"REPLOGIN undefined {generated}" in accounts
        assert accounts[-1] == f"REPLOGIN disabled {'A' * 20}"
        assert f"REPLICATE {data_key(b'other')} none" in partner.told

    run(scenario)


def test_a_block_that_is_refused_goes_aside_and_holds_up_nobody(
    partner: OriginalPartner, directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """Neither FAILED nor a connection that ends at one block keeps the others from going."""
    blocks = [f"block {number}".encode() for number in range(12)]
    key, lines = data_lines(blocks[0], now())
    partner.refuses = {data_key(blocks[0])}
    partner.hangs_up_at = {data_key(blocks[1])}

    async def scenario() -> None:
        async with paired_with(partner, directories, tmp_path / "s") as server:
            async with await connect(server) as remote:
                await remote.store_data(key, parse_data_header(lines), [blocks[0]])
                for data in blocks[1:]:
                    await store_data(remote, data)
            wanted = {f"REPLICATE {data_key(data)} none" for data in blocks[2:]}
            await until(lambda: includes(partner, wanted))
            # What went aside is known, with the reason.
            await until(lambda: aside(server, 2))
            assert (await status(server))["queued"]["replicate"] == 2
            # A repeated STORE offers it again at once; by itself it would go in a minute.
            partner.refuses.clear()
            async with await connect(server) as remote:
                await remote.store_data(key, parse_data_header(lines), [blocks[0]])
            await until(lambda: includes(partner, {f"REPLICATE {key} none"}))
            # What the partner has confirmed is not told again.
            async with await connect(server) as remote:
                await remote.store_data(key, parse_data_header(lines), [blocks[0]])
                await store_data(remote, b"the last")
            last = f"REPLICATE {data_key(b'the last')} none"
            await until(lambda: includes(partner, {last}))
            assert partner.told.count(f"REPLICATE {key} none") == 1

    run(scenario)


def test_what_is_too_old_is_dropped_from_the_queue_and_a_revocation_never(
    partner: OriginalPartner, directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """Nobody would take the one any more; the other is what the partner must not miss."""
    clock = TurnedClock(now())
    with tempfile.TemporaryDirectory() as place:
        user = User.create(Path(place) / "u", "ulla")
        revoked = user.announcement(clock.moment, revoked=True)
        user.close()
    key = BlockKey(user.key_id.raw)
    partner.refuses = {data_key(b"too old"), key}

    async def scenario() -> None:
        async with paired_with(partner, directories, tmp_path / "s", clock) as server:
            await server.services.desk.add(user.key_id.hex, "A" * 20)
            async with await connect(server) as remote:
                assert await remote.login(user.key_id.hex, "A" * 20)
                await store_data(remote, b"too old")
                await store_text(remote, key, revoked)
            await until(lambda: aside(server, 2))
            partner.refuses.clear()
            await live_on(server, clock, days=40)
            async with await connect(server) as remote:
                key_of_new, lines = data_lines(b"new", clock.moment)
                await remote.store_data(key_of_new, parse_data_header(lines), [b"new"])
            await until(lambda: told_all(server))
        told = [line for line in partner.told if line.startswith("REPLICATE")]
        wanted = [f"REPLICATE {key} {user.key_id}", f"REPLICATE {data_key(b'new')} none"]
        assert sorted(told) == sorted(wanted)

    run(scenario)


def test_both_waits_for_the_partner_but_not_for_long(
    partner: OriginalPartner, directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """DONE when both have it; after five seconds without it, degraded, until it has answered."""
    when = now()

    async def scenario() -> None:
        async with paired_with(partner, directories, tmp_path / "s", replication="both") as server:
            await until(lambda: connected(server))
            async with await connect(server) as remote:
                key, lines = data_lines(b"quick", when)
                header = parse_data_header(lines)
                await remote.store_data(key, header, [b"quick"])
                assert f"REPLICATE {key} none" in partner.told
                assert await remote.verdict(data_digest(header, key)) == Accepted()
                assert not (await status(server))["degraded"]
                partner.stalls = True
                began = asyncio.get_running_loop().time()
                key, lines = data_lines(b"slow", when)
                header = parse_data_header(lines)
                assert await remote.store_data(key, header, [b"slow"]) is Word.DONE
                waited = asyncio.get_running_loop().time() - began
                assert 4 < waited < 8
                assert await remote.verdict(data_digest(header, key)) == Accepted(degraded=True)
                assert (await status(server))["degraded"]
                began = asyncio.get_running_loop().time()
                await store_data(remote, b"not for long again")
                assert asyncio.get_running_loop().time() - began < 3

    run(scenario)


def test_both_waits_once_for_a_whole_bundle(
    partner: OriginalPartner, directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """However many units of work it takes to store, and though the partner answers all along."""
    partner.seconds = 0.06
    moment = now()
    mails = [message(SOMEBODY, date=moment, data=b"mail %d" % number) for number in range(BUNDLE)]

    async def scenario() -> None:
        async with paired_with(partner, directories, tmp_path / "s", replication="both") as server:
            await until(lambda: connected(server))
            await server.services.desk.add(SOMEBODY.hex, "A" * 20)
            async with await connect(server) as remote:
                began = asyncio.get_running_loop().time()
                command = StoreServer(mailbox_key("0", SOMEBODY))
                assert await remote.post(command, join_bundle(mails)) is Word.DONE
                waited = asyncio.get_running_loop().time() - began
            # Nearly four seconds for each unit would be twelve in turn.
            assert 4 < waited < 9
            assert await holds(server, "message-announcement", command.key) == BUNDLE

    run(scenario)


def test_both_does_not_wait_for_a_partner_that_declines(
    partner: OriginalPartner, directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """FAILED is an answer: DONE at once, and the verdict says that the partner has it not."""
    key, lines = data_lines(b"declined", now())
    header = parse_data_header(lines)
    partner.refuses = {key}

    async def scenario() -> None:
        async with paired_with(partner, directories, tmp_path / "s", replication="both") as server:
            await until(lambda: connected(server))
            async with await connect(server) as remote:
                began = asyncio.get_running_loop().time()
                assert await remote.store_data(key, header, [b"declined"]) is Word.DONE
                assert asyncio.get_running_loop().time() - began < 4
                verdict = await remote.verdict(data_digest(header, key))
                assert verdict == Accepted(degraded=True)
                # That is a matter of the block, and not of the partner.
                assert not (await status(server))["degraded"]
                partner.refuses.clear()
                await remote.store_data(key, header, [b"declined"])
                await until(lambda: told_all(server))
                assert await remote.verdict(data_digest(header, key)) == Accepted()

    run(scenario)


def test_a_partner_that_shows_another_key_is_not_logged_in_to(
    partner: OriginalPartner, directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """It gets neither the auth key nor any mail; the operator is told why."""

    async def scenario() -> None:
        async with paired_with(partner, directories, tmp_path / "s", pin="77" * 32) as server:
            async with await connect(server) as remote:
                await store_data(remote, b"not for a stranger")
            await until(lambda: says(server, "another key"))
            assert not await connected(server)
            assert (await status(server))["queued"]["replicate"] == 1
        assert partner.logins == partner.told == partner.others == []

    run(scenario)


def test_a_block_for_the_partners_address_is_admitted_here_and_replicated(
    partner: OriginalPartner, directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """It has the same users: there is no delivery to it, also where its host is forbidden."""

    async def scenario() -> None:
        async with paired_with(partner, directories, tmp_path / "s") as server:
            await until(lambda: connected(server))
            found = await status(server)
            async with await log_in(server) as remote:
                data = b"for the partner"
                assert await send_data(remote, data, post_to(found["partner"])) is Word.DONE
                assert states(await settled(remote)) == [("data", 1, "delivered", "-")]
            assert await holds(server, "data", data_key(data)) == 1
            await until(lambda: told_all(server))
        assert [line for line in partner.told if "REPLICATE" in line] == [
            f"REPLICATE {data_key(data)} {SENDER}"
        ]
        assert partner.others == []

    run(scenario)


def test_the_secret_of_a_pairing_code_serves_once_and_for_an_hour(
    directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """A later login with it fails, and PARTNER PAIR without an offer does too."""
    clock = TurnedClock(now())

    async def scenario() -> None:
        directory = await asyncio.to_thread(fresh, directories[0], tmp_path / "s")
        async with serving(directory, clock) as server:
            offered = await server.operator.fulfil({"do": "pair offer"})
            code = PairingCode.parse(offered["code"])
            assert code.server.address.port == address_of(server).port
            with pytest.raises(OperatorError, match="own code"):
                await server.operator.fulfil({"do": "pair join", "code": offered["code"]})
            with pytest.raises(OperatorError, match="mistyped"):
                await server.operator.fulfil({"do": "pair join", "code": offered["code"] + "A"})
            second = PairingCode.parse(
                (await server.operator.fulfil({"do": "pair offer"}))["code"]
            )
            pair = PartnerPair(second.secret, bytes(32), "K" * 20, address_of(server))
            async with await connect(server) as remote:
                assert not await remote.login("replication", code.secret)
                assert await remote.login("replication", second.secret)
                wrong = PartnerPair(code.secret, bytes(32), "K" * 20, address_of(server))
                assert await remote.call(wrong) is Word.FAILED
                clock.turn(minutes=61)
                assert await remote.call(pair) is Word.FAILED
            async with await connect(server) as remote:
                assert not await remote.login("replication", second.secret)
            third = await offered_by(server)
            async with await connect(server) as remote:
                assert await remote.login("replication", third.secret)
                pair = PartnerPair(third.secret, bytes(32), "K" * 20, address_of(server))
                assert await remote.call(pair) is Word.DONE
            async with await connect(server) as remote:
                assert not await remote.login("replication", third.secret)
                assert await remote.login("replication", "K" * 20)
            settings = Config.load(directory)
            assert (settings.partner_auth_key, settings.partner_pin) == ("K" * 20, "00" * 32)
            assert "K" * 20 not in repr(settings)

    run(scenario)


def test_settings_are_changed_where_they_stand(tmp_path: Path) -> None:
    """What the operator wrote beside them stays, and a second change replaces the first."""
    make_server(tmp_path / "s", TurnedClock(now()))
    path = tmp_path / "s" / "config.toml"
    path.write_text(path.read_text() + "# my own remark\nidle_seconds = 30\n")
    for port in (1, 2):
        set_settings(tmp_path / "s", dns_server=f"127.0.0.1:{port}", idle_seconds=port)
    config = Config.load(tmp_path / "s")
    assert (config.dns_server, config.idle_seconds) == ("127.0.0.1:2", 2)
    assert "# my own remark" in path.read_text()


def test_without_a_partner_nothing_is_queued(
    directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """A server of its own pays nothing for pairs, and says that it has none."""

    async def scenario() -> None:
        directory = await asyncio.to_thread(fresh, directories[0], tmp_path / "s")
        async with serving(directory, TurnedClock(now())) as server:
            async with await connect(server) as remote:
                await store_data(remote, b"alone")
            assert isinstance(server.services.desk, AccountDesk)
            await server.services.desk.generate(3)
            assert await server.operator.fulfil({"do": "pair status"}) is None
            for kind in QueueKind:
                rows = await server.services.store.read(
                    lambda view: view.queue.all(kind, limit=10)  # noqa: B023
                )
                assert rows == ()
            with pytest.raises(OperatorError, match="no partner"):
                await server.operator.fulfil({"do": "pair sync"})

    run(scenario)


def test_what_the_partner_sends_is_not_sent_back(
    partner: OriginalPartner, directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """Neither blocks nor accounts nor dropped mail: nothing of it is ever queued."""

    async def scenario() -> None:
        async with paired_with(partner, directories, tmp_path / "s") as server:
            await server.services.desk.add("replication", "R" * 20)
            async with await connect(server) as remote:
                assert await remote.login("replication", "R" * 20)
                key, lines = data_lines(b"theirs", now())
                await remote.post_data(Replicate(key, None), lines, 6, [b"theirs"])
                await remote.call(RepLogin(SOMEBODY.hex, "A" * 20))
                await remote.call(PartnerAccount(bytes(32), SOMEBODY.hex, "confirmed"))
                await remote.call(PartnerDrop(key, bytes(32), bytes(32), now()))
            async with await connect(server) as remote:
                await store_data(remote, b"ours")
            await until(lambda: told_all(server))
        assert partner.told == [f"REPLICATE {data_key(b'ours')} none"]

    run(scenario)


def test_an_original_gets_an_account_as_it_is_when_it_hears_of_it(
    partner: OriginalPartner, directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """One that was added and removed while it was away is told as disabled, never as in use."""
    key = "A" * 20

    async def scenario() -> None:
        async with paired_with(partner, directories, tmp_path / "s", pin="00" * 32) as server:
            account = await server.services.desk.add(SOMEBODY.hex, key)
            await server.services.desk.remove((hash_auth_key(key),))
            rows = await server.services.store.read(
                lambda view: view.queue.all(QueueKind.ACCOUNT, limit=9)
            )
        assert account is not None
        [errand] = [each for row in rows for each in errands_for(Item(row), original=True)]
        assert errand.command == RepLogin("disabled", key)

    run(scenario)


def test_past_the_cap_a_verdict_says_that_the_partner_lacks_the_block(
    partner: OriginalPartner, directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """What was left out of the queue has no row in it, and is not on two servers either."""

    async def scenario() -> None:
        more: dict[str, Any] = {"replication": "both", "partner_queue_blocks": 1}
        async with (
            paired_with(partner, directories, tmp_path / "s", None, "00" * 32, **more) as server,
            await connect(server) as remote,
        ):
            for data in (b"queued", b"left out"):
                key, lines = data_lines(data, now())
                header = parse_data_header(lines)
                await remote.store_data(key, header, [data])
                verdict = await remote.verdict(data_digest(header, key))
                assert verdict == Accepted(degraded=True)

    run(scenario)


def test_a_partner_that_takes_nothing_does_not_make_the_queue_large(
    partner: OriginalPartner, directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """What is set aside counts: the comparison waits, and goes on when there is room."""
    blocks = [b"block %d" % number for number in range(12)]
    partner.modern = True
    partner.refuses = {data_key(data) for data in blocks}
    clock = TurnedClock(now())

    async def waiting(server: Server) -> int:
        return int((await status(server))["queued"]["replicate"])

    async def scenario() -> None:
        more: dict[str, Any] = {"partner_queue_blocks": 4}
        async with paired_with(partner, directories, tmp_path / "s", clock, **more) as server:
            await until(lambda: connected(server))
            async with await connect(server) as remote:
                for data in blocks:
                    await store_data(remote, data)
            await until(lambda: aside(server, 4))
            await asyncio.sleep(1.2)
            assert await waiting(server) == 4
            assert (await status(server))["resync_needed"]
            partner.refuses.clear()
            clock.turn(minutes=2)
            async with await connect(server) as remote:
                await store_data(remote, blocks[0])
            wanted = {f"REPLICATE {data_key(data)} none" for data in blocks}
            await until(lambda: includes(partner, wanted))

    run(scenario)


def test_the_verdict_of_a_bundle_looks_once_for_what_the_partner_lacks(
    partner: OriginalPartner, directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """And not once for each of its entries."""
    moment = now()
    mails = [message(SOMEBODY, date=moment, data=b"mail %d" % number) for number in range(40)]
    key, lines = mailbox_key("0", SOMEBODY), join_bundle(mails)
    partner.refuses = {key}

    async def scenario() -> None:
        async with paired_with(partner, directories, tmp_path / "s", replication="both") as server:
            await until(lambda: connected(server))
            await server.services.desk.add(SOMEBODY.hex, "A" * 20)
            async with await connect(server) as remote:
                assert await remote.post(StoreServer(key), lines) is Word.DONE
            await until(lambda: aside(server, 20))
            digest = BodyDigest.of(line.encode() for line in lines)
            reads = server.services.store.reads
            assert await server.services.intake.verdict(digest) == Accepted(degraded=True)
            assert server.services.store.reads - reads < 10

    run(scenario)


def test_an_original_is_told_nothing_of_what_waits(
    partner: OriginalPartner, directories: tuple[Path, Path], tmp_path: Path
) -> None:
    """It lets nothing wait, and gets what is let in; so before it is known for an original."""
    place, moment = mailbox_key("0", SOMEBODY), now()
    mails = [message(SOMEBODY, date=moment, data=b"mail %d" % number) for number in range(2)]

    async def scenario() -> None:
        async with paired_with(partner, directories, tmp_path / "s", replication="both") as server:
            async with await connect(server) as remote:
                await store_text(remote, place, mails[0])
                await until(lambda: told_all(server))
                await store_text(remote, place, mails[1])
            queued = queue_space(QueueKind.PENDING)
            assert (await server.services.store.read(lambda view: view.space(queued))).entries == 0
            assert partner.told == partner.others == []
            await server.services.desk.add(SOMEBODY.hex, "A" * 20)
            await until(lambda: includes(partner, {f"REPLICATE {place} none"}))
            await until(lambda: told_all(server))
        assert partner.told.count(f"REPLICATE {place} none") == 2
        assert partner.others == []

    run(scenario)


async def offered_by(server: Server) -> PairingCode:
    """Return a fresh pairing code."""
    return PairingCode.parse((await server.operator.fulfil({"do": "pair offer"}))["code"])


async def connected(server: Server) -> bool:
    """Tell whether the partner is reached."""
    return bool((await status(server))["connected"])


async def told_all(server: Server) -> bool:
    """Tell whether nothing waits for the partner."""
    found = await status(server)
    return bool(found["connected"]) and not sum(found["queued"].values())


async def says(server: Server, reason: str) -> bool:
    """Tell whether the operator is told this of a partner that is away."""
    return reason in ((await status(server))["reason"] or "")


async def includes(partner: OriginalPartner, wanted: set[str]) -> bool:
    """Tell whether the partner was told all this."""
    return wanted <= set(partner.told)


async def aside(server: Server, count: int) -> bool:
    """Tell whether so many rows wait that were offered in vain, and no others.

    A connection that is closed may take an answer with it that was FAILED.
    """
    rows = await server.services.store.read(
        lambda view: view.queue.all(QueueKind.REPLICATE, limit=20)
    )
    return len(rows) == count and all(row.code in ("ended", "failed") for row in rows)
