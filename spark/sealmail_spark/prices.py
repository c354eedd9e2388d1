"""What a price costs in core-seconds and in money, for a sender of one mail and of many."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sealmail_pow import Difficulty, hash_rate
from sealmail_pow.odds import expected_hashes, hashes_for

PRICES = range(20, 73, 4)
_SECONDS_AN_HOUR = 3600
_CALIBRATION_SECONDS = 0.5
# Assumed, not measured by us: a core by the hour where interruptions are accepted; and a gaming
# card of 2022, for which password crackers publish 22 thousand million SHA-256 of one block a
# second, half of that for the two blocks of a mail's stamp.
_CORE_DOLLARS = 0.01
_CARD_RATE = 11e9
_CARD_DOLLARS = 0.35
_MANY = 1_000_000
_PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Market:
    """What hashing costs: the rate of a core, and what it and a graphics card are rented for.

    ``patience`` is how many core-seconds a mail may cost an honest sender on average.
    """

    core_rate: float
    core_dollars: float = _CORE_DOLLARS
    card_rate: float = _CARD_RATE
    card_dollars: float = _CARD_DOLLARS
    mails: int = _MANY
    patience: float = _PATIENCE_SECONDS

    @classmethod
    def here(cls) -> Self:
        """Measure a core of this machine, as ``sealmail pow bench`` does."""
        return cls(hash_rate(threads=1, seconds=_CALIBRATION_SECONDS))

    @classmethod
    def benched(cls, path: Path) -> Self:
        """Take the rate that ``sealmail pow bench --json`` printed into a file."""
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            rate = float(told["hashes_per_second"][told["fastest"]])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not what `sealmail pow bench --json` prints") from error
        if not 0 < rate < math.inf:
            raise ValueError(f"{path}: {rate} hashes a second is no rate")
        return cls(rate)

    @property
    def recommended(self) -> Difficulty:
        """Return the highest even price whose mean cost stays within the patience."""
        hashes = self.patience * self.core_rate
        bits = 2 * math.log2(hashes / math.sqrt(math.pi / 2)) if hashes > 1 else 0
        return Difficulty(max(8, min(72, 2 * int(bits / 2))))

    def core_seconds(self, price: Difficulty) -> float:
        """Return what a mail costs on average on one core."""
        return expected_hashes(price) / self.core_rate

    def core_cost(self, price: Difficulty) -> float:
        """Return what a mail costs in dollars on rented cores."""
        return self.core_seconds(price) / _SECONDS_AN_HOUR * self.core_dollars

    def card_cost(self, price: Difficulty) -> float:
        """Return what a mail costs in dollars on rented graphics cards."""
        hours = expected_hashes(price) / self.card_rate / _SECONDS_AN_HOUR
        return hours * self.card_dollars


def price_rows(market: Market) -> Iterator[tuple[str, str, float]]:
    """Yield measure, price and value of all that is known of prices."""
    best = market.recommended
    for bits in sorted({*PRICES, best.bits}):
        price, text = Difficulty(bits), str(bits)
        yield "core-seconds a thousand", text, 1000 * market.core_seconds(price)
        slow = hashes_for(price, 0.9) / market.core_rate
        yield "core-seconds a mail, in 9 of 10", text, slow
        yield "dollars a thousand, cores", text, 1000 * market.core_cost(price)
        yield "dollars a thousand, cards", text, 1000 * market.card_cost(price)
        yield (
            f"dollars for {market.mails} mails, cores",
            text,
            market.mails * market.core_cost(price),
        )
        yield (
            f"dollars for {market.mails} mails, cards",
            text,
            market.mails * market.card_cost(price),
        )
    yield "hashes a second", "core", market.core_rate
    yield "hashes a second", "card", market.card_rate
    yield "recommended", "SenderProofOfWork", float(best.bits)
