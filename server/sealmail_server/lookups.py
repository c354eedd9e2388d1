"""TXT look-ups for clients: answers are remembered, and questions bounded in number."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from sealmail_net.txt_resolver import FAILURE_LIFE, LookupFailed, TxtAnswer, TxtSource
from sealmail_protocol.dns_records import lookup_name

# Names that are remembered; with the few records of honest ones they take some MiB.
MAX_NAMES = 10_000
# Questions under way: a slow name server must not collect tasks and sockets.
MAX_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class _Remembered:
    """An answer, or why there was none, and the moment at which it is asked for again."""

    answer: TxtAnswer | None
    until: float
    reason: str = ""


class Lookups:
    """Asks ``source`` for clients; moments are seconds of a steady clock.

    Who asks for a name that somebody asks for already waits for the same answer.
    """

    def __init__(self, source: TxtSource, steady_clock: Callable[[], float]) -> None:
        self._source = source
        self._steady_clock = steady_clock
        self._remembered: OrderedDict[str, _Remembered] = OrderedDict()
        self._under_way: dict[str, asyncio.Task[TxtAnswer]] = {}

    async def texts(self, name: str) -> tuple[str, ...]:
        """Return the texts under ``name``, none if there are none or it is no public name.

        ``LookupFailed`` if that cannot be told now.
        """
        try:
            name = lookup_name(name)
        except ValueError:
            return ()
        held = self._remembered.get(name)
        if held is not None and self._steady_clock() < held.until:
            if held.answer is None:
                raise LookupFailed(name, held.reason)
            return held.answer.texts
        return (await asyncio.shield(self._question(name))).texts

    def _question(self, name: str) -> "asyncio.Task[TxtAnswer]":
        question = self._under_way.get(name)
        if question is None:
            if len(self._under_way) >= MAX_AT_ONCE:
                raise LookupFailed(name, f"{MAX_AT_ONCE} questions are under way")
            question = asyncio.get_running_loop().create_task(self._ask(name))
            self._under_way[name] = question
            question.add_done_callback(lambda done: self._answered(name, done))
        return question

    async def _ask(self, name: str) -> TxtAnswer:
        try:
            answer = await self._source.ask(name)
        except LookupFailed as error:
            self._remember(name, _Remembered(None, self._in(FAILURE_LIFE), error.reason))
            raise
        self._remember(name, _Remembered(answer, self._in(answer.lifetime)))
        return answer

    def _in(self, seconds: float) -> float:
        return self._steady_clock() + seconds

    def _answered(self, name: str, done: "asyncio.Task[TxtAnswer]") -> None:
        del self._under_way[name]
        if not done.cancelled():
            # Taken note of, even if whoever asked has gone.
            done.exception()

    def _remember(self, name: str, held: _Remembered) -> None:
        self._remembered[name] = held
        self._remembered.move_to_end(name)
        if len(self._remembered) > MAX_NAMES:
            self._remembered.popitem(last=False)
