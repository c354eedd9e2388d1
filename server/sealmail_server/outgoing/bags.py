"""What waits to be delivered, in memory: a bag for all that one user has for one target.

The rows themselves are durable in the store's queue; here is only who goes next. Data leaves a
bag before everything else, and what names data stays in it until that data has gone.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.keys import BlockKey


@dataclass(frozen=True, slots=True)
class Waiting:
    """One row of the queue: a block for one target.

    It may go from ``start`` on and is given up at ``expires``; ``due`` is when to try (again).
    """

    number: int
    digest: bytes
    key: BlockKey
    type: BlockType
    owner: str
    target: Transport
    line: int
    entry: int
    start: datetime
    expires: datetime
    due: datetime
    attempts: int = 0
    code: str = "-"


class Bag:
    """The rows of one user for one target. A row is in hand while it is being delivered."""

    def __init__(self, owner: str, target: Transport) -> None:
        self.owner = owner
        self.target = target
        self.workers = 0
        # Servers whose names turned out to stand for somebody's own network.
        self.forbidden: set[ServerAddress] = set()
        # Who has just failed with a block of this bag: the others are tried first.
        self.last_choice: ServerAddress | None = None
        # Whether a server of the target has been reached since the bag was empty.
        self.proven = False
        self.stalled = False
        # Set when something has come or changed: a worker may be lingering for it.
        self.news = asyncio.Event()
        self._rows: dict[int, Waiting] = {}
        self._in_hand: set[int] = set()
        self._ready: list[tuple[bool, int]] = []
        self._later: list[tuple[datetime, int]] = []
        self._behind: dict[int, None] = {}
        self._data: Counter[BlockKey] = Counter()

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> Iterator[Waiting]:
        """Walk all rows, in hand or not."""
        return iter(tuple(self._rows.values()))

    def add(self, row: Waiting) -> None:
        """Put a row in."""
        self._rows[row.number] = row
        if row.type is BlockType.DATA:
            self._data[row.key] += 1
        self._place(row)

    def take(self, now: datetime) -> Waiting | None:
        """Take the next row that is due in hand: data first, else the oldest."""
        self._ripen(now)
        while self._ready:
            _, number = heapq.heappop(self._ready)
            row = self._rows.get(number)
            if row is not None and number not in self._in_hand and row.due <= now:
                self._in_hand.add(number)
                return row
        return None

    def put_back(self, row: Waiting) -> None:
        """Put a row that was in hand back, changed or not; one that is gone stays gone."""
        self._in_hand.discard(row.number)
        if row.number in self._rows:
            self._rows[row.number] = row
            self._place(row)

    def release(self, number: int) -> None:
        """Put a row back as it is, if it is still in hand."""
        if number in self._in_hand:
            self.put_back(self._rows[number])

    def put_behind(self, row: Waiting, names: Collection[BlockKey]) -> bool:
        """Put a row back until data that it names has gone; ``False`` if none is here."""
        if not any(key in self._data for key in names):
            return False
        self._in_hand.discard(row.number)
        self._behind[row.number] = None
        return True

    def remove(self, number: int) -> Waiting | None:
        """Take a row out for good; what waited behind it may go."""
        row = self._rows.pop(number, None)
        if row is None:
            return None
        self._in_hand.discard(number)
        self._behind.pop(number, None)
        if row.type is BlockType.DATA:
            self._data[row.key] -= 1
            if not self._data[row.key]:
                del self._data[row.key]
            for waiting in self._behind:
                self._place(self._rows[waiting])
            self._behind.clear()
        return row

    def hasten(self, now: datetime) -> None:
        """Let every row be due that was put off; what must not go yet stays."""
        for row in self.rows():
            if row.due > now and row.start <= now and row.number not in self._in_hand:
                self.put_back(replace(row, due=now))

    def ready(self, now: datetime) -> int:
        """Return about how many rows could go now; 0 if none could."""
        self._ripen(now)
        return len(self._ready)

    def next_due(self) -> datetime | None:
        """Return when a row that was put off is due."""
        return self._later[0][0] if self._later else None

    def _place(self, row: Waiting) -> None:
        heapq.heappush(self._later, (row.due, row.number))

    def _ripen(self, now: datetime) -> None:
        while self._later and self._later[0][0] <= now:
            _, number = heapq.heappop(self._later)
            row = self._rows.get(number)
            if row is not None and number not in self._in_hand and number not in self._behind:
                heapq.heappush(self._ready, (row.type is not BlockType.DATA, number))


class Board:
    """All bags, and the rows in them by number, digest and user."""

    def __init__(self) -> None:
        self.bags: dict[tuple[str, Transport], Bag] = {}
        self._places: dict[int, Bag] = {}
        self._by_digest: dict[bytes, set[int]] = {}
        self._by_owner: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._places)

    def rows_of(self, owner: str) -> int:
        """Return how many rows a user has waiting."""
        return self._by_owner[owner]

    def add(self, row: Waiting) -> Bag:
        """Put a row into its bag, a new one if need be; one that is there already stays."""
        known = self._places.get(row.number)
        if known is not None:
            return known
        place = (row.owner, row.target)
        bag = self.bags.get(place)
        if bag is None:
            bag = self.bags[place] = Bag(row.owner, row.target)
        bag.add(row)
        self._places[row.number] = bag
        self._by_digest.setdefault(row.digest, set()).add(row.number)
        self._by_owner[row.owner] += 1
        return bag

    def remove(self, number: int) -> Waiting | None:
        """Take a row out for good."""
        bag = self._places.pop(number, None)
        row = bag.remove(number) if bag else None
        if bag is None or row is None:
            return None
        if not len(bag) and not bag.workers:
            self.bags.pop((bag.owner, bag.target), None)
        alike = self._by_digest[row.digest]
        alike.discard(number)
        if not alike:
            del self._by_digest[row.digest]
        self._by_owner[row.owner] -= 1
        if not self._by_owner[row.owner]:
            del self._by_owner[row.owner]
        return row

    def bag_of(self, number: int) -> Bag | None:
        """Return the bag a row is in."""
        return self._places.get(number)

    def about(self, digest: bytes) -> tuple[Bag, ...]:
        """Return the bags that hold rows of one block."""
        return tuple({self._places[number]: None for number in self._by_digest.get(digest, ())})

    def tidy(self, bag: Bag) -> None:
        """Forget a bag that is empty and that nobody works on."""
        if not len(bag) and not bag.workers:
            self.bags.pop((bag.owner, bag.target), None)
