"""Invitation codes: written and read back exactly, and refused when anything is off."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealmail_protocol.addresses import MAX_SERVERS, ServerAddress
from sealmail_protocol.invitations import (
    PAIRING_PREFIX,
    PREFIX,
    Invitation,
    InvitedServer,
    PairingCode,
)

KEY = "E00D395B35C6A2F40AE545AD40B000B831147AAF"
EXAMPLE = Invitation(
    "example.org",
    KEY,
    (
        InvitedServer(ServerAddress.parse("mail.example.org:8081"), bytes(range(32))),
        InvitedServer(ServerAddress.parse("[2001:db8::1]:443"), b"\xff" * 32),
    ),
)
# Written once and kept: clients that are out in the world read it.
EXAMPLE_CODE = (
    "sealmail1:BNSXQYLNOBWGKLTPOJTSQRJQGBCDGOJVIIZTKQZWIEZEMNBQIFCTKNBVIFCDIMCCGAYDAQRYGMYTCN"
    "BXIFAUMAQVNVQWS3BOMV4GC3LQNRSS433SM45DQMBYGEAACAQDAQCQMBYIBEFAWDANBYHRAEISCMKBKFQXDAMRUG"
    "Y4DUPB6EK3GIYDAMJ2MRRDQOR2GFOTUNBUGP777777777777777777777777777777777777777777777777777J"
    "QW6CPQ"
)


def test_the_example_is_written_as_it_always_was() -> None:
    """The form is a promise to clients."""
    assert EXAMPLE.code() == EXAMPLE_CODE


def test_a_code_gives_back_what_was_put_in() -> None:
    """Also in lower case, and broken into lines as mail programs do."""
    code = EXAMPLE.code()
    lines = "\r\n  ".join(code[at : at + 40] for at in range(0, len(code), 40))
    assert Invitation.parse(code) == EXAMPLE
    assert Invitation.parse(code.lower()) == EXAMPLE
    assert Invitation.parse(f" {lines}\n") == EXAMPLE


def test_the_auth_key_is_not_shown_by_accident() -> None:
    """Neither repr nor str of an invitation gives it away."""
    assert KEY not in f"{EXAMPLE!r} {EXAMPLE!s}"


@given(place=st.integers(0, len(EXAMPLE.code()) - 1), letter=st.sampled_from("ABCDEFGH234567"))
def test_one_wrong_letter_is_noticed(place: int, letter: str) -> None:
    """Whatever letter is mistyped, the code is refused."""
    code = EXAMPLE.code()
    wrong = code[:place] + letter + code[place + 1 :]
    if wrong.upper() == code.upper():
        return
    with pytest.raises(ValueError, match="invitation"):
        Invitation.parse(wrong)


@given(st.text(max_size=200))
def test_noise_is_refused(noise: str) -> None:
    """Nothing but a ValueError comes of what is no invitation."""
    for text in (noise, PREFIX + noise):
        with pytest.raises(ValueError):  # noqa: PT011
            Invitation.parse(text)


@pytest.mark.parametrize(
    "code", ["", PREFIX, EXAMPLE.code()[:-1], EXAMPLE.code() + "A", "x" * 100_000]
)
def test_cut_off_and_overlong_codes_are_refused(code: str) -> None:
    """A code is whole or nothing."""
    with pytest.raises(ValueError):  # noqa: PT011
        Invitation.parse(code)


def test_only_what_can_be_read_can_be_made() -> None:
    """Bad domains, keys, pins and numbers of servers are refused at once."""
    server = EXAMPLE.servers[0]
    for domain, key, servers in (
        ("Example.org", KEY, (server,)),
        ("example.org", "short", (server,)),
        ("example.org", KEY, ()),
        ("example.org", KEY, (server,) * (MAX_SERVERS + 1)),
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            Invitation(domain, key, servers)
    with pytest.raises(ValueError, match="pin"):
        InvitedServer(server.address, b"short")


def test_a_pairing_code_gives_back_what_was_put_in() -> None:
    """It is told from an invitation, shows no secret by accident, and refuses a wrong letter."""
    made = PairingCode(KEY, EXAMPLE.servers[0])
    code = made.code()
    assert code.startswith(PAIRING_PREFIX)
    assert PairingCode.parse(f" {code.lower()}\n") == made
    assert KEY not in f"{made!r} {made!s}"
    with pytest.raises(ValueError, match="no invitation"):
        Invitation.parse(code)
    with pytest.raises(ValueError, match="no pairing code"):
        PairingCode.parse(EXAMPLE_CODE)
    with pytest.raises(ValueError, match="checksum of the pairing code"):
        PairingCode.parse(code[:40] + ("A" if code[40] != "A" else "B") + code[41:])
    with pytest.raises(ValueError, match="secret"):
        PairingCode("short", EXAMPLE.servers[0])
