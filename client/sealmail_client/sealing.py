"""A letter becomes sealed bytes in a file, and back.

Sealed is: two bytes with the length of a signature, the detached signature, and the ZIP that it
signs, together encrypted to the readers without naming them. The ZIP is written once, while it is
signed, and sealed from there: what is sealed is what was signed, whatever becomes of the files.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from sealmail_client.cutting import PIECE_SIZE, CutMessage, Piece, cut
from sealmail_client.errors import BadMessage, CannotSeal, LargerThanTaken, SourceChanged
from sealmail_client.gpg_process import GpgProcess
from sealmail_client.gpg_status import SignatureCheck, judge_signature
from sealmail_client.gpg_streams import Measured, Readable
from sealmail_client.headers import Header, Place
from sealmail_client.keyring import Keyring
from sealmail_client.letters import Letter
from sealmail_client.message_zip import MAX_SIGNATURE_BYTES, zip_chunks
from sealmail_client.progress import NOBODY, Watcher
from sealmail_client.safe_files import create_private, sync_file, syncing
from sealmail_protocol.keys import KeyId

# A file that changed three times in a row is being written to: trying on would not end.
MAX_TRIES = 3
_LENGTH_BYTES = 2


@dataclass(frozen=True, slots=True)
class OpenedSeal:
    """What was in a seal, and what its signature is worth by the keys that were here then."""

    zip_file: Path
    signature: bytes = field(repr=False)
    check: SignatureCheck | None = None


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
    zip_file: Path,
    found: Callable[[Piece], object] | None = None,
    piece_size: int = PIECE_SIZE,
    watcher: Watcher = NOBODY,
) -> SealedLetter:
    """Sign the letter, seal it to ``readers`` and cut the seal into pieces.

    The seal in ``target`` and the letter in ``zip_file`` are whole and durable afterwards, or
    gone. ``found`` is told of each piece, in a thread, while the next is still being sealed.
    If one of the letter's files changes while it is signed, that is done again, and at last
    ``SourceChanged`` is raised.
    """
    _check_readers(letter.header, signer, readers)
    try:
        signature = _sign(letter, keyring, signer, passphrase, zip_file, watcher)
        with ThreadPoolExecutor(1) as pool:
            durable = pool.submit(sync_file, zip_file)
            pieces = _encrypt_and_cut(
                signature, zip_file, keyring, readers, target, found, piece_size, watcher
            )
            with watcher.task("syncing the seal", brief=True):
                sync_file(target)
                durable.result()
    except BaseException:
        for path in (target, zip_file):
            path.unlink(missing_ok=True)
        raise
    return SealedLetter(signature, pieces)


def open_seal(
    sealed: Path | Readable,
    *,
    keyring: Keyring,
    passphrase: str | None,
    directory: Path,
    size: int | None = None,
    limit: int | None = None,
    watcher: Watcher = NOBODY,
) -> OpenedSeal:
    """Open a seal into ``message.zip`` in ``directory``, which belongs to this mail alone.

    It may be a stream that still comes, of ``size`` bytes as far as that is known. What comes
    out of it is checked against its signature at once. More than ``limit`` bytes in it are
    ``LargerThanTaken``.
    """
    zip_file, signature_file = directory / "message.zip", directory / "message.sig"
    for path in (zip_file, signature_file):
        path.unlink(missing_ok=True)
    try:
        with ExitStack() as stack:

            def begin(signature: bytes) -> GpgProcess:
                with create_private(signature_file) as file:
                    file.write(signature)
                stack.enter_context(watcher.task("verifying", brief=True))
                return stack.enter_context(keyring.verifying(signature_file))

            with create_private(zip_file) as target, syncing(target) as synced:
                splitter = _Splitter(synced.write, begin, limit)
                with watcher.task("opening", brief=True):
                    keyring.decrypt_to(sealed, splitter.take, passphrase, size)
                signature = splitter.signature()
            return OpenedSeal(zip_file, signature, splitter.check())
    except BaseException:
        zip_file.unlink(missing_ok=True)
        raise
    finally:
        signature_file.unlink(missing_ok=True)


def _check_readers(header: Header, signer: KeyId, readers: Sequence[KeyId]) -> None:
    """Keep Bcc secret: a copy that names such a reader is for him and its writer alone."""
    if header.sender != signer:
        raise CannotSeal("the header names another sender than the key that signs")
    hidden = {one.key_id for one in header.recipients if one.place is Place.BCC}
    if hidden and (len(hidden) > 1 or not set(readers) <= hidden | {signer}):
        raise CannotSeal("a copy for a Bcc recipient must not be sealed to anybody else")


def _sign(
    letter: Letter,
    keyring: Keyring,
    signer: KeyId,
    passphrase: str | None,
    zip_file: Path,
    watcher: Watcher,
) -> bytes:
    """Write the letter's ZIP and return the signature over it, whatever its files were before."""
    for _ in range(MAX_TRIES):
        zip_file.unlink(missing_ok=True)
        before = _marks(letter)
        try:
            with watcher.task("signing") as report, create_private(zip_file) as copy:
                packing = Measured(_Packing(letter, copy), _size(before), report)
                signature = keyring.sign_detached(packing, signer, passphrase)
        except SourceChanged:
            continue
        if _marks(letter) != before:
            continue
        if len(signature) > MAX_SIGNATURE_BYTES:
            raise CannotSeal("the signature of this key is too long for a mail")
        return signature
    raise SourceChanged


def _encrypt_and_cut(
    signature: bytes,
    zip_file: Path,
    keyring: Keyring,
    readers: Sequence[KeyId],
    target: Path,
    found: Callable[[Piece], object] | None,
    piece_size: int,
    watcher: Watcher,
) -> CutMessage:
    """Seal signature and ZIP; the pieces are hashed in a thread while gpg writes them."""
    target.unlink(missing_ok=True)
    written, size = threading.Event(), zip_file.stat().st_size
    with ThreadPoolExecutor(1) as pool, zip_file.open("rb") as packed:
        cutting = pool.submit(cut, target, piece_size, written, found)
        try:
            with watcher.task("sealing") as report:
                headed = Measured(_Headed(signature, packed), size, report)
                keyring.encrypt(headed, target, readers)
        finally:
            written.set()
        with watcher.task("cutting the last piece", brief=True):
            return cutting.result()


def _marks(letter: Letter) -> tuple[tuple[int, ...], ...]:
    """Return what changes when somebody writes to one of the letter's files.

    The time of the last change of any kind is among it: no program can set that back.
    """
    try:
        found = [path.stat() for path in letter.source_files]
    except OSError as error:
        raise CannotSeal(f"cannot read {error.filename}: {error.strerror}") from None
    return tuple((one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in found)


def _size(marks: Iterable[tuple[int, ...]]) -> int:
    return sum(size for _, size, *_ in marks)


class _Packing:
    """The letter's ZIP as something to read from, which is written to ``copy`` as it goes by."""

    def __init__(self, letter: Letter, copy: BinaryIO) -> None:
        self._copy = copy
        self._chunks = self._copied(zip_chunks(letter))
        self._ready = b""

    def read(self, size: int, /) -> bytes:
        if not self._ready:
            self._ready = next(self._chunks, b"")
        data, self._ready = self._ready[:size], self._ready[size:]
        return data

    def _copied(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._copy.write(chunk)
            if chunk:
                yield chunk


class _Headed:
    """A signed file behind its signature, and that behind its length."""

    def __init__(self, signature: bytes, packed: BinaryIO) -> None:
        self._head = len(signature).to_bytes(_LENGTH_BYTES, "big") + signature
        self._packed = packed

    def read(self, size: int, /) -> bytes:
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
            return data
        return self._packed.read(size)


class _Splitter:
    """Takes opened bytes as they come: the signature, then the ZIP, for a file and for gpg."""

    def __init__(
        self,
        write: Callable[[bytes], object],
        begin: Callable[[bytes], GpgProcess],
        limit: int | None,
    ) -> None:
        self._write = write
        self._begin = begin
        self._limit = limit
        self._taken = 0
        self._verifying: GpgProcess | None = None
        self._head = bytearray()
        self._signature = b""

    def take(self, chunk: bytes) -> None:
        self._taken += len(chunk)
        if self._limit is not None and self._taken > self._limit:
            raise LargerThanTaken(self._limit)
        if self._verifying is None:
            self._head += chunk
            chunk = self._behind_signature()
        if self._verifying is not None:
            self._write(chunk)
            self._verifying.write(chunk)

    def signature(self) -> bytes:
        """Return the signature, once all is taken."""
        if self._verifying is None:
            raise BadMessage("it ends within its signature")
        return self._signature

    def check(self) -> SignatureCheck | None:
        """Return what the signature is worth, once all is taken."""
        if self._verifying is None:
            return None
        return judge_signature(self._verifying.finish("checking a signature"))

    def _behind_signature(self) -> bytes:
        """Return what stands behind the signature, if that is here."""
        if len(self._head) < _LENGTH_BYTES:
            return b""
        length = int.from_bytes(self._head[:_LENGTH_BYTES], "big")
        if not 0 < length <= MAX_SIGNATURE_BYTES:
            raise BadMessage("it does not begin with a signature")
        zip_at = _LENGTH_BYTES + length
        if len(self._head) < zip_at:
            return b""
        self._signature = bytes(self._head[_LENGTH_BYTES:zip_at])
        self._verifying = self._begin(self._signature)
        return bytes(self._head[zip_at:])
