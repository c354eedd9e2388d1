"""Ways: which one leads to a server under which policy, and which server comes first."""

from collections.abc import Callable

import pytest

from sealmail_net.errors import NoWay
from sealmail_net.ways import ProxyPolicy, Way
from sealmail_protocol.addresses import Network, ServerAddress

ONION = ServerAddress("pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion", 8081)
GARLIC = ServerAddress("mail.i2p", 8081)
PUBLIC = ServerAddress("mail.example", 8081)
LITERAL = ServerAddress("203.0.113.7", 8081)
TOR = ServerAddress("127.0.0.1", 9050)
I2P = ServerAddress("127.0.0.1", 4447)

NOTHING = ProxyPolicy()
BOTH = ProxyPolicy(TOR, I2P)
ANONYMOUS = ProxyPolicy(TOR, I2P, direct=False)
ALL_BY_TOR = ProxyPolicy(TOR, direct=False, use_exit_node=True)


@pytest.mark.parametrize(
    ("policy", "address", "way"),
    [
        (NOTHING, PUBLIC, Way.DIRECT),
        (BOTH, PUBLIC, Way.DIRECT),
        (BOTH, ONION, Way.TOR),
        (BOTH, GARLIC, Way.I2P),
        (ANONYMOUS, ONION, Way.TOR),
        (ALL_BY_TOR, PUBLIC, Way.EXIT),
        (ALL_BY_TOR, LITERAL, Way.EXIT),
        (ALL_BY_TOR, ONION, Way.TOR),
        (ProxyPolicy(TOR, use_exit_node=True), PUBLIC, Way.EXIT),
    ],
)
def test_a_server_has_one_way(policy: ProxyPolicy, address: ServerAddress, way: Way) -> None:
    """Hidden services go by their own proxy, public servers direct or past an exit."""
    assert policy.way_to(address) is way


@pytest.mark.parametrize(
    ("policy", "address", "reason"),
    [
        (NOTHING, ONION, "no proxy to Tor"),
        (NOTHING, GARLIC, "no proxy to I2P"),
        (ProxyPolicy(TOR), GARLIC, "no proxy to I2P"),
        (ProxyPolicy(i2p=I2P), ONION, "no proxy to Tor"),
        (ANONYMOUS, PUBLIC, "exit node"),
        (ANONYMOUS, LITERAL, "exit node"),
        (ALL_BY_TOR, GARLIC, "no proxy to I2P"),
    ],
)
def test_a_server_without_a_way_is_refused(
    policy: ProxyPolicy, address: ServerAddress, reason: str
) -> None:
    """Nothing falls back to another network; the reason says what is missing."""
    with pytest.raises(NoWay, match=reason):
        policy.way_to(address)
    assert not policy.leads_to_any([address])


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        (BOTH, [PUBLIC, ONION, GARLIC]),
        (ProxyPolicy(TOR, I2P, preferred=Network.TOR), [ONION, PUBLIC, GARLIC]),
        (ProxyPolicy(TOR, I2P, preferred=Network.I2P), [GARLIC, PUBLIC, ONION]),
        (ProxyPolicy(TOR, I2P, direct=False, use_exit_node=True), [ONION, GARLIC, PUBLIC]),
        (NOTHING, [PUBLIC, GARLIC, ONION]),
    ],
)
def test_the_preferred_network_comes_first(
    policy: ProxyPolicy, order: list[ServerAddress]
) -> None:
    """Exits come behind every other way, and what has no way behind them."""
    assert policy.in_order([GARLIC, PUBLIC, ONION])[0] == order[0]
    assert policy.in_order([GARLIC, PUBLIC, ONION]) == order


def test_equals_keep_their_order() -> None:
    """Servers of one network stay shuffled as they came."""
    others = [ServerAddress(f"{name}.example", 1) for name in "cab"]
    assert BOTH.in_order([*others, ONION]) == [*others, ONION]


def test_servers_of_one_way_are_of_one_rank() -> None:
    """Two ways never are, and what has no way comes last."""
    onions = [ONION, ServerAddress(ONION.host, 2)]
    policy = ProxyPolicy(TOR, direct=False, use_exit_node=True)
    assert policy.in_ranks([GARLIC, PUBLIC, *onions, LITERAL]) == [
        onions,
        [PUBLIC, LITERAL],
        [GARLIC],
    ]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: ProxyPolicy(ServerAddress("localhost", 9050)), "IP address"),
        (lambda: ProxyPolicy(use_exit_node=True), "exit nodes"),
        (lambda: ProxyPolicy(direct=False), "proxy is needed"),
    ],
)
def test_a_policy_that_could_leak_is_none(make: Callable[[], ProxyPolicy], reason: str) -> None:
    """A named proxy would be looked up; anonymity without any proxy is a mistake."""
    with pytest.raises(ValueError, match=reason):
        make()
