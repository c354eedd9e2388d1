"""The price tables of the documentation are what the script prints."""

from pathlib import Path

import pytest
from bench.price_table import duration, money_table, seconds_table, two_digits

PAGE = (Path(__file__).parents[2] / "docs" / "proof-of-work.md").read_text()


@pytest.mark.parametrize("table", [seconds_table, money_table], ids=["seconds", "money"])
def test_the_page_holds_the_table(table: object) -> None:
    """Whoever changes an assumption prints the tables again."""
    assert callable(table)
    assert "\n".join(table()) in PAGE


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00014, "0.14 ms"),
        (0.999, "1 000 ms"),
        (1.0, "1 s"),
        (119.0, "120 s"),
        (120.0, "2 min"),
        (86400.0, "24 h"),
        (172800.0, "2 days"),
    ],
)
def test_a_duration_has_two_digits_and_a_unit(seconds: float, text: str) -> None:
    """Times are written for people."""
    assert duration(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(0.000045, "0.000045"), (6543.0, "6 500"), (3, "3")])
def test_numbers_are_written_without_exponents(number: float, text: str) -> None:
    """Small and large figures are readable."""
    assert two_digits(number) == text
