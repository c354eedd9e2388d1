"""Connections: to the home server, logged in, and to those of correspondents, as nobody."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime, timedelta

from sealmail_client.errors import ClientError
from sealmail_client.home_database import HomeDatabase
from sealmail_client.pin_book import PinBook
from sealmail_client.posting import Peer
from sealmail_client.settings import AuthKey, Place, Settings, auth_file_name
from sealmail_client.throttle import Throttle
from sealmail_net.dialing import DialSettings, dial_any
from sealmail_net.remote_server import RemoteServer
from sealmail_net.socks import Proxies
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.dates import format_date, parse_date

# An original server closes at the third unknown command: it is not asked every time.
_ASK_AGAIN = timedelta(days=7)


class LoginRefused(ClientError):
    """The home server does not know this key and auth key: ask its operator for an account."""

    exit_code = 24


class Servers:
    """Dials on behalf of one identity, and remembers pins and extensions."""

    def __init__(
        self,
        settings: Settings,
        auth_key: AuthKey,
        database: HomeDatabase,
        clock: Callable[[], datetime],
        further: Mapping[Place, AuthKey] | None = None,
    ) -> None:
        self._settings = settings
        self._auth_keys = {**(further or {}), Place.HOME: auth_key}
        self._database = database
        self._clock = clock
        self.pins = PinBook(database, clock)
        rate = settings.throttle_kib
        self.throttle = Throttle(rate) if rate else None
        self._dialing = DialSettings(
            allow_private_targets=settings.allow_private_targets,
            proxies=Proxies(settings.connecting.policy),
        )

    def home(self) -> AbstractAsyncContextManager[Peer]:
        """Connect to a server of the home group and log in; a changed TLS key stops us."""
        return self.at(Place.HOME)

    @asynccontextmanager
    async def at(self, place: Place) -> AsyncIterator[Peer]:
        """Connect to a server where we have an account, as ``home`` does."""
        key_id = self._settings.key_id
        servers = self._settings.places[place].servers
        async with await self._dial(servers, strict_pin=True) as server:
            if not await server.login(key_id.hex, self._auth_keys[place].text):
                raise LoginRefused(
                    f"{server.address} refused the login of {key_id}: "
                    "ask its operator for an account, and see that the auth key in the file "
                    f"{auth_file_name(place)} of your home is right"
                )
            yield await self._meet(server)

    @asynccontextmanager
    async def look_up(self, servers: Sequence[ServerAddress]) -> AsyncIterator[Peer]:
        """Connect without login where keys are believed: a changed TLS key stops us."""
        async with await self._dial(servers, strict_pin=True) as server:
            yield await self._meet(server)

    @asynccontextmanager
    async def deliver(self, servers: Sequence[ServerAddress]) -> AsyncIterator[Peer]:
        """Connect without login to leave sealed blocks."""
        async with await self._dial(servers, strict_pin=False) as server:
            yield await self._meet(server)

    def moment(self) -> datetime:
        """Return the date to write: ours, or that of the home server if it was ahead of us."""
        ahead = 0
        for server in self._settings.transport.servers:
            row = self._database.row("SELECT ahead FROM capability WHERE server = ?", str(server))
            ahead = max(ahead, 0 if row is None else row["ahead"])
        return self._clock() + timedelta(seconds=ahead)

    async def _dial(self, servers: Sequence[ServerAddress], *, strict_pin: bool) -> RemoteServer:
        server = await dial_any(servers, self._dialing, self.pins, strict_pin=strict_pin)
        if self.throttle is not None:
            server.pace = self.throttle.pass_on
        return server

    async def _meet(self, server: RemoteServer) -> Peer:
        name = str(server.address)
        if self._knows_no_extension(name):
            return Peer(server, {})
        capabilities = await server.capabilities()
        peer, now = Peer(server, capabilities), self._clock()
        self._database.write(
            "INSERT OR REPLACE INTO capability (server, asked, names, ahead) VALUES (?, ?, ?, ?)",
            name,
            format_date(now),
            "\n".join(sorted(capabilities)),
            round((peer.moment(now) - now).total_seconds()),
        )
        return peer

    def _knows_no_extension(self, name: str) -> bool:
        row = self._database.row("SELECT asked, names FROM capability WHERE server = ?", name)
        if row is None or row["names"]:
            return False
        return self._clock() - parse_date(row["asked"]) < _ASK_AGAIN
