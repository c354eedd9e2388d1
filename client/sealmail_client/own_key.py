"""Care of the user's own key: taking it in and out, its passphrase, its parts, and its end."""

import re
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Final

from sealmail_client.errors import BadKey, GpgFailed, NoSuchKey, WrongPassphrase
from sealmail_client.keyring import Keyring
from sealmail_protocol.fields import is_line
from sealmail_protocol.keys import KeyId

MAX_SECRET_KEY_BYTES = 1024 * 1024
# GnuPG puts a colon before its certificates, so that nobody uses them by mistake.
_DISARMED = re.compile(r"^:(?=-----BEGIN)", re.MULTILINE)
_ARMOR = re.compile(r"-----BEGIN PGP PUBLIC KEY BLOCK-----.*?-----END[^\n]*", re.DOTALL)
_GONE: Final = frozenset("reid")
_RSA = "1"

_CERTIFICATE = """This is the revocation certificate of the key

  {key_id}

Whoever has it can declare the key void, so keep a copy where nobody else and no fire finds it.
`sealmail identity revoke` uses it. A colon before the dashes keeps it from being used by
mistake; other OpenPGP programs take it once the colon is removed.

{armored}
"""


class OwnKey:
    """The key by which an identity is known; ``passphrase`` unlocks it."""

    def __init__(self, keyring: Keyring, key_id: KeyId, passphrase: str | None) -> None:
        self._keyring = keyring
        self._key_id = key_id
        self._passphrase = passphrase

    @classmethod
    def take_in(cls, keyring: Keyring, content: bytes, passphrase: str | None) -> KeyId:
        """Import the one secret key in ``content``, armored or not, into an empty keyring.

        ``BadKey`` if it is not one that can sign and be sealed to, ``WrongPassphrase`` if it
        stays locked.
        """
        if len(content) > MAX_SECRET_KEY_BYTES:
            raise BadKey(f"it has more than {MAX_SECRET_KEY_BYTES} bytes")
        keyring.run("--batch", "--import", given=content)
        keys = keyring.own_keys()
        if len(keys) != 1:
            raise BadKey(f"{len(keys)} secret keys are in it, where one is needed")
        abilities = _listed(keyring, keys[0])[0][11]
        for ability, meaning in (("S", "sign"), ("E", "be sealed to")):
            if ability not in abilities:
                raise BadKey(
                    f"it cannot {meaning}: it has no such part, has expired or is revoked"
                )
        if not keyring.opens(keys[0], passphrase):
            raise WrongPassphrase("importing the key")
        return keys[0]

    def hand_out(self) -> bytes:
        """Export the secret key, armored, locked by its passphrase as it is here."""
        done = self._keyring.run(
            *("--batch", "--armor", "--export-secret-keys", self._key_id.hex),
            passphrase=self._passphrase,
        )
        return done.require_done("exporting the key")

    def user_ids(self) -> tuple[str, ...]:
        """Return the names on the key that hold."""
        rows = _listed(self._keyring, self._key_id)
        names = (row[9] for row in rows if row[0] == "uid" and row[1] not in _GONE)
        return tuple(_unescaped(name) for name in names)

    def add_user_id(self, user_id: str) -> None:
        """Put a further name on the key."""
        self._run("adding a name", "--quick-add-uid", self._key_id.hex, user_id)

    def rotate(self) -> str:
        """Add a new part to seal to, and let the others expire; return its fingerprint.

        What was sealed to the others can still be opened.
        """
        rows = _listed(self._keyring, self._key_id)
        former = _sealing_parts(rows)
        algorithm = f"rsa{max(3072, int(rows[0][2]))}" if rows[0][3] == _RSA else "cv25519"
        self._run("adding a subkey", "--quick-add-key", self._key_id.hex, algorithm, "encr", "0")
        added = _sealing_parts(_listed(self._keyring, self._key_id)) - former
        if len(added) != 1:
            raise GpgFailed("adding a subkey")
        for fingerprint in sorted(former):
            # A second from now is the earliest end that gpg can write.
            self._run(
                "ending a subkey",
                *("--quick-set-expire", self._key_id.hex, "seconds=1", fingerprint),
            )
        return added.pop()

    def change_passphrase(self, new: str | None) -> None:
        """Lock the key by another passphrase, ``None``: by none; the agent asks for its own."""
        if new is not None and (not is_line(new) or new != new.strip() or not new):
            raise ValueError("a passphrase is one line, without blanks around it")
        # What the agent remembers would open the key, and make gpg ask for less than we answer.
        self._keyring.forget_passphrases()
        if not self._keyring.opens(self._key_id, self._passphrase):
            raise WrongPassphrase("changing the passphrase")
        self._keyring.forget_passphrases()
        parts = len(_listed(self._keyring, self._key_id))
        former = [self._passphrase] if self._passphrase else []
        answers = [*former, *[new or ""] * parts]
        commands = () if self._keyring.agent else ("--command-fd", "0")
        done = self._keyring.run(
            *(*commands, "--passwd", self._key_id.hex),
            given="".join(f"{answer}\n" for answer in answers).encode(),
            passphrase=None,
            ask=True,
        )
        done.require_done("changing the passphrase")
        self._keyring.forget_passphrases()
        self._passphrase = new

    def revocation_certificate(self) -> str:
        """Return a text that revokes the key: the one gpg made with it, else a new one."""
        try:
            text = self._keyring.revocation_certificate(self._key_id).read_text("utf-8", "replace")
        except NoSuchKey:
            done = self._keyring.run(
                *("--command-fd", "0", "--armor", "--gen-revoke", self._key_id.hex),
                given=b"y\n0\n\ny\n",
                passphrase=self._passphrase,
            )
            text = done.require_done("making a revocation certificate").decode("ascii")
        return _CERTIFICATE.format(key_id=self._key_id, armored=f":{_armored(text)}")

    def revoke(self, certificate: str) -> None:
        """Apply a certificate: the key signs nothing any more."""
        _apply(self._keyring, self._key_id, certificate)

    def when_revoked(self, certificate: str) -> str:
        """Return the public key as it will be once revoked; here nothing changes."""
        with (
            tempfile.TemporaryDirectory(prefix="sealmail-") as directory,
            Keyring(Path(directory)) as scratch,
        ):
            scratch.import_public(self._keyring.public_key(self._key_id))
            _apply(scratch, self._key_id, certificate)
            return scratch.public_key(self._key_id)

    def _run(self, doing: str, *arguments: str) -> None:
        done = self._keyring.run("--batch", *arguments, passphrase=self._passphrase)
        done.require_done(doing)


def _apply(keyring: Keyring, key_id: KeyId, certificate: str) -> None:
    keyring.run("--batch", "--import", given=_armored(certificate).encode())
    if _listed(keyring, key_id)[0][1] != "r":
        raise BadKey(f"this is no revocation certificate of {key_id}")


def _armored(certificate: str) -> str:
    """Return the certificate itself, ready to be used, out of the text around it."""
    found = _ARMOR.search(_DISARMED.sub("", certificate))
    if found is None:
        raise BadKey("there is no revocation certificate in this text")
    return found[0]


def _listed(keyring: Keyring, key_id: KeyId) -> list[list[str]]:
    """Return the rows of gpg's listing of a key, without heading."""
    done = keyring.run("--batch", "--with-colons", "--list-keys", key_id.hex)
    rows = [line.split(":") for line in done.output.decode("utf-8", "replace").split("\n")]
    listed = [row for row in rows if row[0] in ("pub", "sub", "uid", "fpr")]
    if not listed:
        raise NoSuchKey(key_id)
    return listed


def _sealing_parts(rows: list[list[str]]) -> set[str]:
    """Return the fingerprints of the subkeys that can be sealed to now."""
    parts = set()
    for row, following in pairwise(rows):
        if row[0] == "sub" and "e" in row[11] and row[1] not in _GONE:
            parts.add(following[9])
    return parts


def _unescaped(text: str) -> str:
    r"""Return a name as it is: gpg writes a colon in it as ``\x3a``."""
    return re.sub(r"\\x([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), text)
