"""Lines to blocks and back. Strict: what is accepted here is written again byte for byte."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from sealmail_pow import Difficulty, Stamp
from sealmail_protocol.addresses import Transport, is_normal_address
from sealmail_protocol.blocks import (
    Acknowledgment,
    AddressClaim,
    Block,
    BlockType,
    BypassToken,
    DataBlock,
    DataHeader,
    KeyAnnouncement,
    MessageAnnouncement,
    TextBlock,
    type_named,
)
from sealmail_protocol.dates import parse_date
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.fields import SIGNED_BEGIN, Fields, join_lines, split_lines
from sealmail_protocol.keys import AckHash, BlockKey, KeyId
from sealmail_protocol.signed_text import SignedText

# More mailboxes than this only scatter a user's mail over more look-ups.
MAX_MAILBOXES = 16

_MAILBOX = re.compile(r"[0-9A-Za-z]{1,16}")
_VERSION = re.compile(r"[0-9]{1,9}")
_SIZE = re.compile(r"[1-9][0-9]{0,9}")
_DATA_LINE = re.compile(rb"(?:\A|\n)data: [^\n]*(?:\n|\Z)", re.IGNORECASE)

T = TypeVar("T")


def parse_block(body: bytes) -> Block:
    """Read one whole block: text with CRLF or LF, or a data block with its bytes."""
    end = _end_of_data_header(body)
    if end is None:
        return parse_text_block(split_lines(body))
    header = parse_data_header(split_lines(body[:end]))
    data = body[end:]
    if len(data) != header.size:
        raise InvalidBlock(Refusal.FORM, f"{len(data)} bytes where Data says {header.size}")
    return DataBlock(header, data)


def serialise_block(block: Block) -> bytes:
    """Write a block as it is stored and sent, without end marker."""
    if isinstance(block, DataBlock):
        return join_lines(block.header.lines) + block.data
    return join_lines(block.lines)


def parse_text_block(lines: tuple[str, ...]) -> TextBlock:
    """Read one block of any type but data from its lines."""
    if not lines:
        raise InvalidBlock(Refusal.FORM, "an empty block")
    if lines[0] == SIGNED_BEGIN:
        signed = SignedText.parse(lines)
        parse_signed = _SIGNED_PARSERS.get(_type_of(signed.fields))
        if parse_signed is None:
            raise InvalidBlock(Refusal.FORM, "this type of block is not clear-signed")
        return parse_signed(signed)
    fields = Fields.parse(lines)
    parse_plain = _PLAIN_PARSERS.get(_type_of(fields))
    if parse_plain is None:
        raise InvalidBlock(Refusal.FORM, "this type of block cannot stand as plain lines")
    _refuse_data_line(fields)
    return parse_plain(lines, fields)


def parse_data_header(lines: tuple[str, ...]) -> DataHeader:
    """Read the lines of a data block, the ``Data:`` line being the last."""
    fields = Fields.parse(lines)
    if _type_of(fields) is not BlockType.DATA:
        raise InvalidBlock(Refusal.FORM, "a Data line outside a data block")
    size = fields.one("Data")
    if fields.pairs[-1][0].lower() != "data":
        raise InvalidBlock(Refusal.FORM, "the Data line is not the last one")
    if not _SIZE.fullmatch(size):
        raise InvalidBlock(Refusal.FORM, f"not a data size: {size[:20]!r}")
    return DataHeader(lines, _date(fields, "Date"), _stamp(fields), int(size))


def _key_announcement(signed: SignedText) -> KeyAnnouncement:
    fields = signed.fields
    _refuse_data_line(fields)
    if not signed.key_lines:
        raise InvalidBlock(Refusal.FORM, "no key block")
    if fields.pairs[0][0].lower() != "proofofwork":
        raise InvalidBlock(Refusal.FORM, "ProofOfWork is not the first line of the signed text")
    since = fields.optional("BypassTokenAccepted")
    return KeyAnnouncement(
        lines=signed.lines,
        date=_date(fields, "Date"),
        stamp=_stamp(fields),
        expires=_date(fields, "Expires"),
        user_id=fields.one("Userid"),
        transport=_read("Transport", fields.one("Transport"), Transport.parse),
        mailboxes=_mailboxes(fields.one("Mailboxes")),
        price=_read("SenderProofOfWork", fields.one("SenderProofOfWork"), Difficulty.parse),
        tokens_accepted_since=_read_date("BypassTokenAccepted", since) if since else None,
        signed=signed,
    )


def _address_claim(signed: SignedText) -> AddressClaim:
    fields = signed.fields
    _refuse_data_line(fields)
    if signed.key_lines:
        raise InvalidBlock(Refusal.FORM, "a key block inside a claim")
    address = fields.one("Address")
    if not is_normal_address(address):
        raise InvalidBlock(Refusal.FORM, "Address is not name@domain in NFC and lower case")
    return AddressClaim(
        lines=signed.lines,
        date=_date(fields, "Date"),
        stamp=_stamp(fields),
        key_id=_read("Keyid", fields.one("Keyid"), KeyId.from_hex),
        address=address,
        signed=signed,
    )


def _message_announcement(lines: tuple[str, ...], fields: Fields) -> MessageAnnouncement:
    listed = tuple(
        _read("DataBlock", text, BlockKey.from_hex) for text in fields.every("DataBlock")
    )
    if not listed:
        raise InvalidBlock(Refusal.FORM, "no DataBlock line")
    if len(set(listed)) != len(listed):
        raise InvalidBlock(Refusal.FORM, "the same DataBlock twice")
    token = fields.optional("BypassToken")
    return MessageAnnouncement(
        lines=lines,
        date=_date(fields, "Date"),
        stamp=_stamp(fields),
        recipient=_read("Recipient", fields.one("Recipient"), KeyId.from_hex),
        mailbox=_mailbox(fields.one("Mailbox")),
        data_blocks=listed,
        message_hash=_read("MessageHash", fields.one("MessageHash"), BlockKey.from_hex),
        token=_read("BypassToken", token, _token) if token else None,
    )


def _acknowledgment(lines: tuple[str, ...], fields: Fields) -> Acknowledgment:
    secret = _read("Hash", fields.one("Hash"), AckHash.from_hex)
    return Acknowledgment(lines, _date(fields, "Date"), _stamp(fields), secret)


_SIGNED_PARSERS: dict[BlockType, Callable[[SignedText], KeyAnnouncement | AddressClaim]] = {
    BlockType.KEY_ANNOUNCEMENT: _key_announcement,
    BlockType.ADDRESS_CLAIM: _address_claim,
}
_PLAIN_PARSERS: dict[
    BlockType, Callable[[tuple[str, ...], Fields], MessageAnnouncement | Acknowledgment]
] = {
    BlockType.MESSAGE_ANNOUNCEMENT: _message_announcement,
    BlockType.ACKNOWLEDGMENT: _acknowledgment,
}


def _type_of(fields: Fields) -> BlockType:
    """Return the type, and check the Version line that stands beside it in every block."""
    name = fields.one("Type")
    kind = type_named(name)
    if kind is None:
        raise InvalidBlock(Refusal.FORM, f"unknown type {name[:40]!r}")
    if not _VERSION.fullmatch(fields.one("Version")):
        raise InvalidBlock(Refusal.FORM, "Version is not a whole number")
    return kind


def _refuse_data_line(fields: Fields) -> None:
    # A reader that sees it would wait for bytes that never come.
    if fields.every("Data"):
        raise InvalidBlock(Refusal.FORM, "a Data line outside a data block")


def _read(name: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidBlock(Refusal.FORM, f"{name}: {error}") from None


def _read_date(name: str, text: str) -> datetime:
    try:
        return parse_date(text)
    except ValueError as error:
        raise InvalidBlock(Refusal.DATE, f"{name}: {error}") from None


def _date(fields: Fields, name: str) -> datetime:
    return _read_date(name, fields.one(name))


def _stamp(fields: Fields) -> Stamp:
    try:
        return Stamp.parse(fields.one("ProofOfWork"))
    except ValueError as error:
        raise InvalidBlock(Refusal.STAMP, f"ProofOfWork: {error}") from None


def _token(text: str) -> BypassToken:
    return BypassToken(BlockKey.from_hex(text).raw)


def _mailbox(text: str) -> str:
    if not _MAILBOX.fullmatch(text):
        raise InvalidBlock(Refusal.FORM, f"not a mailbox: {text[:40]!r}")
    return text


def _mailboxes(text: str) -> tuple[str, ...]:
    names = tuple(_mailbox(name) for name in text.split(","))
    if len(names) > MAX_MAILBOXES or len(set(names)) != len(names):
        raise InvalidBlock(Refusal.FORM, f"mailboxes repeat or are more than {MAX_MAILBOXES}")
    return names


def _end_of_data_header(body: bytes) -> int | None:
    """Return where the bytes begin if ``body`` is a data block, which says so first."""
    match = _DATA_LINE.search(body)
    if match is None:
        return None
    head = body[: match.start()].lower().replace(b"\r", b"").split(b"\n")
    return match.end() if b"type: data" in head else None
