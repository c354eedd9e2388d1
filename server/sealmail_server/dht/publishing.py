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


# Efforts at a time, and how many of them for strangers: one takes up to a minute or two.
_AT_ONCE = 8
_OF_STRANGERS = 4


@dataclass(slots=True)
class _Effort:
    """How often a key could not be spread, and when it is tried again."""

    of_stranger: bool
    failures: int = 0
    retry_at: float = 0.0


class Publisher:
    """Tries each key again after ``pause`` seconds, then after twice that, at last ``longest``.

    Several keys are tried at a time, those of users who logged in first.
    """

    def __init__(self, node: DhtNode, *, pause: float, longest: float) -> None:
        self._node = node
        self._pause = pause
        self._longest = longest
        self._efforts: dict[BlockKey, _Effort] = {}
        self._under_way: dict[BlockKey, _Effort] = {}
        self._woken = asyncio.Event()

    def __len__(self) -> int:
        return len(self._efforts)

    def post(self, keys: Iterable[BlockKey], *, of_stranger: bool = False) -> None:
        """Have keys spread at once: something new was posted under them."""
        for key in keys:
            known = self._efforts.get(key)
            # A stranger's mail for a user's key makes it no stranger's.
            strange = of_stranger and (known is None or known.of_stranger)
            self._efforts[key] = _Effort(strange)
        self._woken.set()

    def try_all(self) -> None:
        """Have all keys spread at once: there are nodes to spread them to."""
        for effort in self._efforts.values():
            effort.failures, effort.retry_at = 0, 0.0
        self._woken.set()

    async def run(self) -> None:
        """Spread what is due, until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                self._woken.clear()
                for key, effort in self._due(loop.time()):
                    self._under_way[key] = effort
                    group.create_task(self._try(key, effort))
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(self._next_at(loop.time())):
                        await self._woken.wait()

    def _due(self, now: float) -> list[tuple[BlockKey, _Effort]]:
        """Return what is to be tried now: users' keys first, and not only strangers'."""
        strangers = sum(effort.of_stranger for effort in self._under_way.values())
        waiting = [
            (key, effort)
            for key, effort in self._efforts.items()
            if effort.retry_at <= now and key not in self._under_way
        ]
        users = [each for each in waiting if not each[1].of_stranger]
        others = [each for each in waiting if each[1].of_stranger][: _OF_STRANGERS - strangers]
        return (users + others)[: _AT_ONCE - len(self._under_way)]

    def _next_at(self, now: float) -> float | None:
        """Return when more is due; what is due and waits for others is tried when one ends."""
        return min(
            (at for each in self._efforts.values() if (at := each.retry_at) > now), default=None
        )

    async def _try(self, key: BlockKey, effort: _Effort) -> None:
        done = False
        try:
            held = await self._node.holdings.listed(key)
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
        del self._under_way[key]
        self._woken.set()
