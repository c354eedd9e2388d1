"""Names of attachments that are harmless as file names, on both ends."""

import re
import unicodedata
from collections.abc import Iterable
from pathlib import PurePosixPath

# A file name has 255 bytes nearly everywhere; some are left for a number and the ZIP's mark.
MAX_NAME_BYTES = 200

# Separators, what Windows forbids, controls, lone surrogates, and marks that reverse the
# reading direction, by which a program can look like a picture.
_UNSAFE = re.compile(
    r'[/\\<>:"|?*\x00-\x1f\x7f-\x9f\ud800-\udfff'
    "\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)
_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")


def safe_name(name: str) -> str:
    """Return ``name`` as the name of a plain, visible file in whatever directory."""
    cleaned = _UNSAFE.sub("_", unicodedata.normalize("NFC", name)).strip(" ")
    cleaned = cleaned.rstrip(". ")
    if cleaned.startswith("."):
        cleaned = "_" + cleaned[1:]
    if _DEVICE.fullmatch(cleaned):
        cleaned = "_" + cleaned
    return _shortened(cleaned) or "attachment"


def distinct_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the safe form of each name, numbered where two would be the same file."""
    taken: set[str] = set()
    result = []
    # Where names repeat, the search goes on from the last number: the cost stays linear.
    last: dict[str, int] = {}
    for name in map(safe_name, names):
        chosen = name
        while chosen.casefold() in taken:
            last[name] = last.get(name, 1) + 1
            chosen = numbered(name, last[name])
        taken.add(chosen.casefold())
        result.append(chosen)
    return tuple(result)


def numbered(name: str, number: int) -> str:
    """Return ``name`` with a number before its ending: ``letter (2).pdf``."""
    path = PurePosixPath(name)
    return f"{path.stem} ({number}){path.suffix}"


def _shortened(name: str) -> str:
    """Cut the middle out of a long name: its ending says what it is."""
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    suffix = PurePosixPath(name).suffix
    if len(suffix.encode()) > 20:
        suffix = ""
    room = MAX_NAME_BYTES - len(suffix.encode())
    stem = name.removesuffix(suffix).encode()[:room].decode(errors="ignore")
    return stem.rstrip(". ") + suffix
