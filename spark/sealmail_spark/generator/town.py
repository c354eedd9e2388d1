"""A sound store's traffic: people with keys and claims, their mail, and what acknowledges it."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from random import Random

from sealmail_pow import Difficulty
from sealmail_protocol.addresses import Transport
from sealmail_spark.generator.people import KeyPair, Person, new_key
from sealmail_spark.generator.workshop import Workshop
from sealmail_store import StoredEntry

# Cheap, so that millions can be minted; a real store is mostly above.
PRICES = (12, 16, 16, 20)
_BLOCKS_A_PERSON = 500
_FEWEST_PEOPLE = 6
_MOST_PEOPLE = 2000
# Shares of all mail.
_TOKENED, _TO_TWO, _ACKNOWLEDGED, _LARGE = 0.2, 0.15, 0.6, 0.0005
_TRANSPORTS = (
    "server=a.example:8081",
    "server=b.example:8081,c.example:8081",
    "server=2gzyxa5ihm7nsggfxnu52rck2vv4rvmdlkiu3zzui5du4xyclen53wid.onion:8081",
    "server=mail.i2p:8081",
    "entangled",
)


class Town:
    """Invents people and their mail of the nine days before ``now``."""

    def __init__(self, rng: Random, now: datetime, blocks: int) -> None:
        self.rng = rng
        self.now = now
        self.workshop = Workshop(rng)
        self._blocks = blocks
        # No two towns have the same addresses, or their claims would be rivals.
        self._domain = f"town-{rng.randrange(1 << 32):08x}.example"
        count = max(_FEWEST_PEOPLE, min(_MOST_PEOPLE, blocks // _BLOCKS_A_PERSON))
        self.people = [self.person(number) for number in range(count)]

    def person(self, number: int, pair: KeyPair | None = None, user: str = "user") -> Person:
        """Return a person with a new key, or with the one given."""
        name, address = f"{user.title()} {number}", f"{user}{number}@{self._domain}"
        held = pair or new_key(f"{name} <{address}>")
        return Person(
            name=name,
            address=address,
            key_id=held.key_id,
            armored_key=held.armored_key,
            sign=held.sign,
            price=Difficulty(self.rng.choice(PRICES)),
            transport=Transport.parse(self.rng.choice(_TRANSPORTS)),
            since=self.moment(timedelta(days=6)),
        )

    def moment(self, within: timedelta = timedelta(days=9)) -> datetime:
        """Return some second of the time before now."""
        return self.now - timedelta(seconds=self.rng.randrange(60, int(within.total_seconds())))

    def entries(self) -> Iterator[StoredEntry]:
        """Yield exactly as many sound blocks as were asked for."""
        left = self._blocks
        for person in self.people:
            if left < 2:
                break
            yield self.workshop.key(person, person.since)
            yield self.workshop.claim(person, person.since)
            left -= 2
        while left > 0:
            mail = self.mail(left)
            yield from mail
            left -= len(mail)

    def mail(self, most: int) -> list[StoredEntry]:
        """Return a mail: data, word of it to one or two, maybe an acknowledgment."""
        if most == 1:
            return [self.workshop.acknowledgment(self.moment())]
        date = self.moment()
        pieces = min(self.rng.choice((1, 1, 1, 2)), most - 1)
        data = [self.workshop.data(date, self._size()) for _ in range(pieces)]
        keys = [entry.key for entry in data]
        two = self.rng.random() < _TO_TWO and most > pieces + 1
        readers = self.rng.sample(self.people, 2 if two else 1)
        found = data + [
            self.workshop.announcement(reader, date, keys, tokened=self.rng.random() < _TOKENED)
            for reader in readers
        ]
        if len(found) < most and self.rng.random() < _ACKNOWLEDGED:
            read = min(date + timedelta(hours=self.rng.randrange(48)), self.now)
            found.append(self.workshop.acknowledgment(read))
        return found

    def _size(self) -> int:
        if self.rng.random() < _LARGE:
            return self.rng.randrange(80_000, 800_000)
        return min(64_000, 200 + int(self.rng.lognormvariate(6.3, 0.9)))
