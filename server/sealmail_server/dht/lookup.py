"""Walking to the nodes nearest to a key, along paths that share no node.

A liar on one path leads that path astray and no other; so what honest nodes hold is found as
long as one path meets only a few liars.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sealmail_server.dht.datagrams import Peer
from sealmail_server.dht.neighbours import distance, network_of, take_diverse

PATHS = 3
# Nodes of one path asked at once; doubled while nobody answers, so that made-up contacts
# cost little time.
WIDTH = 3
MOST_WIDTH = 24
# Nodes that one path asks in all: nobody leads it on for ever.
MAX_ASKED = 120
# And it goes on for no longer than this, since those who answer late cost time.
WALK_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Found:
    """A node that answered on a ``path``, with the token it gave; ``hops`` is how far it was."""

    peer: Peer
    token: bytes = field(repr=False)
    hops: int
    path: int = 0


# Asks a node for the nodes it knows nearest to a key; ``None`` if it does not answer.
AskNearest = Callable[[Peer, bytes], Awaitable[tuple[bytes, Sequence[Peer]] | None]]


async def walk(
    ask: AskNearest,
    key: bytes,
    start: Sequence[Peer],
    *,
    nearest: int,
    diverse: bool,
    paths: int = PATHS,
) -> list[Found]:
    """Return the nodes that answered, the nearest ``nearest`` of each path, nearest first."""
    taken: set[bytes] = set()
    walks = [
        _Path(number, ask, key, start[number::paths], taken, nearest, diverse)
        for number in range(min(paths, max(1, len(start))))
    ]
    ends = await asyncio.gather(*(path.walk() for path in walks))
    found = [each for end in ends for each in end]
    return sorted(found, key=lambda each: distance(each.peer.id, key))


def choose(found: Sequence[Found], count: int, *, diverse: bool) -> list[Found]:
    """Return who is to keep a value, of nodes in the order of nearness: few of one network.

    Each path gives its part, so that whoever leads one astray does not name all of them; if
    there are too few networks, the others of theirs follow.
    """
    paths = Counter[int]()
    part = count // max(1, len({each.path for each in found}))
    first: list[Found] = []
    later: list[Found] = []
    for each in found:
        (first if paths[each.path] < part else later).append(each)
        paths[each.path] += 1
    by_peer = {each.peer: each for each in (*first, *later)}
    chosen = take_diverse(by_peer, count, diverse=diverse)
    rest = [peer for peer in by_peer if peer not in set(chosen)]
    kept = {*chosen, *rest[: count - len(chosen)]}
    return [each for each in found if each.peer in kept]


class _Path:
    """One path; ``taken`` are the nodes that any path has asked."""

    def __init__(
        self,
        number: int,
        ask: AskNearest,
        key: bytes,
        start: Sequence[Peer],
        taken: set[bytes],
        nearest: int,
        diverse: bool,
    ) -> None:
        self._number = number
        self._ask = ask
        self._key = key
        self._taken = taken
        self._nearest = nearest
        self._diverse = diverse
        self._known: dict[bytes, tuple[Peer, int]] = {peer.id: (peer, 1) for peer in start}
        self._found: dict[bytes, Found] = {}
        self._silent: list[str] = []

    async def walk(self) -> list[Found]:
        with suppress(TimeoutError):
            async with asyncio.timeout(WALK_SECONDS):
                await self._go()
        return sorted(self._found.values(), key=self._how_far)[: self._nearest]

    async def _go(self) -> None:
        width, asked = WIDTH, 0
        while asked < MAX_ASKED and (turn := self._next(width)):
            asked += len(turn)
            self._taken.update(peer.id for peer in turn)
            answers = await asyncio.gather(*(self._ask(peer, self._key) for peer in turn))
            for peer, answer in zip(turn, answers, strict=True):
                self._note(peer, answer)
            width = WIDTH if any(answers) else min(2 * width, MOST_WIDTH)

    def _next(self, width: int) -> list[Peer]:
        """Return whom to ask: of the nearest, those that nobody has asked."""
        mine = (
            peer
            for peer, _ in self._known.values()
            if peer.id in self._found or peer.id not in self._taken
        )
        ordered = sorted(mine, key=lambda peer: distance(peer.id, self._key))
        # Who names many of a network that is no node's has us send little there.
        near = take_diverse(ordered, self._nearest, diverse=self._diverse, besides=self._silent)
        return [peer for peer in near if peer.id not in self._taken][:width]

    def _note(self, peer: Peer, answer: tuple[bytes, Sequence[Peer]] | None) -> None:
        _, hops = self._known[peer.id]
        if answer is None:
            del self._known[peer.id]
            self._silent.append(network_of(peer.place))
            return
        token, peers = answer
        self._found[peer.id] = Found(peer, token, hops, self._number)
        for each in peers:
            self._known.setdefault(each.id, (each, hops + 1))

    def _how_far(self, found: Found) -> int:
        return distance(found.peer.id, self._key)
