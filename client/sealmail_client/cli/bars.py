"""Progress for a user at a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sealmail_client.progress import Report


class Bars:
    """Shows tasks as bars on a terminal's error stream."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)

    @contextmanager
    def task(self, label: str) -> Iterator[Report]:
        """Show one task as long as the context lasts."""
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as progress:
            shown = progress.add_task(label, total=1.0)
            yield lambda done: progress.update(shown, completed=done)
