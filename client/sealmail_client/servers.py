"""Connections: to the home server, logged in, and to those of correspondents, as nobody."""

import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TypeVar

from sealmail_client.channels import BY_DHT
from sealmail_client.errors import ClientError
from sealmail_client.home_database import HomeDatabase
from sealmail_client.kept_links import KeptLinks
from sealmail_client.pin_book import PinBook
from sealmail_client.posting import Peer, later_of
from sealmail_client.server_hints import ServerHints
from sealmail_client.settings import AuthKey, Place, Settings, auth_file_name
from sealmail_client.throttle import Throttle
from sealmail_net.dialing import DialSettings, dial
from sealmail_net.errors import LoginFailed, NetworkError, NoServerReached
from sealmail_net.groups import HEAD_START, first_by_rank
from sealmail_net.handshakes import Handshake, pinned_handshake
from sealmail_net.remote_server import RemoteServer
from sealmail_net.socks import Proxies
from sealmail_net.ways import Way
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.dates import format_date, parse_date

T = TypeVar("T")
Greet = Callable[[RemoteServer], Awaitable[None]]

# How long an answer is awaited, and how long if another server of the group may be asked: not a
# door, which may have to look far.
_ANSWER_SECONDS = 60.0
_ANSWER_SECONDS_OF_ONE = 15.0
# How long a proxy may take to a server if it, and all of its way, failed lately and another way is
# left: most circuits that come about at all do so in half that time.
_HASTY_SECONDS = 20.0
# An original server closes at the third unknown command: it is not asked every time.
_ASK_AGAIN = timedelta(days=7)

_log = logging.getLogger(__name__)


class LoginRefused(ClientError):
    """The home server does not know this key and auth key: ask its operator for an account."""

    exit_code = 24


class Servers:
    """Dials on behalf of one identity, and remembers pins and extensions."""

    def __init__(
        self,
        settings: Settings,
        auth_keys: Mapping[Place, AuthKey],
        database: HomeDatabase,
        clock: Callable[[], datetime],
        *,
        head_start: float = HEAD_START,
        hasty: float = _HASTY_SECONDS,
    ) -> None:
        self._settings = settings
        self._auth_keys = auth_keys
        self._database = database
        self._clock = clock
        self._head_start = head_start
        self._hasty = hasty
        self._kept: KeptLinks | None = None
        self.pins = PinBook(database, clock)
        self.hints = ServerHints(database, clock)
        rate = settings.throttle_kib
        self.throttle = Throttle(rate) if rate else None
        self._dialing = DialSettings(
            allow_private_targets=settings.allow_private_targets,
            proxies=Proxies(settings.connecting.policy),
        )

    @cached_property
    def _judging(self) -> Handshake:
        """Return the handshake that judges certificates by the CAs that the user believes."""
        # pyOpenSSL takes a tenth of a second to load, and most commands look no key up.
        from sealmail_client.judged_tls import judged_handshake

        store = self._settings.connecting.ca_certificates
        return judged_handshake(store) or pinned_handshake

    def home(self) -> AbstractAsyncContextManager[Peer]:
        """Connect to a server of the home group and log in; a changed TLS key stops us.

        One who lives in the DHT is at home there, through any door, without login.
        """
        return self.at(Place.HOME)

    async def at_home(self, errand: Callable[[Peer], Awaitable[T]]) -> T:
        """Carry out ``errand`` at a server of the home group.

        It is begun again at another one if the connection is lost on the way, so that every
        step of it must be one that may be repeated.
        """
        lost: list[ServerAddress] = []
        for _ in self._settings.home_servers[1:]:
            try:
                async with self.at(Place.HOME, lost) as peer:
                    return await errand(peer)
            except NoServerReached:
                raise
            except NetworkError as error:
                lost.append(peer.server.address)
                self.hints.note_failed(peer.server.address)
                _log.info("begun again at another server: %s", error)
        async with self.at(Place.HOME, lost) as peer:
            return await errand(peer)

    async def in_dht(self, errand: Callable[[Peer], Awaitable[T]]) -> T:
        """Carry out ``errand`` in the DHT, by a door of the user's, else by his home server."""
        settings = self._settings
        if settings.has_account and settings.doors:
            async with self.look_up(settings.doors) as peer:
                return await errand(peer.by(BY_DHT))
        return await self.at_home(lambda peer: errand(peer.by(BY_DHT)))

    @asynccontextmanager
    async def at(self, place: Place, last: Collection[ServerAddress] = ()) -> AsyncIterator[Peer]:
        """Connect to a server where we have an account, as ``home`` does.

        Those in ``last`` have just failed: they are asked behind all others that show no more of
        the user.
        """
        transport = self._settings.places[place]
        if transport.entangled:
            async with await self._dial(
                self._settings.doors, strict_pin=True, last=last
            ) as server:
                yield self._meet(server).by(BY_DHT)
            return
        userid, auth_key = self._settings.key_id.hex, self._auth_keys[place].text

        async def log_in(server: RemoteServer) -> None:
            if not await server.login(userid, auth_key):
                raise LoginFailed(server.address)

        servers = transport.servers
        try:
            server = await self._dial(servers, strict_pin=True, greet=log_in, last=last)
        except NoServerReached as error:
            if not all(isinstance(reason, LoginFailed) for reason in error.reasons):
                raise
            raise LoginRefused(
                f"{' and '.join(map(str, servers))} refused the login of {userid}: "
                "ask the operator for an account, and see that the auth key in the file "
                f"{auth_file_name(place)} of your home is right"
            ) from error
        async with server:
            yield replace(self._meet(server), account=True)

    @asynccontextmanager
    async def look_up(self, servers: Sequence[ServerAddress]) -> AsyncIterator[Peer]:
        """Connect without login where keys are believed: a changed TLS key stops us."""
        async with await self._dial(
            shuffled(servers), strict_pin=True, handshake=self._judging
        ) as server:
            yield self._meet(server)

    @asynccontextmanager
    async def deliver(self, servers: Sequence[ServerAddress]) -> AsyncIterator[Peer]:
        """Connect without login to leave sealed blocks, at the first of ``servers`` if it serves.

        One that is lost on the way is asked last for a while. See also ``keeping_links``.
        """
        async with self._link_to(servers) as peer:
            try:
                yield peer
            except NetworkError:
                self.hints.note_failed(peer.server.address)
                raise

    @asynccontextmanager
    async def _link_to(self, servers: Sequence[ServerAddress]) -> AsyncIterator[Peer]:
        if self._kept is not None:
            async with self._kept.use(servers) as peer:
                yield peer
        else:
            peer = await self._delivering(servers)
            async with peer.server:
                yield peer

    @asynccontextmanager
    async def keeping_links(self) -> AsyncIterator[None]:
        """Let ``deliver`` use one connection to a server again and again, for a batch of mail."""
        if self._kept is not None:
            yield
            return
        self._kept = KeptLinks(self._delivering)
        try:
            yield
        finally:
            kept, self._kept = self._kept, None
            await kept.close()

    async def _delivering(self, servers: Sequence[ServerAddress]) -> Peer:
        return self._meet(await self._dial(servers, strict_pin=False))

    def moment(self) -> datetime:
        """Return the date to write: ours, or that of the home server if it was ahead of us."""
        ahead = 0
        for server in self._settings.home_servers:
            row = self._database.row("SELECT ahead FROM capability WHERE server = ?", str(server))
            ahead = max(ahead, 0 if row is None else row["ahead"])
        return self._clock() + timedelta(seconds=ahead)

    async def _dial(
        self,
        servers: Sequence[ServerAddress],
        *,
        strict_pin: bool,
        greet: Greet | None = None,
        handshake: Handshake = pinned_handshake,
        last: Collection[ServerAddress] = (),
    ) -> RemoteServer:
        """Reach one of a group, and ask it what it can do; ``greet`` is said to it first."""
        alone = len(servers) == 1 or set(servers) <= set(self._settings.doors)
        seconds = _ANSWER_SECONDS if alone else _ANSWER_SECONDS_OF_ONE
        settings = replace(self._dialing, answer_deadline=seconds, handshake=handshake)

        ranks = self._ranks(servers, last)
        away = [rank for rank in ranks[:-1] if self.hints.all_failed_lately(rank)]
        hasty = replace(settings, proxy_deadline=min(self._hasty, settings.proxy_deadline))

        async def attempt(address: ServerAddress) -> RemoteServer:
            chosen = hasty if any(address in rank for rank in away) else settings
            server = await dial(address, chosen, self.pins, strict_pin=strict_pin)
            try:
                if greet is not None:
                    await greet(server)
                if not self._knows_no_extension(str(address)):
                    self._note_capabilities(server.address, await server.capabilities())
            except BaseException:
                await server.hang_up()
                raise
            return server

        server = await first_by_rank(ranks, attempt, head_start=self._head_start)
        self.hints.note_reached([one for rank in ranks for one in rank], server.address)
        if self.throttle is not None:
            server.pace = self.throttle.pass_on
        return server

    def _ranks(
        self, servers: Sequence[ServerAddress], last: Collection[ServerAddress]
    ) -> list[list[ServerAddress]]:
        """Return the order to dial in; one that was lost goes behind its rank, or behind all.

        Behind all only if it was dialled directly, because no other way shows more: whoever cuts a
        circuit is not to see us come without one, as long as another can be built.
        """
        policy = self._dialing.proxies.policy
        open_ones = [one for one in servers if one in last and policy.way_to(one) is Way.DIRECT]
        others = [one for one in servers if one not in open_ones]
        ranks = (*policy.in_ranks(others), *policy.in_ranks(open_ones))
        return [sorted(self.hints.order(rank), key=lambda one: one in last) for rank in ranks]

    def _meet(self, server: RemoteServer) -> Peer:
        return Peer(server, server.known_capabilities)

    def _note_capabilities(self, address: ServerAddress, found: Mapping[str, str]) -> None:
        now = self._clock()
        self._database.write(
            "INSERT OR REPLACE INTO capability (server, asked, names, ahead) VALUES (?, ?, ?, ?)",
            str(address),
            format_date(now),
            "\n".join(sorted(found)),
            round((later_of(now, found) - now).total_seconds()),
        )

    def _knows_no_extension(self, name: str) -> bool:
        row = self._database.row("SELECT asked, names FROM capability WHERE server = ?", name)
        if row is None or row["names"]:
            return False
        return self._clock() - parse_date(row["asked"]) < _ASK_AGAIN


def shuffled(servers: Sequence[ServerAddress]) -> list[ServerAddress]:
    """Return a group in an order of chance, so that its servers share the work."""
    return random.SystemRandom().sample(servers, len(servers))
