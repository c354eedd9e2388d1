"""A letter becomes sealed bytes in a file, and back.

Sealed is: two bytes with the length of a signature, the detached signature, and the ZIP that it
signs, together encrypted to the readers without naming them. The ZIP exists only as a stream.
"""

import hashlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from sealmail_client.cutting import CutMessage, cut
from sealmail_client.errors import BadMessage, CannotSeal, SourceChanged
from sealmail_client.headers import Header, Place
from sealmail_client.keyring import Keyring
from sealmail_client.letters import Letter
from sealmail_client.message_zip import MAX_SIGNATURE_BYTES, zip_chunks
from sealmail_client.safe_files import create_private, sync_file
from sealmail_protocol.keys import KeyId

# A file that changed three times in a row is being written to: trying on would not end.
MAX_TRIES = 3
_LENGTH_BYTES = 2


@dataclass(frozen=True, slots=True)
class OpenedSeal:
    """What was in a seal; nothing of it is verified yet."""

    zip_file: Path
    signature: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SealedLetter:
    """A seal on disk: the signature in it, and the pieces it travels in."""

    signature: bytes = field(repr=False)
    pieces: CutMessage


def seal(
    letter: Letter,
    *,
    keyring: Keyring,
    signer: KeyId,
    passphrase: str | None,
    readers: Sequence[KeyId],
    target: Path,
    copy: Path | None = None,
) -> SealedLetter:
    """Sign the letter, seal it to ``readers`` and cut the seal into pieces.

    ``target``, and the ZIP itself in ``copy``, are whole and durable afterwards.
    The ZIP is made twice, once to be signed and once to be sealed. If a file changed in
    between, both are done again, and at last ``SourceChanged`` is raised.
    """
    _check_readers(letter.header, signer, readers)
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        for attempt in range(1, MAX_TRIES + 1):
            try:
                signature, head = _sign(letter, keyring, signer, passphrase)
                with _opened(copy) as kept:
                    stream = _LetterStream(letter, head.prefix, kept)
                    pieces = _encrypt_and_cut(stream, keyring, readers, unfinished)
                if head.marks != _marks(letter) or head.digest != stream.digest():
                    raise SourceChanged
                break
            except SourceChanged:
                if attempt == MAX_TRIES:
                    raise
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        if copy is not None:
            copy.unlink(missing_ok=True)
        raise
    sync_file(target)
    if copy is not None:
        sync_file(copy)
    return SealedLetter(signature, pieces)


def open_seal(
    sealed: Path, *, keyring: Keyring, passphrase: str | None, directory: Path
) -> OpenedSeal:
    """Open a seal into ``message.zip`` in ``directory``, which belongs to this mail alone."""
    zip_file = directory / "message.zip"
    zip_file.unlink(missing_ok=True)
    try:
        with create_private(zip_file) as target:
            splitter = _Splitter(target)
            keyring.decrypt_to(sealed, splitter.take, passphrase)
            signature = splitter.signature()
    except BaseException:
        zip_file.unlink(missing_ok=True)
        raise
    return OpenedSeal(zip_file, signature)


def _check_readers(header: Header, signer: KeyId, readers: Sequence[KeyId]) -> None:
    """Keep Bcc secret: a copy that names such a reader is for him and its writer alone."""
    if header.sender != signer:
        raise CannotSeal("the header names another sender than the key that signs")
    hidden = {one.key_id for one in header.recipients if one.place is Place.BCC}
    if hidden and (len(hidden) > 1 or not set(readers) <= hidden | {signer}):
        raise CannotSeal("a copy for a Bcc recipient must not be sealed to anybody else")


@dataclass(frozen=True, slots=True)
class _Head:
    """What stands before the ZIP in the seal, and what the ZIP was when it was signed."""

    prefix: bytes = field(repr=False)
    marks: tuple[tuple[int, int], ...]
    digest: bytes


def _sign(
    letter: Letter, keyring: Keyring, signer: KeyId, passphrase: str | None
) -> tuple[bytes, _Head]:
    before = _marks(letter)
    signed = _LetterStream(letter)
    signature = keyring.sign_detached(signed, signer, passphrase)
    if len(signature) > MAX_SIGNATURE_BYTES:
        raise CannotSeal("the signature of this key is too long for a mail")
    prefix = len(signature).to_bytes(_LENGTH_BYTES, "big") + signature
    return signature, _Head(prefix, before, signed.digest())


def _encrypt_and_cut(
    stream: "_LetterStream", keyring: Keyring, readers: Sequence[KeyId], target: Path
) -> CutMessage:
    """Seal what ``stream`` gives; the pieces are hashed in a thread while gpg writes them."""
    target.unlink(missing_ok=True)
    written = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        cutting = pool.submit(cut, target, written=written)
        try:
            keyring.encrypt(stream, target, readers)
        finally:
            written.set()
        return cutting.result()


@contextmanager
def _opened(copy: Path | None) -> Iterator[BinaryIO | None]:
    """Open the file for a copy anew, if one is wanted."""
    if copy is None:
        yield None
        return
    copy.unlink(missing_ok=True)
    with create_private(copy) as file:
        yield file


def _marks(letter: Letter) -> tuple[tuple[int, int], ...]:
    """Return what changes when somebody writes to one of the letter's files."""
    try:
        found = [path.stat() for path in letter.source_files]
    except OSError as error:
        raise CannotSeal(f"cannot read {error.filename}: {error.strerror}") from None
    return tuple((one.st_size, one.st_mtime_ns) for one in found)


class _LetterStream:
    """The letter's ZIP behind ``head``, as something to read from, and the digest of the ZIP.

    ``copy`` is given the ZIP as it goes by.
    """

    def __init__(self, letter: Letter, head: bytes = b"", copy: BinaryIO | None = None) -> None:
        self._digest = hashlib.sha256()
        self._copy = copy
        self._chunks = self._digested(zip_chunks(letter))
        self._ready = head

    def read(self, size: int, /) -> bytes:
        if not self._ready:
            self._ready = next(self._chunks, b"")
        data, self._ready = self._ready[:size], self._ready[size:]
        return data

    def digest(self) -> bytes:
        """Return the digest of what was read, which must be all."""
        return self._digest.digest()

    def _digested(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._digest.update(chunk)
            if self._copy is not None:
                self._copy.write(chunk)
            if chunk:
                yield chunk


class _Splitter:
    """Takes opened bytes as they come: keeps the signature, and writes the ZIP to a file."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._head: bytearray | None = bytearray()
        self._signature = b""

    def take(self, chunk: bytes) -> None:
        if self._head is None:
            self._target.write(chunk)
            return
        self._head += chunk
        if len(self._head) < _LENGTH_BYTES:
            return
        length = int.from_bytes(self._head[:_LENGTH_BYTES], "big")
        if not 0 < length <= MAX_SIGNATURE_BYTES:
            raise BadMessage("it does not begin with a signature")
        zip_at = _LENGTH_BYTES + length
        if len(self._head) >= zip_at:
            self._signature = bytes(self._head[_LENGTH_BYTES:zip_at])
            self._target.write(self._head[zip_at:])
            self._head = None

    def signature(self) -> bytes:
        """Return the signature, once all is taken."""
        if self._head is not None:
            raise BadMessage("it ends within its signature")
        return self._signature
