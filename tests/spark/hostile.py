"""A store that was made to harm its auditor: what is done to its rows, and what is to be said."""

from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import apsw

from sealmail_protocol.keys import BlockKey
from sealmail_spark.generator.town import Town
from sealmail_spark.generator.writing import write_store
from sealmail_spark.store_index import open_index
from sealmail_store import StoredEntry

# What is done to a row of a type, and what an audit says of it.
HOSTILE = [
    ("data", "date = 1000000000000", "wrong-date"),
    ("data", "date = 9223372036854775807", "wrong-date"),
    ("acknowledgment", "date = -9223372036854775808", "wrong-date"),
    ("data", "size = 9223372036854775807", "malformed"),
    ("data", "size = -1", "malformed"),
    ("data", "stamp_bits = 9223372036854775807", "malformed"),
    ("acknowledgment", "stamp_bits = -1", "malformed"),
    ("data", "identity = x'01'", "malformed"),
    ("data", "identity = zeroblob(20)", "wrong-identity"),
    ("data", "digest = x''", "malformed"),
    ("data", "revoked = 1", "wrong-revocation"),
    ("acknowledgment", "revoked = 1", "wrong-revocation"),
    ("data", "revoked = 7", "malformed"),
    ("key-announcement", "key = x'01'", "malformed"),
    ("key-announcement", "key = x''", "malformed"),
    ("data", "key = zeroblob(19)", "malformed"),
    ("address-claim", "key = zeroblob(40)", "malformed"),
    ("message-announcement", "holder = zeroblob(3)", "malformed"),
    ("message-announcement", "paid = -1", "malformed"),
    ("acknowledgment", "header = x''", "malformed"),
    ("address-claim", "header = randomblob(500)", "malformed"),
    ("acknowledgment", "type = 'data'", "malformed"),
    ("data", "type = '<script>'", "malformed"),
    ("acknowledgment", "date = date - 30 * 86400, revoked = 1", "kept-too-long"),
]


def change(directory: Path, *statements: str) -> None:
    """Do to an index what no server does."""
    with closing(apsw.Connection(str(directory / "index.sqlite"))) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            connection.execute(statement)


def block(town: Town, kind: str) -> StoredEntry:
    """Return a sound block of a type, of somebody new where it is somebody's."""
    workshop, date = town.workshop, town.moment(timedelta(days=6))
    person = town.person(town.rng.randrange(1 << 40))
    make: dict[str, Callable[[], StoredEntry]] = {
        "data": lambda: workshop.data(date, 900),
        "acknowledgment": lambda: workshop.acknowledgment(date),
        "key-announcement": lambda: workshop.key(person, date),
        "address-claim": lambda: workshop.claim(person, date),
        "message-announcement": lambda: workshop.announcement(person, date, [BlockKey(bytes(20))]),
    }
    return make[kind]()


def make_hostile(directory: Path, now: datetime) -> set[tuple[str, str, str]]:
    """Make a store of nothing but hostile rows; return code, type and key of what it has."""
    town = Town(Random(31), now, 0)  # noqa: S311 - invented mail is no secret
    write_store(directory, [block(town, kind) for kind, _, _ in HOSTILE], now)
    change(
        directory,
        *(
            f"UPDATE entries SET {what} WHERE id = {number}"  # noqa: S608 - our own words
            for number, (_, what, _) in enumerate(HOSTILE, start=1)
        ),
    )
    with open_index(directory) as index:
        rows = index.ask("SELECT type, hex(substr(key, 1, 20)) FROM entries ORDER BY id")
    return {(code, *row) for (_, _, code), row in zip(HOSTILE, rows, strict=True)}
