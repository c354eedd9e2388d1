"""Why blocks were refused, remembered in memory: a stranger must not fill the disk with it.

Nor may he push out what others want to know: who has the most remembered loses first.
"""

from collections import OrderedDict

from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.replies import Verdict, refused

# Refusals remembered in all: some three megabytes.
MAX_REFUSALS = 10_000


class Refusals:
    """The latest refusals of each source, by the digests of the blocks."""

    def __init__(self) -> None:
        self._source_of: dict[bytes, str] = {}
        self._by_source: dict[str, OrderedDict[bytes, Verdict]] = {}

    def remember(self, digest: bytes, error: InvalidBlock, source: str) -> Verdict:
        """Remember why a block was refused, and return the verdict.

        What is known of a block stays with who posted it first: another who has it could else
        have it forgotten among his own.
        """
        verdict = refused(error.code, error.reason)
        source = self._source_of.setdefault(digest, source)
        known = self._by_source.setdefault(source, OrderedDict())
        known[digest] = verdict
        known.move_to_end(digest)
        if len(self._source_of) > MAX_REFUSALS:
            self._make_room()
        return verdict

    def of(self, digest: bytes) -> Verdict | None:
        """Return why a block was refused, if that is remembered."""
        source = self._source_of.get(digest)
        return None if source is None else self._by_source[source][digest]

    def _make_room(self) -> None:
        """Forget the older half of the source that has the most: seldom, for it looks at all."""
        source, known = max(self._by_source.items(), key=lambda each: len(each[1]))
        for _ in range(max(1, len(known) // 2)):
            digest, _ = known.popitem(last=False)
            del self._source_of[digest]
        if not known:
            del self._by_source[source]
