"""What each type of block must be to enter, by whatever way it comes."""

import asyncio
import itertools
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
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
    user,
)
from tests.server.users import FLOOR, User, data_lines, message, now

from sealmail_pow import Difficulty, Stamp, mint, verify
from sealmail_protocol.blocks import Acknowledgment, BlockType, MessageAnnouncement
from sealmail_protocol.canonical import block_digest, canonical_form
from sealmail_protocol.compose import make_acknowledgment, make_data_header
from sealmail_protocol.errors import Refusal
from sealmail_protocol.keys import (
    AckHash,
    BlockKey,
    KeyId,
    acknowledgment_key,
    address_key,
    announcement_key,
    data_key,
    mailbox_key,
)
from sealmail_protocol.replies import Accepted, Pending
from sealmail_protocol.stamps import acknowledgment_challenge, data_challenge_prefix
from sealmail_server.admission import Decision, StaleCertificate, admit
from sealmail_server.candidates import Arrival, examine
from sealmail_server.data_intake import DataIntake
from sealmail_server.intake import Intake
from sealmail_server.limits import Limits
from sealmail_server.partnership import Partnership
from sealmail_server.visitor import Visitor
from sealmail_store import ACKNOWLEDGMENTS, LOOSE_DATA, ShareFull, source_space
from sealmail_store.data_files import data_path
from sealmail_verify import VerifierPool


@pytest.fixture(scope="module")
def ann() -> Iterator[User]:
    """Make a user with a key, in a place short enough for GnuPG's sockets."""
    with tempfile.TemporaryDirectory() as place:
        person = User.create(Path(place) / "a", "ann")
        yield person
        person.close()


@pytest.fixture(scope="module")
def ben() -> Iterator[User]:
    """Make another user."""
    with tempfile.TemporaryDirectory() as place:
        person = User.create(Path(place) / "b", "ben")
        yield person
        person.close()


def acknowledgment(secret: bytes, age: timedelta = timedelta()) -> Acknowledgment:
    """Return the acknowledgment that reveals ``secret``."""
    date, hashed = now() - age, AckHash(secret)
    stamp = mint(acknowledgment_challenge(date, hashed), Difficulty(16, 2))
    return make_acknowledgment(date, stamp, hashed)


def flip_a_byte(path: Path) -> None:
    """Damage a file without changing its size."""
    held = bytearray(path.read_bytes())
    held[1000] ^= 1
    path.write_bytes(held)


def test_prices_and_mailboxes_outlive_their_announcement(tmp_path: Path, ann: User) -> None:
    """A lower previous price and former mailboxes hold 12 days, the latest terms for good."""
    key, login = announcement_key(ann.key_id), user(ann.key_id)

    def mail(number: int, mailbox: str, bits: int = 8) -> MessageAnnouncement:
        data = f"{number} {mailbox}".encode()
        return message(ann.key_id, Difficulty(bits, 2), mailbox=mailbox, data=data)

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ann.key_id)
        assert await office.post(mail(0, "3")) == Accepted()
        first = ann.announcement(office.time, Difficulty(10, 2), mailboxes=("a", "b"))
        assert await office.post(first, key, login) == Accepted()
        assert code_of(await office.post(mail(1, "3"))) is Refusal.RECIPIENT
        later = office.time + timedelta(seconds=1)
        second = ann.announcement(later, Difficulty(30, 2), mailboxes=("b", "c"))
        assert await office.post(second, key, login) == Accepted()
        for mailbox in ("a", "b", "c"):
            assert await office.post(mail(2, mailbox, 10)) == Accepted()
        office.pass_time(days=11, hours=23)
        late = message(ann.key_id, Difficulty(10, 2), mailbox="a", date=office.time)
        assert await office.post(late) == Accepted()
        office.pass_time(hours=2)
        too_late = message(ann.key_id, Difficulty(10, 2), mailbox="a", date=office.time)
        assert code_of(await office.post(too_late)) is Refusal.RECIPIENT
        office.pass_time(days=32)
        swept = await office.expiry.sweep()
        assert swept.blocks == 6
        assert await office.read(key, ANYBODY) == ()
        fresh = message(ann.key_id, Difficulty(12, 2), mailbox="b", date=office.time)
        assert await office.post(fresh) == Pending(Difficulty(30, 2))
        gone = message(ann.key_id, Difficulty(12, 2), mailbox="a", date=office.time)
        assert code_of(await office.post(gone)) is Refusal.RECIPIENT

    in_post_office(tmp_path, scenario)


def test_a_thief_cannot_bring_a_revoked_key_back(tmp_path: Path, ann: User, ben: User) -> None:
    """The revoked announcement beats a newer unrevoked one, and stays beyond every age."""
    key, login = announcement_key(ann.key_id), user(ann.key_id)

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ann.key_id)
        assert await office.post(ann.announcement(), key, login) == Accepted()
        revoked = ann.announcement(office.time - timedelta(hours=1), revoked=True)
        assert await office.post(revoked, key, login) == Accepted()
        thiefs = ann.announcement(office.time + timedelta(hours=1))
        assert code_of(await office.post(thiefs, key, login)) is Refusal.KEY
        assert code_of(await office.replicate(thiefs, key)) is Refusal.KEY
        claim = ann.claim("ann@a.example")
        verdict = await office.post(claim, address_key("ann@a.example"), login)
        assert code_of(verdict) is Refusal.KEY
        without_account = announcement_key(ben.key_id)
        assert (
            await office.replicate(ben.announcement(revoked=True), without_account) == Accepted()
        )
        office.pass_time(days=500)
        await office.expiry.sweep()
        [entry] = await office.read(key, ANYBODY)
        assert entry.digest == block_digest(revoked)
        kept = await office.store.read(
            lambda view: view.types_under(without_account, BlockType)  # of which none is left
        )
        assert kept == ()

    in_post_office(tmp_path, scenario)


def test_a_key_is_posted_by_its_owner_and_signed_by_itself(
    tmp_path: Path, ann: User, ben: User
) -> None:
    """Another login, another key, a past Expires or nobody at all: each has its refusal."""
    key = announcement_key(ann.key_id)
    block = ann.announcement()

    async def scenario(office: PostOffice) -> None:
        for visitor in (ANYBODY, user(ben.key_id)):
            assert code_of(await office.post(block, key, visitor)) is Refusal.PERMISSION
        stolen = ben.announcement()
        assert code_of(await office.post(stolen, key, user(ann.key_id))) is Refusal.SIGNATURE
        assert code_of(await office.replicate(stolen, key)) is Refusal.SIGNATURE
        past = ann.announcement(expires=now() - timedelta(hours=1))
        assert code_of(await office.post(past, key, user(ann.key_id))) is Refusal.DATE
        assert await office.replicate(past, key) == Accepted()
        assert await office.post(block, key, user(ann.key_id)) == Accepted()

    in_post_office(tmp_path, scenario)


def test_a_claim_waits_for_its_key_and_is_verified_when_it_comes(
    tmp_path: Path, ann: User, ben: User
) -> None:
    """A true claim is let in by the key; a forged one that waited beside it is refused."""
    key, address = announcement_key(ann.key_id), address_key("ann@a.example")
    claim = ann.claim("ann@a.example")
    forged = ben.claim("ann@a.example", key_id=ann.key_id, date=now() + timedelta(seconds=5))

    async def scenario(office: PostOffice) -> None:
        assert await office.post(claim, address, user(ann.key_id)) == Pending()
        assert await office.replicate(forged, address) == Pending()
        assert await office.read(address, ANYBODY) == ()
        assert await office.post(ann.announcement(), key, user(ann.key_id)) == Accepted()
        assert await office.intake.verdict(block_digest(claim)) == Accepted()
        verdict = await office.intake.verdict(block_digest(forged))
        assert code_of(verdict) is Refusal.SIGNATURE
        [entry] = await office.read(address, ANYBODY)
        assert entry.digest == block_digest(claim)

    in_post_office(tmp_path, scenario)


def test_a_claim_enters_by_the_key_that_is_there_when_it_is_stored(
    tmp_path: Path, ann: User
) -> None:
    """One whose key came, or changed, after it was looked at has to be verified again."""
    key, address = announcement_key(ann.key_id), address_key("ann@a.example")
    first, claim = ann.announcement(), ann.claim("ann@a.example")

    async def scenario(office: PostOffice) -> None:
        arrival = Arrival.replicated_for(None)
        given = Decision(arrival, office.time, office.limits, Partnership())
        looked_at = examine(lines_of(claim), address, arrival, office.time, office.limits)
        by_the_first = replace(looked_at, verified_by=block_digest(first))
        newer = ann.announcement(office.time + timedelta(seconds=5))
        for block, candidate in ((first, looked_at), (newer, by_the_first)):
            assert await office.replicate(block, key) == Accepted()
            with pytest.raises(StaleCertificate):
                await office.store.write(lambda view: admit(view, candidate, given))  # noqa: B023
        assert await office.read(address, ANYBODY) == ()

    in_post_office(tmp_path, scenario)


def test_a_replicated_claim_waits_for_its_key_up_to_its_age(tmp_path: Path, ann: User) -> None:
    """A claim of the partner outlives the day that others may wait."""

    async def scenario(office: PostOffice) -> None:
        claim = ann.claim("ann@a.example")
        address = address_key("ann@a.example")
        assert await office.replicate(claim, address) == Pending()
        office.pass_time(days=9)
        assert (await office.expiry.sweep()).waited == 0
        block = ann.announcement(office.time)
        assert await office.replicate(block, announcement_key(ann.key_id)) == Accepted()
        assert len(await office.read(address, ANYBODY)) == 1

    in_post_office(tmp_path, scenario)


def test_data_that_collides_with_a_key_displaces_nothing(tmp_path: Path, ann: User) -> None:
    """Bytes that hash to the key of a mailbox, claim or acknowledgment live beside it."""
    secret = AckHash(b"k" * 20)
    colliding = (b"0" + ann.key_id.raw, b"ann@a.example", secret.raw)
    mail, claim = message(ann.key_id), ann.claim("ann@a.example")

    async def fill(office: PostOffice) -> None:
        login = await office.open_account(ann.key_id)
        key = announcement_key(ann.key_id)
        assert await office.post(ann.announcement(), key, login) == Accepted()
        assert await office.post(mail) == Accepted()
        assert await office.post(claim, address_key("ann@a.example"), login) == Accepted()
        assert await office.post(acknowledgment(secret.raw), acknowledgment_key(secret)) == (
            Accepted()
        )

    async def collide(office: PostOffice) -> None:
        for data in colliding:
            assert await office.post_data(data) == Accepted()

    async def look(office: PostOffice) -> None:
        login = user(ann.key_id)
        types = [(await office.read(data_key(data), login))[0].type for data in colliding]
        assert types == ["message-announcement", "address-claim", "acknowledgment"]
        # Another reader finds the data where he may not read the mail.
        other = await office.open_account(KeyId(b"o" * 20))
        assert (await office.read(data_key(colliding[0]), other))[0].type == "data"

    async def blocks_first(office: PostOffice) -> None:
        await fill(office)
        await collide(office)
        await look(office)

    async def data_first(office: PostOffice) -> None:
        await collide(office)
        await fill(office)
        await look(office)

    in_post_office(tmp_path / "one", blocks_first)
    in_post_office(tmp_path / "two", data_first)


@pytest.mark.parametrize("replicated", [False, True], ids=["stored", "replicated"])
def test_data_must_have_its_key_a_stamp_and_a_near_date(tmp_path: Path, replicated: bool) -> None:
    """Large data, which goes to a file, as small; whoever brings it."""
    limits = Limits(max_age={**Limits().max_age, BlockType.DATA: timedelta(days=5)})
    ahead = timedelta(hours=49 if replicated else 25)

    async def scenario(office: PostOffice) -> None:
        async def take(data: bytes, key: BlockKey, lines: tuple[str, ...]) -> Refusal | None:
            text = tuple(line.encode() for line in lines)
            intake = (
                office.intake.replicate_data(key, text, None)
                if replicated
                else office.intake.receive_data(key, text, ANYBODY)
            )
            await intake.take(data)
            return code_of(await intake.finish())

        for data in (b"small", b"large" * 40_000):
            key, lines = data_lines(data)
            assert await take(data, BlockKey(b"x" * 20), lines) is Refusal.KEY
            challenge = data_challenge_prefix(office.time) + data
            stamps = (Stamp.parse(f"bd,{nonce:x},0") for nonce in itertools.count(1))
            weak = next(each for each in stamps if not verify(challenge, each, FLOOR))
            cheap = make_data_header(office.time, weak, len(data)).lines
            assert await take(data, key, cheap) is Refusal.STAMP
            for date in (office.time + ahead, office.time - timedelta(days=6)):
                assert await take(data, *data_lines(data, date)) is Refusal.DATE
            assert await take(data, key, lines) is None

    in_post_office(tmp_path, scenario, limits)


def test_what_the_operator_keeps_for_less_time_is_refused_sooner(tmp_path: Path) -> None:
    """Ages are settings: what would be swept at once does not enter."""
    limits = Limits(max_age={**Limits().max_age, BlockType.ACKNOWLEDGMENT: timedelta(days=2)})

    async def scenario(office: PostOffice) -> None:
        for days, code in ((3, Refusal.DATE), (1, None)):
            block = acknowledgment(bytes([days]) * 20, timedelta(days=days))
            assert code_of(await office.post(block, acknowledgment_key(block.secret))) is code

    in_post_office(tmp_path, scenario, limits)


def hashed_for_fingerprint(ann: User) -> bytes:
    """Return the bytes whose SHA-1 is the fingerprint: a prefix and the key packet's body."""
    exported = subprocess.run(
        ["gpg", "--homedir", str(ann.home), "--batch", "--export", ann.key_id.hex],
        capture_output=True,
        check=True,
    ).stdout
    assert exported[0] == 0x98
    body = exported[2 : 2 + exported[1]]
    return b"\x99" + len(body).to_bytes(2, "big") + body


def test_a_data_block_whose_key_is_a_fingerprint_does_not_hide_the_key(
    tmp_path: Path, ann: User
) -> None:
    """A fingerprint is a SHA-1 of packet bytes, so those bytes make a data block of its key."""
    key, data = announcement_key(ann.key_id), hashed_for_fingerprint(ann)
    assert data_key(data) == key

    async def scenario(office: PostOffice) -> None:
        await office.open_account(ann.key_id)
        assert await office.post_data(data) == Accepted()
        assert await office.post(ann.announcement(), key, user(ann.key_id)) == Accepted()
        assert await office.post_data(data, date=now() + timedelta(hours=1)) == Accepted()
        for visitor in (ANYBODY, user(ann.key_id)):
            [entry] = await office.read(key, visitor)
            assert entry.type == "key-announcement"

    in_post_office(tmp_path, scenario)


WHOLE = lines_of(acknowledgment(b"w" * 20))
WHOLE_KEY = acknowledgment_key(AckHash(b"w" * 20))


def dated(*line: bytes) -> tuple[bytes, ...]:
    """Return a whole block with another line, or none, in the place of its Date."""
    at = next(at for at, each in enumerate(WHOLE) if each.startswith(b"Date: "))
    return (*WHOLE[:at], *line, *WHOLE[at + 1 :])


POISON = {
    "impossible date": dated(b"Date: 2026-99-99T99:99:99Z"),
    "year zero": dated(b"Date: 0000-00-00T00:00:00Z"),
    "no date": dated(),
    "data where none belongs": (*WHOLE, b"Data: 0"),
    "nothing": (),
    "no text": (b"\x00\xff" * 50,),
    "endless signature": (b"-----BEGIN PGP SIGNED MESSAGE-----",) * 40,
}


POISONED_BY = {"impossible date": Refusal.DATE, "year zero": Refusal.DATE}


@pytest.mark.parametrize("poison", POISON)
def test_poison_is_refused_and_the_next_block_is_served(tmp_path: Path, poison: str) -> None:
    """Whatever a block holds, it gets a verdict, and what comes behind it gets in."""

    async def scenario(office: PostOffice) -> None:
        for verdict in (
            await office.intake.take_text(WHOLE_KEY, POISON[poison], ANYBODY),
            await office.intake.replicate_text(WHOLE_KEY, POISON[poison], "AB" * 20),
        ):
            assert code_of(verdict) is POISONED_BY.get(poison, Refusal.FORM)
        good = acknowledgment(b"g" * 20)
        assert await office.post(good, acknowledgment_key(good.secret)) == Accepted()

    in_post_office(tmp_path, scenario)


def test_what_the_poison_was_made_of_is_taken(tmp_path: Path) -> None:
    """So each of those is refused for the one thing that its name says."""

    async def scenario(office: PostOffice) -> None:
        assert await office.intake.take_text(WHOLE_KEY, WHOLE, ANYBODY) == Accepted()
        assert await office.post_data(b"x") == Accepted()
        key, lines = data_lines(b"x")
        empty = tuple(line.encode() for line in (*lines[:-1], "Data: 0"))
        assert code_of(await office.intake.receive_data(key, empty, ANYBODY).finish()) is (
            Refusal.FORM
        )

    in_post_office(tmp_path, scenario)


def test_a_block_that_breaks_the_admission_is_refused_alone(tmp_path: Path) -> None:
    """A clock that fails inside the unit of work stands for any bug: internal, and served on."""
    good = [acknowledgment(bytes([number]) * 20) for number in range(3)]

    async def scenario(office: PostOffice) -> None:
        broken = Intake(office.store, office.verifier, lambda: office.time)
        broken._limits = replace(Limits(), acknowledgment_bytes="none")  # type: ignore[arg-type]
        verdicts = await asyncio.gather(
            broken.take_text(acknowledgment_key(good[0].secret), lines_of(good[0]), ANYBODY),
            office.post(good[1], acknowledgment_key(good[1].secret)),
            office.post(good[2], acknowledgment_key(good[2].secret)),
        )
        assert code_of(verdicts[0]) is Refusal.INTERNAL
        assert list(verdicts[1:]) == [Accepted(), Accepted()]

    in_post_office(tmp_path, scenario)


def test_a_block_that_kills_its_verifier_is_refused(tmp_path: Path, ann: User) -> None:
    """A verifier that never answers in time is ended, and the block refused as internal."""

    async def scenario(office: PostOffice) -> None:
        async with VerifierPool(1, deadline=0.0001) as slow:
            intake = Intake(office.store, slow, lambda: office.time)
            key, block = announcement_key(ann.key_id), ann.announcement()
            verdict = await intake.take_text(key, lines_of(block), user(ann.key_id))
            assert code_of(verdict) is Refusal.INTERNAL

    in_post_office(tmp_path, scenario)


def test_acknowledgments_and_loose_data_have_shares_by_source(tmp_path: Path) -> None:
    """A newcomer past a share is told to come again; nothing stored goes for it."""
    acks = [acknowledgment(bytes([number]) * 20) for number in range(6)]
    size = max(len("".join(f"{line}\r\n" for line in block.lines)) for block in acks)
    limits = Limits(
        acknowledgment_bytes=3 * size + 50,
        acknowledgment_bytes_by_source=2 * size + 50,
        loose_bytes=250_000,
        loose_bytes_by_source=150_000,
    )
    other = replace(ANYBODY, source="198.51.100.7")

    async def scenario(office: PostOffice) -> None:
        async def post(number: int, visitor: Visitor) -> bool:
            block = acks[number]
            key = acknowledgment_key(block.secret)
            try:
                return await office.post(block, key, visitor) == Accepted()
            except ShareFull:
                return False

        assert [await post(number, ANYBODY) for number in range(3)] == [True, True, False]
        assert [await post(number, other) for number in range(2, 4)] == [True, False]
        assert await post(0, ANYBODY)
        assert await office.post_data(b"a" * 100_000) == Accepted()
        with pytest.raises(ShareFull, match="loose data from"):
            await office.post_data(b"b" * 100_000)
        assert await office.post_data(b"c" * 100_000, other) == Accepted()
        with pytest.raises(ShareFull, match="the share of loose data is"):
            await office.post_data(b"d" * 60_000, replace(other, source="192.0.2.1"))
        assert (await office.store.read(lambda view: view.counts()))["data"].entries == 2
        # What the partner took is not refused here, or the two would differ.
        assert await office.replicate(acks[5], acknowledgment_key(acks[5].secret)) == Accepted()
        key, lines = data_lines(b"e" * 60_000)
        taken = office.intake.replicate_data(key, tuple(line.encode() for line in lines), None)
        await taken.take(b"e" * 60_000)
        assert await taken.finish() == Accepted()

    in_post_office(tmp_path, scenario, limits)


def test_who_posts_again_what_others_have_posted_has_it_in_his_share(tmp_path: Path) -> None:
    """Or a newer Date would let one source have the shares of all others, one after the other."""
    ack = [acknowledgment(bytes([number]) * 20) for number in range(2)]
    newer = [acknowledgment(bytes([number]) * 20, -timedelta(seconds=9)) for number in range(2)]
    size = len(canonical_form(newer[0]))
    limits = Limits(loose_bytes_by_source=150_000, acknowledgment_bytes_by_source=2 * size - 1)
    poor = replace(ANYBODY, source="198.51.100.7")
    blocks = [bytes([number]) * 100_000 for number in range(2)]
    keys = [acknowledgment_key(each.secret) for each in ack]

    async def scenario(office: PostOffice) -> None:
        later = office.time + timedelta(seconds=9)
        for data, block, key, source in zip(blocks, ack, keys, ("a", "b"), strict=True):
            visitor = replace(ANYBODY, source=source)
            assert await office.post_data(data, visitor) == Accepted()
            assert await office.post(block, key, visitor) == Accepted()
        assert await office.post_data(blocks[0], poor, later) == Accepted()
        assert await office.post(newer[0], keys[0], poor) == Accepted()
        with pytest.raises(ShareFull, match="loose data from"):
            await office.post_data(blocks[1], poor, later)
        with pytest.raises(ShareFull, match="acknowledgments from"):
            await office.post(newer[1], keys[1], poor)
        spaces = await office.store.read(
            lambda view: [
                view.space(source_space(share, source)).entries
                for share in (LOOSE_DATA, ACKNOWLEDGMENTS)
                for source in ("a", "b", poor.source)
            ]
        )
        assert spaces == [0, 1, 1, 0, 1, 1]
        # What somebody waits for is in his quota, whoever posts it; one's own needs no more room.
        reader = KeyId(b"w" * 20)
        await office.open_account(reader)
        assert await office.post(message(reader, data=blocks[1])) == Accepted()
        assert await office.post_data(blocks[1], poor, later) == Accepted()
        latest = later + timedelta(seconds=9)
        assert await office.post_data(blocks[0], poor, latest) == Accepted()

    in_post_office(tmp_path, scenario, limits)


@pytest.mark.parametrize("days", [0, 1], ids=["the-same", "dated-later"])
@pytest.mark.parametrize("harm", [Path.unlink, partial(os.truncate, length=9), flip_a_byte])
def test_data_that_comes_again_is_there_again(
    tmp_path: Path, harm: Callable[[Path], None], days: int
) -> None:
    """ACCEPTED is said of bytes that are on the disk: a lost or damaged file is made good."""
    data, date = bytes(range(256)) * 1000, now() - timedelta(days=2)
    key = data_key(data)

    async def scenario(office: PostOffice) -> None:
        assert await office.post_data(data, date=date) == Accepted()
        path = data_path(tmp_path, key)
        harm(path)
        assert await office.post_data(data, date=date + timedelta(days=days)) == Accepted()
        assert path.read_bytes() == data
        assert not list((tmp_path / "incoming").iterdir())

    in_post_office(tmp_path, scenario)


def test_what_is_too_old_is_not_served_though_it_was_not_swept_yet(
    tmp_path: Path, ann: User
) -> None:
    """Each type is gone at its age, not at the next sweep; data that mail names stays."""
    named, loose = b"named data", b"loose data"
    secret = AckHash(b"o" * 20)

    async def scenario(office: PostOffice) -> None:
        login = await office.open_account(ann.key_id)
        key, address = announcement_key(ann.key_id), address_key("ann@a.example")
        assert await office.post(ann.announcement(), key, login) == Accepted()
        assert await office.post(ann.claim("ann@a.example"), address, login) == Accepted()
        assert await office.post(acknowledgment(secret.raw), acknowledgment_key(secret)) == (
            Accepted()
        )
        for data in (named, loose):
            assert await office.post_data(data) == Accepted()
        office.pass_time(days=5)
        mail = message(ann.key_id, data=named, date=office.time)
        assert await office.post(mail) == Accepted()
        office.pass_time(days=5, minutes=1)
        served = [
            len(await office.read(each, login))
            for each in (key, address, acknowledgment_key(secret), data_key(loose), key_of(mail))
        ]
        assert served == [1, 0, 0, 0, 1]
        assert len(await office.read(data_key(named), login)) == 1
        office.pass_time(days=21)
        assert await office.read(key, login) == ()
        assert await office.read(key_of(mail), login) == ()

    in_post_office(tmp_path, scenario)


def test_data_on_its_way_counts_for_its_source(tmp_path: Path) -> None:
    """Blocks that arrive side by side have no more room than one after the other."""
    whole = 300_000
    limits = Limits(loose_bytes=10 * whole, loose_bytes_by_source=2 * whole)
    other = replace(ANYBODY, source="198.51.100.7")

    async def scenario(office: PostOffice) -> None:
        def begin(number: int, visitor: Visitor = ANYBODY) -> DataIntake:
            key, lines = data_lines(bytes([number]) * whole, office.time)
            raw = tuple(line.encode() for line in lines)
            return office.intake.receive_data(key, raw, visitor)

        begun = [begin(number) for number in range(3)]
        await begun[0].take(bytes([0]) * 100_000)
        await begun[1].take(bytes([1]) * 100_000)
        with pytest.raises(ShareFull, match="loose data from"):
            await begun[2].take(bytes([2]) * 100_000)
        elsewhere = begin(3, other)
        await elsewhere.take(bytes([3]) * 100_000)
        for given_up in (begun[1], begun[2], elsewhere):
            await given_up.discard()
        again = begin(2)
        await again.take(bytes([2]) * whole)
        await begun[0].take(bytes([0]) * 200_000)
        assert [await each.finish() for each in (again, begun[0])] == [Accepted()] * 2
        assert await office.post_data(bytes([0]) * whole) == Accepted()

    in_post_office(tmp_path, scenario, limits)


def test_data_lives_as_long_as_an_announcement_names_it(tmp_path: Path, ann: User) -> None:
    """Loose data goes by its own age, named data with the last announcement of it."""

    async def scenario(office: PostOffice) -> None:
        login = await office.open_account(ann.key_id)
        named, loose = b"named" * 20_000, b"loose" * 20_000
        for data in (named, loose):
            assert await office.post_data(data) == Accepted()
        office.pass_time(days=5)
        mail = message(ann.key_id, data=named, date=office.time)
        assert await office.post(mail) == Accepted()
        office.pass_time(days=5, hours=1)
        await office.expiry.sweep()
        assert await office.read(data_key(loose), login) == ()
        [entry] = await office.read(data_key(named), login)
        assert entry.data is not None
        with entry.data.open() as reader:
            assert reader.read() == named
        office.pass_time(days=5)
        await office.expiry.sweep()
        assert await office.read(data_key(named), login) == ()
        assert await office.read(key_of(mail), login) == ()
        assert list((tmp_path / "data").rglob("?" * 40)) == []

    in_post_office(tmp_path, scenario)


def test_expiry_stops_when_the_clock_has_jumped(tmp_path: Path) -> None:
    """Nothing is deleted while the time is not to be trusted, and what is left goes later."""
    trusted = False

    async def scenario(office: PostOffice) -> None:
        nonlocal trusted
        office.expiry._may_delete = lambda: trusted
        block = acknowledgment(b"x" * 20)
        assert await office.post(block, acknowledgment_key(block.secret)) == Accepted()
        office.pass_time(days=4000)
        swept = await office.expiry.sweep()
        assert (swept.blocks, swept.whole) == (0, False)
        trusted = True
        swept = await office.expiry.sweep()
        assert (swept.blocks, swept.whole) == (1, True)

    in_post_office(tmp_path, scenario)


def test_expiry_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """A pass that is stopped between slices has removed whole slices; the next does the rest."""
    left = 3

    def may_delete() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    async def scenario(office: PostOffice) -> None:
        recipient = KeyId(b"r" * 20)
        for number in range(500):
            mail = message(recipient, data=str(number).encode())
            assert await office.replicate(mail) == Accepted()
        office.pass_time(days=11)
        office.expiry._may_delete = may_delete
        first = await office.expiry.sweep()
        assert not first.whole
        office.expiry._may_delete = lambda: True
        second = await office.expiry.sweep()
        assert first.blocks + second.blocks == 500
        key = mailbox_key("0", recipient)
        assert (await office.store.read(lambda v: v.space(f"mailbox {key}"))).bytes == 0

    in_post_office(tmp_path, scenario)


def test_verdicts_are_bounded_between_sweeps(tmp_path: Path) -> None:
    """A flood of posts grows the table by some rows, not by as many as come in an hour."""

    async def scenario(office: PostOffice) -> None:
        recipient = KeyId(b"r" * 20)
        for number in range(300):
            mail = message(recipient, data=str(number).encode())
            assert await office.replicate(mail) == Accepted()
        count = office.store._connection.execute("SELECT count(*) FROM verdicts").get
        assert 100 <= count < 200

    in_post_office(tmp_path, scenario, Limits(verdicts=100))


def test_verdicts_are_bounded(tmp_path: Path) -> None:
    """The oldest verdicts go when there are more than the limit, whatever their time."""

    async def scenario(office: PostOffice) -> None:
        blocks = [acknowledgment(bytes([number]) * 20) for number in range(8)]
        for block in blocks:
            assert await office.post(block, acknowledgment_key(block.secret)) == Accepted()
        await office.expiry.sweep()
        known = [await office.intake.verdict(block_digest(block)) for block in blocks]
        assert known == [None] * 3 + [Accepted()] * 5

    in_post_office(tmp_path, scenario, Limits(verdicts=5))
