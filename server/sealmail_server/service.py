"""The running server: store, verifier, listeners, operator's socket, and an end in good order."""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sealmail_net.dialing import DialSettings
from sealmail_net.listening import Listener, serve
from sealmail_net.socks import Proxies
from sealmail_net.txt_resolver import TxtResolver
from sealmail_protocol.addresses import ServerAddress
from sealmail_server.account_desk import AccountDesk
from sealmail_server.clock_guard import ClockGuard, ClockState
from sealmail_server.config import STORE_NAME, Config
from sealmail_server.dht.node_key import NodeKey, remembered_key
from sealmail_server.dht.peers import ASK_SECONDS
from sealmail_server.dht.service import DhtService
from sealmail_server.doorkeeper import Doorkeeper, OpenSessions, room_for
from sealmail_server.expiry import Expiry
from sealmail_server.hidden import HiddenFace, hidden_faces
from sealmail_server.intake import Intake
from sealmail_server.lookups import Lookups
from sealmail_server.memory import MemoryBudget
from sealmail_server.operator import HiddenPort, Operator, Running
from sealmail_server.operator_socket import operator_desk
from sealmail_server.outgoing.office import SortingOffice
from sealmail_server.partner_desk import PartnerDesk, write_down_pairing
from sealmail_server.partnership import Mode
from sealmail_server.replication import Replication
from sealmail_server.services import Services
from sealmail_server.setting_rules import Listen
from sealmail_server.sources import Allowance, Presence, Rate
from sealmail_server.tls_identity import TlsIdentity, pin_of
from sealmail_store import BlockStore, StoreError
from sealmail_verify import VerifierPool

_log = logging.getLogger(__name__)

# One wrong auth key in two seconds is a person; ten at once are a program that was misled.
FAILED_LOGINS = Rate(per_second=0.5, burst=10)
# Somebody who writes to forty new domains at once waits for none of them.
LOOKUPS = Rate(per_second=2.0, burst=40)
_BURST_SECONDS = 10
# How often the time is remembered, and so how much of it a stopped server may lose.
_TICK_SECONDS = 60.0
# A partner is near, and is told so much at once that a silence this long is a cut.
_PARTNER_CONNECTS_SECONDS = 5.0
_PARTNER_ANSWERS_SECONDS = 20.0


def utc_now() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)


async def run_server(
    directory: Path,
    config: Config,
    announce: Callable[[Listen], None],
    clock: Callable[[], datetime] = utc_now,
) -> None:
    """Serve until SIGTERM or SIGINT; ``announce`` is told the address once it is open.

    SIGHUP takes up a new certificate.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running_server(directory, config, clock, stop) as server:
        loop.add_signal_handler(signal.SIGHUP, server.services.identity.reload)
        announce(server.status().listen)
        await stop.wait()
        _log.info("stopping")


@asynccontextmanager
async def running_server(
    directory: Path, config: Config, clock: Callable[[], datetime], stop: asyncio.Event
) -> AsyncIterator["Server"]:
    """Open everything, serve, and close it in the opposite order; SHUTDOWN sets ``stop``."""
    identity = TlsIdentity(directory / config.certificate, directory / config.private_key)
    hidden = await asyncio.to_thread(hidden_faces, directory, config, clock())
    async with AsyncExitStack() as stack:
        store = await asyncio.to_thread(BlockStore.open, directory / STORE_NAME)
        await stack.enter_async_context(store)
        partner = await write_down_pairing(directory, store)
        if partner is not None:
            config = config.paired_with(partner)
        verifier = await stack.enter_async_context(VerifierPool())
        guard = ClockGuard(store, clock)
        await guard.look()
        await guard.tick()
        node_key = await remembered_key(store) if config.dht else None
        server = Server(
            directory, config, clock, store, verifier, guard, identity, hidden, stop, node_key
        )
        await stack.enter_async_context(server.housekeeping())
        await server.listen()
        stack.push_async_callback(server.close)
        await stack.enter_async_context(operator_desk(directory, server.operator))
        yield server


class Server:
    """The parts of a running server, put together."""

    def __init__(
        self,
        directory: Path,
        config: Config,
        clock: Callable[[], datetime],
        store: BlockStore,
        verifier: VerifierPool,
        guard: ClockGuard,
        identity: TlsIdentity,
        hidden: tuple[HiddenFace, ...],
        stop: asyncio.Event,
        node_key: NodeKey | None = None,
    ) -> None:
        self._directory = directory
        self._config = config
        self._hidden = hidden
        self._publishing: asyncio.Task[None] | None = None
        self._dht_duty: asyncio.Task[None] | None = None
        self._store = store
        self._guard = guard
        self._started = clock()
        self._sessions = OpenSessions()
        self._presence = Presence(
            room_for(config.max_connections), config.max_connections_per_source
        )
        self._ports: dict[str, Listener] = {}
        self._own = self._addresses(config.address.port)
        self._pin = pin_of(directory / config.certificate)
        self._expiry = Expiry(store, clock, config.limits, guard.may_delete)
        proxies = Proxies(config.proxy_policy)
        self._dialing = DialSettings(
            # The operator named the partner, wherever it is.
            allow_private_targets=True,
            connect_deadline=_PARTNER_CONNECTS_SECONDS,
            answer_deadline=_PARTNER_ANSWERS_SECONDS,
            source=config.outgoing_address or None,
            proxies=proxies,
        )
        self._replication = Replication(
            store,
            clock,
            config.limits,
            self._dialing,
            Mode(config.replication),
            config.partner_queue_blocks,
            config.second_server,
            watch=guard,
        )
        intake = Intake(store, verifier, clock, config.limits, self._replication, guard)
        self.dht = None if node_key is None else self._dht(node_key, verifier, intake, clock)
        desk = AccountDesk(
            store, clock, intake.judge_waiting, self._sessions.end_logins, self._replication
        )
        partner = PartnerDesk(
            directory,
            store,
            desk,
            self._replication,
            self._dialing,
            clock,
            self._pin_at,
        )
        self.office = SortingOffice(
            store,
            intake,
            clock,
            time.monotonic,
            DialSettings(
                allow_private_targets=config.allow_private_targets,
                proxies=proxies,
                source=config.outgoing_address or None,
            ),
            config.queue_limits,
            self._own_servers,
            self._own_pins,
            self._replication,
            timedelta(seconds=config.takeover_seconds),
            guard,
            self.dht.desk if self.dht else None,
        )
        rate = config.stranger_requests_per_second
        self.services = Services(
            store=store,
            intake=intake,
            office=self.office,
            desk=desk,
            partner=partner,
            identity=identity,
            limits=config.limits,
            guard=guard,
            requests=Allowance(Rate(rate, rate * _BURST_SECONDS)),
            failed_logins=Allowance(FAILED_LOGINS),
            lookups=_lookups(config),
            lookup_requests=Allowance(LOOKUPS),
            memory=MemoryBudget(config.memory_bytes, config.memory_bytes_by_source),
            clock=clock,
            stop=stop.set,
            dht=self.dht.desk if self.dht else None,
        )
        self.operator = Operator(
            directory,
            config,
            store,
            desk,
            guard,
            clock,
            self.status,
            self.office.desk,
            partner,
            self._replication,
            self.dht,
        )

    def _dht(
        self,
        key: NodeKey,
        verifier: VerifierPool,
        intake: Intake,
        clock: Callable[[], datetime],
    ) -> DhtService:
        config = self._config
        return DhtService.make(
            key,
            self._store,
            verifier,
            clock,
            config.dht_settings,
            config.dht_bytes,
            intake.remember_refusal,
            tuple(map(ServerAddress.parse, config.dht_bootstrap)),
            self._guard.may_delete,
            tuple(map(ServerAddress.parse, config.entangled_peers)),
            replace(
                self._dialing,
                allow_private_targets=config.allow_private_targets,
                answer_deadline=ASK_SECONDS,
            ),
        )

    def _own_servers(self) -> frozenset[ServerAddress]:
        """Return what this server and its partner are called: what is for them is not dialled."""
        partner = self._replication.partner
        return self._own if partner is None else self._own | {partner.address}

    def _pin_at(self, address: ServerAddress) -> bytes:
        """Return the pin that this server shows where it is reached by one of its addresses."""
        for face in self._hidden:
            if address in face.addresses:
                return face.pin
        return pin_of(self._directory / self._config.certificate)

    def _own_pins(self) -> frozenset[bytes]:
        partner = self._replication.partner
        others = {partner.pin} if partner else set()
        return frozenset({self._pin, *others, *(face.pin for face in self._hidden)})

    def _addresses(self, port: int) -> frozenset[ServerAddress]:
        """Return what is delivered here; a public name of a covert server would give it away."""
        public = frozenset() if self._config.covert else own_addresses(self._config, port)
        return public.union(*(face.addresses for face in self._hidden))

    async def listen(self) -> None:
        """Open the ports; a covert server has the one for Tor and I2P only."""
        config, idle = self._config, self._config.idle_seconds
        door = Doorkeeper(
            self.services, self._sessions, self._presence, require_tls=config.require_tls
        )
        first, direct = config.address, config.direct_tls_address
        if not config.covert:
            listener = await serve(first.host, first.port, door.admit, idle_seconds=idle)
            self._ports["listen"] = listener
            self._own = self._addresses(listener.port)
            if self.dht is not None:
                await self._take_part(self.dht, first.host, listener.port)
        if direct is not None:
            self._ports["direct"] = await serve(
                direct.host, direct.port, door.admit_direct, idle_seconds=idle, direct_tls=True
            )
        for face in self._hidden:
            await self._listen_hidden(face)

    async def _listen_hidden(self, face: HiddenFace) -> None:
        """Open the port for a network's forwarders, a class of its own, and tell tor of it."""
        at, most = face.listen, self._config.max_hidden_connections
        door = Doorkeeper(
            replace(self.services, identity=face.identity),
            self._sessions,
            Presence(most, most),
            require_tls=self._config.require_tls,
            source=face.source,
        )
        idle = self._config.idle_seconds
        listener = await serve(at.host, at.port, door.admit, idle_seconds=idle)
        self._ports[face.source] = listener
        if face.onion is not None:
            target = str(Listen(at.host, listener.port))
            self._publishing = asyncio.create_task(face.onion.keep_published(target))
            self._publishing.add_done_callback(_report)

    async def _take_part(self, dht: DhtService, host: str, port: int) -> None:
        """Open the port for datagrams; only then is there something to do for the DHT."""
        await dht.open(host, port)
        self._dht_duty = asyncio.create_task(dht.run())
        self._dht_duty.add_done_callback(_report)

    def status(self) -> Running:
        """Return what the operator may know of this server now."""
        config = self._config
        hidden = tuple(
            HiddenPort(listen, face.addresses)
            for face in self._hidden
            if (listen := self._listening(face.source, face.listen)) is not None
        )
        # A covert server has one at least.
        listen = self._listening("listen", config.address) or hidden[0].listen
        return Running(
            listen,
            self._listening("direct", config.direct_tls_address),
            self._started,
            len(self._presence),
            self._store.commits,
            hidden,
            next((face.onion for face in self._hidden if face.onion is not None), None),
        )

    def _listening(self, name: str, at: Listen | None) -> Listen | None:
        listener = self._ports.get(name)
        return Listen(at.host, listener.port) if at and listener else None

    async def close(self) -> None:
        """Let nobody in any more; running commands end within the bound, or are cut off."""
        if self.dht is not None and self._dht_duty is not None:
            self._dht_duty.cancel()
            await asyncio.wait((self._dht_duty,))
            self.dht.close()
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.wait((self._publishing,))
        listeners = tuple(self._ports.values())
        for listener in listeners:
            listener.close()
        self._sessions.end_all()
        async with asyncio.TaskGroup() as group:
            for listener in listeners:
                group.create_task(listener.stop(self._config.stop_seconds))

    @asynccontextmanager
    async def housekeeping(self) -> AsyncIterator[None]:
        """Remember the time, judge what waits, and remove what has expired, in the background."""
        chores = [
            asyncio.create_task(self._keep_time()),
            asyncio.create_task(self._judge_waiting()),
            asyncio.create_task(self.services.intake.judge_the_rest()),
            asyncio.create_task(self._expire()),
            asyncio.create_task(self._replication.run()),
            asyncio.create_task(self.office.run()),
        ]
        for chore in chores:
            chore.add_done_callback(_report)
        try:
            yield
        finally:
            for chore in chores:
                chore.cancel()
            await asyncio.wait(chores)

    async def _judge_waiting(self) -> None:
        try:
            await self.services.intake.judge_all_waiting()
        except StoreError as error:
            _log.error("what waits could not be judged: %s", error)

    async def _expire(self) -> None:
        while True:
            try:
                await self._expiry.run()
            except StoreError as error:
                _log.error("expired blocks could not be removed: %s", error)
            await asyncio.sleep(_TICK_SECONDS)

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                if await self._guard.tick() is not ClockState.RIGHT:
                    _log.warning("the clock is in doubt: set it, or run 'sealmaild clock confirm'")
            except StoreError as error:
                _log.error("the time could not be remembered: %s", error)


def _lookups(config: Config) -> Lookups | None:
    if not config.permit_dns_txt or config.covert:
        return None
    return Lookups(TxtResolver(config.dns_address), time.monotonic)


def own_addresses(config: Config, port: int) -> frozenset[ServerAddress]:
    """Return the addresses under which others know this server."""
    names = [*config.names, config.address.host]
    found = set()
    for name in names:
        # What listens on all addresses, or on a port not chosen yet, is known by its names only.
        with suppress(ValueError):
            found.add(ServerAddress.parse(str(Listen(name, port))))
    return frozenset(found)


def _report(chore: asyncio.Task[None]) -> None:
    """Let no chore end unnoticed that should have gone on."""
    if not chore.cancelled() and (error := chore.exception()) is not None:
        _log.error("%s has ended", chore.get_coro(), exc_info=error)
