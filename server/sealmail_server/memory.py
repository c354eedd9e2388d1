"""Memory for large bodies and answers: one budget, of which each source has a part at most.

What is small is not counted: it is bounded by the number of connections.
"""

from collections import Counter

from sealmail_store import StoreError


class Crowded(StoreError):
    """A large body or answer finds no room in memory now; whoever wants it tries again later."""

    def __init__(self, source: str) -> None:
        super().__init__(f"no memory now for a large body or answer of {source}")
        self.source = source


class MemoryBudget:
    """How many bytes all connections together hold of what peers send and fetch slowly."""

    def __init__(self, whole: int, by_source: int) -> None:
        self.whole = whole
        self.by_source = by_source
        self.held = 0
        self._held_by: Counter[str] = Counter()

    def share(self, source: str) -> "MemoryShare":
        """Return what one connection from ``source`` may use; it holds nothing yet."""
        return MemoryShare(self, source)

    def take(self, source: str, size: int) -> bool:
        """Count ``size`` bytes as held by ``source``, or refuse."""
        if self.held + size > self.whole or self._held_by[source] + size > self.by_source:
            return False
        self.held += size
        self._held_by[source] += size
        return True

    def give_back(self, source: str, size: int) -> None:
        """Count ``size`` bytes out again."""
        self.held -= size
        self._held_by[source] -= size
        if self._held_by[source] <= 0:
            del self._held_by[source]


class MemoryShare:
    """What one connection holds of the budget."""

    def __init__(self, budget: MemoryBudget, source: str) -> None:
        self._budget = budget
        self._source = source
        self._taken = 0

    def take(self, size: int) -> bool:
        """Take so many bytes more, or none of them."""
        if not self._budget.take(self._source, size):
            return False
        self._taken += size
        return True

    def release(self) -> None:
        """Give back all that was taken; may be repeated."""
        if self._taken:
            self._budget.give_back(self._source, self._taken)
            self._taken = 0
