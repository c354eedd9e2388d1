"""Several blocks under one key: announcements of a mailbox, claims for an address."""

from collections.abc import Iterable, Iterator

from sealmail_protocol.blocks import BlockType, TextBlock
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.fields import decode_lines, field_name

SEPARATORS = {
    BlockType.MESSAGE_ANNOUNCEMENT: "NextMessage",
    BlockType.ADDRESS_CLAIM: "NextClaim",
}
# Alternatives of delivery for one proxied block; each is a connection we would make.
MAX_POST_TO = 256

_SEPARATOR_LINES = frozenset(word.lower().encode() for word in SEPARATORS.values())


def split_bundle(lines: Iterable[bytes]) -> Iterator[tuple[str, ...]]:
    """Cut the lines of a body into the lines of its entries, one after the other."""
    entry: list[bytes] = []
    for line in lines:
        if line.lower() in _SEPARATOR_LINES:
            yield decode_lines(entry)
            entry = []
        else:
            entry.append(line)
    yield decode_lines(entry)


def join_bundle(blocks: Iterable[TextBlock]) -> list[str]:
    """Return the lines of several blocks of one type, separators between them."""
    lines: list[str] = []
    for block in blocks:
        if lines:
            lines.append(SEPARATORS[block.type])
        lines.extend(block.lines)
    return lines


def split_post_to(lines: Iterable[bytes]) -> tuple[tuple[str, ...], list[bytes]]:
    """Split the ``Post-To:`` lines at the head of a proxied body from the block."""
    rest = list(lines)
    targets: list[str] = []
    while rest and rest[0][:9].lower() == b"post-to: ":
        targets.append(decode_lines((rest.pop(0)[9:],))[0])
        if len(targets) > MAX_POST_TO:
            raise InvalidBlock(Refusal.FORM, f"more than {MAX_POST_TO} Post-To lines")
    for line in rest:
        if field_name(line[:9].decode(errors="replace")) == "post-to":
            raise InvalidBlock(Refusal.FORM, "a Post-To line behind the head of the body")
    return tuple(targets), rest
