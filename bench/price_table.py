"""What prices cost: a sender at home in seconds, a sender of a million mails in money.

It measures nothing: it computes the tables of docs/proof-of-work.md from the published
measurements and the assumptions below, and prints them in Markdown.
"""

from dataclasses import dataclass

from sealmail_client.terms import HOME_COMPUTER_HASHES
from sealmail_pow import Difficulty
from sealmail_pow.odds import expected_hashes, hashes_for
from sealmail_pow.search import useful_threads

BITS = range(24, 73, 4)
A_MILLION = 1_000_000
SECONDS_AN_HOUR = 3600

# Hashes a second of one core over 60 bytes of data. Assumed is the home computer, at the rate
# that prices in seconds go by: a processor with SHA instructions does 30.5 million and one with
# AVX-512 up to 77.5, where `make bench-pow` was run (docs/benchmarks.md).
HOME_RATE = HOME_COMPUTER_HASHES
# Measured: AVX2 on an Intel Xeon (Sapphire Rapids), 22.3 times its baseline of 0.48 million; and
# on an AMD EPYC (Zen 5) the fastest kernel, which a mailer of millions would rent, and the
# baseline there.
OLD_RATE = 10.7e6
RENTED_RATE = 77.5e6
PLAIN_RATE = 1.24e6
# The old computer has AVX2 and two cores to spare.
HOME_CORES = 4
OLD_CORES = 2


@dataclass(frozen=True, slots=True)
class Rented:
    """Something to hash with, rented by the hour."""

    name: str
    hashes_per_second: float
    dollars_an_hour: float

    def dollars_for_a_million(self, difficulty: Difficulty) -> float:
        """Return what a million stamps cost on average."""
        hours = A_MILLION * expected_hashes(difficulty) / self.hashes_per_second / SECONDS_AN_HOUR
        return hours * self.dollars_an_hour


# Assumed, not measured by us: what a core costs by the hour where interruptions are accepted; and
# a gaming card of 2022, for which password crackers publish 22 thousand million SHA-256 of one
# block a second. A stamp over a short mail takes two blocks, so half of that.
CORE = Rented("rented core", RENTED_RATE, 0.01)
CARD = Rented("rented graphics card", 22e9 / 2, 0.35)


def duration(seconds: float) -> str:
    """Write a time with two digits that count, in the unit that suits it."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= 2 * length or (length == 1 and seconds >= 1):
            return f"{two_digits(seconds / length)} {unit}"
    return f"{two_digits(seconds * 1000)} ms"


def two_digits(number: float) -> str:
    """Round to two digits that count, without an exponent."""
    rounded = float(f"{number:.2g}")
    if rounded >= 10:
        return f"{rounded:,.0f}".replace(",", " ")
    return f"{rounded:.6f}".rstrip("0").rstrip(".")


def seconds_table() -> list[str]:
    """Return the rows of what a price costs a sender."""
    rows = [
        f"| price | hashes | home computer, {HOME_CORES} cores | in 9 of 10 cases at most "
        f"| old laptop, {OLD_CORES} cores | hashlib and a dictionary |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for bits in BITS:
        price = Difficulty(bits)
        mean = expected_hashes(price)
        home = HOME_RATE * useful_threads(price, HOME_CORES)
        old = OLD_RATE * useful_threads(price, OLD_CORES)
        cells = (
            f"{mean:.2g}".replace("e+0", "e").replace("e+", "e"),
            duration(mean / home),
            duration(hashes_for(price, 0.9) / home),
            duration(mean / old),
            duration(mean / PLAIN_RATE),
        )
        rows.append(f"| `{price}` | {' | '.join(cells)} |")
    return rows


def money_table() -> list[str]:
    """Return the rows of what a million mails cost who rents."""
    rows = [f"| price | {CORE.name} | {CARD.name} |", "|---|---:|---:|"]
    for bits in BITS:
        price = Difficulty(bits)
        cells = [f"{two_digits(each.dollars_for_a_million(price))} $" for each in (CORE, CARD)]
        rows.append(f"| `{price}` | {' | '.join(cells)} |")
    return rows


def main() -> None:
    """Print both tables."""
    print("\n".join([*seconds_table(), "", *money_table()]))


if __name__ == "__main__":
    main()
