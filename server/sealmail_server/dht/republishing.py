"""All that is kept is spread again and again: by some of its holders, each at its own moments."""

import asyncio
import logging
from collections.abc import Callable
from random import Random, SystemRandom

from sealmail_protocol.keys import BlockKey
from sealmail_server.dht.neighbours import distance
from sealmail_server.dht.node import DhtNode
from sealmail_store import StoreError

_log = logging.getLogger(__name__)

# Those nearest to a key, by what each knows, spread it in every round. One of them is honest and
# there, or some of the rest are: of twenty, three in a round.
ALWAYS = 3
SELDOM = 8


class Republisher:
    """Spreads what is kept here, once in ``every`` seconds or so; ``run`` works until cancelled.

    Chance keeps the holders of a value, and all nodes that were started together, apart.
    """

    def __init__(self, node: DhtNode, *, every: float, chance: Random | None = None) -> None:
        self._node = node
        self._every = every
        self._chance = chance or SystemRandom()

    async def run(self) -> None:
        """Begin at any moment of the first round."""
        await asyncio.sleep(self._every * self._chance.uniform(0.5, 1.0))
        while True:
            try:
                await self.round()
            except StoreError as error:
                _log.error("the values of the DHT could not be spread: %s", error)
            await asyncio.sleep(self._every * self._chance.uniform(0.75, 1.25))

    async def round(self) -> None:
        """Spread what it is up to this node to spread."""
        await self._node.spread_all(self.is_due)

    def is_due(self, key: BlockKey) -> bool:
        """Tell whether this node is to spread a key in this round."""
        own = distance(self._node.neighbourhood.key.id, key.raw)
        nearest = self._node.neighbourhood.neighbours.nearest(key.raw, ALWAYS)
        if len(nearest) < ALWAYS or own < distance(nearest[-1].id, key.raw):
            return True
        return self._chance.randrange(SELDOM) == 0


class Expiry:
    """Forgets what is too old, every ``every`` seconds, where ``may_delete`` says so."""

    def __init__(self, node: DhtNode, may_delete: Callable[[], bool], *, every: float) -> None:
        self._node = node
        self._may_delete = may_delete
        self._every = every

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await asyncio.sleep(self._every)
            try:
                if self._may_delete():
                    await self._node.holdings.expire()
            except StoreError as error:
                _log.error("the values of the DHT could not be looked after: %s", error)
