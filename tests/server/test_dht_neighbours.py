"""The routing table: who gets in, who stays, and how few of one network."""

import asyncio
import secrets
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealmail_server.dht import neighbours
from sealmail_server.dht.datagrams import Peer, Place
from sealmail_server.dht.neighbours import (
    MAX_FAILURES,
    OF_ONE_NETWORK,
    Neighbours,
    distance,
    network_of,
    take_diverse,
)


async def nobody(_: Peer) -> None:
    """Stand for a PING that nobody answers."""


def peer(host: str, port: int = 8081) -> Peer:
    """Return a node with a new id."""
    return Peer(secrets.token_bytes(20), Place.of(host, port))


def test_one_network_cannot_fill_a_bucket() -> None:
    """Two of a /24 or a /48 enter each bucket, whatever others there are."""

    async def scenario() -> None:
        table = Neighbours(bytes(20), nobody)
        for number in range(200):
            table.enter(peer(f"198.51.100.{number}"))
            table.enter(peer(f"2001:db8:1:{number:x}::1"))
        assert len(table) <= 2 * OF_ONE_NETWORK * len(table.buckets)
        for number in range(100):
            table.enter(peer(f"198.{number}.100.1"))
        networks = {network_of(each.place) for each in table.peers()}
        assert len(networks) > 20

    asyncio.run(scenario())


def test_one_network_does_not_wait_to_fill_a_bucket() -> None:
    """When all others fail, those that take their places are not of one /24."""

    async def scenario() -> None:
        table = Neighbours(bytes(20), nobody)
        for number in range(600):
            table.enter(peer(f"20.{number // 250}.{number % 250}.1"))
        for number in range(600):
            table.enter(peer(f"198.51.100.{number % 250}"))
        of_crowd = network_of(Place.of("198.51.100.1", 1))
        for each in table.peers():
            for _ in range(MAX_FAILURES if network_of(each.place) != of_crowd else 0):
                table.failed(each)
        for bucket in table.buckets:
            crowd = [each for each in bucket.get_nodes() if each.ip.startswith("198.51.100.")]
            assert len(crowd) <= OF_ONE_NETWORK

    asyncio.run(scenario())


def test_the_nearest_are_exactly_the_nearest() -> None:
    """Over all buckets, without the one who asks."""

    async def scenario() -> None:
        table = Neighbours(secrets.token_bytes(20), nobody, diverse=False)
        for number in range(300):
            table.enter(peer("127.0.0.1", number + 1))
        key, known = secrets.token_bytes(20), table.peers()
        ordered = sorted(known, key=lambda each: distance(each.id, key))
        assert table.nearest(key, 20) == ordered[:20]
        assert table.nearest(key, 20, besides=ordered[0].place) == ordered[1:21]

    asyncio.run(scenario())


@settings(max_examples=20)
@given(st.integers(0, 120), st.randoms(use_true_random=False))
def test_the_nearest_are_found_bucket_by_bucket(count: int, chance: Random) -> None:
    """Wherever the own id is, and however the ids crowd around it."""

    async def scenario() -> None:
        own = chance.randbytes(20)
        table = Neighbours(own, nobody, diverse=False, bucket_size=4)
        for number in range(count):
            shared = chance.randrange(20)
            node_id = own[:shared] + chance.randbytes(20 - shared)
            table.enter(Peer(node_id, Place.of("127.0.0.1", number + 1)))
        for key in (own, chance.randbytes(20)):
            known = sorted(table.peers(), key=lambda each: distance(each.id, key))
            assert table.nearest(key, 7) == known[:7]

    asyncio.run(scenario())


def test_an_id_on_the_border_of_two_buckets_is_found() -> None:
    """It is in the bucket in which it is sought, and nearest to itself."""

    async def scenario() -> None:
        table = Neighbours(bytes(20), nobody, diverse=False, bucket_size=2)
        crowd = [
            Peer(number.to_bytes(20), Place.of("127.0.0.1", number)) for number in range(1, 9)
        ]
        for each in crowd:
            table.enter(each)
        for each in table.peers():
            assert table.nearest(each.id, 1) == [each]
            table.failed(each)
            assert table.enter(Peer(each.id, Place.of("127.0.0.2", 1))) is None
        assert {str(each.place.ip) for each in table.peers()} == {"127.0.0.2"}

    asyncio.run(scenario())


def test_a_table_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many are known only the bucket of the own id is split."""
    monkeypatch.setattr(neighbours, "MAX_KNOWN", 100)

    async def scenario() -> None:
        table = Neighbours(bytes(20), nobody, diverse=False)
        for number in range(3000):
            table.enter(peer("127.0.0.1", number + 1))
        assert 100 < len(table) < 400
        near = [Peer(bytes(9) + secrets.token_bytes(11), Place.of("::1", 1 + n)) for n in range(9)]
        for each in near:
            table.enter(each)
        assert set(near) <= set(table.nearest(bytes(20), 20))

    asyncio.run(scenario())


def test_a_node_keeps_its_address_until_it_fails_there() -> None:
    """So whoever relays its answers does not get its place; silence ends it."""

    async def scenario() -> None:
        table = Neighbours(bytes(20), nobody)
        first = peer("198.51.100.1")
        second = Peer(first.id, Place.of("203.0.113.1", 8081))
        table.enter(first)
        assert table.enter(second) == first
        assert table.peers() == [first]
        table.failed(first)
        assert table.enter(second) is None
        for _ in range(MAX_FAILURES):
            assert table.peers() == [second]
            table.failed(second)
        assert len(table) == 0
        own = Peer(bytes(20), Place.of("198.51.100.2", 8081))
        table.enter(own)
        assert len(table) == 0

    asyncio.run(scenario())


def test_a_shortlist_takes_few_of_each_network() -> None:
    """In the order they come."""
    crowd = [peer(f"198.51.100.{number}") for number in range(9)]
    others = [peer(f"198.51.{number}.1") for number in range(9)]
    assert take_diverse([*crowd, *others], 5, diverse=True) == [*crowd[:2], *others[:3]]
    assert take_diverse(crowd, 5, diverse=False) == crowd[:5]
    one = [network_of(crowd[0].place)]
    assert take_diverse([*crowd, *others], 5, diverse=True, besides=one) == [crowd[0], *others[:4]]
