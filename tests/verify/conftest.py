"""Keys and texts made by a real gpg, once a session."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sealmail_protocol.keys import KeyId

VECTORS = Path(__file__).parents[1] / "vectors"
SPEC_SIGNER = KeyId.from_hex("C3202B03EB24B1A156DD2F2BB4F5C41CE3E5967D")
# Signing in the past makes keys that have expired today.
YEAR_2024 = "--faked-system-time=20240201T000000!"
YEAR_2026 = "--faked-system-time=20260201T000000!"


@dataclass(frozen=True, slots=True)
class Sample:
    """A clear-signed text with the key block and the key id to verify it by."""

    text: bytes
    certificate: bytes
    expected: KeyId


class Keyring:
    """A gpg home that makes keys and signs texts."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def gpg(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run gpg; it must succeed."""
        options = ("--batch", "--no-tty", "--pinentry-mode=loopback", "--passphrase=")
        done = subprocess.run(
            ["gpg", f"--homedir={self.home}", "--trust-model=always", *options, *arguments],
            input=stdin,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def make_key(self, name: str, algorithm: str, uses: str, *more: str) -> KeyId:
        """Make a key, valid without end unless ``more`` begins with its validity."""
        validity, *options = more or ("never",)
        uid = f"{name} <{name}@example.org>"
        output = self.gpg(
            "--status-fd=1", *options, "--quick-generate-key", uid, algorithm, uses, validity
        )
        created = next(line for line in output.splitlines() if b"KEY_CREATED" in line)
        return KeyId.from_hex(created.split()[3].decode())

    def subkeys(self, key: KeyId) -> list[str]:
        """List the fingerprints of the subkeys."""
        rows = self.gpg("--with-colons", "--list-keys", key.hex).decode().splitlines()
        return [row.split(":")[9] for row in rows if row.startswith("fpr:")][1:]

    def export(self, *keys: KeyId) -> bytes:
        """Export public keys in one armored block."""
        return self.gpg("--armor", "--export", *(key.hex for key in keys))

    def sign(
        self, signer: KeyId | str, text: bytes = b"Type: test\n- dash\n", *more: str
    ) -> bytes:
        """Clear-sign by exactly this key or subkey."""
        return self.gpg(*more, f"--local-user={signer}!", "--clear-sign", stdin=text)

    def revoke(self, key: KeyId) -> None:
        """Apply the revocation that gpg made with the key."""
        stored = self.home / "openpgp-revocs.d" / f"{key.hex}.rev"
        self.gpg("--import", stdin=stored.read_bytes().replace(b":-----BEGIN", b"-----BEGIN"))


@pytest.fixture(scope="session")
def keyring() -> Iterator[Keyring]:
    """Provide an empty keyring; its agent ends with the session."""
    # Short on purpose: the agent's socket path is limited to 108 bytes.
    home = Path(tempfile.mkdtemp(prefix="sv-"))
    yield Keyring(home)
    subprocess.run(["gpgconf", f"--homedir={home}", "--kill", "all"], check=False)
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def ann(keyring: Keyring) -> KeyId:
    """Make an Ed25519 key."""
    return keyring.make_key("ann", "ed25519", "sign,cert")


@pytest.fixture(scope="session")
def bob(keyring: Keyring) -> KeyId:
    """Make an RSA key."""
    return keyring.make_key("bob", "rsa2048", "sign,cert")


def spec_certificate() -> bytes:
    """Take the key block out of the specification's key-announcement."""
    announcement = (VECTORS / "ka_sample.asc").read_bytes()
    begin = announcement.index(b"- -----BEGIN PGP PUBLIC KEY BLOCK-----")
    end = announcement.index(b"-----BEGIN PGP SIGNATURE-----")
    lines = announcement[begin:end].splitlines(keepends=True)
    return b"".join(line.removeprefix(b"- ") for line in lines)


@pytest.fixture(scope="session")
def samples(keyring: Keyring, ann: KeyId, bob: KeyId) -> dict[str, Sample]:
    """Make texts that must verify, by a name that tells what is special about each."""
    made = {
        "ed25519": Sample(keyring.sign(ann), keyring.export(ann), ann),
        "rsa": Sample(keyring.sign(bob), keyring.export(bob), bob),
    }
    text = made["ed25519"].text
    made["crlf"] = Sample(text.replace(b"\n", b"\r\n"), made["ed25519"].certificate, ann)
    made["blank-around"] = Sample(b"\r\n" + text + b"\n\n", made["ed25519"].certificate, ann)
    blanks = keyring.sign(ann, b"From here\nblanks \t\n\n\xc3\xa4\x00\xff\n-\n- \n\n\n")
    made["odd-lines"] = Sample(blanks, made["ed25519"].certificate, ann)
    made["empty"] = Sample(keyring.sign(ann, b""), made["ed25519"].certificate, ann)
    cat = keyring.make_key("cat", "ed25519", "cert")
    keyring.gpg("--quick-add-key", cat.hex, "ed25519", "sign", "never")
    keyring.gpg("--quick-add-key", cat.hex, "cv25519", "encr", "never")
    made["subkey"] = Sample(keyring.sign(keyring.subkeys(cat)[0]), keyring.export(cat), cat)
    dan = keyring.make_key("dan", "ed25519", "sign,cert", "1y", YEAR_2024)
    in_time = keyring.sign(dan, b"in time\n", YEAR_2024)
    made["expired-since"] = Sample(in_time, keyring.export(dan), dan)
    return made


@pytest.fixture(scope="session")
def revoked(keyring: Keyring) -> Sample:
    """Make a text that was signed before its key was revoked."""
    eve = keyring.make_key("eve", "ed25519", "sign,cert")
    text = keyring.sign(eve)
    keyring.revoke(eve)
    return Sample(text, keyring.export(eve), eve)


@pytest.fixture(scope="session")
def revoked_subkey(keyring: Keyring) -> Sample:
    """Make a text by a subkey that is revoked, of a key that is not."""
    gus = keyring.make_key("gus", "ed25519", "sign,cert")
    keyring.gpg("--quick-add-key", gus.hex, "ed25519", "sign", "never")
    text = keyring.sign(keyring.subkeys(gus)[0])
    keyring.gpg(
        *("--no-batch", "--command-fd=0", "--edit-key", gus.hex),
        stdin=b"key 1\nrevkey\ny\n0\n\ny\nsave\n",
    )
    assert b"\nsub:r:" in keyring.gpg("--with-colons", "--list-keys", gus.hex)
    return Sample(text, keyring.export(gus), gus)


@pytest.fixture(scope="session")
def expired_before(keyring: Keyring) -> Sample:
    """Make a text signed after the key in its block had expired."""
    fay = keyring.make_key("fay", "ed25519", "sign,cert", "1y", YEAR_2024)
    certificate = keyring.export(fay)
    keyring.gpg(YEAR_2026, "--quick-set-expire", fay.hex, "0")
    return Sample(keyring.sign(fay, b"late\n", YEAR_2026), certificate, fay)


@pytest.fixture(scope="session")
def counting_gpg(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Provide a gpg program that notes each start in a file, and that file."""
    directory = tmp_path_factory.mktemp("gpg")
    program, starts = directory / "gpg", directory / "starts"
    program.write_text(f'#!/bin/sh\necho started >> "{starts}"\nexec gpg "$@"\n')
    program.chmod(0o755)
    starts.touch()
    return str(program), starts
