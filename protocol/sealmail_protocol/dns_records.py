"""TXT records by which a domain names its mail servers: which name to ask, what an answer says.

Answers come from strangers and go on to others, line by line: whatever could end a line or
steer a terminal is dropped here.
"""

from collections.abc import Iterable

from sealmail_protocol.addresses import ServerAddress, Transport, dns_name
from sealmail_protocol.fields import MAX_LINE, is_line

# An honest name has a handful; more is a way to make an answer, or a search, long.
MAX_RECORDS = 32
# Groups of servers for one domain, each of up to 16: each is dialled in its turn.
MAX_ALTERNATIVES = 8

_LABEL = "cmsvr"
_PREFIX = "TXT: "
_MAX_TEXT = MAX_LINE - len(_PREFIX)
# Names that belong to other networks or to one machine; asking for them tells only on the asker.
_NOT_IN_DNS = (".onion", ".i2p", ".local", ".localhost", ".internal", ".arpa")


def record_name(domain: str) -> str:
    """Return the name under which a mail domain names its servers; ``ValueError`` if none."""
    return lookup_name(f"{_LABEL}.{lookup_name(domain)}")


def lookup_name(text: str) -> str:
    """Return a name as DNS is asked for it; ``ValueError`` if it should not be asked at all.

    A single label would be completed by a search list; an address has no TXT record.
    """
    name = dns_name(text.removesuffix("."))
    if "." not in name:
        raise ValueError(f"{text!r} is a single label, no name of the public DNS")
    if name.endswith(_NOT_IN_DNS) or ServerAddress.parse(f"{name}:1").literal is not None:
        raise ValueError(f"{text!r} is not looked up in DNS")
    return name


def record_text(strings: Iterable[bytes]) -> str | None:
    """Return the joined strings of one record, ``None`` if they make no line of text."""
    try:
        text = b"".join(strings).decode()
    except UnicodeDecodeError:
        return None
    return text if len(text.encode()) <= _MAX_TEXT and text and is_line(text) else None


def record_texts(records: Iterable[Iterable[bytes]]) -> tuple[str, ...]:
    """Return the usable texts of an answer, in a fixed order and up to ``MAX_RECORDS``."""
    texts = {text for text in map(record_text, records) if text is not None}
    return tuple(sorted(texts))[:MAX_RECORDS]


def named_transports(texts: Iterable[str]) -> tuple[Transport, ...]:
    """Return the servers that records name; what is not ``server=…`` is another's business."""
    found: dict[Transport, None] = {}
    for text in texts:
        try:
            transport = Transport.parse(text.strip())
        except ValueError:
            continue
        if not transport.entangled:
            found[transport] = None
    return tuple(found)[:MAX_ALTERNATIVES]


def txt_lines(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the lines that answer ``DNS TXT``."""
    return tuple(f"{_PREFIX}{text}" for text in texts)


def texts_in(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the texts in an answer to ``DNS TXT``; other lines are ignored."""
    named = (line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX))
    return record_texts((text.encode(),) for text in named)
