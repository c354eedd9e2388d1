"""Limits by source: what counts as one, how debts grow and fade, and that tables stay small."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealmail_server.sources import Allowance, Presence, Rate, source_of


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("127.0.0.1", "127.0.0.1"),
        ("", ""),
        ("/run/socket", ""),
    ],
)
def test_a_source_is_an_ipv4_address_or_an_ipv6_network(host: str, source: str) -> None:
    """A customer with a /64 is one source, whatever address of it is used."""
    assert source_of(host) == source


def test_a_burst_is_free_and_then_one_waits_longer_each_time() -> None:
    """Five at once, then one each second; an idle while pays the debt."""
    allowance = Allowance(Rate(per_second=1, burst=5))
    assert [allowance.charge("a", 0.0) for _ in range(8)] == [0, 0, 0, 0, 0, 1, 2, 3]
    assert allowance.wait("a", 0.0) == 3
    assert allowance.wait("b", 0.0) == 0
    assert allowance.charge("b", 0.0) == 0
    assert allowance.wait("a", 3.0) == 0
    assert [allowance.charge("a", 100.0) for _ in range(6)] == [0, 0, 0, 0, 0, 1]


def test_what_is_refused_leaves_no_debt() -> None:
    """However many come at once, a second later there is one use again."""
    allowance = Allowance(Rate(per_second=1, burst=5))
    assert [allowance.take("a", 0.0) for _ in range(9)] == [True] * 5 + [False] * 4
    assert [allowance.take("a", 1.0) for _ in range(2)] == [True, False]


@given(st.lists(st.floats(0, 5), max_size=60))
def test_in_the_long_run_the_rate_holds(gaps: list[float]) -> None:
    """Who waits as he is told never gets more through than burst and rate allow."""
    allowance, moment = Allowance(Rate(2, 10)), 0.0
    for served, gap in enumerate(gaps, 1):
        moment += gap
        moment += allowance.charge("a", moment)
        assert served <= 10 + 2 * moment + 1


def test_the_table_of_sources_is_bounded() -> None:
    """A million sources leave no more than the last few."""
    allowance = Allowance(Rate(1, 1), max_sources=100)
    for number in range(10_000):
        allowance.charge(str(number), 0.0)
    assert len(allowance) == 100
    assert allowance.charge("9999", 0.0) > 0


def test_connections_are_counted_in_all_and_by_source() -> None:
    """Refused ones leave no trace, and who leaves makes room."""
    presence = Presence(most=3, most_of_one=2)
    assert [presence.enter("a") for _ in range(3)] == [True, True, False]
    assert presence.enter("b")
    assert not presence.enter("c")
    assert (len(presence), presence.sources) == (3, 2)
    presence.leave("a")
    assert presence.enter("c")
    for source in ("a", "b", "c"):
        presence.leave(source)
    assert (len(presence), presence.sources) == (0, 0)
