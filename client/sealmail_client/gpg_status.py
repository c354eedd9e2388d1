"""What gpg reports of its work: status lines, which are made for programs, and their meaning."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sealmail_protocol.keys import KeyId
from sealmail_verify import BadSignature
from sealmail_verify.packets import hash_name

_PREFIX = "[GNUPG:] "
# gpg's error codes carry their source in the upper bits.
_CODE_MASK = 0xFFFF
# A bad passphrase, and none where one is needed.
_PASSPHRASE_CODES: Final = frozenset({11, 177})
# Signature over bytes as they are; one over a text would let line ends be changed.
_BINARY = "00"

_FAULTS: Final = {
    "BADSIG": "the signature does not match the mail",
    "EXPSIG": "the signature has expired",
    "EXPKEYSIG": "the signer's key has expired",
    "REVKEYSIG": "the signer's key is revoked",
}


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """What a detached signature is worth; ``signer`` is the primary key that made it.

    ``signer`` is also given for an expired or revoked key. ``key_missing`` tells that nothing
    is decided until the key is found; ``reason`` is empty for a valid signature.
    """

    valid: bool
    signer: KeyId | None
    reason: str
    signed_at: datetime | None
    key_missing: bool = False


@dataclass(frozen=True, slots=True)
class Status:
    """The status lines of one gpg call, as words, and what it wrote for people."""

    lines: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...]

    @classmethod
    def read(cls, stderr: str) -> "Status":
        """Sort the lines that gpg wrote; a user's name cannot break out of its line."""
        lines, remarks = [], []
        for line in stderr.split("\n"):
            if line.startswith(_PREFIX):
                lines.append(tuple(line.removeprefix(_PREFIX).split()))
            elif line.strip():
                remarks.append(line.strip())
        return cls(tuple(words for words in lines if words), tuple(remarks))

    def all(self, keyword: str) -> tuple[tuple[str, ...], ...]:
        """Return the arguments of every line with ``keyword``."""
        return tuple(words[1:] for words in self.lines if words[0] == keyword)

    def has(self, keyword: str) -> bool:
        """Return whether there is a line with ``keyword``."""
        return bool(self.all(keyword))

    @property
    def wrong_passphrase(self) -> bool:
        """Return whether a secret key could not be unlocked."""
        return any(code & _CODE_MASK in _PASSPHRASE_CODES for code in self._error_codes())

    @property
    def last_remark(self) -> str:
        """Return what gpg said last, for people."""
        return self.remarks[-1].removeprefix("gpg: ") if self.remarks else ""

    def _error_codes(self) -> Iterator[int]:
        for words in (*self.all("FAILURE"), *self.all("ERROR")):
            if len(words) > 1 and words[1].isdecimal():
                yield int(words[1])


def judge_signature(status: Status) -> SignatureCheck:
    """Read the outcome of ``gpg --verify`` with a detached signature."""
    if len(status.all("NEWSIG")) != 1 or status.has("PLAINTEXT"):
        return _invalid("the mail must carry exactly one detached signature")
    if status.has("NO_PUBKEY"):
        return SignatureCheck(False, None, "the signer's key is not known", None, key_missing=True)
    valid = status.all("VALIDSIG")
    signer = signed_at = None
    if len(valid) == 1 and len(valid[0]) >= 10:
        signer = KeyId.from_hex(valid[0][9])
        signed_at = datetime.fromtimestamp(int(valid[0][2]), UTC)
    for keyword, reason in _FAULTS.items():
        if status.has(keyword):
            return _invalid(reason, signer, signed_at)
    if signer is None or not status.has("GOODSIG"):
        return _invalid("gpg cannot check the signature")
    try:
        hash_name(int(valid[0][7]))
    except BadSignature as error:
        return _invalid(error.reason, signer, signed_at)
    if valid[0][8] != _BINARY:
        return _invalid("the signature is not one over a file", signer, signed_at)
    return SignatureCheck(True, signer, "", signed_at)


def _invalid(
    reason: str, signer: KeyId | None = None, signed_at: datetime | None = None
) -> SignatureCheck:
    return SignatureCheck(False, signer, reason, signed_at)
