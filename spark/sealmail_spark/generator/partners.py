"""Partners that should be equal and are not: each lacks what another has, of every type."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from sealmail_protocol.keys import AckHash
from sealmail_spark.generator.faults import HEALTHY_SIZE, Seeded
from sealmail_spark.generator.town import Town
from sealmail_store import StoredEntry

# How old what a partner lacks is when the audit looks: each type has an age of its own.
ACKNOWLEDGMENT_AGE: Final = timedelta(minutes=30)
CLAIM_AGE: Final = timedelta(hours=5)
KEY_AGE: Final = timedelta(days=3, hours=1)
MAIL_AGE: Final = timedelta(days=8, hours=1)
# Two versions of an entry, and two claims of one address, are of different moments.
_APART: Final = timedelta(minutes=20)

Partial = dict[str, list[StoredEntry]]


class Partners:
    """Gathers by store what only some partners have, and what an audit has to say of it."""

    def __init__(self, town: Town, names: Sequence[str], seen: datetime) -> None:
        self._town = town
        self._names = names
        self._seen = seen
        self.entries: Partial = defaultdict(list)
        self.seeded: list[Seeded] = []

    def add_faults(self) -> None:
        """Add one fault of each kind in each direction, and an address that changes its key."""
        claimed = f"moved{self._town.rng.randrange(1 << 40)}@example.net"
        for place, holder in enumerate(self._names):
            for entry in self._one_sided(claimed, place):
                self._keep_at(holder, entry)
        last = self.entries[self._names[-1]]
        newest = next(entry for entry in reversed(last) if entry.type == "address-claim")
        self._tell("keys", "changed-key", newest, self._names[-1])
        for behind in self._names:
            for before, after in self._versions():
                for name in self._names:
                    self.entries[name].append(before if name == behind else after)
                self._tell("replicas", "differs", after, behind)

    def _keep_at(self, holder: str, entry: StoredEntry) -> None:
        self.entries[holder].append(entry)
        for other in self._names:
            if other != holder:
                self._tell("replicas", "missing-at-partner", entry, other)

    def _one_sided(self, claimed: str, place: int) -> Iterator[StoredEntry]:
        """Yield one entry of each type; whoever claims the address is another one each time."""
        workshop, seen = self._town.workshop, self._seen
        yield workshop.acknowledgment(seen - ACKNOWLEDGMENT_AGE)
        owner = self._town.people[place]
        yield workshop.claim(owner, seen - CLAIM_AGE + place * _APART, address=claimed)
        newcomer = self._town.person(self._town.rng.randrange(1 << 40), user="newcomer")
        yield workshop.key(newcomer, seen - KEY_AGE)
        data = workshop.data(seen - MAIL_AGE, HEALTHY_SIZE)
        yield data
        yield workshop.announcement(owner, data.date, [data.key])

    def _versions(self) -> Iterator[tuple[StoredEntry, StoredEntry]]:
        """Yield entries of two versions, the second of which stays."""
        workshop, town = self._town.workshop, self._town
        date, secret = town.moment(timedelta(days=8)), AckHash(town.rng.randbytes(20))
        first = workshop.acknowledgment(date, secret)
        yield first, workshop.acknowledgment(date + _APART, secret)
        owner, address = town.people[0], f"renewed{town.rng.randrange(1 << 40)}@example.net"
        claim = workshop.claim(owner, date, address=address)
        yield claim, workshop.claim(owner, date + _APART, address=address)

    def _tell(self, job: str, code: str, entry: StoredEntry, store: str) -> None:
        self.seeded.append(Seeded(job, code, entry.type, entry.key.hex, store=store))

    @property
    def count(self) -> int:
        """Return how many entries were added, each counted once."""
        every = chain.from_iterable(self.entries.values())
        return len({(entry.type, entry.key, entry.identity) for entry in every})
