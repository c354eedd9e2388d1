"""Verification by the gpg program, each time in a home of its own that is removed afterwards.

Three program starts a text, some ten milliseconds: only for keys that pysequoia cannot judge.
"""

import os
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sealmail_protocol.keys import KeyId
from sealmail_verify.errors import BadSignature, Undecided
from sealmail_verify.evidence import Evidence, gather, read_key_block
from sealmail_verify.packets import KeyBlock, hash_name
from sealmail_verify.results import CertificateFacts, Verification

DEADLINE_SECONDS = 10.0
# A gpg takes a core while it runs; more at once would only be slower for each.
_SLOTS = threading.BoundedSemaphore(4)

_OPTIONS: Final = (
    *("--no-options", "--batch", "--no-tty", "--no-autostart", "--display-charset=utf-8"),
    *("--disable-dirmngr", "--no-auto-key-retrieve", "--no-auto-key-locate"),
    *("--trust-model=always", "--no-auto-check-trustdb"),
)
_REFUSALS: Final = {
    "BADSIG": "the signature does not match the text and the key",
    "ERRSIG": "the signature was made by another key or cannot be checked",
    "EXPSIG": "the signature has expired",
}


@dataclass(frozen=True, slots=True)
class _Part:
    """A primary key or subkey, as gpg lists it."""

    fingerprint: str
    revoked: bool
    created: datetime
    expires: datetime | None
    uses: str

    def was_valid(self, moment: datetime) -> bool:
        return self.created <= moment and (self.expires is None or moment < self.expires)


@dataclass(frozen=True, slots=True)
class _Listing:
    """A public key as gpg lists it: the primary key comes first."""

    parts: tuple[_Part, ...]
    user_ids: tuple[str, ...]

    @property
    def primary(self) -> _Part:
        return self.parts[0]


class GpgVerifier:
    """Decides on any key that gpg imports, old and revoked ones too.

    gpg itself calls a signature valid whenever it was made; here its key must have been valid
    then, as with pysequoia. ``gpg`` is the program, ``scratch`` the directory for its homes.
    """

    def __init__(
        self,
        gpg: str = "gpg",
        *,
        deadline: float = DEADLINE_SECONDS,
        scratch: Path | None = None,
    ) -> None:
        self._gpg = gpg
        self._deadline = deadline
        self._scratch = scratch

    def verify_clear_signed(
        self, text: bytes, certificate: bytes, expected: KeyId
    ) -> Verification:
        """Verify that ``expected``, found in ``certificate``, signed all of ``text``."""
        return self.decide(gather(text, read_key_block(certificate), expected))

    def decide(self, evidence: Evidence) -> Verification:
        """Verify the signature, or raise ``BadSignature``."""
        with _Session(self._gpg, self._deadline, self._scratch) as session:
            listing = session.load(evidence.key)
            status = session.verify(evidence.signed, evidence.signature.raw)
        return _judge(evidence, listing, status)

    def read_certificate(self, armored: bytes) -> CertificateFacts:
        """Return what a key that gpg imports says of itself."""
        return self.describe(read_key_block(armored))

    def describe(self, block: KeyBlock) -> CertificateFacts:
        """Return what the key says of itself."""
        with _Session(self._gpg, self._deadline, self._scratch) as session:
            listing = session.load(block)
        return CertificateFacts(
            key_id=block.key_id,
            user_ids=listing.user_ids,
            revoked=listing.primary.revoked,
            # Capitals tell what the key as a whole can do now.
            can_encrypt="E" in listing.primary.uses and not listing.primary.revoked,
            created=block.created,
            expires=listing.primary.expires,
            old_self_signature=True,
        )


def _judge(evidence: Evidence, listing: _Listing, status: list[list[str]]) -> Verification:
    """Read gpg's status lines: exactly one signature, by a key that was valid then."""
    words = [line[0] for line in status]
    for word, reason in _REFUSALS.items():
        if word in words:
            raise BadSignature(reason)
    valid = [line[1:] for line in status if line[0] == "VALIDSIG"]
    if len(valid) != 1 or len(valid[0]) < 10 or words.count("NEWSIG") != 1:
        raise BadSignature("gpg finds no valid signature")
    maker, seconds, number, primary = (valid[0][field] for field in (0, 2, 7, 9))
    signed_at = _moment(seconds)
    if primary != evidence.key.key_id.hex:
        raise BadSignature("the signature was made by another key")
    if (hash_name(int(number)), signed_at) != (
        evidence.signature.hash_algorithm,
        evidence.signature.signed_at,
    ):
        raise BadSignature("the signature can be read in two ways")
    part = next((part for part in listing.parts if part.fingerprint == maker), None)
    if part is None or "s" not in part.uses:
        raise BadSignature("the signature was made by a key that may not sign")
    # A revoked primary key is the caller's to judge; a revoked subkey of a good key signs nothing.
    if part.revoked and not listing.primary.revoked:
        raise BadSignature("the signature was made by a revoked subkey")
    if not (part.was_valid(signed_at) and listing.primary.was_valid(signed_at)):
        raise BadSignature("the key was not valid when the signature was made")
    return Verification(
        evidence.key.key_id, listing.primary.revoked, evidence.signature.hash_algorithm, signed_at
    )


class _Session:
    """One temporary home of gpg, one of the few slots and one deadline for all its calls."""

    def __init__(self, gpg: str, deadline: float, scratch: Path | None) -> None:
        self._gpg = gpg
        self._ends = time.monotonic() + deadline
        self._scratch = scratch

    def __enter__(self) -> "_Session":
        if not _SLOTS.acquire(timeout=self._remaining()):
            raise Undecided("gpg is busy with other texts")
        try:
            self._home = tempfile.TemporaryDirectory(
                prefix="gpg-", dir=self._scratch, ignore_cleanup_errors=True
            )
        except BaseException:
            _SLOTS.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._home.cleanup()
        _SLOTS.release()

    def load(self, key: KeyBlock) -> _Listing:
        """Import the key, which checks its self-signatures, and list it."""
        self._call("--import", self._file("key", key.raw))
        _, output = self._call("--with-colons", "--list-keys")
        listing = _read_listing(output)
        if listing is None or listing.primary.fingerprint != key.key_id.hex:
            raise BadSignature("the key has no self-signature that gpg accepts")
        return listing

    def verify(self, signed: bytes, signature: bytes) -> list[list[str]]:
        """Return the words of gpg's status lines."""
        code, output = self._call(
            "--status-fd=1",
            "--verify",
            self._file("signature", signature),
            self._file("signed", signed),
        )
        marked = (line.split() for line in output.splitlines() if line.startswith("[GNUPG:] "))
        status = [words[1:] for words in marked if len(words) > 1]
        if code != 0 and not any(words[0] in _REFUSALS for words in status):
            raise BadSignature("gpg finds no valid signature")
        return status

    def _file(self, name: str, content: bytes) -> str:
        path = Path(self._home.name, name)
        path.write_bytes(content)
        return str(path)

    def _call(self, *arguments: str) -> tuple[int, str]:
        """Run gpg to its end or to the deadline; nothing of it is left running."""
        try:
            done = subprocess.run(
                [self._gpg, *_OPTIONS, f"--homedir={self._home.name}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
                timeout=self._remaining(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Undecided("gpg did not answer in time") from None
        except OSError as error:
            raise Undecided(f"gpg does not start: {error.strerror}") from None
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def _remaining(self) -> float:
        return max(0.0, self._ends - time.monotonic())


def _read_listing(output: str) -> _Listing | None:
    """Read ``--with-colons`` output of one key; None where there is not exactly one."""
    rows = [line.split(":") for line in output.splitlines()]
    if [row[0] for row in rows].count("pub") != 1:
        return None
    prints = iter([row[9] for row in rows if row[0] == "fpr"])
    parts = tuple(
        _Part(
            fingerprint=next(prints, ""),
            revoked=row[1] == "r",
            created=_moment(row[5]),
            expires=_moment(row[6]) if row[6] else None,
            uses=row[11],
        )
        for row in rows
        if row[0] in ("pub", "sub")
    )
    # With a revoked primary key gpg marks every name as revoked.
    names = (row for row in rows if row[0] == "uid" and (parts[0].revoked or row[1] != "r"))
    return _Listing(parts, tuple(_unescape(row[9]) for row in names))


def _unescape(field: str) -> str:
    """Undo the escapes of colon and backslash in a listing."""
    return field.replace("\\x3a", ":").replace("\\x5c", "\\")


def _moment(seconds: str) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
