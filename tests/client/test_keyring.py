"""The keyring with a real gpg: making keys, signing, sealing, and what it refuses."""

import io
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.client.conftest import Correspondent

from sealmail_client.errors import (
    BadKey,
    BadMessage,
    HomeUnusable,
    NoSuchKey,
    NotForUs,
    WrongPassphrase,
)
from sealmail_client.keyring import Algorithm, Keyring
from sealmail_protocol.keys import KeyId

STRANGER = KeyId(bytes(20))
SPEC_KEY = Path(__file__).parents[1] / "vectors" / "ka_sample.asc"


def gpg(home: Path, *arguments: str, given: bytes = b"") -> bytes:
    """Run gpg beside the keyring; it must succeed."""
    options = ("--batch", "--no-tty", "--pinentry-mode=loopback", "--trust-model=always")
    done = subprocess.run(
        ["gpg", f"--homedir={home}", *options, *arguments],
        input=given,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def agents_of(home: Path) -> list[int]:
    """Return the processes of GnuPG's agent that serve this home."""
    found = []
    for directory in Path("/proc").iterdir():
        try:
            command = (directory / "cmdline").read_bytes() if directory.name.isdecimal() else b""
        except OSError:
            continue
        if b"gpg-agent" in command and str(home).encode() in command.split(b"\0"):
            found.append(int(directory.name))
    return found


@pytest.fixture
def fresh(short_directory: Path) -> Path:
    """Return the path of a home that is not there yet."""
    return Path(tempfile.mkdtemp(dir=short_directory)) / "gpg"


@pytest.mark.parametrize(
    ("algorithm", "parts"), [("ed25519", ["22", "18"]), ("rsa3072", ["1", "1"])]
)
def test_a_new_identity_has_a_key_to_sign_and_one_to_seal(
    fresh: Path, algorithm: Algorithm, parts: list[str]
) -> None:
    """A new identity has a key to sign and one to seal."""
    with Keyring(fresh) as keyring:
        key_id = keyring.create("Zoë Ångström", "Zoe@Example.ORG", None, algorithm)
        rows = [
            line.split(":")
            for line in gpg(fresh, "--with-colons", "--list-keys").decode().splitlines()
        ]
        keys = [row for row in rows if row[0] in ("pub", "sub")]
        assert [row[3] for row in keys] == parts
        assert [row[6] for row in keys] == ["", ""]
        assert [row[11].strip("SCE") for row in keys] == ["sc", "e"]
        assert [row[9] for row in rows if row[0] == "uid"] == ["Zoë Ångström <zoe@example.org>"]
        assert keyring.own_keys() == (key_id,)
        assert keyring.decrypt_bytes(keyring.encrypt_bytes(b"x", [key_id]), None) == b"x"
        assert fresh.stat().st_mode & 0o777 == 0o700


def test_a_revocation_certificate_is_made_with_the_key(amy: Correspondent) -> None:
    """A revocation certificate is made with the key."""
    certificate = amy.keyring.revocation_certificate(amy.key_id)
    text = certificate.read_text()
    assert "BEGIN PGP PUBLIC KEY BLOCK" in text
    assert certificate.stat().st_mode & 0o077 == 0


def test_a_stranger_has_no_revocation_certificate_here(amy: Correspondent) -> None:
    """A stranger has no revocation certificate here."""
    with pytest.raises(NoSuchKey, match="no revocation certificate"):
        amy.keyring.revocation_certificate(STRANGER)


@pytest.mark.parametrize(
    ("name", "address", "passphrase"),
    [
        ("two\nlines", "a@b.example", None),
        ("brackets <x>", "a@b.example", None),
        ("Amy", "no address", None),
        ("Amy", "a@b.example", "two\nlines"),
        ("Amy", "a@b.example", " blanks "),
        ("Amy", "a@b.example", ""),
    ],
)
def test_what_gpg_could_not_take_as_written_is_refused(
    amy: Correspondent, name: str, address: str, passphrase: str | None
) -> None:
    """What gpg could not take as written is refused."""
    with pytest.raises(ValueError, match=r"line|address"):
        amy.keyring.create(name, address, passphrase)
    assert amy.keyring.own_keys() == (amy.key_id,)


def test_a_home_too_deep_for_the_agent_is_refused(tmp_path: Path) -> None:
    """A home too deep for the agent is refused."""
    with pytest.raises(HomeUnusable, match="shorter"):
        Keyring(tmp_path / ("d" * 100))


def test_the_agent_ends_when_the_keyring_is_closed(fresh: Path) -> None:
    """The agent ends when the keyring is closed."""
    with Keyring(fresh) as keyring:
        keyring.create("Amy", "amy@a.example", None)
        assert agents_of(fresh)
    deadline = time.monotonic() + 10
    while agents_of(fresh) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert agents_of(fresh) == []


def test_a_public_key_travels(fresh: Path, bob: Correspondent) -> None:
    """A public key travels."""
    armored = bob.keyring.public_key(bob.key_id)
    with Keyring(fresh) as keyring:
        assert keyring.import_public(armored) == bob.key_id
        assert keyring.import_public(armored) == bob.key_id
        assert keyring.public_key(bob.key_id) == armored
        assert keyring.own_keys() == ()


@pytest.mark.parametrize("text", ["", "no key", SPEC_KEY.read_text()])
def test_a_text_that_is_not_one_key_is_refused(bob: Correspondent, text: str) -> None:
    """A text that is not one key is refused."""
    with pytest.raises(BadKey):
        bob.keyring.import_public(text)


def test_two_keys_in_one_text_are_refused(amy: Correspondent, bob: Correspondent) -> None:
    """Two keys in one text are refused."""
    both = gpg(bob.keyring.home, "--armor", "--export", amy.key_id.hex, bob.key_id.hex)
    with pytest.raises(BadKey):
        bob.keyring.import_public(both.decode())


def test_a_secret_key_is_not_taken_for_a_public_one(bob: Correspondent) -> None:
    """A secret key is not taken for a public one."""
    secret = gpg(bob.keyring.home, "--armor", "--export-secret-keys", bob.key_id.hex)
    with pytest.raises(BadKey):
        bob.keyring.import_public(secret.decode())


def test_a_missing_key_is_named(amy: Correspondent, tmp_path: Path) -> None:
    """A missing key is named."""
    (tmp_path / "x").write_bytes(b"x")
    for attempt in (
        lambda: amy.keyring.public_key(STRANGER),
        lambda: amy.keyring.encrypt_bytes(b"x", [STRANGER]),
        lambda: amy.keyring.sign_detached(tmp_path / "x", STRANGER, None),
    ):
        with pytest.raises(NoSuchKey) as caught:
            attempt()
        assert caught.value.key_id == STRANGER


def test_a_signature_is_verified_and_names_its_signer(
    amy: Correspondent, bob: Correspondent, tmp_path: Path
) -> None:
    """A signature is verified and names its signer."""
    path = tmp_path / "signed"
    path.write_bytes(b"content")
    signature = amy.keyring.sign_detached(path, amy.key_id, amy.passphrase)
    check = bob.keyring.verify_detached(signature, path)
    assert (check.valid, check.signer, check.reason) == (True, amy.key_id, "")
    path.write_bytes(b"Content")
    check = bob.keyring.verify_detached(signature, path)
    assert (check.valid, check.reason) == (False, "the signature does not match the mail")


def test_a_signature_by_an_unknown_key_is_undecided(
    fresh: Path, bob: Correspondent, tmp_path: Path
) -> None:
    """A signature by an unknown key is undecided."""
    path = tmp_path / "signed"
    path.write_bytes(b"content")
    signature = bob.keyring.sign_detached(path, bob.key_id, None)
    with Keyring(fresh) as keyring:
        check = keyring.verify_detached(signature, path)
    assert (check.valid, check.key_missing) == (False, True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--digest-algo", "SHA1"), "signed by SHA-1"),
        (("--digest-algo", "RIPEMD160"), "signed by RIPEMD-160"),
        (("--textmode",), "not one over a file"),
    ],
)
def test_signatures_by_weak_hashes_or_over_texts_are_invalid(
    bob: Correspondent, tmp_path: Path, options: tuple[str, ...], reason: str
) -> None:
    """Signatures by weak hashes or over texts are invalid."""
    path = tmp_path / "signed"
    path.write_bytes(b"content\n")
    signature = gpg(
        bob.keyring.home, *options, "--detach-sign", "--output", "-", given=path.read_bytes()
    )
    check = bob.keyring.verify_detached(signature, path)
    assert not check.valid
    assert check.signer == bob.key_id
    assert reason in check.reason


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda signature: b"", id="empty"),
        pytest.param(lambda signature: signature * 2, id="twice"),
        pytest.param(lambda signature: signature[:-5], id="truncated"),
        pytest.param(lambda signature: b"noise", id="noise"),
    ],
)
def test_what_is_not_exactly_one_signature_is_invalid(
    bob: Correspondent, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    """What is not exactly one signature is invalid."""
    path = tmp_path / "signed"
    path.write_bytes(b"content")
    signature = bob.keyring.sign_detached(path, bob.key_id, None)
    check = bob.keyring.verify_detached(change(signature), path)
    assert not check.valid
    assert check.reason


def test_a_clear_signed_text_is_accepted_by_gpg(amy: Correspondent, bob: Correspondent) -> None:
    """A clear signed text is accepted by gpg."""
    signed = amy.keyring.clear_sign("Grüße\n- dash\n", amy.key_id, amy.passphrase)
    gpg(bob.keyring.home, "--verify", given=signed.encode())


def test_a_wrong_passphrase_is_told_from_other_failures(
    amy: Correspondent, bob: Correspondent, tmp_path: Path
) -> None:
    """A wrong passphrase is told from other failures."""
    sealed = bob.keyring.encrypt_bytes(b"for amy", [amy.key_id])
    for wrong in ("wrong", None):
        amy.keyring.close()
        with pytest.raises(WrongPassphrase):
            amy.keyring.clear_sign("text", amy.key_id, wrong)
        with pytest.raises(WrongPassphrase):
            amy.keyring.decrypt_bytes(sealed, wrong)
    assert amy.keyring.decrypt_bytes(sealed, amy.passphrase) == b"for amy"
    with pytest.raises(NotForUs):
        bob.keyring.decrypt_bytes(sealed, None)


def test_a_seal_names_none_of_its_readers(amy: Correspondent, bob: Correspondent) -> None:
    """A seal names none of its readers."""
    sealed = amy.keyring.encrypt_bytes(b"x", [amy.key_id, bob.key_id])
    done = subprocess.run(
        ["gpg", "--homedir", str(bob.keyring.home), "--batch", "--list-only", "--list-packets"],
        input=sealed,
        capture_output=True,
        check=False,
    )
    readers = [line for line in done.stdout.splitlines() if line.startswith(b":pubkey enc packet")]
    assert len(readers) == 2
    assert all(line.endswith(b"keyid 0000000000000000") for line in readers)
    assert bob.keyring.decrypt_bytes(sealed, None) == b"x"
    assert amy.keyring.decrypt_bytes(sealed, amy.passphrase) == b"x"


def test_a_compression_bomb_is_refused(bob: Correspondent, tmp_path: Path) -> None:
    """A compression bomb is refused."""
    sealed = tmp_path / "sealed"
    sealed.write_bytes(
        gpg(
            bob.keyring.home,
            *("-z", "9", "--encrypt", "--recipient", bob.key_id.hex),
            given=bytes(80 * 1024 * 1024),
        )
    )
    taken: list[int] = []
    with pytest.raises(BadMessage, match="unpacks to more"):
        bob.keyring.decrypt_to(sealed, lambda chunk: taken.append(len(chunk)), None)
    assert sum(taken) < 75 * 1024 * 1024
    with pytest.raises(BadMessage, match="unpacks to more"):
        bob.keyring.decrypt_bytes(sealed.read_bytes(), None)


def test_what_is_not_sealed_is_refused(bob: Correspondent, tmp_path: Path) -> None:
    """What is not sealed is refused."""
    signed = gpg(bob.keyring.home, "--sign", given=b"only signed")
    for raw in (b"", b"noise", signed):
        with pytest.raises(BadMessage):
            bob.keyring.decrypt_bytes(raw, None)


def test_a_seal_by_a_password_is_refused(bob: Correspondent) -> None:
    """A seal by a password is refused."""
    sealed = gpg(bob.keyring.home, "--passphrase=p", "--s2k-count=1024", "--symmetric", given=b"x")
    with pytest.raises(BadMessage, match="password"):
        bob.keyring.decrypt_bytes(sealed, "p")


class BrokenDisk(io.RawIOBase):
    """A source that fails after its first bytes."""

    def __init__(self) -> None:
        self._read = False

    def read(self, size: int = -1, /) -> bytes:
        """Return a few bytes, then fail."""
        if self._read:
            raise OSError(5, "Input/output error")
        self._read = True
        return b"beginning"


def test_a_source_that_breaks_off_is_neither_signed_nor_sealed(
    bob: Correspondent, tmp_path: Path
) -> None:
    """A source that breaks off is neither signed nor sealed."""
    with pytest.raises(OSError, match="Input/output error"):
        bob.keyring.sign_detached(BrokenDisk(), bob.key_id, None)
    with pytest.raises(OSError, match="Input/output error"):
        bob.keyring.encrypt(BrokenDisk(), tmp_path / "sealed", [bob.key_id])
    assert not (tmp_path / "sealed").exists()


def test_what_the_taker_raises_is_raised(bob: Correspondent, tmp_path: Path) -> None:
    """What the taker raises is raised."""

    def full(_: bytes) -> None:
        raise OSError(28, "No space left on device")

    bob.keyring.encrypt(io.BytesIO(b"x"), tmp_path / "sealed", [bob.key_id])
    with pytest.raises(OSError, match="No space left"):
        bob.keyring.decrypt_to(tmp_path / "sealed", full, None)


@pytest.mark.parametrize("state", ["revoked", "expired"])
def test_nobody_seals_to_a_key_that_is(fresh: Path, state: str) -> None:
    """Nobody seals to a key that is."""
    with Keyring(fresh) as keyring:
        if state == "revoked":
            key_id = keyring.create("Amy", "amy@a.example", None)
            certificate = keyring.revocation_certificate(key_id).read_text()
            gpg(fresh, "--import", given=certificate.replace(":-----BEGIN", "-----BEGIN").encode())
        else:
            gpg(
                fresh,
                *("--faked-system-time=20200101T000000!", "--passphrase="),
                *("--quick-generate-key", "amy@a.example", "rsa2048", "default", "1d"),
            )
            (key_id,) = keyring.own_keys()
        with pytest.raises(NoSuchKey, match=state):
            keyring.encrypt_bytes(b"x", [key_id])


def test_no_passphrase_is_on_a_command_line(amy: Correspondent, tmp_path: Path) -> None:
    """A gpg that waits for the rest of its input shows its command line meanwhile."""
    assert amy.passphrase is not None
    seen: list[bytes] = []

    class Waiting:
        """A source that looks at the processes while gpg reads it."""

        def read(self, size: int, /) -> bytes:
            if seen:
                return b""
            for directory in Path("/proc").iterdir():
                if directory.name.isdecimal() and int(directory.name) != os.getpid():
                    try:
                        seen.append((directory / "cmdline").read_bytes())
                    except OSError:
                        continue
            return b"content"

    amy.keyring.sign_detached(Waiting(), amy.key_id, amy.passphrase)
    ours = [line for line in seen if str(amy.keyring.home).encode() in line]
    assert any(b"--detach-sign" in line for line in ours)
    assert all(amy.passphrase.encode() not in line for line in ours)
