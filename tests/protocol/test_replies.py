"""Verdicts, banners and rows have one spelling."""

import pytest

from sealmail_pow import Difficulty
from sealmail_protocol.errors import Refusal
from sealmail_protocol.replies import (
    Accepted,
    Banner,
    Pending,
    QueueRow,
    Refused,
    Verdict,
    demand_of,
    parse_verdict,
    refused,
    worst,
)

D = "0a" * 32


def test_a_verdict_text_is_fit_for_a_line() -> None:
    """Cut, and without what could end the line."""
    assert refused(Refusal.FORM, "a\r\nb\ud800").text == "a??b?"
    assert len(refused(Refusal.FORM, "x" * 300).text) == 200
    assert parse_verdict("REFUSED form " + "x" * 300) == Refused(Refusal.FORM, "x" * 200)


@pytest.mark.parametrize(
    "line",
    ["", "ACCEPTED ", "ACCEPTED twice", "accepted", "PENDING ", "PENDING bd,1", "REFUSED",
     "REFUSED because", "NOT FOUND"],
)  # fmt: skip
def test_what_is_no_verdict_is_refused(line: str) -> None:
    """``NOT FOUND`` is an answer, but no verdict."""
    with pytest.raises(ValueError, match=r"\w"):
        parse_verdict(line)


def test_a_bundle_is_as_good_as_its_worst_entry() -> None:
    """Refused, then pending, then accepted."""
    no = Refused(Refusal.FORM)
    assert worst((Accepted(), no, Pending())) == no
    assert worst((Accepted(), Pending())) == Pending()
    assert worst((Accepted(),)) == Accepted()


@pytest.mark.parametrize(
    ("verdict", "demand"),
    [
        (Pending(Difficulty(48, 2)), Difficulty(48, 2)),
        (Pending(), None),
        (Refused(Refusal.PRICE, "bd,53,2 is asked"), Difficulty(53, 2)),
        (Refused(Refusal.PRICE, "too cheap"), None),
        (Refused(Refusal.FULL, "bd,53,2 is asked"), None),
        (Accepted(), None),
    ],
)
def test_a_verdict_names_what_would_be_taken(verdict: Verdict, demand: Difficulty | None) -> None:
    """By a pending block's price, or the first word of a refused one's text."""
    assert demand_of(verdict) == demand


@pytest.mark.parametrize(
    "line",
    [
        "Block: x",
        f"Block: {'0' * 40} data 0 waiting - 2026-05-01T10:00:00Z - {D}",
        f"Block: {'0' * 40} data ٣ waiting - 2026-05-01T10:00:00Z - {D}",
        f"Block: {'0' * 40} data 1 asleep - 2026-05-01T10:00:00Z - {D}",
        f"Block: {'0' * 40} data 1 waiting A 2026-05-01T10:00:00Z - {D}",
        f"Block: {'0' * 40} mail 1 waiting - 2026-05-01T10:00:00Z - {D}",
        f"Block: {'0' * 40} data 1 waiting - - - {D}",
        f"Block: {'0' * 40} data 1 waiting - 2026-05-01T10:00:00Z -",
        f"Block: {'0' * 40} data 1 waiting - 2026-05-01T10:00:00Z - {D.upper()}",
        f"Block: {'0' * 40} data 1 waiting - 2026-05-01T10:00:00Z - {D} cheap",
    ],
)
def test_what_is_no_queue_row_is_refused(line: str) -> None:
    """Numbers from one, known states, one word, real dates."""
    with pytest.raises(ValueError, match=r"\w"):
        QueueRow.parse(line)


@pytest.mark.parametrize(
    ("line", "ready"),
    [
        ("CONFIDANT MAIL SERVER PROTOCOL 1 READY", True),
        ("CONFIDANT MAIL SERVER PROTOCOL 999999999 READY", True),
        ("\x05 CONFIDANT MAIL SERVER PROTOCOL 1 READY", True),
        ("CONFIDANT MAIL SERVER PROTOCOL 1 READY or not", False),
        ("CONFIDANT MAIL SERVER PROTOCOL 1 ready", False),
        ("CONFIDANT MAIL SERVER PROTOCOL x READY", None),
        ("CONFIDANT MAIL SERVER PROTOCOL 1", None),
        ("XCONFIDANT MAIL SERVER PROTOCOL 1 READY", None),
    ],
)
def test_only_ready_means_ready(line: str, ready: bool | None) -> None:
    """Any whole version is taken; any other ending means that the server is unavailable."""
    if ready is None:
        with pytest.raises(ValueError, match="banner"):
            Banner.parse(line)
    else:
        assert Banner.parse(line).ready is ready
