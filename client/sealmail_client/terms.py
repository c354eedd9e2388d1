"""What a user asks of strangers who write to him, and what he asked before.

Senders hold on to an announcement for a while, so mail that kept to former terms is welcome
until everybody can have seen the new ones.
"""

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from sealmail_client.home_database import HomeDatabase
from sealmail_pow import Difficulty, fits_memory
from sealmail_protocol.block_codec import MAX_MAILBOXES
from sealmail_protocol.dates import format_date, parse_date

# As long as our server goes by them.
FORMER_FOR = timedelta(days=12)
MIN_MAILBOXES = 2
# Fixed, so that a price in seconds means the same on every machine: what one core of an
# ordinary computer tries with a compiled minter, which makes bd,48,2 cost about 0.6 s.
HOME_COMPUTER_HASHES = 35_000_000
# For two nonces a search takes sqrt(pi / 2) times 2^(bits / 2) hashes.
_BIRTHDAY = math.sqrt(math.pi / 2)
_SECONDS = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) ?s")
_CHEAPEST_BITS = 8
_UNFELT_SECONDS = 0.1
# Three hours of one core: beyond that a price only shuts the door.
_DEAREST_BITS = 76


def parse_price(text: str) -> Difficulty:
    """Read ``bd,BITS,N``, or seconds of a home computer such as ``2s``; else ``ValueError``."""
    written = _SECONDS.fullmatch(text)
    if written is not None:
        price = _worth(float(written[1]))
    elif text.startswith("bd,"):
        price = Difficulty.parse(text)
    else:
        raise ValueError("a price is written bd,BITS,N, or in seconds of work such as 2s")
    if price.bits > _DEAREST_BITS:
        raise ValueError(f"nobody would pay more than bd,{_DEAREST_BITS},2, which takes hours")
    if not fits_memory(price, "native"):
        raise ValueError(f"nobody has the memory to search {price}: ask fewer bits, or two nonces")
    return price


def _worth(seconds: float) -> Difficulty:
    hashes = seconds * HOME_COMPUTER_HASHES / _BIRTHDAY
    if hashes < 1:
        raise ValueError("no time is no price: bd,8,2 is the least that servers ask")
    return Difficulty(max(_CHEAPEST_BITS, round(2 * math.log2(hashes))))


def seconds_of(price: Difficulty) -> float:
    """Return what a price with two nonces costs on a home computer."""
    return _BIRTHDAY * math.exp2(price.bits / 2) / HOME_COMPUTER_HASHES


def spoken_seconds(seconds: float) -> str:
    """Return a span of work in words; what nobody waits for has no digits."""
    return "less than 0.1 s" if seconds < _UNFELT_SECONDS else f"about {seconds:.1f} s"


def numbered_mailboxes(count: int) -> tuple[str, ...]:
    """Return the names of ``count`` mailboxes."""
    if not MIN_MAILBOXES <= count <= MAX_MAILBOXES:
        raise ValueError(f"{MIN_MAILBOXES} to {MAX_MAILBOXES} mailboxes, not {count}")
    return tuple(map(str, range(count)))


@dataclass(frozen=True, slots=True)
class Terms:
    """The prices that are enough, and the mailboxes that are read."""

    prices: tuple[Difficulty, ...]
    mailboxes: tuple[str, ...]

    def paid_by(self, bits: int, nonces: int) -> bool:
        """Return whether such a stamp is enough."""
        return any(price.met_by(bits, nonces) for price in self.prices)

    def with_former(self, others: "tuple[Terms, ...]") -> "Terms":
        """Return what senders may go by who know these terms or one of ``others``."""
        everything = (self, *others)
        return Terms(
            tuple(dict.fromkeys(price for terms in everything for price in terms.prices)),
            tuple(dict.fromkeys(name for terms in everything for name in terms.mailboxes)),
        )


class FormerTerms:
    """The terms that were published once."""

    def __init__(self, database: HomeDatabase) -> None:
        self._database = database

    def note(self, price: Difficulty, mailboxes: tuple[str, ...], ended: datetime) -> None:
        """Remember terms that others have taken the place of."""
        self._database.write(
            "INSERT INTO former_terms VALUES (?, ?, ?)",
            format_date(ended),
            str(price),
            ",".join(mailboxes),
        )

    def still_valid(self, now: datetime) -> tuple[Terms, ...]:
        """Return those that somebody may still go by."""
        rows = self._database.rows("SELECT * FROM former_terms ORDER BY ended DESC")
        return tuple(
            Terms((Difficulty.parse(row["price"]),), tuple(row["mailboxes"].split(",")))
            for row in rows
            if now - parse_date(row["ended"]) < FORMER_FOR
        )
