"""What a clear-signed block looks like; whether its signature holds is for a verifier."""

import re
from dataclasses import dataclass

from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.fields import SIGNATURE_BEGIN, SIGNATURE_END, SIGNED_BEGIN, Fields

KEY_BEGIN = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
KEY_END = "-----END PGP PUBLIC KEY BLOCK-----"

_HASH_HEADER = re.compile(r"Hash: [A-Za-z0-9, -]{1,64}")
# Only the names of OpenPGP: a Data or Type line here would mislead those who read bodies.
_ARMOR_HEADER = re.compile(r"(?:Version|Comment|MessageID|Hash|Charset): [ -~]{0,200}")
_ARMOR_DATA = re.compile(r"[A-Za-z0-9+/=]+")
_MAX_ARMOR_LINE = 100


@dataclass(frozen=True, slots=True)
class SignedText:
    """A clear-signed text taken apart: its fields and, in a key-announcement, its key."""

    lines: tuple[str, ...]
    fields: Fields
    key_lines: tuple[str, ...]

    @classmethod
    def parse(cls, lines: tuple[str, ...]) -> "SignedText":
        """Read one signed message that is the whole of ``lines``."""
        content = _content_of(lines)
        if not any(line.startswith("-") for line in content):
            return cls(lines, Fields.parse(content), ())
        field_lines, key_lines = _split_key(content)
        return cls(lines, Fields.parse(field_lines), key_lines)

    @property
    def content(self) -> tuple[str, ...]:
        """Return what is signed, dash escapes removed."""
        return tuple(line.removeprefix("- ") for line in _content_of(self.lines))

    @property
    def message(self) -> bytes:
        """Return the whole signed message, for a verifier."""
        return "\n".join((*self.lines, "")).encode()

    @property
    def armored_key(self) -> bytes:
        """Return the key block inside the text; empty where there is none."""
        return "\n".join((*self.key_lines, "")).encode() if self.key_lines else b""


def _form(reason: str) -> InvalidBlock:
    return InvalidBlock(Refusal.FORM, reason)


def _content_of(lines: tuple[str, ...]) -> tuple[str, ...]:
    if lines[:1] != (SIGNED_BEGIN,) or lines[-1:] != (SIGNATURE_END,):
        raise _form("not one clear-signed message and nothing else")
    if lines.count(SIGNED_BEGIN) != 1 or lines.count(SIGNATURE_BEGIN) != 1:
        raise _form("more than one signed message or signature")
    try:
        start = lines.index("") + 1
    except ValueError:
        raise _form("no blank line after the Hash lines") from None
    end = lines.index(SIGNATURE_BEGIN)
    if start < 3 or not all(_HASH_HEADER.fullmatch(line) for line in lines[1 : start - 1]):
        raise _form("only Hash lines may stand before a signed text")
    if end < start:
        raise _form("a signature before the signed text")
    _check_armor(lines[end + 1 : -1])
    return lines[start:end]


def _split_key(content: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split ``fields, blank, key block, blank``: the one form with dashes in it."""
    try:
        begin, end = content.index("- " + KEY_BEGIN), content.index("- " + KEY_END)
    except ValueError:
        raise _form("dash-escaped lines other than one key block") from None
    inner = content[begin + 1 : end]
    if begin == 0 or content[begin - 1] != "" or content[end + 1 :] not in ((), ("",)):
        raise _form("the key block is not set off by blank lines at the end of the text")
    if any(line.startswith("-") for line in (*content[:begin], *inner)):
        raise _form("dash-escaped lines other than one key block")
    _check_armor(inner)
    return content[: begin - 1], (KEY_BEGIN, *inner, KEY_END)


def _check_armor(lines: tuple[str, ...]) -> None:
    """Headers, a blank line, base64: the parts of armor that a signature does not cover."""
    if "" not in lines:
        raise _form("armor without its blank line")
    blank = lines.index("")
    headers, body = lines[:blank], lines[blank + 1 :]
    if not all(_ARMOR_HEADER.fullmatch(line) for line in headers):
        raise _form("an armor header that is none")
    if (
        not all(body)
        or not _ARMOR_DATA.fullmatch("".join(body))
        or max(map(len, body)) > _MAX_ARMOR_LINE
    ):
        raise _form("armor that is not base64")
