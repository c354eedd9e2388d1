"""What is right and wrong with stored blocks, each by itself: form, key, sums, dates and stamps.

The same code runs in Spark's workers and in a plain process. Stamps are weighed in bulk: the level
that the store recorded is what most are worth, and proving that takes one native call a level.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from sealmail_pow import Difficulty, Stamp, StampCheck, level, verify_many
from sealmail_protocol.block_codec import parse_data_header, parse_text_block
from sealmail_protocol.blocks import (
    AddressClaim,
    BlockType,
    DataHeader,
    KeyAnnouncement,
    MessageAnnouncement,
    TextBlock,
)
from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.fields import join_lines, split_lines
from sealmail_protocol.keys import DataKeyHasher, data_key
from sealmail_protocol.merges import announcement_identity
from sealmail_protocol.stamps import data_challenge_prefix
from sealmail_spark.announced_keys import announced_key
from sealmail_spark.demands import DEMANDS, DHT, IN_TRANSIT
from sealmail_spark.facts import Facts, Problem, StoredRow
from sealmail_spark.signatures import SignatureChecks
from sealmail_spark.store_files import is_kept

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SLICE: Final = 1024 * 1024
# An original searches by counting from zero, in nine digits.
_COUNTED_DIGITS: Final = 9
# Enough that no two of a thousand million are the same by chance.
_PROOF_BYTES: Final = 16


class _Stamped:
    """A stamp that is still to be weighed, and over what."""

    __slots__ = ("challenge", "facts", "row", "stamp")

    def __init__(self, row: StoredRow, facts: Facts, stamp: Stamp, challenge: bytes) -> None:
        self.row = row
        self.facts = facts
        self.stamp = stamp
        self.challenge = challenge


class BlockChecks:
    """Examines stored blocks, a page at a time.

    Without ``thorough`` it only reads what text blocks say: no data is hashed, no stamp weighed.
    """

    def __init__(
        self, signatures: SignatureChecks | None = None, *, thorough: bool = True
    ) -> None:
        self._signatures = signatures
        self._thorough = thorough

    def examine(self, rows: Sequence[StoredRow]) -> list[Facts]:
        """Return the facts of each row, in order."""
        waiting: list[_Stamped] = []
        found = [self._read(row, waiting) for row in rows]
        if not self._thorough:
            return found
        _weigh(waiting)
        for row, facts in zip(rows, found, strict=True):
            _judge_stamp(row, facts)
        return found

    def _read(self, row: StoredRow, waiting: list[_Stamped]) -> Facts:
        """Take a block apart; what remains is its stamp."""
        # What no server writes was told, and nothing more can be concluded from such a row.
        facts = Facts(problems=list(row.wrong))
        skipped = row.type == BlockType.DATA and not self._thorough
        if row.wrong or row.type == IN_TRANSIT or skipped:
            return facts
        try:
            if row.type == BlockType.DATA:
                _read_data(row, facts, parse_data_header(split_lines(row.header)), waiting)
            else:
                self._read_text(row, facts, parse_text_block(split_lines(row.header)), waiting)
        except InvalidBlock as error:
            facts.problems.append(Problem("malformed", error.reason))
        return facts

    def _read_text(
        self, row: StoredRow, facts: Facts, block: TextBlock, waiting: list[_Stamped]
    ) -> None:
        if block.type != row.type:
            facts.problems.append(Problem("malformed", f"its Type line says {block.type}"))
            return
        most = DEMANDS[row.held, row.type].size
        if len(row.header) > most:
            detail = f"{len(row.header)} bytes; at most {most} are taken"
            facts.problems.append(Problem("too-large", detail))
        if block.own_key is not None and block.own_key.raw != row.key:
            facts.problems.append(Problem("wrong-key", f"belongs under {block.own_key}"))
        _check_lines(row, facts, block, hashlib.sha256(row.header).digest())
        identity = b""
        match block:
            case KeyAnnouncement():
                facts.announced = announced_key(block, row.key, row.seen, facts.problems)
            case AddressClaim():
                facts.address = block.address
                identity = block.key_id.raw
                if row.held == DHT:
                    _check_certificate(row, facts)
            case MessageAnnouncement():
                facts.tokened = block.token is not None
                facts.named = tuple(key.raw for key in block.data_blocks)
                facts.stamp = _proof(block)
                stamped, token = announcement_identity(block)
                identity = hashlib.sha256(hashlib.sha256(stamped).digest() + token).digest()
                if row.held != DHT and block.recipient.raw != row.holder:
                    detail = f"kept for {row.holder.hex().upper()}, written to {block.recipient}"
                    facts.problems.append(Problem("wrong-identity", detail))
        if identity != row.identity:
            detail = "the store knows it by another identity than its content has"
            facts.problems.append(Problem("wrong-identity", detail))
        _count_nonces(facts, block.stamp)
        waiting.append(_Stamped(row, facts, block.stamp, block.challenge))
        if self._signatures is not None and isinstance(block, KeyAnnouncement | AddressClaim):
            self._signatures.check(row, facts, block)


def _check_certificate(row: StoredRow, facts: Facts) -> None:
    """Look at the key-announcement that a claim travels with in the DHT."""
    if row.certificate is None:
        facts.problems.append(Problem("malformed", "a claim without its key-announcement"))
        return
    block = parse_text_block(split_lines(row.certificate))
    if not isinstance(block, KeyAnnouncement):
        facts.problems.append(Problem("malformed", f"a claim that travels with {block.type}"))
        return
    demand = DEMANDS[row.held, str(block.type)]
    bits, nonces = level(block.challenge, block.stamp), len(block.stamp.nonces)
    if not demand.stamp.met_by(bits, nonces):
        detail = f"its key is worth bd,{bits},{nonces}; {demand.asked_by} asks for {demand.stamp}"
        facts.problems.append(Problem("weak-stamp", detail))


def _proof(block: MessageAnnouncement) -> bytes:
    """Return what is the same for all that one stamp paid for: its nonces, and what they stamp."""
    nonces = ",".join(sorted(block.stamp.nonces)).encode()
    return hashlib.sha256(nonces + b"," + block.challenge).digest()[:_PROOF_BYTES]


def _read_data(row: StoredRow, facts: Facts, header: DataHeader, waiting: list[_Stamped]) -> None:
    _check_lines(row, facts, header, hashlib.sha256(row.header + row.key).digest())
    if row.identity:
        facts.problems.append(Problem("wrong-identity", "data has no identity but its key"))
    if header.size != row.size:
        detail = f"{row.size} bytes are kept, its Data line says {header.size}"
        facts.problems.append(Problem("wrong-size", detail))
    if row.size > DEMANDS[row.held, row.type].size:
        facts.problems.append(Problem("too-large", f"{row.size} bytes of data"))
    _count_nonces(facts, header.stamp)
    prefix = data_challenge_prefix(header.date)
    match row.data:
        case bytes() as data:
            if len(data) != row.size:
                _tell_wrong_size(row, facts, len(data))
                return
            _check_data_key(row, facts, data_key(data).raw)
            waiting.append(_Stamped(row, facts, header.stamp, prefix + data))
        case Path() as path:
            _read_file(row, facts, header, path)
        case None:
            facts.problems.append(Problem("missing-bytes", f"{row.size} bytes are not there"))


def _read_file(row: StoredRow, facts: Facts, header: DataHeader, path: Path) -> None:
    """Hash and weigh the bytes of a file as they are read; none are kept."""
    hasher, check, found = DataKeyHasher(), StampCheck(header.stamp), 0
    check.update(data_challenge_prefix(header.date))
    try:
        with path.open("rb") as file:
            while chunk := file.read(_SLICE):
                hasher.update(chunk)
                check.update(chunk)
                found += len(chunk)
    except FileNotFoundError as error:
        # A running server may have removed the block since its row was read.
        if is_kept(path.parents[3], (row.type, row.key, row.identity, row.digest)):
            _tell_missing_bytes(row, facts, error)
        return
    except OSError as error:
        _tell_missing_bytes(row, facts, error)
        return
    if found != row.size:
        _tell_wrong_size(row, facts, found)
        return
    _check_data_key(row, facts, hasher.key().raw)
    facts.bits = check.bits()


def _tell_missing_bytes(row: StoredRow, facts: Facts, error: OSError) -> None:
    reason = error.strerror or type(error).__name__
    facts.problems.append(Problem("missing-bytes", f"{row.size} bytes: {reason}"))


def _tell_wrong_size(row: StoredRow, facts: Facts, found: int) -> None:
    """Note bytes that are not whole: what their key and stamp would be says nothing more."""
    detail = f"{row.size} bytes are recorded, {found} are there"
    facts.problems.append(Problem("wrong-size", detail))


def _check_data_key(row: StoredRow, facts: Facts, found: bytes) -> None:
    if found != row.key:
        facts.problems.append(
            Problem("wrong-key", f"the bytes have the key {found.hex().upper()}")
        )


def _check_lines(
    row: StoredRow, facts: Facts, block: TextBlock | DataHeader, digest: bytes
) -> None:
    """Compare what the row says with what the lines say."""
    problems = facts.problems
    if join_lines(block.lines) != row.header:
        problems.append(Problem("malformed", "not kept in the canonical form"))
    if row.revoked and row.type != BlockType.KEY_ANNOUNCEMENT:
        detail = "recorded as revoked, which only a key can be"
        problems.append(Problem("wrong-revocation", detail))
    if digest != row.digest:
        problems.append(Problem("wrong-digest", f"its content has {digest.hex()}"))
    date = (block.date - _EPOCH) // timedelta(seconds=1)
    if date != row.date:
        recorded = _EPOCH + timedelta(seconds=row.date)
        detail = f"kept as of {recorded:%Y-%m-%dT%H:%M:%SZ}, dated {block.date:%Y-%m-%dT%H:%M:%SZ}"
        problems.append(Problem("wrong-date", detail))
    demand, ahead = DEMANDS[row.held, row.type], date - row.seen
    if ahead > demand.ahead.total_seconds():
        problems.append(Problem("future-date", f"dated {ahead // 3600} hours ahead"))
    age = demand.age_of(revoked=bool(row.revoked))
    if age is not None and -ahead >= age.total_seconds():
        problems.append(Problem("outlived", f"{-ahead // 86_400} days old"))


def _count_nonces(facts: Facts, stamp: Stamp) -> None:
    facts.nonces = len(stamp.nonces)
    if all(len(nonce) == _COUNTED_DIGITS for nonce in stamp.nonces):
        facts.nonce_height = max(int(nonce, 16) for nonce in stamp.nonces)


def _weigh(waiting: Iterable[_Stamped]) -> None:
    """Find what stamps are worth: what the store recorded, unless that proves wrong."""
    by_level: defaultdict[int, list[_Stamped]] = defaultdict(list)
    for one in waiting:
        by_level[max(0, min(one.row.stamp_bits, 256))].append(one)
    for bits, alike in by_level.items():
        proven = verify_many(((one.challenge, one.stamp) for one in alike), Difficulty(bits))
        for one, holds in zip(alike, proven, strict=True):
            one.facts.bits = bits if holds else level(one.challenge, one.stamp)


def _judge_stamp(row: StoredRow, facts: Facts) -> None:
    if facts.bits is None or facts.nonces is None:
        return
    demand = DEMANDS[row.held, row.type]
    if not demand.stamp.met_by(facts.bits, facts.nonces):
        detail = f"worth bd,{facts.bits},{facts.nonces}; {demand.asked_by} asks for {demand.stamp}"
        facts.problems.append(Problem("weak-stamp", detail))
    elif facts.bits < row.stamp_bits:
        detail = f"recorded at {row.stamp_bits} bits, worth {facts.bits}"
        facts.problems.append(Problem("overstated-stamp", detail))
