"""What each side refuses to hear and to say."""

import pytest

from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.bodies import TextBody
from sealmail_protocol.commands import (
    AddLogin,
    AskQueue,
    Capabilities,
    DnsTxt,
    GetServer,
    Login,
    PartnerPair,
    Ping,
    Quit,
    RepLogin,
    RmLogin,
    StartTls,
    StoreServer,
)
from sealmail_protocol.conversation import (
    MAX_CAPABILITIES,
    MAX_LISTING,
    ClientConversation,
    Closed,
    ServerConversation,
)
from sealmail_protocol.errors import ProtocolError, Refusal
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Banner, Listing, Pong, Refused, Word

READY = b"CONFIDANT MAIL SERVER PROTOCOL 1 READY\r\n"
KEY = BlockKey(bytes(20))
SECRETS = [
    Login("a" * 8, "b" * 8),
    AddLogin(None, "b" * 8),
    RmLogin("b" * 8),
    RepLogin("a" * 8, "b" * 8),
    PartnerPair("c" * 16, bytes(32), "b" * 8, ServerAddress("a.example", 1)),
]


def greeted(*, encrypted: bool = True) -> ClientConversation:
    """Return a client that has read the banner."""
    client = ClientConversation(encrypted=encrypted)
    client.receive_data(READY)
    assert client.next_event() == Banner()
    return client


@pytest.mark.parametrize("command", SECRETS, ids=lambda command: type(command).__name__)
def test_no_secret_travels_in_clear(command: Login) -> None:
    """Nor does it stand in what is logged."""
    with pytest.raises(ProtocolError, match="in clear"):
        greeted(encrypted=False).send(command)
    assert greeted().send(command) == f"{command}\r\n".encode()
    assert "b" * 8 not in repr(command)
    assert "c" * 16 not in repr(command)


def test_nothing_is_sent_between_starttls_and_the_handshake() -> None:
    """It would reach the server in clear, or break the handshake."""
    client = greeted(encrypted=False)
    client.send(StartTls())
    with pytest.raises(ProtocolError, match="between STARTTLS"):
        client.send(Ping())
    client.receive_data(b"PROCEED\r\n")
    assert client.next_event() is Word.PROCEED
    with pytest.raises(ProtocolError, match="between STARTTLS"):
        client.send(Ping())
    client.tls_started()
    assert client.send(Ping()) == b"PING\r\n"


def test_starttls_waits_for_outstanding_answers() -> None:
    """An answer in clear could pass for one from inside TLS."""
    client = greeted(encrypted=False)
    client.send(Ping())
    with pytest.raises(ProtocolError, match="an answer is awaited"):
        client.send(StartTls())
    with pytest.raises(ProtocolError, match="inside TLS"):
        greeted().send(StartTls())


def test_tls_without_starttls_is_a_mistake() -> None:
    """Neither side may be told that it is encrypted by surprise."""
    for side in (greeted(encrypted=False), ServerConversation()):
        with pytest.raises(ProtocolError, match="without STARTTLS"):
            side.tls_started()


def test_the_first_word_inside_tls_is_encrypted() -> None:
    """Anything else ends the connection."""
    client = greeted(encrypted=False)
    client.send(StartTls())
    client.receive_data(b"PROCEED\r\n")
    client.next_event()
    client.tls_started()
    client.receive_data(b"DONE\r\n")
    with pytest.raises(ProtocolError, match="none may be"):
        client.next_event()


def test_a_broken_conversation_stays_broken() -> None:
    """Plaintext that was refused is not read as a command the second time."""
    server = ServerConversation()
    server.receive_data(b"STARTTLS\r\nQUIT\r\n")
    for _ in range(2):
        with pytest.raises(ProtocolError, match="plaintext"):
            server.next_event()
    server.receive_data(b"PING\r\n")
    with pytest.raises(ProtocolError, match="plaintext"):
        server.next_event()


@pytest.mark.parametrize(
    "wire",
    [b"PIN", b"STORE SERVER " + b"0" * 40 + b"\r\n", b"STORE SERVER " + b"0" * 40 + b"\r\nT"],
)
def test_an_end_in_the_middle_is_no_end(wire: bytes) -> None:
    """Half a command or body is an error, not a short one."""
    server = ServerConversation()
    server.receive_data(wire)
    while server.next_event() is not None:
        pass
    server.receive_data(b"")
    with pytest.raises(ProtocolError, match="middle"):
        server.next_event()


def test_an_end_between_commands_is_an_end() -> None:
    """And remains one."""
    server = ServerConversation()
    server.receive_data(b"QUIT\r\n")
    server.receive_data(b"")
    assert [server.next_event() for _ in range(3)] == [Quit(), Closed(), Closed()]


@pytest.mark.parametrize("length", [16_384, 16_385])
def test_a_line_has_a_limit(length: int) -> None:
    """16 384 bytes are a line, if no command; one more is the end, complete or not."""
    server = ServerConversation()
    server.receive_data(b"x" * length + (b"\r\n" if length == 16_384 else b""))
    if length == 16_384:
        assert server.next_event() is not None
        server.receive_data(b"x" * 16_386)
    else:
        server.receive_data(b"x")
    with pytest.raises(ProtocolError, match="longer than 16384"):
        server.next_event()


@pytest.mark.parametrize(
    ("command", "most"), [(AskQueue(None), MAX_LISTING), (Capabilities(), MAX_CAPABILITIES)]
)
def test_a_listing_has_a_limit_in_lines(command: AskQueue | Capabilities, most: int) -> None:
    """A server may not fill the memory of its client; one that anybody asks may say little."""
    client = greeted()
    client.send(command)
    client.receive_data(b"\r\n" * (most + 1))
    with pytest.raises(ProtocolError, match="listing"):
        client.next_event()


@pytest.mark.parametrize(("command", "lines"), [(AskQueue(None), 1048), (Capabilities(), 1)])
def test_a_listing_has_a_limit_in_bytes(command: AskQueue | Capabilities, lines: int) -> None:
    """A few long lines are as bad as many short ones."""
    client = greeted()
    client.send(command)
    line = b"x" * 16_000 + b"\r\n"
    for _ in range(lines):
        client.receive_data(line)
        assert client.next_event() is None
    client.receive_data(line)
    with pytest.raises(ProtocolError, match="listing"):
        client.next_event()


def test_what_a_server_says_cannot_steer_a_terminal() -> None:
    """Control characters in banners, verdicts and listings are made harmless."""
    client = ClientConversation(encrypted=True)
    client.receive_data(b"CONFIDANT MAIL SERVER PROTOCOL 1 \x1b[2JBUSY\xff\r\n")
    banner = client.next_event()
    assert banner == Banner(1, "?[2JBUSY\ufffd")
    client.send(Capabilities())
    client.receive_data(b"A\x07\r\nENDBLOCK\r\n")
    assert client.next_event() == Listing(("A?",))


@pytest.mark.parametrize(
    "command", [Ping("a\r\nQUIT"), DnsTxt("a b"), Login("x", "y"), Ping(" "), DnsTxt("ü")]
)
def test_a_client_writes_no_line_that_is_another(command: Ping) -> None:
    """A value that was never checked is checked before it is sent."""
    with pytest.raises(ValueError, match=r"\w"):
        greeted().send(command)


@pytest.mark.parametrize(
    "reply",
    [
        Pong("a\r\nDONE"),
        Listing(("a", "EndBlock")),
        Listing(("a\nb",)),
        Refused(Refusal.FORM, "\x00"),
    ],
)
def test_a_server_writes_no_line_that_is_another(reply: Pong) -> None:
    """A record of DNS, say, may hold anything."""
    with pytest.raises(ValueError, match="not a line"):
        ServerConversation().send(reply)


def test_a_refused_get_is_told_from_a_block() -> None:
    """Only the three refusals end a GET without an end marker."""
    client = greeted()
    for _ in range(2):
        client.send(GetServer(KEY))
    client.receive_data(b"NOT FOUND\r\nNot Found\r\nEndBlock\r\n")
    assert client.next_event() is Word.NOT_FOUND
    assert client.next_event() == TextBody((b"Not Found",))


def test_a_store_is_not_answered_by_another_word() -> None:
    """GOODBYE or PROCEED to a STORE is a breach."""
    for word in (b"GOODBYE\r\n", b"PROCEED\r\n", b"ENCRYPTED\r\n", b"DONE \r\n", b"done\r\n"):
        client = greeted()
        client.send(StoreServer(KEY))
        client.receive_data(word)
        with pytest.raises(ProtocolError, match="none may be"):
            client.next_event()
