"""Running sums of who uses how much room, and which entry needs which data kept.

Every change of an entry changes its sums in the same transaction, by steps whose number does
not depend on how much is stored: what a sum says, nobody has to count.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import apsw

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.keys import BlockKey
from sealmail_store.entries import Count, StoredEntry, WaitingEntry

# Data that no paid announcement names, acknowledgments, what waits, and blocks that are held only
# to be delivered elsewhere, each also by source.
LOOSE_DATA = "loose data"
ACKNOWLEDGMENTS = "acknowledgments"
WAITING = "waiting"
# Also the type under which such a block stands among the entries.
PROXIED = "proxied"

_ADD = (
    "INSERT INTO spaces (name, entries, bytes) VALUES (?, ?, ?) ON CONFLICT (name)"
    " DO UPDATE SET entries = entries + excluded.entries, bytes = bytes + excluded.bytes"
)
_NEXT_HOLDER = "SELECT min(holder) FROM named_data WHERE key = ? AND holder > ?"
_UNCOUNTED = (
    "SELECT count(*), coalesce(sum(CASE WHEN EXISTS (SELECT 1 FROM named_data n"
    " WHERE n.key = e.key AND n.holder = ?) THEN 0 ELSE e.size END), 0)"
    " FROM entries e WHERE e.type = 'data' AND e.identity = x'' AND e.key IN (?)"
)
# Of some data what a holder has no paid name of: by source what nobody has, and the rest.
_UNHELD = (
    "SELECT CASE WHEN EXISTS (SELECT 1 FROM named_data n WHERE n.key = e.key AND n.holder > x'')"
    " THEN NULL ELSE e.source END AS loose, count(*), sum(e.size)"
    " FROM entries e WHERE e.type = 'data' AND e.identity = x'' AND e.key IN (?)"
    " AND NOT EXISTS (SELECT 1 FROM named_data n WHERE n.key = e.key AND n.holder = ?)"
    " GROUP BY loose"
)
# SQLite takes many thousands of values; a few hundred are as quick and need little memory.
_ASKED_AT_ONCE = 500


def mailbox_space(key: BlockKey) -> str:
    """Name the space of all announcements under the key of a mailbox."""
    return f"mailbox {key}"


def unpaid_space(key: BlockKey) -> str:
    """Name the space of the announcements in a mailbox that are below its price."""
    return f"unpaid {key}"


def holder_space(holder: bytes) -> str:
    """Name the space of the data that paid announcements keep for a key id."""
    return f"holder {holder.hex().upper()}"


def queue_space(kind: str) -> str:
    """Name the space that counts what waits in the queue of one kind; its bytes stay 0."""
    return f"queue {kind}"


def source_space(space: str, source: str) -> str:
    """Name what one source has of a space."""
    return f"{space} from {source}"


class SpaceBook:
    """Keeps the sums; the views call it with every entry that comes or goes."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def read(self, name: str) -> Count:
        """Return what is in a space; an unknown one is empty."""
        row = self._connection.execute(
            "SELECT entries, bytes FROM spaces WHERE name = ?", (name,)
        ).get
        return Count(*row) if row else Count(0, 0)

    def entry_came(self, entry: StoredEntry, number: int) -> None:
        """Count an entry in, with what it names; ``number`` is its row."""
        if entry.type == PROXIED:
            self._add(_held_spaces(entry.source), len(entry.header) + entry.size)
            return
        if entry.data is not None:
            self._count_data(entry.key, entry.size, entry.source, 1)
            return
        self._add(_spaces_of(entry.type, entry.key, entry.paid, entry.source), len(entry.header))
        holder = entry.holder if entry.paid else b""
        names = [key.raw for key in entry.names]
        if holder:
            self._count_held(names, holder, 1)
        self._connection.executemany(
            "INSERT OR IGNORE INTO named_data (key, holder, entry) VALUES (?, ?, ?)",
            [(name, holder, number) for name in names],
        )

    def entry_goes(self, number: int) -> int:
        """Count the entry in row ``number`` out, before that row is deleted.

        Return how many data blocks it named.
        """
        row = self._connection.execute(
            "SELECT type, key, size, paid, source, length(header) FROM entries WHERE id = ?",
            (number,),
        ).get
        type, raw, size, paid, source, length = row
        key = BlockKey(raw)
        if type == PROXIED:
            self._add(_held_spaces(source), length + size, -1)
            return 0
        if type == BlockType.DATA:
            self._count_data(key, size, source, -1)
            return 0
        self._add(_spaces_of(type, key, bool(paid), source), length, -1)
        named: list[Any] = self._connection.execute(
            "DELETE FROM named_data WHERE entry = ? RETURNING key, holder", (number,)
        ).fetchall()
        # All names of one entry are for one holder, or for none.
        if named and (holder := named[0][1]):
            self._count_held([name for name, _ in named], holder, -1)
        return len(named)

    def waiting_came(self, entry: WaitingEntry) -> None:
        """Count in what waits."""
        self._add((WAITING, source_space(WAITING, entry.source)), len(entry.header))

    def waiting_goes(self, source: str, size: int) -> None:
        """Count out what waited."""
        self._add((WAITING, source_space(WAITING, source)), size, -1)

    def queued(self, kind: str, count: int) -> None:
        """Count rows of the queue that wait, in or out."""
        self._connection.execute(_ADD, (queue_space(kind), count, 0))

    def is_named(self, key: BlockKey) -> bool:
        """Tell whether an entry needs the data of ``key`` kept."""
        return bool(
            self._connection.execute(
                "SELECT EXISTS (SELECT 1 FROM named_data WHERE key = ?)", (key.raw,)
            ).get
        )

    def holders(self, key: BlockKey) -> Iterator[bytes]:
        """Walk the key ids whose paid announcements name the data of ``key``."""
        holder = b""
        while (
            holder := self._connection.execute(_NEXT_HOLDER, (key.raw, holder)).get
        ) is not None:
            yield holder

    def uncounted(self, keys: Iterable[BlockKey], holder: bytes) -> tuple[int, int]:
        """Return how many of ``keys`` are stored, and their bytes that ``holder`` adds."""
        stored = added = 0
        for part in _parts([key.raw for key in keys]):
            question = _about(_UNCOUNTED, part)
            count, size = self._connection.execute(question, (holder, *part)).get
            stored, added = stored + count, added + size
        return stored, added

    def _count_data(self, key: BlockKey, size: int, source: str, sign: int) -> None:
        held = False
        for holder in self.holders(key):
            held = True
            self._add((holder_space(holder),), size, sign)
        if not held:
            self._add((LOOSE_DATA, source_space(LOOSE_DATA, source)), size, sign)

    def _count_held(self, names: list[bytes], holder: bytes, sign: int) -> None:
        """Let stored data change hands, but what ``holder`` has another paid name of.

        Called before the names of an entry are put, and after they are deleted.
        """
        for part in _parts(names):
            rows: Any = self._connection.execute(_about(_UNHELD, part), (*part, holder)).fetchall()
            for loose, count, size in rows:
                self._add((holder_space(holder),), size, sign, count)
                if loose is not None:
                    spaces = LOOSE_DATA, source_space(LOOSE_DATA, loose)
                    self._add(spaces, size, -sign, count)

    def _add(self, names: Iterable[str], size: int, sign: int = 1, count: int = 1) -> None:
        for name in names:
            self._connection.execute(_ADD, (name, sign * count, sign * size))
            if sign < 0:
                self._connection.execute(
                    "DELETE FROM spaces WHERE name = ? AND entries = 0", (name,)
                )


def _parts(keys: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(keys), _ASKED_AT_ONCE):
        yield keys[start : start + _ASKED_AT_ONCE]


def _about(question: str, keys: list[bytes]) -> str:
    """Give a question a mark for each of its keys."""
    return question.replace("(?)", f"({','.join('?' * len(keys))})")


def _held_spaces(source: str) -> tuple[str, str]:
    return PROXIED, source_space(PROXIED, source)


def _spaces_of(type: str, key: BlockKey, paid: bool, source: str) -> tuple[str, ...]:
    match type:
        case BlockType.MESSAGE_ANNOUNCEMENT:
            return (mailbox_space(key),) if paid else (mailbox_space(key), unpaid_space(key))
        case BlockType.ACKNOWLEDGMENT:
            return (ACKNOWLEDGMENTS, source_space(ACKNOWLEDGMENTS, source))
        case _:
            return ()
