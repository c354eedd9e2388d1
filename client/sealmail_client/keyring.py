"""Own and others' OpenPGP keys in a GnuPG home of their own, and all work with them.

Every call starts a gpg and blocks until it ends; large data goes from file to file.
"""

import hashlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final, Literal

from sealmail_client.errors import (
    BadKey,
    BadMessage,
    ClientError,
    GpgFailed,
    NoSuchKey,
    NotForUs,
    NotOpened,
    WrongPassphrase,
)
from sealmail_client.gpg_home import GpgHome, GpgRun
from sealmail_client.gpg_process import GpgProcess
from sealmail_client.gpg_status import SignatureCheck, Status, judge_signature
from sealmail_client.gpg_streams import Readable, WatchedSource, reading
from sealmail_client.seal_head import CountedReaders
from sealmail_protocol.addresses import normal_address
from sealmail_protocol.fields import is_line
from sealmail_protocol.keys import KeyId
from sealmail_verify import BadSignature
from sealmail_verify.evidence import read_key_block

__all__ = ["Algorithm", "Keyring", "Readable", "SignatureCheck"]

Algorithm = Literal["ed25519", "rsa3072"]

# Stated, because gpg 2.4 would promise OCB, which nothing else can read.
_PREFERENCES = "AES256 AES192 AES SHA512 SHA384 SHA256 ZLIB ZIP Uncompressed"
_KEY_KINDS: Final[dict[Algorithm, tuple[str, ...]]] = {
    "ed25519": (
        *("Key-Type: EDDSA", "Key-Curve: ed25519", "Key-Usage: sign,cert"),
        *("Subkey-Type: ECDH", "Subkey-Curve: cv25519", "Subkey-Usage: encrypt"),
    ),
    "rsa3072": (
        *("Key-Type: RSA", "Key-Length: 3072", "Key-Usage: sign,cert"),
        *("Subkey-Type: RSA", "Subkey-Length: 3072", "Subkey-Usage: encrypt"),
    ),
}
_UNUSABLE: Final = {"r": "is revoked", "e": "has expired", "d": "is disabled", "i": "is invalid"}
# A compressed seal may unpack to this many times its size, and small ones to this in any case.
_MAX_EXPANSION = 50
_SMALL_PLAINTEXT = 64 * 1024 * 1024
_SAMPLE = b"is gpg well?"


class Keyring(GpgHome):
    """The keys in the GnuPG home ``home``, which is made if it is not there.

    ``passphrase`` is ``None`` everywhere for keys without one, and with ``agent``. Several
    threads may call at once.
    """

    def __init__(self, home: Path, *, agent: bool = False, patience: float | None = None) -> None:
        super().__init__(home, agent=agent, patience=patience)
        # A gpg that only looks costs as much as one that seals, so each key is looked at once.
        self._imported: dict[bytes, KeyId] = {}
        self._sealable: set[KeyId] = set()

    def __repr__(self) -> str:
        return f"Keyring({str(self.home)!r})"

    def run(
        self,
        *arguments: str,
        given: bytes = b"",
        passphrase: str | None = None,
        ask: bool = False,
    ) -> GpgRun:
        """Run gpg as every ``GpgHome`` does; it may change what is known of keys."""
        self._imported.clear()
        self._sealable.clear()
        return super().run(*arguments, given=given, passphrase=passphrase, ask=ask)

    def create(
        self,
        name: str,
        address: str,
        passphrase: str | None,
        algorithm: Algorithm = "ed25519",
    ) -> KeyId:
        """Make a key that signs and one that seals, both without end; return the primary's id.

        gpg keeps a revocation certificate beside them. A name or passphrase that gpg could not
        take as it is written is a ``ValueError``.
        """
        lines = [*_KEY_KINDS[algorithm], "Expire-Date: 0", f"Preferences: {_PREFERENCES}"]
        if name:
            lines.append(f"Name-Real: {_plain_name(name)}")
        lines.append(f"Name-Email: {normal_address(address)}")
        if passphrase is not None:
            lines.append(_passphrase_line(passphrase))
        elif not self.agent:
            lines.append("%no-protection")
        text = "\n".join([*lines, "%commit", ""])
        result = self._gpg.gen_key(text.encode())
        status = Status.read(result.stderr)
        created = status.all("KEY_CREATED")
        if len(created) != 1:
            raise GpgFailed("making a key", status.last_remark)
        return KeyId.from_hex(created[0][1])

    def public_key(self, key_id: KeyId) -> str:
        """Export one public key, armored, without the signatures of others."""
        self._require(key_id)
        armored: str = self._gpg.export_keys(key_id.hex, minimal=True)
        return armored

    def revocation_certificate(self, key_id: KeyId) -> Path:
        """Return the file that revokes an own key once its first line is made usable."""
        path = self.home / "openpgp-revocs.d" / f"{key_id.hex}.rev"
        if not path.is_file():
            raise NoSuchKey(key_id, "has no revocation certificate here")
        return path

    def import_public(self, armored: str) -> KeyId:
        """Take over exactly one public key; the signatures of others on it are dropped."""
        digest = hashlib.sha256(armored.encode()).digest()
        known = self._imported.get(digest)
        if known is not None:
            return known
        try:
            block = read_key_block(armored.encode())
        except BadSignature as error:
            raise BadKey(error.reason) from None
        result = self._gpg.import_keys(
            block.raw, extra_args=["--import-options", "import-minimal,import-clean"]
        )
        imported = Status.read(result.stderr).all("IMPORT_OK")
        if [words[1] for words in imported] != [block.key_id.hex]:
            raise BadKey("no self-signature of it is good")
        self._sealable.discard(block.key_id)
        self._imported[digest] = block.key_id
        return block.key_id

    def has(self, key_id: KeyId) -> bool:
        """Return whether the public key is here."""
        try:
            self._require(key_id)
        except NoSuchKey:
            return False
        return True

    def own_keys(self) -> tuple[KeyId, ...]:
        """List the primary keys whose secret part is here."""
        listed = self._gpg.list_keys(secret=True)
        return tuple(KeyId.from_hex(entry["fingerprint"]) for entry in listed)

    def clear_sign(self, text: str, key_id: KeyId, passphrase: str | None) -> str:
        """Return ``text`` with a SHA-512 signature around it."""
        return self._sign(io.BytesIO(text.encode()), key_id, passphrase, clearsign=True).decode()

    def sign_detached(
        self, source: Path | Readable, key_id: KeyId, passphrase: str | None
    ) -> bytes:
        """Return a binary SHA-512 signature over a file or stream."""
        with reading(source) as reader:
            return self._sign(reader, key_id, passphrase, detach=True, binary=True)

    def verify_detached(self, signature: bytes, path: Path) -> SignatureCheck:
        """Check a binary signature over the file; signatures by weak hashes are invalid."""
        with TemporaryFile(dir=self.home) as file, path.open("rb") as source:
            file.write(signature)
            file.seek(0)
            # A file that is open already is named -&N; gpg takes that for an option before --.
            names = ("--", f"-&{file.fileno()}", "-")
            verify = ("--enable-special-filenames", "--verify", *names)
            with self.start(*verify, inherited=(file.fileno(),)) as gpg:
                gpg.pass_through(source, _nowhere)
                return judge_signature(gpg.finish("checking a signature"))

    def verifying(self, signature: Path) -> GpgProcess:
        """Start checking the binary signature in a file over bytes that are still to come.

        ``judge_signature`` reads the outcome; gpg writes nothing of the bytes. ``finish`` raises
        ``GpgFailed`` if there is none.
        """
        return self.start("--verify", str(signature.absolute()), "-")

    def encrypt(self, source: Path | Readable, target: Path, recipients: Sequence[KeyId]) -> None:
        """Seal ``source`` to ``recipients``; the ciphertext in ``target`` names none of them.

        ``target`` is gone or whole afterwards.
        """
        try:
            with reading(source) as reader:
                self._encrypt(reader, recipients, target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    def encrypt_bytes(self, content: bytes, recipients: Sequence[KeyId]) -> bytes:
        """Seal a few bytes as ``encrypt`` does."""
        return self._encrypt(io.BytesIO(content), recipients, None)

    def decrypt_to(
        self,
        source: Path | Readable,
        take: Callable[[bytes], object],
        passphrase: str | None,
        size: int | None = None,
    ) -> None:
        """Open a seal and hand its content to ``take`` in chunks, as they are decrypted.

        Until this returns, the content may be anybody's: only then is the seal known to be whole.
        What ``take`` raises is raised here. ``size`` is that of a stream, as far as it is known.
        """
        if isinstance(source, Path):
            size = source.stat().st_size
        with reading(source) as reader:
            self._decrypt(reader, passphrase, None if size is None else _most(size), take)

    def decrypt_bytes(self, sealed: bytes, passphrase: str | None) -> bytes:
        """Open a seal around a few bytes."""
        limit = _MAX_EXPANSION * max(1024, len(sealed))
        content = io.BytesIO()
        self._decrypt(io.BytesIO(sealed), passphrase, limit, content.write)
        return content.getvalue()

    def opens(self, key_id: KeyId, passphrase: str | None) -> bool:
        """Return whether ``passphrase`` unlocks an own key, as far as that can be found out."""
        try:
            self._sign(io.BytesIO(b""), key_id, passphrase, detach=True, binary=True)
        except WrongPassphrase:
            return False
        except NoSuchKey:
            # It is revoked or has expired: nothing tells.
            return True
        return True

    def opens_own_seal(self, key_id: KeyId, passphrase: str | None) -> bool:
        """Return whether a new seal to an own key opens: then gpg and its agent are well."""
        try:
            sealed = self.encrypt_bytes(_SAMPLE, [key_id])
            return self.decrypt_bytes(sealed, passphrase) == _SAMPLE
        except ClientError:
            return False

    def _without(self, passphrase: str | None) -> tuple[str, ...]:
        """Answer in advance for keys that turn out to be locked, so that others are tried too."""
        return () if passphrase or self.agent else ("--passphrase", "")

    def _require(self, key_id: KeyId) -> dict[str, Any]:
        """Return the listing of a primary key; gpg alone would also take a subkey's id."""
        for entry in self._gpg.list_keys(keys=[key_id.hex]):
            if entry["fingerprint"] == key_id.hex:
                return dict(entry)
        raise NoSuchKey(key_id)

    def _require_sealable(self, key_id: KeyId) -> None:
        """Refuse a key that gpg could not seal to, with the reason; gpg itself refuses it too."""
        if key_id in self._sealable:
            return
        entry = self._require(key_id)
        if entry["trust"] in _UNUSABLE:
            raise NoSuchKey(key_id, _UNUSABLE[entry["trust"]])
        # A capital tells what the key as a whole can do now.
        if "E" not in entry["cap"]:
            raise NoSuchKey(key_id, "has no part to seal to")
        self._sealable.add(key_id)

    def _sign(
        self, source: Readable, key_id: KeyId, passphrase: str | None, **form: bool
    ) -> bytes:
        watched = WatchedSource(source)
        result = self._gpg.sign_file(
            watched,
            passphrase=_as_latin(passphrase),
            extra_args=[
                *("--digest-algo", "SHA512", "--local-user", key_id.hex),
                *self._without(passphrase),
            ],
            **form,
        )
        status = Status.read(result.stderr)
        if status.wrong_passphrase:
            raise WrongPassphrase("signing")
        if status.has("INV_SGNR"):
            raise NoSuchKey(key_id, "cannot sign here")
        watched.require_whole()
        if not status.has("SIG_CREATED"):
            raise GpgFailed("signing", status.last_remark)
        signed: bytes = result.data
        return signed

    def _encrypt(
        self, reader: Readable, recipients: Sequence[KeyId], target: Path | None
    ) -> bytes:
        if not recipients:
            raise ValueError("a seal needs a recipient")
        for key_id in recipients:
            self._require_sealable(key_id)
        watched = WatchedSource(reader)
        try:
            result = self._gpg.encrypt_file(
                watched,
                [key_id.hex for key_id in recipients],
                armor=False,
                output=None if target is None else str(target.absolute()),
                extra_args=["--throw-keyids", "-z", "0"],
            )
        except BrokenPipeError:
            raise GpgFailed("sealing", "it stopped before the end") from None
        watched.require_whole()
        status = Status.read(result.stderr)
        if result.returncode != 0 or not status.has("END_ENCRYPTION"):
            raise GpgFailed("sealing", status.last_remark)
        sealed: bytes = result.data
        return sealed

    def _decrypt(
        self,
        reader: Readable,
        passphrase: str | None,
        limit: int | None,
        take: Callable[[bytes], object],
    ) -> None:
        watched = WatchedSource(CountedReaders(reader))
        sink = _LimitedSink(take, lambda: _most(watched.taken) if limit is None else limit)
        known = () if limit is None else (f"--max-output={limit}",)
        with self.start("--decrypt", *known, passphrase=passphrase) as gpg:
            gpg.pass_through(watched, sink.take)
            watched.require_whole()
            status = gpg.finish("opening a seal")
        # Whoever knows a password could have sealed it, and gpg tries ours for it.
        if status.has("NEED_PASSPHRASE_SYM"):
            raise BadMessage("it is sealed with a password, not to a key")
        # The exit status tells little: each own key that was tried in vain makes it a failure.
        if not (status.has("DECRYPTION_OKAY") and status.has("GOODMDC")):
            self._explain_closed(status, passphrase)
        if any("max-output" in remark for remark in status.remarks):
            raise BadMessage(f"it unpacks to more than {limit} bytes")
        if any("handle plaintext failed" in remark for remark in status.remarks):
            raise GpgFailed("opening a seal", status.last_remark, gave_up=True)
        lengths = status.all("PLAINTEXT_LENGTH")
        if len(status.all("PLAINTEXT")) != 1 or (lengths and int(lengths[0][0]) != sink.taken):
            raise BadMessage("it is not one whole seal")

    def _explain_closed(self, status: Status, passphrase: str | None) -> None:
        """Raise the reason why a seal did not open."""
        if not status.has("ENC_TO"):
            raise BadMessage("it is not sealed")
        opened = status.has("DECRYPTION_INFO")
        # A prompt that was cancelled, and an agent that was away, look like a foreign key.
        if self.agent and not opened and self.own_keys():
            raise NotOpened
        if opened or not status.has("NO_SECKEY"):
            if status.wrong_passphrase:
                raise WrongPassphrase("opening a mail")
            raise BadMessage("its seal is damaged")
        # With hidden recipients gpg does not tell a wrong passphrase from a foreign key.
        if not any(self.opens(key_id, passphrase) for key_id in self.own_keys()):
            raise WrongPassphrase("opening a mail")
        raise NotForUs


class _LimitedSink:
    """Hands on what gpg writes, as long as that is not more than ``limit`` says at the time."""

    def __init__(self, take: Callable[[bytes], object], limit: Callable[[], int]) -> None:
        self._take = take
        self._limit = limit
        self.taken = 0

    def take(self, chunk: bytes) -> None:
        self.taken += len(chunk)
        if self.taken > self._limit():
            raise BadMessage(f"it unpacks to more than {self._limit()} bytes")
        self._take(chunk)


def _nowhere(_: bytes) -> None:
    """Take what gpg is not expected to write."""


def _most(sealed_size: int) -> int:
    """Return how much a seal of this size may unpack to."""
    return _SMALL_PLAINTEXT + _MAX_EXPANSION * sealed_size


def _plain_name(name: str) -> str:
    if not is_line(name) or name != name.strip() or set("<>()") & set(name):
        raise ValueError(f"{name!r}: a name is one line, without brackets or blanks around it")
    return name


def _passphrase_line(passphrase: str) -> str:
    if not is_line(passphrase) or passphrase != passphrase.strip() or not passphrase:
        raise ValueError("a passphrase is one line, without blanks around it")
    return f"Passphrase: {passphrase}"


def _as_latin(passphrase: str | None) -> str | None:
    """Return a text whose Latin-1 bytes are the UTF-8 bytes of the passphrase."""
    return passphrase.encode().decode("latin-1") if passphrase else None
