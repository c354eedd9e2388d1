"""A second auditor, in one plain process: the same questions, answered in another way.

It shares the protocol's parsers and verifier with the audits, but none of their code.
"""

import hashlib
import math
import sqlite3
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sealmail_pow import level
from sealmail_protocol.block_codec import parse_block
from sealmail_protocol.blocks import (
    AddressClaim,
    Block,
    DataBlock,
    KeyAnnouncement,
    MessageAnnouncement,
)
from sealmail_protocol.canonical import canonical_form
from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.keys import BlockKey, KeyId, data_key
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_verify import BadSignature, Verifier
from sealmail_verify.evidence import read_key_block
from sealmail_verify.key_parts import sealing_parts

HOUR, DAY = 3600, 86_400

# job, code, type, key, date
Found = tuple[str, str, str, str, int]
# job, measure, group
Figure = tuple[str, str, str]
ALGORITHMS = {1: "RSA", 22: "EdDSA"}
KEY, CLAIM, MAIL = "key-announcement", "address-claim", "message-announcement"
LUCK = sum(2 ** -(more + 1) * 2 ** (more / 2) for more in range(200))
# Nonces that were searched by counting have so many digits.
COUNTED = 9


@dataclass
class PlainAudit:
    """What is wrong with one store, and how much is in it."""

    findings: list[Found] = field(default_factory=list)
    figures: defaultdict[Figure, float] = field(default_factory=lambda: defaultdict(float))

    def count(self, job: str, measure: str, group: object, value: float = 1) -> None:
        """Add to a figure."""
        self.figures[job, measure, str(group)] += value


@dataclass
class _Entry:
    row: dict[str, Any]
    block: Block | None = None
    bits: int | None = None

    @property
    def key(self) -> str:
        return str(self.row["key"].hex().upper())


def audit(directory: Path) -> PlainAudit:
    """Audit the store in a directory."""
    with closing(sqlite3.connect(directory / "index.sqlite")) as connection:
        connection.row_factory = sqlite3.Row
        rows = [dict(row) for row in connection.execute("SELECT * FROM entries")]
        values = [dict(row) for row in connection.execute("SELECT * FROM dht_values")]
        seen = int(
            connection.execute(
                "SELECT value FROM settings WHERE name = 'latest-time-seen'"
            ).fetchone()[0]
        )
    result = PlainAudit()
    entries = [_Entry(row) for row in rows]
    keys: dict[bytes, KeyAnnouncement] = {}
    for entry in entries:
        _examine(entry, directory, seen, result)
        if isinstance(entry.block, KeyAnnouncement):
            keys[entry.row["key"]] = entry.block
    for entry in entries:
        _verify(entry, keys, result)
    _references(entries, seen, result)
    _keys(entries, seen, result)
    _pow(entries, keys, seen, result)
    for value in values:
        _examine_value(value, seen, result)
    for entry in entries:
        _count(entry, seen, result)
    return result


def _count(entry: _Entry, seen: int, result: PlainAudit) -> None:
    """Count one block of the server's own into the figures of ``store``."""
    row, whole = entry.row, entry.row["size"] + len(entry.row["header"])
    bits = None if entry.bits is None else min(entry.bits, row["stamp_bits"])
    _count_block(row["type"], "", whole, bits, seen - row["date"], result)
    if row["type"] == "data":
        result.count("store", "size", _power(row["size"]))


def _count_block(
    kind: str, of: str, whole: int, bits: int | None, age: int, result: PlainAudit
) -> None:
    result.count("store", f"{of}blocks", kind)
    result.count("store", f"{of}bytes", kind, whole)
    result.count("store", f"{of}age", f"{kind} {age // DAY}")
    if bits is not None:
        result.count("store", f"{of}level", f"{kind} {bits}")


def _power(size: int) -> int:
    power = 1
    while power < size:
        power *= 2
    return power


def _examine_value(row: dict[str, Any], seen: int, result: PlainAudit) -> None:
    """Judge one value by the DHT's column of the table."""
    body, _, carried = row["body"].partition(b"NextClaim\r\n")
    block, policy = parse_block(body), BLOCK_POLICY[row["type"]]
    size = len(block.data) if isinstance(block, DataBlock) else len(body)
    date = (block.header if isinstance(block, DataBlock) else block).date
    bits, age = level(block.challenge, block.stamp), seen - date.timestamp()
    key = data_key(block.data) if isinstance(block, DataBlock) else block.own_key
    wrong = {
        "too-large": size > policy.dht_size,
        "weak-stamp": bits < policy.dht_stamp.bits,
        "overstated-stamp": bits < row["stamp_bits"],
        "future-date": age < -25 * HOUR,
        "outlived": age > policy.max_age.total_seconds() + 2 * HOUR,
        "wrong-key": key is not None and key.raw != row["key"],
        "malformed": row["type"] == "address-claim" and not carried,
    }
    if isinstance(block, AddressClaim) and carried:
        certificate = parse_block(carried)
        assert isinstance(certificate, KeyAnnouncement)
        wrong["bad-signature"] = not _signed(block, certificate, block.key_id)
    if isinstance(block, KeyAnnouncement):
        wrong["bad-signature"] = not _signed(block, block, KeyId(row["key"]))
    name, data = row["key"].hex().upper(), len(block.data) if isinstance(block, DataBlock) else 0
    _count_block(row["type"], "DHT ", len(body), min(bits, row["stamp_bits"]), int(age), result)
    if isinstance(block, DataBlock):
        result.count("store", "DHT size", _power(data))
    if isinstance(block, AddressClaim | KeyAnnouncement):
        outcome = (
            "bad" if wrong.get("bad-signature") else "no key" if wrong["malformed"] else "good"
        )
        result.count("store", "DHT signature", f"{row['type']} {outcome}")
    result.findings += [
        ("store", code, row["type"], name, row["date"]) for code in wrong if wrong[code]
    ]


def _signed(
    block: AddressClaim | KeyAnnouncement, certificate: KeyAnnouncement, owner: KeyId
) -> bool:
    try:
        Verifier().verify_clear_signed(block.signed.message, certificate.signed.armored_key, owner)
    except BadSignature:
        return False
    return True


def _examine(entry: _Entry, directory: Path, seen: int, result: PlainAudit) -> None:
    row = entry.row
    wrong = set()
    data = row["data"]
    if row["type"] == "data" and data is None:
        path = directory / "data" / entry.key[:2] / entry.key[2:4] / entry.key
        data = path.read_bytes() if path.exists() else None
    header: bytes = row["header"]
    claimed = row["size"]
    # A body that is not there, or not whole, is parsed as if it were: the lines are judged too.
    whole = header + (data if data is not None and len(data) == claimed else bytes(claimed))
    try:
        block = parse_block(whole if row["type"] == "data" else header)
        entry.block = block
    except InvalidBlock:
        block = None
        wrong.add("malformed")
    if row["type"] == "data":
        if data is None:
            wrong.add("missing-bytes")
        elif len(data) != claimed:
            wrong.add("wrong-size")
        elif data_key(data).raw != row["key"]:
            wrong.add("wrong-key")
    judged = data is not None and len(data) == claimed if row["type"] == "data" else True
    if block is not None:
        wrong |= _compared(row, block, seen)
        if judged:
            entry.bits = level(block.challenge, block.stamp)
            floor = BLOCK_POLICY[block.type].server_stamp.bits
            if entry.bits < floor:
                wrong.add("weak-stamp")
            elif entry.bits < row["stamp_bits"]:
                wrong.add("overstated-stamp")
    if (claimed if row["type"] == "data" else len(header)) > BLOCK_POLICY[row["type"]].size:
        wrong.add("too-large")
    result.findings += [("store", code, row["type"], entry.key, row["date"]) for code in wrong]


def _compared(row: dict[str, Any], block: Block, seen: int) -> set[str]:
    wrong = set()
    date = int((block.header if isinstance(block, DataBlock) else block).date.timestamp())
    if date != row["date"]:
        wrong.add("wrong-date")
    if date > seen + 48 * HOUR:
        wrong.add("future-date")
    if isinstance(block, DataBlock):
        form = row["header"] + row["key"]
    else:
        form = canonical_form(block)
        if block.own_key is not None and block.own_key.raw != row["key"]:
            wrong.add("wrong-key")
    if hashlib.sha256(form).digest() != row["digest"]:
        wrong.add("wrong-digest")
    identity = b""
    if isinstance(block, AddressClaim):
        identity = block.key_id.raw
    if isinstance(block, MessageAnnouncement):
        token = block.token.raw if block.token else b""
        stamped = hashlib.sha256(block.challenge).digest()
        identity = hashlib.sha256(stamped + token).digest()
    if identity != row["identity"]:
        wrong.add("wrong-identity")
    return wrong


def _verify(entry: _Entry, keys: dict[bytes, KeyAnnouncement], result: PlainAudit) -> None:
    block, kind = entry.block, entry.row["type"]
    if not isinstance(block, KeyAnnouncement | AddressClaim):
        return
    owner = block.key_id.raw if isinstance(block, AddressClaim) else entry.row["key"]
    outcome = "no key"
    if owner not in keys:
        result.findings.append(("store", "claim-without-key", kind, entry.key, entry.row["date"]))
    else:
        armored = keys[owner].signed.armored_key
        try:
            found = Verifier().verify_clear_signed(block.signed.message, armored, KeyId(owner))
            outcome = "good"
            if kind == KEY and found.revoked != bool(entry.row["revoked"]):
                result.findings.append(
                    ("store", "wrong-revocation", kind, entry.key, entry.row["date"])
                )
        except BadSignature:
            outcome = "bad"
            result.findings.append(("store", "bad-signature", kind, entry.key, entry.row["date"]))
    result.count("store", "signature", f"{kind} {outcome}")


def _references(entries: list[_Entry], seen: int, result: PlainAudit) -> None:
    sizes = {e.row["key"]: e.row["size"] for e in entries if e.row["type"] == "data"}
    users: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for entry in entries:
        if isinstance(entry.block, MessageAnnouncement):
            named = [key.raw for key in entry.block.data_blocks]
            for key in named:
                users[key].append(entry.row["holder"])
            if any(key not in sizes for key in named):
                kind = entry.row["type"]
                result.findings.append(
                    ("references", "missing-data", kind, entry.key, entry.row["date"])
                )
    for key, holders in users.items():
        if key not in sizes:
            continue
        size, shared = sizes[key], len(set(holders))
        result.count("references", "single-copy savings", "bytes", size * (len(holders) - 1))
        for holder in {holder.hex().upper() for holder in holders}:
            result.count("references", "bytes of user", holder, size)
            result.count("references", "data blocks of user", holder)
            result.count("references", "apportioned bytes of user", holder, size / shared)
            result.count("references", "total bytes of user", holder, size)
            result.count("references", "total apportioned bytes of user", holder, size / shared)
    for entry in entries:
        _count_text(entry, result)
    for entry in entries:
        row = entry.row
        limit = BLOCK_POLICY[row["type"]].max_age.total_seconds() + 2 * HOUR
        old = seen - row["date"] >= limit
        loose = row["type"] == "data" and row["key"] not in users
        if loose:
            result.count("references", "orphans", "blocks")
            result.count("references", "orphans", "bytes", row["size"])
        if old and (loose or row["type"] != "data") and not row["revoked"]:
            result.findings.append(
                ("references", "kept-too-long", row["type"], entry.key, row["date"])
            )
        elif loose:
            result.findings.append(
                ("references", "orphan-data", row["type"], entry.key, row["date"])
            )


def _count_text(entry: _Entry, result: PlainAudit) -> None:
    """Count a block of somebody's own by who that is."""
    row, size = entry.row, len(entry.row["header"])
    whose = {
        MAIL: ("announcement", row["holder"]),
        KEY: ("key", row["key"]),
        CLAIM: ("claim", row["identity"]),
    }
    if row["type"] not in whose:
        return
    name, owner = whose[row["type"]]
    user = owner.hex().upper()
    if name == "announcement":
        result.count("references", "mails of user", user)
    for measure in (f"{name} bytes", "total bytes", "total apportioned bytes"):
        result.count("references", f"{measure} of user", user, size)


def _keys(entries: list[_Entry], seen: int, result: PlainAudit) -> None:
    claims: defaultdict[str, set[bytes]] = defaultdict(set)
    dates: defaultdict[str, int] = defaultdict(int)
    for entry in entries:
        block, kind = entry.block, entry.row["type"]
        if isinstance(block, AddressClaim):
            claims[entry.key].add(block.key_id.raw)
            dates[entry.key] = max(dates[entry.key], entry.row["date"])
            result.count("keys", "claims", "claims")
        if not isinstance(block, KeyAnnouncement):
            continue
        facts = Verifier().read_certificate(block.signed.armored_key)
        held = read_key_block(block.signed.armored_key)
        # All that is sealed to here has a number, or is stronger than any.
        parts = [(part.bits, part.algorithm) for part in sealing_parts(held) if part.bits]
        own = [(held.bits, held.algorithm)] if held.bits or not parts else []
        bits, number = min(own + parts)
        algorithm = ALGORITHMS[number]
        result.count("keys", "algorithm", f"{algorithm} {bits}" if bits else algorithm)
        result.count("keys", "price", block.price.bits)
        for network in {one.network.value for one in block.transport.servers} or {"entangled"}:
            result.count("keys", "network", network)
        result.count("pow", "demanded", block.price.bits)
        if entry.row["revoked"]:
            result.findings.append(("keys", "revoked-key", kind, entry.key, entry.row["date"]))
        elif block.expires.timestamp() < seen:
            result.findings.append(
                ("keys", "stale-announcement", kind, entry.key, entry.row["date"])
            )
        if facts.expires is not None and facts.expires.timestamp() < seen:
            result.findings.append(("keys", "expired-key", kind, entry.key, entry.row["date"]))
        if facts.old_self_signature or (algorithm == "RSA" and bits < 2048):
            result.findings.append(("keys", "weak-key", kind, entry.key, entry.row["date"]))
    for key, owners in claims.items():
        if len(owners) > 1:
            result.findings.append(("keys", "rival-claims", CLAIM, key, dates[key]))


def _pow(
    entries: list[_Entry], keys: dict[bytes, KeyAnnouncement], seen: int, result: PlainAudit
) -> None:
    paid: defaultdict[tuple[bytes, frozenset[str]], list[_Entry]] = defaultdict(list)
    for entry in entries:
        block = entry.block
        if not isinstance(block, MessageAnnouncement) or entry.bits is None:
            continue
        kind = entry.row["type"]
        _count_payment(block, min(entry.bits, entry.row["stamp_bits"]), result)
        paid[block.challenge, frozenset(block.stamp.nonces)].append(entry)
        if 2 * HOUR < entry.row["date"] - seen <= 48 * HOUR:
            result.findings.append(("pow", "stamped-ahead", kind, entry.key, entry.row["date"]))
        reader = keys.get(entry.row["holder"])
        worth = min(entry.bits, entry.row["stamp_bits"])
        if reader is not None and block.token is None and worth < reader.price.bits:
            result.findings.append(("pow", "underpaid", kind, entry.key, entry.row["date"]))
    for alike in paid.values():
        if len(alike) > 1:
            key = min(BlockKey(entry.row["key"]) for entry in alike)
            date = min(entry.row["date"] for entry in alike)
            result.findings.append(("pow", "reused-stamp", MAIL, key.hex, date))


def _count_payment(block: MessageAnnouncement, bits: int, result: PlainAudit) -> None:
    kind = "with token" if block.token else "by price"
    result.count("pow", "mails", kind)
    result.count("pow", "paid", f"{kind} {bits}")
    # Stamps are worth 1 + 1/sqrt(2) times more, by the root, than their searches asked for.
    result.count("pow", "hashes expected", kind, math.sqrt(math.pi / 2 * 2**bits) / LUCK)
    if all(len(nonce) == COUNTED for nonce in block.stamp.nonces):
        result.count("pow", "stamps counted", kind)
        tried = max(int(nonce, 16) for nonce in block.stamp.nonces) + 1
        result.count("pow", "hashes counted", kind, tried)
