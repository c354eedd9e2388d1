"""What strangers wrote is shown so that it can neither steer a terminal nor stop a program."""

import pytest

from sealmail_client.cli.program import readable
from sealmail_client.headers import address_in
from sealmail_client.html_text import harmless_page, text_of_html


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>Dear <b>Bob</b>,<br>how\nare  you?</p><p>Amy", "Dear Bob,\nhow are you?\n\nAmy"),
        ("<head><title>no</title><style>p{}</style><body>yes", "yes"),
        ("a<script>alert('<p>')</SCRIPT>b", "ab"),
        ("1 < 2 &amp; 3 &gt; 2", "1 < 2 & 3 > 2"),
        ("a<!-- > no -->b", "ab"),
        ("seen<!-- the rest is hidden <p>", "seen"),
        ("&#27;[2J", "[2J"),
        ("<ul><li>one<li>two</ul>", "one\ntwo"),
        ("", ""),
    ],
)
def test_html_is_shown_as_its_words(html: str, text: str) -> None:
    """No mark is left, and no character of the text is lost."""
    assert text_of_html(html) == text


def test_a_page_for_a_browser_begins_with_the_rule_that_nothing_runs_or_loads() -> None:
    """What the sender wrote stands behind it."""
    html = "<html><head><script src='https://x.example'></script></head></html>"
    head, rule, rest = harmless_page(html).partition(
        "default-src 'none'; img-src data:; style-src"
    )
    assert rule
    assert head.startswith("<!DOCTYPE html>")
    assert rest.endswith(html)
    assert text_of_html(harmless_page("<p>words")) == "words"


@pytest.mark.parametrize(
    ("html", "shown"),
    [
        ("<meta http-equiv=refresh content=0>", "<x-meta http-equiv=refresh content=0>"),
        ("<LINK/rel=preconnect href=x>", "<x-LINK/rel=preconnect href=x>"),
        ("<iframe srcdoc='&lt;meta'></iframe>", "<x-iframe srcdoc='&lt;meta'></iframe>"),
        ("<base\fhref=x><object><embed>", "<x-base\fhref=x><x-object><x-embed>"),
        ("<p>1 < link, <lin k> <metal>", "<p>1 < link, <lin k> <metal>"),
    ],
)
def test_tags_that_call_elsewhere_in_spite_of_the_rule_are_none_any_more(
    html: str, shown: str
) -> None:
    """A reader is not sent on, and nobody is told that he reads; other tags stay."""
    assert harmless_page(html).endswith(f"\n{shown}")


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "piece", ["<", "<!--", "</", "<a ", "<a b='", "&", "&#", "<script>", "<p>"]
)
def test_html_that_is_written_to_hurt_costs_no_more_than_other_html(piece: str) -> None:
    """A megabyte of each is read within the time that any test may take."""
    text_of_html(piece * (1_000_000 // len(piece)))


def test_a_numeric_entity_without_end_is_shown_as_it_stands() -> None:
    """Python refuses to read numbers of that length."""
    assert text_of_html("&#" + "9" * 10_000) == "&#" + "9" * 10_000


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x9b31m\x07", "�[2J�31m�"),
        ("gnp.\u202eexe", "gnp.�exe"),
        ("one\r\ntwo\ttabs\n", "one\ntwo\ttabs\n"),
        ("no\u00a0break", "no\u00a0break"),
        ("over\rwritten", "over�written"),
        ("\udcff", "�"),
        ("Grüße ☃", "Grüße ☃"),
    ],
)
def test_text_cannot_steer_a_terminal(text: str, shown: str) -> None:
    """Line ends of all systems and wide blanks are harmless, all else is replaced."""
    assert readable(text) == shown


@pytest.mark.parametrize(
    ("user_id", "address"),
    [
        ("Amy Alien <Amy@A.example>", "amy@a.example"),
        ("amy@a.example", "amy@a.example"),
        ("Amy <bob@b.example> <amy@a.example>", "amy@a.example"),
        ("Amy", ""),
        ("", ""),
    ],
)
def test_the_address_of_a_user_id_is_its_last_one(user_id: str, address: str) -> None:
    """It is what a reader takes for the sender's address."""
    assert address_in(user_id) == address
