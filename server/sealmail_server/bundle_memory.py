"""Which entries came in one body, so that the body can be asked for as a whole."""

from collections import OrderedDict
from collections.abc import Sequence

# A question for a bundle is one for each of its entries.
MAX_IN_BUNDLE = 4096
# Digests remembered in all: some five megabytes.
_MAX_DIGESTS = 65_536


class BundleMemory:
    """The digests of the entries of the latest bundles, by the digest of each bundle.

    Verdicts are kept for entries alone: what is told of a bundle follows from theirs as they
    are when somebody asks.
    """

    def __init__(self, most: int = _MAX_DIGESTS) -> None:
        self._most = most
        self._bundles: OrderedDict[bytes, tuple[bytes, ...]] = OrderedDict()
        self._held = 0

    def entries_of(self, digest: bytes) -> tuple[bytes, ...]:
        """Return the digests of the entries of a bundle; none if it is not known."""
        return self._bundles.get(digest, ())

    def remember(self, digest: bytes, entries: Sequence[bytes]) -> None:
        """Remember a bundle in the place of the oldest ones; not if it is too large."""
        distinct = tuple(dict.fromkeys(entries))
        # Beside an empty entry a block has the digest of the whole: it speaks for itself.
        if len(distinct) > MAX_IN_BUNDLE or digest in distinct:
            return
        self._held -= len(self._bundles.pop(digest, ()))
        self._bundles[digest] = distinct
        self._held += len(distinct)
        while self._held > self._most:
            _, oldest = self._bundles.popitem(last=False)
            self._held -= len(oldest)
