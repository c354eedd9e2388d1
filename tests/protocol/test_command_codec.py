"""Command lines that are read in another case, and lines that are no command."""

import pytest

from sealmail_protocol.command_codec import parse_command
from sealmail_protocol.commands import GetProxy, GetServer, Replicate
from sealmail_protocol.keys import BlockKey

K = "0" * 40
D = "0" * 64
DAY = "2026-05-01T10:00:00Z"


@pytest.mark.parametrize(
    ("line", "written"),
    [
        (f"get server {'a' * 40} since {DAY}", f"GET SERVER {'A' * 40} SINCE {DAY}"),
        (f"Replicate {K} NONE", f"REPLICATE {K} none"),
        (f"verdict {'A' * 64}", f"VERDICT {'a' * 64}"),
        (f"partner list DATA {K}", f"PARTNER LIST data {K}"),
        (f"partner waiting {K} None {DAY}", f"PARTNER WAITING {K} none {DAY}"),
        (f"GET PROXY {K} SERVER=Mail.Example:1", f"GET PROXY {K} server=mail.example:1"),
        ("ping Hello  You", "PING Hello  You"),
    ],
)
def test_words_and_hex_may_be_of_either_case(line: str, written: str) -> None:
    """They are written in one."""
    assert str(parse_command(line.encode())) == written


def test_commands_are_values() -> None:
    """Equal if they say the same."""
    key = BlockKey(bytes(20))
    assert parse_command(f"GET SERVER {K}".encode()) == GetServer(key)
    assert parse_command(f"REPLICATE {K} none".encode()) == Replicate(key, None)
    proxy = parse_command(f"GET PROXY {K} server=a:1,b:2".encode())
    assert isinstance(proxy, GetProxy)
    assert len(proxy.transport.servers) == 2


@pytest.mark.parametrize(
    "line",
    [
        "", " ", "QUIT ", " QUIT", "QUIT now", "STARTTLS\t", "PING ", "PING  ", "PING \x07",
        "PING " + "x" * 201, "GET", "GET SERVER", "GET  SERVER " + K, f"GET SERVER {K} ",
        f"GET SERVER {K[1:]}", f"GET SERVER {K} SINCE",
        f"GET SERVER {K} SINCE 2026-02-30T00:00:00Z",
        f"GET SERVER {K} AFTER {DAY}", f"GET PROXY {K}", f"GET PROXY {K} entangled",
        f"GET PROXY {K} server=a:1 b:2", f"STORE SERVER {K} x", f"STORE PROXY {K} SINCE {DAY}",
        f"STORE {K}", f"REPLICATE {K}", f"REPLICATE {K} abc", "LOGIN", "LOGIN a" * 9,
        "LOGIN abcdefg 12345678", "LOGIN abcdefgh 1234567-", f"LOGIN {'a' * 41} 12345678",
        "DNS TXT", "DNS TXT a/b", "DNS TXT " + "a" * 254, "DNS A example.org", "ADDLOGIN",
        "ADDLOGIN 1234567", "RMLOGIN 12345678 12345678", "REPLOGIN 12345678", "GENLOGIN 0",
        "GENLOGIN 01", "GENLOGIN 1001", "GENLOGIN x", f"VERDICT {D[1:]}", f"VERDICT {D} {D}",
        "QUEUE SINCE", "QUEUE x", f"QUEUE SINCE {DAY} x", f"DROP {K}", f"DROP {D} {K}", "PARTNER",
        f"PARTNER DROP {K} {D} {DAY}", f"PARTNER ACCOUNT {D} abcdefgh Confirmed",
        f"PARTNER ACCOUNT {D} abcdefgh", f"PARTNER QUEUED {K} x", f"PARTNER LIST mail {K}",
        f"PARTNER WAITING {K} none", f"PARTNER WAITING {K} abc {DAY}",
        f"PARTNER WAITING {K} {DAY} none", "PARTNER LIST data",
        f"PARTNER PAIR short {D} 12345678 a.example:1",
        f"PARTNER PAIR {K} {K} 12345678 a.example:1", f"PARTNER PAIR {K} {D} 12345678",
        f"PARTNER PAIR {K} {D} 12345678 a.example", "PARTNER SYNC now",
        "PARTNER DANCE", "INVALID COMMAND", "SHUTDOWN now", "CAPABILITIES 1", "SELFTEST 1", "quït",
    ],
)  # fmt: skip
def test_what_is_no_command_is_refused(line: str) -> None:
    """Every argument of every command has a form, and one space before it."""
    with pytest.raises(ValueError, match=r"\w"):
        parse_command(line.encode())
