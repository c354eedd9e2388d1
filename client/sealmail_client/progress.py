"""How long work tells a watching user how far it is."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from sealmail_client.errors import ClientError
from sealmail_pow import Difficulty, Stamp, mint_off_loop

# Less work than this is done before a bar is drawn.
_WORTH_SHOWING_BITS = 28

Report = Callable[[float], None]


class Watcher(Protocol):
    """Shows tasks to a user."""

    def task(self, label: str, *, brief: bool = False) -> AbstractContextManager[Report]:
        """Show one task as long as the context lasts; it reports the share done, 0 to 1.

        It may be entered in any thread, and while others last. A ``brief`` one, or one that is
        part of another, need not be shown.
        """
        ...


class OutOfMemory(ClientError):
    """The search for a stamp took more memory than there is: close other programs, try again."""

    # A failure of the machine, like a full disk.
    exit_code = 5


class Nobody:
    """Watches nothing: for scripts and pipes."""

    @contextmanager
    def task(self, label: str, *, brief: bool = False) -> Iterator[Report]:
        """Take reports and drop them."""
        del label, brief
        yield lambda _done: None


NOBODY = Nobody()


async def mint_watched(
    data: bytes | bytearray, difficulty: Difficulty, label: str, watcher: Watcher
) -> Stamp:
    """Mint a stamp beside the event loop; cheap ones are a brief task."""
    brief = difficulty.bits < _WORTH_SHOWING_BITS
    try:
        with watcher.task(f"{label} ({difficulty})", brief=brief) as report:
            return await mint_off_loop(data, difficulty, progress=None if brief else report)
    except MemoryError as error:
        raise OutOfMemory(
            f"there is not enough memory to search a stamp of {difficulty}: "
            "close other programs and try again"
        ) from error
