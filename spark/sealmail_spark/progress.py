"""A bar of progress for Spark Connect, where the session has none of its own."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol, TextIO

_WIDTH: Final = 50
# To the beginning of the line, and nothing behind it.
_ANEW: Final = "\r\x1b[K"


class Stage(Protocol):
    """What is told of a part of a query."""

    num_tasks: int
    num_completed_tasks: int


@dataclass(frozen=True, slots=True)
class Bar:
    """Shows on one line of a terminal how far a query is, and clears it at the end."""

    terminal: TextIO

    def __call__(
        self,
        stages: Iterable[Stage] | None,
        inflight_tasks: int,
        operation_id: str | None,
        done: bool,
    ) -> None:
        """Hear of progress, as a Spark session tells its handlers."""
        del operation_id
        known = list(stages or ())
        total = sum(stage.num_tasks for stage in known)
        ready = sum(stage.num_completed_tasks for stage in known)
        line = "" if done or not total else drawn(ready, inflight_tasks, total)
        self.terminal.write(_ANEW + line)
        self.terminal.flush()


def drawn(ready: int, running: int, total: int) -> str:
    """Return a bar as Spark draws it: tasks that are done, that run, and all."""
    told = f" ({ready} + {running}) / {total}]"
    room = _WIDTH - len(told)
    return f"[{'=' * ((room - 1) * ready // total) + '>':<{room}}{told}"
