"""What waits at one server of a pair waits at both, and either judges it by itself."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from tests.server.inside import TurnedClock, connect
from tests.server.mailing import (
    RECIPIENT,
    SENDER,
    holds,
    log_in,
    make_servers,
    open_account,
    until,
)
from tests.server.pairs import store_text
from tests.server.post_office import PostOffice, code_of, in_post_office, lines_of
from tests.server.test_queue_of_a_pair import has_told_all, pair, paired, play
from tests.server.users import FLOOR, User, message, now

from sealmail_pow import Difficulty
from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import MessageAnnouncement, TextBlock
from sealmail_protocol.canonical import block_digest
from sealmail_protocol.commands import PartnerWaiting
from sealmail_protocol.errors import Refusal
from sealmail_protocol.keys import BlockKey, KeyId, address_key, mailbox_key
from sealmail_protocol.replies import Accepted, Pending, Verdict, Word
from sealmail_server.limits import Limits
from sealmail_server.service import Server
from sealmail_server.waiting import WAITS_FOR
from sealmail_store import QueueKind, WaitingEntry, queue_space

MAILBOX = mailbox_key("0", RECIPIENT)


@pytest.fixture
def homes(tmp_path: Path) -> list[Path]:
    """Make a pair, and what takes the place of its first server."""
    return make_servers(tmp_path, 3)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Make a user with a real key."""
    made = User.create(tmp_path_factory.mktemp("waiting") / "home", "wanda")
    yield made
    made.close()


@asynccontextmanager
async def both(homes: list[Path], clock: TurnedClock) -> AsyncIterator[tuple[Server, Server]]:
    """Run a pair of which either waits for the other before DONE."""
    async with (
        paired(homes[0], clock, replication="both") as first,
        paired(homes[1], clock, replication="both") as second,
    ):
        await pair(first, second)
        yield first, second


async def post(server: Server, block: TextBlock, key: BlockKey = MAILBOX) -> None:
    """Post a block as a stranger."""
    async with await connect(server) as remote:
        await store_text(remote, key, block)


async def verdicts(block: TextBlock, *servers: Server) -> list[Verdict | None]:
    """Return what each server says of a block."""
    return [await each.services.intake.verdict(block_digest(block)) for each in servers]


async def waiting(server: Server) -> tuple[WaitingEntry, ...]:
    """Return what waits at a server."""
    return (await server.services.store.read(lambda view: view.all_waiting()))[1]


async def all_accepted(block: TextBlock, *servers: Server) -> bool:
    """Tell whether all servers have let a block in."""
    return await verdicts(block, *servers) == [Accepted()] * len(servers)


def test_mail_that_waits_outlives_the_server_that_took_it(homes: list[Path]) -> None:
    """At DONE it is PENDING at both; the account, made at the survivor, lets it in."""
    clock = TurnedClock(now())
    mail = message(RECIPIENT, date=clock.moment)

    async def scenario() -> None:
        async with paired(homes[1], clock, replication="both") as second:
            async with paired(homes[0], clock, replication="both") as first:
                await pair(first, second)
                async with await log_in(first, SENDER) as remote:
                    await store_text(remote, MAILBOX, mail)
                assert await verdicts(mail, first, second) == [Pending()] * 2
                [entry], [copy] = await waiting(first), await waiting(second)
                assert (copy.poster, copy.until) == (SENDER.hex, entry.until)
            shutil.rmtree(homes[0])
            await open_account(second, RECIPIENT)
            assert await verdicts(mail, second) == [Accepted(degraded=True)]
            assert await holds(second, "message-announcement", MAILBOX) == 1
            assert await waiting(second) == ()

    play(scenario)


def test_a_claim_that_waits_outlives_the_server_that_took_it(
    homes: list[Path], user: User
) -> None:
    """Its key, posted at the survivor, lets it in."""
    clock = TurnedClock(now())
    claim, place = user.claim("wanda@a.example"), address_key("wanda@a.example")

    async def scenario() -> None:
        async with paired(homes[1], clock, replication="both") as second:
            async with paired(homes[0], clock, replication="both") as first:
                await pair(first, second)
                async with await log_in(first, user.key_id) as remote:
                    await store_text(remote, place, claim)
                assert await verdicts(claim, first, second) == [Pending()] * 2
            shutil.rmtree(homes[0])
            async with await log_in(second, user.key_id) as remote:
                await store_text(remote, BlockKey(user.key_id.raw), user.announcement())
            assert await verdicts(claim, second) == [Accepted(degraded=True)]
            assert await holds(second, "address-claim", place) == 1

    play(scenario)


def test_mail_below_the_price_waits_at_both_and_a_lower_price_lets_it_in(
    homes: list[Path], user: User
) -> None:
    """The demand is told by both; the new key comes by the other server than the mail did."""
    clock = TurnedClock(now())
    dear = Difficulty(20, 2)
    place = mailbox_key("0", user.key_id)
    mail = message(user.key_id, date=clock.moment)
    early, late = (
        user.announcement(clock.moment - timedelta(minutes=ago), price)
        for ago, price in ((1, dear), (0, FLOOR))
    )

    async def scenario() -> None:
        async with both(homes, clock) as (first, second):
            for server, announcement in ((first, early), (second, late)):
                async with await log_in(server, user.key_id) as remote:
                    await store_text(remote, BlockKey(user.key_id.raw), announcement)
                if announcement is early:
                    await post(first, mail, place)
                    assert await verdicts(mail, first, second) == [Pending(dear)] * 2
            await until(lambda: all_accepted(mail, first, second))
            assert await waiting(first) == await waiting(second) == ()

    play(scenario)


def test_both_servers_let_the_same_mail_in_and_come_to_rest(homes: list[Path]) -> None:
    """Either tells the other, nothing is told back, and one stamp still pays for one entry."""
    clock = TurnedClock(now())
    mail = message(RECIPIENT, date=clock.moment)
    # The mailbox is not stamped.
    twin = parse_text_block(
        tuple("Mailbox: 1" if line.startswith("Mailbox:") else line for line in mail.lines)
    )
    assert isinstance(twin, MessageAnnouncement)
    assert twin != mail

    async def scenario() -> None:
        async with both(homes, clock) as (first, second):
            await post(first, mail)
            await post(first, twin, mailbox_key("1", RECIPIENT))
            # What came to both is not told again.
            await post(second, mail)
            assert [len(await waiting(each)) for each in (first, second)] == [2, 2]
            await open_account(second, RECIPIENT)
            await until(lambda: all_accepted(mail, first, second))
            for server in (first, second):
                await until(lambda: has_told_all(server))  # noqa: B023 - awaited before the next one
                assert await waiting(server) == ()
                assert await holds(server, "message-announcement", MAILBOX) == 1
                [verdict] = await verdicts(twin, server)
                assert code_of(verdict) is Refusal.STAMP

    play(scenario)


def test_what_waits_is_told_when_the_partner_is_back_or_new(homes: list[Path]) -> None:
    """An account that was made there meanwhile lets it in at once; a first copy tells it too."""
    clock = TurnedClock(now())
    known, unknown = (message(each, date=clock.moment) for each in (RECIPIENT, SENDER))
    theirs = message(SENDER, date=clock.moment, data=b"taken by the former partner")
    place = mailbox_key("0", SENDER)

    async def scenario() -> None:
        async with paired(homes[0], clock, replication="both") as first:
            await post(first, unknown, place)
            async with paired(homes[1], clock) as second:
                await pair(first, second)
                assert await verdicts(unknown, second) == [Pending()]
                await post(second, theirs, place)
                await until(lambda: has_told_all(second))
            await post(first, known)
            async with paired(homes[1], clock) as second:
                await open_account(second, RECIPIENT)
                await until(lambda: all_accepted(known, first, second))
            # With another partner all waits at that one, also what the former one had taken.
            async with paired(homes[2], clock) as third:
                await pair(third, first)
                assert await verdicts(unknown, third) == [Pending()]
                assert await verdicts(theirs, third) == [Pending()]
                await until(lambda: all_accepted(known, third))

    play(scenario)


def test_what_waits_no_more_is_not_told(homes: list[Path]) -> None:
    """While the partner is away rows go with their entries, so they are as few as these."""
    clock = TurnedClock(now())
    mail = message(RECIPIENT, date=clock.moment)

    async def scenario() -> None:
        async with paired(homes[0], clock) as first:
            async with paired(homes[1], clock) as second:
                await pair(first, second)
            store, queued = first.services.store, queue_space(QueueKind.PENDING)
            await post(first, mail)
            assert (await store.read(lambda view: view.space(queued))).entries == 1
            clock.turn(hours=25)
            await store.write(lambda view: view.remove_waited(clock.moment, 10))
            assert (await store.read(lambda view: view.space(queued))).entries == 0
            assert await store.read(lambda view: view.queue.all(QueueKind.PENDING, limit=9)) == ()

    play(scenario)


def test_a_hostile_partner_has_the_room_that_is_for_all_and_a_day(tmp_path: Path) -> None:
    """Neither more bytes nor a later hour, and neither other types nor several at once."""
    mails = [message(KeyId(bytes([number]) * 20)) for number in range(4)]
    size = sum(len(line) + 2 for line in mails[0].lines)
    limits = Limits(waiting_bytes=3 * size + 10, waiting_bytes_by_source=size // 2)

    async def scenario(office: PostOffice) -> None:
        async def tell(mail: MessageAnnouncement, **until: float) -> bool:
            key = mailbox_key(mail.mailbox, mail.recipient)
            latest = office.time + timedelta(**until)
            return await office.intake.wait_with_partner(key, lines_of(mail), None, latest)

        assert [await tell(each, weeks=99_999) for each in mails] == [True, True, True, False]
        _, entries = await office.store.read(lambda view: view.all_waiting())
        assert {each.until for each in entries} == {office.time + WAITS_FOR}
        # What has no room is not refused for good: its sender asks either server.
        assert await office.intake.verdict(block_digest(mails[3])) is None
        await office.open_account(mails[0].recipient)
        assert await tell(mails[3], hours=1)
        # What was let in and dropped does not come back, however often it is told.
        key = mailbox_key("0", mails[0].recipient)
        digest = block_digest(mails[0])
        owner = await office.open_account(mails[0].recipient)
        assert await office.intake.drop(key, digest, owner)
        assert await tell(mails[0], hours=1)
        assert await office.read(key, owner) == ()

    in_post_office(tmp_path, scenario, limits)


def test_a_claim_that_the_partner_has_let_in_waits_for_its_key_as_long_as_it_lives(
    tmp_path: Path, user: User
) -> None:
    """Also where it waited already, as at the partner; its key lets it in, and nothing is left."""
    place = address_key("wanda@a.example")

    async def scenario(office: PostOffice) -> None:
        claim, until = user.claim("wanda@a.example"), office.time + timedelta(hours=1)
        assert await office.intake.wait_with_partner(place, lines_of(claim), None, until)
        assert await office.replicate(claim, place) == Pending()
        _, [entry] = await office.store.read(lambda view: view.all_waiting())
        assert (entry.replicated, entry.until) == (True, claim.date + timedelta(days=10))
        office.pass_time(hours=30)
        assert (await office.expiry.sweep()).waited == 0
        await office.replicate(user.announcement(), BlockKey(user.key_id.raw))
        assert await office.intake.verdict(block_digest(claim)) == Accepted()
        assert await office.store.read(lambda view: view.all_waiting()) == (0, ())

    in_post_office(tmp_path, scenario)


def test_what_the_partner_lets_in_waits_no_more(tmp_path: Path) -> None:
    """Also where the account has not come; nothing is judged a second time."""
    mail = message(RECIPIENT)

    async def scenario(office: PostOffice) -> None:
        until = office.time + timedelta(hours=1)
        assert await office.intake.wait_with_partner(MAILBOX, lines_of(mail), None, until)
        assert await office.replicate(mail) == Accepted()
        assert await office.store.read(lambda view: view.all_waiting()) == (0, ())
        owner = await office.open_account(RECIPIENT)
        assert len(await office.read(MAILBOX, owner)) == 1

    in_post_office(tmp_path, scenario)


def test_nobody_but_the_partner_lets_others_mail_wait(homes: list[Path]) -> None:
    """A user is FAILED, and his connection goes on."""

    async def scenario() -> None:
        async with paired(homes[0], TurnedClock(now())) as server:
            async with await log_in(server) as remote:
                mail = message(RECIPIENT)
                command = PartnerWaiting(MAILBOX, None, now())
                assert await remote.post(command, mail.lines) is Word.FAILED
            assert await waiting(server) == ()

    asyncio.run(scenario())
