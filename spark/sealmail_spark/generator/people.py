"""Invented mail users: an OpenPGP key that signs, an address and a price."""

import subprocess
import tempfile
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from sealmail_pow import Difficulty
from sealmail_protocol.addresses import Transport
from sealmail_protocol.keys import KeyId

_GPG_SECONDS = 60


class Signer(Protocol):
    """What clear-signs a text."""

    def __call__(self, text: str) -> bytes:
        """Return the signed message."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who is written to."""

    name: str
    address: str
    key_id: KeyId
    armored_key: str = field(repr=False)
    sign: Signer = field(repr=False)
    price: Difficulty
    transport: Transport
    since: datetime
    mailboxes: tuple[str, ...] = ("0", "1")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A public key, and what signs with its secret half."""

    key_id: KeyId
    armored_key: str
    sign: Signer = field(repr=False)


def new_key(user_id: str, *, seconds: int | None = None) -> KeyPair:
    """Make an Ed25519 key that is good for so many ``seconds``, by default for ever."""
    import pysequoia

    secret = pysequoia.Tsk.generate(
        user_id, profile=pysequoia.Profile.RFC4880, validity_seconds=seconds
    )
    return _pair(secret, secret.extract_certificate())


def revoked_key(user_id: str) -> KeyPair:
    """Make a key that carries its own revocation, and still signs."""
    import pysequoia

    secret = pysequoia.Tsk.generate(user_id, profile=pysequoia.Profile.RFC4880)
    certificate = secret.extract_certificate()
    revocation = certificate.revoke(secret.certifier())
    revoked = pysequoia.Cert.from_bytes(bytes(certificate) + bytes(revocation))
    return _pair(secret, revoked)


def _pair(secret: Any, certificate: Any) -> KeyPair:
    import pysequoia

    signer = secret.signer()

    def sign(text: str) -> bytes:
        # The line end before the signature belongs to neither; pysequoia adds it by itself.
        bare = text.removesuffix("\n").encode()
        signed = pysequoia.sign(signer, bare, mode=pysequoia.SignatureMode.CLEAR)
        return bytes(signed)

    return KeyPair(KeyId.from_hex(certificate.fingerprint), str(certificate), sign)


def gpg_key(
    user_id: str, kind: str, digest: str, sealing: str | None = None, life: str = "never"
) -> KeyPair:
    """Make a key that vouches for itself by a digest; GnuPG makes weak ones when asked to.

    ``kind`` is such as ``rsa1024``, and so is ``sealing``, a subkey that mail is sealed to for a
    ``life`` such as ``2d``.
    """
    bare = ("--cert-digest-algo", digest, "--passphrase", "")
    with _gpg_home() as home:
        _gpg(home, *bare, "--quick-gen-key", user_id, kind, "sign", "never")
        listed = _gpg(home, "--with-colons", "--list-keys").decode().splitlines()
        fingerprint = next(line for line in listed if line.startswith("fpr:")).split(":")[9]
        if sealing is not None:
            _gpg(home, *bare, "--quick-add-key", fingerprint, sealing, "encr", life)
        armored = _gpg(home, "--armor", "--export", fingerprint).decode()
        secret = _gpg(home, "--export-secret-keys", fingerprint)

    def sign(text: str) -> bytes:
        with _gpg_home() as again:
            _gpg(again, "--import", given=secret)
            return _gpg(again, "--clear-sign", "--digest-algo", "SHA256", given=text.encode())

    return KeyPair(KeyId.from_hex(fingerprint), armored, sign)


class _gpg_home:  # noqa: N801 - used as a context, like a function
    """A GnuPG home that is removed with its agent."""

    def __enter__(self) -> Path:
        self._directory = tempfile.TemporaryDirectory(prefix="sealmail-")
        return Path(self._directory.name)

    def __exit__(self, *_: object) -> None:
        command = ["gpgconf", "--homedir", self._directory.name, "--kill", "all"]
        subprocess.run(command, check=False, capture_output=True, timeout=_GPG_SECONDS)
        self._directory.cleanup()


def _gpg(home: Path, *arguments: str, given: bytes = b"") -> bytes:
    command = ["gpg", "--homedir", str(home), "--batch", "--no-tty", "--pinentry-mode", "loopback"]
    done = subprocess.run(
        [*command, "--no-emit-version", *arguments],
        input=given,
        capture_output=True,
        check=True,
        timeout=_GPG_SECONDS,
    )
    return done.stdout
