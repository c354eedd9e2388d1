"""What is put into a store comes out of it again, each thing by itself."""

import dataclasses
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from tests.store.samples import NOON, announcement, in_store, put, some_key, store_data

from sealmail_protocol.keys import BlockKey
from sealmail_store import (
    Account,
    BlockData,
    BlockStore,
    EntryName,
    MailPlace,
    ReadView,
    StoredEntry,
    Tombstone,
    Verdict,
    WriteView,
)

FIRST_KEY = BlockKey(bytes(20))
LAST_KEY = BlockKey(b"\xff" * 20)


def test_an_entry_comes_back_as_it_was_put(tmp_path: Path) -> None:
    """Every field survives, also over closing and opening the store."""
    entry = dataclasses.replace(announcement(7), poster="AB" * 20, revoked=True)

    async def keep(store: BlockStore) -> None:
        await put(store, entry)

    async def get(store: BlockStore) -> tuple[StoredEntry, ...]:
        return await store.read(lambda view: view.entries(entry.type, entry.key))

    in_store(tmp_path, keep)
    assert in_store(tmp_path, get) == (entry,)


def test_the_types_under_one_key_do_not_displace_each_other(tmp_path: Path) -> None:
    """A key can hold several types; each is found, replaced and removed by itself."""
    mail = announcement(1)
    types = ("key-announcement", "message-announcement", "acknowledgment", "data")

    async def scenario(store: BlockStore) -> None:
        for type in ("acknowledgment", "message-announcement"):
            entry = dataclasses.replace(mail, type=type)
            await put(store, entry)
        present = await store.read(lambda view: view.types_under(mail.key, types))
        assert present == ("message-announcement", "acknowledgment")
        await store.write(
            lambda view: view.remove_entry("acknowledgment", mail.key, mail.identity)
        )
        present = await store.read(lambda view: view.types_under(mail.key, types))
        assert present == ("message-announcement",)
        assert await store.read(lambda view: view.entries(mail.type, mail.key)) == (mail,)

    in_store(tmp_path, scenario)


def test_since_gives_what_is_dated_then_or_later(tmp_path: Path) -> None:
    """Entries come oldest first, from the given moment on, that moment included."""
    key = some_key(0)
    mails = [announcement(number, key=key, days=number) for number in range(4)]

    async def scenario(store: BlockStore) -> None:
        for mail in reversed(mails):
            await put(store, mail)
        everything = await store.read(lambda view: view.entries(mails[0].type, key))
        later = await store.read(
            lambda view: view.entries(mails[0].type, key, since=NOON + timedelta(days=2))
        )
        assert everything == tuple(mails)
        assert later == tuple(mails[2:])

    in_store(tmp_path, scenario)


def test_an_entry_replaces_the_one_with_its_identity_only(tmp_path: Path) -> None:
    """Putting the same identity again changes that row; others under the key stay."""
    key = some_key(0)
    one, other = announcement(1, key=key), announcement(2, key=key)
    newer = dataclasses.replace(one, date=NOON + timedelta(days=1), stamp_bits=40)

    async def scenario(store: BlockStore) -> None:
        for entry in (one, other, newer):
            await put(store, entry)
        assert await store.read(lambda view: view.entries(one.type, key)) == (other, newer)
        assert await store.read(lambda view: view.entry(one.type, key, one.identity)) == newer
        removed = await store.write(
            lambda view: [view.remove_entry(one.type, key, one.identity) for _ in range(2)]
        )
        assert removed == [True, False]
        assert await store.read(lambda view: view.entries(one.type, key)) == (other,)

    in_store(tmp_path, scenario)


def test_pages_of_names_meet_each_entry_in_the_range_once(tmp_path: Path) -> None:
    """Partners compare by type and key range, both ends included, page by page."""
    mails = sorted((announcement(number) for number in range(300)), key=lambda e: e.key)
    crowd = [announcement(number, key=mails[100].key) for number in range(300, 450)]
    kind = "message-announcement"

    async def scenario(store: BlockStore) -> None:
        def put_all(view: WriteView) -> None:
            for mail in [*mails, *crowd]:
                view.put_entry(mail)
            view.put_entry(dataclasses.replace(mails[5], type="acknowledgment"))

        def walk(view: ReadView) -> list[EntryName]:
            found = list(view.names_between(kind, FIRST_KEY, LAST_KEY, limit=64))
            page = found
            while page:
                last = page[-1]
                page = list(
                    view.names_between(kind, last.key, LAST_KEY, limit=64, after=last.identity)
                )
                found = found + page
            return found

        await store.write(put_all)
        everything = await store.read(walk)
        assert sorted(name.digest for name in everything) == sorted(
            entry.digest for entry in [*mails, *crowd]
        )
        assert [name.key for name in everything] == sorted(name.key for name in everything)
        part = await store.read(
            lambda view: view.names_between(kind, mails[10].key, mails[20].key, limit=100)
        )
        assert [name.digest for name in part] == [mail.digest for mail in mails[10:21]]

    in_store(tmp_path, scenario)


def test_counts_are_by_type_with_text_and_data(tmp_path: Path) -> None:
    """The status line counts entries and bytes, in the database and in files."""

    async def scenario(store: BlockStore) -> None:
        mail = announcement(1)
        await store.write(lambda view: view.put_entry(mail))
        small = await store_data(store, b"x" * 1_000)
        large = await store_data(store, b"y" * 100_000)
        counts = await store.read(lambda view: view.counts())
        assert {type: count.entries for type, count in counts.items()} == {
            "message-announcement": 1,
            "data": 2,
        }
        assert counts["data"].bytes == 101_000 + len(small.header) + len(large.header)

    in_store(tmp_path, scenario)


def test_a_survey_shares_no_trip(tmp_path: Path) -> None:
    """What reads the whole index sees the committed state, and nobody's reading waits for it."""

    async def scenario(store: BlockStore) -> None:
        await put(store, announcement(1))
        trips = store.reads
        counts = await store.survey(lambda view: view.counts())
        assert store.reads == trips
        assert counts == await store.read(lambda view: view.counts())

    in_store(tmp_path, scenario)


def test_verdicts_are_remembered_until_their_time(tmp_path: Path) -> None:
    """A later verdict about a block replaces the earlier; old ones are forgotten on demand."""
    digest, other = b"\1" * 32, b"\2" * 32
    pending = Verdict(digest, "PENDING bd,30,2", NOON)
    accepted = Verdict(digest, "ACCEPTED", NOON + timedelta(days=14))

    async def scenario(store: BlockStore) -> None:
        assert await store.read(lambda view: view.verdict(digest)) is None
        await store.write(lambda view: view.put_verdict(pending))
        await store.write(lambda view: view.put_verdict(accepted))
        await store.write(
            lambda view: view.put_verdict(dataclasses.replace(pending, digest=other))
        )
        assert await store.read(lambda view: view.verdict(digest)) == accepted
        now = NOON + timedelta(days=1)
        assert await store.write(lambda view: view.forget_verdicts(now, 100, 100)) == 1
        assert await store.read(lambda view: view.verdict(other)) is None
        assert await store.read(lambda view: view.verdict(digest)) == accepted

    in_store(tmp_path, scenario)


def test_accounts_are_found_by_hash_and_by_userid_in_any_case(tmp_path: Path) -> None:
    """An auth key has one record, a userid any number; the hash is not in a repr."""
    bound = Account(b"\1" * 32, "ABCDEF0123", "bound", NOON, NOON)
    second = Account(b"\2" * 32, "abcdef0123", "bound", NOON, NOON)
    unbound = Account(b"\3" * 32, None, "undefined", NOON, NOON)
    disabled = dataclasses.replace(bound, state="disabled", changed=NOON + timedelta(days=1))

    async def scenario(store: BlockStore) -> None:
        for account in (bound, second, unbound, disabled):
            await store.write(partial(WriteView.put_account, account=account))
        assert await store.read(lambda view: view.account(bound.auth_key_hash)) == disabled
        assert await store.read(lambda view: view.account(b"\4" * 32)) is None
        assert await store.read(lambda view: view.accounts("AbCdEf0123")) == (disabled, second)
        assert await store.read(lambda view: view.accounts()) == (unbound, disabled, second)

    in_store(tmp_path, scenario)
    assert "x01" not in repr(bound)


def test_one_question_tells_the_place_of_a_mail(tmp_path: Path) -> None:
    """Dropped, held, awaited, its nonces seen, and the bytes around it: each as it was put."""
    mail, holder = announcement(1), bytes(range(20))
    nonces = [bytes([number]) * 32 for number in range(3)]
    account = Account(b"h" * 32, holder.hex().upper(), "confirmed", NOON, NOON)

    async def scenario(store: BlockStore) -> None:
        async def place(identity: bytes, asked: list[bytes], state: str) -> MailPlace:
            return await store.read(
                lambda view: view.mail_place(
                    mail.key, mail.digest, identity, holder, asked, account_state=state
                )
            )

        nothing = MailPlace(False, False, False, False, 0, 0, 0)
        assert await place(mail.identity, nonces[:2], "confirmed") == nothing
        await put(store, mail)
        await store.write(lambda view: view.put_account(account))
        await store.write(lambda view: view.use_nonces(nonces[1:], b"another", NOON))
        size = len(mail.header)
        found = await place(mail.identity, nonces[:2], "confirmed")
        assert found == MailPlace(False, True, True, True, size, size, 0)
        found = await place(b"another", nonces[:1], "disabled")
        assert found == MailPlace(False, False, False, False, size, size, 0)
        # Beyond two nonces it does not say no, so that all of them are looked at.
        assert (await place(mail.identity, [b"x", b"y", nonces[2]], "confirmed")).seen_nonces
        stone = Tombstone(mail.key, b"d" * 32, mail.identity, NOON)
        await store.write(lambda view: view.bury(stone))
        assert (await place(mail.identity, [], "confirmed")).dropped
        assert not (await place(b"another", [], "confirmed")).dropped

    in_store(tmp_path, scenario)


def test_the_latest_time_seen_never_goes_back(tmp_path: Path) -> None:
    """A clock that was set back does not set back the store."""

    async def scenario(store: BlockStore) -> None:
        assert await store.read(lambda view: view.latest_time_seen()) is None
        await store.write(lambda view: view.note_time(NOON))
        await store.write(lambda view: view.note_time(NOON - timedelta(days=1)))
        assert await store.read(lambda view: view.latest_time_seen()) == NOON
        await store.write(lambda view: view.note_time(NOON + timedelta(days=1)))
        assert await store.read(lambda view: view.latest_time_seen()) == NOON + timedelta(days=1)

    in_store(tmp_path, scenario)


def test_settings_are_kept_and_forgotten(tmp_path: Path) -> None:
    """A setting holds its last value until it is removed."""

    async def scenario(store: BlockStore) -> None:
        await store.write(lambda view: view.put_setting("colour", "red"))
        await store.write(lambda view: view.put_setting("colour", "blue"))
        assert await store.read(lambda view: view.setting("colour")) == "blue"
        await store.write(lambda view: view.remove_setting("colour"))
        assert await store.read(lambda view: view.setting("colour")) is None

    in_store(tmp_path, scenario)


def test_an_entry_with_a_wrong_digest_or_foreign_data_cannot_be_made() -> None:
    """The mistakes that would damage an index are refused at the value."""
    with pytest.raises(ValueError, match="32"):
        dataclasses.replace(announcement(1), digest=b"short")
    with pytest.raises(ValueError, match="under key"):
        dataclasses.replace(announcement(1), data=BlockData(some_key(2), 1, b"x"))
