"""Dates have one form."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies as s

from sealmail_protocol.dates import format_date, parse_date


@given(s.dates)
def test_a_date_is_read_as_it_was_written(date: datetime) -> None:
    """Twenty characters, from the year 1 to 9999."""
    assert len(format_date(date)) == 20
    assert parse_date(format_date(date)) == date


def test_a_date_is_written_in_utc() -> None:
    """A time zone is needed to know the moment."""
    there = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    assert format_date(there) == "2025-12-31T23:00:00Z"
    with pytest.raises(ValueError, match="time zone"):
        format_date(datetime(2026, 1, 1))


@pytest.mark.parametrize("hour", ["24", "25", "30", "99"])
def test_the_day_has_hours_0_to_23(hour: str) -> None:
    """Midnight has one spelling: the form is refused, whatever the version of Python says."""
    with pytest.raises(ValueError, match="of the form"):
        parse_date(f"2026-01-01T{hour}:00:00Z")


@given(st.text("0123456789-T:Z ٣", max_size=22))
def test_noise_is_a_date_or_a_value_error(text: str) -> None:
    """Only the one form is taken."""
    try:
        date = parse_date(text)
    except ValueError:
        return
    assert format_date(date) == text
