"""Accounts: how records of one auth key merge, and how a userid is bound, kept and not stolen."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealmail_protocol.policy import Role
from sealmail_server.accounts import (
    AccountRefused,
    AccountState,
    add_account,
    confirm,
    disable_account,
    hash_auth_key,
    is_confirmed,
    is_user,
    log_in,
    merge_account,
    merge_accounts,
    new_auth_key,
    partner_record,
)
from sealmail_store import Account, BlockStore, WriteView

T = TypeVar("T")
START = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
HASH = b"h" * 32
ANN = "A" * 40
BEN = "B" * 40
KEY, OTHER = "K" * 40, "L" * 40

UNDEFINED, PROVISIONAL = AccountState.UNDEFINED, AccountState.PROVISIONAL
CONFIRMED, DISABLED = AccountState.CONFIRMED, AccountState.DISABLED


def record(
    state: AccountState,
    userid: str | None = None,
    changed: datetime = START,
    auth_key_hash: bytes = HASH,
) -> Account:
    """Return a record of the one auth key, or of another."""
    return Account(auth_key_hash, userid, state, START, changed)


@pytest.mark.parametrize(
    ("winner", "loser"),
    [
        pytest.param(record(DISABLED), record(CONFIRMED, ANN), id="disabled-is-final"),
        pytest.param(record(DISABLED, BEN), record(PROVISIONAL, ANN), id="disabled-whoever"),
        pytest.param(record(DISABLED), record(UNDEFINED), id="disabled-beats-undefined"),
        pytest.param(record(CONFIRMED, BEN), record(UNDEFINED), id="bound-beats-undefined"),
        pytest.param(record(PROVISIONAL, BEN), record(UNDEFINED), id="even-provisionally"),
        pytest.param(record(CONFIRMED, BEN), record(PROVISIONAL, ANN), id="confirmed-first"),
        pytest.param(record(CONFIRMED, ANN), record(CONFIRMED, BEN), id="then-the-lower-userid"),
        pytest.param(record(PROVISIONAL, ANN), record(PROVISIONAL, BEN), id="provisional-too"),
        pytest.param(record(DISABLED, ANN), record(DISABLED), id="a-name-beats-none"),
        pytest.param(
            record(CONFIRMED, ANN),
            record(CONFIRMED, ANN, START + timedelta(days=1)),
            id="the-earlier-of-two-alike",
        ),
    ],
)
def test_of_two_records_of_one_key(winner: Account, loser: Account) -> None:
    """The same one stays, in either order."""
    assert merge_accounts(winner, loser) == winner
    assert merge_accounts(loser, winner) == winner


RECORDS = st.builds(
    lambda state, userid, days: record(
        state, None if state is UNDEFINED else userid, START + timedelta(days=days)
    ),
    st.sampled_from(AccountState),
    st.sampled_from((ANN, BEN)),
    st.integers(0, 3),
)


@given(st.lists(RECORDS, min_size=3, max_size=3))
def test_replicas_agree_whatever_the_order(records: list[Account]) -> None:
    """Merging is commutative, associative and idempotent."""
    results = set()
    for one, two, three in permutations(records):
        left = merge_accounts(merge_accounts(one, two), three)
        assert left == merge_accounts(one, merge_accounts(two, three))
        assert merge_accounts(left, one) == left
        results.add(left)
    assert len(results) == 1


def in_store(directory: Path, work: Callable[[WriteView], T]) -> T:
    """Do ``work`` in a new store."""

    async def run() -> T:
        async with BlockStore.open(directory / "store", create=True) as store:
            return await store.write(work)

    return asyncio.run(run())


def later(**delta: float) -> datetime:
    """Return a moment after the start."""
    return START + timedelta(**delta)


def test_keys_at_rest_are_tagged_hashes_and_generated_ones_have_160_bits() -> None:
    """The hash is that of docs/protocol.md §5.1; nothing repeats."""
    assert hash_auth_key("ABCDEFGH").hex() == (
        "7e6d11ac873e3e95743bc109b53c0316d8c173bc042627c5525af749b0f99530"
    )
    assert new_auth_key(lambda count: b"\xab" * count) == "AB" * 20
    assert new_auth_key() != new_auth_key()


def test_a_first_login_binds_provisionally_and_a_fresh_announcement_confirms(
    tmp_path: Path,
) -> None:
    """Until then the login is nobody's; userids compare without case."""

    def work(view: WriteView) -> None:
        add_account(view, KEY, None, START)
        visitor = log_in(view, ANN.lower(), KEY, later(minutes=1))
        assert visitor is not None
        assert (visitor.role, visitor.userid, visitor.confirmed) == (Role.USER, ANN, False)
        assert not is_user(view, ANN)
        assert not confirm(view, visitor, later(seconds=59), later(minutes=2))
        assert confirm(view, visitor, later(minutes=1), later(minutes=2))
        assert is_user(view, ANN)
        assert is_confirmed(view, visitor)
        again = log_in(view, ANN, KEY, later(days=9))
        assert again is not None
        assert again.confirmed

    in_store(tmp_path, work)


def test_a_binding_that_nothing_confirms_lapses_after_an_hour(tmp_path: Path) -> None:
    """Then the key may bind another userid, and proves the first no more."""

    def work(view: WriteView) -> None:
        add_account(view, KEY, None, START)
        squatter = log_in(view, ANN, KEY, START)
        assert squatter is not None
        assert log_in(view, BEN, KEY, later(minutes=60)) is None
        assert not confirm(view, squatter, later(minutes=62), later(minutes=62))
        assert log_in(view, BEN, KEY, later(minutes=62)) is not None
        assert log_in(view, ANN, KEY, later(minutes=62)) is None

    in_store(tmp_path, work)


def test_a_squatter_keeps_nobody_from_his_userid(tmp_path: Path) -> None:
    """The owner binds his own key beside the squatter's, and by proving it has the userid."""

    def work(view: WriteView) -> None:
        add_account(view, KEY, None, START)
        add_account(view, OTHER, None, START)
        squatter = log_in(view, ANN, KEY, START)
        owner = log_in(view, ANN, OTHER, later(minutes=1))
        assert squatter is not None
        assert owner is not None
        assert confirm(view, owner, later(minutes=1), later(minutes=2))
        assert not confirm(view, squatter, later(minutes=1), later(minutes=2))
        assert log_in(view, ANN, KEY, later(hours=2)) is None

    in_store(tmp_path, work)


def test_an_old_connection_confirms_no_binding_to_another_userid(tmp_path: Path) -> None:
    """Who let his binding lapse and bound the key anew cannot prove the new one by his own key."""

    def work(view: WriteView) -> None:
        add_account(view, KEY, None, START)
        as_himself = log_in(view, BEN, KEY, START)
        assert as_himself is not None
        assert log_in(view, ANN, KEY, later(hours=2)) is not None
        assert not confirm(view, as_himself, later(hours=2), later(hours=2))
        assert not is_user(view, ANN)

    in_store(tmp_path, work)


def test_a_squatter_cannot_confirm_by_copying_the_owners_new_announcement(
    tmp_path: Path,
) -> None:
    """Once the owner has a key that counts, announcements prove nothing for other keys."""

    def work(view: WriteView) -> None:
        add_account(view, KEY, None, START)
        squatter = log_in(view, ANN, KEY, START)
        assert squatter is not None
        add_account(view, OTHER, ANN, later(minutes=1))
        assert not confirm(view, squatter, later(minutes=2), later(minutes=3))
        assert not is_confirmed(view, squatter)
        owner = log_in(view, ANN, OTHER, later(minutes=4))
        assert owner is not None
        assert owner.confirmed

    in_store(tmp_path, work)


def test_a_removed_key_is_finished_and_its_userid_not_free(tmp_path: Path) -> None:
    """No login, no second life, no new binding by an undefined key; the operator can help."""

    def work(view: WriteView) -> None:
        add_account(view, KEY, ANN, START)
        add_account(view, OTHER, None, START)
        visitor = log_in(view, ANN, KEY, START)
        assert visitor is not None
        removed = disable_account(view, hash_auth_key(KEY), later(days=1))
        assert removed is not None
        assert removed.state == DISABLED
        assert log_in(view, ANN, KEY, later(days=1)) is None
        assert not is_confirmed(view, visitor)
        assert log_in(view, ANN, OTHER, later(days=1)) is None
        with pytest.raises(AccountRefused, match="final"):
            add_account(view, KEY, ANN, later(days=2))
        assert not merge_account(view, _record_of(ANN, KEY))
        assert add_account(view, "M" * 40, ANN, later(days=2)).state == CONFIRMED
        assert disable_account(view, b"x" * 32, later(days=3)) is None

    in_store(tmp_path, work)


@pytest.mark.parametrize("hours", [0, 2], ids=["at-once", "lapsed"])
def test_removing_a_squatters_key_leaves_the_userid_free(tmp_path: Path, hours: int) -> None:
    """What nothing has confirmed was not his, and is not kept for him."""

    def work(view: WriteView) -> None:
        add_account(view, KEY, None, START)
        add_account(view, OTHER, None, START)
        assert log_in(view, ANN, KEY, START) is not None
        removed = disable_account(view, hash_auth_key(KEY), later(hours=hours))
        assert removed == record(DISABLED, None, later(hours=hours), hash_auth_key(KEY))
        owner = log_in(view, ANN, OTHER, later(hours=hours))
        assert owner is not None
        assert confirm(view, owner, later(hours=hours), later(hours=hours))

    in_store(tmp_path, work)


def test_a_userid_holds_the_keys_that_it_was_given(tmp_path: Path) -> None:
    """A key that is somebody's cannot be given to another; the same twice is no error."""

    def work(view: WriteView) -> None:
        for key in (KEY, OTHER, KEY):
            assert add_account(view, key, ANN.lower(), START).userid == ANN
        assert log_in(view, ANN, KEY, START) is not None
        assert log_in(view, ANN, OTHER, START) is not None
        for userid in (BEN, None):
            with pytest.raises(AccountRefused, match="somebody"):
                add_account(view, KEY, userid, START)
        with pytest.raises(AccountRefused, match="state"):
            add_account(view, "N" * 40, "Disabled", START)

    in_store(tmp_path, work)


def test_partners_name_no_roles(tmp_path: Path) -> None:
    """REPLOGIN carries users and the two state words; roles are not taken from it."""

    def work(view: WriteView) -> None:
        assert partner_record("Administrator", KEY, START) is None
        assert partner_record("REPLICATION", KEY, START) is None
        assert merge_account(view, _record_of("undefined", KEY))
        assert log_in(view, ANN, KEY, START) is not None
        assert merge_account(view, _record_of(BEN, KEY))
        assert log_in(view, BEN, KEY, START) is not None
        assert merge_account(view, _record_of("disabled", KEY))
        assert log_in(view, BEN, KEY, START) is None

    in_store(tmp_path, work)


def _record_of(userid: str, auth_key: str) -> Account:
    made = partner_record(userid, auth_key, START)
    assert made is not None
    return made
