"""Prices in bits and in seconds, and terms that hold for a while after they changed."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sealmail_client.home_database import HomeDatabase
from sealmail_client.terms import (
    FORMER_FOR,
    FormerTerms,
    Terms,
    numbered_mailboxes,
    parse_price,
    seconds_of,
    spoken_seconds,
)
from sealmail_pow import Difficulty

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("bd,48,2", "bd,48,2"),
        ("bd,30,3", "bd,30,3"),
        ("0.6s", "bd,48,2"),
        ("2s", "bd,51,2"),
        ("2 s", "bd,51,2"),
        ("60s", "bd,61,2"),
    ],
)
def test_a_price_is_written_in_bits_or_in_seconds_of_a_home_computer(
    text: str, price: str
) -> None:
    """The conversion is the same on every machine."""
    assert str(parse_price(text)) == price


@pytest.mark.parametrize(
    "text",
    ["", "cheap", "2", "-1s", "1e9s", "9999999s", "bd,48", "bd,999,2", "bd,48,3", "bd,38,3"],
)
def test_what_is_no_price_is_refused(text: str) -> None:
    """With a word on how one is written."""
    with pytest.raises(ValueError, match=r"bd,|bits"):
        parse_price(text)


def test_two_more_bits_are_twice_the_seconds() -> None:
    """And the default is about 0.6 of them."""
    assert seconds_of(Difficulty(50)) == pytest.approx(2 * seconds_of(Difficulty(48)))
    assert seconds_of(Difficulty(48)) == pytest.approx(0.6, abs=0.05)


@pytest.mark.parametrize("count", [1, 17])
def test_there_are_2_to_16_mailboxes(count: int) -> None:
    """They are named by their numbers."""
    assert numbered_mailboxes(16)[-1] == "15"
    with pytest.raises(ValueError, match="2 to 16"):
        numbered_mailboxes(count)


def test_former_terms_hold_for_12_days(tmp_path: Path) -> None:
    """The lower price of both is enough, and mailboxes of both are read."""
    database = HomeDatabase(tmp_path / "mail.sqlite")
    former = FormerTerms(database)
    former.note(Difficulty(20), ("0", "1", "2"), NOW)
    present = Terms((Difficulty(30),), ("0", "1"))
    soon = present.with_former(former.still_valid(NOW + FORMER_FOR - timedelta(seconds=1)))
    assert soon.paid_by(20, 2)
    assert soon.mailboxes == ("0", "1", "2")
    late = present.with_former(former.still_valid(NOW + FORMER_FOR))
    database.close()
    assert not late.paid_by(29, 2)
    assert late.paid_by(30, 2)
    assert late.mailboxes == ("0", "1")


def test_work_that_nobody_feels_is_told_without_digits() -> None:
    """A span is told in tenths of a second, or as less than one."""
    assert spoken_seconds(3.7e-05) == "less than 0.1 s"
    assert spoken_seconds(2.04) == "about 2.0 s"


@pytest.mark.parametrize("text", ["0s", "0.000s", "bd,100,2", "999999s"])
def test_a_price_that_is_none_or_that_nobody_can_pay_is_refused(text: str) -> None:
    """It would only open or shut the door."""
    with pytest.raises(ValueError, match=r"price|pay"):
        parse_price(text)
