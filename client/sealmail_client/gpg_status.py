"""What gpg reports of its work: status lines, which are made for programs, and their meaning."""

from collections import Counter, deque
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
# Of what a stranger can have said without end the first lines of each kind are kept, and the last
# remarks, among which is why gpg failed. Whatever is asked for here is said once or twice.
_KEPT_OF_A_KIND = 64
_KEPT_REMARKS = 64
# No line is longer: names in keys have at most 2 KiB.
_MAX_LINE = 64 * 1024
# Said of bytes that gpg looked at; one that failed by itself says none of it.
_OF_ITS_INPUT: Final = ("NODATA", "UNEXPECTED", "NEWSIG", "PLAINTEXT", "END_DECRYPTION")
# Signature over bytes as they are; one over a text would let line ends be changed.
_BINARY = "00"

_EXPIRED_KEY = "EXPKEYSIG"
_FAULTS: Final = {
    "BADSIG": "the signature does not match the mail",
    "EXPSIG": "the signature has expired",
    _EXPIRED_KEY: "the signer's key has expired",
    "REVKEYSIG": "the signer's key is revoked",
}


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """What a detached signature is worth; ``signer`` is the primary key that made it.

    ``signer`` is also given for an expired or revoked key. ``key_missing`` tells that nothing
    is decided until the key is found, ``key_expired`` that a newer state of the key may decide
    otherwise; ``reason`` is empty for a valid signature.
    """

    valid: bool
    signer: KeyId | None
    reason: str
    signed_at: datetime | None
    key_missing: bool = False
    key_expired: bool = False

    @property
    def open_to_keys(self) -> bool:
        """Return whether it may be worth more when more is known of keys."""
        return self.key_missing or self.key_expired


@dataclass(frozen=True, slots=True)
class Status:
    """The status lines of one gpg call, as words, and what it wrote for people."""

    lines: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...]

    @classmethod
    def read(cls, stderr: str) -> "Status":
        """Sort the lines that gpg wrote; a user's name cannot break out of its line."""
        transcript = Transcript()
        transcript.hear(stderr.encode("latin-1", errors="replace"))
        return transcript.status()

    def all(self, keyword: str) -> tuple[tuple[str, ...], ...]:
        """Return the arguments of every line with ``keyword``."""
        return tuple(words[1:] for words in self.lines if words[0] == keyword)

    def has(self, keyword: str) -> bool:
        """Return whether there is a line with ``keyword``."""
        return bool(self.all(keyword))

    @property
    def tells_of_input(self) -> bool:
        """Return whether gpg came to look at what it was given."""
        return any(map(self.has, _OF_ITS_INPUT))

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


class Transcript:
    """What one gpg says, sorted as it comes; ``said`` counts the lines of each kind.

    However much that is, it takes little room here.
    """

    def __init__(self) -> None:
        self.said: Counter[str] = Counter()
        self._begun = b""
        self._lines: list[tuple[str, ...]] = []
        self._remarks: deque[str] = deque(maxlen=_KEPT_REMARKS)

    def hear(self, chunk: bytes) -> None:
        """Take the next bytes, wherever lines begin and end."""
        *whole, rest = (self._begun + chunk).split(b"\n")
        self._begun = rest[:_MAX_LINE]
        for line in whole:
            self._sort(line.decode("latin-1"))

    def status(self) -> Status:
        """Return what was said so far, also in a line that has no end."""
        self.hear(b"\n")
        return Status(tuple(self._lines), tuple(self._remarks))

    def _sort(self, line: str) -> None:
        words = tuple(line.removeprefix(_PREFIX).split())
        if not words:
            return
        if not line.startswith(_PREFIX):
            self._remarks.append(line.strip())
            return
        self.said[words[0]] += 1
        if self.said[words[0]] <= _KEPT_OF_A_KIND:
            self._lines.append(words)


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
            expired = keyword == _EXPIRED_KEY
            return SignatureCheck(False, signer, reason, signed_at, key_expired=expired)
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
