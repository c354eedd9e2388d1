"""Every answer of a server as a value. Refusals are single words with nothing behind them."""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sealmail_pow import Difficulty
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.errors import Refusal
from sealmail_protocol.fields import as_line
from sealmail_protocol.keys import BlockKey

PROTOCOL_VERSION = 1
_BANNER = re.compile(r"(?:.*\s)?CONFIDANT MAIL SERVER PROTOCOL ([0-9]{1,9}) (.{1,400})")
# A verdict's text is for people; longer ones are cut, never refused.
MAX_VERDICT_TEXT = 200
_POST_TO_LINE = re.compile(r"[1-9][0-9]{0,2}")
_QUEUE_CODE = re.compile(r"-|[a-z]{1,16}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Word(StrEnum):
    """The answers that are one fixed line."""

    DONE = "DONE"
    FAILED = "FAILED"
    NOT_FOUND = "NOT FOUND"
    INVALID_COMMAND = "INVALID COMMAND"
    PROCEED = "PROCEED"
    ENCRYPTED = "ENCRYPTED"
    GOODBYE = "GOODBYE"


REFUSALS = frozenset({Word.FAILED, Word.NOT_FOUND, Word.INVALID_COMMAND})


@dataclass(frozen=True, slots=True)
class Banner:
    """The first line of a server; only ``READY`` at its end means that it serves."""

    version: int = PROTOCOL_VERSION
    ending: str = "READY"

    @classmethod
    def parse(cls, line: str) -> "Banner":
        """Read a banner of any whole version; ``ValueError`` if it is none."""
        match = _BANNER.fullmatch(line)
        if not match:
            raise ValueError("no Confidant Mail banner")
        return cls(int(match[1]), match[2])

    @property
    def ready(self) -> bool:
        """Return whether the server will take commands."""
        return self.ending == "READY"

    def __str__(self) -> str:
        return f"CONFIDANT MAIL SERVER PROTOCOL {self.version} {self.ending}"


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to PING."""

    text: str = ""

    @classmethod
    def parse(cls, line: str) -> "Pong":
        """Read ``PONG [text]``."""
        if line != "PONG" and not line.startswith("PONG "):
            raise ValueError("not PONG")
        return cls(line[5:])

    def __str__(self) -> str:
        return f"PONG {self.text}" if self.text else "PONG"


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines up to ``EndBlock``: capabilities, queue rows, TXT records, new accounts."""

    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    """The block is stored; ``degraded`` if the partner could not take it at once."""

    degraded: bool = False

    def __str__(self) -> str:
        return "ACCEPTED degraded" if self.degraded else "ACCEPTED"


@dataclass(frozen=True, slots=True)
class Pending:
    """The block waits for an account, a key or, at this price, a better stamp."""

    demand: Difficulty | None = None

    def __str__(self) -> str:
        return f"PENDING {self.demand}" if self.demand else "PENDING"


@dataclass(frozen=True, slots=True)
class Refused:
    """The block was not taken, and why."""

    code: Refusal
    text: str = ""

    def __str__(self) -> str:
        return f"REFUSED {self.code} {self.text}" if self.text else f"REFUSED {self.code}"


Verdict = Accepted | Pending | Refused
_WORST_FIRST = (Refused, Pending, Accepted)
_ACCEPTED = {str(verdict): verdict for verdict in (Accepted(), Accepted(degraded=True))}


def parse_verdict(line: str) -> Verdict:
    """Read a verdict line; ``ValueError`` if it is none (``NOT FOUND`` is a ``Word``)."""
    word, space, rest = line.partition(" ")
    if line in _ACCEPTED:
        return _ACCEPTED[line]
    if word == "PENDING":
        return Pending(Difficulty.parse(rest) if space else None)
    if word == "REFUSED":
        code, _, text = rest.partition(" ")
        return refused(Refusal(code), text)
    raise ValueError("not a verdict")


def refused(code: Refusal, reason: str) -> Refused:
    """Return a refusal whose text is fit for one line."""
    return Refused(code, as_line(reason)[:MAX_VERDICT_TEXT].strip())


def worst(verdicts: tuple[Verdict, ...]) -> Verdict:
    """Return the verdict of a bundle: that of its worst entry."""
    return min(verdicts, key=lambda verdict: _WORST_FIRST.index(type(verdict)))


def demand_of(verdict: Verdict) -> Difficulty | None:
    """Return the stamp with which the block would be taken, if the verdict names one."""
    if isinstance(verdict, Pending):
        return verdict.demand
    if not isinstance(verdict, Refused) or verdict.code is not Refusal.PRICE:
        return None
    try:
        return Difficulty.parse(verdict.text.partition(" ")[0])
    except ValueError:
        return None


class QueueState(StrEnum):
    """What became of a proxied block at one target; of two mirrored states the first stays."""

    DELIVERED = "delivered"
    REFUSED = "refused"
    GIVEN_UP = "given-up"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One ``Block:`` line of QUEUE; it names the Post-To line by number, not the target.

    ``code`` is one word on the last attempt, such as the code of a refusal, or ``-``; ``last`` is
    the time of that attempt. ``digest`` is that of the canonical form: two mails in one mailbox
    have the same key. ``demand`` is the stamp that was asked for, if the price was too low.
    """

    key: BlockKey
    type: BlockType
    post_to: int
    state: QueueState
    code: str
    queued: datetime
    last: datetime | None
    digest: bytes
    demand: Difficulty | None = None

    @classmethod
    def parse(cls, line: str) -> "QueueRow":
        """Read ``Block: key type post-to-line state code queued last digest [demand]``."""
        words = line.split(" ")
        if len(words) not in (9, 10) or words[0] != "Block:":
            raise ValueError("not a queue row")
        if not _POST_TO_LINE.fullmatch(words[3]) or not _QUEUE_CODE.fullmatch(words[5]):
            raise ValueError("not the number of a Post-To line and a code")
        if not _DIGEST.fullmatch(words[8]):
            raise ValueError("not a digest")
        return cls(
            BlockKey.from_hex(words[1]),
            BlockType(words[2]),
            int(words[3]),
            QueueState(words[4]),
            words[5],
            parse_date(words[6]),
            None if words[7] == "-" else parse_date(words[7]),
            bytes.fromhex(words[8]),
            Difficulty.parse(words[9]) if len(words) == 10 else None,
        )

    def __str__(self) -> str:
        last = format_date(self.last) if self.last else "-"
        what = f"{self.key} {self.type} {self.post_to} {self.state} {self.code}"
        demand = f" {self.demand}" if self.demand else ""
        return f"Block: {what} {format_date(self.queued)} {last} {self.digest.hex()}{demand}"


LineReply = Word | Pong | Banner | Accepted | Pending | Refused
