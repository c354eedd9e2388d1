"""What a node keeps for the DHT, as rows like those of the server's own blocks.

A value is kept as it travels (docs/dht.md section 1), and is taken apart here: lines, bytes of
data, and the key-announcement that a claim travels with.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sealmail_protocol.blocks import BlockType
from sealmail_spark.store_index import StoreIndex

TABLE: Final = "dht_values"
# Of each value, in the order in which ``row_of`` takes them.
COLUMNS: Final = (
    *("type", "key", "identity", "date", "stamp_bits", "digest", "revoked", "source", "body"),
)
_CERTIFICATE: Final = b"\r\nNextClaim\r\n"
_END_OF_HEADER = re.compile(rb"(?:\A|\n)data: [^\n]*\n", re.IGNORECASE)


def has_values(index: StoreIndex) -> bool:
    """Tell whether a store is of a schema that knows the DHT."""
    return index.columns(TABLE).issuperset(COLUMNS)


def row_of(asked: Sequence[str], value: Sequence[Any]) -> tuple[Any, ...]:
    """Return the columns of a block that were asked for; what the DHT does not know is empty."""
    known = dict(zip(COLUMNS, value, strict=True))
    known |= taken_apart(known["type"], known.pop("body"))
    return tuple(known[name] if name in known else _UNKNOWN.get(name) for name in asked)


def taken_apart(type: str, body: bytes) -> Mapping[str, Any]:
    """Return header, data, size and certificate of a value; one that is none is all header."""
    return _PARTS.get(type, _text)(body)


def _text(body: bytes) -> Mapping[str, Any]:
    return {"header": body, "data": None, "size": 0, "certificate": None}


def _data(body: bytes) -> Mapping[str, Any]:
    found = _END_OF_HEADER.search(body)
    end = found.end() if found else len(body)
    data = body[end:]
    return {"header": body[:end], "data": data, "size": len(data), "certificate": None}


def _claim(body: bytes) -> Mapping[str, Any]:
    claim, separator, certificate = body.partition(_CERTIFICATE)
    header = claim + b"\r\n" if separator else claim
    return {"header": header, "data": None, "size": 0, "certificate": certificate or None}


_PARTS: Final[dict[str, Callable[[bytes], Mapping[str, Any]]]] = {
    BlockType.DATA: _data,
    BlockType.ADDRESS_CLAIM: _claim,
}
_UNKNOWN: Final[Mapping[str, Any]] = {"holder": b"", "paid": 0}
