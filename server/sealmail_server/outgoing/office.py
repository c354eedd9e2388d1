"""The sorting office: all that serves blocks on their way to other servers, put together."""

import asyncio
import random
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from sealmail_net.dialing import DialSettings
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.policy import Role
from sealmail_protocol.replies import Verdict
from sealmail_server.clock_guard import Watch
from sealmail_server.dht.desk import EntangledDesk
from sealmail_server.intake import Intake
from sealmail_server.known_servers import KnownServers
from sealmail_server.limits import QueueLimits
from sealmail_server.outgoing.accepting import Acceptance
from sealmail_server.outgoing.bags import Waiting
from sealmail_server.outgoing.connecting import OutgoingDialer
from sealmail_server.outgoing.desk import QueueDesk
from sealmail_server.outgoing.fetching import Fetcher
from sealmail_server.outgoing.mirroring import Mirror
from sealmail_server.outgoing.postman import Postman
from sealmail_server.outgoing.strangers import Strangers
from sealmail_server.outgoing.targets import Entangled, Local, OwnServers, TargetRules
from sealmail_server.outgoing.telling import Teller
from sealmail_server.partnership import Partnership
from sealmail_server.visitor import Visitor
from sealmail_store import BlockStore, StoredEntry

# Records of other servers' keys reach the store this often.
_SAVE_SECONDS = 10.0


class SortingOffice:
    """Takes, delivers and shows what goes elsewhere; ``run`` works until it is cancelled.

    ``own_servers`` and ``own_pins`` name this server and its partner, for which it steps in
    when that has been away for ``takeover``. ``watch`` tells whether the clock is to be
    believed. ``dht`` takes what is for the DHT.
    """

    def __init__(
        self,
        store: BlockStore,
        intake: Intake,
        clock: Callable[[], datetime],
        steady_clock: Callable[[], float],
        settings: DialSettings,
        limits: QueueLimits,
        own_servers: OwnServers,
        own_pins: Callable[[], Collection[bytes]],
        partnership: Partnership,
        takeover: timedelta,
        watch: Watch,
        dht: EntangledDesk | None = None,
    ) -> None:
        self._intake = intake
        self._dht = dht
        self._partnership = partnership
        self._takeover = takeover
        self._clock = clock
        chance = random.SystemRandom()
        rules = TargetRules(
            own_servers,
            settings.allow_private_targets,
            settings.proxies.policy,
            dht=dht is not None,
        )
        self._known = KnownServers(store, clock)
        dialer = OutgoingDialer(settings, self._known, own_pins, clock)
        teller = Teller(store, partnership, clock)
        self.postman = Postman(
            store,
            teller,
            rules,
            dialer,
            self._admit,
            clock,
            watch,
            chance,
            partnership,
            self._stands_in,
        )
        self.mirror = Mirror(store, intake, clock, self.postman.book.forget, self.postman.add)
        strangers = Strangers(self.postman.routes, own_servers, steady_clock)
        self.acceptance = Acceptance(
            store, intake, self.postman, teller, rules, strangers, limits, clock, steady_clock
        )
        self.desk = QueueDesk(store, teller, self.postman)
        self.fetcher = Fetcher(rules, dialer, self.postman.routes, strangers, clock)

    async def run(self) -> None:
        """Deliver until cancelled."""
        await self._known.load()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.postman.run())
            group.create_task(self._save())

    def _stands_in(self) -> bool:
        """Tell whether the partner has been away for so long that its queue is ours to deliver."""
        away = self._partnership.away_since
        return away is not None and self._clock() - away >= self._takeover

    async def _save(self) -> None:
        """Record now and then which keys others have shown, and once more at the end."""
        try:
            while True:
                await asyncio.sleep(_SAVE_SECONDS)
                await self._known.save()
        finally:
            await self._known.save()

    async def _admit(self, row: Waiting, entry: StoredEntry, here: Local | Entangled) -> Verdict:
        """Admit a block here, by the rights of who gave it."""
        visitor = Visitor(Role.USER, row.owner, confirmed=True, source=row.owner)
        if isinstance(here, Entangled) and self._dht is not None:
            return await self._dht.take_held(row.key, entry, visitor)
        if row.type is BlockType.DATA:
            return await self._intake.take_held(entry, visitor)
        lines = tuple(entry.header.split(b"\r\n")[:-1])
        return await self._intake.take_text(row.key, lines, visitor)
