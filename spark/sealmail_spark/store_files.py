"""Store directories as files: which there are, how their keys are shared out, and their rows.

A store of a later schema is read as long as it still has the columns that audits need.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sealmail_spark import dht_rows
from sealmail_spark.bounds import LAST_MOMENT
from sealmail_spark.demands import DHT, IN_TRANSIT, SERVER
from sealmail_spark.store_index import (
    INDEX_NAME,
    StoreIndex,
    UnreadableStore,
    open_index,
)

# Stands for a column that is not read.
UNREAD: Final = ""
# Of what is no column of a row: what stands in its place. The announcement of the key that signed
# a claim is another row of the same store.
_EXPRESSIONS: Final = dict.fromkeys((UNREAD, "store", "seen", "held"), "NULL") | {
    "certificate": "CASE WHEN type = 'address-claim' THEN (SELECT k.header FROM entries k"
    " WHERE k.type = 'key-announcement' AND k.key = e.identity AND k.identity = x'') END"
}
# A data directory of sealmaild holds its store one level down, a directory of many a level more.
_DEEPEST = 3
_KEY_SPACE = 1 << 160
_KEY_BYTES = 20
_MAIL: Final = "message-announcement"


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """One store: the name that findings give it, and its directory."""

    name: str
    directory: Path


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The entries of one type from one key on, up to another that is not included.

    Only rows numbered beyond ``after``, where those up to it are known already, and up to
    ``upto``; values of the DHT, which come and go, are read from the beginning and to the end.
    """

    store: StoreFolder
    seen: int
    type: str
    first: bytes | None
    end: bytes | None
    after: int = 0
    held: str = SERVER
    upto: int | None = None


def find_stores(path: Path) -> tuple[StoreFolder, ...]:
    """Return the store at ``path``, or all stores in directories below it, by name."""
    if not path.is_dir():
        raise UnreadableStore(path, "there is no such directory")
    found = _stores_below(path, _DEEPEST)
    if not found:
        raise UnreadableStore(path, "no store here: no index.sqlite in it or below")
    names = [_name(path, directory) for directory in found]
    return tuple(
        # Of stores that would have one name, each has all steps of its way in it.
        StoreFolder(
            name if names.count(name) == 1 else directory.relative_to(path).as_posix(),
            directory.absolute(),
        )
        for name, directory in zip(names, found, strict=True)
    )


def _stores_below(path: Path, depth: int) -> list[Path]:
    if (path / INDEX_NAME).is_file():
        return [path]
    if depth == 0:
        return []
    children = sorted(child for child in path.iterdir() if child.is_dir())
    # What begins with a dot is a backup on its way.
    shown = [child for child in children if not child.name.startswith(".")]
    return [store for child in shown for store in _stores_below(child, depth - 1)]


def _name(root: Path, directory: Path) -> str:
    """Name a store by the way to it; ``store``, the usual last step, says nothing."""
    steps = directory.relative_to(root).parts if directory != root else ()
    told = [step for step in steps if step != "store"]
    absolute = directory.absolute()
    own = absolute.parent.name if absolute.name == "store" else absolute.name
    return "/".join(told) or own or "store"


def latest_time_seen(index: StoreIndex) -> int:
    """Return the latest moment that the store knows of, in seconds since 1970.

    A backup is judged by the time when it was taken, not by the time of the audit.
    """
    told = clock_told(index)
    if told is not None and is_moment(told):
        return int(told)
    question = "SELECT max(date) FROM entries WHERE date BETWEEN 0 AND ?"
    ((latest,),) = index.ask(question, (LAST_MOMENT,))
    return int(latest) if latest is not None else int(datetime.now(UTC).timestamp())


def clock_told(index: StoreIndex) -> str | None:
    """Return what a store says of its clock, which should be a moment; nothing if it is new."""
    known = index.ask("SELECT value FROM settings WHERE name = 'latest-time-seen'")
    return str(known[0][0]) if known else None


def is_moment(told: str) -> bool:
    """Tell whether text is a number of seconds that a date can be made of."""
    return told.isascii() and told.isdecimal() and len(told) < 20 and int(told) <= LAST_MOMENT


def key_ranges(
    stores: Sequence[StoreFolder],
    types: Sequence[str] | None,
    rows_each: int,
    seen: int | None = None,
    after: Mapping[str, int] | None = None,
    held: Sequence[str] = (SERVER,),
    *,
    in_transit: bool = False,
) -> list[KeyRange]:
    """Share the keys of all stores out in ranges of about ``rows_each`` rows of one type.

    Mail that arrives from now on is left out, since some of its data would not be read;
    data is not bounded, since a copy with a newer Date takes the place of one that was there.

    ``held`` tells whether the server's own blocks are read, what it keeps for the DHT, or both.
    Without ``types`` all are read, ``IN_TRANSIT`` only if asked.
    """
    ranges: list[KeyRange] = []
    for store in stores:
        with open_index(store.directory) as index:
            latest = latest_time_seen(index) if seen is None else seen
            ((last,),) = index.ask("SELECT max(id) FROM entries")
        known = (after or {}).get(store.name, 0)
        for where in held:
            for type, count in counts_by_type(store, where).items():
                if (in_transit or type != IN_TRANSIT) if types is None else type in types:
                    pieces = max(1, -(-count // rows_each))
                    # A key may be shorter than it should be, and stand before all others.
                    bounds = [None, *(_bound(place, pieces) for place in range(1, pieces))]
                    ends = [*bounds[1:], None]
                    upto = last if type == _MAIL else None
                    ranges += [
                        KeyRange(store, latest, type, first, end, known, where, upto)
                        for first, end in zip(bounds, ends, strict=True)
                    ]
    return ranges


def counts_by_type(store: StoreFolder, held: str = SERVER) -> dict[str, int]:
    """Return how many entries, or values of the DHT, a store has of each type."""
    with open_index(store.directory) as index:
        if held == DHT and not dht_rows.has_values(index):
            return {}
        question = f"SELECT type, count(*) FROM {_TABLES[held]} GROUP BY type"  # noqa: S608 - our own tables
        counts: dict[str, int] = dict(index.ask(question))
    if any("\N{REPLACEMENT CHARACTER}" in type for type in counts):
        # By such a name no row could be asked for.
        raise UnreadableStore(store.directory / INDEX_NAME, "a type that is no text")
    return counts


_TABLES: Final = {SERVER: "entries", DHT: dht_rows.TABLE}
# The sign keeps an index of types and dates out of it, by which every page would sort all values.
_OF_TYPE: Final = {SERVER: "type = ?", DHT: "+type = ?"}


def _bound(place: int, pieces: int) -> bytes:
    return (_KEY_SPACE * place // pieces).to_bytes(_KEY_BYTES, "big")


def rows_of(part: KeyRange, columns: Sequence[str], page: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield pages of the rows in a range, each as of one moment.

    Keys are hashes, so equal shares of their numbers are about equal shares of the rows.
    """
    of_dht = part.held == DHT
    asked = dht_rows.COLUMNS if of_dht else [_EXPRESSIONS.get(name, name) for name in columns]
    question = (
        f"SELECT {', '.join(asked)}, key, identity FROM {_TABLES[part.held]} e"  # noqa: S608 - our own columns
        f" WHERE {_OF_TYPE[part.held]}{{beyond}}"
    )
    limits: tuple[object, ...] = ()
    last: tuple[object, ...] = ()
    if part.end is not None:
        question += " AND key < ?"
        limits += (part.end,)
    if part.after and not of_dht:
        question += " AND id > ?"
        limits += (part.after,)
    if part.upto is not None and not of_dht:
        question += " AND id <= ?"
        limits += (part.upto,)
    question += f" ORDER BY key, identity LIMIT {page}"
    beyond = ""
    if part.first is not None:
        beyond, last = " AND key >= ?", (part.first,)
    with open_index(part.store.directory) as index:
        while rows := index.ask(question.format(beyond=beyond), (part.type, *last, *limits)):
            beyond, last = " AND (key, identity) > (?, ?)", rows[-1][-2:]
            bare = [row[:-2] for row in rows]
            yield [dht_rows.row_of(columns, row) for row in bare] if of_dht else bare


def is_kept(directory: Path, row: tuple[str, bytes, bytes, bytes]) -> bool:
    """Tell whether a store still has a row of this type, key, identity and digest."""
    question = "SELECT 1 FROM entries WHERE (type, key, identity, digest) = (?, ?, ?, ?)"
    with open_index(directory) as index:
        return bool(index.ask(question, row))


def data_file(directory: Path, key: bytes) -> Path:
    """Return where a store keeps the bytes of a large data block."""
    name = key.hex().upper()
    return directory / "data" / name[:2] / name[2:4] / name
