"""Several blocks under one key: announcements of a mailbox, claims for an address."""

from collections.abc import Iterable, Iterator, Sequence

from sealmail_protocol.addresses import Transport
from sealmail_protocol.blocks import TextBlock
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.fields import decode_lines, field_name
from sealmail_protocol.policy import BLOCK_POLICY

# What stands between two blocks, by their type; other types stand alone.
SEPARATORS = {kind: row.separator for kind, row in BLOCK_POLICY.items() if row.separator}
# Alternatives of delivery for one proxied block; each is a connection we would make.
MAX_POST_TO = 256

_SEPARATOR_LINES = frozenset(word.lower().encode() for word in SEPARATORS.values())
_POST_TO = b"post-to: "


def is_separator(line: bytes) -> bool:
    """Tell whether a line stands between the entries of a body."""
    return line.lower() in _SEPARATOR_LINES


def is_post_to(line: bytes) -> bool:
    """Tell whether a line, at the head of a body, names a target."""
    return line[: len(_POST_TO)].lower() == _POST_TO


def split_bundle(lines: Iterable[bytes]) -> Iterator[tuple[bytes, ...]]:
    """Cut the lines of a body into those of its entries, each to be read and judged alone.

    There is always one; an entry without lines is refused by who reads it.
    """
    entry: list[bytes] = []
    for line in lines:
        if is_separator(line):
            yield tuple(entry)
            entry = []
        else:
            entry.append(line)
    yield tuple(entry)


def join_bundle(blocks: Iterable[TextBlock]) -> list[str]:
    """Return the lines of several blocks of one type, separators between them.

    Several blocks of a type that stands alone are a ``ValueError``.
    """
    lines: list[str] = []
    for block in blocks:
        if lines:
            lines.append(_separator_of(block))
        lines.extend(block.lines)
    return lines


def split_post_to(lines: Sequence[bytes]) -> tuple[tuple[Transport, ...], tuple[bytes, ...]]:
    """Split the targets at the head of a proxied body from the block behind them."""
    count = 0
    while count < len(lines) and is_post_to(lines[count]):
        count += 1
    if not 1 <= count <= MAX_POST_TO:
        raise InvalidBlock(Refusal.FORM, f"{count} Post-To lines where 1 to {MAX_POST_TO} belong")
    block = tuple(lines[count:])
    if any(
        field_name(line[: len(_POST_TO)].decode(errors="replace")) == "post-to" for line in block
    ):
        raise InvalidBlock(Refusal.FORM, "a Post-To line behind the head of the body")
    targets = decode_lines(line[len(_POST_TO) :] for line in lines[:count])
    try:
        return tuple(Transport.parse(target) for target in targets), block
    except ValueError as error:
        raise InvalidBlock(Refusal.FORM, f"Post-To: {error}") from None


def _separator_of(block: TextBlock) -> str:
    if block.type not in SEPARATORS:
        raise ValueError(f"a {block.type} stands alone")
    return SEPARATORS[block.type]
