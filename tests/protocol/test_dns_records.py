"""Names that DNS is asked for, and what its answers say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealmail_protocol.addresses import Transport
from sealmail_protocol.dns_records import (
    MAX_ALTERNATIVES,
    MAX_RECORDS,
    lookup_name,
    named_transports,
    record_name,
    record_text,
    record_texts,
    texts_in,
    txt_lines,
)
from sealmail_protocol.fields import MAX_LINE


@pytest.mark.parametrize(
    ("domain", "name"),
    [
        ("example.net", "cmsvr.example.net"),
        ("Example.NET.", "cmsvr.example.net"),
        ("bücher.example", "cmsvr.xn--bcher-kva.example"),
        ("faß.example", "cmsvr.xn--fa-hia.example"),
        ("例え.テスト", "cmsvr.xn--r8jz45g.xn--zckzah"),
    ],
)
def test_a_domain_has_a_record_name(domain: str, name: str) -> None:
    """The label stands before the domain in its IDNA form."""
    assert record_name(domain) == name


@pytest.mark.parametrize(
    "domain",
    ["localhost", "com.", "", "a..b", "-a.example", "127.0.0.1", "127.1", "x.0x7f", "p.local",
     "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion", "mail.i2p",
     "1.0.0.127.in-addr.arpa", "a b.example", "a\n.example", "x" * 64 + ".example",
     ".".join(["x" * 60] * 5)],
)  # fmt: skip
def test_no_name_of_the_public_dns_is_asked_for(domain: str) -> None:
    """Single labels, addresses, hidden services and nonsense stay here."""
    with pytest.raises(ValueError, match=r"."):
        record_name(domain)


def test_a_question_may_be_for_any_public_name() -> None:
    """The command asks for whatever name the client says."""
    assert lookup_name("_Dmarc.Example.net") == "_dmarc.example.net"


@pytest.mark.parametrize(
    ("strings", "text"),
    [
        ([b"server=a.example:1"], "server=a.example:1"),
        ([b"server=", b"a.example:1"], "server=a.example:1"),
        ([b"a\r\nb"], None),
        ([b"a\0"], None),
        ([b"a\x7f"], None),
        (["a\u2028b".encode()], None),
        (["\x85".encode()], None),
        ([b"\xff"], None),
        ([b""], None),
        ([b"x" * (MAX_LINE - 5)], "x" * (MAX_LINE - 5)),
        ([b"x" * 255] * 70, None),
    ],
)
def test_a_record_is_one_line_or_nothing(strings: list[bytes], text: str | None) -> None:
    """Strings are joined; what could end a line or is too long for one is dropped."""
    assert record_text(strings) == text


def test_only_server_records_count() -> None:
    """Other records, malformed ones and the DHT are another's business; order is kept."""
    texts = (
        "v=spf1 -all", "server=b.example:2,c.example:3", "server=", "server=a.example",
        "entangled", "SERVER=a.example:1", "server=b.example:2,c.example:3", "server=x:99999",
    )  # fmt: skip
    assert named_transports(texts) == (
        Transport.parse("server=b.example:2,c.example:3"),
        Transport.parse("server=a.example:1"),
    )


def test_alternatives_are_capped() -> None:
    """A record set cannot make a client dial hundreds of groups."""
    texts = [f"server=a.example:{port}" for port in range(1, 100)]
    assert len(named_transports(texts)) == MAX_ALTERNATIVES


@given(st.lists(st.lists(st.binary(max_size=40), max_size=4), max_size=50))
def test_an_answer_of_any_bytes_makes_lines_that_come_back(records: list[list[bytes]]) -> None:
    """Whatever a zone holds, the lines are safe, bounded, and say the same at the other end."""
    texts = record_texts(records)
    assert len(texts) <= MAX_RECORDS
    lines = txt_lines(texts)
    assert all("\n" not in line and "\r" not in line for line in lines)
    assert all(len(line.encode()) <= MAX_LINE for line in lines)
    assert texts_in(lines) == texts
