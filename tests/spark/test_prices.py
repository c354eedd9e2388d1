"""What prices cost in core-seconds and dollars, against the table of the page about them."""

import re
from pathlib import Path

import pytest

from sealmail_spark.prices import Market, price_rows

PAGE = Path(__file__).parents[2] / "docs" / "proof-of-work.md"
# As the page assumes.
MARKET = Market(core_rate=77.5e6)


def table() -> dict[str, tuple[float, float]]:
    """Return what a million mails cost by price, on rented cores and cards."""
    section = PAGE.read_text(encoding="utf-8").split("### In money", 1)[1].split("\n#", 1)[0]
    rows = re.findall(r"^\| `bd,(\d+),2` \| ([\d .]+) \$ \| ([\d .]+) \$ \|$", section, re.M)
    return {bits: (_number(core), _number(card)) for bits, core, card in rows}


def _number(text: str) -> float:
    return float(text.replace(" ", ""))


def test_dollars_are_those_of_the_page() -> None:
    """A default price costs 75 cents on cores and 19 on cards; all others as the page says."""
    told = table()
    assert told["48"] == (0.75, 0.19)
    found = {(measure, price): value for measure, price, value in price_rows(MARKET)}
    for place, kind in enumerate(("cores", "cards")):
        dollars = {price: found[f"dollars for 1000000 mails, {kind}", price] for price in told}
        assert {price: float(f"{value:.2g}") for price, value in dollars.items()} == {
            price: values[place] for price, values in told.items()
        }


def test_core_seconds_follow_from_the_birthday_of_hashes() -> None:
    """1.2533 * 2^24 hashes at 77.5 million a second, in nine cases of ten at most 1.71 times."""
    found = {(measure, price): value for measure, price, value in price_rows(MARKET)}
    assert found["core-seconds a thousand", "48"] == pytest.approx(271.3, rel=1e-3)
    assert found["core-seconds a mail, in 9 of 10", "48"] == pytest.approx(0.4645, rel=2e-3)
    assert found["dollars a thousand, cores", "48"] == pytest.approx(0.2713 / 360, rel=1e-3)
    assert found["dollars a thousand, cards", "48"] == pytest.approx(1.859e-4, rel=1e-3)
