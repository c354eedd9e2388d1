"""Names of attachments: what is dangerous is replaced, what is harmless stays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealmail_client.attachment_names import MAX_NAME_BYTES, distinct_names, safe_name


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("Größe 1:2.pdf", "Größe 1_2.pdf"),
        ("../../etc/passwd", "_._.._etc_passwd"),
        ("C:\\autoexec.bat", "C__autoexec.bat"),
        (".bashrc", "_bashrc"),
        ("nul.txt", "_nul.txt"),
        ("photo\u202egpj.exe", "photo_gpj.exe"),
        ("a\x00b\n.txt", "a_b_.txt"),
        ("lone \udcff.txt", "lone _.txt"),
        ("trailing. ", "trailing"),
        ("..", "attachment"),
        ("", "attachment"),
        ("👩‍🚀.png", "👩‍🚀.png"),
    ],
)
def test_a_name_becomes_a_harmless_file_name(name: str, safe: str) -> None:
    """A name becomes a harmless file name."""
    assert safe_name(name) == safe


def test_a_long_name_keeps_its_ending() -> None:
    """A long name keeps its ending."""
    name = safe_name("ü" * 300 + ".tar")
    assert name.endswith("ü.tar")
    assert len(name.encode()) <= MAX_NAME_BYTES


def test_names_that_would_be_the_same_file_get_numbers() -> None:
    """Names that would be the same file get numbers."""
    names = distinct_names(["a.txt", "A.TXT", "a.txt", "b/c", "b_c"])
    assert names == ("a.txt", "A (2).TXT", "a (3).txt", "b_c", "b_c (2)")


def test_ten_thousand_equal_names_cost_little() -> None:
    """Ten thousand equal names cost little."""
    assert len(set(distinct_names(["x"] * 10_000))) == 10_000


@given(st.text(max_size=300))
def test_no_name_leads_anywhere(name: str) -> None:
    """No name leads anywhere."""
    safe = safe_name(name)
    assert safe
    assert not safe.startswith(".")
    assert not set("/\\\0") & set(safe)
    assert len(safe.encode()) <= MAX_NAME_BYTES
    assert safe_name(safe) == safe
