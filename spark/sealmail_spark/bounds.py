"""What the columns of a row can be at all: a store may be damaged, or made to harm its auditor.

Whatever an index holds, what is made of it are values that dates and sums can be made of.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from sealmail_spark.facts import Problem, StoredRow

# The first second of the year 9999: calendars end with that year, wherever the clock stands.
LAST_MOMENT: Final = 253_370_764_800
# A column of Spark has 32 bits for it; a hash has no more.
_MOST_BITS: Final = 256
# A thousand times what any block may have, and still no sum of millions overflows.
_MOST_BYTES: Final = 1 << 40
_KEY, _DIGEST = 20, 32
# An identity is empty, a key id, or a digest; a holder is a key id, if there is one.
_IDENTITIES: Final = (0, _KEY, _DIGEST)
_HOLDERS: Final = (0, _KEY)
_FLAGS: Final = (0, 1)


class Bound(NamedTuple):
    """What a column may hold, and what stands in the place of anything else."""

    fits: Callable[[Any], bool]
    instead: Callable[[Any], Any]


def _number(most: int) -> Bound:
    return Bound(lambda value: 0 <= value <= most, lambda value: max(0, min(value, most)))


def _bytes(*lengths: int) -> Bound:
    return Bound(lambda value: len(value) in lengths, lambda value: value[: max(lengths)])


BOUNDS: Final[dict[str, Bound]] = {
    "key": _bytes(_KEY),
    "identity": _bytes(*_IDENTITIES),
    "date": _number(LAST_MOMENT),
    "size": _number(_MOST_BYTES),
    "stamp_bits": _number(_MOST_BITS),
    "digest": _bytes(_DIGEST),
    "revoked": _number(1),
    "holder": _bytes(*_HOLDERS),
    "paid": _number(1),
}


def bounded(name: str, value: Any) -> Any:
    """Return the value of a column, or what is nearest to it of what the column may hold."""
    bound = BOUNDS.get(name)
    return value if bound is None or bound.fits(value) else bound.instead(value)


def bounded_row(row: StoredRow) -> StoredRow:
    """Return a row within bounds, which tells what was beyond them."""
    if _is_usual(row):
        return row
    values = row._asdict()
    beyond = [name for name, bound in BOUNDS.items() if not bound.fits(values[name])]
    wrong = tuple(
        Problem("wrong-date", f"kept as of {row.date} seconds since 1970")
        if name == "date"
        else Problem("malformed", f"{name} is {_told(values[name])}")
        for name in beyond
    )
    return row._replace(wrong=wrong, **{name: bounded(name, values[name]) for name in beyond})


def _is_usual(row: StoredRow) -> bool:
    """Tell at once of nearly every row that it is within bounds: there are millions."""
    return (
        len(row.key) == _KEY
        and len(row.digest) == _DIGEST
        and 0 <= row.date <= LAST_MOMENT
        and 0 <= row.size <= _MOST_BYTES
        and 0 <= row.stamp_bits <= _MOST_BITS
        and len(row.identity) in _IDENTITIES
        and len(row.holder) in _HOLDERS
        and row.revoked in _FLAGS
        and row.paid in _FLAGS
    )


def _told(value: bytes | int) -> str:
    return f"of {len(value)} bytes" if isinstance(value, bytes) else str(value)
