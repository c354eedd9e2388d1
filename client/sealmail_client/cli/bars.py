"""Progress for a user at a terminal."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sealmail_client.progress import Report


class Bars:
    """Shows tasks as bars on a terminal's error stream, one below the other.

    They are gone when the last task ends, so that what is printed then has a line of its own.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._lock = threading.Lock()
        self._count = 0
        self._drawn = self._empty()

    @contextmanager
    def task(self, label: str, *, brief: bool = False) -> Iterator[Report]:
        """Show one task as long as the context lasts, unless it is brief."""
        if brief:
            yield lambda _done: None
            return
        with self._drawing() as drawn:
            bar = drawn.add_task(label, total=1.0)

            def report(done: float) -> None:
                # One from another thread may come after the end.
                with suppress(KeyError):
                    drawn.update(bar, completed=done)

            try:
                yield report
            finally:
                drawn.remove_task(bar)

    @contextmanager
    def _drawing(self) -> Iterator[Progress]:
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._drawn = self._empty()
                self._drawn.start()
            drawn = self._drawn
        try:
            yield drawn
        finally:
            with self._lock:
                self._count -= 1
                if self._count == 0:
                    drawn.stop()

    def _empty(self) -> Progress:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        return Progress(*columns, console=self._console, transient=True)
