"""The DHT beside a running server: joining, spreading, refreshing, expiring, remembering."""

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sealmail_net.dialing import DialSettings
from sealmail_net.errors import NetworkError
from sealmail_net.targets import resolve
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.keys import BlockKey
from sealmail_server.dht.carrier import Carrier
from sealmail_server.dht.datagrams import Place
from sealmail_server.dht.desk import EntangledDesk, RememberRefusal
from sealmail_server.dht.neighbourhood import DhtSettings
from sealmail_server.dht.node import DhtNode
from sealmail_server.dht.node_key import NodeKey
from sealmail_server.dht.peers import EntangledPeers
from sealmail_server.dht.publishing import Publisher
from sealmail_server.dht.republishing import Expiry, Republisher
from sealmail_store import BlockStore, StoreError
from sealmail_verify import VerifierPool

_log = logging.getLogger(__name__)

_CONTACTS = "dht-contacts"
_MOST_REMEMBERED = 60
_RESOLVE_SECONDS = 10.0
# So much sooner than later ones comes the first look around; each next one waits twice as long.
_FIRST_LOOKS = 8


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often a node does what it does without being asked, in seconds.

    What could not be spread is tried again after ``retry``, then less and less often, at last
    as often as all is spread. What is too old is forgotten every ``expire``.
    """

    join: float = 15.0
    refresh: float = 600.0
    spread: float = 3600.0
    retry: float = 30.0
    expire: float = 3600.0


class DhtService:
    """Opened by ``open``; ``run`` works until it is cancelled; ``close`` leaves the network."""

    def __init__(
        self,
        store: BlockStore,
        node: DhtNode,
        clock: Callable[[], datetime],
        remember_refusal: RememberRefusal,
        bootstrap: tuple[ServerAddress, ...],
        may_delete: Callable[[], bool],
        peers: EntangledPeers,
        rhythm: Rhythm,
    ) -> None:
        self.node = node
        self.desk = EntangledDesk(node, store, clock, remember_refusal, self._posted, peers)
        self._peers = peers
        self._store = store
        self._bootstrap = bootstrap
        self._rhythm = rhythm
        self._expiry = Expiry(node, may_delete, every=rhythm.expire)
        self._republisher = Republisher(node, every=rhythm.spread)
        self._publisher = Publisher(node, pause=rhythm.retry, longest=rhythm.spread)

    @classmethod
    def make(
        cls,
        key: NodeKey,
        store: BlockStore,
        verifier: VerifierPool,
        clock: Callable[[], datetime],
        settings: DhtSettings,
        room: int,
        remember_refusal: RememberRefusal,
        bootstrap: tuple[ServerAddress, ...],
        may_delete: Callable[[], bool],
        peers: tuple[ServerAddress, ...] = (),
        peer_settings: DialSettings | None = None,
        rhythm: Rhythm | None = None,
    ) -> "DhtService":
        """Put the node of this server together."""
        dialing = DialSettings(
            allow_private_targets=settings.allow_private, connect_deadline=5.0, answer_deadline=8.0
        )
        node = DhtNode(store, verifier, clock, key, settings, room, Carrier(dialing))
        beside = EntangledPeers(peers, peer_settings or dialing, node.examiner, clock)
        return cls(
            store, node, clock, remember_refusal, bootstrap, may_delete, beside, rhythm or Rhythm()
        )

    async def open(self, host: str, port: int) -> None:
        """Open the port for datagrams: the one that TLS is on."""
        await self.node.neighbourhood.open(host, port)

    def close(self) -> None:
        """Leave the network."""
        self.node.neighbourhood.close()

    async def run(self) -> None:
        """Take part until cancelled; at the end the neighbours are remembered."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._take_up())
                group.create_task(self._keep_joined())
                group.create_task(self._publisher.run())
                group.create_task(self._republisher.run())
                group.create_task(self._expiry.run())
                group.create_task(self._peers.run(self.node.value))
        finally:
            with suppress(StoreError):
                await asyncio.shield(self._remember())

    async def status(self) -> dict[str, Any]:
        """Return the health of this node, for the operator."""
        neighbourhood = self.node.neighbourhood
        count = await self.node.holdings.count()
        seen_at = neighbourhood.sightings.place
        return {
            "node": neighbourhood.key.id.hex(),
            "network": self.node.settings.network,
            "neighbours": len(neighbourhood.neighbours),
            "asked_by_others": neighbourhood.met_back,
            "seen_at": str(seen_at) if seen_at else None,
            "values": count.entries,
            "bytes": count.bytes,
            "not_spread": len(self._publisher),
            "peers": self._peers.status(),
        }

    def _posted(self, key: BlockKey, digest: bytes, of_stranger: bool) -> None:
        self._peers.post([(key, digest)], of_stranger=of_stranger)
        self._publisher.post([key], of_stranger=of_stranger)

    async def _take_up(self) -> None:
        """Go on with what was not spread before the last stop, as soon as the store can tell."""
        while True:
            try:
                for key in await self.node.holdings.unspread():
                    rows = await self.node.holdings.listed(key)
                    for row in rows:
                        if row.waits:
                            self._peers.post([(key, row.digest)], of_stranger=not row.ours)
                    self._publisher.post([key], of_stranger=not any(row.ours for row in rows))
                return
            except StoreError as error:
                _log.error("what was posted before cannot be read: %s", error)
            await asyncio.sleep(self._rhythm.retry)

    async def _keep_joined(self) -> None:
        neighbourhood = self.node.neighbourhood
        known = await self._remembered()
        alone, pause = True, self._rhythm.join / _FIRST_LOOKS
        while True:
            # Those of the list are asked again and again, so that a cut network finds together.
            await neighbourhood.join((*await self._bootstrap_places(), *known))
            was_alone, alone = alone, not len(neighbourhood.neighbours)
            if not alone:
                if was_alone:
                    self._publisher.try_all()
                try:
                    await self._remember()
                except StoreError as error:
                    _log.error("the neighbours could not be remembered: %s", error)
            # Liars who say again and again that we moved have us look this often.
            await asyncio.sleep(pause)
            if not alone:
                # Soon after the first look some more: datagrams are lost, others join too.
                if pause >= self._rhythm.join:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(neighbourhood.moved.wait(), self._rhythm.refresh)
                neighbourhood.moved.clear()
                await neighbourhood.refresh()
            pause = min(2 * pause, self._rhythm.join)

    async def _bootstrap_places(self) -> list[Place]:
        places = []
        for address in self._bootstrap:
            try:
                allowed = await resolve(
                    address,
                    allow_private=self.node.settings.allow_private,
                    deadline=_RESOLVE_SECONDS,
                )
            except NetworkError as error:
                _log.warning("a first node of the DHT: %s", error)
                continue
            places += [Place(ip, address.port) for ip in allowed]
        return places

    async def _remembered(self) -> list[Place]:
        try:
            text = await self._store.read(lambda view: view.setting(_CONTACTS))
            return [Place.of(host, port) for host, port in json.loads(text or "[]")]
        except (TypeError, ValueError):
            return []
        except StoreError as error:
            _log.error("the neighbours of before cannot be read: %s", error)
            return []

    async def _remember(self) -> None:
        neighbourhood = self.node.neighbourhood
        peers = neighbourhood.neighbours.nearest(neighbourhood.key.id, _MOST_REMEMBERED)
        text = json.dumps([[str(peer.place.ip), peer.place.port] for peer in peers])
        if peers:
            await self._store.write(lambda view: view.put_setting(_CONTACTS, text))
