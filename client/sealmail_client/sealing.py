"""A letter becomes sealed bytes in a file, and back.

Sealed is: two bytes with the length of a signature, the detached signature, and the ZIP that it
signs, together encrypted to the readers without naming them. The ZIP exists only as a stream.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

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


def seal(
    letter: Letter,
    *,
    keyring: Keyring,
    signer: KeyId,
    passphrase: str | None,
    readers: Sequence[KeyId],
    target: Path,
) -> bytes:
    """Sign the letter, seal it to ``readers`` and return the signature.

    ``target`` is whole and durable afterwards.
    The ZIP is made twice, once to be signed and once to be sealed. If a file changed in
    between, both are done again, and at last ``SourceChanged`` is raised.
    """
    _check_readers(letter.header, signer, readers)
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        for attempt in range(1, MAX_TRIES + 1):
            try:
                signature = _seal_once(letter, keyring, signer, passphrase, readers, unfinished)
                break
            except SourceChanged:
                if attempt == MAX_TRIES:
                    raise
        unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    sync_file(target)
    return signature


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


def _seal_once(
    letter: Letter,
    keyring: Keyring,
    signer: KeyId,
    passphrase: str | None,
    readers: Sequence[KeyId],
    target: Path,
) -> bytes:
    before = _marks(letter)
    signed = _LetterStream(letter)
    signature = keyring.sign_detached(signed, signer, passphrase)
    if len(signature) > MAX_SIGNATURE_BYTES:
        raise CannotSeal("the signature of this key is too long for a mail")
    sealed = _LetterStream(letter, len(signature).to_bytes(_LENGTH_BYTES, "big") + signature)
    keyring.encrypt(sealed, target, readers)
    if _marks(letter) != before or signed.digest() != sealed.digest():
        raise SourceChanged
    return signature


def _marks(letter: Letter) -> tuple[tuple[int, int], ...]:
    """Return what changes when somebody writes to one of the letter's files."""
    try:
        found = [path.stat() for path in letter.source_files]
    except OSError as error:
        raise CannotSeal(f"cannot read {error.filename}: {error.strerror}") from None
    return tuple((one.st_size, one.st_mtime_ns) for one in found)


class _LetterStream:
    """The letter's ZIP behind ``head``, as something to read from, and the digest of the ZIP."""

    def __init__(self, letter: Letter, head: bytes = b"") -> None:
        self._digest = hashlib.sha256()
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
