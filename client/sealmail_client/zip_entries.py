"""The entries of a received ZIP, examined before anything is unpacked; hostile ones are refused.

Nothing here trusts a number of the archive: what it costs to open one is bounded by its size.
"""

import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final

from sealmail_client.errors import BadMessage

# A thousand recipients with an ACK file each, and more attachments than anybody adds by hand.
MAX_ENTRIES = 4096
# The directory is held in memory; an entry with a long name and Zip64 needs some 400 bytes.
MAX_DIRECTORY_BYTES = 2 * 1024 * 1024
# A ZIP may unpack to this many times its size, and a small one to this in any case.
_MAX_EXPANSION = 50
_SMALL_CONTENT = 64 * 1024 * 1024

_CHUNK = 256 * 1024
_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_LOCAL = struct.Struct("<4s5H3L2H")
# Encrypted, strongly encrypted, and with a masked directory.
_SECRET_FLAGS = 0x0001 | 0x0040 | 0x2000
_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_DRIVE = re.compile(r"_?[A-Za-z]:[/\\]")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in the ZIP, by the name and size that its directory gives."""

    name: str
    size: int
    info: zipfile.ZipInfo = field(repr=False)


@dataclass(frozen=True, slots=True)
class ZipEntries:
    """What a ZIP holds; attachments by their names, all else by names in upper case."""

    path: Path
    entries: dict[str, Entry] = field(repr=False)

    @classmethod
    def examine(cls, path: Path) -> "ZipEntries":
        """Read the directory of a ZIP, or raise ``BadMessage``."""
        with path.open("rb") as file, _refusals():
            size = file.seek(0, 2)
            directory = _find_directory(file, size)
            with zipfile.ZipFile(file) as archive:
                infos = archive.infolist()
            if len(infos) != directory.count:
                raise BadMessage("its ZIP does not hold as many entries as it says")
            for info in infos:
                _check_entry(info)
            if sum(info.file_size for info in infos) > _SMALL_CONTENT + _MAX_EXPANSION * size:
                raise BadMessage("its ZIP unpacks to far more than its size")
            _check_places(file, infos, directory.offset)
        entries = {_lookup_name(info.filename): _entry(info) for info in infos}
        if len(entries) != len(infos):
            raise BadMessage("its ZIP holds two entries of one name")
        return cls(path, entries)

    def get(self, name: str) -> Entry | None:
        """Return the entry with this name, if there is one."""
        return self.entries.get(_lookup_name(name))

    def read(self, entry: Entry, limit: int) -> bytes:
        """Return the content of a small entry."""
        if entry.size > limit:
            raise BadMessage(f"its entry {entry.name[:80]!r} is larger than {limit} bytes")
        return b"".join(self.chunks(entry))

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        """Yield the content of an entry; one that is not as long as it says is refused."""
        left = entry.size
        with (
            _refusals(),
            zipfile.ZipFile(self.path) as archive,
            archive.open(entry.info) as source,
        ):
            while chunk := source.read(_CHUNK):
                left -= len(chunk)
                yield chunk
        if left != 0:
            raise BadMessage(f"its entry {entry.name[:80]!r} is not as long as it says")


@dataclass(frozen=True, slots=True)
class _Directory:
    offset: int
    count: int


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn what the library raises about damaged archives into a refusal."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, struct.error) as error:
        raise BadMessage(f"its ZIP is damaged: {error}") from None
    except (NotImplementedError, RuntimeError, ValueError, OverflowError, EOFError) as error:
        raise BadMessage(f"its ZIP cannot be read: {error}") from None


def _find_directory(file: BinaryIO, size: int) -> _Directory:
    """Find the directory where the library will, and check how much of it there is.

    Only one place is allowed for each record, so that no two readers see different archives.
    """
    end_at = size - _END.size
    if end_at < 0:
        raise BadMessage("its ZIP is cut off")
    mark, disk, first_disk, _, count, length, offset, comment = _unpack(_END, file, end_at)
    if mark != b"PK\5\6" or comment != 0:
        raise BadMessage("its ZIP is cut off, or something follows it")
    if disk or first_disk:
        raise BadMessage("its ZIP has several parts")
    locator_at = end_at - _LOCATOR_64.size
    if locator_at >= 0 and _unpack(_LOCATOR_64, file, locator_at)[0] == b"PK\6\7":
        end_at = locator_at - _END_64.size
        _, _, record_at, disks = _unpack(_LOCATOR_64, file, locator_at)
        if end_at < 0 or record_at != end_at or disks > 1:
            raise BadMessage("its ZIP has its directory in a strange place")
        mark, _, _, _, disk, first_disk, _, count, length, offset = _unpack(_END_64, file, end_at)
        if mark != b"PK\6\6" or disk or first_disk:
            raise BadMessage("its ZIP has its directory in a strange place")
    if count > MAX_ENTRIES or length > MAX_DIRECTORY_BYTES:
        raise BadMessage(f"its ZIP has more than {MAX_ENTRIES} entries, or very long names")
    if offset + length != end_at:
        raise BadMessage("its ZIP has its directory in a strange place")
    return _Directory(offset, count)


def _check_entry(info: zipfile.ZipInfo) -> None:
    """Refuse an entry that an honest client never writes."""
    name = info.orig_filename
    kind = stat.S_IFMT(info.external_attr >> 16)
    stored = info.compress_type == zipfile.ZIP_STORED
    faults = {
        "without a name": not name.strip("/"),
        "with a zero byte in its name": "\0" in name,
        "that leads out of its directory": _leads_out(name),
        "that is encrypted": bool(info.flag_bits & _SECRET_FLAGS),
        "with an unknown compression": info.compress_type not in _METHODS,
        "that is not a plain file": kind not in (0, stat.S_IFREG) or name.endswith("/"),
        "with two sizes": stored and info.compress_size != info.file_size,
    }
    for fault, found in faults.items():
        if found:
            raise BadMessage(f"its ZIP has an entry {fault}: {name[:80]!r}")


def _leads_out(name: str) -> bool:
    """Return whether a careless reader would write outside the directory it unpacks into."""
    parts = name.replace("\\", "/").split("/")
    absolute = parts[0] in ("", "_") and len(parts) > 1
    return absolute or ".." in parts or parts[0] == "_.." or bool(_DRIVE.match(name))


def _check_places(file: BinaryIO, infos: list[zipfile.ZipInfo], directory: int) -> None:
    """Refuse entries that share bytes: a small archive could unpack to anything with them."""
    spans = [(directory, directory)]
    for info in infos:
        if not 0 <= info.header_offset <= directory - _LOCAL.size:
            raise BadMessage("its ZIP has an entry outside the file")
        mark, *_, name_length, extra_length = _unpack(_LOCAL, file, info.header_offset)
        if mark != b"PK\3\4":
            raise BadMessage("its ZIP has an entry without a head")
        ends = info.header_offset + _LOCAL.size + name_length + extra_length + info.compress_size
        spans.append((info.header_offset, ends))
    for (_, ends), (starts, _) in pairwise(sorted(spans)):
        if ends > starts:
            raise BadMessage("its ZIP has entries that overlap")


def _unpack(form: struct.Struct, file: BinaryIO, offset: int) -> tuple[Any, ...]:
    file.seek(offset)
    return form.unpack(file.read(form.size))


def _lookup_name(name: str) -> str:
    return name if name.startswith("_") else name.upper()


def _entry(info: zipfile.ZipInfo) -> Entry:
    return Entry(info.filename, info.file_size, info)
