"""Addresses are hashed in one form; transports name servers in one form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import strategies as s

from sealmail_protocol.addresses import (
    Network,
    ServerAddress,
    Transport,
    domain_of,
    is_normal_address,
    normal_address,
)
from sealmail_protocol.keys import address_key

# The Tor Project's own site.
ONION = "2gzyxa5ihm7nsggfxnu52rck2vv4rvmdlkiu3zzui5du4xyclen53wid.onion"


@pytest.mark.parametrize(
    ("given_text", "normal"),
    [
        ("Wreck@POBOX.com", "wreck@pobox.com"),
        ("JU\u0308RGEN@bücher.example", "jürgen@bücher.example"),
        ("İ@x.example", "i\u0307@x.example"),
        ("Å@x.example", "å@x.example"),
        ("\u212b@x.example", "å@x.example"),
        ('"a@b"@c.example', '"a@b"@c.example'),
    ],
)
def test_an_address_has_one_normal_form(given_text: str, normal: str) -> None:
    """NFC and lower case; both spellings are found under one key."""
    assert normal_address(given_text) == normal
    assert address_key(normal_address(given_text)) == address_key(normal)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "@b",
        "a@",
        "a b@c",
        "a@b\n",
        "a\u200b@b",
        "a\u00a0@b",
        "a\ud800@b",
        "x" * 400 + "@b",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """White space, control and format characters and endless names are none."""
    with pytest.raises(ValueError, match="mail address"):
        normal_address(text)


@given(st.text(max_size=40))
def test_a_normal_form_is_final(text: str) -> None:
    """Normalising twice changes nothing, and what comes out is normal."""
    try:
        address = normal_address(f"{text}@x.example")
    except ValueError:
        return
    assert is_normal_address(address)
    assert normal_address(address) == address


def test_a_domain_is_asked_for_in_its_idna_form() -> None:
    """DNS knows no umlauts."""
    assert domain_of("a@bücher.example") == "xn--bcher-kva.example"
    with pytest.raises(ValueError, match="host name"):
        domain_of("a@b..c")


@pytest.mark.parametrize(
    ("text", "written", "network"),
    [
        ("Mail.Example:8081", "mail.example:8081", Network.DIRECT),
        ("localhost:1", "localhost:1", Network.DIRECT),
        ("_x.mail-1.example:65535", "_x.mail-1.example:65535", Network.DIRECT),
        ("bücher.example:80", "xn--bcher-kva.example:80", Network.DIRECT),
        ("192.0.2.1:8081", "192.0.2.1:8081", Network.DIRECT),
        ("１９２.0.2.1:8081", "192.0.2.1:8081", Network.DIRECT),
        ("[2001:DB8:0::1]:8081", "[2001:db8::1]:8081", Network.DIRECT),
        (f"{ONION}:80", f"{ONION}:80", Network.TOR),
        (f"www.{ONION.upper()}:80", f"www.{ONION}:80", Network.TOR),
        ("stats.i2p:80", "stats.i2p:80", Network.I2P),
    ],
)
def test_a_server_is_read(text: str, written: str, network: Network) -> None:
    """Every kind of host has one canonical text, which is read again."""
    server = ServerAddress.parse(text)
    assert (str(server), server.network) == (written, network)
    assert ServerAddress.parse(written) == server
    assert (server.literal is not None) == written.startswith(("192", "["))


@pytest.mark.parametrize(
    "text",
    [
        "mail.example", "mail.example:", "mail.example:0", "mail.example:08081",
        "mail.example:65536", "mail.example:٣", ":8081", "mail..example:1", "mail.example.:1",
        "-a.example:1", "a b:1", "a,b:1", f"{'a' * 64}.example:1", f"{'a.' * 127}aa:1",
        "2001:db8::1:8081", "[2001:db8::1%eth0]:1", "[]:1", "256.0.0.1:1", "1.2.3:1",
        "010.0.0.1:1", "2130706433:1", "0x7f.1:1", "0x7f000001:1", "a.0x1:1",
        "expyuzz4wqqyqhjn.onion:1",
        f"{ONION.replace('2', '3', 1)}:1", f"a b.{ONION}:1", "aaaa.onion:1",
        "a" * 56 + "。onion:1", "ü" * 300 + ":1",
    ],
)  # fmt: skip
def test_what_is_no_server_is_refused(text: str) -> None:
    """Mistyped, ambiguous and disguised hosts are not dialled."""
    with pytest.raises(ValueError, match=r"\w"):
        ServerAddress.parse(text)


@given(s.transports)
def test_a_transport_is_read_as_it_was_written(transport: Transport) -> None:
    """Server groups of every kind of host, and the DHT."""
    assert Transport.parse(str(transport)) == transport


@pytest.mark.parametrize(
    "text", ["", "server=", "server", "smtp=a:1", "server=a:1,", "server=a:1 ,b:2", "entangled "]
)
def test_what_is_no_transport_is_refused(text: str) -> None:
    """One form, no blanks."""
    with pytest.raises(ValueError, match=r"\w"):
        Transport.parse(text)


def test_seventeen_servers_are_too_many() -> None:
    """A transport may not make senders dial the whole world."""
    with pytest.raises(ValueError, match="17 servers"):
        Transport.parse("server=" + ",".join(["a.example:1"] * 17))


def test_words_of_a_transport_may_be_of_either_case() -> None:
    """Originals compare without case."""
    assert Transport.parse("SERVER=a:1") == Transport.parse("server=a:1")
    assert Transport.parse("Entangled").entangled


@given(st.text(max_size=30))
def test_noise_is_a_server_or_a_value_error(text: str) -> None:
    """What is taken is written in a form that is taken again."""
    try:
        server = ServerAddress.parse(f"{text}:1")
    except ValueError:
        return
    assert ServerAddress.parse(str(server)) == server
