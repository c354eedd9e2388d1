"""Store directories as files: which there are, how their keys are shared out, and their rows.

Only the standard library's sqlite3 opens them, and read-only: this module also runs where an
audit travels as pure Python, and a server beside it is never held up. A store of a later schema
is read as long as it still has the columns that audits need.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sealmail_spark import dht_rows
from sealmail_spark.demands import DHT, SERVER

INDEX_NAME: Final = "index.sqlite"
# "SLML": tells a store's index from other SQLite files.
APPLICATION_ID: Final = 0x534C4D4C

# Of each row, in the order in which rows are yielded.
ROW_COLUMNS: Final = (
    *("type", "key", "identity", "date", "size", "stamp_bits", "digest", "poster", "revoked"),
    *("holder", "paid", "source", "header", "data"),
)
# Stands for a column that is not read.
UNREAD: Final = ""
# Of what is no column of a row: what stands in its place. The announcement of the key that signed
# a claim is another row of the same store.
_EXPRESSIONS: Final = dict.fromkeys((UNREAD, "store", "seen", "held"), "NULL") | {
    "certificate": "CASE WHEN type = 'address-claim' THEN (SELECT k.header FROM entries k"
    " WHERE k.type = 'key-announcement' AND k.key = e.identity AND k.identity = x'') END"
}
# A reader waits only while the writer restarts its log.
_PATIENCE_SECONDS = 10.0
# A data directory of sealmaild holds its store one level down, a directory of many a level more.
_DEEPEST = 3
_KEY_SPACE = 1 << 160
_KEY_BYTES = 20


class UnreadableStore(ValueError):
    """A path holds no store, or one whose index cannot be read by this version."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """One store: the name that findings give it, and its directory."""

    name: str
    directory: Path


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The entries of one type from one key on, up to another that is not included.

    Only rows numbered beyond ``after``, where those up to it are known already; values of the
    DHT, which come and go, are read from the beginning.
    """

    store: StoreFolder
    seen: int
    type: str
    first: bytes
    end: bytes | None
    after: int = 0
    held: str = SERVER


def find_stores(path: Path) -> tuple[StoreFolder, ...]:
    """Return the store at ``path``, or all stores in directories below it, by name."""
    if not path.is_dir():
        raise UnreadableStore(path, "there is no such directory")
    found = _stores_below(path, _DEEPEST)
    if not found:
        raise UnreadableStore(path, "no store here: no index.sqlite in it or below")
    return tuple(StoreFolder(_name(path, directory), directory.absolute()) for directory in found)


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


def open_index(directory: Path) -> sqlite3.Connection:
    """Open the index of a store, unable to change it; refuse what is none."""
    path = directory / INDEX_NAME
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_PATIENCE_SECONDS
    )
    try:
        _check(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise UnreadableStore(path, str(error)) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise UnreadableStore(path, "not the index of a store")
    columns = {row[1] for row in connection.execute("PRAGMA table_info(entries)")}
    lacking = set(ROW_COLUMNS) - columns
    if lacking:
        raise UnreadableStore(path, f"its entries lack {', '.join(sorted(lacking))}")


def latest_time_seen(connection: sqlite3.Connection) -> int:
    """Return the latest moment that the store knows of, in seconds since 1970.

    A backup is judged by the time when it was taken, not by the time of the audit.
    """
    row = connection.execute(
        "SELECT value FROM settings WHERE name = 'latest-time-seen'"
    ).fetchone()
    if row is not None:
        return int(row[0])
    (latest,) = connection.execute("SELECT max(date) FROM entries").fetchone()
    return int(latest) if latest is not None else int(datetime.now(UTC).timestamp())


def key_ranges(
    stores: Sequence[StoreFolder],
    types: Sequence[str] | None,
    rows_each: int,
    seen: int | None = None,
    after: Mapping[str, int] | None = None,
    held: Sequence[str] = (SERVER,),
) -> list[KeyRange]:
    """Share the keys of all stores out in ranges of about ``rows_each`` rows of one type.

    ``held`` tells whether the server's own blocks are read, what it keeps for the DHT, or both.
    """
    ranges: list[KeyRange] = []
    for store in stores:
        with closing(open_index(store.directory)) as connection:
            latest = latest_time_seen(connection) if seen is None else seen
        known = (after or {}).get(store.name, 0)
        for where in held:
            for type, count in counts_by_type(store, where).items():
                if types is None or type in types:
                    pieces = max(1, -(-count // rows_each))
                    bounds = [_bound(place, pieces) for place in range(pieces)]
                    ends = [*bounds[1:], None]
                    ranges += [
                        KeyRange(store, latest, type, first, end, known, where)
                        for first, end in zip(bounds, ends, strict=True)
                    ]
    return ranges


def counts_by_type(store: StoreFolder, held: str = SERVER) -> dict[str, int]:
    """Return how many entries, or values of the DHT, a store has of each type."""
    with closing(open_index(store.directory)) as connection:
        if held == DHT and not dht_rows.has_values(connection):
            return {}
        question = f"SELECT type, count(*) FROM {_TABLES[held]} GROUP BY type"  # noqa: S608 - our own tables
        return dict(connection.execute(question))


_TABLES: Final = {SERVER: "entries", DHT: dht_rows.TABLE}


def _bound(place: int, pieces: int) -> bytes:
    return (_KEY_SPACE * place // pieces).to_bytes(_KEY_BYTES, "big")


def rows_of(part: KeyRange, columns: Sequence[str], page: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield pages of the rows in a range, as of one moment.

    Keys are hashes, so equal shares of their numbers are about equal shares of the rows.
    """
    of_dht = part.held == DHT
    asked = dht_rows.COLUMNS if of_dht else [_EXPRESSIONS.get(name, name) for name in columns]
    question = f"SELECT {', '.join(asked)} FROM {_TABLES[part.held]} e WHERE type = ? AND key >= ?"  # noqa: S608 - our own columns
    values: tuple[object, ...] = (part.type, part.first)
    if part.end is not None:
        question += " AND key < ?"
        values += (part.end,)
    if part.after and not of_dht:
        question += " AND id > ?"
        values += (part.after,)
    with closing(open_index(part.store.directory)) as connection:
        cursor = connection.execute(question, values)
        while rows := cursor.fetchmany(page):
            yield [dht_rows.row_of(columns, row) for row in rows] if of_dht else rows


def data_file(directory: Path, key: bytes) -> Path:
    """Return where a store keeps the bytes of a large data block."""
    name = key.hex().upper()
    return directory / "data" / name[:2] / name[2:4] / name
