"""What users posted is spread until others keep it, or until it is beyond its age."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from sealmail_protocol.keys import BlockKey
from sealmail_server.dht.node import DhtNode
from sealmail_store import StoreError

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Effort:
    """How often a key could not be spread, and when it is tried again."""

    failures: int = 0
    retry_at: float = 0.0


class Publisher:
    """Tries each key again after ``pause`` seconds, then after twice that, at last ``longest``."""

    def __init__(self, node: DhtNode, *, pause: float, longest: float) -> None:
        self._node = node
        self._pause = pause
        self._longest = longest
        self._efforts: dict[BlockKey, _Effort] = {}
        self._woken = asyncio.Event()

    def __len__(self) -> int:
        return len(self._efforts)

    def post(self, keys: Iterable[BlockKey]) -> None:
        """Have keys spread at once: something was posted under them."""
        self._efforts.update((key, _Effort()) for key in keys)
        self._woken.set()

    def try_all(self) -> None:
        """Have all keys spread at once: there are nodes to spread them to."""
        self.post(tuple(self._efforts))

    async def run(self) -> None:
        """Spread what is due, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._woken.clear()
            for key, effort in tuple(self._efforts.items()):
                if effort.retry_at <= loop.time():
                    await self._try(key, effort)
            next_at = min((each.retry_at for each in self._efforts.values()), default=None)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(next_at):
                    await self._woken.wait()

    async def _try(self, key: BlockKey, effort: _Effort) -> None:
        done = False
        try:
            held = await self._node.holdings.under(key)
            done = not held or (await self._node.spread(key)).enough
        except StoreError as error:
            _log.error("a value could not be spread: %s", error)
        except Exception:  # one value must not keep the others from being spread
            _log.exception("the value under %s could not be spread", key)
        if done and self._efforts.get(key) is effort:
            del self._efforts[key]
        pause = min(self._pause * 2**effort.failures, self._longest)
        effort.failures += 1
        effort.retry_at = asyncio.get_running_loop().time() + pause
