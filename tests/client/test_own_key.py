"""Care of an own key with a real GnuPG: in, out, passphrase, subkeys, and its end."""

import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client.conftest import quick_home

from sealmail_client.errors import BadKey, NoSuchKey, WrongPassphrase
from sealmail_client.keyring import Keyring
from sealmail_client.own_key import OwnKey
from sealmail_protocol.keys import KeyId

# What a user would type, known to a program that asks nobody.
PINENTRY = """#!{python}
import sys
print("OK", flush=True)
for line in sys.stdin:
    if line.startswith("GETPIN"):
        print("D typed", flush=True)
    print("OK", flush=True)
    if line.startswith("BYE"):
        break
"""


@pytest.fixture(scope="module")
def eve(short_directory: Path) -> Iterator[tuple[Keyring, KeyId]]:
    """Return a keyring with a key that nobody else uses."""
    with Keyring(quick_home(short_directory / "eve")) as keyring:
        yield keyring, keyring.create("Eve", "eve@a.example", "süß")


def test_a_passphrase_is_changed_removed_and_set(eve: tuple[Keyring, KeyId]) -> None:
    """Every part of the key is locked by it, that for old mail too."""
    keyring, key_id = eve
    OwnKey(keyring, key_id, "süß").rotate()
    sealed = keyring.encrypt_bytes(b"secret", (key_id,))
    former: str | None = "süß"
    for new in ("another one", None, "süß"):
        if former is not None:
            with pytest.raises(WrongPassphrase):
                OwnKey(keyring, key_id, "wrong").change_passphrase("x")
        OwnKey(keyring, key_id, former).change_passphrase(new)
        # A key without a lock opens whatever is said.
        assert keyring.opens(key_id, former) is (new is None)
        keyring.forget_passphrases()
        assert keyring.decrypt_bytes(sealed, new) == b"secret"
        keyring.forget_passphrases()
        former = new


@pytest.mark.parametrize("bad", ["", " x", "x\ny"])
def test_a_passphrase_that_gpg_would_not_take_is_refused(
    eve: tuple[Keyring, KeyId], bad: str
) -> None:
    """It would be cut at the line end, or never be typed again as it was."""
    with pytest.raises(ValueError, match="one line"):
        OwnKey(*eve, "süß").change_passphrase(bad)


def test_rotation_seals_to_a_new_part_and_still_opens_what_is_old(
    eve: tuple[Keyring, KeyId],
) -> None:
    """However often the key is rotated."""
    keyring, key_id = eve
    own = OwnKey(keyring, key_id, "süß")
    old = keyring.encrypt_bytes(b"old", (key_id,))
    assert own.rotate() != own.rotate()
    assert keyring.decrypt_bytes(old, "süß") == b"old"
    assert keyring.decrypt_bytes(keyring.encrypt_bytes(b"new", (key_id,)), "süß") == b"new"


def test_an_exported_key_is_taken_in_armored_or_not(
    eve: tuple[Keyring, KeyId], short_directory: Path
) -> None:
    """With the wrong passphrase it is not; it gets a certificate, which it came without."""
    keyring, key_id = eve
    armored = OwnKey(keyring, key_id, "süß").hand_out()
    assert armored.startswith(b"-----BEGIN PGP PRIVATE KEY BLOCK-----")
    with Keyring(quick_home(short_directory / "in1")) as other:
        with pytest.raises(WrongPassphrase):
            OwnKey.take_in(other, armored, "wrong")
        binary = other.run("--batch", "--dearmor", given=armored).output
    with Keyring(quick_home(short_directory / "in2")) as other:
        assert OwnKey.take_in(other, binary, "süß") == key_id
        own = OwnKey(other, key_id, "süß")
        assert own.user_ids() == ("Eve <eve@a.example>",)
        own.add_user_id("Eve: on call <eve@b.example>")
        assert "Eve: on call <eve@b.example>" in own.user_ids()
        own.revoke(own.revocation_certificate())
        with pytest.raises(NoSuchKey):
            other.clear_sign("text\n", key_id, "süß")


def test_what_is_no_single_secret_key_is_refused(
    eve: tuple[Keyring, KeyId], short_directory: Path
) -> None:
    """Noise, a public key, and more than any key has."""
    keyring, key_id = eve
    with Keyring(quick_home(short_directory / "in3")) as other:
        for content in (b"", b"noise", keyring.public_key(key_id).encode()):
            with pytest.raises(BadKey, match="0 secret keys"):
                OwnKey.take_in(other, content, None)
        with pytest.raises(BadKey, match="bytes"):
            OwnKey.take_in(other, bytes(1024 * 1024 + 1), None)


def test_a_key_is_shown_revoked_before_it_is(eve: tuple[Keyring, KeyId]) -> None:
    """The certificate cannot be used by mistake, and that of another key not at all."""
    keyring, key_id = eve
    own = OwnKey(keyring, key_id, "süß")
    certificate = own.revocation_certificate()
    assert ":-----BEGIN" in certificate
    assert key_id.hex in certificate
    assert len(own.when_revoked(certificate)) > len(keyring.public_key(key_id))
    assert keyring.clear_sign("text\n", key_id, "süß")
    for bad in ("", "text", certificate.replace("\n\ni", "\n\nj")):
        with pytest.raises(BadKey, match="revocation certificate"):
            own.when_revoked(bad)


def test_the_agent_asks_for_the_passphrase_itself(short_directory: Path) -> None:
    """We never know it; what it locks opens and signs without our word."""
    home = quick_home(short_directory / "agent")
    pinentry = home / "pinentry"
    pinentry.write_text(PINENTRY.format(python=sys.executable))
    pinentry.chmod(stat.S_IRWXU)
    with (home / "gpg-agent.conf").open("a") as file:
        file.write(f"pinentry-program {pinentry}\n")
    keyring = Keyring(home, agent=True)
    try:
        key_id = keyring.create("Ann", "ann@a.example", None)
        keyring.forget_passphrases()
        assert keyring.clear_sign("text\n", key_id, None)
        sealed = keyring.encrypt_bytes(b"secret", (key_id,))
        keyring.forget_passphrases()
        assert keyring.decrypt_bytes(sealed, None) == b"secret"
        OwnKey(keyring, key_id, None).rotate()
        keyring.forget_passphrases()
    finally:
        keyring.forget_passphrases()
    with Keyring(home) as without:
        assert not without.opens(key_id, "another")
        assert without.opens(key_id, "typed")
