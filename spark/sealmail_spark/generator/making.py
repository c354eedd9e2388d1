"""Making whole stores: sound blocks, faults among them, partners that differ, and the list."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from sealmail_spark.generator.faults import Damage, Seeded, damage, seeded_faults
from sealmail_spark.generator.town import Town
from sealmail_spark.generator.writing import write_store
from sealmail_store import StoredEntry


@dataclass(frozen=True, slots=True)
class Made:
    """A store that was made: where, of how many blocks, with which faults."""

    directory: Path
    blocks: int
    seeded: tuple[Seeded, ...]


def make_store(
    directory: Path, blocks: int, *, faults: int = 0, seed: int = 0, now: datetime
) -> Made:
    """Make a store of so many blocks, and ``faults`` of each kind beside them.

    The audit's present will be an hour after ``now``, when all that was made is long written.
    """
    rng = Random(seed)  # noqa: S311 - invented mail is no secret
    town = Town(rng, now, blocks)
    seeded: list[Seeded] = []
    damages: list[Damage] = []

    def entries() -> Iterator[StoredEntry]:
        yield from town.entries()
        for one, fault in seeded_faults(town, faults):
            seeded.append(one)
            damages.extend(fault.damage)
            yield from fault.entries

    written = write_store(directory, entries(), now + timedelta(hours=1))
    damage(directory, damages)
    return Made(directory, written, tuple(seeded))
