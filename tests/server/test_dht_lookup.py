"""Walking to a key: paths that share no node, and bounds on what anybody can have us ask."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from tests.server.test_dht_neighbours import peer

from sealmail_server.dht import lookup
from sealmail_server.dht.datagrams import Peer, Place
from sealmail_server.dht.lookup import MAX_ASKED, PATHS, WIDTH, Found, choose, walk
from sealmail_server.dht.neighbours import OF_ONE_NETWORK, distance, network_of

KEY = bytes(20)
NEAREST = 20


class Ring:
    """Nodes that answer with whom they know, and a record of who was asked."""

    def __init__(self, answer: Callable[[Peer], Sequence[Peer] | None]) -> None:
        self._answer = answer
        self.asked: list[Peer] = []
        self.at_once = 0
        self.most_at_once = 0

    async def ask(self, peer: Peer, key: bytes) -> tuple[bytes, Sequence[Peer]] | None:
        """Answer for a node, after the others of its turn were asked."""
        self.asked.append(peer)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        peers = self._answer(peer)
        return None if peers is None else (b"", peers)

    def walk(self, start: Sequence[Peer], *, paths: int = PATHS) -> list[Found]:
        """Walk to the key from ``start``."""
        return asyncio.run(walk(self.ask, KEY, start, nearest=NEAREST, diverse=True, paths=paths))


def place(net: int, number: int) -> Place:
    """Return an address of a network of its own."""
    return Place.of(f"{net}.{number // 250}.{number % 250}.1", 8081)


def far_peers(count: int) -> list[Peer]:
    """Return nodes of as many networks, far from the key."""
    return [Peer(b"\xff" + secrets.token_bytes(19), place(20, number)) for number in range(count)]


def near_peers(count: int) -> list[Peer]:
    """Return nodes of as many networks, next to the key."""
    return [
        Peer(bytes(10) + secrets.token_bytes(10), place(30, number)) for number in range(count)
    ]


def test_no_node_is_asked_on_two_paths() -> None:
    """Though all know the same nodes, each of them is asked once, and all are found."""
    everybody = far_peers(90)
    ring = Ring(lambda _: everybody)
    found = ring.walk(everybody[:30])
    asked = Counter(each.id for each in ring.asked)
    assert set(asked.values()) == {1}
    nearest = sorted(everybody, key=lambda each: distance(each.id, KEY))[:NEAREST]
    assert [each.peer for each in found][:NEAREST] == nearest
    assert len(found) > NEAREST


def test_a_path_that_is_led_astray_leaves_the_others() -> None:
    """A liar names liars only, nearer than anybody: a single path ends among them."""
    start = far_peers(3)
    liars = near_peers(NEAREST)
    holder = far_peers(1)[0]
    led = {start[0].id, *(each.id for each in liars)}
    ring = Ring(lambda each: liars if each.id in led else [holder])
    assert holder in [each.peer for each in ring.walk(start)]
    assert holder not in [each.peer for each in ring.walk(start, paths=1)]


def test_nobody_is_led_on_for_ever() -> None:
    """Each answer names nearer nodes still: a path ends, and it asks few at once."""
    made = 0

    def nearer(_: Peer) -> list[Peer]:
        nonlocal made
        made += 1
        return [Peer(bytes(4) + (2**120 - made).to_bytes(16), place(40, made))]

    ring = Ring(nearer)
    ring.walk(far_peers(PATHS * WIDTH))
    assert len(ring.asked) <= PATHS * (MAX_ASKED + WIDTH)
    assert ring.most_at_once <= PATHS * WIDTH


def test_the_width_grows_while_nobody_answers() -> None:
    """Made-up contacts by the hundred cost few turns; it is never wider than its bound."""
    made_up = near_peers(200)
    start = far_peers(1)
    ring = Ring(lambda each: made_up if each in start else None)
    ring.walk(start)
    assert WIDTH < ring.most_at_once <= lookup.MOST_WIDTH
    assert len(ring.asked) <= MAX_ASKED + lookup.MOST_WIDTH


def test_few_of_a_network_are_asked_though_none_of_them_answers() -> None:
    """One answer that names twenty addresses of a victim has two of them asked."""
    victims = [
        Peer(bytes(10) + secrets.token_bytes(10), Place.of(f"198.51.100.{number}", 1))
        for number in range(20)
    ]
    start = far_peers(1)
    ring = Ring(lambda each: victims if each in start else None)
    ring.walk(start)
    victim = network_of(victims[0].place)
    assert sum(network_of(each.place) == victim for each in ring.asked) == OF_ONE_NETWORK


def test_a_walk_that_takes_too_long_ends_with_who_has_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One who answers never, if nothing else ended the question, keeps nobody waiting."""
    monkeypatch.setattr(lookup, "WALK_SECONDS", 0.1)
    first, second = peer("20.0.0.1"), Peer(KEY, Place.of("20.0.1.1", 1))

    async def ask(each: Peer, key: bytes) -> tuple[bytes, Sequence[Peer]] | None:
        if each == second:
            await asyncio.Event().wait()
        return b"", [second]

    found = asyncio.run(walk(ask, KEY, [first], nearest=NEAREST, diverse=True))
    assert [each.peer for each in found] == [first]


def test_a_value_is_given_to_few_of_one_network_and_to_some_of_each_path() -> None:
    """Though four networks have all that is nearest, and one path all but a few of the rest."""
    crowd = [
        Found(
            Peer(bytes(18) + number.to_bytes(2), Place.of(f"20.0.{number % 4}.{number}", 1)),
            b"",
            1,
        )
        for number in range(20)
    ]
    rest = [
        Found(Peer(bytes(9) + number.to_bytes(11), place(30, number - 2**80)), b"", 1, path)
        for number, path in ((2**80 + number, int(number > 30)) for number in range(40))
    ]
    chosen = choose([*crowd, *rest], NEAREST, diverse=True)
    assert len(chosen) == NEAREST
    networks = Counter(network_of(each.peer.place) for each in chosen)
    assert max(networks.values()) <= OF_ONE_NETWORK
    assert sum(each.path for each in chosen) == len([each for each in rest if each.path])
    assert chosen[0] == crowd[0]
    # Where there are few networks, the nearest of them do.
    assert choose(crowd, NEAREST, diverse=True) == crowd
    assert choose(crowd, 5, diverse=False) == crowd[:5]
