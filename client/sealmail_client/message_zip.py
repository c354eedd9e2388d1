"""A letter as a ZIP, written without ever holding it in memory, and a received ZIP as a letter."""

import re
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final

from sealmail_client.attachment_names import distinct_names, numbered
from sealmail_client.errors import BadMessage, CannotSeal, NoSuchAttachment, SourceChanged
from sealmail_client.headers import MAX_HEADER_BYTES, Header, parse_header
from sealmail_client.letters import AckFile, Forwarded, Letter
from sealmail_client.padding import padded_size
from sealmail_client.safe_files import create_private
from sealmail_client.zip_entries import MAX_ENTRIES, Entry, ZipEntries
from sealmail_protocol.keys import KEY_BYTES, KeyId

# Originals put pictures of up to 1 MiB each into the body; a body is read into memory.
MAX_BODY_BYTES = 32 * 1024 * 1024
# The length of a signature travels as a signed number of two bytes.
MAX_SIGNATURE_BYTES = 32_767
_MAX_ACK_BYTES = 64 * 1024
_MAX_KEY_BYTES = 128 * 1024
_MAX_KEY_FILES = 16

_HEADER, _TEXT, _HTML = "HEADER.TXT", "BODY.TXT", "BODY.HTML"
_KEY_FILE = re.compile(r"KEY_([0-9A-F]{40})\.ASC")
# The same for all letters: times and systems of senders are nobody's business.
_ENTRY_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_PRIVATE_FILE = 0o100600
_CHUNK = 256 * 1024
# Ignored by every reader; the sizes are those of the ZIP format where no entry is huge.
_PADDING = "PADDING.BIN"
_ENTRY, _DIRECTORY_ENTRY, _DIRECTORY_END = 30 + 16, 46, 22


def zip_chunks(letter: Letter) -> Iterator[bytes]:
    """Yield the bytes of the letter's ZIP; as long as the files stay, the same each time.

    What does not fit into a ZIP is ``CannotSeal``; a file that grows or shrinks while it is
    read is ``SourceChanged``.
    """
    sink = _Sink()
    names: list[str] = []
    # Only a sink that cannot seek makes the library write sizes behind each entry.
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for part in _parts(letter):
            yield from _entry_chunks(archive, part, sink)
            names.append(part.name)
        if letter.padded:
            yield from _entry_chunks(archive, _Part(_PADDING, _padding(sink.written, names)), sink)
    yield from sink.take()


def _entry_chunks(archive: zipfile.ZipFile, part: "_Part", sink: "_Sink") -> Iterator[bytes]:
    with archive.open(part.info(), "w") as target:
        for chunk in part.chunks():
            target.write(chunk)
            yield from sink.take()


def _padding(written: int, names: Sequence[str]) -> int:
    """Return how many bytes fill a ZIP up, of which so many are written with these names."""
    directory = sum(_DIRECTORY_ENTRY + len(name.encode()) for name in (*names, _PADDING))
    whole = written + _ENTRY + len(_PADDING) + directory + _DIRECTORY_END
    return padded_size(whole) - whole


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """An attachment of a received letter; ``name`` is safe and unlike all others."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class OpenedLetter:
    """A received letter; attachments stay in the ZIP until they are saved."""

    header: Header
    text: str | None
    html: str | None
    attachments: tuple[AttachedFile, ...]
    _entries: ZipEntries = field(repr=False)
    _attached: dict[str, Entry] = field(repr=False)

    def ack_file(self, key_id: KeyId) -> AckFile | None:
        """Return what the reader with this key needs for his acknowledgment."""
        for ending, sealed in (("PGP", True), ("BIN", False)):
            if entry := self._entries.get(f"ACK_{key_id.hex}.{ending}"):
                return AckFile(key_id, self._entries.read(entry, _MAX_ACK_BYTES), sealed)
        return None

    def key_files(self) -> dict[KeyId, bytes]:
        """Return the key-announcements that came with the letter, not yet verified."""
        named = ((_KEY_FILE.fullmatch(name), one) for name, one in self._entries.entries.items())
        found = {KeyId.from_hex(match[1]): entry for match, entry in named if match}
        if len(found) > _MAX_KEY_FILES:
            raise BadMessage(f"it brings more than {_MAX_KEY_FILES} keys")
        return {key: self._entries.read(entry, _MAX_KEY_BYTES) for key, entry in found.items()}

    def save_attachment(self, name: str, target_dir: Path) -> Path:
        """Save an attachment under its name, or with a number where a file has it already."""
        if name not in self._attached:
            raise NoSuchAttachment(name)
        return self._save(self._attached[name], name, target_dir)

    @property
    def size(self) -> int:
        """Return how many bytes the letter has as a file."""
        return self._entries.path.stat().st_size

    @property
    def forwarded_size(self) -> int:
        """Return how many bytes the forwarded original will have as a file; 0 without one."""
        inner = self._entries.get(f"{self.header.forwarded_id}.ZIP")
        return 0 if inner is None else inner.size

    def save_forwarded(self, target_dir: Path) -> Forwarded | None:
        """Save the forwarded original, if there is one; its signature is still to be verified."""
        message_id = self.header.forwarded_id
        if message_id is None:
            return None
        inner = self._entries.get(f"{message_id}.ZIP")
        signature = self._entries.get(f"{message_id}.DTS")
        if inner is None or signature is None:
            return None
        # Nobody compresses an original; one in another in another would grow without bound.
        if inner.size > self.size:
            raise BadMessage("the original in it is larger than itself")
        content = self._entries.read(signature, MAX_SIGNATURE_BYTES)
        return Forwarded(message_id, self._save(inner, f"{message_id}.zip", target_dir), content)

    def _save(self, entry: Entry, name: str, directory: Path) -> Path:
        path, file = _create(directory, name)
        try:
            with file:
                for chunk in self._entries.chunks(entry):
                    file.write(chunk)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return path


def open_letter(zip_file: Path) -> OpenedLetter:
    """Read a received letter; a ZIP that no honest client writes is ``BadMessage``.

    Only entries of known names and attachments are looked at, BODY.XML never.
    """
    entries = ZipEntries.examine(zip_file)
    head = entries.get(_HEADER)
    if head is None:
        raise BadMessage("its ZIP has no HEADER.TXT")
    attached = [one for name, one in entries.entries.items() if name.startswith("_")]
    names = distinct_names(one.name.removeprefix("_") for one in attached)
    return OpenedLetter(
        header=parse_header(entries.read(head, MAX_HEADER_BYTES)),
        text=_body(entries, _TEXT),
        html=_body(entries, _HTML),
        attachments=tuple(
            AttachedFile(name, one.size) for name, one in zip(names, attached, strict=True)
        ),
        _entries=entries,
        _attached=dict(zip(names, attached, strict=True)),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """An entry to be written, from memory or from a file; a number stands for so many zeros."""

    name: str
    content: bytes | Path | int

    def info(self) -> zipfile.ZipInfo:
        info = zipfile.ZipInfo(self.name, _ENTRY_TIME)
        info.create_system = _UNIX
        info.external_attr = _PRIVATE_FILE << 16
        # The library decides by the size whether an entry needs Zip64.
        if isinstance(self.content, Path):
            info.file_size = _size_of(self.content)
        elif isinstance(self.content, int):
            info.file_size = self.content
        else:
            info.file_size = len(self.content)
        return info

    def chunks(self) -> Iterator[bytes]:
        if isinstance(self.content, bytes):
            yield self.content
            return
        if isinstance(self.content, int):
            for start in range(0, self.content, _CHUNK):
                yield bytes(min(_CHUNK, self.content - start))
            return
        left = _size_of(self.content)
        try:
            with self.content.open("rb") as source:
                while chunk := source.read(_CHUNK):
                    left -= len(chunk)
                    if left < 0:
                        break
                    yield chunk
        except OSError as error:
            raise CannotSeal(f"cannot read {self.content}: {error.strerror}") from None
        if left != 0:
            raise SourceChanged(self.content)


class _Sink:
    """Takes what the library writes, until it is passed on."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self.written = 0

    def write(self, data: bytes, /) -> int:
        self._chunks.append(bytes(data))
        self.written += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: whoever takes the bytes decides when they go on."""

    def close(self) -> None:
        """Do nothing: what was written is still to be taken."""

    def take(self) -> list[bytes]:
        taken, self._chunks = self._chunks, []
        return taken


def _parts(letter: Letter) -> list[_Part]:
    """Return the entries of the letter, the small ones first."""
    parts = [_Part(_HEADER, letter.header.to_bytes())]
    for name, text in ((_TEXT, letter.text), (_HTML, letter.html)):
        if text is not None:
            parts.append(_Part(name, _encoded(text)))
    parts += (_ack_part(letter.header, one) for one in letter.ack_files)
    if letter.own_key is not None:
        parts.append(_Part(f"KEY_{letter.header.sender.hex}.ASC", letter.own_key))
    names = distinct_names(one.name for one in letter.attachments)
    for name, one in zip(names, letter.attachments, strict=True):
        parts.append(_Part(f"_{name}", one.path))
    if (letter.forwarded is None) != (letter.header.forwarded_id is None):
        raise CannotSeal("a forwarded original and the header that names it belong together")
    if letter.forwarded is not None:
        parts += _forwarded_parts(letter.header, letter.forwarded)
    if len(parts) > MAX_ENTRIES:
        raise CannotSeal(f"a mail holds at most {MAX_ENTRIES} files")
    return parts


def _ack_part(header: Header, ack: AckFile) -> _Part:
    """Return the entry for one recipient; what is not sealed holds no bypass secret."""
    if header.recipient(ack.key_id) is None:
        raise CannotSeal(f"an ACK file for {ack.key_id}, whom the mail does not name")
    if not ack.sealed and len(ack.content) != KEY_BYTES:
        raise CannotSeal(f"an open ACK file holds {KEY_BYTES} bytes: all else must be sealed")
    return _Part(f"ACK_{ack.key_id.hex}.{'PGP' if ack.sealed else 'BIN'}", ack.content)


def _forwarded_parts(header: Header, forwarded: Forwarded) -> tuple[_Part, _Part]:
    message_id = forwarded.message_id
    if message_id != header.forwarded_id:
        raise CannotSeal("the header names another forwarded original")
    return (
        _Part(f"{message_id}.DTS", forwarded.signature),
        _Part(f"{message_id}.ZIP", forwarded.zip_file),
    )


def _encoded(text: str) -> bytes:
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise CannotSeal("the text cannot be written as UTF-8") from None
    if len(content) > MAX_BODY_BYTES:
        raise CannotSeal(f"a text has at most {MAX_BODY_BYTES} bytes: attach it as a file")
    return content


def _size_of(path: Path) -> int:
    try:
        found = path.stat()
    except OSError as error:
        raise CannotSeal(f"cannot read {path}: {error.strerror}") from None
    if not path.is_file():
        raise CannotSeal(f"{path} is not a file")
    return found.st_size


def _body(entries: ZipEntries, name: str) -> str | None:
    entry = entries.get(name)
    return None if entry is None else entries.read(entry, MAX_BODY_BYTES).decode(errors="replace")


def _create(directory: Path, name: str) -> tuple[Path, BinaryIO]:
    """Make a new file, with a number in its name where that is taken."""
    for number in count(1):
        path = directory / (name if number == 1 else numbered(name, number))
        with suppress(FileExistsError):
            return path, create_private(path)
    raise AssertionError("the numbers do not end")
