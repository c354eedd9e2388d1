"""The schemas of what is read and written; docs/auditing.md explains each column."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_STRING, _BINARY, _LONG = StringType(), BinaryType(), LongType()
_INTEGER, _BOOLEAN, _MOMENT = IntegerType(), BooleanType(), TimestampType()

# Every stored block as it lies there; ``held`` is ``server`` for the server's own, ``dht`` for
# what it keeps for the DHT. The last two are read only when they are asked for.
BLOCKS: Final = StructType(
    [
        StructField("store", _STRING, False),
        StructField("seen", _MOMENT, False),
        StructField("held", _STRING, False),
        StructField("type", _STRING, False),
        StructField("key", _BINARY, False),
        StructField("identity", _BINARY, False),
        StructField("date", _MOMENT, False),
        StructField("size", _LONG, False),
        StructField("stamp_bits", _INTEGER, False),
        StructField("digest", _BINARY, False),
        StructField("poster", _STRING, True),
        StructField("revoked", _BOOLEAN, False),
        StructField("holder", _BINARY, False),
        StructField("paid", _BOOLEAN, False),
        StructField("source", _STRING, False),
        StructField("header", _BINARY, False),
        StructField("data", _BINARY, True),
        StructField("certificate", _BINARY, True),
    ]
)
BODIES: Final = ("data", "certificate")
BLOCK_COLUMNS: Final = tuple(name for name in BLOCKS.names if name not in BODIES)

PROBLEM: Final = StructType(
    [StructField("code", _STRING, False), StructField("detail", _STRING, False)]
)
ANNOUNCED: Final = StructType(
    [
        StructField("user_id", _STRING, False),
        StructField("price_bits", _INTEGER, False),
        StructField("price_nonces", _INTEGER, False),
        StructField("networks", ArrayType(_STRING, False), False),
        StructField("mailboxes", _INTEGER, False),
        StructField("expires", _MOMENT, False),
        StructField("algorithm", _STRING, False),
        StructField("bits", _INTEGER, False),
        StructField("created", _MOMENT, True),
        StructField("read", _BOOLEAN, False),
        StructField("key_expires", _MOMENT, True),
        StructField("old_self_signature", _BOOLEAN, True),
    ]
)
# What the row of a block says (the first part), and what examining its content has found.
FACTS: Final = StructType(
    [
        StructField("store", _STRING, False),
        StructField("seen", _MOMENT, False),
        StructField("held", _STRING, False),
        StructField("type", _STRING, False),
        StructField("key", _BINARY, False),
        StructField("identity", _BINARY, False),
        StructField("date", _MOMENT, False),
        StructField("size", _LONG, False),
        StructField("header_size", _LONG, False),
        StructField("stamp_bits", _INTEGER, False),
        StructField("digest", _BINARY, False),
        StructField("revoked", _BOOLEAN, False),
        StructField("holder", _BINARY, False),
        StructField("paid", _BOOLEAN, False),
        StructField("problems", ArrayType(PROBLEM, False), False),
        StructField("bits", _INTEGER, True),
        StructField("nonces", _INTEGER, True),
        StructField("nonce_height", _LONG, True),
        StructField("stamp", _BINARY, True),
        StructField("tokened", _BOOLEAN, True),
        StructField("named", ArrayType(_BINARY, False), True),
        StructField("address", _STRING, True),
        StructField("announced", ANNOUNCED, True),
        StructField("signature", _STRING, True),
    ]
)

# What remains of many blocks: how many are alike, and one row for each problem (with a code, and
# no count). This is summed up where blocks are read, so that little has to travel.
TALLIES: Final = StructType(
    [
        StructField("store", _STRING, False),
        StructField("held", _STRING, False),
        StructField("type", _STRING, False),
        StructField("bits", _INTEGER, True),
        StructField("day", _INTEGER, True),
        StructField("power", _INTEGER, True),
        StructField("signature", _STRING, True),
        StructField("blocks", _LONG, False),
        StructField("bytes", _LONG, False),
        StructField("key", _BINARY, True),
        StructField("date", _MOMENT, True),
        StructField("code", _STRING, True),
        StructField("detail", _STRING, True),
    ]
)

# What mail has paid, in four kinds of rows: a mail (with a stamp, and with its holder where it has
# no token), a key (with a price), a finding (with a code), and a count of mails that are alike.
PAYMENTS: Final = StructType(
    [
        StructField("store", _STRING, False),
        StructField("stamp", _BINARY, True),
        StructField("key", _BINARY, True),
        StructField("date", _MOMENT, True),
        StructField("holder", _BINARY, True),
        StructField("bits", _INTEGER, True),
        StructField("price", _INTEGER, True),
        StructField("kind", _STRING, True),
        StructField("counted", _BOOLEAN, True),
        StructField("mails", _LONG, True),
        StructField("hashes", _LONG, True),
        StructField("code", _STRING, True),
        StructField("detail", _STRING, True),
    ]
)

# One row for each thing that is wrong, from every job.
FINDINGS: Final = StructType(
    [
        StructField("job", _STRING, False),
        StructField("severity", _STRING, False),
        StructField("code", _STRING, False),
        StructField("store", _STRING, True),
        StructField("type", _STRING, True),
        StructField("key", _STRING, True),
        StructField("date", _MOMENT, True),
        StructField("detail", _STRING, False),
    ]
)
# One row for each job of a run in a history: what it was asked.
RUNS: Final = StructType(
    [
        StructField("job", _STRING, False),
        StructField("stores", ArrayType(_STRING, False), False),
        StructField("signatures", DoubleType(), False),
    ]
)
# How many findings of a kind a run in a history had.
COUNTS: Final = StructType(
    [
        *(FINDINGS[name] for name in ("job", "store", "severity", "code")),
        StructField("count", _LONG, False),
    ]
)
# A claim that a run in a history saw.
CLAIMS: Final = StructType([FACTS[name] for name in ("store", "address", "identity", "date")])
# One row for each figure of a job: `measure` of what is told apart by `group`.
FIGURES: Final = StructType(
    [
        StructField("job", _STRING, False),
        StructField("store", _STRING, True),
        StructField("measure", _STRING, False),
        StructField("group", _STRING, False),
        StructField("value", DoubleType(), False),
    ]
)
