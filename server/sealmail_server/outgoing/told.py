"""What ``PARTNER QUEUED`` carries: the rows of one proxied block, in lines before the block."""

from collections.abc import Sequence
from dataclasses import dataclass

from sealmail_pow import Difficulty
from sealmail_protocol.addresses import Transport
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.keys import BlockKey
from sealmail_server.outgoing.rows import TICKET, content_of, dates_of
from sealmail_store import QueueKind, QueueRow, QueueState

_BLOCK = b"Queued-Block: "
_ROW = b"Queued-Row: "
# A row of which the teller keeps a copy, and who is told of it is the owner.
_COPY = b"Queued-Copy: "
_KINDS = {_ROW: QueueKind.MIRRORED, _COPY: QueueKind.PROXY}
# Head lines beyond this go by themselves: the partner would throw such a body away.
_MAX_HEAD = 60 * 1024
_NONE = "-"
# A row and its copy at the partner.
ROW_KINDS = (QueueKind.PROXY, QueueKind.MIRRORED)

_Lines = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What the partner tells: the rows of one block, and the lines of the block, if it comes.

    Each row is of the kind that it is here: a copy, or this server's own, of which the partner
    has a copy.
    """

    digest: bytes
    type: BlockType
    rows: tuple[QueueRow, ...]
    lines: _Lines


def told_heads(digest: bytes, rows: Sequence[QueueRow]) -> tuple[bytes, ...]:
    """Return the heads of as many ``PARTNER QUEUED`` as the rows need; none for nothing to tell.

    The block belongs to the first one.
    """
    known = [row for row in rows if row.digest == digest and row.kind in ROW_KINDS]
    if not known:
        return ()
    first = _BLOCK + f"{digest.hex()} {known[0].type}\r\n".encode()
    heads = [first]
    for line in map(_row_line, known):
        if len(heads[-1]) + len(line) > _MAX_HEAD:
            heads.append(first)
        heads[-1] += line
    return tuple(heads)


def parse_told(key: BlockKey, lines: _Lines) -> Told:
    """Read the head of a ``PARTNER QUEUED``; ``ValueError`` if it is none."""
    if not lines or not lines[0].startswith(_BLOCK):
        raise ValueError("no Queued-Block line")
    digest, kind = lines[0][len(_BLOCK) :].decode().split(" ")
    count = 1
    while count < len(lines) and lines[count].startswith(tuple(_KINDS)):
        count += 1
    type, raw = BlockType(kind), bytes.fromhex(digest)
    rows = tuple(_parse_row(line, raw, key, type) for line in lines[1:count])
    if len(raw) != 32 or not rows:
        raise ValueError("no rows of a block")
    return Told(raw, type, rows, lines[count:])


def waits(row: QueueRow) -> bool:
    """Tell whether a row is not settled."""
    return row.state == QueueState.WAITING


def _row_line(row: QueueRow) -> bytes:
    date, start = dates_of(row)
    code, _, demand = row.code.partition(" ")
    words = (
        row.ticket,
        row.owner or "",
        str(row.line),
        row.state,
        code,
        demand or _NONE,
        format_date(row.queued),
        format_date(row.last) if row.last else _NONE,
        format_date(date) if date else _NONE,
        format_date(start) if start else _NONE,
        row.destination or _NONE,
    )
    name = _COPY if row.kind == QueueKind.MIRRORED and waits(row) else _ROW
    return name + " ".join(words).encode() + b"\r\n"


def _parse_row(line: bytes, digest: bytes, key: BlockKey, type: BlockType) -> QueueRow:
    name = next(each for each in _KINDS if line.startswith(each))
    words = line[len(name) :].decode().split(" ")
    ticket, owner, number, state, code, demand, queued, last, date, start, target = words
    if not TICKET.fullmatch(ticket):
        raise ValueError("a row without a ticket")
    waiting = QueueState(state) is QueueState.WAITING
    if waiting and (target == _NONE or _NONE in (date, start)):
        raise ValueError("a row that waits for nobody")
    if not (owner.isascii() and owner.isalnum() and 8 <= len(owner) <= 40):
        raise ValueError("a row of nobody")
    if not code.isascii() or len(code) > 16 or not 1 <= int(number) <= 999:
        raise ValueError("no row of the queue")
    return QueueRow(
        kind=_KINDS[name],
        digest=digest,
        queued=parse_date(queued),
        type=type,
        key=key,
        destination=str(Transport.parse(target)) if waiting else "",
        not_before=parse_date(start) if waiting else None,
        owner=owner.upper(),
        line=int(number),
        content=content_of(parse_date(date), parse_date(start)) if waiting else b"",
        state=QueueState(state),
        code=code if demand == _NONE else f"{code} {Difficulty.parse(demand)}",
        last=None if last == _NONE else parse_date(last),
        ticket=ticket,
    )
