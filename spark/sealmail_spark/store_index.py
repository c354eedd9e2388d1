"""The index of a store, opened to be read: beside its server, or where nobody is.

Only the standard library's sqlite3 opens it, since this also runs where an audit travels as pure
Python. Each question is answered at once and as of one moment, so no answer is held open, which
would keep a server from emptying its log. An index at rest is opened as a file that nobody
changes: then nothing appears beside it, and it may be one that we cannot write. That nobody has
changed it meanwhile is checked after each answer.
"""

import sqlite3
from pathlib import Path
from typing import Any, Final, Self

INDEX_NAME: Final = "index.sqlite"
# "SLML": tells a store's index from other SQLite files.
APPLICATION_ID: Final = 0x534C4D4C
# Of each row, in the order in which rows are yielded.
ROW_COLUMNS: Final = (
    *("type", "key", "identity", "date", "size", "stamp_bits", "digest", "poster", "revoked"),
    *("holder", "paid", "source", "header", "data"),
)
# Of each column the kind of its values; only of two there may be none.
_KINDS: Final = (
    dict.fromkeys(("type", "poster", "source"), "TEXT")
    | dict.fromkeys(("key", "identity", "digest", "holder", "header", "data", "body"), "BLOB")
    | dict.fromkeys(("date", "size", "stamp_bits", "revoked", "paid"), "INTEGER")
)
_MAY_LACK: Final = frozenset({"poster", "data"})
_TABLES: Final = ("entries", "dht_values")
# A reader waits only while the writer restarts its log.
_PATIENCE_SECONDS = 10.0

Rows = list[tuple[Any, ...]]


class UnreadableStore(ValueError):
    """A path holds no store, or one whose index cannot be read by this version."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class StoreIndex:
    """The index of the store in a directory; refuses what is none."""

    def __init__(self, directory: Path) -> None:
        self._path = (directory / INDEX_NAME).absolute()
        try:
            self._open()
        except (sqlite3.Error, OSError) as error:
            raise UnreadableStore(self._path, str(error)) from error
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self._rest = _at_rest(self._path)
        how = "mode=ro" if self._rest is None else "mode=ro&immutable=1"
        self._connection = sqlite3.connect(
            f"{self._path.as_uri()}?{how}", uri=True, timeout=_PATIENCE_SECONDS
        )
        self._connection.text_factory = _text

    def _check(self) -> None:
        ((application,),) = self.ask("PRAGMA application_id")
        if application != APPLICATION_ID:
            raise UnreadableStore(self._path, "not the index of a store")
        lacking = set(ROW_COLUMNS) - self.columns("entries")
        if lacking:
            reason = f"its entries lack {', '.join(sorted(lacking))}"
            raise UnreadableStore(self._path, reason)
        # Who made an index may be hostile. In strict tables of these columns every value is of its
        # kind, and there is a key to page by.
        strict = {row[1] for row in self.ask("PRAGMA table_list") if row[5]}
        for table in _TABLES:
            told = self.ask(f"PRAGMA table_info({table})")
            if told and not (table in strict and all(_is_certain(*row[1:4]) for row in told)):
                raise UnreadableStore(self._path, f"its {table} can hold values of any kind")

    def columns(self, table: str) -> set[str]:
        """Return the columns of a table; none where there is no such table."""
        return {row[1] for row in self.ask(f"PRAGMA table_info({table})")}

    def ask(self, question: str, values: tuple[object, ...] = ()) -> Rows:
        """Return all rows that answer a question; damage is an ``UnreadableStore``."""
        while True:
            try:
                rows = self._connection.execute(question, values).fetchall()
            except sqlite3.DatabaseError as error:
                if self._is_as_opened():
                    raise UnreadableStore(self._path, str(error)) from error
            else:
                if self._is_as_opened():
                    return rows
            # A server has started since: it is asked again, beside that one.
            self.close()
            self._open()

    def _is_as_opened(self) -> bool:
        return self._rest is None or self._rest == _at_rest(self._path)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_index(directory: Path) -> StoreIndex:
    """Open the index of a store, unable to change it; refuse what is none."""
    return StoreIndex(directory)


def _is_certain(name: str, kind: str, never_null: int) -> bool:
    return name not in _KINDS or (kind == _KINDS[name] and (bool(never_null) or name in _MAY_LACK))


def _text(stored: bytes) -> str:
    """Read what should be text, whatever it is."""
    return stored.decode("utf-8", "replace")


def _at_rest(path: Path) -> tuple[int, int] | None:
    """Return what a change of the index would change, or nothing if a log goes with it."""
    try:
        if path.with_name(f"{path.name}-wal").stat().st_size > 0:
            return None
    except FileNotFoundError:
        pass
    found = path.stat()
    return found.st_mtime_ns, found.st_size
