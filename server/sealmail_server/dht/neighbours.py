"""The nodes that this one knows: the routing table of ``kademlia``, made safe against liars."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain

from kademlia.node import Node
from kademlia.routing import KBucket, RoutingTable

from sealmail_server.dht.datagrams import Peer, Place

# Nodes of one network in a bucket, and in the shortlist of a look-up: whoever rents a network
# has all of it, and would otherwise be most of our neighbours.
OF_ONE_NETWORK = 2
# With so many known no bucket is split any more, but the one that this node's own id is in.
MAX_KNOWN = 2048
# A datagram is lost now and then; a node that fails this often in a row is gone.
MAX_FAILURES = 3


def network_of(place: Place) -> str:
    """Return the network that an address is counted under: a /24, or a /48 of IPv6."""
    kept = 3 if place.ip.version == 4 else 6
    return place.ip.packed[:kept].hex()


def network_of_source(source: str) -> str:
    """Return the network of what limits by source count under; what is no address stays."""
    try:
        return network_of(Place.of(source.partition("/")[0], 0))
    except ValueError:
        return source


class Contact(Node):  # type: ignore[misc]  # kademlia has no types
    """A peer as the routing table of ``kademlia`` wants it."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(peer.id, str(peer.place.ip), peer.place.port)
        self.peer = peer


class Neighbours(RoutingTable):  # type: ignore[misc]  # kademlia has no types
    """Buckets of proven nodes. ``ping`` is told of the eldest of a bucket that has no room.

    A node keeps its address until it fails to answer there, so nobody takes its place by
    relaying its answers. With ``diverse`` one network cannot fill a bucket.
    """

    def __init__(
        self,
        own_id: bytes,
        ping: Callable[[Peer], Awaitable[object]],
        *,
        bucket_size: int = 20,
        diverse: bool = True,
    ) -> None:
        super().__init__(self, bucket_size, Node(own_id))
        self._ping = ping
        self._diverse = diverse
        self._failures: Counter[bytes] = Counter()

    async def call_ping(self, contact: Contact) -> None:
        """See whether the eldest node of a full bucket is still there."""
        await self._ping(contact.peer)

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self.buckets)

    def peers(self) -> list[Peer]:
        """Return every known node."""
        return [node.peer for bucket in self.buckets for node in bucket.get_nodes()]

    def enter(self, peer: Peer) -> Peer | None:
        """Take in a node that has just proven itself from its address.

        If it is known at another one and has not failed there, it stays known there, and that
        is returned: let it ``enter`` again once it is silent there.
        """
        if peer.id == self.node.id:
            return None
        held = self._held(peer.id)
        if held is not None and held.peer.place != peer.place and not self._failures[peer.id]:
            known: Peer = held.peer
            return known
        contact = Contact(peer)
        bucket = self.buckets[self.get_bucket_for(contact)]
        if self._diverse and _crowded(bucket, peer):
            return None
        if held is not None and held.peer.place != peer.place:
            self.remove_contact(held)
        del self._failures[peer.id]
        self.add_contact(contact)
        return None

    def failed(self, peer: Peer) -> None:
        """Note that a node did not answer; after some times it is forgotten."""
        held = self._held(peer.id)
        if held is None or held.peer.place != peer.place:
            return
        self._failures[peer.id] += 1
        if self._failures[peer.id] >= MAX_FAILURES:
            del self._failures[peer.id]
            self.remove_contact(held)

    def nearest(self, key: bytes, count: int, besides: Place | None = None) -> list[Peer]:
        """Return the known nodes nearest to ``key``, exactly."""
        wanted, found = int.from_bytes(key), list[Peer]()
        # All of one bucket are nearer than all of the next one, as buckets share no prefix.
        for bucket in sorted(self.buckets, key=lambda bucket: _least_distance(bucket, wanted)):
            peers = (node.peer for node in bucket.nodes.values() if node.peer.place != besides)
            found += sorted(peers, key=lambda peer: distance(peer.id, key))
            if len(found) >= count:
                break
        return found[:count]

    def add_contact(self, node: Contact) -> None:
        """Take a node in; where there are many, it waits for a place that becomes free."""
        bucket = self.buckets[self.get_bucket_for(node)]
        if len(self) < MAX_KNOWN or bucket.has_in_range(self.node):
            super().add_contact(node)
        elif not bucket.add_node(node):
            asyncio.ensure_future(self.call_ping(bucket.head()))  # noqa: RUF006 - as the base

    def split_bucket(self, index: int) -> None:
        """Split a bucket in two; an id on the border goes to the upper one, as it is sought there.

        ``kademlia`` itself leaves it in the lower one.
        """
        super().split_bucket(index)
        lower, upper = self.buckets[index : index + 2]
        border = lower.range[1].to_bytes(len(self.node.id))
        contact = lower.nodes.get(border) or lower.replacement_nodes.get(border)
        if contact is not None:
            lower.remove_node(contact)
            upper.add_node(contact)

    def _held(self, node_id: bytes) -> Contact | None:
        bucket = self.buckets[self.get_bucket_for(Node(node_id))]
        found: Contact | None = bucket[node_id]
        return found


def distance(one: bytes, other: bytes) -> int:
    """Return how far two ids or keys are apart."""
    return int.from_bytes(one) ^ int.from_bytes(other)


def _least_distance(bucket: KBucket, key: int) -> int:
    """Return how near to ``key`` an id of a bucket may be: of all have the same first bits."""
    low, end = (int(bound) for bound in bucket.range)
    bits = (end - low + 1).bit_length() - 1
    return ((key >> bits) ^ ((end - 1) >> bits)) << bits


def take_diverse(
    peers: Iterable[Peer], count: int, *, diverse: bool, besides: Iterable[str] = ()
) -> list[Peer]:
    """Return the first ``count`` of ``peers``, few of each network, ``besides`` counted too."""
    taken: list[Peer] = []
    networks = Counter(besides)
    for peer in peers:
        name = network_of(peer.place)
        if diverse and networks[name] >= OF_ONE_NETWORK:
            continue
        networks[name] += 1
        taken.append(peer)
        if len(taken) == count:
            break
    return taken


def _crowded(bucket: KBucket, peer: Peer) -> bool:
    """Tell whether others of the network are enough; who waits for a place will have one."""
    name = network_of(peer.place)
    others = chain(bucket.nodes.values(), bucket.replacement_nodes.values())
    same = [each for each in others if each.id != peer.id and network_of(each.peer.place) == name]
    return len(same) >= OF_ONE_NETWORK
