"""What gpg's status lines mean, also those that no gpg at hand writes."""

import pytest

from sealmail_client.gpg_status import Status, judge_signature
from sealmail_protocol.keys import KeyId

SIGNER = KeyId(bytes(range(20)))
NEWSIG = "[GNUPG:] NEWSIG"
GOODSIG = "[GNUPG:] GOODSIG 0123456789ABCDEF Amy <amy@a.example>"
VALIDSIG = f"[GNUPG:] VALIDSIG {SIGNER} 2026-03-01 1772366400 0 4 0 22 10 00 {SIGNER}"


def judged(*lines: str) -> tuple[bool, KeyId | None, str]:
    """Judge these lines."""
    check = judge_signature(Status.read("\n".join(lines)))
    return check.valid, check.signer, check.reason


def test_a_good_signature_is_valid_and_names_the_primary_key() -> None:
    """A good signature is valid and names the primary key."""
    assert judged(NEWSIG, GOODSIG, VALIDSIG) == (True, SIGNER, "")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((), "exactly one"),
        ((NEWSIG, GOODSIG, VALIDSIG, NEWSIG, GOODSIG, VALIDSIG), "exactly one"),
        ((NEWSIG, GOODSIG), "cannot check"),
        ((NEWSIG, VALIDSIG), "cannot check"),
        ((NEWSIG, "[GNUPG:] BADSIG 0123456789ABCDEF Amy"), "does not match"),
        ((NEWSIG, GOODSIG.replace("GOODSIG", "EXPKEYSIG"), VALIDSIG), "key has expired"),
        ((NEWSIG, GOODSIG.replace("GOODSIG", "REVKEYSIG"), VALIDSIG), "revoked"),
        ((NEWSIG, GOODSIG.replace("GOODSIG", "EXPSIG"), VALIDSIG), "signature has expired"),
        ((NEWSIG, GOODSIG, VALIDSIG.replace(" 10 00 ", " 1 00 ")), "MD5"),
        ((NEWSIG, GOODSIG, VALIDSIG.replace(" 10 00 ", " 2 00 ")), "SHA-1"),
        ((NEWSIG, GOODSIG, VALIDSIG.replace(" 10 00 ", " 10 01 ")), "not one over a file"),
        ((NEWSIG, GOODSIG, VALIDSIG, "[GNUPG:] PLAINTEXT 62 0 x"), "exactly one"),
        (("[GNUPG:] NEWSIG", "[GNUPG:] NO_PUBKEY 0123456789ABCDEF"), "not known"),
    ],
)
def test_anything_else_is_invalid(lines: tuple[str, ...], reason: str) -> None:
    """Anything else is invalid."""
    valid, _, told = judged(*lines)
    assert not valid
    assert reason in told


def test_a_name_cannot_forge_a_status_line() -> None:
    """A name cannot forge a status line."""
    name = "[GNUPG:] GOODSIG 0123456789ABCDEF x [GNUPG:] VALIDSIG\r[GNUPG:] VALIDSIG\x0b\x85"
    assert Status.read(f"{NEWSIG}\n{name}").all("VALIDSIG") == ()


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("[GNUPG:] FAILURE sign 67108875", True),
        ("[GNUPG:] FAILURE sign 67109041", True),
        ("[GNUPG:] ERROR pkdecrypt_failed 11", True),
        ("[GNUPG:] FAILURE sign 67108881", False),
        ("[GNUPG:] FAILURE sign", False),
    ],
)
def test_a_passphrase_that_failed_is_recognised(line: str, wrong: bool) -> None:
    """A passphrase that failed is recognised."""
    assert Status.read(line).wrong_passphrase is wrong


def test_the_last_remark_is_for_people() -> None:
    """The last remark is for people."""
    assert Status.read("[GNUPG:] X\ngpg: one\ngpg: two\n").last_remark == "two"
    assert Status.read("").last_remark == ""
