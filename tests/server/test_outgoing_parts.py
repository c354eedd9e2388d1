"""The parts of the outgoing queue that need no server: routes, bags, schedule, answers."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sealmail_net.ways import ProxyPolicy
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.errors import Refusal
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Accepted, Pending, QueueState, Refused, Verdict
from sealmail_server.outgoing.bags import Bag, Board, Waiting
from sealmail_server.outgoing.courier import (
    Delivered,
    GivenUp,
    Outcome,
    TryLater,
    conclude,
    outcome_of,
)
from sealmail_server.outgoing.roster import MAX_WORKERS, Roster
from sealmail_server.outgoing.routes import Routes
from sealmail_server.outgoing.schedule import BLOCK_PAUSES, Schedule
from sealmail_server.outgoing.targets import Doubt, Entangled, Local, Never, Remote, TargetRules

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
A, B, C = (ServerAddress(f"{name}.example", 8081) for name in "abc")
ONION = ServerAddress("pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion", 8081)
TARGET = Transport((A, B))
# What is seen here holds whatever the chance.
CHANCE = random.SystemRandom()
KEYS = [BlockKey(bytes([number]) * 20) for number in range(4)]


def row(number: int, kind: BlockType = BlockType.DATA, due: datetime = NOW) -> Waiting:
    """Return a row that waits."""
    return Waiting(
        number=number,
        digest=bytes([number]) * 32,
        key=KEYS[number],
        type=kind,
        owner="A" * 40,
        target=TARGET,
        line=1,
        entry=number,
        start=due,
        expires=NOW + timedelta(days=10),
        due=due,
    )


def test_pauses_grow_and_vary_by_a_fifth() -> None:
    """The last pause repeats; two rows that failed together do not come back together."""
    schedule = Schedule(BLOCK_PAUSES, CHANCE)
    for failures, expected in ((1, 30), (2, 120), (5, 3600), (99, 3600)):
        pauses = {schedule.pause(failures).total_seconds() for _ in range(50)}
        assert len(pauses) > 40
        assert 0.8 * expected <= min(pauses) <= max(pauses) <= 1.2 * expected


def test_a_row_whose_worker_broke_is_not_in_hand_for_ever() -> None:
    """It may be taken again as it was; what was put back or settled meanwhile stays so."""
    bag = Bag("A" * 40, TARGET)
    bag.add(row(1))
    assert bag.take(NOW) == row(1)
    assert bag.take(NOW) is None
    bag.release(1)
    assert bag.take(NOW) == row(1)
    later = replace(row(1), due=NOW + timedelta(hours=1))
    bag.put_back(later)
    bag.release(1)
    assert bag.take(NOW) is None
    assert bag.take(later.due) == later
    bag.remove(1)
    bag.release(1)
    assert bag.take(later.due) is None


def test_who_took_the_last_block_is_asked_first_and_who_is_down_not_at_all() -> None:
    """Without hints the order is by chance."""
    routes = Routes(CHANCE)
    assert {routes.order((A, B))[0] for _ in range(20)} == {A, B}
    routes.worked(A, NOW)
    routes.worked(B, NOW)
    assert {routes.order((A, B, C)) for _ in range(20)} == {(B, A, C)}
    routes.failed(B, "unreachable", NOW)
    assert routes.order((A, B))[:1] == (A,)
    assert routes.down() == (B,)
    assert routes.reason((A, B)) == "unreachable"
    assert routes.to_look_at(NOW, (A, B)) == []
    assert routes.to_look_at(NOW + timedelta(seconds=6), (A, B)) == [B]


def test_a_server_that_answers_is_tried_but_looked_at_less_often_until_it_takes_something() -> (
    None
):
    """Signs of life take it off the list; only a delivery makes its failures forgotten."""
    routes = Routes(CHANCE)
    routes.failed(A, "lost", NOW)
    routes.alive(A)
    assert not routes.is_down(A)
    routes.failed(A, "lost", NOW)
    assert routes.to_look_at(NOW + timedelta(seconds=7), (A,)) == []
    routes.worked(A, NOW)
    routes.failed(A, "lost", NOW)
    assert routes.to_look_at(NOW + timedelta(seconds=7), (A,)) == [A]


@pytest.mark.parametrize(
    ("target", "meaning"),
    [
        (Transport(()), Never(Doubt.ENTANGLED)),
        (Transport((B, A)), Local()),
        (Transport((B, C)), Remote((B, C))),
        (Transport((ServerAddress("192.168.0.1", 1), B)), Remote((B,))),
        (Transport((ServerAddress("127.0.0.1", 1),)), Never(Doubt.FORBIDDEN)),
        (Transport((ServerAddress("::ffff:8.8.8.8", 1),)), Never(Doubt.FORBIDDEN)),
        (Transport((ServerAddress("100.64.0.1", 1),)), Never(Doubt.FORBIDDEN)),
        (Transport((ONION,)), Never(Doubt.NETWORK)),
        (Transport((ONION, C)), Remote((C,))),
    ],
)
def test_a_target_is_judged_by_its_line(
    target: Transport, meaning: Local | Remote | Never
) -> None:
    """Own servers are local; what may not be dialled is left out of a group."""
    assert TargetRules(lambda: {A}).judge(target) == meaning


def test_the_dht_is_a_target_of_a_server_that_takes_part() -> None:
    """Elsewhere it is never served."""
    assert TargetRules(lambda: {A}, dht=True).judge(Transport(())) == Entangled()


def test_with_a_proxy_other_networks_are_served() -> None:
    """An onion name is a target like others where Tor is configured."""
    policy = ProxyPolicy(tor=ServerAddress("127.0.0.1", 9050))
    rules = TargetRules(lambda: {A}, policy=policy)
    assert rules.judge(Transport((ONION,))) == Remote((ONION,))


def test_a_bag_gives_data_first_and_holds_back_what_names_it() -> None:
    """The announcement goes once the data has gone, and not while it is put off."""
    bag = Bag("A" * 40, TARGET)
    mail = row(1, BlockType.MESSAGE_ANNOUNCEMENT)
    bag.add(mail)
    bag.add(row(2))
    data = bag.take(NOW)
    assert data is not None
    assert data.number == 2
    assert bag.take(NOW) == mail
    assert bag.put_behind(mail, (KEYS[3], KEYS[2]))
    assert bag.take(NOW) is None
    bag.put_back(row(2, due=NOW + timedelta(hours=1)))
    assert bag.take(NOW) is None
    bag.remove(2)
    assert bag.take(NOW) == mail
    assert not bag.put_behind(mail, (KEYS[2],))


def test_a_row_that_is_put_off_holds_up_no_other() -> None:
    """The others are taken at once, it when its time has come."""
    bag = Bag("A" * 40, TARGET)
    for number in (1, 2):
        bag.add(row(number))
    first = bag.take(NOW)
    assert first is not None
    later = NOW + timedelta(minutes=5)
    bag.put_back(row(1, due=later))
    second = bag.take(NOW)
    assert second is not None
    assert (first.number, second.number) == (1, 2)
    assert bag.take(NOW) is None
    assert bag.next_due() == later
    taken = bag.take(later)
    assert taken is not None
    assert taken.number == 1


def test_the_board_counts_rows_by_user_and_forgets_empty_bags() -> None:
    """A row that is put twice is counted once."""
    board = Board()
    board.add(row(1))
    board.add(row(1))
    board.add(row(2))
    assert (len(board), board.rows_of("A" * 40)) == (2, 2)
    board.remove(1)
    board.remove(1)
    board.remove(2)
    assert (len(board), board.rows_of("A" * 40), board.bags) == (0, 0, {})


DEMAND = Difficulty(53, 2)


@pytest.mark.parametrize(
    ("verdict", "at_once", "in_the_end"),
    [
        (Accepted(degraded=True), Delivered(), Delivered()),
        (None, TryLater("unsure"), TryLater("unsure")),
        (Pending(), TryLater("pending"), GivenUp(QueueState.REFUSED, "recipient")),
        (
            Pending(DEMAND),
            TryLater("price", DEMAND),
            GivenUp(QueueState.REFUSED, "price", DEMAND),
        ),
        (
            Refused(Refusal.PRICE, "bd,53,2 is asked"),
            GivenUp(QueueState.REFUSED, "price", DEMAND),
            GivenUp(QueueState.REFUSED, "price", DEMAND),
        ),
        (Refused(Refusal.FULL), TryLater("full"), GivenUp(QueueState.REFUSED, "full")),
        (
            Refused(Refusal.RECIPIENT),
            GivenUp(QueueState.REFUSED, "recipient"),
            GivenUp(QueueState.REFUSED, "recipient"),
        ),
    ],
)
def test_what_a_verdict_means_now_and_when_it_stays(
    verdict: Verdict | None, at_once: Outcome, in_the_end: Outcome
) -> None:
    """What may pass is followed up for a time; a price that stays comes back to be minted."""
    outcome = outcome_of(verdict)
    assert conclude(outcome, NOW, NOW + timedelta(minutes=1)) == at_once
    assert conclude(outcome, NOW, NOW + timedelta(hours=30)) == in_the_end


def test_breaks_count_by_server_and_a_row_counts_once() -> None:
    """Three rows in a row that broke off are a server that is down; an answer begins anew."""
    routes = Routes(CHANCE)
    prove(routes)
    for number in (1, 1, 2, 2):
        routes.broke_off(A, str(number), number, "slow", NOW)
    assert not routes.is_down(A)
    assert not routes.is_proven(A)
    routes.answered(A)
    for number in (1, 2, 3):
        assert not routes.is_down(A)
        routes.broke_off(A, str(number), number, "slow", NOW)
    assert routes.is_down(A)
    assert routes.reason((A,)) == "slow"
    # It answers again, and is believed when it has taken something.
    routes.alive(A)
    for number in (4, 5):
        assert not routes.is_down(A)
        routes.broke_off(A, str(number), number, "slow", NOW)
    assert routes.is_down(A)


def prove(routes: Routes) -> None:
    """Have a server take blocks for long enough."""
    for minutes in (0, 5, 10):
        routes.worked(A, NOW + timedelta(minutes=minutes))


def test_rows_of_one_user_alone_do_not_take_a_server_from_the_others() -> None:
    """He chooses the blocks; not even when it was down before."""
    routes = Routes(CHANCE)
    for number in range(20):
        routes.broke_off(A, "ann", number, "slow", NOW)
    assert not routes.is_down(A)
    routes.failed(A, "unreachable", NOW)
    routes.alive(A)
    for number in range(20):
        routes.broke_off(A, "ann", number, "slow", NOW)
    assert not routes.is_down(A)


def test_a_server_is_known_to_work_after_a_while_and_anew_after_a_break() -> None:
    """One that takes a block and then hangs is given no more workers for it."""
    routes = Routes(CHANCE)
    for _ in range(10):
        routes.worked(A, NOW)
    assert routes.is_known(A)
    assert not routes.is_proven(A)
    prove(routes)
    assert routes.is_proven(A)
    routes.broke_off(A, "ann", 1, "slow", NOW)
    routes.answered(A)
    routes.worked(A, NOW + timedelta(minutes=20))
    assert not routes.is_proven(A)
    for minutes in (25, 30):
        assert not routes.is_proven(A)
        routes.worked(A, NOW + timedelta(minutes=minutes))
    assert routes.is_proven(A)


def test_no_number_of_users_has_all_workers() -> None:
    """The more are out, the fewer one may have; some are for servers that are known to work."""
    roster = Roster()
    had = []
    for number in range(5):
        count = 0
        while roster.may_hire(str(number), known=False):
            roster.hire(str(number), known=False)
            count += 1
        had.append(count)
    assert had[0] == 16
    assert had == sorted(had, reverse=True)
    assert had[-1] < 4
    assert sum(had) < 48
    assert roster.may_hire("another", known=False)
    for number in range(30):
        while roster.may_hire(str(number), known=False):
            roster.hire(str(number), known=False)
    assert not roster.may_hire("another", known=False)
    assert roster.may_hire("another", known=True)
    roster.dismiss("0", known=False)
    assert roster.may_hire("another", known=False)
    for number in range(40, 40 + MAX_WORKERS):
        while roster.may_hire(str(number), known=True):
            roster.hire(str(number), known=True)
    assert roster.all_out


@pytest.mark.parametrize("known", [False, True])
def test_eight_users_leave_workers_for_those_who_have_none(known: bool) -> None:
    """However many they ask for, and whatever is known of their servers."""
    roster = Roster()
    for number in range(8):
        while roster.may_hire(str(number), known=known):
            roster.hire(str(number), known=known)
    assert not roster.may_hire("0", known=known)
    assert roster.may_hire("another", known=known)
