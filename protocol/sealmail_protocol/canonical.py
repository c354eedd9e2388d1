"""The one canonical form of a block, for every digest of it: verdicts, tie-breaks, audits."""

import hashlib

from sealmail_protocol.blocks import Block, DataBlock, DataHeader, TextBlock
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


def text_size(block: TextBlock) -> int:
    """Return the size that the limits of the policy table count."""
    return sum(len(line) + 2 if line.isascii() else len(line.encode()) + 2 for line in block.lines)
