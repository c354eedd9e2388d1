"""The lines all blocks are made of: decoding, padding, and ``Name: value`` fields.

docs/formats.md §2.1. What a field means is decided in ``block_codec``.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from sealmail_protocol.errors import InvalidBlock, Refusal

# The original drops a connection at the first longer line, so nobody may store one.
MAX_LINE = 16_384

SIGNED_BEGIN = "-----BEGIN PGP SIGNED MESSAGE-----"
SIGNATURE_BEGIN = "-----BEGIN PGP SIGNATURE-----"
SIGNATURE_END = "-----END PGP SIGNATURE-----"

_SIGNED_BEGIN = SIGNED_BEGIN.encode()
_SIGNATURE_END = SIGNATURE_END.encode()

_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9-]{0,63}): (\S(?:.*\S)?)")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
# Text that was not decoded from UTF-8 may hold halves of characters, too.
_UNFIT = re.compile(rf"{_CONTROL.pattern}|[\ud800-\udfff]")

# Names that no line of a block may have, and why.
FORBIDDEN_FIELDS = {
    **dict.fromkeys(
        ("storetype", "storekeyid", "loginuser", "embargo", "replogin-user", "replogin-auth"),
        "which original servers take for a record of their own",
    ),
    **dict.fromkeys(
        # Unsigned padding was removed before; an original strips it from signed text as well,
        # and reads a Post-To line of any block that it forwards as one more target.
        ("padding", "post-to"),
        "which belongs to the wire and not into a block",
    ),
}
# Lines that mark the wire's structure, never a block's content.
_MARKERS = frozenset({"endblock", "nextmessage", "nextclaim"})
# What lines joined by line feeds hold, in lower case, if one is a marker or has such a name.
_SUSPECT = re.compile(
    "\n(?:"
    + "|".join([*(f"{word}\n" for word in _MARKERS), *(f"{n}:" for n in FORBIDDEN_FIELDS)])
    + ")"
)
_CONTROL_BUT_FEED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
# The same among the octets of ASCII, to be looked for by what is by far the fastest way.
_CONTROL_OCTETS = bytes({*range(0x20), 0x7F} - {*b"\t\n"})


class PaddingFilter:
    """Tells which lines of a body are traffic padding; signed text is never thinned."""

    def __init__(self) -> None:
        self._signed = False

    def keeps(self, line: bytes) -> bool:
        """Return whether ``line``, the next one of the body, belongs to the block."""
        if line == _SIGNED_BEGIN:
            self._signed = True
        elif line == _SIGNATURE_END:
            self._signed = False
        return self._signed or line[:1] not in b"pP" or line[:9].lower() != b"padding: "


def decode_lines(lines: Iterable[bytes]) -> tuple[str, ...]:
    """Return the lines as text, or refuse what no block may hold on any line."""
    raw = tuple(lines)
    # All at once, since nearly every block is as it should be.
    whole = b"\n".join(raw)
    try:
        text = whole.decode()
    except UnicodeDecodeError:
        return tuple(map(_decode_line, raw))
    framed = f"\n{text}\n".lower()
    found = tuple(text.split("\n"))
    fit = (
        # A line feed inside a line makes two of it, and no lines would make one.
        len(found) == len(raw)
        and max(map(len, raw)) <= MAX_LINE
        and not _has_control(text, whole)
        and not _SUSPECT.search(framed)
    )
    return found if fit else tuple(map(_decode_line, raw))


def _has_control(text: str, octets: bytes) -> bool:
    """Tell whether the text, which is ``octets`` decoded, has a control but tab and feed."""
    if text.isascii():
        return len(octets.translate(None, _CONTROL_OCTETS)) != len(octets)
    return _CONTROL_BUT_FEED.search(text) is not None


def split_lines(body: bytes) -> tuple[str, ...]:
    """Cut a whole text body (CRLF or LF) into its lines, padding removed."""
    raw = body.replace(b"\r\n", b"\n").split(b"\n")
    last = raw.pop()
    if last:
        raw.append(last.removesuffix(b"\r"))
    # Stored blocks have none, and looking at each line takes most of the time.
    if b"padding" not in body.lower():
        return decode_lines(raw)
    padding = PaddingFilter()
    return decode_lines(line for line in raw if padding.keeps(line))


def join_lines(lines: Iterable[str]) -> bytes:
    """Return the lines as they are sent and stored: UTF-8, each ended by CRLF."""
    return "\r\n".join((*lines, "")).encode()


def field_name(line: str) -> str | None:
    """Return the lower-case name before the first colon, if the line looks like a field."""
    name, colon, _ = line.partition(":")
    return name.lower() if colon else None


def is_line(text: str) -> bool:
    """Return whether ``text`` can travel as one line without changing what surrounds it."""
    return not _UNFIT.search(text) and len(text.encode()) <= MAX_LINE


def as_line(text: str) -> str:
    """Return ``text`` fit to be sent, logged or shown: what no line may hold becomes ``?``."""
    return _UNFIT.sub("?", text)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a block, in order; names compare without case."""

    pairs: tuple[tuple[str, str], ...]
    _values: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Every block is asked for a dozen names, and an announcement may have thousands of lines.
        values: dict[str, list[str]] = {}
        for name, value in self.pairs:
            values.setdefault(name.lower(), []).append(value)
        listed = {name: tuple(found) for name, found in values.items()}
        object.__setattr__(self, "_values", listed)

    @classmethod
    def parse(cls, lines: Iterable[str]) -> "Fields":
        """Read ``Name: value`` lines; anything else is refused, blank lines too."""
        return cls(tuple(map(_parse_field, lines)))

    def one(self, name: str) -> str:
        """Return the value of a field that must be there exactly once."""
        values = self._values.get(name.lower(), ())
        if not values:
            raise InvalidBlock(Refusal.FORM, f"no {name} line")
        return values[0] if len(values) == 1 else self._only(name)

    def optional(self, name: str) -> str | None:
        """Return the value of a field that may be there once."""
        values = self._values.get(name.lower(), ())
        if not values:
            return None
        return values[0] if len(values) == 1 else self._only(name)

    def _only(self, name: str) -> NoReturn:
        raise InvalidBlock(Refusal.FORM, f"more than one {name} line")

    def every(self, name: str) -> tuple[str, ...]:
        """Return the values of a field that may be repeated, in order."""
        return self._values.get(name.lower(), ())

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)


def _decode_line(raw: bytes) -> str:
    if len(raw) > MAX_LINE:
        raise InvalidBlock(Refusal.FORM, f"a line longer than {MAX_LINE} bytes")
    try:
        line = raw.decode()
    except UnicodeDecodeError:
        raise InvalidBlock(Refusal.FORM, "a line that is not UTF-8") from None
    if _CONTROL.search(line):
        raise InvalidBlock(Refusal.FORM, "a control character in a line")
    if line.lower() in _MARKERS:
        raise InvalidBlock(Refusal.FORM, f"the marker {line} inside a block")
    name = field_name(line)
    if name in FORBIDDEN_FIELDS:
        raise InvalidBlock(Refusal.FORM, f"a {name} line, {FORBIDDEN_FIELDS[name]}")
    return line


def _parse_field(line: str) -> tuple[str, str]:
    match = _FIELD.fullmatch(line)
    if not match:
        raise InvalidBlock(Refusal.FORM, f"not a 'Name: value' line: {line[:60]!r}")
    return match[1], match[2]
