"""The one canonical form of a block, for every digest of it: verdicts, tie-breaks, audits."""

import hashlib
from collections.abc import Iterable

from sealmail_protocol.blocks import Block, DataBlock, DataHeader, TextBlock
from sealmail_protocol.bundles import is_post_to, is_separator
from sealmail_protocol.fields import join_lines
from sealmail_protocol.keys import BlockKey, data_key


def canonical_form(block: Block) -> bytes:
    """Return the lines ended by CRLF; for data its lines and the 20-byte key of the bytes."""
    if isinstance(block, DataBlock):
        return canonical_data_form(block.header, data_key(block.data))
    return join_lines(block.lines)


def canonical_data_form(header: DataHeader, key: BlockKey) -> bytes:
    """Return the canonical form of a data block whose bytes are elsewhere."""
    return join_lines(header.lines) + key.raw


def block_digest(block: Block) -> bytes:
    """Return the SHA-256 of the canonical form: what a verdict is asked by."""
    return hashlib.sha256(canonical_form(block)).digest()


def data_digest(header: DataHeader, key: BlockKey) -> bytes:
    """Return ``block_digest`` of a data block whose bytes are elsewhere."""
    return hashlib.sha256(canonical_data_form(header, key)).digest()


class BodyDigest:
    """The digest of a text body by its lines, none of which need be kept.

    ``Post-To`` lines at its head and separators are structure of the wire and left out. That of
    one block is its ``block_digest``, that of several the digest of all their canonical forms.
    """

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._in_head = True

    @classmethod
    def of(cls, lines: Iterable[bytes]) -> bytes:
        """Return the digest of a whole body."""
        digest = cls()
        digest.take(lines)
        return digest.value()

    def take(self, lines: Iterable[bytes]) -> None:
        """Take the next lines, padding removed."""
        for line in lines:
            self._in_head = self._in_head and is_post_to(line)
            if not self._in_head and not is_separator(line):
                self._hash.update(line + b"\r\n")

    def value(self) -> bytes:
        """Return the digest of what was taken so far."""
        return self._hash.digest()


def text_size(block: TextBlock) -> int:
    """Return the size that the limits of the policy table count."""
    return sum(len(line) + 2 if line.isascii() else len(line.encode()) + 2 for line in block.lines)
