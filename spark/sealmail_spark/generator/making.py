"""Making whole stores: sound blocks, faults among them, partners that differ, and the list."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from sealmail_spark.generator.entangled import seeded_values, sound_values
from sealmail_spark.generator.faults import Damage, Seeded, damage, seeded_faults
from sealmail_spark.generator.partners import Partners
from sealmail_spark.generator.town import Town
from sealmail_spark.generator.writing import copy_store, write_store, write_values
from sealmail_store import StoredEntry

# The audit's present comes after all that was made, and after what was made to expire.
_LATER = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Made:
    """A store that was made: where, of how many blocks, with which faults.

    ``values`` are what it keeps for the DHT.
    """

    directory: Path
    blocks: int
    seeded: tuple[Seeded, ...]
    values: int = 0


def make_store(
    directory: Path, blocks: int, *, faults: int = 0, seed: int = 0, now: datetime, values: int = 0
) -> Made:
    """Make a store of so many blocks and ``values`` of the DHT, and ``faults`` of each kind."""
    town = Town(Random(seed), now, blocks)  # noqa: S311 - invented mail is no secret
    written = write_store(directory, town.entries(), now + _LATER)
    kept = write_values(directory, sound_values(town, values)) if values else 0
    added = _add(directory, town, faults)
    return Made(directory, written + added.blocks, added.seeded, kept + added.values)


def add_faults(directory: Path, *, faults: int, seed: int = 1, now: datetime) -> Made:
    """Add faults of each kind to a store, and people whom they befall."""
    town = Town(Random(seed), now, 0)  # noqa: S311 - invented mail is no secret
    keys = [town.workshop.key(person, person.since) for person in town.people]
    written = write_store(directory, keys, now + _LATER)
    added = _add(directory, town, faults)
    return Made(directory, written + added.blocks, added.seeded, added.values)


def _add(directory: Path, town: Town, faults: int) -> Made:
    seeded: list[Seeded] = []
    damages: list[Damage] = []

    def entries() -> Iterator[StoredEntry]:
        for one, fault in seeded_faults(town, faults):
            seeded.append(one)
            damages.extend(fault.damage)
            yield from fault.entries

    written = write_store(directory, entries(), town.now + _LATER)
    damage(directory, damages)
    in_dht = list(seeded_values(town, faults))
    if in_dht:
        write_values(directory, (row for _, row in in_dht))
    return Made(directory, written, (*seeded, *(one for one, _ in in_dht)), len(in_dht))


def make_keys(directory: Path, keys: int, *, claims: int, now: datetime) -> Made:
    """Make a store of nothing but keys, and so many claims of different addresses by each."""
    town = Town(Random(0), now, 0)  # noqa: S311 - invented mail is no secret

    def entries() -> Iterator[StoredEntry]:
        for number in range(keys):
            person = town.person(number, user="owner")
            yield town.workshop.key(person, person.since)
            for place in range(claims):
                address = f"at{place}.{person.address}"
                yield town.workshop.claim(person, person.since, address=address)

    return Made(directory, write_store(directory, entries(), now + _LATER), ())


def make_pair(directory: Path, blocks: int, *, faults: int, seed: int, now: datetime) -> Made:
    """Make partners ``a`` and ``b``, equal but for ``faults`` of each kind that partners have."""
    return make_partners(directory, ("a", "b"), blocks, faults=faults, seed=seed, now=now)


def make_partners(
    directory: Path, names: Sequence[str], blocks: int, *, faults: int, seed: int, now: datetime
) -> Made:
    """Make any number of partners, equal but for faults of each kind in each direction."""
    town = Town(Random(seed), now, blocks)  # noqa: S311 - invented mail is no secret
    first, *others = (directory / name for name in names)
    write_store(first, town.entries(), now + _LATER)
    for other in others:
        copy_store(first, other)
    partners = Partners(town, names, now + _LATER)
    for _ in range(faults):
        partners.add_faults()
    for name, entries in partners.entries.items():
        write_store(directory / name, entries, now + _LATER)
    return Made(directory, blocks + partners.count, tuple(partners.seeded))
