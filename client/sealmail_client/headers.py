"""HEADER.TXT: who wrote a mail to whom and when, as a value and as lines."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from sealmail_client.errors import BadMessage, CannotSeal
from sealmail_protocol.addresses import Transport, normal_address
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.fields import is_line
from sealmail_protocol.keys import BlockKey, KeyId

# A recipient needs some 300 bytes in three lines; this leaves room for long names.
MAX_RECIPIENTS = 1000
MAX_HEADER_BYTES = 1024 * 1024

# Ids become names in ZIPs and on disk, so they are made of letters and digits.
_MESSAGE_ID = re.compile(r"[0-9A-Za-z]{1,64}")
_OF_KEY = re.compile(r"(key-?transport|ack)-([0-9a-f]{40})")


class Place(StrEnum):
    """How a recipient is addressed."""

    TO = "To"
    CC = "Cc"
    BCC = "Bcc"


@dataclass(frozen=True, slots=True)
class Recipient:
    """One reader: where to find his key, and where his acknowledgment will be stored."""

    place: Place
    user_id: str
    key_id: KeyId
    transport: Transport | None
    ack_key: BlockKey | None


@dataclass(frozen=True, slots=True)
class Header:
    """What the head of a mail says; a transport that nobody can read is ``None``."""

    sender_user_id: str
    sender: KeyId
    sender_transport: Transport | None
    recipients: tuple[Recipient, ...]
    unique_id: str
    subject: str
    date: datetime
    reply_thread_id: str | None = None
    forwarded_id: str | None = None

    def recipient(self, key_id: KeyId) -> Recipient | None:
        """Return the recipient with this key, if the mail names it."""
        return next((one for one in self.recipients if one.key_id == key_id), None)

    def to_bytes(self) -> bytes:
        """Write the header; what does not fit into it is ``CannotSeal``."""
        if len({one.key_id for one in self.recipients}) != len(self.recipients):
            raise CannotSeal("a recipient is named twice: name each one once")
        if len(self.recipients) > MAX_RECIPIENTS:
            raise CannotSeal(f"a mail has at most {MAX_RECIPIENTS} recipients")
        content = "".join(f"{_one_line(line)}\n" for line in self._lines()).encode()
        if len(content) > MAX_HEADER_BYTES:
            raise CannotSeal(f"the names of the recipients exceed {MAX_HEADER_BYTES} bytes")
        return content

    def _lines(self) -> Iterator[str]:
        yield f"From: {_person(self.sender_user_id, self.sender)}"
        for one in self.recipients:
            yield f"{one.place}: {_person(one.user_id, one.key_id)}"
            if one.transport is not None:
                yield f"KeyTransport-{_lower(one.key_id)}: {one.transport}"
            if one.ack_key is not None:
                yield f"Ack-{_lower(one.key_id)}: {_lower(one.ack_key)}"
        yield f"MessageUniqueId: {_writable_id(self.unique_id)}"
        if self.forwarded_id is not None:
            yield f"ForwardedMessageId: {_writable_id(self.forwarded_id)}"
        if self.reply_thread_id is not None:
            yield f"ReplyThreadId: {_writable_id(self.reply_thread_id)}"
        yield f"Subject: {self.subject.strip()}"
        yield f"Date: {format_date(self.date)}"
        to_self = self.recipient(self.sender)
        if self.sender_transport is not None and (to_self is None or to_self.transport is None):
            yield f"KeyTransport-{_lower(self.sender)}: {self.sender_transport}"


def in_sight(header: Header) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of those whom every reader may see, and of the hidden ones."""
    seen = (one.user_id for one in header.recipients if one.place is not Place.BCC)
    hidden = (one.user_id for one in header.recipients if one.place is Place.BCC)
    return tuple(seen), tuple(hidden)


def address_in(user_id: str) -> str:
    """Return the address that a user id ends with, in its normal form; empty if there is none."""
    try:
        return normal_address(user_id.rpartition("<")[2].removesuffix(">").strip())
    except ValueError:
        return ""


def parse_header(content: bytes) -> Header:
    """Read a header; lines of unknown meaning are skipped, what cannot be trusted is refused."""
    if len(content) > MAX_HEADER_BYTES:
        raise BadMessage(f"its header is larger than {MAX_HEADER_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise BadMessage("its header is not UTF-8") from None
    lines = _Lines.sort(line.removesuffix("\r") for line in text.split("\n"))
    sender_user_id, sender = _read_person(lines.one("from"))
    recipients: dict[KeyId, Recipient] = {}
    for place, value in lines.recipients:
        user_id, key_id = _read_person(value)
        # An original may name somebody in To and in Cc; the first place counts.
        recipients.setdefault(
            key_id,
            Recipient(
                place, user_id, key_id, lines.transports.get(key_id), lines.ack_keys.get(key_id)
            ),
        )
    return Header(
        sender_user_id=sender_user_id,
        sender=sender,
        sender_transport=lines.transports.get(sender),
        recipients=tuple(recipients.values()),
        unique_id=_read_id(lines.one("messageuniqueid")),
        subject=lines.single.get("subject", ""),
        date=_read_date(lines.one("date")),
        reply_thread_id=lines.optional_id("replythreadid"),
        forwarded_id=lines.optional_id("forwardedmessageid"),
    )


_SINGLE: Final = frozenset(
    {"from", "messageuniqueid", "forwardedmessageid", "replythreadid", "subject", "date"}
)
_PLACES: Final = {place.value.lower(): place for place in Place}


@dataclass(slots=True)
class _Lines:
    """The lines of a header by their meaning, values still as text."""

    single: dict[str, str] = field(default_factory=dict)
    recipients: list[tuple[Place, str]] = field(default_factory=list)
    transports: dict[KeyId, Transport | None] = field(default_factory=dict)
    ack_keys: dict[KeyId, BlockKey] = field(default_factory=dict)

    @classmethod
    def sort(cls, lines: Iterable[str]) -> "_Lines":
        sorted_lines = cls()
        for line in lines:
            if not is_line(line):
                raise BadMessage("its header has a line with control characters, or too long")
            name, colon, value = line.partition(":")
            if colon:
                sorted_lines._add(name.lower(), value.strip())
        return sorted_lines

    def one(self, name: str) -> str:
        if name not in self.single:
            raise BadMessage(f"its header has no {name} line")
        return self.single[name]

    def optional_id(self, name: str) -> str | None:
        return _read_id(self.single[name]) if name in self.single else None

    def _add(self, name: str, value: str) -> None:
        if name in _SINGLE:
            if name in self.single:
                raise BadMessage(f"its header has two {name} lines")
            self.single[name] = value
        elif name in _PLACES:
            if len(self.recipients) == MAX_RECIPIENTS:
                raise BadMessage(f"its header names more than {MAX_RECIPIENTS} recipients")
            self.recipients.append((_PLACES[name], value))
        elif of_key := _OF_KEY.fullmatch(name):
            self._add_of_key(of_key[1], KeyId.from_hex(of_key[2]), value)

    def _add_of_key(self, kind: str, key_id: KeyId, value: str) -> None:
        if kind != "ack":
            self.transports.setdefault(key_id, _read_transport(value))
            return
        try:
            ack_key = BlockKey.from_hex(value)
        except ValueError:
            raise BadMessage("its header has an acknowledgment id that is none") from None
        if self.ack_keys.setdefault(key_id, ack_key) != ack_key:
            raise BadMessage(f"its header has two acknowledgment ids for {key_id}")


def _person(user_id: str, key_id: KeyId) -> str:
    return f"{user_id.strip()} {_lower(key_id)}"


def _lower(key: KeyId | BlockKey) -> str:
    return key.raw.hex()


def _one_line(line: str) -> str:
    try:
        line.encode()
    except UnicodeEncodeError:
        raise CannotSeal(f"this cannot be written as UTF-8: {line[:80]!r}") from None
    if not is_line(line):
        raise CannotSeal(f"this must be one line, without control characters: {line[:80]!r}")
    return line


def _writable_id(text: str) -> str:
    if not _MESSAGE_ID.fullmatch(text):
        raise CannotSeal(f"{text[:80]!r} is not the id of a mail")
    return text


def _read_person(value: str) -> tuple[str, KeyId]:
    user_id, _, key_id = value.rpartition(" ")
    try:
        return user_id.strip(), KeyId.from_hex(key_id)
    except ValueError:
        raise BadMessage("its header names somebody without a key id") from None


def _read_transport(value: str) -> Transport | None:
    try:
        return Transport.parse(value)
    except ValueError:
        return None


def _read_id(text: str) -> str:
    if not _MESSAGE_ID.fullmatch(text):
        raise BadMessage("its header has a mail id that is none")
    return text


def _read_date(text: str) -> datetime:
    try:
        return parse_date(text)
    except ValueError:
        raise BadMessage("its header has an impossible date") from None
