"""A mailbox cannot be flooded, shut, overwritten or re-dated by those who write to it."""

import asyncio
import dataclasses
import hashlib
import itertools
import tempfile
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from tests.server.post_office import (
    ANYBODY,
    PostOffice,
    code_of,
    in_post_office,
    key_of,
    lines_of,
)
from tests.server.users import FLOOR, User, message, now

from sealmail_pow import Difficulty, mint
from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import BlockType, MessageAnnouncement
from sealmail_protocol.bypass import BypassSecret
from sealmail_protocol.canonical import block_digest, canonical_form
from sealmail_protocol.compose import make_announcement
from sealmail_protocol.dates import format_date
from sealmail_protocol.errors import Refusal
from sealmail_protocol.keys import BlockKey, KeyId, address_key, data_key, mailbox_key
from sealmail_protocol.merges import entry_identity
from sealmail_protocol.replies import Accepted, Pending
from sealmail_protocol.stamps import message_challenge, stamp_bits
from sealmail_server import reading, refusals
from sealmail_server.bundle_memory import MAX_IN_BUNDLE, BundleMemory
from sealmail_server.limits import Limits
from sealmail_server.partnership import tombstone_of
from sealmail_server.reading import find_block, join_entries
from sealmail_store import (
    LOOSE_DATA,
    WAITING_PAGE,
    QueueKind,
    QueueRow,
    Terms,
    Tombstone,
    holder_space,
    mailbox_space,
    source_space,
    unpaid_space,
)

ANN = KeyId(b"a" * 20)
SECRET = BypassSecret(b"s" * 20)
SMALL = Limits(mailbox_bytes=16 * 1024)


async def set_price(office: PostOffice, price: Difficulty, mailboxes: str = "0,1") -> None:
    """Put terms in force for Ann, as her key-announcement would."""
    terms = Terms(ANN.raw, office.time, mailboxes, str(price))
    await office.store.write(lambda view: view.put_terms(ANN.raw, (terms,)))


def varied(number: int, **options: object) -> MessageAnnouncement:
    """Return an announcement for Ann that differs by ``number``."""
    return message(ANN, data=str(number).encode(), **options)  # type: ignore[arg-type]


def message_of_blocks(number: int, blocks: list[bytes]) -> MessageAnnouncement:
    """Return an announcement for Ann that names many data blocks, stamped at the floor."""
    keys, date = tuple(map(data_key, blocks)), now()
    whole = data_key(str(number).encode())
    stamp = mint(message_challenge(ANN, whole, date, keys), FLOOR)
    return make_announcement(date, stamp, ANN, "0", keys, whole, None)


def changed(block: MessageAnnouncement, old: str, new: str) -> MessageAnnouncement:
    """Return an announcement with one line replaced, or left out if ``new`` is empty."""
    lines = tuple(new if line.startswith(old) else line for line in block.lines)
    again = parse_text_block(tuple(line for line in lines if line))
    assert isinstance(again, MessageAnnouncement)
    return again


def test_a_crowd_that_waits_is_judged_in_few_commits(tmp_path: Path) -> None:
    """A stranger lets much wait for little; whom it waits for must not pay a commit for each.

    Nor does he wait for more than the first of it: the rest is judged behind his back.
    """
    mails = [varied(number) for number in range(100)]

    async def judged(office: PostOffice) -> int:
        verdicts = [await office.intake.verdict(block_digest(mail)) for mail in mails]
        return verdicts.count(Accepted())

    async def scenario(office: PostOffice) -> None:
        assert await office.post_bundle(mailbox_key("0", ANN), *mails) == Pending()
        before = office.store.commits
        await office.open_account(ANN)
        assert await judged(office) == WAITING_PAGE
        rest = asyncio.create_task(office.intake.judge_the_rest())
        for _ in range(1000):
            if await judged(office) == len(mails):
                break
        else:
            pytest.fail("the rest still waits")
        assert office.store.commits - before < 10
        rest.cancel()
        await asyncio.wait((rest,))

    in_post_office(tmp_path, scenario)


def test_mail_for_nobody_waits_for_an_account_and_then_arrives(tmp_path: Path) -> None:
    """PENDING without a demand, outside the mailbox; the account lets it in."""

    async def scenario(office: PostOffice) -> None:
        mail = varied(1)
        assert await office.post(mail) == Pending()
        assert await office.intake.verdict(block_digest(mail)) == Pending()
        assert (await office.store.read(lambda view: view.counts())) == {}
        ann = await office.open_account(ANN)
        assert await office.intake.verdict(block_digest(mail)) == Accepted()
        [entry] = await office.read(key_of(mail), ann)
        assert entry.digest == block_digest(mail)
        assert (await office.store.read(lambda view: view.space("waiting"))).entries == 0

    in_post_office(tmp_path, scenario)


def test_who_has_proven_nothing_reads_and_drops_nothing(tmp_path: Path) -> None:
    """A first login under somebody's key id, which anybody may try, opens no mailbox."""
    data = b"what mail names"

    async def scenario(office: PostOffice) -> None:
        ann = await office.open_account(ANN)
        squatter = dataclasses.replace(ann, confirmed=False)
        mail = message(ANN, data=data)
        assert await office.post_data(data) == Accepted()
        assert await office.post(mail) == Accepted()
        for key in (key_of(mail), data_key(data)):
            assert await office.read(key, squatter) == ()
            assert len(await office.read(key, ann)) == 1
        assert not await office.intake.drop(key_of(mail), block_digest(mail), squatter)
        assert len(await office.read(key_of(mail), ann)) == 1

    in_post_office(tmp_path, scenario)


def test_what_waited_a_day_in_vain_is_forgotten(tmp_path: Path) -> None:
    """After 24 hours the verdict is NOT FOUND, and an account that comes then finds nothing."""

    async def scenario(office: PostOffice) -> None:
        mail = varied(1)
        assert await office.post(mail) == Pending()
        office.pass_time(hours=24, seconds=2)
        assert (await office.expiry.sweep()).waited == 1
        assert await office.intake.verdict(block_digest(mail)) is None
        ann = await office.open_account(ANN)
        assert await office.read(key_of(mail), ann) == ()

    in_post_office(tmp_path, scenario)


def test_the_waiting_room_is_bounded_for_all_and_for_one_source(tmp_path: Path) -> None:
    """What finds no room to wait is refused for what it waits for."""
    size = len("".join(line + "\r\n" for line in varied(1).lines))
    limits = Limits(waiting_bytes=5 * size, waiting_bytes_by_source=2 * size + 10)
    sources = [dataclasses.replace(ANYBODY, source=f"203.0.113.{n}") for n in range(3)]

    async def scenario(office: PostOffice) -> None:
        waits = [
            code_of(await office.post(varied(number), visitor=sources[number // 3])) is None
            for number in range(9)
        ]
        assert waits == [True, True, False, True, True, False, True, False, False]
        assert code_of(await office.post(varied(9))) is Refusal.RECIPIENT

    in_post_office(tmp_path, scenario, limits)


def test_what_the_partner_lets_wait_has_all_the_room_there_is(tmp_path: Path) -> None:
    """Its own sources were limited there: here it is no single source."""
    size = len("".join(line + "\r\n" for line in varied(1).lines))
    limits = Limits(waiting_bytes=4 * size + 10, waiting_bytes_by_source=size + 10)
    key_ids = [KeyId(bytes([number]) * 20) for number in range(6)]

    async def scenario(office: PostOffice) -> None:
        for number in range(2):
            code = code_of(await office.post(varied(number)))
            assert code is (Refusal.RECIPIENT if number else None)
        with tempfile.TemporaryDirectory() as place:
            someone = User.create(Path(place) / "u", "someone")
            claims = [someone.claim("u@a.example", each) for each in key_ids]
            someone.close()
        key = address_key("u@a.example")
        room = limits.waiting_bytes - size
        for claim in claims:
            room -= sum(len(line) + 2 for line in claim.lines)
            code = code_of(await office.replicate(claim, key))
            assert code is (None if room >= 0 else Refusal.KEY)

    in_post_office(tmp_path, scenario, limits)


def test_mail_between_floor_and_price_waits_for_a_lower_price(tmp_path: Path) -> None:
    """The verdict names the demand; when the price falls to the stamp, the mail is let in."""

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ANN)
        await set_price(office, Difficulty(24, 2))
        mail = varied(1, price=Difficulty(12, 2))
        assert await office.post(mail) == Pending(Difficulty(24, 2))
        await set_price(office, Difficulty(10, 2))
        assert await office.intake.judge_waiting(ANN.hex) == 1
        assert await office.intake.verdict(block_digest(mail)) == Accepted()

    in_post_office(tmp_path, scenario)


def test_a_filling_mailbox_costs_more_and_a_full_one_is_shut(tmp_path: Path) -> None:
    """From half full each sixteenth costs a bit more; nothing is evicted for a newcomer."""

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ANN)
        demands, number = [], 0
        key = mailbox_key("0", ANN)
        while True:
            number += 1
            cheap = await office.post(varied(number))
            if code_of(cheap) is Refusal.FULL:
                break
            if isinstance(cheap, Pending):
                assert cheap.demand is not None
                demands.append(cheap.demand.bits)
                paid = await office.post(varied(number, price=cheap.demand))
                if code_of(paid) is Refusal.FULL:
                    break
                assert paid == Accepted()
        assert demands == sorted(demands)
        # A stamp may be worth more than was searched for, so a step may be passed over.
        assert set(demands) <= set(range(9, 17))
        assert demands[-1] == 16
        space = await office.store.read(lambda view: view.space(mailbox_space(key)))
        assert SMALL.mailbox_bytes * 0.95 < space.bytes < SMALL.mailbox_bytes

    in_post_office(tmp_path, scenario, SMALL)


def test_a_better_stamp_takes_the_place_of_the_same_mail(tmp_path: Path) -> None:
    """What it replaces is not counted beside it, so a full mailbox has room for it."""

    async def scenario(office: PostOffice) -> None:
        ann = await office.open_account(ANN)
        size = len("".join(line + "\r\n" for line in varied(0).lines))
        office.limits = dataclasses.replace(office.limits, mailbox_bytes=2 * size - 1)
        office.__post_init__()
        mail = varied(0, price=Difficulty(12, 2))
        assert await office.post(mail) == Accepted()
        assert code_of(await office.post(varied(1, price=Difficulty(20, 2)))) is Refusal.FULL
        better = varied(0, date=mail.date, price=Difficulty(20, 2))
        assert await office.post(better) == Accepted()
        assert await office.post(mail) == Accepted()
        [entry] = await office.read(key_of(mail), ann)
        assert entry.digest == block_digest(better)

    in_post_office(tmp_path, scenario)


def test_tokens_below_the_price_have_a_quarter_of_a_mailbox(tmp_path: Path) -> None:
    """The share climbs in even steps to the price; then a token is worth nothing more."""
    price = Difficulty(24, 2)

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ANN)
        await set_price(office, price)
        demands, key = [FLOOR.bits], mailbox_key("0", ANN)
        while demands[-1] < price.bits:
            number = len(demands)
            verdict = await office.post(varied(number, secret=SECRET))
            if isinstance(verdict, Pending) and verdict.demand is not None:
                demands.append(verdict.demand.bits)
                paid = varied(number, secret=SECRET, price=verdict.demand)
                assert await office.post(paid) == Accepted()
            else:
                demands.append(demands[-1])
        assert demands == sorted(demands)
        assert len(set(demands)) > 8
        unpaid = await office.store.read(lambda view: view.space(unpaid_space(key)))
        assert unpaid.bytes <= SMALL.mailbox_bytes // 4
        assert await office.post(varied(99, price=price, secret=SECRET)) == Accepted()
        assert await office.store.read(lambda view: view.space(unpaid_space(key))) == unpaid

    in_post_office(tmp_path, scenario, SMALL)


def test_bulky_announcements_pay_for_their_bytes(tmp_path: Path) -> None:
    """Two bits for each doubling beyond 4 KiB that is not a line of data held here."""
    padding = tuple(f"X-Filler: {number:05} {'x' * 980}" for number in range(12))

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ANN)
        # A stamp may be better than it was minted for, and pay what is asked by luck.
        found = [await office.post(varied(number, extra=padding)) for number in range(8)]
        assert Pending(Difficulty(12, 2)) in found

    in_post_office(tmp_path, scenario)


def test_lines_of_data_that_is_here_are_free(tmp_path: Path) -> None:
    """A mail of many attachments pays no more than a short one, once their blocks were posted."""
    blocks = [str(number).encode() for number in range(400)]

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ANN)
        long = [message_of_blocks(number, blocks) for number in range(8)]
        found = [await office.post(each) for each in long[:4]]
        assert any(isinstance(each, Pending) for each in found)
        for data in blocks:
            assert await office.post_data(data) == Accepted()
        assert {await office.post(each) for each in long[4:]} == {Accepted()}

    in_post_office(tmp_path, scenario)


@pytest.mark.parametrize("way", ["another mailbox", "another token", "no token"])
def test_one_stamp_serves_one_entry(tmp_path: Path, way: str) -> None:
    """Mailbox and token are not stamped, yet the same nonces do not pay twice."""

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ANN)
        first = varied(1, secret=SECRET)
        second = {
            "another mailbox": changed(first, "Mailbox:", "Mailbox: 1"),
            "another token": changed(first, "BypassToken:", f"BypassToken: {'ab' * 20}"),
            "no token": changed(first, "BypassToken:", ""),
        }[way]
        assert await office.post(first) == Accepted()
        assert code_of(await office.post(second)) is Refusal.STAMP
        assert await office.post(first) == Accepted()

    in_post_office(tmp_path, scenario)


def test_a_stamp_stays_spent_as_long_as_it_could_be_used(tmp_path: Path) -> None:
    """Sweeping does not free it before its Date is too old; nor is it free at the other server."""

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ANN)
        first = varied(1, date=office.time + timedelta(hours=23))
        assert await office.post(first) == Accepted()
        replicated = varied(2)
        assert await office.replicate(replicated) == Accepted()
        elsewhere = changed(replicated, "Mailbox:", "Mailbox: 1")
        assert code_of(await office.post(elsewhere)) is Refusal.STAMP
        for days in (9, 1.5):
            office.pass_time(days=days)
            await office.expiry.sweep()
            second = changed(first, "Mailbox:", "Mailbox: 1")
            assert code_of(await office.post(second)) is Refusal.STAMP
        office.pass_time(days=1)
        assert code_of(await office.post(second)) is Refusal.DATE

    in_post_office(tmp_path, scenario)


def test_more_nonces_do_not_make_more_stamps(tmp_path: Path) -> None:
    """Of four nonces that agree each serves once, not every pair of them."""

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ANN)
        first = varied(1)
        stamp = mint(first.challenge, Difficulty(8, 4))
        pairs = [",".join(("bd", *stamp.nonces[place : place + 2])) for place in (0, 1, 2)]
        entries = [
            changed(changed(first, "ProofOfWork:", f"ProofOfWork: {pair}"), "Mailbox:", name)
            for pair, name in zip(pairs, ("Mailbox: 0", "Mailbox: 1", "Mailbox: 2"), strict=True)
        ]
        codes = [code_of(await office.post(entry)) for entry in entries]
        assert codes == [None, Refusal.STAMP, None]

    in_post_office(tmp_path, scenario)


def marked() -> MessageAnnouncement:
    """Return an announcement for Ann with a line that its stamp does not cover."""
    return varied(1, price=Difficulty(12, 2), extra=("ServerNotify: False",))


def test_nobody_overwrites_redates_or_strips_anothers_mail(tmp_path: Path) -> None:
    """Each attempt leaves the sender's entry as it was."""

    async def scenario(office: PostOffice) -> None:
        ann = await office.open_account(ANN)
        # Of two that differ by what no stamp covers the lower digest stays, whoever came first.
        pairs = ((each, changed(each, "ServerNotify:", "")) for each in iter(marked, None))
        mail, stripped = next(
            (mail, bare) for mail, bare in pairs if block_digest(mail) < block_digest(bare)
        )
        assert await office.post(mail) == Accepted()
        assert await office.post(stripped) == Accepted()
        with_token = varied(2, secret=SECRET, date=mail.date + timedelta(seconds=30))
        assert await office.post(with_token) == Accepted()
        bare = changed(with_token, "BypassToken:", "")
        assert code_of(await office.post(bare)) is Refusal.STAMP
        # A stamp may be worth more than was searched for.
        others = (varied(1, date=mail.date) for _ in itertools.count())
        weaker = next(each for each in others if stamp_bits(each) < stamp_bits(mail))
        await office.post(weaker)
        redated = changed(varied(1, date=mail.date + timedelta(seconds=60)), "None", "")
        assert await office.post(redated) == Accepted()
        entries = await office.read(key_of(mail), ann)
        expected = [block_digest(each) for each in (mail, with_token, redated)]
        assert [entry.digest for entry in entries] == expected

    in_post_office(tmp_path, scenario)


def test_a_dropped_mail_does_not_come_back(tmp_path: Path) -> None:
    """Neither by STORE nor by REPLICATE nor under a better stamp; and only its owner drops it."""

    async def scenario(office: PostOffice) -> None:
        ann = await office.open_account(ANN)
        other = await office.open_account(KeyId(b"b" * 20))
        mail = varied(1)
        digest, key = block_digest(mail), key_of(mail)
        assert await office.post(mail) == Accepted()
        assert not await office.intake.drop(key, digest, other)
        assert not await office.intake.drop(key, digest, ANYBODY)
        assert await office.intake.drop(key, digest, ann)
        assert not await office.intake.drop(key, digest, ann)
        dearer = varied(1, date=mail.date, price=Difficulty(16, 2))
        for verdict in (
            await office.post(mail),
            await office.replicate(mail),
            await office.post(dearer),
            await office.replicate(dearer),
        ):
            assert code_of(verdict) is Refusal.RECIPIENT
        assert await office.read(key, ann) == ()
        space = await office.store.read(lambda view: view.space(mailbox_space(key)))
        assert space.entries == 0
        office.pass_time(days=12, hours=1)
        await office.expiry.sweep()
        place = await office.store.read(
            lambda view: view.mail_place(key, digest, digest, b"", (), account_state="")
        )
        assert not place.dropped

    in_post_office(tmp_path, scenario)


def test_a_mailbox_too_large_for_one_answer_comes_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest entries that fit a reader's cap; SINCE the last of them gives the rest."""
    monkeypatch.setattr(reading, "HARD_TEXT_BODY", 3000)

    async def scenario(office: PostOffice) -> None:
        ann = await office.open_account(ANN)
        mails = [varied(n, date=office.time + timedelta(seconds=n)) for n in range(20)]
        for mail in mails:
            assert await office.post(mail) == Accepted()
        wanted, since, answers = [block_digest(mail) for mail in mails], None, 0
        found: list[bytes] = []
        while set(found) != set(wanted):
            entries = await office.store.read(
                lambda view: find_block(view, key_of(mails[0]), since, ann, office.time)  # noqa: B023
            )
            assert len(join_entries(entries)) <= 3000
            found += [entry.digest for entry in entries]
            since, answers = entries[-1].date, answers + 1
        assert 1 < answers < 10
        assert list(dict.fromkeys(found)) == wanted

    in_post_office(tmp_path, scenario)


def test_no_tombstone_of_the_partner_stays_for_ever(tmp_path: Path) -> None:
    """Whatever date it names, it lives no longer than one of our own could."""

    async def scenario(office: PostOffice) -> None:
        mail = varied(1)
        far = office.time + timedelta(days=10_000)
        stone = Tombstone(key_of(mail), block_digest(mail), entry_identity(mail), far)
        await office.intake.take_tombstone(stone)
        assert code_of(await office.replicate(mail)) is Refusal.RECIPIENT
        office.pass_time(days=15)
        await office.expiry.sweep()
        again = varied(1, date=office.time)
        place = await office.store.read(
            lambda view: view.mail_place(
                key_of(mail), block_digest(mail), b"", b"", (), account_state=""
            )
        )
        assert not place.dropped
        assert await office.replicate(again) == Accepted()

    in_post_office(tmp_path, scenario)


def test_a_tombstone_without_an_identity_is_told_and_buries_by_its_digest(
    tmp_path: Path,
) -> None:
    """One of before the identities, in a queue that was filled then."""

    async def scenario(office: PostOffice) -> None:
        mail = varied(1)
        day = office.time + timedelta(days=12)
        stone = Tombstone(key_of(mail), block_digest(mail), block_digest(mail), day)
        for content in (format_date(day), f"{format_date(day)} "):
            row = QueueRow(
                QueueKind.TOMBSTONE,
                block_digest(mail),
                office.time,
                key=key_of(mail),
                content=content.encode(),
            )
            assert tombstone_of(row) == stone
        assert await office.replicate(mail) == Accepted()
        await office.intake.take_tombstone(stone)
        assert await office.replicate(mail) != Accepted()
        _, kept = await office.store.read(lambda view: view.tombstones(-1, 9))
        assert [each.identity for each in kept] == [entry_identity(mail)]
        await office.intake.take_tombstone(stone)
        assert await office.store.read(lambda view: view.tombstones(-1, 9)) == (1, kept)
        kind = BlockType.MESSAGE_ANNOUNCEMENT
        assert not await office.store.read(lambda view: view.entries(kind, key_of(mail)))

    in_post_office(tmp_path, scenario)


def test_verdicts_are_forgotten_after_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of what was taken after 14 days; of refusals the latest are known."""
    monkeypatch.setattr(refusals, "MAX_REFUSALS", 2)

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ANN)
        mail, late = varied(1), varied(2)
        assert await office.post(mail) == Accepted()
        office.pass_time(days=9)
        assert await office.post(late) == Accepted()
        refused = [varied(number, mailbox="9", date=office.time) for number in range(3)]
        for each in refused:
            assert code_of(await office.post(each)) is Refusal.RECIPIENT
        known = [await office.intake.verdict(block_digest(each)) for each in refused]
        assert [verdict is not None for verdict in known] == [False, True, True]
        office.pass_time(days=5, seconds=1)
        assert await office.intake.verdict(block_digest(mail)) is None
        assert await office.intake.verdict(block_digest(late)) == Accepted()

    in_post_office(tmp_path, scenario)


def test_who_is_refused_often_pushes_out_nobody_elses_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He loses the older half of his own; who posts what another has posted takes nothing over."""
    monkeypatch.setattr(refusals, "MAX_REFUSALS", 4)
    flooder = dataclasses.replace(ANYBODY, source="198.51.100.7")

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ANN)
        mine, *flood = [varied(number, mailbox="9") for number in range(9)]
        await office.post(mine)
        for each in (mine, *flood):
            await office.post(each, visitor=flooder)
        known = [await office.intake.verdict(block_digest(each)) for each in (mine, *flood)]
        assert code_of(known[0]) is Refusal.RECIPIENT
        assert [verdict is not None for verdict in known[1:]] == [False] * 6 + [True] * 2

    in_post_office(tmp_path, scenario)


def test_a_bundle_is_admitted_entry_by_entry(tmp_path: Path) -> None:
    """Bad entries, even unreadable ones, do not keep the good ones out; the worst one answers."""

    async def scenario(office: PostOffice) -> None:
        ann = await office.open_account(ANN)
        good = [varied(1), varied(2)]
        poison = (b"Type: message-announcement", b"Date: 2026-99-99T99:99:99Z", b"\xff\xfe")
        lines = (
            *lines_of(good[0]),
            b"NextMessage",
            *poison,
            b"nextmessage",
            *lines_of(varied(3, mailbox="1")),
            b"NextMessage",
            *lines_of(good[1]),
        )
        verdict = await office.intake.take_text(key_of(good[0]), lines, ANYBODY)
        assert code_of(verdict) in (Refusal.FORM, Refusal.KEY)
        entries = await office.read(key_of(good[0]), ann)
        assert {entry.digest for entry in entries} == {block_digest(each) for each in good}

    in_post_office(tmp_path, scenario)


def bundle_digest(*blocks: MessageAnnouncement) -> bytes:
    """Return the digest of several blocks in one body: their canonical forms in a row."""
    return hashlib.sha256(b"".join(map(canonical_form, blocks))).digest()


def test_a_bundle_answers_its_worst_entry_as_it_is_now(tmp_path: Path) -> None:
    """Pending until the price comes down, then accepted; each bundle is stored in one commit."""
    dear = Difficulty(30, 2)
    paid, cheap = varied(1, price=dear), varied(2)
    refused = varied(3, mailbox="1")
    key = mailbox_key("0", ANN)

    async def scenario(office: PostOffice) -> None:
        await set_price(office, dear)
        await office.open_account(ANN)
        before = office.store.commits
        assert await office.post_bundle(key, paid, cheap) == Pending(dear)
        assert office.store.commits == before + 1
        whole = bundle_digest(paid, cheap)
        assert await office.intake.verdict(whole) == Pending(dear)
        await set_price(office, FLOOR)
        await office.intake.judge_waiting(ANN.hex)
        assert await office.intake.verdict(whole) == Accepted()
        await office.post_bundle(key, paid, refused)
        assert code_of(await office.intake.verdict(bundle_digest(paid, refused))) is Refusal.KEY
        assert await office.intake.verdict(bundle_digest(refused, paid)) is None
        office.pass_time(days=14, seconds=1)
        assert await office.intake.verdict(whole) is None

    in_post_office(tmp_path, scenario)


def test_a_bundle_waits_with_its_entries_for_the_account(tmp_path: Path) -> None:
    """What the sender of several mails hears changes with what becomes of them."""
    mails = [varied(number) for number in range(3)]

    async def scenario(office: PostOffice) -> None:
        assert await office.post_bundle(mailbox_key("0", ANN), *mails) == Pending()
        assert await office.intake.verdict(bundle_digest(*mails)) == Pending()
        await office.open_account(ANN)
        assert await office.intake.verdict(bundle_digest(*mails)) == Accepted()

    in_post_office(tmp_path, scenario)


def test_no_bundle_speaks_for_a_single_block(tmp_path: Path) -> None:
    """Cut in two, or beside an empty entry, a mail makes a bundle with its own digest."""
    mail = varied(1)
    lines = lines_of(mail)

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ANN)
        take = partial(office.intake.take_text, key_of(mail), visitor=ANYBODY)
        assert code_of(await take(lines=(b"NextMessage", *lines))) is Refusal.FORM
        assert await office.intake.verdict(block_digest(mail)) == Accepted()
        assert code_of(await take(lines=(*lines[:3], b"NextMessage", *lines[3:]))) is Refusal.FORM
        assert await office.intake.verdict(block_digest(mail)) == Accepted()

    in_post_office(tmp_path, scenario)


def test_the_latest_bundles_are_remembered() -> None:
    """As many digests as there is room for; no bundle of more entries than may be asked for."""
    memory = BundleMemory(most=MAX_IN_BUNDLE)
    entries = [number.to_bytes(32, "big") for number in range(MAX_IN_BUNDLE + 1)]
    memory.remember(b"first", entries[:2])
    memory.remember(b"second", entries[:2])
    memory.remember(b"first", entries[:3])
    memory.remember(b"too large", entries)
    assert memory.entries_of(b"too large") == ()
    assert memory.entries_of(b"second") == tuple(entries[:2])
    memory.remember(b"third", entries[4:])
    assert memory.entries_of(b"second") == ()
    assert memory.entries_of(b"first") == tuple(entries[:3])


def test_ten_thousand_entries_cost_no_more_each_than_the_first(tmp_path: Path) -> None:
    """Counted in steps of the database, the last thousand costs hardly more than the first."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ANN)
        office.store._connection.set_progress_handler(count, 100)
        key, costs = mailbox_key("0", ANN), []
        for start in range(0, 10_000, 1_000):
            before = steps
            mails = [varied(number) for number in range(start, start + 1_000)]
            assert await office.post_bundle(key, *mails) == Accepted()
            costs.append(steps - before)
        assert (await office.store.read(lambda v: v.space(mailbox_space(key)))).entries == 10_000
        assert costs[-1] < 1.3 * costs[0]

    in_post_office(tmp_path, scenario)


def test_a_quota_counts_data_once_and_bounds_it(tmp_path: Path) -> None:
    """Two mails that name the same data cost a user its bytes once; past the quota none enters."""
    limits = Limits(quota_bytes=100_000, loose_bytes_by_source=500_000)
    data = [bytes([number]) * 40_000 for number in range(3)]

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ANN)

        async def bytes_held_and_loose() -> tuple[int, int]:
            names = (holder_space(ANN.raw), LOOSE_DATA)
            held, loose = await office.store.read(lambda v: [v.space(n).bytes for n in names])
            return held, loose

        for each in data:
            assert await office.post_data(each) == Accepted()
        assert await bytes_held_and_loose() == (0, 120_000)
        for mailbox in ("0", "1"):
            mail = message(ANN, data=data[0], mailbox=mailbox)
            assert await office.post(mail) == Accepted()
        assert await bytes_held_and_loose() == (40_000, 80_000)
        dear = message(ANN, Difficulty(16, 2), data=data[1])
        assert await office.post(dear) == Accepted()
        assert await bytes_held_and_loose() == (80_000, 40_000)
        last = message(ANN, Difficulty(16, 2), data=data[2])
        assert code_of(await office.post(last)) is Refusal.QUOTA
        unseen = message(ANN, Difficulty(16, 2), data=b"z" * 30_000)
        assert await office.post(unseen) == Accepted()
        assert code_of(await office.post_data(b"z" * 30_000)) is Refusal.QUOTA

    in_post_office(tmp_path, scenario, limits)


def test_replicated_mail_needs_no_account_price_or_room(tmp_path: Path) -> None:
    """What the partner decided is not decided again; form, key, stamp and date still are."""

    async def scenario(office: PostOffice) -> None:
        assert await office.replicate(varied(1)) == Accepted()
        ahead = varied(2, date=now() + timedelta(hours=40))
        assert code_of(await office.post(ahead)) is Refusal.DATE
        day = timedelta(hours=24, minutes=5)
        assert code_of(await office.post(varied(5, date=now() + day))) is Refusal.DATE
        assert await office.replicate(ahead) == Accepted()
        too_far = varied(3, date=now() + timedelta(hours=49))
        assert code_of(await office.replicate(too_far)) is Refusal.DATE
        assert code_of(await office.replicate(varied(4), BlockKey(b"x" * 20))) is Refusal.KEY
        ann = await office.open_account(ANN)
        assert len(await office.read(mailbox_key("0", ANN), ann)) == 2

    in_post_office(tmp_path, scenario)


def test_what_one_source_lets_wait_is_given_back(tmp_path: Path) -> None:
    """Judging and forgetting empty the sums again."""

    async def scenario(office: PostOffice) -> None:
        for number in range(3):
            await office.post(varied(number))
        space = source_space("waiting", ANYBODY.source)
        assert (await office.store.read(lambda view: view.space(space))).entries == 3
        await office.open_account(ANN)
        assert (await office.store.read(lambda view: view.space(space))).entries == 0

    in_post_office(tmp_path, scenario)
