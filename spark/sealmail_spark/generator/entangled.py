"""What a node keeps for the DHT, invented: sound values, and one fault of each kind in them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Final

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_spark.demands import DHT
from sealmail_spark.generator.faults import Seeded
from sealmail_spark.generator.town import Town
from sealmail_spark.generator.workshop import some_key
from sealmail_store import DhtRow, StoredEntry

# What the DHT asks for mail, data and acknowledgments.
PRICE: Final = BLOCK_POLICY[BlockType.DATA].dht_stamp
_SIZE: Final = 900
# More than the DHT takes, and far less than a server does.
_TOO_LARGE: Final = 70_000
_NEXT_CLAIM: Final = b"NextClaim\r\n"


def sound_values(town: Town, count: int) -> Iterator[DhtRow]:
    """Yield so many values of all types."""
    for number in range(count):
        yield _SOUND[number % len(_SOUND)](town)


def _key(town: Town) -> DhtRow:
    person = town.person(town.rng.randrange(1 << 40), user="dweller")
    return value(town.workshop.key(person, person.since))


def _claim(town: Town) -> DhtRow:
    person = town.rng.choice(town.people)
    claim = town.workshop.claim(person, town.moment(), address=_address(town))
    return value(claim, town.workshop.key(person, person.since))


def _mail(town: Town) -> DhtRow:
    reader, date = town.rng.choice(town.people), town.moment()
    return value(town.workshop.announcement(reader, date, [some_key(town.rng)], price=PRICE))


def _acknowledgment(town: Town) -> DhtRow:
    return value(town.workshop.acknowledgment(town.moment(), price=PRICE))


def _data(town: Town) -> DhtRow:
    return value(town.workshop.data(town.moment(), _SIZE, price=PRICE))


_SOUND: Final = (_key, _claim, _mail, _acknowledgment, _data)


def value(entry: StoredEntry, certificate: StoredEntry | None = None) -> DhtRow:
    """Return a block as a value of the DHT; a claim with the key that signed it."""
    data = entry.data.content if entry.data else b""
    if not isinstance(data, bytes):
        raise TypeError("the bytes of a value are at hand")
    carried = _NEXT_CLAIM + certificate.header if certificate else b""
    return DhtRow(
        key=entry.key,
        type=entry.type,
        identity=entry.identity,
        digest=entry.digest,
        date=entry.date,
        until=entry.date + BLOCK_POLICY[BlockType(entry.type)].max_age,
        stamp_bits=entry.stamp_bits,
        revoked=entry.revoked,
        distance=entry.key.raw,
        source=entry.source,
        ours=False,
        body=entry.header + data + carried,
    )


def _weak_stamp(town: Town) -> DhtRow:
    """Pay what a server asks for, and not what the DHT does."""
    cheap = town.workshop.acknowledgment(town.moment())
    return value(cheap) if cheap.stamp_bits < PRICE.bits else _weak_stamp(town)


def _overstated_stamp(town: Town) -> DhtRow:
    sound = _acknowledgment(town)
    return replace(sound, stamp_bits=sound.stamp_bits + 20)


def _too_large(town: Town) -> DhtRow:
    return value(town.workshop.data(town.moment(), _TOO_LARGE, price=PRICE))


def _wrong_key(town: Town) -> DhtRow:
    raw = town.rng.randbytes(_SIZE)
    return value(town.workshop.data_of(town.moment(), raw, some_key(town.rng), price=PRICE))


def _future_date(town: Town) -> DhtRow:
    ahead = town.now + timedelta(hours=30)
    return value(town.workshop.acknowledgment(ahead, price=PRICE))


def _outlived(town: Town) -> DhtRow:
    old = town.now - timedelta(days=12)
    return value(town.workshop.acknowledgment(old, price=PRICE))


def _malformed(town: Town) -> DhtRow:
    """Let a claim come without the key that signed it."""
    person = town.rng.choice(town.people)
    return value(town.workshop.claim(person, town.moment(), address=_address(town)))


def _bad_signature(town: Town) -> DhtRow:
    owner, forger = town.rng.sample(town.people, 2)
    claim = town.workshop.claim(owner, town.moment(), address=_address(town), by=forger)
    return value(claim, town.workshop.key(owner, owner.since))


def _address(town: Town) -> str:
    return f"dweller{town.rng.randrange(1 << 40)}@example.net"


# By code: all are for the job ``store``.
VALUE_FAULTS: Final[dict[str, Callable[[Town], DhtRow]]] = {
    "malformed": _malformed,
    "wrong-key": _wrong_key,
    "weak-stamp": _weak_stamp,
    "overstated-stamp": _overstated_stamp,
    "too-large": _too_large,
    "future-date": _future_date,
    "outlived": _outlived,
    "bad-signature": _bad_signature,
}


def seeded_values(town: Town, each: int) -> Iterator[tuple[Seeded, DhtRow]]:
    """Yield ``each`` faulty values of every kind."""
    for code, make in VALUE_FAULTS.items():
        for _ in range(each):
            row = make(town)
            yield Seeded("store", code, row.type, row.key.hex, DHT), row
