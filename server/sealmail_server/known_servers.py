"""What other servers have shown of themselves: their keys, recorded in the store."""

import logging
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime

from sealmail_store import BlockStore, ServerKey, StoreError, WriteView

_log = logging.getLogger(__name__)

# Servers on record; beyond them the oldest are forgotten, and then seen for the first time again.
MAX_KNOWN = 10_000


class KnownServers:
    """A ``PinStore`` in memory that ``save`` brings to the store; a crash may lose some of it."""

    def __init__(self, store: BlockStore, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._keys: OrderedDict[str, ServerKey] = OrderedDict()
        self._unsaved: dict[str, ServerKey] = {}

    async def load(self) -> None:
        """Read what is on record."""
        for key in await self._store.read(lambda view: view.server_keys.all()):
            self._keys.setdefault(key.way, key)

    def pin_of(self, way: str) -> bytes | None:
        """Return the pin known for this way, if any."""
        known = self._keys.get(way)
        return known.pin if known else None

    def remember(self, way: str, pin: bytes) -> None:
        """Keep this pin for this way, in the place of any other."""
        key = ServerKey(way, pin, self._clock(), self.pin_of(way))
        self._keys[way] = self._unsaved[way] = key
        self._keys.move_to_end(way)
        if len(self._keys) > MAX_KNOWN:
            self._keys.popitem(last=False)

    async def save(self) -> None:
        """Bring what is new to the store."""
        unsaved, self._unsaved = self._unsaved, {}
        if not unsaved:
            return

        def put(view: WriteView) -> None:
            for key in unsaved.values():
                view.server_keys.put(key)
            view.server_keys.keep_latest(MAX_KNOWN)

        try:
            await self._store.write(put)
        except StoreError as error:
            _log.error("the keys of other servers could not be recorded: %s", error)
